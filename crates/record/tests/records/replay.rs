//! A replay reproduces the recorded plans, or says where it does not.

use crate::simulated::{frames, items, Run};
use justitia_policy::config::{Config, Mode, Objective};
use justitia_policy::snapshot::Group;
use justitia_policy::units::{Bytes, Weight};
use justitia_record::{GroupSummary, Item, Options, Replayer, Step, Summary, Tick};

fn replay(bytes: &[u8], options: Options<'_>) -> Vec<Step> {
    let mut replayer = Replayer::new(options);
    let mut steps = Vec::new();
    for item in items(bytes) {
        match item {
            Item::Tick(tick) => steps.push(replayer.step(*tick)),
            Item::Session(_) => replayer.session(),
            Item::Note(_) => replayer.lost(),
            Item::End => {}
        }
    }
    steps
}

fn recorded(ticks: &[Tick]) -> Vec<u8> {
    frames(ticks).concat()
}

fn summary(steps: &[Step]) -> Summary {
    let mut summary = Summary::new(5);
    for step in steps {
        summary.add(step);
    }
    summary.finish()
}

#[test]
fn a_replay_gives_the_recorded_plans_tick_for_tick() {
    for mode in [Mode::Proportional, Mode::Justitia, Mode::Observe] {
        let config = Config::in_mode(mode);
        let mut run = Run::new(config, &[100, 200, 400, 800]).counted();
        let mut given = run.ticks(65);
        // A reload in the middle.
        run.decide(Config {
            objective: Objective::Strict,
            ..config
        });
        given.extend(run.ticks(10));
        let steps = replay(&recorded(&given), Options::as_recorded());
        assert_eq!(steps.len(), given.len());
        for (step, given) in steps.iter().zip(&given) {
            assert!(step.same(), "{mode:?}, tick {}", given.count);
            assert!(step.given.is_none() && step.differences().is_empty());
        }
    }
}

#[test]
fn a_replay_gives_the_curves_and_the_memory_lent_for_them() {
    let mut run = Run::new(Config::default(), &[100]).with_curves();
    run.ticks(10);
    let mut given = vec![run.tick(true)];
    given.extend(run.ticks(30));
    let steps = replay(&recorded(&given), Options::as_recorded());
    assert!(steps.iter().all(Step::same));
    let lends = |step: &Step| {
        let stakes = step.plan.verdicts.iter().filter_map(|v| v.stake);
        stakes.filter(|stake| stake.lends > stake.needs).count()
    };
    assert!(lends(&steps[30]) > 0);
    // A scan with half of the weight would have less to lend.
    let given_scan = given[0].snapshot.groups[2].id;
    let weight = |group: &Group| Weight::new(50).ok().filter(|_| group.id == given_scan);
    let options = Options {
        weight: &weight,
        ..Options::as_recorded()
    };
    let other = replay(&recorded(&given), options);
    let stake = |step: &Step| {
        step.plan.verdicts[2]
            .stake
            .expect("its curve is known")
            .lends
    };
    assert!(stake(&other[30]) < stake(&steps[30]));
}

#[test]
fn the_curve_gives_the_effect_of_more_page_cache() {
    let mut run = Run::new(Config::default(), &[100]).with_curves();
    run.ticks(10);
    let mut given = vec![run.tick(true)];
    given.extend(run.ticks(10));
    let scan = given[0].snapshot.groups[2].clone();
    let known = scan.worth.expect("a curve").known();
    let with = |more: Bytes| {
        let more = |group: &Group| (group.id == scan.id).then_some(more);
        let options = Options {
            more: &more,
            ..Options::as_recorded()
        };
        let steps = replay(&recorded(&given), options);
        assert!(steps.iter().all(Step::same), "it decides nothing");
        summary(&steps).groups[2].clone()
    };
    let told = |group: &GroupSummary| (group.hit_ratio, group.fetched_bytes_per_s);
    let none = with(Bytes::ZERO);
    assert_eq!(told(&none), (Some(0.0), Some(40e6)));
    assert_eq!(none.hit_ratio, none.recorded_hit_ratio);
    // The curve is a cliff: the scan hits everything or nothing.
    let all = with(known);
    assert_eq!(told(&all), (Some(1.0), Some(0.0)));
    assert_eq!(all.recorded_fetched_bytes_per_s, Some(40e6));
    let entitled = all.entitlement_bytes.zip(all.recorded_entitlement_bytes);
    let (now, then) = entitled.expect("known");
    assert!(now.abs_diff(then + known.0) <= 1, "{now} {then}");
}

#[test]
fn a_recording_that_began_in_the_middle_is_replayed_alike() {
    let mut run = Run::new(Config::default(), &[100, 800]);
    run.ticks(20);
    let mut given = vec![run.tick(true)];
    given.extend(run.ticks(10));
    let steps = replay(&recorded(&given), Options::as_recorded());
    assert!(steps.iter().all(Step::same));
    // Without what the policy remembered, the plans differ, and the replay says so.
    given[0].before = None;
    let steps = replay(&recorded(&given), Options::as_recorded());
    assert!(steps[0].began_anew && !steps[1].same());
    assert!(steps[1..].iter().all(|step| !step.began_anew));
    assert_eq!(summary(&steps).began_anew, 1);
}

