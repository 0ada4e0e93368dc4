//! Assigns slots of the counters to groups.
//!
//! A slot is given back when its group is no longer watched. It then rests for [`RESTS`] samples before
//! another group may have it. Programs that resolved the old group have ended by then: they take
//! microseconds, and samples are a tick apart. A window of counted reads is longer, so it notes the owner, too. No
//! I/O here.

use std::collections::{HashMap, HashSet};

use justitia_policy::snapshot::GroupId;

/// Samples for which a slot rests.
pub(crate) const RESTS: u64 = 2;

#[derive(Debug, Default)]
pub(crate) struct Slots {
    capacity: u32,
    /// Slots below this have been used.
    used: u32,
    free: Vec<u32>,
    /// Slots given back, and the sample in which each was.
    resting: Vec<(u32, u64)>,
    owners: HashMap<GroupId, u32>,
    /// The inverse of `owners`.
    groups: HashMap<u32, GroupId>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// Groups that are watched from now on, and their slots.
    pub(crate) added: Vec<(GroupId, u32)>,
    /// Groups that are no longer watched.
    pub(crate) removed: Vec<GroupId>,
}

impl Slots {
    /// Makes `capacity` slots, all free.
    pub(crate) fn new(capacity: u32) -> Slots {
        Slots {
            capacity,
            ..Slots::default()
        }
    }

    #[cfg(test)]
    fn of(&self, group: GroupId) -> Option<u32> {
        self.owners.get(&group).copied()
    }

    pub(crate) fn owner(&self, slot: u32) -> Option<GroupId> {
        self.groups.get(&slot).copied()
    }

    /// Gives slots to these groups, and takes back those of all others. A group that finds no free slot has
    /// to ask again.
    pub(crate) fn assign(&mut self, groups: &[GroupId], sample: u64) -> Changes {
        let mut changes = Changes::default();
        let listed: HashSet<GroupId> = groups.iter().copied().collect();
        let gone: Vec<GroupId> = self
            .owners
            .keys()
            .filter(|group| !listed.contains(group))
            .copied()
            .collect();
        for group in gone {
            self.take_back(group, sample);
            changes.removed.push(group);
        }
        let free = &mut self.free;
        self.resting.retain(|&(slot, since)| {
            let rested = sample >= since + RESTS;
            if rested {
                free.push(slot);
            }
            !rested
        });
        for &group in groups {
            if self.owners.contains_key(&group) {
                continue;
            }
            let Some(slot) = self.take() else { break };
            self.owners.insert(group, slot);
            self.groups.insert(slot, group);
            changes.added.push((group, slot));
        }
        changes
    }

    /// Takes back a group's slot. If the group is listed, it has to ask again.
    pub(crate) fn take_back(&mut self, group: GroupId, sample: u64) {
        if let Some(slot) = self.owners.remove(&group) {
            self.groups.remove(&slot);
            self.resting.push((slot, sample));
        }
    }

    fn take(&mut self) -> Option<u32> {
        if let Some(slot) = self.free.pop() {
            return Some(slot);
        }
        (self.used < self.capacity).then(|| {
            self.used += 1;
            self.used - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ids(numbers: &[u64]) -> Vec<GroupId> {
        numbers.iter().copied().map(GroupId).collect()
    }

    #[test]
    fn a_slot_rests_before_it_is_anothers() {
        let mut slots = Slots::new(1);
        assert_eq!(slots.assign(&ids(&[1]), 0).added, [(GroupId(1), 0)]);
        let changes = slots.assign(&ids(&[2]), 1);
        assert_eq!(changes.removed, ids(&[1]));
        assert_eq!(changes.added, []);
        assert_eq!(slots.assign(&ids(&[2]), 2).added, []);
        assert_eq!(slots.assign(&ids(&[2]), 3).added, [(GroupId(2), 0)]);
    }

    #[test]
    fn a_group_keeps_its_slot_while_it_is_listed() {
        let mut slots = Slots::new(8);
        slots.assign(&ids(&[1, 2, 3]), 0);
        let kept = slots.of(GroupId(3));
        slots.assign(&ids(&[3]), 1);
        slots.assign(&ids(&[3, 4, 5]), 9);
        assert_eq!(slots.of(GroupId(3)), kept);
    }

    #[test]
    fn a_group_whose_slot_was_taken_back_gets_one_again() {
        let mut slots = Slots::new(1);
        slots.assign(&ids(&[1]), 0);
        slots.take_back(GroupId(1), 0);
        assert_eq!(slots.owner(0), None);
        assert_eq!(slots.assign(&ids(&[1]), 1), Changes::default());
        assert_eq!(slots.assign(&ids(&[1]), RESTS).added, [(GroupId(1), 0)]);
    }

    proptest! {
        #[test]
        fn no_two_groups_share_a_slot_and_none_is_lost(
            lists in proptest::collection::vec(proptest::collection::vec(0u64..20, 0..12), 1..40)
        ) {
            let mut slots = Slots::new(8);
            let mut last: HashMap<u32, (GroupId, u64)> = HashMap::new();
            for (sample, list) in (0u64..).zip(&lists) {
                let mut list = ids(list);
                list.sort_unstable();
                list.dedup();
                slots.assign(&list, sample);
                let mut seen = HashSet::new();
                for group in &list {
                    let Some(slot) = slots.of(*group) else { continue };
                    prop_assert!(slot < 8);
                    prop_assert_eq!(slots.owner(slot), Some(*group));
                    prop_assert!(seen.insert(slot));
                    if let Some((owner, when)) = last.insert(slot, (*group, sample)) {
                        prop_assert!(owner == *group || sample > when + RESTS);
                    }
                }
                prop_assert_eq!(seen.len() + slots.free.len() + slots.resting.len(), slots.used as usize);
            }
        }
    }
}
