//! A fake cgroup as [`Directory`].

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use justitia_policy::snapshot::GroupId;
use rustix::event::{eventfd, EventfdFlags};
use rustix::io::Errno;

use super::{FakeGroup, Fault, Gate};
use crate::fs::LONGEST_ATTRIBUTE;
use crate::{Buffer, Directory, File, Owner, Quirks, Watch, WatchKind};

/// Writes by us, in order: path, file, text.
pub(super) type Journal = Arc<Mutex<Vec<(String, String, String)>>>;

/// State shared by all handles of the group.
#[derive(Debug)]
pub(super) struct FakeDirectory {
    pub(super) id: GroupId,
    pub(super) path: String,
    pub(super) gone: AtomicBool,
    pub(super) state: Mutex<State>,
    pub(super) quirks: Arc<Quirks>,
    pub(super) journal: Journal,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) group: FakeGroup,
    pub(super) xattrs: BTreeMap<String, Vec<u8>>,
    pub(super) faults: BTreeMap<File, Fault>,
    /// The error that opening it returns.
    pub(super) shut: Option<Errno>,
    /// Owner of the directory.
    pub(super) owner: Owner,
    /// Owner of its files.
    pub(super) file_owner: Owner,
    pub(super) pids: Vec<u32>,
    /// Reads of each file, refused ones included.
    pub(super) reads: BTreeMap<File, u32>,
    /// Eventfds of the watches of each file.
    pub(super) watches: BTreeMap<File, Vec<OwnedFd>>,
}

/// Faults that apply to an access that goes on.
struct Access {
    no_swappiness: bool,
    read_only: bool,
    /// For the writer to pass before its value is in force.
    before: Option<Gate>,
    /// For the writer to pass after that.
    after: Option<Gate>,
}

impl FakeDirectory {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn alive(&self) -> Result<(), Errno> {
        if self.gone.load(Ordering::Acquire) {
            Err(Errno::NODEV)
        } else {
            Ok(())
        }
    }

    pub(super) fn notify(state: &State, file: File) {
        for fd in state.watches.get(&file).into_iter().flatten() {
            let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
        }
    }
}

impl State {
    fn access(&mut self, file: File) -> Result<Access, Errno> {
        let mut access = Access {
            no_swappiness: false,
            read_only: false,
            before: None,
            after: None,
        };
        match self.faults.get_mut(&file) {
            None | Some(Fault::Times(_, 0)) => {}
            Some(Fault::Errno(errno)) => return Err(*errno),
            Some(Fault::Times(errno, left)) => {
                *left -= 1;
                return Err(*errno);
            }
            Some(Fault::NoSwappiness) => access.no_swappiness = true,
            Some(Fault::Slow(gate)) => access.after = Some(gate.clone()),
            Some(Fault::Late(gate)) => access.before = Some(gate.clone()),
            Some(Fault::Absent) => return Err(Errno::NOENT),
            Some(Fault::Denied) => return Err(Errno::ACCESS),
            Some(Fault::ReadOnly) => access.read_only = true,
        }
        Ok(access)
    }
}

impl Directory for FakeDirectory {
    fn id(&self) -> GroupId {
        self.id
    }

    fn path(&self) -> &str {
        &self.path
    }

    fn exists(&self) -> bool {
        self.alive().is_ok()
    }

    fn read(&self, file: File, buffer: &mut Buffer) -> Result<(), Errno> {
        self.alive()?;
        let mut state = self.lock();
        *state.reads.entry(file).or_default() += 1;
        state.access(file)?;
        state.group.show(file, &state.pids, buffer.refill())
    }

    fn write(&self, file: File, text: &[u8]) -> Result<(), Errno> {
        self.alive()?;
        let text = std::str::from_utf8(text).map_err(|_| Errno::INVAL)?;
        let mut state = self.lock();
        let access = state.access(file)?;
        if access.read_only {
            return Err(Errno::ROFS);
        }
        if let Some(gate) = access.before {
            drop(state);
            gate.pass();
            state = self.lock();
        }
        let result = state.group.store(file, text, access.no_swappiness);
        drop(state);
        let write = (self.path.clone(), file.name().to_owned(), text.to_owned());
        lock(&self.journal).push(write);
        if let Some(gate) = access.after {
            gate.pass();
        }
        result
    }

    fn can_write(&self, file: File) -> bool {
        let state = self.lock();
        let there = state.group.has(file);
        let refused = matches!(
            state.faults.get(&file),
            Some(Fault::Absent | Fault::Denied | Fault::ReadOnly)
        );
        there && !refused && self.alive().is_ok()
    }

    fn xattr(&self, name: &str, buffer: &mut Buffer) -> Result<(), Errno> {
        self.alive()?;
        let state = self.lock();
        let value = state.xattrs.get(name).ok_or(Errno::NODATA)?;
        if value.len() > LONGEST_ATTRIBUTE {
            return Err(Errno::RANGE);
        }
        buffer.refill().extend_from_slice(value);
        Ok(())
    }

    fn set_xattr(&self, name: &str, value: Option<&[u8]>) -> Result<(), Errno> {
        self.alive()?;
        let mut state = self.lock();
        match value {
            Some(value) => {
                state.xattrs.insert(name.to_owned(), value.to_owned());
                Ok(())
            }
            None => state.xattrs.remove(name).map(|_| ()).ok_or(Errno::NODATA),
        }
    }

    fn watch(&self, file: File) -> Result<Watch, Errno> {
        self.alive()?;
        let mut state = self.lock();
        state.access(file)?;
        let ours = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let theirs = ours.try_clone().map_err(|_| Errno::MFILE)?;
        state.watches.entry(file).or_default().push(ours);
        Ok(Watch {
            fd: theirs,
            kind: WatchKind::Counter,
        })
    }

    fn quirks(&self) -> &Quirks {
        &self.quirks
    }
}

/// Takes a lock, also after a thread panicked while it held it.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The file of this name. An unknown name is a mistake in the test.
pub(super) fn known(file_name: &str) -> File {
    match File::from_name(file_name) {
        Some(file) => file,
        None => panic!("no file {file_name}"),
    }
}

/// Paths are keys: only the root's ends with a slash.
pub(super) fn normal(path: &str) -> &str {
    match path.trim_end_matches('/') {
        "" => "/",
        path => path,
    }
}
