//! A map of the programs, mapped into our memory: what a program counts is read without a system call.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{null_mut, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::mm::{mmap, munmap, MapFlags, ProtFlags};

/// The memory of a map, to be touched by atomic operations only.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is owned, and all access to it is atomic.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// An atomic integer, for which any bytes are a value.
pub trait Word: sealed::Sealed {}

impl Word for AtomicU32 {}
impl Word for AtomicU64 {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::AtomicU32 {}
    impl Sealed for super::AtomicU64 {}
}

impl Mapping {
    /// Maps `bytes` bytes, rounded up to whole pages. `writable`: the words may be changed.
    pub fn new(fd: BorrowedFd<'_>, bytes: usize, writable: bool) -> io::Result<Mapping> {
        let bytes = bytes.next_multiple_of(rustix::param::page_size());
        let protection = if writable {
            ProtFlags::READ | ProtFlags::WRITE
        } else {
            ProtFlags::READ
        };
        // SAFETY: a fresh mapping at an address of the kernel's choice; nothing else refers to it.
        let start = unsafe { mmap(null_mut(), bytes, protection, MapFlags::SHARED, fd, 0)? };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { start, bytes })
    }

    /// The word at an offset in bytes.
    pub fn word<T: Word>(&self, at: usize) -> &T {
        assert!(at % size_of::<T>() == 0 && at + size_of::<T>() <= self.bytes);
        // SAFETY: within the mapping, which is page-aligned and lives as long as self; any bytes are a value.
        unsafe { self.start.add(at).cast().as_ref() }
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: start and bytes are those of the mapping made in `new`; nothing refers to it.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
