//! From decisions to knob writes: only what changes, in an order that is never harmful.
//!
//! What the operator had set before is kept: protection is never below it, a limit never above it.
//!
//! A value that is close to what the knob holds is left alone, and so is a knob that a foreign
//! writer took over or that is not there. Protection is raised from the top down and lowered from
//! the bottom up, so that an ancestor never protects less than what its children claim.

use std::collections::BTreeMap;

use crate::decision::Member;
use crate::knob::{BFQ_MAX, IO_MAX};
use crate::plan::{Knob, Reason, Value, Write};
use crate::snapshot::{BlockDevice, GroupId};
use crate::units::{Bytes, Limit};

/// Changes smaller than this part of the value are not worth a write.
const WORTH: f64 = 0.04;
/// Block weights are steps of a scheduler's virtual time; small changes do not show.
const WEIGHT_WORTH: f64 = 0.1;

/// The writes for these decisions. `low`: `memory.low` of each member; `None` if it is left alone.
pub(crate) fn plan(
    members: &[Member],
    low: Option<&[Option<Bytes>]>,
    block_weights: bool,
) -> Vec<Write> {
    let mut writes = Vec::new();
    let mut lowered = Vec::new();
    for (member, target) in members.iter().zip(low.into_iter().flatten()) {
        let knobs = &member.group.knobs;
        let (Some(target), Some(now)) = (target.map(Limit::Bytes), knobs.low) else {
            continue;
        };
        let target = knobs.operator.low.map_or(target, |low| low.max(target));
        if knobs.foreign.low || !worth(now, target) {
            continue;
        }
        let write = Write {
            group: member.group.id,
            knob: Knob::MemoryLow,
            value: Value::Limit(target),
            reason: if member.leaf {
                Reason::Threshold {
                    file: member.decision.threshold(),
                    non_file: member.group.non_file().unwrap_or_default(),
                }
            } else {
                Reason::ChildrenSum
            },
        };
        if target > now {
            writes.push(write);
        } else {
            lowered.push(write);
        }
    }
    writes.extend(lowered.into_iter().rev());
    writes.extend(members.iter().filter_map(high_write));
    if block_weights {
        let heaviest = heaviest_siblings(members);
        for member in members.iter().filter(|m| m.leaf) {
            let heaviest = heaviest.get(&member.group.parent).copied();
            writes.extend(weight_write(member, heaviest.unwrap_or(1.0)));
        }
    }
    writes
}

/// The largest weight, with its gain, below each parent: the block layer compares siblings only, so
/// what is too heavy for the file scales down its siblings and nobody else.
fn heaviest_siblings(members: &[Member]) -> BTreeMap<Option<GroupId>, f64> {
    let mut heaviest = BTreeMap::new();
    for member in members {
        if let Some(weight) = member.group.weight {
            let most = heaviest.entry(member.group.parent).or_insert(1.0_f64);
            *most = most.max(weight.as_f64() * member.decision.gain);
        }
    }
    heaviest
}

/// Turns off what overrides weights, where it is known to be on and nobody else's.
pub(crate) fn hold_weights<'a>(
    disks: impl Iterator<Item = &'a BlockDevice> + 'a,
) -> impl Iterator<Item = Write> + 'a {
    let on = disks.filter(|disk| disk.low_latency == Some(true) && !disk.foreign);
    on.map(|disk| Write {
        group: disk.id,
        knob: Knob::BfqLowLatency,
        value: Value::Switch(false),
        reason: Reason::WeightsMustHold,
    })
}

fn high_write(member: &Member) -> Option<Write> {
    let (wanted, reason) = member.decision.high?;
    let knobs = &member.group.knobs;
    let target = knobs.operator.high.map_or(wanted, |high| high.min(wanted));
    let now = knobs.high.filter(|_| !knobs.foreign.high)?;
    worth(now, target).then_some(Write {
        group: member.group.id,
        knob: Knob::MemoryHigh,
        value: Value::Limit(target),
        reason,
    })
}

/// The block layer's weight: the group's own, times its gain, scaled to what the file takes.
fn weight_write(member: &Member, heaviest: f64) -> Option<Write> {
    let Member {
        group, decision, ..
    } = member;
    decision.high?;
    let weight = group.weight.filter(|_| !group.knobs.foreign.io_weight)?;
    let (knob, now, most) = match (group.knobs.bfq_weight, group.knobs.io_weight) {
        (Some(now), _) => (Knob::IoBfqWeight, now, BFQ_MAX),
        (None, Some(now)) => (Knob::IoWeight, now, IO_MAX),
        (None, None) => return None,
    };
    let scale = f64::from(most) / heaviest.max(f64::from(most));
    // The whole gain, as on the page share: a light group soon stands at the floor of its pages, and
    // then only this still acts. Where both act the loop sees what they do together.
    let target = (weight.as_f64() * decision.gain * scale)
        .round()
        .clamp(1.0, f64::from(most));
    let change = (target - f64::from(now)).abs() / f64::from(now.max(1));
    if change <= WEIGHT_WORTH && (decision.participant || target as u32 == now) {
        return None;
    }
    Some(Write {
        group: group.id,
        knob,
        value: Value::Weight(target as u32),
        reason: Reason::BlockShare {
            gain: decision.gain,
        },
    })
}

fn worth(now: Limit, target: Limit) -> bool {
    match (now, target) {
        (Limit::Max, Limit::Max) => false,
        (Limit::Bytes(now), Limit::Bytes(target)) => {
            let difference = (now - target).max(target - now);
            difference.0 >= 4096 && difference > target.scale(WORTH)
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests;
