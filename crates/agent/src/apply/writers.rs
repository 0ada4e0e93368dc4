//! Two pools of writer threads: one for writes that raise a limit, one for all others.
//!
//! A write that lowers `memory.high` reclaims and can hang in the kernel; a pool full of such writes must
//! not keep another group's limit from being raised. Raising reclaims nothing.

use std::time::Duration;

use justitia_cgroup::{Group, Outcome, Writer, WriterConfig};
use justitia_policy::knob::{Knob, Turn, Value};

use crate::error::{plain, Error, Result};

/// Time that writes to disks' knobs may take when the agent stops, in addition to the time of all others. An end waits
/// twice. With all other waits, each pool's included, that is less than the unit's `TimeoutStopSec=`.
const DISKS_PATIENCE: Duration = Duration::from_secs(7);

#[derive(Debug)]
pub struct Writers {
    raising: Writer,
    other: Writer,
}

impl Writers {
    /// Starts the threads. `config` is for the pool whose writes may hang.
    pub fn start(config: WriterConfig) -> Result<Writers> {
        let raising = WriterConfig {
            workers: 1,
            ..config
        };
        Ok(Writers {
            raising: start_writer(raising)?,
            other: start_writer(config)?,
        })
    }

    /// Queues a write of a knob that holds `present`, and returns at once.
    pub(crate) fn submit(&self, group: &Group, knob: Knob, present: Value, value: Value) {
        self.pool(knob, present, value).submit(group, knob, value);
    }

    /// The same, but the write gives way to another program's: see [`Writer::submit_over`].
    pub(crate) fn submit_over(&self, group: &Group, knob: Knob, present: Value, value: Value) {
        let pool = self.pool(knob, present, value);
        pool.submit_over(group, knob, present, value);
    }

    fn pool(&self, knob: Knob, present: Value, value: Value) -> &Writer {
        if raises(knob, present, value) {
            &self.raising
        } else {
            &self.other
        }
    }

    /// Takes the outcomes there are, and returns at once.
    pub(crate) fn outcomes(&self, out: &mut Vec<Outcome>) {
        self.other.outcomes(out);
        self.raising.outcomes(out);
    }

    /// Waits until nothing is queued or running, timed-out writes not counted, at most this long for each pool. Then
    /// drops what has not begun: a write that begins after its knob was judged would stay.
    pub fn drain(&self, patience: Duration) {
        for pool in [&self.other, &self.raising] {
            pool.drain(patience);
            pool.drop_waiting();
        }
    }

    /// Waits until the kernel has ended the writes to disks' knobs, timed-out ones included. A write of io.cost.qos or
    /// io.cost.model first waits until the disk has ended its requests: some 3 s at 5 MB/s.
    pub(crate) fn drain_disks(&self) {
        self.other.settle(DISKS_PATIENCE, Knob::is_disks);
    }

    /// Waits until no write that raises a limit is queued or running, timed-out writes not counted.
    pub(crate) fn drain_raises(&self, patience: Duration) {
        self.raising.drain(patience);
    }
}

/// True if a write makes a group's limit larger.
pub(crate) fn raises(knob: Knob, present: Value, value: Value) -> bool {
    match (present, value) {
        (Value::Limit(present), Value::Limit(value)) => is_limit(knob) && value > present,
        _ => false,
    }
}

/// True if a write that lowers this knob can hang, and holds up the group's tasks meanwhile.
pub(crate) fn is_limit(knob: Knob) -> bool {
    knob.restored() == Turn::Throttle
}

/// Starts the threads of a pool.
pub(crate) fn start_writer(config: WriterConfig) -> Result<Writer> {
    Writer::new(config).map_err(|error| {
        let cause = format!("cannot start a thread: {}", plain(&error));
        Error::environment(cause, "raise the limit of tasks, or free memory")
    })
}
