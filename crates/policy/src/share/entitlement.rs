//! Entitlements and thresholds: how much page cache each group should hold.
//!
//! The paper's equation 1, `threshold_i = NR_FILE_PAGES * proportion_i`, with two additions. What
//! is divided is what the page cache could hold, not only what it holds at this moment: the host's
//! page cache plus its free memory above the high watermark, less a reserve for the programs of
//! groups nobody manages. And a group that has no use for its share lends it: the division is a
//! weighted water-filling ([`crate::share::water`]) over demands.
//!
//! The threshold is enforced by `memory.low`, which covers all memory of a group, so the memory
//! that is not page cache is added to it (`mm/memcontrol.c`, `mem_cgroup_calculate_protection`). Where
//! the kernel could swap that memory out, it is added up to the group's share of all memory only: a group
//! that leaks is not protected ahead of everybody else. Without swap it is added whole, because the kernel
//! cannot reclaim it, and the group's page cache would lose its protection instead.
//!
//! A subtree that root delegated divides what its topmost group is entitled to. Its groups are protected
//! against groups outside only where root gave that group a weight: a user could make any number of
//! groups otherwise, and each would raise the protection of root's slices.
//!
//! An ancestor's `low` is the sum of `min(usage, low)` of its children: with
//! `memory_recursiveprot`, protection that the children do not claim is handed to them in
//! proportion to their usage, which would undo the weights.

use std::collections::BTreeMap;

use crate::share::water::Node;
use crate::snapshot::{Group, GroupId, Host, Snapshot, WeightSource};
use crate::units::{Bytes, Limit};

/// A group may grow this much beyond a quarter of what it holds within one period before its
/// entitlement follows.
const GROWTH: Bytes = Bytes::mib(8);

/// Groups nobody manages keep at most this part of memory out of the division, ...
const RESERVE_OF_MEMORY: u64 = 16;
/// ... and of what could be page cache: where most memory is something else, the first alone would
/// leave them all of it.
const RESERVE_OF_CACHE: u64 = 8;

/// The snapshot's groups as a tree: indices instead of ids.
#[derive(Debug, Clone)]
pub struct Tree {
    /// Parent of each group, in the snapshot's order.
    pub parent: Vec<Option<usize>>,
    /// Whether a group is managed and has no children in the snapshot.
    pub leaf: Vec<bool>,
}

impl Tree {
    /// From a snapshot; a parent that is missing or comes after its child counts as the root.
    pub fn of(snapshot: &Snapshot) -> Tree {
        let mut index: BTreeMap<GroupId, usize> = BTreeMap::new();
        let mut parent = Vec::with_capacity(snapshot.groups.len());
        let mut leaf: Vec<bool> = snapshot.groups.iter().map(|g| g.weight.is_some()).collect();
        for (i, group) in snapshot.groups.iter().enumerate() {
            let p = group.parent.and_then(|id| index.get(&id).copied());
            if let Some(p) = p {
                leaf[p] = false;
            }
            parent.push(p);
            index.insert(group.id, i);
        }
        Tree { parent, leaf }
    }

    /// Nodes for [`crate::share::water`], with only the groups that `active` names; a subtree without an
    /// active leaf weighs nothing.
    pub fn nodes(
        &self,
        groups: &[Group],
        active: impl Fn(usize) -> bool,
        demand: impl Fn(usize) -> Option<Bytes>,
    ) -> Vec<Node> {
        let mut alive = vec![false; groups.len()];
        for i in (0..groups.len()).rev() {
            alive[i] |= self.leaf[i] && active(i);
            if let (true, Some(p)) = (alive[i], self.parent[i]) {
                alive[p] = true;
            }
        }
        (0..groups.len())
            .map(|i| {
                let weight = match groups[i].weight {
                    _ if !alive[i] => Some(0),
                    Some(weight) => Some(u64::from(weight.get())),
                    None => None,
                };
                let demand = if alive[i] {
                    demand(i)
                } else {
                    Some(Bytes::ZERO)
                };
                Node {
                    parent: self.parent[i],
                    weight,
                    floor: Bytes::ZERO,
                    demand,
                }
            })
            .collect()
    }
}

/// Page cache that the managed groups could hold together. `None` if the host could not be read.
pub fn capacity(host: &Host, groups: &[Group], tree: &Tree) -> Option<Bytes> {
    let file = host.file?;
    let most = file + host.spare()?;
    let managed: Bytes = leaves(groups, tree).filter_map(|g| g.memory.file).sum();
    let reserve = (file - managed).min(Bytes(most.0 / RESERVE_OF_CACHE));
    let reserve = host.total.map_or(reserve, |total| {
        reserve.min(Bytes(total.0 / RESERVE_OF_MEMORY))
    });
    Some((most - reserve).page_aligned())
}

