//! `memory.stat`, `memory.events`, the limit files; `/proc/meminfo` and `/proc/zoneinfo`.
//!
//! Units: bytes in `memory.stat` but for the `workingset_*` counters, which are pages; kB in meminfo; pages in
//! zoneinfo.

use justitia_policy::snapshot::Memory;
use justitia_policy::units::{Bytes, Limit};

use super::{keyed, lines, number, words};

/// The lines of `memory.stat` that Justitia uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the kernel's names")]
pub struct MemoryStat {
    pub anon: Option<u64>,
    pub file: Option<u64>,
    pub shmem: Option<u64>,
    pub file_mapped: Option<u64>,
    pub file_dirty: Option<u64>,
    pub file_writeback: Option<u64>,
    pub workingset_refault_file: Option<u64>,
    pub workingset_activate_file: Option<u64>,
}

/// Parses `memory.stat`.
pub fn stat(text: &[u8]) -> MemoryStat {
    let mut stat = MemoryStat::default();
    for (key, value) in keyed(text, b' ') {
        let field = match key {
            b"anon" => &mut stat.anon,
            b"file" => &mut stat.file,
            b"shmem" => &mut stat.shmem,
            b"file_mapped" => &mut stat.file_mapped,
            b"file_dirty" => &mut stat.file_dirty,
            b"file_writeback" => &mut stat.file_writeback,
            b"workingset_refault_file" => &mut stat.workingset_refault_file,
            b"workingset_activate_file" => &mut stat.workingset_activate_file,
            _ => continue,
        };
        *field = Some(value);
    }
    stat
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

/// The counters of `memory.events`: how often each event happened in the group or below it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryEvents {
    /// Reclaimed although below `memory.low`.
    pub low: Option<u64>,
    /// Throttled above `memory.high`.
    pub high: Option<u64>,
    /// About to exceed `memory.max`.
    pub max: Option<u64>,
    /// At the limit with nothing left to reclaim.
    pub oom: Option<u64>,
    /// Processes killed.
    pub oom_kill: Option<u64>,
}

/// Parses `memory.events`.
pub fn events(text: &[u8]) -> MemoryEvents {
    let mut events = MemoryEvents::default();
    for (key, value) in keyed(text, b' ') {
        match key {
            b"low" => events.low = Some(value),
            b"high" => events.high = Some(value),
            b"max" => events.max = Some(value),
            b"oom" => events.oom = Some(value),
            b"oom_kill" => events.oom_kill = Some(value),
            _ => {}
        }
    }
    events
}

/// The lines of `/proc/meminfo` that Justitia uses, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemInfo {
    /// `MemTotal`.
    pub total: Option<Bytes>,
    /// `MemFree`.
    pub free: Option<Bytes>,
    /// `Cached`: page cache and shmem, without block devices' own pages.
    pub cached: Option<Bytes>,
    /// `Buffers`: block devices' own pages.
    pub buffers: Option<Bytes>,
    /// `Shmem`.
    pub shmem: Option<Bytes>,
    /// `MemAvailable`: memory available without swapping.
    pub available: Option<Bytes>,
    /// `AnonPages`.
    pub anon: Option<Bytes>,
    /// `Dirty`.
    pub dirty: Option<Bytes>,
    /// `SwapTotal`.
    pub swap_total: Option<Bytes>,
}

impl MemInfo {
    /// Page cache of the host, the paper's `NR_FILE_PAGES`: `Cached + Buffers - Shmem`.
    pub fn file(&self) -> Option<Bytes> {
        Some(self.cached? + self.buffers? - self.shmem?)
    }
}

/// Parses `/proc/meminfo`.
pub fn meminfo(text: &[u8]) -> MemInfo {
    let mut info = MemInfo::default();
    for line in lines(text) {
        let mut words = words(line);
        let field = match words.next() {
            Some(b"MemTotal:") => &mut info.total,
            Some(b"MemFree:") => &mut info.free,
            Some(b"Cached:") => &mut info.cached,
            Some(b"Buffers:") => &mut info.buffers,
            Some(b"Shmem:") => &mut info.shmem,
            Some(b"MemAvailable:") => &mut info.available,
            Some(b"AnonPages:") => &mut info.anon,
            Some(b"Dirty:") => &mut info.dirty,
            Some(b"SwapTotal:") => &mut info.swap_total,
            _ => continue,
        };
        *field = words
            .next()
            .and_then(number)
            .and_then(|kib| kib.checked_mul(1024))
            .map(Bytes);
    }
    info
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
