//! Orders contending groups: gains move the page share, and bandwidth follows.
//!
//! - Groups that contend or claim ([`crate::feedback::activity`]) take part: writers, and readers too if the
//!   objective orders them ([`crate::objective`]). The sum of their entitlements is divided among them by weight
//!   times gain ([`crate::feedback::controller`]), and `memory.high` limits each at its part. A single contender
//!   needs no order and gets no limit.
//! - Groups are ordered against each other only on a disk that they share: bandwidth that a group does not get on one
//!   disk is no use to a group on another. A group that shares several disks is ordered on one of them, by its bandwidth
//!   there; on the others its block weight alone divides.
//! - Other groups that mix reads with writes are limited at their entitlement, which the feedback does not
//!   change. Other readers are not limited. All groups keep their protection.
//! - Writers that the closed gate of the kernel module orders get no limit ([`crate::gate`]).

use std::collections::BTreeMap;

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
        limit_mixed(members);
    }
}

/// Groups that are ordered against each other on one disk.
#[derive(Debug, PartialEq)]
pub(crate) struct OnDisk {
    /// `None`: not known.
    pub disk: Option<u64>,
    /// Indices in increasing order.
    pub groups: Vec<usize>,
}

impl OnDisk {
    /// Bandwidth of a member on this disk, bytes per second.
    pub(crate) fn bytes_per_s(&self, member: &Member) -> Option<f64> {
        let rate = member.memo.rates.bytes_per_s()?;
        Some(rate * self.disk.map_or(1.0, |disk| member.group.part_on(disk)))
    }
}

/// Participants that are ordered against each other.
struct Ordered {
    /// At least two.
    on: OnDisk,
    /// For each member of the snapshot, its share of this set's weight: 0 for a leaf outside of the set. An inner group
    /// has the sum of its children.
    weights: Vec<f64>,
}

impl Ordered {
    fn has(&self, member: usize) -> bool {
        self.on.groups.binary_search(&member).is_ok()
    }
}

/// The groups that take part: contenders whose bandwidth a page share moves, and groups that claim. Empty if there is
/// nothing to order.
fn participants(members: &mut [Member], objective: Objective, elapsed_s: f64) -> Vec<Ordered> {
    let candidates: Vec<(usize, f64)> = (0..members.len())
        .filter(|&i| members[i].leaf && members[i].group.non_file().is_some())
        .filter(|&i| {
            // A blocked group moves no bytes either, but it stalls.
            let activity = &members[i].memo.activity;
            (!activity.idle || members[i].contends()) && objective.orders(activity.writer())
        })
        .filter_map(|i| Some((i, members[i].memo.rates.bytes_per_s()?)))
        .collect();
    // A claim is one on CPUs, which groups on other disks hold too.
    let shares = share::proportions(members, |i| {
        candidates.binary_search_by_key(&i, |c| c.0).is_ok()
    });
    let total: f64 = candidates.iter().map(|c| c.1).sum();
    for &(i, rate) in &candidates {
        let of_share = rate / (total * shares[i]).max(1.0);
        members[i].memo.activity.judge_claim(of_share, elapsed_s);
    }
    let takes_part = |i: &usize| members[*i].contends() || members[*i].memo.activity.claiming();
    let take_part: Vec<usize> = candidates.iter().map(|c| c.0).filter(takes_part).collect();
    let mut ordered = Vec::new();
    for on in on_one_disk(members, &take_part) {
        if on.groups.len() >= 2 && on.groups.iter().any(|&i| members[i].contends()) {
            for &i in &on.groups {
                members[i].decision.participant = true;
            }
            let weights = share::proportions(members, |i| on.groups.binary_search(&i).is_ok());
            ordered.push(Ordered { on, weights });
        }
    }
    ordered
}

/// Divides groups by the disk on which each is ordered: the first of its disks that another of these groups uses, else
/// its first. A contender whose disks are not known may share them all, so all groups are then in one set. Indices in
/// increasing order, before and after.
pub(crate) fn on_one_disk(members: &[Member], groups: &[usize]) -> Vec<OnDisk> {
    let devices = |i: usize| &members[i].group.devices;
    let unknown = |&i: &usize| devices(i).is_empty() && members[i].contends();
    if groups.iter().any(unknown) {
        return vec![OnDisk {
            disk: None,
            groups: groups.to_vec(),
        }];
    }
    let mut users: BTreeMap<u64, usize> = BTreeMap::new();
    for device in groups.iter().flat_map(|&i| devices(i)) {
        *users.entry(*device).or_default() += 1;
    }
    let mut sets: BTreeMap<Option<u64>, Vec<usize>> = BTreeMap::new();
    for &i in groups {
        let shared = devices(i).iter().find(|device| users[device] >= 2);
        let disk = shared.or(devices(i).first());
        sets.entry(disk.copied()).or_default().push(i);
    }
    let sets = sets.into_iter();
    sets.map(|(disk, groups)| OnDisk { disk, groups }).collect()
}

/// Forgets the gains if io.cost began to serve a disk: they made up for a disk that ignored weights.
pub(crate) fn forget_gains(members: &mut [Member], began: bool) {
    for member in members.iter_mut().filter(|_| began) {
        member.memo.controller = Controller::default();
    }
}

/// The ways by which gains reach the disk.
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
    for (i, member) in members.iter_mut().enumerate().filter(|(i, _)| set.has(*i)) {
        let rate = set.on.bytes_per_s(member).unwrap_or(0.0);
        let (group, decision) = (member.group, &member.decision);
        // At the onset of contention no limit is in force yet.
        let share = decision.own() + limits::HEADROOM;
        let share = Some(share).filter(|_| carried.by_limits);
        measured.push(Measured {
            weight: set.weights[i],
            rate,
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
    for &i in &set.on.groups {
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
    let entitled: Bytes = set
        .on
        .groups
        .iter()
        .map(|&i| members[i].decision.own())
        .sum();
    let node = |(i, member): (usize, &Member)| {
        let Member { memo, decision, .. } = member;
        let part = ((set.weights[i] * decision.gain * 1e9) as u64).max(1);
        let part = set.has(i).then_some(part);
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
    for &i in &set.on.groups {
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
fn limit_mixed(members: &mut [Member]) {
    let mixes =
        |m: &Member| m.leaf && !m.decision.participant && m.contends() && m.memo.activity.mixes();
    let writes = |&i: &usize| members[i].decision.participant || mixes(&members[i]);
    let all: Vec<usize> = (0..members.len()).filter(writes).collect();
    for on in on_one_disk(members, &all) {
        for &i in on.groups.iter().filter(|_| on.groups.len() >= 2) {
            if mixes(&members[i]) {
                let share = members[i].decision.own().scale(OVERCOMMIT);
                limit(&mut members[i], share);
            }
        }
    }
}

/// Limits a group at this share plus what it holds for others.
fn limit(member: &mut Member, share: Bytes) {
    if let Some(limit) = member.limit_for(share + member.decision.shift.for_others) {
        member.limit_at(limit, member.decision.reason());
    }
}
