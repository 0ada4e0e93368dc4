//! A curve of hit ratios from the reuse times of sampled pages. Pure.
//!
//! After Hu et al., Kinetic Modeling of Data Eviction in Cache (USENIX ATC 2016), on pages sampled in space
//! (Waldspurger et al., SHARDS, FAST 2015). An access occupies a page of the cache until that page is asked
//! for again or evicted. Let P(t) be the fraction of accesses whose page is not asked for again within t
//! accesses. A cache in which pages live for T accesses then holds the sum of P over t < T, and misses P(T).
//! Stack distances would give the same, but need an ordered tree that every sampled access updates in user
//! space. Reuse times need only a histogram, which the BPF programs keep.
//!
//! P is a life table of the last minutes (Kaplan-Meier): of the pages that reach an age, it holds the
//! fraction asked for at that age. Censored pages (those first seen late, those that lost their place, and
//! those still alive) count for the ages at which they were observed. A short window is therefore unbiased,
//! but its curve ends at the window's length. The table follows a load that changes at the pace of its reuse
//! times.
//!
//! Writes fill the cache as reads do; the hit ratio is that of reads.
//!
//! A sample over- or underrepresents the few hot blocks of a load. The number of pages that the group asked
//! for is known exactly, so the sample's misses are related to that number, not to the sample's accesses (as
//! in `SHARDS_adj`).
//!
//! Units: ages in ticks, the sampled accesses of the group (the fraction `rate` of all); sizes in sampled
//! pages.

use justitia_policy::units::Bytes;
use justitia_policy::worth::{Curve, Point};

/// Number of bins, an eighth of an octave each: the programs' `REUSE_BINS`.
pub(crate) const BINS: usize = 192;
/// Half-life of observations, seconds.
const HALF_LIFE_S: f64 = 30.0;
/// Least number of sampled accesses, and of sampled reads, for a curve.
const LEAST: f64 = 200.0;
/// Least number of pages at an age; the curve ends where there are fewer.
const LEAST_AT_AGE: f64 = 16.0;
/// Fraction of misses below which the curve counts as flat.
const CLOSED: f64 = 0.02;
/// Points of a curve at most.
const POINTS: usize = 24;

/// Counts of pages, by age.
pub(crate) type Ages = [u32; BINS];

/// The counts of a group at one moment. All but `alive` are cumulative and may wrap.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Look {
    /// Sampled accesses.
    pub(crate) ticks: u64,
    /// Sampled accesses that were reads.
    pub(crate) reads: u64,
    /// Pages of all accesses except writes, sampled or not.
    pub(crate) asked: u64,
    /// Pages asked for again by a read.
    pub(crate) by_reads: Ages,
    /// Pages asked for again by a write.
    pub(crate) by_writes: Ages,
    /// Pages that lost their place.
    pub(crate) lost: Ages,
    /// Pages in the table now.
    pub(crate) alive: Ages,
}

/// The life table of a group.
#[derive(Debug, Clone)]
pub(crate) struct Reuse {
    /// The last counts; `None` while nothing is observed.
    before: Option<Look>,
    /// From here on: decayed sums.
    ticks: f64,
    reads: f64,
    /// The value of `reads` in an exactly representative sample.
    expected_reads: f64,
    asked: f64,
    seconds: f64,
    by_reads: [f64; BINS],
    by_writes: [f64; BINS],
    /// Pages that reached the age; one entry more than there are bins.
    reached: [f64; BINS + 1],
}

/// The bin of an age, as in `bpf/reuse.h`.
pub(crate) fn bin_of(age: u32) -> usize {
    if age == 0 {
        return 0;
    }
    let octave = age.ilog2() as usize;
    (octave * 8 + ((u64::from(age) << 3 >> octave) & 7) as usize).min(BINS - 1)
}

/// The least age in a bin. Several bins share a small age; all but the last of them are empty.
fn start_of(bin: usize) -> f64 {
    let eighths = (8 + bin as u64 % 8) << (bin / 8);
    eighths.div_ceil(8) as f64
}

impl Default for Reuse {
    fn default() -> Reuse {
        Reuse {
            before: None,
            ticks: 0.0,
            reads: 0.0,
            expected_reads: 0.0,
            asked: 0.0,
            seconds: 0.0,
            by_reads: [0.0; BINS],
            by_writes: [0.0; BINS],
            reached: [0.0; BINS + 1],
        }
    }
}

impl Reuse {
    /// Observation begins. Pages asked for before do not count.
    pub(crate) fn begin(&mut self, mut look: Look) {
        look.alive = [0; BINS];
        self.before = Some(look);
    }

