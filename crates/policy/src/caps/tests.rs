//! Colors change plans, and plans do not change without colors.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::color::{Channel, Color, ColorSource, Declared, Standing};
use crate::config::{Amount, ColorConfig, Mode};
use crate::plan::{Knob, Plan, Reason, Value};
use crate::snapshot::{GroupId, Snapshot};
use crate::tests::testing::{self, apply, group};
use crate::units::Weight;
use crate::{step, State};

const SECOND: Duration = Duration::from_secs(1);

fn said(standing: Standing, color: Option<Color>) -> Declared {
    Declared {
        standing,
        color,
        channel: Channel::Xattr,
        unchanged_s: 0.5,
        reason: "p99 12 ms".into(),
    }
}

fn fresh(color: Color) -> Declared {
    said(Standing::Fresh, Some(color))
}

/// Readers with these weights and this many MiB of page cache, IDs from 1, on a host without free memory.
fn holding(groups: &[(u32, u64)]) -> Snapshot {
    let total: u64 = groups.iter().map(|g| g.1).sum();
    let mut snapshot = testing::snapshot(total, Vec::new());
    for (i, &(weight, mib)) in groups.iter().enumerate() {
        let mut g = group(i as u64 + 1, None, &format!("/g{i}"));
        g.weight = Some(Weight::new(weight).unwrap());
        g.memory.file = Some(Bytes::mib(mib));
        g.memory.current = Some(Bytes::mib(mib + 20));
        g.memory.anon = Some(Bytes::mib(20));
        snapshot.groups.push(g);
    }
    snapshot
}

/// The same, of which the first declares red and the second green.
fn red_and_green(groups: &[(u32, u64)]) -> Snapshot {
    let mut snapshot = holding(groups);
    snapshot.groups[0].declared = Some(fresh(Color::Red));
    snapshot.groups[1].declared = Some(fresh(Color::Green));
    snapshot
}

/// All groups read and stall for a second.
fn pass(snapshot: &mut Snapshot) {
    for g in &mut snapshot.groups {
        g.traffic.read_bytes = g.traffic.read_bytes.map(|b| b + 20_000_000);
        g.traffic.missed_bytes = g.traffic.missed_bytes.map(|b| b + 5_000_000);
        g.pressure.io_some_us = g.pressure.io_some_us.map(|us| us + 300_000);
    }
}

/// Reclaims groups down to their limits; free memory goes to the first group.
fn follow(snapshot: &mut Snapshot) {
    let mut freed = Bytes::ZERO;
    for g in &mut snapshot.groups {
        let (Some(Limit::Bytes(high)), Some(current), Some(file)) =
            (g.knobs.high, g.memory.current, g.memory.file)
        else {
            continue;
        };
        let over = current - high;
        g.memory.current = Some(current - over);
        g.memory.file = Some(file - over);
        freed = freed + over;
    }
    let first = &mut snapshot.groups[0].memory;
    first.file = first.file.map(|file| file + freed);
    first.current = first.current.map(|current| current + freed);
}

fn run(snapshot: &mut Snapshot, config: &Config, seconds: usize) -> (State, Plan) {
    let (mut state, mut plan) = step(&State::default(), snapshot, config, Duration::ZERO);
    for _ in 0..seconds {
        apply(snapshot, &plan);
        follow(snapshot);
        pass(snapshot);
        (state, plan) = step(&state, snapshot, config, SECOND);
    }
    (state, plan)
}

fn mib(bytes: Option<Bytes>) -> u64 {
    bytes.map_or(u64::MAX, |bytes| bytes.0 >> 20)
}

