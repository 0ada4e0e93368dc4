//! The records of `kmod/abi.h`. A test compares sizes, offsets and request numbers with that file, through
//! the C compiler.

use super::{Order, State};

/// Version of the interface of `/dev/justitia`.
pub const VERSION: u32 = 1;
/// The highest weight of a group.
pub const WEIGHT_MAX: u32 = 10_000;
/// Buckets of the histogram of queue lengths: 1, 2 to 3, 4 to 7 and so on.
pub const LENGTHS: usize = 12;

/// `struct justitia_info`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Info {
    /// Version of the module.
    pub version: u32,
    /// Zero: closed. See [`Info::state`].
    pub open_reason: u32,
    /// Groups that have a weight.
    pub groups: u32,
    /// Devices it has seen.
    pub devices: u32,
    /// The kernel's background threshold; 0: not known.
    pub background_pages: u64,
    /// The kernel throttles nobody below this many dirty pages; 0: not known.
    pub freerun_pages: u64,
    /// The setpoint of all devices together.
    pub setpoint_pages: u64,
    /// Calls of the redirected function while the gate was closed.
    pub calls: u64,
    /// Calls among these that were let pass: contexts that must not wait, groups without a weight.
    pub passed: u64,
    /// Heartbeats received.
    pub heartbeats: u64,
    /// Times that a heartbeat did not come.
    pub heartbeats_lost: u64,
    /// Calls for devices beyond the table.
    pub devices_refused: u64,
}

impl Info {
    /// Closed, or the reason why it is open.
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
    /// The gain of a waiter that is passed over, 0 to 10000.
    pub aging: u32,
    /// Pages that a group of weight 100 may catch up.
    pub lag_pages: u32,
    /// The highest setpoint, from the background threshold (0) to the kernel's limit (1000).
    pub setpoint_permille: u32,
    /// Pages granted at once.
    pub batch_pages: u32,
    /// Longest wait of the heaviest group.
    pub timeout_ms: u32,
    /// Time for which the gate stays closed without a heartbeat, 100 to 60000.
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
    /// The kernel's id of it.
    pub bdi_id: u64,
    /// Major number of the block device; 0:0: it has no number.
    pub major: u32,
    /// Minor number of the block device.
    pub minor: u32,
    /// The setpoint of dirty pages, pages under writeback and unspent pages together.
    pub setpoint_pages: u64,
    /// Dirty pages.
    pub dirty_pages: u64,
    /// Pages under writeback.
    pub writeback_pages: u64,
    /// Pages granted and not dirtied yet.
    pub unspent_pages: u64,
    /// Pages that may be granted; negative: overdrawn.
    pub budget_pages: i64,
    /// Waits that began.
    pub enqueued: u64,
    /// Waits that ended with credits.
    pub granted: u64,
    /// Grants that passed over an older waiter.
    pub reordered: u64,
    /// Waits that timed out.
    pub timed_out: u64,
    /// Waits that ended with the task.
    pub killed: u64,
    /// Times it was opened because it made no progress.
    pub opened: u64,
    /// The longest wait, nanoseconds.
    pub longest_wait_ns: u64,
    /// Tasks that wait now.
    pub waiting: u32,
    /// The longest queue so far.
    pub longest_queue: u32,
    /// Histogram of the queue length after a waiter arrived: 1, 2 to 3, 4 to 7 and so on.
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
    /// Tasks that wait now.
    pub waiting: u32,
    /// Pages dirtied.
    pub pages: u64,
    /// Waits.
    pub waits: u64,
    /// Time waited, nanoseconds.
    pub wait_ns: u64,
    /// Waits that timed out.
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