/// Ticks of which seven in a row are missing.
fn with_a_gap(run: &mut Run) -> Vec<Tick> {
    let mut given = run.ticks(10);
    run.ticks(7);
    given.push(Tick {
        missed: 7,
        ..run.tick(true)
    });
    given
}

#[test]
fn after_a_gap_the_replay_goes_on_from_the_recorded_state() {
    let mut run = Run::new(Config::default(), &[100, 800]);
    let mut given = with_a_gap(&mut run);
    given.extend(run.ticks(5));
    let steps = replay(&recorded(&given), Options::as_recorded());
    assert!(steps.iter().all(Step::same));
    assert!((steps[10].at_s - steps[9].at_s - 8.008).abs() < 1e-9);
    assert_eq!(summary(&steps).missed, 7);
}

#[test]
fn ticks_that_were_missed_do_not_change_the_recorded_bandwidth() {
    let mut run = Run::new(Config::default(), &[100, 800]);
    let given = with_a_gap(&mut run);
    let other = Options {
        objective: Some(Objective::Strict),
        ..Options::as_recorded()
    };
    let [same, other] =
        [Options::as_recorded(), other].map(|options| summary(&replay(&recorded(&given), options)));
    assert!(other.open_loop && !same.open_loop);
    let rates = |summary: &Summary| {
        let groups = summary.groups.iter();
        groups.map(|group| group.bytes_per_s).collect::<Vec<_>>()
    };
    assert_eq!(rates(&same), rates(&other));
    assert!(rates(&same).iter().all(Option::is_some));
    assert_eq!(same.seconds.to_bits(), other.seconds.to_bits());
}

#[test]
fn a_group_that_has_anothers_id_after_a_reboot_has_its_own_sums() {
    let mut run = Run::new(Config::default(), &[100, 800]);
    let before = run.ticks(10);
    let mut after = before.clone();
    for tick in &mut after {
        for group in &mut tick.snapshot.groups {
            group.path = format!("/other{}", group.path);
        }
    }
    let replayed = |ticks: &[Tick]| replay(&recorded(ticks), Options::as_recorded());
    let alone = summary(&replayed(&before));
    let both = summary(&[replayed(&before), replayed(&after)].concat());
    assert_eq!((alone.groups.len(), both.groups.len()), (2, 4));
    for (group, alone) in both.groups.iter().zip(&alone.groups) {
        assert_eq!((&group.path, group.writes), (&alone.path, alone.writes));
    }
}

#[test]
fn the_same_record_and_options_give_the_same_steps() {
    let given = Run::new(Config::default(), &[100, 200, 800]).ticks(30);
    let bytes = recorded(&given);
    let strict = || Options {
        objective: Some(Objective::Strict),
        ..Options::as_recorded()
    };
    let text = |steps: Vec<Step>| {
        let plans: Vec<_> = steps.iter().map(|step| &step.plan).collect();
        serde_json::to_string(&plans).unwrap() + &serde_json::to_string(&summary(&steps)).unwrap()
    };
    assert_eq!(
        text(replay(&bytes, strict())),
        text(replay(&bytes, strict()))
    );
}

#[test]
fn another_weight_is_open_loop_and_shows_what_it_would_change() {
    let given = Run::new(Config::default(), &[100, 800]).ticks(40);
    let bytes = recorded(&given);
    let light = given[0].snapshot.groups[0].id;
    let weight = |group: &Group| Weight::new(800).ok().filter(|_| group.id == light);
    let options = Options {
        weight: &weight,
        ..Options::as_recorded()
    };
    let summary = summary(&replay(&bytes, options));
    assert!(summary.open_loop && summary.same < summary.ticks);
    assert!(summary.first_difference_s.is_some() && summary.differences > 0);
    assert_eq!(summary.first_differences.len(), 5);
    let group = &summary.groups[0];
    assert_eq!(
        (group.weight, group.recorded_weight),
        (Some(800), Some(100))
    );
    assert!(group.threshold_bytes > group.recorded_threshold_bytes);
    assert_eq!(group.ideal_share, Some(0.5));
    // A replay does not change the recorded bandwidth.
    assert!(group.share.unwrap() < 0.2, "{group:?}");
}

#[test]
fn nothing_is_written_in_a_replay_that_only_observes() {
    let given = Run::new(Config::default(), &[100, 800]).ticks(20);
    let options = Options {
        mode: Some(Mode::Observe),
        ..Options::as_recorded()
    };
    let steps = replay(&recorded(&given), options);
    let summary = summary(&steps);
    assert_eq!(summary.writes, 0);
    assert!(summary.recorded_writes > 0);
    assert_eq!(summary.differences, summary.recorded_writes);
}

#[test]
fn a_write_of_the_replay_is_not_repeated_as_if_it_had_no_effect() {
    // Recorded without a policy: the knobs of the record never move.
    let observe = Config::in_mode(Mode::Observe);
    let given = Run::new(observe, &[100, 800]).ticks(40);
    let options = Options {
        mode: Some(Mode::Justitia),
        ..Options::as_recorded()
    };
    let summary = summary(&replay(&recorded(&given), options));
    assert!(summary.writes > 0);
    assert!(summary.writes < 40, "{} writes", summary.writes);
}
