//! Decides who owns a knob that does not hold the value we wrote last.
//!
//! - It holds a value that we wrote, or are writing: ours.
//! - It holds its prior value again, and so does the group's other memory knob: a manager applied its
//!   configuration again (systemd on `daemon-reload`). Ours, and written again, however often that happens.
//! - It alone holds its prior value again, twice in a row: a person put it back. The first time, a manager
//!   may be between its two writes. A protection that the group had before is ours and written again: `docker update`
//!   writes it without the group's other knob, and ours is never below it.
//! - A disk's knob holds its prior value again: nobody applies its configuration again, so a person put it
//!   back.
//! - Any other value: somebody else wrote it. Two such values are no takeover ([`is_base`]): they become the
//!   knob's prior value. A value that a tenant writes to a group of its own never counts as one of these.
//!   Docker's record changes before the knob does, so a block weight is judged only after a look at the
//!   records ([`Owners::must_look`]).
//!
//! A knob that is the user's stays the user's until the group is recreated, or the agent is stopped and
//! started.

use std::collections::{HashMap, HashSet};

use justitia_policy::knob::{bfq_weight_of_systemd, Kind, Knob, Turn, Value};
use justitia_policy::snapshot::{ForeignKnobs, GroupId};
use justitia_policy::units::{Bytes, Limit, Weight};
use serde::{Deserialize, Serialize};

use crate::journal::{Entry, Key};
use crate::record::same;

/// The owner of a knob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    Ours,
    /// Ours, but set back to its prior value.
    Reset,
    /// Set back to its prior value, while the group's other memory knob was not (yet).
    Doubtful,
    Users,
}

/// The state of our writes to a knob.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ours {
    /// The write whose outcome is not known yet.
    pub(crate) flying: Option<Value>,
    /// The last write that arrived was not of the prior value: if the knob holds the prior value now,
    /// somebody put it there.
    pub(crate) arrived: bool,
}

/// The owner of a knob that holds `present`. `sibling_is_ours` says whether the group's other memory knob
/// still holds a value of ours.
pub(crate) fn owner(
    knob: Knob,
    entry: &Entry,
    Ours { flying, arrived }: Ours,
    present: Value,
    sibling_is_ours: impl FnOnce() -> bool,
) -> Owner {
    if flying.is_some_and(|value| same(value, present)) || entry.is_ours(present) {
        Owner::Ours
    } else if !same(present, entry.prior) {
        Owner::Users
    } else if !arrived || flying.is_some() {
        // Our first write has not arrived yet, or was refused.
        Owner::Ours
    } else if knob.is_disks() {
        Owner::Users
    } else if !protected_before(knob, entry.prior) && sibling_is_ours() {
        Owner::Doubtful
    } else {
        Owner::Reset
    }
}

fn protected_before(knob: Knob, prior: Value) -> bool {
    knob.restored() == Turn::Protection && prior != Value::Limit(Limit::Bytes(Bytes::ZERO))
}

/// True if a foreign value becomes the knob's prior value: the protection of an inner group, which kubelet
/// writes every minute, or a block weight that just states the group's `weight` or a value that one of its
/// managers `told`.
pub(crate) fn is_base(
    knob: Knob,
    present: Value,
    inner: bool,
    weight: Option<u32>,
    told: impl FnOnce() -> [Option<Value>; 2],
) -> bool {
    let says = |weight| present == Value::Weight(weight);
    match knob.kind() {
        Kind::Limit => inner && knob.restored() == Turn::Protection,
        Kind::Weight { .. } => weight.is_some_and(says) || told().contains(&Some(present)),
        _ => false,
    }
}

/// The values that a group's managers write to a knob. A container runtime writes the value in its record.
/// systemd derives its value from the knob that this one repeats, if that knob holds `repeated`. systemd also
/// writes it to a container's scope whenever a property of the scope changes, and replaces the runtime's
/// value.
pub(crate) fn told(
    knob: Knob,
    recorded: Option<Weight>,
    repeated: impl FnOnce() -> Option<Value>,
) -> [Option<Value>; 2] {
    let by_runtime = recorded.and_then(|weight| knob.by_runtime(weight.get()));
    let by_systemd = repeated().and_then(|value| match value {
        Value::Weight(weight) => Some(Value::Weight(bfq_weight_of_systemd(weight))),
        _ => None,
    });
    [by_runtime.map(Value::Weight), by_systemd]
}

/// The owners of knobs, as far as known.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Owners {
    foreign: HashSet<Key>,
    arrived: HashSet<Key>,
    doubtful: HashSet<Key>,
    /// Foreign block weights, and the number of scans of the records when they were first seen.
    #[serde(skip)]
    unexplained: HashMap<Key, u64>,
    /// Held knobs whose prior value a manager derived from its record or its other knob.
    #[serde(default)]
    derived: HashSet<Key>,
}

