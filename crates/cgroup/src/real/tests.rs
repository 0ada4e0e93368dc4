//! The real implementation, on ordinary directories and, in the lab's guest, on cgroup2.

use justitia_policy::plan::{Knob, Value};
use justitia_policy::units::{Bytes, Limit};

use super::*;
use crate::{xattr, Buffer, Want, Why, Written};

/// A directory that looks like a cgroup.
fn dress(dir: &Path) {
    std::fs::create_dir_all(dir).unwrap();
    for (name, text) in [
        ("memory.current", "8388608\n"),
        ("memory.stat", "anon 4096\nfile 8192\nshmem 4096\nfile_mapped 0\nfile_dirty 0\nfile_writeback 0\nactive_file 0\nworkingset_refault_file 3\n"),
        ("memory.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=2\n"),
        ("io.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=3\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=4\n"),
        ("memory.low", "0\n"),
        ("memory.high", "max\n"),
        ("memory.max", "max\n"),
        ("io.weight", "default 100\n"),
        ("memory.reclaim", ""),
        ("cgroup.procs", "1\n2\n"),
    ] {
        std::fs::write(dir.join(name), text).unwrap();
    }
}

fn tree() -> (tempfile::TempDir, RealFs) {
    let root = tempfile::tempdir().unwrap();
    dress(&root.path().join("app/db"));
    let fs = RealFs::on_directory(root.path()).unwrap();
    (root, fs)
}

#[test]
fn a_full_read_fills_every_gauge_whose_file_is_there() {
    let (_root, fs) = tree();
    let group = fs.open("/app/db").unwrap();
    let mut buffer = Buffer::new();
    for _ in 0..3 {
        let gauges = group.gauges(Want::ALL, &mut buffer).unwrap();
        assert_eq!(gauges.memory.current, Some(Bytes(8 << 20)));
        assert_eq!(gauges.memory.file, Some(Bytes(4096)));
        assert_eq!(gauges.pressure.io_full_us, Some(4));
        assert_eq!(gauges.knobs.high, Some(Limit::Max));
        assert_eq!(gauges.knobs.io_weight, Some(100));
        assert_eq!(gauges.knobs.bfq_weight, None, "no such file");
        assert!(gauges.knobs.reclaim);
    }
}

#[test]
fn a_spent_budget_reads_the_same() {
    let (root, fs) = tree();
    let poor = RealFs::below(root.path(), Budget::new(0)).unwrap();
    let mut buffer = Buffer::new();
    let read = |fs: &RealFs, buffer: &mut Buffer| {
        let group = fs.open("/app/db").unwrap();
        group.gauges(Want::ALL, buffer).unwrap()
    };
    assert_eq!(read(&fs, &mut buffer), read(&poor, &mut buffer));
}

#[test]
fn a_change_is_seen_through_the_open_file() {
    let (root, fs) = tree();
    let group = fs.open("/app/db").unwrap();
    let mut buffer = Buffer::new();
    let before = group.activity(&mut buffer).unwrap();
    std::fs::write(root.path().join("app/db/memory.current"), "99999744\n").unwrap();
    let after = group.activity(&mut buffer).unwrap();
    assert!(!after.same_as(&before));
    assert_eq!(after.current, Some(Bytes(99_999_744)));
}

#[test]
fn a_group_made_again_under_its_path_is_another_one() {
    let (root, fs) = tree();
    let old = fs.open("/app/db").unwrap();
    let dir = root.path().join("app/db");
    std::fs::rename(&dir, root.path().join("old")).unwrap();
    dress(&dir);
    std::fs::remove_dir_all(root.path().join("old")).unwrap();
    let new = fs.open("/app/db").unwrap();
    assert_ne!(old.id(), new.id());
    assert!(!old.exists() && new.exists());
    let error = old.gauges(Want::ALL, &mut Buffer::new()).unwrap_err();
    assert!(error.is_gone(), "{error}");
}

#[test]
fn a_path_that_is_not_there_is_gone() {
    let (_root, fs) = tree();
    assert!(fs.open("/app/web").unwrap_err().is_gone());
    assert!(fs
        .children("/app/web", usize::MAX, &mut Vec::new())
        .unwrap_err()
        .is_gone());
}

