//! The files of a cgroup, or of a disk's scheduler, that Justitia knows, the buffer they are read into, and
//! the paths of disks.

use std::os::fd::AsFd;

use justitia_policy::plan::Knob;
use justitia_policy::snapshot::GroupId;
use rustix::buffer::spare_capacity;
use rustix::io::Errno;

macro_rules! files {
    ($($name:ident = $file:literal,)*) => {
        /// A file of a cgroup's or a scheduler's directory.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        #[allow(missing_docs, reason = "each is the kernel's name in camel case")]
        pub enum File {
            $($name,)*
        }

        impl File {
            /// All of them, in the order of their numbers.
            pub const ALL: &'static [File] = &[$(File::$name),*];

            /// Its name in the directory.
            pub const fn name(self) -> &'static str {
                match self {
                    $(File::$name => $file,)*
                }
            }
        }
    };
}

files! {
    MemoryCurrent = "memory.current",
    MemoryStat = "memory.stat",
    MemoryPressure = "memory.pressure",
    IoPressure = "io.pressure",
    CpuPressure = "cpu.pressure",
    MemoryLow = "memory.low",
    MemoryHigh = "memory.high",
    MemoryMax = "memory.max",
    IoWeight = "io.weight",
    IoBfqWeight = "io.bfq.weight",
    IoStat = "io.stat",
    MemoryEvents = "memory.events",
    CgroupProcs = "cgroup.procs",
    MemoryReclaim = "memory.reclaim",
    CgroupEvents = "cgroup.events",
    CgroupControllers = "cgroup.controllers",
    BfqLowLatency = "low_latency",
    MemoryMin = "memory.min",
    MemorySwapCurrent = "memory.swap.current",
    MemorySwapMax = "memory.swap.max",
    CgroupType = "cgroup.type",
    CgroupStat = "cgroup.stat",
    IoCostQos = "io.cost.qos",
    IoCostModel = "io.cost.model",
    DiskStat = "stat",
    Udev = "udev",
    MemoryEventsLocal = "memory.events.local",
}

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

impl File {
    /// The file with this name, if Justitia knows it.
    pub fn from_name(name: &str) -> Option<File> {
        File::ALL.iter().copied().find(|file| file.name() == name)
    }

    /// True if one `read` call may stop before the end (the kernel returns `cgroup.procs` a page at a time,
    /// the others at once).
    pub(crate) fn is_long(self) -> bool {
        self == File::CgroupProcs
    }

    /// The file behind a knob.
    pub const fn of_knob(knob: Knob) -> File {
        match knob {
            Knob::MemoryLow => File::MemoryLow,
            Knob::MemoryHigh => File::MemoryHigh,
            Knob::MemoryReclaim => File::MemoryReclaim,
            Knob::IoWeight => File::IoWeight,
            Knob::IoBfqWeight => File::IoBfqWeight,
            Knob::BfqLowLatency => File::BfqLowLatency,
            Knob::IoCostQos => File::IoCostQos,
            Knob::IoCostModel => File::IoCostModel,
        }
    }
}

/// The buffer that files are read into. Keep one per thread: it grows once and never shrinks, so that reading
/// does not allocate.
#[derive(Debug)]
pub struct Buffer {
    bytes: Vec<u8>,
}

impl Default for Buffer {
    fn default() -> Self {
        Buffer::new()
    }
}

impl Buffer {
    /// A buffer for the longest file of an ordinary host.
    pub fn new() -> Buffer {
        Buffer {
            bytes: Vec::with_capacity(16 << 10),
        }
    }

    /// The text that was read last.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Empties the buffer and returns it, for text that does not come from a file descriptor.
    pub fn refill(&mut self) -> &mut Vec<u8> {
        self.bytes.clear();
        &mut self.bytes
    }

    /// Reads a file from its beginning. With `long`, it reads until end of file. Otherwise one call suffices,
    /// unless the buffer was too small.
    pub(crate) fn pread(&mut self, fd: impl AsFd, long: bool) -> Result<(), Errno> {
        self.bytes.clear();
        loop {
            if self.bytes.len() == self.bytes.capacity() {
                self.bytes.reserve(self.bytes.capacity().max(4096));
            }
            let room = self.bytes.capacity() - self.bytes.len();
            let offset = self.bytes.len() as u64;
            match rustix::io::pread(fd.as_fd(), spare_capacity(&mut self.bytes), offset) {
                Ok(0) => return Ok(()),
                Ok(read) if !long && read < room => return Ok(()),
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_of_files_agree() {
        for (number, file) in File::ALL.iter().copied().enumerate() {
            assert_eq!(file as usize, number);
            assert_eq!(File::from_name(file.name()), Some(file));
        }
        assert_eq!(File::from_name("memory.oom.group"), None);
    }

    #[test]
    fn a_knob_and_its_file_have_one_name() {
        for &knob in Knob::ALL {
            assert_eq!(File::of_knob(knob).name(), knob.file_name());
        }
    }

    #[test]
    fn a_file_longer_than_the_buffer_is_read_whole() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let text = vec![b'x'; 100_000];
        std::fs::write(path.path(), &text).unwrap();
        let mut buffer = Buffer::new();
        for long in [false, true] {
            buffer.pread(path.as_file(), long).unwrap();
            assert_eq!(buffer.bytes(), text);
        }
    }
}
