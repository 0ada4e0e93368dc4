//! Selects groups that get a curve, sets the sampling rate of each, and reads the histograms periodically.
//!
//! The maps have room for up to 255 groups; beyond that, a group that reads replaces one that is idle. The
//! sampling rate adapts by powers of two: it drops where a group's accesses are fast, to bound the cost, and
//! where its pages are many, to bound memory.
//!
//! A group that misses nearly all that it asks for, such as a scan, is sampled at the pages that its reads
//! fetch. Fetched pages are always observed, so such a group is known even while reads are observed in
//! windows only. Meanwhile a new group is sampled so, too; it has no curve until a window shows whether its reads hit.
//!
//! Invariant: an age never spans a change of what is sampled, or a time in which that was not observed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use justitia_policy::units::Bytes;
use justitia_policy::worth::Curve;

use super::memory::{CounterMemory, ReuseMemory};
use crate::reuse::{bin_of, Look, Reuse, BINS};

/// Time between two readings of the histograms.
const EVERY: Duration = Duration::from_secs(5);
/// The same during the first YOUNG readings of a group that reads: until its curve is known, it has its share of memory
/// whether it gains from that or not.
const SOON: Duration = Duration::from_secs(2);
const YOUNG: u32 = 6;
/// The sampling rate is one block in 2^FIRST at first, in 2^DENSEST at most and in 2^SPARSEST at least.
const FIRST: u32 = 2;
const DENSEST: u32 = 1;
const SPARSEST: u32 = 16;
/// Sampled accesses per second, of a group and of all groups, above which the rate drops. One costs 0.1 us.
const MOST_PER_S: f64 = 4000.0;
const MOST_OF_ALL_PER_S: f64 = 16_000.0;
/// Factor on the bounds above where reads are observed in windows, which cover less than 1/`IN_WINDOWS` of
/// the time.
const IN_WINDOWS: f64 = 8.0;
/// The rate rises after PATIENCE readings without a change, by a factor of four or more. It then stays so low
/// that the group is below half of its bound, and that its pages fill at most its share of one in ROOMY
/// places.
const PATIENCE: u32 = 3;
const ROOMY: u32 = 8;
/// A change of the rate empties the histograms. The old curve stays until the new one covers as much, or for
/// this many readings.
const STANDS: u32 = 6;
/// Between windows, observations decay at this fraction of the normal speed.
const UNSEEN: f64 = 0.5;
/// A group is sampled at what it fetches if its hit ratio is below the first value, until it is above the
/// second.
const HITS_NOTHING: (f64, f64) = (0.02, 0.05);
/// Fewer pages asked for than this tell no hit ratio.
const LEAST_ASKED: u64 = 64;
/// In `counters.sample`: the group is sampled at what it fetches (`bpf/reuse.h`).
const SAMPLE_MISSES: u64 = 0x100;
/// A group without a read in this many readings gives its number to another.
const IDLE: u32 = 60;

/// The groups with a curve, and those without.
#[derive(Debug)]
pub(super) struct Curves {
    memory: ReuseMemory,
    counters: Arc<CounterMemory>,
    page_bytes: u64,
    /// The host's memory, the largest size of a curve.
    most: Bytes,
    /// Watched slots without a curve, and the pages they had asked for at the last reading.
    waiting: BTreeMap<u32, u64>,
    groups: BTreeMap<u32, Sampled>,
    /// Free numbers; 0 is never given.
    free: Vec<u32>,
    looked_at: Option<Instant>,
}

/// Observation of reads after a reading of the histograms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// Reads are observed all the time.
    GoOn,
    /// Reads were not observed, only what is fetched.
    Fetched,
    /// Reads are observed until the end of a long window.
    Stretch,
    /// Reads are not observed.
    Rest,
}