impl Owners {
    /// Notes that a write of ours has arrived. `prior`: it wrote the prior value.
    pub(crate) fn note_arrival(&mut self, key: Key, prior: bool) {
        if prior {
            self.arrived.remove(&key);
        } else {
            self.arrived.insert(key);
        }
    }

    /// See [`Ours::arrived`].
    pub(crate) fn has_arrived(&self, key: Key) -> bool {
        self.arrived.contains(&key)
    }

    /// Notes a new prior value, over which nothing of ours has arrived yet. `made`: the knob's manager
    /// derived it.
    pub(crate) fn take(&mut self, key: Key, made: bool) {
        self.arrived.remove(&key);
        if made {
            self.derived.insert(key);
        } else {
            self.derived.remove(&key);
        }
    }

    /// The value that a manager wrote to a held knob after `prior`, if the value it `told` has changed: a write of
    /// ours that was on its way may have replaced it unseen.
    pub(crate) fn missed(&self, key: Key, prior: Value, told: Value) -> Option<Value> {
        (told != prior && self.derived.contains(&key)).then_some(told)
    }

    /// True if an unexplained block weight waits for the next scan of the runtimes' records before it counts
    /// as the user's. `scans`: scans so far.
    pub(crate) fn must_look(&mut self, key: Key, scans: u64) -> bool {
        if !matches!(key.1.kind(), Kind::Weight { .. }) {
            return false;
        }
        let waits = *self.unexplained.entry(key).or_insert(scans) == scans;
        if !waits {
            self.unexplained.remove(&key);
        }
        waits
    }

    /// Takes in the result of [`owner`] for a knob, and returns the owner that counts.
    pub(crate) fn judge(&mut self, key: Key, owner: Owner) -> Owner {
        let twice = self.doubtful.remove(&key);
        if owner != Owner::Users {
            self.unexplained.remove(&key);
        }
        match owner {
            Owner::Doubtful if twice => return Owner::Users,
            Owner::Doubtful => {
                self.doubtful.insert(key);
            }
            // The other knob was put back with it, and must not look put back alone when this one is
            // written again first.
            Owner::Reset => {
                let (group, knob) = key;
                for knob in [Some(knob), knob.sibling()].into_iter().flatten() {
                    self.arrived.remove(&(group, knob));
                }
            }
            Owner::Ours | Owner::Users => {}
        }
        owner
    }

    /// Notes that the knob is the user's from now on.
    pub(crate) fn give_up(&mut self, key: Key) {
        self.foreign.insert(key);
    }

    /// True if the knob is the user's.
    pub(crate) fn is_foreign(&self, (group, knob): Key) -> bool {
        let has = |knob| self.foreign.contains(&(group, knob));
        match knob.kind() {
            // One intent, two files.
            Kind::Weight { .. } => Knob::weights().any(has),
            _ => has(knob),
        }
    }