    /// Adds what was counted in the `seconds` since the last call. `rate`: the sampling rate.
    pub(crate) fn go_on(&mut self, look: Look, seconds: f64, rate: f64) {
        let Some(before) = self.before.take() else {
            return self.begin(look);
        };
        let ticks = look.ticks.wrapping_sub(before.ticks);
        let asked = look.asked.wrapping_sub(before.asked) as f64;
        // An idle group keeps its life table; only its rate decays.
        self.decay(seconds, ticks > 0);
        self.ticks += ticks as f64;
        self.reads += look.reads.wrapping_sub(before.reads) as f64;
        self.expected_reads += asked * rate;
        self.asked += asked;
        self.seconds += seconds;
        // Pages that reached an age: those that left at it or later, and the growth of those alive at it or
        // later.
        let mut reached = 0.0;
        for bin in (0..BINS).rev() {
            let grown = |now: &Ages, before: &Ages| f64::from(now[bin].wrapping_sub(before[bin]));
            let by_reads = grown(&look.by_reads, &before.by_reads);
            let by_writes = grown(&look.by_writes, &before.by_writes);
            reached += by_reads + by_writes + grown(&look.lost, &before.lost);
            reached += f64::from(look.alive[bin]) - f64::from(before.alive[bin]);
            self.by_reads[bin] += by_reads;
            self.by_writes[bin] += by_writes;
            self.reached[bin] += reached;
        }
        self.before = Some(look);
    }

    /// Observation ends: accesses from now on are not observed.
    pub(crate) fn rest(&mut self) {
        self.before = None;
    }

    /// Decays the sums. With `changes`, the life table decays too, because the group was active.
    pub(crate) fn decay(&mut self, seconds: f64, changes: bool) {
        let left = 0.5f64.powf(seconds / HALF_LIFE_S);
        self.asked *= left;
        self.seconds *= left;
        if !changes {
            return;
        }
        self.ticks *= left;
        self.reads *= left;
        self.expected_reads *= left;
        let histograms: [&mut [f64]; 3] =
            [&mut self.by_reads, &mut self.by_writes, &mut self.reached];
        histograms
            .into_iter()
            .flatten()
            .for_each(|count| *count *= left);
    }

    /// The curve up to `most` page cache, and the age in ticks that pages reach in a cache of that size. The
    /// curve is `None` while too little was observed. The age is `None` where the observations do not reach
    /// that size.
    pub(crate) fn curve(
        &self,
        page_bytes: u64,
        rate: f64,
        most: Bytes,
    ) -> (Option<Curve>, Option<u32>) {
        if self.ticks < LEAST || self.reads < LEAST {
            return (None, None);
        }
        let most_pages = most.0 as f64 / page_bytes as f64 * rate;
        // Scales misses of the sample to misses of all reads.
        let weight = self.reads / self.expected_reads;
        let hit_ratio = |hits: f64| {
            let missed = 1.0 - hits * self.ticks / self.reads;
            (1.0 - missed.clamp(0.0, 1.0) * weight).clamp(0.0, 1.0)
        };
        let mut points = vec![(1.0, hit_ratio(0.0))];
        // `left`: fraction of accesses not asked for again before the bin.
        // `hits`: fraction asked for again before it, by a read.
        let (mut left, mut hits, mut size) = (1.0, 0.0, 1.0);
        let mut at_most = None;
        for bin in 0..BINS - 1 {
            let width = start_of(bin + 1) - start_of(bin);
            if width == 0.0 {
                continue;
            }
            let again = self.by_reads[bin] + self.by_writes[bin];
            // Pages at risk: those observed through the bin, and half of those censored in it (actuarial).
            let seen = (self.reached[bin] + self.reached[bin + 1] + again) / 2.0;
            if left * weight < CLOSED {
                points.push((most_pages.max(size), hit_ratio(hits)));
                break;
            }
            if seen < LEAST_AT_AGE {
                break;
            }
            let after = left * (1.0 - again / seen).clamp(0.0, 1.0);
            hits += left * (self.by_reads[bin] / seen).min(1.0);
            size += width * (after + (left - after) * (width - 1.0) / (2.0 * width));
            left = after;
            points.push((size, hit_ratio(hits)));
            if size >= most_pages {
                at_most = Some(start_of(bin + 1) as u32);
                break;
            }
        }
        thin_out(&mut points);
        let bytes = |pages: f64| Bytes((pages / rate * page_bytes as f64) as u64).min(most);
        let points = points.into_iter().map(|(pages, hit_ratio)| Point {
            cache: bytes(pages),
            hit_ratio,
        });
        let asked_per_s = self.asked * page_bytes as f64 / self.seconds;
        (Curve::new(points.collect(), asked_per_s), at_most)
    }
}

/// Removes points one at a time, each time the one that changes the shape least over the logarithm of sizes.
fn thin_out(points: &mut Vec<(f64, f64)>) {
    while points.len() > POINTS {
        let told = |three: &[(f64, f64)]| {
            let [a, b, c] = [0, 1, 2].map(|i| (three[i].0.ln(), three[i].1));
            ((b.0 - a.0) * (c.1 - a.1) - (c.0 - a.0) * (b.1 - a.1)).abs()
        };
        let least = points
            .windows(3)
            .map(told)
            .enumerate()
            .min_by(|a, b| a.1.total_cmp(&b.1));
        let Some((before, _)) = least else { return };
        points.remove(before + 1);
    }
}

#[cfg(test)]
mod tests;
