//! The files of a cgroup, or of a disk's scheduler, that Justitia knows, and the buffer they are read into.

use std::os::fd::AsFd;

use justitia_policy::plan::Knob;
use rustix::buffer::spare_capacity;
use rustix::io::Errno;

/// A file of a cgroup's or a scheduler's directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "each is the kernel's name in camel case")]
pub enum File {
    MemoryCurrent,
    MemoryStat,
    MemoryPressure,
    IoPressure,
    CpuPressure,
    MemoryLow,
    MemoryHigh,
    MemoryMax,
    IoWeight,
    IoBfqWeight,
    IoStat,
    MemoryEvents,
    CgroupProcs,
    MemoryReclaim,
    CgroupEvents,
    CgroupControllers,
    BfqLowLatency,
    MemoryMin,
    MemorySwapCurrent,
    MemorySwapMax,
    CgroupType,
    CgroupStat,
    IoCostQos,
    MemoryEventsLocal,
}

impl File {
    /// All of them, in the order of their numbers.
    pub const ALL: [File; 24] = [
        File::MemoryCurrent,
        File::MemoryStat,
        File::MemoryPressure,
        File::IoPressure,
        File::CpuPressure,
        File::MemoryLow,
        File::MemoryHigh,
        File::MemoryMax,
        File::IoWeight,
        File::IoBfqWeight,
        File::IoStat,
        File::MemoryEvents,
        File::CgroupProcs,
        File::MemoryReclaim,
        File::CgroupEvents,
        File::CgroupControllers,
        File::BfqLowLatency,
        File::MemoryMin,
        File::MemorySwapCurrent,
        File::MemorySwapMax,
        File::CgroupType,
        File::CgroupStat,
        File::IoCostQos,
        File::MemoryEventsLocal,
    ];

    /// Its name in the directory.
    pub const fn name(self) -> &'static str {
        match self {
            File::MemoryCurrent => "memory.current",
            File::MemoryStat => "memory.stat",
            File::MemoryPressure => "memory.pressure",
            File::IoPressure => "io.pressure",
            File::CpuPressure => "cpu.pressure",
            File::MemoryLow => "memory.low",
            File::MemoryHigh => "memory.high",
            File::MemoryMax => "memory.max",
            File::IoWeight => "io.weight",
            File::IoBfqWeight => "io.bfq.weight",
            File::IoStat => "io.stat",
            File::MemoryEvents => "memory.events",
            File::MemoryReclaim => "memory.reclaim",
            File::CgroupProcs => "cgroup.procs",
            File::CgroupEvents => "cgroup.events",
            File::CgroupControllers => "cgroup.controllers",
            File::BfqLowLatency => "low_latency",
            File::MemoryMin => "memory.min",
            File::MemorySwapCurrent => "memory.swap.current",
            File::MemorySwapMax => "memory.swap.max",
            File::CgroupType => "cgroup.type",
            File::CgroupStat => "cgroup.stat",
            File::IoCostQos => "io.cost.qos",
            File::MemoryEventsLocal => "memory.events.local",
        }
    }

    /// The file with this name, if Justitia knows it.
    pub fn from_name(name: &str) -> Option<File> {
        File::ALL.into_iter().find(|file| file.name() == name)
    }

    /// Whether one `read` call may stop before the end (`cgroup.procs` is shown a page at a time;
    /// the others are shown at once).
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
        }
    }
}

/// Where a file's text is read to. Keep one per thread: it grows once and is never given back, so
/// that reading allocates nothing.
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

    /// What was read last.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Empties it for text that does not come from a file descriptor, and hands it out.
    pub fn refill(&mut self) -> &mut Vec<u8> {
        self.bytes.clear();
        &mut self.bytes
    }

    /// Reads a file from its beginning. `long`: until the kernel says the end; otherwise one call
    /// does, unless the buffer was too small.
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
        for (number, file) in File::ALL.into_iter().enumerate() {
            assert_eq!(file as usize, number);
            assert_eq!(File::from_name(file.name()), Some(file));
        }
        assert_eq!(File::from_name("memory.oom.group"), None);
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
