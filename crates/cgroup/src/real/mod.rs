//! The real host, by system calls.
//!
//! Kernel files: the cgroup2 mount, `/proc/meminfo`, `/proc/zoneinfo`, `/proc/pressure`,
//! `/proc/PID`, `/sys/dev/block`, `/sys/block`. Works on an ordinary directory tree too, for tests.

mod block;
mod btf;
mod budget;
mod cost;
mod directory;
mod host;
mod mount;
mod own_group;
mod process;
mod processes;
#[cfg(test)]
mod tests;

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use justitia_policy::snapshot::{GroupId, Host};
use rustix::fs::{self, FileType, Mode, OFlags, RawDir, CWD};
use rustix::io::Errno;
use rustix::path::Arg;

pub use btf::{has_btf, has_nohz_full, module_has};
pub use host::{boot_id, now_boottime, resident_bytes, sees_all_processes, HostMemory};
pub use mount::{mount_of, Mount, MountOf};
pub use own_group::OwnGroup;
pub use processes::{OpenFile, Processes};

use crate::file::{cost_name, disk_name};
use crate::gate::{GateDevice, GateError};
use crate::{
    CgroupFs, Child, Device, Directory, Error, File, Group, Owner, Process, Quirks, Watch,
    WatchKind,
};
use block::Disks;
use budget::Budget;
use directory::{RealDirectory, Shared};
use process::RealProcess;

/// The PSI trigger of the host: some task stalled for 150 ms within a second.
const TRIGGER: &[u8] = b"some 150000 1000000\0";
/// The same share of the time, over the shortest window that the kernel grants without `CAP_SYS_RESOURCE`.
const TRIGGER_OF_USERS: &[u8] = b"some 300000 2000000\0";
/// `f_type` of the cgroup2 file system.
const CGROUP2_SUPER_MAGIC: fs::FsWord = 0x6367_7270;

/// The exclusive claim of one agent to the cgroups of a mount.
#[derive(Debug)]
pub struct Claim(#[allow(dead_code, reason = "held, not used")] Option<OwnedFd>);

/// The cgroups of this host.
#[derive(Debug)]
pub struct RealFs {
    root: OwnedFd,
    shared: Arc<Shared>,
    host: HostMemory,
    disks: Disks,
}

impl RealFs {
    /// The cgroups below a mount.
    pub fn new(mount: &Mount) -> Result<RealFs, Error> {
        let fs = RealFs::below(mount.path(), Budget::of_process())?;
        Ok(fs.with_disks("/sys/block"))
    }

    /// Treats a directory tree as cgroups: a part of cgroup2, or, for tests, a tree of an ordinary file
    /// system, where written text stays as it was written. The host has no disks.
    pub fn on_directory(path: impl AsRef<Path>) -> Result<RealFs, Error> {
        RealFs::below(path.as_ref(), Budget::of_process())
    }

    fn below(path: &Path, budget: Arc<Budget>) -> Result<RealFs, Error> {
        let root = open_at(CWD, path, DIRECTORY)
            .map_err(|errno| Error::from_errno(&path.to_string_lossy(), "directory", errno))?;
        let kernfs = fs::fstatfs(&root).is_ok_and(|stat| stat.f_type == CGROUP2_SUPER_MAGIC);
        let sign = kernfs.then_some(File::CgroupProcs.name());
        let disks = Disks::below(None, &budget);
        Ok(RealFs {
            root,
            shared: Arc::new(Shared {
                quirks: Quirks {
                    sees_all_processes: sees_all_processes(),
                    ..Quirks::default()
                },
                budget,
                sign,
            }),
            host: HostMemory::default(),
            disks,
        })
    }

    /// Takes the disks from this directory, which has the layout of `/sys/block`. A directory that cannot be
    /// opened has no disks.
    #[must_use]
    pub fn with_disks(self, path: impl AsRef<Path>) -> RealFs {
        let root = open_at(CWD, path.as_ref(), DIRECTORY).ok();
        let disks = Disks::below(root, &self.shared.budget);
        RealFs { disks, ..self }
    }

    /// Claims these cgroups until the claim is dropped. `None`: another process has claimed them. The claim
    /// is a `flock(2)` on the root's `memory.reclaim`, the one file there that only root can open; any local
    /// user could lock a file that everybody may read. Kernels before Linux 5.19 lack the file, and all
    /// claims are granted.
    pub fn claim(&self) -> Result<Option<Claim>, Error> {
        let file = File::MemoryReclaim;
        let fd = match open_at(&self.root, file.name(), OFlags::WRONLY) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(Some(Claim(None))),
            Err(errno) => return Err(Error::from_errno("/", file.name(), errno)),
        };
        match fs::flock(&fd, fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Claim(Some(fd)))),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(Error::from_errno("/", file.name(), errno)),
        }
    }

    fn children_of(&self, path: &str, most: usize, out: &mut Vec<Child>) -> Result<(), Errno> {
        if self.shared.sign.is_some() {
            // A kernfs directory has 2 links and one for each child. The link count identifies a leaf, as
            // most groups are, without listing its seventy files.
            let stat = fs::statat(&self.root, relative(path), fs::AtFlags::SYMLINK_NOFOLLOW)?;
            if stat.st_nlink == 2 {
                return Ok(());
            }
        }
        let dir = open_at(&self.root, relative(path), DIRECTORY | OFlags::NOFOLLOW)?;
        let mut space = [MaybeUninit::uninit(); 8 << 10];
        let mut entries = RawDir::new(&dir, &mut space);
        let mut left = most;
        while let Some(entry) = entries.next() {
            let entry = entry?;
            if entry.file_type() != FileType::Directory {
                continue;
            }
            let name = entry.file_name().to_str();
            if matches!(name, Ok("." | "..")) {
                continue;
            }
            let Some(fewer) = left.checked_sub(1) else {
                break;
            };
            left = fewer;
            // A name that is not UTF-8 cannot be one of our paths. The group stays unmanaged.
            if let Ok(name) = name {
                out.push(Child {
                    name: name.to_owned(),
                    id: GroupId(entry.ino()),
                });
            }
        }
        Ok(())
    }
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);

