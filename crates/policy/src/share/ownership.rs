//! Ownership of shared pages: which group is protected for a file that several groups use.
//!
//! In the paper (III.B.2) the highest-weighted user owns a page. The kernel charges a page to the group that
//! touched it first, and protects it with that group's `memory.low`. Protection therefore moves to the group
//! that is charged: the *payer's* threshold is raised by what it holds of the files of others, and the
//! owner's is lowered by the same amount, because those pages are not charged to the owner.
//!
//! 1. The owner of a file is the user with the largest effective proportion (weight down the hierarchy).
//!    Among equals it is the user with the larger weight of its own, then the one that holds most of the
//!    file, then the one with the lowest ID.
//! 2. The page cache that a payer holds for an owner, over all files, is a *charge*. All charges of one payer
//!    together are at most its page cache, less the mapped part.
//! 3. Demands are shifted by the charges before page cache is divided ([`crate::share::water`]), so the
//!    entitlements are those of a kernel that charges the owner.
//! 4. Charges are granted up to the owner's entitlement, and cut in proportion if they exceed it.
//!
//! Units: bytes; groups are indices into the snapshot. Properties, each held by a test:
//! - *conservation*: payers are granted exactly what is taken from owners, to the byte;
//! - *no free ride*: without what it holds for others, a payer's threshold is at most its entitlement, so its
//!   private pages are protected by its own weight only;
//! - *order*: the order of files, users and holders does not matter;
//! - *monotone*: a larger proportion never makes a group own less;
//! - without a file that a higher-weighted user shares, nothing changes.
//!
//! Left out: groups that are unknown, unmanaged or hold managed groups, and payers that cannot be given
//! protection (unreadable, or `memory.low` is missing or foreign). Pages that they hold stay the owner's
//! need.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use super::water::{divide, Node};
use crate::decision::{Member, Shift};
use crate::snapshot::{Group, GroupId, SharedFile};
use crate::units::Bytes;

/// Proportions are compared in units of `1 / STEPS`, so that rounding errors do not decide.
const STEPS: f64 = 1e12;
/// More page cache than any host has, and small enough to multiply sums of it with each other.
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

    /// The shift of each group if charges are granted up to the owners' entitlements.
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

/// The owner of a file; `None` if no user is known.
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

/// The part of `charged` that a payer holds for others: at most its page cache, less its mapped page cache.
/// Mapped pages are not taken from any group, so they need no protection. They are also shared by running a
/// program, not by owning it: if eight servers run one program, the heaviest would pay for the program with
/// its own page cache and hold less than the lightest. It is unknown which of the charges are mapped; in
/// practice the program is. `None` if the payer cannot be protected.
fn most_held(group: &Group, charged: Bytes) -> Option<Bytes> {
    group.knobs.low.filter(|_| !group.knobs.foreign.low)?;
    group.non_file()?;
    Some(charged.min(group.memory.file?) - group.memory.file_mapped.unwrap_or_default())
}

#[cfg(test)]
mod tests;
