//! One agent at a time: an exclusive `flock(2)` on a file in the state directory.
//!
//! The lock ends with its holder, however the holder dies. The file stays: removing it would let two agents
//! lock two files of the same name.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::{flock, FlockOperation};

use crate::error::{Error, Result};
use crate::log::Log;

/// Locked by the agent that runs.
const AGENT: &str = "agent.lock";
/// Locked by the agent that waits for the running one to end.
const NEXT: &str = "next.lock";

/// The lock, held until this is dropped.
#[derive(Debug)]
pub struct Lock {
    _file: Option<File>,
}

/// Makes the state directory if it is missing.
pub(crate) fn make_state_dir(state_dir: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(state_dir)
}

impl Lock {
    /// Takes the lock, and makes the state directory if needed. On a full or read-only disk, an existing lock
    /// file is locked all the same. Without one the agent goes on unlocked, because it must be able to
    /// restore from such a disk.
    pub fn take(state_dir: &Path) -> Result<Lock> {
        let Some(mut file) = open(state_dir, AGENT)? else {
            return Ok(Lock { _file: None });
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
        Ok(Lock::signed(file))
    }

    /// Like [`Lock::take`], but waits for the agent that holds the lock, which can tell by
    /// [`Lock::is_awaited`]. If several wait, one waits for the lock and the others for its place.
    pub fn take_in_turn(state_dir: &Path, log: &Log) -> Result<Lock> {
        let (next, file) = (open(state_dir, NEXT)?, open(state_dir, AGENT)?);
        let (Some(next), Some(file)) = (next, file) else {
            return Lock::take(state_dir);
        };
        let wait = |file: &File, name| {
            flock(file, FlockOperation::LockExclusive)
                .map_err(|errno| Error::io("lock", &state_dir.join(name), &errno.into()))
        };
        wait(&next, NEXT)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            log.info("an agent runs: waiting for its end, to continue from its knobs and state");
            wait(&file, AGENT)?;
        }
        Ok(Lock::signed(file))
    }

    /// True if an agent waits for this one's end.
    pub fn is_awaited(state_dir: &Path) -> bool {
        let next = open(state_dir, NEXT).ok().flatten();
        next.is_some_and(|next| flock(next, FlockOperation::NonBlockingLockExclusive).is_err())
    }

    /// Writes the holder's process id into the file, for people. The lock holds without it.
    fn signed(mut file: File) -> Lock {
        let _ = file.set_len(0);
        let _ = file.rewind();
        let _ = writeln!(file, "{}", std::process::id());
        Lock { _file: Some(file) }
    }
}

/// Opens a lock file, and makes it if needed. `None`: it does not exist and cannot be made.
fn open(state_dir: &Path, name: &str) -> Result<Option<File>> {
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
    let path = state_dir.join(name);
    let opened = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path);
    match opened {
        Ok(file) => Ok(Some(file)),
        Err(error) if missing || unwritable(&error) => Ok(File::open(&path).ok()),
        Err(error) => Err(Error::io("open", &path, &error)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::{Duration, Instant};

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

    #[test]
    fn an_agent_knows_whether_another_waits_and_those_that_wait_follow_one_by_one() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path();
        let in_turn = || Lock::take_in_turn(state, &Log::stderr(false)).unwrap();
        let awaited_within = |limit| {
            let end = Instant::now() + limit;
            while !Lock::is_awaited(state) && Instant::now() < end {
                thread::sleep(Duration::from_millis(5));
            }
            Lock::is_awaited(state)
        };
        let (long, short) = (Duration::from_secs(10), Duration::from_millis(50));
        let first = in_turn();
        assert!(!awaited_within(short));
        let (took, taken) = mpsc::channel();
        thread::scope(|scope| {
            for _ in 0..2 {
                let took = took.clone();
                scope.spawn(move || took.send(in_turn()).unwrap());
            }
            assert!(awaited_within(long) && taken.try_recv().is_err());
            drop(first);
            let second = taken.recv_timeout(long).unwrap();
            assert!(awaited_within(long) && taken.try_recv().is_err());
            drop(second);
            let third = taken.recv_timeout(long).unwrap();
            assert!(!Lock::is_awaited(state));
            drop(third);
        });
    }
}
