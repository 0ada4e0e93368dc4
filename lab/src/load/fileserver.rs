//! Filebench's fileserver personality.
//!
//! Each thread repeats: create a new file and write it whole; append to a random file; read a
//! random file whole; delete a random file; stat a random file. Files that come and go keep the
//! set at its preallocated level. Nothing is rewritten in place and nothing is truncated, so ext4's
//! `auto_da_alloc` (flush on close of a truncated or renamed-over file) has nothing to do here.
//!
//! Differences from filebench's `fileserver.f`: an append is uniform between 1 and twice
//! `append_bytes`, so that the parameter is the mean (filebench's `$meanappendsize` is the
//! maximum); reads and appends per create are parameters, for read-mostly and append-mostly mixes;
//! threads are threads of one process per container.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};

use super::fileset::{path_of, FileSet};
use super::io::{open, read_all, write, Buffer, DIRECT_ALIGN, IO_BYTES};
use super::random::Rng;
use super::shared::Page;
use super::Workload;
use crate::protocol::Load;

/// The load of one container.
#[derive(Debug)]
pub struct Fileserver {
    root: PathBuf,
    set: FileSet,
    seed: u64,
    threads: u32,
    append_bytes: u64,
    reads_per_write: u32,
    appends_per_write: u32,
    direct: bool,
    duty: Option<Duration>,
    anon_growth_bytes_per_s: u64,
    anon_most_bytes: u64,
}

impl Fileserver {
    /// Draws the file set; writes nothing yet.
    pub fn new(load: &Load, seed: u64, root: &Path) -> Result<Self> {
        let &Load::Fileserver {
            threads,
            files,
            mean_file_bytes,
            append_bytes,
            prealloc_percent,
            reads_per_write,
            appends_per_write,
            direct,
            duty_s,
            anon_growth_bytes_per_s,
            anon_most_bytes,
        } = load
        else {
            bail!("not a fileserver load");
        };
        let align = if direct { DIRECT_ALIGN as u64 } else { 1 };
        let existing = u64::from(files) * u64::from(prealloc_percent.min(100)) / 100;
        Ok(Self {
            root: root.to_owned(),
            set: FileSet::new(
                files,
                mean_file_bytes,
                align,
                existing as u32,
                &mut Rng::new(seed, 0),
            ),
            seed,
            threads,
            append_bytes: append_bytes.max(1),
            reads_per_write,
            appends_per_write,
            direct,
            duty: duty_s
                .filter(|&s| s > 0)
                .map(|s| Duration::from_secs(s.into())),
            anon_growth_bytes_per_s,
            anon_most_bytes,
        })
    }
}

impl Workload for Fileserver {
    fn prepare(&mut self) -> Result<()> {
        for dir in self.set.directories() {
            fs::create_dir_all(self.root.join(dir)).context("cannot make the directories")?;
        }
        let buffer = Buffer::new(IO_BYTES);
        for file in self.set.existing() {
            let path = self.root.join(path_of(file));
            let mut out = open(
                OpenOptions::new().write(true).create_new(true),
                self.direct,
                &path,
            )?;
            write(&mut out, self.set.size(file), &buffer, |_| ())?;
        }
        Ok(())
    }

    fn run(&self, page: &Page) -> Result<()> {
        let start = Instant::now();
        thread::scope(|scope| {
            if self.anon_growth_bytes_per_s > 0 {
                scope.spawn(|| grow(self.anon_growth_bytes_per_s, self.anon_most_bytes, page));
            }
            let workers: Vec<_> = (0..self.threads)
                .map(|n| {
                    scope.spawn(move || {
                        Worker {
                            load: self,
                            page,
                            rng: Rng::new(self.seed, u64::from(n) + 1),
                            buffer: Buffer::new(IO_BYTES),
                            start,
                        }
                        .run()
                    })
                })
                .collect();
            let mut result = Ok(());
            for worker in workers {
                result = result.and(worker.join().unwrap_or_else(|_| bail!("a worker panicked")));
            }
            result
        })
    }
}

/// One thread.
struct Worker<'a> {
    load: &'a Fileserver,
    page: &'a Page,
    rng: Rng,
    buffer: Buffer,
    start: Instant,
}

