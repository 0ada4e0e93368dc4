//! A real host on which a test builds a pitfall and repairs it. A [`Scene`] restores all its changes when it
//! is dropped, on failure too, because many of them share one guest.

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
/// Directory for the modules that the test requested from the lab.
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

/// Runs a program of the guest. It must succeed.
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

/// The disk of the directory for temporary files.
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

/// The disks with a device behind them.
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

/// The scene's own tree of cgroups, removed on drop.
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
        // A killed process may still be in its group when `wait` returns.
        for _ in 0..100 {
            remove(&self.root);
            if !self.root.exists() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Removes a cgroup and its descendants, as far as they are empty.
pub(crate) fn remove(group: &Path) {
    for child in fs::read_dir(group).into_iter().flatten().flatten() {
        if child.path().is_dir() {
            remove(&child.path());
        }
    }
    let _ = fs::remove_dir(group);
}

type Undo = Box<dyn FnOnce()>;

/// The host of one pitfall. It starts without pitfalls, with BFQ on all disks and the classic LRU.
pub(crate) struct Scene {
    hogs: Vec<Hog>,
    undo: Vec<Undo>,
    tree: Option<Tree>,
    /// Directory for files, on the data disk.
    pub(crate) files: tempfile::TempDir,
    /// The workloads that the configuration names.
    pub(crate) manage: Vec<String>,
    /// The reason why this kernel cannot have the pitfall.
    pub(crate) impossible: Option<String>,
    /// Text that a row keeps between its steps.
    pub(crate) note: String,
}

impl Scene {
    /// A scene without cgroups: on this boot the controllers may be on cgroup v1 or disabled.
    pub(crate) fn bare() -> Scene {
        let mut scene = Scene {
            hogs: Vec::new(),
            undo: Vec::new(),
            tree: None,
            files: tempfile::tempdir().unwrap(),
            manage: Vec::new(),
            impossible: None,
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

    /// A scene with a tree of cgroups that have the memory and the io controller.
    pub(crate) fn new() -> Scene {
        let mut scene = Scene::bare();
        scene.tree = Some(Tree::new());
        scene
    }

    fn tree(&self) -> &Tree {
        self.tree.as_ref().expect("a scene with cgroups")
    }

    /// The directory of the topmost of its cgroups.
    pub(crate) fn root(&self) -> &Path {
        &self.tree().root
    }

    /// The path of a group as the doctor names it; the empty name is the topmost group.
    pub(crate) fn path(&self, name: &str) -> String {
        let path = format!("/{}/{name}", self.tree().name);
        path.trim_end_matches('/').to_owned()
    }

    /// A group below the topmost one; created if it does not exist.
    pub(crate) fn group(&self, name: &str) -> PathBuf {
        let path = self.root().join(name);
        if !path.exists() {
            fs::create_dir(&path).unwrap();
        }
        path
    }

    /// Writes a number of bytes to a file of a group; the empty name is the topmost group.
    #[track_caller]
    pub(crate) fn knob(&self, name: &str, file: &str, bytes: u64) {
        let group = if name.is_empty() {
            self.root().to_owned()
        } else {
            self.group(name)
        };
        set(group.join(file), &bytes.to_string());
    }

    /// Writes a file and restores its old text at the end.
    #[track_caller]
    pub(crate) fn change(&mut self, path: impl Into<PathBuf>, text: &str) {
        let path = path.into();
        let was = fs::read_to_string(&path).unwrap();
        // A file with choices has the selected one in brackets.
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

    /// Sets the dirty limits in bytes. At the end it restores the ratios, which also clears the bytes.
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

    /// Starts a job in a group. It runs until the scene or [`Scene::calm`] ends it.
    pub(crate) fn start(&mut self, group: &Path, job: &Job) {
        self.hogs.push(Hog::start(group, job));
    }

    /// Ends all jobs.
    pub(crate) fn calm(&mut self) {
        self.hogs.clear();
    }

    /// A path for a file on the data disk.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// Enables a swap file until the end.
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

    /// Unloads a module. It is loaded again at the end, or earlier by [`load`].
    pub(crate) fn unload(&mut self, module: &'static str) {
        run("rmmod", &[module]);
        self.at_the_end(move || load(module));
    }

    /// Runs the doctor.
    pub(crate) fn diagnose(&self, seconds: u64) -> Report {
        let config = DiscoverConfig {
            manage: self.manage.clone(),
            ..DiscoverConfig::default()
        };
        let runtimes = RuntimeDirs::under(self.files.path());
        let owners = Owners::new(&config, runtimes).unwrap();
        let host = RealHost::default();
        // As `justitia doctor` does.
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
            managed: Ok(HashSet::new()),
            window: Duration::from_secs(seconds),
            wait: &mut std::thread::sleep,
        });
        examine(&facts, &[], None)
    }

    /// The host's memory as the doctor prints it.
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

/// Loads a module from the lab unless it is already loaded.
fn load(module: &str) {
    if Path::new("/sys/module").join(module).exists() {
        return;
    }
    // Files are named like `07-bfq.ko`.
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
