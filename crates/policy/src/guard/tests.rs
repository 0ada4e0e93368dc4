//! The guard takes memory only when needed, only from groups above their share, and never below floors.

use super::*;
use crate::config::{Amount, Mode};
use crate::snapshot::Outside;
use crate::step::step;
use crate::tests::testing::{group, host};
use crate::units::Limit;
use crate::units::Weight;
use crate::State;
use proptest::prelude::*;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

const ROOT: GroupId = GroupId(900);

/// A host of 1000 MiB with 16 MiB of watermarks, and groups that hold this much page cache and
/// this much other memory, MiB.
fn machine(free: u64, groups: &[(u64, u64)]) -> Snapshot {
    let mut snapshot = Snapshot {
        host: host(1000),
        outside: Some(Outside {
            root: ROOT,
            reclaim: true,
        }),
        ..Snapshot::default()
    };
    snapshot.host.free = Some(Bytes::mib(free + 16));
    snapshot.host.high_watermark = Some(Bytes::mib(16));
    for (id, &(file, other)) in (1..).zip(groups) {
        let mut g = group(id, None, &format!("/g{id}"));
        g.memory.file = Some(Bytes::mib(file));
        g.memory.anon = Some(Bytes::mib(other));
        g.memory.current = Some(Bytes::mib(file + other));
        snapshot.groups.push(g);
    }
    let held: u64 = groups.iter().map(|(file, _)| file).sum();
    snapshot.host.file = Some(Bytes::mib(held));
    snapshot
}

fn config(reserve_mib: u64) -> Config {
    Config {
        guard: GuardConfig {
            enabled: true,
            reserve: Amount::Bytes(Bytes::mib(reserve_mib)),
            root_share: Amount::Percent(10.0),
        },
        ..Config::default()
    }
}

/// Bytes that a step reclaims from each group, and the guard's view.
fn asks(snapshot: &Snapshot, config: &Config) -> (BTreeMap<GroupId, Bytes>, Option<Guarded>) {
    let (_, plan) = step(&State::default(), snapshot, config, Duration::ZERO);
    (reclaims(&plan), plan.guard)
}

fn reclaims(plan: &crate::Plan) -> BTreeMap<GroupId, Bytes> {
    let each = plan.writes.iter().filter_map(|write| match write.value {
        Value::Reclaim(bytes) => Some((write.group, bytes)),
        _ => None,
    });
    each.collect()
}

fn reserve_for(snapshot: &mut Snapshot, path: &str, mib: u64) {
    snapshot.reservations = vec![Reservation {
        path: path.into(),
        bytes: Bytes::mib(mib),
        left_s: 60.0,
    }];
}

#[test]
fn without_guard_or_reservation_and_in_mode_observe_nothing_is_asked() {
    let snapshot = machine(5, &[(500, 20), (300, 20)]);
    let (asked, thought) = asks(&snapshot, &Config::default());
    assert!(asked.is_empty() && thought.is_none());
    let observing = Config {
        mode: Mode::Observe,
        ..config(50)
    };
    assert!(asks(&snapshot, &observing).0.is_empty());
}

#[test]
fn missing_memory_is_taken_from_the_group_above_its_share() {
    let mut snapshot = machine(10, &[(600, 20), (100, 20)]);
    // The second group has a use for more than it holds.
    for g in &mut snapshot.groups {
        g.weight = Weight::new(100).ok();
    }
    let (asked, thought) = asks(&snapshot, &config(60));
    let thought = thought.unwrap();
    assert_eq!(thought.spare, Some(Bytes::mib(10)));
    assert!(asked[&GroupId(1)] > Bytes::mib(8), "{asked:?}");
    assert!(!asked.contains_key(&GroupId(2)), "{asked:?}");
    assert!(thought.asked <= thought.missing);
}

#[test]
fn a_kept_reserve_takes_nothing() {
    let snapshot = machine(61, &[(600, 20), (100, 20)]);
    assert!(asks(&snapshot, &config(60)).0.is_empty());
}