fn leaves<'a>(groups: &'a [Group], tree: &'a Tree) -> impl Iterator<Item = &'a Group> {
    groups
        .iter()
        .zip(&tree.leaf)
        .filter(|(_, &leaf)| leaf)
        .map(|(group, _)| group)
}

/// What a group that is not held back may want next: what it holds and room to grow.
pub fn growing_demand(held: Bytes) -> Bytes {
    held + held.scale(0.25) + GROWTH
}

fn in_bytes(limit: Limit) -> Bytes {
    limit.bytes().unwrap_or(Bytes(u64::MAX))
}

/// All memory of a group that is not page cache: anonymous, kernel, shmem, sockets. The two
/// gauges are not read at the same instant; anonymous memory is there in any case.
pub fn non_file(group: &Group) -> Option<Bytes> {
    let other = group.memory.current? - group.memory.file?;
    Some(other.max(group.memory.anon.unwrap_or_default()))
}

/// All memory that the managed groups hold or could hold: page cache up to `capacity`, and other.
pub fn memory_of_groups(capacity: Bytes, groups: &[Group], tree: &Tree) -> Bytes {
    capacity + leaves(groups, tree).filter_map(non_file).sum()
}

/// What `memory.low` covers of a group's memory other than page cache. `fair`: its share of all memory,
/// what others do not need included.
fn protected_non_file(host: &Host, group: &Group, fair: Bytes) -> Option<Bytes> {
    let other = non_file(group)?;
    let may_swap = group.knobs.swap_max != Some(Limit::Bytes(Bytes::ZERO));
    let swappable = may_swap && host.swap.is_some_and(|swap| swap > Bytes::ZERO);
    Some(if swappable { other.min(fair) } else { other })
}

/// Whether each group is protected against groups outside its subtree: it is root's, or lies in a
/// delegated subtree that root gave a weight.
fn vouched(groups: &[Group], tree: &Tree) -> Vec<bool> {
    let mut vouched = Vec::with_capacity(groups.len());
    for (i, group) in groups.iter().enumerate() {
        let parent = tree.parent[i];
        vouched.push(match parent {
            _ if !group.delegated => true,
            None => false,
            // Below the topmost delegated group the answer is the parent's.
            Some(p) if groups[p].delegated => vouched[p],
            Some(p) => {
                groups[p].weight.is_some() && groups[p].weight_source != WeightSource::Default
            }
        });
    }
    vouched
}

