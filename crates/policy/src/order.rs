//! Orders contending groups: gains move the page share, and bandwidth follows.
//!
//! - Groups that contend or claim ([`crate::feedback::activity`]) take part: writers, and readers too if the
//!   objective orders them ([`crate::objective`]). The sum of their entitlements is divided among them by weight
//!   times gain ([`crate::feedback::controller`]), and `memory.high` limits each at its part. A single contender
//!   needs no order and gets no limit.
//! - Only groups that use a disk together, or through others, are ordered against each other: what one does not get of
//!   one disk is no use to a group on another.
//! - Other groups that mix reads with writes are limited at their entitlement, which the feedback does not
//!   change. Other readers are not limited. All groups keep their protection.
//! - Writers that the closed gate of the kernel module orders get no limit ([`crate::gate`]).

use std::collections::BTreeSet;

use crate::config::{Config, FeedbackConfig, Objective};
use crate::decision::Member;
use crate::feedback::controller::{adjust, Controller, Measured};
use crate::feedback::limits;
use crate::plan::Watched;
use crate::share::water::{divide, Node};
use crate::share::{self, Pool};
use crate::units::{Bytes, Limit};
use crate::watch::Watch;

/// Sum of the limits over the sum of the participants' entitlements. Few groups fill their share, only the
/// ratio of the limits matters, and memory that no group fills is lost (fileserver, 8 groups: 68 MB/s
/// without, 75 MB/s with).
pub(crate) const OVERCOMMIT: f64 = 1.25;

/// Moves the gains and sets the limits. While the page cache to divide is not known, limits stay for some time.
/// `gated`: the gate orders writers. `steers`: a disk serves by block weight. The feedback must not learn from a step
/// in which the watch suspends a decision.
pub(crate) fn order(
    members: &mut [Member],
    pool: Pool,
    config: &Config,
    watch: &Watch,
    gated: bool,
    steers: bool,
    elapsed_s: f64,
) {
    let sets = participants(members, config.objective, elapsed_s);
    let learns_s = if watch.suspends() { 0.0 } else { elapsed_s };
    let by_blocks = steers && !watch.lifts(Watched::Gains);
    let lifted = watch.lifts(Watched::Limits);
    let carried = Carried {
        by_limits: !gated && !lifted,
        otherwise: gated || by_blocks,
    };
    for set in &sets {
        move_gains(members, set, &config.feedback, carried, learns_s);
    }
    let unread = pool.cache.is_none();
    let blind = unread || members.iter().any(|m| is_unknown_contender(m, config));
    for member in members.iter_mut() {
        release(member, blind, elapsed_s);
    }
    if !unread {
        for set in &sets {
            limit_participants(members, set, gated);
        }
        limit_mixed(members, sets.iter().map(|set| set.members.len()).sum());
    }
}

/// Participants that are ordered against each other.
struct Ordered {
    /// Indices in increasing order, at least two.
    members: Vec<usize>,
    /// Of each member of the snapshot, its share of the participants' weight; 0 for others.
    weights: Vec<f64>,
}

/// The groups that take part: contenders whose bandwidth a page share moves, and groups that claim. Empty if there is
/// nothing to order.
fn participants(members: &mut [Member], objective: Objective, elapsed_s: f64) -> Vec<Ordered> {
    let candidates: Vec<usize> = (0..members.len())
        .filter(|&i| members[i].leaf && members[i].group.non_file().is_some())
        .filter(|&i| {
            // A blocked group moves no bytes either, but it stalls.
            let activity = &members[i].memo.activity;
            (!activity.idle || members[i].contends()) && objective.orders(activity.writer())
        })
        .filter(|&i| members[i].memo.rates.bytes_per_s().is_some())
        .collect();
    let mut ordered = Vec::new();
    for set in on_one_disk(members, &candidates) {
        let weights_of = |members: &[Member], set: &[usize]| {
            share::proportions(members, |i| set.binary_search(&i).is_ok())
        };
        let rate = |member: &Member| member.memo.rates.bytes_per_s().unwrap_or_default();
        let shares = weights_of(members, &set);
        let total: f64 = set.iter().map(|&i| rate(&members[i])).sum();
        for &i in &set {
            let of_share = rate(&members[i]) / (total * shares[i]).max(1.0);
            members[i].memo.activity.judge_claim(of_share, elapsed_s);
        }
        let takes_part = |i: &usize| members[*i].contends() || members[*i].memo.activity.claiming();
        let part: Vec<usize> = set.into_iter().filter(takes_part).collect();
        if part.len() >= 2 && part.iter().any(|&i| members[i].contends()) {
            for &i in &part {
                members[i].decision.participant = true;
            }
            let weights = weights_of(members, &part);
            ordered.push(Ordered {
                members: part,
                weights,
            });
        }
    }
    ordered
}

/// Divides groups into sets that use a disk together, or through others. A contender whose disks are not known may
/// use all. Indices in increasing order, before and after.
pub(crate) fn on_one_disk(members: &[Member], groups: &[usize]) -> Vec<Vec<usize>> {
    let devices = |i: usize| &members[i].group.devices;
    let unknown = |i: &&usize| devices(**i).is_empty() && members[**i].contends();
    if groups.iter().any(|i| unknown(&i)) {
        return vec![groups.to_vec()];
    }
    let mut sets: Vec<(BTreeSet<u64>, Vec<usize>)> = Vec::new();
    for &i in groups {
        let mut joined: (BTreeSet<u64>, Vec<usize>) =
            (devices(i).iter().copied().collect(), vec![i]);
        sets.retain_mut(|(used, set)| {
            let apart = used.is_disjoint(&joined.0);
            if !apart {
                joined.0.append(used);
                joined.1.append(set);
            }
            apart
        });
        joined.1.sort_unstable();
        sets.push(joined);
    }
    sets.into_iter().map(|(_, set)| set).collect()
}

