//! The paper's Re-read: write a file, lose part of it to a polluter, read it again once.
//!
//! Preparing writes the file, flushes it (so that every page is clean and the kernel is free to
//! drop any of them) and reads it once; the driver then pollutes the cache; the measured phase is
//! one sequential read, and the container is done when it ends.
//!
//! The paper uses FIO for this. This reader makes the same system calls as
//! `fio --rw=read --ioengine=psync --bs=128k --invalidate=0` and is used instead of it because it
//! counts bytes as they arrive in the page the driver samples each second and reports the exact end
//! of its work; fio's own start-up (hundreds of milliseconds, emulated) would be part of the
//! measurement.

use std::fs::{self, OpenOptions};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result};

use super::io::{open, read_all, write, Buffer, DIRECT_ALIGN, IO_BYTES};
use super::shared::Page;
use super::Workload;

/// Bytes per request while reading again.
const REQUEST_BYTES: usize = 128 << 10;

/// The load of one container; fields as in [`crate::protocol::Load::Reread`].
#[derive(Debug)]
pub struct Reread {
    /// The file.
    pub path: PathBuf,
    /// Its size, bytes; rounded down to what direct I/O can write.
    pub file_bytes: u64,
    /// Past the page cache.
    pub direct: bool,
}

impl Workload for Reread {
    fn prepare(&mut self) -> Result<()> {
        if let Some(dir) = self.path.parent() {
            fs::create_dir_all(dir).context("cannot make the data directory")?;
        }
        let bytes = self.file_bytes / DIRECT_ALIGN as u64 * DIRECT_ALIGN as u64;
        let mut options = OpenOptions::new();
        let mut out = open(
            options.write(true).create_new(true),
            self.direct,
            &self.path,
        )?;
        let mut buffer = Buffer::new(IO_BYTES);
        write(&mut out, bytes, &buffer, |_| ())?;
        out.sync_all().context("fsync")?;
        if !self.direct {
            let mut file = open(OpenOptions::new().read(true), false, &self.path)?;
            read_all(&mut file, &mut buffer, |_| (), || false)?;
        }
        Ok(())
    }

    fn run(&self, page: &Page) -> Result<()> {
        let mut file = open(OpenOptions::new().read(true), self.direct, &self.path)?;
        let mut buffer = Buffer::new(REQUEST_BYTES);
        let before = std::cell::Cell::new(Instant::now());
        let count = |bytes| {
            page.add_read(bytes);
            let now = Instant::now();
            page.add_op(now - before.replace(now));
        };
        read_all(&mut file, &mut buffer, count, || page.stopped())
    }

    fn ends_by_itself(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::shared::{monotonic_ns, Mapping};

    #[test]
    fn reads_exactly_the_file_once() {
        let dir = tempfile::tempdir().unwrap();
        let page = Mapping::create(&dir.path().join("page")).unwrap();
        let path = dir.path().join("data/file");
        let mut load = Reread {
            path,
            file_bytes: 3 << 20,
            direct: false,
        };
        load.prepare().unwrap();
        assert_eq!(page.counters().read_bytes, 0);
        page.go(monotonic_ns());
        load.run(&page).unwrap();
        assert_eq!(page.counters().read_bytes, 3 << 20);
        assert!(load.ends_by_itself());
    }
}
