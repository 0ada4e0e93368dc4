//! Bytes and pages against the truth: every way to read a file, cold, warm and half warm.
//!
//! The truth about each call is taken before it. A page that is not resident is missed. A resident page is
//! hit if it was resident before the first call or was asked for already. A page that is resident for another
//! reason was fetched ahead. Bytes must agree to the byte, pages to one percent of those that were asked for.

mod common;

use std::collections::HashSet;
use std::fs::File;
use std::io::{IoSliceMut, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::fuse::Fuse;
use common::smb::Smb;
use common::{advise, assert_within_a_point, Eye, Map, Scratch, Stops, TestFile, PAGE};
use io_uring::{opcode, types, IoUring};
use justitia_cgroup::GroupId;
use justitia_observe::TrafficSource as _;

const FILE_BYTES: u64 = 8 << 20;

#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    Cold,
    Warm,
    /// Every second stretch of 192 KiB is warm.
    Half,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Pattern {
    Sequential,
    Random,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Method {
    Read,
    Pread,
    Readv,
    IoUring,
    Sendfile,
}

/// One way to read a file.
#[derive(Debug, Clone, Copy)]
struct Case {
    state: State,
    pattern: Pattern,
    call_bytes: u64,
    readahead: bool,
    method: Method,
}

/// Bytes read, and pages asked for, missed and read ahead, as they really were.
#[derive(Debug, Default, Clone, Copy)]
struct Truth {
    bytes: u64,
    asked: u64,
    missed: u64,
    ahead: u64,
}

/// Reads through one open file, by one method.
struct Reader {
    file: File,
    buffer: Vec<u8>,
    null: File,
    /// Only where it is used: work that a ring leaves for later interrupts other calls, and an interrupted
    /// `sendfile` reads twice.
    ring: Option<IoUring>,
    method: Method,
}

impl Reader {
    fn new(file: File, method: Method) -> Reader {
        Reader {
            file,
            buffer: vec![0; 1 << 20],
            null: File::options().write(true).open("/dev/null").unwrap(),
            ring: (method == Method::IoUring).then(|| IoUring::new(8).expect("io_uring")),
            method,
        }
    }

    /// One call; returns the bytes it got.
    fn call(&mut self, at: u64, bytes: u64) -> u64 {
        let want = bytes as usize;
        let buffer = &mut self.buffer[..want];
        let got = match self.method {
            Method::Read => {
                // Sequential cases only: the position is where the last call ended.
                self.file.read(buffer).unwrap()
            }
            Method::Pread => self.file.read_at(buffer, at).unwrap(),
            Method::Readv => {
                let (a, b) = buffer.split_at_mut(want / 3);
                self.file
                    .read_vectored(&mut [IoSliceMut::new(a), IoSliceMut::new(b)])
                    .unwrap()
            }
            Method::IoUring => self.by_io_uring(at, want),
            Method::Sendfile => {
                let mut offset = libc::off_t::try_from(at).unwrap();
                // SAFETY: both descriptors are open and `offset` lives across the call.
                let n = unsafe {
                    libc::sendfile(
                        self.null.as_raw_fd(),
                        self.file.as_raw_fd(),
                        &raw mut offset,
                        want,
                    )
                };
                usize::try_from(n).expect("sendfile")
            }
        };
        got as u64
    }

    fn by_io_uring(&mut self, at: u64, want: usize) -> usize {
        let fd = types::Fd(self.file.as_raw_fd());
        let read = opcode::Read::new(fd, self.buffer.as_mut_ptr(), want as u32)
            .offset(at)
            .build();
        let ring = self.ring.as_mut().expect("made for this method");
        // SAFETY: descriptor and buffer outlive the request, which is waited for below.
        unsafe { ring.submission().push(&read).unwrap() };
        ring.submit_and_wait(1).unwrap();
        let answer = ring.completion().next().expect("a completion").result();
        usize::try_from(answer).unwrap_or_else(|_| panic!("io_uring read: {answer}"))
    }
}

/// Offsets of the calls, in order. Random ones come back to the same places.
fn calls(case: &Case, bytes: u64) -> Vec<u64> {
    let all: Vec<u64> = (0..bytes).step_by(case.call_bytes as usize).collect();
    if case.pattern == Pattern::Sequential {
        return all;
    }
    let mut seed = 0x5eed_u64;
    let mut random = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        seed >> 33
    };
    // A few hundred calls say enough; small ones are many in a file.
    let count = all.len().min(384);
    (0..count)
        .map(|_| all[(random() % all.len() as u64) as usize])
        .collect()
}

fn prepare(file: &TestFile, state: State) {
    file.cool();
    match state {
        State::Cold => {}
        State::Warm => file.warm(0..file.bytes),
        State::Half => {
            let stretch = 192 << 10;
            for start in (0..file.bytes).step_by(2 * stretch as usize) {
                file.warm(start..start + stretch);
            }
        }
    }
}

/// Reads the file that way; the truth is taken between the calls.
fn read_all(file: &TestFile, case: &Case) -> Truth {
    let handle = file.open();
    if !case.readahead {
        advise(&handle, libc::POSIX_FADV_RANDOM);
    }
    let mut reader = Reader::new(handle, case.method);
    let before = file.resident(0..file.pages());
    let mut asked_before: HashSet<u64> = HashSet::new();
    let mut truth = Truth::default();
    for at in calls(case, file.bytes) {
        let wanted = case.call_bytes.min(file.bytes - at);
        let pages = at / PAGE..(at + wanted).div_ceil(PAGE);
        let resident = file.resident(pages.clone());
        let got = reader.call(at, wanted);
        assert_eq!(got, wanted, "{case:?} at {at}");
        truth.bytes += got;
        truth.asked += pages.end - pages.start;
        for (page, resident) in pages.zip(resident) {
            if !resident {
                truth.missed += 1;
            } else if !before[page as usize] && !asked_before.contains(&page) {
                truth.ahead += 1;
            }
            asked_before.insert(page);
        }
    }
    truth
}

fn check(eye: &mut Eye, scratch: &Scratch, file: &TestFile, case: &Case) {
    prepare(file, case.state);
    let id = scratch.group().id();
    let mut truth = Truth::default();
    let before_traffic = eye.look()[0].traffic;
    let counted = eye.during(id, || truth = read_all(file, case));
    let traffic = eye.look()[0].traffic;
    let line = format!("{case:?}: {truth:?}, counted {counted:?}");
    println!("{line}");
    assert_eq!(counted.read_bytes, truth.bytes, "{line}");
    assert_eq!(
        traffic.read_bytes.unwrap() - before_traffic.read_bytes.unwrap(),
        truth.bytes,
        "{line}"
    );
    assert_eq!(counted.asked, truth.asked, "{line}");
    assert_eq!(counted.write_bytes, 0, "{line}");
    assert_within_a_point("missed", counted.missed, truth.missed, truth.asked);
    assert_within_a_point("readahead", counted.readahead, truth.ahead, truth.asked);
    let hits = truth.asked - truth.missed - truth.ahead;
    let ratio = hits as f64 / truth.asked as f64;
    let counted_ratio = counted.hit_ratio().expect("pages were asked for");
    assert!((counted_ratio - ratio).abs() <= 0.01, "{line}");
}

/// A group that this process is in, and an eye on it.
fn watched(name: &str) -> (Scratch, GroupId, Eye) {
    let scratch = Scratch::new(name);
    scratch.enter();
    let group = scratch.group();
    (scratch, group.id(), Eye::on(vec![group]))
}

/// Runs these cases on a file with a last page that is not full.
fn run(name: &str, cases: impl IntoIterator<Item = Case>) {
    let (scratch, _, mut eye) = watched(name);
    let dir = TestFile::dir();
    let file = TestFile::cold(dir.path(), "file", FILE_BYTES + 1234);
    for case in cases {
        check(&mut eye, &scratch, &file, &case);
    }
    assert_eq!(eye.observer.missed_events(), Some(0));
}

const STATES: [State; 3] = [State::Cold, State::Warm, State::Half];
const SIZES: [u64; 3] = [4 << 10, 64 << 10, 1 << 20];

fn cases(pattern: Pattern) -> impl Iterator<Item = Case> {
    STATES.into_iter().flat_map(move |state| {
        SIZES.into_iter().flat_map(move |call_bytes| {
            [true, false].map(|readahead| Case {
                state,
                pattern,
                call_bytes,
                readahead,
                method: Method::Pread,
            })
        })
    })
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn sequential_reads_are_counted_as_they_are() {
    run("sequential", cases(Pattern::Sequential));
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn random_reads_are_counted_as_they_are() {
    run("random", cases(Pattern::Random));
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn every_way_to_read_is_counted_alike() {
    let methods = [
        Method::Read,
        Method::Readv,
        Method::Sendfile,
        Method::IoUring,
    ];
    let cases = methods.into_iter().flat_map(|method| {
        STATES.map(|state| Case {
            state,
            pattern: Pattern::Sequential,
            call_bytes: 64 << 10,
            readahead: true,
            method,
        })
    });
    run("methods", cases);
    let random = [State::Cold, State::Half].map(|state| Case {
        state,
        pattern: Pattern::Random,
        call_bytes: 16 << 10,
        readahead: false,
        method: Method::IoUring,
    });
    run("io-uring", random);
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn calls_that_are_not_whole_pages_ask_for_each_page_they_touch() {
    let (_scratch, id, mut eye) = watched("unaligned");
    let dir = TestFile::dir();
    let file = TestFile::cold(dir.path(), "file", 1 << 20);
    file.warm(0..file.bytes);
    let mut buffer = [0; 10_000];
    let counted = eye.during(id, || {
        let file = file.open();
        // One byte; the last byte of a page and the first of the next; 10,000 from the middle.
        file.read_exact_at(&mut buffer[..1], 5000).unwrap();
        file.read_exact_at(&mut buffer[..2], 8191).unwrap();
        file.read_exact_at(&mut buffer, 100_000).unwrap();
        // At and beyond the end: nothing.
        assert_eq!(file.read_at(&mut buffer, 1 << 20).unwrap(), 0);
        assert_eq!(file.read_at(&mut buffer, 1 << 30).unwrap(), 0);
        // Across the end.
        assert_eq!(file.read_at(&mut buffer, (1 << 20) - 5).unwrap(), 5);
    });
    assert_eq!(counted.read_bytes, 1 + 2 + 10_000 + 5);
    let middle = (100_000u64 + 10_000).div_ceil(PAGE) - 100_000 / PAGE;
    assert_eq!(counted.asked, 1 + 2 + middle + 1);
    assert_eq!((counted.missed, counted.readahead), (0, 0));
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn small_files_are_misses_once_and_hits_after() {
    let (_scratch, id, mut eye) = watched("small");
    let dir = TestFile::dir();
    let sizes = (0..64u64).map(|i| 1 + i * 613);
    let files: Vec<TestFile> = sizes
        .enumerate()
        .map(|(i, bytes)| TestFile::cold(dir.path(), &i.to_string(), bytes))
        .collect();
    let bytes: u64 = files.iter().map(|file| file.bytes).sum();
    let pages: u64 = files.iter().map(TestFile::pages).sum();
    let read = || {
        for file in &files {
            let mut text = Vec::with_capacity(1 << 16);
            file.open().take(1 << 20).read_to_end(&mut text).unwrap();
            assert_eq!(text.len() as u64, file.bytes);
        }
    };
    let cold = eye.during(id, read);
    let warm = eye.during(id, read);
    for counted in [&cold, &warm] {
        assert_eq!(counted.read_bytes, bytes, "{counted:?}");
    }
    // It takes more than one call to read a file, so the page where one call ends may be asked for twice.
    assert!(cold.asked >= pages, "{cold:?}");
    assert_within_a_point("absent", cold.missed + cold.readahead, pages, cold.asked);
    assert_eq!((warm.missed, warm.readahead), (0, 0), "{warm:?}");
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn mapped_reads_are_faults_and_ask_for_nothing() {
    let (_scratch, id, mut eye) = watched("mapped");
    let dir = TestFile::dir();
    let other = TestFile::cold(dir.path(), "other", 1 << 20);
    let file = TestFile::cold(dir.path(), "file", 4 << 20);
    // The code of this test is mapped too: fault it in.
    eye.during(id, || {
        assert!(Map::of(&other.open(), other.bytes).touch() > 0);
    });
    let touch = || {
        Map::of(&file.open(), file.bytes).touch();
    };
    let cold = eye.during(id, touch);
    let warm = eye.during(id, touch);
    println!("cold {cold:?}\nwarm {warm:?}");
    for counted in [&cold, &warm] {
        assert_eq!(
            (
                counted.read_bytes,
                counted.asked,
                counted.missed,
                counted.readahead
            ),
            (0, 0, 0, 0),
            "{counted:?}"
        );
        assert!(counted.mmap_major <= counted.mmap_faults);
        assert!(counted.mmap_faults <= file.pages() + 16, "{counted:?}");
    }
    // There is a fault for each window of readahead. Only the first one has to wait for an absent page
    // (major); the others find pages fetched ahead. All pages came in once.
    assert!(cold.mmap_faults >= 8 && cold.mmap_major >= 1, "{cold:?}");
    assert_within_a_point("inserted", cold.inserted, file.pages(), file.pages());
    assert!(warm.mmap_major <= 2 && warm.inserted <= 2, "{warm:?}");
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn direct_io_and_memory_files_are_not_page_cache() {
    let (_scratch, id, mut eye) = watched("direct");
    let dir = TestFile::dir();
    let file = TestFile::cold(dir.path(), "file", 1 << 20);
    let mut buffer = vec![0; (1 << 20) + 4096];
    let start = buffer.as_ptr().align_offset(4096);
    let aligned = &mut buffer[start..start + (1 << 20)];
    let counted = eye.during(id, || {
        let direct = file.open_direct();
        direct.read_exact_at(aligned, 0).unwrap();
        direct.write_all_at(aligned, 0).unwrap();
        let path = format!("/run/justitia-test-{}", std::process::id());
        std::fs::write(&path, &aligned[..100_000]).unwrap();
        assert_eq!(std::fs::read(&path).unwrap().len(), 100_000);
        std::fs::remove_file(&path).unwrap();
    });
    assert_eq!(
        (counted.read_bytes, counted.write_bytes, counted.asked),
        (0, 0, 0),
        "{counted:?}"
    );
    assert_eq!(file.resident_pages(), 0);
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn written_bytes_are_exact() {
    let (_scratch, id, mut eye) = watched("written");
    let dir = TestFile::dir();
    let path = dir.path().join("file");
    let counted = eye.during(id, || {
        let mut file = File::create(&path).unwrap();
        file.write_all(&vec![7; 1_000_003]).unwrap();
        file.write_all_at(&[8; 5000], 500).unwrap();
        let n = file
            .write_vectored(&[
                std::io::IoSlice::new(&[1; 77]),
                std::io::IoSlice::new(&[2; 5000]),
            ])
            .unwrap();
        assert_eq!(n, 5077);
    });
    assert_eq!(counted.write_bytes, 1_000_003 + 5000 + 5077, "{counted:?}");
    assert_eq!(counted.read_bytes, 0);
    assert_eq!((counted.missed, counted.asked), (0, 0), "{counted:?}");
    // Only the tracepoint counts the pages of writes as inserted.
    let pages = (1_000_003u64 + 5077).div_ceil(PAGE);
    assert!(
        counted.inserted == 0 || counted.inserted >= pages,
        "{counted:?}"
    );
}

/// Writes a file of another file system, and reads it again.
fn assert_counted(eye: &mut Eye, id: GroupId, path: &Path, about: &str) {
    let mut options = File::options();
    options.read(true).write(true).create(true);
    let file = options.open(path).unwrap();
    let counted = eye.during(id, || {
        file.write_all_at(&vec![7; 300_003], 0).unwrap();
        file.write_all_at(&[8; 5000], 500).unwrap();
    });
    assert_eq!(counted.write_bytes, 305_003, "{about}: {counted:?}");
    file.sync_all().unwrap();
    advise(&file, libc::POSIX_FADV_DONTNEED);
    let mut buffer = vec![0; 300_003];
    let counted = eye.during(id, || file.read_exact_at(&mut buffer, 0).unwrap());
    assert_eq!((buffer[499], buffer[500]), (7, 8));
    assert_eq!(counted.read_bytes, 300_003, "{about}: {counted:?}");
    assert_eq!(
        counted.asked,
        300_003u64.div_ceil(PAGE),
        "{about}: {counted:?}"
    );
    assert!(counted.missed > 0, "{about}: {counted:?}");
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn bytes_of_a_fuse_file_are_exact() {
    let (_scratch, id, mut eye) = watched("fuse");
    for writeback in [false, true] {
        let fuse = Fuse::mount(writeback);
        let about = format!("writeback {writeback}");
        assert_counted(&mut eye, id, &fuse.file(), &about);
    }
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn bytes_of_a_cifs_file_are_exact() {
    let (_scratch, id, mut eye) = watched("cifs");
    let smb = Smb::mount();
    assert_counted(&mut eye, id, &smb.file(), "cifs");
}

/// Bytes and pages that threads have read, added up as they go.
#[derive(Default)]
struct Tally {
    bytes: AtomicU64,
    asked: AtomicU64,
    missed: AtomicU64,
    stop: AtomicBool,
}

impl Tally {
    fn now(&self) -> [u64; 3] {
        [&self.bytes, &self.asked, &self.missed].map(|sum| sum.load(Ordering::Relaxed))
    }
}

/// Reads the file's pages one by one, 20 times after each drop, and as many bytes from /dev/zero. Each read
/// is small: a slow machine copies a page longer than all else takes, and has too few reads for estimates.
fn read_often(file: &TestFile, tally: &Tally) {
    let handle = file.open();
    advise(&handle, libc::POSIX_FADV_RANDOM);
    let zero = File::open("/dev/zero").unwrap();
    let mut part = [0; 64];
    while !tally.stop.load(Ordering::Relaxed) {
        file.cool();
        for round in 0..20 {
            for at in (0..file.bytes).step_by(PAGE as usize) {
                handle.read_exact_at(&mut part, at).unwrap();
                tally.bytes.fetch_add(part.len() as u64, Ordering::Relaxed);
                tally.asked.fetch_add(1, Ordering::Relaxed);
                tally
                    .missed
                    .fetch_add(u64::from(round == 0), Ordering::Relaxed);
                zero.read_at(&mut part, 0).unwrap();
            }
        }
    }
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn reads_that_are_too_many_to_count_are_estimated_within_three_percent() {
    let (_scratch, id, mut eye) = watched("estimated");
    let dir = TestFile::dir();
    let file = TestFile::cold(dir.path(), "file", 1 << 20);
    println!(
        "each is counted up to {:?} a second",
        eye.observer.most_reads_per_s()
    );
    let tally = Tally::default();
    thread::scope(|scope| {
        scope.spawn(|| read_often(&file, &tally));
        let _stops = Stops(&tally.stop);
        // If the host has others to serve, the reader may be too slow for a while; then it tries again.
        let window = (0..12).find_map(|_| {
            thread::sleep(Duration::from_secs(5));
            eye.look();
            let before = (eye.counters(id), tally.now());
            let mut estimated = eye.observer.estimates();
            for _ in 0..10 {
                if !estimated {
                    return None;
                }
                thread::sleep(Duration::from_secs(1));
                let sample = eye.look()[0];
                assert!(sample.traffic.read_bytes.is_some() && sample.cache.asked_pages.is_some());
                estimated = eye.observer.estimates();
            }
            estimated.then(|| (before, (eye.counters(id), tally.now())))
        });
        let (before, after) = window.expect("estimated for ten seconds");
        let counted = common::difference(&before.0, &after.0);
        let [bytes, asked, missed] = [0, 1, 2].map(|i| after.1[i] - before.1[i]);
        println!("{bytes} bytes, {asked} asked, {missed} missed; told {counted:?}");
        let off = counted.read_bytes as f64 / bytes as f64 - 1.0;
        let ratio = counted.hit_ratio().unwrap() - (1.0 - missed as f64 / asked as f64);
        println!("bytes {:+.2} %, hit ratio {ratio:+.4}", 100.0 * off);
        assert!(off.abs() <= 0.03 && ratio.abs() <= 0.02);
    });
    // Nobody reads any more, so each read is counted again, and exactly.
    let begun = Instant::now();
    while eye.observer.estimates() {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "never again counted"
        );
        thread::sleep(Duration::from_secs(1));
        eye.look();
    }
    let mut page = [0; 10_000];
    file.warm(0..file.bytes);
    let counted = eye.during(id, || file.open().read_exact_at(&mut page, 0).unwrap());
    assert_eq!(
        (counted.read_bytes, counted.asked, counted.readahead),
        (10_000, 3, 0)
    );
    assert_eq!(eye.observer.map_entries()["threads"], 0);
    assert_eq!(eye.observer.missed_events(), Some(0));
}
