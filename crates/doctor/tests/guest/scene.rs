//! A real host that is given a pitfall and put right again. All that is changed comes back when a
//! [`Scene`] ends, on failure too: many of them share one guest.

use std::collections::HashSet;
use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use justitia_cgroup::survey::{HostFacts, RealHost};
use justitia_cgroup::RealFs;
use justitia_discover::{DiscoverConfig, Owners, RuntimeDirs};
use justitia_doctor::{examine, gather, Look, Report, Subject};
use rustix::mount::{mount_remount, MountFlags};

use super::hog::{Hog, Job};

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const LRU_GEN: &str = "/sys/kernel/mm/lru_gen/enabled";
/// Where the lab puts the modules that it was asked for.
const MODULES: &str = "/opt/lab/modules";

pub(crate) fn mount() -> PathBuf {
    let mount = std::env::var_os("JUSTITIA_TEST_CGROUP2").unwrap_or("/sys/fs/cgroup".into());
    PathBuf::from(mount)
}

#[track_caller]
pub(crate) fn set(path: impl AsRef<Path>, text: &str) {
    let path = path.as_ref();
    fs::write(path, text).unwrap_or_else(|error| panic!("{text} to {}: {error}", path.display()));
}

/// Runs a program of the guest, which must succeed.
#[track_caller]
pub(crate) fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    let status = output.status;
    assert!(
        status.success(),
        "{program} {arguments:?}: {status}: {said}"
    );
}

pub(crate) fn drop_caches() {
    rustix::fs::sync();
    set("/proc/sys/vm/drop_caches", "3");
}

