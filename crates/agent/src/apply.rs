//! The only writer to the host: takes a plan, keeps the journal, respects foreign writers.
//!
//! For each write: read the knob; decide who owns it; record its prior value (one batch for the plan, on disk
//! before the first write); record the new value; submit to the writer's threads. A knob whose write is
//! stuck in the kernel is skipped until that write returns or times out; no other knob waits for it.
//! Raising a limit waits for nothing: a lower limit is in force while its write is stuck, and throttles its group.
//!
//! `owner.rs` decides who owns a knob. A knob of the user's is left alone, and the journal forgets it, so
//! that we never restore it ([`foreign`]).
//!
//! `memory.reclaim` holds no value, so nothing is recorded or restored. The kernel blocks its writer until it
//! has the pages, so these writes have threads of their own ([`reclaim`]): a slow one delays no limit and no
//! protection.
//!
//! The kernel module's gate is fed here too ([`gate`]).
//!
//! This module decides nothing: the plan says what to write.

mod foreign;
pub mod gate;
mod reclaim;
pub(crate) mod writers;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use justitia_cgroup::{Fs, Group, Outcome, WriteResult};
use justitia_policy::plan::{Knob, Plan, Reason, Value};
use justitia_policy::snapshot::GroupId;

use crate::journal::{Entry, Journal, Key};
use crate::log::Log;
use crate::observe::Observer;
use crate::owner::{Owner, Owners};
use crate::record::{rounded, same};
use crate::restore::{begin, find, forget, Arrival, Restored, Return};
use crate::status::{Priors, Problem, Reclaimed};

use gate::Gate;
use reclaim::Reclaimer;

pub use writers::Writers;

use writers::{is_limit, raises};

/// A write about to be submitted.
struct Submit {
    group: Group,
    knob: Knob,
    /// The knob's present value.
    present: Value,
    value: Value,
    reason: Reason,
}

impl Submit {
    /// The write that is allowed while the journal cannot be written: a limit that rises goes to its prior
    /// value, which the journal names.
    fn without_journal(self, journal: &Journal) -> Option<Submit> {
        let prior = journal.get(self.group.id(), self.knob)?.prior;
        let rises = raises(self.knob, self.present, self.value);
        (rises && raises(self.knob, self.present, prior)).then_some(Submit {
            value: prior,
            ..self
        })
    }
}

/// Time that queued writes may take when the agent stops, and time that knobs may take on their way back
/// before they are a problem.
const LAST_WRITES: Duration = Duration::from_secs(2);

/// The only writer to the host.
pub struct Applier {
    journal: Journal,
    writers: Writers,
    log: Log,
    /// Writes submitted whose outcome is not known yet.
    in_flight: HashMap<Key, Value>,
    /// Number of writes to a knob that may still arrive, those past their deadline included.
    pending: HashMap<Key, u32>,
    /// Knobs on their way back to their prior values.
    returns: Vec<Return>,
    /// The owners of the knobs, from the previous agent and for the next one.
    pub(crate) owners: Owners,
    /// A knob became the user's since the state was last saved.
    pub(crate) gave_up: bool,
    /// A knob left its prior value since the state was last saved.
    pub(crate) new_hold: bool,
    priors: Arc<Priors>,
    outcomes: Vec<Outcome>,
    submitted: u64,
    reclaimer: Reclaimer,
    pub(crate) gate: Gate,
}

impl Applier {
    /// A writer that keeps its promises in `journal`.
    pub fn new(journal: Journal, writers: Writers, log: Log) -> Applier {
        let mut applier = Applier {
            journal,
            writers,
            log,
            in_flight: HashMap::new(),
            pending: HashMap::new(),
            returns: Vec::new(),
            owners: Owners::default(),
            gave_up: false,
            new_hold: false,
            priors: Arc::default(),
            outcomes: Vec::new(),
            submitted: 0,
            reclaimer: Reclaimer::default(),
            gate: Gate::default(),
        };
        applier.post_priors();
        applier
    }

    /// Tells the observer of the knobs that were the user's before this agent began.
    pub(crate) fn tell_foreign(&self, observer: &mut Observer) {
        for group in self.owners.groups() {
            observer.set_foreign(group, self.owners.of_group(group));
        }
    }

