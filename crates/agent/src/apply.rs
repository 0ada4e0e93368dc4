//! The only writer to the host: takes a plan, keeps the journal, respects foreign writers.
//!
//! For each write: read what the knob holds; decide whose it is; record what it held before us
//! (one batch for the plan, on disk before the first write); record what we are about to write;
//! submit to the writer's threads. A group whose write is stuck in the kernel is skipped until
//! that write comes back; no other group waits for it.
//!
//! Whose a knob is says `owner.rs`. One that is the user's is left alone; the journal forgets
//! it, so that we never restore it.
//!
//! `memory.reclaim` holds no value: nothing is recorded of it, and there is nothing to restore. The
//! kernel keeps its writer until it has the pages, so these writes have threads of their own
//! ([`reclaim`]): a slow one delays no limit and no protection.
//!
//! The gate of the kernel module is told here too ([`gate`]).
//!
//! Decides nothing: what to write is the plan's.

pub mod gate;
mod reclaim;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use justitia_cgroup::{Fs, Group, Outcome, WriteResult, Writer};
use justitia_policy::plan::{Knob, Plan, Value};
use justitia_policy::snapshot::GroupId;

use crate::error::Result;
use crate::journal::{Entry, Hold, Journal};
use crate::log::Log;
use crate::observe::Observer;
use crate::owner::{owner, sibling, Ours, Owner, Owners};
use crate::record::{rounded, same};
use crate::restore::find;
use crate::status::{Priors, Problem, KNOBS};

use gate::Gate;
use reclaim::Reclaimer;

pub use reclaim::Reclaimed;

/// How long queued writes may take when the agent stops.
const LAST_WRITES: Duration = Duration::from_secs(2);

/// The only writer to the host.
pub struct Applier {
    journal: Journal,
    writer: Writer,
    log: Log,
    /// Writes submitted whose outcome is not known yet.
    in_flight: HashMap<(GroupId, Knob), Value>,
    owners: Owners,
    priors: Arc<Priors>,
    outcomes: Vec<Outcome>,
    submitted: u64,
    reclaimer: Reclaimer,
    gate: Gate,
}

impl Applier {
    /// A writer that keeps its promises in `journal`.
    pub fn new(journal: Journal, writer: Writer, log: Log) -> Applier {
        let mut applier = Applier {
            journal,
            writer,
            log,
            in_flight: HashMap::new(),
            owners: Owners::default(),
            priors: Arc::default(),
            outcomes: Vec::new(),
            submitted: 0,
            reclaimer: Reclaimer::default(),
            gate: Gate::default(),
        };
        applier.post_priors();
        applier
    }

    /// What our knobs held before us.
    pub fn priors(&self) -> Arc<Priors> {
        Arc::clone(&self.priors)
    }

    /// Writes of plans handed to the kernel so far; what a knob held already was none.
    pub fn submitted(&self) -> u64 {
        self.submitted
    }

    /// What was asked of `memory.reclaim` so far.
    pub fn reclaimed(&self) -> Reclaimed {
        self.reclaimer.totals()
    }

    /// The kernel module's gate.
    pub(crate) fn gate(&mut self) -> &mut Gate {
        &mut self.gate
    }

    /// Takes in how earlier writes went.
    pub fn settle(&mut self, observer: &mut Observer) -> Vec<Problem> {
        let mut problems = self.reclaimer.settle(observer);
        self.writer.outcomes(&mut self.outcomes);
        for outcome in self.outcomes.drain(..) {
            let key = (outcome.group, outcome.knob);
            let path = || {
                let group = observer.group(outcome.group);
                group.map(|group| group.path().to_owned())
            };
            let mut problem = |cause: String, remedy: &str| {
                problems.push(Problem {
                    group: path(),
                    cause,
                    remedy: remedy.to_owned(),
                });
            };
            match &outcome.result {
                WriteResult::Superseded => continue,
                // The next value may go past it: raising a limit is what frees a group that hangs.
                WriteResult::TimedOut => problem(
                    format!("writing {} is stuck in the kernel", outcome.knob),
                    "wait; other groups are not affected",
                ),
                WriteResult::Failed(error) | WriteResult::Late(Err(error)) if !error.is_gone() => {
                    problem(error.to_string(), error.remedy());
                }
                WriteResult::Done => {
                    self.owners.note_arrival(outcome.group, outcome.knob);
                    observer.know(outcome.group, outcome.knob, rounded(outcome.value));
                }
                // A newer value may have gone past it.
                WriteResult::Late(Ok(_)) => {
                    self.owners.note_arrival(outcome.group, outcome.knob);
                }
                WriteResult::Partial | WriteResult::Failed(_) | WriteResult::Late(_) => {}
            }
            if self.in_flight.get(&key) == Some(&outcome.value) {
                self.in_flight.remove(&key);
            }
        }
        problems
    }

