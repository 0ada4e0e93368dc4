//! Single steps on hand-made snapshots. `tests/closed_loop` tests the loop over time against a model.

mod disks;
mod several_disks;
mod sharing;
mod unknown;

use std::collections::BTreeSet;

use super::*;
use crate::config::{Mode, Objective};
use crate::cost::{CostModel, CostQos};
use crate::order::OVERCOMMIT;
use crate::plan::{Knob, Phase, Reason, Value};
use crate::snapshot::{BlockDevice, GateSeen, Reservation, WeightSource};
use crate::tests::testing::{self, apply, group};
use crate::units::{Bytes, Limit, Weight};
use crate::Color;

const SECOND: Duration = Duration::from_secs(1);

/// Four stalling writers of weights 100, 200, 400, 800 under `/app`, equal bandwidth, on a disk with BFQ.
fn contended() -> Snapshot {
    let mut app = group(1, None, "/app");
    app.weight = None;
    app.memory.current = Some(Bytes::mib(600));
    let mut snapshot = testing::snapshot(750, vec![app]);
    snapshot.devices = vec![testing::disk()];
    for (i, weight) in [100, 200, 400, 800].into_iter().enumerate() {
        let mut g = group(i as u64 + 2, Some(1), &format!("/app/c{i}"));
        g.weight = Some(Weight::new(weight).unwrap());
        g.weight_source = WeightSource::OciBlockIo;
        g.memory.current = Some(Bytes::mib(150));
        g.memory.file = Some(Bytes::mib(149));
        g.memory.file_dirty = Some(Bytes::mib(20));
        snapshot.groups.push(g);
    }
    snapshot
}

fn nobody_is_limited(snapshot: &Snapshot) -> bool {
    let mut groups = snapshot.groups.iter();
    groups.all(|group| group.knobs.high == Some(Limit::Max))
}

fn pass_a_second(snapshot: &mut Snapshot, bytes_per_s: [u64; 4], stall_us: u64) {
    for (g, bytes) in snapshot.groups.iter_mut().skip(1).zip(bytes_per_s) {
        g.traffic.write_bytes = g.traffic.write_bytes.map(|b| b + bytes);
        g.pressure.io_some_us = g.pressure.io_some_us.map(|us| us + stall_us);
    }
}

fn read_for_a_second(snapshot: &mut Snapshot) {
    for g in &mut snapshot.groups[1..] {
        g.traffic.read_bytes = g.traffic.read_bytes.map(|b| b + 90_000_000);
        g.traffic.missed_bytes = g.traffic.missed_bytes.map(|b| b + 9_000_000);
        g.pressure.io_some_us = g.pressure.io_some_us.map(|us| us + 900_000);
    }
}

/// Lets `seconds` pass with these stalls; `see` gets every plan.
fn seeing(
    seconds: u32,
    stall_us: u64,
    config: &Config,
    mut see: impl FnMut(&Plan),
) -> (Snapshot, Plan) {
    let mut snapshot = contended();
    let (mut state, mut plan) = step(&State::default(), &snapshot, config, Duration::ZERO);
    see(&plan);
    for _ in 0..seconds {
        apply(&mut snapshot, &plan);
        pass_a_second(&mut snapshot, [10_000_000; 4], stall_us);
        (state, plan) = step(&state, &snapshot, config, SECOND);
        see(&plan);
    }
    (snapshot, plan)
}

fn after(seconds: u32, stall_us: u64, config: &Config) -> (Snapshot, Plan) {
    seeing(seconds, stall_us, config, |_| ())
}

/// Reserves memory in the first two of `steps`, from 0.
fn reserve_at_first(snapshot: &mut Snapshot, steps: u32) {
    let later = Reservation {
        path: "/later".to_owned(),
        bytes: Bytes::mib(100),
        left_s: 60.0,
    };
    snapshot.reservations = (steps < 2).then_some(later).into_iter().collect();
}