    /// The prior values of our knobs.
    pub fn priors(&self) -> Arc<Priors> {
        Arc::clone(&self.priors)
    }

    /// Number of plans' writes submitted so far. A value that a knob held already is no write.
    pub fn submitted(&self) -> u64 {
        self.submitted
    }

    /// Totals of `memory.reclaim` so far.
    pub fn reclaimed(&self) -> Reclaimed {
        self.reclaimer.totals
    }

    /// Takes in the outcomes of earlier writes.
    pub fn settle(&mut self, observer: &mut Observer) -> Vec<Problem> {
        let mut problems = self.reclaimer.settle(observer);
        self.writers.outcomes(&mut self.outcomes);
        for outcome in self.outcomes.drain(..) {
            let key = (outcome.group, outcome.knob);
            ended(&mut self.pending, &outcome);
            let newest = self.in_flight.get(&key) == Some(&outcome.value);
            match &outcome.result {
                WriteResult::Superseded => continue,
                // The next value may go past it: raising a limit frees a group that hangs.
                WriteResult::TimedOut => {
                    let group = observer.group(outcome.group);
                    problems.push(Problem {
                        group: group.map(|group| group.path().to_owned()),
                        cause: format!("writing {} is stuck in the kernel", outcome.knob),
                        remedy: "wait; other groups are not affected".into(),
                    });
                    observer.look_again(outcome.group);
                }
                WriteResult::Failed(error) | WriteResult::Late(Err(error)) if !error.is_gone() => {
                    problems.push(Problem::of(&error.path, error));
                }
                WriteResult::Done if newest => {
                    note_arrival(&mut self.owners, &self.journal, &outcome);
                    observer.know(outcome.group, outcome.knob, rounded(outcome.value));
                }
                // Somebody else wrote it first. The next look judges their value.
                WriteResult::Changed => observer.look_again(outcome.group),
                // A newer value may have gone past it.
                WriteResult::Done | WriteResult::Late(Ok(_)) => {
                    note_arrival(&mut self.owners, &self.journal, &outcome);
                    observer.look_again(outcome.group);
                }
                WriteResult::Partial | WriteResult::Failed(_) | WriteResult::Late(_) => {}
            }
            if newest {
                self.in_flight.remove(&key);
            }
        }
        // The limit of a write that hangs is in force: what it should be now is decided against that.
        let limits = self.in_flight.keys().filter(|(_, knob)| is_limit(*knob));
        limits.for_each(|&(group, _)| observer.doubt(group));
        self.look_after_returns(&mut problems);
        problems
    }

    /// Forgets knobs that are back, or somebody else's, once no write of ours is on its way to them. A knob
    /// that an earlier write reached later is restored again.
    fn look_after_returns(&mut self, problems: &mut Vec<Problem>) {
        let mut done = Vec::new();
        for back in std::mem::take(&mut self.returns) {
            let key = (back.group.id(), back.knob);
            let settled = !self.pending.contains_key(&key);
            let back_or_gone = match back.look() {
                Arrival::Vanished => true,
                Arrival::Back => settled,
                Arrival::Pending(Some(present))
                    if settled && !self.journal.is_ours(key, present) =>
                {
                    true
                }
                Arrival::Pending(Some(present)) if settled => {
                    let Return {
                        group, knob, prior, ..
                    } = &back;
                    self.writers.submit_over(group, *knob, present, *prior);
                    self.note_submitted(key, *prior);
                    false
                }
                Arrival::Pending(_) => false,
            };
            if back_or_gone {
                done.push(key);
                continue;
            }
            if back.since.elapsed() > LAST_WRITES {
                problems.push(back.problem());
            }
            self.returns.push(back);
        }
        if !done.is_empty() {
            forget(&mut self.journal, &done, problems);
            self.post_priors();
        }
    }