/// Forgets the gains if io.cost began to serve a disk: they made up for a disk that ignored weights.
pub(crate) fn forget_gains(members: &mut [Member], began: bool) {
    for member in members.iter_mut().filter(|_| began) {
        member.memo.controller = Controller::default();
    }
}

/// What carries gains to the disk.
#[derive(Debug, Clone, Copy)]
struct Carried {
    by_limits: bool,
    /// Block weights or the gate.
    otherwise: bool,
}

/// One step of the controllers of these participants.
fn move_gains(
    members: &mut [Member],
    set: &Ordered,
    config: &FeedbackConfig,
    carried: Carried,
    elapsed_s: f64,
) {
    let mut measured = Vec::new();
    let mut controllers = Vec::new();
    for (member, &weight) in members.iter_mut().zip(&set.weights) {
        let (group, decision) = (member.group, &member.decision);
        if weight <= 0.0 {
            continue;
        }
        // At the onset of contention no limit is in force yet.
        let share = decision.own() + limits::HEADROOM;
        let share = Some(share).filter(|_| carried.by_limits);
        measured.push(Measured {
            weight,
            rate: member.memo.rates.bytes_per_s().unwrap_or(0.0),
            // A group with a cap has declared that it does not need more.
            unused: member.memo.cap.is_some()
                || limits::leaves_share_unused(group, decision.ceiling, share)
                    && !member.memo.activity.claiming(),
            at_floor: limits::stands_at_floor(group, &decision.least, decision.shift.for_others),
            held: !carried.by_limits && !carried.otherwise,
        });
        controllers.push(&mut member.memo.controller);
    }
    adjust(&mut controllers, &measured, config, elapsed_s);
    for &i in &set.members {
        let member = &mut members[i];
        member.decision.of_ideal = member.memo.controller.filtered_of_ideal;
        member.decision.gain = member.memo.controller.gain();
    }
}

/// True if the group contends with others, and its bandwidth is unknown. Reads are unknown for some seconds after an
/// agent has started.
fn is_unknown_contender(member: &Member, config: &Config) -> bool {
    let orders = config.objective.orders(member.memo.activity.writer());
    let unknown = member.memo.rates.bytes_per_s().is_none();
    member.leaf && member.contends() && orders && unknown
}

/// Lifts the limit of a group whose state is known; the later functions limit contenders again. A group whose
/// state is unknown gets its blind limit, and so do all while a contender is unknown (`blind`). An inner group gets the
/// operator's.
fn release(member: &mut Member, blind: bool, elapsed_s: f64) {
    if !member.leaf {
        member.limit_as_before();
        return;
    }
    let memo = &mut member.memo;
    let (bandwidth, contends) = (memo.rates.bytes_per_s(), memo.activity.contending());
    let known = bandwidth.is_some() && contends.is_some() && !blind;
    memo.blind_s = if known { 0.0 } else { memo.blind_s + elapsed_s };
    let limit = if known {
        Some(Limit::Max)
    } else {
        member.blind_limit()
    };
    if let Some(limit) = limit {
        member.limit_at(limit, member.decision.reason());
    }
}

/// Divides the sum of the participants' entitlements among them, by weight times gain. Page cache that a
/// group holds for others does not count: the limit leaves room for it above the share. The operator's limit on an
/// ancestor bounds the sum of the shares below it.
fn limit_participants(members: &mut [Member], set: &Ordered, gated: bool) {
    let Ordered {
        members: participants,
        weights,
    } = set;
    let entitled: Bytes = participants
        .iter()
        .map(|&i| members[i].decision.own())
        .sum();
    let node = |(i, member): (usize, &Member)| {
        let Member { memo, decision, .. } = member;
        let part = ((weights[i] * decision.gain * 1e9) as u64).max(1);
        let part = (weights[i] > 0.0).then_some(part);
        let most = decision.ceiling.into_iter().chain(memo.cap).min();
        Node {
            // Groups below an ancestor without a limit compete with all others.
            parent: member
                .parent
                .filter(|&p| members[p].decision.ceiling.is_some()),
            weight: part.or(member.leaf.then_some(0)),
            floor: part.map_or(Bytes::ZERO, |_| decision.least.file),
            demand: if member.leaf {
                most.map(|most| most - decision.shift.for_others)
            } else {
                most.map(|most| most.scale(OVERCOMMIT))
            },
        }
    };
    let nodes: Vec<Node> = members.iter().enumerate().map(node).collect();
    let shares = divide(entitled.scale(OVERCOMMIT), &nodes);
    for &i in participants {
        let member = &mut members[i];
        let ordered = gated && member.memo.activity.writer();
        if member.contends() && !ordered {
            limit(member, shares[i]);
        }
    }
}

/// Limits contenders at their entitlement if they mostly read but also write much. Dirty limits scale with
/// `memory.high`, so without a limit the kernel serves all writers alike. The entitlements already lend what
/// nobody demands, so no memory lies idle.
fn limit_mixed(members: &mut [Member], participants: usize) {
    let mixes =
        |m: &Member| m.leaf && !m.decision.participant && m.contends() && m.memo.activity.mixes();
    if members.iter().filter(|m| mixes(m)).count() + participants < 2 {
        return;
    }
    for member in members.iter_mut().filter(|m| mixes(m)) {
        limit(member, member.decision.own().scale(OVERCOMMIT));
    }
}

/// Limits a group at this share plus what it holds for others.
fn limit(member: &mut Member, share: Bytes) {
    if let Some(limit) = member.limit_for(share + member.decision.shift.for_others) {
        member.limit_at(limit, member.decision.reason());
    }
}
