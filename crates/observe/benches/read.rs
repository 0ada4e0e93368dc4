//! The cost of the observer for a read: `cargo bench -p justitia-observe`, as root on a cgroup2 host.
//!
//! Reads 4 KiB at random from a cached file, by one system call each, and prints the CPU time of a call. The
//! cases are: nothing attached; a program behind `filemap_read` that does nothing, which is the kernel's own
//! price; the observer while it watches another group; and the observer while it watches the reader's group,
//! without and with a curve. Then the CPU time of a step while reads are estimated, which looks at every thread of the
//! host, with few threads and with [`THREADS`] more.

use std::error::Error;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Barrier};
use std::thread::{self, sleep};
use std::time::Duration;

use justitia_cgroup::{Fs, Mount, RealFs};
use justitia_observe::bpf::{probe, Observer};
use justitia_observe::{TrafficSource, Watched};
use libbpf_rs::Link;
use rustix::fs::{fadvise, Advice};
use rustix::time::{clock_gettime, ClockId};

const BLOCK: usize = 4096;
const BLOCKS: u64 = 16 << 10;
const CALLS: u32 = 100_000;
/// Rounds. The fastest one counts, because disturbances only add time.
const ROUNDS: u32 = 5;
/// After this time the rate of reads is low again, and the observer looks at curves.
const REST: Duration = Duration::from_secs(90);
/// Threads that the steps look at.
const THREADS: usize = 10_000;
/// Steps of each kind.
const STEPS: u32 = 10;

fn main() {
    if let Err(error) = compare() {
        eprintln!("cannot measure here: {error}; run as root on a cgroup2 host with BPF");
        std::process::exit(69);
    }
}

fn compare() -> Result<(), Box<dyn Error>> {
    let mount = Mount::detect()?;
    let file = tempfile::tempfile()?;
    for block in 0..BLOCKS {
        file.write_all_at(&[1; BLOCK], block * BLOCK as u64)?;
    }
    file.sync_all()?;
    fadvise(&file, 0, None, Advice::Random)?;
    let mut buffer = [0; BLOCK];
    for block in 0..BLOCKS {
        file.read_exact_at(&mut buffer, block * BLOCK as u64)?;
    }

    println!("{:<34} {:>10} {:>8}", "attached", "ns a call", "of that");
    let nothing = call_ns(&file)?;
    let say = |what: &str, ns: f64| {
        println!(
            "{what:<34} {ns:>10.0} {:>+7.1} %",
            (ns / nothing - 1.0) * 100.0
        );
    };
    say("nothing", nothing);
    let link = idle()?;
    say("a program that does nothing", call_ns(&file)?);
    drop(link);

    let fs: Fs = Arc::new(RealFs::new(&mount)?);
    let mut observer = Observer::open(Arc::clone(&fs), &mut probe(), || ())?;
    for (what, inside) in [
        ("the observer, of another group", false),
        ("the observer", true),
    ] {
        let scratch = Scratch::new(mount.path().join("justitia-bench-read"))?;
        let group = fs.open("/justitia-bench-read")?;
        if inside {
            scratch.enter()?;
        }
        let watched = Watched {
            group: &group,
            active: true,
        };
        observer.sample(&[watched], &mut Vec::new());
        say(what, call_ns(&file)?);
        if inside {
            // Reads at this rate would be sampled, so wait until the rate is low.
            sleep(REST);
            observer.sample(&[watched], &mut Vec::new());
            say("the observer, with a curve", call_ns(&file)?);
            let mut step = || {
                let before = cpu_ns();
                for _ in 0..STEPS {
                    observer.sample(&[watched], &mut Vec::new());
                }
                let ms = (cpu_ns() - before) / 1e6 / f64::from(STEPS);
                // Nothing keeps it estimating but the reads so far.
                observer
                    .estimates()
                    .then_some(ms)
                    .ok_or("reads are counted")
            };
            println!("a step that looks at few threads: {:.3} ms", step()?);
            let _threads = Threads::start()?;
            println!("with {THREADS} threads more: {:.3} ms", step()?);
        }
    }
    Ok(())
}

/// Threads that sleep until they are dropped.
struct Threads(Arc<Barrier>);

impl Threads {
    fn start() -> std::io::Result<Threads> {
        let end = Arc::new(Barrier::new(THREADS + 1));
        for _ in 0..THREADS {
            let end = Arc::clone(&end);
            let thread = thread::Builder::new().stack_size(16 << 10);
            thread.spawn(move || end.wait())?;
        }
        Ok(Threads(end))
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.0.wait();
    }
}

/// CPU time of one read.
fn call_ns(file: &fs::File) -> Result<f64, std::io::Error> {
    let mut least = f64::INFINITY;
    let mut buffer = [0; BLOCK];
    let mut random = 1_u64;
    for _ in 0..ROUNDS {
        let before = cpu_ns();
        for _ in 0..CALLS {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            file.read_exact_at(&mut buffer, (random >> 33) % BLOCKS * BLOCK as u64)?;
        }
        least = least.min((cpu_ns() - before) / f64::from(CALLS));
    }
    Ok(least)
}

fn cpu_ns() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Attaches the probe's program that returns at once.
fn idle() -> Result<Link, Box<dyn Error>> {
    let wanted = |name: &str| name == "probe_function";
    let object = justitia_bpf::load("probe", justitia_bpf::object!("probe"), &wanted, &[])?;
    let program = object
        .progs_mut()
        .find(|program| program.name() == "probe_function")
        .ok_or("the program is not there")?;
    // The link keeps the program.
    Ok(program.attach()?)
}

/// A cgroup for this process, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(path: PathBuf) -> std::io::Result<Scratch> {
        fs::create_dir(&path)?;
        Ok(Scratch(path))
    }

    fn enter(&self) -> std::io::Result<()> {
        fs::write(self.0.join("cgroup.procs"), "0")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(parent) = self.0.parent() {
            let _ = fs::write(parent.join("cgroup.procs"), "0");
        }
        let _ = fs::remove_dir(&self.0);
    }
}
