//! One step: what is remembered and what is seen become what is to be done.
//!
//! 1. Counters become rates; stalls decide who *contends* ([`crate::feedback::activity`]).
//! 2. Page cache is divided: entitlements, thresholds, `memory.low` ([`crate::share::entitlement`]). Where
//!    groups share files, the owner's protection goes to those that are charged
//!    ([`crate::share::ownership`]).
//! 3. Among the writers that contend or claim, gains move the page share and with it the bandwidth
//!    ([`crate::feedback::controller`]): `memory.high` at the share. Groups that mix reads with writes are
//!    limited at what they are entitled to, which the feedback does not touch; readers are not
//!    limited at all. All keep their protection; with a single contender there is nothing to order
//!    and no limit.
//! 4. Where the block layer has weights, they follow weight and gain. From the first time that
//!    writers are ordered, BFQ's `low_latency`, which overrides weights, is off: turning it on
//!    again in every lull would start each contention with the wrong weights. Readers alone do not
//!    turn it off: it serves them better than strict weights do.
//!
//! With objective `strict`, everybody who contends takes part in 3, readers too.
//!
//! Where the kernel module's gate is closed, it orders writers by weight and gain, and `memory.high` is
//! left alone for them ([`crate::gate`]).
//!
//! What the guard keeps free is no page cache to be divided in 2, and where memory is reserved,
//! limits make room for it ([`crate::guard`]).
//!
//! Declared colors come before 2 and after 3: a group that gives has a cap on its demand and on its
//! limit ([`crate::color::caps`]). Mode `memoplight` knows nothing else.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::color::caps;
use crate::color::rules::Supply;
use crate::color::working_set::WorkingSet;
use crate::config::{Config, Mode, Objective};
use crate::feedback::activity::Habits;
use crate::feedback::controller::{adjust, Controller, Measured};
use crate::feedback::limits::{self, Least};
use crate::gate;
use crate::guard::{self, Need, Pace};
use crate::plan::{HostRates, Plan};
use crate::rates::{Counters, Rates};
use crate::share::entitlement::{
    capacity, growing_demand, memory_of_groups, non_file, protections, Tree,
};
use crate::share::ownership::{Claims, Shift};
use crate::share::water::{divide, proportions, Node};
use crate::snapshot::{Group, GroupId, Pressure, Snapshot};
use crate::units::{Bytes, Limit};
use crate::verdicts::{judge, verdict};
use crate::writes;

/// Limits add up to this much of what the participants are entitled to: few fill their share, only
/// the ratio of the limits matters, and memory that nobody fills is lost (fileserver, 8 groups:
/// 68 MB/s without, 75 MB/s with).
const OVERCOMMIT: f64 = 1.25;

/// What [`State`] means. Raised when a state of before would be misread: a record holds states, and
/// a replay starts from one only if it was written under the same number.
pub const STATE_VERSION: u32 = 2;

/// What the policy remembers from one step to the next.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    /// Boxed: making the map sorts its entries, which are large.
    groups: BTreeMap<GroupId, Box<Memo>>,
    /// The host's stalls so far.
    waited: Pressure,
    /// Writers were ordered in this mode at least once: the disks are to serve them by weight.
    weights_must_hold: bool,
    /// Seconds since memory was last taken for a color.
    rebalanced_s: f64,
    guard: guard::Memory,
}

/// What is remembered of one group.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Memo {
    counters: Counters,
    pub(crate) rates: Rates,
    pub(crate) habits: Habits,
    demand: Option<Bytes>,
    pub(crate) non_file: Option<Bytes>,
    /// What a limit leaves it now.
    #[serde(skip)]
    pub(crate) least: Least,
    /// Seconds for which too little was known of it.
    pub(crate) blind_s: f64,
    controller: Controller,
    /// Page cache it may hold while it gives to others.
    pub(crate) cap: Option<Bytes>,
    /// It had a cap before this step.
    pub(crate) was_capped: bool,
    pub(crate) working_set: WorkingSet,
    /// How hard the guard may take from it.
    pub(crate) pace: Pace,
}

/// What a step worked out for one leaf.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Decided {
    /// Page cache it should have the use of (equation 1 and lending), whoever is charged.
    pub entitlement: Bytes,
    /// Page cache charged to it that should be kept.
    pub threshold: Bytes,
    /// Page cache it holds for others, and others for it: between the two above.
    pub shift: Shift,
    /// The limit it is to get; `None`: no opinion.
    pub high: Option<Limit>,
    /// Memory other than page cache grew since the last step.
    pub grew: Bytes,
    /// Smoothed bandwidth over ideal.
    pub of_ideal: Option<f64>,
    /// The gain on its share.
    pub gain: f64,
    /// It takes part in the feedback.
    pub participant: bool,
    /// The limit is what a color makes of it.
    pub rebalanced: bool,
    /// The limit is what a reservation for another group makes of it.
    pub makes_room: bool,
}

