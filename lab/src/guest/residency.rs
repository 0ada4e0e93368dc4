//! Bytes of a file that are in the page cache, whichever group is charged for them.
//!
//! Uses `mincore(2)` on a mapping that is never touched: it changes nothing, and every kernel has it. Units:
//! bytes, in whole pages.

use std::fs::File;
use std::path::Path;
use std::ptr;

use anyhow::{ensure, Context, Result};
use rustix::mm::{mmap, munmap, MapFlags, ProtFlags};

const PAGE_BYTES: usize = 4096;

#[derive(Debug)]
pub struct Watched {
    pub name: String,
    pub bytes: u64,
    file: File,
}

impl Watched {
    pub fn open(name: &str, path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        let bytes = file.metadata()?.len();
        ensure!(bytes > 0, "{} is empty", path.display());
        Ok(Self {
            name: name.to_owned(),
            bytes,
            file,
        })
    }

    /// Bytes of it in the page cache; `None` if the kernel does not tell.
    pub fn resident_bytes(&self) -> Option<u64> {
        let length = usize::try_from(self.bytes).ok()?;
        let mut pages = vec![0u8; length.div_ceil(PAGE_BYTES)];
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing; it is
        // never read or written.
        let address = unsafe {
            mmap(
                ptr::null_mut(),
                length,
                ProtFlags::READ,
                MapFlags::SHARED,
                &self.file,
                0,
            )
        }
        .ok()?;
        // SAFETY: the mapping is `length` bytes long and `pages` has one byte for each of its pages.
        let answer = unsafe { libc::mincore(address, length, pages.as_mut_ptr()) };
        // SAFETY: this is the mapping made above, to which no reference exists. A failure leaves a
        // mapping behind, which is harmless.
        let _ = unsafe { munmap(address, length) };
        let resident = pages.iter().filter(|page| **page & 1 == 1).count();
        (answer == 0).then_some((resident * PAGE_BYTES) as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_file_that_was_just_written_is_resident() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&vec![1; 10 * PAGE_BYTES + 1]).unwrap();
        let watched = Watched::open("f", file.path()).unwrap();
        assert_eq!(watched.resident_bytes(), Some(11 * PAGE_BYTES as u64));
        assert_eq!(watched.bytes, 10 * PAGE_BYTES as u64 + 1);
    }

    #[test]
    fn an_empty_or_missing_file_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(Watched::open("f", file.path()).is_err());
        assert!(Watched::open("f", Path::new("/no/such/file")).is_err());
    }
}
