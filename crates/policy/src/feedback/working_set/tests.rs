//! Events that teach a working set, events that do not, and events that make it forget.

use proptest::prelude::*;

use super::*;

fn seen(color: Color, mib: u64) -> Period {
    Period {
        color: Some(color),
        footprint: Some(Bytes::mib(mib)),
        taken: color == Color::Green,
        in_the_way: false,
        refaults_per_s: Some(50.0),
        load: None,
    }
}

/// The same, at a load.
fn at(load: f64, seen: Period) -> Period {
    Period {
        load: Some(load),
        ..seen
    }
}

/// The group is green while memory is taken from it, down to this footprint, and then turns red.
fn turn(set: WorkingSet, mib: u64) -> WorkingSet {
    turn_with(set, mib, |seen| seen)
}

fn turn_with(set: WorkingSet, mib: u64, with: impl Fn(Period) -> Period) -> WorkingSet {
    let green = [mib + 4, mib + 2, mib].map(|mib| seen(Color::Green, mib));
    let red = seen(Color::Red, mib - 2);
    green
        .into_iter()
        .chain([red])
        .fold(set, |set, seen| set.after(&with(seen), 1.0))
}

#[test]
fn an_estimate_holds_for_the_load_at_which_it_was_learned() {
    let set = turn_with(WorkingSet::default(), 100, |seen| at(1e6, seen));
    let now = |load| set.clone().after(&at(load, seen(Color::Green, 104)), 1.0);
    assert_eq!(now(1.2e6).estimate(), Some(Bytes::mib(104)));
    assert_eq!(now(0.1e6).estimate(), None, "a tenth may need less");
    let more = now(5e6).estimate();
    assert_eq!(more, Some(Bytes::mib(104)), "five times needs no less");
    let both = turn_with(set, 40, |seen| at(0.1e6, seen));
    let now = |load| both.clone().after(&at(load, seen(Color::Green, 104)), 1.0);
    assert_eq!(now(1e6).estimate(), Some(Bytes::mib(104)));
    assert_eq!(now(0.1e6).estimate(), Some(Bytes::mib(44)));
}

#[test]
fn a_light_load_does_not_disprove_what_was_learned_at_a_heavy_one() {
    let mut set = turn_with(WorkingSet::default(), 100, |seen| at(1e6, seen));
    for _ in 0..60 {
        set = set.after(&at(0.1e6, seen(Color::Green, 40)), 1.0);
    }
    for _ in 0..10 {
        set = set.after(&at(1e6, seen(Color::Green, 104)), 1.0);
    }
    assert_eq!(set.estimate(), Some(Bytes::mib(104)));
}

#[test]
fn a_turn_at_which_the_load_rose_has_another_cause() {
    let set = turn_with(WorkingSet::default(), 100, |seen| match seen.color {
        Some(Color::Red) => at(3e6, seen),
        _ => at(1e6, seen),
    });
    assert_eq!(set.samples.len(), 0);
}

#[test]
fn the_footprint_just_before_the_turn_is_the_working_set() {
    let set = turn(WorkingSet::default(), 100);
    assert_eq!(set.estimate(), Some(Bytes::mib(104)));
    assert_eq!(set.samples.len(), 1);
}

#[test]
fn a_turn_from_which_nothing_was_taken_teaches_nothing() {
    let mut green = seen(Color::Green, 100);
    green.taken = false;
    let set = WorkingSet::default().after(&green, 1.0);
    let set = set.after(&seen(Color::Red, 90), 1.0);
    assert_eq!(set.estimate(), None);
}

#[test]
fn a_turn_without_refaults_has_another_cause() {
    let quiet = |color, mib| Period {
        refaults_per_s: Some(0.0),
        ..seen(color, mib)
    };
    let set = WorkingSet::default().after(&quiet(Color::Green, 100), 1.0);
    let set = set.after(&quiet(Color::Red, 90), 1.0);
    assert_eq!(set.estimate(), None);
    let unknown = |color, mib| Period {
        refaults_per_s: None,
        ..seen(color, mib)
    };
    let set = WorkingSet::default().after(&unknown(Color::Green, 100), 1.0);
    let set = set.after(&unknown(Color::Red, 90), 1.0);
    assert_eq!(set.estimate(), Some(Bytes::mib(100)), "unknown is not zero");
}

#[test]
fn a_color_that_went_stale_in_between_teaches_nothing() {
    let nobody = Period {
        color: None,
        ..seen(Color::Red, 100)
    };
    let set = WorkingSet::default().after(&seen(Color::Green, 100), 1.0);
    let set = set.after(&nobody, 1.0).after(&seen(Color::Red, 90), 1.0);
    assert_eq!(set.estimate(), None);
}

#[test]
fn one_wrong_sample_moves_the_estimate_little() {
    let set = [100, 102, 101]
        .into_iter()
        .fold(WorkingSet::default(), turn);
    let before = set.estimate().unwrap();
    for wrong in [20, 900] {
        let after = turn(set.clone(), wrong).estimate().unwrap();
        let moved = (after - before).max(before - after);
        assert!(moved <= Bytes::mib(2), "{wrong}: {before} -> {after}");
    }
}

#[test]
fn being_well_with_less_disproves_a_sample() {
    let mut set = turn(WorkingSet::default(), 100);
    for _ in 0..9 {
        set = set.after(&seen(Color::Green, 60), 1.0);
    }
    assert!(set.estimate().is_some(), "not yet");
    set = set.after(&seen(Color::Yellow, 60), 1.0);
    set = set.after(&seen(Color::Green, 60), 1.0);
    assert_eq!(set.estimate(), None);
}

#[test]
fn a_limiting_estimate_is_tested_and_less_often_once_it_is_confirmed() {
    let shrinks_after = |mut set: WorkingSet| {
        let before = set.estimate();
        let held = Period {
            in_the_way: true,
            ..seen(Color::Green, 104)
        };
        (0..1000).find(|_| {
            set = set.clone().after(&held, 1.0);
            set.estimate() < before
        })
    };
    let once = turn(WorkingSet::default(), 100);
    let often = [100; 4].into_iter().fold(once.clone(), turn);
    let (once, often) = (shrinks_after(once).unwrap(), shrinks_after(often).unwrap());
    assert_eq!(once, 20);
    assert!(often > 5 * once, "{often}");
}

proptest! {
    #[test]
    fn an_estimate_is_never_more_than_the_largest_footprint_seen(
        periods in prop::collection::vec((0u8..4, 1u64..1000, any::<bool>(), any::<bool>()), 1..200),
    ) {
        let mut set = WorkingSet::default();
        let mut most = Bytes::ZERO;
        for (color, mib, taken, in_the_way) in periods {
            let color = [Some(Color::Green), Some(Color::Yellow), Some(Color::Red), None][usize::from(color)];
            let footprint = Some(Bytes::mib(mib));
            most = most.max(Bytes::mib(mib));
            let seen = Period { color, footprint, taken, in_the_way, refaults_per_s: None, load: None };
            set = set.after(&seen, 1.0);
            prop_assert!(set.estimate().unwrap_or_default() <= most);
            prop_assert!(set.samples.len() <= SAMPLES && set.good.len() <= LATE);
        }
    }
}
