//! Fields of the guard; absent while it has nothing to do.

use super::{plain, Field, Get, Kind};
use crate::status::{GuardStatus, Report};

/// A value of the guard; `None`: it has nothing to do.
fn guard(report: &Report, get: fn(&GuardStatus) -> Option<u64>) -> Option<f64> {
    let value = report.guard.as_ref().and_then(get)?;
    Some(value as f64)
}

pub(crate) const GUARD: &[Field] = &[
    plain(
        "guard.reserve_bytes",
        "B",
        "Memory to keep free above the watermarks: the standing reserve, and reservations that \
         are not used yet.",
    )
    .gauge(
        "justitia_guard_reserve_bytes",
        "bytes",
        Get::Report(|report| guard(report, |guard| Some(guard.reserve_bytes))),
    ),
    plain(
        "guard.reserved_bytes",
        "B",
        "The part of the reserve that is reserved for groups (justitia reserve).",
    )
    .gauge(
        "justitia_guard_reserved_bytes",
        "bytes",
        Get::Report(|report| guard(report, |guard| Some(guard.reserved_bytes))),
    ),
    plain("guard.spare_bytes", "B", "Free memory above the watermarks.").gauge(
        "justitia_guard_spare_bytes",
        "bytes",
        Get::Report(|report| guard(report, |guard| guard.spare_bytes)),
    ),
    plain(
        "guard.missing_bytes",
        "B",
        "Memory that the last step found missing in the reserve.",
    ),
    plain(
        "guard.asked_bytes",
        "B",
        "Page cache that the last step requested through memory.reclaim.",
    ),
    plain(
        "guard.unmanaged_file_bytes",
        "B",
        "Page cache of the root cgroup and of unmanaged groups.",
    )
    .gauge(
        "justitia_guard_unmanaged_page_cache_bytes",
        "bytes",
        Get::Report(|report| guard(report, |guard| guard.unmanaged_file_bytes)),
    ),
    plain(
        "guard.unmanaged_share_bytes",
        "B",
        "Page cache left to the root cgroup and to unmanaged groups while memory is scarce; \
         absent under the multi-generational LRU, where nothing bounds it.",
    )
    .gauge(
        "justitia_guard_unmanaged_share_bytes",
        "bytes",
        Get::Report(|report| guard(report, |guard| guard.unmanaged_share_bytes)),
    ),
    plain(
        "guard.asked_total_bytes",
        "B",
        "Page cache requested through memory.reclaim since the agent began, by writes that ended.",
    )
    .metric(
        "justitia_guard_asked_bytes",
        Kind::Counter,
        "bytes",
        Get::Report(|report| guard(report, |guard| Some(guard.asked_total_bytes))),
    ),
    plain(
        "guard.taken_total_bytes",
        "B",
        "Page cache requested by writes of memory.reclaim that the kernel fulfilled: at least this amount was reclaimed.",
    )
    .metric(
        "justitia_guard_taken_bytes",
        Kind::Counter,
        "bytes",
        Get::Report(|report| guard(report, |guard| Some(guard.taken_total_bytes))),
    ),
    plain(
        "guard.partial_total",
        "",
        "Writes of memory.reclaim that the kernel fulfilled only in part.",
    )
    .metric(
        "justitia_guard_partial_reclaims",
        Kind::Counter,
        "",
        Get::Report(|report| guard(report, |guard| Some(guard.partial_total))),
    ),
    plain("guard.reservations[].bytes", "B", "Memory reserved for a group."),
    plain("guard.reservations[].left_s", "s", "Time until the reservation expires."),
    plain("writes[].reason.reserve", "B", "Memory to keep free when a reclaim was decided."),
    plain("writes[].reason.over", "B", "Page cache above the group's share when a reclaim was decided."),
];