/// `memory.low` of every group: leaves at threshold plus other memory, inner groups and ancestors
/// at the sum of what their children claim. `shares`: each group's share of all memory. `None` where
/// something is unknown.
pub fn protections(
    host: &Host,
    groups: &[Group],
    tree: &Tree,
    thresholds: &[Bytes],
    shares: &[Bytes],
) -> Vec<Option<Bytes>> {
    let vouched = vouched(groups, tree);
    let mut low: Vec<Option<Bytes>> = vec![None; groups.len()];
    let mut claimed: Vec<Option<Bytes>> = vec![Some(Bytes::ZERO); groups.len()];
    for i in (0..groups.len()).rev() {
        let group = &groups[i];
        low[i] = match tree.leaf[i] {
            _ if !vouched[i] => Some(Bytes::ZERO),
            true => protected_non_file(host, group, shares[i])
                .map(|other| (other + thresholds[i]).page_aligned()),
            false => claimed[i],
        };
        if !vouched[i] {
            continue;
        }
        // What is in force counts: a foreign value is the user's.
        let in_force = if group.knobs.foreign.low {
            group.knobs.low.and_then(Limit::bytes)
        } else {
            let operators = group.knobs.operator.low.map_or(Bytes::ZERO, in_bytes);
            low[i].map(|low| low.max(operators))
        };
        if let Some(p) = tree.parent[i] {
            // A child that could not be read claims what it last claimed: unknown here, so its
            // parent is not lowered at all.
            claimed[p] = match (claimed[p], in_force, group.memory.current) {
                (Some(sum), Some(low), Some(current)) => Some(sum + low.min(current)),
                _ => None,
            };
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{group, host};

    /// Protections where each group's share of memory is 100 MiB.
    fn protections_of(snapshot: &Snapshot, thresholds: &[Bytes]) -> Vec<Option<Bytes>> {
        let tree = Tree::of(snapshot);
        let shares = vec![Bytes::mib(100); snapshot.groups.len()];
        protections(&snapshot.host, &snapshot.groups, &tree, thresholds, &shares)
    }

    #[test]
    fn a_leak_is_protected_up_to_the_groups_share_where_it_could_be_swapped_out() {
        let mut snapshot = Snapshot {
            host: host(1000),
            groups: vec![group(1, None, "/leak")],
            ..Snapshot::default()
        };
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
        let mut snapshot = Snapshot {
            host: host(1000),
            groups: vec![slice, user, made],
            ..Snapshot::default()
        };
        let thresholds = [Bytes::ZERO, Bytes::ZERO, Bytes::mib(50)];
        let none = Some(Bytes::ZERO);
        assert_eq!(protections_of(&snapshot, &thresholds), [none, none, none]);
        snapshot.groups[1].weight_source = WeightSource::Config;
        let some = Some(Bytes::mib(90));
        let own = Some(Bytes::mib(140));
        assert_eq!(protections_of(&snapshot, &thresholds), [some, some, own]);
    }

    #[test]
    fn an_ancestor_claims_what_its_children_use_and_no_more() {
        let mut snapshot = Snapshot {
            host: host(1000),
            groups: Vec::new(),
            ..Snapshot::default()
        };
        let mut app = group(1, None, "/app");
        app.weight = None;
        snapshot.groups = vec![
            app,
            group(2, Some(1), "/app/a"),
            group(3, Some(1), "/app/b"),
        ];
        snapshot.groups[1].memory.current = Some(Bytes::mib(10));
        snapshot.groups[1].memory.file = Some(Bytes::mib(8));
        snapshot.groups[2].memory.current = Some(Bytes::mib(100));
        snapshot.groups[2].memory.file = Some(Bytes::mib(100));
        let thresholds = [Bytes::ZERO, Bytes::mib(50), Bytes::mib(50)];
        let low = protections_of(&snapshot, &thresholds);
        assert_eq!(
            low,
            [
                Some(Bytes::mib(60)),
                Some(Bytes::mib(52)),
                Some(Bytes::mib(50))
            ]
        );
    }

    #[test]
    fn an_unreadable_child_does_not_lower_its_parent() {
        let mut app = group(1, None, "/app");
        app.weight = None;
        let mut blind = group(2, Some(1), "/app/a");
        blind.memory.current = None;
        let snapshot = Snapshot {
            host: host(1000),
            groups: vec![app, blind],
            ..Snapshot::default()
        };
        let low = protections_of(&snapshot, &[Bytes::ZERO, Bytes::mib(1)]);
        assert_eq!(low, [None, None]);
    }

    /// Capacity, MiB, of a host with 1600 MiB of memory and so much page cache, free memory and
    /// high watermark, and of it so much page cache of a managed group.
    fn capacity_beside_strangers(host_mib: [u64; 3], managed_mib: u64) -> Option<Bytes> {
        let mut snapshot = Snapshot {
            host: host(1600),
            groups: vec![group(1, None, "/a")],
            ..Snapshot::default()
        };
        let [file, free, high_watermark] = host_mib.map(|mib| Some(Bytes::mib(mib)));
        snapshot.host.file = file;
        snapshot.host.free = free;
        snapshot.host.high_watermark = high_watermark;
        snapshot.groups[0].memory.file = Some(Bytes::mib(managed_mib));
        let tree = Tree::of(&snapshot);
        let unread = Host {
            file: None,
            ..snapshot.host
        };
        assert_eq!(capacity(&unread, &snapshot.groups, &tree), None);
        capacity(&snapshot.host, &snapshot.groups, &tree)
    }

    #[test]
    fn the_page_cache_of_strangers_is_reserved_up_to_a_sixteenth_of_memory() {
        let got = capacity_beside_strangers([900, 100, 50], 400);
        assert_eq!(got, Some(Bytes::mib(900 + 50 - 100)));
    }

    #[test]
    fn where_little_could_be_page_cache_strangers_keep_an_eighth_of_it() {
        let got = capacity_beside_strangers([150, 20, 10], 80);
        assert_eq!(got, Some(Bytes::mib(160 - 20)));
        let no_more_than_they_have = capacity_beside_strangers([150, 20, 10], 145);
        assert_eq!(no_more_than_they_have, Some(Bytes::mib(160 - 5)));
    }

    #[test]
    fn a_tree_without_an_active_leaf_weighs_nothing() {
        let mut snapshot = Snapshot {
            host: host(1000),
            groups: Vec::new(),
            ..Snapshot::default()
        };
        snapshot.groups = vec![
            group(1, None, "/t"),
            group(2, Some(1), "/t/a"),
            group(3, None, "/b"),
        ];
        let tree = Tree::of(&snapshot);
        let nodes = tree.nodes(&snapshot.groups, |i| i == 2, |_| None);
        assert_eq!(crate::share::water::proportions(&nodes), [0.0, 0.0, 1.0]);
    }
}
