//! Whose a knob is, when it does not hold what we wrote last.
//!
//! - It holds something we wrote, or are writing: ours.
//! - It holds again what it held before us, and so does the group's other memory knob: a manager
//!   applied its configuration again (systemd on `daemon-reload`). Ours, and written again, however often
//!   that happens: a manager resets all its groups at once, within [`AT_ONCE`]. A person who sets the knobs
//!   of one group back more than [`RESETS`] times within [`RESET_MEMORY`] insists; the knob is theirs then
//!   for [`RESET_MEMORY`].
//! - A switch that is back where it was: there is no third position, so somebody put it there.
//! - Anything else: somebody else's hand.
//!
//! Any other value that somebody set stays until the group is made anew or the agent starts again.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use justitia_policy::plan::{Knob, Value};
use justitia_policy::snapshot::{ForeignKnobs, GroupId};

use crate::journal::Entry;
use crate::record::same;

/// How often a manager may put back a knob.
const RESETS: usize = 3;
/// Within this time.
const RESET_MEMORY: Duration = Duration::from_secs(600);
/// Knobs of different groups that were reset within this time were reset by a manager. Knobs are read
/// every few steps, each group at its own turn.
const AT_ONCE: Duration = Duration::from_secs(15);

/// Whose a knob is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Ours.
    Ours,
    /// Ours, but its value before us was put back.
    Reset,
    /// The user's.
    Users,
}

/// What is known of our writes to a knob.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ours {
    /// One whose outcome is not known yet.
    pub(crate) flying: Option<Value>,
    /// One has arrived: then the value before us is there because somebody put it there.
    pub(crate) arrived: bool,
}

/// Whose a knob is that holds `present`; `sibling_is_ours` says whether the group's other memory
/// knob still holds what we wrote.
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
    } else if knob == Knob::BfqLowLatency || sibling_is_ours() {
        Owner::Users
    } else {
        Owner::Reset
    }
}

/// The group's other memory knob.
pub(crate) fn sibling(knob: Knob) -> Option<Knob> {
    match knob {
        Knob::MemoryLow => Some(Knob::MemoryHigh),
        Knob::MemoryHigh => Some(Knob::MemoryLow),
        _ => None,
    }
}

/// Who took over what.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    /// Until when; `None`: for good.
    foreign: HashMap<(GroupId, Knob), Option<Instant>>,
    arrived: HashSet<(GroupId, Knob)>,
    /// When each knob was reset.
    resets: HashMap<(GroupId, Knob), Vec<Instant>>,
}

impl Owners {
    /// A write of ours has arrived.
    pub(crate) fn note_arrival(&mut self, group: GroupId, knob: Knob) {
        self.arrived.insert((group, knob));
    }

    /// Whether a write of ours has arrived since the knob was taken.
    pub(crate) fn has_arrived(&self, group: GroupId, knob: Knob) -> bool {
        self.arrived.contains(&(group, knob))
    }

    /// The knob is about to be written for the first time.
    pub(crate) fn take(&mut self, group: GroupId, knob: Knob) {
        self.arrived.remove(&(group, knob));
    }

    /// The knob is the user's from now on.
    pub(crate) fn give_up(&mut self, group: GroupId, knob: Knob) {
        self.foreign.insert((group, knob), None);
    }

    /// The knob is the user's for a while.
    pub(crate) fn give_up_for_a_while(&mut self, group: GroupId, knob: Knob, now: Instant) {
        self.foreign.insert((group, knob), Some(now + RESET_MEMORY));
    }

    /// Takes back knobs that were the user's for a while; returns their groups.
    pub(crate) fn take_back(&mut self, now: Instant) -> Vec<GroupId> {
        let mut back = Vec::new();
        self.foreign.retain(|&(group, _), until| {
            let over = until.is_some_and(|until| until <= now);
            back.extend(over.then_some(group));
            !over
        });
        back
    }

    /// Whether the knob is the user's.
    pub(crate) fn is_foreign(&self, group: GroupId, knob: Knob) -> bool {
        let has = |knob| self.foreign.contains_key(&(group, knob));
        match knob {
            // One intent, two files.
            Knob::IoWeight | Knob::IoBfqWeight => has(Knob::IoWeight) || has(Knob::IoBfqWeight),
            knob => has(knob),
        }
    }

