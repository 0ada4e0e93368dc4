//! Sizes of the programs' maps: in proportion to the host's memory, up to what a host of 8 or 16 GiB has.
//!
//! The kernel allocates the maps whole when the programs are loaded: some 9 MB at full size, and up to 8 MiB
//! more for the counters where there are many CPUs. Groups, open files and pages fetched ahead each take
//! memory, so their number grows with the host's. A map that is too small forgets sooner (`LRU_HASH`, the
//! files) or is slower (the places). Only a group without a slot is not counted, so there are more slots than
//! groups that fit into memory.

use justitia_policy::units::Bytes;

/// Groups that can be watched at once; the programs' `NO_SLOT` is beyond.
const MAX_SLOTS: u64 = 4095;
/// Records of a group that CPUs count in, at most. Every addition is atomic, and CPUs share a record only to
/// keep the counters of all groups within 8 MiB.
const MAX_LANES: u32 = 16;
/// The programs' `PLACES`.
const MAX_PLACES: u64 = 4096;
/// A byte of an entry in `asked_at` identifies the group; 0 is no group.
const MAX_REUSES: u64 = 256;
/// Each CPU holds back up to 128 entries of an LRU map (`kernel/bpf/bpf_lru_list.c`). With fewer than twice
/// that many per CPU, the map forgets entries that were used just now. Where there are many CPUs, the most entries of
/// a map bound its memory instead.
const LRU_PER_CPU: u64 = 256;

/// Entries of each map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sizes {
    /// Groups.
    pub(super) slots: u32,
    /// Records of each group, each shared by some of the CPUs; a power of two.
    pub(super) lanes: u32,
    /// Cgroups whose group was looked up.
    pub(super) resolved: u32,
    /// Blocks of 64 pages with something fetched ahead.
    pub(super) prefetched: u32,
    /// Open files that read ahead.
    pub(super) readers: u32,
    /// Threads whose state found no place.
    pub(super) doing: u32,
    /// Places for the state of threads; a power of two.
    pub(super) places: u32,
    /// Sets of files; a power of two.
    pub(super) sets: u32,
    /// Groups with a curve at once.
    pub(super) reuses: u32,
    /// Places of sampled pages; a power of two.
    pub(super) asked_at: u32,
}

impl Sizes {
    /// Sizes for a host with this much memory. `None` (unknown) counts as much memory.
    pub(super) fn of(memory: Option<Bytes>, cpus: u32) -> Sizes {
        let cpus = u64::from(cpus);
        // One entry for each `mib` MiB.
        let per = |mib: u64| memory.map_or(u64::MAX, |memory| memory.0 / Bytes::mib(mib).0);
        let lru = |entries: u64, most: u64| small(entries.max(LRU_PER_CPU * cpus).min(most));
        let power_of_two = |entries: u64, least: u64, most: u64| {
            small(entries.clamp(least, most).next_power_of_two())
        };
        Sizes {
            slots: small(per(1).clamp(1536, MAX_SLOTS)),
            lanes: small(cpus).min(MAX_LANES).next_power_of_two(),
            resolved: lru(per(1), 8192),
            prefetched: lru(per(1).saturating_mul(2), 16384),
            readers: lru(per(1), 8192),
            doing: lru(per(16), 1024),
            places: power_of_two(per(4), 256, MAX_PLACES),
            sets: power_of_two(per(4), 128, 2048),
            reuses: small(per(16).clamp(32, MAX_REUSES)),
            asked_at: power_of_two(per(1).saturating_mul(32), 16384, 131_072),
        }
    }
}

/// Never saturates: the constant that bounds each size is far below `u32::MAX`.
fn small(entries: u64) -> u32 {
    u32::try_from(entries).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::types;

    #[test]
    fn a_large_host_has_the_full_size() {
        let full = Sizes::of(Some(Bytes::mib(64 << 10)), 2);
        assert_eq!(full, Sizes::of(None, 2));
        assert_eq!((full.slots, full.places, full.sets), (4095, 4096, 2048));
        assert_eq!(
            (full.resolved, full.prefetched, full.readers, full.doing),
            (8192, 16384, 8192, 1024)
        );
    }

    #[test]
    fn a_small_host_can_still_watch_a_thousand_groups() {
        let sizes = Sizes::of(Some(Bytes::mib(256)), 2);
        assert!(sizes.slots > 1024);
        assert_eq!(
            sizes.resolved, 512,
            "an LRU map is not smaller than its CPUs hold back"
        );
    }

    #[test]
    fn more_memory_never_means_smaller_maps_and_no_map_is_beyond_its_programs() {
        for cpus in [1, 2, 64, 512, 8192] {
            let mut before = Sizes::of(Some(Bytes::ZERO), cpus);
            for mib in (0..40_000).step_by(97) {
                let now = Sizes::of(Some(Bytes::mib(mib)), cpus);
                let list = |s: Sizes| {
                    [
                        s.slots,
                        s.resolved,
                        s.prefetched,
                        s.readers,
                        s.doing,
                        s.places,
                        s.sets,
                        s.reuses,
                        s.asked_at,
                    ]
                };
                assert!(list(now)
                    .iter()
                    .zip(list(before))
                    .all(|(now, before)| *now >= before));
                assert!(now.places.is_power_of_two() && u64::from(now.places) <= MAX_PLACES);
                assert!(now.sets.is_power_of_two() && now.slots > 0);
                assert!(now.asked_at.is_power_of_two() && u64::from(now.reuses) <= MAX_REUSES);
                let curves =
                    now.reuses as usize * size_of::<types::reuse>() + now.asked_at as usize * 8;
                assert!(curves <= 2 << 20);
                assert!(now.lanes.is_power_of_two() && now.lanes >= cpus.min(MAX_LANES));
                let a_slot = u64::from(now.lanes) * size_of::<types::counters>() as u64;
                assert!(u64::from(now.slots) * a_slot <= 8 << 20);
                before = now;
            }
        }
    }
}
