//! Memory of this process itself: `/proc/self/statm`.

use std::fs;

/// Resident memory of this process, file-backed pages included, bytes. `None`: cannot be read.
pub fn resident_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    pages.checked_mul(rustix::param::page_size() as u64)
}
