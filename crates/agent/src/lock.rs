//! One agent at a time: an exclusive `flock(2)` on a file in the state directory.
//!
//! The lock goes with its holder, however that dies. The file stays: removing it would let two
//! agents lock two files of the same name.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::{flock, FlockOperation};

use crate::error::{Error, Result};

/// Held for as long as this lives.
#[derive(Debug)]
pub struct Lock {
    _file: Option<File>,
}

/// Makes the state directory, if it is not there.
pub(crate) fn make_state_dir(state_dir: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(state_dir)
}

impl Lock {
    /// Takes the lock, making the state directory if need be. Where nothing can be written there, a lock
    /// file that exists is locked all the same, and without one the agent goes on unlocked: it must be
    /// able to restore from a full or read-only disk.
    pub fn take(state_dir: &Path) -> Result<Lock> {
        let unwritable = |error: &io::Error| {
            use io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
            matches!(
                error.kind(),
                QuotaExceeded | ReadOnlyFilesystem | StorageFull
            )
        };
        let made = make_state_dir(state_dir);
        let missing = match &made {
            Err(error) if unwritable(error) => true,
            Err(error) => return Err(Error::io("make", state_dir, error)),
            Ok(()) => false,
        };
        let path = state_dir.join("agent.lock");
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path);
        let mut file = match opened {
            Ok(file) => file,
            Err(error) if missing || unwritable(&error) => match File::open(&path) {
                Ok(file) => file,
                Err(_) => return Ok(Lock { _file: None }),
            },
            Err(error) => return Err(Error::io("open", &path, &error)),
        };
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let mut pid = String::new();
            let _ = file.read_to_string(&mut pid);
            let pid = pid.trim();
            return Err(Error::failed(
                format!(
                    "an agent runs already (process {pid}) with {}",
                    state_dir.display()
                ),
                format!("stop it first: systemctl stop justitia, or kill {pid}"),
            ));
        }
        // For people; the lock holds without it.
        let _ = file.set_len(0);
        let _ = file.rewind();
        let _ = writeln!(file, "{}", std::process::id());
        Ok(Lock { _file: Some(file) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_agent_is_refused_until_the_first_has_gone() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("made/on/demand");
        let first = Lock::take(&state).unwrap();
        let refused = Lock::take(&state).unwrap_err();
        assert!(
            refused
                .cause
                .contains(&format!("process {}", std::process::id())),
            "{refused}"
        );
        drop(first);
        Lock::take(&state).unwrap();
    }
}
