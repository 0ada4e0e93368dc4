//! Who is entitled to how much page cache: water-filling ([`water`]) of what there is
//! ([`entitlement`]) over demands ([`demand`]); where groups share files, the owner's protection goes
//! to those that are charged ([`ownership`]).

pub(crate) mod demand;
pub(crate) mod entitlement;
pub(crate) mod ownership;
pub(crate) mod supply;
pub(crate) mod water;

use crate::decision::Member;
use crate::feedback::limits::Least;
use crate::snapshot::{Host, SharedFile};
use crate::units::Bytes;
use ownership::Charges;
use water::Node;

/// What there is to divide; unknown where the host could not be read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pool {
    /// Page cache that the groups could hold.
    pub cache: Option<Bytes>,
    /// All memory that they hold or could hold.
    pub memory: Option<Bytes>,
}

/// Measures what there is, of which `reserve` is kept free, and what each member has at least.
pub(crate) fn measure(members: &mut [Member], host: &Host, reserve: Bytes) -> Pool {
    weigh(members);
    let cache = entitlement::capacity(host, members).map(|all| all - reserve);
    let memory = cache.map(|cache| entitlement::memory_of_groups(cache, members));
    for member in members {
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

/// Divides the page cache; nobody is entitled to anything where the host could not be read.
pub(crate) fn entitle(members: &mut [Member], pool: Pool, shared: &[SharedFile], caps_count: bool) {
    let charges = Charges::of(members, shared);
    demand::set(members, &charges, caps_count);
    let entitled = divide(pool.cache.unwrap_or_default(), members, |m| m.memo.demand);
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
    Some(member.memo.demand? + member.group.non_file()?)
}

/// Each member's share of the weight of the active leaves, down the hierarchy.
pub(crate) fn proportions(members: &[Member], active: impl Fn(usize) -> bool) -> Vec<f64> {
    water::proportions(&nodes(members, active, |_| None))
}

fn divide(
    total: Bytes,
    members: &[Member],
    demand: impl Fn(&Member) -> Option<Bytes>,
) -> Vec<Bytes> {
    water::divide(total, &nodes(members, |_| true, demand))
}

/// Nodes with only the active leaves; a subtree without one weighs nothing.
fn nodes(
    members: &[Member],
    active: impl Fn(usize) -> bool,
    demand: impl Fn(&Member) -> Option<Bytes>,
) -> Vec<Node> {
    let mut alive = vec![false; members.len()];
    for (i, member) in members.iter().enumerate().rev() {
        alive[i] |= member.leaf && active(i);
        if let (true, Some(p)) = (alive[i], member.parent) {
            alive[p] = true;
        }
    }
    let node = |(member, alive): (&Member, bool)| Node {
        parent: member.parent,
        weight: if alive {
            member.weight.map(|weight| u64::from(weight.get()))
        } else {
            Some(0)
        },
        floor: Bytes::ZERO,
        demand: if alive {
            demand(member)
        } else {
            Some(Bytes::ZERO)
        },
    };
    members.iter().zip(alive).map(node).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::Memo;
    use crate::snapshot::Snapshot;
    use crate::testing::{group, host};

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
        let members = Member::all(&snapshot, Memo::new);
        assert_eq!(proportions(&members, |i| i == 2), [0.0, 0.0, 1.0]);
    }
}
