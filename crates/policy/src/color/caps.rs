//! The balance between colors in a step: from declared colors and what groups hold to caps, and
//! from caps to limits. The rules are in [`crate::color::rules`], what is learned on the way in
//! [`crate::color::working_set`].
//!
//! In mode `proportional` only declared colors move memory: a cap bounds the group's demand before
//! page cache is divided ([`crate::share::water`]), so what it frees goes by weight to whoever demands it,
//! and `memory.high` at the cap makes the kernel take the pages. With no color declared there is no
//! cap, and every plan is what it would be without this module. In mode `memoplight` the paper's
//! mechanism is alone: declared colors, else inferred ones, and `memory.high` as the limit that
//! comes down; `memory.low`, the paper's soft limit, stays the operator's, and so do block weights.
//!
//! Units: bytes of page cache for caps; the percentage is of the footprint (`memory.current`), as the
//! paper's. In mode `proportional` it is of no more than a few times the page cache ([`BASIS_MOST`]).

use crate::color::rules::{due, pace, table_ii, unified, Party, Role, Supply};
use crate::color::working_set::Seen;
use crate::color::{Color, ColorSource};
use crate::config::{Config, Mode};
use crate::feedback::limits;
use crate::share::entitlement::{non_file, Tree};
use crate::snapshot::Group;
use crate::step::{Decided, Memo};
use crate::units::{Bytes, Limit};

/// A cap presses when it is less than what is held and this part of that.
const PRESSES: f64 = 0.05;
/// Mode `proportional`: the percentage is of no more than this many times the page cache. A group with
/// little page cache beside much other memory would lose all of it in one period otherwise; of page cache
/// alone, eight databases with three times as much memory of their own gave a quarter as fast as the
/// paper's.
const BASIS_MOST: f64 = 5.0;

/// The color that a group declares, if that counts.
fn declared(group: &Group) -> Option<Color> {
    group.declared.as_ref()?.fresh()
}

/// A group's color, and where it comes from.
pub(crate) fn color(group: &Group, memo: &Memo, of_ideal: Option<f64>) -> (Color, ColorSource) {
    match declared(group) {
        Some(color) => (color, ColorSource::Declared),
        None => (
            Color::infer(memo.habits.contending(), of_ideal),
            ColorSource::Inferred,
        ),
    }
}

/// Moves the caps of all leaves by one step. `since_s`: seconds since the last taking; returns the
/// same for the next step.
pub(crate) fn move_caps(
    memos: &mut [Memo],
    groups: &[Group],
    tree: &Tree,
    supply: Supply,
    config: &Config,
    since_s: f64,
    elapsed_s: f64,
) -> f64 {
    let (due, since_s) = due(since_s, elapsed_s, config.colors.period_s);
    let parties: Vec<Party> = (0..groups.len())
        .map(|i| party(&memos[i], &groups[i], tree.leaf[i], config, elapsed_s))
        .collect();
    let roles = match config.mode {
        Mode::Proportional => unified(&parties, supply, config.colors.yellow),
        Mode::Memoplight => table_ii(&parties, supply, config.colors.yellow),
        Mode::Justitia | Mode::Observe => vec![Role::Free; parties.len()],
    };
    let percent = config.colors.percent;
    // The paper's mechanism takes its percentage in any case.
    let giving = match config.mode {
        Mode::Memoplight => percent,
        _ => percent * pace(&parties, &roles, percent),
    };
    for (i, (party, role)) in parties.iter().zip(roles).enumerate() {
        let memo = &mut memos[i];
        let percent = if role == Role::Gives { giving } else { percent };
        let moved = party.moved(role, due, percent);
        memo.was_capped = memo.cap.is_some();
        // Between two takings too: the limit stays.
        let presses = |(cap, held): (Bytes, Bytes)| cap < held + held.scale(PRESSES);
        let taken = role == Role::Gives && moved.zip(party.held).is_some_and(presses);
        memo.cap = moved;
        let at_estimate = || {
            let set = memo.working_set.estimate()?;
            Some(moved? + non_file(&groups[i])? <= set)
        };
        let in_the_way =
            role == Role::Gives && uses_working_set(config) && at_estimate() == Some(true);
        let seen = Seen {
            color: declared(&groups[i]).filter(|_| tree.leaf[i]),
            footprint: groups[i].memory.current,
            taken,
            in_the_way,
            refaults_per_s: memo.rates.cache.refault_pages_per_s,
            load: memo.rates.bytes_per_s(),
        };
        memo.working_set = std::mem::take(&mut memo.working_set).after(&seen, elapsed_s);
    }
    since_s
}

