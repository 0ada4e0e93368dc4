//! Sources of page cache: which groups can give, and how much of what is missing each one gives.

use crate::feedback::limits::Least;
use crate::share::water::{divide, Node};
use crate::snapshot::Group;
use crate::units::{Bytes, Limit};

/// A group, or the root, that holds page cache above its share.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Source {
    /// Page cache above its share.
    pub over: Bytes,
    /// The part of it that reclaim can take now.
    pub takeable: Bytes,
}

impl Source {
    /// A group with this share of page cache. `None` if it cannot be read.
    pub(crate) fn of(group: &Group, share: Bytes) -> Option<Source> {
        let held = group.memory.file?;
        let other = group.non_file()?;
        // If the dirty part is unknown, all pages may be dirty.
        let dirty = group.memory.file_dirty.unwrap_or(held);
        // `memory.reclaim` would take mapped code, so all mapped pages stay here.
        let floor = Least::of(group, None).file;
        let keep = share.max(floor).max(protected_by_others(group) - other);
        let over = held - keep;
        let clean = held - floor - dirty;
        Some(Source {
            over,
            takeable: over.min(clean),
        })
    }

    #[must_use]
    pub(crate) fn paced(self, factor: f64) -> Source {
        Source {
            takeable: self.takeable.scale(factor).min(self.takeable),
            ..self
        }
    }
}

/// Protection that is not Justitia's: the operator's, or a foreign writer's.
fn protected_by_others(group: &Group) -> Bytes {
    let foreign = group.knobs.low.filter(|_| group.knobs.foreign.low);
    let low = foreign.max(group.knobs.operator.low);
    match low {
        Some(Limit::Max) => Bytes(u64::MAX),
        Some(Limit::Bytes(bytes)) => bytes,
        None => Bytes::ZERO,
    }
}

/// Bytes to take from each so that `missing` bytes become free: in proportion to the overage, no
/// more than can be taken. Shape: one amount for each source.
pub(crate) fn takes(missing: Bytes, sources: &[Source]) -> Vec<Bytes> {
    let nodes: Vec<Node> = sources
        .iter()
        .map(|source| Node::flat(source.over.0, source.takeable))
        .collect();
    divide(missing, &nodes)
}
