//! The watch: what the agent's own decisions cost the groups, and which it does without for that.
//!
//! From time to time one kind of decisions *rests*: it is out of force for some seconds. The watch compares what
//! all groups get together at rest with what they get in force before and after, so a load that drifts counts
//! on both sides. A decision whose loss exceeds the operator's `max_loss`, beyond the interval, is *withdrawn*
//! for a while. Then it gets another chance, and if it costs too much again, it stays away for twice as long.
//!
//! What groups get together is the bytes that applications read and wrote, less the growth of dirty pages: pages
//! that only became dirty are a debt to the disk, and a limit that is lifted makes room for many of them.
//!
//! Units: seconds, bytes. A loss is `1 - in force / at rest`; its logarithm is what is averaged.
//!
//! Properties, each held by a test:
//! - *one at a time*: no two decisions rest at once;
//! - *promises stay*: protection, floors, bounds and colors never rest, and are never withdrawn;
//! - *nothing to compare, no rest*: a host where no decision is in force never rests, nor does one whose groups
//!   come and go (those that a tenant makes do not count);
//! - *no tenant decides alone*: a decision is withdrawn only if it costs too much with each tenant left out;
//! - *rare*: after each rest that raises no suspicion the next comes later, up to [`RAREST_S`];
//! - *a loss comes to light*: a suspicion brings the next rest forward.
//!
//! Left out: lending. Memory that was lent has to be read again, so a rest of some seconds would cost more than
//! it could tell; [`crate::share::lend`] weighs that itself. BFQ's `low_latency` is left out as well: what stood
//! there before is the agent's to know.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::decision::Member;
use crate::plan::{Decided, Finding, Loss, Phase, Reason};
use crate::snapshot::GroupId;
use crate::units::Limit;

/// A decision is in force for so long before it rests the first time.
const FIRST_S: f64 = 120.0;
/// Seconds between the rests of two decisions.
const BETWEEN_S: f64 = 60.0;
/// Seconds to the next rest: under suspicion, at first, and at most.
const SUSPECTED_S: f64 = 10.0;
const USUAL_S: f64 = 240.0;
const RAREST_S: f64 = 600.0;
/// What the time to the next rest grows by each time, and where the interval shows no harm.
const LONGER: f64 = 1.5;
const LONGER_IF_HARMLESS: f64 = 3.0;
/// Seconds after a change that are not compared, at least and at most: until the disk has carried as much as the
/// groups hold of page cache. What groups hit follows that slowly.
const SETTLE_S: (f64, f64) = (4.0, 30.0);
/// Seconds that are compared.
const COMPARE_S: f64 = 8.0;
/// Comparisons that are kept, how long, and how many it takes.
const KEPT: usize = 12;
const KEPT_S: f64 = 7200.0;
const ENOUGH: usize = 4;
/// A comparison that shows this many times the loss that is allowed is a suspicion.
const SUSPECT: f64 = 2.0;
/// Seconds for which a decision is withdrawn, the first time and at most.
const WITHDRAWN_S: (f64, f64) = (300.0, 3600.0);
/// A gain further from 1 than this factor is in force.
const GAIN: f64 = 1.1;
/// Student's t for an interval of 95 %, by degrees of freedom from 1 on.
const STUDENT: [f64; KEPT - 1] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201,
];

/// What is remembered of the watch.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Watch {
    trials: BTreeMap<Decided, Trial>,
    rest: Option<Rest>,
    /// Seconds until a decision may rest.
    between_s: f64,
}

/// What is known of one decision.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Trial {
    /// It was in force in the last step, or would have been.
    in_force: bool,
    /// The newest last.
    pairs: Vec<Pair>,
    /// Seconds in force until it rests next.
    due_s: f64,
    /// How long the last of these times was.
    wait_s: f64,
    /// Seconds for which it is still withdrawn.
    withdrawn_s: f64,
    /// How often it was withdrawn without having shown to be harmless.
    withdrawals: u32,
    /// The next rest comes soon.
    suspected: bool,
    rests: u64,
}

