//! Ownership of shared pages: who is protected for a file that several groups use.
//!
//! The paper (III.B.2) makes the highest-weighted user the owner of a page. The kernel charges a
//! page to the group that touched it first, and protects it with that group's `memory.low`. So
//! protection is moved to where the charge is: the *payer's* threshold is raised by what it holds
//! of the files of others, and the owner's is lowered by the same, because those pages are not
//! among what the owner is charged for.
//!
//! 1. The owner of a file is the user with the largest effective proportion (weight down the
//!    hierarchy); among equals the one with the larger weight of its own, then the one that holds
//!    most of the file, then the one with the lowest id.
//! 2. What each payer holds for each owner, over all files, is a *charge*; all charges of one payer
//!    are together no more than the page cache it holds, less what is mapped of it.
//! 3. Demands are shifted by the charges before page cache is divided ([`crate::share::water`]): the
//!    entitlements are those of a kernel that charges the owner.
//! 4. Charges are granted up to the owner's entitlement, in proportion when they exceed it.
//!
//! Units: bytes; groups are indices into the snapshot. Properties, each held by a test:
//! - *conservation*: what is granted to payers is what is taken from owners, to the byte;
//! - *no free ride*: without what it holds for others, a payer's threshold is at most its
//!   entitlement, so its private pages are protected by its own weight only;
//! - *order*: neither the order of files nor that of users and holders matters;
//! - *monotone*: a larger proportion never makes a group own less;
//! - without a file that a higher-weighted user shares, nothing changes.
//!
//! Left out: groups that are unknown, unmanaged or hold managed groups, and payers that cannot be
//! given protection (unreadable, or a `memory.low` that is missing or somebody else's): what they
//! hold stays the owner's need.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use super::water::{divide, Node};
use crate::decision::{Member, Shift};
use crate::snapshot::{Group, GroupId, SharedFile};
use crate::units::Bytes;

/// Proportions are compared in steps of this: those that differ only by rounding are equal.
const STEPS: f64 = 1e12;
/// More than any host has page cache, and small enough to multiply sums of it with each other.
const MOST: Bytes = Bytes(1 << 48);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Charges {
    /// By owner, then by payer, in the snapshot's order; none is zero.
    by_owner: BTreeMap<usize, BTreeMap<usize, Bytes>>,
}

impl Charges {
    pub(crate) fn of(members: &[Member], shared: &[SharedFile]) -> Charges {
        if shared.is_empty() {
            return Charges::default();
        }
        let leaves = members.iter().enumerate().filter(|(_, m)| m.leaf);
        let index: HashMap<GroupId, usize> = leaves.map(|(i, m)| (m.group.id, i)).collect();
        let mut by_payer: BTreeMap<usize, BTreeMap<usize, Bytes>> = BTreeMap::new();
        for file in shared {
            let held = held_by(file, &index);
            let Some(owner) = owner(file, &held, &index, members) else {
                continue;
            };
            for (&payer, &bytes) in held.iter().filter(|(&payer, _)| payer != owner) {
                let charges = by_payer.entry(payer).or_default();
                let charge = charges.entry(owner).or_default();
                *charge = (*charge + bytes).min(MOST);
            }
        }
        let mut charges = Charges::default();
        for (payer, of_payer) in by_payer {
            let charged = of_payer.values().copied().sum();
            let Some(most) = most_held(members[payer].group, charged) else {
                continue;
            };
            for (owner, bytes) in within(most, &of_payer) {
                let of_owner = charges.by_owner.entry(owner).or_default();
                of_owner.insert(payer, bytes);
            }
        }
        charges
    }

    /// The shift of each of `groups` groups if every charge is granted.
    pub(crate) fn wanted(&self, groups: usize) -> Vec<Shift> {
        let mut shifts = vec![Shift::default(); groups];
        for (&owner, charges) in &self.by_owner {
            grant(&mut shifts, owner, charges.iter().map(|(&i, &b)| (i, b)));
        }
        shifts
    }

    /// The shift of each group: what is charged for owners, up to what they are entitled to.
    pub(crate) fn granted(&self, entitled: &[Bytes]) -> Vec<Shift> {
        let mut shifts = vec![Shift::default(); entitled.len()];
        for (&owner, charges) in &self.by_owner {
            grant(&mut shifts, owner, within(entitled[owner], charges));
        }
        shifts
    }
}

fn grant(shifts: &mut [Shift], owner: usize, charges: impl IntoIterator<Item = (usize, Bytes)>) {
    for (payer, bytes) in charges {
        shifts[payer].for_others = shifts[payer].for_others + bytes;
        shifts[owner].by_others = shifts[owner].by_others + bytes;
    }
}

/// The charges, cut in proportion so that they add up to no more than `most`; none is zero.
fn within(most: Bytes, charges: &BTreeMap<usize, Bytes>) -> Vec<(usize, Bytes)> {
    let nodes = charges.values().map(|&bytes| Node::flat(bytes.0, bytes));
    let nodes: Vec<Node> = nodes.collect();
    let parts = charges.keys().copied().zip(divide(most, &nodes));
    parts.filter(|(_, bytes)| *bytes > Bytes::ZERO).collect()
}

fn held_by(file: &SharedFile, index: &HashMap<GroupId, usize>) -> BTreeMap<usize, Bytes> {
    let mut held: BTreeMap<usize, Bytes> = BTreeMap::new();
    for (id, bytes) in &file.held {
        if let Some(&i) = index.get(id) {
            let sum = held.entry(i).or_default();
            *sum = *sum + *bytes;
        }
    }
    held
}

/// The user that a file belongs to; `None` if none of them is known.
fn owner(
    file: &SharedFile,
    held: &BTreeMap<usize, Bytes>,
    index: &HashMap<GroupId, usize>,
    members: &[Member],
) -> Option<usize> {
    let users = file.users.iter().filter_map(|id| index.get(id).copied());
    users.max_by_key(|&i| {
        let Member {
            group, decision, ..
        } = &members[i];
        (
            (decision.proportion * STEPS).round() as u64,
            group.weight,
            held.get(&i).copied(),
            Reverse(group.id),
        )
    })
}

/// How much of `charged` a payer holds for others: no more than its page cache, and less what is mapped
/// of it. What programs have mapped is taken from nobody, so it needs no protection; and it is shared
/// by running, not by owning: of eight servers that run one program the heaviest would pay for the program
/// with its own page cache, and hold less than the lightest. Which of the charges are mapped is not known; the
/// program is, in practice. `None` if the payer cannot be protected.
fn most_held(group: &Group, charged: Bytes) -> Option<Bytes> {
    group.knobs.low.filter(|_| !group.knobs.foreign.low)?;
    group.non_file()?;
    Some(charged.min(group.memory.file?) - group.memory.file_mapped.unwrap_or_default())
}

#[cfg(test)]
mod tests;
