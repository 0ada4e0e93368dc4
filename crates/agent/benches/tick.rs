//! Cost of one tick: `cargo bench -p justitia-agent` on the fake, `-- --real N` on real cgroups.
//!
//! One group in ten is busy (traffic, stalls, growing cache), the others are idle, as on a consolidated host.
//! The fake lacks the kernel's part, real cgroups include it. Real cgroups are made below `justitia-bench` in
//! the cgroup2 mount and removed afterwards. The result is the CPU time of all threads, not elapsed time.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

use justitia_agent::{Agent, Log, Settings};
use justitia_cgroup::{FakeFs, Fs, Mount, RealFs};
use justitia_discover::RuntimeDirs;
use justitia_policy::snapshot::Host;
use justitia_policy::units::Bytes;
use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
use rustix::time::{clock_gettime, ClockId};

/// Ticks before counting: idle groups have become quiet for good.
const WARM_UP: u32 = 140;
/// Ticks counted: a multiple of the period of full reads.
const TICKS: u32 = 64;

fn main() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            ..limit
        },
    );
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments
        .first()
        .is_some_and(|argument| argument == "--load")
    {
        load(arguments.get(1).map(String::as_str));
    }
    println!(
        "{:>7} {:>6} {:>12} {:>12} {:>10} {:>9}",
        "groups", "busy", "ms/tick CPU", "us/group", "% of core", "RSS MB"
    );
    if let Some(at) = arguments.iter().position(|argument| argument == "--real") {
        let groups = arguments
            .get(at + 1)
            .and_then(|n| n.parse().ok())
            .unwrap_or(100);
        real(groups);
        return;
    }
    for groups in [10, 100, 1000, 5000] {
        fake(groups);
    }
}

fn fake(groups: usize) {
    let fake = FakeFs::new();
    fake.set_host(Host {
        total: Some(Bytes::mib(64 << 10)),
        free: Some(Bytes::mib(100)),
        file: Some(Bytes::mib(50 << 10)),
        high_watermark: Some(Bytes::mib(200)),
        ..Host::default()
    });
    let busy: Vec<usize> = (0..groups).step_by(10).collect();
    for n in 0..groups {
        let path = format!("/app/g{n}");
        fake.mkdir(&path);
        fake.spawn(n as u32 + 10, &path);
        fake.update(&path, |group| group.file = Bytes::mib(8));
    }
    let mut tick = 0;
    let fs: Fs = fake.clone();
    measure(fs, groups, busy.len(), || {
        tick += 1;
        // The fake remembers every write.
        fake.clear_writes();
        fake.advance(Duration::from_secs(1));
        for &n in &busy {
            fake.process_io(n as u32 + 10, 0, (tick * (1 + n as u64)) << 16);
            fake.update(&format!("/app/g{n}"), |group| {
                group.io_some_us += 300_000;
                group.file = Bytes::mib(8 + tick % 7);
            });
        }
    });
}

/// A process in a group: writes a little now and then, or sleeps.
fn load(file: Option<&str>) -> ! {
    loop {
        if let Some(file) = file {
            let _ = fs::write(file, vec![0; 65536]);
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// Cgroups below `justitia-bench`, each with one process; those of busy ones write.
struct Tree {
    root: PathBuf,
    processes: Vec<Child>,
    groups: usize,
}

impl Drop for Tree {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
        for n in 0..self.groups {
            let _ = fs::remove_dir(self.root.join(format!("g{n}")));
            let _ = fs::remove_file(std::env::temp_dir().join(format!("justitia-bench-{n}")));
        }
        let _ = fs::remove_dir(&self.root);
    }
}

fn real(groups: usize) {
    let mount = match Mount::detect() {
        Ok(mount) => mount,
        Err(error) => {
            eprintln!("no real cgroups here: {error}; {}", error.remedy());
            return;
        }
    };
    let root = mount.path().join("justitia-bench");
    let _ = fs::write(mount.path().join("cgroup.subtree_control"), "+memory +io");
    fs::create_dir_all(&root).expect("make cgroups: run as root");
    let _ = fs::write(root.join("cgroup.subtree_control"), "+memory +io");
    let mut tree = Tree {
        root,
        processes: Vec::new(),
        groups,
    };
    let mut busy = 0;
    for n in 0..groups {
        let path = tree.root.join(format!("g{n}"));
        fs::create_dir_all(&path).expect("make cgroups");
        let mut command = Command::new(std::env::current_exe().expect("a name"));
        command.arg("--load");
        if n % 10 == 0 {
            busy += 1;
            command.arg(std::env::temp_dir().join(format!("justitia-bench-{n}")));
        }
        let process = command.spawn().expect("start sh");
        fs::write(path.join("cgroup.procs"), process.id().to_string()).expect("move a process");
        tree.processes.push(process);
    }
    let fs = Arc::new(RealFs::new(&mount).expect("open the mount"));
    measure(fs, groups, busy, || {
        std::thread::sleep(Duration::from_millis(100));
    });
}

fn measure(fs: Fs, groups: usize, busy: usize, mut between: impl FnMut()) {
    let state = tempfile::tempdir().expect("a temporary directory");
    let settings = Settings {
        manage: vec!["/app/*".into(), "/justitia-bench/*".into()],
        state_dir: state.path().to_owned(),
        ..Settings::default()
    };
    let mut agent = Agent::new(
        fs,
        settings,
        RuntimeDirs::none(),
        "bench",
        Log::captured_without_debug(),
    )
    .expect("an agent");
    let mut ticks = |count: u32| {
        let (mut cpu, began) = (Duration::ZERO, Instant::now());
        for _ in 0..count {
            between();
            let before = cpu_time();
            agent.tick();
            cpu += cpu_time().saturating_sub(before);
        }
        (cpu, began.elapsed())
    };
    ticks(WARM_UP);
    let (cpu, _) = ticks(TICKS);
    let tick = cpu / TICKS;
    println!(
        "{groups:>7} {busy:>6} {:>12.3} {:>12.2} {:>10.2} {:>9.1}",
        tick.as_secs_f64() * 1e3,
        tick.as_secs_f64() * 1e6 / groups as f64,
        tick.as_secs_f64() * 100.0,
        resident_megabytes(),
    );
    agent.finish().expect("restore");
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn resident_megabytes() -> f64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: f64 = statm
        .split(' ')
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(f64::NAN);
    pages * rustix::param::page_size() as f64 / 1e6
}