#[test]
fn unknown_free_memory_or_page_cache_moves_nothing() {
    let mut snapshot = machine(1, &[(600, 20)]);
    assert!(
        !asks(&snapshot, &config(60)).0.is_empty(),
        "known, it is asked"
    );
    snapshot.host.free = None;
    assert!(asks(&snapshot, &config(60)).0.is_empty());
    let mut snapshot = machine(1, &[(600, 20)]);
    snapshot.groups[0].memory.file = None;
    snapshot.host.file = Some(Bytes::mib(900));
    assert!(
        asks(&snapshot, &config(60)).0.is_empty(),
        "the root's is not known then"
    );
}

#[test]
fn mapped_and_dirty_pages_and_operators_protection_stay() {
    let asked = |change: fn(&mut Group)| {
        let mut snapshot = machine(0, &[(600, 20), (300, 20)]);
        change(&mut snapshot.groups[0]);
        let asked = asks(&snapshot, &config(200)).0;
        asked.get(&GroupId(1)).copied().unwrap_or_default()
    };
    assert!(asked(|_| ()) > Bytes::mib(20));
    assert_eq!(
        asked(|g| g.memory.file_mapped = Some(Bytes::mib(600))),
        Bytes::ZERO
    );
    assert_eq!(
        asked(|g| g.memory.file_dirty = Some(Bytes::mib(600))),
        Bytes::ZERO
    );
    assert_eq!(asked(|g| g.memory.file_dirty = None), Bytes::ZERO);
    assert_eq!(
        asked(|g| g.knobs.operator.low = Some(Limit::Max)),
        Bytes::ZERO
    );
    assert_eq!(asked(|g| g.knobs.reclaim = false), Bytes::ZERO);
}

#[test]
fn the_root_gives_back_what_is_above_its_share_while_memory_is_scarce() {
    let mut snapshot = machine(3, &[(300, 20)]);
    snapshot.host.file = Some(Bytes::mib(900));
    let (asked, thought) = asks(&snapshot, &config(1));
    assert_eq!(thought.unwrap().unmanaged, Some(Bytes::mib(600)));
    assert_eq!(asked[&ROOT], Bytes::mib(125), "one batch");
    snapshot.host.free = Some(Bytes::mib(500));
    assert!(asks(&snapshot, &config(1)).0.is_empty(), "there is enough");
    snapshot.host.free = Some(Bytes::mib(3));
    snapshot.outside = None;
    assert!(!asks(&snapshot, &config(1)).0.contains_key(&ROOT));
}

#[test]
fn a_reservation_is_used_up_by_what_its_group_takes() {
    let mut snapshot = machine(20, &[(700, 20), (0, 0)]);
    reserve_for(&mut snapshot, "/g2", 200);
    let off = Config::default();
    let (state, plan) = step(&State::default(), &snapshot, &off, Duration::ZERO);
    assert_eq!(plan.guard.unwrap().reserved, Bytes::mib(200));
    assert!(reclaims(&plan)[&GroupId(1)] > Bytes::mib(100));
    snapshot.groups[1].memory.current = Some(Bytes::mib(150));
    snapshot.groups[1].memory.anon = Some(Bytes::mib(150));
    let (state, plan) = step(&state, &snapshot, &off, Duration::from_secs(1));
    assert_eq!(plan.guard.unwrap().reserved, Bytes::mib(50));
    snapshot.reservations[0].left_s = 59.0;
    let (state, plan) = step(&state, &snapshot, &off, Duration::from_secs(1));
    assert_eq!(plan.guard.unwrap().reserved, Bytes::mib(50));
    reserve_for(&mut snapshot, "/g2", 100);
    let (state, plan) = step(&state, &snapshot, &off, Duration::from_secs(1));
    assert_eq!(
        plan.guard.unwrap().reserved,
        Bytes::mib(100),
        "reserved anew"
    );
    snapshot.reservations.clear();
    let (_, plan) = step(&state, &snapshot, &off, Duration::from_secs(1));
    assert!(plan.guard.is_none() && reclaims(&plan).is_empty());
}

