//! Application-level traffic of groups: bytes that their processes read and wrote, and bytes that reads had
//! to fetch from a device.
//!
//! [`TrafficSource`] is the interface. [`ProcIo`] implements it from `/proc`, on every kernel.
//! [`bpf::Observer`] implements it with BPF programs, where they can run: it counts exact bytes, and what the
//! page cache did.
//!
//! Invariants: counters of a group never go backwards while the group lives. A value that could not be read
//! is `None`, not zero. Observing changes nothing.

mod account;
pub mod bpf;
mod missed;
mod proc_io;
mod reuse;
#[cfg(test)]
mod tests;

use justitia_cgroup::Group;
use justitia_policy::snapshot::{CacheCounters, GroupId, SharedFile, Traffic};
use justitia_policy::worth::Curve;

pub use proc_io::ProcIo;

/// A group to sample.
#[derive(Debug, Clone, Copy)]
pub struct Watched<'a> {
    pub group: &'a Group,
    /// `false` if nothing happened there: the last counters stand, and nothing is read.
    pub active: bool,
}

/// True if `listed` holds exactly these groups, in this order. A source that has adapted to a list need not
/// do so again.
fn is_list_of(listed: &[GroupId], groups: &[Watched<'_>]) -> bool {
    let mut pairs = listed.iter().zip(groups);
    listed.len() == groups.len() && pairs.all(|(id, watched)| *id == watched.group.id())
}

/// Counts of one group by a source.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sample {
    /// Application-level bytes.
    pub traffic: Traffic,
    /// Page-cache counters, as far as the source sees them.
    pub cache: CacheCounters,
}

pub trait TrafficSource: Send {
    /// Replaces `out` by one entry for each group, in the same order. Counters are cumulative
    /// since the source first saw the group. A group's traffic is that of its subtree without the
    /// subtrees of other groups in the list. A group that is no longer listed is forgotten.
    fn sample(&mut self, groups: &[Watched<'_>], out: &mut Vec<Sample>);

    /// Files that several groups of the last sample use. `None` if the source does not see them, or has not
    /// looked yet.
    fn shared(&mut self) -> Option<Vec<SharedFile>> {
        None
    }

    /// Hit ratio of a group of the last sample, by size of its page cache. `None` if the source does not see
    /// it, or has not seen enough.
    fn worth(&self, _group: GroupId) -> Option<Curve> {
        None
    }

    /// Events that were not counted, because a program was interrupted by itself or memory was short. `None` if they are
    /// not known.
    fn missed_events(&self) -> Option<u64> {
        None
    }

    /// Name of the source, for `status` and the metrics.
    fn name(&self) -> &'static str;
}