/// A slot with a curve.
#[derive(Debug)]
struct Sampled {
    /// Its number in the programs' maps.
    number: u32,
    octave: u32,
    /// True if it is sampled at the pages that its reads fetch.
    by_misses: bool,
    /// Its reads were observed, so it is known whether they hit.
    judged: bool,
    /// Pages that its reads asked for, and how many of them missed, when reads were last observed.
    asked: (u64, u64),
    reuse: Reuse,
    curve: Option<Curve>,
    /// Age in ticks beyond which pages are dropped.
    oldest: u32,
    /// The tick at which observation began.
    since: u32,
    /// The tick of the last reading.
    clock: u64,
    /// Time of the last reading.
    looked_at: Instant,
    /// Number of its pages in `asked_at`.
    alive: u32,
    /// Readings since its rate changed.
    steady: u32,
    /// Readings since its last read.
    idle: u32,
    /// Readings in which it had read.
    active: u32,
}

impl Sampled {
    /// A group that is sampled at its reads from now on. `asked`: as in the field.
    fn new(number: u32, asked: (u64, u64)) -> Sampled {
        Sampled {
            number,
            octave: FIRST,
            by_misses: false,
            judged: false,
            asked,
            reuse: Reuse::default(),
            curve: None,
            oldest: u32::MAX,
            since: 0,
            clock: 0,
            looked_at: Instant::now(),
            alive: 0,
            steady: 0,
            idle: 0,
            active: 0,
        }
    }

    fn is_young(&self) -> bool {
        self.active < YOUNG && self.idle == 0
    }

    fn rate(&self) -> f64 {
        0.5f64.powi(self.octave.cast_signed())
    }
}

impl Curves {
    pub(super) fn new(
        memory: ReuseMemory,
        counters: Arc<CounterMemory>,
        page_bytes: u64,
        most: Bytes,
    ) -> Curves {
        Curves {
            free: (1..memory.groups).rev().collect(),
            memory,
            counters,
            page_bytes,
            most,
            waiting: BTreeMap::new(),
            groups: BTreeMap::new(),
            looked_at: None,
        }
    }

    /// Sets the slots in use. A slot whose owner changed must have been left out in between. `goes_on`: reads are
    /// observed from now on.
    pub(super) fn watch(&mut self, slots: impl Iterator<Item = u32>, goes_on: bool) {
        let mut before = std::mem::take(&mut self.waiting);
        let mut groups = std::mem::take(&mut self.groups);
        for slot in slots {
            if let Some(sampled) = groups.remove(&slot) {
                self.groups.insert(slot, sampled);
            } else {
                let asked = before.remove(&slot).or_else(|| self.asked(slot));
                self.waiting.insert(slot, asked.unwrap_or_default());
            }
        }
        for (slot, sampled) in groups {
            self.retire(slot, &sampled);
        }
        self.admit(goes_on);
    }

    /// The last curve of a slot.
    pub(super) fn curve(&self, slot: u32) -> Option<&Curve> {
        self.groups.get(&slot)?.curve.as_ref()
    }

    /// The next reading, if it is due. `windows`: reads are observed in windows only.
    pub(super) fn due(&self, windows: bool) -> Option<Then> {
        let observed = |sampled: &&Sampled| !windows || sampled.by_misses;
        let mut observed = self.groups.values().filter(observed).peekable();
        let then = if windows {
            observed.peek()?;
            Then::Fetched
        } else {
            Then::GoOn
        };
        let young = observed.any(Sampled::is_young);
        let every = if young { SOON } else { EVERY };
        let due = self.looked_at.is_none_or(|at| at.elapsed() >= every);
        due.then_some(then)
    }

    /// Begins to observe reads.
    pub(super) fn begin(&mut self) {
        for (&slot, sampled) in &mut self.groups {
            sampled.asked = asked_by(&self.counters, slot);
            if sampled.by_misses {
                continue;
            }
            let unseen = sampled.looked_at.elapsed().as_secs_f64();
            sampled.reuse.decay(unseen * UNSEEN, sampled.idle == 0);
            begin(&self.memory, &self.counters, slot, sampled);
        }
    }