    /// Looks at knobs that were read just now: whose are they?
    pub fn check(&mut self, read: &[GroupId], observer: &mut Observer) -> Result<()> {
        let mut lost = Vec::new();
        for &group in read {
            for knob in KNOBS {
                let Some(present) = observer.knob(group, knob) else {
                    continue;
                };
                let other = || observer.knob(group, sibling(knob)?);
                if self.owner(group, knob, present, other) == Owner::Users {
                    lost.push((group, knob, present));
                }
            }
        }
        self.give_up(&lost, observer)
    }

    /// Writes a plan. What cannot be written now is a problem of its group alone.
    pub fn apply(&mut self, plan: &Plan, observer: &mut Observer) -> Result<Vec<Problem>> {
        let mut problems = Vec::new();
        let mut holds = Vec::new();
        let mut records = Vec::with_capacity(plan.writes.len());
        let mut submits: Vec<(Group, Knob, Value)> = Vec::with_capacity(plan.writes.len());
        let mut lost = Vec::new();
        let mut asks = Vec::new();
        for write in &plan.writes {
            let (id, knob, value) = (write.group, write.knob, write.value);
            let Some(group) = observer.group(id) else {
                continue;
            };
            if self.owners.is_foreign(id, knob) || self.in_flight.contains_key(&(id, knob)) {
                continue;
            }
            if knob == Knob::MemoryReclaim {
                asks.push((group.clone(), value));
                continue;
            }
            if knob.holds_value() {
                let present = match group.read_knob(knob) {
                    Ok(Some(present)) => present,
                    // The file is not there: the policy will see that when knobs are read next.
                    Ok(None) => continue,
                    Err(error) => {
                        if !error.is_gone() {
                            problems.push(Problem::of(group.path(), &error));
                        }
                        continue;
                    }
                };
                let other = || group.read_knob(sibling(knob)?).ok()?;
                let mut owner = self.owner(id, knob, present, other);
                if owner == Owner::Reset {
                    if self.owners.insists(id, knob, Instant::now()) {
                        owner = Owner::Users;
                    }
                    let path = group.path();
                    self.log
                        .warn_once(format_args!("{path} {knob} was set back to {present}"));
                }
                if owner == Owner::Users {
                    lost.push((id, knob, present));
                    continue;
                }
                if same(present, value) {
                    observer.know(id, knob, present);
                    continue;
                }
                if self.journal.get(id, knob).is_none() {
                    self.owners.take(id, knob);
                    holds.push(Hold {
                        group: id,
                        path: group.path().into(),
                        knob,
                        prior: present,
                    });
                }
                records.push((id, knob, value));
            }
            submits.push((group.clone(), knob, value));
        }
        self.give_up(&lost, observer)?;
        self.journal.hold(&holds)?;
        self.journal.wrote(&records)?;
        if !holds.is_empty() {
            self.post_priors();
        }
        for (group, knob, value) in submits {
            if self.log.is_verbose() {
                self.debug_write(&group, knob, value, plan);
            }
            self.in_flight.insert((group.id(), knob), value);
            self.writer.submit(&group, knob, value);
            self.submitted += 1;
        }
        for (group, value) in asks {
            if self.log.is_verbose() {
                self.debug_write(&group, Knob::MemoryReclaim, value, plan);
            }
            match self.reclaimer.ask(&group, value) {
                Ok(asked) => self.submitted += u64::from(asked),
                Err(problem) => problems.push(problem),
            }
        }
        Ok(problems)
    }

