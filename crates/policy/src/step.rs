//! One step: the state and a snapshot become the next state and a plan.
//!
//! 1. Counters become rates; stalls decide which groups *contend* ([`crate::feedback::activity`]).
//! 2. The guard's reserve is subtracted from the page cache to be divided ([`crate::guard`]).
//! 3. Groups that declare themselves satisfied give memory: their caps come down ([`crate::caps`]).
//! 4. Page cache is divided by weight among the groups that demand it. Memory that a group has no use for is
//!    lent to groups that gain from it ([`crate::share`]).
//! 5. Gains scale the shares of contending writers, which are limited at these shares ([`crate::order`]).
//! 6. Caps limit groups that give. Reservations limit groups at their share. Bounds limit groups that would
//!    take more than their share of all memory ([`crate::bound`]).
//! 7. Decisions become writes: protection, limits, block weights ([`crate::writes`]), and weights for the
//!    kernel module's gate ([`crate::gate`]).
//! 8. Verdicts report the decisions, and the next state is kept.
//!
//! Between stages 4 and 7 the watch ([`crate::watch`]) suspends one kind of decision at a time, to measure its
//! cost, and withdraws a kind that costs too much.
//!
//! The mode selects the parts that are in force ([`Capabilities`]).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::block::Served;
use crate::bound;
use crate::caps;
use crate::config::{Capabilities, Config};
use crate::decision::{Member, Memo};
use crate::disk::{self, Contention, DiskMemo};
use crate::feedback::controller::Controller;
use crate::gate;
use crate::guard::{self, Need};
use crate::metrics;
use crate::order;
use crate::plan::{HostRates, Plan, Watched};
use crate::rates::Counters;
use crate::share;
use crate::share::supply::Supply;
use crate::snapshot::{Group, GroupId, Pressure, Snapshot};
use crate::watch::{self, Watch};
use crate::writes;

/// Version of [`State`]. Raise it when an older state would be misread: a record holds states, and a replay
/// starts from a state only if its version is the same.
pub const STATE_VERSION: u32 = 2;

/// State of the policy from one step to the next.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    /// Boxed because building the map sorts its entries, which are large.
    groups: BTreeMap<GroupId, Box<Memo>>,
    /// Cumulative stalls of the host.
    waited: Pressure,
    /// Writers were ordered in this mode at least once, so the disks must serve them by weight.
    weights_must_hold: bool,
    /// Seconds since memory was last taken for a color.
    rebalanced_s: f64,
    /// Seconds until the last loans have paid back.
    lent_settles_s: f64,
    guard: guard::GuardState,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    disks: BTreeMap<GroupId, DiskMemo>,
    #[serde(skip_serializing_if = "Watch::is_new")]
    watch: Watch,
}

