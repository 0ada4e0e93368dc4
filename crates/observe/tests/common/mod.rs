//! The surroundings of the observer's tests: a cgroup of their own, files whose residency they control and
//! know, and an observer.
//!
//! The truth about pages comes from `mincore(2)`, which every kernel has and which changes nothing:
//! on a mapping that is never touched it says of each page whether it is in the page cache and read
//! in full. Pages whose I/O is still under way are waited for first (the disk's `inflight`).
//!
//! The test process itself moves into the cgroup it watches: what it does between two readings of
//! the counters is what they must show.

#![allow(dead_code)]

pub(crate) mod fuse;
pub(crate) mod smb;

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::ops::{DerefMut, Range};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use justitia_cgroup::{Fs, Group, GroupId, Mount, RealFs};
use justitia_observe::bpf::{probe, Counters, Observer, Tier};
use justitia_observe::{Sample, TrafficSource, Watched};

/// Bytes of a page.
pub(crate) const PAGE: u64 = 4096;

/// Mount point of the host's cgroup2.
pub(crate) fn mount() -> PathBuf {
    std::env::var_os("JUSTITIA_TEST_CGROUP2")
        .map_or_else(|| Mount::detect().unwrap().path().to_owned(), PathBuf::from)
}

/// The host's cgroups.
pub(crate) fn host() -> Fs {
    Arc::new(RealFs::on_directory(mount()).unwrap())
}

/// An observer, which must have everything: the kernels that this runs on offer it.
pub(crate) fn observer() -> Observer {
    let mut coverage = probe();
    let observer = Observer::open(host(), &mut coverage, || ()).unwrap_or_else(|error| {
        panic!("{error}: {coverage:?}");
    });
    assert_eq!(observer.tier(), Tier::Fentry, "{coverage:?}");
    observer
}

/// A cgroup of our own, removed at the end.
pub(crate) struct Scratch {
    pub(crate) dir: PathBuf,
    pub(crate) path: String,
}

impl Scratch {
    /// Below the root.
    pub(crate) fn new(name: &str) -> Scratch {
        Scratch::at(&format!("/justitia-test-{name}-{}", std::process::id()))
    }

    /// At this path.
    pub(crate) fn at(path: &str) -> Scratch {
        let dir = mount().join(path.trim_start_matches('/'));
        fs::create_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
        let path = path.to_owned();
        Scratch { dir, path }
    }

    /// Its handle.
    pub(crate) fn group(&self) -> Group {
        host().open(&self.path).unwrap()
    }

    /// Moves this process there.
    pub(crate) fn enter(&self) {
        fs::write(self.dir.join("cgroup.procs"), "0").unwrap();
    }

    /// Writes one of its files.
    pub(crate) fn set(&self, file: &str, value: &str) {
        let path = self.dir.join(file);
        fs::write(&path, value).unwrap_or_else(|e| panic!("{} = {value}: {e}", path.display()));
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        leave();
        let _ = fs::remove_dir(&self.dir);
    }
}

/// Moves this process to the root.
pub(crate) fn leave() {
    fs::write(mount().join("cgroup.procs"), "0").unwrap();
}

/// An observer and the groups it watches.
pub(crate) struct Eye<O = MutexGuard<'static, Observer>> {
    pub(crate) observer: O,
    pub(crate) groups: Vec<Group>,
}

impl Eye {
    /// Watches these groups through the observer that all tests of a program share: attaching one takes an
    /// emulated machine many seconds.
    pub(crate) fn on(groups: Vec<Group>) -> Eye {
        static SHARED: OnceLock<Mutex<Observer>> = OnceLock::new();
        let shared = SHARED.get_or_init(|| Mutex::new(observer()));
        let shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
        let mut eye = Eye::through(shared, groups);
        // After many reads it may still estimate.
        while eye.observer.estimates() {
            std::thread::sleep(Duration::from_secs(1));
            eye.look();
        }
        eye
    }
}

impl Eye<Box<Observer>> {
    /// Watches these groups through an observer that has seen nothing before.
    pub(crate) fn fresh(groups: Vec<Group>) -> Self {
        Eye::through(Box::new(observer()), groups)
    }
}

impl<O: DerefMut<Target = Observer>> Eye<O> {
    fn through(observer: O, groups: Vec<Group>) -> Eye<O> {
        let mut eye = Eye { observer, groups };
        eye.look();
        eye
    }