    /// The groups with knobs that are the user's.
    pub(crate) fn groups(&self) -> impl Iterator<Item = GroupId> + '_ {
        self.foreign.iter().map(|&(group, _)| group)
    }

    /// The group's knobs that are the user's, for the policy.
    pub(crate) fn of_group(&self, group: GroupId) -> ForeignKnobs {
        let mut foreign = ForeignKnobs::default();
        for knob in Knob::of_groups() {
            if let Some(flag) = foreign.flag(knob) {
                *flag = self.is_foreign((group, knob));
            }
        }
        foreign
    }

    /// Forgets groups that are gone.
    pub(crate) fn retain(&mut self, stays: impl Fn(GroupId) -> bool) {
        let Owners {
            foreign,
            arrived,
            doubtful,
            unexplained,
            derived,
        } = self;
        for known in [foreign, arrived, doubtful, derived] {
            known.retain(|&(group, _)| stays(group));
        }
        unexplained.retain(|&(group, _), _| stays(group));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(prior: u32, written: &[u32]) -> Entry {
        Entry {
            path: "/app/a".into(),
            prior: Value::Weight(prior),
            written: written
                .iter()
                .map(|&weight| Value::Weight(weight))
                .collect(),
        }
    }

    fn judge(entry: &Entry, flying: Option<u32>, present: u32, sibling: bool) -> Owner {
        let flying = flying.map(Value::Weight);
        let ours = Ours {
            flying,
            arrived: true,
        };
        owner(Knob::IoWeight, entry, ours, Value::Weight(present), || {
            sibling
        })
    }

    #[test]
    fn our_own_write_is_ours_however_late_it_arrives() {
        let entry = entry(100, &[200, 300]);
        assert_eq!(judge(&entry, None, 300, false), Owner::Ours);
        assert_eq!(judge(&entry, Some(300), 200, false), Owner::Ours);
        assert_eq!(judge(&entry, Some(300), 100, false), Owner::Ours);
    }

    #[test]
    fn the_value_before_us_is_a_reset_unless_only_one_knob_has_it() {
        let entry = entry(100, &[200]);
        assert_eq!(judge(&entry, None, 100, false), Owner::Reset);
        assert_eq!(judge(&entry, None, 100, true), Owner::Doubtful);
        assert_eq!(judge(&entry, None, 555, false), Owner::Users);
    }

    #[test]
    fn a_protection_that_a_group_had_before_is_written_again_and_a_missing_one_is_the_users() {
        let limit = |mib| Value::Limit(Limit::Bytes(Bytes::mib(mib)));
        let back = |knob, prior| {
            let entry = Entry {
                path: "/docker/db".into(),
                prior: limit(prior),
                written: vec![limit(200)],
            };
            let ours = Ours {
                flying: None,
                arrived: true,
            };
            owner(knob, &entry, ours, limit(prior), || true)
        };
        assert_eq!(back(Knob::MemoryLow, 16), Owner::Reset);
        assert_eq!(back(Knob::MemoryLow, 0), Owner::Doubtful);
        assert_eq!(back(Knob::MemoryHigh, 16), Owner::Doubtful);
    }

    #[test]
    fn a_switch_put_back_is_the_users() {
        let (on, off) = (Value::Switch(true), Value::Switch(false));
        let entry = Entry {
            path: "block:sda".into(),
            prior: on,
            written: vec![off],
        };
        let judge = |present, arrived| {
            let ours = Ours {
                flying: None,
                arrived,
            };
            owner(Knob::BfqLowLatency, &entry, ours, present, || false)
        };
        assert_eq!(judge(off, true), Owner::Ours);
        assert_eq!(judge(on, true), Owner::Users);
        assert_eq!(judge(on, false), Owner::Ours, "our write was refused");
    }

    #[test]
    fn a_knob_put_back_alone_is_the_users_at_the_second_look_in_a_row() {
        let mut owners = Owners::default();
        let mut judge = |owner| owners.judge((GroupId(1), Knob::MemoryLow), owner);
        assert_eq!(judge(Owner::Doubtful), Owner::Doubtful);
        assert_eq!(judge(Owner::Ours), Owner::Ours);
        assert_eq!(judge(Owner::Doubtful), Owner::Doubtful);
        assert_eq!(judge(Owner::Doubtful), Owner::Users);
    }

    #[test]
    fn a_managers_value_for_a_weight_and_an_inner_groups_protection_are_no_takeover() {
        let of = |knob: Knob, present, inner, recorded: Option<u32>| {
            let recorded = recorded.map(|weight| Weight::new(weight).unwrap());
            let repeated = || knob.repeats().map(|_| Value::Weight(800));
            let told = || told(knob, recorded, repeated);
            is_base(knob, present, inner, Some(400), told)
        };
        let base = |knob, present, inner| of(knob, present, inner, None);
        let weight = Value::Weight;
        assert!(
            base(Knob::IoBfqWeight, weight(163), false),
            "systemd's for 800"
        );
        assert!(
            base(Knob::IoBfqWeight, weight(400), false),
            "the group's own"
        );
        assert!(!base(Knob::IoBfqWeight, weight(555), true));
        let docker = |knob, present| of(knob, weight(present), false, Some(300));
        assert!(docker(Knob::IoBfqWeight, 300), "the record's");
        assert!(docker(Knob::IoWeight, 2930), "runc's for 300");
        assert!(docker(Knob::IoBfqWeight, 163), "systemd's, of a scope");
        assert!(!docker(Knob::IoBfqWeight, 555) && !docker(Knob::IoWeight, 300));
        assert!(!base(Knob::IoWeight, weight(163), true));
        let low = Value::Limit(Limit::Max);
        assert!(base(Knob::MemoryLow, low, true) && !base(Knob::MemoryLow, low, false));
        assert_eq!(
            [1, 100, 200, 400, 10_000].map(bfq_weight_of_systemd),
            [1, 100, 109, 127, 1000]
        );
    }

    #[test]
    fn both_block_weights_are_one_intent() {
        let mut owners = Owners::default();
        owners.give_up((GroupId(1), Knob::IoBfqWeight));
        assert!(owners.is_foreign((GroupId(1), Knob::IoWeight)));
        assert!(owners.of_group(GroupId(1)).io_weight);
        owners.retain(|_| false);
        assert!(!owners.is_foreign((GroupId(1), Knob::IoWeight)));
    }
}
