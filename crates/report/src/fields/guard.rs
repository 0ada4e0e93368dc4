//! Fields of the guard; absent while it has nothing to do.

use super::{number, plain, Field, Get};

pub(crate) const GUARD: &[Field] = &[
    plain(
        "guard.reserve_bytes",
        "B",
        "Memory to keep free above the watermarks: the standing reserve, and reservations that \
         are not used yet.",
    )
    .gauge("justitia_guard_reserve_bytes", report!(guard.as_ref()?.reserve_bytes)),
    plain(
        "guard.reserved_bytes",
        "B",
        "The part of the reserve that is reserved for groups (justitia reserve).",
    )
    .gauge("justitia_guard_reserved_bytes", report!(guard.as_ref()?.reserved_bytes)),
    plain("guard.spare_bytes", "B", "Free memory above the watermarks.")
        .gauge("justitia_guard_spare_bytes", report!(guard.as_ref()?.spare_bytes)),
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
        report!(guard.as_ref()?.unmanaged_file_bytes),
    ),
    plain(
        "guard.unmanaged_share_bytes",
        "B",
        "Page cache left to the root cgroup and to unmanaged groups while memory is scarce; \
         absent under the multi-generational LRU, where nothing bounds it.",
    )
    .gauge("justitia_guard_unmanaged_share_bytes", report!(guard.as_ref()?.unmanaged_share_bytes)),
    plain(
        "guard.asked_total_bytes",
        "B",
        "Page cache requested through memory.reclaim since the agent began, by writes that ended.",
    )
    .counter("justitia_guard_asked_bytes", report!(guard.as_ref()?.asked_total_bytes)),
    plain(
        "guard.taken_total_bytes",
        "B",
        "Page cache requested by writes of memory.reclaim that the kernel fulfilled: at least this amount was reclaimed.",
    )
    .counter("justitia_guard_taken_bytes", report!(guard.as_ref()?.taken_total_bytes)),
    plain(
        "guard.partial_total",
        "",
        "Writes of memory.reclaim that the kernel fulfilled only in part.",
    )
    .counter("justitia_guard_partial_reclaims", report!(guard.as_ref()?.partial_total)),
    plain("guard.reservations[].bytes", "B", "Memory reserved for a group."),
    plain("guard.reservations[].left_s", "s", "Time until the reservation expires."),
    plain("writes[].reason.reserve", "B", "Memory to keep free when a reclaim was decided."),
    plain("writes[].reason.over", "B", "Page cache above the group's share when a reclaim was decided."),
];
