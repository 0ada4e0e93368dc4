//! One measurement of a target. Units: seconds, units of work per second, counts.

use justitia_policy::color::Color;
use serde::Serialize;

/// One measurement of a target. A value that the target does not tell is `None`, never zero.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Measurement {
    /// Work finished per second since the previous measurement.
    pub per_second: Option<f64>,
    /// Latency of the work, in seconds; infinite if it failed (JSON has no such number, so it is null there).
    pub latency_seconds: Option<f64>,
    /// Work that has to wait.
    pub waiting: Option<f64>,
    /// A number that the user chose.
    pub value: Option<f64>,
    /// A color that the target itself states.
    pub color: Option<Color>,
    /// The target had no work whose latency or number counts: says nothing about work before or after.
    #[serde(skip)]
    pub idle: bool,
    /// A remark for people.
    pub note: Option<String>,
}

/// Turns a counter that only grows into a rate.
#[derive(Debug, Clone, Default)]
pub struct Rate {
    last: Option<(f64, f64)>,
}

impl Rate {
    /// The rate since the last call, given the counter and the time in seconds. `None` at the first call,
    /// when no time has passed, and when the counter went back (a restart).
    pub fn of(&mut self, counter: f64, at_seconds: f64) -> Option<f64> {
        let last = self.last.replace((counter, at_seconds));
        let (before, then) = last?;
        let elapsed = at_seconds - then;
        (elapsed > 0.0 && counter >= before).then(|| (counter - before) / elapsed)
    }
}

/// The value that `percent` of the samples do not exceed (nearest rank); sorts the samples.
pub fn percentile(samples: &mut [f64], percent: f64) -> Option<f64> {
    samples.sort_by(f64::total_cmp);
    let rank = (percent / 100.0 * samples.len() as f64).ceil() as usize;
    samples.get(rank.max(1) - 1).or(samples.last()).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_the_growth_over_the_time() {
        let mut rate = Rate::default();
        assert_eq!(rate.of(100.0, 10.0), None);
        assert_eq!(rate.of(150.0, 12.0), Some(25.0));
    }

    #[test]
    fn a_counter_that_went_back_has_no_rate_and_is_the_new_base() {
        let mut rate = Rate::default();
        rate.of(1000.0, 1.0);
        assert_eq!(rate.of(5.0, 2.0), None);
        assert_eq!(rate.of(10.0, 3.0), Some(5.0));
    }

    #[test]
    fn without_time_between_two_values_there_is_no_rate() {
        let mut rate = Rate::default();
        rate.of(1.0, 1.0);
        assert_eq!(rate.of(2.0, 1.0), None);
    }

    #[test]
    fn a_percentile_is_one_of_the_samples() {
        let mut samples: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(percentile(&mut samples, 95.0), Some(95.0));
        assert_eq!(percentile(&mut samples, 100.0), Some(100.0));
        assert_eq!(percentile(&mut samples, 0.0), Some(1.0));
        assert_eq!(percentile(&mut [7.0], 50.0), Some(7.0));
        assert_eq!(percentile(&mut [], 50.0), None);
    }
}
