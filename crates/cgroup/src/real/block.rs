//! Disks that BFQ schedules: those whose `queue/scheduler` shows it in brackets. Its knobs are in
//! `queue/iosched`, a directory that is made anew, with another inode, whenever a scheduler is
//! selected.
//!
//! A host may have a thousand loop and mapper devices, and schedulers are selected at boot: the
//! list is made anew every ten seconds. Nobody is misled by an old one: the directory of a
//! scheduler that is gone says so.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{self, Mode, OFlags, RawDir};
use rustix::io::Errno;

use super::budget::Budget;
use super::directory::{RealDirectory, Shared};
use crate::fs::disk_path;
use crate::{Buffer, Quirks};

/// `f_type` of sysfs.
const SYSFS_MAGIC: fs::FsWord = 0x6265_6572;
/// How long a list is good for.
const LIST_LASTS: Duration = Duration::from_secs(10);
/// A knob that BFQ always had and that is not ours: without it the directory is gone.
const SIGN: &str = "slice_idle";
/// How the active scheduler is shown.
const ACTIVE: &[u8] = b"[bfq]";

/// The host's disks.
#[derive(Debug)]
pub(crate) struct Disks {
    /// The directory of block devices; `None`: there is none.
    root: Option<OwnedFd>,
    shared: Arc<Shared>,
    list: Mutex<List>,
}

#[derive(Debug, Default)]
struct List {
    paths: Vec<String>,
    made: Option<Instant>,
}

impl Disks {
    /// No disks.
    pub(crate) fn none() -> Disks {
        Disks::of(None, Budget::new(0))
    }

    /// The disks in a directory of block devices.
    pub(crate) fn below(path: &Path, budget: &Arc<Budget>) -> Disks {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = fs::open(path, flags, Mode::empty()).ok();
        Disks::of(root, Arc::clone(budget))
    }

    fn of(root: Option<OwnedFd>, budget: Arc<Budget>) -> Disks {
        let sysfs = root
            .as_ref()
            .and_then(|root| fs::fstatfs(root).ok())
            .is_some_and(|stat| stat.f_type == SYSFS_MAGIC);
        Disks {
            root,
            shared: Arc::new(Shared {
                quirks: Quirks::default(),
                budget,
                sign: sysfs.then_some(SIGN),
            }),
            list: Mutex::default(),
        }
    }

    /// Opens the directory of a disk's scheduler, if that is BFQ.
    pub(crate) fn open(&self, name: &str) -> Result<RealDirectory, Errno> {
        let root = self.root.as_ref().ok_or(Errno::NOENT)?;
        if name.is_empty() || name.starts_with('.') || name.contains('/') {
            return Err(Errno::NOENT);
        }
        if !is_scheduled_by_bfq(root, name, &mut Buffer::new())? {
            return Err(Errno::NOENT);
        }
        let relative = format!("{name}/queue/iosched");
        RealDirectory::open_at(root, &relative, &disk_path(name), Arc::clone(&self.shared))
    }

    /// Appends the paths of the disks that BFQ schedules.
    pub(crate) fn list(&self, out: &mut Vec<String>) {
        let Some(root) = &self.root else { return };
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        if list.made.is_none_or(|made| made.elapsed() >= LIST_LASTS) {
            list.paths.clear();
            // What could not be listed is looked for again when this list is old.
            let _ = scan(root, &mut list.paths);
            list.paths.sort_unstable();
            list.made = Some(Instant::now());
        }
        out.extend_from_slice(&list.paths);
    }
}

fn scan(root: &OwnedFd, paths: &mut Vec<String>) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    // Anew: a directory descriptor remembers how far it was read.
    let dir = fs::openat(root, ".", flags | OFlags::DIRECTORY, Mode::empty())?;
    let mut space = [MaybeUninit::uninit(); 4 << 10];
    let mut entries = RawDir::new(&dir, &mut space);
    let mut buffer = Buffer::new();
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else {
            continue;
        };
        if !name.starts_with('.') && is_scheduled_by_bfq(root, name, &mut buffer).unwrap_or(false) {
            paths.push(disk_path(name));
        }
    }
    Ok(())
}

fn is_scheduled_by_bfq(root: &OwnedFd, name: &str, buffer: &mut Buffer) -> Result<bool, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let path = format!("{name}/queue/scheduler");
    let file = fs::openat(root, path, flags, Mode::empty())?;
    buffer.pread(file, false)?;
    let mut words = buffer.bytes().split(u8::is_ascii_whitespace);
    Ok(words.any(|word| word == ACTIVE))
}

