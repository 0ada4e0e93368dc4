//! Reads which pages of a file are in the page cache.
//!
//! `cachestat(2)` (Linux 6.5) counts the cached, dirty and writeback pages of a range in one call. On older
//! kernels `mincore(2)` on a mapping counts the cached pages, and dirty pages are unknown.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::ptr::null_mut;

use rustix::mm::{mmap, munmap, MapFlags, ProtFlags};

/// The number of `cachestat(2)`, the same on every architecture.
const SYS_CACHESTAT: libc::c_long = 451;
/// Bytes of a file that are mapped at once for `mincore`.
const WINDOW: u64 = 256 << 20;

/// Residency of a range, in pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Resident {
    pub cached: u64,
    /// Cached pages that are dirty or under writeback; `None`: unknown.
    pub dirty: Option<u64>,
    /// Part of `dirty` that is under writeback; `None`: unknown.
    pub in_flight: Option<u64>,
}

/// The system call that reads residency on this kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sight {
    Cachestat,
    Mincore,
}

impl Sight {
    /// Tries `cachestat(2)` on an open file.
    pub fn probe(file: &File) -> Sight {
        match cachestat(file, 0, 1) {
            Ok(_) => Sight::Cachestat,
            Err(_) => Sight::Mincore,
        }
    }

    /// The cached pages among the first `bytes` of a file, as runs `(from, to)`. Uses `mincore(2)`: only it
    /// reports single pages.
    pub fn runs(file: &File, bytes: u64) -> io::Result<Vec<(u64, u64)>> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        each_page(file, 0, bytes, |page, is_there| match runs.last_mut() {
            Some(last) if is_there && last.1 == page => last.1 += 1,
            _ if is_there => runs.push((page, page + 1)),
            _ => {}
        })?;
        Ok(runs)
    }

    /// Residency of `length` bytes from `offset` on, both multiples of the page size.
    pub fn resident(self, file: &File, offset: u64, length: u64) -> io::Result<Resident> {
        if length == 0 {
            return Ok(Resident::default());
        }
        match self {
            Sight::Cachestat => cachestat(file, offset, length),
            Sight::Mincore => mincore(file, offset, length),
        }
    }
}

/// `struct cachestat_range` of `include/uapi/linux/mman.h`.
#[repr(C)]
struct Range {
    offset: u64,
    length: u64,
}

/// `struct cachestat` of `include/uapi/linux/mman.h`.
#[repr(C)]
#[derive(Default)]
struct Cachestat {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

fn cachestat(file: &File, offset: u64, length: u64) -> io::Result<Resident> {
    let range = Range { offset, length };
    let mut found = Cachestat::default();
    // SAFETY: both records outlive the call and have the kernel's layout; the descriptor is open.
    let result = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            file.as_raw_fd(),
            &raw const range,
            &raw mut found,
            0u32,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Resident {
        cached: found.cached,
        dirty: Some(found.dirty + found.writeback),
        in_flight: Some(found.writeback),
    })
}

fn mincore(file: &File, offset: u64, length: u64) -> io::Result<Resident> {
    let mut cached = 0;
    each_page(file, offset, length, |_, is_there| {
        cached += u64::from(is_there);
    })?;
    Ok(Resident {
        cached,
        dirty: None,
        in_flight: None,
    })
}

/// Calls `tell` for each page of a range, with its index and whether it is cached.
fn each_page(
    file: &File,
    offset: u64,
    length: u64,
    mut tell: impl FnMut(u64, bool),
) -> io::Result<()> {
    let page = rustix::param::page_size() as u64;
    let mut at = offset;
    while at < offset + length {
        let bytes = WINDOW.min(offset + length - at) as usize;
        let mut pages = vec![0u8; bytes.div_ceil(page as usize)];
        // SAFETY: a new read-only mapping at an address of the kernel's choice, which nobody reads; the
        // vector has a byte for each of its pages, and the mapping is removed right away.
        let result = unsafe {
            let start = mmap(
                null_mut(),
                bytes,
                ProtFlags::READ,
                MapFlags::SHARED,
                file,
                at,
            )?;
            let result = libc::mincore(start, bytes, pages.as_mut_ptr());
            let error = io::Error::last_os_error();
            munmap(start, bytes)?;
            if result == 0 {
                Ok(())
            } else {
                Err(error)
            }
        };
        result?;
        for (index, byte) in pages.iter().enumerate() {
            tell(at / page + index as u64, byte & 1 != 0);
        }
        at += bytes as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Seek as _, Write as _};

    use super::*;

    #[test]
    fn both_ways_see_the_same_pages() {
        let mut file = tempfile::tempfile_in(".").unwrap();
        let page = rustix::param::page_size() as u64;
        file.write_all(&vec![1; 8 * page as usize]).unwrap();
        file.set_len(100 * page).unwrap();
        file.rewind().unwrap();
        let sight = Sight::probe(&file);
        let seen = sight.resident(&file, 0, 100 * page).unwrap();
        assert_eq!(seen.cached, 8);
        assert!(seen.dirty.is_none_or(|dirty| dirty <= 8));
        let other = Sight::Mincore.resident(&file, 4 * page, 8 * page).unwrap();
        assert_eq!((other.cached, other.dirty), (4, None));
        assert_eq!(sight.resident(&file, 0, 0).unwrap(), Resident::default());
        assert_eq!(Sight::runs(&file, 100 * page).unwrap(), [(0, 8)]);
    }
}
