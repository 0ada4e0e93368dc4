//! Shares: how much page cache each group is entitled to.
//!
//! Water-filling ([`water`]) divides the page cache that the groups could hold ([`entitlement`]) over their
//! demands ([`demand`]). Where groups share files, the owner's protection moves to the groups that are
//! charged ([`ownership`]). Memory that groups give by their colors goes first to the group that is satisfied with
//! it ([`gift`]). Memory that a group has no use for is lent by worth ([`lend`]).

pub(crate) mod demand;
pub(crate) mod entitlement;
pub(crate) mod gift;
pub(crate) mod lend;
pub(crate) mod ownership;
pub(crate) mod supply;
mod tree;
pub(crate) mod water;

use crate::decision::Member;
use crate::feedback::limits::Least;
use crate::snapshot::{Host, SharedFile};
use crate::units::Bytes;
use ownership::Charges;
use tree::{divide, nodes};

/// Memory to divide; `None` if the host could not be read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pool {
    /// Page cache that the groups could hold.
    pub cache: Option<Bytes>,
    /// All memory that they hold or could hold.
    pub memory: Option<Bytes>,
}

/// Measures the memory to divide, of which `reserve` is kept free, and sets the floor and the ceiling of each member's
/// limit.
pub(crate) fn measure(members: &mut [Member], host: &Host, reserve: Bytes) -> Pool {
    weigh(members);
    let cache = entitlement::capacity(host, members).map(|all| all - reserve);
    let memory = cache.map(|cache| entitlement::memory_of_groups(cache, members));
    for i in 0..members.len() {
        let above = members[i].parent.and_then(|p| members[p].decision.ceiling);
        let member = &mut members[i];
        member.decision.ceiling = member.group.ceiling().into_iter().chain(above).min();
        let fair = memory.map(|all| all.scale(member.decision.proportion));
        member.decision.least = Least::of(member.group, fair);
    }
    Pool { cache, memory }
}

pub(crate) fn weigh(members: &mut [Member]) {
    let proportions = proportions(members, |_| true);
    for (member, proportion) in members.iter_mut().zip(proportions) {
        member.decision.proportion = proportion;
    }
}

/// Divides the page cache. No group is entitled to anything if the host could not be read. `lending`: seconds
/// until the last loans have paid back, and seconds since the last step; `None`: nothing is lent.
pub(crate) fn entitle(
    members: &mut [Member],
    pool: Pool,
    shared: &[SharedFile],
    caps_count: bool,
    lending: Option<(&mut f64, f64)>,
) {
    let charges = Charges::of(members, shared);
    demand::set(members, &charges, caps_count);
    let total = pool.cache.unwrap_or_default();
    let given = if caps_count {
        gift::give(members, total)
    } else {
        None
    };
    let mut entitled = given.unwrap_or_else(|| divide(total, members, |m| m.memo.demand));
    let lending = lending.filter(|_| pool.cache.is_some());
    let lent = lending.and_then(|(settles_s, elapsed_s)| {
        lend::lend(members, total, &entitled, settles_s, elapsed_s)
    });
    entitled = lent.unwrap_or(entitled);
    let shifts = charges.granted(&entitled);
    for ((member, entitlement), shift) in members.iter_mut().zip(entitled).zip(shifts) {
        member.decision.entitlement = entitlement;
        member.decision.shift = shift;
    }
}

/// `memory.low` of each member. `memory`: all that the groups hold or could hold.
pub(crate) fn protect(host: &Host, members: &[Member], memory: Bytes) -> Vec<Option<Bytes>> {
    let shares = divide(memory, members, all_demand);
    entitlement::protections(host, members, &shares)
}

/// Demand of memory of any kind; `None`: unbounded.
pub(crate) fn all_demand(member: &Member) -> Option<Bytes> {
    Some(member.memo.demand? + member.non_file()?)
}

