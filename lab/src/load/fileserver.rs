//! Filebench's fileserver personality.
//!
//! Each thread repeats: create a new file and write all of it; append to a random file; read a random file
//! completely; delete a random file; stat a random file. Creations and deletions keep the set at its
//! preallocated level. Nothing is rewritten in place and nothing is truncated, so ext4's `auto_da_alloc`
//! (flush on close of a truncated or renamed-over file) has no effect here.
//!
//! Differences from filebench's `fileserver.f`: an append is uniform between 1 and twice `append_bytes`, so
//! that the parameter is the mean (filebench's `$meanappendsize` is the maximum); reads and appends per
//! create are parameters, for read-mostly and append-mostly mixes; all threads of a container belong to one
//! process.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{ensure, Context, Result};
use serde::{Deserialize, Serialize};

use super::fileset::State::{self, Absent, Existing};
use super::fileset::{path_of, FileSet};
use super::io::{open, read_all, write, Buffer, DIRECT_ALIGN, IO_BYTES};
use super::random::Rng;
use super::shared::Page;
use super::{join, Place, Workload};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Mix {
    pub threads: u32,
    /// Files in the set of each container.
    pub files: u32,
    /// Mean size of a file (gamma distributed, shape 1.5, as in filebench).
    pub mean_file_bytes: u64,
    pub append_bytes: u64,
    /// Fraction of the set that exists before the run, percent.
    pub prealloc_percent: u32,
    /// Whole-file reads per new file (1 is filebench's personality).
    pub reads_per_write: u32,
    /// Appends per new file (1 is filebench's personality).
    pub appends_per_write: u32,
}

