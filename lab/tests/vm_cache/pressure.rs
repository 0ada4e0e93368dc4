//! Two machines in one cgroup with too little memory for what they read, and a slow disk: one rereads the
//! same data, the other reads a long stream (the paper's table 2).
//!
//! The cgroup stands for the host: its kernel reclaims when the cgroup is full. `justitia vm run` looks at
//! the host itself, which has memory to spare, so it evicts nothing here. The test shows the effect on the
//! other machine of not keeping first requests.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use crate::setup::fill;
use crate::{
    cache_of, disk_bytes, drop_cached, host_pages, setup, Guest, ImageCache, Setup, MIB, PAGE,
    POLICIES,
};

/// The image that is read once: larger than what the disk delivers in a run.
const LONG_BYTES: u64 = 3 << 30;
/// Bandwidth of the disk for both.
const READ_BYTES_PER_S: u64 = 24_000_000;
/// Page cache for both, besides the machines' own memory. The reread data is 192 MiB of it.
const CACHE_BYTES: u64 = 288 << 20;
const WARM_UP: Duration = Duration::from_secs(30);
const MEASURED: Duration = Duration::from_secs(90);
const CHUNK_MIB: u64 = 16;

/// The group in which the machines run: cgroup v2, or the hierarchies of v1.
struct Group {
    memory: PathBuf,
    io: PathBuf,
    v2: bool,
}

impl Group {
    fn new() -> Group {
        let root = Path::new("/sys/fs/cgroup");
        let v2 = root.join("cgroup.controllers").exists();
        let name = format!("justitia-test-{}", std::process::id());
        let under = |controller: &str| {
            let path = if v2 {
                root.join(&name)
            } else {
                root.join(controller).join(&name)
            };
            fs::create_dir_all(&path).expect("root may make a cgroup");
            path
        };
        if v2 {
            fs::write(root.join("cgroup.subtree_control"), "+memory +io").unwrap();
        }
        Group {
            memory: under("memory"),
            io: under("blkio"),
            v2,
        }
    }

    fn add(&self, pid: u32) {
        for dir in [&self.memory, &self.io] {
            fs::write(dir.join("cgroup.procs"), pid.to_string()).unwrap();
        }
    }

    /// Anonymous memory of the machines, bytes.
    fn anonymous(&self) -> u64 {
        let key = if self.v2 { "anon " } else { "total_rss " };
        let text = fs::read_to_string(self.memory.join("memory.stat")).unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix(key));
        value.unwrap().parse().unwrap()
    }

    /// Leaves this much besides the machines' own memory, which grows during the run: the emulator keeps
    /// translated code.
    fn leave(&self, bytes: u64) {
        let name = if self.v2 {
            "memory.max"
        } else {
            "memory.limit_in_bytes"
        };
        let limit = self.anonymous() + bytes;
        fs::write(self.memory.join(name), limit.to_string()).unwrap();
    }

    /// Throttles reads from the disk that holds the file system of `path`.
    fn limit_reads(&self, path: &Path) {
        let number = fs::metadata(path).unwrap().dev();
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let device = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        let disk = if device.join("partition").exists() {
            fs::read_to_string(device.join("../dev")).unwrap()
        } else {
            format!("{major}:{minor}")
        };
        let disk = disk.trim();
        if self.v2 {
            let line = format!("{disk} rbps={READ_BYTES_PER_S}");
            fs::write(self.io.join("io.max"), line).unwrap();
        } else {
            let line = format!("{disk} {READ_BYTES_PER_S}");
            fs::write(self.io.join("blkio.throttle.read_bps_device"), line).unwrap();
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for dir in [&self.memory, &self.io] {
            for _ in 0..50 {
                if fs::remove_dir(dir).is_ok() || !dir.exists() {
                    break;
                }
                sleep(Duration::from_millis(100));
            }
        }
    }
}

/// Reads `chunk` after `chunk` of a disk of this many MiB, cyclically, and counts.
pub(crate) fn read_on(guest: &mut Guest, mib: u64, read: &AtomicU64, stop: &AtomicBool) {
    for at in (0..mib).step_by(CHUNK_MIB as usize).cycle() {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        guest.run(&format!(
            "dd if=$data of=/dev/null bs=1M skip={at} count={CHUNK_MIB} status=none"
        ));
        read.fetch_add(CHUNK_MIB, Ordering::Relaxed);
    }
}

