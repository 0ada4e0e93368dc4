//! One cgroup, or one disk's scheduler: identity, knobs, attributes.
//!
//! Values in the kernel's formats: limits are bytes or `max`; `io.weight` takes `default N`;
//! `io.bfq.weight` takes a bare `N` on every kernel that has it and shows `default N`;
//! `memory.reclaim` takes bytes and, since Linux 6.9, `swappiness=0` for "file pages only";
//! `low_latency` takes and shows `0` or `1`.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use justitia_policy::knob::{Kind, Knob, Value};
use justitia_policy::snapshot::GroupId;
use rustix::io::Errno;

use crate::{parse, Buffer, Device, Error, File, Why};

/// Names of the extended attributes of cgroup directories that Justitia reads.
pub mod xattr {
    /// The group's weight, a decimal number, stated by root on a directory that root owns.
    pub const WEIGHT: &str = "user.justitia.weight";
    /// The same on a directory that root delegated. Setting it takes `CAP_SYS_ADMIN` in the initial user
    /// namespace (`security/commoncap.c`, `cap_inode_setxattr`), reading it takes nothing.
    pub const WEIGHT_OF_DELEGATED: &str = "security.justitia.weight";
    /// The color that its application declares.
    pub const COLOR: &str = "user.justitia.color";
}

/// Number of retries after `EBUSY` and `EINTR`.
const RETRIES: u32 = 4;
/// Pause between tries after `EBUSY`.
const BUSY_PAUSE: Duration = Duration::from_millis(2);

/// One cgroup (or one disk's scheduler), held by its open directory.
pub trait Directory: Send + Sync {
    /// Inode of the directory.
    fn id(&self) -> GroupId;

    /// The path it was opened by.
    fn path(&self) -> &str;

    /// True if it still exists.
    fn exists(&self) -> bool;

    /// Reads a whole file.
    fn read(&self, file: File, buffer: &mut Buffer) -> Result<(), Errno>;

    /// Writes a file in one call. The kernel may block it without bound.
    fn write(&self, file: File, text: &[u8]) -> Result<(), Errno>;

    /// True if the file exists and can be written, found without opening it.
    fn can_write(&self, file: File) -> bool;

    /// Reads an extended attribute of the directory; `ENODATA` when it is not set, `ERANGE` when it
    /// is longer than any of ours.
    fn xattr(&self, name: &str, buffer: &mut Buffer) -> Result<(), Errno>;

    /// Sets (`Some`) or removes (`None`) an extended attribute of the directory.
    fn set_xattr(&self, name: &str, value: Option<&[u8]>) -> Result<(), Errno>;

    /// Opens a file to be polled.
    fn watch(&self, file: File) -> Result<Watch, Errno>;

    /// The quirks of this kernel, shared by all its cgroups.
    fn quirks(&self) -> &Quirks;

    /// Closes the cached file descriptors of a group that went quiet, except those of [`Group::activity`].
    fn release(&self) {}
}

/// Properties of the running kernel, learned at run time.
#[derive(Debug, Default)]
pub struct Quirks {
    /// `memory.reclaim` refused a `swappiness=` argument (before Linux 6.9).
    pub no_swappiness: AtomicBool,
    /// No process is outside of our pid namespace, so one without a pid has ended.
    pub sees_all_processes: bool,
}

/// Something to poll.
#[derive(Debug)]
pub struct Watch {
    /// The descriptor to poll.
    pub fd: OwnedFd,
    /// The way in which it signals an event.
    pub kind: WatchKind,
}

/// The way in which a polled descriptor signals an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchKind {
    /// `POLLPRI`, until the file is read again (kernfs) or once per event (PSI).
    Priority,
    /// An eventfd, until its counter is read (the fake).
    Counter,
}

/// A cgroup: its id and its open directory. Cloning is cheap and shares both.
#[derive(Clone)]
pub struct Group(Arc<dyn Directory>);

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Group({} {})", self.id(), self.path())
    }
}

/// Result of a write that the kernel accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// All of it.
    Done,
    /// `memory.reclaim` reclaimed less than requested (`EAGAIN`), which is normal.
    Partial,
}

