//! Backoff: less is taken from a group while it refaults what was taken.
//!
//! If the refaults of a group rise well above their rate while nothing is taken from it, the group lost pages
//! that it needs. It then gives half as much, down to [`LEAST`]. Each step without such a rise increases the
//! amount by a quarter. Rates in pages per second; unknown rates change nothing.

use serde::{Deserialize, Serialize};

const LEAST: f64 = 1.0 / 32.0;
/// A rise exceeds the calm rate times this, plus [`RISE_PAGES_PER_S`].
const RISE: f64 = 2.0;
/// Margin of a rise, pages per second.
const RISE_PAGES_PER_S: f64 = 64.0;
/// Weight of the newest rate in the average of calm rates.
const NEWEST: f64 = 0.3;
/// Factor on the amount in each step without a rise.
const RECOVERY: f64 = 1.25;

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Backoff {
    /// The part of its overage that may be asked for, above 0 and at most 1.
    pub factor: f64,
    /// Refaults while nothing is taken.
    calm_pages_per_s: Option<f64>,
    asked: bool,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff {
            factor: 1.0,
            calm_pages_per_s: None,
            asked: false,
        }
    }
}

impl Backoff {
    pub(crate) fn note_asked(&mut self) {
        self.asked = true;
    }

    /// Advances by one step. `refault_pages_per_s`: refaults since the last step.
    pub(crate) fn move_on(&mut self, refault_pages_per_s: Option<f64>) {
        let asked = std::mem::take(&mut self.asked);
        let Some(rate) = refault_pages_per_s else {
            return;
        };
        let calm = self.calm_pages_per_s.unwrap_or(0.0);
        if asked && rate > calm * RISE + RISE_PAGES_PER_S {
            self.factor = (self.factor / 2.0).max(LEAST);
            return;
        }
        self.factor = (self.factor * RECOVERY).min(1.0);
        if !asked {
            self.calm_pages_per_s = Some(calm + NEWEST * (rate - calm));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(rates: &[(bool, Option<f64>)]) -> Backoff {
        let mut backoff = Backoff::default();
        for &(asked, rate) in rates {
            if asked {
                backoff.note_asked();
            }
            backoff.move_on(rate);
        }
        backoff
    }

    #[test]
    fn a_group_that_reads_back_what_was_taken_gives_less_and_later_more_again() {
        let hurt = after(&[
            (false, Some(10.0)),
            (true, Some(500.0)),
            (true, Some(500.0)),
        ]);
        assert!((hurt.factor - 0.25).abs() < 1e-9);
        let mut well = hurt;
        for _ in 0..10 {
            well.move_on(Some(5.0));
        }
        assert!((well.factor - 1.0).abs() < 1e-9);
    }

    #[test]
    fn refaults_that_were_there_before_are_not_blamed_on_the_guard() {
        let busy = [(false, Some(1000.0)); 20];
        let mut backoff = after(&busy);
        backoff.note_asked();
        backoff.move_on(Some(1200.0));
        assert!((backoff.factor - 1.0).abs() < 1e-9);
    }

    #[test]
    fn unknown_refaults_change_nothing_and_it_never_stops_altogether() {
        let backoff = after(&[(true, Some(1e6)); 50]);
        assert!(backoff.factor >= LEAST);
        let mut same = backoff;
        same.note_asked();
        same.move_on(None);
        assert!((same.factor - backoff.factor).abs() < 1e-12);
    }
}
