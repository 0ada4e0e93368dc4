//! Skewed random requests to one file, some of them writes.
//!
//! The file is larger than the container's share of the cache, so bandwidth depends on which blocks
//! stay resident: this is the load that shows whether a policy levels down (design.md, section 2).
//! Requests are `pread` / `pwrite` of one block; popularity is zipf, hot blocks are scattered.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::thread;
use std::time::Instant;

use anyhow::{bail, Context, Result};

use super::io::{open, write, Buffer, IO_BYTES};
use super::random::{Rng, Zipf};
use super::shared::Page;
use super::Workload;

/// The load of one container; fields as in [`crate::protocol::Load::Readmix`].
#[derive(Debug)]
pub struct Readmix {
    /// The file.
    pub path: PathBuf,
    /// Worker threads.
    pub threads: u32,
    /// Its size, bytes.
    pub file_bytes: u64,
    /// Bytes per request.
    pub block_bytes: u32,
    /// Percent of requests that write.
    pub write_percent: u32,
    /// Zipf exponent.
    pub zipf_theta: f64,
    /// Seed.
    pub seed: u64,
}

impl Workload for Readmix {
    fn prepare(&mut self) -> Result<()> {
        if let Some(dir) = self.path.parent() {
            fs::create_dir_all(dir).context("cannot make the data directory")?;
        }
        let mut options = OpenOptions::new();
        let mut out = open(options.write(true).create_new(true), false, &self.path)?;
        write(&mut out, self.file_bytes, &Buffer::new(IO_BYTES), |_| ())?;
        out.sync_all().context("fsync")
    }

    fn run(&self, page: &Page) -> Result<()> {
        let blocks = u32::try_from(self.file_bytes / u64::from(self.block_bytes))
            .context("the file has too many blocks")?;
        let zipf = Zipf::new(blocks, self.zipf_theta, &mut Rng::new(self.seed, 0));
        let file = open(OpenOptions::new().read(true).write(true), false, &self.path)?;
        thread::scope(|scope| {
            let workers: Vec<_> = (0..self.threads)
                .map(|n| {
                    let rng = Rng::new(self.seed, u64::from(n) + 1);
                    let (zipf, file) = (&zipf, &file);
                    scope.spawn(move || self.work(zipf, file, rng, page))
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

impl Readmix {
    fn work(&self, zipf: &Zipf, file: &File, mut rng: Rng, page: &Page) -> Result<()> {
        let mut buffer = Buffer::new(self.block_bytes as usize);
        let mut before = Instant::now();
        while !page.stopped() {
            let offset = u64::from(zipf.pick(&mut rng)) * u64::from(self.block_bytes);
            if rng.below(100) < u64::from(self.write_percent) {
                file.write_all_at(buffer.get(), offset).context("pwrite")?;
                page.add_written(self.block_bytes.into());
            } else {
                file.read_exact_at(buffer.get_mut(), offset)
                    .context("pread")?;
                page.add_read(self.block_bytes.into());
            }
            let now = Instant::now();
            page.add_op(now - before);
            before = now;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::shared::{monotonic_ns, Command, Mapping};
    use std::time::Duration;

    #[test]
    fn the_mix_has_the_asked_share_of_writes() {
        let dir = tempfile::tempdir().unwrap();
        let page = Mapping::create(&dir.path().join("page")).unwrap();
        let mut load = Readmix {
            path: dir.path().join("data/file"),
            threads: 2,
            file_bytes: 1 << 20,
            block_bytes: 4096,
            write_percent: 25,
            zipf_theta: 0.9,
            seed: 1,
        };
        load.prepare().unwrap();
        page.go(monotonic_ns());
        thread::scope(|scope| {
            let run = scope.spawn(|| load.run(&page));
            thread::sleep(Duration::from_millis(200));
            page.set_command(Command::Stop);
            run.join().unwrap().unwrap();
        });
        let seen = page.counters();
        let share = seen.write_bytes as f64 / (seen.read_bytes + seen.write_bytes) as f64;
        assert!(
            seen.ops > 100 && (share - 0.25).abs() < 0.1,
            "{share} of {seen:?}"
        );
    }
}