/// Decides: from what was remembered and what is seen now to what is remembered next and what is
/// to be done. `elapsed` is the time since the previous step's snapshot.
pub fn step(
    state: &State,
    snapshot: &Snapshot,
    config: &Config,
    elapsed: Duration,
) -> (State, Plan) {
    let elapsed_s = elapsed.as_secs_f64();
    let groups = &snapshot.groups;
    let tree = Tree::of(snapshot);
    let mut memos: Vec<Memo> = groups
        .iter()
        .map(|group| {
            let before = state.groups.get(&group.id).map(AsRef::as_ref);
            remember(before, group, config, elapsed_s)
        })
        .collect();
    let proportions = proportions(&tree.nodes(groups, |_| true, |_| None));
    let shared = snapshot.shared.as_deref().unwrap_or_default();
    let claims = Claims::of(groups, &tree, shared, &proportions);
    let mut need = Need::of(&state.guard, snapshot, config);
    let capacity = capacity(&snapshot.host, groups, &tree).map(|all| all - need.reserve());
    let memory = capacity.map(|capacity| memory_of_groups(capacity, groups, &tree));
    for (i, memo) in memos.iter_mut().enumerate() {
        memo.least = Least::of(&groups[i], memory.map(|all| all.scale(proportions[i])));
    }
    let rebalanced_s = caps::move_caps(
        &mut memos,
        groups,
        &tree,
        Supply::of_page_cache(&snapshot.host, need.reserve()),
        config,
        state.rebalanced_s,
        elapsed_s,
    );
    set_demands(&mut memos, groups, &claims.wanted(groups.len()), config);

    let nodes = tree.nodes(groups, |_| true, |i| memos[i].demand);
    let entitled = divide(capacity.unwrap_or_default(), &nodes);

    let mut decided: Vec<Decided> = claims
        .granted(&entitled)
        .into_iter()
        .zip(&entitled)
        .map(|(shift, &entitlement)| Decided {
            entitlement,
            threshold: shift.threshold(entitlement),
            shift,
            gain: 1.0,
            ..Decided::default()
        })
        .collect();
    match config.mode {
        Mode::Proportional => {
            let gated = gate::orders(snapshot.gate.as_ref());
            let (memos, decided) = (&mut memos, &mut decided);
            feed_back(memos, decided, groups, &tree, config, gated, elapsed_s);
            caps::hold_at_caps(memos, decided, groups);
        }
        Mode::Memoplight => {
            caps::limit_at_caps(&mut memos, &mut decided, groups, &tree, elapsed_s);
        }
        Mode::Justitia | Mode::Observe => {}
    }
    guard::limit_at_shares(&mut need, &mut decided, &memos, groups, &tree);

    let mut plan = Plan::default();
    if config.mode == Mode::Memoplight {
        plan.writes = writes::limits(groups, &decided);
    } else if config.mode != Mode::Observe {
        let thresholds: Vec<Bytes> = decided.iter().map(|d| d.threshold).collect();
        let low = memory.map(|all| {
            let used = |i: usize| Some(memos[i].demand? + non_file(&groups[i])?);
            let shares = divide(all, &tree.nodes(groups, |_| true, used));
            protections(&snapshot.host, groups, &tree, &thresholds, &shares)
        });
        plan.writes = writes::plan(groups, &tree, &decided, low.as_deref());
    }
    let gate = snapshot.gate.as_ref();
    plan.gate = gate::feeds(gate, config, groups, &tree, &proportions, &decided);
    let (guard, guarded, asks) = guard::decide(need, snapshot, &decided, &mut memos, &tree, config);
    plan.guard = guarded;
    plan.writes.extend(asks);
    for i in (0..groups.len()).filter(|&i| tree.leaf[i]) {
        plan.verdicts
            .push(verdict(&groups[i], &memos[i], &decided[i], proportions[i]));
    }
    (plan.pv, plan.share_error) = judge(groups, &memos, &tree);
    plan.host = HostRates::between(&state.waited, &snapshot.host.pressure, elapsed_s);
    let ordered = decided.iter().any(|decided| decided.participant);
    let weights_must_hold =
        config.mode == Mode::Proportional && (state.weights_must_hold || ordered);
    if weights_must_hold {
        let switches = writes::hold_weights(&snapshot.devices);
        plan.writes.splice(0..0, switches);
    }
    let ids = groups.iter().map(|group| group.id);
    let state = State {
        groups: ids.zip(memos.into_iter().map(Box::new)).collect(),
        waited: snapshot.host.pressure,
        weights_must_hold,
        rebalanced_s,
        guard,
    };
    (state, plan)
}

