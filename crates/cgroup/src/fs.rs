//! The traits of a host with its tree of cgroups, real or fake.
//!
//! [`CgroupFs`] is the host, [`Directory`] one cgroup, [`Process`] one process. The methods of `Directory`
//! and `Process` return the kernel's error numbers, by one convention: `ENODEV` is a cgroup that was removed,
//! `ENOENT` a file that an existing cgroup does not have, `ESRCH` a process that ended.
//!
//! [`Directory`]: crate::Directory

use std::sync::Arc;
use std::time::Duration;

use justitia_policy::snapshot::{GroupId, Host};
use rustix::io::Errno;

use crate::gate::{GateDevice, GateError};
use crate::parse::proc::ProcessIo;
use crate::{parse, Buffer, Device, Error, File, Group, Watch};

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
    /// has io.cost, `cost:NAME` for disks with another scheduler or none; unless `all`, without those below a volume
    /// that writes in one thread for all groups. A device that cannot be read is left out. The list may be some seconds
    /// old.
    fn block_devices(&self, all: bool, out: &mut Vec<String>);

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

/// One process. A handle never refers to another process: a recycled pid is `ESRCH`.
pub trait Process: Send {
    /// Time of its start since boot, in the kernel's ticks of 10 ms.
    fn started(&self) -> Duration;

    /// Its parent now.
    fn parent(&mut self, buffer: &mut Buffer) -> Result<u32, Errno>;

    /// Its `/proc/PID/io`: all its threads, and its children that it waited for.
    fn io(&mut self, buffer: &mut Buffer) -> Result<ProcessIo, Errno>;
}
