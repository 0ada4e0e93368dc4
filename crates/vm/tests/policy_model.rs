//! A deterministic model of two stacked caches, a guest's LRU cache above the host's, with the policy between
//! them, under workloads of known shape.
//!
//! The host's cache is unbounded here: the model tests admission, not eviction.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use justitia_vm::policy::admission::{after_first_request, when_quiet};
use justitia_vm::policy::pages::{mask, requested, Block, PAGES_PER_BLOCK, PAGES_PER_WORD, WORDS};
use justitia_vm::policy::Replacement;

struct Lru {
    room: usize,
    clock: u64,
    used: HashMap<u64, u64>,
    order: BTreeMap<u64, u64>,
}

impl Lru {
    fn new(room: usize) -> Lru {
        Lru {
            room,
            clock: 0,
            used: HashMap::new(),
            order: BTreeMap::new(),
        }
    }

    /// Uses a page and caches it. Returns whether it was cached before.
    fn touch(&mut self, page: u64) -> bool {
        self.clock += 1;
        let before = self.used.insert(page, self.clock);
        if let Some(before) = before {
            self.order.remove(&before);
        }
        self.order.insert(self.clock, page);
        if self.used.len() > self.room {
            if let Some((_, oldest)) = self.order.pop_first() {
                self.used.remove(&oldest);
            }
        }
        before.is_some()
    }
}

struct World {
    guest: Lru,
    host: BTreeSet<u64>,
    book: HashMap<u64, Block>,
    /// Blocks used since the last round.
    used: BTreeSet<u64>,
    replacement: Replacement,
    from_disk: u64,
}

/// Pages between two rounds of the image cache.
const ROUND: u64 = 64;

impl World {
    fn new(guest: usize, replacement: Replacement) -> World {
        World {
            guest: Lru::new(guest),
            host: BTreeSet::new(),
            book: HashMap::new(),
            used: BTreeSet::new(),
            replacement,
            from_disk: 0,
        }
    }

    fn read(&mut self, page: u64) {
        if self.guest.touch(page) {
            return;
        }
        let (block, at) = (
            page / PAGES_PER_BLOCK as u64,
            page as usize % PAGES_PER_BLOCK,
        );
        self.used.insert(block);
        let words = self.book.entry(block).or_insert([0; WORDS]);
        let place = at % PAGES_PER_WORD;
        let word = &mut words[at / PAGES_PER_WORD];
        *word = requested(*word, mask(place, place + 1));
        if self.host.insert(page) {
            self.from_disk += 1;
        }
    }

    fn round(&mut self) {
        if !self.replacement.admits_on_second() {
            return;
        }
        for block in std::mem::take(&mut self.used) {
            for run in after_first_request(&self.book[&block]) {
                for page in run.from..run.to {
                    self.host
                        .remove(&(block * PAGES_PER_BLOCK as u64 + page as u64));
                }
            }
        }
    }

    fn run(mut self, pages: impl Iterator<Item = u64>) -> World {
        for (at, page) in (1u64..).zip(pages) {
            self.read(page);
            if at % ROUND == 0 {
                self.round();
            }
        }
        self.round();
        self
    }

    /// Pages that both caches hold.
    fn twice(&self) -> usize {
        let guest = self.guest.used.keys();
        guest.filter(|page| self.host.contains(page)).count()
    }
}

fn both(guest: usize, pages: &[u64]) -> (World, World) {
    let run = |replacement| World::new(guest, replacement).run(pages.iter().copied());
    (run(Replacement::Default), run(Replacement::Justitia))
}

#[test]
fn a_stream_leaves_nothing_in_the_host_and_costs_nothing() {
    let stream: Vec<u64> = (0..10_000).collect();
    let (default, ours) = both(1000, &stream);
    assert_eq!((default.host.len(), default.twice()), (10_000, 1000));
    assert_eq!((ours.host.len(), ours.twice()), (0, 0));
    assert_eq!(ours.from_disk, default.from_disk);
}

#[test]
fn pages_that_a_guest_reads_over_and_over_come_from_the_disk_twice() {
    let rounds = 10;
    let pages: Vec<u64> = (0..rounds).flat_map(|_| 0..3000).collect();
    let (default, ours) = both(1000, &pages);
    // The minimum is one fetch per page, which a host cache that keeps everything reaches. Without the host's
    // cache every round would fetch each page.
    assert_eq!(default.from_disk, 3000);
    assert_eq!(ours.from_disk, 2 * 3000);
}

#[test]
fn a_set_that_fits_into_the_guest_is_not_kept_in_the_host() {
    let pages: Vec<u64> = (0..10).flat_map(|_| 0..900).collect();
    let (default, ours) = both(1000, &pages);
    assert_eq!((default.twice(), ours.twice()), (900, 0));
    assert_eq!(ours.from_disk, default.from_disk);
}

#[test]
fn beside_a_stream_the_host_keeps_only_hot_pages_that_the_guest_lost_and_reread() {
    // Nine of ten reads go to 800 hot pages, which the guest holds; the tenth streams.
    let mut state = 1u64;
    let pages: Vec<u64> = (0..60_000u64)
        .map(|at| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            if at % 10 == 0 {
                100_000 + at
            } else {
                (state >> 33) % 800
            }
        })
        .collect();
    let (default, ours) = both(1000, &pages);
    // The policy's limit: a page requested a second time is kept, although the guest has it again.
    assert!(
        ours.twice() < default.twice(),
        "{} of {}",
        ours.twice(),
        default.twice()
    );
    assert!(
        ours.host.iter().all(|&page| page < 800),
        "nothing of the stream"
    );
    assert!(ours.host.len() * 4 <= default.host.len());
}

#[test]
fn readahead_that_is_never_requested_is_dropped_once_its_block_is_quiet() {
    let mut block: Block = [0; WORDS];
    block[0] = requested(0, mask(0, 4));
    let dropped: usize = after_first_request(&block)
        .iter()
        .map(|run| run.to - run.from)
        .sum();
    assert_eq!(dropped, 4, "while the guest is on its way to the rest");
    let dropped: usize = when_quiet(&block).iter().map(|run| run.to - run.from).sum();
    assert_eq!(dropped, PAGES_PER_BLOCK);
}