/// The disk under the directory for temporary files.
pub(crate) fn data_disk() -> String {
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

/// The disks with hardware behind them.
pub(crate) fn disks() -> Vec<String> {
    fs::read_dir("/sys/block")
        .unwrap()
        .flatten()
        .filter(|disk| disk.path().join("device").exists())
        .map(|disk| disk.file_name().to_string_lossy().into_owned())
        .collect()
}

pub(crate) fn select(disk: &str, scheduler: &str) {
    set(format!("/sys/block/{disk}/queue/scheduler"), scheduler);
}

/// A tree of cgroups of our own, removed at the end.
struct Tree {
    root: PathBuf,
    name: String,
}

impl Tree {
    fn new() -> Tree {
        let name = format!("doctor-{}", std::process::id());
        let root = mount().join(&name);
        let _ = fs::write(mount().join("cgroup.subtree_control"), "+memory +io");
        fs::create_dir(&root).unwrap();
        set(root.join("cgroup.subtree_control"), "+memory +io");
        Tree { root, name }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // A killed process leaves its group a moment later than it is waited for.
        for _ in 0..100 {
            remove(&self.root);
            if !self.root.exists() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Removes a cgroup and those below it, as far as they are empty.
pub(crate) fn remove(group: &Path) {
    for child in fs::read_dir(group).into_iter().flatten().flatten() {
        if child.path().is_dir() {
            remove(&child.path());
        }
    }
    let _ = fs::remove_dir(group);
}

type Undo = Box<dyn FnOnce()>;

/// The host of one pitfall: built right in the beginning, with BFQ on all disks and the classic LRU.
pub(crate) struct Scene {
    hogs: Vec<Hog>,
    undo: Vec<Undo>,
    tree: Option<Tree>,
    /// For files, on the data disk.
    pub(crate) files: tempfile::TempDir,
    /// What the configuration names as workloads.
    pub(crate) manage: Vec<String>,
    /// Whatever a row has to remember between its steps.
    pub(crate) note: String,
}

impl Scene {
    /// Without any cgroup: the controllers may be somewhere else on this boot.
    pub(crate) fn bare() -> Scene {
        let mut scene = Scene {
            hogs: Vec::new(),
            undo: Vec::new(),
            tree: None,
            files: tempfile::tempdir().unwrap(),
            manage: Vec::new(),
            note: String::new(),
        };
        for disk in disks() {
            scene.change(format!("/sys/block/{disk}/queue/scheduler"), "bfq");
        }
        if Path::new(LRU_GEN).exists() {
            scene.change(LRU_GEN, "n");
        }
        drop_caches();
        scene
    }

    /// With a tree of cgroups that has the memory and the io controller.
    pub(crate) fn new() -> Scene {
        let mut scene = Scene::bare();
        scene.tree = Some(Tree::new());
        scene
    }

    fn tree(&self) -> &Tree {
        self.tree.as_ref().expect("a scene with cgroups")
    }

    /// The directory at the top of its own cgroups.
    pub(crate) fn root(&self) -> &Path {
        &self.tree().root
    }

    /// The path of a group as the doctor names it; of the top for the empty name.
    pub(crate) fn path(&self, name: &str) -> String {
        let path = format!("/{}/{name}", self.tree().name);
        path.trim_end_matches('/').to_owned()
    }

    /// A group below the top; made, if it is not there.
    pub(crate) fn group(&self, name: &str) -> PathBuf {
        let path = self.root().join(name);
        if !path.exists() {
            fs::create_dir(&path).unwrap();
        }
        path
    }

    /// Writes bytes to a file of a group; of the top for the empty name.
    #[track_caller]
    pub(crate) fn knob(&self, name: &str, file: &str, bytes: u64) {
        let group = if name.is_empty() {
            self.root().to_owned()
        } else {
            self.group(name)
        };
        set(group.join(file), &bytes.to_string());
    }

    /// Writes a file that gets its old text back at the end.
    #[track_caller]
    pub(crate) fn change(&mut self, path: impl Into<PathBuf>, text: &str) {
        let path = path.into();
        let was = fs::read_to_string(&path).unwrap();
        // Of a choice, the one in brackets.
        let was = match was.split_once('[') {
            Some((_, rest)) => rest.split(']').next().unwrap().to_owned(),
            None => was.trim().to_owned(),
        };
        set(&path, text);
        self.undo.push(Box::new(move || {
            let _ = fs::write(&path, was);
        }));
    }

    pub(crate) fn sysctl(&mut self, name: &str, value: u64) {
        self.change(format!("/proc/sys/vm/{name}"), &value.to_string());
    }

    /// A limit of dirty pages in bytes. The ratio comes back with it: writing one clears the other.
    pub(crate) fn dirty_bytes(&mut self, limit: u64, background: u64) {
        self.undo.push(Box::new(|| {
            let _ = fs::write("/proc/sys/vm/dirty_ratio", "20");
            let _ = fs::write("/proc/sys/vm/dirty_background_ratio", "10");
        }));
        set("/proc/sys/vm/dirty_bytes", &limit.to_string());
        set(
            "/proc/sys/vm/dirty_background_bytes",
            &background.to_string(),
        );
    }

    pub(crate) fn at_the_end(&mut self, undo: impl FnOnce() + 'static) {
        self.undo.push(Box::new(undo));
    }

    /// A process in a group that works on until the scene, or [`Scene::calm`], ends it.
    pub(crate) fn start(&mut self, group: &Path, job: &Job) {
        self.hogs.push(Hog::start(group, job));
    }

    /// Ends the processes.
    pub(crate) fn calm(&mut self) {
        self.hogs.clear();
    }

    /// A path for a file on the data disk.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// A swap file that is in use until the end.
    pub(crate) fn swap_on(&mut self, bytes: u64) {
        let path = self.file("swap");
        let chunk = vec![0; MIB as usize];
        let mut file = fs::File::create(&path).unwrap();
        for _ in 0..bytes / MIB {
            std::io::Write::write_all(&mut file, &chunk).unwrap();
        }
        drop(file);
        let path = path.to_string_lossy().into_owned();
        run("chmod", &["600", &path]);
        run("mkswap", &[&path]);
        run("swapon", &[&path]);
        self.at_the_end(move || run("swapoff", &[&path]));
    }

    /// Takes a module out; it comes back at the end, or by [`load`].
    pub(crate) fn unload(&mut self, module: &'static str) {
        run("rmmod", &[module]);
        self.at_the_end(move || load(module));
    }

    /// What the doctor says.
    pub(crate) fn diagnose(&self, seconds: u64) -> Report {
        let config = DiscoverConfig {
            manage: self.manage.clone(),
            ..DiscoverConfig::default()
        };
        let runtimes = RuntimeDirs::under(self.files.path());
        let owners = Owners::new(&config, runtimes).unwrap();
        let host = RealHost::default();
        // As the command does it.
        let open = |host: &HostFacts| {
            let unread = justitia_cgroup::survey::Unread::new("cgroups", "not mounted");
            let mount = host.cgroup2()?.ok_or(unread)?;
            let fs = RealFs::on_directory(&mount.mount_point).unwrap();
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

    /// The host's memory, as the doctor writes it.
    pub(crate) fn memory(&self) -> String {
        let bytes = self.diagnose(0).host.memory_bytes.unwrap();
        justitia_policy::units::Bytes(bytes).to_string()
    }

    pub(crate) fn subject(&self, name: &str) -> Subject {
        Subject::Group(self.path(name))
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.hogs.clear();
        while let Some(undo) = self.undo.pop() {
            undo();
        }
        self.tree = None;
    }
}

/// Puts a module of the lab's in, if it is not there.
pub(crate) fn load(module: &str) {
    if Path::new("/sys/module").join(module).exists() {
        return;
    }
    // `07-bfq.ko`.
    let ending = format!("-{module}.ko");
    let mut files = fs::read_dir(MODULES).unwrap().flatten();
    let found = files.find(|file| file.file_name().to_string_lossy().ends_with(&ending));
    let path = found.expect("the lab brought it").path();
    run("insmod", &[&path.to_string_lossy()]);
}

/// Changes the options of the cgroup2 mount.
pub(crate) fn remount(flags: MountFlags, options: &str) {
    let options = CString::new(options).unwrap();
    mount_remount(mount(), flags, options.as_c_str()).unwrap();
}