#[test]
fn after_a_reservation_mode_justitia_lifts_its_limits_and_then_writes_thresholds_only() {
    let (config, mut snapshot) = (Config::in_mode(Mode::Justitia), contended());
    let (mut state, mut plan) = (State::default(), Plan::default());
    for i in 0..10 {
        apply(&mut snapshot, &plan);
        assert_eq!(nobody_is_limited(&snapshot), ![1, 2].contains(&i), "{i}");
        pass_a_second(&mut snapshot, [10_000_000; 4], 900_000);
        reserve_at_first(&mut snapshot, i);
        // Another weight would show in the block weights too.
        snapshot.groups[1].weight = Weight::new(100 + 20 * i).ok();
        (state, plan) = step(&state, &snapshot, &config, SECOND);
        let written: BTreeSet<Knob> = plan.writes.iter().map(|write| write.knob).collect();
        if i > 2 {
            assert_eq!(written, [Knob::MemoryLow].into());
        }
        let weights = [Knob::IoWeight, Knob::IoBfqWeight];
        assert!(weights.iter().all(|knob| !written.contains(knob)), "{i}");
    }
}

#[test]
fn a_limit_of_a_reservation_that_arrives_after_its_end_is_lifted_once_it_can_be_read() {
    for inner in [false, true] {
        let (config, mut snapshot) = (Config::in_mode(Mode::Justitia), contended());
        reserve_at_first(&mut snapshot, 0);
        let (state, plan) = step(&State::default(), &snapshot, &config, SECOND);
        reserve_at_first(&mut snapshot, 2);
        let (mut state, _) = step(&state, &snapshot, &config, SECOND);
        apply(&mut snapshot, &plan);
        assert!(!nobody_is_limited(&snapshot));
        let limited = snapshot.groups.clone();
        for group in &mut snapshot.groups {
            group.knobs.high = None;
        }
        if inner {
            let mut child = group(9, Some(2), "/app/c0/child");
            child.weight = Weight::new(100).ok();
            snapshot.groups.push(child);
        }
        let plan;
        (state, _) = step(&state, &snapshot, &config, SECOND);
        for (group, limited) in snapshot.groups.iter_mut().zip(&limited) {
            group.knobs.high = limited.knobs.high;
        }
        (_, plan) = step(&state, &snapshot, &config, SECOND);
        apply(&mut snapshot, &plan);
        snapshot.groups.truncate(5);
        assert!(nobody_is_limited(&snapshot), "{inner}");
    }
}

/// Knobs written while four writers contend in this mode.
fn knobs_written(mode: Mode) -> BTreeSet<Knob> {
    let config = Config::in_mode(mode);
    let mut knobs = BTreeSet::new();
    let (_, plan) = seeing(5, 900_000, &config, |plan| {
        knobs.extend(plan.writes.iter().map(|write| write.knob));
    });
    assert_eq!(plan.verdicts.len(), 4);
    knobs
}

#[test]
fn mode_observe_writes_nothing_where_another_mode_would() {
    assert!(knobs_written(Mode::Observe).is_empty());
    assert!(knobs_written(Mode::Proportional).contains(&Knob::MemoryHigh));
}

#[test]
fn mode_justitia_writes_thresholds_in_the_order_of_the_weights_and_no_other_knob() {
    assert_eq!(knobs_written(Mode::Justitia), [Knob::MemoryLow].into());
    let config = Config::in_mode(Mode::Justitia);
    let (snapshot, _) = after(3, 900_000, &config);
    let low: Vec<u64> = snapshot.groups[1..]
        .iter()
        .map(|g| g.knobs.low.unwrap().bytes().unwrap().0 >> 20)
        .collect();
    assert!(low.windows(2).all(|w| w[1] >= w[0]), "{low:?}");
    assert!(low[0] > 0 && low[low.len() - 1] > low[0], "{low:?}");
    assert!(nobody_is_limited(&snapshot));
}

#[test]
fn without_stalls_nobody_is_limited() {
    let (snapshot, plan) = after(5, 0, &Config::default());
    assert!(nobody_is_limited(&snapshot));
    assert!(plan
        .verdicts
        .iter()
        .all(|v| v.color == Color::Green && !v.contending));
}