    /// One tick.
    pub(crate) fn look(&mut self) -> Vec<Sample> {
        let watched: Vec<Watched<'_>> = self
            .groups
            .iter()
            .map(|group| Watched {
                group,
                active: true,
            })
            .collect();
        let mut samples = Vec::new();
        self.observer.sample(&watched, &mut samples);
        assert_eq!(samples.len(), watched.len());
        samples
    }

    /// The counters of a group now.
    pub(crate) fn counters(&mut self, id: GroupId) -> Counters {
        self.look();
        self.observer.counters(id).expect("a watched group")
    }

    /// A group's counters over the time of `work`.
    pub(crate) fn during(&mut self, id: GroupId, work: impl FnOnce()) -> Counters {
        let before = self.counters(id);
        work();
        let after = self.counters(id);
        difference(&before, &after)
    }
}

/// Counts between two readings. Panics if a counter went backwards.
pub(crate) fn difference(before: &Counters, after: &Counters) -> Counters {
    let less = |after: u64, before: u64| {
        after
            .checked_sub(before)
            .expect("counters never go backwards")
    };
    Counters {
        read_bytes: less(after.read_bytes, before.read_bytes),
        write_bytes: less(after.write_bytes, before.write_bytes),
        asked: less(after.asked, before.asked),
        missed: less(after.missed, before.missed),
        readahead: less(after.readahead, before.readahead),
        fetched: less(after.fetched, before.fetched),
        inserted: less(after.inserted, before.inserted),
        evicted: less(after.evicted, before.evicted),
        mmap_faults: less(after.mmap_faults, before.mmap_faults),
        mmap_major: less(after.mmap_major, before.mmap_major),
        reclaim_us: less(after.reclaim_us, before.reclaim_us),
        throttled_us: less(after.throttled_us, before.throttled_us),
    }
}

/// A file on the disk under test.
pub(crate) struct TestFile {
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    map: Map,
}

impl TestFile {
    /// A file of this size, on disk and not in the page cache.
    pub(crate) fn cold(dir: &Path, name: &str, bytes: u64) -> TestFile {
        let path = dir.join(name);
        let mut file = File::create(&path).unwrap();
        let piece: Vec<u8> = (0..1 << 16).map(|i: u32| i as u8 | 1).collect();
        let mut left = bytes;
        while left > 0 {
            let n = left.min(piece.len() as u64) as usize;
            file.write_all(&piece[..n]).unwrap();
            left -= n as u64;
        }
        file.sync_all().unwrap();
        let map = Map::of(&File::open(&path).unwrap(), bytes);
        let file = TestFile { path, bytes, map };
        file.cool();
        file
    }

    /// A directory for test files; it must be on a disk, or pages cannot be dropped.
    pub(crate) fn dir() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    /// Drops it from the page cache.
    pub(crate) fn cool(&self) {
        let file = File::open(&self.path).unwrap();
        for _ in 0..100 {
            advise(&file, libc::POSIX_FADV_DONTNEED);
            if self.resident_pages() == 0 {
                return;
            }
            // Pages that were just read lie in a CPU's batch for a moment.
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!(
            "{} pages do not leave the page cache",
            self.resident_pages()
        );
    }

    /// Brings this range into the page cache, and nothing around it, through another open file.
    pub(crate) fn warm(&self, range: Range<u64>) {
        let file = self.open();
        advise(&file, libc::POSIX_FADV_RANDOM);
        let mut buffer = vec![0; 1 << 16];
        let mut at = range.start;
        while at < range.end.min(self.bytes) {
            let n = (range.end.min(self.bytes) - at).min(buffer.len() as u64) as usize;
            file.read_exact_at(&mut buffer[..n], at).unwrap();
            at += n as u64;
        }
    }

    /// Opens it for reading.
    pub(crate) fn open(&self) -> File {
        File::open(&self.path).unwrap()
    }

    /// Opens it past the page cache.
    pub(crate) fn open_direct(&self) -> File {
        use std::os::unix::fs::OpenOptionsExt;
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_DIRECT);
        options.open(&self.path).unwrap()
    }

    /// Number of its pages.
    pub(crate) fn pages(&self) -> u64 {
        self.bytes.div_ceil(PAGE)
    }

