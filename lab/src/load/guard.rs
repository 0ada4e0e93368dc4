//! The loads of the experiments about the guard: somebody who starts, somebody who dirties pages,
//! a server that reads, and a group that only pays.
//!
//! An operation is 2 MiB of anonymous memory touched, one write of 1 MiB, or one request.

use std::fs::{self, File, OpenOptions};
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::io::{open, Buffer, IO_BYTES};
use super::phases::{PRESSED, QUIET};
use super::random::Rng;
use super::shared::Page;
use super::sharing::{read_once, rest_until, write_uncached};
use super::Workload;
use crate::protocol::GuardRole;

/// Memory is touched in pieces of this size: that of a huge page, where the kernel has them.
const PIECE: usize = 2 << 20;
/// One byte of each page is touched.
const PAGE: usize = 4096;
/// A server that is so late gives up what it missed, as its clients do.
const PATIENCE: Duration = Duration::from_secs(1);

/// The load of one container.
#[derive(Debug)]
pub struct Guard {
    /// What it does.
    pub role: GuardRole,
    /// Its file.
    pub path: PathBuf,
    /// Seed.
    pub seed: u64,
}

fn after(start: Instant, seconds: u32) -> Instant {
    start + Duration::from_secs(seconds.into())
}

impl Workload for Guard {
    fn prepare(&mut self) -> Result<()> {
        if let Some(dir) = self.path.parent() {
            fs::create_dir_all(dir).context("cannot make the data directory")?;
        }
        match self.role {
            GuardRole::Server { file_bytes, .. } => write_uncached(&self.path, file_bytes),
            _ => Ok(()),
        }
    }

    fn run(&self, page: &Page) -> Result<()> {
        let start = Instant::now();
        match self.role {
            GuardRole::Starter {
                bytes,
                quiet_at_s,
                pressed_at_s,
            } => {
                rest_until(after(start, quiet_at_s), page);
                drop(touch(bytes, Some(QUIET), page));
                rest_until(after(start, pressed_at_s), page);
                let held = touch(bytes, Some(PRESSED), page);
                rest(start, page);
                drop(held);
                Ok(())
            }
            GuardRole::Dirtier { bytes, from_s } => {
                rest_until(after(start, from_s), page);
                self.dirty(bytes, page)
            }
            GuardRole::Server { .. } => self.serve(start, page),
            GuardRole::Payer => {
                rest(start, page);
                Ok(())
            }
        }
    }
}

/// Rests until the end.
fn rest(start: Instant, page: &Page) {
    while rest_until(start + Duration::from_secs(86_400), page) {}
}

/// Gets anonymous memory: the kernel gives it as it is touched.
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

impl Guard {
    fn dirty(&self, bytes: u64, page: &Page) -> Result<()> {
        let mut options = OpenOptions::new();
        let file = open(options.write(true).create(true), false, &self.path)?;
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

    fn serve(&self, start: Instant, page: &Page) -> Result<()> {
        let GuardRole::Server {
            file_bytes,
            block_bytes,
            bytes_per_s,
            from_s,
            quiet_from_s,
            quiet_to_s,
            anon_bytes,
            pressed_from_s,
        } = self.role
        else {
            return Ok(());
        };
        rest_until(after(start, from_s), page);
        read_once(&self.path)?;
        let mut requests = Requests {
            file: open(OpenOptions::new().read(true), false, &self.path)?,
            rng: Rng::new(self.seed, 1),
            buffer: Buffer::new(block_bytes as usize),
            blocks: (file_bytes / u64::from(block_bytes)).max(1),
            every: Duration::from_secs_f64(f64::from(block_bytes) / bytes_per_s.max(1) as f64),
        };
        // Requests arrive all the time; only the phases are counted apart.
        requests.answer(after(start, quiet_from_s), None, page)?;
        requests.answer(after(start, quiet_to_s), Some(QUIET), page)?;
        let held = touch(anon_bytes, None, page);
        requests.answer(after(start, pressed_from_s), None, page)?;
        requests.answer(after(start, 86_400), Some(PRESSED), page)?;
        black_box(held);
        Ok(())
    }
}

/// Requests that arrive at a steady rate.
struct Requests {
    file: File,
    rng: Rng,
    buffer: Buffer,
    blocks: u64,
    every: Duration,
}

impl Requests {
    /// Answers them until then, or until the page says stop.
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
    use crate::load::shared::{monotonic_ns, Command, Mapping};
    use std::path::Path;

    fn run(role: GuardRole, dir: &Path, for_ms: u64) -> Mapping {
        let page = Mapping::create(&dir.join("page")).unwrap();
        let mut load = Guard {
            role,
            path: dir.join("set/own"),
            seed: 1,
        };
        load.prepare().unwrap();
        page.go(monotonic_ns());
        thread::scope(|scope| {
            let done = scope.spawn(|| load.run(&page));
            thread::sleep(Duration::from_millis(for_ms));
            page.set_command(Command::Stop);
            done.join().unwrap().unwrap();
        });
        page
    }

    #[test]
    fn a_starter_touches_all_of_it_twice() {
        let dir = tempfile::tempdir().unwrap();
        let role = GuardRole::Starter {
            bytes: 8 << 20,
            quiet_at_s: 0,
            pressed_at_s: 0,
        };
        let reports = run(role, dir.path(), 300).phase_reports();
        assert_eq!(reports.len(), 2);
        for report in &reports {
            assert_eq!((report.bytes, report.ops), (8 << 20, 4), "{report:?}");
            assert!(report.seconds > Some(0.0));
        }
    }

    #[test]
    fn a_server_answers_at_its_rate_and_counts_its_phases_apart() {
        let dir = tempfile::tempdir().unwrap();
        let role = GuardRole::Server {
            file_bytes: 1 << 20,
            block_bytes: 4096,
            bytes_per_s: 1 << 20,
            from_s: 0,
            quiet_from_s: 0,
            quiet_to_s: 1,
            anon_bytes: 1 << 20,
            pressed_from_s: 1,
        };
        let reports = run(role, dir.path(), 1600).phase_reports();
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
        let page = run(role, dir.path(), 200);
        assert!(page.counters().write_bytes > 2 << 20);
        assert_eq!(
            fs::metadata(dir.path().join("set/own")).unwrap().len(),
            2 << 20
        );
        assert!(page.phase_reports().is_empty());
    }
}
