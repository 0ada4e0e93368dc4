//! Working sets: how much memory a group needs to stay satisfied (MemOpLight names this as future work).
//!
//! While memory is taken from a group that declares itself satisfied, its turn to red shows how much it
//! needed: its footprint just before is a *sample*. Probes average over some periods, so the sample is the
//! largest footprint of the last three good periods: a little too much is safe.
//!
//! 1. Only declared colors teach. An inferred color follows stalls, which have many causes.
//! 2. A turn to red without refaults (where they can be read) has another cause than memory and teaches
//!    nothing. A turn at which the group's load rose teaches nothing either.
//! 3. A sample holds for the load at which it was taken: a database with a tenth of the requests needs less.
//!    At a load without samples, those of lighter loads count, because the group needs no less. Below all
//!    sampled loads nothing is known.
//! 4. The estimate is the median of the samples that count, the larger of the middle two: one wrong sample
//!    moves it little.
//! 5. A sample is *disproved*, as an outlier, when the group was satisfied with clearly less for some seconds
//!    at a similar load.
//! 6. An estimate that keeps memory from being taken is tested: after some patience it shrinks slowly. If the
//!    group then turns red, that confirms the estimate and doubles the patience.
//!
//! Units: bytes of `memory.current`, the paper's footprint, because limits apply to it; loads in bytes per
//! second that applications read and write. Pure: time comes in as seconds. Values that could not be read
//! teach nothing.

use serde::{Deserialize, Serialize};

use crate::color::Color;
use crate::units::Bytes;

const SAMPLES: usize = 9;
/// Good periods over which a probe may average.
const LATE: usize = 3;
/// Good periods over which the load is averaged: with few requests per second it is uneven.
const LOADS: usize = 10;
/// A turn to red teaches only within this many seconds of a taking, and of a refault.
const RECENT_S: f64 = 5.0;
/// Fewer refaults per second count as none.
const REFAULTS: f64 = 1.0;
/// A group disproves a sample if it is satisfied with less for this many seconds.
const PROVEN_S: f64 = 10.0;
/// A footprint below this part of a sample disproves it.
const PROVEN: f64 = 0.9;
/// Seconds for which an estimate may keep memory from being taken before it shrinks: at first, and at most.
const PATIENCE_S: f64 = 20.0;
const MOST_PATIENCE_S: f64 = 600.0;
/// Fraction by which an estimate shrinks after its patience, per second.
const SHRINK_PER_S: f64 = 0.01;
/// Samples this near to the estimate confirm it.
const NEAR: f64 = 0.1;
/// Loads within this factor of each other are alike.
const ALIKE: f64 = 1.5;