    /// Reads the histograms, computes the curves and adapts the rates.
    pub(super) fn look(&mut self, then: Then) {
        let now = Instant::now();
        self.looked_at = Some(now);
        let mut looks = self.sweep();
        let mut ticks_per_s = BTreeMap::new();
        let (page_bytes, most) = (self.page_bytes, self.most);
        for (&slot, sampled) in &mut self.groups {
            if then == Then::Fetched && !sampled.by_misses {
                continue;
            }
            let Some(look) = looks.remove(&sampled.number) else {
                continue;
            };
            let seconds = (now - sampled.looked_at).as_secs_f64();
            sampled.looked_at = now;
            let ticks = look.ticks.wrapping_sub(sampled.clock);
            let rate = sampled.rate();
            sampled.clock = look.ticks;
            sampled.alive = look.alive.iter().sum();
            sampled.steady += 1;
            sampled.idle = if ticks == 0 { sampled.idle + 1 } else { 0 };
            sampled.active += u32::from(ticks > 0);
            sampled.reuse.go_on(look, seconds, rate);
            let before = std::mem::replace(&mut sampled.asked, asked_by(&self.counters, slot));
            sampled.judged |= then != Then::Fetched;
            if then != Then::Fetched && by_misses(sampled, before) != sampled.by_misses {
                sampled.by_misses = !sampled.by_misses;
                if !sampled.by_misses && sampled.curve.is_none() {
                    // Its first reads missed because it was new.
                    sampled.reuse = Reuse::default();
                }
                self.counters.set_sample(slot, sample_of(sampled));
                begin(&self.memory, &self.counters, slot, sampled);
            }
            if then == Then::Rest && !sampled.by_misses {
                sampled.reuse.rest();
            }
            let (curve, oldest) = sampled.reuse.curve(page_bytes, rate, most);
            let known = |curve: &Option<Curve>| curve.as_ref().map(Curve::known);
            let stands = sampled.steady < STANDS && known(&curve) < known(&sampled.curve);
            if sampled.judged && !stands {
                sampled.curve = curve;
            }
            sampled.oldest = oldest.unwrap_or(u32::MAX);
            // A window is too short to measure the speed of reads.
            if then != Then::Rest || sampled.by_misses {
                ticks_per_s.insert(slot, ticks as f64 / seconds.max(1e-3));
            }
        }
        let times = if then == Then::Stretch {
            IN_WINDOWS
        } else {
            1.0
        };
        self.adapt(&ticks_per_s, times);
        self.admit(matches!(then, Then::GoOn | Then::Stretch));
    }

    fn asked(&self, slot: u32) -> Option<u64> {
        Some(self.counters.read(slot)?.asked_pages)
    }

    fn retire(&mut self, slot: u32, sampled: &Sampled) {
        self.counters.set_sample(slot, 0);
        self.free.push(sampled.number);
    }

    /// The counts of each group, by its number. Frees the places of pages that are too old to count.
    fn sweep(&self) -> BTreeMap<u32, Look> {
        let mut looks: Vec<Option<(&Sampled, Look)>> = Vec::new();
        looks.resize_with(self.memory.groups as usize, || None);
        for (slot, sampled) in &self.groups {
            let look = look_at(&self.memory, &self.counters, *slot, sampled);
            looks[sampled.number as usize] = Some((sampled, look));
        }
        self.memory.sweep(|asked| {
            let Some(Some((sampled, look))) = looks.get_mut(asked.group as usize) else {
                return false;
            };
            if asked.at.wrapping_sub(sampled.since).cast_signed() <= 0 {
                return false;
            }
            // The access may be newer than the reading of the clock.
            let age = (look.ticks as u32).wrapping_sub(asked.at);
            let age = if age.cast_signed() >= 0 { age } else { 0 };
            let bin = bin_of(age);
            let young = age <= sampled.oldest;
            let ages = if young {
                &mut look.alive
            } else {
                &mut look.lost
            };
            ages[bin] = ages[bin].wrapping_add(1);
            young
        });
        let looks = looks.into_iter().flatten();
        looks
            .map(|(sampled, look)| (sampled.number, look))
            .collect()
    }

