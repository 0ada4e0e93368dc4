//! Single steps on hand-made snapshots. `tests/closed_loop` tests the loop over time against a model.

mod sharing;

use std::collections::BTreeSet;

use super::*;
use crate::config::{Mode, Objective};
use crate::cost::{CostModel, CostQos};
use crate::order::OVERCOMMIT;
use crate::plan::{Knob, Phase, Reason, Value};
use crate::snapshot::{BlockDevice, GateSeen, Reservation, WeightSource};
use crate::testing::{self, apply, group};
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

/// The next agent knows the reads of some groups earlier than those of others.
#[test]
fn limits_stay_while_the_bandwidth_of_a_contender_is_unknown() {
    let config = Config::default();
    let mut snapshot = contended();
    let (mut state, mut plan) = step(&State::default(), &snapshot, &config, Duration::ZERO);
    let mut pass = |snapshot: &mut Snapshot, known: usize, elapsed: Duration| {
        apply(snapshot, &plan);
        pass_a_second(snapshot, [10_000_000; 4], 900_000);
        let mut seen = snapshot.clone();
        for group in &mut seen.groups[1 + known..] {
            group.traffic.read_bytes = None;
        }
        (state, plan) = step(&state, &seen, &config, elapsed);
    };
    for _ in 0..20 {
        pass(&mut snapshot, 4, SECOND);
    }
    let lightest = |snapshot: &Snapshot| snapshot.groups[1].knobs.high;
    assert!(matches!(lightest(&snapshot), Some(Limit::Bytes(_))));
    for (known, elapsed) in [(0, Duration::ZERO), (1, SECOND), (1, SECOND), (4, SECOND)] {
        pass(&mut snapshot, known, elapsed);
        assert!(matches!(lightest(&snapshot), Some(Limit::Bytes(_))));
    }
    for _ in 0..60 {
        pass(&mut snapshot, 1, SECOND);
    }
    assert_eq!(lightest(&snapshot), Some(Limit::Max), "unknown for long");
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
fn another_agent_goes_on_without_a_rate_at_first_and_lifts_no_limit_for_that() {
    for reserves in [false, true] {
        let (config, mut snapshot) = (Config::default(), contended());
        let (mut state, mut plan) = step(&State::default(), &snapshot, &config, Duration::ZERO);
        for i in 0..8 {
            apply(&mut snapshot, &plan);
            pass_a_second(&mut snapshot, [10_000_000; 4], 600_000);
            if reserves {
                reserve_at_first(&mut snapshot, i);
            }
            (state, plan) = step(&state, &snapshot, &config, SECOND);
        }
        apply(&mut snapshot, &plan);
        // The new agent's counters are larger than those of the last agent. The difference is not a rate.
        pass_a_second(&mut snapshot, [900_000_000; 4], 600_000);
        let (_, plan) = step(&state, &snapshot, &config, Duration::ZERO);
        let lifted = |write: &crate::plan::Write| {
            write.knob == Knob::MemoryHigh && write.value == Value::Limit(Limit::Max)
        };
        assert!(!plan.writes.iter().any(lifted), "{:?}", plan.writes);
        for verdict in &plan.verdicts {
            assert_eq!((verdict.bytes_per_s, verdict.contending), (None, true));
        }
    }
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

#[test]
fn a_host_that_cannot_be_read_for_a_step_moves_no_limit() {
    let config = Config::default();
    let (mut snapshot, plan) = after(10, 900_000, &config);
    apply(&mut snapshot, &plan);
    let mut limits = Vec::new();
    let (mut state, _) = step(&State::default(), &snapshot, &config, Duration::ZERO);
    for i in 0..12 {
        pass_a_second(&mut snapshot, [10_000_000; 4], 900_000);
        let mut seen = snapshot.clone();
        if i == 10 {
            seen.host.high_watermark = None;
        }
        let plan;
        (state, plan) = step(&state, &seen, &config, SECOND);
        if i == 10 {
            limits.extend(
                plan.writes
                    .iter()
                    .filter(|w| w.knob == Knob::MemoryHigh)
                    .cloned(),
            );
        }
        apply(&mut snapshot, &plan);
    }
    assert!(!nobody_is_limited(&snapshot));
    assert_eq!(limits, []);
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
fn a_host_that_cannot_be_read_gets_no_thresholds() {
    let mut snapshot = contended();
    snapshot.host.file = None;
    let (_, plan) = step(&State::default(), &snapshot, &Config::default(), SECOND);
    assert!(!plan.writes.iter().any(|w| w.knob == Knob::MemoryLow));
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

/// A disk without BFQ whose model is known.
fn cost_disk() -> BlockDevice {
    let model = "ctrl=user rbps=9 rseqiops=9 rrandiops=9 wbps=9 wseqiops=9 wrandiops=9";
    BlockDevice {
        cost_qos: Some(CostQos::default()),
        cost_model: Some(CostModel::default()),
        given_model: CostModel::parse(model),
        ..BlockDevice::new(GroupId(7 | 1 << 63), "cost:sda")
    }
}

#[test]
fn the_feedback_starts_anew_when_io_cost_begins_to_serve_a_disk() {
    let config = Config::default();
    let mut snapshot = contended();
    let (mut state, mut plan) = step(&State::default(), &snapshot, &config, Duration::ZERO);
    let gains = |state: &State| -> Vec<f64> {
        let memos = state.groups.values().skip(1);
        memos.map(|memo| memo.controller.gain()).collect()
    };
    let mut pass = |snapshot: &mut Snapshot| {
        apply(snapshot, &plan);
        pass_a_second(snapshot, [10_000_000; 4], 900_000);
        (state, plan) = step(&state, snapshot, &config, SECOND);
        gains(&state)
    };
    (0..5).for_each(|_| drop(pass(&mut snapshot)));
    let ignored = pass(&mut snapshot);
    assert!(ignored[0] < 0.8 && ignored[3] > 1.0, "{ignored:?}");
    snapshot.devices.push(cost_disk());
    assert_eq!(pass(&mut snapshot), [1.0; 4]);
    assert_ne!(pass(&mut snapshot), [1.0; 4], "it goes on from there");
}

/// The plan after half a minute in which the watch has withdrawn limits. `ours`: the agent switched io.cost on first.
fn without_limits(ours: bool, io_cost_is_on: bool) -> Plan {
    let config = Config::default();
    let mut snapshot = contended();
    snapshot.devices = vec![cost_disk()];
    if !ours {
        snapshot.devices[0].given_model = None;
    }
    let light = testing::of_groups(vec![group(1, None, "/limited")]);
    let mut limited = Member::all(&light, Memo::new);
    let (mut state, mut plan) = step(&State::default(), &snapshot, &config, Duration::ZERO);
    for _ in 0..30 {
        apply(&mut snapshot, &plan);
        snapshot.devices[0].cost_qos.as_mut().unwrap().enable = io_cost_is_on;
        pass_a_second(&mut snapshot, [10_000_000; 4], 900_000);
        limited[0].decision.high = Some((Limit::Bytes(Bytes::ZERO), Reason::AtEntitlement));
        state.watch.limits(&mut limited, false);
        (state, plan) = step(&state, &snapshot, &config, SECOND);
    }
    assert_eq!(disk::served(&state.disks), usize::from(ours));
    plan
}

#[test]
fn without_limits_gains_are_learned_while_io_cost_is_on_whoever_switched_it_on() {
    let learned = |plan: &Plan| plan.verdicts[0].gain < 0.5;
    let watched = |plan: &Plan| {
        let mut findings = plan.watch.iter();
        findings.any(|f| f.decision == Watched::Gains && f.phase == Phase::InForce)
    };
    let operators = without_limits(false, true);
    assert!(learned(&operators) && watched(&operators));
    let (off, suspended) = (without_limits(false, false), without_limits(true, false));
    assert!(!learned(&off) && !watched(&off));
    assert!(!learned(&suspended), "suspended");
}

#[test]
fn a_failed_read_of_an_idle_group_changes_nothing_for_the_others() {
    let modes = [Mode::Proportional, Mode::Justitia];
    for (mode, weight) in modes
        .into_iter()
        .flat_map(|mode| [(mode, 1), (mode, 10_000)])
    {
        let config = Config::in_mode(mode);
        let mut snapshot = contended();
        snapshot.host.swap = Some(Bytes::mib(1000));
        snapshot.host.file = Some(Bytes::mib(500));
        snapshot.groups.push(group(6, None, "/idle"));
        let (mut state, mut plan) = step(&State::default(), &snapshot, &config, Duration::ZERO);
        snapshot.groups[5].weight = Weight::new(weight).ok();
        for group in &mut snapshot.groups[1..] {
            group.memory.file = Some(Bytes::mib(100));
            group.memory.current = Some(Bytes::mib(400));
        }
        for _ in 0..5 {
            apply(&mut snapshot, &plan);
            pass_a_second(&mut snapshot, [10_000_000; 4], 900_000);
            (state, plan) = step(&state, &snapshot, &config, SECOND);
        }
        let for_others = |snapshot: &Snapshot| {
            let (_, mut plan) = step(&state, snapshot, &config, SECOND);
            plan.writes.retain(|write| write.group != GroupId(6));
            let entitled = plan.verdicts[..4].iter().map(|v| v.entitlement);
            (entitled.collect::<Vec<_>>(), plan.writes)
        };
        let read = for_others(&snapshot);
        let unread = &mut snapshot.groups[5];
        *unread = Group {
            knobs: unread.knobs,
            weight: unread.weight,
            ..Group::new(unread.id, "/idle")
        };
        assert_eq!(for_others(&snapshot), read, "{mode:?} {weight}");
    }
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
fn io_cost_serves_readers_by_weight_once_they_contend() {
    let run = |contending: bool| {
        let mut snapshot = contended();
        snapshot.devices.push(cost_disk());
        let config = Config::default();
        let (mut state, mut plan) = step(&State::default(), &snapshot, &config, SECOND);
        let mut written = BTreeSet::new();
        for _ in 0..5 {
            apply(&mut snapshot, &plan);
            if contending {
                read_for_a_second(&mut snapshot);
            }
            (state, plan) = step(&state, &snapshot, &config, SECOND);
            written.extend(plan.writes.iter().map(|write| write.knob));
        }
        written
    };
    let cost = BTreeSet::from([Knob::IoCostModel, Knob::IoCostQos]);
    assert!(run(true).is_superset(&cost));
    assert!(run(false).is_disjoint(&cost));
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

/// Lets a second pass with each of these stalls, on a host with a BFQ disk whose `low_latency` is on. Returns
/// the writes to the disk in each second.
fn switched(stalls_us: &[u64], mode: Mode, foreign: bool) -> Vec<Vec<crate::plan::Write>> {
    let config = Config::in_mode(mode);
    let mut snapshot = contended();
    snapshot.devices.push(BlockDevice {
        low_latency: Some(true),
        foreign,
        ..BlockDevice::new(GroupId(7 | 1 << 63), "block:sda")
    });
    let (mut state, mut plan) = step(&State::default(), &snapshot, &config, Duration::ZERO);
    let mut seen = Vec::new();
    for &stall_us in stalls_us {
        apply(&mut snapshot, &plan);
        pass_a_second(&mut snapshot, [10_000_000; 4], stall_us);
        (state, plan) = step(&state, &snapshot, &config, SECOND);
        let of_disk = plan.writes.iter().enumerate();
        let of_disk = of_disk.filter(|(_, write)| write.knob == Knob::BfqLowLatency);
        let of_disk = of_disk.inspect(|(at, _)| assert_eq!(*at, 0, "before the groups"));
        seen.push(of_disk.map(|(_, write)| write.clone()).collect());
    }
    seen
}

#[test]
fn low_latency_is_turned_off_by_the_first_contention_and_stays_so() {
    let mut stalls = vec![0, 0, 900_000];
    stalls.extend([0; 60]);
    let seen = switched(&stalls, Mode::Proportional, false);
    assert!(seen[..2].iter().all(Vec::is_empty), "{seen:?}");
    let [write] = &seen[2][..] else {
        panic!("{:?}", seen[2])
    };
    assert_eq!(write.group, GroupId(7 | 1 << 63));
    assert_eq!(write.value, Value::Switch(false));
    assert_eq!(write.reason, Reason::WeightsMustHold);
    assert!(seen[3..].iter().all(Vec::is_empty), "once, and for good");
}

#[test]
fn low_latency_of_the_user_or_in_another_mode_is_left_alone() {
    for (mode, foreign) in [
        (Mode::Proportional, true),
        (Mode::Justitia, false),
        (Mode::Observe, false),
    ] {
        let seen = switched(&[900_000; 3], mode, foreign);
        assert!(seen.iter().all(Vec::is_empty), "{mode:?} {seen:?}");
    }
}

#[test]
fn a_disk_that_comes_later_is_turned_off_in_a_lull_too_and_an_unknown_one_is_not() {
    let (mut snapshot, _) = after(0, 0, &Config::default());
    let state = step(&State::default(), &snapshot, &Config::default(), SECOND).0;
    pass_a_second(&mut snapshot, [10_000_000; 4], 900_000);
    let mut state = step(&state, &snapshot, &Config::default(), SECOND).0;
    for _ in 0..60 {
        pass_a_second(&mut snapshot, [0; 4], 0);
        state = step(&state, &snapshot, &Config::default(), SECOND).0;
    }
    for (id, low_latency) in [(8, Some(true)), (9, None)] {
        snapshot.devices.push(BlockDevice {
            low_latency,
            ..BlockDevice::new(GroupId(id), &format!("block:{id}"))
        });
    }
    let (_, plan) = step(&state, &snapshot, &Config::default(), SECOND);
    let disks = plan.writes.iter();
    let disks = disks.filter(|write| write.knob == Knob::BfqLowLatency);
    assert_eq!(disks.map(|write| write.group.0).collect::<Vec<_>>(), [8]);
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
