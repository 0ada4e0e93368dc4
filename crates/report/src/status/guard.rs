//! The state of the guard, as `justitia status --json` prints it.

use justitia_policy::snapshot::Reservation;
use serde::{Deserialize, Serialize};

use super::Tick;

/// Totals of writes to `memory.reclaim` since the agent began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reclaimed {
    /// Bytes requested by writes that ended.
    pub asked: u64,
    /// Bytes requested by writes that the kernel fulfilled.
    pub taken: u64,
    /// Number of writes that the kernel fulfilled only in part (`EAGAIN`).
    pub partial: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GuardStatus {
    /// Memory to keep free above the watermarks: the standing reserve, and reservations that are not taken up
    /// yet.
    pub reserve_bytes: u64,
    /// Part of the reserve that is reserved for groups.
    pub reserved_bytes: u64,
    /// Free memory above the watermarks.
    pub spare_bytes: Option<u64>,
    /// Memory missing in the reserve at the last step.
    pub missing_bytes: u64,
    /// Bytes that the last step requested through `memory.reclaim`.
    pub asked_bytes: u64,
    /// Page cache of the root cgroup and of unmanaged groups.
    pub unmanaged_file_bytes: Option<u64>,
    /// Page cache left to the root cgroup and to unmanaged groups while memory is scarce. `None`: the guard
    /// does not bound it, because the multi-generational LRU would take from protected groups too.
    pub unmanaged_share_bytes: Option<u64>,
    /// Bytes requested through `memory.reclaim` since the agent began, by writes that ended.
    pub asked_total_bytes: u64,
    /// Bytes requested by writes that the kernel fulfilled.
    pub taken_total_bytes: u64,
    /// Number of writes that the kernel fulfilled only in part.
    pub partial_total: u64,
    pub reservations: Vec<Reservation>,
}

impl GuardStatus {
    /// `None`: the guard has nothing to do.
    pub(super) fn of(tick: &Tick) -> Option<GuardStatus> {
        let guarded = tick.plan.guard?;
        Some(GuardStatus {
            reserve_bytes: guarded.reserve.0,
            reserved_bytes: guarded.reserved.0,
            spare_bytes: guarded.spare.map(|bytes| bytes.0),
            missing_bytes: guarded.missing.0,
            asked_bytes: guarded.asked.0,
            unmanaged_file_bytes: guarded.unmanaged.map(|bytes| bytes.0),
            unmanaged_share_bytes: guarded.unmanaged_share.map(|bytes| bytes.0),
            asked_total_bytes: tick.reclaimed.asked,
            taken_total_bytes: tick.reclaimed.taken,
            partial_total: tick.reclaimed.partial,
            reservations: tick.snapshot.reservations.clone(),
        })
    }
}
