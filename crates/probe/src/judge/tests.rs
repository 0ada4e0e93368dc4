//! The promises of the judge: outliers, steps, flapping, start, gaps.

use super::*;
use proptest::prelude::*;
use std::time::Duration;

const COLORS: [Color; 3] = [Color::Green, Color::Yellow, Color::Red];

/// A judge of targets that state their color.
fn judge(window: usize) -> Judge {
    Judge::new(Objective::default(), window)
}

fn says(color: Color) -> Measurement {
    Measurement {
        color: Some(color),
        ..Measurement::default()
    }
}

/// Feeds measurements until the start is over and the color is declared.
fn settle(judge: &mut Judge, color: Color) {
    for _ in 0..3 * judge.window {
        judge.judge(says(color));
    }
    assert_eq!(judge.declared, color);
}

fn windows() -> impl Strategy<Value = usize> {
    (1..8usize).prop_map(|half| 2 * half + 1)
}

fn colors() -> impl Strategy<Value = Color> {
    (0..3usize).prop_map(|i| COLORS[i])
}

#[test]
fn it_starts_red_and_says_so() {
    let mut judge = judge(5);
    for _ in 0..6 {
        let verdict = judge.judge(says(Color::Green));
        assert_eq!(verdict.color, Color::Red);
        assert!(verdict.reason.starts_with("starting"), "{verdict:?}");
    }
    assert_eq!(judge.judge(says(Color::Green)).color, Color::Green);
}

#[test]
fn periods_that_are_not_measured_yet_count_as_red() {
    let mut judge = judge(5);
    judge.judge(says(Color::Red));
    for _ in 0..6 {
        assert_eq!(judge.judge(says(Color::Green)).color, Color::Red);
    }
    assert_eq!(judge.judge(says(Color::Green)).color, Color::Green);
}

#[test]
fn a_window_of_one_is_the_measurement_itself() {
    let mut judge = judge(1);
    for color in [Color::Green, Color::Red, Color::Yellow, Color::Green] {
        assert_eq!(judge.judge(says(color)).color, color);
    }
}

#[test]
fn the_reason_is_that_of_the_color() {
    let objective = Objective {
        max_latency: Some(Duration::from_millis(50)),
        ..Objective::default()
    };
    let mut judge = Judge::new(objective, 5);
    let takes = |seconds| Measurement {
        latency_seconds: Some(seconds),
        ..Measurement::default()
    };
    for _ in 0..10 {
        judge.judge(takes(0.08));
    }
    assert_eq!(judge.judge(takes(0.08)).reason, "latency 80 ms of 50 ms");
    for _ in 0..3 {
        judge.judge(takes(0.01));
    }
    let held = judge.judge(takes(0.01));
    assert_eq!(held.color, Color::Red);
    assert_eq!(held.reason, "lately: latency 80 ms of 50 ms");
}

#[test]
fn a_short_gap_changes_nothing_and_a_long_one_starts_again() {
    let mut judge = judge(5);
    settle(&mut judge, Color::Green);
    for _ in 0..4 {
        judge.miss();
    }
    assert_eq!(judge.judge(says(Color::Green)).color, Color::Green);
    for _ in 0..5 {
        judge.miss();
    }
    assert_eq!(judge.judge(says(Color::Green)).color, Color::Red);
}

#[test]
fn a_rare_request_that_is_slow_is_one_outlier_however_few_there_are() {
    let objective = Objective {
        max_latency: Some(Duration::from_millis(50)),
        ..Objective::default()
    };
    let mut judge = Judge::new(objective, 5);
    for _ in 0..10 {
        judge.judge(Measurement::default());
    }
    let slow = Measurement {
        latency_seconds: Some(9.0),
        ..Measurement::default()
    };
    assert_eq!(judge.judge(slow).color, Color::Green);
    for _ in 0..5 {
        assert_eq!(judge.judge(Measurement::default()).color, Color::Green);
    }
}

proptest! {
    #[test]
    fn one_outlier_never_changes_the_color(n in windows(), base in colors(), odd in colors(), at in 0..20usize) {
        let mut judge = judge(n);
        settle(&mut judge, base);
        for period in 0..20 + n {
            let seen = if period == at { odd } else { base };
            prop_assert_eq!(judge.judge(says(seen)).color, base);
        }
    }

    #[test]
    fn fewer_than_half_a_window_of_outliers_never_change_the_color(
        n in windows(),
        base in colors(),
        input in proptest::collection::vec(colors(), 200),
    ) {
        let mut judge = judge(n);
        settle(&mut judge, base);
        let mut odd = VecDeque::new();
        for color in input {
            push(&mut odd, color != base, n);
            if odd.iter().filter(|odd| **odd).count() > n / 2 {
                odd.pop_back();
                push(&mut odd, false, n);
                prop_assert_eq!(judge.judge(says(base)).color, base);
            } else {
                prop_assert_eq!(judge.judge(says(color)).color, base);
            }
        }
    }

    #[test]
    fn a_step_to_worse_is_followed_after_half_a_window(n in windows(), from in 0..2usize, up in 1..3usize) {
        let to = COLORS[(from + up).min(2)];
        let mut judge = judge(n);
        settle(&mut judge, COLORS[from]);
        let periods = (1..100).find(|_| judge.judge(says(to)).color == to).unwrap();
        prop_assert_eq!(periods, n.div_ceil(2));
    }

    #[test]
    fn a_step_to_better_is_followed_after_one_and_a_half_windows(n in windows(), from in 1..3usize, down in 1..3usize) {
        let to = COLORS[from.saturating_sub(down)];
        let mut judge = judge(n);
        settle(&mut judge, COLORS[from]);
        let periods = (1..100).find(|_| judge.judge(says(to)).color == to).unwrap();
        prop_assert_eq!(periods, n.div_ceil(2) + n - 1);
    }

    #[test]
    fn once_worse_it_is_not_better_for_a_window(
        n in windows(),
        input in proptest::collection::vec(colors(), 300),
    ) {
        let mut judge = judge(n);
        let mut last = Color::Red;
        let mut worse_at: Option<usize> = None;
        for (period, color) in input.into_iter().enumerate() {
            let color = judge.judge(says(color)).color;
            if badness(color) > badness(last) {
                worse_at = Some(period);
            } else if badness(color) < badness(last) {
                prop_assert!(worse_at.is_none_or(|at| period - at >= n), "{:?} and {}", worse_at, period);
            }
            last = color;
        }
    }

    #[test]
    fn input_that_alternates_within_a_window_settles_at_its_worse_color(
        n in windows(),
        one in colors(),
        other in colors(),
        length in 1..8usize,
    ) {
        let length = length.min(n / 2 + 1);
        let mut judge = judge(n);
        for period in 0..100 {
            let seen = if period / length % 2 == 0 { one } else { other };
            let color = judge.judge(says(seen)).color;
            if period > 4 * n {
                prop_assert_eq!(color, worse(one, other));
            }
        }
    }
}
