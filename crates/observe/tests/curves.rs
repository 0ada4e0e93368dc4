//! Curves of hit ratios against measured hit ratios: a reader in a memory cgroup of one size yields a curve
//! for other sizes, and then gets these sizes.

mod common;

use std::ffi::CString;
use std::fs;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use common::{advise, Eye, Scratch, TestFile, PAGE};
use justitia_observe::bpf::{Counters, Observer};
use justitia_observe::TrafficSource;
use justitia_policy::units::Bytes;
use justitia_policy::worth::Curve;

/// A file that a reader reads, pages.
const PAGES: u64 = 12 << 10;

/// Deterministic random numbers.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// The order in which pages are read.
enum Load {
    Random,
    /// Cumulative probabilities of ranks.
    Zipf(Vec<f64>),
    Loop,
    /// Mostly a page of the first eighth, otherwise a scan of the rest.
    Mixed,
}

impl Load {
    fn zipf(exponent: f64) -> Load {
        let mut sum = 0.0;
        let ranks = (1..=PAGES).map(|rank| {
            sum += (rank as f64).powf(-exponent);
            sum
        });
        Load::Zipf(ranks.collect())
    }

    fn page(&self, nth: u64, state: &mut u64) -> u64 {
        match self {
            Load::Random => next(state) % PAGES,
            Load::Zipf(ranks) => {
                let drawn = (next(state) >> 11) as f64 / (1u64 << 53) as f64;
                let drawn = drawn * ranks[ranks.len() - 1];
                let rank = ranks.partition_point(|sum| *sum < drawn) as u64;
                rank * 7919 % PAGES
            }
            Load::Loop => nth % (PAGES / 2),
            Load::Mixed if next(state) % 4 > 0 => next(state) % (PAGES / 8),
            Load::Mixed => PAGES / 8 + nth / 4 % (PAGES - PAGES / 8),
        }
    }
}

/// A group, its reader and the observer.
struct Reader<'a> {
    scratch: &'a Scratch,
    eye: Eye<Box<Observer>>,
    file: fs::File,
    load: Load,
    nth: u64,
    state: u64,
    /// Pause after each 64 reads.
    pause: Duration,
}

impl Reader<'_> {
    /// Reads for `seconds`, sampled as by the agent; returns what was counted.
    fn read(&mut self, seconds: f64) -> Counters {
        let id = self.eye.groups[0].id();
        let (begun, mut looked) = (Instant::now(), Instant::now());
        let before = self.eye.counters(id);
        let mut buffer = [0; PAGE as usize];
        while begun.elapsed().as_secs_f64() < seconds {
            for _ in 0..64 {
                let page = self.load.page(self.nth, &mut self.state);
                self.file.read_exact_at(&mut buffer, page * PAGE).unwrap();
                self.nth += 1;
            }
            if !self.pause.is_zero() {
                std::thread::sleep(self.pause);
            }
            if looked.elapsed() > Duration::from_secs(1) {
                self.eye.look();
                looked = Instant::now();
            }
        }
        common::difference(&before, &self.eye.counters(id))
    }

    fn curve(&self) -> Option<Curve> {
        self.eye.observer.worth(self.eye.groups[0].id())
    }

    /// Page cache that the group holds.
    fn held(&self) -> u64 {
        let stat = fs::read_to_string(self.scratch.dir.join("memory.stat")).unwrap();
        let of = |key: &str| -> u64 {
            let mut lines = stat.lines();
            let value = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
            value.unwrap().parse().unwrap()
        };
        of("file") - of("shmem")
    }
}

fn set_lru(multi_generational: bool) -> bool {
    let path = Path::new("/sys/kernel/mm/lru_gen/enabled");
    path.exists() && fs::write(path, if multi_generational { "y" } else { "n" }).is_ok()
}

/// Parameters of a comparison, besides the load.
struct Comparison<'a> {
    dir: &'a Path,
    /// Seconds to learn the curve of each load without a limit.
    learn: f64,
    /// Seconds to measure with a limit; the first half is to settle.
    measure: f64,
    /// Sizes, as fractions of the file.
    parts: &'a [f64],
    /// Reads are few enough per second that each is counted; otherwise there are as many as possible.
    paced: bool,
}