#[cfg(test)]
mod tests {
    use justitia_policy::plan::{Knob, Value};

    use crate::{CgroupFs, Error, RealFs, Written};

    /// A cgroup mount without cgroups, and block devices: name, schedulers, `low_latency`.
    fn host(disks: &[(&str, &str, Option<&str>)]) -> (tempfile::TempDir, RealFs) {
        let root = tempfile::tempdir().unwrap();
        for (name, scheduler, low_latency) in disks {
            let queue = root.path().join("block").join(name).join("queue");
            std::fs::create_dir_all(queue.join("iosched")).unwrap();
            std::fs::write(queue.join("scheduler"), scheduler).unwrap();
            if let Some(text) = low_latency {
                std::fs::write(queue.join("iosched/low_latency"), text).unwrap();
            }
        }
        std::fs::create_dir(root.path().join("cgroup")).unwrap();
        let fs = RealFs::on_directory(root.path().join("cgroup")).unwrap();
        let fs = fs.with_disks(root.path().join("block"));
        (root, fs)
    }

    fn listed(fs: &RealFs) -> Vec<String> {
        let mut paths = Vec::new();
        fs.block_devices(&mut paths);
        paths
    }

    #[test]
    fn disks_are_those_whose_active_scheduler_is_bfq() {
        let (_root, fs) = host(&[
            ("vdb", "none [bfq] mq-deadline\n", Some("1\n")),
            ("vda", "[bfq]\n", Some("1\n")),
            ("vdc", "none bfq [mq-deadline]\n", None),
            ("loop0", "[none] bfq\n", None),
        ]);
        assert_eq!(listed(&fs), ["block:vda", "block:vdb"]);
    }

    #[test]
    fn the_switch_is_read_and_written() {
        let (root, fs) = host(&[("vda", "[bfq] none\n", Some("1\n"))]);
        let disk = fs.open("block:vda").unwrap();
        assert_eq!(disk.path(), "block:vda");
        assert_eq!(disk.id().0 >> 63, 1, "no cgroup has this id");
        let knob = Knob::BfqLowLatency;
        assert_eq!(disk.read_knob(knob), Ok(Some(Value::Switch(true))));
        let off = Value::Switch(false);
        assert_eq!(disk.write_knob(knob, off), Ok(Written::Done));
        assert_eq!(disk.read_knob(knob), Ok(Some(off)));
        let file = root.path().join("block/vda/queue/iosched/low_latency");
        assert_eq!(std::fs::read_to_string(file).unwrap(), "0");
        let error = disk.write_knob(knob, Value::Weight(1)).unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{error}");
        assert_eq!(disk.read_knob(Knob::MemoryLow), Ok(None));
    }

    #[test]
    fn a_scheduler_selected_again_is_another_one_and_the_old_is_gone() {
        let (root, fs) = host(&[("vda", "[bfq]\n", Some("1\n"))]);
        let old = fs.open("block:vda").unwrap();
        let queue = root.path().join("block/vda/queue");
        std::fs::rename(queue.join("iosched"), queue.join("old")).unwrap();
        std::fs::create_dir(queue.join("iosched")).unwrap();
        std::fs::remove_dir_all(queue.join("old")).unwrap();
        assert!(old.read_knob(Knob::BfqLowLatency).unwrap_err().is_gone());
        let new = fs.open("block:vda").unwrap();
        assert_ne!(new.id(), old.id());
        assert_eq!(new.read_knob(Knob::BfqLowLatency), Ok(None), "no such file");
    }

    #[test]
    fn a_name_leads_nowhere_else_and_a_host_without_sysfs_has_no_disks() {
        let (root, fs) = host(&[("vda", "[bfq]\n", Some("1\n"))]);
        for path in ["block:", "block:..", "block:../block/vda", "block:vdx"] {
            assert!(fs.open(path).unwrap_err().is_gone(), "{path}");
        }
        std::fs::write(
            root.path().join("block/vda/queue/scheduler"),
            "[none] bfq\n",
        )
        .unwrap();
        assert!(fs.open("block:vda").unwrap_err().is_gone(), "not BFQ's");
        let fs = fs.with_disks(root.path().join("nowhere"));
        assert!(listed(&fs).is_empty());
        assert!(fs.open("block:vda").unwrap_err().is_gone());
    }
}