/// For one machine: MiB read in the measured time, MiB that the disk delivered, mean MiB cached.
type Figures = [f64; 3];

fn both(setup: &Setup, long: &Path, policy: &str) -> [Figures; 2] {
    let images = [setup.image.as_path(), long];
    images.into_iter().for_each(drop_cached);
    let group = Group::new();
    let mut guests = images.map(|image| {
        let guest = Guest::boot(&setup.machine_of(image), cache_of(policy));
        group.add(guest.child.0.id());
        guest
    });
    // The guests' caches are full, so all their memory is allocated.
    for guest in &mut guests {
        guest.run("dd if=$data of=/dev/null bs=1M skip=256 count=160 status=none");
    }
    group.leave(CACHE_BYTES);
    group.limit_reads(long);
    let image_cache =
        (policy == "justitia").then(|| ImageCache::start(&setup.justitia, &setup.dir));
    let read = [AtomicU64::new(0), AtomicU64::new(0)];
    let stop = AtomicBool::new(false);
    let pids = [0, 1].map(|at: usize| guests[at].child.0.id());
    let figures = thread::scope(|scope| {
        for ((guest, read), mib) in guests.iter_mut().zip(&read).zip([192, LONG_BYTES >> 20]) {
            let stop = &stop;
            scope.spawn(move || read_on(guest, mib, read, stop));
        }
        let began = Instant::now();
        while began.elapsed() < WARM_UP {
            sleep(Duration::from_secs(1));
            group.leave(CACHE_BYTES);
        }
        let of = |at: usize| (read[at].load(Ordering::Relaxed), disk_bytes(pids[at]));
        let now = || [0, 1].map(of);
        let (before, began) = (now(), Instant::now());
        let mut cached = [0.0; 2];
        let mut samples = 0.0;
        while began.elapsed() < MEASURED {
            group.leave(CACHE_BYTES);
            for (sum, image) in cached.iter_mut().zip(images) {
                *sum += host_pages(&setup.resident, image).len() as f64 * PAGE as f64 / MIB;
            }
            samples += 1.0;
            sleep(Duration::from_secs(5));
        }
        let (after, seconds) = (now(), began.elapsed().as_secs_f64());
        stop.store(true, Ordering::Relaxed);
        // Normalized to the same time.
        let scale = MEASURED.as_secs_f64() / seconds;
        [0, 1].map(|at| {
            [
                (after[at].0 - before[at].0) as f64 * scale,
                (after[at].1 - before[at].1) as f64 / MIB * scale,
                cached[at] / samples,
            ]
        })
    });
    drop(image_cache);
    drop(guests);
    figures
}

#[test]
#[ignore = "boots virtual machines; takes a quarter of an hour"]
fn a_rereading_machine_gains_from_pages_that_are_not_kept_of_a_stream() {
    let rounds = crate::rounds();
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let setup = setup(dir.path());
    let long = dir.path().join("long.img");
    fill(&long, LONG_BYTES);
    println!("| round | policy | again: read MiB | from the disk | cached | stream: read MiB | from the disk | cached |");
    println!("|---|---|---:|---:|---:|---:|---:|---:|");
    let mut read = POLICIES.map(|_| [0.0; 2]);
    for round in 0..rounds {
        for (policy, read) in POLICIES.into_iter().zip(&mut read) {
            let [again, stream] = both(&setup, &long, policy);
            let of = |figures: Figures| figures.map(|f| format!("{f:.0}")).join(" | ");
            println!("| {round} | {policy} | {} | {} |", of(again), of(stream));
            read[0] += again[0];
            read[1] += stream[0];
        }
    }
    let [default, _, justitia] = read;
    println!(
        "of default: again {:.3}, stream {:.3}",
        justitia[0] / default[0],
        justitia[1] / default[1]
    );
    assert!(justitia[0] > 1.05 * default[0], "who reads again gains");
    assert!(
        justitia[1] > 0.95 * default[1],
        "who streams loses hardly anything"
    );
}