/// Each member's share of the weight of the active leaves, down the hierarchy.
pub(crate) fn proportions(members: &[Member], active: impl Fn(usize) -> bool) -> Vec<f64> {
    water::proportions(&nodes(members, active, |_| None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::Memo;
    use crate::feedback::activity::Activity;
    use crate::rates::Rates;
    use crate::snapshot::{Group, Memory};
    use crate::tests::testing::{self, group};
    use crate::units::Limit;

    #[test]
    fn a_tree_without_an_active_leaf_weighs_nothing() {
        let mut snapshot = testing::snapshot(1000, Vec::new());
        snapshot.groups = vec![
            group(1, None, "/t"),
            group(2, Some(1), "/t/a"),
            group(3, None, "/b"),
        ];
        let members = Member::all(&snapshot, Memo::new);
        assert_eq!(proportions(&members, |i| i == 2), [0.0, 0.0, 1.0]);
    }

    #[test]
    fn a_limit_of_an_ancestor_bounds_the_demand_below_it_and_the_rest_goes_to_others() {
        let mut snapshot = testing::snapshot(1000, Vec::new());
        let mut slice = group(1, None, "/slice");
        slice.weight = None;
        slice.knobs.max = Some(Limit::Bytes(Bytes::mib(100)));
        let (inner, other) = (group(2, Some(1), "/slice/a"), group(3, None, "/b"));
        snapshot.groups = vec![slice, inner, other];
        for group in &mut snapshot.groups[1..] {
            group.memory.file = Some(Bytes::mib(400));
            group.memory.current = Some(Bytes::mib(400));
        }
        let mut members = Member::all(&snapshot, Memo::new);
        let pool = measure(&mut members, &snapshot.host, Bytes::ZERO);
        entitle(&mut members, pool, &[], true, None);
        let entitled = |i: usize| members[i].decision.entitlement;
        assert_eq!(entitled(1), Bytes::mib(100));
        assert!(entitled(2) > Bytes::mib(500), "{}", entitled(2));
    }

    #[test]
    fn a_limit_of_an_ancestor_bounds_the_sum_of_what_groups_below_it_are_entitled_to() {
        let mut slice = group(1, None, "/slice");
        slice.weight = None;
        slice.memory.current = Some(Bytes::mib(120));
        slice.memory.file = Some(Bytes::mib(100));
        slice.knobs.max = Some(Limit::Bytes(Bytes::mib(120)));
        let mut groups = vec![slice];
        groups.extend((2..6).map(|id| group(id, Some(1), "/slice/g")));
        groups.push(group(6, None, "/b"));
        for group in &mut groups[1..] {
            group.memory.file = Some(Bytes::mib(400));
            group.memory.current = Some(Bytes::mib(400));
        }
        let snapshot = testing::snapshot(1000, groups);
        let mut members = Member::all(&snapshot, Memo::new);
        let pool = measure(&mut members, &snapshot.host, Bytes::ZERO);
        entitle(&mut members, pool, &[], true, None);
        assert_eq!(members[0].decision.entitlement, Bytes::mib(100));
        assert_eq!(members[1].decision.entitlement, Bytes::mib(25));
        let shares = divide(Bytes::mib(1000), &members, all_demand);
        assert_eq!(shares[0], Bytes::mib(120));
    }

    /// The state of a group that moved nothing before it read the bytes in its counter, in one second.
    fn woken(group: &Group) -> Memo {
        let after = |activity: Activity, read: u64| {
            let rates = Rates {
                read_per_s: Some(read as f64),
                written_per_s: Some(0.0),
                stalled: Some(0.0),
                ..Rates::default()
            };
            activity.after(&rates, 0.1, 1.0)
        };
        let read = group.traffic.read_bytes.unwrap_or_default();
        Memo {
            activity: after(after(Activity::default(), 0), read),
            ..Memo::new(group)
        }
    }

    #[test]
    fn a_thousand_idle_groups_take_nothing_from_the_busy_and_one_that_wakes_has_room_to_grow() {
        let mut busy = group(1, None, "/busy");
        busy.memory.file = Some(Bytes::mib(900));
        busy.memory.current = Some(Bytes::mib(900));
        busy.traffic.read_bytes = Some(1 << 30);
        let mut groups = vec![busy];
        groups.extend((2..1002).map(|id| group(id, None, "/idle")));
        let mut snapshot = testing::snapshot(1000, groups);
        for wakes in [false, true] {
            let read = if wakes { 1 << 20 } else { 0 };
            snapshot.groups[1].traffic.read_bytes = Some(read);
            let mut members = Member::all(&snapshot, woken);
            let pool = measure(&mut members, &snapshot.host, Bytes::ZERO);
            entitle(&mut members, pool, &[], true, None);
            let room = Bytes::mib(if wakes { 8 } else { 0 });
            let entitled = |i: usize| members[i].decision.entitlement;
            assert_eq!(entitled(1), room, "{wakes}");
            assert_eq!(Some(entitled(0) + room), pool.cache, "{wakes}");
        }
    }

    /// The demand, after 30 steps, of a contending group that writes 8 MB/s and reads `read`. Of its 100 MiB of page
    /// cache `dirty_mib` are dirty.
    fn demand_of_writer(read: f64, dirty_mib: u64, high: Limit) -> Option<Bytes> {
        let mut log = group(1, None, "/log");
        log.memory.file = Some(Bytes::mib(100));
        log.memory.current = Some(Bytes::mib(100));
        log.memory.file_dirty = Some(Bytes::mib(dirty_mib));
        log.memory.file_mapped = Some(Bytes::mib(1));
        log.knobs.high = Some(high);
        let snapshot = testing::snapshot(1000, vec![log]);
        let rates = Rates {
            read_per_s: Some(read),
            written_per_s: Some(8e6),
            stalled: Some(0.5),
            ..Rates::default()
        };
        let mut members = Member::all(&snapshot, |group| Memo {
            activity: Activity::default().after(&rates, 0.1, 1.0),
            ..Memo::new(group)
        });
        let charges = Charges::of(&members, &[]);
        demand::set(&mut members, &charges, true);
        let first = members[0].memo.demand;
        (0..30).for_each(|_| demand::set(&mut members, &charges, true));
        let now = members[0].memo.demand;
        assert!(now.is_none() || first > now, "it falls in steps");
        now
    }

    #[test]
    fn a_log_that_is_synced_demands_little_and_any_other_writer_all() {
        let demands = |read, dirty_mib| demand_of_writer(read, dirty_mib, Limit::Max);
        assert_eq!(demands(0.0, 1), Some(Bytes::mib(12 + 8 + 1)));
        assert_eq!(demands(0.0, 6), None, "dirty throttling holds it");
        assert_eq!(demands(1e6, 1), None, "it reads, too");
        let limited = demand_of_writer(0.0, 1, Limit::Bytes(Bytes::mib(200)));
        assert_eq!(limited, None, "its dirty limit follows its limit");
    }

    #[test]
    fn a_group_that_was_never_read_demands_nothing() {
        let mut snapshot = testing::snapshot(1000, [1, 2].map(|id| group(id, None, "/g")).into());
        snapshot.groups[0].memory.file = Some(Bytes::mib(900));
        snapshot.groups[1].memory = Memory::default();
        let mut members = Member::all(&snapshot, Memo::new);
        let pool = measure(&mut members, &snapshot.host, Bytes::ZERO);
        entitle(&mut members, pool, &[], true, None);
        assert_eq!(members[1].memo.demand, Some(Bytes::ZERO));
        assert_eq!(Some(members[0].decision.entitlement), pool.cache);
    }
}
