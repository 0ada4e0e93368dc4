//! One sample of one container: the load's counters and the kernel's, relative to a baseline.
//!
//! The kernel files of each group are opened once and read with `pread`: a sample of eight containers takes
//! some fifty reads, which an emulated guest does in a few milliseconds.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::files;
use crate::load::shared::Page;
use crate::protocol::Sample;

/// Enough for memory.stat, about 1.5 KiB, and io.stat, a line per device.
const READ_BYTES: usize = 16 << 10;

const FILES: [&str; 6] = [
    "memory.stat",
    "io.stat",
    "memory.low",
    "memory.high",
    "memory.pressure",
    "io.pressure",
];

/// The open files of one group.
#[derive(Debug)]
pub struct Sampler {
    device: String,
    files: BTreeMap<&'static str, File>,
}

impl Sampler {
    /// Opens the files of the group at `dir`; `device` is the `major:minor` of the data disk. A file that
    /// this kernel does not have reads as nothing.
    pub fn open(dir: &Path, device: &str) -> Self {
        let open = |name| Some((name, File::open(dir.join(name)).ok()?));
        Self {
            device: device.to_owned(),
            files: FILES.into_iter().filter_map(open).collect(),
        }
    }

    /// Counters since the group and its load began, not yet relative to a baseline.
    pub fn take(&self, page: &Page, at_s: f64) -> Sample {
        let load = page.counters();
        let memory_stat = self.text("memory.stat");
        let memory = |name| files::keyed(&memory_stat, name).unwrap_or(0);
        let io_stat = self.text("io.stat");
        let device = |key| files::io_stat(&io_stat, &self.device, key);
        let limit = |file| files::limit_bytes(&self.text(file));
        let pressure = |file, kind| files::pressure_total_us(&self.text(file), kind).unwrap_or(0);
        Sample {
            at_s,
            read_bytes: load.read_bytes,
            write_bytes: load.write_bytes,
            device_read_bytes: device("rbytes"),
            device_write_bytes: device("wbytes"),
            ops: load.ops,
            latency_us: load.latency_us,
            file_bytes: memory("file").saturating_sub(memory("shmem")),
            low_bytes: limit("memory.low"),
            high_bytes: limit("memory.high"),
            memory_full_us: pressure("memory.pressure", "full"),
            io_some_us: pressure("io.pressure", "some"),
        }
    }

    /// The text of a file; empty if it cannot be read.
    fn text(&self, file: &str) -> String {
        let mut buffer = vec![0; READ_BYTES];
        let file = self.files.get(file);
        let read = file.and_then(|file| file.read_at(&mut buffer, 0).ok());
        buffer.truncate(read.unwrap_or(0));
        String::from_utf8(buffer).unwrap_or_default()
    }
}

/// A sample relative to the baseline; gauges (memory, limits) stay as they are.
pub fn since(start: &Sample, now: Sample) -> Sample {
    Sample {
        read_bytes: now.read_bytes.saturating_sub(start.read_bytes),
        write_bytes: now.write_bytes.saturating_sub(start.write_bytes),
        device_read_bytes: now
            .device_read_bytes
            .saturating_sub(start.device_read_bytes),
        device_write_bytes: now
            .device_write_bytes
            .saturating_sub(start.device_write_bytes),
        ops: now.ops.saturating_sub(start.ops),
        latency_us: now.latency_us.saturating_sub(start.latency_us),
        memory_full_us: now.memory_full_us.saturating_sub(start.memory_full_us),
        io_some_us: now.io_some_us.saturating_sub(start.io_some_us),
        ..now
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::shared::Mapping;
    use std::fs;

    #[test]
    fn counters_are_relative_and_levels_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let page = Mapping::create(&dir.path().join("page")).unwrap();
        let put = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        put("memory.stat", "anon 7\nfile 100\nshmem 10\n");
        put("io.stat", "259:1 rbytes=5 wbytes=6\n");
        put("memory.low", "50\n");
        put("memory.high", "max\n");
        let sampler = Sampler::open(dir.path(), "259:1");
        let start = sampler.take(&page, 0.0);
        put("io.stat", "259:1 rbytes=15 wbytes=16\n");
        put("memory.stat", "anon 7\nfile 200\nshmem 10\n");
        page.add_written(3);
        let sample = since(&start, sampler.take(&page, 1.0));
        assert_eq!(
            (sample.device_read_bytes, sample.device_write_bytes),
            (10, 10)
        );
        assert_eq!((sample.file_bytes, sample.write_bytes), (190, 3));
        assert_eq!((sample.low_bytes, sample.high_bytes), (Some(50), None));
    }
}