impl Worker<'_> {
    fn run(mut self) -> Result<()> {
        while !self.page.stopped() {
            if let Some(rest) = self
                .load
                .duty
                .and_then(|duty| rest_of_idle(self.start, duty))
            {
                thread::sleep(rest.min(Duration::from_millis(200)));
                continue;
            }
            self.cycle()?;
        }
        Ok(())
    }

    fn cycle(&mut self) -> Result<()> {
        self.timed(Self::create)?;
        for _ in 0..self.load.appends_per_write {
            self.timed(Self::append)?;
        }
        for _ in 0..self.load.reads_per_write {
            self.timed(Self::read)?;
        }
        self.timed(Self::delete)?;
        self.timed(Self::stat)
    }

    /// Runs one operation and counts it; one that found no file to work on is not counted.
    fn timed(&mut self, op: fn(&mut Self) -> Result<bool>) -> Result<()> {
        if self.page.stopped() {
            return Ok(());
        }
        let begin = Instant::now();
        if op(self)? {
            self.page.add_op(begin.elapsed());
        }
        Ok(())
    }

    fn path(&self, file: u32) -> PathBuf {
        self.load.root.join(path_of(file))
    }

    fn create(&mut self) -> Result<bool> {
        let Some(file) = self.load.set.take_absent(&mut self.rng) else {
            return Ok(false);
        };
        let mut options = OpenOptions::new();
        let mut out = open(
            options.write(true).create_new(true),
            self.load.direct,
            &self.path(file),
        )?;
        let size = self.load.set.size(file);
        write(&mut out, size, &self.buffer, |n| self.page.add_written(n))?;
        drop(out);
        self.load.set.put_existing(file);
        Ok(true)
    }

    fn append(&mut self) -> Result<bool> {
        let Some(file) = self.load.set.take_existing(&mut self.rng) else {
            return Ok(false);
        };
        let mut options = OpenOptions::new();
        let mut out = open(options.append(true), self.load.direct, &self.path(file))?;
        let mut size = 1 + self.rng.below(2 * self.load.append_bytes);
        if self.load.direct {
            size = size.next_multiple_of(DIRECT_ALIGN as u64);
        }
        write(&mut out, size, &self.buffer, |n| self.page.add_written(n))?;
        out.flush()?;
        drop(out);
        self.load.set.put_existing(file);
        Ok(true)
    }

    fn read(&mut self) -> Result<bool> {
        let Some(file) = self.load.set.take_existing(&mut self.rng) else {
            return Ok(false);
        };
        let path = self.path(file);
        let mut input = open(OpenOptions::new().read(true), self.load.direct, &path)?;
        let page = self.page;
        read_all(&mut input, &mut self.buffer, |n| page.add_read(n), || false)?;
        drop(input);
        self.load.set.put_existing(file);
        Ok(true)
    }

    fn delete(&mut self) -> Result<bool> {
        let Some(file) = self.load.set.take_existing(&mut self.rng) else {
            return Ok(false);
        };
        fs::remove_file(self.path(file)).context("cannot delete a file")?;
        self.load.set.put_absent(file);
        Ok(true)
    }

    fn stat(&mut self) -> Result<bool> {
        let Some(file) = self.load.set.take_existing(&mut self.rng) else {
            return Ok(false);
        };
        fs::metadata(self.path(file)).context("cannot stat a file")?;
        self.load.set.put_existing(file);
        Ok(true)
    }
}

/// What is left of an idle period; `None` in a busy one. Periods alternate, the first is busy.
fn rest_of_idle(start: Instant, duty: Duration) -> Option<Duration> {
    idle_left(start.elapsed(), duty)
}

fn idle_left(elapsed: Duration, duty: Duration) -> Option<Duration> {
    let cycle = 2 * duty.as_nanos();
    let at = elapsed.as_nanos() % cycle;
    (at >= duty.as_nanos()).then(|| Duration::from_nanos((cycle - at) as u64))
}

/// Touches new anonymous memory at `bytes_per_s` until `limit`, then holds it.
fn grow(bytes_per_s: u64, limit: u64, page: &Page) {
    const STEP: Duration = Duration::from_millis(100);
    let piece = (bytes_per_s / 10).max(1) as usize;
    let mut held: Vec<Vec<u8>> = Vec::new();
    while !page.stopped() {
        if ((held.len() + 1) * piece) as u64 <= limit {
            held.push(vec![1; piece]);
        }
        thread::sleep(STEP);
    }
    std::hint::black_box(&held);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::shared::{monotonic_ns, Command, Mapping};

    fn load(direct: bool) -> Load {
        Load::Fileserver {
            threads: 3,
            files: 60,
            mean_file_bytes: 8192,
            append_bytes: 1024,
            prealloc_percent: 80,
            reads_per_write: 1,
            appends_per_write: 1,
            direct,
            duty_s: None,
            anon_growth_bytes_per_s: 0,
            anon_most_bytes: 0,
        }
    }

    #[test]
    fn a_short_run_reads_writes_and_keeps_the_level() {
        let dir = tempfile::tempdir().unwrap();
        let page = Mapping::create(&dir.path().join("page")).unwrap();
        let mut server = Fileserver::new(&load(false), 9, &dir.path().join("data")).unwrap();
        server.prepare().unwrap();
        assert_eq!(server.set.existing().len(), 48);
        page.go(monotonic_ns());
        thread::scope(|scope| {
            let run = scope.spawn(|| server.run(&page));
            thread::sleep(Duration::from_millis(200));
            page.set_command(Command::Stop);
            run.join().unwrap().unwrap();
        });
        let seen = page.counters();
        assert!(
            seen.read_bytes > 0 && seen.write_bytes > 0 && seen.ops > 10,
            "{seen:?}"
        );
        let level = server.set.existing().len();
        assert!((45..=51).contains(&level), "{level}");
        // What the set says is what the disk says.
        for file in 0..60 {
            let there = dir.path().join("data").join(path_of(file)).exists();
            assert_eq!(there, server.set.existing().contains(&file));
        }
    }

    #[test]
    fn duty_periods_alternate() {
        let duty = Duration::from_secs(10);
        assert_eq!(idle_left(Duration::from_secs(3), duty), None);
        assert_eq!(
            idle_left(Duration::from_secs(12), duty),
            Some(Duration::from_secs(8))
        );
        assert_eq!(idle_left(Duration::from_secs(20), duty), None);
    }
}