#[test]
fn a_green_group_gives_two_percent_a_second_to_the_red_one() {
    let mut snapshot = red_and_green(&[(100, 200), (100, 200), (100, 200)]);
    let (_, plan) = run(&mut snapshot, &Config::default(), 30);
    let cap = plan.verdicts[1].cap;
    // 0.98^29 and ^30 of 220 MiB, 20 of which are not page cache, and what is not worth a write.
    assert!((98..=118).contains(&mib(cap)), "{cap:?}");
    assert_eq!(plan.verdicts[0].cap, None);
    assert_eq!(plan.verdicts[2].cap, None, "nobody asked it");
    assert_eq!(plan.verdicts[1].color_source, ColorSource::Declared);
    assert_eq!(plan.verdicts[2].color_source, ColorSource::Inferred);
    assert!(mib(plan.verdicts[1].threshold.into()) <= mib(cap));
    assert_eq!(snapshot.groups[2].knobs.high, Some(Limit::Max));
    assert_eq!(snapshot.groups[2].memory.file, Some(Bytes::mib(200)));
}

#[test]
fn a_red_group_that_reads_little_takes_slowly() {
    let cap = |missed_per_s, anon_per_s: u64| {
        let mut snapshot = red_and_green(&[(100, 200), (100, 200)]);
        let config = Config::default();
        let mut state = State::default();
        let mut plan = Plan::default();
        for second in 0..10 {
            let red = &mut snapshot.groups[0];
            red.traffic.missed_bytes = Some(second * missed_per_s);
            red.memory.anon = Some(Bytes::mib(20) + Bytes(second * anon_per_s));
            (state, plan) = step(&state, &snapshot, &config, SECOND);
            apply(&mut snapshot, &plan);
            follow(&mut snapshot);
        }
        mib(plan.verdicts[1].cap)
    };
    let (mib_1, mib_100) = (1 << 20, 100 << 20);
    // In each of ten seconds at most 2 % of 220 MiB are given, and at least a sixteenth of that. In the first
    // second nothing is known, and the full 2 % are given.
    let caps = [
        cap(mib_100, 0),
        cap(2 * mib_1, 0),
        cap(mib_1, 0),
        cap(0, 0),
        cap(0, 2 * mib_1),
    ];
    assert_eq!(caps, [159, 177, 186, 193, 177]);
}

#[test]
fn memory_that_the_guard_keeps_free_does_not_end_the_giving() {
    let cap = |guarded| {
        let mut snapshot = red_and_green(&[(100, 200), (100, 200)]);
        snapshot.host.total = Some(Bytes::mib(600));
        snapshot.host.free = Some(Bytes::mib(180));
        let mut config = Config::default();
        config.guard.enabled = guarded;
        config.guard.reserve = Amount::Percent(30.0);
        run(&mut snapshot, &config, 5).1.verdicts[1].cap
    };
    assert_eq!(cap(false), None, "there is enough for the red one");
    assert!(mib(cap(true)) < 200, "none of it is for the red one");
}

#[test]
fn little_page_cache_beside_much_other_memory_is_not_lost_at_once() {
    let mut snapshot = red_and_green(&[(100, 200), (100, 50)]);
    let giver = &mut snapshot.groups[1];
    giver.memory.anon = Some(Bytes::mib(5000));
    giver.memory.current = Some(Bytes::mib(5050));
    // 2 % of the footprint is twice its page cache; 10 % of the page cache is taken in a period.
    let (_, plan) = run(&mut snapshot, &Config::default(), 2);
    let cap = plan.verdicts[1].cap;
    assert!((38..=45).contains(&mib(cap)), "{cap:?}");
}

#[test]
fn a_write_for_a_color_says_so() {
    let mut snapshot = red_and_green(&[(100, 300), (100, 300)]);
    let (state, mut plan) = run(&mut snapshot, &Config::default(), 1);
    let high = |plan: &Plan| {
        let mut writes = plan.writes.iter();
        writes
            .find(|w| w.knob == Knob::MemoryHigh && w.group == GroupId(2))
            .cloned()
    };
    let write = high(&plan).expect("the first taking");
    assert_eq!(write.reason, Reason::Rebalance);
    // A group that turns red is free at once.
    apply(&mut snapshot, &plan);
    snapshot.groups[1].declared = Some(fresh(Color::Red));
    pass(&mut snapshot);
    plan = step(&state, &snapshot, &Config::default(), SECOND).1;
    let write = high(&plan).expect("the limit is lifted");
    assert_eq!(write.value, Value::Limit(Limit::Max));
    assert_eq!(write.reason, Reason::Rebalance);
}