/// One comparison.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Pair {
    ago_s: f64,
    /// Logarithm of what the groups get at rest over what they get in force.
    ln_loss: f64,
}

/// A comparison under way: in force, at rest, in force.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Rest {
    decision: Decided,
    /// Since this part began: seconds, and bytes that the disk carried for the groups.
    for_s: f64,
    carried: f64,
    /// Tenants, and other groups whose traffic is known.
    groups: Vec<GroupId>,
    /// The parts that are over.
    parts: Vec<Part>,
    now: Option<Part>,
}

/// What groups got in one part, by tenant; [`NO_TENANT`]: all others.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Part {
    seconds: f64,
    bytes: BTreeMap<GroupId, f64>,
}

const NO_TENANT: GroupId = GroupId(0);

/// What was seen of the groups in a step.
#[derive(Debug, Default)]
struct Seen {
    groups: Vec<GroupId>,
    bytes_per_s: BTreeMap<GroupId, f64>,
    dirty: BTreeMap<GroupId, f64>,
    transferable_per_s: f64,
    /// Page cache.
    file: f64,
}

impl Seen {
    fn of(members: &[Member]) -> Seen {
        let mut seen = Seen::default();
        for (i, member) in members.iter().enumerate().filter(|(_, m)| m.leaf) {
            let Some(bytes_per_s) = member.memo.rates.bytes_per_s() else {
                continue;
            };
            let tenant = tenant(members, i);
            let who = if tenant == NO_TENANT {
                member.group.id
            } else {
                tenant
            };
            if seen.groups.last() != Some(&who) {
                seen.groups.push(who);
            }
            *seen.bytes_per_s.entry(tenant).or_default() += bytes_per_s;
            let dirty = member.group.memory.file_dirty.unwrap_or_default();
            *seen.dirty.entry(tenant).or_default() += dirty.as_f64();
            let transferable = member.memo.rates.transferable_per_s();
            seen.transferable_per_s += transferable.unwrap_or_default();
            seen.file += member.group.memory.file.unwrap_or_default().as_f64();
        }
        seen
    }
}

/// The directory that root delegated, if the group lies in one.
fn tenant(members: &[Member], i: usize) -> GroupId {
    let mut top = i;
    while let (true, Some(parent)) = (members[top].group.delegated, members[top].parent) {
        top = parent;
    }
    if top == i {
        NO_TENANT
    } else {
        members[top].group.id
    }
}

impl Part {
    fn add(&mut self, bytes: &BTreeMap<GroupId, f64>, factor: f64) {
        for (&tenant, bytes) in bytes {
            *self.bytes.entry(tenant).or_default() += bytes * factor;
        }
    }

    /// What all groups but this tenant's got, bytes a second.
    fn rate(&self, without: Option<GroupId>) -> f64 {
        let counts = self
            .bytes
            .iter()
            .filter(|(&tenant, _)| Some(tenant) != without);
        counts.map(|(_, bytes)| bytes).sum::<f64>() / self.seconds
    }
}

impl Rest {
    fn of(decision: Decided, seen: Seen) -> Rest {
        let mut rest = Rest {
            decision,
            for_s: 0.0,
            carried: 0.0,
            groups: Vec::new(),
            parts: Vec::new(),
            now: None,
        };
        rest.begin_part(&seen);
        rest.groups = seen.groups;
        rest
    }

    fn begin_part(&mut self, seen: &Seen) {
        let mut part = Part::default();
        part.add(&seen.dirty, 1.0);
        self.now = Some(part);
    }

    fn is_out(&self) -> bool {
        self.parts.len() == 1
    }

    /// Takes in a step. Whether it was the last one.
    fn go_on(&mut self, seen: &Seen, elapsed_s: f64) -> bool {
        self.for_s += elapsed_s;
        self.carried += seen.transferable_per_s * elapsed_s;
        if let Some(part) = &mut self.now {
            part.add(&seen.bytes_per_s, elapsed_s);
            part.seconds += elapsed_s;
            if part.seconds >= COMPARE_S {
                part.add(&seen.dirty, -1.0);
                self.parts.extend(self.now.take());
                (self.for_s, self.carried) = (0.0, 0.0);
            }
        } else if self.settled(seen) {
            self.begin_part(seen);
        }
        self.parts.len() == 3
    }

