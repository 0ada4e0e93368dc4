//! Facts about a host, read once: memory, swap, sysctls, kernel features, mounts, disks. The agent's loop
//! does not use this module.
//!
//! Every fact is [`Known`]: the value, or the file that could not be read and why. Where the absence of a
//! file means something, the fact is `Ok(None)`. Kernel files: `/proc/meminfo`, `/proc/swaps`,
//! `/proc/sys/vm`, `/proc/pressure`, `/proc/diskstats`, `/proc/self/mountinfo`, `/sys/kernel/mm/lru_gen`,
//! `/sys/kernel/btf`, `/sys/block`.
//!
//! [`HostFiles`] provides the texts: [`RealHost`] reads them, the fake host of tests holds them.

mod host;

use std::path::PathBuf;

use rustix::io::Errno;

use crate::error::plain;
use crate::{Buffer, Error, File, Group};

#[cfg(any(test, feature = "fake"))]
pub use crate::fake::FakeHost;
pub use host::{Disk, HostFacts, Volume};

/// A value, or why it is not known.
pub type Known<T> = Result<T, Unread>;

/// Something that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[error("{what}: {why}")]
pub struct Unread {
    /// The file, with its owner.
    pub what: String,
    /// Reason why it could not be read.
    pub why: String,
}

impl Unread {
    /// Something that is not known, and the reason.
    pub fn new(what: impl Into<String>, why: impl Into<String>) -> Unread {
        Unread {
            what: what.into(),
            why: why.into(),
        }
    }

    fn from_errno(what: &str, errno: Errno) -> Unread {
        let why = match errno {
            Errno::ACCESS | Errno::PERM => "permission denied".to_owned(),
            Errno::NOENT => "not there".to_owned(),
            errno => plain(&errno),
        };
        Unread::new(what, why)
    }

    fn malformed(what: &str) -> Unread {
        Unread::new(what, "holds text that is not understood")
    }
}

/// The host's own files, by absolute path.
pub trait HostFiles {
    /// The text of a file.
    fn read(&self, path: &str, buffer: &mut Buffer) -> Result<(), Errno>;

    /// The names in a directory, sorted.
    fn list(&self, path: &str) -> Result<Vec<String>, Errno>;

    /// True if a file or directory exists at this path.
    fn exists(&self, path: &str) -> Result<bool, Errno>;
}

/// The files of this host, or of an imitation of one below a directory.
#[derive(Debug, Clone)]
pub struct RealHost {
    root: PathBuf,
}

impl Default for RealHost {
    fn default() -> Self {
        RealHost::below("/")
    }
}

impl RealHost {
    /// A host whose root directory is this one.
    pub fn below(root: impl Into<PathBuf>) -> RealHost {
        RealHost { root: root.into() }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }
}

impl HostFiles for RealHost {
    fn read(&self, path: &str, buffer: &mut Buffer) -> Result<(), Errno> {
        let file = std::fs::File::open(self.path(path)).map_err(|error| errno(&error))?;
        buffer.pread(&file, true)
    }

    fn list(&self, path: &str) -> Result<Vec<String>, Errno> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(self.path(path)).map_err(|error| errno(&error))? {
            let entry = entry.map_err(|error| errno(&error))?;
            names.extend(entry.file_name().into_string());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn exists(&self, path: &str) -> Result<bool, Errno> {
        self.path(path).try_exists().map_err(|error| errno(&error))
    }
}

/// Page size of this host, bytes.
pub fn page_size() -> u64 {
    rustix::param::page_size() as u64
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

impl Group {
    /// A file of the group, parsed. `Ok(None)`: the group does not have it, because its controller
    /// is not enabled there or the kernel lacks it.
    pub fn known<T>(
        &self,
        file: File,
        buffer: &mut Buffer,
        parse: impl FnOnce(&[u8]) -> Option<T>,
    ) -> Result<Known<Option<T>>, Error> {
        let what = || format!("{} of {}", file.name(), self.path());
        match self.directory().read(file, buffer) {
            Ok(()) => Ok(parse(buffer.bytes())
                .map(Some)
                .ok_or_else(|| Unread::malformed(&what()))),
            Err(Errno::NODEV) => Err(self.error(file.name(), Errno::NODEV)),
            Err(Errno::NOENT) => Ok(Ok(None)),
            Err(errno) => Ok(Err(Unread::from_errno(&what(), errno))),
        }
    }

    /// True if a file is there, even if it cannot be read.
    pub fn has(&self, file: File) -> bool {
        self.directory().read(file, &mut Buffer::new()) != Err(Errno::NOENT)
    }

    /// True if the group's pressure is counted; `Ok(false)`: it is switched off or not built.
    pub fn counts_pressure(&self, buffer: &mut Buffer) -> Result<Known<bool>, Error> {
        let file = File::MemoryPressure;
        match self.directory().read(file, buffer) {
            Ok(()) => Ok(Ok(true)),
            Err(Errno::NODEV) => Err(self.error(file.name(), Errno::NODEV)),
            Err(Errno::NOENT | Errno::OPNOTSUPP) => Ok(Ok(false)),
            Err(errno) => {
                let what = format!("{} of {}", file.name(), self.path());
                Ok(Err(Unread::from_errno(&what, errno)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_below_a_directory_are_read_listed_and_missed() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("sys/block/sda")).unwrap();
        std::fs::write(root.path().join("sys/block/sda/size"), "8\n").unwrap();
        let host = RealHost::below(root.path());
        let mut buffer = Buffer::new();
        host.read("/sys/block/sda/size", &mut buffer).unwrap();
        assert_eq!(buffer.bytes(), b"8\n");
        assert_eq!(host.list("/sys/block").unwrap(), ["sda"]);
        assert_eq!(host.exists("/sys/block/sdb"), Ok(false));
        assert_eq!(host.read("/proc/meminfo", &mut buffer), Err(Errno::NOENT));
    }

    #[test]
    fn the_memory_of_this_host_is_read() {
        let facts = HostFacts::read(&RealHost::default());
        assert!(facts.memory.unwrap().total.is_some());
        assert!(facts.swappiness.is_ok() && facts.mounts.is_ok() && facts.disks.is_ok());
    }
}
