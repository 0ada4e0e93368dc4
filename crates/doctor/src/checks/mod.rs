//! The table of all checks, and a module for each kind of pitfall. Each threshold is explained beside it.

mod dirty;
mod hierarchy;
mod kernel;
mod limits;
mod outside;
mod protection;
mod reserve;
mod swap;
mod weights;

use justitia_policy::units::Bytes;

use crate::check::{Check, Subject};
use crate::facts::GroupFacts;

/// All checks, in the order of the report.
pub static CHECKS: [Check; 23] = [
    reserve::LIMITS_EXCEED_MEMORY,
    reserve::MEMORY_NOT_RESERVED,
    protection::EXCEEDS_MEMORY,
    protection::CUT_OFF,
    protection::RECURSIVE_MISSING,
    protection::RECURSIVE_UNCLAIMED,
    limits::TOO_SMALL,
    limits::CACHE_STARVED,
    outside::UNBOUNDED,
    outside::DIRTYING,
    swap::NONE,
    swap::UNLIMITED,
    swap::SWAPPINESS,
    dirty::SLOW_DISK,
    weights::NOT_ENFORCED,
    weights::DISTORTED,
    weights::WRITEBACK_NOT_CHARGED,
    kernel::MGLRU,
    kernel::ZOMBIES,
    kernel::PSI_OFF,
    hierarchy::CGROUP_V1,
    hierarchy::CONTROLLERS_OFF,
    hierarchy::FEATURES,
];

pub fn find_check(id: &str) -> Option<&'static Check> {
    CHECKS.iter().find(|check| check.id == id)
}

/// The largest parts first, as `/a 1.0 GiB, /b 512.0 MiB and 3 more`.
fn largest(mut parts: Vec<(&str, Bytes)>) -> String {
    const SHOWN: usize = 3;
    parts.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let rest = parts.len().saturating_sub(SHOWN);
    let shown = parts.iter().take(SHOWN);
    let shown: Vec<String> = shown
        .map(|(name, bytes)| format!("{name} {bytes}"))
        .collect();
    match rest {
        0 => shown.join(", "),
        rest => format!("{} and {rest} more", shown.join(", ")),
    }
}

/// A percentage without decimals; `?` if `whole` is zero.
fn percent(part: Bytes, whole: Bytes) -> String {
    if whole == Bytes::ZERO {
        return "?".to_owned();
    }
    format!("{:.0} %", 100.0 * part.as_f64() / whole.as_f64())
}

/// `1 group`, `3 groups`.
fn groups(count: usize) -> String {
    match count {
        1 => "1 group".to_owned(),
        count => format!("{count} groups"),
    }
}

fn about(group: &GroupFacts) -> Subject {
    Subject::Group(group.path.clone())
}
