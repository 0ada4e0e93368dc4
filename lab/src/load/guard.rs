//! The loads of the experiments about the guard: an application that starts, a writer that dirties pages, a
//! server that reads, and a group that only pays.
//!
//! An operation is 2 MiB of anonymous memory touched, one write of 1 MiB, or one request.

use std::fs::{self, File, OpenOptions};
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::clock::{after, rest_until};
use super::io::{open, Buffer, IO_BYTES};
use super::phases::{PRESSED, QUIET};
use super::random::Rng;
use super::shared::Page;
use super::sharing::{read_once, rest, write_uncached, OWN_FILE};
use super::{Place, Workload};

/// Memory is touched in pieces of this size, that of a huge page where the kernel has them.
const PIECE: usize = 2 << 20;
/// One byte of each page is touched.
const PAGE: usize = 4096;
/// A server that is later than this gives up the missed requests, as its clients do.
const PATIENCE: Duration = Duration::from_secs(1);

/// The role of a container in these experiments. Times are seconds after the common start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuardRole {
    /// An application that starts: touches anonymous memory once while nothing else happens, frees it, and
    /// touches the same amount again under pressure.
    Starter {
        bytes: u64,
        quiet_at_s: u32,
        pressed_at_s: u32,
    },
    /// Rewrites a file repeatedly, so that the page cache fills with dirty pages.
    Dirtier {
        bytes: u64,
        from_s: u32,
    },
    Server(Server),
    Payer,
}

/// Answers requests: reads random blocks of a file at a steady rate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Server {
    pub file_bytes: u64,
    pub block_bytes: u32,
    pub bytes_per_s: u64,
    /// Time of a complete read of the file.
    pub from_s: u32,
    pub quiet_from_s: u32,
    /// End of the quiet phase; then its anonymous memory grows.
    pub quiet_to_s: u32,
    pub anon_bytes: u64,
    /// Begin of the phase under pressure, which lasts until the end.
    pub pressed_from_s: u32,
}

impl Workload for GuardRole {
    fn prepare(&self, place: &Place) -> Result<()> {
        fs::create_dir_all(&place.data).context("cannot make the data directory")?;
        match self {
            Self::Server(server) => write_uncached(&own(place), server.file_bytes),
            _ => Ok(()),
        }
    }

    fn run(&self, place: &Place, page: &Page) -> Result<()> {
        let start = Instant::now();
        match self {
            &Self::Starter {
                bytes,
                quiet_at_s,
                pressed_at_s,
            } => {
                rest_until(after(start, quiet_at_s), || page.stopped());
                drop(touch(bytes, Some(QUIET), page));
                rest_until(after(start, pressed_at_s), || page.stopped());
                let held = touch(bytes, Some(PRESSED), page);
                rest(start, page);
                drop(held);
                Ok(())
            }
            &Self::Dirtier { bytes, from_s } => {
                rest_until(after(start, from_s), || page.stopped());
                dirty(&own(place), bytes, page)
            }
            Self::Server(server) => server.serve(place, start, page),
            Self::Payer => {
                rest(start, page);
                Ok(())
            }
        }
    }
}

/// Allocates anonymous memory by touching it.
fn touch(bytes: u64, phase: Option<usize>, page: &Page) -> Vec<u8> {
    let phase = phase.map(|phase| page.phase(phase));
    let mut memory = vec![0_u8; bytes as usize];
    if let Some(phase) = phase {
        phase.begin();
    }
    for piece in memory.chunks_mut(PIECE) {
        let began = Instant::now();
        for byte in piece.iter_mut().step_by(PAGE) {
            *black_box(byte) = 1;
        }
        if let Some(phase) = phase {
            phase.add(piece.len() as u64, began.elapsed());
            page.add_op(began.elapsed());
        }
        if page.stopped() {
            break;
        }
    }
    if let Some(phase) = phase {
        phase.end();
    }
    memory
}

fn own(place: &Place) -> PathBuf {
    place.data.join(OWN_FILE)
}

fn dirty(path: &Path, bytes: u64, page: &Page) -> Result<()> {
    let mut options = OpenOptions::new();
    let file = open(options.write(true).create(true), false, path)?;
    let buffer = Buffer::new(IO_BYTES);
    let mut offset = 0;
    while !page.stopped() {
        let began = Instant::now();
        file.write_all_at(buffer.get(), offset).context("write")?;
        page.add_written(IO_BYTES as u64);
        page.add_op(began.elapsed());
        offset = (offset + IO_BYTES as u64) % bytes.max(IO_BYTES as u64);
    }
    Ok(())
}

