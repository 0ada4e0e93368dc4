//! Rules for `memory.high` of a group.
//!
//! Floors: a limit never cuts anonymous, kernel or shared memory, nor mapped page cache (code). A group
//! cannot raise its own floor beyond its share of memory by weight: mapped page cache above that share, and
//! above a modest amount for code, counts as page cache like any other.
//!
//! A limit leaves room for memory that was swapped out under it. Otherwise each step would see less memory in
//! use, lower the limit by that amount, and make the kernel swap out more. This room, too, ends at the
//! group's share of memory.
//!
//! Ceiling: the operator's `memory.high` or `memory.max`.
//!
//! A group that cannot be read keeps its limit for a while, with room for known growth. Then the limit is
//! lifted: no order is better than a blind one.

use crate::snapshot::{Group, CODE};
use crate::units::{Bytes, Limit};

/// Every group under a limit may keep this much page cache.
const FLOOR: Bytes = Bytes(512 << 10);
/// Room above share and floor, so that a limit does not bite between two steps.
pub(crate) const HEADROOM: Bytes = Bytes(512 << 10);
/// A limit leaves at least this part of the page cache in each step, so that the kernel reclaims the excess
/// and the group need not wait for it.
const DESCENT: f64 = 0.75;
/// The same for memory that has to be swapped out, which falls more slowly. If swap is full, this slows the
/// group down and does not stop it.
const SWAP_DESCENT: f64 = 0.95;
/// Seconds for which a group that cannot be read keeps its limit.
const BLIND_S: f64 = 10.0;

/// The least that a limit leaves a group, whatever its share of page cache is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Least {
    /// Memory other than page cache, and room for its swapped-out part. `None` if the group could not be
    /// read.
    pub other: Option<Bytes>,
    /// Page cache that must not be taken away.
    pub file: Bytes,
}

impl Least {
    /// The floor of a group. `fair`: its share of all memory; `None`: unknown, and bounds nothing.
    pub(crate) fn of(group: &Group, fair: Option<Bytes>) -> Least {
        let other = group.non_file().map(|other| {
            let with_swapped = other + group.memory.swap.unwrap_or_default();
            other.max(fair.map_or(with_swapped, |fair| with_swapped.min(fair)))
        });
        // If the mapped part is unknown, all its page cache may be mapped.
        let mapped = group.memory.file_mapped.or(group.memory.file);
        let most = fair.map_or(Bytes(u64::MAX), |fair| fair.max(CODE));
        let file = mapped.unwrap_or_default().min(most).max(FLOOR);
        Least { other, file }
    }
}

/// The limit for this share of page cache. `grew`: by how much other memory grew in the last
/// period; it may grow twice as much in the next. `None` where the group could not be read.
pub(crate) fn limit(group: &Group, least: &Least, share: Bytes, grew: Bytes) -> Option<Limit> {
    // Swapped-out memory has become page cache by now. If both counted, the limit would rise step by step.
    let excess = group.non_file()? + group.memory.file?.scale(DESCENT);
    let most = (least.other? + share.max(least.file)).max(excess);
    Some(Limit::Bytes((most + HEADROOM + grew + grew).page_aligned()))
}

/// The least limit of a group in a step that leaves it at least `file` of page cache, and `other` of other memory.
/// `swaps`: the kernel can take that, too. `None` if the group could not be read.
pub(crate) fn holds(
    group: &Group,
    least: &Least,
    other: Bytes,
    file: Bytes,
    swaps: bool,
) -> Option<Bytes> {
    let other = if swaps {
        other.scale(SWAP_DESCENT)
    } else {
        other
    };
    let file = file.max(group.memory.file?.scale(DESCENT));
    Some((other + file.max(least.file.min(CODE)) + HEADROOM).page_aligned())
}

/// The limit of a group of which too little has been known for `blind_s` seconds. `None`: leave the limit as
/// it is.
pub(crate) fn blind_limit(group: &Group, least: &Least, blind_s: f64) -> Option<Limit> {
    if blind_s > BLIND_S {
        return Some(Limit::Max);
    }
    let now = group.knobs.high?.bytes()?;
    let least = least.other? + least.file + HEADROOM;
    (least > now).then_some(Limit::Bytes(least.page_aligned()))
}

/// True if a larger limit would change nothing: the group stands at `ceiling`, the most page cache that the operator
/// allows it, or its page cache is far smaller than its limit allows and has few dirty pages. Dirty pages count because
/// the kernel's dirty limits scale with the limit. `share`: page cache that counts as its limit while it has none;
/// `None`: without a limit nothing is known.
pub(crate) fn leaves_share_unused(
    group: &Group,
    ceiling: Option<Bytes>,
    share: Option<Bytes>,
) -> bool {
    let (Some(high), Some(other), Some(file)) =
        (group.knobs.high, group.non_file(), group.memory.file)
    else {
        return false;
    };
    let Some(room) = high.bytes().map(|high| high - other).or(share) else {
        return false;
    };
    let little = |dirty| file < room.scale(0.85) && dirty < (room - (file - dirty)).scale(0.05);
    ceiling.is_some_and(|most| room >= most) || group.memory.file_dirty.is_some_and(little)
}

