//! A virtual machine on this host, and how much of its disk the host's page cache holds, in three
//! configurations: buffered (`default`), past the page cache (`none`), and buffered with `justitia vm run`
//! (`justitia`). `docs/experiments/vm-cache.md` explains how to read the result.
//!
//! Needs root on a host with BTF, and `cargo build --release` first. Not part of `make test`:
//! `cargo test --release -p justitia-lab --test vm_cache -- --ignored --nocapture --test-threads=1 NAME`.
//! Without a name all tests run, and `scarce` takes nearly all of the host's memory. `JUSTITIA_TEST_BINARY`
//! names a `justitia` other than `target/release/justitia`, `JUSTITIA_TEST_ROUNDS` repeats all of it (3),
//! `JUSTITIA_TEST_FILTER` selects workloads by name.

mod counting;
mod pressure;
mod scarce;
mod setup;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::{self, sleep, JoinHandle};
use std::time::{Duration, Instant};

use justitia_lab::load::random::Rng;
use justitia_machine::qemu::{self, Machine, SERIAL_DATA};
use justitia_machine::tools;

use setup::{setup, Setup};

const DISK_BYTES: u64 = 512 << 20;
const PAGE: u64 = 4096;
const MIB: f64 = 1_048_576.0;

/// Name, and the guest's commands.
const WORKLOADS: [(&str, &str); 5] = [
    (
        "stream",
        "dd if=$data of=/dev/null bs=1M count=384 status=none",
    ),
    (
        "gzip",
        "dd if=$data bs=1M count=24 status=none | busybox gzip >/dev/null",
    ),
    (
        "reread",
        "for i in 1 2 3 4; do dd if=$data of=/dev/null bs=1M count=192 status=none; done",
    ),
    (
        "random",
        "fio --name=r --filename=$data --rw=randread --random_distribution=zipf:1.1 --bs=16k \
         --size=256m --io_size=256m --invalidate=0 --randseed=7 >/dev/null",
    ),
    // Sources once and in no order, headers repeatedly, objects written, and linked at the end.
    (
        "build",
        "fio --thread --filename=$data --invalidate=0 --randseed=7 \
         --name=sources --rw=randread --bs=8k --size=96m \
         --name=headers --rw=randread --random_distribution=zipf:1.1 --bs=4k --offset=96m \
         --size=24m --io_size=96m \
         --name=objects --rw=write --bs=16k --offset=128m --size=64m --end_fsync=1 \
         --name=link --stonewall --rw=read --bs=64k --offset=128m --size=64m >/dev/null",
    ),
];

const POLICIES: [&str; 3] = ["default", "none", "justitia"];

struct Guest {
    child: Killed,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Guest {
    fn boot(machine: &Machine, cache: &str) -> Guest {
        let mut arguments = qemu::arguments(machine);
        for argument in &mut arguments {
            if argument.contains("id=data") || argument.contains(SERIAL_DATA) {
                *argument = argument.replace("cache=unsafe", &format!("cache={cache}"));
            }
        }
        assert!(arguments
            .iter()
            .any(|a| a.contains(&format!("cache={cache}"))));
        let mut child = Command::new(tools::find(machine.architecture.qemu()).unwrap())
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut guest = Guest {
            stdin: child.stdin.take().unwrap(),
            stdout: BufReader::new(child.stdout.take().unwrap()),
            child: Killed(child),
        };
        guest.answer();
        guest
    }

    fn run(&mut self, line: &str) -> Vec<String> {
        writeln!(self.stdin, "{line}").unwrap();
        self.answer()
    }

    fn answer(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            let read = self.stdout.read_line(&mut line).unwrap();
            assert_ne!(read, 0, "the guest ended: {lines:#?}");
            match line.trim_end().strip_prefix("@done ") {
                Some("0") => return lines,
                Some(status) => panic!("status {status}: {lines:#?}"),
                None => lines.push(line.trim_end().to_owned()),
            }
        }
    }
}

/// Bytes that a process read from the disk.
fn disk_bytes(pid: u32) -> u64 {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
    let line = io
        .lines()
        .find_map(|line| line.strip_prefix("read_bytes: "));
    line.unwrap().parse().unwrap()
}

fn rounds() -> u32 {
    std::env::var("JUSTITIA_TEST_ROUNDS").map_or(3, |n| n.parse().unwrap())
}

/// A process that is killed when dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `justitia vm run`, stopped as a user would stop it.
struct ImageCache(Child);