/// The result of one turn to red.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Sample {
    footprint: Bytes,
    /// The load before the turn; `None`: unknown, like any other load.
    load: Option<f64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct WorkingSet {
    /// The last samples, the newest first.
    samples: Vec<Sample>,
    /// Footprints of the last good periods in a row, the newest first.
    good: Vec<Bytes>,
    /// Loads of the last good periods in a row, the newest first, where they could be read.
    loads: Vec<f64>,
    /// Seconds for which it has been satisfied without a break.
    good_s: f64,
    /// Seconds since memory was taken from it; `None`: never.
    taken_s: Option<f64>,
    /// Seconds since it last refaulted, or refaults could not be read; `None`: never.
    refaulted_s: Option<f64>,
    /// Seconds for which the estimate has kept memory from being taken.
    stood_s: f64,
    /// Seconds for which the estimate has shrunk.
    shrunk_s: f64,
    /// Its patience after it was confirmed, seconds; `None`: [`PATIENCE_S`].
    patience_s: Option<f64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Period {
    /// Its declared color; `None`: no fresh one.
    pub color: Option<Color>,
    /// `memory.current`.
    pub footprint: Option<Bytes>,
    /// Memory was taken from it in the last period.
    pub taken: bool,
    /// Without the estimate, more memory would be taken.
    pub in_the_way: bool,
    pub refaults_per_s: Option<f64>,
    /// Bytes that its applications read and wrote per second.
    pub load: Option<f64>,
}

impl WorkingSet {
    /// The estimate for the present load; `None` if no sample holds for it.
    pub(crate) fn estimate(&self) -> Option<Bytes> {
        if self.samples.is_empty() {
            return None;
        }
        let load = self.load();
        let mut counted = self.samples_at(|of| alike(of, load));
        if counted.is_empty() {
            counted = self.samples_at(|of| of.zip(load).is_some_and(|(of, load)| of < load));
        }
        let shrunk = (-SHRINK_PER_S * self.shrunk_s).exp();
        median(counted).map(|estimate| estimate.scale(shrunk))
    }

    fn samples_at(&self, counts: impl Fn(Option<f64>) -> bool) -> Vec<Bytes> {
        let counted = self.samples.iter().filter(|s| counts(s.load));
        counted.map(|s| s.footprint).collect()
    }

    /// The mean load of the last good periods; `None` while it is not satisfied, or if the load could not be
    /// read.
    fn load(&self) -> Option<f64> {
        let sum: f64 = self.loads.iter().sum();
        (!self.loads.is_empty()).then(|| sum / self.loads.len() as f64)
    }

    #[must_use]
    pub(crate) fn after(mut self, seen: &Period, elapsed_s: f64) -> WorkingSet {
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
            Some(_) => self.turn_red(seen.load),
            None => self.forget_run(),
        }
        self
    }

    fn be_well(&mut self, seen: &Period, elapsed_s: f64) {
        self.good_s += elapsed_s;
        let Some(footprint) = seen.footprint else {
            return;
        };
        self.good.insert(0, footprint);
        self.good.truncate(LATE);
        if let Some(load) = seen.load {
            self.loads.insert(0, load);
            self.loads.truncate(LOADS);
        }
        if self.good_s >= PROVEN_S {
            let before = self.samples.len();
            let load = self.load();
            let holds = |s: &Sample| s.footprint.scale(PROVEN) <= footprint || !alike(s.load, load);
            self.samples.retain(holds);
            if self.samples.len() < before {
                self.patience_s = None;
                self.shrunk_s = 0.0;
            }
        }
        if !seen.in_the_way {
            self.stood_s = 0.0;
            return;
        }
        self.stood_s += elapsed_s;
        if self.stood_s > self.patience_s.unwrap_or(PATIENCE_S) {
            self.shrunk_s += elapsed_s;
        }
    }

    fn turn_red(&mut self, load: Option<f64>) {
        let recent = |since: Option<f64>| since.is_some_and(|s| s <= RECENT_S);
        let rose = load
            .zip(self.load())
            .is_some_and(|(now, before)| now > before * ALIKE);
        if let Some(footprint) = self.good.iter().max().copied() {
            if recent(self.taken_s) && recent(self.refaulted_s) && !rose {
                self.learn(footprint);
            }
        }
        self.forget_run();
    }

    fn learn(&mut self, footprint: Bytes) {
        let confirmed = self.estimate().is_some_and(|estimate| {
            (footprint - estimate).max(estimate - footprint) <= estimate.scale(NEAR)
        });
        self.patience_s = confirmed.then(|| {
            let patience = self.patience_s.unwrap_or(PATIENCE_S) * 2.0;
            patience.min(MOST_PATIENCE_S)
        });
        let load = self.load();
        self.samples.insert(0, Sample { footprint, load });
        self.samples.truncate(SAMPLES);
        self.shrunk_s = 0.0;
    }

    fn forget_run(&mut self) {
        self.good.clear();
        self.loads.clear();
        self.good_s = 0.0;
        self.stood_s = 0.0;
    }
}

/// True if two loads need about the same memory; an unknown load is like any other.
fn alike(one: Option<f64>, other: Option<f64>) -> bool {
    one.zip(other)
        .is_none_or(|(one, other)| one <= other * ALIKE && other <= one * ALIKE)
}

/// The middle one; with an even count, the larger of the middle two.
fn median(mut sorted: Vec<Bytes>) -> Option<Bytes> {
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied()
}

#[cfg(test)]
mod tests;
