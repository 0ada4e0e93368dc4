//! Maps of the programs, mapped into our memory. A look at a group costs no system call, and the generation
//! changes in one store that no program can see half-done.
//!
//! Layout (`bpf/record.h`, `bpf/identity.h`): the counters are records, with a slot's lanes side by side.
//! Programs add to each word atomically, and we read each word in one load.

use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use justitia_bpf::Mapping;
use libbpf_rs::Object;

use super::{mapped, types, Error};

/// The programs' `MAX_CPUS`.
const MAX_CPUS: usize = 512;
/// The section that both sides write.
const CONTROL: &str = ".data.control";
/// The section in which reads of each CPU are counted.
const LAST: &str = ".data.last";
/// Words of a record.
const WORDS: usize = size_of::<types::counters>() / size_of::<u64>();

/// The counters of all slots, which are read, and their sampling rates, which are written.
#[derive(Debug)]
pub(crate) struct CounterMemory {
    mapping: Mapping,
    slots: u32,
    lanes: u32,
}

impl CounterMemory {
    /// Maps the counters of a map that holds `slots * lanes` records.
    pub(crate) fn map(object: &Object, slots: u32, lanes: u32) -> Result<CounterMemory, Error> {
        let bytes = slots as usize * lanes as usize * size_of::<types::counters>();
        Ok(CounterMemory {
            mapping: mapped(object, "counters", bytes, true)?,
            slots,
            lanes,
        })
    }

    /// Offsets of a slot's records, one for each lane. `None` if there is no such slot.
    fn records(&self, slot: u32) -> Option<impl Iterator<Item = usize>> {
        let lanes = self.lanes as usize;
        let first = slot as usize * lanes;
        let records = (first..first + lanes).map(|record| record * size_of::<types::counters>());
        (slot < self.slots).then_some(records)
    }

    /// Sets a slot's sampling rate and number (`counters.sample` in `bpf/record.h`).
    pub(crate) fn set_sample(&self, slot: u32, sample: u64) {
        for record in self.records(slot).into_iter().flatten() {
            let at = record + offset_of!(types::counters, sample);
            let word = self.mapping.word::<AtomicU64>(at);
            word.store(sample, Ordering::Relaxed);
        }
    }

    /// A slot's counters, summed over its lanes. `None` if there is no such slot.
    pub(crate) fn read(&self, slot: u32) -> Option<types::counters> {
        let mut sum = [0u64; WORDS];
        for record in self.records(slot)? {
            for (at, sum) in sum.iter_mut().enumerate() {
                let word = self
                    .mapping
                    .word::<AtomicU64>(record + at * size_of::<u64>());
                *sum = sum.wrapping_add(word.load(Ordering::Relaxed));
            }
        }
        // SAFETY: the record is made of u64 alone, and of as many (WORDS).
        Some(unsafe { std::mem::transmute::<[u64; WORDS], types::counters>(sum) })
    }
}

/// The number of reads that the programs saw, by any process.
#[derive(Debug)]
pub(crate) struct ReadMemory {
    mapping: Mapping,
    records: usize,
}

impl ReadMemory {
    /// Maps the records of `cpus` CPUs.
    pub(crate) fn map(object: &Object, cpus: u32) -> Result<ReadMemory, Error> {
        let records = (cpus as usize).min(MAX_CPUS);
        Ok(ReadMemory {
            mapping: mapped(object, LAST, records * size_of::<types::last>(), false)?,
            records,
        })
    }

    /// Reads of all CPUs.
    pub(crate) fn total(&self) -> u64 {
        let of_cpu = |cpu| {
            let at = cpu * size_of::<types::last>() + offset_of!(types::last, reads);
            self.mapping.word::<AtomicU64>(at).load(Ordering::Relaxed)
        };
        (0..self.records).map(of_cpu).sum()
    }
}

/// Reuse times of sampled pages, and the table of their last accesses (`bpf/reuse.h`).
#[derive(Debug)]
pub(crate) struct ReuseMemory {
    reuses: Mapping,
    pub(crate) groups: u32,
    asked_at: Mapping,
    pub(crate) places: u32,
}

/// A group's last access to a page, in its ticks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) group: u32,
    pub(crate) at: u32,
}

