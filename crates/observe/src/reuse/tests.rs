//! Curves against an exact simulation of LRU, on streams that are known as a whole.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

const PAGE: u64 = 4096;

/// Deterministic random numbers (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A stream of pages that are read.
#[derive(Debug, Clone)]
enum Load {
    Uniform(u64),
    /// Pages, exponent; which page has which rank is random.
    Zipf(u64, f64),
    Loop(u64),
    Scan,
    /// The first load with this probability, or else the second.
    Mix(f64, Box<Load>, Box<Load>),
}

/// A load's pages, and how far it got.
struct Stream {
    load: Load,
    at: u64,
    base: u64,
    /// Cumulative probabilities of ranks.
    ranks: Vec<f64>,
    parts: Option<Box<(Stream, Stream)>>,
}

impl Stream {
    fn of(load: &Load, base: u64) -> Stream {
        let ranks = match load {
            Load::Zipf(pages, exponent) => {
                let mut sum = 0.0;
                let weights = (1..=*pages).map(|rank| {
                    sum += (rank as f64).powf(-exponent);
                    sum
                });
                weights.collect()
            }
            _ => Vec::new(),
        };
        let parts = match load {
            Load::Mix(_, one, other) => {
                let far = base + (1 << 30);
                Some(Box::new((Stream::of(one, base), Stream::of(other, far))))
            }
            _ => None,
        };
        Stream {
            load: load.clone(),
            at: 0,
            base,
            ranks,
            parts,
        }
    }

    fn next(&mut self, random: &mut Random) -> u64 {
        self.at += 1;
        self.base
            + match &self.load {
                Load::Uniform(pages) => random.below(*pages),
                Load::Zipf(pages, _) => {
                    let drawn = random.unit() * self.ranks[self.ranks.len() - 1];
                    let rank = self.ranks.partition_point(|sum| *sum < drawn) as u64;
                    // Coprime with every number of pages used here: a permutation.
                    rank.wrapping_mul(1_000_003) % pages
                }
                Load::Loop(pages) => self.at % pages,
                Load::Scan => self.at,
                Load::Mix(first, ..) => {
                    let parts = self.parts.as_mut().expect("a mixture has parts");
                    let one = random.unit() < *first;
                    let part = if one { &mut parts.0 } else { &mut parts.1 };
                    return part.next(random);
                }
            }
    }
}

/// A model of the BPF programs for one group, where each sampled access is a tick.
struct Sampler {
    rate: f64,
    /// Direct-mapped: page and tick.
    places: Vec<Option<(u64, u32)>>,
    look: Look,
    since: u32,
    reuse: Reuse,
}

impl Sampler {
    fn new(octave: i32, places: usize) -> Sampler {
        let nothing = Look {
            ticks: 0,
            reads: 0,
            asked: 0,
            by_reads: [0; BINS],
            by_writes: [0; BINS],
            lost: [0; BINS],
            alive: [0; BINS],
        };
        let mut reuse = Reuse::default();
        reuse.begin(nothing.clone());
        Sampler {
            rate: 0.5f64.powi(octave),
            places: vec![None; places],
            look: nothing,
            since: 0,
            reuse,
        }
    }

    fn access(&mut self, page: u64, read: bool) {
        self.look.asked += u64::from(read);
        let lot = ((page >> 4) as u32).wrapping_mul(0x9e37_79b9) ^ 0x1234_5678;
        if f64::from(lot) >= self.rate * 2f64.powi(32) {
            return;
        }
        self.look.ticks += 1;
        self.look.reads += u64::from(read);
        let now = self.look.ticks as u32;
        let place = Random(page).next() as usize % self.places.len();
        let old = self.places[place].replace((page, now));
        let Some((other, tick)) = old.filter(|(_, tick)| *tick > self.since) else {
            return;
        };
        let counts = match (other == page, read) {
            (true, true) => &mut self.look.by_reads,
            (true, false) => &mut self.look.by_writes,
            _ => &mut self.look.lost,
        };
        counts[bin_of(now - tick)] += 1;
    }

    fn now(&self) -> Look {
        let mut look = self.look.clone();
        for &(_, tick) in self.places.iter().flatten().filter(|p| p.1 > self.since) {
            look.alive[bin_of(look.ticks as u32 - tick)] += 1;
        }
        look
    }

    fn step(&mut self) {
        let look = self.now();
        self.reuse.go_on(look, 5.0, self.rate);
    }

    /// Ends a window: accesses until the next window are not seen.
    fn close(&mut self) {
        self.step();
        self.reuse.rest();
    }

    fn open(&mut self) {
        self.since = self.look.ticks as u32;
        let look = self.now();
        self.reuse.begin(look);
    }

    fn curve(&self) -> Option<Curve> {
        let most = Bytes(1 << 30);
        self.reuse.curve(PAGE, self.rate, most).0
    }
}

