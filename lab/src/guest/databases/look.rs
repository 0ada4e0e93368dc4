//! Reads the kernel's counters of a container's group.
//!
//! A group that is gone and a file that this kernel does not have read as `None`.

use std::fs;
use std::path::Path;

use crate::guest::files;
use crate::protocol::databases::DatabaseSample;

/// Fills in the kernel's counters of the group at `dir`; `device` is the data disk's `major:minor`.
pub fn look(dir: &Path, device: &str, sample: &mut DatabaseSample) {
    let read = |name: &str| fs::read_to_string(dir.join(name)).ok();
    let limit = |name: &str| read(name).and_then(|text| files::limit_bytes(&text));
    sample.memory_bytes = limit("memory.current");
    sample.low_bytes = limit("memory.low");
    sample.high_bytes = limit("memory.high");
    if let Some(stat) = read("memory.stat") {
        sample.file_bytes = files::page_cache(&stat);
    }
    if let Some(stat) = read("io.stat") {
        sample.device_reads = Some(files::io_stat(&stat, device, "rios"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_that_is_gone_is_unknown_and_not_zero() {
        let dir = tempfile::tempdir().unwrap();
        let mut sample = DatabaseSample::default();
        look(&dir.path().join("gone"), "259:1", &mut sample);
        assert_eq!(sample, DatabaseSample::default());
    }

    #[test]
    fn page_cache_is_file_without_shmem_and_max_is_no_number() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        put("memory.current", "500\n");
        put("memory.stat", "anon 7\nfile 100\nshmem 10\n");
        put("memory.high", "max\n");
        put("io.stat", "259:1 rbytes=5 wbytes=6 rios=2 wios=1\n");
        let mut sample = DatabaseSample::default();
        look(dir.path(), "259:1", &mut sample);
        assert_eq!(
            (sample.memory_bytes, sample.file_bytes),
            (Some(500), Some(90))
        );
        assert_eq!((sample.high_bytes, sample.device_reads), (None, Some(2)));
    }
}