impl ReuseMemory {
    /// Maps the records of `groups` groups, and `places` places.
    pub(crate) fn map(object: &Object, groups: u32, places: u32) -> Result<ReuseMemory, Error> {
        let bytes = groups as usize * size_of::<types::reuse>();
        let of_places = places as usize * size_of::<u64>();
        Ok(ReuseMemory {
            reuses: mapped(object, "reuses", bytes, true)?,
            groups,
            asked_at: mapped(object, "asked_at", of_places, true)?,
            places,
        })
    }

    pub(crate) fn read(&self, group: u32) -> types::reuse {
        let record = group.min(self.groups - 1) as usize * size_of::<types::reuse>();
        let total = |at: usize| {
            self.reuses
                .word::<AtomicU64>(record + at)
                .load(Ordering::Relaxed)
        };
        let word = |at: usize| {
            self.reuses
                .word::<AtomicU32>(record + at)
                .load(Ordering::Relaxed)
        };
        let bins = |at: usize| std::array::from_fn(|bin| word(at + bin * size_of::<u32>()));
        types::reuse {
            clock: total(offset_of!(types::reuse, clock)),
            reads: total(offset_of!(types::reuse, reads)),
            since: word(offset_of!(types::reuse, since)),
            by_reads: bins(offset_of!(types::reuse, by_reads)),
            by_writes: bins(offset_of!(types::reuse, by_writes)),
            lost: bins(offset_of!(types::reuse, lost)),
            ..types::reuse::default()
        }
    }

    /// Records that observation of a group began after this tick.
    pub(crate) fn set_since(&self, group: u32, tick: u32) {
        let record = group.min(self.groups - 1) as usize * size_of::<types::reuse>();
        let since = record + offset_of!(types::reuse, since);
        self.reuses
            .word::<AtomicU32>(since)
            .store(tick, Ordering::Relaxed);
    }

    /// Calls `keep` for each page in the table, and frees the places for which it returns false.
    pub(crate) fn sweep(&self, mut keep: impl FnMut(Asked) -> bool) {
        for place in 0..self.places as usize {
            let word = self.asked_at.word::<AtomicU64>(place * size_of::<u64>());
            let seen = word.load(Ordering::Relaxed);
            let asked = Asked {
                group: (seen >> 24 & 0xff) as u32,
                at: (seen >> 32) as u32,
            };
            if seen != 0 && !keep(asked) {
                // Unless a program wrote there in the meantime.
                let _ = word.compare_exchange(seen, 0, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
    }
}

/// The control record, which both sides write.
#[derive(Debug)]
pub(crate) struct ControlMemory(Mapping);

impl ControlMemory {
    pub(crate) fn map(object: &Object) -> Result<ControlMemory, Error> {
        mapped(object, CONTROL, size_of::<types::control>(), true).map(ControlMemory)
    }

    /// Makes the programs look into the map of watched cgroups again.
    pub(crate) fn next_generation(&self) {
        self.0
            .word::<AtomicU32>(offset_of!(types::control, generation))
            .fetch_add(1, Ordering::SeqCst);
    }

    /// Bounds the next look at shared files: leaves of 64 pages of each file.
    pub(crate) fn set_leaves(&self, count: u32) {
        self.0
            .word::<AtomicU32>(offset_of!(types::control, leaves))
            .store(count, Ordering::Relaxed);
    }

    /// Counts threads that start later than this (ns of the monotonic clock) from their start.
    pub(crate) fn count_threads_since(&self, ns: u64) {
        self.0
            .word::<AtomicU64>(offset_of!(types::control, threads_since_ns))
            .store(ns, Ordering::Relaxed);
    }

    /// Distrusts pages fetched ahead before this (ns of the monotonic clock): they may have been read unseen.
    pub(crate) fn trust_readahead_since(&self, ns: u64) {
        self.0
            .word::<AtomicU64>(offset_of!(types::control, readahead_since_ns))
            .store(ns, Ordering::Relaxed);
    }

    /// Events that were not counted, because a map was full or memory short.
    pub(crate) fn lost(&self) -> u64 {
        self.0
            .word::<AtomicU64>(offset_of!(types::control, lost))
            .load(Ordering::Relaxed)
    }
}