/// Number of reads by reuse distance, exact. One pass covers all sizes, because LRU holds what a smaller one
/// holds.
struct Exact {
    /// A Fenwick tree of the last access to each page, over all accesses.
    tree: Vec<i32>,
    last: HashMap<u64, usize>,
    now: usize,
    /// Reads by distance in pages; the first access to a page has none.
    distances: HashMap<u64, u64>,
    reads: u64,
}

impl Exact {
    fn new(accesses: usize) -> Exact {
        Exact {
            tree: vec![0; accesses + 2],
            last: HashMap::new(),
            now: 0,
            distances: HashMap::new(),
            reads: 0,
        }
    }

    fn add(&mut self, mut at: usize, by: i32) {
        while at < self.tree.len() {
            self.tree[at] += by;
            at += at & at.wrapping_neg();
        }
    }

    fn until(&self, mut at: usize) -> i32 {
        let mut sum = 0;
        while at > 0 {
            sum += self.tree[at];
            at -= at & at.wrapping_neg();
        }
        sum
    }

    fn access(&mut self, page: u64, counts: bool) {
        self.now += 1;
        self.reads += u64::from(counts);
        if let Some(last) = self.last.insert(page, self.now) {
            let distance = (self.until(self.now - 1) - self.until(last - 1)) as u64;
            self.add(last, -1);
            if counts {
                *self.distances.entry(distance).or_default() += 1;
            }
        }
        self.add(self.now, 1);
    }

    fn hit_ratio(&self, pages: u64) -> f64 {
        let hits: u64 = self
            .distances
            .iter()
            .filter(|d| *d.0 <= pages)
            .map(|d| d.1)
            .sum();
        hits as f64 / self.reads as f64
    }
}

/// Mean error of a curve, at 64 sizes up to what is known.
fn off(curve: &Curve, exact: &Exact, upto_pages: u64) -> f64 {
    const SIZES: u64 = 64;
    let upto = (curve.known().0 / PAGE).min(upto_pages);
    let of_size = |nth: u64| {
        let pages = (upto * nth / SIZES).max(1);
        let told = curve
            .hit_ratio(Bytes(pages * PAGE))
            .expect("within what is known");
        (told - exact.hit_ratio(pages)).abs()
    };
    (1..=SIZES).map(of_size).sum::<f64>() / SIZES as f64
}

/// Runs a load for `accesses`, with a look after each `every`. The first half warms up the truth.
fn run(
    load: &Load,
    accesses: usize,
    every: usize,
    octave: i32,
    seed: u64,
) -> (Option<Curve>, Exact) {
    let mut random = Random(seed);
    let mut stream = Stream::of(load, seed % 1000);
    let mut sampler = Sampler::new(octave, 1 << 14);
    let mut exact = Exact::new(accesses);
    for nth in 0..accesses {
        let page = stream.next(&mut random);
        exact.access(page, nth > accesses / 2);
        sampler.access(page, true);
        if nth % every == every - 1 {
            sampler.step();
        }
    }
    (sampler.curve(), exact)
}

#[test]
fn the_first_age_of_a_bin_is_in_it_and_the_one_before_is_not() {
    for bin in 0..BINS - 1 {
        let start = start_of(bin) as u32;
        if start_of(bin + 1) as u32 == start {
            continue;
        }
        assert_eq!(bin_of(start), bin, "{start}");
        assert!(start == 1 || bin_of(start - 1) < bin, "{start}");
    }
    assert_eq!((bin_of(0), bin_of(1), bin_of(u32::MAX)), (0, 0, BINS - 1));
}

