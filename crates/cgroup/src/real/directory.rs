//! One real cgroup: an open directory and the files of it that are read again and again.
//!
//! A cached descriptor keeps its cgroup's identity: after removal it returns `ENODEV`, even if a cgroup of
//! the same name exists by then. It also does so for good if its controller was off for a while: such a file is
//! opened again. Each write opens the file again: a descriptor that hangs in a slow write
//! holds its own lock, and a newer value must get past it.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use justitia_policy::snapshot::GroupId;
use rustix::fs::{self, Access, AtFlags, OFlags, XattrFlags};
use rustix::io::Errno;

use super::budget::{Budget, Kept};
use super::{open_at, DIRECTORY};
use crate::file::directory_id;
use crate::fs::LONGEST_ATTRIBUTE;
use crate::{Buffer, Directory, File, Quirks, Watch, WatchKind};

/// Files up to this number are kept open, those up to `HOT` first.
const CACHED: usize = File::CgroupProcs as usize + 1;
const HOT: usize = File::CpuPressure as usize + 1;
/// Files that [`Group::activity`](crate::Group::activity) reads.
const PROBED: [usize; 2] = [File::MemoryCurrent as usize, File::IoPressure as usize];
/// A missing file is looked for again after this many misses, because controllers can be enabled and
/// schedulers selected.
const LOOK_AGAIN: u8 = 8;

/// State that all cgroups of a mount share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) quirks: Quirks,
    pub(crate) budget: Arc<Budget>,
    /// If this file is absent, the kernel has removed the directory. `None`: an ordinary file system, where
    /// the link count tells.
    pub(crate) sign: Option<&'static str>,
}

#[derive(Debug, Default)]
struct Cache {
    kept: [Option<Kept>; CACHED],
    /// Misses left until a missing file is looked for again; 0: not known to be missing.
    missing: [u8; File::ALL.len()],
}

/// A directory of the cgroup2 file system, or an ordinary one in tests.
#[derive(Debug)]
pub(crate) struct RealDirectory {
    id: GroupId,
    path: String,
    dir: OwnedFd,
    shared: Arc<Shared>,
    cache: Mutex<Cache>,
}

/// Errors: `ENODEV` for a removed cgroup, `ENOENT` for a missing file.
impl RealDirectory {
    /// Opens the directory `relative` to another one, to be known as `path`.
    pub(crate) fn open_at(
        root: impl AsFd,
        relative: &str,
        path: &str,
        shared: Arc<Shared>,
    ) -> Result<RealDirectory, Errno> {
        let dir = open_at(root, relative, DIRECTORY | OFlags::NOFOLLOW)?;
        let id = directory_id(path, fs::fstat(&dir)?.st_ino);
        Ok(RealDirectory {
            id,
            path: path.to_owned(),
            dir,
            shared,
            cache: Mutex::default(),
        })
    }

    fn open_file(&self, file: File, flags: OFlags) -> Result<OwnedFd, Errno> {
        open_at(&self.dir, file.name(), flags).map_err(|errno| match errno {
            Errno::NOENT if !self.exists() => Errno::NODEV,
            errno => errno,
        })
    }

    /// Opens a file for reading, unless it is known to be missing.
    fn open_to_read(&self, file: File, missing: &mut u8) -> Result<OwnedFd, Errno> {
        if *missing > 1 {
            *missing -= 1;
            return Err(Errno::NOENT);
        }
        let result = self.open_file(file, OFlags::RDONLY);
        *missing = match result {
            Err(Errno::NOENT) => LOOK_AGAIN,
            _ => 0,
        };
        result
    }
}

impl Directory for RealDirectory {
    fn id(&self) -> GroupId {
        self.id
    }

    fn path(&self) -> &str {
        &self.path
    }

    fn exists(&self) -> bool {
        match self.shared.sign {
            Some(file) => fs::accessat(&self.dir, file, Access::EXISTS, AtFlags::empty()).is_ok(),
            None => fs::fstat(&self.dir).is_ok_and(|stat| stat.st_nlink > 0),
        }
    }

    fn read(&self, file: File, buffer: &mut Buffer) -> Result<(), Errno> {
        let number = file as usize;
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let cache = &mut *cache;
        if let Some(kept) = cache.kept.get(number).and_then(Option::as_ref) {
            match buffer.pread(&kept.fd, file.is_long()) {
                Err(Errno::NODEV) if self.exists() => cache.kept[number] = None,
                read => return read,
            }
        }
        let fd = self.open_to_read(file, &mut cache.missing[number])?;
        buffer.pread(&fd, file.is_long())?;
        if number < CACHED {
            if let Some(permit) = self.shared.budget.take(number >= HOT) {
                cache.kept[number] = Some(Kept {
                    fd,
                    _permit: permit,
                });
            }
        }
        Ok(())
    }

    fn write(&self, file: File, text: &[u8]) -> Result<(), Errno> {
        // O_NONBLOCK: since Linux 6.16 `memory.high` then skips its synchronous reclaim.
        let mut flags = OFlags::WRONLY | OFlags::NONBLOCK;
        if self.shared.sign.is_none() {
            flags |= OFlags::TRUNC;
        }
        let fd = self.open_file(file, flags)?;
        rustix::io::write(&fd, text).map(|_| ())
    }

    fn can_write(&self, file: File) -> bool {
        fs::accessat(&self.dir, file.name(), Access::WRITE_OK, AtFlags::empty()).is_ok()
    }

    fn xattr(&self, name: &str, buffer: &mut Buffer) -> Result<(), Errno> {
        // The kernel allocates and clears as many bytes as it is offered.
        let mut room = [0; LONGEST_ATTRIBUTE];
        let length = fs::fgetxattr(&self.dir, name, &mut room)?;
        buffer.refill().extend_from_slice(&room[..length]);
        Ok(())
    }

    fn set_xattr(&self, name: &str, value: Option<&[u8]>) -> Result<(), Errno> {
        match value {
            Some(value) => fs::fsetxattr(&self.dir, name, value, XattrFlags::empty()),
            None => fs::fremovexattr(&self.dir, name),
        }
    }

    fn watch(&self, file: File) -> Result<Watch, Errno> {
        Ok(Watch {
            fd: self.open_file(file, OFlags::RDONLY)?,
            kind: WatchKind::Priority,
        })
    }

    fn quirks(&self) -> &Quirks {
        &self.shared.quirks
    }

    fn release(&self) {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        for (number, kept) in cache.kept.iter_mut().enumerate() {
            if !PROBED.contains(&number) {
                *kept = None;
            }
        }
    }
}
