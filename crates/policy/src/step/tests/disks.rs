//! Disks: `low_latency`, io.cost, and what the feedback learns while either serves.

use super::*;

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

fn gains(state: &State) -> Vec<f64> {
    let memos = state.groups.values().skip(1);
    memos.map(|memo| memo.controller.gain()).collect()
}

#[test]
fn the_feedback_starts_anew_when_io_cost_begins_to_serve_a_disk() {
    let config = Config::default();
    let mut snapshot = contended();
    let (mut state, mut plan) = step(&State::default(), &snapshot, &config, Duration::ZERO);
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

#[test]
fn gains_are_forgotten_when_io_cost_returns_from_a_withdrawal_and_not_after_a_suspension() {
    let config = Config::default();
    let mut snapshot = contended();
    snapshot.devices = vec![cost_disk()];
    let phase = |plan: &Plan| {
        let mut findings = plan.watch.iter();
        let finding = findings.find(|finding| finding.decision == Watched::IoCost);
        finding.map(|finding| finding.phase)
    };
    let (mut state, mut plan) = step(&State::default(), &snapshot, &config, Duration::ZERO);
    let (mut suspensions, mut withdrawals) = (0, 0);
    for _ in 0..3600 {
        apply(&mut snapshot, &plan);
        // io.cost costs a third of the throughput.
        let on = snapshot.devices[0].cost_qos.unwrap().enable;
        let bytes = if on { 10_000_000 } else { 15_000_000 };
        pass_a_second(&mut snapshot, [bytes; 4], 900_000);
        let before = phase(&plan);
        (state, plan) = step(&state, &snapshot, &config, SECOND);
        if phase(&plan) == Some(Phase::InForce) {
            let (suspended, withdrawn) = (Some(Phase::Suspended), Some(Phase::Withdrawn));
            suspensions += usize::from(before == suspended);
            withdrawals += usize::from(before == withdrawn);
            let anew = gains(&state) == [1.0; 4];
            assert!(before != suspended || !anew, "{:?}", plan.watch);
            assert!(before != withdrawn || anew, "{:?}", plan.watch);
        }
    }
    assert!(
        suspensions > 3 && withdrawals > 0,
        "{suspensions} {withdrawals}"
    );
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