impl ImageCache {
    fn start(justitia: &Path, dir: &Path) -> ImageCache {
        ImageCache::start_with(justitia, dir, &[])
    }

    fn start_with(justitia: &Path, dir: &Path, arguments: &[&str]) -> ImageCache {
        let mut child = Command::new(justitia)
            .args(["vm", "run", "--state-dir"])
            .arg(dir)
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = String::new();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut first).unwrap();
        assert!(first.starts_with("managing the cache of"), "{first}");
        ImageCache(child)
    }
}

impl Drop for ImageCache {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        let _ = self.0.wait();
    }
}

/// Samples how much of the disk the host caches while a workload runs.
struct Sampler {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<u64>>,
}

impl Sampler {
    fn start(program: &Path, image: &Path) -> Sampler {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, program, image) = (stop.clone(), program.to_owned(), image.to_owned());
        let thread = thread::spawn(move || {
            let mut samples = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                samples.push(host_pages(&program, &image).len() as u64 * PAGE);
                sleep(Duration::from_millis(500));
            }
            samples
        });
        Sampler { stop, thread }
    }

    fn mean(self) -> f64 {
        self.stop.store(true, Ordering::Relaxed);
        let samples = self.thread.join().unwrap();
        samples.iter().sum::<u64>() as f64 / samples.len().max(1) as f64
    }
}

fn pages(lines: &[String]) -> BTreeSet<u64> {
    let mut pages = BTreeSet::new();
    for line in lines {
        let Some((from, to)) = line.split_once(' ') else {
            continue;
        };
        if let (Ok(from), Ok(to)) = (from.parse::<u64>(), to.parse::<u64>()) {
            pages.extend(from..to);
        }
    }
    pages
}

fn host_pages(program: &Path, image: &Path) -> BTreeSet<u64> {
    let output = Command::new(program).arg(image).output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    pages(&text.lines().map(str::to_owned).collect::<Vec<_>>())
}

/// Figures of one run: seconds, MiB from the disk, mean MiB cached by the host and MiB at the end, MiB cached
/// by the guest at the end, MiB cached twice.
type Figures = [f64; 6];

const HEADS: [&str; 6] = [
    "seconds",
    "disk MiB",
    "host mean MiB",
    "host end MiB",
    "guest end MiB",
    "twice MiB",
];

/// Empties the host's page cache of an image.
fn drop_cached(image: &Path) {
    let file = File::open(image).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

/// QEMU's cache mode for the image under a policy.
fn cache_of(policy: &str) -> &'static str {
    match policy {
        "none" => "none",
        _ => "writeback",
    }
}

fn measure(setup: &Setup, policy: &str, workload: &str) -> Figures {
    let image = &setup.image;
    drop_cached(image);
    let mut guest = Guest::boot(&setup.machine, cache_of(policy));
    let _image_cache =
        (policy == "justitia").then(|| ImageCache::start(&setup.justitia, &setup.dir));
    let before = disk_bytes(guest.child.0.id());
    let sampler = Sampler::start(&setup.resident, image);
    let began = Instant::now();
    guest.run(workload);
    let seconds = began.elapsed().as_secs_f64();
    let mean = sampler.mean();
    let disk = disk_bytes(guest.child.0.id()) - before;
    // Pages that were read ahead and never requested are dropped after three quiet seconds.
    sleep(Duration::from_secs(6));
    let host = host_pages(&setup.resident, image);
    let theirs = pages(&guest.run(&format!("/opt/lab/resident $data {DISK_BYTES}")));
    let twice = host.intersection(&theirs).count() as u64;
    let mib = |pages: usize| pages as f64 * PAGE as f64 / MIB;
    [
        seconds,
        disk as f64 / MIB,
        mean / MIB,
        mib(host.len()),
        mib(theirs.len()),
        mib(twice as usize),
    ]
}

/// Mean, minimum and maximum of each figure.
fn table(results: &BTreeMap<(&str, &str), Vec<Figures>>) -> String {
    let mut text = format!("| workload | policy | {} |\n", HEADS.join(" | "));
    text += "|---|---|---:|---:|---:|---:|---:|---:|\n";
    for (workload, _) in WORKLOADS {
        for policy in POLICIES {
            let Some(runs) = results.get(&(workload, policy)) else {
                continue;
            };
            let _ = write!(text, "| {workload} | {policy} |");
            for at in 0..HEADS.len() {
                let values = || runs.iter().map(|run| run[at]);
                let mean = values().sum::<f64>() / runs.len() as f64;
                let least = values().fold(f64::MAX, f64::min);
                let most = values().fold(f64::MIN, f64::max);
                let _ = write!(text, " {mean:.1} ({least:.1} to {most:.1}) |");
            }
            text.push('\n');
        }
    }
    text
}

