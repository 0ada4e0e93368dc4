//! The watch: measures the cost of the agent's own decisions, and withdraws a kind that costs too much.
//!
//! From time to time the watch *suspends* one kind of decision for some seconds. It compares the traffic of all
//! groups together during the suspension with their traffic before and after it, so a load that drifts counts on
//! both sides. If a kind costs more than the operator's `max_loss`, and the whole confidence interval lies above
//! that, the watch *withdraws* it for a while. The kind then gets another chance. Each time it costs too much
//! again, the watch withdraws it for twice as long.
//!
//! Traffic is the bytes that applications read and wrote, less the growth of dirty pages. A page that only became
//! dirty is a debt to the disk, and a lifted limit makes room for many such pages.
//!
//! Units: seconds, bytes. A loss is `1 - in force / suspended`; the watch averages its logarithm.
//!
//! Properties, each held by a test:
//! - *one at a time*: no two kinds are suspended at once;
//! - *promises stay*: protection, floors, bounds of tenants and colors are never suspended and never withdrawn;
//! - *nothing to compare, no suspension*: a host where no decision is in force suspends nothing, nor does a host
//!   whose groups come and go (groups that a tenant makes do not count);
//! - *no tenant decides alone*: a kind is withdrawn only if it costs too much with each tenant left out;
//! - *rare*: after a comparison without suspicion the next one comes later, up to [`RAREST_S`];
//! - *a loss comes to light*: a suspicion brings the next comparison forward;
//! - *in doubt, out of force*: where no disk serves writers by weight, limits begin withdrawn. They cost an
//!   eighth of the throughput there, and more (docs/results/fileserver.md, *Volumes*).
//!
//! Lending is left out. Lent memory must be read again, so a suspension of some seconds would cost more than it
//! could tell; [`crate::share::lend`] accounts for that cost itself. BFQ's `low_latency` is left out because only
//! the agent knows its prior value.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::decision::Member;
use crate::plan::{Finding, Loss, Phase, Reason, Watched};
use crate::snapshot::GroupId;
use crate::units::{Bytes, Limit};

/// Seconds in force before a kind's first comparison.
const FIRST_S: f64 = 120.0;
/// Seconds between the comparisons of two kinds.
const BETWEEN_S: f64 = 60.0;
/// Seconds to the next comparison: under suspicion, at first, and at most.
const SUSPECTED_S: f64 = 10.0;
const USUAL_S: f64 = 240.0;
const RAREST_S: f64 = 1800.0;
/// Growth of the time to the next comparison: usually, and once the interval shows no harm.
const LONGER: f64 = 1.5;
const LONGER_IF_HARMLESS: f64 = 3.0;
/// Seconds after a change that are not compared, at least and at most. They end once the disk has carried as many
/// bytes as the groups hold of page cache, because hits follow the page cache slowly.
const SETTLE_S: (f64, f64) = (4.0, 30.0);
/// Seconds of a window: what is compared.
const COMPARE_S: f64 = 8.0;
/// Comparisons that are kept, for how many seconds, and how many a verdict takes.
const KEPT: usize = 12;
const KEPT_S: f64 = 7200.0;
const ENOUGH: usize = 4;
/// A comparison that shows this many times `max_loss` raises a suspicion.
const SUSPECT: f64 = 2.0;
/// Seconds of a withdrawal, the first time and at most.
const WITHDRAWN_S: (f64, f64) = (300.0, 3600.0);
/// Gains count as in force if one is further from 1 than this factor.
const GAIN: f64 = 1.1;
/// Student's t for a confidence interval of 95 %, by degrees of freedom from 1 on.
const STUDENT: [f64; KEPT - 1] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201,
];

/// State of the watch from one step to the next.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Watch {
    trials: BTreeMap<Watched, Trial>,
    comparison: Option<Comparison>,
    /// Seconds until the next comparison may begin.
    between_s: f64,
}

/// Comparisons and schedule of one kind of decision.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Trial {
    /// The last step made such decisions, even if they were suspended.
    in_force: bool,
    /// The newest last.
    pairs: Vec<Pair>,
    /// Seconds in force until the next comparison.
    due_s: f64,
    /// Length of the last such time.
    wait_s: f64,
    /// Seconds until the withdrawal ends; 0: not withdrawn.
    withdrawn_s: f64,
    /// Withdrawals since the kind last proved harmless.
    withdrawals: u32,
    /// The next comparison comes soon.
    suspected: bool,
    comparisons: u64,
}