    /// Forgets what is held of groups that are gone; returns those that are no longer watched but
    /// still there, because they are no longer managed. Of which that cannot be told is a problem;
    /// those stay held.
    pub fn forget_vanished(
        &mut self,
        fs: &Fs,
        observer: &Observer,
    ) -> Result<(HashSet<GroupId>, Vec<Problem>)> {
        let mut remain = HashSet::new();
        let mut unsure = HashMap::new();
        let mut gone = Vec::new();
        for (&(group, knob), entry) in self.journal.entries() {
            if observer.group(group).is_some()
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
        if !gone.is_empty() {
            self.in_flight.retain(|key, _| !gone.contains(key));
            self.journal.forget(&gone)?;
            self.post_priors();
        }
        Ok((remain, unsure.into_values().collect()))
    }

    /// Forgets who took over knobs of groups that are gone.
    pub fn retain_foreign(&mut self, observer: &Observer) {
        self.owners.retain(|group| observer.group(group).is_some());
    }

    /// The journal, with nothing of ours on its way to these groups any more: for restoring them.
    pub fn quiesce(&mut self, concerns: impl Fn(GroupId) -> bool) -> (&mut Journal, &Writer) {
        self.writer.drain(LAST_WRITES);
        self.outcomes.clear();
        self.writer.outcomes_of(&concerns, &mut self.outcomes);
        for outcome in self.outcomes.drain(..) {
            if matches!(outcome.result, WriteResult::Done | WriteResult::Late(Ok(_))) {
                self.owners.note_arrival(outcome.group, outcome.knob);
            }
        }
        self.in_flight.retain(|&(group, _), _| !concerns(group));
        (&mut self.journal, &self.writer)
    }

    /// After restoring: what is still held.
    pub fn post_priors(&mut self) {
        let entries = self.journal.entries().iter();
        self.priors = Arc::new(entries.map(|(&key, entry)| (key, entry.prior)).collect());
    }

    /// The journal, to close it.
    pub fn into_journal(self) -> Journal {
        self.journal
    }

    /// Whose a knob is that holds `present`; `other` gives what its sibling holds.
    fn owner(
        &self,
        group: GroupId,
        knob: Knob,
        present: Value,
        other: impl FnOnce() -> Option<Value>,
    ) -> Owner {
        let Some(entry) = self.journal.get(group, knob) else {
            return Owner::Ours;
        };
        let ours = Ours {
            flying: self.in_flight.get(&(group, knob)).copied(),
            arrived: self.owners.has_arrived(group, knob),
        };
        owner(knob, entry, ours, present, || {
            let sibling = sibling(knob).and_then(|knob| self.journal.get(group, knob));
            let differs = |entry: &Entry, value| entry.is_ours(value) && !same(value, entry.prior);
            sibling.is_some_and(|entry| other().is_some_and(|value| differs(entry, value)))
        })
    }

    fn give_up(&mut self, lost: &[(GroupId, Knob, Value)], observer: &mut Observer) -> Result<()> {
        if lost.is_empty() {
            return Ok(());
        }
        for &(group, knob, present) in lost {
            // One intent, two files: a manager squeezes what `io.weight` says into the other one.
            let said = knob == Knob::IoBfqWeight && self.owners.is_foreign(group, knob);
            if let (false, Value::Weight(weight)) = (said, present) {
                observer.set_file_weight(group, weight);
            }
            self.owners.give_up(group, knob);
            observer.set_foreign(group, self.owners.of_group(group));
            observer.know(group, knob, present);
            let path = observer.group(group).map_or("", Group::path);
            self.log.info(format_args!(
                "{path} {knob} was set to {present} by somebody else: left alone from now on"
            ));
        }
        let keys: Vec<_> = lost.iter().map(|&(group, knob, _)| (group, knob)).collect();
        self.journal.forget(&keys)?;
        self.post_priors();
        Ok(())
    }

    fn debug_write(&self, group: &Group, knob: Knob, value: Value, plan: &Plan) {
        let reason = plan
            .writes
            .iter()
            .find(|write| write.group == group.id() && write.knob == knob)
            .map(|write| write.reason.to_string())
            .unwrap_or_default();
        self.log
            .debug(format_args!("{} {knob} = {value}: {reason}", group.path()));
    }
}