#[test]
fn curves_are_those_of_an_exact_lru() {
    let loads = [
        Load::Uniform(20_000),
        Load::Zipf(40_000, 0.8),
        Load::Zipf(40_000, 1.0),
        Load::Zipf(40_000, 1.2),
        Load::Loop(20_000),
        Load::Scan,
        Load::Mix(0.7, Box::new(Load::Uniform(10_000)), Box::new(Load::Scan)),
        Load::Mix(
            0.5,
            Box::new(Load::Zipf(30_000, 1.0)),
            Box::new(Load::Loop(10_000)),
        ),
    ];
    for load in loads {
        let (curve, exact) = run(&load, 600_000, 30_000, 4, 7);
        let curve = curve.expect("enough was seen");
        let off = off(&curve, &exact, 60_000);
        println!("{load:?}: {off:.4}, {} points", curve.points().len());
        assert!(off <= 0.05, "{load:?}: {off:.3}: {curve:?}");
        assert!(curve.points().len() <= POINTS);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn any_mixture_is_within_a_twentieth(
        seed: u64,
        pages in 4000u64..30_000,
        exponent in 0.6f64..1.3,
        first in 0.0f64..1.0,
        other in 0usize..3,
    ) {
        let other = [Load::Uniform(pages / 2), Load::Loop(pages / 2), Load::Scan][other].clone();
        let load = Load::Mix(first, Box::new(Load::Zipf(pages, exponent)), Box::new(other));
        let (curve, exact) = run(&load, 200_000, 20_000, 3, seed);
        let off = off(&curve.expect("enough was seen"), &exact, 60_000);
        prop_assert!(off <= 0.05, "{}", off);
    }
}

#[test]
fn a_short_window_is_silent_beyond_its_length_and_right_within() {
    let load = Load::Uniform(20_000);
    let mut random = Random(3);
    let mut stream = Stream::of(&load, 0);
    let mut sampler = Sampler::new(3, 1 << 14);
    let mut exact = Exact::new(800_000);
    for window in 0..20 {
        sampler.open();
        for nth in 0..40_000 {
            let page = stream.next(&mut random);
            exact.access(page, window >= 10);
            // The load is seen a quarter of the time, for less than a page takes to come again.
            if nth < 10_000 {
                sampler.access(page, true);
            }
            if nth == 10_000 {
                sampler.close();
            }
        }
    }
    let curve = sampler.curve().expect("enough was seen");
    let known = curve.known().0 / PAGE;
    assert!((4000..10_500).contains(&known), "{known}");
    let off = off(&curve, &exact, known);
    assert!(off <= 0.03, "{off}: {curve:?}");
}

#[test]
fn a_change_of_phase_shows_within_two_minutes() {
    let mut random = Random(5);
    let mut sampler = Sampler::new(4, 1 << 14);
    let at = |sampler: &Sampler, pages: u64| {
        let curve = sampler.curve().expect("enough was seen");
        curve.hit_ratio(Bytes(pages * PAGE)).unwrap_or(1.0)
    };
    // First a set that fits, then one that needs four times as much.
    for (pages, looks) in [(8000, 30), (32_000, 24)] {
        let mut stream = Stream::of(&Load::Uniform(pages), 0);
        for _ in 0..looks {
            for _ in 0..20_000 {
                sampler.access(stream.next(&mut random), true);
            }
            sampler.step();
        }
        let there = at(&sampler, 8000);
        let truth = 8000.0 / pages as f64;
        assert!((there - truth).abs() < 0.08, "{pages}: {there}");
    }
}

#[test]
fn a_hot_block_is_counted_right_whether_or_not_it_is_in_the_sample() {
    for (hot, sampled) in [(1 << 20, false), (1 << 20 | 1 << 4, true)] {
        let mut random = Random(13);
        let mut sampler = Sampler::new(4, 1 << 14);
        let mut exact = Exact::new(400_000);
        for nth in 0..400_000 {
            let page = if random.below(2) == 0 {
                hot
            } else {
                random.below(20_000)
            };
            exact.access(page, nth > 200_000);
            let before = sampler.look.ticks;
            sampler.access(page, true);
            assert!(
                page != hot || (sampler.look.ticks > before) == sampled,
                "{hot}"
            );
            if nth % 20_000 == 0 {
                sampler.step();
            }
        }
        let off = off(&sampler.curve().expect("enough was seen"), &exact, 60_000);
        assert!(off <= 0.05, "{sampled}: {off}");
    }
}

#[test]
fn a_page_written_again_is_no_hit() {
    let mut sampler = Sampler::new(3, 1 << 14);
    for nth in 0..200_000u64 {
        sampler.access(nth % 2000, false);
        sampler.access(1 << 20 | nth, true);
        if nth % 10_000 == 0 {
            sampler.step();
        }
    }
    let curve = sampler.curve().expect("enough was seen");
    let most = curve.points().last().expect("it has points").hit_ratio;
    assert!(most < 0.01, "{curve:?}");
}

#[test]
fn writes_fill_the_cache() {
    // Each page of a loop is written, and only every fourth is read before it is written again.
    let mut sampler = Sampler::new(3, 1 << 14);
    let mut exact = Exact::new(800_000);
    for nth in 0..200_000u64 {
        let page = nth % 16_000;
        for (page, read) in [(page, false), ((nth + 8000) % 16_000, true)] {
            if !read || page % 4 == 0 {
                exact.access(page, read && nth > 50_000);
                sampler.access(page, read);
            }
        }
        if nth % 10_000 == 0 {
            sampler.step();
        }
    }
    let curve = sampler.curve().expect("enough was seen");
    let off = off(&curve, &exact, 20_000);
    assert!(off <= 0.05, "{off}: {curve:?}");
}

#[test]
fn few_accesses_give_no_curve_and_a_curve_stays_when_accesses_end() {
    let mut sampler = Sampler::new(0, 1 << 10);
    assert_eq!(sampler.curve(), None);
    for page in 0..150 {
        sampler.access(page % 10, true);
    }
    sampler.step();
    assert_eq!(sampler.curve(), None);
    for page in 0..300 {
        sampler.access(page % 10, true);
    }
    sampler.step();
    assert!(sampler.curve().is_some());
    // Long after the last access the curve is unchanged, but the rate of accesses is down.
    let before = sampler.curve().expect("as asserted");
    for _ in 0..60 {
        sampler.step();
    }
    let after = sampler.curve().expect("it is still known");
    assert_eq!(before.points(), after.points());
    assert!(after.asked_per_s() < before.asked_per_s() / 50.0);
}
