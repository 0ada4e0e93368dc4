//! The page that a load generator and the driver share: commands one way, counters the other.
//!
//! It is a small file on tmpfs, mapped shared by both. Every field is an atomic. Counters only grow; they are
//! added to with relaxed order and read once a second. A sample may be torn between two counters by one
//! operation, never within one counter.
//!
//! Units: `_ns` nanoseconds of `CLOCK_MONOTONIC` (the same clock in every container of a guest,
//! none of which has a time namespace), `_us` microseconds.

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::ops::Deref;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{
    AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::mm::{mmap, munmap, MapFlags, ProtFlags};

use super::clock::{monotonic_ns, sleep_until};
use super::phases::PhaseReport;
use super::phases::{Phase, NAMES};

/// Operations longer than this are counted apart.
pub const SLOW_OP: Duration = Duration::from_secs(2);

/// The driver's command. Ordered: each includes the previous ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Command {
    Wait = 0,
    Prepare = 1,
    /// Start at `start_at_ns`.
    Go = 2,
    Stop = 3,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The process has not mapped the page yet.
    Absent = 0,
    /// Waiting for [`Command::Prepare`].
    Waiting = 1,
    Preparing = 2,
    /// Waiting for [`Command::Go`].
    Prepared = 3,
    Running = 4,
    Finished = 5,
    /// Gave up; the reason is in the container's log.
    Failed = 6,
}

#[derive(Debug, Default)]
#[repr(C)]
pub struct Page {
    command: AtomicU32,
    status: AtomicU32,
    start_at_ns: AtomicU64,
    finished_at_ns: AtomicU64,
    read_bytes: AtomicU64,
    write_bytes: AtomicU64,
    ops: AtomicU64,
    latency_us: AtomicU64,
    slow_ops: AtomicU64,
    max_latency_us: AtomicU64,
    phases: [Phase; NAMES.len()],
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    pub read_bytes: u64,
    pub write_bytes: u64,
    pub ops: u64,
    /// Sum of their latencies, microseconds.
    pub latency_us: u64,
    /// Operations longer than [`SLOW_OP`].
    pub slow_ops: u64,
    pub max_latency_us: u64,
}

impl Page {
    pub fn command(&self) -> Command {
        match self.command.load(Acquire) {
            0 => Command::Wait,
            1 => Command::Prepare,
            2 => Command::Go,
            _ => Command::Stop,
        }
    }

    pub fn set_command(&self, command: Command) {
        self.command.store(command as u32, Release);
    }

    /// Starts the measured phase at `start_at_ns`.
    pub fn go(&self, start_at_ns: u64) {
        self.start_at_ns.store(start_at_ns, Relaxed);
        self.set_command(Command::Go);
    }

    pub fn stopped(&self) -> bool {
        self.command() == Command::Stop
    }

    pub fn status(&self) -> Status {
        match self.status.load(Acquire) {
            0 => Status::Absent,
            1 => Status::Waiting,
            2 => Status::Preparing,
            3 => Status::Prepared,
            4 => Status::Running,
            5 => Status::Finished,
            _ => Status::Failed,
        }
    }

    pub fn set_status(&self, status: Status) {
        self.status.store(status as u32, Release);
    }

    /// Sleeps until the common start.
    pub fn sleep_until_start(&self) {
        sleep_until(self.start_at_ns.load(Relaxed));
    }

    pub fn finished_now(&self) {
        self.finished_at_ns.store(monotonic_ns(), Release);
    }

    pub fn finished_at_s(&self) -> Option<f64> {
        let end = self.finished_at_ns.load(Acquire);
        let start = self.start_at_ns.load(Relaxed);
        (end > start && start > 0).then(|| (end - start) as f64 / 1e9)
    }

    pub fn add_read(&self, bytes: u64) {
        self.read_bytes.fetch_add(bytes, Relaxed);
    }

    pub fn add_written(&self, bytes: u64) {
        self.write_bytes.fetch_add(bytes, Relaxed);
    }

