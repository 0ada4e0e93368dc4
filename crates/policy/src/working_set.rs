//! Working sets: how much memory a group needs to stay well (MemOpLight names this as future work).
//!
//! While memory is taken from a group that declares itself well, the moment it turns red tells how
//! much it needed: its footprint just before is a *sample*. Probes average over some periods, so
//! the largest footprint of the last three good ones is taken: a little too much is safe.
//!
//! 1. Only declared colors teach. An inferred color follows stalls, which have many causes.
//! 2. A turn without page faults on what was evicted (refaults, where they can be read) has another
//!    cause than memory and teaches nothing.
//! 3. The estimate is the median of the last five samples, the larger of two: one wrong sample
//!    moves it little.
//! 4. A sample is *disproved* when the group was well with clearly less for some seconds: a lighter
//!    load, or an outlier.
//! 5. An estimate that keeps memory from being taken is tested: after some patience it shrinks
//!    slowly, until the group turns red (and confirms it, which doubles the patience) or does not.
//!
//! Units: bytes of `memory.current`, the paper's footprint, because that is what limits are in.
//! Pure: time comes in as seconds. What could not be read teaches nothing.

use serde::{Deserialize, Serialize};

use crate::color::Color;
use crate::units::Bytes;

/// Samples that are remembered.
const SAMPLES: usize = 5;
/// Good periods over which a probe may average.
const LATE: usize = 3;
/// A turn to red within so many seconds after a taking is its doing; so long after, refaults count.
const RECENT_S: f64 = 5.0;
/// Fewer refaults a second than this are none.
const REFAULTS: f64 = 1.0;
/// Well for so many seconds with less than this part of a sample: the sample is disproved.
const PROVEN_S: f64 = 10.0;
const PROVEN: f64 = 0.9;
/// Seconds for which an estimate that stands in the way is believed, at first and at most.
const PATIENCE_S: f64 = 20.0;
const MOST_PATIENCE_S: f64 = 600.0;
/// How fast it shrinks after that, per second.
const SHRINK_PER_S: f64 = 0.01;
/// Samples this near to the estimate confirm it.
const NEAR: f64 = 0.1;

/// What is known of one group's working set.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkingSet {
    estimate: Option<Bytes>,
    /// The last ones, the newest first.
    samples: Vec<Bytes>,
    /// Footprints of the last good periods in a row, the newest first.
    good: Vec<Bytes>,
    /// For how long it has been well without a break.
    good_s: f64,
    /// Since something was taken from it; `None`: never.
    taken_s: Option<f64>,
    /// Since it was last seen to refault, or refaults could not be read; `None`: never.
    refaulted_s: Option<f64>,
    /// For how long the estimate has stood in the way.
    stood_s: f64,
    /// How long it may, if it was confirmed before.
    patience_s: Option<f64>,
}

/// One period of one group.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Seen {
    /// The color it declares; `None`: none that counts.
    pub color: Option<Color>,
    /// `memory.current`.
    pub footprint: Option<Bytes>,
    /// Memory was taken from it in the last period.
    pub taken: bool,
    /// More would be taken but for the estimate.
    pub in_the_way: bool,
    /// Refaults of page cache per second.
    pub refaults_per_s: Option<f64>,
}

impl WorkingSet {
    /// The estimate; `None` while nothing was learned.
    pub fn estimate(&self) -> Option<Bytes> {
        self.estimate
    }

    /// How many samples it rests on.
    pub fn samples(&self) -> usize {
        self.samples.len()
    }

    /// What is known after one more period.
    #[must_use]
    pub fn after(mut self, seen: &Seen, elapsed_s: f64) -> WorkingSet {
        let later = |since: Option<f64>| since.map(|s| (s + elapsed_s).min(1e6));
        self.taken_s = if seen.taken {
            Some(0.0)
        } else {
            later(self.taken_s)
        };
        self.refaulted_s = match seen.refaults_per_s {
            Some(rate) if rate < REFAULTS => later(self.refaulted_s),
            _ => Some(0.0),
        };
        match seen.color {
            Some(color) if color.is_good() => self.be_well(seen, elapsed_s),
            Some(_) => self.turn_red(),
            None => self.forget_run(),
        }
        self
    }

    fn be_well(&mut self, seen: &Seen, elapsed_s: f64) {
        self.good_s += elapsed_s;
        let Some(footprint) = seen.footprint else {
            return;
        };
        self.good.insert(0, footprint);
        self.good.truncate(LATE);
        if self.good_s >= PROVEN_S {
            let before = self.samples.len();
            self.samples.retain(|s| s.scale(PROVEN) <= footprint);
            if self.samples.len() < before {
                self.estimate = median(&self.samples);
                self.patience_s = None;
            }
        }
        if !seen.in_the_way {
            self.stood_s = 0.0;
            return;
        }
        self.stood_s += elapsed_s;
        if self.stood_s > self.patience_s.unwrap_or(PATIENCE_S) {
            let shrunk = (-SHRINK_PER_S * elapsed_s).exp();
            self.estimate = self.estimate.map(|estimate| estimate.scale(shrunk));
        }
    }

    fn turn_red(&mut self) {
        let recent = |since: Option<f64>| since.is_some_and(|s| s <= RECENT_S);
        let sample = self.good.iter().max().copied();
        if let Some(sample) = sample.filter(|_| recent(self.taken_s) && recent(self.refaulted_s)) {
            self.learn(sample);
        }
        self.forget_run();
    }

    fn learn(&mut self, sample: Bytes) {
        let confirmed = self.estimate.is_some_and(|estimate| {
            (sample - estimate).max(estimate - sample) <= estimate.scale(NEAR)
        });
        self.patience_s = confirmed.then(|| {
            let patience = self.patience_s.unwrap_or(PATIENCE_S) * 2.0;
            patience.min(MOST_PATIENCE_S)
        });
        self.samples.insert(0, sample);
        self.samples.truncate(SAMPLES);
        self.estimate = median(&self.samples);
    }

    /// The run of good periods is over.
    fn forget_run(&mut self) {
        self.good.clear();
        self.good_s = 0.0;
        self.stood_s = 0.0;
    }
}

/// The middle one; of an even number the larger of the two.
fn median(samples: &[Bytes]) -> Option<Bytes> {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied()
}

#[cfg(test)]
#[path = "working_set_tests.rs"]
mod tests;
