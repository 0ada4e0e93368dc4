//! Knobs that others write: the owner of each, the foreign values that become prior values, and the knobs
//! that the agent leaves alone.
//!
//! The rules are in `owner.rs`; this module applies them to the journal and the host.

use justitia_cgroup::Group;
use justitia_policy::plan::{Knob, Value};
use justitia_policy::snapshot::{GroupId, WeightSource};
use justitia_policy::units::Weight;

use super::Applier;
use crate::journal::{Entry, Key};
use crate::observe::Observer;
use crate::owner::{is_base, owner, told, Ours, Owner};
use crate::record::same;
use crate::restore::forget;
use crate::status::Problem;

impl Applier {
    /// Judges knobs that were read just now: ours, or somebody else's.
    pub fn check(&mut self, read: &[GroupId], observer: &mut Observer) -> Vec<Problem> {
        let (mut lost, mut missed) = (Vec::new(), Vec::new());
        for &group in read {
            for knob in Knob::of_groups().chain(Knob::of_disks()) {
                let Some(present) = observer.knob(group, knob) else {
                    continue;
                };
                let told = || {
                    let known = |knob| observer.knob(group, knob);
                    let [by_runtime, by_systemd] = self.told(observer, (group, knob), known);
                    by_runtime.or(by_systemd)
                };
                // A foreign value of a held knob that one of our writes in flight replaced before it was seen.
                let replaced = self
                    .journal
                    .get(group, knob)
                    .and_then(|entry| self.owners.missed((group, knob), entry.prior, told()?));
                missed.extend(replaced.map(|value| (group, knob, value)));
                let other = || observer.knob(group, knob.sibling()?);
                let owner = self.owner((group, knob), present, other);
                if self.owners.judge((group, knob), owner) == Owner::Users {
                    lost.push((group, knob, present));
                }
            }
        }
        let mut problems = Vec::new();
        self.rebase(&missed, observer, &mut problems);
        self.give_up(&lost, observer, &mut problems);
        problems
    }

    /// Takes these values as the new prior values.
    fn rebase(
        &mut self,
        bases: &[(GroupId, Knob, Value)],
        observer: &Observer,
        problems: &mut Vec<Problem>,
    ) {
        if bases.is_empty() {
            return;
        }
        if let Err(error) = self.journal.rebase(bases) {
            problems.push(Problem::general(&error));
        }
        for &(group, knob, value) in bases {
            let path = observer.group(group).map_or("", Group::path);
            self.log.debug(format_args!(
                "{path} {knob} was set to {value} by somebody else: taken as its prior value"
            ));
            // systemd derives its own value for a container's scope; in the end the agent leaves the
            // runtime's value.
            let recorded = self.told_now(observer, (group, knob))[0].is_some();
            let made = recorded || self.is_made(observer, (group, knob), value);
            self.owners.take((group, knob), made);
        }
        self.post_priors();
    }

    /// The owner of a knob that holds `present`. `other` gives the value of its sibling.
    pub(super) fn owner(
        &self,
        (group, knob): Key,
        present: Value,
        other: impl FnOnce() -> Option<Value>,
    ) -> Owner {
        let Some(entry) = self.journal.get(group, knob) else {
            return Owner::Ours;
        };
        let ours = Ours {
            flying: self.in_flight.get(&(group, knob)).copied(),
            arrived: self.owners.has_arrived((group, knob)),
        };
        owner(knob, entry, ours, present, || {
            let sibling = knob
                .sibling()
                .and_then(|knob| self.journal.get(group, knob));
            let differs = |entry: &Entry, value| entry.is_ours(value) && !same(value, entry.prior);
            sibling.is_some_and(|entry| other().is_some_and(|value| differs(entry, value)))
        })
    }

    /// Leaves knobs to the programs that set them. Some of the values become prior values instead.
    pub(super) fn give_up(
        &mut self,
        lost: &[(GroupId, Knob, Value)],
        observer: &mut Observer,
        problems: &mut Vec<Problem>,
    ) {
        if lost.is_empty() {
            return;
        }
        let (bases, lost): (Vec<_>, Vec<_>) =
            lost.iter().copied().partition(|&(group, knob, present)| {
                let tracked = observer.tracked(group);
                let Some(tracked) = tracked.filter(|tracked| !tracked.seen.delegated) else {
                    return false;
                };
                let told = || self.told_now(observer, (group, knob));
                let weight = tracked.seen.weight.map(Weight::get);
                // The group's own file states its weight, so another value there is another weight.
                let by_file = tracked.seen.weight_source == WeightSource::IoWeight;
                tracked.is_new()
                    || knob == Knob::IoWeight && by_file
                    || is_base(knob, present, tracked.inner, weight, told)
            });
        let scans = observer.scans();
        let (unexplained, lost): (Vec<_>, Vec<_>) = lost
            .into_iter()
            .partition(|&(group, knob, _)| self.owners.must_look((group, knob), scans));
        for (group, ..) in unexplained {
            observer.look_again(group);
        }
        self.rebase(&bases, observer, problems);
        for (group, knob, present) in bases {
            observer.know(group, knob, present);
        }
        self.gave_up |= !lost.is_empty();
        for &(group, knob, present) in &lost {
            self.owners.give_up((group, knob));
            observer.set_foreign(group, self.owners.of_group(group));
            observer.know(group, knob, present);
            let path = observer.group(group).map_or("", Group::path);
            self.log.info(format_args!(
                "{path} {knob} was set to {present} by somebody else: left alone from now on"
            ));
        }
        let keys: Vec<_> = lost.iter().map(|&(group, knob, _)| (group, knob)).collect();
        forget(&mut self.journal, &keys, problems);
        self.post_priors();
        // The value may be the group's new weight.
        observer.look_for_groups();
    }

    /// True if the group's manager derived this value from its record or its other knob. The knob follows the
    /// record a moment later.
    pub(super) fn is_made(&self, observer: &Observer, key: Key, value: Value) -> bool {
        let [_, before] = observer.recorded(key.0);
        let [before, _] = told(key.1, before, || None);
        let [by_runtime, by_systemd] = self.told_now(observer, key);
        // Defaults agree whether or not somebody derives one from the other.
        let is_default = value == Value::Weight(Weight::DEFAULT.get());
        !is_default && [by_runtime.or(by_systemd), before].contains(&Some(value))
    }

    /// The values that the runtime's record and systemd's other knob imply for this one. `present` gives the
    /// value of the other knob; if we hold that knob, systemd's value is its prior one.
    fn told(
        &self,
        observer: &Observer,
        (group, knob): Key,
        present: impl FnOnce(Knob) -> Option<Value>,
    ) -> [Option<Value>; 2] {
        let repeated = || {
            let repeated = knob.repeats()?;
            let held = self.journal.get(group, repeated);
            held.map_or_else(|| present(repeated), |entry| Some(entry.prior))
        };
        told(knob, observer.recorded(group)[0], repeated)
    }

    /// The same, with the other knob's value read now.
    fn told_now(&self, observer: &Observer, key: Key) -> [Option<Value>; 2] {
        let read = |knob| observer.group(key.0)?.read_knob(knob).ok()?;
        self.told(observer, key, read)
    }
}
