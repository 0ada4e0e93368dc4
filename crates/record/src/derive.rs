//! What follows from the rest of a record, and so need not be written.
//!
//! The formulas here are part of the format, **frozen** as derivation set 1: files leave out what
//! they give. When the policy computes something else one day, its values are written in full (a
//! field is left out only if it is what the formula says, to the last bit) and files grow; nothing
//! breaks. New formulas go into a new set.
//!
//! Units as in `justitia_policy::plan::Verdict`; elapsed time in seconds.

use justitia_policy::snapshot::Group;
use serde_json::{json, Value};

/// The newest set of formulas here.
pub(crate) const DERIVATIONS: u32 = 1;

/// Fields of a verdict that may be left out, in the order of their bits.
pub(crate) const OF_VERDICT: [&str; 5] = [
    "bytes_per_s",
    "transferable_bytes_per_s",
    "stalled",
    "cache",
    "threshold",
];
/// Fields of a write's reason that may be left out, in the order of their bits.
pub(crate) const OF_REASON: [&str; 4] = ["file", "non_file", "of_ideal", "gain"];

/// What the counters of a group say about the last period. `then`: the group in the tick before.
pub(crate) fn measured(then: Option<&Group>, now: &Group, elapsed_s: f64) -> [Value; 4] {
    let elapsed_s = now.read_after_s.unwrap_or(elapsed_s);
    let per_s = |counter: fn(&Group) -> Option<u64>| {
        let delta = counter(now)?.checked_sub(counter(then?)?)?;
        (elapsed_s > 0.0).then(|| delta as f64 / elapsed_s)
    };
    let read = per_s(|group| group.traffic.read_bytes);
    let written = per_s(|group| group.traffic.write_bytes);
    let missed = per_s(|group| group.traffic.missed_bytes);
    let bytes = read.zip(written).map(|(read, written)| read + written);
    let transferable = match (written, missed, read) {
        (Some(written), Some(missed), Some(read)) => Some(written + missed.min(read)),
        _ => None,
    };
    let stalls = [
        per_s(|group| group.pressure.io_some_us),
        per_s(|group| group.pressure.memory_some_us),
    ];
    let stalled = stalls.into_iter().flatten().reduce(f64::max);
    let stalled = stalled.map(|us_per_s| (us_per_s / 1e6).min(1.0));

    let asked = per_s(|group| group.cache.asked_pages);
    let missed = per_s(|group| group.cache.missed_pages);
    let readahead = per_s(|group| group.cache.readahead_pages);
    let hit_ratio = match (asked, missed, readahead) {
        (Some(asked), Some(missed), Some(readahead)) if asked > 0.0 => {
            Some((1.0 - (missed + readahead) / asked).max(0.0))
        }
        _ => None,
    };
    let seconds = |us_per_s: Option<f64>| us_per_s.map(|us| us / 1e6);
    let cache = json!({
        "hit_ratio": hit_ratio,
        "asked_pages_per_s": asked,
        "missed_pages_per_s": missed,
        "readahead_pages_per_s": readahead,
        "inserted_pages_per_s": per_s(|group| group.cache.inserted_pages),
        "evicted_pages_per_s": per_s(|group| group.cache.evicted_pages),
        "refault_pages_per_s": per_s(|group| group.memory.refault_pages),
        "mmap_faults_per_s": per_s(|group| group.cache.mmap_faults),
        "mmap_major_faults_per_s": per_s(|group| group.cache.mmap_major_faults),
        "reclaim_s_per_s": seconds(per_s(|group| group.cache.reclaim_us)),
        "throttled_s_per_s": seconds(per_s(|group| group.cache.throttled_us)),
    });
    [json!(bytes), json!(transferable), json!(stalled), cache]
}

/// A verdict's threshold: its entitlement, less what others hold, and what is held for others.
pub(crate) fn threshold(verdict: &Value) -> Value {
    let field = |name| verdict.get(name).and_then(Value::as_u64);
    let bytes = field("entitlement")
        .zip(field("held_by_others"))
        .zip(field("held_for_others"));
    json!(bytes.map(|((entitled, by), of)| entitled.saturating_sub(by).saturating_add(of)))
}

/// What a reason says about its group, from the group and its verdict.
pub(crate) fn reasons(group: Option<&Group>, verdict: Option<&Value>) -> [Value; 4] {
    let of_verdict = |name| verdict.and_then(|verdict| verdict.get(name)).cloned();
    let non_file = group.and_then(|group| {
        let other = group.memory.current?.0.saturating_sub(group.memory.file?.0);
        Some(other.max(group.memory.anon.map_or(0, |anon| anon.0)))
    });
    [
        of_verdict("threshold").unwrap_or_default(),
        json!(non_file),
        of_verdict("of_ideal").unwrap_or_default(),
        of_verdict("gain").unwrap_or_default(),
    ]
}