/// Result of one comparison.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Pair {
    ago_s: f64,
    /// Logarithm of the traffic while suspended over the traffic in force.
    ln_loss: f64,
}

/// A comparison under way: one window in force, one suspended, one in force.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Comparison {
    decision: Watched,
    /// Since the last window ended: seconds, and bytes that the disk carried for the groups.
    for_s: f64,
    carried: f64,
    /// Tenants, and other groups with known traffic. The comparison ends without a result if the latter change.
    groups: BTreeSet<GroupId>,
    /// Windows that have ended.
    windows: Vec<Window>,
    now: Option<Window>,
}

/// Traffic in one window, by tenant; [`NO_TENANT`]: all other groups.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Window {
    seconds: f64,
    bytes: BTreeMap<GroupId, f64>,
    /// Dirty pages of each group in the last step, as in [`Observed`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    dirty: BTreeMap<GroupId, (GroupId, f64)>,
}

const NO_TENANT: GroupId = GroupId(0);

/// Traffic and memory of the groups in one step.
#[derive(Debug, Default)]
struct Observed {
    groups: BTreeSet<GroupId>,
    bytes_per_s: BTreeMap<GroupId, f64>,
    /// Tenant and dirty bytes of each group.
    dirty: BTreeMap<GroupId, (GroupId, f64)>,
    transferable_per_s: f64,
    /// Page cache of all groups, bytes.
    file: f64,
}

impl Observed {
    fn of(members: &[Member]) -> Observed {
        let mut observed = Observed::default();
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
            observed.groups.insert(who);
            *observed.bytes_per_s.entry(tenant).or_default() += bytes_per_s;
            let dirty = member.group.memory.file_dirty.map(Bytes::as_f64);
            let dirty = dirty.map(|dirty| (member.group.id, (tenant, dirty)));
            observed.dirty.extend(dirty);
            let transferable = member.memo.rates.transferable_per_s();
            observed.transferable_per_s += transferable.unwrap_or_default();
            observed.file += member.group.memory.file.unwrap_or_default().as_f64();
        }
        observed
    }
}

/// The delegated directory in which the group lies, or [`NO_TENANT`].
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

impl Window {
    fn begin(observed: &Observed) -> Window {
        let mut window = Window::default();
        window.add(observed, 0.0);
        window
    }

    /// Adds a step. Dirty pages of a group that came are no growth, and those of one that left are not written back.
    fn add(&mut self, observed: &Observed, elapsed_s: f64) {
        self.seconds += elapsed_s;
        for (&tenant, bytes_per_s) in &observed.bytes_per_s {
            *self.bytes.entry(tenant).or_default() += bytes_per_s * elapsed_s;
        }
        for (group, &(tenant, dirty)) in &observed.dirty {
            let before = self.dirty.get(group).map_or(dirty, |before| before.1);
            *self.bytes.entry(tenant).or_default() -= dirty - before;
        }
        self.dirty.clone_from(&observed.dirty);
    }

    /// Traffic of all groups but this tenant's, bytes per second.
    fn rate(&self, without: Option<GroupId>) -> f64 {
        let counts = self
            .bytes
            .iter()
            .filter(|(&tenant, _)| Some(tenant) != without);
        counts.map(|(_, bytes)| bytes).sum::<f64>() / self.seconds
    }
}

impl Comparison {
    fn of(decision: Watched, observed: Observed) -> Comparison {
        Comparison {
            decision,
            for_s: 0.0,
            carried: 0.0,
            now: Some(Window::begin(&observed)),
            groups: observed.groups,
            windows: Vec::new(),
        }
    }

    fn is_suspended(&self) -> bool {
        self.windows.len() == 1
    }

    /// Whether the groups are the same. A tenant may come and go, so that it cannot end a comparison.
    fn compares(&self, observed: &Observed) -> bool {
        let windows = self.windows.iter().chain(&self.now);
        let tenants = windows
            .map(|window| &window.bytes)
            .chain([&observed.bytes_per_s]);
        let tenants: BTreeSet<GroupId> = tenants.flat_map(BTreeMap::keys).copied().collect();
        (&self.groups ^ &observed.groups).is_subset(&tenants)
    }

