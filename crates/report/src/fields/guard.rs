//! Fields of the guard; absent while it has nothing to do.

use super::{field, number, Field, Get};

#[rustfmt::skip]
pub(crate) const GUARD: &[Field] = &[
    field("guard.reserve_bytes", "B",
        "Memory to keep free above the watermarks: the standing reserve, and reservations that are not used \
         yet.")
        .gauge("justitia_guard_reserve_bytes", report!(guard.as_ref()?.reserve_bytes)),
    field("guard.reserved_bytes", "B",
        "The part of the reserve that is reserved for groups (justitia reserve).")
        .gauge("justitia_guard_reserved_bytes", report!(guard.as_ref()?.reserved_bytes)),
    field("guard.spare_bytes", "B", "Free memory above the watermarks.")
        .gauge("justitia_guard_spare_bytes", report!(guard.as_ref()?.spare_bytes)),
    field("guard.missing_bytes", "B", "Memory that the last step found missing in the reserve."),
    field("guard.asked_bytes", "B", "Page cache that the last step requested through memory.reclaim."),
    field("guard.unmanaged_file_bytes", "B", "Page cache of the root cgroup and of unmanaged groups.")
        .gauge("justitia_guard_unmanaged_page_cache_bytes", report!(guard.as_ref()?.unmanaged_file_bytes)),
    field("guard.unmanaged_share_bytes", "B",
        "Page cache left to the root cgroup and to unmanaged groups while memory is scarce; absent under the \
         multi-generational LRU, where nothing bounds it.")
        .gauge("justitia_guard_unmanaged_share_bytes", report!(guard.as_ref()?.unmanaged_share_bytes)),
    field("guard.asked_total_bytes", "B",
        "Page cache requested through memory.reclaim since the agent began, by writes that ended.")
        .counter("justitia_guard_asked_bytes", report!(guard.as_ref()?.asked_total_bytes)),
    field("guard.taken_total_bytes", "B",
        "Page cache requested by writes of memory.reclaim that the kernel fulfilled: at least this amount was \
         reclaimed.")
        .counter("justitia_guard_taken_bytes", report!(guard.as_ref()?.taken_total_bytes)),
    field("guard.partial_total", "", "Writes of memory.reclaim that the kernel fulfilled only in part.")
        .counter("justitia_guard_partial_reclaims", report!(guard.as_ref()?.partial_total)),
    field("guard.reservations[].bytes", "B", "Memory reserved for a group."),
    field("guard.reservations[].left_s", "s", "Time until the reservation expires."),
    field("writes[].reason.reserve", "B", "Memory to keep free when a reclaim was decided."),
    field("writes[].reason.over", "B", "Page cache above the group's share when a reclaim was decided."),
];