    pub fn add_op(&self, latency: Duration) {
        let us = latency.as_micros() as u64;
        self.ops.fetch_add(1, Relaxed);
        self.latency_us.fetch_add(us, Relaxed);
        if us > self.max_latency_us.load(Relaxed) {
            self.max_latency_us.fetch_max(us, Relaxed);
        }
        if latency > SLOW_OP {
            self.slow_ops.fetch_add(1, Relaxed);
        }
    }

    /// Counts requests that follow each other without a pause: the bytes that each one read, and its latency.
    pub fn count_reads(&self) -> impl Fn(u64) + '_ {
        let before = Cell::new(Instant::now());
        move |bytes| {
            let now = Instant::now();
            self.add_read(bytes);
            self.add_op(now - before.replace(now));
        }
    }

    pub fn phase(&self, phase: usize) -> &Phase {
        &self.phases[phase.min(NAMES.len() - 1)]
    }

    /// The phases that had operations; empty for loads without phases.
    pub fn phase_reports(&self) -> Vec<PhaseReport> {
        let reports: Vec<PhaseReport> = NAMES
            .iter()
            .zip(&self.phases)
            .map(|(name, phase)| phase.report(name))
            .collect();
        if reports.iter().all(|report| report.ops == 0) {
            return Vec::new();
        }
        reports
    }

    pub fn counters(&self) -> Counters {
        Counters {
            read_bytes: self.read_bytes.load(Relaxed),
            write_bytes: self.write_bytes.load(Relaxed),
            ops: self.ops.load(Relaxed),
            latency_us: self.latency_us.load(Relaxed),
            slow_ops: self.slow_ops.load(Relaxed),
            max_latency_us: self.max_latency_us.load(Relaxed),
        }
    }
}

/// A [`Page`] mapped from a file.
#[derive(Debug)]
pub struct Mapping {
    page: NonNull<Page>,
}

// SAFETY: the mapping lives as long as the value, and `Page` consists of atomics only, so it may be
// used from any thread.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Creates the file, all zero, and maps it.
    pub fn create(path: &Path) -> Result<Self> {
        let file =
            File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
        file.set_len(size_of::<Page>() as u64)?;
        Self::open(path)
    }

    pub fn open(path: &Path) -> Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .with_context(|| format!("cannot open {}", path.display()))?;
        anyhow::ensure!(
            file.metadata()?.len() >= size_of::<Page>() as u64,
            "{} is too small to be a shared page",
            path.display()
        );
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing; the file
        // is at least one `Page` long, so no access faults.
        let address = unsafe {
            mmap(
                std::ptr::null_mut(),
                size_of::<Page>(),
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &file,
                0,
            )
        }
        .with_context(|| format!("cannot map {}", path.display()))?;
        let page = NonNull::new(address.cast()).context("mmap returned address zero")?;
        Ok(Self { page })
    }
}

impl Deref for Mapping {
    type Target = Page;

    fn deref(&self) -> &Page {
        // SAFETY: `page` points to a live, page-aligned mapping of at least one `Page`; every bit
        // pattern is a valid `Page`; the other process changes it only through atomics.
        unsafe { self.page.as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is the mapping made in `open`, and no reference outlives `self`. A failure
        // leaves a mapping behind, which is harmless.
        let _ = unsafe { munmap(self.page.as_ptr().cast(), size_of::<Page>()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_see_each_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("page");
        let driver = Mapping::create(&path).unwrap();
        let load = Mapping::open(&path).unwrap();
        assert_eq!(load.command(), Command::Wait);
        driver.go(monotonic_ns());
        assert_eq!(load.command(), Command::Go);
        load.add_written(10);
        load.add_read(5);
        load.add_op(Duration::from_millis(3));
        load.add_op(Duration::from_secs(3));
        load.finished_now();
        let seen = driver.counters();
        assert_eq!((seen.read_bytes, seen.write_bytes, seen.ops), (5, 10, 2));
        assert_eq!(
            (seen.slow_ops, seen.max_latency_us, seen.latency_us),
            (1, 3_000_000, 3_003_000)
        );
        assert!(driver.finished_at_s().is_some());
    }

    #[test]
    fn a_short_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("page");
        std::fs::write(&path, b"x").unwrap();
        assert!(Mapping::open(&path).is_err());
    }
}