#[test]
fn under_contention_the_light_are_limited_before_the_heavy() {
    let (snapshot, plan) = after(5, 900_000, &Config::default());
    let high: Vec<Bytes> = snapshot.groups[1..]
        .iter()
        .map(|g| g.knobs.high.unwrap().bytes().unwrap())
        .collect();
    assert!(
        high.windows(2).all(|w| w[0] <= w[1]) && high[0] < high[3],
        "{high:?}"
    );
    assert!(plan.verdicts[0].of_ideal.unwrap() > 1.0);
    assert!(plan.verdicts[3].of_ideal.unwrap() < 1.0);
    assert_eq!(plan.verdicts[3].color, Color::Red);
    assert_eq!(plan.verdicts[0].color, Color::Yellow);
}

#[test]
fn a_limit_never_cuts_other_memory_or_mapped_pages() {
    let mut snapshot = contended();
    snapshot.groups[1].memory.file_mapped = Some(Bytes::mib(60));
    snapshot.groups[1].memory.current = Some(Bytes::mib(350));
    let (mut state, mut plan) = step(&State::default(), &snapshot, &Config::default(), SECOND);
    for _ in 0..30 {
        apply(&mut snapshot, &plan);
        pass_a_second(&mut snapshot, [10_000_000; 4], 900_000);
        (state, plan) = step(&state, &snapshot, &Config::default(), SECOND);
    }
    let high = snapshot.groups[1].knobs.high.unwrap().bytes().unwrap();
    assert!(high >= Bytes::mib(201 + 60), "{high}");
}

#[test]
fn a_limit_under_which_the_kernel_swaps_out_neither_falls_nor_rises_step_by_step() {
    let mut snapshot = contended();
    snapshot.host.swap = Some(Bytes::mib(1000));
    for group in &mut snapshot.groups[1..] {
        group.weight = Some(Weight::DEFAULT);
    }
    let swapping = 1;
    let memory = &mut snapshot.groups[swapping].memory;
    memory.anon = Some(Bytes::mib(200));
    memory.current = Some(Bytes::mib(350));
    memory.swap = Some(Bytes::ZERO);
    let (mut state, mut plan) = step(&State::default(), &snapshot, &Config::default(), SECOND);
    let mut limits = Vec::new();
    for _ in 0..60 {
        apply(&mut snapshot, &plan);
        let group = &mut snapshot.groups[swapping];
        if let Some(Limit::Bytes(high)) = group.knobs.high {
            limits.push(high);
            // Dirty pages fill the group up to its limit. The kernel also swaps out anonymous pages, and page
            // cache takes their place.
            let memory = &mut group.memory;
            let (anon, swap) = (memory.anon.unwrap(), memory.swap.unwrap());
            let taken = anon.scale(0.05);
            memory.anon = Some(anon - taken);
            memory.swap = Some(swap + taken);
            memory.current = Some(high);
            memory.file = Some(high - (anon - taken));
        }
        pass_a_second(&mut snapshot, [10_000_000; 4], 900_000);
        (state, plan) = step(&state, &snapshot, &Config::default(), SECOND);
    }
    assert!(limits.len() > 50, "{limits:?}");
    assert!(snapshot.groups[swapping].memory.swap > Some(Bytes::mib(180)));
    let settled = limits[10];
    for limit in &limits[10..] {
        let same = *limit >= settled.scale(0.95) && *limit <= settled.scale(1.05);
        assert!(same, "{limits:?}");
    }
}

#[test]
fn growing_anonymous_memory_gets_room_in_the_same_step() {
    let (mut snapshot, plan) = after(10, 900_000, &Config::default());
    apply(&mut snapshot, &plan);
    let state = {
        let (s, _) = step(&State::default(), &snapshot, &Config::default(), SECOND);
        pass_a_second(&mut snapshot, [10_000_000; 4], 900_000);
        step(&s, &snapshot, &Config::default(), SECOND).0
    };
    let before = snapshot.groups[1].knobs.high.unwrap().bytes().unwrap();
    pass_a_second(&mut snapshot, [10_000_000; 4], 900_000);
    snapshot.groups[1].memory.current = snapshot.groups[1]
        .memory
        .current
        .map(|b| b + Bytes::mib(200));
    let (_, plan) = step(&state, &snapshot, &Config::default(), SECOND);
    let write = plan
        .writes
        .iter()
        .find(|w| w.group == GroupId(2) && w.knob == Knob::MemoryHigh)
        .expect("a write");
    assert_eq!(write.reason, Reason::MakeRoom);
    let Value::Limit(Limit::Bytes(high)) = write.value else {
        panic!("{write:?}")
    };
    assert!(high >= before + Bytes::mib(200));
}