/// Opens a file or a directory below another one, or at an absolute path.
fn open_at(dir: impl AsFd, path: impl Arg, flags: OFlags) -> Result<OwnedFd, Errno> {
    fs::openat(dir, path, flags | OFlags::CLOEXEC, Mode::empty())
}

/// A path as `openat` wants it.
fn relative(path: &str) -> &str {
    match path.trim_matches('/') {
        "" => ".",
        path => path,
    }
}

impl CgroupFs for RealFs {
    fn open(&self, path: &str) -> Result<Group, Error> {
        let shared = Arc::clone(&self.shared);
        let opened: Result<Arc<dyn Directory>, Errno> = match (cost_name(path), disk_name(path)) {
            (Some(name), _) => self
                .disks
                .open_cost(name, &self.root)
                .map(|it| Arc::new(it) as _),
            (None, Some(name)) => self.disks.open(name).map(|it| Arc::new(it) as _),
            (None, None) => RealDirectory::open_at(&self.root, relative(path), path, shared)
                .map(|it| Arc::new(it) as _),
        };
        opened
            .map(Group::new)
            .map_err(|errno| directory_error(path, errno))
    }

    fn children(&self, path: &str, most: usize, out: &mut Vec<Child>) -> Result<(), Error> {
        self.children_of(path, most, out)
            .map_err(|errno| directory_error(path, errno))
    }

    fn owner(&self, path: &str, file: Option<File>) -> Result<Owner, Error> {
        let at = match file {
            Some(file) => format!("{}/{}", relative(path), file.name()),
            None => relative(path).to_owned(),
        };
        let stat = fs::statat(&self.root, at.as_str(), fs::AtFlags::SYMLINK_NOFOLLOW);
        let stat = stat.map_err(|errno| match file {
            Some(file) => Error::from_errno(path, file.name(), errno),
            None => directory_error(path, errno),
        })?;
        Ok(Owner {
            uid: stat.st_uid,
            gid: stat.st_gid,
            mode: stat.st_mode & 0o777,
        })
    }

    fn read_host(&self) -> Host {
        self.host.read()
    }

    fn process(&self, pid: u32) -> Result<Box<dyn Process>, Errno> {
        RealProcess::open(pid, &self.shared.budget).map(|process| Box::new(process) as _)
    }

    fn stacked(&self, device: Device) -> bool {
        const LOOP_MAJOR: u32 = 7;
        device.major == LOOP_MAJOR
            || std::fs::read_dir(format!("/sys/dev/block/{device}/slaves"))
                .is_ok_and(|mut slaves| slaves.next().is_some())
    }

    fn block_devices(&self, all: bool, out: &mut Vec<String>) {
        let file = File::IoCostQos.name();
        let cost = fs::accessat(&self.root, file, fs::Access::EXISTS, fs::AtFlags::empty());
        self.disks.list(cost.is_ok(), all, out);
    }

    fn watch_host_pressure(&self) -> Result<Watch, Errno> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK;
        let fd = open_at(CWD, "/proc/pressure/memory", flags)?;
        match rustix::io::write(&fd, TRIGGER) {
            Err(Errno::INVAL | Errno::PERM) => rustix::io::write(&fd, TRIGGER_OF_USERS),
            armed => armed,
        }?;
        Ok(Watch {
            fd,
            kind: WatchKind::Priority,
        })
    }

    fn gate(&self, hold: bool) -> Result<Box<dyn GateDevice>, GateError> {
        crate::gate::open(hold)
    }

    fn multi_generational(&self) -> Option<bool> {
        match std::fs::read("/sys/kernel/mm/lru_gen/enabled") {
            Ok(text) => Some(crate::parse::host::lru_gen(&text)? & 1 == 1),
            // A kernel without the multi-generational LRU.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Some(false),
            Err(_) => None,
        }
    }

    fn now_boottime(&self) -> Duration {
        now_boottime()
    }
}

/// A missing directory means that the cgroup is gone. An unsupported one is that of a disk that io.cost cannot serve.
fn directory_error(path: &str, errno: Errno) -> Error {
    match errno {
        Errno::NOENT | Errno::NOTDIR => Error::from_errno(path, "directory", Errno::NODEV),
        Errno::OPNOTSUPP => Error::from_errno(path, "io.cost", errno),
        errno => Error::from_errno(path, "directory", errno),
    }
}
