//! A leaking group on a real kernel, with swap and without: it keeps its share of memory, and neither the
//! other groups nor the host lose what they use.

mod common;

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;

use common::until;
use justitia_agent::{Agent, Log, Settings};
use justitia_cgroup::{xattr, Mount, RealFs};
use justitia_discover::RuntimeDirs;

const MIB: u64 = 1 << 20;
/// Set in the environment of a program that works in a group.
const JOB: &str = "JUSTITIA_LEAK_JOB";
/// Size of the file that each of the other groups reads again and again: smaller than its share.
const WORKING_SET: u64 = 40 * MIB;
/// Size of the file that the leaking group reads besides.
const STREAM: u64 = 120 * MIB;
/// Steps of the agent after the leak has reached its size.
const STEPS: usize = 6;

/// Not a test: the program that runs in a group. It holds some anonymous memory, touches all of it again and
/// again, and reads a file, with a pause after each of its parts.
#[test]
#[ignore = "needs root on a cgroup2 host; what the other test runs in a group"]
fn worker() {
    let Ok(job) = std::env::var(JOB) else {
        return;
    };
    let mut words = job.splitn(4, ' ');
    let mut next = || words.next().unwrap();
    let group = Path::new(next());
    let (anon, size): (usize, u64) = (next().parse().unwrap(), next().parse().unwrap());
    let path = Path::new(next());
    fs::write(group.join("cgroup.procs"), "0").unwrap();
    let mut part = vec![7; MIB as usize];
    let mut file = fs::File::create(path).unwrap();
    for _ in 0..size / MIB {
        file.write_all(&part).unwrap();
    }
    file.sync_all().unwrap();
    fs::write(path.with_extension("ready"), "").unwrap();
    let mut held = vec![1_u8; anon];
    loop {
        let mut file = fs::File::open(path).unwrap();
        for at in 0.. {
            if file.read(&mut part).unwrap() == 0 {
                break;
            }
            if at % 8 == 0 {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        held.iter_mut()
            .step_by(4096)
            .for_each(|byte| *byte = byte.wrapping_add(1));
    }
}

/// A group with its worker; both are gone at the end.
struct Group {
    dir: PathBuf,
    worker: Option<Child>,
}

impl Group {
    fn make(dir: PathBuf) -> Group {
        fs::create_dir(&dir).unwrap();
        Group { dir, worker: None }
    }

    fn start(&mut self, anon: u64, size: u64, file: &Path) {
        let job = format!("{} {anon} {size} {}", self.dir.display(), file.display());
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "worker", "--ignored"])
            .env(JOB, job)
            .stdout(std::process::Stdio::null())
            .spawn();
        self.worker = Some(child.unwrap());
        let ready = file.with_extension("ready");
        until("its file is written", || ready.exists());
    }

    /// A number of one of its files, by key where there are many.
    fn number(&self, file: &str, key: &str) -> u64 {
        let text = fs::read_to_string(self.dir.join(file)).unwrap();
        let found = match key {
            "" => Some(text.trim()),
            key => text
                .lines()
                .find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')),
        };
        found
            .unwrap_or_else(|| panic!("{key} of {file}: {text}"))
            .parse()
            .unwrap()
    }

    fn mib(&self, file: &str, key: &str) -> u64 {
        self.number(file, key) / MIB
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(mut worker) = self.worker.take() {
            let _ = worker.kill();
            let _ = worker.wait();
        }
        for _ in 0..100 {
            if fs::remove_dir(&self.dir).is_ok() || !self.dir.exists() {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

fn run(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).status().unwrap();
    assert!(status.success(), "{program} {arguments:?}: {status}");
}

/// A swap file that is in use until the end.
struct Swap(String);

impl Swap {
    fn on(path: &Path, bytes: u64) -> Swap {
        let mut file = fs::File::create(path).unwrap();
        let part = vec![0; MIB as usize];
        for _ in 0..bytes / MIB {
            file.write_all(&part).unwrap();
        }
        file.sync_all().unwrap();
        let path = path.to_str().unwrap().to_owned();
        run("chmod", &["600", &path]);
        run("mkswap", &[&path]);
        run("swapon", &[&path]);
        Swap(path)
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        run("swapoff", &[&self.0]);
    }
}

fn total_memory() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib: u64 = line
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    kib << 10
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn a_group_that_leaks_keeps_its_share_and_pushes_out_neither_others_nor_the_host() {
    let mount = std::env::var("JUSTITIA_TEST_CGROUP2");
    let mount = PathBuf::from(mount.unwrap_or_else(|_| "/sys/fs/cgroup".into()));
    let total = total_memory();
    for swap in [true, false] {
        let sizes = [WORKING_SET; 3];
        let files = tempfile::tempdir().unwrap();
        let _swap = swap.then(|| Swap::on(&files.path().join("swap"), 256 * MIB));
        let name = format!("justitia-leak-{}-{swap}", std::process::id());
        let top = Group::make(mount.join(&name));
        fs::write(top.dir.join("cgroup.subtree_control"), "+memory +io").unwrap();
        let managed = Group::make(top.dir.join("app"));
        fs::write(managed.dir.join("cgroup.subtree_control"), "+memory +io").unwrap();
        let mut leak = Group::make(managed.dir.join("leak"));
        let mut others = ["app/a", "app/b", "stranger"].map(|name| Group::make(top.dir.join(name)));
        rustix::fs::setxattr(
            &leak.dir,
            xattr::WEIGHT,
            b"200",
            rustix::fs::XattrFlags::empty(),
        )
        .unwrap();
        for (at, group) in others.iter_mut().enumerate() {
            group.start(0, sizes[at], &files.path().join(format!("other-{at}")));
        }
        let settings = Settings {
            manage: vec![format!("/{name}/app/*")],
            state_dir: files.path().join("state"),
            ..Settings::default()
        };
        let fs = Arc::new(RealFs::new(&Mount::detect().unwrap()).unwrap());
        let log = Log::captured_without_debug();
        let mut agent = Agent::new(fs, settings, RuntimeDirs::none(), "leak", log).unwrap();
        let mut step = |times: usize| {
            for _ in 0..times {
                agent.tick();
                std::thread::sleep(Duration::from_secs(1));
            }
        };
        step(3);
        let size = total / 10 * 6;
        leak.start(size, STREAM, &files.path().join("stream"));
        let grown = |leak: &Group| {
            leak.number("memory.stat", "anon") + leak.number("memory.swap.current", "")
                > size / 20 * 19
        };
        for _ in 0..60 {
            if grown(&leak) {
                break;
            }
            step(1);
        }
        assert!(grown(&leak), "the leak has its size");
        let read =
            |group: &Group| group.number("memory.stat", "workingset_refault_file") * 4096 / MIB;
        let before = others.each_ref().map(read);
        step(STEPS);
        let low = leak.mib("memory.low", "");
        let report = agent.board().report();
        let told = report
            .groups
            .iter()
            .find(|group| group.path.ends_with("/leak"));
        let verdict = told.and_then(|group| group.verdict.as_ref());
        let threshold = verdict.expect("it is managed").threshold_bytes / MIB;
        println!(
            "swap {swap}: memory {} MiB; leak of {}: resident {}, swapped {}, page cache {}, low {low}, of it for page cache {threshold}",
            total / MIB,
            size / MIB,
            leak.mib("memory.stat", "anon"),
            leak.mib("memory.swap.current", ""),
            leak.mib("memory.stat", "file"),
        );
        for (at, (group, before)) in others.iter().zip(before).enumerate() {
            println!(
                "  {}: page cache {} of {} MiB, read again {} MiB in {STEPS} steps, low {}",
                ["a", "b", "stranger"][at],
                group.mib("memory.stat", "file"),
                sizes[at] / MIB,
                read(group) - before,
                group.mib("memory.low", ""),
            );
        }
        let restored = agent.finish().unwrap();
        assert!(restored.problems.is_empty(), "{:?}", restored.problems);
        for (group, size) in others.iter().zip(sizes) {
            let held = group.number("memory.stat", "file");
            assert!(
                held >= size / 4 * 3,
                "{}: {held} of {size} bytes are left",
                group.dir.display()
            );
        }
        let worker = leak.worker.as_mut().unwrap();
        assert!(worker.try_wait().unwrap().is_none(), "the leak lives on");
        drop((leak, others, managed, top));
    }
}
