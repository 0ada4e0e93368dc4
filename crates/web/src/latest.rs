//! The last thing that the agent told, between the thread that reads it and the one that answers.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use justitia_report::own::Own;
use justitia_report::status::Report;

/// What was told of one step.
#[derive(Debug, Clone)]
pub struct Told {
    /// What the agent's process costs.
    pub own: Own,
    /// Its report.
    pub report: Report,
}

impl Told {
    /// Time between two steps.
    pub(crate) fn interval(&self) -> Duration {
        Duration::try_from_secs_f64(self.report.interval_s).unwrap_or_default()
    }
}

/// The last one. The lock is held only to swap or clone a pointer.
#[derive(Debug)]
pub struct Latest(Mutex<Arc<Told>>);

impl Latest {
    /// Begins with this one.
    pub fn new(told: Told) -> Latest {
        Latest(Mutex::new(Arc::new(told)))
    }

    /// Replaces it.
    pub fn post(&self, told: Told) {
        let told = Arc::new(told);
        let old = std::mem::replace(&mut *self.lock(), told);
        // Freed after the lock was released.
        drop(old);
    }

    /// It.
    pub(crate) fn get(&self) -> Arc<Told> {
        Arc::clone(&self.lock())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Arc<Told>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
