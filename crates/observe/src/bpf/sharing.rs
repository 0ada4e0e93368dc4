//! Files that several groups use, and the groups that their pages are charged to.
//!
//! Every [`EVERY`], or more seldom where that takes much CPU time ([`period`]), three iterators run in the kernel (`bpf/sharing.h`): over open files, over mapped files,
//! and over what was learned of each file. The last one walks the page cache of files that two groups or more
//! have used. Large files are sampled, and the counts are scaled to the whole.
//!
//! The iterator over mapped files waits for the `mmap_lock` of each process, and a tenant can hold its own for
//! any time. So each look has a thread of its own, which nobody waits for longer than a moment. A look that
//! hangs ends with our process. Until it ends, no other begins.
//!
//! Units: pages in the records, bytes in what the policy gets.

use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use justitia_cgroup::sees_all_processes;
use justitia_policy::snapshot::{GroupId, SharedFile};
use justitia_policy::units::Bytes;
use libbpf_rs::{Iter, Link, Object, ProgramMut};

use super::choice::Choice;
use super::memory::ControlMemory;
use super::{attach_by, attach_one, cpu_time_of, find, types, Error};

/// Time between two looks.
const EVERY: Duration = Duration::from_secs(5);
/// The longest such time: a use counts for 30 s.
const SELDOM: Duration = Duration::from_secs(25);
/// Part of one CPU's time that looks may take: they walk every descriptor and every mapping of the host.
const BUDGET: f64 = 0.005;
/// A look that takes longer than this leaves unknown what it looks for.
const LATE: Duration = EVERY.saturating_mul(2);
/// Usual looks take less than this, so that the sample that begins one has its answer.
pub(super) const USUAL: Duration = Duration::from_millis(100);
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
    /// Over open files, mapped files and shared files. Dropped when neither we nor a look needs them.
    iterators: Arc<[Link; 3]>,
    looks: Looks,
    /// `None` before the first look, or if the last look failed or is late.
    pub(crate) files: Option<Vec<SharedFile>>,
}

/// Looks on threads of their own, one at a time.
#[derive(Default)]
struct Looks {
    began: Option<Instant>,
    /// The answer of the look that is under way, and the CPU time that it took.
    pending: Option<Receiver<(io::Result<Vec<u8>>, Duration)>>,
    /// CPU time of the last look.
    took: Duration,
}

impl Looks {
    /// Begins a look, unless one is under way.
    fn begin(&mut self, look: impl FnOnce() -> io::Result<Vec<u8>> + Send + 'static) {
        if self.pending.is_some() {
            return;
        }
        let (tell, told) = channel();
        self.began = Some(Instant::now());
        self.pending = Some(told);
        // Without a thread, `tell` is dropped, and the look has failed.
        let _ = thread::Builder::new()
            .name("justitia-files".into())
            .spawn(move || {
                let mut found = Err(io::ErrorKind::Other.into());
                let took = cpu_time_of(|| found = look());
                tell.send((found, took))
            });
    }

    /// The answer, waited for as long as this. An error if the look failed or is late: what a late look found
    /// may have expired.
    fn hear(&mut self, wait: Duration) -> Option<io::Result<Vec<u8>>> {
        let late = self.began.is_some_and(|at| at.elapsed() >= LATE);
        let expired = || Err(io::ErrorKind::TimedOut.into());
        match self.pending.as_ref()?.recv_timeout(wait) {
            Err(RecvTimeoutError::Timeout) => late.then(expired),
            answer => {
                self.pending = None;
                let failed = |gone| (Err(io::Error::other(gone)), Duration::ZERO);
                let (answer, took) = answer.unwrap_or_else(failed);
                self.took = took;
                Some(if late { expired() } else { answer })
            }
        }
    }
}

/// Time between two looks that take this much CPU time each.
fn period(took: Duration) -> Duration {
    took.div_f64(BUDGET).clamp(EVERY, SELDOM)
}

impl Sharing {
    /// `None` where the kernel lacks one of the iterators, or where they would not see all processes.
    pub(crate) fn start(object: &Object, choice: &Choice) -> Result<Option<Sharing>, Error> {
        let needed = ["files_open", "files_mapped", "files_shared"];
        let has_all = needed.iter().all(|name| choice.programs.contains(name));
        if !(has_all && sees_all_processes()) {
            return Ok(None);
        }
        let files = find(object, "files")?;
        let over_files = |program: &ProgramMut<'_>| program.attach_iter(files.as_fd());
        Ok(Some(Sharing {
            iterators: Arc::new([
                attach_one(object, "files_open")?,
                attach_one(object, "files_mapped")?,
                attach_by(object, "files_shared", over_files)?,
            ]),
            looks: Looks::default(),
            files: None,
        }))
    }

    /// True if the next look is due.
    pub(crate) fn is_due(&self) -> bool {
        let began = self.looks.began;
        let period = period(self.looks.took);
        self.looks.pending.is_none() && began.is_none_or(|at| at.elapsed() >= period)
    }

    /// Begins a look, unless one is under way.
    pub(crate) fn look(&mut self, control: &ControlMemory) {
        let (least, most) = LEAVES_OF_A_FILE;
        let leaves = (LEAVES / self.files.as_ref().map_or(1, Vec::len).max(1)).clamp(least, most);
        control.set_leaves(leaves as u32);
        let iterators = Arc::clone(&self.iterators);
        self.looks.begin(move || {
            let [open, mapped, shared] = &*iterators;
            run(open)
                .and_then(|_| run(mapped))
                .and_then(|_| run(shared))
        });
    }

    /// Takes the answer of the look that is under way, and waits for it as long as this. If the look failed,
    /// nothing is known.
    pub(crate) fn hear(
        &mut self,
        wait: Duration,
        page_bytes: u64,
        group_of: &dyn Fn(u64) -> Option<GroupId>,
        is_watched: &dyn Fn(GroupId) -> bool,
    ) {
        let files = |bytes: Vec<u8>| told(&records_of(&bytes), page_bytes, group_of, is_watched);
        if let Some(answer) = self.looks.hear(wait) {
            self.files = answer.ok().map(files);
        }
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
    fn looks_that_take_much_cpu_time_are_seldom_but_no_use_is_forgotten_between_two() {
        let periods = [0, 50, 400].map(|ms| period(Duration::from_millis(ms)));
        assert_eq!(periods, [5, 10, 25].map(Duration::from_secs));
    }

    #[test]
    fn a_look_that_hangs_holds_nobody_up_and_what_it_finds_is_unknown_once_it_is_late() {
        let mut looks = Looks::default();
        let (end, ended) = channel::<()>();
        looks.begin(move || ended.recv().map(|()| vec![1]).map_err(io::Error::other));
        assert!(looks.hear(Duration::ZERO).is_none(), "nothing is told yet");
        looks.begin(|| panic!("one at a time"));
        looks.began = looks.began.and_then(|at| at.checked_sub(LATE));
        assert!(looks
            .hear(Duration::ZERO)
            .is_some_and(|answer| answer.is_err()));
        end.send(()).unwrap();
        let answer = looks.hear(LATE).map(|answer| answer.is_ok());
        assert_eq!(answer, Some(false), "what it found has expired");
        looks.begin(|| Ok(vec![2]));
        assert_eq!(looks.hear(LATE).and_then(Result::ok), Some(vec![2]));
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
