//! The cost of counting requests: the time of the image cache's programs while the guest reads at random from
//! an image that the host caches, compared with the CPU time of QEMU.
//!
//! The kernel's statistics of BPF programs are enabled meanwhile (`kernel.bpf_stats_enabled`). They do not
//! include entry to and exit from a program. The programs run for every reader on the host, and all their
//! time is counted here.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;

use justitia_lab::load::random::Rng;
use rustix::time::{clock_gettime, ClockId};

use crate::{setup, Guest, ImageCache, MIB};

const STATS: &str = "/proc/sys/kernel/bpf_stats_enabled";
/// Bytes per request, and MiB that the guest reads with them.
const REQUESTS: [(u64, u64); 2] = [(4 << 10, 96), (16 << 10, 256)];
/// The part of the disk that is read, and cached.
const READ_BYTES: u64 = 256 << 20;
const BARE_READS: u64 = 100_000;

/// The kernel times BPF programs while this exists.
struct Clocked(String);

impl Clocked {
    fn start() -> Clocked {
        let before = fs::read_to_string(STATS).unwrap();
        fs::write(STATS, "1").unwrap();
        Clocked(before)
    }
}

impl Drop for Clocked {
    fn drop(&mut self) {
        let _ = fs::write(STATS, &self.0);
    }
}

/// Nanoseconds and runs of all programs that a process holds.
fn programs(pid: u32) -> [u64; 2] {
    let mut sums = [0; 2];
    for entry in fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap_or_default();
        for (sum, key) in sums.iter_mut().zip(["run_time_ns:", "run_cnt:"]) {
            let value = text.lines().find_map(|line| line.strip_prefix(key));
            *sum += value.map_or(0, |value| value.trim().parse::<u64>().unwrap());
        }
    }
    sums
}

/// CPU time of a process, nanoseconds.
fn cpu(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let after_name = stat.rsplit_once(')').unwrap().1;
    let times = after_name.split_whitespace().skip(11).take(2);
    let ticks: u64 = times.map(|ticks| ticks.parse::<u64>().unwrap()).sum();
    ticks as f64 * 1e9 / rustix::param::clock_ticks_per_second() as f64
}

/// CPU time of a bare random `pread(2)` of this many bytes, nanoseconds.
fn bare(file: &File, bytes: u64) -> f64 {
    let mut buffer = vec![0; bytes as usize];
    let mut random = Rng::new(5, 0);
    let now = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
    };
    let began = now();
    for _ in 0..BARE_READS {
        let at = random.below(READ_BYTES / bytes) * bytes;
        file.read_exact_at(&mut buffer, at).unwrap();
    }
    (now() - began) / BARE_READS as f64
}

#[test]
#[ignore = "boots a virtual machine"]
fn the_cost_of_counting() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let setup = setup(dir.path());
    let file = File::open(&setup.image).unwrap();
    let warm = || {
        let mut buffer = vec![0; 1 << 20];
        for at in (0..READ_BYTES).step_by(buffer.len()) {
            file.read_exact_at(&mut buffer, at).unwrap();
        }
    };
    println!(
        "| request | share of QEMU's time | programs, ns a request | runs a request | QEMU, us a request \
         | bare pread, ns | with the image cache |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|");
    for _ in 0..crate::rounds() {
        warm();
        let alone = REQUESTS.map(|(bytes, _)| bare(&file, bytes));
        let mut guest = Guest::boot(&setup.machine, "writeback");
        let arguments = ["--policy", "default"];
        let image_cache = ImageCache::start_with(&setup.justitia, &setup.dir, &arguments);
        let counted = REQUESTS.map(|(bytes, _)| bare(&file, bytes));
        for (at, (bytes, mib)) in REQUESTS.into_iter().enumerate() {
            let requests = mib as f64 * MIB / bytes as f64;
            let clocked = Clocked::start();
            let before = (programs(image_cache.0.id()), cpu(guest.child.0.id()));
            // Bypasses the guest's cache: each request goes to the host.
            guest.run(&format!(
                "fio --name=r --filename=$data --rw=randread --direct=1 --bs={bytes} \
                 --size={READ_BYTES} --io_size={mib}m --randseed=7 >/dev/null"
            ));
            let after = (programs(image_cache.0.id()), cpu(guest.child.0.id()));
            drop(clocked);
            let [ns, runs] = [0, 1].map(|at: usize| (after.0[at] - before.0[at]) as f64);
            let qemu_ns = after.1 - before.1;
            println!(
                "| {} KiB | {:.2} % | {:.0} | {:.2} | {:.1} | {:.0} | {:.0} |",
                bytes >> 10,
                100.0 * ns / qemu_ns,
                ns / requests,
                runs / requests,
                qemu_ns / requests / 1e3,
                alone[at],
                counted[at]
            );
        }
    }
}