    /// Lowers rates that cost too much, and raises those that could be higher. `times`: factor on the bounds
    /// per second.
    fn adapt(&mut self, ticks_per_s: &BTreeMap<u32, f64>, times: f64) {
        let places = self.memory.places;
        let alive: u32 = self.groups.values().map(|sampled| sampled.alive).sum();
        let all: f64 = ticks_per_s.values().sum();
        let fastest = ticks_per_s.iter().max_by(|a, b| a.1.total_cmp(b.1));
        let fastest = fastest.filter(|_| all > MOST_OF_ALL_PER_S * times);
        let largest = self.groups.iter().max_by_key(|(_, sampled)| sampled.alive);
        let largest = largest.filter(|_| alive > places / 2);
        let blamed = [
            fastest.map(|(slot, _)| *slot),
            largest.map(|(slot, _)| *slot),
        ];
        let room = places / ROOMY / (self.groups.len() as u32).max(1);
        for (&slot, sampled) in &mut self.groups {
            let Some(per_s) = ticks_per_s.get(&slot) else {
                continue;
            };
            let least = u32::from(blamed.contains(&Some(slot)));
            let octave = adapted(sampled, *per_s / (MOST_PER_S * times), least, room);
            if octave == sampled.octave {
                continue;
            }
            sampled.octave = octave;
            sampled.reuse = Reuse::default();
            sampled.oldest = u32::MAX;
            sampled.steady = 0;
            self.counters.set_sample(slot, sample_of(sampled));
            begin(&self.memory, &self.counters, slot, sampled);
        }
    }

    /// Gives numbers to waiting groups: to all while most numbers are free, then only to those that read
    /// since the last reading. These may replace an idle group. `goes_on`: their reads are observed from now
    /// on; else what they fetch is, until a window shows their hits.
    fn admit(&mut self, goes_on: bool) {
        let waiting = std::mem::take(&mut self.waiting);
        for (slot, before) in waiting {
            let asked = self.asked(slot).unwrap_or(before);
            let plenty = self.free.len() > self.groups.len();
            let number = (plenty || asked != before).then(|| self.number());
            let number = number.flatten();
            let Some(number) = number else {
                self.waiting.insert(slot, asked);
                continue;
            };
            let mut sampled = Sampled::new(number, asked_by(&self.counters, slot));
            sampled.by_misses = !goes_on;
            begin(&self.memory, &self.counters, slot, &mut sampled);
            self.counters.set_sample(slot, sample_of(&sampled));
            self.groups.insert(slot, sampled);
        }
    }

    fn number(&mut self) -> Option<u32> {
        if self.free.is_empty() {
            let idle = self.groups.iter().max_by_key(|(_, sampled)| sampled.idle);
            let slot = *idle.filter(|(_, sampled)| sampled.idle >= IDLE)?.0;
            let sampled = self.groups.remove(&slot)?;
            self.retire(slot, &sampled);
            let asked = self.asked(slot).unwrap_or_default();
            self.waiting.insert(slot, asked);
        }
        self.free.pop()
    }
}

/// The new octave of a sample. `part`: its accesses over their bound; `least`: octaves by which the rate must
/// drop at least; `room`: places for its pages.
fn adapted(now: &Sampled, part: f64, least: u32, room: u32) -> u32 {
    let sparser = (part.log2().ceil().max(0.0) as u32).max(least);
    if sparser > 0 {
        return (now.octave + sparser).min(SPARSEST);
    }
    if now.steady < PATIENCE || now.alive == 0 {
        return now.octave;
    }
    let by_speed = (0.5 / part).log2().floor().max(0.0) as u32;
    let denser = by_speed.min((room / now.alive).checked_ilog2().unwrap_or(0));
    let denser = denser.min(now.octave.saturating_sub(DENSEST));
    now.octave - if denser >= 2 { denser } else { 0 }
}

