//! One sample of one container: the load's counters and the kernel's, relative to a baseline.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::files;
use crate::load::shared::Page;
use crate::protocol::Sample;

/// Enough for memory.stat, about 1.5 KiB, and io.stat, a line per device.
const READ_BYTES: usize = 16 << 10;

const FILES: &str =
    "memory.current memory.stat io.stat memory.low memory.high memory.pressure io.pressure";

/// The open files of one group. They are read with `pread`: a sample of eight containers takes some fifty reads,
/// which an emulated guest does in a few milliseconds.
///
/// A value of a group that is gone is `None`, and so is one of a file that this kernel does not have.
#[derive(Debug)]
pub struct Sampler {
    device: String,
    files: BTreeMap<&'static str, File>,
}

impl Sampler {
    /// Opens the files of the group at `dir`; `device` is the `major:minor` of the data disk.
    pub fn open(dir: &Path, device: &str) -> Self {
        let open = |name| Some((name, File::open(dir.join(name)).ok()?));
        Self {
            device: device.to_owned(),
            files: FILES.split(' ').filter_map(open).collect(),
        }
    }

    /// Counters since the group and its load began, not yet relative to a baseline.
    pub fn take(&self, page: &Page, at_s: f64) -> Sample {
        let load = page.counters();
        let device = self.device(["rbytes", "wbytes"]);
        let [device_read_bytes, device_write_bytes] = device.unwrap_or_default();
        let pressure = |file, kind| {
            let total = |text: String| files::pressure_total_us(&text, kind);
            self.text(file).and_then(total).unwrap_or(0)
        };
        Sample {
            at_s,
            read_bytes: load.read_bytes,
            write_bytes: load.write_bytes,
            device_read_bytes,
            device_write_bytes,
            ops: load.ops,
            latency_us: load.latency_us,
            file_bytes: self.page_cache().unwrap_or(0),
            low_bytes: self.bytes("memory.low"),
            high_bytes: self.bytes("memory.high"),
            memory_full_us: pressure("memory.pressure", "full"),
            io_some_us: pressure("io.pressure", "some"),
        }
    }

    /// The number in a file; `None` for max.
    pub fn bytes(&self, file: &str) -> Option<u64> {
        files::limit_bytes(&self.text(file)?)
    }

    pub fn page_cache(&self) -> Option<u64> {
        files::page_cache(&self.text("memory.stat")?)
    }

    /// These counters of the data disk.
    pub fn device<const N: usize>(&self, keys: [&str; N]) -> Option<[u64; N]> {
        let stat = self.text("io.stat")?;
        Some(keys.map(|key| files::io_stat(&stat, &self.device, key)))
    }

    fn text(&self, file: &str) -> Option<String> {
        let mut buffer = vec![0; READ_BYTES];
        let read = self.files.get(file)?.read_at(&mut buffer, 0).ok()?;
        buffer.truncate(read);
        String::from_utf8(buffer).ok()
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
        put("memory.current", "500\n");
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
        assert_eq!(sampler.bytes("memory.current"), Some(500));
    }

    #[test]
    fn a_group_that_is_gone_is_unknown_and_not_zero() {
        let dir = tempfile::tempdir().unwrap();
        let gone = Sampler::open(&dir.path().join("gone"), "259:1");
        assert_eq!(
            (gone.bytes("memory.current"), gone.page_cache()),
            (None, None)
        );
        assert_eq!(gone.device(["rios"]), None);
    }
}
