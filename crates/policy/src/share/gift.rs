//! Gifts: memory that groups give by their colors goes first to the group that is satisfied with it.
//!
//! Without colors each group gets its *own* share: the division by weight over demands without caps. The *gift* is the
//! part of the givers' own shares that lies above their caps. Groups that declare colors and whose working set is known
//! ([`crate::feedback::working_set`]) take of it what their own shares lack, the one that lacks least for its weight
//! first. It keeps that when it has turned green, so that it does not turn red again. The rest of the gift goes by
//! weight.
//!
//! Properties, each held by a test:
//! - *own shares*: no group without a cap gets less than its own share;
//! - *conservation*: as in [`super::water`];
//! - *not in vain*: a group that lacks more than givers can give at most does not go first.

use super::demand;
use super::tree::{divide, nodes, Left};
use super::water;
use crate::decision::Member;
use crate::units::Bytes;

/// The entitlements with gifts. `None`: nobody gives, or no group is known to be satisfied with more.
pub(crate) fn give(members: &[Member], total: Bytes) -> Option<Vec<Bytes>> {
    let capped = |member: &Member| member.leaf && member.memo.cap.is_some();
    if !members.iter().any(capped) || members.iter().all(|m| working_set(m).is_none()) {
        return None;
    }
    let own = divide(total, members, |member| {
        let held = member.group.memory.file.filter(|_| capped(member));
        let Some(held) = held else {
            return member.memo.demand;
        };
        let most = member.decision.ceiling;
        most.into_iter().chain([demand::growing(held)]).min()
    });
    let floors = members.iter().zip(&own);
    let floor = |(member, &own): (&Member, &Bytes)| member.memo.demand.map_or(own, |d| own.min(d));
    let mut floors: Vec<Bytes> = floors.map(floor).collect();
    let mut left = Left::of(members, total);
    let leaves = (0..members.len()).filter(|&i| members[i].leaf);
    left.take_all(leaves.map(|i| (i, floors[i])));
    let may_come: Bytes = members.iter().filter(|m| capped(m)).map(may_give).sum();
    let lacks = |i: usize| Some((i, working_set(&members[i])? - floors[i]));
    let mut lacking: Vec<(usize, Bytes)> = (0..members.len()).filter_map(lacks).collect();
    lacking.retain(|&(i, lacks)| lacks <= left.for_member(i) + may_come);
    let for_weight = |&(i, lacks): &(usize, Bytes)| {
        lacks.as_f64() / members[i].decision.proportion.max(f64::MIN_POSITIVE)
    };
    lacking.sort_by(|a, b| for_weight(a).total_cmp(&for_weight(b)));
    for (i, lacks) in lacking {
        // It demands the rest when it holds more.
        let demands = members[i]
            .memo
            .demand
            .map_or(lacks, |most| most - floors[i]);
        let taken = lacks.min(demands).min(left.for_member(i));
        left.take(i, taken);
        floors[i] = floors[i] + taken;
    }
    let mut nodes = nodes(members, |_| true, |m| m.memo.demand);
    for (node, floor) in nodes.iter_mut().zip(floors) {
        node.floor = floor;
    }
    Some(water::divide(total, &nodes))
}

/// The page cache with which a group that declares colors is satisfied.
fn working_set(member: &Member) -> Option<Bytes> {
    member.declared().filter(|_| member.leaf)?;
    Some(member.memo.working_set.estimate()? - member.non_file()?)
}

/// Page cache that a giver can still give.
fn may_give(member: &Member) -> Bytes {
    let least = member.decision.least.file;
    let least = working_set(member).map_or(least, |set| set.max(least));
    member.memo.cap.map_or(Bytes::ZERO, |cap| cap - least)
}

#[cfg(test)]
mod tests;
