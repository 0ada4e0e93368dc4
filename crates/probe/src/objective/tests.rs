//! Colors of measurements.

use super::*;
use proptest::prelude::*;

const COLORS: [Color; 3] = [Color::Green, Color::Yellow, Color::Red];

fn tps(min: f64) -> Objective {
    Objective {
        min_per_second: Some(min),
        ..Objective::default()
    }
}

fn work(per_second: f64, waiting: Option<f64>) -> Measurement {
    Measurement {
        per_second: Some(per_second),
        waiting,
        ..Measurement::default()
    }
}

fn latency(seconds: f64) -> Measurement {
    Measurement {
        latency_seconds: Some(seconds),
        ..Measurement::default()
    }
}

#[test]
fn the_three_colors_of_the_paper() {
    let objective = tps(1700.0);
    for (rate, waiting, color) in [
        (1711.0, 0.0, Color::Green),
        (1711.0, 3.0, Color::Yellow),
        (900.0, 3.0, Color::Red),
    ] {
        let seen = work(rate, Some(waiting));
        assert_eq!(objective.color(&seen, Color::Green), color, "{seen:?}");
    }
}

#[test]
fn little_work_is_not_a_missed_objective() {
    for now in COLORS {
        assert_eq!(tps(1700.0).color(&work(12.0, Some(0.0)), now), Color::Green);
    }
}

#[test]
fn throughput_cannot_be_missed_when_nobody_knows_what_waits() {
    assert_eq!(
        tps(1700.0).color(&work(12.0, None), Color::Red),
        Color::Green
    );
}

#[test]
fn a_failed_request_misses_every_latency_objective() {
    let objective = Objective {
        max_latency: Some(Duration::from_secs(3600)),
        ..Objective::default()
    };
    assert_eq!(
        objective.color(&latency(f64::INFINITY), Color::Green),
        Color::Red
    );
}

#[test]
fn within_the_slack_the_color_stays() {
    let objective = Objective {
        max_latency: Some(Duration::from_millis(100)),
        ..Objective::default()
    };
    let between = latency(0.103);
    assert_eq!(objective.color(&between, Color::Green), Color::Green);
    assert_eq!(objective.color(&between, Color::Red), Color::Red);
    assert_eq!(objective.color(&latency(0.106), Color::Green), Color::Red);
    assert_eq!(objective.color(&latency(0.1), Color::Red), Color::Green);
}

#[test]
fn a_throughput_of_exactly_the_objective_is_met() {
    for now in COLORS {
        let seen = work(1700.0, Some(2.0));
        assert_eq!(tps(1700.0).color(&seen, now), Color::Yellow);
    }
}

#[test]
fn thresholds_work_in_both_directions() {
    let objective = Objective {
        yellow: Some("<100".parse().unwrap()),
        red: Some("< 50".parse().unwrap()),
        ..Objective::default()
    };
    let color = |value| {
        let seen = Measurement {
            value: Some(value),
            ..Measurement::default()
        };
        objective.color(&seen, Color::Green)
    };
    assert_eq!(color(120.0), Color::Green);
    assert_eq!(color(80.0), Color::Yellow);
    assert_eq!(color(20.0), Color::Red);
    assert_eq!("0.5".parse(), Ok(Threshold::Above(0.5)));
    assert_eq!(">0.5".parse(), Ok(Threshold::Above(0.5)));
    for wrong in ["", "high", "=3", ">NaN", ">inf"] {
        assert!(wrong.parse::<Threshold>().is_err(), "{wrong}");
    }
}

#[test]
fn a_color_that_the_target_reports_itself_is_never_improved() {
    for said in COLORS {
        let seen = Measurement {
            color: Some(said),
            ..Measurement::default()
        };
        assert_eq!(Objective::default().color(&seen, Color::Green), said);
    }
}

fn measurements() -> impl Strategy<Value = Measurement> {
    let value = || proptest::option::of(prop_oneof![0.0..1e4, Just(f64::INFINITY)]);
    (value(), value(), value(), value()).prop_map(|(rate, latency, waiting, value)| Measurement {
        per_second: rate,
        latency_seconds: latency,
        waiting,
        value,
        ..Measurement::default()
    })
}

proptest! {
    #[test]
    fn better_numbers_never_have_a_worse_color(seen in measurements(), by in 0.0..1.0f64, now in 0..3usize) {
        let objective = Objective {
            max_latency: Some(Duration::from_secs(100)),
            red: Some(Threshold::Above(5000.0)),
            yellow: Some(Threshold::Above(50.0)),
            max_waiting: 3.0,
            ..tps(1000.0)
        };
        let better = Measurement {
            per_second: seen.per_second.map(|rate| rate / by.max(0.01)),
            latency_seconds: seen.latency_seconds.map(|latency| latency * by),
            waiting: seen.waiting.map(|waiting| waiting * by),
            value: seen.value.map(|value| value * by),
            ..seen.clone()
        };
        prop_assume!(by > 0.0);
        let (before, after) = (objective.color(&seen, COLORS[now]), objective.color(&better, COLORS[now]));
        prop_assert!(badness(after) <= badness(before));
    }

    #[test]
    fn a_worse_color_before_never_gives_a_better_one_now(seen in measurements()) {
        let objective = Objective { max_latency: Some(Duration::from_secs(100)), ..tps(1000.0) };
        let from_green = badness(objective.color(&seen, Color::Green));
        let from_red = badness(objective.color(&seen, Color::Red));
        prop_assert!(from_green <= from_red);
    }
}