/// Compares the curve of the last of these loads, each of which runs in turn, with what is measured. Returns the
/// mean error, and over how many sizes.
fn off(name: &str, loads: impl IntoIterator<Item = Load>, how: &Comparison<'_>) -> (f64, usize) {
    let path = how.dir.join("file");
    if !path.exists() {
        TestFile::cold(how.dir, "file", PAGES * PAGE);
    }
    let scratch = Scratch::new("curve");
    // The observer comes before we enter, because its maps are charged to the cgroup that makes them.
    let eye = Eye::fresh(vec![scratch.group()]);
    scratch.enter();
    let file = fs::File::open(&path).unwrap();
    advise(&file, libc::POSIX_FADV_DONTNEED);
    advise(&file, libc::POSIX_FADV_RANDOM);
    let mut reader = Reader {
        scratch: &scratch,
        eye,
        file,
        load: Load::Random,
        nth: 0,
        state: 88_172_645_463_325_252,
        pause: Duration::from_millis(if how.paced { 8 } else { 0 }),
    };
    for load in loads {
        reader.load = load;
        reader.read(how.learn);
    }
    let estimated = reader.eye.observer.estimates();
    let curve = reader.curve().expect("enough was seen");
    println!(
        "{name}: {} reads, estimated {estimated}, {} points to {} MiB, {:.1} MB/s",
        reader.nth,
        curve.points().len(),
        curve.known().0 >> 20,
        curve.asked_per_s() / 1e6
    );
    let (mut sum, mut sizes) = (0.0, 0);
    for part in how.parts {
        // Room for memory of the group that is not page cache: kernel memory.
        let current = fs::read_to_string(scratch.dir.join("memory.current")).unwrap();
        let current: u64 = current.trim().parse().unwrap();
        let other = current.saturating_sub(reader.held());
        let limit = other + (part * (PAGES * PAGE) as f64) as u64;
        scratch.set("memory.max", &limit.to_string());
        reader.read(how.measure / 2.0);
        let counted = reader.read(how.measure / 2.0);
        let held = reader.held();
        let truth = 1.0 - (counted.missed + counted.readahead) as f64 / counted.asked as f64;
        // A reader that misses nothing may hold less than its room, and would miss nothing with all of it.
        let misses = truth < 1.0;
        let room = (part * (PAGES * PAGE) as f64) as u64;
        let told = curve.hit_ratio(Bytes(if misses { held } else { room }));
        println!(
            "{name}: {:.1} MiB held: told {told:.3?}, truth {truth:.3}, {} asked",
            held as f64 / f64::from(1 << 20),
            counted.asked
        );
        if let Some(told) = told {
            sum += (told - truth).abs();
            sizes += 1;
        }
    }
    scratch.set("memory.max", "max");
    (sum / f64::from(sizes), sizes as usize)
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn a_curve_tells_what_hit_ratios_at_other_sizes_will_be() {
    let dir = TestFile::dir();
    for (name, load, paced) in [
        ("random, estimated", Load::Random, false),
        ("zipf 1.0", Load::zipf(1.0), true),
    ] {
        let (off, sizes) = off(
            name,
            [load],
            &Comparison {
                dir: dir.path(),
                learn: 13.0,
                measure: 2.0,
                parts: &[0.15, 0.3],
                paced,
            },
        );
        println!("{name}: off by {off:.3} over {sizes}");
        assert!(off <= 0.05 && sizes == 2, "{name}: {off}, {sizes}");
    }
}

/// Reads a few bytes again and again in a cgroup, in a process of its own, until it is dropped.
struct Busy(libc::pid_t);

impl Busy {
    fn new(scratch: &Scratch, file: &fs::File) -> Busy {
        let procs =
            CString::new(scratch.dir.join("cgroup.procs").into_os_string().into_vec()).unwrap();
        // SAFETY: the child makes system calls and nothing else.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let mut buffer = [0u8; 64];
            // SAFETY: the buffer is as long as said, and both files are open.
            unsafe {
                // Copies of the observer's descriptors in the child would keep its links alive.
                libc::dup2(file.as_raw_fd(), 0);
                libc::close_range(3, libc::c_uint::MAX, 0);
                let procs = libc::open(procs.as_ptr(), libc::O_WRONLY);
                libc::write(procs, b"0".as_ptr().cast(), 1);
                loop {
                    libc::pread(0, buffer.as_mut_ptr().cast(), buffer.len(), 0);
                }
            }
        }
        assert!(child > 0);
        Busy(child)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        // SAFETY: our own child, which nobody else waits for.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn a_group_that_misses_has_a_curve_while_reads_are_seen_in_windows() {
    let dir = TestFile::dir();
    TestFile::cold(dir.path(), "file", PAGES * PAGE);
    let file = fs::File::open(dir.path().join("file")).unwrap();
    let (loops, busy) = (Scratch::new("loops"), Scratch::new("busy"));
    let eye = Eye::fresh(vec![loops.group(), busy.group()]);
    let _busy = Busy::new(&busy, &file);
    loops.enter();
    loops.set("memory.max", &(12u64 << 20).to_string());
    let mut reader = Reader {
        scratch: &loops,
        eye,
        file,
        load: Load::Loop,
        nth: 0,
        state: 1,
        pause: Duration::ZERO,
    };
    reader.read(15.0);
    assert!(reader.eye.observer.estimates());
    let curve = reader.curve().expect("its misses tell");
    let of_loop = |part: f64| curve.hit_ratio(Bytes((part * (PAGES / 2 * PAGE) as f64) as u64));
    println!("{:.3?} {:.3?}", of_loop(0.9), of_loop(1.1));
    assert!(of_loop(0.9).is_some_and(|hits| hits < 0.05), "{curve:?}");
    assert!(of_loop(1.1).is_some_and(|hits| hits > 0.95), "{curve:?}");
}

/// Compares the curves of loads, each of which may have had others before it, at eight sizes under both LRUs.
/// Prints the errors. Only if `JUSTITIA_TEST_ROUNDS` is at least 100.
fn compare<const N: usize>(cases: impl Fn() -> [(&'static str, Vec<Load>, bool); N]) {
    let rounds = std::env::var("JUSTITIA_TEST_ROUNDS").unwrap_or_default();
    if rounds.parse::<u32>().unwrap_or(100) < 100 {
        return println!("not at so few rounds: {rounds}");
    }
    let dir = TestFile::dir();
    for multi_generational in [false, true] {
        let set = set_lru(multi_generational);
        if multi_generational && !set {
            continue;
        }
        for (name, loads, paced) in cases() {
            let how = Comparison {
                dir: dir.path(),
                learn: 30.0,
                measure: 4.0,
                parts: &[0.06, 0.12, 0.25, 0.4, 0.55, 0.7, 0.85, 1.0],
                paced,
            };
            let (off, sizes) = off(name, loads, &how);
            println!("RESULT {name}, MGLRU {multi_generational}: off by {off:.3} over {sizes}");
        }
    }
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn curves_of_all_loads_on_both_lrus() {
    compare(|| {
        [
            ("random", vec![Load::Random], true),
            ("zipf 0.8", vec![Load::zipf(0.8)], true),
            ("zipf 1.0", vec![Load::zipf(1.0)], true),
            ("zipf 1.2", vec![Load::zipf(1.2)], true),
            ("loop", vec![Load::Loop], true),
            ("mixed", vec![Load::Mixed], true),
            ("zipf 1.0, estimated", vec![Load::zipf(1.0)], false),
            ("loop, estimated", vec![Load::Loop], false),
        ]
    });
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn curves_follow_a_load_that_changes() {
    compare(|| {
        let zipf = || Load::zipf(1.0);
        [
            (
                "a loop, 30 s after zipf 1.0",
                vec![zipf(), Load::Loop],
                true,
            ),
            (
                "a loop, 90 s after zipf 1.0",
                vec![zipf(), Load::Loop, Load::Loop, Load::Loop],
                true,
            ),
            (
                "random, 30 s after a loop",
                vec![Load::Loop, Load::Random],
                true,
            ),
            (
                "random, 90 s after a loop",
                vec![Load::Loop, Load::Random, Load::Random, Load::Random],
                true,
            ),
        ]
    });
}
