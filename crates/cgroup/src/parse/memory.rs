//! `memory.stat`, `memory.events`, the limit files; `/proc/meminfo` and `/proc/zoneinfo`.
//!
//! Units: bytes in `memory.stat` but for the `workingset_*` counters, which are pages; kB in meminfo; pages in
//! zoneinfo.

use justitia_policy::snapshot::Memory;
use justitia_policy::units::{Bytes, Limit};

use super::{flat, lines, number, words};

keyed_file! {
    /// The lines of `memory.stat` that Justitia uses.
    #[allow(missing_docs, reason = "the kernel's names")]
    pub struct MemoryStat of u64, by stat from flat;
    anon = b"anon",
    file = b"file",
    shmem = b"shmem",
    file_mapped = b"file_mapped",
    file_dirty = b"file_dirty",
    file_writeback = b"file_writeback",
    workingset_refault_file = b"workingset_refault_file",
    workingset_activate_file = b"workingset_activate_file",
}

impl MemoryStat {
    /// Converts to the policy's type. Page cache is `file - shmem`: without either it is unknown.
    pub fn memory(&self) -> Memory {
        let both = |a: Option<u64>, b: Option<u64>| Some(a?.saturating_add(b?));
        let shmem = self.shmem.map(Bytes);
        let file = self.file.zip(shmem);
        let file = file.map(|(file, shmem)| Bytes(file) - shmem);
        let mapped = self.file_mapped.zip(file).zip(shmem);
        Memory {
            current: None,
            file,
            file_mapped: mapped
                .map(|((mapped, file), shmem)| Memory::mapped_file(Bytes(mapped), file, shmem)),
            file_dirty: both(self.file_dirty, self.file_writeback).map(Bytes),
            anon: self.anon.map(Bytes),
            swap: None,
            refault_pages: self.workingset_refault_file,
        }
    }
}

/// Parses `memory.low`, `memory.high`, `memory.max`.
pub fn limit(text: &[u8]) -> Option<Limit> {
    match text.trim_ascii() {
        b"max" => Some(Limit::Max),
        digits => Some(Limit::Bytes(Bytes(number(digits)?))),
    }
}

keyed_file! {
    /// The counters of `memory.events`: how often each event happened in the group or below it.
    pub struct MemoryEvents of u64, by events from flat;
    /// Reclaimed although below `memory.low`.
    low = b"low",
    /// Throttled above `memory.high`.
    high = b"high",
    /// About to exceed `memory.max`.
    max = b"max",
    /// At the limit with nothing left to reclaim.
    oom = b"oom",
    /// Processes killed.
    oom_kill = b"oom_kill",
}

keyed_file! {
    /// The lines of `/proc/meminfo` that Justitia uses, in bytes.
    pub struct MemInfo of Bytes, by meminfo from in_kib;
    /// All memory.
    total = b"MemTotal:",
    /// Free memory.
    free = b"MemFree:",
    /// Page cache and shmem, without block devices' own pages.
    cached = b"Cached:",
    /// Block devices' own pages.
    buffers = b"Buffers:",
    /// Shared memory and tmpfs.
    shmem = b"Shmem:",
    /// Memory available without swapping.
    available = b"MemAvailable:",
    /// Mapped anonymous pages.
    anon = b"AnonPages:",
    /// Dirty page cache.
    dirty = b"Dirty:",
    /// Swap space.
    swap_total = b"SwapTotal:",
}

impl MemInfo {
    /// Page cache of the host, the paper's `NR_FILE_PAGES`: `Cached + Buffers - Shmem`.
    pub fn file(&self) -> Option<Bytes> {
        Some(self.cached? + self.buffers? - self.shmem?)
    }
}

/// Keys and values of `/proc/meminfo`, which has KiB.
fn in_kib(text: &[u8]) -> impl Iterator<Item = (&[u8], Bytes)> {
    lines(text).filter_map(|line| {
        let mut words = words(line);
        let (key, kib) = (words.next()?, number(words.next()?)?);
        Some((key, Bytes(kib.checked_mul(1024)?)))
    })
}

/// A zone of `/proc/zoneinfo`, in pages.
#[derive(Default)]
struct Zone {
    high: Option<u64>,
    managed: Option<u64>,
    /// Withheld from allocations that a higher zone could serve.
    protected: u64,
}

impl Zone {
    fn kept_free(&self) -> Option<u64> {
        let kept = self.high?.saturating_add(self.protected);
        Some(kept.min(self.managed.unwrap_or(u64::MAX)))
    }
}

/// The pages that the kernel keeps free, from `/proc/zoneinfo`: each zone's high watermark, and the pages
/// withheld from allocations that a higher zone could serve (`calculate_totalreserve_pages` in
/// `mm/page_alloc.c`). The lines `high:` of the per-CPU lists mean something else.
pub fn kept_free_pages(text: &[u8]) -> Option<u64> {
    let mut zones: Vec<Zone> = Vec::new();
    for line in lines(text) {
        let mut words = words(line);
        let first = words.next();
        if first == Some(b"Node") {
            zones.push(Zone::default());
        }
        let Some(zone) = zones.last_mut() else {
            continue;
        };
        match first {
            Some(b"high") => zone.high = words.next().and_then(number),
            Some(b"managed") => zone.managed = words.next().and_then(number),
            // One for each zone that could have served the allocation: "(0, 479, 479)".
            Some(b"protection:") => {
                let each = line.split(|byte| !byte.is_ascii_digit());
                zone.protected = each.filter_map(number).max().unwrap_or(0);
            }
            _ => {}
        }
    }
    zones
        .iter()
        .filter_map(Zone::kept_free)
        .reduce(u64::saturating_add)
}
