//! The state of the kernel module's gate, as `justitia status --json` and `justitia gate status` print it.
//!
//! The module counts in pages; the report has bytes. Counters begin when the module is loaded, those of a
//! group when the agent first sends its weight.

use justitia_cgroup::gate::{Config, Device, GateDevice, GateError, Info, Member, Order, State};
use rustix::param::page_size;
use serde::{Deserialize, Serialize};

/// The module's state at the last step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reading {
    /// This agent holds it.
    pub held: bool,
    /// State, thresholds and counters; `None`: it cannot be read.
    pub info: Option<Info>,
    pub config: Config,
    /// The backing devices.
    pub devices: Vec<Device>,
    /// One member for each group at each device.
    pub members: Vec<Member>,
}

impl Reading {
    /// Reads the state through an open `/dev/justitia`.
    pub fn of(device: &dyn GateDevice, held: bool) -> Result<Reading, GateError> {
        let mut reading = Reading {
            held,
            info: Some(device.info()?),
            config: device.config()?,
            ..Reading::default()
        };
        device.devices(&mut reading.devices)?;
        device.members(&mut reading.members)?;
        Ok(reading)
    }

    /// Reads the state of this host's gate without holding it; another process may hold it.
    pub fn beside() -> Result<Reading, GateError> {
        Reading::of(justitia_cgroup::gate::open(false)?.as_ref(), false)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GateStatus {
    /// The agent holds it; otherwise its state was only read.
    pub held: bool,
    /// `closed` (writers wait for their turn), or the reason why all writers pass: `disabled`,
    /// `no-heartbeat`, `no-thresholds`, `open`, or `unknown`.
    pub state: String,
    /// Order of the queue: `stride`, `aging`, `fifo`.
    pub order: String,
    /// Groups for which it has a weight.
    pub groups: u64,
    /// The kernel's background dirty threshold; `None`: the module does not know it.
    pub background_bytes: Option<u64>,
    /// The freerun ceiling: below this much dirty memory the kernel throttles no writer.
    pub freerun_bytes: Option<u64>,
    /// Level at which the gate holds dirty memory and writeback of all devices together.
    pub setpoint_bytes: u64,
    /// Calls of dirty throttling while the gate was closed.
    pub calls_total: u64,
    /// Part of `calls_total` that passed without waiting.
    pub passed_total: u64,
    /// Times when no heartbeat came in time.
    pub heartbeats_lost_total: u64,
    pub devices: Vec<GateDeviceStatus>,
}

/// One backing device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GateDeviceStatus {
    /// `MAJOR:MINOR` of the block device, or `bdi:ID`.
    pub device: String,
    /// Level at which the gate holds the device's dirty memory and writeback.
    pub setpoint_bytes: u64,
    pub dirty_bytes: u64,
    /// Under writeback.
    pub writeback_bytes: u64,
    /// Granted and not dirtied yet.
    pub unspent_bytes: u64,
    /// Credits left to grant; negative: overdrawn.
    pub budget_bytes: i64,
    /// Tasks that wait now.
    pub waiting: u64,
    /// Length of the longest queue so far.
    pub longest_queue: u64,
    /// Waits that began.
    pub enqueued_total: u64,
    /// Waits that ended with credits.
    pub granted_total: u64,
    /// Grants to a waiter that was not the first in the queue.
    pub reordered_total: u64,
    /// Waits that ended by timeout.
    pub timed_out_total: u64,
    /// Waits that ended because the task was killed.
    pub killed_total: u64,
    /// Times the gate opened for this device because it made no progress.
    pub opened_total: u64,
    /// The longest wait so far.
    pub longest_wait_us: u64,
    /// Histogram of the queue's length at each arrival: 1, 2 to 3, 4 to 7 and so on.
    pub lengths: Vec<u64>,
}

/// One group at the gate, all devices together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateMemberStatus {
    /// Its weight at the gate: the group's weight times the feedback's gain.
    pub weight: u64,
    /// Tasks that wait now.
    pub waiting: u64,
    /// Bytes its tasks dirtied.
    pub dirtied_total_bytes: u64,
    pub waits_total: u64,
    /// Sum of its tasks' wait times.
    pub waited_total_us: u64,
    /// Waits that ended by timeout.
    pub timed_out_total: u64,
}

fn bytes(pages: u64) -> u64 {
    pages.saturating_mul(page_size() as u64)
}

impl GateStatus {
    pub fn of(reading: &Reading) -> GateStatus {
        let info = reading.info.unwrap_or_default();
        let state = reading.info.map(|info| info.state());
        let order = reading.config.order();
        let known = |pages: u64| (pages > 0).then(|| bytes(pages));
        GateStatus {
            held: reading.held,
            state: state.map_or("unknown", State::word).to_owned(),
            order: order.map_or("unknown", Order::name).to_owned(),
            groups: u64::from(info.groups),
            background_bytes: known(info.background_pages),
            freerun_bytes: known(info.freerun_pages),
            setpoint_bytes: bytes(info.setpoint_pages),
            calls_total: info.calls,
            passed_total: info.passed,
            heartbeats_lost_total: info.heartbeats_lost,
            devices: reading.devices.iter().map(GateDeviceStatus::of).collect(),
        }
    }

    /// True if the gate is closed: writers wait for their turn.
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed.word()
    }
}

impl GateDeviceStatus {
    fn of(device: &Device) -> GateDeviceStatus {
        let page = i64::try_from(page_size()).unwrap_or(i64::MAX);
        let name = match (device.major, device.minor) {
            (0, 0) => format!("bdi:{}", device.bdi_id),
            (major, minor) => format!("{major}:{minor}"),
        };
        GateDeviceStatus {
            device: name,
            setpoint_bytes: bytes(device.setpoint_pages),
            dirty_bytes: bytes(device.dirty_pages),
            writeback_bytes: bytes(device.writeback_pages),
            unspent_bytes: bytes(device.unspent_pages),
            budget_bytes: device.budget_pages.saturating_mul(page),
            waiting: u64::from(device.waiting),
            longest_queue: u64::from(device.longest_queue),
            enqueued_total: device.enqueued,
            granted_total: device.granted,
            reordered_total: device.reordered,
            timed_out_total: device.timed_out,
            killed_total: device.killed,
            opened_total: device.opened,
            longest_wait_us: device.longest_wait_ns / 1000,
            lengths: device.lengths.to_vec(),
        }
    }
}

impl GateMemberStatus {
    /// Sums a group's members over all devices; `None`: it has no member at any device.
    pub fn of(reading: &Reading, id: u64) -> Option<GateMemberStatus> {
        let mut members = reading
            .members
            .iter()
            .filter(|m| m.cgroup_id == id)
            .peekable();
        members.peek()?;
        Some(
            members.fold(GateMemberStatus::default(), |sum, m| GateMemberStatus {
                weight: u64::from(m.weight),
                waiting: sum.waiting + u64::from(m.waiting),
                dirtied_total_bytes: sum.dirtied_total_bytes + bytes(m.pages),
                waits_total: sum.waits_total + m.waits,
                waited_total_us: sum.waited_total_us + m.wait_ns / 1000,
                timed_out_total: sum.timed_out_total + m.timed_out,
            }),
        )
    }
}
