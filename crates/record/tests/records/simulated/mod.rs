//! Ticks of a simulated host: the policy steers the page cache of its own closed-loop tests.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "the tests use a part of the model"
)]

#[path = "../../../../policy/tests/closed_loop/model/mod.rs"]
mod model;

use std::time::Duration;

use justitia_policy::snapshot::CacheCounters;
use justitia_policy::units::Bytes;
use justitia_policy::{step, Config, State};
use justitia_record::{Encoder, Item, Reader, Remembered, Session, Tick, KEYFRAME_EVERY};

use model::{Load, PageCacheHost};

/// A run that can be recorded.
pub struct Run {
    host: PageCacheHost,
    config: Config,
    state: State,
    count: u64,
    random: u64,
    /// With the counters that only a BPF observer has.
    counted: bool,
}

impl Run {
    /// A run with writers of these weights.
    pub fn new(config: Config, weights: &[u32]) -> Run {
        let mut host = PageCacheHost::new(Bytes::mib(600), 40_000_000);
        for &weight in weights {
            host.add(
                weight,
                Load::WriteRead {
                    reads: 1,
                    set: 1600,
                },
            );
        }
        Run {
            host,
            config,
            state: State::default(),
            count: 0,
            random: 1,
            counted: false,
        }
    }

    /// The same run with page-cache counters.
    #[must_use]
    pub fn counted(mut self) -> Run {
        self.counted = true;
        self
    }

    /// The same run with a reader and a scan whose curves are known.
    #[must_use]
    pub fn with_curves(mut self) -> Run {
        let (set, scanned) = (3200, 16_000);
        let reader = self.host.add(100, Load::Read { chunks: set });
        let scan = self.host.add(100, Load::Scan { chunks: scanned });
        self.host
            .learn(reader, &[(set / 10, 0.55), (set, 1.0)], 200e6);
        let cliff = [(scanned - 1, 0.0), (scanned, 1.0)];
        self.host.learn(scan, &cliff, 40e6);
        self
    }

    /// Changes the configuration from now on.
    pub fn decide(&mut self, config: Config) {
        self.config = config;
    }

    /// Adds a writer.
    pub fn add(&mut self, weight: u32) -> u64 {
        self.host.add(weight, Load::Write)
    }

    /// Removes a group.
    pub fn remove(&mut self, id: u64) {
        self.host.remove(id);
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.random >> 33) % below
    }

    /// The next tick, with what the policy remembered if that is due or `key` says so.
    pub fn tick(&mut self, key: bool) -> Tick {
        self.count += 1;
        let late_ns = self.random(3_000_000);
        self.host.run(Duration::from_secs(1));
        let elapsed_ns = if self.count == 1 {
            0
        } else {
            1_000_000_000 + late_ns
        };
        let mut snapshot = self.host.snapshot();
        if self.counted {
            for group in &mut snapshot.groups {
                let moved = group.traffic.read_bytes.unwrap_or(0) / 4096;
                let more = self.random(97);
                group.memory.refault_pages = Some(moved / 17);
                group.pressure.io_full_us = group.pressure.io_some_us.map(|us| us / 3);
                group.pressure.cpu_some_us = group.pressure.io_some_us.map(|us| us / 7);
                group.pressure.memory_some_us = group.pressure.io_some_us.map(|us| us / 5);
                group.cache = CacheCounters {
                    asked_pages: Some(moved),
                    missed_pages: Some(moved / 3),
                    readahead_pages: Some(moved / 5),
                    inserted_pages: Some(moved / 2),
                    evicted_pages: Some(moved / 2 + more),
                    mmap_faults: Some(self.count),
                    mmap_major_faults: Some(0),
                    reclaim_us: Some(moved * 3 + more),
                    throttled_us: Some(moved * 5 + more),
                };
            }
        }
        let elapsed = Duration::from_nanos(elapsed_ns);
        let due = key || self.count % KEYFRAME_EVERY == 1;
        let before = due.then(|| Remembered::new(&self.state)).flatten();
        let (state, plan) = step(&self.state, &snapshot, &self.config, elapsed);
        self.state = state;
        self.host.apply(&plan);
        Tick {
            count: self.count,
            missed: 0,
            at_unix_ms: 1_700_000_000_000 + self.count * 1001,
            elapsed_ns,
            config: self.config,
            snapshot,
            plan,
            before,
        }
    }

    /// The next `count` ticks.
    pub fn ticks(&mut self, count: usize) -> Vec<Tick> {
        (0..count).map(|_| self.tick(false)).collect()
    }
}

pub fn session() -> Session {
    Session {
        written_by: "0.1.0".into(),
        boot_id: "b00t".into(),
        kernel: "6.12.0".into(),
        started_unix_ms: 1_700_000_000_000,
        interval_s: 1.0,
        ..Session::default()
    }
}

/// The frames of a record: the preamble and the session, then one for each tick.
pub fn frames(ticks: &[Tick]) -> Vec<Vec<u8>> {
    let mut encoder = Encoder::new();
    let mut first = Encoder::preamble();
    first.extend(encoder.session(&session()).unwrap());
    let mut frames = vec![first];
    frames.extend(ticks.iter().map(|tick| encoder.tick(tick).unwrap()));
    frames
}

/// All items of a record that can be read.
pub fn items(bytes: &[u8]) -> Vec<Item> {
    let reader = Reader::new(bytes, "test").unwrap();
    reader.map(|item| item.unwrap()).collect()
}

pub fn ticks(items: &[Item]) -> Vec<Tick> {
    let ticks = items.iter().filter_map(|item| match item {
        Item::Tick(tick) => Some((**tick).clone()),
        _ => None,
    });
    ticks.collect()
}
