//! What the guard does, as `justitia status --json` prints it.

use serde::{Deserialize, Serialize};

use super::Tick;

/// What was asked of `memory.reclaim` since the agent began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reclaimed {
    /// Bytes asked for, by writes that ended.
    pub asked: u64,
    /// Of that, by writes that the kernel fulfilled.
    pub taken: u64,
    /// Writes that it fulfilled in part only (`EAGAIN`).
    pub partial: u64,
}

/// The guard.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GuardStatus {
    /// What is to be free above the watermarks: the standing reserve, and what is reserved and not
    /// taken up yet.
    pub reserve_bytes: u64,
    /// Of that, what is reserved.
    pub reserved_bytes: u64,
    /// What is free above the watermarks.
    pub spare_bytes: Option<u64>,
    /// What the last step found missing.
    pub missing_bytes: u64,
    /// What it asked for.
    pub asked_bytes: u64,
    /// Page cache of the root cgroup and of groups that nobody manages.
    pub unmanaged_file_bytes: Option<u64>,
    /// What of that is theirs while memory is scarce; `None`: nothing bounds it here, because the
    /// multi-generational LRU would take from protected groups too.
    pub unmanaged_share_bytes: Option<u64>,
    /// Bytes asked of `memory.reclaim` since the agent began, by writes that ended.
    pub asked_total_bytes: u64,
    /// Of that, by writes that the kernel fulfilled.
    pub taken_total_bytes: u64,
    /// Writes that it fulfilled in part only.
    pub partial_total: u64,
    /// What is reserved for whom.
    pub reservations: Vec<ReservationStatus>,
}

/// One reservation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReservationStatus {
    /// Path of the group.
    pub path: String,
    /// How much.
    pub bytes: u64,
    /// Until it expires.
    pub left_s: f64,
}

impl GuardStatus {
    /// Of a tick; `None`: the guard has nothing to do.
    pub(super) fn of(tick: &Tick) -> Option<GuardStatus> {
        let guarded = tick.plan.guard?;
        let reservations = tick.snapshot.reservations.iter();
        let reservations = reservations.map(|reservation| ReservationStatus {
            path: reservation.path.clone(),
            bytes: reservation.bytes.0,
            left_s: reservation.left_s,
        });
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
            reservations: reservations.collect(),
        })
    }
}
