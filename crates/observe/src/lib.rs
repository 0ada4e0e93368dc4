//! Application-level traffic of groups: what their processes read and wrote, and what of it the
//! disk had to deliver.
//!
//! [`TrafficSource`] is the interface; [`ProcIo`] implements it on every kernel from `/proc`, and
//! [`bpf::Observer`] in the kernel, where BPF programs can run: exact bytes, and what the page
//! cache did.
//!
//! Invariants: counters of a group never go backwards while the group lives; what could not be
//! read is `None`, not zero; observing changes nothing.

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

/// A group whose traffic is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Watched<'a> {
    /// The group.
    pub group: &'a Group,
    /// `false`: nothing has happened there, the last counters stand, read nothing.
    pub active: bool,
}

/// Whether these are the groups of that list, in its order: a source that has adapted to a list
/// need not do so again.
fn is_list_of(listed: &[GroupId], groups: &[Watched<'_>]) -> bool {
    let mut pairs = listed.iter().zip(groups);
    listed.len() == groups.len() && pairs.all(|(id, watched)| *id == watched.group.id())
}

/// What a source counted of one group.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sample {
    /// Application-level bytes.
    pub traffic: Traffic,
    /// What the page cache did, if the source sees it.
    pub cache: CacheCounters,
}

/// Counts the traffic of groups.
pub trait TrafficSource: Send {
    /// Replaces `out` by one entry for each group, in the same order. Counters are cumulative
    /// since the source first saw the group. A group's traffic is that of its subtree without the
    /// subtrees of other groups in the list. A group that is no longer listed is forgotten.
    fn sample(&mut self, groups: &[Watched<'_>], out: &mut Vec<Sample>);

    /// Files that several of the groups of the last sample use. `None`: the source does not see
    /// them, or has not looked yet.
    fn shared(&mut self) -> Option<Vec<SharedFile>> {
        None
    }

    /// What page cache is worth to a group of the last sample. `None`: the source does not see it, or has not
    /// seen enough.
    fn worth(&self, _group: GroupId) -> Option<Curve> {
        None
    }

    /// Name of the source, for `status` and the metrics.
    fn name(&self) -> &'static str;
}
