//! Selects the files of a group that a step reads, and the values that stand from an earlier step.
//!
//! Most of a step's cost is the kernel's: it formats `memory.stat` in 65 to 80 thousand instructions, and a
//! pressure file in 10 thousand. The rules:
//!
//! 1. *Quiet groups* are probed, and read in full the more seldom, the longer they were quiet ([`rhythm`]).
//!    Between two full reads their values stand.
//! 2. *Memory and `cpu.pressure`* of a busy group stand for less than [`STANDS`] steps while no group contended
//!    in the last step. Claims are the reason: a claim is one on memory that groups which contend hold. The
//!    watch on losses is another: it counts dirty pages, and groups contend where it looks.
//! 3. *Memory* stands only while `memory.current` is within 1 MiB of it and no task of the group stalled on
//!    memory. The memory of a group with a limit is read in each step: under a limit, other memory may take
//!    the place of page cache while the sum stays the same.
//! 4. *Declared colors* of a quiet group that never declared one, and the container below a scope, are looked
//!    for once in [`STANDS`] steps.
//!
//! 5. *Devices* that carry a group's traffic are looked at once in [`STANDS`] steps while some group contends, and in
//!    each full read while none is known.
//!
//! A value stands only from one step's full read to the next step's.
//! [`Ages`](justitia_policy::snapshot::Ages) says for how long it has stood, and the policy's rates count over
//! that time. A group that becomes busy is read in full in the step that notices it, in all its files.

use justitia_policy::snapshot::Pressure;
use justitia_policy::units::Limit;

/// Intervals at which a group is probed and read in full, in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rhythm {
    /// The two short reads that tell whether it is active.
    pub(crate) probe: u64,
    /// Everything.
    pub(crate) full: u64,
}

/// A group with at least this many ticks between full reads does not hold its files open in between:
/// descriptors are few, and busy groups need theirs in each tick.
pub(crate) const SELDOM: u64 = 16;
/// A value of a busy group is read once in this many ticks, even if nothing says that it changed.
pub(crate) const STANDS: u64 = 4;

/// The rhythm of a group that was quiet for this many ticks. The longer it was, the less often it is read.
pub(crate) fn rhythm(quiet_for: u64) -> Rhythm {
    let (probe, full) = match quiet_for {
        0..4 => (1, 1),
        4..32 => (1, 8),
        32..128 => (2, 16),
        128.. => (4, 32),
    };
    Rhythm { probe, full }
}

/// True if the memory of a busy group may stand, as far as its pressure in the last step and now and its
/// `memory.high` tell.
pub(crate) fn memory_may_stand(then: &Pressure, now: &Pressure, high: Option<Limit>) -> bool {
    then.memory_some_us == now.memory_some_us && high == Some(Limit::Max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rhythms_are_whole_turns_and_the_quietest_is_seen_within_four_ticks() {
        for quiet_for in 0..1000 {
            let Rhythm { probe, full } = rhythm(quiet_for);
            assert_eq!(full % probe, 0, "{quiet_for}");
            assert!(probe <= 4, "{quiet_for}");
        }
    }
}
