//! Files that several groups use, and the groups that their pages are charged to.
//!
//! Every [`EVERY`], three iterators run in the kernel (`bpf/sharing.h`): over open files, over mapped files,
//! and over what was learned of each file. The last one walks the page cache of files that two groups or more
//! have used. Large files are sampled, and the counts are scaled to the whole.
//!
//! Units: pages in the records, bytes in what the policy gets.

use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use justitia_policy::snapshot::{GroupId, SharedFile};
use justitia_policy::units::Bytes;
use libbpf_rs::{Iter, Link, Object, ProgramMut};

use super::choice::Choice;
use super::memory::ControlMemory;
use super::{attach_by, attach_one, find, types, Error};

/// Time between two looks; a use counts for 30 s.
const EVERY: Duration = Duration::from_secs(5);
/// Leaves of 64 pages in one look, all files together: some ten milliseconds.
const LEAVES: usize = 8192;
/// Least and greatest number of leaves for each file.
const LEAVES_OF_A_FILE: (usize, usize) = (16, 2048);
/// Number of files that are reported, the largest first.
const TOLD: usize = 1024;
/// Reads of an iterator that may return nothing yet: it stops after every million objects.
const PATIENCE: usize = 64;

const WORDS: usize = size_of::<types::shared_file>() / size_of::<u64>();

/// The iterators and what they found last.
pub(crate) struct Sharing {
    open_files: Link,
    mapped_files: Link,
    shared_files: Link,
    looked_at: Option<Instant>,
    /// `None` before the first look, or if the last look failed.
    pub(crate) files: Option<Vec<SharedFile>>,
}

impl Sharing {
    /// `None` where the kernel lacks one of the iterators.
    pub(crate) fn start(object: &Object, choice: &Choice) -> Result<Option<Sharing>, Error> {
        let needed = ["files_open", "files_mapped", "files_shared"];
        if !needed.iter().all(|name| choice.programs.contains(name)) {
            return Ok(None);
        }
        let files = find(object, "files")?;
        let over_files = |program: &ProgramMut<'_>| program.attach_iter(files.as_fd());
        Ok(Some(Sharing {
            open_files: attach_one(object, "files_open")?,
            mapped_files: attach_one(object, "files_mapped")?,
            shared_files: attach_by(object, "files_shared", over_files)?,
            looked_at: None,
            files: None,
        }))
    }

    /// True if the next look is due.
    pub(crate) fn is_due(&self) -> bool {
        self.looked_at.is_none_or(|at| at.elapsed() >= EVERY)
    }

    /// Looks again. If the look fails, nothing is known.
    pub(crate) fn look(
        &mut self,
        control: &ControlMemory,
        page_bytes: u64,
        group_of: &dyn Fn(u64) -> Option<GroupId>,
        is_watched: &dyn Fn(GroupId) -> bool,
    ) {
        self.looked_at = Some(Instant::now());
        let (least, most) = LEAVES_OF_A_FILE;
        let leaves = (LEAVES / self.files.as_ref().map_or(1, Vec::len).max(1)).clamp(least, most);
        control.set_leaves(leaves as u32);
        let records = run(&self.open_files)
            .and_then(|_| run(&self.mapped_files))
            .and_then(|_| run(&self.shared_files));
        let files = |bytes: Vec<u8>| told(&records_of(&bytes), page_bytes, group_of, is_watched);
        self.files = records.ok().map(files);
    }
}

