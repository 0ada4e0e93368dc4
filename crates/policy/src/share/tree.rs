//! The members as nodes of a tree that [`super::water`] fills.

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
