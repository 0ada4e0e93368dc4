//! Entitlements and thresholds: how much page cache each group should hold.
//!
//! They follow the paper's equation 1, `threshold_i = NR_FILE_PAGES * proportion_i`, with two additions.
//! First, the division covers what the page cache could hold, not only what it holds now: the host's page
//! cache plus its free memory above the high watermark, less a reserve for the programs of unmanaged groups.
//! Second, a group that has no use for its share lends it: the division is a weighted water-filling
//! ([`crate::share::water`]) over demands.
//!
//! `memory.low` enforces the threshold. It covers all memory of a group, so memory other than page cache is
//! added to it (`mm/memcontrol.c`, `mem_cgroup_calculate_protection`). Where the kernel could swap that
//! memory out, it is added only up to the group's share of all memory, so that a leaking group is not
//! protected ahead of all others. Without swap all of it is added, because the kernel cannot reclaim it, and
//! the group's page cache would lose its protection instead.
//!
//! A subtree that root delegated divides what its topmost group is entitled to. Its groups are protected
//! against groups outside only if root gave that group a weight. Otherwise a user could make any number of
//! groups, and each would raise the protection of root's slices.
//!
//! An ancestor's `low` is the sum of `min(usage, low)` of its children: with `memory_recursiveprot`,
//! protection that the children do not claim is handed to them in proportion to their usage, which would undo
//! the weights. The operator's own value, as far as it protects unmanaged groups below, is added to the sum:
//! otherwise the children would claim more than the ancestor has, and the kernel would cut them all.

use crate::decision::Member;
use crate::snapshot::{Group, Host, WeightSource};
use crate::units::{Bytes, Limit};

/// Unmanaged page cache stays out of the division up to all memory divided by this.
const RESERVE_OF_MEMORY: u64 = 16;
/// The same for what could be page cache. Where most memory is not page cache, [`RESERVE_OF_MEMORY`] alone
/// would leave all page cache to unmanaged groups.
const RESERVE_OF_CACHE: u64 = 8;

/// Page cache that the managed groups could hold together. `None` if the host could not be read.
pub(crate) fn capacity(host: &Host, members: &[Member]) -> Option<Bytes> {
    let file = host.file?;
    let most = file + host.spare()?;
    let managed: Bytes = leaves(members).filter_map(Member::file).sum();
    let of_memory = host.total.map(|total| Bytes(total.0 / RESERVE_OF_MEMORY));
    let bounds = of_memory
        .into_iter()
        .chain([Bytes(most.0 / RESERVE_OF_CACHE)]);
    let reserve = bounds.fold(file - managed, Bytes::min);
    Some((most - reserve).page_aligned())
}

/// All memory that the managed groups hold or could hold: `capacity` of page cache, and their other memory.
pub(crate) fn memory_of_groups(capacity: Bytes, members: &[Member]) -> Bytes {
    capacity + leaves(members).filter_map(Member::non_file).sum()
}

fn leaves<'a>(members: &'a [Member<'a>]) -> impl Iterator<Item = &'a Member<'a>> {
    members.iter().filter(|m| m.leaf)
}

/// True if the kernel could swap out the group's memory.
pub(crate) fn swappable(host: &Host, group: &Group) -> bool {
    let may_swap = group.knobs.swap_max != Some(Limit::Bytes(Bytes::ZERO));
    may_swap && host.swap.is_some_and(|swap| swap > Bytes::ZERO)
}

/// The part of a group's memory other than page cache that `memory.low` covers. `fair`: its share of all
/// memory, including what others do not need.
fn protected_non_file(host: &Host, group: &Group, fair: Bytes) -> Option<Bytes> {
    let other = group.non_file()?;
    Some(if swappable(host, group) {
        other.min(fair)
    } else {
        other
    })
}

/// True for each group that is protected against groups outside its subtree. It is root's, or it
/// lies in a delegated subtree that root gave a weight, and the tenant did not take over its
/// `memory.high`.
fn vouched(members: &[Member]) -> Vec<bool> {
    let mut vouched = Vec::with_capacity(members.len());
    for member in members {
        vouched.push(match member.parent {
            _ if !member.group.delegated => true,
            _ if member.group.knobs.foreign.high => false,
            None => false,
            // Below the topmost delegated group the answer is the parent's.
            Some(p) if members[p].group.delegated => vouched[p],
            Some(p) => {
                let parent = members[p].group;
                parent.weight.is_some() && parent.weight_source != WeightSource::Default
            }
        });
    }
    vouched
}

