//! Shared files: one container pays for the pages, another uses them, others compete for the memory.
//!
//! Every file is written past the page cache and then read, so that its pages are clean and charged to the
//! container that reads them first. The *payer* reads the shared file and its own while preparing, and then
//! rests. The *user* reads its own while preparing, then the shared file repeatedly. A *polluter* reads its
//! own, which is not cached, repeatedly from a given second on.
//!
//! An operation is one request.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::clock::{after, rest_until};
use super::io::{make, open, read_all, Buffer, DIRECT_ALIGN};
use super::shared::Page;
use super::{Place, Workload};

/// Name of the shared file in the directory that containers share.
pub const SHARED_FILE: &str = "file";
/// Name of a container's own file in its data directory.
pub const OWN_FILE: &str = "own";

const REQUEST_BYTES: usize = 128 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SharingRole {
    /// Touches it first and is charged for it.
    Payer,
    /// Reads it repeatedly.
    User,
    /// Competes for the memory.
    Polluter,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sharing {
    pub role: SharingRole,
    pub shared_bytes: u64,
    pub own_bytes: u64,
    /// Seconds from one reading of the shared file to the next.
    pub every_s: u32,
    /// Second at which a polluter begins.
    pub from_s: u32,
}

impl Workload for Sharing {
    fn prepare(&self, place: &Place) -> Result<()> {
        let own = place.data.join(OWN_FILE);
        write_uncached(&own, self.own_bytes)?;
        if self.role == SharingRole::Payer {
            let shared = place.shared.join(SHARED_FILE);
            write_uncached(&shared, self.shared_bytes)?;
            read_once(&shared)?;
        }
        if self.role != SharingRole::Polluter {
            read_once(&own)?;
        }
        Ok(())
    }

    fn run(&self, place: &Place, page: &Page) -> Result<()> {
        let start = Instant::now();
        match self.role {
            SharingRole::Payer => {
                rest(start, page);
                Ok(())
            }
            SharingRole::User => {
                let shared = place.shared.join(SHARED_FILE);
                let every = Duration::from_secs(self.every_s.into());
                again_and_again(&shared, start, every, page)
            }
            SharingRole::Polluter => {
                rest_until(after(start, self.from_s), || page.stopped());
                again_and_again(&place.data.join(OWN_FILE), start, Duration::ZERO, page)
            }
        }
    }

    fn caching_counts(&self) -> bool {
        true
    }

    fn shares_files(&self) -> bool {
        true
    }
}

/// Writes a file without leaving it in the page cache; its size is rounded down to one that direct I/O can
/// write.
pub(crate) fn write_uncached(path: &Path, bytes: u64) -> Result<()> {
    make(
        path,
        bytes / DIRECT_ALIGN as u64 * DIRECT_ALIGN as u64,
        true,
    )
}

pub(crate) fn read_once(path: &Path) -> Result<()> {
    let mut file = open(OpenOptions::new().read(true), false, path)?;
    read_all(&mut file, &mut Buffer::new(REQUEST_BYTES), |_| (), || false)
}

/// Rests until it is stopped.
pub(super) fn rest(start: Instant, page: &Page) {
    while rest_until(after(start, 86_400), || page.stopped()) {}
}

/// Reads a file from start to end until the page says stop, once per `every` or back to back. The file stays
/// open, so it is also in use between two reads.
fn again_and_again(path: &Path, start: Instant, every: Duration, page: &Page) -> Result<()> {
    let mut file: File = open(OpenOptions::new().read(true), false, path)?;
    let mut buffer = Buffer::new(REQUEST_BYTES);
    let mut next = start;
    while !page.stopped() {
        let count = page.count_reads();
        file.seek(SeekFrom::Start(0)).context("seek")?;
        read_all(&mut file, &mut buffer, count, || page.stopped())?;
        next += every;
        rest_until(next, || page.stopped());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::load::clock::monotonic_ns;
    use crate::load::shared::{Command, Mapping};

    fn sharing(role: SharingRole) -> Sharing {
        Sharing {
            role,
            shared_bytes: 3 << 20,
            own_bytes: 1 << 20,
            every_s: 0,
            from_s: 0,
        }
    }

    #[test]
    fn the_user_reads_what_the_payer_wrote_and_a_polluter_only_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let pages: Vec<Mapping> = (0..3)
            .map(|i| Mapping::create(&dir.path().join(i.to_string())).unwrap())
            .collect();
        let roles = [SharingRole::Payer, SharingRole::User, SharingRole::Polluter];
        let loads = roles.map(|role| {
            let place = Place {
                data: dir.path().join(format!("{role:?}")),
                ..crate::load::in_dir(dir.path(), 1)
            };
            (sharing(role), place)
        });
        for (load, place) in &loads {
            load.prepare(place).unwrap();
        }
        for page in &pages {
            page.go(monotonic_ns());
        }
        thread::scope(|scope| {
            for ((load, place), page) in loads.iter().zip(&pages) {
                scope.spawn(|| load.run(place, page).unwrap());
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