    /// The group's knobs that are the user's, for the policy.
    pub(crate) fn of_group(&self, group: GroupId) -> ForeignKnobs {
        ForeignKnobs {
            low: self.is_foreign(group, Knob::MemoryLow),
            high: self.is_foreign(group, Knob::MemoryHigh),
            io_weight: self.is_foreign(group, Knob::IoWeight),
        }
    }

    /// Notes a reset. Whether somebody insists on it.
    pub(crate) fn insists(&mut self, group: GroupId, knob: Knob, now: Instant) -> bool {
        let times = self.resets.entry((group, knob)).or_default();
        times.retain(|&time| now.saturating_duration_since(time) <= RESET_MEMORY);
        times.push(now);
        if times.len() <= RESETS {
            return false;
        }
        // The last ones decide.
        times.drain(..times.len() - RESETS - 1);
        let times = times.clone();
        let others = || {
            let others = self.resets.iter().filter(|((other, _), _)| *other != group);
            others.flat_map(|(_, times)| times)
        };
        let alone = times.iter().filter(|&&time| {
            !others().any(|&other| {
                let (earlier, later) = (time.min(other), time.max(other));
                later.saturating_duration_since(earlier) <= AT_ONCE
            })
        });
        alone.count() > RESETS
    }

    /// Forgets groups that are gone.
    pub(crate) fn retain(&mut self, stays: impl Fn(GroupId) -> bool) {
        self.foreign.retain(|&(group, _), _| stays(group));
        self.arrived.retain(|&(group, _)| stays(group));
        self.resets.retain(|&(group, _), _| stays(group));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
    fn what_we_wrote_is_ours_however_late_it_arrives() {
        let entry = entry(100, &[200, 300]);
        assert_eq!(judge(&entry, None, 300, false), Owner::Ours);
        assert_eq!(judge(&entry, Some(300), 200, false), Owner::Ours);
        assert_eq!(judge(&entry, Some(300), 100, false), Owner::Ours);
    }

    #[test]
    fn the_value_before_us_is_a_reset_unless_only_one_knob_has_it() {
        let entry = entry(100, &[200]);
        assert_eq!(judge(&entry, None, 100, false), Owner::Reset);
        assert_eq!(judge(&entry, None, 100, true), Owner::Users);
        assert_eq!(judge(&entry, None, 555, false), Owner::Users);
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
    fn who_resets_one_group_again_and_again_insists_for_a_while_but_not_over_days() {
        let mut owners = Owners::default();
        let mut now = Instant::now();
        let reset = |owners: &mut Owners, now| owners.insists(GroupId(1), Knob::MemoryLow, now);
        for _ in 0..RESETS {
            assert!(!reset(&mut owners, now));
        }
        assert!(reset(&mut owners, now));
        owners.give_up_for_a_while(GroupId(1), Knob::MemoryLow, now);
        assert!(owners.take_back(now).is_empty() && owners.is_foreign(GroupId(1), Knob::MemoryLow));
        now += RESET_MEMORY * 2;
        assert_eq!(owners.take_back(now), [GroupId(1)]);
        assert!(!owners.is_foreign(GroupId(1), Knob::MemoryLow));
        assert!(!reset(&mut owners, now));
    }

    proptest! {
        #[test]
        fn any_number_of_reloads_of_several_groups_is_no_insisting(
            groups in 2u64..6,
            pauses in prop::collection::vec(1u64..700, 1..40),
        ) {
            let mut owners = Owners::default();
            let mut now = Instant::now();
            for pause in pauses {
                now += Duration::from_secs(pause);
                let mut insisting = 0;
                for group in 0..groups {
                    // Each group's knobs are read at its own turn.
                    let seen = now + Duration::from_secs(group % 4);
                    let insists = owners.insists(GroupId(group), Knob::MemoryLow, seen);
                    insisting += u32::from(insists);
                }
                prop_assert_eq!(insisting, 0);
            }
        }
    }

    #[test]
    fn both_block_weights_are_one_intent() {
        let mut owners = Owners::default();
        owners.give_up(GroupId(1), Knob::IoBfqWeight);
        assert!(owners.is_foreign(GroupId(1), Knob::IoWeight));
        assert!(owners.of_group(GroupId(1)).io_weight);
        owners.retain(|_| false);
        assert!(!owners.is_foreign(GroupId(1), Knob::IoWeight));
    }
}
