//! A reader whose working set fits into memory, and a neighbor that scans more than memory holds.
//!
//! Both measure their own latency: the reader in a quiet phase, and both while the scan runs. An operation is
//! one request.

use std::cell::Cell;
use std::fs::OpenOptions;
use std::io::{Seek as _, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::clock::{after, rest_until};
use super::io::{open, read_all, Buffer};
use super::phases::{PRESSED, QUIET};
use super::random::Rng;
use super::shared::Page;
use super::sharing::{read_once, write_uncached, OWN_FILE};
use super::{Place, Workload};

/// Bytes of a request of the scan.
const SCAN_BYTES: usize = 128 << 10;
/// Bytes of a request of the reader.
const BLOCK_BYTES: usize = 16 << 10;
/// Requests of an offered rate come in bursts of this length: a sleep for each would cost more than a request.
const PACE: Duration = Duration::from_millis(5);

/// The load of one container. Times are seconds after the common start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Worth {
    /// It reads its file sequentially, repeatedly; otherwise random blocks of it.
    pub scans: bool,
    pub file_bytes: u64,
    /// Requests per second that the reader is offered. Without a rate it reads as fast as it can.
    pub rate: Option<u32>,
    /// Begin of the reader's quiet phase.
    pub quiet_from_s: u32,
    /// End of the quiet phase, and begin of the scan.
    pub scan_from_s: u32,
    /// Begin of the phase with the scan, which lasts until the end.
    pub pressed_from_s: u32,
}

impl Workload for Worth {
    fn prepare(&self, place: &Place) -> Result<()> {
        write_uncached(&place.data.join(OWN_FILE), self.file_bytes)
    }

    fn run(&self, place: &Place, page: &Page) -> Result<()> {
        let start = Instant::now();
        let path = place.data.join(OWN_FILE);
        let phase = |now: Instant| match now {
            _ if now >= after(start, self.pressed_from_s) => Some(PRESSED),
            _ if now >= after(start, self.scan_from_s) || now < after(start, self.quiet_from_s) => {
                None
            }
            _ => Some(QUIET),
        };
        let before = Cell::new(start);
        let count = |bytes: u64| {
            let now = Instant::now();
            let took = now - before.replace(now);
            page.add_read(bytes);
            page.add_op(took);
            if let Some(phase) = phase(now).map(|phase| page.phase(phase)) {
                phase.add(bytes, took);
                phase.go_on();
            }
        };
        if self.scans {
            rest_until(after(start, self.scan_from_s), || page.stopped());
            let mut file = open(OpenOptions::new().read(true), false, &path)?;
            let mut buffer = Buffer::new(SCAN_BYTES);
            before.set(Instant::now());
            while !page.stopped() {
                file.seek(SeekFrom::Start(0)).context("seek")?;
                read_all(&mut file, &mut buffer, count, || page.stopped())?;
            }
            return Ok(());
        }
        read_once(&path)?;
        let file = open(OpenOptions::new().read(true), false, &path)?;
        let (mut rng, mut buffer) = (Rng::new(place.seed, 1), Buffer::new(BLOCK_BYTES));
        let blocks = (self.file_bytes / BLOCK_BYTES as u64).max(1);
        let interval = self.rate.map(|rate| Duration::from_secs(1) / rate);
        let mut due = Instant::now();
        before.set(due);
        while !page.stopped() {
            if let Some(interval) = interval {
                let now = Instant::now();
                if due > now + PACE {
                    thread::sleep(due - now);
                    before.set(Instant::now());
                }
                // Requests that are late by more than one pace are dropped, not made up for.
                due = due.max(now.checked_sub(PACE).unwrap_or(now)) + interval;
            }
            let offset = rng.below(blocks) * BLOCK_BYTES as u64;
            file.read_exact_at(buffer.get_mut(), offset)
                .context("pread")?;
            count(BLOCK_BYTES as u64);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phases(scans: bool, rate: Option<u32>) -> Vec<crate::load::phases::PhaseReport> {
        let dir = tempfile::tempdir().unwrap();
        let load = Worth {
            scans,
            file_bytes: 1 << 20,
            rate,
            quiet_from_s: 0,
            scan_from_s: 1,
            pressed_from_s: 1,
        };
        crate::load::run_for(&load, dir.path(), 1500).phase_reports()
    }

    #[test]
    fn a_reader_counts_both_phases_and_a_scan_only_its_own() {
        let reader = phases(false, None);
        assert!(
            reader.iter().all(|phase| phase.bytes > 1 << 20),
            "{reader:?}"
        );
        assert!(reader[QUIET].seconds < Some(1.1) && reader[PRESSED].seconds < Some(0.8));
        let scan = phases(true, None);
        assert_eq!((scan[QUIET].ops, scan[QUIET].seconds), (0, None));
        assert!(scan[PRESSED].bytes > 1 << 20);
    }

    #[test]
    fn a_reader_makes_no_more_requests_than_it_is_offered() {
        let offered = phases(false, Some(1000));
        let requests = offered[QUIET].ops;
        // The quiet phase is a second long, and a busy machine may drop requests.
        assert!((300..1020).contains(&requests), "{requests}");
    }
}
