//! The agent's last report, shared by the thread that reads frames and the thread that answers clients.

use std::sync::{Arc, Mutex, PoisonError};

use justitia_report::feed::Frame;
use justitia_report::status::Report;

/// The last frame, without its address and its key. The lock is held only to swap or clone a pointer.
#[derive(Debug)]
pub struct Latest(Mutex<Arc<Frame<Report>>>);

impl Latest {
    pub fn new(told: Frame<Report>) -> Latest {
        Latest(Mutex::new(Arc::new(told)))
    }

    pub fn post(&self, told: Frame<Report>) {
        let told = Arc::new(told);
        let old = std::mem::replace(&mut *self.lock(), told);
        // The old report is freed after the lock is released.
        drop(old);
    }

    pub(crate) fn get(&self) -> Arc<Frame<Report>> {
        Arc::clone(&self.lock())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Arc<Frame<Report>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
