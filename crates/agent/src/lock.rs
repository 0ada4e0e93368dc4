//! One agent at a time: an exclusive `flock(2)` on a file in the state directory.
//!
//! The lock goes with its holder, however that dies. The file stays: removing it would let two
//! agents lock two files of the same name.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::{flock, FlockOperation};

use crate::error::{Error, Result};

/// Held for as long as this lives.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock, making the state directory if need be.
    pub fn take(state_dir: &Path) -> Result<Lock> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(state_dir)
            .map_err(|error| Error::io("make", state_dir, &error))?;
        let path = state_dir.join("agent.lock");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(|error| Error::io("open", &path, &error))?;
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
        let write = |file: &mut File| {
            file.set_len(0)?;
            file.rewind()?;
            writeln!(file, "{}", std::process::id())
        };
        write(&mut file).map_err(|error| Error::io("write", &path, &error))?;
        Ok(Lock { _file: file })
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
