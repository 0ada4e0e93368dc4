//! Fake processes.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::io::Errno;

use crate::parse::proc::ProcessIo;
use crate::{Buffer, Process};

/// State of a fake process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Life {
    pub(super) started: Duration,
    pub(super) parent: u32,
    pub(super) io: ProcessIo,
    pub(super) ended: bool,
    pub(super) denied: bool,
}

/// Shared between the host and all handles of the process.
pub(super) type Shared = Arc<Mutex<Life>>;

#[derive(Debug)]
pub(super) struct FakeProcess {
    started: Duration,
    life: Shared,
}

impl FakeProcess {
    pub(super) fn open(life: &Shared) -> Result<FakeProcess, Errno> {
        let started = read(life)?.started;
        Ok(FakeProcess {
            started,
            life: Arc::clone(life),
        })
    }
}

fn read(life: &Shared) -> Result<Life, Errno> {
    let life = *life.lock().unwrap_or_else(PoisonError::into_inner);
    if life.ended {
        Err(Errno::SRCH)
    } else {
        Ok(life)
    }
}

impl Process for FakeProcess {
    fn started(&self) -> Duration {
        self.started
    }

    fn parent(&mut self, _buffer: &mut Buffer) -> Result<u32, Errno> {
        Ok(read(&self.life)?.parent)
    }

    fn io(&mut self, _buffer: &mut Buffer) -> Result<ProcessIo, Errno> {
        let life = read(&self.life)?;
        if life.denied {
            Err(Errno::ACCESS)
        } else {
            Ok(life.io)
        }
    }
}