#[test]
fn a_limit_with_little_room_follows_other_memory_that_grows_slowly() {
    let mut snapshot = contended();
    let config = Config::default();
    let mut state = step(&State::default(), &snapshot, &config, Duration::ZERO).0;
    for i in 0..20 {
        let group = &mut snapshot.groups[1];
        // The memory grows in the steps 11 to 18.
        let other = Bytes::mib(2000 + 8 * (i.clamp(10, 18) - 10));
        group.memory.anon = Some(other);
        group.memory.file = Some(Bytes::mib(10));
        group.memory.file_dirty = Some(Bytes::mib(10));
        group.memory.current = Some(other + Bytes::mib(10));
        pass_a_second(&mut snapshot, [10_000_000; 4], 900_000);
        let (next, plan) = step(&state, &snapshot, &config, SECOND);
        state = next;
        apply(&mut snapshot, &plan);
        let high = snapshot.groups[1].knobs.high;
        let least = Limit::Bytes(other + Bytes::mib(1));
        assert!(i < 5 || high < Some(Limit::Max), "{i}");
        assert!(high >= Some(least), "{i} {high:?} {least}");
    }
}

#[test]
fn a_foreign_knob_is_left_alone() {
    let mut snapshot = contended();
    snapshot.groups[1].knobs.foreign.high = true;
    snapshot.groups[2].knobs.foreign.low = true;
    let (mut state, _) = step(&State::default(), &snapshot, &Config::default(), SECOND);
    for _ in 0..5 {
        pass_a_second(&mut snapshot, [10_000_000; 4], 900_000);
        let (next, plan) = step(&state, &snapshot, &Config::default(), SECOND);
        state = next;
        assert!(!plan
            .writes
            .iter()
            .any(|w| w.group == GroupId(2) && w.knob == Knob::MemoryHigh));
        assert!(!plan
            .writes
            .iter()
            .any(|w| w.group == GroupId(3) && w.knob == Knob::MemoryLow));
    }
}

#[test]
fn readers_are_never_limited_by_the_fair_objective() {
    let mut snapshot = contended();
    let (mut state, mut plan) = step(&State::default(), &snapshot, &Config::default(), SECOND);
    for _ in 0..10 {
        apply(&mut snapshot, &plan);
        read_for_a_second(&mut snapshot);
        (state, plan) = step(&state, &snapshot, &Config::default(), SECOND);
    }
    assert!(nobody_is_limited(&snapshot));
    read_for_a_second(&mut snapshot);
    let strict = Config {
        objective: Objective::Strict,
        ..Config::default()
    };
    let (_, plan) = step(&state, &snapshot, &strict, SECOND);
    assert!(
        plan.writes.iter().any(|w| w.knob == Knob::MemoryHigh),
        "strict limits readers too"
    );
}