    /// Adds a step. True: the comparison is complete.
    fn go_on(&mut self, observed: &Observed, elapsed_s: f64) -> bool {
        self.for_s += elapsed_s;
        self.carried += observed.transferable_per_s * elapsed_s;
        if let Some(window) = &mut self.now {
            window.add(observed, elapsed_s);
            if window.seconds >= COMPARE_S {
                window.dirty.clear();
                self.windows.extend(self.now.take());
                (self.for_s, self.carried) = (0.0, 0.0);
            }
        } else if self.settled(observed) {
            self.now = Some(Window::begin(observed));
        }
        self.windows.len() == 3
    }

    fn settled(&self, observed: &Observed) -> bool {
        let turned_over = self.carried >= observed.file;
        self.for_s >= SETTLE_S.1 || (self.for_s >= SETTLE_S.0 && turned_over)
    }

    /// The least of the losses with each tenant left out in turn and with none left out. `None`: some window had no
    /// traffic.
    fn ln_loss(&self) -> Option<f64> {
        let [before, suspended, after] = self.windows.as_slice() else {
            return None;
        };
        let ln_loss = |without: Option<GroupId>| {
            let rates = [before, suspended, after].map(|window| window.rate(without));
            let [before, suspended, after] = rates.map(f64::ln);
            let moved = rates.iter().all(|&rate| rate > 0.0);
            moved.then(|| suspended - before.midpoint(after))
        };
        let tenants = self.windows.iter().flat_map(|window| window.bytes.keys());
        let tenants: BTreeSet<&GroupId> = tenants.filter(|&&tenant| tenant != NO_TENANT).collect();
        let without = tenants
            .into_iter()
            .filter_map(|&tenant| ln_loss(Some(tenant)));
        let all = ln_loss(None)?;
        Some(without.fold(all, f64::min))
    }
}

/// The lost window, from its logarithm.
fn part_lost(ln_loss: f64) -> f64 {
    1.0 - (-ln_loss).exp()
}

impl Trial {
    fn first() -> Trial {
        Trial {
            due_s: FIRST_S,
            wait_s: USUAL_S,
            ..Trial::default()
        }
    }

    /// Withdrawn before it was compared.
    fn is_doubt(&self) -> bool {
        self.withdrawn_s > 0.0 && self.comparisons == 0
    }

    /// Mean and interval of the loss. `None`: fewer than two comparisons have no interval.
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

