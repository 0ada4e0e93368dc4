//! The agent's own pages. Under memory pressure and a full run queue the agent must go on, so it locks the
//! pages that it uses in memory. Pages that only its start needed are left to others.

use std::ffi::c_void;
use std::io;
use std::ops::Range;
use std::ptr::from_mut;

use rustix::mm::{madvise, mlockall, munlockall, Advice, MlockAllFlags};

/// Locks the pages that the process has touched and will touch.
pub(crate) fn keep() -> io::Result<()> {
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    Ok(mlockall(flags)?)
}

/// Like [`keep`], but first drops the code and constants that were used so far. They come back, and stay,
/// when they are used again. A fault also brings in the pages around it (`fault_around_bytes`), so that the
/// start alone has touched 5.6 of the program's 14 MB.
pub(crate) fn keep_what_is_used_now() -> io::Result<()> {
    munlockall()?;
    for Range { start, end } in unwritable() {
        // SAFETY: the range is in a segment that nothing writes to, so its pages are the file's and are read
        // from there again. The kernel may refuse, for example for its own pages (vDSO).
        let _ = unsafe { madvise(start as *mut c_void, end - start, Advice::LinuxDontNeed) };
    }
    keep()
}

/// The whole pages of the segments of the program and its libraries that are not writable.
fn unwritable() -> impl Iterator<Item = Range<usize>> {
    let mut segments: Vec<Range<usize>> = Vec::new();
    // SAFETY: the callback gets our vector back, and nothing else refers to it meanwhile.
    unsafe { libc::dl_iterate_phdr(Some(collect), from_mut(&mut segments).cast()) };
    let page = rustix::param::page_size();
    segments.into_iter().filter_map(move |segment| {
        let start = segment.start.next_multiple_of(page);
        let end = segment.end / page * page;
        (start < end).then_some(start..end)
    })
}

unsafe extern "C" fn collect(
    object: *mut libc::dl_phdr_info,
    _size: usize,
    segments: *mut c_void,
) -> i32 {
    // SAFETY: the loader describes an object that stays loaded during the call, and hands on the
    // vector of `unwritable`.
    let (object, headers, segments) = unsafe {
        let object = &*object;
        let headers = match object.dlpi_phnum {
            0 => &[],
            count => std::slice::from_raw_parts(object.dlpi_phdr, usize::from(count)),
        };
        (object, headers, &mut *segments.cast::<Vec<Range<usize>>>())
    };
    for header in headers {
        if header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_W == 0 {
            let start = (object.dlpi_addr + header.p_vaddr) as usize;
            segments.push(start..start + header.p_memsz as usize);
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn the_programs_code_is_in_a_segment_whose_pages_are_dropped() {
        let here = keep as *const () as usize;
        assert!(unwritable().any(|segment| segment.contains(&here)));
    }

    #[test]
    fn pages_that_only_the_start_touched_are_dropped() {
        // Resident pages of files: the third number.
        let held = || {
            let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
            let pages = statm.split(' ').nth(2).unwrap();
            pages.parse::<u64>().unwrap()
        };
        let before = held();
        // This user may lack the permission to lock; unlocking needs none.
        let _ = keep_what_is_used_now();
        let after = held();
        let _ = munlockall();
        assert!(after < before, "{before} pages before, {after} after");
    }

    #[test]
    fn no_writable_page_is_dropped() {
        // Large, so that its middle is in a whole page of the segment.
        static WRITTEN: Mutex<[u8; 1 << 16]> = Mutex::new([7; 1 << 16]);
        let on_the_stack = 0u8;
        let on_the_heap = Box::new(0u8);
        let addresses = [
            &raw const WRITTEN.lock().unwrap()[1 << 15] as usize,
            &raw const on_the_stack as usize,
            &raw const *on_the_heap as usize,
        ];
        for segment in unwritable() {
            assert!(!addresses.iter().any(|address| segment.contains(address)));
        }
    }
}
