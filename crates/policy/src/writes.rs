//! From decisions to knob writes: only changes, in an order that is never harmful.
//!
//! The operator's prior values hold: protection is never below them, a limit never above.
//!
//! A knob is left alone if its value is close to the target, if a foreign writer took it over, or if it does
//! not exist. Protection is raised from the top down and lowered from the bottom up, so that an ancestor
//! never protects less than what its children claim.

use crate::block::{self, Served};
use crate::decision::Member;
use crate::plan::{Knob, Reason, Value, Write};
use crate::snapshot::{BlockDevice, Group};
use crate::units::{Bytes, Limit};

/// Changes smaller than this part of the value are not worth a write.
const WORTH: f64 = 0.04;

/// The writes for these decisions. `low`: `memory.low` of each member; `None`: left alone. `weights`: how disks
/// are served; `None`: block weights are left alone.
pub(crate) fn plan(
    members: &[Member],
    low: Option<&[Option<Bytes>]>,
    weights: Option<Served>,
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
    if let Some(served) = weights {
        writes.extend(block::weights(members, served));
    }
    writes
}

/// Turns off BFQ's `low_latency`, which overrides weights, where it is known to be on and is not foreign.
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
    high(member.group, wanted).map(|target| Write {
        group: member.group.id,
        knob: Knob::MemoryHigh,
        value: Value::Limit(target),
        reason,
    })
}

/// The limit to write for this one; `None`: none is worth a write. A raise counts against the room beside other
/// memory, because that memory grows into the room and cannot be reclaimed.
pub(crate) fn high(group: &Group, wanted: Limit) -> Option<Limit> {
    let knobs = &group.knobs;
    let target = knobs.operator.high.map_or(wanted, |high| high.min(wanted));
    let now = knobs.high.filter(|_| !knobs.foreign.high)?;
    let other = group.non_file().unwrap_or_default();
    let raises = match (now, target) {
        (Limit::Bytes(now), Limit::Bytes(target)) => differs(target - now, target - other),
        _ => false,
    };
    (raises || worth(now, target)).then_some(target)
}

fn worth(now: Limit, target: Limit) -> bool {
    match (now, target) {
        (Limit::Max, Limit::Max) => false,
        (Limit::Bytes(now), Limit::Bytes(target)) => {
            differs((now - target).max(target - now), target)
        }
        _ => true,
    }
}

fn differs(difference: Bytes, of: Bytes) -> bool {
    difference.0 >= 4096 && difference > of.scale(WORTH)
}
