//! Number of file descriptors that may be kept open.
//!
//! Each cached descriptor of a cgroup or `/proc` file holds a page or more of kernel memory for
//! its text, so the budget is bounded by memory as well as by `RLIMIT_NOFILE`. When it is spent,
//! files are opened, read and closed: slower by a microsecond or two, never wrong.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::Arc;

use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};

/// At most this many cached descriptors (about 32 MB of kernel memory).
const MOST: i64 = 8192;
/// Descriptors left for directories, sockets, libraries.
const RESERVE: i64 = 256;

/// A shared allowance of descriptors.
#[derive(Debug)]
pub(crate) struct Budget {
    left: AtomicI64,
    total: i64,
}

impl Budget {
    pub(crate) fn new(total: i64) -> Arc<Budget> {
        Arc::new(Budget {
            left: AtomicI64::new(total),
            total,
        })
    }

    /// Raises the soft limit of open files to the hard one and takes what can be spared. A group costs some ten
    /// descriptors; the soft limit is for programs that call select(2). Half of the limit stays for
    /// directories, of which every group needs one.
    pub(crate) fn of_process() -> Arc<Budget> {
        let limit = getrlimit(Resource::Nofile);
        let raised = Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        };
        let files = match setrlimit(Resource::Nofile, raised) {
            Ok(()) => limit.maximum,
            Err(_) => limit.current,
        };
        let files = files.map_or(i64::MAX, |files| i64::try_from(files).unwrap_or(i64::MAX));
        Budget::new((files.saturating_sub(RESERVE) / 2).clamp(0, MOST))
    }

    /// Descriptors that may still be kept.
    #[cfg(test)]
    pub(crate) fn left(&self) -> i64 {
        self.left.load(Ordering::Relaxed)
    }

    /// A permit for one descriptor, held until it is dropped. `modest` is for less important files: granted
    /// only while more than half of the budget is left.
    pub(crate) fn take(self: &Arc<Budget>, modest: bool) -> Option<Permit> {
        let floor = if modest { self.total / 2 } else { 0 };
        self.left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                (left > floor).then_some(left - 1)
            })
            .ok()?;
        Some(Permit(Arc::clone(self)))
    }
}

/// The right to keep one descriptor.
#[derive(Debug)]
pub(crate) struct Permit(Arc<Budget>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.left.fetch_add(1, Ordering::Relaxed);
    }
}

/// A descriptor with its permit.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) fd: OwnedFd,
    pub(crate) _permit: Permit,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spent_budget_refuses_and_recovers() {
        let budget = Budget::new(4);
        let two: Vec<_> = (0..2).filter_map(|_| budget.take(true)).collect();
        assert_eq!(two.len(), 2);
        assert!(budget.take(true).is_none(), "modest files get half");
        let rest: Vec<_> = (0..3).filter_map(|_| budget.take(false)).collect();
        assert_eq!(rest.len(), 2);
        drop((two, rest));
        assert!(budget.take(true).is_some());
    }
}
