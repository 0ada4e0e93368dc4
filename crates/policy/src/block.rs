//! Block weights at every level: the block layer divides a disk among siblings, one level at a time.
//!
//! For each group two numbers, in units of the owner's weights:
//!
//! - its *claim*: the weight it was given, or, of an inner group that was given none, the sum of what its
//!   children that contend claim;
//! - its *pull*: the claim times its gain. A leaf's gain is the feedback's. An inner group's is the mean of
//!   those below it that contend, by claim: a gain acts at the level where the group has somebody to compete
//!   with.
//!
//! Siblings are written in the ratio of their pulls, scaled so that
//!
//! - the heaviest fits into the file: what is too heavy scales down its siblings and nobody else;
//! - where groups without a weight contend, those who contend on that level hold as much together as they
//!   held before Justitia. A sibling that nobody manages has the kernel's default of 100 or what its owner
//!   wrote, and that says what it is worth beside a slice, not beside one container in the slice: it keeps the
//!   share of the disk that it had.
//!
//! Inner groups are written while somebody below contends, and left as they are otherwise. What a foreign
//! writer took over is not written.

use std::collections::BTreeMap;

use crate::decision::Member;
use crate::knob::{BFQ_MAX, IO_MAX};
use crate::plan::{Knob, Reason, Value, Write};
use crate::units::Weight;

/// Block weights are steps of a scheduler's virtual time; small changes do not show.
const WORTH: f64 = 0.1;

/// One group, or the children of one that contend.
#[derive(Debug, Clone, Copy, Default)]
struct Part {
    claim: f64,
    pull: f64,
    /// Somebody at or below it contends, ...
    contends: bool,
    /// ... and the feedback moves its gain.
    steered: bool,
}

impl Part {
    fn gain(&self) -> f64 {
        if self.claim > 0.0 {
            self.pull / self.claim
        } else {
            1.0
        }
    }

    fn add(&mut self, child: Part) {
        self.claim += child.claim;
        self.pull += child.pull;
        self.contends = true;
        self.steered |= child.steered;
    }
}

/// The children of one group.
#[derive(Debug, Clone, Copy, Default)]
struct Level {
    heaviest: f64,
    /// Of those who contend: their pulls, and what they held before.
    pulls: f64,
    held: f64,
    /// One of them was given no weight.
    sums: bool,
}

impl Level {
    /// The factor on the pulls, in a file that ends at `most`.
    fn scale(&self, most: f64) -> f64 {
        let scale = if self.sums {
            self.held / self.pulls
        } else {
            1.0
        };
        scale.min(most / self.heaviest.max(1.0))
    }
}

/// The block weights that are not what they should be.
pub(crate) fn weights<'a>(members: &'a [Member<'a>]) -> impl Iterator<Item = Write> + 'a {
    let parts = parts(members);
    let mut levels: BTreeMap<Option<usize>, Level> = BTreeMap::new();
    for (member, part) in members.iter().zip(&parts) {
        let level = levels.entry(member.parent).or_default();
        if member.leaf || part.contends {
            level.heaviest = level.heaviest.max(part.pull);
        }
        if part.contends {
            let before = member.group.knobs.operator.block_weight;
            let before = f64::from(before.unwrap_or(Weight::DEFAULT.get()));
            level.pulls += part.pull;
            level.held += member.weight.map_or(before, Weight::as_f64);
            level.sums |= member.weight.is_none();
        }
    }
    let written = members.iter().zip(parts);
    written.filter_map(move |(member, part)| write(member, part, levels[&member.parent]))
}

fn parts(members: &[Member]) -> Vec<Part> {
    let mut below = vec![Part::default(); members.len()];
    let mut parts = below.clone();
    for (i, member) in members.iter().enumerate().rev() {
        let decision = &member.decision;
        let own = if member.leaf {
            Part {
                claim: 1.0,
                pull: decision.gain,
                contends: decision.high.is_some() && (member.contends() || decision.participant),
                steered: decision.participant,
            }
        } else {
            below[i]
        };
        let claim = member.weight.map_or(own.claim, Weight::as_f64);
        let pull = claim * own.gain();
        parts[i] = Part { claim, pull, ..own };
        if let (Some(parent), true) = (member.parent, own.contends) {
            below[parent].add(parts[i]);
        }
    }
    parts
}

fn write(member: &Member, part: Part, level: Level) -> Option<Write> {
    let group = member.group;
    let known = if member.leaf {
        member.decision.high.is_some()
    } else {
        part.contends
    };
    if !known || group.knobs.foreign.io_weight {
        return None;
    }
    let (knob, now, most) = match (group.knobs.bfq_weight, group.knobs.io_weight) {
        (Some(now), _) => (Knob::IoBfqWeight, now, BFQ_MAX),
        (None, Some(now)) => (Knob::IoWeight, now, IO_MAX),
        (None, None) => return None,
    };
    // The whole gain, as on the page share: a light group soon stands at the floor of its pages, and
    // then only this still acts. Where both act the loop sees what they do together.
    let target = part.pull * level.scale(f64::from(most));
    let target = target.round().clamp(1.0, f64::from(most));
    let change = (target - f64::from(now)).abs() / f64::from(now.max(1));
    if change <= WORTH && (part.steered || target as u32 == now) {
        return None;
    }
    Some(Write {
        group: group.id,
        knob,
        value: Value::Weight(target as u32),
        reason: Reason::BlockShare { gain: part.gain() },
    })
}

#[cfg(test)]
mod tests;
