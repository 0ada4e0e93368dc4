//! The members as nodes of a tree that [`super::water`] fills, and what is left in it.

use std::iter::successors;

use super::water::{self, Node};
use crate::decision::Member;
use crate::units::Bytes;

/// Divides `total` among the members by weight, up to what each demands.
pub(super) fn divide(
    total: Bytes,
    members: &[Member],
    demand: impl Fn(&Member) -> Option<Bytes>,
) -> Vec<Bytes> {
    water::divide(total, &nodes(members, |_| true, demand))
}

/// The nodes, of which only active leaves count; a subtree without an active leaf has weight 0.
pub(super) fn nodes(
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

/// Memory that is left: in all, and below each group that the operator limits.
#[derive(Clone)]
pub(super) struct Left<'a> {
    members: &'a [Member<'a>],
    /// For each member, what its limit leaves; `None`: no limit of its own. The last entry is of all memory.
    pub(super) at: Vec<Option<Bytes>>,
}

impl<'a> Left<'a> {
    pub(super) fn of(members: &'a [Member<'a>], total: Bytes) -> Left<'a> {
        let limits = members.iter().map(|member| member.group.ceiling());
        Left {
            members,
            at: limits.chain([Some(total)]).collect(),
        }
    }

    /// The bounds of a member: the limits of the groups above it, and all memory.
    pub(super) fn above(&self, member: usize) -> impl Iterator<Item = (usize, Bytes)> + '_ {
        let parent = |&i: &usize| self.members[i].parent;
        let above = successors(self.members[member].parent, parent);
        let above = above.chain([self.members.len()]);
        above.filter_map(|i| Some((i, self.at[i]?)))
    }

    pub(super) fn for_member(&self, member: usize) -> Bytes {
        let least = self.above(member).map(|(_, left)| left).min();
        least.unwrap_or_default()
    }

    /// Takes what a member gets. False if that is more than was left.
    pub(super) fn take(&mut self, member: usize, bytes: Bytes) -> bool {
        let fits = bytes <= self.for_member(member);
        let above: Vec<(usize, Bytes)> = self.above(member).collect();
        for (i, left) in above {
            self.at[i] = Some(left - bytes);
        }
        fits
    }

    pub(super) fn take_all(&mut self, sizes: impl IntoIterator<Item = (usize, Bytes)>) -> bool {
        let mut fits = true;
        for (member, bytes) in sizes {
            fits &= self.take(member, bytes);
        }
        fits
    }
}
