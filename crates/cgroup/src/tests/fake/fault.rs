//! Faults that tests inject.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

/// A fault of a file.
#[derive(Debug, Clone)]
pub enum Fault {
    /// Every access fails.
    Errno(Errno),
    /// The first accesses fail, later ones succeed.
    Times(Errno, u32),
    /// `memory.reclaim` takes no `swappiness=` argument, as before Linux 6.9.
    NoSwappiness,
    /// A write takes effect, then blocks until the gate opens, as `memory.high` does in reclaim.
    Slow(Gate),
    /// A write blocks until the gate opens, then takes effect, as `io.cost.qos` does.
    Late(Gate),
    /// The file is not there.
    Absent,
    /// No permission.
    Denied,
    /// It can be read, but a write is `EROFS`.
    ReadOnly,
}

/// Holds writers back until a test opens it.
#[derive(Debug, Clone, Default)]
pub struct Gate(Arc<(Mutex<State>, Condvar)>);

#[derive(Debug, Default)]
struct State {
    open: bool,
    waiting: usize,
}

impl Gate {
    /// A closed gate.
    pub fn new() -> Gate {
        Gate::default()
    }

    /// Lets everybody through, now and later.
    pub fn open(&self) {
        self.lock().open = true;
        self.0 .1.notify_all();
    }

    /// Writers that wait at it now.
    pub fn waiting(&self) -> usize {
        self.lock().waiting
    }

    pub(super) fn pass(&self) {
        let mut state = self.lock();
        state.waiting += 1;
        let passed = self.0 .1.wait_while(state, |state| !state.open);
        passed.unwrap_or_else(PoisonError::into_inner).waiting -= 1;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0 .0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