#[test]
fn children_are_directories_with_their_ids() {
    let (_root, fs) = tree();
    let mut children = Vec::new();
    fs.children("/app", usize::MAX, &mut children).unwrap();
    let db = fs.open("/app/db").unwrap();
    assert_eq!(
        children,
        [Child {
            name: "db".to_owned(),
            id: db.id()
        }]
    );
}

#[test]
fn knobs_are_written_in_the_kernels_formats_and_read_back() {
    let (root, fs) = tree();
    let group = fs.open("/app/db").unwrap();
    let text = |name: &str| std::fs::read_to_string(root.path().join("app/db").join(name)).unwrap();
    let low = Value::Limit(Limit::Bytes(Bytes(4096)));
    assert_eq!(group.write_knob(Knob::MemoryLow, low), Ok(Written::Done));
    assert_eq!(group.read_knob(Knob::MemoryLow), Ok(Some(low)));
    group
        .write_knob(Knob::IoWeight, Value::Weight(250))
        .unwrap();
    assert_eq!(text("io.weight"), "default 250");
    group
        .write_knob(Knob::MemoryReclaim, Value::Reclaim(Bytes(8192)))
        .unwrap();
    assert_eq!(text("memory.reclaim"), "8192 swappiness=0");
    assert_eq!(group.read_knob(Knob::MemoryReclaim), Ok(None));
    assert_eq!(group.read_knob(Knob::IoBfqWeight), Ok(None));
    let error = group.write_knob(Knob::MemoryHigh, Value::Weight(1));
    assert!(matches!(error.unwrap_err().why, Why::Invalid(_)));
    assert_eq!(text("memory.high"), "max\n", "nothing was written");
}

#[test]
fn pids_of_a_group_are_listed() {
    let (_root, fs) = tree();
    let mut pids = Vec::new();
    let group = fs.open("/app/db").unwrap();
    group.pids(&mut Buffer::new(), &mut pids).unwrap();
    assert_eq!(pids, [1, 2]);
}

#[test]
fn a_released_group_holds_the_probed_files_only_and_reads_again() {
    let (_root, fs) = tree();
    let group = fs.open("/app/db").unwrap();
    let mut buffer = Buffer::new();
    let all = fs.shared.budget.left();
    let before = group.gauges(Want::ALL, &mut buffer).unwrap();
    let held = |fs: &RealFs| all - fs.shared.budget.left();
    assert!(held(&fs) > 2);
    group.release();
    assert_eq!(held(&fs), 2, "to be probed");
    assert_eq!(group.gauges(Want::ALL, &mut buffer).unwrap(), before);
}

/// A cgroup of our own below the real mount, removed at the end.
struct Scratch {
    fs: RealFs,
    dir: std::path::PathBuf,
    name: String,
}

