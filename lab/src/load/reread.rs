//! The paper's Re-read: writes a file, loses part of its page cache to a polluter, reads it once more.
//!
//! The preparation writes the file, flushes it (so that every page is clean and the kernel is free to drop
//! any of them) and reads it once. The driver then pollutes the cache. The measured phase is one sequential
//! read, and the container is done when it ends.
//!
//! The paper uses FIO for this. This reader makes the same system calls as `fio --rw=read --ioengine=psync
//! --bs=128k --invalidate=0`. It is used instead of fio because it counts bytes as they arrive, in the page
//! that the driver samples each second, and reports the exact end of its work. The start-up of fio (hundreds
//! of milliseconds, emulated) would also be part of the measurement.

use std::fs::OpenOptions;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::io::{make, open, read_all, Buffer, DIRECT_ALIGN, IO_BYTES};
use super::shared::Page;
use super::{Place, Workload};

/// Bytes per request of the re-read.
const REQUEST_BYTES: usize = 128 << 10;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reread {
    /// Size of the file; rounded down to a size that direct I/O can write.
    pub file_bytes: u64,
    /// `O_DIRECT` instead of the page cache.
    pub direct: bool,
}

impl Workload for Reread {
    fn prepare(&self, place: &Place) -> Result<()> {
        let bytes = self.file_bytes / DIRECT_ALIGN as u64 * DIRECT_ALIGN as u64;
        make(&place.file(), bytes, self.direct)?;
        if !self.direct {
            let mut file = open(OpenOptions::new().read(true), false, &place.file())?;
            read_all(&mut file, &mut Buffer::new(IO_BYTES), |_| (), || false)?;
        }
        Ok(())
    }

    fn run(&self, place: &Place, page: &Page) -> Result<()> {
        let mut file = open(OpenOptions::new().read(true), self.direct, &place.file())?;
        let mut buffer = Buffer::new(REQUEST_BYTES);
        let stopped = || page.stopped();
        read_all(&mut file, &mut buffer, page.count_reads(), stopped)
    }

    fn caching_counts(&self) -> bool {
        true
    }

    fn ends_by_itself(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_exactly_the_file_once() {
        let dir = tempfile::tempdir().unwrap();
        let load = Reread {
            file_bytes: 3 << 20,
            direct: false,
        };
        let page = crate::load::run_for(&load, dir.path(), 1000);
        assert_eq!(page.counters().read_bytes, 3 << 20);
        assert!(load.ends_by_itself());
    }
}