/// `memory.low` of every group: for a leaf its threshold plus other memory, for an inner group or ancestor
/// the sum of what its children claim. `shares`: each group's share of all memory. `None` where something is
/// unknown.
pub(crate) fn protections(host: &Host, members: &[Member], shares: &[Bytes]) -> Vec<Option<Bytes>> {
    let vouched = vouched(members);
    let mut low: Vec<Option<Bytes>> = vec![None; members.len()];
    let mut claimed: Vec<Option<Bytes>> = vec![Some(Bytes::ZERO); members.len()];
    // Of the members below each: the memory they hold, and what the operator protects of it.
    let mut below = vec![(Bytes::ZERO, Bytes::ZERO); members.len()];
    for (i, member) in members.iter().enumerate().rev() {
        if !vouched[i] {
            low[i] = Some(Bytes::ZERO);
            continue;
        }
        let group = member.group;
        let operators = group.knobs.operator.low.filter(|_| !group.delegated);
        let operators = operators.map_or(Bytes::ZERO, |low| low.bytes().unwrap_or(Bytes(u64::MAX)));
        let current = group.memory.current;
        low[i] = if member.leaf {
            protected_non_file(host, group, shares[i])
                .map(|other| (other + member.decision.threshold()).page_aligned())
        } else {
            let (held, protected) = below[i];
            let unmanaged = current.unwrap_or_default() - held;
            let beside = (operators - protected).min(unmanaged).page_aligned();
            claimed[i].map(|sum| sum + beside)
        };
        // The value in force counts: a foreign value is the user's. Below a delegated directory the file is
        // the tenant's, who could raise the protection of root's slices with it, so there our own value
        // counts.
        let in_force = if group.delegated {
            low[i]
        } else if group.knobs.foreign.low {
            group.knobs.low.and_then(Limit::bytes)
        } else {
            low[i].map(|low| low.max(operators))
        };
        if let Some(p) = member.parent {
            // An unreadable child claims what it last claimed. That is unknown here, so its parent is not
            // lowered. A tenant could hide what it holds, so its unreadable groups claim their threshold and
            // no more.
            let held = current.unwrap_or_default();
            below[p].0 = below[p].0 + held;
            below[p].1 = below[p].1 + operators.min(held);
            let never_read = member.leaf && member.memo.file.is_none() && group.knobs.low.is_none();
            claimed[p] = match (claimed[p], in_force, current) {
                // A group without a memory controller claims nothing.
                (sum, _, None) if never_read => sum,
                (Some(sum), Some(low), Some(current)) => Some(sum + low.min(current)),
                (Some(sum), low, _) if group.delegated => {
                    Some(sum + low.unwrap_or(member.decision.threshold()))
                }
                _ => None,
            };
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::Memo;
    use crate::snapshot::{Memory, Snapshot};
    use crate::tests::testing::{self, group};

    /// Protections where each group's share of memory is 100 MiB.
    fn protections_of(snapshot: &Snapshot, thresholds: &[Bytes]) -> Vec<Option<Bytes>> {
        let mut members = Member::all(snapshot, Memo::new);
        for (member, &threshold) in members.iter_mut().zip(thresholds) {
            member.decision.entitlement = threshold;
        }
        let shares = vec![Bytes::mib(100); members.len()];
        protections(&snapshot.host, &members, &shares)
    }

    #[test]
    fn a_leak_is_protected_up_to_the_groups_share_where_it_could_be_swapped_out() {
        let mut snapshot = testing::snapshot(1000, vec![group(1, None, "/leak")]);
        snapshot.groups[0].memory.current = Some(Bytes::mib(610));
        snapshot.groups[0].memory.file = Some(Bytes::mib(10));
        let low = |snapshot: &Snapshot| protections_of(snapshot, &[Bytes::mib(5)])[0];
        assert_eq!(
            low(&snapshot),
            Some(Bytes::mib(605)),
            "without swap nothing can take it"
        );
        snapshot.host.swap = Some(Bytes::mib(500));
        assert_eq!(low(&snapshot), Some(Bytes::mib(105)));
        snapshot.groups[0].knobs.swap_max = Some(Limit::Bytes(Bytes::ZERO));
        assert_eq!(
            low(&snapshot),
            Some(Bytes::mib(605)),
            "this group may not swap"
        );
    }

    #[test]
    fn self_made_groups_raise_no_protection_of_roots_slices_until_root_gives_their_subtree_a_weight(
    ) {
        let mut slice = group(1, None, "/user.slice");
        slice.weight = None;
        let mut user = group(2, Some(1), "/user.slice/user@1000.service");
        user.memory.current = Some(Bytes::mib(95));
        let mut made = group(3, Some(2), "/user.slice/user@1000.service/docker-1.scope");
        made.delegated = true;
        made.memory.current = Some(Bytes::mib(90));
        let mut snapshot = testing::snapshot(1000, vec![slice, user, made]);
        let thresholds = [Bytes::ZERO, Bytes::ZERO, Bytes::mib(50)];
        let none = Some(Bytes::ZERO);
        assert_eq!(protections_of(&snapshot, &thresholds), [none, none, none]);
        snapshot.groups[1].weight_source = WeightSource::Config;
        let some = Some(Bytes::mib(90));
        let own = Some(Bytes::mib(140));
        assert_eq!(protections_of(&snapshot, &thresholds), [some, some, own]);
    }

    #[test]
    fn a_tenant_raises_nobodys_protection_by_its_own_files_and_none_is_protected_that_has_no_limit()
    {
        let user = group(1, None, "/user@1000.service");
        let mut inner = group(2, Some(1), "/user@1000.service/app.slice");
        inner.weight = None;
        let made = group(3, Some(2), "/user@1000.service/app.slice/docker-1.scope");
        let mut snapshot = testing::snapshot(1000, vec![user, inner, made]);
        for group in &mut snapshot.groups {
            group.memory.current = Some(Bytes::mib(400));
            group.memory.file = Some(Bytes::mib(400));
        }
        snapshot.groups[0].weight_source = WeightSource::Config;
        for delegated in &mut snapshot.groups[1..] {
            delegated.delegated = true;
        }
        let thresholds = [Bytes::mib(50); 3];
        let some = Some(Bytes::mib(50));
        assert_eq!(protections_of(&snapshot, &thresholds), [some; 3]);
        for group in &mut snapshot.groups[1..] {
            group.knobs.operator.low = Some(Limit::Max);
        }
        assert_eq!(protections_of(&snapshot, &thresholds)[0], some);
        let mut unmanaged = snapshot.clone();
        unmanaged.groups[2].memory.current = Some(Bytes::mib(100));
        unmanaged.groups[2].memory.file = Some(Bytes::mib(100));
        assert_eq!(protections_of(&unmanaged, &thresholds)[0], some);
        for group in &mut snapshot.groups[1..] {
            group.knobs.low = Some(Limit::Bytes(Bytes::mib(300)));
            group.knobs.foreign.low = true;
        }
        assert_eq!(protections_of(&snapshot, &thresholds)[0], some);
        let mut hidden = snapshot.clone();
        hidden.groups[2].memory.current = None;
        assert_eq!(protections_of(&hidden, &thresholds)[0], some);
        snapshot.groups[2].knobs.foreign.high = true;
        assert_eq!(protections_of(&snapshot, &thresholds)[0], Some(Bytes::ZERO));
    }

    /// Two managed groups, which hold 110 MiB, and use 60 MiB of what they are entitled to.
    fn two_below_an_ancestor() -> (Snapshot, [Bytes; 3]) {
        let mut app = group(1, None, "/app");
        app.weight = None;
        let children = [(2, "/app/a"), (3, "/app/b")].map(|(id, path)| group(id, Some(1), path));
        let groups = [app].into_iter().chain(children).collect();
        let mut snapshot = testing::snapshot(1000, groups);
        snapshot.groups[1].memory.current = Some(Bytes::mib(10));
        snapshot.groups[1].memory.file = Some(Bytes::mib(8));
        snapshot.groups[2].memory.current = Some(Bytes::mib(100));
        snapshot.groups[2].memory.file = Some(Bytes::mib(100));
        (snapshot, [Bytes::ZERO, Bytes::mib(50), Bytes::mib(50)])
    }

    #[test]
    fn an_ancestor_claims_what_its_children_use_and_no_more() {
        let (snapshot, thresholds) = two_below_an_ancestor();
        let low = protections_of(&snapshot, &thresholds);
        assert_eq!(low, [60, 52, 50].map(|mib| Some(Bytes::mib(mib))));
    }

    #[test]
    fn what_the_operator_protects_of_unmanaged_memory_is_added_to_what_managed_groups_claim() {
        let (mut snapshot, thresholds) = two_below_an_ancestor();
        snapshot.groups[0].memory.current = Some(Bytes::mib(200));
        let low = |snapshot: &Snapshot, operators: Limit| {
            let mut snapshot = snapshot.clone();
            snapshot.groups[0].knobs.operator.low = Some(operators);
            protections_of(&snapshot, &thresholds)[0]
        };
        let some = |mib| Limit::Bytes(Bytes::mib(mib));
        assert_eq!(low(&snapshot, some(70)), Some(Bytes::mib(60 + 70)));
        let no_more_than_they_hold = low(&snapshot, Limit::Max);
        assert_eq!(no_more_than_they_hold, Some(Bytes::mib(60 + 90)));
        // The operator's protection of a managed group is none of the unmanaged groups.
        snapshot.groups[2].knobs.operator.low = Some(some(40));
        assert_eq!(low(&snapshot, some(70)), Some(Bytes::mib(60 + 30)));
    }

    #[test]
    fn a_group_without_a_memory_controller_leaves_the_value_of_its_parent_known() {
        let (mut snapshot, thresholds) = two_below_an_ancestor();
        let without = &mut snapshot.groups[1];
        without.memory = Memory::default();
        without.knobs.low = None;
        let low = protections_of(&snapshot, &thresholds);
        assert_eq!(low, [Some(Bytes::mib(50)), None, Some(Bytes::mib(50))]);
    }

    #[test]
    fn an_unreadable_child_does_not_lower_its_parent() {
        let mut app = group(1, None, "/app");
        app.weight = None;
        let mut blind = group(2, Some(1), "/app/a");
        blind.memory.current = None;
        let snapshot = testing::snapshot(1000, vec![app, blind]);
        let low = protections_of(&snapshot, &[Bytes::ZERO, Bytes::mib(1)]);
        assert_eq!(low, [None, None]);
    }

    /// Capacity of a host with 1600 MiB of memory. `host_mib`: page cache, free memory and high watermark.
    /// `managed_mib`: page cache of a managed group.
    fn capacity_beside_strangers(host_mib: [u64; 3], managed_mib: u64) -> Option<Bytes> {
        let mut snapshot = testing::snapshot(1600, vec![group(1, None, "/a")]);
        let [file, free, high_watermark] = host_mib.map(|mib| Some(Bytes::mib(mib)));
        snapshot.host.file = file;
        snapshot.host.free = free;
        snapshot.host.high_watermark = high_watermark;
        snapshot.groups[0].memory.file = Some(Bytes::mib(managed_mib));
        let members = Member::all(&snapshot, Memo::new);
        let unread = Host {
            file: None,
            ..snapshot.host
        };
        assert_eq!(capacity(&unread, &members), None);
        capacity(&snapshot.host, &members)
    }

    #[test]
    fn the_page_cache_of_strangers_is_reserved_up_to_a_sixteenth_of_memory() {
        let got = capacity_beside_strangers([900, 100, 50], 400);
        assert_eq!(got, Some(Bytes::mib(900 + 50 - 100)));
    }

    #[test]
    fn strangers_keep_an_eighth_of_the_page_cache_where_there_could_be_little() {
        let got = capacity_beside_strangers([150, 20, 10], 80);
        assert_eq!(got, Some(Bytes::mib(160 - 20)));
        let no_more_than_they_have = capacity_beside_strangers([150, 20, 10], 145);
        assert_eq!(no_more_than_they_have, Some(Bytes::mib(160 - 5)));
    }
}
