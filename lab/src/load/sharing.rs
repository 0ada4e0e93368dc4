//! Files that are shared: one container pays for the pages, another one uses them, others want
//! the memory.
//!
//! Every file is written past the page cache and then read, so that its pages are clean and
//! charged to whoever read them first. The *payer* reads the shared file and its own while
//! preparing, and rests. The *user* reads its own while preparing, then the shared file again and
//! again. A *polluter* reads its own, which is not cached, over and over from a given second on.
//!
//! An operation is one request.

use std::cell::Cell;
use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::io::{open, read_all, write, Buffer, DIRECT_ALIGN, IO_BYTES};
use super::shared::Page;
use super::Workload;
use crate::protocol::SharingRole;

/// Where all containers see the shared file.
pub const SHARED_FILE: &str = "/shared/file";
/// Name of a container's own file in its data directory.
pub const OWN_FILE: &str = "own";

/// Bytes per request.
const REQUEST_BYTES: usize = 128 << 10;
/// How often a load that rests looks whether it has to end.
const REST: Duration = Duration::from_millis(50);

/// The load of one container; fields as in [`crate::protocol::Load::Sharing`].
#[derive(Debug)]
pub struct Sharing {
    /// What it does with the shared file.
    pub role: SharingRole,
    /// The shared file.
    pub shared: PathBuf,
    /// Its size.
    pub shared_bytes: u64,
    /// The container's own file.
    pub own: PathBuf,
    /// Its size.
    pub own_bytes: u64,
    /// From one reading of the shared file to the next.
    pub every: Duration,
    /// When a polluter begins, after the start.
    pub from: Duration,
}

impl Workload for Sharing {
    fn prepare(&mut self) -> Result<()> {
        write_uncached(&self.own, self.own_bytes)?;
        if self.role == SharingRole::Payer {
            write_uncached(&self.shared, self.shared_bytes)?;
            read_once(&self.shared)?;
        }
        if self.role != SharingRole::Polluter {
            read_once(&self.own)?;
        }
        Ok(())
    }

    fn run(&self, page: &Page) -> Result<()> {
        let start = Instant::now();
        match self.role {
            SharingRole::Payer => {
                while rest_until(start + Duration::from_secs(3600), page) {}
                Ok(())
            }
            SharingRole::User => again_and_again(&self.shared, start, self.every, page),
            SharingRole::Polluter => {
                rest_until(start + self.from, page);
                again_and_again(&self.own, start, Duration::ZERO, page)
            }
        }
    }
}

/// Writes a file without leaving it in the page cache; its size is rounded down to what direct I/O
/// can write.
pub(crate) fn write_uncached(path: &Path, bytes: u64) -> Result<()> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).context("cannot make the data directory")?;
    }
    let mut options = OpenOptions::new();
    let mut out = open(options.write(true).create_new(true), true, path)?;
    let bytes = bytes / DIRECT_ALIGN as u64 * DIRECT_ALIGN as u64;
    write(&mut out, bytes, &Buffer::new(IO_BYTES), |_| ())?;
    out.sync_all().context("fsync")
}

pub(crate) fn read_once(path: &Path) -> Result<()> {
    let mut file = open(OpenOptions::new().read(true), false, path)?;
    read_all(&mut file, &mut Buffer::new(REQUEST_BYTES), |_| (), || false)
}

/// Reads a file from start to end until the page says stop, a reading every `every` or one after
/// the other. The file stays open: it is in use between two readings too.
fn again_and_again(path: &Path, start: Instant, every: Duration, page: &Page) -> Result<()> {
    let mut file: File = open(OpenOptions::new().read(true), false, path)?;
    let mut buffer = Buffer::new(REQUEST_BYTES);
    let mut next = start;
    while !page.stopped() {
        let before = Cell::new(Instant::now());
        let count = |bytes| {
            page.add_read(bytes);
            let now = Instant::now();
            page.add_op(now - before.replace(now));
        };
        file.seek(SeekFrom::Start(0)).context("seek")?;
        read_all(&mut file, &mut buffer, count, || page.stopped())?;
        next += every;
        rest_until(next, page);
    }
    Ok(())
}

/// Rests until then; false when the page says stop.
pub(crate) fn rest_until(then: Instant, page: &Page) -> bool {
    while !page.stopped() {
        let left = then.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        thread::sleep(left.min(REST));
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::shared::{monotonic_ns, Command, Mapping};

    fn sharing(dir: &Path, role: SharingRole) -> Sharing {
        Sharing {
            role,
            shared: dir.join("shared/file"),
            shared_bytes: 3 << 20,
            own: dir.join(format!("{role:?}/own")),
            own_bytes: 1 << 20,
            every: Duration::from_millis(100),
            from: Duration::from_millis(150),
        }
    }

    #[test]
    fn the_user_reads_what_the_payer_wrote_and_a_polluter_only_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let pages: Vec<Mapping> = (0..3)
            .map(|i| Mapping::create(&dir.path().join(i.to_string())).unwrap())
            .collect();
        let roles = [SharingRole::Payer, SharingRole::User, SharingRole::Polluter];
        let mut loads = roles.map(|role| sharing(dir.path(), role));
        for load in &mut loads {
            load.prepare().unwrap();
        }
        for page in &pages {
            page.go(monotonic_ns());
        }
        thread::scope(|scope| {
            for (load, page) in loads.iter().zip(&pages) {
                scope.spawn(|| load.run(page).unwrap());
            }
            let read = |page: &Mapping| page.counters().read_bytes;
            let deadline = Instant::now() + Duration::from_secs(60);
            while (read(&pages[1]) < 3 << 20 || read(&pages[2]) < 1 << 20)
                && Instant::now() < deadline
            {
                thread::sleep(Duration::from_millis(10));
            }
            for page in &pages {
                page.set_command(Command::Stop);
            }
        });
        let read: Vec<u64> = pages.iter().map(|p| p.counters().read_bytes).collect();
        assert_eq!(read[0], 0, "the payer rests");
        assert!(read[1] >= 3 << 20, "{read:?}");
        assert!(read[2] >= 1 << 20, "{read:?}");
    }
}
