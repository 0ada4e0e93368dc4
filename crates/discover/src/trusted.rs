//! Reads files of other users. Their owner is checked on the open file, and nothing blocks.
//!
//! An unprivileged user may put anything below `/run/user/UID`: a FIFO, a device, a link to another file, a
//! file without end, a mount of its own. A [`Place`] therefore holds an open directory. Files below it are
//! opened relative to it, without following links or entering mounts. Only a regular file of the right owner
//! and of bounded length is read.

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{self, Mode, OFlags, ResolveFlags, CWD};
use serde::Deserialize;

/// Longer files are not configurations.
const LONGEST: u64 = 4 << 20;
/// Longer files of an unprivileged user are not read.
const LONGEST_OF_USER: u64 = 256 << 10;
/// Bytes of one unprivileged user's files that are read in one scan, at most.
const MOST_OF_USER: u64 = 1 << 20;

/// Owner of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Author {
    /// Root's: it counts for every cgroup.
    Root,
    /// This unprivileged user's: it counts below that user's slice.
    User(u32),
}

/// The version of a file: inode, and seconds and nanoseconds of its last change.
pub(crate) type Stamp = (u64, i64, u64);

/// An open directory, and the author of its files.
#[derive(Debug)]
pub(crate) struct Place {
    directory: OwnedFd,
    pub(crate) path: PathBuf,
    pub(crate) author: Author,
    /// The owner of root's files: root, except where a test imitates it.
    root: u32,
    /// Bytes of this author's files that may still be read.
    left: Rc<Cell<u64>>,
}

impl Place {
    /// A directory of root's. Links on the way to it are root's too, so they are followed.
    pub(crate) fn of_root(path: &Path, root: u32) -> Option<Place> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = fs::openat(CWD, path, flags, Mode::empty()).ok()?;
        Some(Place {
            directory,
            path: path.to_owned(),
            author: Author::Root,
            root,
            left: Rc::new(Cell::new(u64::MAX)),
        })
    }

    /// The directory `uid` below this one, which is that user's own. `None` also if the user mounted a file
    /// system over it, whose server could keep us waiting.
    pub(crate) fn of_user(&self, uid: u32) -> Option<Place> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let name = uid.to_string();
        let directory = fs::openat(&self.directory, &name, flags, Mode::empty()).ok()?;
        let here = justitia_cgroup::mount_of(&self.directory)?;
        let there = justitia_cgroup::mount_of(&directory)?;
        (there.id == here.id || there.kind == "tmpfs").then(|| Place {
            directory,
            path: self.path.join(name),
            author: Author::User(uid),
            root: self.root,
            left: Rc::new(Cell::new(MOST_OF_USER)),
        })
    }

    pub(crate) fn below(&self, name: &OsStr) -> Option<Place> {
        let directory = self.open(Path::new(name), OFlags::PATH | OFlags::DIRECTORY)?;
        Some(Place {
            directory,
            path: self.path.join(name),
            left: Rc::clone(&self.left),
            ..*self
        })
    }

    /// The names of the directories among the first `most` entries of this one, and whether there are more
    /// entries.
    pub(crate) fn directories(&self, most: usize) -> (Vec<OsString>, bool) {
        let mut names = Vec::new();
        let Some(list) = self.open(Path::new("."), OFlags::RDONLY | OFlags::DIRECTORY) else {
            return (names, false);
        };
        let Ok(entries) = fs::Dir::new(list) else {
            return (names, false);
        };
        let entries = entries.flatten();
        let entries = entries.filter(|entry| !matches!(entry.file_name().to_bytes(), b"." | b".."));
        for (seen, entry) in entries.enumerate() {
            if seen == most {
                return (names, true);
            }
            if entry.file_type().is_dir() {
                names.push(OsStr::from_bytes(entry.file_name().to_bytes()).to_owned());
            }
        }
        (names, false)
    }

    /// The version of a file or directory below this directory.
    pub(crate) fn stamp(&self, file: &Path) -> Option<Stamp> {
        let stat = fs::statat(&self.directory, file, fs::AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some((stat.st_ino, stat.st_ctime, stat.st_ctime_nsec))
    }

    /// Reads a JSON file below this directory.
    pub(crate) fn json<T: for<'de> Deserialize<'de>>(&self, file: &Path) -> Option<T> {
        serde_json::from_slice(&self.read(file)?).ok()
    }

    /// Reads a file below this directory.
    pub(crate) fn read(&self, file: &Path) -> Option<Vec<u8>> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        self.bytes(self.open(file, flags)?)
    }

    /// Reads a JSON file anywhere that a file of root's names.
    pub(crate) fn json_at<T: for<'de> Deserialize<'de>>(&self, file: &Path) -> Option<T> {
        let flags =
            OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let text = self.bytes(fs::openat(CWD, file, flags, Mode::empty()).ok()?)?;
        serde_json::from_slice(&text).ok()
    }

    fn open(&self, name: &Path, flags: OFlags) -> Option<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC;
        match self.author {
            Author::Root => fs::openat(
                &self.directory,
                name,
                flags | OFlags::NOFOLLOW,
                Mode::empty(),
            ),
            Author::User(_) => {
                let resolve = ResolveFlags::BENEATH
                    | ResolveFlags::NO_SYMLINKS
                    | ResolveFlags::NO_MAGICLINKS
                    | ResolveFlags::NO_XDEV;
                fs::openat2(&self.directory, name, flags, Mode::empty(), resolve)
            }
        }
        .ok()
    }

    /// The bytes of an open file, if it is a regular file of the author's and not too long.
    fn bytes(&self, file: OwnedFd) -> Option<Vec<u8>> {
        let stat = fs::fstat(&file).ok()?;
        let regular = fs::FileType::from_raw_mode(stat.st_mode).is_file();
        let (owner, longest) = match self.author {
            Author::Root => (self.root, LONGEST),
            Author::User(uid) => (uid, LONGEST_OF_USER),
        };
        if !regular || stat.st_uid != owner {
            return None;
        }
        let left = self.left.get();
        let longest = longest.min(left);
        let mut text = Vec::new();
        File::from(file)
            .take(longest + 1)
            .read_to_end(&mut text)
            .ok()?;
        self.left.set(left.saturating_sub(text.len() as u64));
        (text.len() as u64 <= longest).then_some(text)
    }
}