#[test]
fn freed_memory_goes_by_weight_to_those_that_demand_it() {
    let mut snapshot = holding(&[(100, 200), (300, 400), (800, 400)]);
    snapshot.groups[0].declared = Some(fresh(Color::Red));
    snapshot.groups[1].declared = Some(fresh(Color::Red));
    let (_, before) = run(&mut snapshot.clone(), &Config::default(), 3);
    snapshot.groups[2].declared = Some(fresh(Color::Green));
    let (_, after) = run(&mut snapshot, &Config::default(), 8);
    let gained = |i: usize| after.verdicts[i].entitlement - before.verdicts[i].entitlement;
    let ratio = gained(1).as_f64() / gained(0).as_f64();
    assert!((ratio - 3.0).abs() < 0.1, "{} {}", gained(0), gained(1));
    assert!(after.verdicts[2].entitlement < before.verdicts[2].entitlement);
}

#[test]
fn yellow_gives_after_green_has_nothing_left() {
    let mut snapshot = red_and_green(&[(100, 200), (100, 30), (100, 200)]);
    snapshot.groups[2].declared = Some(fresh(Color::Yellow));
    snapshot.groups[1].memory.file_mapped = Some(Bytes::mib(25));
    let (_, plan) = run(&mut snapshot, &Config::default(), 4);
    assert!(plan.verdicts[1].cap.is_some());
    assert_eq!(plan.verdicts[2].cap, None);
    let (_, plan) = run(&mut snapshot, &Config::default(), 30);
    assert_eq!(mib(plan.verdicts[1].cap), 25, "its mapped pages stay");
    assert!(mib(plan.verdicts[2].cap) < 200);
}

#[test]
fn with_free_memory_nothing_is_taken() {
    let mut snapshot = red_and_green(&[(100, 200), (100, 200)]);
    snapshot.host.total = Some(Bytes::mib(600));
    snapshot.host.free = Some(Bytes::mib(200));
    let (_, plan) = run(&mut snapshot, &Config::default(), 20);
    assert_eq!(plan.verdicts[1].cap, None);
}

#[test]
fn weights_alone_know_no_colors() {
    let config = Config::in_mode(Mode::Justitia);
    let mut silent = holding(&[(100, 300), (100, 300)]);
    let mut loud = red_and_green(&[(100, 300), (100, 300)]);
    let writes = |snapshot: &mut Snapshot| run(snapshot, &config, 10).1.writes;
    assert_eq!(writes(&mut silent), writes(&mut loud));
}

/// The reclaims of mode `memoplight` in each of `seconds` seconds: group and MiB, in order.
fn reclaimed(snapshot: &mut Snapshot, seconds: usize) -> Vec<Vec<(u64, u64)>> {
    let config = Config::in_mode(Mode::Memoplight);
    let (mut state, mut plan) = step(&State::default(), snapshot, &config, Duration::ZERO);
    assert!(plan.writes.is_empty(), "{plan:?}");
    let mut all = Vec::new();
    for _ in 0..seconds {
        pass(snapshot);
        (state, plan) = step(&state, snapshot, &config, SECOND);
        assert!(plan.verdicts.iter().all(|verdict| verdict.cap.is_none()));
        let asked = plan.writes.iter().map(|write| match write.value {
            Value::Reclaim(bytes) => (write.group.0, bytes.0 >> 20),
            _ => panic!("no limit and no threshold is its own: {write:?}"),
        });
        all.push(asked.collect());
    }
    all
}

#[test]
fn memoplight_starts_red_and_reclaims_two_percent_of_each_green_footprint_once_a_period() {
    let mut snapshot = holding(&[(100, 200), (100, 380), (100, 200)]);
    let config = Config::in_mode(Mode::Memoplight);
    let (_, plan) = step(&State::default(), &snapshot, &config, Duration::ZERO);
    assert!(plan.verdicts.iter().all(|v| v.color == Color::Red));
    snapshot.groups[1].declared = Some(fresh(Color::Green));
    // 2 % of 400 MiB each second. No limit holds what was taken, so it is taken again.
    let asked = reclaimed(&mut snapshot, 5);
    assert_eq!(asked, vec![vec![(2, 8)]; 5]);
    snapshot.groups[1].declared = Some(fresh(Color::Red));
    assert_eq!(reclaimed(&mut snapshot, 2), [vec![], vec![]]);
}