    fn settled(&self, seen: &Seen) -> bool {
        let turned_over = self.carried >= seen.file;
        self.for_s >= SETTLE_S.1 || (self.for_s >= SETTLE_S.0 && turned_over)
    }

    /// The least of the losses with each tenant left out, and with none. `None`: nothing moved.
    fn ln_loss(&self) -> Option<f64> {
        let [before, rest, after] = self.parts.as_slice() else {
            return None;
        };
        let ln_loss = |without: Option<GroupId>| {
            let rates = [before, rest, after].map(|part| part.rate(without));
            let [before, rest, after] = rates.map(f64::ln);
            let moved = rates.iter().all(|&rate| rate > 0.0);
            moved.then(|| rest - before.midpoint(after))
        };
        let tenants = rest.bytes.keys().filter(|&&tenant| tenant != NO_TENANT);
        let without = tenants.filter_map(|&tenant| ln_loss(Some(tenant)));
        let all = ln_loss(None)?;
        Some(without.fold(all, f64::min))
    }
}

/// The part that is lost.
fn part_lost(ln_loss: f64) -> f64 {
    1.0 - (-ln_loss).exp()
}

impl Trial {
    /// Mean and interval of the loss; `None`: one comparison has no interval.
    fn loss(&self) -> Option<Loss> {
        let count = self.pairs.len();
        let t = STUDENT.get(count.checked_sub(2)?)?;
        let count = count as f64;
        let mean = self.pairs.iter().map(|pair| pair.ln_loss).sum::<f64>() / count;
        let squares = self.pairs.iter().map(|pair| (pair.ln_loss - mean).powi(2));
        let error = t * (squares.sum::<f64>() / (count - 1.0) / count).sqrt();
        Some(Loss {
            least: part_lost(mean - error),
            mean: part_lost(mean),
            most: part_lost(mean + error),
        })
    }

    /// Judges the decision after another comparison.
    fn judge(&mut self, ln_loss: f64, max_loss: f64) {
        self.rests += 1;
        self.pairs.push(Pair {
            ago_s: 0.0,
            ln_loss,
        });
        if self.pairs.len() > KEPT {
            self.pairs.remove(0);
        }
        let enough = self.loss().filter(|_| self.pairs.len() >= ENOUGH);
        let harmless = enough.is_some_and(|loss| loss.most <= max_loss);
        if harmless {
            self.withdrawals = 0;
        }
        if enough.is_some_and(|loss| loss.least > max_loss) {
            let longer = f64::from(1 << self.withdrawals.min(8));
            self.withdrawn_s = (WITHDRAWN_S.0 * longer).min(WITHDRAWN_S.1);
            self.withdrawals += 1;
            return;
        }
        if part_lost(ln_loss) > SUSPECT * max_loss {
            self.suspect();
            return;
        }
        let longer = if harmless { LONGER_IF_HARMLESS } else { LONGER };
        self.suspected = false;
        self.due_s = self.wait_s;
        self.wait_s = (self.wait_s * longer).min(RAREST_S);
    }

    fn suspect(&mut self) {
        self.suspected = true;
        self.due_s = SUSPECTED_S;
        self.wait_s = USUAL_S;
    }

    /// Lets time pass. It is no longer withdrawn after that, and is to show soon what it does.
    fn pass(&mut self, elapsed_s: f64) {
        for pair in &mut self.pairs {
            pair.ago_s += elapsed_s;
        }
        self.pairs.retain(|pair| pair.ago_s < KEPT_S);
        if self.withdrawn_s <= 0.0 {
            if self.in_force {
                self.due_s -= elapsed_s;
            }
            return;
        }
        self.withdrawn_s -= elapsed_s;
        if self.withdrawn_s <= 0.0 {
            self.pairs.clear();
            self.suspect();
        }
    }
}