impl Default for Mix {
    /// Filebench's file size, append size and mix; fewer threads and files, for a small guest.
    fn default() -> Self {
        Self {
            threads: 4,
            files: 800,
            mean_file_bytes: 128 << 10,
            append_bytes: 16 << 10,
            prealloc_percent: 80,
            reads_per_write: 1,
            appends_per_write: 1,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Fileserver {
    #[serde(flatten)]
    pub mix: Mix,
    /// `O_DIRECT` instead of the page cache.
    pub direct: bool,
    /// Busy for this many seconds, then idle as long; `None`: always busy.
    pub duty_s: Option<u32>,
    /// Anonymous memory that grows at this rate while the load runs; 0: none.
    pub anon_growth_bytes_per_s: u64,
    /// Limit of that growth.
    pub anon_most_bytes: u64,
}

impl Fileserver {
    /// Draws the file set, the same in each call; writes nothing.
    fn set(&self, place: &Place) -> FileSet {
        let mix = &self.mix;
        let align = if self.direct { DIRECT_ALIGN as u64 } else { 1 };
        let existing = u64::from(mix.files) * u64::from(mix.prealloc_percent.min(100)) / 100;
        let mut rng = Rng::new(place.seed, 0);
        FileSet::new(
            mix.files,
            mix.mean_file_bytes,
            align,
            existing as u32,
            &mut rng,
        )
    }

    fn work(&self, place: &Place, set: &FileSet, page: &Page) -> Result<()> {
        let start = Instant::now();
        let duty = self.duty_s.filter(|&s| s > 0);
        let duty = duty.map(|s| Duration::from_secs(s.into()));
        thread::scope(|scope| {
            if self.anon_growth_bytes_per_s > 0 {
                scope.spawn(|| grow(self.anon_growth_bytes_per_s, self.anon_most_bytes, page));
            }
            let workers: Vec<_> = (0..self.mix.threads)
                .map(|n| {
                    let worker = Worker {
                        load: self,
                        root: &place.data,
                        set,
                        duty,
                        page,
                        rng: Rng::new(place.seed, u64::from(n) + 1),
                        buffer: Buffer::new(IO_BYTES),
                        start,
                    };
                    scope.spawn(|| worker.run())
                })
                .collect();
            join(workers)
        })
    }
}

impl Workload for Fileserver {
    fn prepare(&self, place: &Place) -> Result<()> {
        let Mix { threads, files, .. } = self.mix;
        ensure!(threads >= 1, "a fileserver load needs at least one thread");
        ensure!(
            files >= 2 * threads,
            "{files} files are too few for {threads} threads: give at least two per thread"
        );
        let set = self.set(place);
        for dir in set.directories() {
            fs::create_dir_all(place.data.join(dir)).context("cannot make the directories")?;
        }
        let buffer = Buffer::new(IO_BYTES);
        for file in set.existing() {
            let path = place.data.join(path_of(file));
            let mut options = OpenOptions::new();
            let mut out = open(options.write(true).create_new(true), self.direct, &path)?;
            write(&mut out, set.size(file), &buffer, |_| ())?;
        }
        Ok(())
    }

    fn run(&self, place: &Place, page: &Page) -> Result<()> {
        self.work(place, &self.set(place), page)
    }
}

struct Worker<'a> {
    load: &'a Fileserver,
    root: &'a Path,
    set: &'a FileSet,
    duty: Option<Duration>,
    page: &'a Page,
    rng: Rng,
    buffer: Buffer,
    start: Instant,
}

impl Worker<'_> {
    fn run(mut self) -> Result<()> {
        while !self.page.stopped() {
            let idle = |duty| idle_left(self.start.elapsed(), duty);
            if let Some(rest) = self.duty.and_then(idle) {
                thread::sleep(rest.min(Duration::from_millis(200)));
                continue;
            }
            self.cycle()?;
        }
        Ok(())
    }

    fn cycle(&mut self) -> Result<()> {
        self.timed(Absent, Self::create, Existing)?;
        for _ in 0..self.load.mix.appends_per_write {
            self.timed(Existing, Self::append, Existing)?;
        }
        for _ in 0..self.load.mix.reads_per_write {
            self.timed(Existing, Self::read, Existing)?;
        }
        self.timed(Existing, Self::delete, Absent)?;
        self.timed(Existing, Self::stat, Existing)
    }

    /// Takes a file from one state into another by an operation and counts the operation, unless there is no
    /// file to work on.
    fn timed(
        &mut self,
        from: State,
        op: fn(&mut Self, u32) -> Result<()>,
        to: State,
    ) -> Result<()> {
        if self.page.stopped() {
            return Ok(());
        }
        let begin = Instant::now();
        if let Some(file) = self.set.take(from, &mut self.rng) {
            op(self, file)?;
            self.set.put(to, file);
            self.page.add_op(begin.elapsed());
        }
        Ok(())
    }

    fn path(&self, file: u32) -> PathBuf {
        self.root.join(path_of(file))
    }

    fn create(&mut self, file: u32) -> Result<()> {
        let (direct, path) = (self.load.direct, self.path(file));
        let mut options = OpenOptions::new();
        let mut out = open(options.write(true).create_new(true), direct, &path)?;
        let size = self.set.size(file);
        write(&mut out, size, &self.buffer, |n| self.page.add_written(n))
    }

    fn append(&mut self, file: u32) -> Result<()> {
        let mut options = OpenOptions::new();
        let mut out = open(options.append(true), self.load.direct, &self.path(file))?;
        let mut size = 1 + self.rng.below(2 * self.load.mix.append_bytes.max(1));
        if self.load.direct {
            size = size.next_multiple_of(DIRECT_ALIGN as u64);
        }
        write(&mut out, size, &self.buffer, |n| self.page.add_written(n))?;
        Ok(out.flush()?)
    }

    fn read(&mut self, file: u32) -> Result<()> {
        let path = self.path(file);
        let mut input = open(OpenOptions::new().read(true), self.load.direct, &path)?;
        let page = self.page;
        read_all(&mut input, &mut self.buffer, |n| page.add_read(n), || false)
    }

    fn delete(&mut self, file: u32) -> Result<()> {
        fs::remove_file(self.path(file)).context("cannot delete a file")
    }

    fn stat(&mut self, file: u32) -> Result<()> {
        let looked = fs::metadata(self.path(file));
        looked.map(drop).context("cannot stat a file")
    }
}

/// The rest of an idle period; `None` in a busy one. Periods alternate, the first is busy.
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
    use crate::load::clock::monotonic_ns;
    use crate::load::shared::{Command, Mapping};

    const LOAD: Fileserver = Fileserver {
        mix: Mix {
            threads: 3,
            files: 60,
            mean_file_bytes: 8192,
            append_bytes: 1024,
            prealloc_percent: 80,
            reads_per_write: 1,
            appends_per_write: 1,
        },
        direct: false,
        duty_s: None,
        anon_growth_bytes_per_s: 0,
        anon_most_bytes: 0,
    };

    #[test]
    fn a_short_run_reads_writes_and_keeps_the_level() {
        let dir = tempfile::tempdir().unwrap();
        let page = Mapping::create(&dir.path().join("page")).unwrap();
        let place = crate::load::in_dir(dir.path(), 9);
        LOAD.prepare(&place).unwrap();
        let set = LOAD.set(&place);
        assert_eq!(set.existing().len(), 48);
        page.go(monotonic_ns());
        thread::scope(|scope| {
            let run = scope.spawn(|| LOAD.work(&place, &set, &page));
            thread::sleep(Duration::from_millis(200));
            page.set_command(Command::Stop);
            run.join().unwrap().unwrap();
        });
        let seen = page.counters();
        assert!(
            seen.read_bytes > 0 && seen.write_bytes > 0 && seen.ops > 10,
            "{seen:?}"
        );
        let level = set.existing().len();
        assert!((45..=51).contains(&level), "{level}");
        // The set agrees with the disk.
        for file in 0..60 {
            let there = place.data.join(path_of(file)).exists();
            assert_eq!(there, set.existing().contains(&file));
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
