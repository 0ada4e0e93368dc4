//! One watched group: what was last seen of it, and how quiet it is.

use justitia_cgroup::{Activity, Buffer, Gauges, Group};
use justitia_policy::plan::{Knob, Value};
use justitia_policy::snapshot::{self, GroupId, Knobs, Traffic, WeightSource};
use justitia_policy::units::Weight;

/// Full reads without activity after which a group counts as quiet.
pub(crate) const QUIET_AFTER: u32 = 4;
/// Stall below this, microseconds per full read, is no activity.
const QUIET_STALL_US: u64 = 1_000;

/// One group that is watched.
#[derive(Debug)]
pub(crate) struct Tracked {
    pub(crate) group: Group,
    /// Last seen; its identity, path and weight are always right.
    pub(crate) seen: snapshot::Group,
    activity: Option<Activity>,
    /// Full reads in a row without activity.
    pub(crate) quiet: u32,
    /// Knobs read at least once.
    knows_knobs: bool,
    /// Has watched groups below it.
    pub(crate) inner: bool,
    /// It could not be read in this tick.
    pub(crate) failed: bool,
}

impl Tracked {
    /// A group of the new list, with what was known of it.
    pub(crate) fn renew(
        old: Option<Tracked>,
        group: Group,
        path: &str,
        parent: Option<GroupId>,
        weight: Option<(Weight, WeightSource)>,
    ) -> Tracked {
        let (weight, weight_source) = match weight {
            Some((weight, source)) => (Some(weight), source),
            None => (None, WeightSource::Default),
        };
        let mut tracked = old.unwrap_or_else(|| Tracked {
            seen: snapshot::Group {
                id: group.id(),
                parent,
                path: path.to_owned(),
                weight,
                weight_source,
                memory: snapshot::Memory::default(),
                traffic: Traffic::default(),
                pressure: snapshot::Pressure::default(),
                knobs: Knobs::default(),
            },
            group,
            activity: None,
            quiet: 0,
            knows_knobs: false,
            inner: false,
            failed: false,
        });
        tracked.seen.parent = parent;
        tracked.seen.weight = weight;
        tracked.seen.weight_source = weight_source;
        tracked.inner = false;
        tracked
    }

    /// Whether the probe of a quiet group differs from the last one.
    pub(crate) fn stirs(&mut self, buffer: &mut Buffer) -> bool {
        let Ok(now) = self.group.activity(buffer) else {
            return true;
        };
        let stirs = self
            .activity
            .as_ref()
            .is_none_or(|before| !now.same_as(before));
        if stirs {
            self.quiet = 0;
        }
        stirs
    }

    /// Whether this read has to include the knobs.
    pub(crate) fn wants_knobs(&self, due: bool) -> bool {
        due || !self.knows_knobs
    }

    /// Takes in a full read; `knobs` says whether it included them.
    pub(crate) fn take_in(&mut self, gauges: &Gauges, knobs: bool, buffer: &mut Buffer) {
        self.failed = false;
        self.note_activity(&gauges.memory, &gauges.pressure);
        self.seen.memory = gauges.memory;
        self.seen.pressure = gauges.pressure;
        if knobs {
            let foreign = self.seen.knobs.foreign;
            self.seen.knobs = Knobs {
                foreign,
                ..gauges.knobs
            };
            self.knows_knobs = true;
        }
        if self.quiet >= QUIET_AFTER {
            self.activity = self.group.activity(buffer).ok();
        }
    }

    /// A knob is known to hold this value now.
    pub(crate) fn know(&mut self, knob: Knob, value: Value) {
        let knobs = &mut self.seen.knobs;
        match (knob, value) {
            (Knob::MemoryLow, Value::Limit(limit)) => knobs.low = Some(limit),
            (Knob::MemoryHigh, Value::Limit(limit)) => knobs.high = Some(limit),
            (Knob::IoWeight, Value::Weight(weight)) => knobs.io_weight = Some(weight),
            (Knob::IoBfqWeight, Value::Weight(weight)) => knobs.bfq_weight = Some(weight),
            _ => {}
        }
    }

    /// Counts full reads without a change worth the name.
    fn note_activity(&mut self, memory: &snapshot::Memory, pressure: &snapshot::Pressure) {
        let (before, stalls) = (&self.seen.memory, &self.seen.pressure);
        let stirred = differs(
            before.current.map(|b| b.0),
            memory.current.map(|b| b.0),
            1 << 20,
        ) || differs(stalls.io_some_us, pressure.io_some_us, QUIET_STALL_US)
            || differs(
                stalls.memory_some_us,
                pressure.memory_some_us,
                QUIET_STALL_US,
            );
        self.quiet = if stirred {
            0
        } else {
            self.quiet.saturating_add(1)
        };
    }

    /// What could not be read now is unknown, not what it was.
    pub(crate) fn forget_values(&mut self) {
        self.failed = true;
        self.quiet = 0;
        self.knows_knobs = false;
        let foreign = self.seen.knobs.foreign;
        self.seen.memory = snapshot::Memory::default();
        self.seen.pressure = snapshot::Pressure::default();
        self.seen.traffic = Traffic::default();
        self.seen.knobs = Knobs {
            foreign,
            ..Knobs::default()
        };
    }
}

/// Whether a value changed by more than a tolerance; becoming known or unknown is a change.
fn differs(before: Option<u64>, now: Option<u64>, tolerance: u64) -> bool {
    match (before, now) {
        (Some(before), Some(now)) => before.abs_diff(now) > tolerance,
        (None, None) => false,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn becoming_known_or_unknown_is_a_change() {
        assert!(differs(None, Some(0), 10) && differs(Some(0), None, 10));
        assert!(!differs(None, None, 10) && !differs(Some(5), Some(15), 10));
        assert!(differs(Some(5), Some(16), 10));
    }
}