/// Brings one group's memory up to date.
fn remember(before: Option<&Memo>, group: &Group, config: &Config, elapsed_s: f64) -> Memo {
    let counters = Counters::of(group);
    let Some(before) = before else {
        return Memo {
            counters,
            non_file: non_file(group),
            ..Memo::default()
        };
    };
    let counted_s = group.read_after_s.unwrap_or(elapsed_s);
    let rates = Rates::between(&before.counters, &counters, counted_s);
    let habits = before.habits.after(&rates, &config.feedback, elapsed_s);
    Memo {
        counters,
        rates,
        habits,
        ..before.clone()
    }
}

/// Sets each leaf's demand: unbounded for who contends or claims by writing, what it holds and
/// room to grow for others, no more than its cap for who gives. A group that does nothing keeps
/// what it is entitled to and lends the rest. What it holds for others is not its demand but
/// theirs.
fn set_demands(memos: &mut [Memo], groups: &[Group], shifts: &[Shift], config: &Config) {
    for ((memo, group), shift) in memos.iter_mut().zip(groups).zip(shifts) {
        let habits = &memo.habits;
        let busy = habits.contending() == Some(true) || habits.claiming();
        let demand = match group.memory.file {
            Some(held) if !(busy && habits.writer()) => Some(growing_demand(shift.need(held))),
            _ => None,
        };
        let ceiling = limits::ceiling(group).into_iter();
        // In mode `memoplight` a cap says nothing of entitlements, which are only shown there.
        let cap = memo.cap.filter(|_| config.mode == Mode::Proportional);
        let most = ceiling.chain(cap).map(|most| shift.need(most));
        memo.demand = demand.into_iter().chain(most).min();
    }
}

/// Moves the gains and sets the limits of those who take part.
fn feed_back(
    memos: &mut [Memo],
    decided: &mut [Decided],
    groups: &[Group],
    tree: &Tree,
    config: &Config,
    gated: bool,
    elapsed_s: f64,
) {
    let parts = participants(memos, groups, tree, config, elapsed_s);
    let weights = proportions(&tree.nodes(
        groups,
        |i| parts.binary_search(&i).is_ok(),
        |_| Some(Bytes::ZERO),
    ));
    let measured: Vec<Measured> = parts
        .iter()
        .map(|&i| Measured {
            weight: weights[i],
            rate: memos[i].rates.bytes_per_s().unwrap_or(0.0),
            // Who gives has said that it does not need more.
            unused: memos[i].cap.is_some()
                || limits::leaves_share_unused(&groups[i]) && !memos[i].habits.claiming(),
            at_floor: limits::stands_at_floor(
                &groups[i],
                &memos[i].least,
                decided[i].shift.for_others,
            ),
        })
        .collect();
    let mut controllers: Vec<&mut Controller> = Vec::with_capacity(parts.len());
    for (i, memo) in memos.iter_mut().enumerate() {
        if parts.binary_search(&i).is_ok() {
            controllers.push(&mut memo.controller);
        }
    }
    adjust(&mut controllers, &measured, &config.feedback, elapsed_s);

    for (i, memo) in memos.iter_mut().enumerate() {
        if !tree.leaf[i] {
            // It may have been a leaf, and limited.
            decided[i].high = groups[i].knobs.operator.high;
            continue;
        }
        let other = non_file(&groups[i]);
        let d = &mut decided[i];
        d.grew = match (other, memo.non_file) {
            (Some(now), Some(then)) => now - then,
            _ => Bytes::ZERO,
        };
        memo.non_file = other.or(memo.non_file);
        // Who is known not to contend is not held back; of others nothing is concluded.
        let known = memo.rates.bytes_per_s().is_some() && memo.habits.contending().is_some();
        memo.blind_s = if known { 0.0 } else { memo.blind_s + elapsed_s };
        d.high = if known {
            Some(Limit::Max)
        } else {
            limits::blind_limit(&groups[i], &memo.least, memo.blind_s)
        };
    }
    set_limits(&parts, &weights, memos, decided, groups, gated);
    limit_mixed(&parts, memos, decided, groups, tree);
}