/// Result of reading an extended attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attribute {
    /// It is not set, or this kernel has none.
    Unset,
    /// It is in the buffer.
    Set,
    /// It is longer than any of ours: a number, or a color and its reason.
    Longer,
}

impl Group {
    /// Wraps a directory of either world.
    pub fn new(directory: Arc<dyn Directory>) -> Group {
        Group(directory)
    }

    /// The kernel's cgroup id.
    pub fn id(&self) -> GroupId {
        self.0.id()
    }

    /// The path it was opened by, relative to the mount.
    pub fn path(&self) -> &str {
        self.0.path()
    }

    /// True if the cgroup still exists.
    pub fn exists(&self) -> bool {
        self.0.exists()
    }

    /// Closes the files of a quiet group, except those of [`Group::activity`]. The next read reopens them.
    pub fn release(&self) {
        self.0.release();
    }

    pub(crate) fn directory(&self) -> &dyn Directory {
        &*self.0
    }

    /// Reads a file into the buffer.
    pub fn read(&self, file: File, buffer: &mut Buffer) -> Result<(), Error> {
        let read = self.0.read(file, buffer);
        read.map_err(|errno| self.error(file.name(), errno))
    }

    /// Reads a file that may be missing or switched off (`EOPNOTSUPP`): `false` then.
    fn read_if_there(&self, file: File, buffer: &mut Buffer) -> Result<bool, Error> {
        match self.0.read(file, buffer) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT | Errno::OPNOTSUPP) => Ok(false),
            Err(errno) => Err(self.error(file.name(), errno)),
        }
    }

    /// Reads a file that may be missing or switched off, and parses it. `None` also for such a file.
    pub(crate) fn parsed<T>(
        &self,
        file: File,
        buffer: &mut Buffer,
        parse: impl FnOnce(&[u8]) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let there = self.read_if_there(file, buffer)?;
        Ok(there.then(|| parse(buffer.bytes())).flatten())
    }

    /// The value of a knob. `None`: the group does not have the knob, the knob holds no value, or its text is
    /// in no format that a known kernel writes.
    pub fn read_knob(&self, knob: Knob) -> Result<Option<Value>, Error> {
        if !knob.holds_value() {
            return Ok(None);
        }
        let parse = |text: &[u8]| parse::knob(knob, text);
        self.parsed(File::of_knob(knob), &mut Buffer::new(), parse)
    }

    /// True if the file of a knob exists. A file that cannot be read is an error.
    pub fn has_knob(&self, knob: Knob) -> Result<bool, Error> {
        match self.read(File::of_knob(knob), &mut Buffer::new()) {
            Ok(()) => Ok(true),
            Err(error) if error.why == Why::Absent => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// True if a knob can be written, as far as can be told without writing it.
    pub fn can_write(&self, knob: Knob) -> bool {
        self.0.can_write(File::of_knob(knob))
    }

    /// Writes a knob and waits for the kernel, which may take seconds for `memory.high` and
    /// `memory.reclaim`: the agent's loop uses [`crate::Writer`] instead.
    pub fn write_knob(&self, knob: Knob, value: Value) -> Result<Written, Error> {
        match (knob.kind(), value) {
            (Kind::Limit, Value::Limit(_)) | (Kind::Switch, Value::Switch(_)) => {
                self.write(knob, &value.to_string())
            }
            (Kind::Weight { prefix, .. }, Value::Weight(weight)) => {
                self.write(knob, &format!("{prefix}{weight}"))
            }
            (Kind::CostQos, Value::CostQos(_)) | (Kind::CostModel, Value::CostModel(_)) => {
                self.write(knob, &value.to_string().replace(',', " "))
            }
            (Kind::Reclaim, Value::Reclaim(bytes)) => self.reclaim(knob, bytes.0),
            _ => Err(self.invalid(knob, &value.to_string())),
        }
    }

    fn reclaim(&self, knob: Knob, bytes: u64) -> Result<Written, Error> {
        let refused = &self.0.quirks().no_swappiness;
        if !refused.load(Ordering::Relaxed) {
            match self.write(knob, &format!("{bytes} swappiness=0")) {
                Err(error) if matches!(error.why, Why::Invalid(_)) => {}
                result => return result,
            }
        }
        let result = self.write(knob, &bytes.to_string());
        if result.is_ok() {
            // The write succeeds without the argument: the kernel refused the argument.
            refused.store(true, Ordering::Relaxed);
        }
        result
    }

    fn write(&self, knob: Knob, text: &str) -> Result<Written, Error> {
        let mut left = RETRIES;
        loop {
            match self.0.write(File::of_knob(knob), text.as_bytes()) {
                Ok(()) => return Ok(Written::Done),
                Err(Errno::AGAIN) if !knob.holds_value() => return Ok(Written::Partial),
                Err(Errno::INTR) if left > 0 => left -= 1,
                Err(Errno::BUSY) if left > 0 => {
                    left -= 1;
                    std::thread::sleep(BUSY_PAUSE);
                }
                Err(Errno::INVAL | Errno::RANGE) => return Err(self.invalid(knob, text)),
                Err(errno) => return Err(self.error(knob.file_name(), errno)),
            }
        }
    }

    /// An extended attribute of the directory as text; `None` when it is not set, too long or not text.
    pub fn xattr(&self, name: &'static str) -> Result<Option<String>, Error> {
        let mut buffer = Buffer::new();
        let set = self.read_xattr(name, &mut buffer)? == Attribute::Set;
        let text = std::str::from_utf8(buffer.bytes()).ok().filter(|_| set);
        Ok(text.map(|text| text.trim_end_matches('\0').trim().to_owned()))
    }

    /// Reads the bytes of an extended attribute into the buffer, without validating them: the process that
    /// set it need not be trusted.
    pub fn read_xattr(&self, name: &'static str, buffer: &mut Buffer) -> Result<Attribute, Error> {
        match self.0.xattr(name, buffer) {
            Ok(()) => Ok(Attribute::Set),
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(Attribute::Unset),
            Err(Errno::RANGE) => Ok(Attribute::Longer),
            Err(errno) => Err(self.error(name, errno)),
        }
    }

    /// Sets an extended attribute of the directory.
    pub fn set_xattr(&self, name: &str, value: &str) -> Result<(), Error> {
        self.0
            .set_xattr(name, Some(value.as_bytes()))
            .map_err(|errno| self.error("extended attributes", errno))
    }

    /// Removes an extended attribute. It is no error if the attribute is not set.
    pub fn remove_xattr(&self, name: &str) -> Result<(), Error> {
        match self.0.set_xattr(name, None) {
            Ok(()) | Err(Errno::NODATA) => Ok(()),
            Err(errno) => Err(self.error("extended attributes", errno)),
        }
    }

    /// Appends the processes directly in this cgroup. A threaded cgroup (`EOPNOTSUPP`) has none
    /// of its own. A process that may be outside of our pid namespace is an error, after the others are appended.
    pub fn pids(&self, buffer: &mut Buffer, out: &mut Vec<u32>) -> Result<(), Error> {
        let file = File::CgroupProcs;
        let all = !self.read_if_there(file, buffer)? || parse::proc::pids(buffer.bytes(), out);
        if all || self.0.quirks().sees_all_processes {
            return Ok(());
        }
        Err(self.error(file.name(), Errno::SRCH))
    }

    /// Bytes read from and written to each block device (`io.stat`); `false` without the file.
    pub fn io_bytes(
        &self,
        buffer: &mut Buffer,
        each: impl FnMut(Device, parse::io::IoBytes),
    ) -> Result<bool, Error> {
        if !self.read_if_there(File::IoStat, buffer)? {
            return Ok(false);
        }
        parse::io::stat(buffer.bytes(), each);
        Ok(true)
    }

    fn invalid(&self, knob: Knob, value: &str) -> Error {
        let path = self.path().to_owned();
        let (file, why) = (knob.file_name(), Why::Invalid(value.to_owned()));
        Error { path, file, why }
    }

    pub(crate) fn error(&self, file: &'static str, errno: Errno) -> Error {
        Error::from_errno(self.path(), file, errno)
    }
}
