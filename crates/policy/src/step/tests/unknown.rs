//! Values that cannot be read, for one group or for the whole host.

use super::*;

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

#[test]
fn a_host_that_cannot_be_read_gets_no_thresholds() {
    let mut snapshot = contended();
    snapshot.host.file = None;
    let (_, plan) = step(&State::default(), &snapshot, &Config::default(), SECOND);
    assert!(!plan.writes.iter().any(|w| w.knob == Knob::MemoryLow));
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
