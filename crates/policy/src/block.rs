//! Block weights at every level: the block layer divides a disk among siblings, one level at a time.
//!
//! Each group has two numbers, in units of the owner's weights:
//!
//! - its *claim*: its own weight or, for an inner group without one, the sum of the claims of its children
//!   that contend;
//! - its *pull*: the claim times its gain. A leaf's gain comes from the feedback. An inner group's gain is
//!   the mean of the contending groups below it, weighted by claim: a gain acts at the level where the group
//!   has competing siblings.
//!
//! Siblings are written in the ratio of their pulls, scaled so that
//!
//! - the heaviest fits the file's range. A pull that is too large scales down its siblings and no other
//!   level;
//! - where groups without a weight contend, the contending groups of the level hold together what they held
//!   before Justitia. An unmanaged sibling has the kernel's default of 100 or its owner's value. That value
//!   compares it with a slice, not with one container in the slice, so it keeps its share of the disk.
//!
//! An inner group is written while a group below it contends, and left alone otherwise. A weight that a
//! foreign writer took over is not written.

use std::collections::BTreeMap;

use crate::decision::Member;
use crate::knob::{Knobs, BFQ_MAX, IO_MAX};
use crate::plan::{Knob, Reason, Value, Write};
use crate::units::Weight;

/// Smaller relative changes are not written while the feedback moves the gain: a block weight is a step of a
/// scheduler's virtual time, and small changes do not show.
const WORTH: f64 = 0.1;

/// One group, or the sum of a group's children that contend.
#[derive(Debug, Clone, Copy, Default)]
struct Part {
    claim: f64,
    pull: f64,
    /// It contends, or a group below it does.
    contends: bool,
    /// The feedback moves its gain, or that of a contending group below it.
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
    /// Sum of the pulls of the children that contend.
    pulls: f64,
    /// Sum of their weights, or of their prior block weights where they have none.
    held: f64,
    /// A contending child has no weight of its own.
    sums: bool,
}

impl Level {
    /// The factor on the pulls, for a file whose largest value is `most`.
    fn scale(&self, most: f64) -> f64 {
        let scale = if self.sums {
            self.held / self.pulls
        } else {
            1.0
        };
        scale.min(most / self.heaviest.max(1.0))
    }
}

/// How disks are served by weight.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Served {
    /// The feedback's gains scale the weights.
    pub gains: bool,
    /// io.cost serves a disk.
    pub io_cost: bool,
    /// A disk is left to BFQ alone.
    pub bfq: bool,
}

/// Writes for the block weights that have to change.
///
/// A group has `io.bfq.weight` as soon as BFQ is loaded, whichever scheduler the disks have; io.cost goes by
/// `io.weight`. Where io.cost serves BFQ's disks too, it applies the gains, and BFQ has the plain weights: BFQ gives
/// a group its weight's part of the disk's requests in flight, so a gain far below 1 leaves a light group less than
/// one request.
pub(crate) fn weights<'a>(
    members: &'a [Member<'a>],
    served: Served,
) -> impl Iterator<Item = Write> + 'a {
    let bfq = of_file(members, served.gains && served.bfq, |knobs| {
        Some((Knob::IoBfqWeight, knobs.bfq_weight?, BFQ_MAX))
    });
    let io = of_file(members, served.gains, move |knobs| {
        let acts = served.io_cost || knobs.bfq_weight.is_none();
        Some((Knob::IoWeight, knobs.io_weight.filter(|_| acts)?, IO_MAX))
    });
    bfq.chain(io)
}

/// The writes to one file of each group. `file`: that file of a group, if it acts.
fn of_file<'a>(
    members: &'a [Member<'a>],
    gains: bool,
    file: impl Fn(&Knobs) -> Option<File> + 'a,
) -> impl Iterator<Item = Write> + 'a {
    let parts = parts(members, gains);
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
    written.filter_map(move |(member, part)| {
        write(
            member,
            part,
            levels[&member.parent],
            file(&member.group.knobs)?,
        )
    })
}

fn parts(members: &[Member], gains: bool) -> Vec<Part> {
    let mut below = vec![Part::default(); members.len()];
    let mut parts = below.clone();
    for (i, member) in members.iter().enumerate().rev() {
        let decision = &member.decision;
        let own = if member.leaf {
            Part {
                claim: 1.0,
                pull: if gains { decision.gain } else { 1.0 },
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

/// A weight file of a group: its knob, its value and its largest value.
type File = (Knob, u32, u32);

fn write(member: &Member, part: Part, level: Level, (knob, now, most): File) -> Option<Write> {
    let group = member.group;
    let known = if member.leaf {
        member.decision.high.is_some()
    } else {
        part.contends
    };
    if !known || group.knobs.foreign.io_weight {
        return None;
    }
    // The full gain applies here as well as to the page share. A light group soon reaches the floor of its
    // page share, and then only its block weight acts. Where both act, the loop measures their joint effect.
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
