//! From decisions to knob writes: only what changes, in an order that is never harmful.
//!
//! What the operator had set before is kept: protection is never below it, a limit never above it.
//!
//! A value that is close to what the knob holds is left alone, and so is a knob that a foreign
//! writer took over or that is not there. Protection is raised from the top down and lowered from
//! the bottom up, so that an ancestor never protects less than what its children claim.

use std::collections::BTreeMap;

use crate::plan::{Knob, Reason, Value, Write};
use crate::share::entitlement::{non_file, Tree};
use crate::snapshot::{BlockDevice, Group, GroupId};
use crate::step::Decided;
use crate::units::{Bytes, Limit};

/// Changes smaller than this part of the value are not worth a write.
const WORTH: f64 = 0.04;
/// Block weights are steps of a scheduler's virtual time; small changes do not show.
const WEIGHT_WORTH: f64 = 0.1;
/// `io.bfq.weight` ends here (`block/bfq-cgroup.c`, `BFQ_MAX_WEIGHT`).
const BFQ_MAX: u32 = 1000;
/// `io.weight` ends here (`CGROUP_WEIGHT_MAX`).
const IO_MAX: u32 = 10_000;

/// The writes for these decisions. `low` is `None` if the host could not be read.
pub(crate) fn plan(
    groups: &[Group],
    tree: &Tree,
    decided: &[Decided],
    low: Option<&[Option<Bytes>]>,
) -> Vec<Write> {
    let mut writes = Vec::new();
    let mut lowered = Vec::new();
    for (i, group) in groups.iter().enumerate() {
        let Some(target) = low.and_then(|low| low[i]) else {
            continue;
        };
        let Some(now) = group.knobs.low.filter(|_| !group.knobs.foreign.low) else {
            continue;
        };
        let target = Limit::Bytes(target);
        let target = group
            .knobs
            .operator
            .low
            .map_or(target, |low| low.max(target));
        if !worth(now, target) {
            continue;
        }
        let reason = if tree.leaf[i] {
            Reason::Threshold {
                file: decided[i].threshold,
                non_file: non_file(group).unwrap_or_default(),
            }
        } else {
            Reason::ChildrenSum
        };
        let write = Write {
            group: group.id,
            knob: Knob::MemoryLow,
            value: Value::Limit(target),
            reason,
        };
        if target > now {
            writes.push(write);
        } else {
            lowered.push(write);
        }
    }
    writes.extend(lowered.into_iter().rev());
    for (group, decided) in groups.iter().zip(decided) {
        writes.extend(high_write(group, decided));
    }
    let heaviest = heaviest_siblings(groups, decided);
    for (i, group) in groups.iter().enumerate().filter(|(i, _)| tree.leaf[*i]) {
        let heaviest = heaviest.get(&group.parent).copied();
        writes.extend(weight_write(group, &decided[i], heaviest.unwrap_or(1.0)));
    }
    writes
}

/// The largest weight, with its gain, below each parent: the block layer compares siblings only, so
/// what is too heavy for the file scales down its siblings and nobody else.
fn heaviest_siblings(groups: &[Group], decided: &[Decided]) -> BTreeMap<Option<GroupId>, f64> {
    let mut heaviest = BTreeMap::new();
    for (group, decided) in groups.iter().zip(decided) {
        if let Some(weight) = group.weight {
            let most = heaviest.entry(group.parent).or_insert(1.0_f64);
            *most = most.max(weight.as_f64() * decided.gain);
        }
    }
    heaviest
}

/// Only the limits: no protection, no block weights.
pub(crate) fn limits(groups: &[Group], decided: &[Decided]) -> Vec<Write> {
    let each = groups.iter().zip(decided);
    each.filter_map(|(group, decided)| high_write(group, decided))
        .collect()
}

/// Turns off what overrides weights, where it is known to be on and nobody else's.
pub(crate) fn hold_weights(devices: &[BlockDevice]) -> impl Iterator<Item = Write> + '_ {
    let on = devices
        .iter()
        .filter(|device| device.low_latency == Some(true) && !device.foreign);
    on.map(|device| Write {
        group: device.id,
        knob: Knob::BfqLowLatency,
        value: Value::Switch(false),
        reason: Reason::WeightsMustHold,
    })
}

fn high_write(group: &Group, decided: &Decided) -> Option<Write> {
    let wanted = decided.high?;
    let target = group
        .knobs
        .operator
        .high
        .map_or(wanted, |high| high.min(wanted));
    let now = group.knobs.high.filter(|_| !group.knobs.foreign.high)?;
    if !worth(now, target) {
        return None;
    }
    let reason = match (wanted, now) {
        (Limit::Bytes(wanted), Limit::Bytes(now))
            if wanted > now
                && (!(decided.participant || decided.rebalanced)
                    || decided.grew.scale(4.0) > wanted - now) =>
        {
            Reason::MakeRoom
        }
        _ if decided.makes_room => Reason::Reserved,
        _ if decided.rebalanced => Reason::Rebalance,
        (Limit::Max, _) => Reason::NoContention,
        _ if !decided.participant => Reason::AtEntitlement,
        _ => Reason::AboveShare {
            of_ideal: decided.of_ideal.unwrap_or(1.0),
            gain: decided.gain,
        },
    };
    let value = Value::Limit(target);
    Some(Write {
        group: group.id,
        knob: Knob::MemoryHigh,
        value,
        reason,
    })
}

/// The block layer's weight: the group's own, times its gain, scaled to what the file takes.
fn weight_write(group: &Group, decided: &Decided, heaviest: f64) -> Option<Write> {
    decided.high?;
    let weight = group.weight.filter(|_| !group.knobs.foreign.io_weight)?;
    let (knob, now, most) = match (group.knobs.bfq_weight, group.knobs.io_weight) {
        (Some(now), _) => (Knob::IoBfqWeight, now, BFQ_MAX),
        (None, Some(now)) => (Knob::IoWeight, now, IO_MAX),
        (None, None) => return None,
    };
    let scale = f64::from(most) / heaviest.max(f64::from(most));
    // The whole gain, as on the page share: a light group soon stands at the floor of its pages, and
    // then only this still acts. Where both act the loop sees what they do together.
    let target = (weight.as_f64() * decided.gain * scale)
        .round()
        .clamp(1.0, f64::from(most));
    let change = (target - f64::from(now)).abs() / f64::from(now.max(1));
    if change <= WEIGHT_WORTH && (decided.participant || target as u32 == now) {
        return None;
    }
    Some(Write {
        group: group.id,
        knob,
        value: Value::Weight(target as u32),
        reason: Reason::BlockShare { gain: decided.gain },
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