/// Who takes part in the feedback: the contenders whose bandwidth a page share moves, and with
/// them those who claim. Indices in increasing order; empty if there is nothing to order.
fn participants(
    memos: &mut [Memo],
    groups: &[Group],
    tree: &Tree,
    config: &Config,
    elapsed_s: f64,
) -> Vec<usize> {
    let strict = config.objective == Objective::Strict;
    let candidates: Vec<(usize, f64)> = (0..memos.len())
        .filter(|&i| tree.leaf[i] && non_file(&groups[i]).is_some())
        .filter(|&i| {
            // A group that is blocked moves nothing either, but it stalls.
            let habits = &memos[i].habits;
            let busy = !habits.idle() || habits.contending() == Some(true);
            busy && (strict || habits.writer())
        })
        .filter_map(|i| Some((i, memos[i].rates.bytes_per_s()?)))
        .collect();
    let shares = proportions(&tree.nodes(
        groups,
        |i| candidates.binary_search_by_key(&i, |c| c.0).is_ok(),
        |_| Some(Bytes::ZERO),
    ));
    let total: f64 = candidates.iter().map(|c| c.1).sum();
    for &(i, rate) in &candidates {
        let of_share = rate / (total * shares[i]).max(1.0);
        memos[i].habits.judge_claim(of_share, elapsed_s);
    }
    let contends = |i: usize| memos[i].habits.contending() == Some(true);
    let parts: Vec<usize> = candidates
        .iter()
        .map(|c| c.0)
        .filter(|&i| contends(i) || memos[i].habits.claiming())
        .collect();
    let limitable = parts.iter().any(|&i| contends(i));
    if parts.len() >= 2 && limitable {
        parts
    } else {
        Vec::new()
    }
}

/// Divides what the participants are entitled to together among them, by weight times gain. What a
/// group holds for others does not count: it gets room for that above its share. Writers that the
/// gate orders get no limit.
fn set_limits(
    parts: &[usize],
    weights: &[f64],
    memos: &[Memo],
    decided: &mut [Decided],
    groups: &[Group],
    gated: bool,
) {
    let own = |d: &Decided| d.entitlement - d.shift.by_others;
    let entitled: Bytes = parts.iter().map(|&i| own(&decided[i])).sum();
    let pool = entitled.scale(OVERCOMMIT);
    let nodes: Vec<Node> = parts
        .iter()
        .map(|&i| Node {
            parent: None,
            weight: Some(((weights[i] * memos[i].controller.gain() * 1e9) as u64).max(1)),
            floor: memos[i].least.file,
            demand: limits::ceiling(&groups[i])
                .into_iter()
                .chain(memos[i].cap)
                .min()
                .map(|most| most - decided[i].shift.for_others),
        })
        .collect();
    for (&i, share) in parts.iter().zip(divide(pool, &nodes)) {
        let d = &mut decided[i];
        let ordered = gated && memos[i].habits.writer();
        if memos[i].habits.contending() == Some(true) && !ordered {
            let file = share + d.shift.for_others;
            d.high = limits::limit(&groups[i], &memos[i].least, file, d.grew).or(d.high);
        }
        d.of_ideal = memos[i].controller.of_ideal();
        d.gain = memos[i].controller.gain();
        d.participant = true;
    }
}

/// Limits contenders that mostly read, but write a good deal too, at what they are entitled to:
/// dirty limits scale with `memory.high`, so without it the writes of all are served alike. What
/// nobody demands was lent out by the entitlements, so no memory lies idle.
fn limit_mixed(
    parts: &[usize],
    memos: &[Memo],
    decided: &mut [Decided],
    groups: &[Group],
    tree: &Tree,
) {
    let mixed: Vec<usize> = (0..memos.len())
        .filter(|&i| tree.leaf[i] && parts.binary_search(&i).is_err())
        .filter(|&i| memos[i].habits.contending() == Some(true) && memos[i].habits.mixes())
        .collect();
    if mixed.len() + parts.len() < 2 {
        return;
    }
    for i in mixed {
        let d = &mut decided[i];
        let own = (d.entitlement - d.shift.by_others).scale(OVERCOMMIT);
        d.high = limits::limit(
            &groups[i],
            &memos[i].least,
            own + d.shift.for_others,
            d.grew,
        )
        .or(d.high);
    }
}

#[cfg(test)]
mod tests;