impl Watch {
    /// Nothing was decided yet.
    pub(crate) fn is_new(&self) -> bool {
        *self == Watch::default()
    }

    /// Takes in a step, ends or begins a comparison, and judges. `max_loss`: a part, above 0.
    pub(crate) fn look(&mut self, members: &[Member], max_loss: f64, elapsed_s: f64) {
        for trial in self.trials.values_mut() {
            trial.pass(elapsed_s);
        }
        self.between_s -= elapsed_s;
        let seen = Seen::of(members);
        let Some(mut rest) = self.rest.take() else {
            self.rest = self.next().map(|decision| Rest::of(decision, seen));
            return;
        };
        let trial = self.trials.entry(rest.decision).or_default();
        let same = rest.groups == seen.groups && trial.in_force;
        if same && !rest.go_on(&seen, elapsed_s) {
            self.rest = Some(rest);
            return;
        }
        trial.due_s = USUAL_S;
        self.between_s = BETWEEN_S;
        if let Some(ln_loss) = rest.ln_loss().filter(|_| same) {
            trial.judge(ln_loss, max_loss);
        }
    }

    /// The decision that rests next, if one is to.
    fn next(&self) -> Option<Decided> {
        let due = self.trials.iter().filter(|(_, trial)| {
            let due = trial.withdrawn_s <= 0.0 && trial.due_s <= 0.0;
            trial.in_force && due && (trial.suspected || self.between_s <= 0.0)
        });
        let next = due.min_by(|a, b| a.1.due_s.total_cmp(&b.1.due_s));
        next.map(|(&decision, _)| decision)
    }

    /// Whether a decision rests now.
    pub(crate) fn rests(&self) -> bool {
        self.rest.as_ref().is_some_and(Rest::is_out)
    }

    /// Whether this decision is out of force, at rest or withdrawn.
    pub(crate) fn out(&self, decision: Decided) -> bool {
        let rests = self.rest.as_ref().filter(|rest| rest.is_out());
        let withdrawn = self.trials.get(&decision);
        rests.is_some_and(|rest| rest.decision == decision)
            || withdrawn.is_some_and(|trial| trial.withdrawn_s > 0.0)
    }

    /// Notes what this step decided, whether it is in force or would be.
    pub(crate) fn note(&mut self, decided: &BTreeSet<Decided>) {
        for trial in self.trials.values_mut() {
            trial.in_force = false;
        }
        for &decision in decided {
            let first = || Trial {
                due_s: FIRST_S,
                wait_s: USUAL_S,
                ..Trial::default()
            };
            self.trials.entry(decision).or_insert_with(first).in_force = true;
        }
    }

    /// What there is to tell.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        let finding = |(&decision, trial): (&Decided, &Trial)| {
            let phase = match () {
                () if trial.withdrawn_s > 0.0 => Phase::Withdrawn,
                () if self.out(decision) => Phase::Rests,
                () if trial.in_force => Phase::InForce,
                () => Phase::Idle,
            };
            Finding {
                decision,
                phase,
                withdrawn_s: (trial.withdrawn_s > 0.0).then_some(trial.withdrawn_s),
                rests: trial.rests,
                loss: trial.loss(),
            }
        };
        self.trials.iter().map(finding).collect()
    }
}

/// Whether somebody is limited by weight. With `out` the limit is lifted.
pub(crate) fn limits(members: &mut [Member], out: bool) -> bool {
    let mut limited = false;
    for member in members.iter_mut().filter(|member| member.leaf) {
        if let Some((Limit::Bytes(_), _)) = member.decision.high {
            limited = true;
            if out {
                member.decision.high = Some((Limit::Max, Reason::OutOfForce));
            }
        }
    }
    limited
}

/// Whether gains move block weights. `serves`: some disk is served by them.
pub(crate) fn gains(members: &[Member], serves: bool) -> bool {
    let moved = |member: &Member| member.decision.gain.ln().abs() > GAIN.ln();
    serves && members.iter().any(|m| m.decision.participant && moved(m))
}

#[cfg(test)]
mod tests;
