//! Skewed random requests to one file; some of them write.
//!
//! The file is larger than the container's share of the cache, so bandwidth depends on which blocks stay
//! resident. This load shows whether a policy levels down (design.md, section 2). Requests are `pread` /
//! `pwrite` of one block; popularity is zipf, hot blocks are scattered.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::Instant;

use anyhow::{ensure, Context, Result};
use serde::{Deserialize, Serialize};

use super::io::{make, open, Buffer};
use super::random::{Rng, Zipf};
use super::shared::Page;
use super::{join, Place, Workload};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Readmix {
    pub threads: u32,
    pub file_bytes: u64,
    pub block_bytes: u32,
    pub write_percent: u32,
    /// Zipf exponent of the block popularity.
    pub zipf_theta: f64,
}

impl Default for Readmix {
    /// 300 MB in 768 MB of memory, read-mostly.
    fn default() -> Self {
        Self {
            threads: 4,
            file_bytes: 300_000_000 / 65_536 * 65_536,
            block_bytes: 65_536,
            write_percent: 5,
            zipf_theta: 1.2,
        }
    }
}

impl Workload for Readmix {
    fn prepare(&self, place: &Place) -> Result<()> {
        let (block_bytes, file_bytes) = (self.block_bytes, self.file_bytes);
        ensure!(
            self.threads >= 1,
            "a readmix load needs at least one thread"
        );
        ensure!(
            block_bytes > 0 && file_bytes >= u64::from(block_bytes),
            "a readmix file must hold at least one block of {block_bytes} bytes"
        );
        make(&place.file(), file_bytes, false)
    }

    fn run(&self, place: &Place, page: &Page) -> Result<()> {
        let blocks = u32::try_from(self.file_bytes / u64::from(self.block_bytes))
            .context("the file has too many blocks")?;
        let zipf = Zipf::new(blocks, self.zipf_theta, &mut Rng::new(place.seed, 0));
        let mut options = OpenOptions::new();
        let file = open(options.read(true).write(true), false, &place.file())?;
        thread::scope(|scope| {
            let workers: Vec<_> = (0..self.threads)
                .map(|n| {
                    let rng = Rng::new(place.seed, u64::from(n) + 1);
                    let (zipf, file) = (&zipf, &file);
                    scope.spawn(move || self.work(zipf, file, rng, page))
                })
                .collect();
            join(workers)
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

    #[test]
    fn the_mix_has_the_asked_share_of_writes() {
        let dir = tempfile::tempdir().unwrap();
        let load = Readmix {
            threads: 2,
            file_bytes: 1 << 20,
            block_bytes: 4096,
            write_percent: 25,
            zipf_theta: 0.9,
        };
        let seen = crate::load::run_for(&load, dir.path(), 200).counters();
        let share = seen.write_bytes as f64 / (seen.read_bytes + seen.write_bytes) as f64;
        assert!(
            seen.ops > 100 && (share - 0.25).abs() < 0.1,
            "{share} of {seen:?}"
        );
    }
}
