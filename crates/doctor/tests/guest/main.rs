//! The doctor on real kernels: a guest is given one pitfall after the other, for real, and is put
//! right again each time.
//!
//! They share one host, so each puts back what it changed, and they run one after the other (the
//! lab passes `--test-threads=1`).

mod pitfalls;

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use justitia_cgroup::survey::{HostFacts, RealHost};
use justitia_cgroup::RealFs;
use justitia_discover::{DiscoverConfig, Owners, RuntimeDirs};
use justitia_doctor::{examine, gather, CheckReport, Look, Report, Subject, Verdict};

const MIB: u64 = 1 << 20;
const LRU_GEN: &str = "/sys/kernel/mm/lru_gen/enabled";

fn mount() -> PathBuf {
    let mount = std::env::var_os("JUSTITIA_TEST_CGROUP2").unwrap_or("/sys/fs/cgroup".into());
    PathBuf::from(mount)
}

fn set(path: impl AsRef<Path>, text: &str) {
    let path = path.as_ref();
    fs::write(path, text).unwrap_or_else(|error| panic!("{text} to {}: {error}", path.display()));
}

fn diagnose(seconds: u64) -> Report {
    let host = RealHost::default();
    let owners = Owners::new(&DiscoverConfig::default(), RuntimeDirs::none()).unwrap();
    let open = |_: &HostFacts| {
        let fs = RealFs::on_directory(mount()).unwrap();
        Ok(Arc::new(fs) as justitia_cgroup::Fs)
    };
    let facts = gather(Look {
        host: &host,
        groups: &open,
        owners: &owners,
        managed: HashSet::new(),
        window: Duration::from_secs(seconds),
        wait: &mut std::thread::sleep,
    });
    examine(&facts, &[], None)
}

fn check<'a>(report: &'a Report, id: &str) -> &'a CheckReport {
    report.checks.iter().find(|check| check.id == id).unwrap()
}

/// What a check says about a subject; nothing if it is silent about it.
fn evidence(report: &Report, id: &str, subject: &Subject) -> Option<String> {
    let check = check(report, id);
    let found = check.findings.iter().find(|f| f.subject == *subject);
    found.map(|finding| finding.evidence.clone())
}

#[track_caller]
fn finds(report: &Report, id: &str, subject: &Subject, words: &[&str]) {
    let Some(said) = evidence(report, id, subject) else {
        panic!("{id} is silent about {subject:?}: {:#?}", check(report, id));
    };
    println!("{id}: {said}");
    for word in words {
        assert!(said.contains(word), "{word}: {said}");
    }
}

#[track_caller]
fn silent(report: &Report, id: &str) {
    let check = check(report, id);
    assert_eq!(check.verdict, Verdict::Fine, "{check:#?}");
}

/// A tree of cgroups of our own, removed at the end.
struct Tree {
    root: PathBuf,
    name: String,
}

impl Tree {
    fn new(name: &str) -> Tree {
        let name = format!("doctor-{name}-{}", std::process::id());
        let root = mount().join(&name);
        let _ = fs::write(mount().join("cgroup.subtree_control"), "+memory +io");
        fs::create_dir(&root).unwrap();
        set(root.join("cgroup.subtree_control"), "+memory +io");
        Tree { root, name }
    }

    fn group(&self, name: &str) -> PathBuf {
        let path = self.root.join(name);
        fs::create_dir(&path).unwrap();
        path
    }

    fn subject(&self, name: &str) -> Subject {
        let path = format!("/{}/{name}", self.name);
        Subject::Group(path.trim_end_matches('/').to_owned())
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // A killed process leaves its group a moment later than it is waited for.
        for _ in 0..50 {
            let children = fs::read_dir(&self.root).into_iter().flatten().flatten();
            for child in children {
                let _ = fs::remove_dir(child.path());
            }
            if fs::remove_dir(&self.root).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// The disk under the directory for temporary files.
fn data_disk() -> String {
    let dir = std::env::temp_dir();
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let source = mounts
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .find(|fields| Path::new(fields[1]) == dir)
        .map(|fields| fields[0].to_owned());
    let source = source.expect("temporary files are on a disk of their own");
    source.trim_start_matches("/dev/").to_owned()
}

fn select(disk: &str, scheduler: &str) {
    set(format!("/sys/block/{disk}/queue/scheduler"), scheduler);
}

fn drop_caches() {
    rustix::fs::sync();
    set("/proc/sys/vm/drop_caches", "3");
}

/// A host put right: BFQ on all disks, the classic LRU. What it was before comes
/// back at the end: other tests run in the same guest.
struct Right(Vec<(PathBuf, String)>);

fn put_right() -> Right {
    let mut before = Vec::new();
    let mut change = |path: PathBuf, text: &str| {
        let Ok(was) = fs::read_to_string(&path) else {
            return;
        };
        // Of a choice, the one in brackets; of MGLRU, its bits.
        let was = match was.split_once('[') {
            Some((_, rest)) => rest.split(']').next().unwrap().to_owned(),
            None => was.trim().to_owned(),
        };
        set(&path, text);
        before.push((path, was));
    };
    for disk in fs::read_dir("/sys/block").unwrap().flatten() {
        if disk.path().join("device").exists() {
            change(disk.path().join("queue/scheduler"), "bfq");
        }
    }
    change(PathBuf::from(LRU_GEN), "n");
    drop_caches();
    Right(before)
}

impl Drop for Right {
    fn drop(&mut self) {
        for (path, text) in &self.0 {
            let _ = fs::write(path, text);
        }
    }
}
