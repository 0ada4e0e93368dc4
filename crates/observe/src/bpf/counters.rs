//! The programs' counters of one group, over all CPUs.
//!
//! Units are in the names; a page is the kernel's base page; everything is cumulative since the
//! observer first saw the group.

use justitia_policy::snapshot::CacheCounters;

use super::types;

/// A group's traffic and events in the page cache. A tier that does not count something shows it as
/// zero here; [`super::Observer::sample`](crate::TrafficSource::sample) shows it as unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes that buffered reads returned.
    pub read_bytes: u64,
    /// Bytes that buffered writes took, except to tmpfs.
    pub write_bytes: u64,
    /// Pages that buffered reads asked for: each call counts the pages its bytes lie in.
    pub asked: u64,
    /// Pages of `asked` that were not there when the call asked.
    pub missed: u64,
    /// Pages of `asked` that were asked for the first time after the same open file's readahead fetched them.
    pub readahead: u64,
    /// Pages that reads had to fetch: missed ones and those fetched ahead.
    pub fetched: u64,
    /// Pages that the group's reads and faults brought into the page cache. Where only a tracepoint counts
    /// them, pages of writes are included.
    pub inserted: u64,
    /// Pages charged to the group and evicted by reclaim.
    pub evicted: u64,
    /// Faults on mapped files that reached the file system's fault handler.
    pub mmap_faults: u64,
    /// Those of `mmap_faults` that waited for the disk.
    pub mmap_major: u64,
    /// Microseconds in direct reclaim, for the host or for a limit.
    pub reclaim_us: u64,
    /// Microseconds asleep because the group was above `memory.high`.
    pub throttled_us: u64,
}

impl Counters {
    /// The growth of each counter since `base`. Counters only go up, but programs on other CPUs may have
    /// updated one and not yet another.
    pub(crate) fn since(now: &types::counters, base: &types::counters) -> Counters {
        let micros = |now: u64, base: u64| now.saturating_sub(base) / 1000;
        Counters {
            read_bytes: now.read_bytes.saturating_sub(base.read_bytes),
            write_bytes: now.write_bytes.saturating_sub(base.write_bytes),
            asked: now.asked_pages.saturating_sub(base.asked_pages),
            missed: now.missed_pages.saturating_sub(base.missed_pages),
            readahead: now.readahead_pages.saturating_sub(base.readahead_pages),
            fetched: now.fetched_pages.saturating_sub(base.fetched_pages),
            inserted: now.inserted_pages.saturating_sub(base.inserted_pages),
            evicted: now.evicted_pages.saturating_sub(base.evicted_pages),
            mmap_faults: now.mmap_faults.saturating_sub(base.mmap_faults),
            mmap_major: now.mmap_major_faults.saturating_sub(base.mmap_major_faults),
            reclaim_us: micros(now.reclaim_ns, base.reclaim_ns),
            throttled_us: micros(now.throttled_ns, base.throttled_ns),
        }
    }

    /// Fraction of the pages asked for by buffered reads that were there; `None` if they asked for none.
    pub fn hit_ratio(&self) -> Option<f64> {
        let absent = self.missed.saturating_add(self.readahead);
        (self.asked > 0).then(|| 1.0 - absent.min(self.asked) as f64 / self.asked as f64)
    }

    /// The counters that the policy gets; `None` where no attached program counts.
    pub(crate) fn cache(&self, counts: &dyn Fn(&str) -> bool, reads: bool) -> CacheCounters {
        let faults = counts("filemap_fault");
        let known = |counted: bool, value: u64| counted.then_some(value);
        CacheCounters {
            asked_pages: known(reads, self.asked),
            missed_pages: known(reads, self.missed),
            readahead_pages: known(reads, self.readahead),
            inserted_pages: known(counts("page_added") || counts("pages_read"), self.inserted),
            evicted_pages: known(
                counts("page_removed") || counts("folio_removed"),
                self.evicted,
            ),
            mmap_faults: known(faults, self.mmap_faults),
            mmap_major_faults: known(faults, self.mmap_major),
            reclaim_us: known(counts("direct_reclaim"), self.reclaim_us),
            throttled_us: known(
                counts("over_high") || counts("over_high_old"),
                self.throttled_us,
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cold_scan_hits_nothing_and_a_warm_one_everything() {
        let cold = Counters {
            asked: 100,
            missed: 40,
            readahead: 60,
            ..Counters::default()
        };
        assert_eq!(cold.hit_ratio(), Some(0.0));
        let warm = Counters {
            asked: 100,
            ..Counters::default()
        };
        assert_eq!(warm.hit_ratio(), Some(1.0));
        assert_eq!(Counters::default().hit_ratio(), None);
    }

    #[test]
    fn a_slot_that_was_used_before_counts_from_its_base() {
        let base = types::counters {
            read_bytes: 1000,
            reclaim_ns: 5_000,
            ..types::counters::default()
        };
        let now = types::counters {
            read_bytes: 1500,
            reclaim_ns: 9_999,
            ..types::counters::default()
        };
        let counters = Counters::since(&now, &base);
        assert_eq!(counters.read_bytes, 500);
        assert_eq!(counters.reclaim_us, 4);
    }

    #[test]
    fn a_number_that_no_program_counts_is_unknown() {
        let cache = Counters::default().cache(&|program| program == "page_added", false);
        assert_eq!(cache.inserted_pages, Some(0));
        assert_eq!(cache.asked_pages, None);
        assert_eq!(cache.throttled_us, None);
    }
}
