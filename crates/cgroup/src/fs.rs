//! The traits of a tree of cgroups, real or fake.
//!
//! [`CgroupFs`] is the host, [`Directory`] one cgroup, [`Process`] one process. The methods of `Directory`
//! and `Process` return the kernel's error numbers, by one convention: `ENODEV` is a cgroup that was removed,
//! `ENOENT` a file that an existing cgroup does not have, `ESRCH` a process that ended.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;
use std::time::Duration;

use justitia_policy::snapshot::{GroupId, Host};
use rustix::io::Errno;

use crate::gate::{GateDevice, GateError};
use crate::parse::proc::ProcessIo;
use crate::{parse, Buffer, Error, File, Group};

/// A shared handle to a host's cgroups.
pub type Fs = Arc<dyn CgroupFs>;

/// A host: its tree of cgroups, its memory, its processes, its block devices.
pub trait CgroupFs: Send + Sync {
    /// Opens the cgroup at a path relative to the mount (`/` for the root). The path `block:NAME` opens the
    /// directory of that disk's scheduler, which is a directory of knobs like any other. The path `cost:NAME`
    /// opens the disk's io.cost knobs.
    fn open(&self, path: &str) -> Result<Group, Error>;

    /// Appends the children of the cgroup at a path, at most `most`, because a tenant can create any number.
    /// Cheap for a leaf.
    fn children(&self, path: &str, most: usize, out: &mut Vec<Child>) -> Result<(), Error>;

    /// Owner and mode of the directory at a path, or of `file` in it.
    fn owner(&self, path: &str, file: Option<File>) -> Result<Owner, Error>;

    /// Memory of the host. A value that cannot be read is `None`.
    fn read_host(&self) -> Host;

    /// Opens a process; `ESRCH` when there is none.
    fn process(&self, pid: u32) -> Result<Box<dyn Process>, Errno>;

    /// True if a block device passes its I/O on to another one (device mapper, RAID, loop), so that
    /// the same bytes appear on both in `io.stat`.
    fn stacked(&self, device: Device) -> bool;

    /// Appends the paths of disks, in order: `block:NAME` for disks that BFQ schedules and, where the kernel
    /// has io.cost, `cost:NAME` for disks with another scheduler or none. A device that cannot be read is
    /// left out. The list may be some seconds old.
    fn block_devices(&self, out: &mut Vec<String>);

    /// Watches the host's `/proc/pressure/memory` for stalls of 150 ms within a second.
    fn watch_host_pressure(&self) -> Result<Watch, Errno>;

    /// Time since boot, suspended time included: the clock of process start times.
    fn now_boottime(&self) -> Duration;

    /// True if the multi-generational LRU is enabled. With it, reclaim from the root takes from protected
    /// groups too (`mm/vmscan.c`, `shrink_one`). `None`: not known.
    fn multi_generational(&self) -> Option<bool> {
        None
    }

    /// Opens the kernel module's gate, to read it or to hold it.
    fn gate(&self, hold: bool) -> Result<Box<dyn GateDevice>, GateError> {
        let _ = hold;
        Err(GateError::Absent)
    }
}

/// Attributes longer than this are not read (`ERANGE`): ours are a number, or a color and its reason.
pub(crate) const LONGEST_ATTRIBUTE: usize = parse::color::LONGEST + 1;
/// Prefix of the paths of disks. The path of a cgroup begins with a slash.
const BLOCK: &str = "block:";
/// Prefix of the paths of disks that io.cost serves.
const COST: &str = "cost:";
/// Set in the ids of `cost:` paths, together with [`DISK_BIT`].
const COST_BIT: u64 = 1 << 62;
/// Set in the ids of disks, because sysfs and cgroup2 both number their inodes from 1.
const DISK_BIT: u64 = 1 << 63;

pub(crate) fn disk_path(name: &str) -> String {
    format!("{BLOCK}{name}")
}

pub(crate) fn cost_path(name: &str) -> String {
    format!("{COST}{name}")
}

/// The disk's name, if this is a `cost:` path.
pub(crate) fn cost_name(path: &str) -> Option<&str> {
    path.strip_prefix(COST)
}

/// The disk's name, if this is a `block:` or `cost:` path.
pub fn disk_name(path: &str) -> Option<&str> {
    path.strip_prefix(BLOCK).or(cost_name(path))
}

/// Identity of the directory with this path and inode.
pub(crate) fn directory_id(path: &str, inode: u64) -> GroupId {
    match disk_name(path) {
        Some(_) if cost_name(path).is_some() => GroupId(inode | DISK_BIT | COST_BIT),
        Some(_) => GroupId(inode | DISK_BIT),
        None => GroupId(inode),
    }
}

/// A cgroup directly below another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Child {
    /// Last component of its path.
    pub name: String,
    /// Its id, as the directory listing gives it.
    pub id: GroupId,
}

/// Owner and mode of a cgroup's directory or file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Owner {
    /// The user.
    pub uid: u32,
    /// The group of users.
    pub gid: u32,
    /// The permission bits.
    pub mode: u32,
}

impl Owner {
    /// True if only root, and users in `trusted`, may write it.
    pub fn is_trusted(&self, trusted: &[u32]) -> bool {
        const GROUP: u32 = 0o020;
        const OTHERS: u32 = 0o002;
        (self.uid == 0 || trusted.contains(&self.uid))
            && (self.mode & GROUP == 0 || self.gid == 0)
            && self.mode & OTHERS == 0
    }
}

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

/// One process. A handle never refers to another process: a recycled pid is `ESRCH`.
pub trait Process: Send {
    /// Time of its start since boot, in the kernel's ticks of 10 ms.
    fn started(&self) -> Duration;

    /// Its parent now.
    fn parent(&mut self, buffer: &mut Buffer) -> Result<u32, Errno>;

    /// Its `/proc/PID/io`: all its threads, and its children that it waited for.
    fn io(&mut self, buffer: &mut Buffer) -> Result<ProcessIo, Errno>;
}

/// Properties of the running kernel, learned at run time.
#[derive(Debug, Default)]
pub struct Quirks {
    /// `memory.reclaim` refused a `swappiness=` argument (before Linux 6.9).
    pub no_swappiness: AtomicBool,
}

/// A block device, as `MAJOR:MINOR` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Device {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
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
