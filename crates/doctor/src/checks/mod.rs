//! The checks, a module for each kind of pitfall. What a threshold is, and why, stands beside it.

pub(crate) mod dirty;
pub(crate) mod hierarchy;
pub(crate) mod kernel;
pub(crate) mod limits;
pub(crate) mod outside;
pub(crate) mod protection;
pub(crate) mod reserve;
pub(crate) mod swap;
pub(crate) mod weights;

use justitia_policy::units::Bytes;

use crate::check::Subject;
use crate::facts::GroupFacts;

/// The largest first, as `/a 1.0 GiB, /b 512.0 MiB and 3 more`.
fn largest(mut parts: Vec<(&str, Bytes)>) -> String {
    const SHOWN: usize = 3;
    parts.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let rest = parts.len().saturating_sub(SHOWN);
    let shown: Vec<String> = parts
        .iter()
        .take(SHOWN)
        .map(|(name, bytes)| format!("{name} {bytes}"))
        .collect();
    match rest {
        0 => shown.join(", "),
        rest => format!("{} and {rest} more", shown.join(", ")),
    }
}

/// A percentage without decimals; of nothing it is not known.
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