/// Runs an iterator to its end and returns what it wrote.
pub(super) fn run(link: &Link) -> io::Result<Vec<u8>> {
    let mut iterator = Iter::new(link).map_err(io::Error::other)?;
    let mut all = Vec::new();
    let mut buffer = vec![0; 32 << 10];
    let mut patience = PATIENCE;
    loop {
        match iterator.read(&mut buffer) {
            Ok(0) => return Ok(all),
            Ok(bytes) => all.extend_from_slice(&buffer[..bytes]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && patience > 0 => {
                patience -= 1;
            }
            Err(error) => return Err(error),
        }
    }
}

fn records_of(bytes: &[u8]) -> Vec<types::shared_file> {
    bytes
        .chunks_exact(size_of::<types::shared_file>())
        .map(|record| {
            let mut words = [0u64; WORDS];
            for (word, bytes) in words.iter_mut().zip(record.as_chunks::<8>().0) {
                *word = u64::from_ne_bytes(*bytes);
            }
            // SAFETY: the record is made of u64 alone, and of as many (WORDS).
            unsafe { std::mem::transmute::<[u64; WORDS], types::shared_file>(words) }
        })
        .collect()
}

/// Turns records into what the policy gets: groups instead of slots, bytes instead of pages.
fn told(
    records: &[types::shared_file],
    page_bytes: u64,
    group_of: &dyn Fn(u64) -> Option<GroupId>,
    is_watched: &dyn Fn(GroupId) -> bool,
) -> Vec<SharedFile> {
    let mut files: Vec<(u64, SharedFile)> = Vec::new();
    for record in records {
        let users: Vec<GroupId> = record
            .users
            .iter()
            .map(|&id| GroupId(id))
            .filter(|&id| id.0 != 0 && is_watched(id))
            .collect();
        if users.is_empty() {
            continue;
        }
        let whole = |pages: u64| match record.seen_pages {
            seen if seen > 0 && seen < record.resident_pages => {
                let scaled = u128::from(pages) * u128::from(record.resident_pages);
                u64::try_from(scaled / u128::from(seen)).unwrap_or(u64::MAX)
            }
            _ => pages,
        };
        let held: Vec<(GroupId, Bytes)> = record
            .held
            .iter()
            .filter(|holder| holder.pages > 0)
            .filter_map(|holder| {
                let bytes = whole(holder.pages).saturating_mul(page_bytes);
                Some((group_of(holder.slot)?, Bytes(bytes)))
            })
            .collect();
        let size = held.iter().map(|(_, bytes)| bytes.0).sum();
        let others = users.iter().chain(held.iter().map(|(id, _)| id));
        // Leaves out a file that no watched group pays for, or whose only user pays for all of it.
        if size > 0 && others.into_iter().any(|id| *id != users[0]) {
            files.push((size, SharedFile { users, held }));
        }
    }
    files.sort_by_key(|(size, _)| std::cmp::Reverse(*size));
    files.truncate(TOLD);
    files.into_iter().map(|(_, file)| file).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(users: &[u64], held: &[(u64, u64)], seen: u64, resident: u64) -> types::shared_file {
        let mut record = types::shared_file {
            seen_pages: seen,
            resident_pages: resident,
            ..types::shared_file::default()
        };
        record.users[..users.len()].copy_from_slice(users);
        for (place, &(slot, pages)) in record.held.iter_mut().zip(held) {
            place.slot = slot;
            place.pages = pages;
        }
        record
    }

    fn tell(records: &[types::shared_file]) -> Vec<SharedFile> {
        let group_of = |slot: u64| (slot < 10).then_some(GroupId(100 + slot));
        told(records, 4096, &group_of, &|id| id.0 < 200)
    }

    #[test]
    fn a_file_of_one_watched_group_is_not_shared() {
        assert!(tell(&[record(&[101, 999], &[(1, 5)], 5, 5)]).is_empty());
        assert_eq!(tell(&[record(&[101, 102], &[(1, 5)], 5, 5)]).len(), 1);
    }

    #[test]
    fn a_file_that_another_than_its_only_user_pays_for_is_shared() {
        let files = tell(&[record(&[101], &[(2, 5)], 5, 5)]);
        assert_eq!(files[0].users, [GroupId(101)]);
        assert_eq!(files[0].held, [(GroupId(102), Bytes(5 * 4096))]);
        assert!(tell(&[record(&[], &[(2, 5)], 5, 5)]).is_empty(), "no user");
    }

    #[test]
    fn sampled_pages_are_scaled_to_the_whole_file() {
        let files = tell(&[record(&[101, 102], &[(1, 75), (2, 25)], 100, 1000)]);
        assert_eq!(
            files[0].held,
            [
                (GroupId(101), Bytes(750 * 4096)),
                (GroupId(102), Bytes(250 * 4096))
            ]
        );
    }

    #[test]
    fn pages_of_a_slot_without_a_group_are_left_out() {
        let files = tell(&[record(&[101, 102], &[(1, 5), (4095, 7)], 12, 12)]);
        assert_eq!(files[0].held, [(GroupId(101), Bytes(5 * 4096))]);
    }

    #[test]
    fn large_files_come_first() {
        let files = tell(&[
            record(&[101, 102], &[(1, 5)], 5, 5),
            record(&[103, 104], &[(3, 9)], 9, 9),
        ]);
        assert_eq!(files[0].users, [GroupId(103), GroupId(104)]);
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let mut bytes = Vec::new();
        for word in 0..WORDS as u64 {
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
        let records = records_of(&bytes);
        assert_eq!(records[0].users[7], 7);
        assert_eq!(records[0].resident_pages, 8);
        assert_eq!(records[0].held[7].pages, 25);
    }
}
