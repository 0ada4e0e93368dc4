//! Orders those who contend: gains move the page share, and with it the bandwidth.
//!
//! - Writers that contend or claim ([`crate::feedback::activity`]) take part. Each is limited
//!   (`memory.high`) at its weight times its gain ([`crate::feedback::controller`]) of what they are
//!   entitled to together. With a single contender there is nothing to order, and no limit.
//! - Groups that mix reads with writes are limited at what they are entitled to, which the feedback
//!   does not touch. Readers are not limited at all. All keep their protection.
//! - With objective `strict` everybody who contends takes part, readers too ([`crate::objective`]).
//! - Writers that the closed gate of the kernel module orders get no limit ([`crate::gate`]).

use crate::config::{Config, FeedbackConfig, Objective};
use crate::decision::Member;
use crate::feedback::controller::{adjust, Measured};
use crate::feedback::limits;
use crate::share;
use crate::share::water::{divide, Node};
use crate::units::{Bytes, Limit};

/// Limits add up to this much of what the participants are entitled to: few fill their share, only
/// the ratio of the limits matters, and memory that nobody fills is lost (fileserver, 8 groups:
/// 68 MB/s without, 75 MB/s with).
pub(crate) const OVERCOMMIT: f64 = 1.25;

/// Moves the gains and sets the limits. `gated`: the gate orders writers.
pub(crate) fn order(members: &mut [Member], config: &Config, gated: bool, elapsed_s: f64) {
    let participants = participants(members, config.objective, elapsed_s);
    for &i in &participants {
        members[i].decision.participant = true;
    }
    let weights = share::proportions(members, |i| members[i].decision.participant);
    move_gains(members, &weights, &config.feedback, elapsed_s);
    for member in members.iter_mut() {
        release(member, elapsed_s);
    }
    limit_participants(members, &participants, &weights, gated);
    limit_mixed(members, participants.len());
}

/// Who takes part: the contenders whose bandwidth a page share moves, and with them those who
/// claim. Indices in increasing order; empty if there is nothing to order.
fn participants(members: &mut [Member], objective: Objective, elapsed_s: f64) -> Vec<usize> {
    let candidates: Vec<(usize, f64)> = (0..members.len())
        .filter(|&i| members[i].leaf && members[i].group.non_file().is_some())
        .filter(|&i| {
            // A group that is blocked moves nothing either, but it stalls.
            let activity = &members[i].memo.activity;
            (!activity.idle() || members[i].contends()) && objective.orders(activity.writer())
        })
        .filter_map(|i| Some((i, members[i].memo.rates.bytes_per_s()?)))
        .collect();
    let shares = share::proportions(members, |i| {
        candidates.binary_search_by_key(&i, |c| c.0).is_ok()
    });
    let total: f64 = candidates.iter().map(|c| c.1).sum();
    for &(i, rate) in &candidates {
        let of_share = rate / (total * shares[i]).max(1.0);
        members[i].memo.activity.judge_claim(of_share, elapsed_s);
    }
    let takes_part = |i: &usize| members[*i].contends() || members[*i].memo.activity.claiming();
    let participants: Vec<usize> = candidates.iter().map(|c| c.0).filter(takes_part).collect();
    if participants.len() >= 2 && participants.iter().any(|&i| members[i].contends()) {
        participants
    } else {
        Vec::new()
    }
}

/// One step of the controllers. `weights`: of each member among the participants.
fn move_gains(members: &mut [Member], weights: &[f64], config: &FeedbackConfig, elapsed_s: f64) {
    let mut measured = Vec::new();
    let mut controllers = Vec::new();
    for (member, &weight) in members.iter_mut().zip(weights) {
        let (group, decision) = (member.group, &member.decision);
        if !decision.participant {
            continue;
        }
        measured.push(Measured {
            weight,
            rate: member.memo.rates.bytes_per_s().unwrap_or(0.0),
            // Who gives has said that it does not need more.
            unused: member.memo.cap.is_some()
                || limits::leaves_share_unused(group) && !member.memo.activity.claiming(),
            at_floor: limits::stands_at_floor(group, &decision.least, decision.shift.for_others),
        });
        controllers.push(&mut member.memo.controller);
    }
    adjust(&mut controllers, &measured, config, elapsed_s);
    for member in members.iter_mut().filter(|m| m.decision.participant) {
        member.decision.of_ideal = member.memo.controller.of_ideal();
        member.decision.gain = member.memo.controller.gain();
    }
}

/// Who is known not to contend is not held back; of others nothing is concluded.
fn release(member: &mut Member, elapsed_s: f64) {
    if !member.leaf {
        member.limit_as_before();
        return;
    }
    member.note_growth();
    let memo = &mut member.memo;
    let known = memo.rates.bytes_per_s().is_some() && memo.activity.contending().is_some();
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

/// Divides what the participants are entitled to together among them, by weight times gain. What a
/// group holds for others does not count: it gets room for that above its share.
fn limit_participants(
    members: &mut [Member],
    participants: &[usize],
    weights: &[f64],
    gated: bool,
) {
    let entitled: Bytes = participants
        .iter()
        .map(|&i| members[i].decision.own())
        .sum();
    let node = |&i: &usize| {
        let Member {
            group,
            memo,
            decision,
            ..
        } = &members[i];
        let most = limits::ceiling(group).into_iter().chain(memo.cap).min();
        Node {
            parent: None,
            weight: Some(((weights[i] * decision.gain * 1e9) as u64).max(1)),
            floor: decision.least.file,
            demand: most.map(|most| most - decision.shift.for_others),
        }
    };
    let nodes: Vec<Node> = participants.iter().map(node).collect();
    for (&i, share) in participants
        .iter()
        .zip(divide(entitled.scale(OVERCOMMIT), &nodes))
    {
        let member = &mut members[i];
        let ordered = gated && member.memo.activity.writer();
        if member.contends() && !ordered {
            limit(member, share);
        }
    }
}

/// Limits contenders that mostly read, but write a good deal too, at what they are entitled to:
/// dirty limits scale with `memory.high`, so without it the writes of all are served alike. What
/// nobody demands was lent out by the entitlements, so no memory lies idle.
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

/// Limits a group at this share, and room for what it holds for others.
fn limit(member: &mut Member, share: Bytes) {
    if let Some(limit) = member.limit_for(share + member.decision.shift.for_others) {
        member.limit_at(limit, member.decision.reason());
    }
}