#[test]
fn a_limit_on_a_slice_leaves_what_it_cannot_hold_to_the_writers_beside_it() {
    let config = Config::default();
    let mut snapshot = contended();
    snapshot.groups[0].knobs.max = Some(Limit::Bytes(Bytes::mib(100)));
    let beside = Group {
        id: GroupId(6),
        parent: None,
        ..snapshot.groups[4].clone()
    };
    snapshot.groups.push(beside);
    for (group, mib) in snapshot.groups.iter_mut().zip([100, 25, 25, 25, 25, 650]) {
        group.memory.file = Some(Bytes::mib(mib));
        group.memory.current = Some(Bytes::mib(mib));
    }
    let (mut state, mut plan) = step(&State::default(), &snapshot, &config, Duration::ZERO);
    for _ in 0..10 {
        apply(&mut snapshot, &plan);
        for g in &mut snapshot.groups[1..] {
            g.traffic.write_bytes = g.traffic.write_bytes.map(|b| b + 10_000_000);
            g.pressure.io_some_us = g.pressure.io_some_us.map(|us| us + 900_000);
        }
        (state, plan) = step(&state, &snapshot, &config, SECOND);
    }
    let limit = |at: usize| snapshot.groups[at].knobs.high.and_then(Limit::bytes);
    let entitled = |at: usize| plan.verdicts[at].entitlement;
    assert_eq!(entitled(4), Bytes::mib(650));
    assert!(limit(5) > Some(entitled(4)), "{:?}", limit(5));
    let below: Bytes = (1..5).filter_map(limit).sum();
    assert!(below < Bytes::mib(200), "{below}");
}

#[test]
fn a_gain_that_was_learned_with_another_weight_is_forgotten() {
    let config = Config::default();
    let mut snapshot = contended();
    let (mut state, mut plan) = step(&State::default(), &snapshot, &config, Duration::ZERO);
    let mut pass = |snapshot: &mut Snapshot| -> Vec<f64> {
        apply(snapshot, &plan);
        pass_a_second(snapshot, [10_000_000; 4], 900_000);
        (state, plan) = step(&state, snapshot, &config, SECOND);
        let memos = state.groups.values().skip(1);
        memos.map(|memo| memo.controller.gain()).collect()
    };
    (0..20).for_each(|_| drop(pass(&mut snapshot)));
    let learned = pass(&mut snapshot);
    assert!(learned[0] < 0.5, "{learned:?}");
    snapshot.groups[1].weight = Weight::new(400).ok();
    let after = pass(&mut snapshot);
    assert!((0.8..1.25).contains(&after[0]), "{after:?}");
    assert!(
        (after[3] / learned[3] - 1.0).abs() < 0.1,
        "of the others it stays: {after:?}"
    );
}

#[test]
fn a_heavy_trickle_moves_no_gain_of_light_writers_at_the_onset_of_contention() {
    let config = Config::default();
    let mut snapshot = contended();
    for group in &mut snapshot.groups[1..4] {
        group.weight = Some(Weight::DEFAULT);
    }
    let trickle = &mut snapshot.groups[4].memory;
    trickle.current = Some(Bytes::mib(6));
    trickle.file = Some(Bytes::mib(5));
    trickle.file_dirty = Some(Bytes::ZERO);
    let trickling = [10_000_000, 10_000_000, 10_000_000, 500_000];
    let (mut state, mut plan) = step(&State::default(), &snapshot, &config, Duration::ZERO);
    for onset in 0..10 {
        for (bytes_per_s, stall_us) in [([0; 4], 0), (trickling, 900_000)] {
            apply(&mut snapshot, &plan);
            assert!(stall_us == 0 || nobody_is_limited(&snapshot), "{onset}");
            pass_a_second(&mut snapshot, bytes_per_s, stall_us);
            (state, plan) = step(&state, &snapshot, &config, SECOND);
        }
        let gains: Vec<f64> = plan.verdicts[..3].iter().map(|v| v.gain).collect();
        let near = |gain: &f64| (0.95..1.05).contains(gain);
        assert!(plan.verdicts.iter().all(|v| v.contending));
        assert!(gains.iter().all(near), "{onset} {gains:?}");
    }
}

