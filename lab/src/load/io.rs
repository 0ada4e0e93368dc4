//! Files and buffers of the loads.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, Result};

/// Alignment of addresses, offsets and lengths for `O_DIRECT`.
pub const DIRECT_ALIGN: usize = 4096;

/// Bytes per system call of whole-file reads and writes (filebench's `iosize=1m`).
pub const IO_BYTES: usize = 1 << 20;

/// A buffer that starts at a multiple of [`DIRECT_ALIGN`].
#[derive(Debug)]
pub struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    /// `len` bytes without zero pages, so that no layer can take a shortcut for zeros.
    pub fn new(len: usize) -> Self {
        let bytes = vec![0xa5; len + DIRECT_ALIGN];
        let start = bytes.as_ptr().align_offset(DIRECT_ALIGN);
        Self { bytes, start, len }
    }

    pub fn get(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }

    pub fn get_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

/// Opens a file, bypassing the page cache when `direct`.
pub fn open(options: &mut OpenOptions, direct: bool, path: &Path) -> Result<File> {
    if direct {
        options.custom_flags(libc::O_DIRECT);
    }
    options
        .open(path)
        .with_context(|| format!("cannot open {}", path.display()))
}

/// Creates a new file of this many bytes, and its directory, and flushes it.
pub fn make(path: &Path, bytes: u64, direct: bool) -> Result<()> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).context("cannot make the data directory")?;
    }
    let mut options = OpenOptions::new();
    let mut out = open(options.write(true).create_new(true), direct, path)?;
    write(&mut out, bytes, &Buffer::new(IO_BYTES), |_| ())?;
    out.sync_all().context("fsync")
}

/// Writes `total` bytes in pieces of the buffer; reports the bytes of each call to `count`.
pub fn write(file: &mut File, total: u64, buffer: &Buffer, count: impl Fn(u64)) -> Result<()> {
    let mut left = total;
    while left > 0 {
        let piece = left.min(buffer.len as u64) as usize;
        match file.write(&buffer.get()[..piece]) {
            Ok(0) => anyhow::bail!("the file system accepts no more bytes"),
            Ok(n) => {
                left -= n as u64;
                count(n as u64);
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e).context("write"),
        }
    }
    Ok(())
}

/// Reads to the end of the file; reports the bytes of each call to `count`. Ends early when `stop` says so.
pub fn read_all(
    file: &mut File,
    buffer: &mut Buffer,
    count: impl Fn(u64),
    stop: impl Fn() -> bool,
) -> Result<()> {
    loop {
        match file.read(buffer.get_mut()) {
            Ok(0) => return Ok(()),
            Ok(n) => count(n as u64),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e).context("read"),
        }
        if stop() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn buffers_are_aligned() {
        for len in [1, 4096, 100_000] {
            let mut buffer = Buffer::new(len);
            assert_eq!(buffer.get().as_ptr().addr() % DIRECT_ALIGN, 0);
            assert_eq!(buffer.get_mut().len(), len);
        }
    }

    #[test]
    fn every_byte_that_was_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let (written, read) = (Cell::new(0), Cell::new(0));
        let mut options = OpenOptions::new();
        let mut file = open(options.write(true).create_new(true), false, &path).unwrap();
        write(&mut file, 10_000, &Buffer::new(4096), |n| {
            written.set(written.get() + n);
        })
        .unwrap();
        let mut file = open(OpenOptions::new().read(true), false, &path).unwrap();
        let mut buffer = Buffer::new(4096);
        read_all(
            &mut file,
            &mut buffer,
            |n| read.set(read.get() + n),
            || false,
        )
        .unwrap();
        assert_eq!((written.get(), read.get()), (10_000, 10_000));
    }
}
