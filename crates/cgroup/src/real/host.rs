//! Memory of the host. `/proc/meminfo` and `/proc/pressure` are read each time. `/proc/zoneinfo` is read
//! every ten seconds: it is long on many CPUs, and its watermarks change only when memory is plugged or a
//! sysctl is written. A kernel without PSI has no pressure files; their values are `None`.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use justitia_policy::snapshot::Host;
use justitia_policy::units::Bytes;
use rustix::fs::{OFlags, CWD};
use rustix::time::{clock_gettime, ClockId};

use super::open_at;
use crate::{parse, Buffer};

const WATERMARKS_LAST: Duration = Duration::from_secs(10);

/// Reads the host's memory, also where there is no cgroup2 and hence no [`CgroupFs`](crate::CgroupFs).
#[derive(Debug)]
pub struct HostMemory(Mutex<State>);

#[derive(Debug)]
struct State {
    meminfo: Option<OwnedFd>,
    memory_pressure: Option<OwnedFd>,
    io_pressure: Option<OwnedFd>,
    buffer: Buffer,
    /// The last one that could be read, and when.
    watermark: Option<(Bytes, Instant)>,
}

impl Default for HostMemory {
    fn default() -> Self {
        HostMemory(Mutex::new(State {
            meminfo: open("/proc/meminfo"),
            memory_pressure: open("/proc/pressure/memory"),
            io_pressure: open("/proc/pressure/io"),
            buffer: Buffer::new(),
            watermark: None,
        }))
    }
}

impl HostMemory {
    /// Its current state. A value that cannot be read is `None`.
    pub fn read(&self) -> Host {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *state;
        let info = parse::memory::meminfo(text(state.meminfo.as_ref(), &mut state.buffer));
        let lasts = |(_, read): (Bytes, Instant)| read.elapsed() < WATERMARKS_LAST;
        if !state.watermark.is_some_and(lasts) {
            let pages = open("/proc/zoneinfo")
                .and_then(|zoneinfo| state.buffer.pread(zoneinfo, true).ok())
                .and_then(|()| parse::memory::kept_free_pages(state.buffer.bytes()));
            // The watermarks hardly change: a failed read leaves the last ones.
            if let Some(pages) = pages {
                let bytes = Bytes(pages.saturating_mul(rustix::param::page_size() as u64));
                state.watermark = Some((bytes, Instant::now()));
            }
        }
        let memory = parse::psi::totals(text(state.memory_pressure.as_ref(), &mut state.buffer));
        let io = parse::psi::totals(text(state.io_pressure.as_ref(), &mut state.buffer));
        Host {
            total: info.total,
            free: info.free,
            file: info.file(),
            swap: info.swap_total,
            high_watermark: state.watermark.map(|(bytes, _)| bytes),
            pressure: parse::psi::pressure(memory, io),
        }
    }
}

/// The text of a file. Empty if it cannot be read, so that every value in it is unknown.
fn text<'a>(file: Option<&OwnedFd>, buffer: &'a mut Buffer) -> &'a [u8] {
    match file.map(|file| buffer.pread(file, false)) {
        Some(Ok(())) => buffer.bytes(),
        _ => &[],
    }
}

fn open(path: &str) -> Option<OwnedFd> {
    open_at(CWD, path, OFlags::RDONLY).ok()
}

/// True in the initial pid namespace.
pub fn sees_all_processes() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    // PROC_PID_INIT_INO (`include/linux/proc_ns.h`).
    const INITIAL: u64 = 0xEFFF_FFFC;
    std::fs::metadata("/proc/self/ns/pid").is_ok_and(|namespace| namespace.ino() == INITIAL)
}

/// Id of this boot (`/proc/sys/kernel/random/boot_id`). Cgroups, and all that is kept of them, end with the
/// boot.
pub fn boot_id() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    id.map_or_else(|_| "unknown".to_owned(), |id| id.trim().to_owned())
}

/// Resident memory of this process (`/proc/self/statm`), file-backed pages included, bytes. `None`: cannot be read.
pub fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    pages.checked_mul(rustix::param::page_size() as u64)
}

/// Time since this boot, suspends included.
pub fn now_boottime() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_has_memory_and_watermarks() {
        let host = HostMemory::default().read();
        let (total, free) = (host.total.unwrap(), host.free.unwrap());
        assert!(free <= total && total > Bytes::mib(1));
        assert!(host.file.unwrap() < total);
        assert!(host.high_watermark.unwrap() < total);
    }

    #[test]
    fn this_host_has_pressure_where_its_kernel_counts_it() {
        let then = HostMemory::default();
        let (first, second) = (then.read().pressure, then.read().pressure);
        // If PSI is compiled in and switched off, the file exists but reads fail.
        let counted = |name| std::fs::read(format!("/proc/pressure/{name}")).is_ok();
        assert_eq!(first.memory_some_us.is_some(), counted("memory"));
        assert_eq!(first.io_some_us.is_some(), counted("io"));
        assert!(second.io_some_us >= first.io_some_us);
    }
}