#[test]
fn memoplight_takes_from_green_before_yellow_and_never_mapped_or_unknown_memory() {
    let mut snapshot = holding(&[(100, 200), (100, 380), (100, 30)]);
    snapshot.groups[0].declared = Some(fresh(Color::Red));
    snapshot.groups[1].declared = Some(fresh(Color::Yellow));
    snapshot.groups[2].declared = Some(fresh(Color::Green));
    let asked = |snapshot: &mut Snapshot| reclaimed(snapshot, 2).pop().unwrap();
    assert_eq!(asked(&mut snapshot), [(3, 1), (2, 8)]);
    snapshot.groups[2].memory.file_mapped = Some(Bytes::mib(30));
    assert_eq!(asked(&mut snapshot), [(2, 8)], "code stays");
    snapshot.groups[1].memory.current = None;
    assert!(asked(&mut snapshot).is_empty(), "unknown moves nothing");
    snapshot.groups[1].memory.current = Some(Bytes::mib(400));
    snapshot.groups[1].knobs.reclaim = false;
    assert!(asked(&mut snapshot).is_empty(), "it cannot be reclaimed");
}

#[test]
fn memoplight_lifts_limits_that_another_mode_left() {
    let mut snapshot = red_and_green(&[(100, 200), (100, 200)]);
    for g in &mut snapshot.groups {
        g.knobs.operator.high = Some(Limit::Max);
    }
    let (state, plan) = run(&mut snapshot, &Config::in_mode(Mode::Proportional), 5);
    apply(&mut snapshot, &plan);
    assert_ne!(snapshot.groups[1].knobs.high, Some(Limit::Max));
    let (_, plan) = step(
        &state,
        &snapshot,
        &Config::in_mode(Mode::Memoplight),
        SECOND,
    );
    apply(&mut snapshot, &plan);
    assert_eq!(snapshot.groups[1].knobs.high, Some(Limit::Max));
}

fn standings() -> impl Strategy<Value = Option<Declared>> {
    let standing = prop::sample::select(vec![
        Standing::Stale,
        Standing::Removed,
        Standing::Malformed,
        Standing::TooLong,
        Standing::Unreadable,
    ]);
    let color = prop::option::of(colors());
    let declared = (standing, color).prop_map(|(standing, color)| said(standing, color));
    prop::option::of(declared)
}

fn colors() -> impl Strategy<Value = Color> {
    prop::sample::select(vec![Color::Green, Color::Yellow, Color::Red])
}

fn weighted() -> impl Strategy<Value = Vec<(u32, u64)>> {
    prop::collection::vec((1u32..1000, 5u64..400), 2..6)
}