#[test]
#[ignore = "boots virtual machines; takes a quarter of an hour"]
fn double_caching_and_repeated_reads_from_the_disk_are_avoided() {
    let rounds = rounds();
    let filter = std::env::var("JUSTITIA_TEST_FILTER").unwrap_or_default();
    // On a disk, with the page cache above it: a temporary directory may be in memory.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let setup = setup(dir.path());
    let mut results: BTreeMap<(&str, &str), Vec<Figures>> = BTreeMap::new();
    for round in 0..rounds {
        for (name, workload) in WORKLOADS.iter().filter(|(name, _)| name.contains(&filter)) {
            for policy in POLICIES {
                let figures = measure(&setup, policy, workload);
                let load = fs::read_to_string("/proc/loadavg").unwrap();
                let load = load.split(' ').next().unwrap_or_default();
                eprintln!("round {round} {name} {policy} (load {load}): {figures:.1?}");
                results.entry((name, policy)).or_default().push(figures);
            }
        }
    }
    println!("{}", table(&results));
    let mean = |workload, policy, at: usize| {
        let runs = results.get(&(workload, policy))?;
        Some(runs.iter().map(|run: &Figures| run[at]).sum::<f64>() / runs.len() as f64)
    };
    // For a loop larger than the guest's memory, the host must also keep what the guest holds, or fetch it
    // again, because it does not see the guest's evictions.
    for workload in ["stream", "gzip", "random"] {
        let pair = [mean(workload, "default", 5), mean(workload, "justitia", 5)];
        if let [Some(default), Some(ours)] = pair {
            assert!(
                ours <= default / 4.0,
                "{workload}: cached twice {ours} against {default}"
            );
        }
    }
    if let (Some(none), Some(ours)) = (mean("reread", "none", 1), mean("reread", "justitia", 1)) {
        assert!(
            ours < none * 0.75,
            "read again from the disk: {ours} against {none}"
        );
    }
}

const CHUNK: usize = 64 << 10;

/// The data that `write N` writes.
fn pattern(number: u64) -> Vec<u8> {
    let line = format!("{number}\n").into_bytes();
    line.into_iter().cycle().take(CHUNK).collect()
}

#[test]
#[ignore = "boots a virtual machine"]
fn flushed_data_is_on_the_disk_after_a_power_cut_while_pages_are_dropped() {
    const CHUNKS: u64 = 256;
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let setup = setup(dir.path());
    let file = File::options().read(true).write(true).open(&setup.image);
    let file = file.unwrap();
    let mut truth = fs::read(&setup.image).unwrap();
    drop_cached(&setup.image);

    let mut guest = Guest::boot(&setup.machine, "writeback");
    let image_cache = ImageCache::start(&setup.justitia, &setup.dir);
    let mut random = Rng::new(11, 0);
    for number in 0..200 {
        let place = random.below(CHUNKS);
        guest.run(&format!("write {number} {place}"));
        let from = place as usize * CHUNK;
        truth[from..from + CHUNK].copy_from_slice(&pattern(number));
        // Bypasses the guest's cache: from the host's, or the disk.
        let read = random.below(CHUNKS);
        guest.run(&format!(
            "dd if=$data of=/dev/null bs=64k skip={read} count=4 iflag=direct status=none"
        ));
    }
    // The guest ends in the middle of a write that it never acknowledged.
    writeln!(guest.stdin, "write 1000 {CHUNKS}").unwrap();
    drop(guest);
    sleep(Duration::from_secs(1));
    drop(image_cache);

    file.sync_all().unwrap();
    drop_cached(&setup.image);
    let found = fs::read(&setup.image).unwrap();
    assert_eq!(found.len(), truth.len());
    let wrong: Vec<usize> = (found.chunks(CHUNK).zip(truth.chunks(CHUNK)).enumerate())
        .filter(|(at, (found, truth))| *at as u64 != CHUNKS && found != truth)
        .map(|(at, _)| at)
        .collect();
    assert!(
        wrong.is_empty(),
        "chunks that are not as they were flushed: {wrong:?}"
    );
}
