//! The records of `kmod/abi.h`, which a test compares with that file by the C compiler: sizes, places
//! and numbers of requests.

use super::{Order, State};

/// Of `/dev/justitia`.
pub const VERSION: u32 = 1;
/// The heaviest a group can be.
pub const WEIGHT_MAX: u32 = 10_000;
/// Classes of the queue's length: 1, 2 to 3, 4 to 7 and so on.
pub const LENGTHS: usize = 12;

/// `struct justitia_info`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Info {
    /// Of the module.
    pub version: u32,
    /// Zero: closed. See [`Info::state`].
    pub open_reason: u32,
    /// Groups that have a weight.
    pub groups: u32,
    /// Devices it has seen.
    pub devices: u32,
    /// The kernel's background threshold; 0: not known.
    pub background_pages: u64,
    /// Below this many dirty pages the kernel throttles nobody; 0: not known.
    pub freerun_pages: u64,
    /// What all devices together are held at.
    pub setpoint_pages: u64,
    /// Calls while the gate was closed.
    pub calls: u64,
    /// Of these, let pass: contexts that must not wait, groups without a weight.
    pub passed: u64,
    /// Heartbeats received.
    pub heartbeats: u64,
    /// Times that one did not come.
    pub heartbeats_lost: u64,
    /// Calls for devices beyond the table.
    pub devices_refused: u64,
}

impl Info {
    /// Whether it is closed.
    pub fn state(&self) -> State {
        match self.open_reason {
            0 => State::Closed,
            1 => State::Disabled,
            2 => State::NoHeartbeat,
            3 => State::NoThresholds,
            other => State::Other(other),
        }
    }
}

/// `struct justitia_group`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Group {
    pub(super) cgroup_id: u64,
    /// Zero deletes.
    pub(super) weight: u32,
    pub(super) reserved: u32,
}

/// `struct justitia_config`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Config {
    /// An [`Order`].
    pub order: u32,
    /// What a waiter gains when it is passed over, 0 to 10000.
    pub aging: u32,
    /// What a group of weight 100 may catch up.
    pub lag_pages: u32,
    /// From the background threshold (0) to the freerun ceiling (1000).
    pub setpoint_permille: u32,
    /// Granted at once.
    pub batch_pages: u32,
    /// Longest wait of the heaviest group.
    pub timeout_ms: u32,
    /// How long it stays closed without a heartbeat, 100 to 60000.
    pub heartbeat_ms: u32,
    /// Zero.
    pub reserved: u32,
}

impl Config {
    /// The order, if this program knows it.
    pub fn order(&self) -> Option<Order> {
        Order::of(self.order)
    }
}

/// `struct justitia_device`: one backing device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Device {
    /// The kernel's number of it.
    pub bdi_id: u64,
    /// Of the block device; 0:0: it has none.
    pub major: u32,
    /// Of the block device.
    pub minor: u32,
    /// What it is held at.
    pub setpoint_pages: u64,
    /// Dirty now.
    pub dirty_pages: u64,
    /// On their way to the device.
    pub writeback_pages: u64,
    /// Granted and not dirtied yet.
    pub unspent_pages: u64,
    /// What may be granted; negative: overdrawn.
    pub budget_pages: i64,
    /// Waits that began.
    pub enqueued: u64,
    /// Waits that ended with credits.
    pub granted: u64,
    /// Grants to one that did not come first.
    pub reordered: u64,
    /// Waits that took too long.
    pub timed_out: u64,
    /// Waits that ended with the task.
    pub killed: u64,
    /// Times it was opened because it did not get on.
    pub opened: u64,
    /// The longest wait, nanoseconds.
    pub longest_wait_ns: u64,
    /// Who waits now.
    pub waiting: u32,
    /// The longest queue so far.
    pub longest_queue: u32,
    /// How often a waiter that came made the queue this long: 1, 2 to 3, 4 to 7 and so on.
    pub lengths: [u64; LENGTHS],
}

/// `struct justitia_member`: one group at one device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Member {
    /// The group.
    pub cgroup_id: u64,
    /// The device.
    pub bdi_id: u64,
    /// The group's weight.
    pub weight: u32,
    /// Who waits now.
    pub waiting: u32,
    /// Pages dirtied.
    pub pages: u64,
    /// Waits.
    pub waits: u64,
    /// Time waited, nanoseconds.
    pub wait_ns: u64,
    /// Waits that took too long.
    pub timed_out: u64,
}

/// `struct justitia_list`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct List {
    pub(super) buffer: u64,
    pub(super) capacity: u32,
    pub(super) count: u32,
}
