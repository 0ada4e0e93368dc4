//! Reads the gauges of a group that the policy needs: memory, pressure, knobs.
//!
//! A full read is ten short reads of open files and costs some microseconds, most of it the
//! kernel formatting `memory.stat`. [`Group::activity`] is two cheap reads, for deciding whether a
//! quiet group deserves a full one.

use justitia_policy::knob::{Knob, Knobs};
use justitia_policy::snapshot::{Memory, Pressure};
use justitia_policy::units::Bytes;

use crate::parse::psi::Totals;
use crate::{parse, Buffer, Error, File, Group};

/// The gauges to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "independent wishes")]
pub struct Want {
    /// `memory.current` and `memory.stat`.
    pub memory: bool,
    /// `memory.pressure` and `io.pressure`.
    pub pressure: bool,
    /// `cpu.pressure`.
    pub cpu: bool,
    /// `memory.low`, `memory.high`, `memory.max`, `io.weight`, `io.bfq.weight`.
    pub knobs: bool,
    /// With `memory` also `memory.swap.current`, with `knobs` also `memory.swap.max`. A host without swap
    /// saves two reads per group.
    pub swap: bool,
}

impl Want {
    /// Everything.
    pub const ALL: Want = Want {
        memory: true,
        pressure: true,
        cpu: true,
        knobs: true,
        swap: true,
    };
    /// Memory only.
    pub const MEMORY: Want = Want {
        memory: true,
        pressure: false,
        cpu: false,
        knobs: false,
        swap: false,
    };
    /// Knobs only.
    pub const KNOBS: Want = Want {
        memory: false,
        pressure: false,
        cpu: false,
        knobs: true,
        swap: false,
    };
}

/// The gauges that were read. Gauges that were not wanted are the default, all `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Gauges {
    /// Memory.
    pub memory: Memory,
    /// Stall totals.
    pub pressure: Pressure,
    /// Knobs. The agent fills in `foreign`, because it knows what it wrote.
    pub knobs: Knobs,
}

/// A smaller change of a group's memory means nothing: the kernel charges in batches of 64 pages per CPU.
const NOISE: Bytes = Bytes::mib(1);

/// Just enough to see that a group did something.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Activity {
    /// `memory.current`.
    pub current: Option<Bytes>,
    /// `io.pressure`, some, total.
    pub io_some_us: Option<u64>,
}

impl Activity {
    /// True if the group did nothing that matters in between: its memory is within 1 MiB of what it was and
    /// nobody waited for I/O. Unknown memory is never the same. On a kernel without PSI memory alone decides.
    pub fn same_as(&self, other: &Activity) -> bool {
        is_near(self.current, other.current) && self.io_some_us == other.io_some_us
    }
}

/// True if `memory.current` is within 1 MiB of its earlier value. Unknown memory never is.
pub fn is_near(then: Option<Bytes>, now: Option<Bytes>) -> bool {
    then.zip(now)
        .is_some_and(|(then, now)| then.0.abs_diff(now.0) < NOISE.0)
}

impl Group {
    /// Reads the wanted gauges. A missing file leaves its fields `None`; a group that is gone is an error.
    pub fn gauges(&self, want: Want, buffer: &mut Buffer) -> Result<Gauges, Error> {
        let mut gauges = Gauges::default();
        if want.memory {
            let stat = |text: &[u8]| Some(parse::memory::stat(text).memory());
            let memory = self.parsed(File::MemoryStat, buffer, stat)?;
            gauges.memory = memory.unwrap_or_default();
            gauges.memory.current = self.current(buffer)?;
            if want.swap {
                let swap = self.parsed(File::MemorySwapCurrent, buffer, parse::single)?;
                gauges.memory.swap = swap.map(Bytes);
            }
        }
        if want.pressure {
            let memory = self.stalls(File::MemoryPressure, buffer)?;
            let io = self.stalls(File::IoPressure, buffer)?;
            gauges.pressure = parse::psi::pressure(memory, io);
        }
        if want.cpu {
            gauges.pressure.cpu_some_us = self.stalls(File::CpuPressure, buffer)?.some_us;
        }
        if want.knobs {
            gauges.knobs = self.knobs(buffer)?;
            if want.swap {
                let limit = parse::memory::limit;
                gauges.knobs.swap_max = self.parsed(File::MemorySwapMax, buffer, limit)?;
            }
        }
        Ok(gauges)
    }

    /// Its memory of any kind, `memory.current`; `None`: not known.
    pub fn current(&self, buffer: &mut Buffer) -> Result<Option<Bytes>, Error> {
        let current = self.parsed(File::MemoryCurrent, buffer, parse::single)?;
        Ok(current.map(Bytes))
    }

    /// Reads just enough to see whether the group did something since the last time.
    pub fn activity(&self, buffer: &mut Buffer) -> Result<Activity, Error> {
        Ok(Activity {
            current: self.current(buffer)?,
            io_some_us: self.stalls(File::IoPressure, buffer)?.some_us,
        })
    }

    /// The totals of a pressure file; unknown without it.
    fn stalls(&self, file: File, buffer: &mut Buffer) -> Result<Totals, Error> {
        let totals = self.parsed(file, buffer, |text| Some(parse::psi::totals(text)))?;
        Ok(totals.unwrap_or_default())
    }

    fn knobs(&self, buffer: &mut Buffer) -> Result<Knobs, Error> {
        let mut knobs = Knobs {
            max: self.parsed(File::MemoryMax, buffer, parse::memory::limit)?,
            reclaim: self.directory().can_write(File::MemoryReclaim),
            ..Knobs::default()
        };
        for knob in Knob::of_groups() {
            let parse = |text: &[u8]| parse::knob(knob, text);
            if let Some(value) = self.parsed(File::of_knob(knob), buffer, parse)? {
                knobs.set(knob, value);
            }
        }
        Ok(knobs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn activity(current: u64, stall: u64) -> Activity {
        Activity {
            current: Some(Bytes(current)),
            io_some_us: Some(stall),
        }
    }

    #[test]
    fn a_batch_of_charges_is_not_activity_but_a_stall_is() {
        let then = activity(100 << 20, 5);
        assert!(activity((100 << 20) + 256 * 1024, 5).same_as(&then));
        assert!(!activity(102 << 20, 5).same_as(&then));
        assert!(!activity(100 << 20, 6).same_as(&then));
    }

    #[test]
    fn unknown_is_not_quiet() {
        assert!(!Activity::default().same_as(&Activity::default()));
    }
}