/// True if a smaller limit could not be enforced. `for_others`: page cache it holds for others.
pub(crate) fn stands_at_floor(group: &Group, least: &Least, for_others: Bytes) -> bool {
    let (Some(Limit::Bytes(high)), Some(other)) = (group.knobs.high, least.other) else {
        return false;
    };
    high <= other + least.file + for_others + HEADROOM
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::testing::group;

    fn holding(other_mib: u64, file_mib: u64) -> Group {
        let mut g = group(1, None, "/g");
        g.memory.file = Some(Bytes::mib(file_mib));
        g.memory.current = Some(Bytes::mib(file_mib + other_mib));
        g
    }

    #[test]
    fn a_limit_leaves_other_memory_and_mapped_pages_alone() {
        let mut g = holding(300, 20);
        g.memory.file_mapped = Some(Bytes::mib(15));
        let got = lowest_limit(&g, None);
        assert!(got >= Bytes::mib(315), "{got}");
        g.memory.file_mapped = None;
        let got = lowest_limit(&g, None);
        assert!(
            got >= Bytes::mib(320),
            "unknown mapped pages may be all: {got}"
        );
    }

    /// The limit of a group that is entitled to no page cache, if its share of memory is `fair`.
    fn lowest_limit(g: &Group, fair: Option<Bytes>) -> Bytes {
        let limit = limit(g, &Least::of(g, fair), Bytes::ZERO, Bytes::ZERO);
        limit.unwrap().bytes().unwrap()
    }

    #[test]
    fn mapping_its_cache_lifts_no_limit_beyond_the_groups_share_of_memory() {
        let mut g = holding(0, 300);
        g.memory.file_mapped = Some(Bytes::mib(300));
        let honest = holding(0, 300);
        let descent = lowest_limit(&honest, Some(Bytes::mib(50)));
        assert_eq!(lowest_limit(&g, Some(Bytes::mib(50))), descent);
        let small = |fair| Least::of(&g, Some(Bytes::mib(fair))).file;
        assert_eq!(small(50), Bytes::mib(50));
        assert_eq!(small(1), CODE, "code keeps a modest amount");
    }

    #[test]
    fn swapping_out_under_a_limit_does_not_lower_it_within_the_groups_share_of_memory() {
        let mut g = holding(200, 100);
        g.memory.swap = Some(Bytes::ZERO);
        let limit_of = |g: &Group, fair: Option<Bytes>| {
            let limit = limit(g, &Least::of(g, fair), Bytes::mib(100), Bytes::ZERO);
            limit.unwrap().bytes().unwrap()
        };
        let fair = Some(Bytes::mib(400));
        let before = limit_of(&g, fair);
        g.memory.current = Some(Bytes::mib(150));
        g.memory.swap = Some(Bytes::mib(150));
        assert_eq!(limit_of(&g, fair), before);
        assert_eq!(
            limit_of(&g, None),
            before,
            "a share not known bounds nothing"
        );
        g.memory.swap = Some(Bytes::mib(5000));
        let lifted = limit_of(&g, fair);
        assert!(
            lifted <= before + Bytes::mib(200),
            "swap lifts it to the share at most: {lifted}"
        );
    }

    #[test]
    fn page_cache_dropped_between_two_reads_does_not_hide_anonymous_memory() {
        let mut g = holding(0, 300);
        g.memory.anon = Some(Bytes::mib(200));
        g.memory.current = Some(Bytes::mib(210));
        assert_eq!(g.non_file(), Some(Bytes::mib(200)));
    }

    #[test]
    fn page_cache_far_below_the_limit_leaves_a_share_unused_whatever_other_memory_there_is() {
        let limited = |file_mib| {
            let mut g = holding(2000, file_mib);
            g.knobs.high = Some(Limit::Bytes(Bytes::mib(2100)));
            g
        };
        assert!(leaves_share_unused(&limited(10), None, None));
        assert!(!leaves_share_unused(&limited(90), None, None));
        let mut dirty = limited(10);
        dirty.memory.file_dirty = Some(Bytes::mib(10));
        assert!(!leaves_share_unused(&dirty, None, None));
    }

    #[test]
    fn a_group_at_its_memory_max_leaves_a_larger_share_unused() {
        let mut g = holding(2000, 99);
        g.knobs.high = Some(Limit::Bytes(Bytes::mib(2100)));
        let unused = |max_mib| {
            let mut g = g.clone();
            g.knobs.max = Some(Limit::Bytes(Bytes::mib(max_mib)));
            leaves_share_unused(&g, g.ceiling(), None)
        };
        assert_eq!([2100, 2200].map(unused), [true, false]);
    }

    #[test]
    fn without_a_limit_the_given_share_counts_and_without_a_share_nothing_is_known() {
        let unused = |file_mib, share| leaves_share_unused(&holding(2000, file_mib), None, share);
        let share = Some(Bytes::mib(100));
        assert!(unused(10, share) && !unused(90, share));
        assert!(!unused(10, None) && !unused(90, None));
    }

    #[test]
    fn a_blind_limit_makes_room_and_ends() {
        let mut g = holding(100, 10);
        g.knobs.high = Some(Limit::Bytes(Bytes::mib(50)));
        let blind = |g: &Group, seconds| blind_limit(g, &Least::of(g, None), seconds);
        let room = blind(&g, 1.0).unwrap().bytes().unwrap();
        assert!(room > Bytes::mib(100));
        g.memory.current = None;
        assert_eq!(blind(&g, 1.0), None);
        assert_eq!(blind(&g, 60.0), Some(Limit::Max));
    }

    #[test]
    fn the_operators_limits_are_the_ceiling() {
        let mut g = holding(10, 50);
        assert_eq!(g.ceiling(), None);
        g.knobs.max = Some(Limit::Bytes(Bytes::mib(100)));
        assert_eq!(g.ceiling(), Some(Bytes::mib(90)));
        g.knobs.operator.high = Some(Limit::Bytes(Bytes::mib(60)));
        assert_eq!(g.ceiling(), Some(Bytes::mib(50)));
    }
}