proptest! {
    #[test]
    fn without_a_color_that_counts_plans_are_as_without_colors(
        groups in weighted(),
        said in prop::collection::vec(prop::collection::vec(standings(), 6), 1..12),
        percent in 0.1f64..50.0,
    ) {
        let silent_config = Config::default();
        let config = Config {
            colors: ColorConfig { period_s: 0.5, percent, ..ColorConfig::default() },
            ..Config::default()
        };
        let (mut silent, mut loud) = (holding(&groups), holding(&groups));
        let (mut state, mut other) = (State::default(), State::default());
        for said in said {
            for (g, said) in loud.groups.iter_mut().zip(said) {
                g.declared = said;
            }
            let (plan, same);
            (state, plan) = step(&state, &silent, &silent_config, SECOND);
            (other, same) = step(&other, &loud, &config, SECOND);
            prop_assert_eq!(&plan, &same);
            for snapshot in [&mut silent, &mut loud] {
                apply(snapshot, &plan);
                follow(snapshot);
                pass(snapshot);
            }
        }
    }

    #[test]
    fn red_alone_changes_nothing(
        groups in weighted(),
        red in prop::collection::vec(prop::collection::vec(any::<bool>(), 6), 1..12),
    ) {
        let config = Config::default();
        let (mut silent, mut loud) = (holding(&groups), holding(&groups));
        let (mut state, mut other) = (State::default(), State::default());
        for red in red {
            for (g, red) in loud.groups.iter_mut().zip(red) {
                g.declared = red.then(|| fresh(Color::Red));
            }
            let (plan, same);
            (state, plan) = step(&state, &silent, &config, SECOND);
            (other, same) = step(&other, &loud, &config, SECOND);
            prop_assert_eq!(&plan.writes, &same.writes);
            for snapshot in [&mut silent, &mut loud] {
                apply(snapshot, &plan);
                follow(snapshot);
                pass(snapshot);
            }
        }
    }

    #[test]
    fn memory_is_conserved_floors_hold_and_no_red_gets_more_than_its_share_and_what_others_gave(
        groups in weighted(),
        declared in prop::collection::vec(prop::collection::vec(prop::option::of(colors()), 6), 1..25),
    ) {
        let config = Config::default();
        let mut snapshot = holding(&groups);
        let total: Bytes = snapshot.groups.iter().filter_map(|g| g.memory.file).sum();
        let weight: u64 = groups.iter().map(|g| u64::from(g.0)).sum();
        let mut state = State::default();
        for colors in declared {
            for (g, color) in snapshot.groups.iter_mut().zip(&colors) {
                g.declared = color.map(fresh);
            }
            let plan;
            (state, plan) = step(&state, &snapshot, &config, SECOND);
            let entitled: Bytes = plan.verdicts.iter().map(|v| v.entitlement).sum();
            prop_assert!(entitled <= total);
            for (g, v) in snapshot.groups.iter().zip(&plan.verdicts) {
                if let Some(cap) = v.cap {
                    prop_assert!(cap >= limits::Least::of(g, None).file);
                    prop_assert!(matches!(v.color, Color::Green | Color::Yellow));
                }
                let share = total.scale(f64::from(g.weight.unwrap().get()) / weight as f64);
                // A group that demands more than its share gets memory from groups that demand less than
                // theirs.
                let lent: Bytes = snapshot
                    .groups
                    .iter()
                    .zip(&plan.verdicts)
                    .filter(|(other, _)| other.id != g.id)
                    .map(|(other, v)| {
                        let theirs = f64::from(other.weight.unwrap().get()) / weight as f64;
                        total.scale(theirs) - v.entitlement
                    })
                    .sum();
                prop_assert!(v.entitlement <= share + lent + Bytes(4096), "{:?}", v);
            }
            apply(&mut snapshot, &plan);
            follow(&mut snapshot);
            pass(&mut snapshot);
        }
    }

    #[test]
    fn a_group_loses_nothing_to_the_colors_of_others(
        groups in weighted(),
        declared in prop::collection::vec(prop::collection::vec(colors(), 6), 1..25),
    ) {
        // The last group declares nothing and keeps its share by weight, whatever others declare.
        let config = Config::default();
        let mut snapshot = holding(&groups);
        let last = groups.len() - 1;
        let weight: u64 = groups.iter().map(|g| u64::from(g.0)).sum();
        let total: Bytes = snapshot.groups.iter().filter_map(|g| g.memory.file).sum();
        let share = total.scale(f64::from(groups[last].0) / weight as f64);
        let mut state = State::default();
        for colors in declared {
            for (g, color) in snapshot.groups[..last].iter_mut().zip(&colors) {
                g.declared = Some(fresh(*color));
            }
            let plan;
            (state, plan) = step(&state, &snapshot, &config, SECOND);
            let v = &plan.verdicts[last];
            let held = snapshot.groups[last].memory.file.unwrap();
            prop_assert!(v.entitlement + Bytes(4096) >= share.min(held), "{:?} {}", v, share);
            prop_assert_eq!(v.cap, None);
            prop_assert_eq!(snapshot.groups[last].knobs.high, Some(Limit::Max));
            apply(&mut snapshot, &plan);
            follow(&mut snapshot);
            pass(&mut snapshot);
        }
    }
}