    /// Begins to restore the knobs of these groups, and returns at once. [`Applier::settle`] sees them
    /// arrive.
    pub fn put_back(&mut self, fs: &Fs, concerns: impl Fn(GroupId) -> bool) -> Vec<Problem> {
        let mut restored = Restored::default();
        let on_the_way: HashSet<_> = self
            .returns
            .iter()
            .map(|r| (r.group.id(), r.knob))
            .collect();
        let returns = begin(
            fs,
            &mut self.journal,
            &self.writers,
            |key| concerns(key.0) && !on_the_way.contains(&key),
            |key| self.pending.contains_key(&key),
            &mut restored,
        );
        for back in returns {
            self.note_submitted((back.group.id(), back.knob), back.prior);
            self.returns.push(back);
        }
        self.post_priors();
        restored.problems
    }

    /// Writes a plan. A write that is impossible now is a problem of its group alone. While the journal
    /// cannot be written, limits are only raised, to values that it names already, so no group stalls under a
    /// limit because of a full disk.
    pub fn apply(&mut self, plan: &Plan, observer: &mut Observer) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut holds = Vec::new();
        let mut records = Vec::with_capacity(plan.writes.len());
        let mut submits: Vec<Submit> = Vec::with_capacity(plan.writes.len());
        let mut lost = Vec::new();
        let (mut asks, mut takes) = (Vec::new(), false);
        for write in &plan.writes {
            let (id, knob, value, reason) = (write.group, write.knob, write.value, write.reason);
            let Some(group) = observer.group(id) else {
                continue;
            };
            let flying = self.in_flight.get(&(id, knob)).copied();
            let waits = flying.is_some_and(|flying| !raises(knob, flying, value));
            if waits || self.owners.is_foreign((id, knob)) {
                continue;
            }
            if !knob.holds_value() {
                asks.push((group.clone(), value, reason));
                continue;
            }
            let present = match group.read_knob(knob) {
                Ok(Some(present)) => present,
                // The file is missing: the policy will see that when knobs are read next.
                Ok(None) => continue,
                Err(error) => {
                    if !error.is_gone() {
                        problems.push(Problem::of(group.path(), &error));
                    }
                    continue;
                }
            };
            let other = || group.read_knob(knob.sibling()?).ok()?;
            let owner = self.owner((id, knob), present, other);
            // `check` has looked in this step. A manager must have until the next one for its other write.
            if owner == Owner::Doubtful {
                continue;
            }
            match self.owners.judge((id, knob), owner) {
                Owner::Ours | Owner::Doubtful => {}
                Owner::Users => {
                    lost.push((id, knob, present));
                    continue;
                }
                Owner::Reset => {
                    let path = group.path();
                    self.log
                        .warn_once(format_args!("{path} {knob} was set back to {present}"));
                }
            }
            // A write that has not begun gives way to the same value, too.
            if flying.is_none() && same(present, value) {
                observer.know(id, knob, present);
                continue;
            }
            let entry = self.journal.get(id, knob);
            takes |= entry.is_none_or(|entry| same(present, entry.prior));
            if entry.is_none() {
                let made = self.is_made(observer, (id, knob), present);
                self.owners.take((id, knob), made);
                holds.push(((id, knob), Entry::new(group.path(), present)));
            }
            records.push((id, knob, value));
            submits.push(Submit {
                group: group.clone(),
                knob,
                present,
                value,
                reason,
            });
        }
        self.give_up(&lost, observer, &mut problems);
        let held = self.journal.hold(&holds);
        self.new_hold |= held.is_ok() && takes;
        if let Err(error) = held.and_then(|()| self.journal.wrote(&records)) {
            problems.push(Problem {
                cause: format!(
                    "{}: until the journal can be written, limits are only raised",
                    error.cause
                ),
                ..Problem::general(&error)
            });
            submits = submits
                .into_iter()
                .filter_map(|submit| submit.without_journal(&self.journal))
                .collect();
        }
        if !holds.is_empty() {
            self.post_priors();
        }
        self.submit(submits);
        for (group, value, reason) in asks {
            let (path, knob) = (group.path(), Knob::MemoryReclaim);
            self.log
                .debug(format_args!("{path} {knob} = {value}: {reason}"));
            match self.reclaimer.ask(&group, value) {
                Ok(asked) => self.submitted += u64::from(asked),
                Err(problem) => problems.push(problem),
            }
        }
        problems
    }

    fn note_submitted(&mut self, key: Key, value: Value) {
        self.in_flight.insert(key, value);
        *self.pending.entry(key).or_default() += 1;
    }

    fn submit(&mut self, submits: Vec<Submit>) {
        for submit in submits {
            let Submit {
                group,
                knob,
                present,
                value,
                reason,
            } = submit;
            let path = group.path();
            self.log
                .debug(format_args!("{path} {knob} = {value}: {reason}"));
            let key = (group.id(), knob);
            self.note_submitted(key, value);
            self.returns
                .retain(|back| (back.group.id(), back.knob) != key);
            self.writers.submit_over(&group, knob, present, value);
            self.submitted += 1;
        }
    }

    /// Forgets the held knobs of groups that are gone. Returns the groups that still exist but are no longer
    /// watched, because they are no longer managed. If it cannot be told whether a group exists, that is a
    /// problem, and its knobs stay held.
    pub fn forget_vanished(
        &mut self,
        fs: &Fs,
        observer: &Observer,
    ) -> (HashSet<GroupId>, Vec<Problem>) {
        let mut remain = HashSet::new();
        let mut unsure = HashMap::new();
        let mut gone = Vec::new();
        let returning: HashSet<_> = self.returns.iter().map(|back| back.group.id()).collect();
        for (&(group, knob), entry) in self.journal.entries() {
            if observer.group(group).is_some()
                || returning.contains(&group)
                || remain.contains(&group)
                || unsure.contains_key(&group)
            {
                continue;
            }
            match find(fs, &entry.path, group) {
                Ok(Some(_)) => {
                    remain.insert(group);
                }
                Ok(None) => gone.push((group, knob)),
                Err(error) => {
                    unsure.insert(group, Problem::of(&entry.path, &error));
                }
            }
        }
        let mut problems: Vec<Problem> = unsure.into_values().collect();
        if !gone.is_empty() {
            self.in_flight.retain(|key, _| !gone.contains(key));
            self.pending.retain(|key, _| !gone.contains(key));
            forget(&mut self.journal, &gone, &mut problems);
            self.post_priors();
        }
        (remain, problems)
    }

    /// Forgets the owners of knobs of groups that are gone.
    pub fn retain_foreign(&mut self, observer: &Observer) {
        self.owners.retain(|group| observer.group(group).is_some());
    }

    /// Waits for writes on their way, and returns the journal for restoring everything.
    pub fn quiesce(&mut self) -> (&mut Journal, &Writers) {
        self.writers.drain(LAST_WRITES);
        self.writers.drain_disks();
        self.outcomes.clear();
        self.writers.outcomes(&mut self.outcomes);
        for outcome in self.outcomes.drain(..) {
            ended(&mut self.pending, &outcome);
            if matches!(outcome.result, WriteResult::Done | WriteResult::Late(Ok(_))) {
                note_arrival(&mut self.owners, &self.journal, &outcome);
            }
        }
        self.in_flight.clear();
        (&mut self.journal, &self.writers)
    }

    /// Publishes the prior values of the knobs that are held.
    pub fn post_priors(&mut self) {
        let entries = self.journal.entries().iter();
        self.priors = Arc::new(entries.map(|(&key, entry)| (key, entry.prior)).collect());
    }

    /// The journal, to close it.
    pub fn into_journal(self) -> Journal {
        self.journal
    }
}

/// Removes a write that will not arrive any more from the count. A write that timed out may still arrive.
fn ended(pending: &mut HashMap<Key, u32>, outcome: &Outcome) {
    let key = (outcome.group, outcome.knob);
    if matches!(outcome.result, WriteResult::TimedOut) {
        return;
    }
    if let Some(count) = pending.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            pending.remove(&key);
        }
    }
}

/// Notes that a write of ours has arrived.
fn note_arrival(owners: &mut Owners, journal: &Journal, outcome: &Outcome) {
    let entry = journal.get(outcome.group, outcome.knob);
    let prior = entry.is_some_and(|entry| same(entry.prior, outcome.value));
    owners.note_arrival((outcome.group, outcome.knob), prior);
}