fn uses_working_set(config: &Config) -> bool {
    config.mode == Mode::Proportional || config.memoplight.working_set
}

/// What a group brings into memory in a period, as in the one that has just passed.
fn fills(memo: &Memo, group: &Group, period_s: f64, elapsed_s: f64) -> Option<Bytes> {
    let grown = non_file(group).zip(memo.non_file);
    let grown = grown.map_or(Bytes::ZERO, |(now, before)| now - before);
    let grown_per_s = grown.0 as f64 / elapsed_s.max(f64::MIN_POSITIVE);
    let per_s = memo.rates.missed_per_s? + grown_per_s;
    Some(Bytes((per_s * period_s) as u64))
}

fn party(memo: &Memo, group: &Group, leaf: bool, config: &Config, elapsed_s: f64) -> Party {
    let color = match config.mode {
        _ if !leaf => None,
        Mode::Memoplight => Some(color(group, memo, None).0),
        _ => declared(group),
    };
    let held = group.memory.file.filter(|_| non_file(group).is_some());
    let mut least = memo.least.file;
    if let (true, Some(set), Some(other)) = (
        uses_working_set(config),
        memo.working_set.estimate(),
        non_file(group),
    ) {
        least = least.max(set - other);
    }
    let wants = held.is_some_and(|held| {
        limits::ceiling(group).is_none_or(|most| held + limits::HEADROOM + limits::HEADROOM < most)
    });
    let footprint = group.memory.current;
    Party {
        color,
        held,
        basis: match config.mode {
            Mode::Memoplight => footprint,
            _ => footprint
                .zip(group.memory.file)
                .map(|(footprint, file)| footprint.min(file.scale(BASIS_MOST))),
        },
        least,
        wants,
        fills: fills(memo, group, config.colors.period_s, elapsed_s),
        cap: memo.cap,
    }
}

/// Mode `proportional`: whoever has a cap is limited at it, unless its share is less.
pub(crate) fn hold_at_caps(memos: &[Memo], decided: &mut [Decided], groups: &[Group]) {
    for ((memo, d), group) in memos.iter().zip(decided).zip(groups) {
        if let Some(cap) = memo.cap {
            let limit = limits::limit(group, &memo.least, cap, d.grew);
            if limit.is_some_and(|limit| d.high.is_none_or(|high| limit < high)) {
                d.high = limit;
                d.rebalanced = true;
            }
        } else if memo.was_capped && d.high == Some(Limit::Max) {
            d.rebalanced = true;
        }
    }
}

/// Mode `memoplight`: limits at the caps, and no others.
pub(crate) fn limit_at_caps(
    memos: &mut [Memo],
    decided: &mut [Decided],
    groups: &[Group],
    tree: &Tree,
    elapsed_s: f64,
) {
    for (i, memo) in memos.iter_mut().enumerate() {
        let d = &mut decided[i];
        if !tree.leaf[i] {
            // It may have been a leaf, and limited.
            d.high = groups[i].knobs.operator.high;
            continue;
        }
        let other = non_file(&groups[i]);
        d.grew = match (other, memo.non_file) {
            (Some(now), Some(then)) => now - then,
            _ => Bytes::ZERO,
        };
        memo.non_file = other.or(memo.non_file);
        memo.blind_s = match other {
            Some(_) => 0.0,
            None => memo.blind_s + elapsed_s,
        };
        d.rebalanced = true;
        d.high = match memo.cap {
            None => Some(Limit::Max),
            Some(cap) => limits::limit(&groups[i], &memo.least, cap, d.grew)
                .or_else(|| limits::blind_limit(&groups[i], &memo.least, memo.blind_s)),
        };
    }
}

#[cfg(test)]
mod tests;