/// Computes the next state and the plan. `elapsed` is the time since the previous step's snapshot. It is zero
/// in an agent's first step, which has no rates, even if the agent continues from another agent's state.
pub fn step(
    state: &State,
    snapshot: &Snapshot,
    config: &Config,
    elapsed: Duration,
) -> (State, Plan) {
    let (host, gate) = (&snapshot.host, snapshot.gate.as_ref());
    let (may, elapsed_s) = (Capabilities::of(config), elapsed.as_secs_f64());

    let mut members = Member::all(snapshot, |group| {
        let before = state.groups.get(&group.id);
        before.map_or_else(
            || Memo::new(group),
            |before| remember(before, group, config, elapsed_s),
        )
    });
    let mut watch = if may.watch {
        state.watch.clone()
    } else {
        Watch::default()
    };
    watch.look(&members, config.max_loss / 100.0, elapsed_s);
    let need = Need::of(&state.guard, snapshot, config, may.guard, elapsed_s);
    let pool = share::measure(&mut members, host, need.reserve());
    let supply = Supply::of_page_cache(host, need.reserve());
    let mut rebalanced_s = state.rebalanced_s;
    let since_s = &mut rebalanced_s;
    let reclaims = caps::move_caps(&mut members, supply, config, may, since_s, elapsed_s);
    members.iter_mut().for_each(Member::note_growth);
    let mut lent_settles_s = state.lent_settles_s;
    let lending = may.lends.then_some((&mut lent_settles_s, elapsed_s));
    let shared = snapshot.shared.as_deref().unwrap_or_default();
    share::entitle(&mut members, pool, shared, may.weights, lending);
    let bfq = disk::any_is_left_to_bfq(&snapshot.devices);
    let io_cost = disk::any_is_on(&snapshot.devices);
    let (steers, gated) = (bfq || io_cost, gate::orders(gate));
    if may.feedback {
        order::order(&mut members, pool, config, &watch, gated, steers, elapsed_s);
    }
    let serves = gated || disk::any_may_serve(&state.disks, &snapshot.devices);
    let (limited, unlimited) = watch.limits(&mut members, serves || !may.watch);
    // While a step rests without io.cost, the disks that it serves otherwise still count.
    let rests = watch.suspends() && disk::served(&state.disks) > 0;
    let steered = watch::gains(&members, steers || rests);
    if may.guard && !may.feedback && pool.cache.is_some() {
        members.iter_mut().for_each(Member::limit_as_before);
    }
    caps::limit(&mut members, may.colors);
    guard::limit_at_shares(&need, &mut members, pool);
    if may.feedback {
        bound::limit(&mut members, host, pool.cache, unlimited, elapsed_s);
    }

    let (guard, guarded, asks) = guard::decide(need, snapshot, &mut members, config);
    let ordered = members.iter().any(|member| member.decision.participant);
    let weights_must_hold = may.feedback && (state.weights_must_hold || ordered);
    let protected = pool.memory.filter(|_| may.weights);
    let low = protected.map(|memory| share::protect(host, &members, memory));
    let weights = may.feedback.then(|| Served {
        gains: !watch.lifts(Watched::Gains),
        io_cost,
        bfq,
    });
    let writes = writes::plan(&members, low.as_deref(), weights);
    let contention = contention(&members, ordered);
    let (disks_next, served) = disk::serve(
        &state.disks,
        &snapshot.devices,
        contention,
        may.feedback,
        watch.lifts(Watched::IoCost),
        elapsed_s,
    );
    let (before, by_cost) = (disk::served(&state.disks), disk::served(&disks_next));
    let began = by_cost > before || watch.returned(&state.watch, Watched::IoCost);
    order::forget_gains(&mut members, began);
    let by_cost = by_cost > 0 && contention != Contention::None;
    watch.note(&decided(limited, steered, by_cost, may));
    let writes = writes::hold_weights(snapshot.devices.iter().filter(|_| weights_must_hold))
        .chain(served)
        .chain(writes)
        .chain(reclaims)
        .chain(asks);
    let (pv, share_error) = unfairness(&members);
    let leaves = members.iter().filter(|member| member.leaf);
    let mut verdicts = Vec::with_capacity(members.len());
    verdicts.extend(leaves.map(Member::verdict));
    let plan = Plan {
        writes: writes.collect(),
        verdicts,
        pv,
        share_error,
        host: HostRates::between(&state.waited, &host.pressure, elapsed_s),
        guard: guarded,
        gate: gate::feeds(gate.filter(|_| may.weights), &members),
        watch: watch.findings(),
    };
    let memos = members.into_iter();
    let state = State {
        groups: memos.map(|m| (m.group.id, m.memo)).collect(),
        waited: host.pressure,
        weights_must_hold,
        rebalanced_s,
        lent_settles_s,
        guard,
        disks: disks_next,
        watch,
    };
    (state, plan)
}

fn contention(members: &[Member], ordered: bool) -> Contention {
    if ordered {
        return Contention::Writers;
    }
    let contenders = members.iter().filter(|m| m.leaf && m.contends());
    match contenders.count() {
        0 | 1 => Contention::None,
        _ => Contention::Readers,
    }
}

/// The watched kinds of decisions that this step made.
fn decided(limits: bool, gains: bool, io_cost: bool, may: Capabilities) -> BTreeSet<Watched> {
    let all = [
        (limits, Watched::Limits),
        (gains, Watched::Gains),
        (io_cost, Watched::IoCost),
    ];
    let made = all.into_iter().filter(|(made, _)| *made && may.watch);
    made.map(|(_, decision)| decision).collect()
}

fn remember(before: &Memo, group: &Group, config: &Config, elapsed_s: f64) -> Memo {
    let counters = Counters::of(group);
    let counted_s = group.read_after_s.unwrap_or(elapsed_s);
    let rates = before.rates.after(&before.counters, &counters, counted_s);
    let stall_share = config.feedback.stall_share;
    // A gain corrects what one weight brings. Under another weight it would be wrong for as long as it took to
    // unlearn it.
    let learned = before.weight.is_none() || before.weight == group.weight;
    Memo {
        counters,
        rates,
        weight: group.weight,
        controller: if learned {
            before.controller
        } else {
            Controller::default()
        },
        activity: before.activity.after(&rates, stall_share, elapsed_s),
        ..before.clone()
    }
}

/// Proportionality variation and share error of the contending groups, the largest of any disk; `None`: no two contend
/// for one.
fn unfairness(members: &[Member]) -> (Option<f64>, Option<f64>) {
    let contends = |&i: &usize| members[i].leaf && members[i].contends();
    let contenders: Vec<usize> = (0..members.len()).filter(contends).collect();
    let (mut pv, mut share_error) = (None, None);
    for on in order::on_one_disk(members, &contenders) {
        let of = |&i: &usize| {
            let member = &members[i];
            Some((member.group.weight?.get(), on.bytes_per_s(member)?))
        };
        let (weights, rates): (Vec<u32>, Vec<f64>) = on.groups.iter().filter_map(of).unzip();
        if weights.len() >= 2 {
            let larger = |a: Option<f64>, b: Option<f64>| a.into_iter().chain(b).reduce(f64::max);
            pv = larger(pv, metrics::proportionality_variation(&weights, &rates));
            share_error = larger(share_error, metrics::share_error(&weights, &rates));
        }
    }
    (pv, share_error)
}

#[cfg(test)]
mod tests;
