//! Fields of the kernel module's gate; absent while the agent does not hold it.

use super::{field, number, Field, Get};

#[rustfmt::skip]
pub(crate) const GATE: &[Field] = &[
    field("gate.held", "", "This agent holds the kernel module's gate."),
    field("gate.state", "",
        "Whether writers wait for their turn (closed), or why every writer passes: disabled, no-heartbeat, \
         no-thresholds; the metric is 1 when closed.")
        .gauge("justitia_gate_closed", report!(gate.as_ref()?.is_closed())),
    field("gate.order", "", "Order of the waiting writers: stride, aging or fifo."),
    field("gate.groups", "", "Groups that have a weight at the gate.")
        .gauge("justitia_gate_groups", report!(gate.as_ref()?.groups)),
    field("gate.background_bytes", "B", "Dirty memory above which the kernel starts background writeback."),
    field("gate.freerun_bytes", "B", "Dirty memory below which the kernel throttles no writer."),
    field("gate.setpoint_bytes", "B",
        "Level at which the gate holds dirty memory and writeback of all devices together.")
        .gauge("justitia_gate_setpoint_bytes", report!(gate.as_ref()?.setpoint_bytes)),
    field("gate.calls_total", "", "Calls of dirty throttling while the gate was closed.")
        .counter("justitia_gate_calls", report!(gate.as_ref()?.calls_total)),
    field("gate.passed_total", "",
        "Calls that passed without waiting: contexts that must not wait, groups without a weight.")
        .counter("justitia_gate_passed", report!(gate.as_ref()?.passed_total)),
    field("gate.heartbeats_lost_total", "", "Times the gate opened because the agent's heartbeat was missing.")
        .counter("justitia_gate_heartbeats_lost", report!(gate.as_ref()?.heartbeats_lost_total)),
    field("gate.devices[].setpoint_bytes", "B", "Level at which the gate holds a device's dirty memory.")
        .gauge("justitia_gate_device_setpoint_bytes", Get::GateDevice(|device| device.setpoint_bytes as f64)),
    field("gate.devices[].dirty_bytes", "B", "Dirty memory of a device.")
        .gauge("justitia_gate_device_dirty_bytes", Get::GateDevice(|device| device.dirty_bytes as f64)),
    field("gate.devices[].writeback_bytes", "B", "Memory under writeback to a device.")
        .gauge("justitia_gate_device_writeback_bytes", Get::GateDevice(|device| device.writeback_bytes as f64)),
    field("gate.devices[].unspent_bytes", "B", "Bytes granted to writers and not dirtied yet."),
    field("gate.devices[].budget_bytes", "B", "Bytes that may be granted now; negative if overdrawn."),
    field("gate.devices[].waiting", "", "Tasks that wait at a device now.")
        .gauge("justitia_gate_device_waiting", Get::GateDevice(|device| device.waiting as f64)),
    field("gate.devices[].longest_queue", "", "The longest queue so far."),
    field("gate.devices[].enqueued_total", "", "Waits that began.")
        .counter("justitia_gate_device_enqueued", Get::GateDevice(|device| device.enqueued_total as f64)),
    field("gate.devices[].granted_total", "", "Waits that ended with credits.")
        .counter("justitia_gate_device_granted", Get::GateDevice(|device| device.granted_total as f64)),
    field("gate.devices[].reordered_total", "", "Grants to a waiter that was not first in the queue.")
        .counter("justitia_gate_device_reordered", Get::GateDevice(|device| device.reordered_total as f64)),
    field("gate.devices[].timed_out_total", "", "Waits that timed out and passed.")
        .counter("justitia_gate_device_timed_out", Get::GateDevice(|device| device.timed_out_total as f64)),
    field("gate.devices[].killed_total", "", "Waits that ended because the task was killed."),
    field("gate.devices[].opened_total", "",
        "Times the gate opened for a device for a second because it made no progress.")
        .counter("justitia_gate_device_opened", Get::GateDevice(|device| device.opened_total as f64)),
    field("gate.devices[].longest_wait_us", "us", "The longest wait so far.")
        .gauge("justitia_gate_device_longest_wait_seconds",
            Get::GateDevice(|device| device.longest_wait_us as f64 / 1e6)),
    field("gate.devices[].lengths", "",
        "Histogram of the queue's length at each arrival: 1, 2 to 3, 4 to 7 and so on."),
    field("groups[].gate.weight", "", "The group's weight at the gate: its own times the gain.")
        .gauge("justitia_group_gate_weight", group!(gate.as_ref()?.weight)),
    field("groups[].gate.waiting", "", "Tasks of the group that wait at the gate now.")
        .gauge("justitia_group_gate_waiting", group!(gate.as_ref()?.waiting)),
    field("groups[].gate.dirtied_total_bytes", "B",
        "Page cache that the group's tasks dirtied while the gate was closed.")
        .counter("justitia_group_gate_dirtied_bytes", group!(gate.as_ref()?.dirtied_total_bytes)),
    field("groups[].gate.waits_total", "", "Waits of the group's tasks at the gate.")
        .counter("justitia_group_gate_waits", group!(gate.as_ref()?.waits_total)),
    field("groups[].gate.waited_total_us", "us", "Time that the group's tasks waited at the gate, summed.")
        .counter("justitia_group_gate_waited_seconds", group_seconds!(gate.as_ref()?.waited_total_us)),
    field("groups[].gate.timed_out_total", "", "Waits of the group that timed out.")
        .counter("justitia_group_gate_timed_out", group!(gate.as_ref()?.timed_out_total)),
];