    /// True for each page in the range that is resident. Waits for I/O under way.
    pub(crate) fn resident(&self, pages: Range<u64>) -> Vec<bool> {
        let file = self.open();
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            self.wait_for_disk();
            let resident = self.map.resident(pages.clone());
            let seen = resident.iter().filter(|page| **page).count() as u64;
            // A read is no longer in flight a moment before its pages are up to date.
            if cached(&file, &pages).is_none_or(|cached| cached <= seen) {
                return resident;
            }
            assert!(Instant::now() < deadline, "pages do not become readable");
        }
    }

    /// Number of its pages that are resident.
    pub(crate) fn resident_pages(&self) -> u64 {
        let all = self.resident(0..self.pages());
        all.iter().filter(|resident| **resident).count() as u64
    }

    fn wait_for_disk(&self) {
        let device = fs::metadata(&self.path).unwrap().dev();
        let (major, minor) = (libc::major(device), libc::minor(device));
        let path = format!("/sys/dev/block/{major}:{minor}/inflight");
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            // Only reads matter: writes to a journal do no harm.
            let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
            if text.split_whitespace().next() == Some("0") {
                return;
            }
            assert!(Instant::now() < deadline, "the disk does not rest: {text}");
        }
    }
}

/// Number of a file's pages in this range that are in the page cache, readable or not yet (`cachestat(2)`). `None`
/// before Linux 6.5.
fn cached(file: &File, pages: &Range<u64>) -> Option<u64> {
    const CACHESTAT: libc::c_long = 451;
    let range = [pages.start * PAGE, (pages.end - pages.start) * PAGE];
    let mut counts = [0_u64; 5];
    // SAFETY: both arrays have the size of the kernel's structures and live across the call.
    let answer = unsafe {
        libc::syscall(
            CACHESTAT,
            file.as_raw_fd(),
            range.as_ptr(),
            counts.as_mut_ptr(),
            0_u64,
        )
    };
    (answer == 0).then_some(counts[0])
}

/// `posix_fadvise` on a whole file.
pub(crate) fn advise(file: &File, advice: i32) {
    // SAFETY: a system call on an open descriptor, without pointers.
    let answer = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, advice) };
    assert_eq!(answer, 0, "posix_fadvise");
}

/// A mapping of a whole file.
pub(crate) struct Map {
    address: *mut libc::c_void,
    length: usize,
}

// SAFETY: the mapping is only read, and lives until the value is dropped.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    /// Maps a file shared and read-only.
    pub(crate) fn of(file: &File, bytes: u64) -> Map {
        let length = bytes as usize;
        let (protection, flags) = (libc::PROT_READ, libc::MAP_SHARED);
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                protection,
                flags,
                file.as_raw_fd(),
                0,
            )
        };
        assert_ne!(address, libc::MAP_FAILED, "mmap");
        // Otherwise khugepaged reads the file behind the test's back to make huge pages of it (Linux 7).
        // SAFETY: advice on the mapping just made; it changes none of its contents.
        let answer = unsafe { libc::madvise(address, length, libc::MADV_NOHUGEPAGE) };
        assert_eq!(answer, 0, "madvise: {}", std::io::Error::last_os_error());
        Map { address, length }
    }

    fn resident(&self, pages: Range<u64>) -> Vec<bool> {
        let mut seen = vec![0u8; (pages.end - pages.start) as usize];
        let length = seen.len() * PAGE as usize;
        assert!(pages.end as usize * PAGE as usize <= self.length.next_multiple_of(PAGE as usize));
        // SAFETY: the range lies within the mapping, and `seen` has a byte for each of its pages.
        let answer = unsafe {
            let from = self.address.byte_add((pages.start * PAGE) as usize);
            libc::mincore(from, length, seen.as_mut_ptr())
        };
        assert_eq!(answer, 0, "mincore: {}", std::io::Error::last_os_error());
        seen.into_iter().map(|page| page & 1 == 1).collect()
    }

    /// Touches the first byte of each page in turn.
    pub(crate) fn touch(&self) -> u64 {
        let mut sum = 0;
        for offset in (0..self.length).step_by(PAGE as usize) {
            // SAFETY: the offset lies within the mapping, which is readable; the file is not
            // truncated while it is mapped. Volatile: the access itself is the point.
            sum += u64::from(unsafe { self.address.cast::<u8>().add(offset).read_volatile() });
        }
        sum
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: this is the mapping made in `of`, to which nobody has a pointer any more.
        unsafe { libc::munmap(self.address, self.length) };
    }
}

/// Ends a load when the test is done with it or fails, because a scope waits for its threads.
pub(crate) struct Stops<'a>(pub(crate) &'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Fails unless `got` is within one percent of `whole` from `truth`.
pub(crate) fn assert_within_a_point(what: &str, got: u64, truth: u64, whole: u64) {
    let off = got.abs_diff(truth);
    assert!(
        off as f64 <= (whole as f64 / 100.0).max(0.5),
        "{what}: counted {got}, truth {truth}, of {whole}"
    );
}