impl Server {
    fn serve(&self, place: &Place, start: Instant, page: &Page) -> Result<()> {
        let block_bytes = f64::from(self.block_bytes);
        rest_until(after(start, self.from_s), || page.stopped());
        read_once(&own(place))?;
        let mut requests = Requests {
            file: open(OpenOptions::new().read(true), false, &own(place))?,
            rng: Rng::new(place.seed, 1),
            buffer: Buffer::new(self.block_bytes as usize),
            blocks: (self.file_bytes / u64::from(self.block_bytes)).max(1),
            every: Duration::from_secs_f64(block_bytes / self.bytes_per_s.max(1) as f64),
        };
        // Requests arrive throughout, but only the phases count them separately.
        requests.answer(after(start, self.quiet_from_s), None, page)?;
        requests.answer(after(start, self.quiet_to_s), Some(QUIET), page)?;
        let held = touch(self.anon_bytes, None, page);
        requests.answer(after(start, self.pressed_from_s), None, page)?;
        requests.answer(after(start, 86_400), Some(PRESSED), page)?;
        black_box(held);
        Ok(())
    }
}

struct Requests {
    file: File,
    rng: Rng,
    buffer: Buffer,
    blocks: u64,
    every: Duration,
}

impl Requests {
    /// Answers requests until the given time, or until the page says stop.
    fn answer(&mut self, until: Instant, phase: Option<usize>, page: &Page) -> Result<()> {
        let phase = phase.map(|phase| page.phase(phase));
        if let Some(phase) = phase {
            phase.begin();
        }
        let mut due = Instant::now();
        while !page.stopped() && due < until {
            let bytes = self.buffer.get().len() as u64;
            let offset = self.rng.below(self.blocks) * bytes;
            let began = Instant::now();
            self.file
                .read_exact_at(self.buffer.get_mut(), offset)
                .context("pread")?;
            let now = Instant::now();
            page.add_read(bytes);
            page.add_op(now - began);
            if let Some(phase) = phase {
                phase.add(bytes, now - began);
                phase.end();
            }
            due += self.every;
            if due + PATIENCE < now {
                due = now;
            }
            thread::sleep(due.saturating_duration_since(now));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::run_for as run;

    #[test]
    fn a_starter_touches_all_of_it_twice() {
        let dir = tempfile::tempdir().unwrap();
        let role = GuardRole::Starter {
            bytes: 8 << 20,
            quiet_at_s: 0,
            pressed_at_s: 0,
        };
        let reports = run(&role, dir.path(), 300).phase_reports();
        assert_eq!(reports.len(), 2);
        for report in &reports {
            assert_eq!((report.bytes, report.ops), (8 << 20, 4), "{report:?}");
            assert!(report.seconds > Some(0.0));
        }
    }

    #[test]
    fn a_server_answers_at_its_rate_and_counts_its_phases_apart() {
        let dir = tempfile::tempdir().unwrap();
        let role = GuardRole::Server(Server {
            file_bytes: 1 << 20,
            block_bytes: 4096,
            bytes_per_s: 1 << 20,
            from_s: 0,
            quiet_from_s: 0,
            quiet_to_s: 1,
            anon_bytes: 1 << 20,
            pressed_from_s: 1,
        });
        let reports = run(&role, dir.path(), 1600).phase_reports();
        let rate = reports[QUIET].bytes as f64 / reports[QUIET].seconds.unwrap();
        assert!((0.7..1.3).contains(&(rate / f64::from(1 << 20))), "{rate}");
        assert!(reports[PRESSED].ops > 20 && reports[PRESSED].p99_us.is_some());
    }

    #[test]
    fn a_dirtier_writes_its_file_over_and_over() {
        let dir = tempfile::tempdir().unwrap();
        let role = GuardRole::Dirtier {
            bytes: 2 << 20,
            from_s: 0,
        };
        let page = run(&role, dir.path(), 200);
        assert!(page.counters().write_bytes > 2 << 20);
        assert_eq!(
            fs::metadata(dir.path().join("data/own")).unwrap().len(),
            2 << 20
        );
        assert!(page.phase_reports().is_empty());
    }
}
