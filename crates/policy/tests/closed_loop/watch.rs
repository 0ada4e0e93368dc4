//! No harm: limits that cost more than `max_loss` are withdrawn, and come back when they no longer do.

use justitia_policy::plan::{Finding, Phase, Watched};
use justitia_policy::units::{Bytes, Limit};
use justitia_policy::Config;

use super::model::Load;
use super::{Rig, EIGHT, FILESERVER};

fn limits(rig: &Rig) -> Option<Finding> {
    let findings = rig.last.watch.iter().copied();
    findings
        .clone()
        .find(|finding| finding.decision == Watched::Limits)
}

fn phase(rig: &Rig) -> Option<Phase> {
    limits(rig).map(|finding| finding.phase)
}

/// Seconds until limits are in this phase; `None`: not within `most`.
fn until(rig: &mut Rig, wanted: Phase, most: usize) -> Option<usize> {
    (0..most).find(|_| {
        rig.period();
        phase(rig) == Some(wanted)
    })
}

/// Whether the lightest group is limited below an equal part of memory.
fn light_is_limited(rig: &Rig) -> bool {
    let high = rig.host.snapshot().groups[0].knobs.high;
    high < Some(Limit::Bytes(Bytes::mib(75)))
}

#[test]
fn limits_that_cost_a_tenth_are_withdrawn_within_ten_minutes_and_come_back_when_they_do_not() {
    let mut rig = Rig::with(Config::default(), &EIGHT, FILESERVER);
    rig.host.limits_cost(0.08);
    let withdrawn = until(&mut rig, Phase::Withdrawn, 600);
    println!("withdrawn after {withdrawn:?} s: {:?}", limits(&rig));
    assert!(withdrawn.is_some());
    rig.run(10);
    assert!(!light_is_limited(&rig));
    assert!(
        rig.share_error(5) > 0.1,
        "the model has no other mechanism of order"
    );
    rig.host.limits_cost(0.0);
    let back = until(&mut rig, Phase::InForce, 400);
    assert!(back.is_some());
    let again = until(&mut rig, Phase::Withdrawn, 1200);
    assert_eq!(again, None, "{:?}", limits(&rig));
    assert!(rig.share_error(50) < 0.05, "{}", rig.share_error(50));
}

#[test]
fn limits_that_keep_costing_too_much_are_withdrawn_for_longer_each_time() {
    let mut rig = Rig::with(Config::default(), &EIGHT, FILESERVER);
    rig.host.limits_cost(0.08);
    let mut away = Vec::new();
    for _ in 0..3 {
        let withdrawn = until(&mut rig, Phase::Withdrawn, 600);
        assert!(withdrawn.is_some(), "{:?}", limits(&rig));
        away.push(until(&mut rig, Phase::InForce, 2000).expect("another chance"));
    }
    assert!(
        away.windows(2).all(|pair| pair[1] > pair[0] * 19 / 10),
        "{away:?}"
    );
}

#[test]
fn limits_that_cost_nothing_stay_and_are_suspended_less_and_less() {
    for load in [Load::Write, FILESERVER] {
        let mut rig = Rig::with(Config::default(), &EIGHT, load);
        let mut suspended = Vec::new();
        for second in 0..3600 {
            rig.period();
            let (now, gains) = (phase(&rig), &rig.gains);
            if now == Some(Phase::Suspended) {
                let pairs = gains[second].iter().zip(&gains[second - 1]);
                let moved = pairs.map(|(now, before)| (now / before - 1.0).abs());
                assert!(
                    moved.fold(0.0, f64::max) < 1e-9,
                    "the feedback learns nothing from a suspension"
                );
            }
            assert_ne!(now, Some(Phase::Withdrawn), "{load:?}: {:?}", limits(&rig));
            suspended.push(usize::from(second >= 1800 && now == Some(Phase::Suspended)));
        }
        let late: usize = suspended.iter().sum();
        println!("{load:?}: {late} of 1800 s suspended, {:?}", limits(&rig));
        assert!(late > 0 && late < 1800 / 20, "{load:?}: {late}");
        assert!(
            rig.share_error(1800) < 0.03,
            "{load:?}: {}",
            rig.share_error(1800)
        );
    }
}

#[test]
fn where_no_disk_serves_by_weight_limits_begin_withdrawn_and_stay_so_while_they_cost() {
    for cost in [0.08, 0.0] {
        let mut rig = Rig::with(Config::default(), &EIGHT, FILESERVER);
        rig.host.disk = None;
        rig.host.limits_cost(cost);
        for second in 0..290 {
            rig.period();
            assert!(!light_is_limited(&rig), "{second}");
        }
        assert!(
            until(&mut rig, Phase::InForce, 60).is_some(),
            "they get a chance"
        );
        let again = until(&mut rig, Phase::Withdrawn, 600);
        assert_eq!(again.is_some(), cost > 0.0, "{:?}", limits(&rig));
    }
}

#[test]
fn while_nothing_carries_gains_to_the_disk_they_stay() {
    let mut rig = Rig::with(Config::default(), &EIGHT, FILESERVER);
    rig.run(60);
    rig.host.disk = None;
    rig.run(5);
    let before = rig.gains.last().cloned();
    for _ in 0..250 {
        rig.period();
        assert_eq!(phase(&rig), Some(Phase::Withdrawn));
    }
    let moved = rig.gains.last().unwrap().iter().zip(before.unwrap());
    let moved = moved.map(|(now, before)| (now / before).ln().abs());
    let most = moved.fold(0.0, f64::max);
    assert!(most < 0.2, "{most}");
}

#[test]
fn a_disk_that_serves_by_weight_again_ends_the_doubt() {
    let mut rig = Rig::with(Config::default(), &EIGHT, FILESERVER);
    rig.run(30);
    assert_eq!(phase(&rig), Some(Phase::InForce));
    let disk = rig.host.disk.take();
    rig.run(1);
    assert_eq!(phase(&rig), Some(Phase::Withdrawn));
    let said = limits(&rig).map(|finding| finding.to_string());
    assert!(said.is_some_and(|said| said.ends_with("because no disk serves writers by weight")));
    rig.host.disk = disk;
    rig.run(20);
    assert_eq!(phase(&rig), Some(Phase::InForce));
    assert!(light_is_limited(&rig));
}

#[test]
fn with_max_loss_off_or_objective_strict_nothing_is_suspended() {
    use justitia_policy::config::Objective;
    let off = Config {
        max_loss: 0.0,
        ..Config::default()
    };
    let strict = Config {
        objective: Objective::Strict,
        ..Config::default()
    };
    for config in [off, strict] {
        let mut rig = Rig::with(config, &EIGHT, FILESERVER);
        rig.host.limits_cost(0.08);
        for second in 0..300 {
            rig.period();
            assert!(rig.last.watch.is_empty());
            assert!(second < 20 || light_is_limited(&rig), "{second}");
        }
    }
}

#[test]
fn a_host_without_contention_suspends_nothing() {
    let mut rig = Rig::with(Config::default(), &[100, 800], Load::Read { chunks: 200 });
    for _ in 0..900 {
        rig.period();
        assert!(rig.last.watch.is_empty(), "{:?}", rig.last.watch);
    }
}