#[test]
fn a_shorter_or_smaller_reservation_is_a_new_one_and_time_that_passed_is_not() {
    let mut snapshot = machine(20, &[(700, 20), (0, 0)]);
    let mut state = State::default();
    let mut reserved = |mib: u64, left_s: f64, taken_mib: u64, elapsed_s: u64| {
        reserve_for(&mut snapshot, "/g2", mib);
        snapshot.reservations[0].left_s = left_s;
        snapshot.groups[1].memory.current = Some(Bytes::mib(taken_mib));
        let elapsed = Duration::from_secs(elapsed_s);
        let (next, plan) = step(&state, &snapshot, &Config::default(), elapsed);
        state = next;
        plan.guard.unwrap().reserved.0 >> 20
    };
    assert_eq!(reserved(200, 600.0, 0, 1), 200);
    assert_eq!(reserved(200, 590.0, 200, 10), 0);
    assert_eq!(reserved(200, 400.0, 200, 0), 0, "no agent ran");
    assert_eq!(reserved(200, 60.0, 200, 1), 200, "shorter");
    assert_eq!(reserved(200, 59.0, 400, 1), 0);
    assert_eq!(reserved(100, 58.0, 400, 1), 100, "smaller");
}

#[test]
fn a_reservation_for_a_group_that_restarts_is_used_up_by_the_new_one() {
    let mut snapshot = machine(20, &[(700, 20), (0, 150)]);
    reserve_for(&mut snapshot, "/g2", 200);
    let mut state = State::default();
    let mut reserved = |snapshot: &Snapshot| {
        let (next, plan) = step(&state, snapshot, &Config::default(), Duration::ZERO);
        state = next;
        plan.guard.unwrap().reserved
    };
    assert_eq!(reserved(&snapshot), Bytes::mib(200));
    let mut group = snapshot.groups.pop().unwrap();
    assert_eq!(reserved(&snapshot), Bytes::mib(200));
    group.id = GroupId(3);
    snapshot.groups.push(group);
    assert_eq!(reserved(&snapshot), Bytes::mib(50));
}

#[test]
fn a_reservation_for_a_group_that_is_not_there_yet_is_kept_whole() {
    let mut snapshot = machine(20, &[(700, 20)]);
    reserve_for(&mut snapshot, "/later", 100);
    let (_, thought) = asks(&snapshot, &Config::default());
    assert_eq!(thought.unwrap().reserved, Bytes::mib(100));
}

#[test]
fn while_memory_is_reserved_others_are_limited_at_their_share_and_afterwards_not() {
    for mode in [Mode::Proportional, Mode::Justitia] {
        let config = Config::in_mode(mode);
        let mut snapshot = machine(20, &[(900, 20), (0, 0)]);
        // Dirty pages cannot be reclaimed; only the limit makes the kernel write them back.
        snapshot.groups[0].memory.file_dirty = Some(Bytes::mib(900));
        reserve_for(&mut snapshot, "/g2", 400);
        let (state, plan) = step(&State::default(), &snapshot, &config, Duration::ZERO);
        crate::tests::testing::apply(&mut snapshot, &plan);
        let high = snapshot.groups[0].knobs.high;
        assert!(
            high < Some(Limit::Bytes(Bytes::mib(930))),
            "{mode:?} {high:?}"
        );
        assert_eq!(snapshot.groups[1].knobs.high, Some(Limit::Max));
        let limited = plan
            .writes
            .iter()
            .any(|write| write.reason == Reason::Reserved);
        assert!(limited && reclaims(&plan).is_empty());
        snapshot.reservations.clear();
        let (_, plan) = step(&state, &snapshot, &config, Duration::from_secs(1));
        crate::tests::testing::apply(&mut snapshot, &plan);
        assert_eq!(snapshot.groups[0].knobs.high, Some(Limit::Max), "{mode:?}");
    }
}

#[test]
fn while_the_host_cannot_be_read_a_reservation_moves_no_limit() {
    for mode in [Mode::Proportional, Mode::Justitia] {
        let config = Config::in_mode(mode);
        let mut snapshot = machine(20, &[(900, 20), (0, 0)]);
        reserve_for(&mut snapshot, "/g2", 400);
        let (state, plan) = step(&State::default(), &snapshot, &config, Duration::ZERO);
        crate::tests::testing::apply(&mut snapshot, &plan);
        // The kernel takes what the limit does not leave.
        let high = snapshot.groups[0].knobs.high.and_then(Limit::bytes);
        let memory = &mut snapshot.groups[0].memory;
        memory.current = high;
        memory.file = high.map(|high| high - Bytes::mib(20));
        snapshot.host.high_watermark = None;
        let (_, plan) = step(&state, &snapshot, &config, SECOND);
        let moved = |write: &Write| write.knob == Knob::MemoryHigh;
        assert!(!plan.writes.iter().any(moved), "{mode:?} {:?}", plan.writes);
    }
}

