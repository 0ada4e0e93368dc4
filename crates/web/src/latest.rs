//! The agent's last report, shared by the thread that reads frames and the thread that answers clients.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use justitia_report::own::Own;
use justitia_report::status::Report;

/// The content of one frame.
#[derive(Debug, Clone)]
pub struct Told {
    pub own: Own,
    pub report: Report,
}

impl Told {
    /// Time between two steps.
    pub(crate) fn interval(&self) -> Duration {
        Duration::try_from_secs_f64(self.report.interval_s).unwrap_or_default()
    }
}

/// The last report. The lock is held only to swap or clone a pointer.
#[derive(Debug)]
pub struct Latest(Mutex<Arc<Told>>);

impl Latest {
    pub fn new(told: Told) -> Latest {
        Latest(Mutex::new(Arc::new(told)))
    }

    pub fn post(&self, told: Told) {
        let told = Arc::new(told);
        let old = std::mem::replace(&mut *self.lock(), told);
        // The old report is freed after the lock is released.
        drop(old);
    }

    pub(crate) fn get(&self) -> Arc<Told> {
        Arc::clone(&self.lock())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Arc<Told>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
