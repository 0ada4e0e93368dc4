//! Caps: how colors change limits and demands in a step. The rules are in [`rules`];
//! [`crate::feedback::working_set`] learns from their effect.
//!
//! In mode `proportional` only declared colors move memory. A cap bounds the group's demand before page cache
//! is divided, so freed memory goes by weight to the groups that demand it. `memory.high` at the cap makes
//! the kernel reclaim the pages. Without a declared color there is no cap, and plans are the same as without
//! this module.
//!
//! Mode `memoplight` is the paper's mechanism alone: declared colors, else inferred ones. Each period, the
//! agent reclaims a percentage of each giver once (`memory.reclaim`), green groups before yellow ones. There
//! is no cap, and no limit holds what was taken. `memory.low` and block weights stay the operator's.
//!
//! Units: bytes of page cache for caps. The percentage is of the footprint (`memory.current`), as in the
//! paper; in mode `proportional` the footprint counts up to a few times the page cache ([`BASIS_MOST`]).

mod rules;

use crate::color::Color;
use crate::config::{Capabilities, ColorConfig, ColorRule, Config};
use crate::decision::{Member, Memo};
use crate::feedback::limits;
use crate::feedback::working_set::Period;
use crate::plan::{Knob, Reason, Value, Write};
use crate::share::supply::Supply;
use crate::snapshot::Group;
use crate::units::{Bytes, Limit};
use rules::{giving_rate, roles, Holder, Role};

/// A cap presses if it is less than what the group holds plus this part of it.
const PRESSES: f64 = 0.05;
/// Mode `proportional`: the footprint counts up to this many times the page cache. Otherwise a group with
/// little page cache beside much other memory would lose all of it in one period. With a percentage of the
/// page cache alone, eight databases with three times as much memory of their own gave a quarter as fast as
/// with the paper's.
const BASIS_MOST: f64 = 5.0;

/// Moves the caps of all leaves by one step, and returns the writes to `memory.reclaim`. `since_s`: seconds
/// since memory was last taken, which this call advances.
pub(crate) fn move_caps(
    members: &mut [Member],
    supply: Supply,
    config: &Config,
    may: Capabilities,
    since_s: &mut f64,
    elapsed_s: f64,
) -> Vec<Write> {
    let colors = &config.colors;
    let due;
    (due, *since_s) = rules::due(*since_s, elapsed_s, colors.period_s);
    let holders: Vec<Holder> = members
        .iter()
        .map(|member| holder(member, may, colors, elapsed_s))
        .collect();
    let roles = match may.colors {
        Some(rule) => roles(rule, &holders, supply, colors.yellow),
        None => vec![Role::Free; holders.len()],
    };
    // The paper's mechanism takes its percentage in any case.
    let giving = match may.colors {
        Some(ColorRule::Unified) => colors.percent * giving_rate(&holders, &roles, colors.percent),
        _ => colors.percent,
    };
    let once = may.colors == Some(ColorRule::TableII);
    let mut reclaims = Vec::new();
    for ((member, holder), role) in members.iter_mut().zip(&holders).zip(roles) {
        let declared = member.declared();
        let Member {
            group, memo, leaf, ..
        } = member;
        let gives = role == Role::Gives;
        let moved = holder.moved(role, due, if gives { giving } else { colors.percent });
        memo.was_capped = memo.cap.is_some();
        memo.cap = moved.filter(|_| !once);
        let reclaims_now = once && gives && due && group.knobs.reclaim;
        if let (true, Some(left), Some(held)) = (reclaims_now, moved, holder.held) {
            reclaims.push((holder.color, group.id, (held - left).page_aligned()));
        }
        // Also between two takings, because the limit stays.
        let presses = |(cap, held): (Bytes, Bytes)| cap < held + held.scale(PRESSES);
        let at_estimate = || {
            let set = memo.working_set.estimate()?;
            Some(moved? + group.non_file()? <= set)
        };
        let period = Period {
            color: declared.filter(|_| *leaf),
            footprint: group.memory.current,
            taken: gives && moved.zip(holder.held).is_some_and(presses),
            in_the_way: gives && may.working_sets && at_estimate() == Some(true),
            refaults_per_s: memo.rates.cache.refault_pages_per_s,
            load: memo.rates.bytes_per_s(),
        };
        memo.working_set = std::mem::take(&mut memo.working_set).after(&period, elapsed_s);
    }
    // A stable sort: green groups come before yellow ones.
    reclaims.sort_by_key(|&(color, ..)| color != Some(Color::Green));
    let some = reclaims
        .into_iter()
        .filter(|&(.., bytes)| bytes > Bytes::ZERO);
    some.map(|(_, group, bytes)| Write {
        group,
        knob: Knob::MemoryReclaim,
        value: Value::Reclaim(bytes),
        reason: Reason::Rebalance,
    })
    .collect()
}

fn holder(member: &Member, may: Capabilities, config: &ColorConfig, elapsed_s: f64) -> Holder {
    let Member { group, memo, .. } = member;
    let table_ii = may.colors == Some(ColorRule::TableII);
    let color = if table_ii {
        Some(member.color().0)
    } else {
        member.declared()
    };
    let other = group.non_file();
    let held = group.memory.file.filter(|_| other.is_some());
    let needed = memo.working_set.estimate().filter(|_| may.working_sets);
    let needed = needed.zip(other).map(|(set, other)| set - other);
    let least = member.decision.least.file;
    let footprint = group.memory.current;
    let wants = |held: Bytes| {
        let ceiling = member.decision.ceiling;
        ceiling.is_none_or(|most| held + limits::HEADROOM + limits::HEADROOM < most)
    };
    Holder {
        color: color.filter(|_| member.leaf),
        held,
        basis: if table_ii {
            footprint
        } else {
            let most = group.memory.file.map(|file| file.scale(BASIS_MOST));
            footprint
                .zip(most)
                .map(|(footprint, most)| footprint.min(most))
        },
        least: needed.map_or(least, |needed| least.max(needed)),
        wants: held.is_some_and(wants),
        fills: fills(memo, group, config.period_s, elapsed_s),
        cap: memo.cap,
    }
}

/// Bytes that a group brings into memory in a period, at the rate of the last step.
fn fills(memo: &Memo, group: &Group, period_s: f64, elapsed_s: f64) -> Option<Bytes> {
    let grown = group.non_file().zip(memo.non_file);
    let grown = grown.map_or(Bytes::ZERO, |(now, before)| now - before);
    let grown_per_s = grown.0 as f64 / elapsed_s.max(f64::MIN_POSITIVE);
    let per_s = memo.rates.missed_per_s? + grown_per_s;
    Some(Bytes((per_s * period_s) as u64))
}

/// Sets limits at caps.
pub(crate) fn limit(members: &mut [Member], rule: Option<ColorRule>) {
    if rule == Some(ColorRule::Unified) {
        members.iter_mut().for_each(hold_at_cap);
    }
}

/// Limits a group at its cap, unless its limit is lower already.
fn hold_at_cap(member: &mut Member) {
    let high = member.decision.high.map(|(high, _)| high);
    if let Some(cap) = member.memo.cap {
        let limit = member.limit_for(cap);
        if let Some(limit) = limit.filter(|limit| high.is_none_or(|high| *limit < high)) {
            member.limit_at(limit, Reason::Rebalance);
        }
    } else if member.memo.was_capped && high == Some(Limit::Max) {
        member.limit_at(Limit::Max, Reason::Rebalance);
    }
}

#[cfg(test)]
mod tests;