impl Scratch {
    fn new(name: &str) -> Scratch {
        // A cgroup2 mount other than the host's own, for tests on a hybrid host.
        let mount = std::env::var_os("JUSTITIA_TEST_CGROUP2").map_or_else(
            || Mount::detect().unwrap().path().to_owned(),
            std::path::PathBuf::from,
        );
        let name = format!("justitia-test-{name}-{}", std::process::id());
        let dir = mount.join(&name);
        std::fs::create_dir(&dir).unwrap();
        let _ = std::fs::write(mount.join("cgroup.subtree_control"), "+memory +io");
        Scratch {
            fs: RealFs::on_directory(&mount).unwrap(),
            dir,
            name: format!("/{name}"),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.dir);
    }
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn the_kernel_takes_every_knob_and_gives_it_back() {
    let scratch = Scratch::new("knobs");
    let group = scratch.fs.open(&scratch.name).unwrap();
    let gauges = group.gauges(Want::ALL, &mut Buffer::new()).unwrap();
    assert_eq!(gauges.memory.file, Some(Bytes(0)));
    assert_eq!(gauges.knobs.high, Some(Limit::Max));
    assert_eq!(gauges.pressure.io_some_us, Some(0));
    let limit = Value::Limit(Limit::Bytes(Bytes::mib(16)));
    for knob in [Knob::MemoryLow, Knob::MemoryHigh] {
        group.write_knob(knob, limit).unwrap();
        assert_eq!(group.read_knob(knob), Ok(Some(limit)));
        group.write_knob(knob, Value::Limit(Limit::Max)).unwrap();
    }
    for knob in [Knob::IoWeight, Knob::IoBfqWeight] {
        if group.read_knob(knob).unwrap().is_some() {
            group.write_knob(knob, Value::Weight(250)).unwrap();
            assert_eq!(group.read_knob(knob), Ok(Some(Value::Weight(250))));
        }
    }
    // An empty group has nothing to reclaim, and the write is still no error.
    group
        .write_knob(Knob::MemoryReclaim, Value::Reclaim(Bytes::mib(1)))
        .unwrap();
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn a_removed_cgroup_is_gone_whether_its_files_were_open_or_not() {
    let scratch = Scratch::new("gone");
    let opened = scratch.fs.open(&scratch.name).unwrap();
    let unopened = scratch.fs.open(&scratch.name).unwrap();
    let mut buffer = Buffer::new();
    opened.gauges(Want::ALL, &mut buffer).unwrap();
    opened.set_xattr(xattr::WEIGHT, "300").unwrap();
    assert_eq!(opened.xattr(xattr::WEIGHT), Ok(Some("300".to_owned())));
    std::fs::remove_dir(&scratch.dir).unwrap();
    std::fs::create_dir(&scratch.dir).unwrap();
    for old in [opened, unopened] {
        assert!(old.gauges(Want::ALL, &mut buffer).unwrap_err().is_gone());
        assert!(!old.exists());
    }
    let new = scratch.fs.open(&scratch.name).unwrap();
    assert_eq!(new.xattr(xattr::WEIGHT), Ok(None));
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn a_group_whose_controller_was_off_for_a_while_is_not_gone() {
    let parent = Scratch::new("off");
    let switch = |to: &str| std::fs::write(parent.dir.join("cgroup.subtree_control"), to).unwrap();
    let inner = parent.dir.join("inner");
    std::fs::create_dir(&inner).unwrap();
    switch("+io");
    let group = parent.fs.open(&format!("{}/inner", parent.name)).unwrap();
    let has_stat = || group.io_bytes(&mut Buffer::new(), |_, _| {});
    let before = has_stat();
    switch("-io");
    let off = has_stat();
    switch("+io");
    // A missing file is looked for again only after a while.
    let on = (0..200)
        .map(|_| has_stat())
        .find(|there| *there != Ok(false));
    std::fs::remove_dir(&inner).unwrap();
    assert_eq!((before, off, on), (Ok(true), Ok(false), Some(Ok(true))));
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn a_leaf_has_no_children_and_a_parent_has_its_own() {
    let scratch = Scratch::new("children");
    let names = |path: &str| {
        let mut children = Vec::new();
        scratch
            .fs
            .children(path, usize::MAX, &mut children)
            .unwrap();
        children
    };
    assert_eq!(names(&scratch.name), []);
    let inner = scratch.dir.join("inner");
    std::fs::create_dir(&inner).unwrap();
    let children = names(&scratch.name);
    let id = scratch
        .fs
        .open(&format!("{}/inner", scratch.name))
        .unwrap()
        .id();
    std::fs::remove_dir(&inner).unwrap();
    let name = "inner".to_owned();
    assert_eq!(children, [Child { name, id }]);
    assert_eq!(names(&scratch.name), []);
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn the_processes_of_a_cgroup_are_those_that_were_put_there() {
    let scratch = Scratch::new("procs");
    let mut child = std::process::Command::new("sleep")
        .arg("60")
        .spawn()
        .unwrap();
    std::fs::write(scratch.dir.join("cgroup.procs"), child.id().to_string()).unwrap();
    let group = scratch.fs.open(&scratch.name).unwrap();
    let mut pids = Vec::new();
    group.pids(&mut Buffer::new(), &mut pids).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(pids, [child.id()]);
}

/// The guard's bound on the root cgroup needs this: the root has `memory.reclaim`, and with the classic LRU
/// reclaim there takes from unprotected groups. For the multi-generational LRU the test only prints the
/// amounts.
#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn reclaim_from_the_root_takes_from_the_unprotected() {
    const SIZE: u64 = 48 << 20;
    const LRU_GEN: &str = "/sys/kernel/mm/lru_gen/enabled";
    let (kept, given) = (Scratch::new("kept"), Scratch::new("given"));
    let files = tempfile::tempdir().unwrap();
    let groups = [&kept, &given].map(|scratch| scratch.fs.open(&scratch.name).unwrap());
    let held = |group: &crate::Group| {
        let gauges = group.gauges(Want::MEMORY, &mut Buffer::new()).unwrap();
        gauges.memory.file.unwrap()
    };
    let root = kept.fs.open("/").unwrap();
    assert!(root.can_write(Knob::MemoryReclaim));
    let low = Value::Limit(Limit::Bytes(Bytes::mib(80)));
    groups[0].write_knob(Knob::MemoryLow, low).unwrap();
    let prior = std::fs::read(LRU_GEN);
    for generations in ["y", "n"] {
        let _ = std::fs::write(LRU_GEN, generations);
        rustix::fs::sync();
        std::fs::write("/proc/sys/vm/drop_caches", "1").unwrap();
        // The writer of a file is charged for it, whatever was left in the page cache before.
        for scratch in [&kept, &given] {
            let path = files.path().join(&scratch.name[1..]);
            let status = std::process::Command::new("sh")
                .args(["-c", "echo $$ >$0/cgroup.procs && head -c $2 /dev/zero >$1"])
                .args([&scratch.dir, &path])
                .arg(SIZE.to_string())
                .status()
                .unwrap();
            assert!(status.success());
        }
        rustix::fs::sync();
        let before = groups.each_ref().map(held);
        let asked = Value::Reclaim(Bytes::mib(32));
        let written = root.write_knob(Knob::MemoryReclaim, asked).unwrap();
        let after = groups.each_ref().map(held);
        let numbers = format!("lru_gen {generations}, {written:?}: {before:?} {after:?}");
        println!("{numbers}");
        assert!(before.iter().all(|held| held.0 > SIZE / 2), "{numbers}");
        if kept.fs.multi_generational() == Some(false) {
            let [protected, not_protected] = [0, 1].map(|at| before[at] - after[at]);
            assert!(not_protected >= Bytes::mib(8), "{numbers}");
            assert!(protected.0 < not_protected.0 / 4, "{numbers}");
        }
    }
    if let Ok(text) = prior {
        std::fs::write(LRU_GEN, text).unwrap();
    }
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn a_process_that_joins_a_cgroup_is_listed_in_it() {
    let scratch = Scratch::new("join");
    let own = super::OwnGroup::find().unwrap().path;
    scratch.fs.join(&scratch.name).unwrap();
    let group = scratch.fs.open(&scratch.name).unwrap();
    let mut pids = Vec::new();
    group.pids(&mut Buffer::new(), &mut pids).unwrap();
    scratch.fs.join(&own).unwrap();
    assert_eq!(pids, [std::process::id()]);
    let error = scratch.fs.join("/justitia-not-there").unwrap_err();
    assert!(error.to_string().contains("justitia-not-there"), "{error}");
}

#[test]
fn a_process_that_ended_during_the_read_hides_no_other_where_all_processes_are_seen() {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("cgroup.procs"), "5\n0\n7\n").unwrap();
    let group = RealFs::on_directory(root.path())
        .unwrap()
        .open("/")
        .unwrap();
    let mut pids = Vec::new();
    let read = group.pids(&mut Buffer::new(), &mut pids);
    assert_eq!(pids, [5, 7]);
    assert_eq!(read.is_ok(), sees_all_processes());
}

#[test]
fn one_handle_at_a_time_claims_the_cgroups_whatever_others_lock() {
    use rustix::fs::{flock, FlockOperation};
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("memory.reclaim"), "").unwrap();
    let first = RealFs::on_directory(root.path()).unwrap();
    let second = RealFs::on_directory(root.path()).unwrap();
    // Any local user can take this lock.
    let directory = std::fs::File::open(root.path()).unwrap();
    flock(&directory, FlockOperation::NonBlockingLockExclusive).unwrap();
    let claim = first.claim().unwrap();
    assert!(claim.is_some());
    assert!(second.claim().unwrap().is_none());
    drop(claim);
    assert!(second.claim().unwrap().is_some());
}