#[test]
fn groups_that_mix_reads_and_writes_are_limited_at_their_entitlement_whatever_they_get() {
    let mut snapshot = contended();
    let config = Config::default();
    let (mut state, mut plan) = step(&State::default(), &snapshot, &config, Duration::ZERO);
    for _ in 0..10 {
        apply(&mut snapshot, &plan);
        read_for_a_second(&mut snapshot);
        // A fifth of the traffic is written; the lightest group writes far more than its share.
        pass_a_second(&mut snapshot, [22_000_000; 4], 0);
        (state, plan) = step(&state, &snapshot, &config, SECOND);
    }
    for (group, verdict) in snapshot.groups[1..].iter().zip(&plan.verdicts) {
        let high = group.knobs.high.and_then(Limit::bytes).unwrap();
        let most = verdict.entitlement.scale(OVERCOMMIT) + Bytes::mib(2);
        assert!(high >= verdict.entitlement && high <= most, "{group:?}");
        assert_eq!(verdict.gain.to_bits(), 1.0_f64.to_bits());
    }
    assert!(snapshot.groups[1].knobs.high < snapshot.groups[4].knobs.high);
}

#[test]
fn a_settled_plan_is_empty() {
    let mut snapshot = contended();
    let config = Config::in_mode(Mode::Justitia);
    let (mut state, mut plan) = step(&State::default(), &snapshot, &config, SECOND);
    for _ in 0..3 {
        apply(&mut snapshot, &plan);
        (state, plan) = step(&state, &snapshot, &config, SECOND);
    }
    assert!(plan.writes.is_empty(), "{:?}", plan.writes);
}

#[test]
fn the_operators_protection_and_limit_are_kept() {
    let (mib, config) = (Bytes::mib, Config::default());
    let mut snapshot = contended();
    snapshot.groups[1].knobs.operator.low = Some(Limit::Bytes(mib(400)));
    snapshot.groups[1].knobs.low = Some(Limit::Bytes(mib(400)));
    snapshot.groups[4].knobs.operator.high = Some(Limit::Bytes(mib(160)));
    snapshot.groups[4].knobs.high = Some(Limit::Bytes(mib(160)));
    let (mut state, mut plan) = step(&State::default(), &snapshot, &config, SECOND);
    for stall_us in [900_000, 900_000, 900_000, 0, 0, 0].repeat(8) {
        apply(&mut snapshot, &plan);
        pass_a_second(&mut snapshot, [10_000_000; 4], stall_us);
        (state, plan) = step(&state, &snapshot, &config, SECOND);
        assert!(snapshot.groups[1].knobs.low >= Some(Limit::Bytes(mib(400))));
        assert!(snapshot.groups[4].knobs.high <= Some(Limit::Bytes(mib(160))));
    }
}

#[test]
fn writers_that_the_gate_orders_are_fed_with_their_gain_and_get_no_limit() {
    let config = Config::default();
    let run = |closed: bool| {
        let mut snapshot = contended();
        let fed = [(2, 100), (3, 200), (4, 400), (5, 800)];
        snapshot.gate = Some(GateSeen {
            closed,
            root: None,
            fed: fed.map(|(id, weight)| (GroupId(id), weight)).into(),
        });
        let (mut state, mut plan) = step(&State::default(), &snapshot, &config, Duration::ZERO);
        for _ in 0..4 {
            apply(&mut snapshot, &plan);
            pass_a_second(&mut snapshot, [10_000_000; 4], 900_000);
            (state, plan) = step(&state, &snapshot, &config, SECOND);
        }
        (snapshot, plan)
    };
    let (ordered, plan) = run(true);
    assert!(ordered.groups[1..]
        .iter()
        .all(|g| g.knobs.high == Some(Limit::Max)));
    let fed = |id: u64| plan.gate.iter().find(|feed| feed.group == GroupId(id));
    assert!(fed(2).unwrap().weight < Some(100), "{:?}", plan.gate);
    assert!(fed(5).unwrap().weight > Some(800), "{:?}", plan.gate);
    // An open gate orders no writers.
    let (limited, plan) = run(false);
    assert!(limited.groups[1].knobs.high < Some(Limit::Max));
    assert!(!plan.gate.is_empty());
}

#[test]
fn modes_without_weights_feed_no_gate() {
    for mode in [Mode::Observe, Mode::Memoplight] {
        let config = Config::in_mode(mode);
        let mut snapshot = contended();
        snapshot.gate = Some(GateSeen::default());
        let (_, plan) = step(&State::default(), &snapshot, &config, Duration::ZERO);
        assert!(plan.gate.is_empty());
    }
}