    /// Decides after another comparison: withdraw, suspect, or compare later.
    fn judge(&mut self, ln_loss: f64, max_loss: f64) {
        self.comparisons += 1;
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
            self.withdraw();
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

    fn withdraw(&mut self) {
        let longer = f64::from(1 << self.withdrawals.min(8));
        self.withdrawn_s = (WITHDRAWN_S.0 * longer).min(WITHDRAWN_S.1);
        self.withdrawals += 1;
    }

    fn suspect(&mut self) {
        self.suspected = true;
        self.due_s = SUSPECTED_S;
        self.wait_s = USUAL_S;
    }

    /// Lets time pass. A kind whose withdrawal ends is compared again soon.
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
    /// No decision was made yet.
    pub(crate) fn is_new(&self) -> bool {
        *self == Watch::default()
    }

    /// Takes in a step and begins, continues or ends a comparison. `max_loss`: a part, above 0.
    pub(crate) fn look(&mut self, members: &[Member], max_loss: f64, elapsed_s: f64) {
        for trial in self.trials.values_mut() {
            trial.pass(elapsed_s);
        }
        self.between_s -= elapsed_s;
        let Some(mut comparison) = self.comparison.take() else {
            let next = self.next();
            self.comparison = next.map(|decision| Comparison::of(decision, Observed::of(members)));
            return;
        };
        let observed = Observed::of(members);
        let trial = self.trials.entry(comparison.decision).or_default();
        let other = !comparison.compares(&observed);
        let same = !other && trial.in_force;
        if same && !comparison.go_on(&observed, elapsed_s) {
            self.comparison = Some(comparison);
            return;
        }
        trial.due_s = USUAL_S;
        self.between_s = BETWEEN_S;
        if let Some(ln_loss) = comparison.ln_loss().filter(|_| same) {
            trial.judge(ln_loss, max_loss);
        } else if other && trial.comparisons == 0 && trial.withdrawals > 0 {
            // Nothing can be compared while groups come and go, so the doubt remains.
            trial.withdraw();
        }
    }

    /// The kind to compare now, if one is due.
    fn next(&self) -> Option<Watched> {
        let due = self.trials.iter().filter(|(_, trial)| {
            let due = trial.withdrawn_s <= 0.0 && trial.due_s <= 0.0;
            trial.in_force && due && (trial.suspected || self.between_s <= 0.0)
        });
        let next = due.min_by(|a, b| a.1.due_s.total_cmp(&b.1.due_s));
        next.map(|(&decision, _)| decision)
    }

    /// Whether a kind is suspended now.
    pub(crate) fn suspends(&self) -> bool {
        self.comparison
            .as_ref()
            .is_some_and(Comparison::is_suspended)
    }

    /// Whether this kind is not in force: suspended or withdrawn.
    pub(crate) fn lifts(&self, decision: Watched) -> bool {
        let (comparison, trial) = (self.comparison.as_ref(), self.trials.get(&decision));
        comparison.is_some_and(|of| of.is_suspended() && of.decision == decision)
            || trial.is_some_and(|trial| trial.withdrawn_s > 0.0)
    }

    /// Whether the withdrawal of this kind has ended since the step before.
    pub(crate) fn returned(&self, before: &Watch, decision: Watched) -> bool {
        let withdrawn = |watch: &Watch| {
            let trial = watch.trials.get(&decision);
            trial.is_some_and(|trial| trial.withdrawn_s > 0.0)
        };
        withdrawn(before) && !withdrawn(self)
    }

    /// Notes the kinds of decisions that this step made, in force or not.
    pub(crate) fn note(&mut self, decided: &BTreeSet<Watched>) {
        for trial in self.trials.values_mut() {
            trial.in_force = false;
        }
        for &decision in decided {
            let trial = self.trials.entry(decision).or_insert_with(Trial::first);
            trial.in_force = true;
        }
    }

    /// Lifts limits by weight while they are suspended or withdrawn. `served`: a disk, or the gate, serves writers by
    /// weight. Otherwise limits that are not compared yet are withdrawn. Returns whether a group is limited, and whether
    /// such limits are lifted.
    pub(crate) fn limits(&mut self, members: &mut [Member], served: bool) -> (bool, bool) {
        let limited = members.iter().any(is_limited);
        if limited {
            self.doubt_limits(served);
        }
        let lifted = self.lifts(Watched::Limits);
        if lifted {
            for member in members.iter_mut().filter(|member| is_limited(member)) {
                member.decision.high = Some((Limit::Max, Reason::Suspended));
            }
        }
        (limited, lifted)
    }

    fn doubt_limits(&mut self, served: bool) {
        let limits = Watched::Limits;
        if served {
            self.trials
                .retain(|&kind, trial| kind != limits || !trial.is_doubt());
            return;
        }
        let trial = self.trials.entry(limits).or_insert_with(Trial::first);
        if trial.due_s > 0.0 && trial.comparisons == 0 && trial.withdrawals == 0 {
            trial.withdraw();
        }
    }

    /// One finding for each kind.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        let finding = |(&decision, trial): (&Watched, &Trial)| {
            let phase = match () {
                () if trial.withdrawn_s > 0.0 => Phase::Withdrawn,
                () if self.lifts(decision) => Phase::Suspended,
                () if trial.in_force => Phase::InForce,
                () => Phase::Idle,
            };
            Finding {
                decision,
                phase,
                withdrawn_s: (trial.withdrawn_s > 0.0).then_some(trial.withdrawn_s),
                comparisons: trial.comparisons,
                loss: trial.loss(),
            }
        };
        self.trials.iter().map(finding).collect()
    }
}

fn is_limited(member: &Member) -> bool {
    member.leaf && matches!(member.decision.high, Some((Limit::Bytes(_), _)))
}

/// Whether gains move block weights. `serves`: some disk serves by block weight.
pub(crate) fn gains(members: &[Member], serves: bool) -> bool {
    let moved = |member: &Member| member.decision.gain.ln().abs() > GAIN.ln();
    serves && members.iter().any(|m| m.decision.participant && moved(m))
}

#[cfg(test)]
mod tests;
