//! Responses with a known answer, and properties of all.

use proptest::prelude::*;

use super::*;
use crate::protocol::Policy;
use crate::tests::fixture;

#[test]
fn a_group_that_is_at_its_ideal_has_settled_at_once_without_overshoot() {
    let seen = response(&[1.0; 20]);
    assert_eq!((seen.reached_s, seen.settled_s), (Some(0.0), Some(0.0)));
    assert_eq!((seen.overshoot, seen.outside), (Some(0.0), Some(0.0)));
}

#[test]
fn a_group_settles_when_it_leaves_the_band_no_more() {
    let seen = response(&[0.2, 0.9, 1.3, 0.7, 1.1, 0.9]);
    assert_eq!((seen.reached_s, seen.settled_s), (Some(1.0), Some(4.0)));
    assert!(seen.overshoot.is_some_and(|over| (over - 0.3).abs() < 1e-9));
    assert_eq!(seen.outside, Some(0.4));
}

#[test]
fn the_descent_from_a_larger_share_is_no_overshoot() {
    let seen = response(&[2.5, 1.8, 1.15, 0.95, 1.05, 1.0]);
    assert_eq!(seen.settled_s, Some(2.0));
    assert!(seen
        .overshoot
        .is_some_and(|over| (over - 0.05).abs() < 1e-9));
}

#[test]
fn a_group_outside_the_band_at_the_end_has_not_settled() {
    let seen = response(&[1.0, 1.0, 1.21]);
    assert_eq!((seen.reached_s, seen.settled_s), (Some(0.0), None));
    let never = response(&[2.0; 9]);
    assert_eq!(never, Response::default());
}

proptest! {
    #[test]
    fn all_windows_since_a_group_settled_are_near_and_the_one_before_is_not(
        ratios in proptest::collection::vec(0.0..2.0_f64, 1..60),
    ) {
        let near = |ratio: &f64| (ratio - 1.0).abs() <= BAND;
        let seen = response(&ratios);
        prop_assert_eq!(seen.settled_s.is_some(), ratios.last().is_some_and(near));
        if let Some(settled_s) = seen.settled_s {
            let settled = settled_s as usize;
            prop_assert!(ratios[settled..].iter().all(near));
            prop_assert!(settled == 0 || !near(&ratios[settled - 1]));
            prop_assert!(seen.reached_s.is_some_and(|reached_s| reached_s <= settled_s));
        }
        if let Some(over) = seen.overshoot {
            let most = ratios.iter().copied().fold(0.0, f64::max);
            prop_assert!(over >= 0.0 && over <= f64::max(0.0, most - 1.0) + 1e-9);
        }
    }

    /// The ideals follow the weights, so a disk that is twice as fast changes nothing, nor do units of weight.
    #[test]
    fn the_ratios_do_not_depend_on_the_total(
        rates in proptest::collection::vec(1_000_u64..1_000_000, 3),
        scale in 1_u64..1000,
    ) {
        let series = |rate: u64| Series {
            at_s: (0..=30).map(f64::from).collect(),
            read_bytes: vec![0; 31],
            write_bytes: (0..=30).map(|second| second * rate).collect(),
            ..Series::default()
        };
        let of = |scale: u64| {
            let series: Vec<Series> = rates.iter().map(|rate| series(rate * scale)).collect();
            ratios(&series, &[0.5, 0.3, 0.2], (5.0, 30.0), 10.0)
        };
        let (once, scaled) = (of(1), of(scale));
        prop_assert_eq!(once[0].len(), 16);
        for (a, b) in once.iter().flatten().zip(scaled.iter().flatten()) {
            prop_assert!((a - b).abs() < 1e-9, "{} {}", a, b);
        }
        // The mean of the ratios, weighted by the shares, is 1.
        let mean = 0.5 * once[0][0] + 0.3 * once[1][0] + 0.2 * once[2][0];
        prop_assert!((mean - 1.0).abs() < 1e-9);
    }
}

/// A document whose groups get exactly their shares from `late_s` after each event, and equal ones before.
fn stepping(late_s: f64) -> Vec<EventFigures> {
    let settings = fixture::settings("responses");
    let events = settings.workload.events(&settings.containers);
    let mut record = fixture::empty_record();
    record.series = vec![Series::default(); settings.containers.len()];
    let mut moved = vec![0.0; settings.containers.len()];
    for second in 0..=settings.seconds {
        let time_s = f64::from(second);
        for (series, bytes) in record.series.iter_mut().zip(&moved) {
            series.at_s.push(time_s);
            series.read_bytes.push(0);
            series.write_bytes.push(*bytes as u64);
        }
        let event = events.iter().rev().find(|event| event.at_s <= time_s);
        let event = event.expect("the start");
        let shares = ideal::shares_after(&settings.containers, event);
        let count = working(event).count() as f64;
        for (place, _) in working(event) {
            let settled = time_s >= event.at_s + late_s;
            moved[place] += 60e6 * if settled { shares[place] } else { 1.0 / count };
        }
    }
    figures(&settings, &[record])
}

#[test]
fn groups_that_follow_each_event_at_once_have_settled_at_once() {
    let figures = stepping(0.0);
    let names: Vec<&str> = figures.iter().map(|one| one.event.as_str()).collect();
    assert_eq!(names.len(), 4 * WINDOWS_S.len());
    for one in &figures {
        assert_eq!(one.settled_s(), Some(0.0), "{one:?}");
        assert!(one.overshoot().is_some_and(|over| over < 1e-3));
        assert!((one.until_s - one.at_s - 60.0).abs() < 1e-9);
    }
    let counts: Vec<usize> = figures.iter().map(|one| one.containers.len()).collect();
    assert_eq!(counts, [7, 7, 8, 8, 8, 8, 7, 7]);
}

/// Windows that begin before the step and mostly lie after it are within the band.
#[test]
fn a_late_response_settles_late() {
    for one in stepping(12.0) {
        let settled = one.settled_s().expect("it settles");
        assert!((10.0..=12.0).contains(&settled), "{settled} {}", one.event);
    }
}

#[test]
fn the_synthetic_conventional_guest_does_not_settle_and_the_proportional_one_does() {
    let document = fixture::document("responses --runs 2");
    let of = |policy: Policy| &document.policies[&policy].responses;
    for one in of(Policy::Conventional) {
        assert_eq!(one.settled_s(), None, "{}", one.event);
    }
    let start = &of(Policy::Proportional)[0];
    assert_eq!(start.containers[0].runs.len(), 2);
    assert!(fixture::document("fileserver").policies[&Policy::Memcg]
        .responses
        .is_empty());
}