/// The value of `counters.sample`.
fn sample_of(sampled: &Sampled) -> u64 {
    let misses = if sampled.by_misses { SAMPLE_MISSES } else { 0 };
    1 << (64 - sampled.octave) | misses | u64::from(sampled.number)
}

/// Pages that the reads of a slot asked for, and how many of them missed.
fn asked_by(counters: &CounterMemory, slot: u32) -> (u64, u64) {
    counters.read(slot).map_or((0, 0), |counted| {
        let missed = counted.missed_pages.wrapping_add(counted.readahead_pages);
        (counted.asked_pages, missed)
    })
}

/// True if a group is to be sampled at the pages that its reads fetch. `before`: `asked` when observation of
/// reads began.
fn by_misses(sampled: &Sampled, before: (u64, u64)) -> bool {
    let asked = sampled.asked.0.wrapping_sub(before.0);
    let missed = sampled.asked.1.wrapping_sub(before.1);
    if asked < LEAST_ASKED {
        return sampled.by_misses;
    }
    let hits = 1.0 - missed as f64 / asked as f64;
    let (few, some) = HITS_NOTHING;
    hits < if sampled.by_misses { some } else { few }
}

fn look_at(memory: &ReuseMemory, counters: &CounterMemory, slot: u32, of: &Sampled) -> Look {
    let counted = memory.read(of.number);
    let asked = |counted: super::types::counters| {
        if of.by_misses {
            counted.fetched_pages
        } else {
            counted.asked_pages
        }
    };
    Look {
        ticks: counted.clock,
        reads: counted.reads,
        asked: counters.read(slot).map_or(0, asked),
        by_reads: counted.by_reads,
        by_writes: counted.by_writes,
        lost: counted.lost,
        alive: [0; BINS],
    }
}

/// Observation of a group begins.
fn begin(memory: &ReuseMemory, counters: &CounterMemory, slot: u32, sampled: &mut Sampled) {
    let look = look_at(memory, counters, slot, sampled);
    sampled.since = look.ticks as u32;
    sampled.clock = look.ticks;
    sampled.looked_at = Instant::now();
    memory.set_since(sampled.number, sampled.since);
    sampled.reuse.begin(look);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_group_is_sampled_at_what_it_fetches_while_it_hits_next_to_nothing() {
        let then = |now, asked: u64, missed: u64| {
            let mut sampled = Sampled::new(1, (1000 + asked, 500 + missed));
            sampled.by_misses = now;
            by_misses(&sampled, (1000, 500))
        };
        assert!(then(false, 1000, 990) && !then(false, 1000, 970));
        assert!(
            then(true, 1000, 970) && !then(true, 1000, 900),
            "not to and fro"
        );
        assert!(
            !then(false, 10, 10) && then(true, 10, 0),
            "too few say nothing"
        );
    }

    proptest! {
        #[test]
        fn a_sample_is_within_its_means_and_rests_after_one_change(
            octave in DENSEST..=SPARSEST,
            part in 0.0f64..100.0,
            alive in 0u32..10_000,
            room in 1u32..20_000,
        ) {
            let sampled = |octave, alive| Sampled {
                octave,
                alive,
                steady: PATIENCE,
                ..Sampled::new(1, (0, 0))
            };
            let then = adapted(&sampled(octave, alive), part, 0, room);
            prop_assert!((DENSEST..=SPARSEST).contains(&then));
            let factor = 2f64.powi(octave.cast_signed() - then.cast_signed());
            prop_assert!(part * factor <= 1.0 || then == SPARSEST);
            prop_assert!(factor <= 1.0 || f64::from(alive) * factor <= f64::from(room));
            let after = sampled(then, (f64::from(alive) * factor) as u32);
            let later = adapted(&after, part * factor, 0, room);
            prop_assert!(later == then || factor < 1.0, "{} {} {}", octave, then, later);
            prop_assert!(later <= then, "{} {} {}", octave, then, later);
        }
    }
}