#[test]
fn an_operators_limit_that_comes_back_after_a_reservation_says_that_nothing_contends() {
    for mode in [Mode::Proportional, Mode::Justitia] {
        let config = Config::in_mode(mode);
        let mut snapshot = machine(20, &[(900, 20), (0, 0)]);
        let operators = Some(Limit::Bytes(Bytes::mib(960)));
        let knobs = &mut snapshot.groups[0].knobs;
        (knobs.high, knobs.operator.high) = (operators, operators);
        reserve_for(&mut snapshot, "/g2", 400);
        let (state, plan) = step(&State::default(), &snapshot, &config, Duration::ZERO);
        crate::tests::testing::apply(&mut snapshot, &plan);
        assert!(snapshot.groups[0].knobs.high < operators);
        snapshot.reservations.clear();
        let (_, plan) = step(&state, &snapshot, &config, SECOND);
        let back = plan
            .writes
            .iter()
            .find(|write| write.knob == Knob::MemoryHigh);
        let back = back.expect("a write");
        assert_eq!(Some(back.value), operators.map(Value::Limit));
        assert_eq!(back.reason, Reason::NoContention, "{mode:?}");
    }
}

#[test]
fn a_reservation_for_a_pod_limits_no_container_of_it() {
    for path in ["/g2", "/g"] {
        let mut snapshot = machine(20, &[(900, 20), (0, 0)]);
        snapshot.groups[0].path = "/g2/container".into();
        snapshot.groups[0].parent = Some(snapshot.groups[1].id);
        snapshot.groups.swap(0, 1);
        snapshot.groups[0].memory.current = Some(Bytes::mib(920));
        reserve_for(&mut snapshot, path, 400);
        let (_, plan) = step(&State::default(), &snapshot, &Config::default(), SECOND);
        let theirs = plan
            .writes
            .iter()
            .any(|write| write.reason == Reason::Reserved || write.knob == Knob::MemoryReclaim);
        assert_eq!(theirs, path == "/g", "{path}: {:?}", plan.writes);
    }
}

#[test]
fn a_group_that_cannot_be_read_keeps_its_limit() {
    let mut snapshot = machine(20, &[(900, 20), (0, 0)]);
    reserve_for(&mut snapshot, "/g2", 400);
    let off = Config::default();
    let (state, plan) = step(&State::default(), &snapshot, &off, Duration::ZERO);
    crate::tests::testing::apply(&mut snapshot, &plan);
    assert!(snapshot.groups[0].knobs.high < Some(Limit::Max));
    snapshot.reservations.clear();
    snapshot.groups[0].memory = crate::snapshot::Memory::default();
    snapshot.groups[0].traffic = crate::snapshot::Traffic::default();
    snapshot.groups[0].pressure = crate::snapshot::Pressure::default();
    let (_, plan) = step(&state, &snapshot, &off, Duration::from_secs(1));
    let lifted = plan
        .writes
        .iter()
        .any(|write| write.knob == Knob::MemoryHigh);
    assert!(!lifted, "{:?}", plan.writes);
}

#[test]
fn protection_leaves_the_reserve_out() {
    let low = |reserve| {
        let snapshot = machine(20, &[(600, 0), (300, 0)]);
        let (_, plan) = step(
            &State::default(),
            &snapshot,
            &config(reserve),
            Duration::ZERO,
        );
        let lows = plan
            .writes
            .iter()
            .filter_map(|write| match (write.knob, write.value) {
                (Knob::MemoryLow, Value::Limit(Limit::Bytes(bytes))) => Some(bytes),
                _ => None,
            });
        lows.sum::<Bytes>()
    };
    assert!(low(200) <= Bytes::mib(920 - 200), "{}", low(200));
    assert!(low(0) > Bytes::mib(850));
}

fn sources() -> impl Strategy<Value = Vec<Source>> {
    let source = (0_u64..1 << 40, 0_u64..=100).prop_map(|(over, percent)| Source {
        over: Bytes(over),
        takeable: Bytes(over / 100 * percent),
    });
    proptest::collection::vec(source, 0..12)
}

proptest! {
    #[test]
    fn takes_are_conserved_and_bounded(missing in 0_u64..1 << 42, sources in sources()) {
        let taken = takes(Bytes(missing), &sources);
        for (bytes, source) in taken.iter().zip(&sources) {
            prop_assert!(*bytes <= source.takeable);
        }
        let able: Bytes = sources.iter().filter(|s| s.over.0 > 0).map(|s| s.takeable).sum();
        prop_assert_eq!(taken.into_iter().sum::<Bytes>(), able.min(Bytes(missing)));
    }

    #[test]
    fn more_missing_never_takes_less_of_anybody(
        less in 0_u64..1 << 40, more in 0_u64..1 << 40, sources in sources(),
    ) {
        let small = takes(Bytes(less), &sources);
        let large = takes(Bytes(less + more), &sources);
        for (small, large) in small.iter().zip(&large) {
            // One byte may go to another of the largest remainders.
            prop_assert!(small.0 <= large.0 + 1);
        }
    }

    #[test]
    fn a_group_further_above_its_share_gives_no_less(
        missing in 0_u64..1 << 40, a in 1_u64..1 << 40, b in 1_u64..1 << 40,
    ) {
        let whole = |over| Source { over: Bytes(over), takeable: Bytes(over) };
        let taken = takes(Bytes(missing), &[whole(a), whole(b)]);
        prop_assert!((a >= b) == (taken[0] >= taken[1]) || taken[0].0.abs_diff(taken[1].0) <= 1);
    }

    #[test]
    fn no_step_takes_below_share_or_floor_or_more_than_is_missing(
        free in 0_u64..80,
        reserve in 0_u64..300,
        groups in proptest::collection::vec((0_u64..400, 0_u64..100, 0_u64..=100, 0_u64..=100), 1..6),
    ) {
        let sizes: Vec<(u64, u64)> = groups.iter().map(|g| (g.0, g.1)).collect();
        let mut snapshot = machine(free, &sizes);
        for (g, made) in snapshot.groups.iter_mut().zip(&groups) {
            g.memory.file_mapped = Some(Bytes::mib(made.0 * made.2 / 100));
            g.memory.file_dirty = Some(Bytes::mib(made.0 * made.3 / 200));
        }
        let (_, plan) = step(&State::default(), &snapshot, &config(reserve), Duration::ZERO);
        let asked = reclaims(&plan);
        for (g, verdict) in snapshot.groups.iter().zip(&plan.verdicts) {
            let bytes = asked.get(&g.id).copied().unwrap_or_default();
            let held = g.memory.file.unwrap();
            let keep = verdict.threshold.max(crate::feedback::limits::Least::of(g, None).file);
            prop_assert!(bytes == Bytes::ZERO || held - bytes >= keep);
            prop_assert!(bytes <= held - g.memory.file_dirty.unwrap() - g.memory.file_mapped.unwrap());
        }
        let thought = plan.guard.unwrap();
        prop_assert!(thought.asked <= thought.missing);
        if free >= reserve {
            prop_assert!(asked.is_empty());
        }
    }
}

#[test]
fn a_group_that_rests_within_its_share_is_not_limited_for_a_reservation() {
    let mut snapshot = machine(5, &[(103, 20), (117, 20), (701, 20)]);
    reserve_for(&mut snapshot, "/later", 100);
    let (mut state, mut plan) = (State::default(), crate::Plan::default());
    for _ in 0..3 {
        (state, plan) = step(&state, &snapshot, &Config::default(), SECOND);
    }
    let limited = plan
        .writes
        .iter()
        .filter(|write| write.knob == Knob::MemoryHigh);
    let limited: Vec<GroupId> = limited.map(|write| write.group).collect();
    assert_eq!(limited, [GroupId(3)]);
}
