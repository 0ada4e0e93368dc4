//! The host's disks: those that BFQ schedules, with `[bfq]` in `queue/scheduler`, and those that io.cost may
//! serve, which are all but BFQ's rotational ones and those below a volume that writes in one thread for all groups.
//!
//! A disk below request-based device-mapper multipath is neither: the volume gives the paths its requests past their
//! schedulers (`blk_insert_cloned_request`). The volume has a scheduler of its own, and is listed. With NVMe multipath
//! it is the other way round: the disk passes bios on, and its paths have the schedulers. Bios keep their groups there,
//! so BFQ serves the paths. io.cost cannot: a path has no number. It is listed all the same, so that opening it says so.
//!
//! BFQ's knobs are in `queue/iosched`. The kernel recreates that directory, with another inode, whenever a scheduler is
//! selected.
//!
//! A host may have a thousand loop and mapper devices, and schedulers are selected at boot. The list is
//! therefore rebuilt only every ten seconds. An old list does no harm: accesses to the directory of a removed
//! scheduler fail with `ENODEV`.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{self, OFlags};
use rustix::io::Errno;

use super::budget::Budget;
use super::cost::{is_hidden, CostDirectory, CostLines};
use super::directory::{RealDirectory, Shared};
use super::{open_at, DIRECTORY};
use crate::file::{cost_name, cost_path, disk_path};
use crate::parse::disk;
use crate::{Buffer, Quirks};

/// `f_type` of sysfs.
const SYSFS_MAGIC: fs::FsWord = 0x6265_6572;
/// Lifetime of the list.
const LIST_LASTS: Duration = Duration::from_secs(10);
/// Volumes over one another that are looked at.
const DEEPEST: u32 = 8;
/// A knob that every BFQ has and Justitia does not manage. If it is missing, the directory is gone.
const SIGN: &str = "slice_idle";
/// BFQ as the active scheduler, as `queue/scheduler` shows it.
const ACTIVE: &[u8] = b"[bfq]";

/// The host's disks.
#[derive(Debug)]
pub(crate) struct Disks {
    /// The directory of block devices; `None`: there is none.
    root: Option<OwnedFd>,
    lines: Arc<CostLines>,
    shared: Arc<Shared>,
    list: Mutex<List>,
}

#[derive(Debug, Default)]
struct List {
    paths: Vec<Listed>,
    made: Option<Instant>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Listed {
    path: String,
    /// It is for io.cost, and a volume over it writes in one thread for all groups.
    joined: bool,
}

impl Disks {
    /// The disks in a directory of block devices.
    pub(crate) fn below(root: Option<OwnedFd>, budget: &Arc<Budget>) -> Disks {
        let sysfs = root
            .as_ref()
            .and_then(|root| fs::fstatfs(root).ok())
            .is_some_and(|stat| stat.f_type == SYSFS_MAGIC);
        Disks {
            root,
            lines: Arc::default(),
            shared: Arc::new(Shared {
                quirks: Quirks::default(),
                budget: Arc::clone(budget),
                sign: sysfs.then_some(SIGN),
            }),
            list: Mutex::default(),
        }
    }

    /// The directory of block devices, if `name` can be an entry of it.
    fn root_of(&self, name: &str) -> Result<&OwnedFd, Errno> {
        let inside = !name.is_empty() && !name.starts_with('.') && !name.contains('/');
        let root = self.root.as_ref().filter(|_| inside);
        root.ok_or(Errno::NOENT)
    }

    /// Opens the io.cost knobs of a disk. This includes a disk that BFQ schedules by now, so that its prior
    /// values can be restored.
    pub(crate) fn open_cost(&self, name: &str, cgroups: impl AsFd) -> Result<CostDirectory, Errno> {
        let root = self.root_of(name)?;
        let lines = Arc::clone(&self.lines);
        CostDirectory::open(root, cgroups, name, lines, Arc::clone(&self.shared))
    }

    /// Opens the directory of a disk's scheduler, if that is BFQ.
    pub(crate) fn open(&self, name: &str) -> Result<RealDirectory, Errno> {
        let root = self.root_of(name)?;
        if !served(root, name, &mut Buffer::new())?.by_bfq {
            return Err(Errno::NOENT);
        }
        let relative = format!("{name}/queue/iosched");
        RealDirectory::open_at(root, &relative, &disk_path(name), Arc::clone(&self.shared))
    }

    /// Appends the paths of the disks that BFQ schedules, and with `cost` of those that io.cost may serve, with `all`
    /// also below any volume.
    pub(crate) fn list(&self, cost: bool, all: bool, out: &mut Vec<String>) {
        let Some(root) = &self.root else { return };
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        if list.made.is_none_or(|made| made.elapsed() >= LIST_LASTS) {
            // A scan that failed is repeated when this list expires.
            list.paths = scan(root);
            list.paths.sort_unstable();
            list.made = Some(Instant::now());
        }
        let wanted =
            |disk: &&Listed| (cost || cost_name(&disk.path).is_none()) && (all || !disk.joined);
        let wanted = list.paths.iter().filter(wanted);
        out.extend(wanted.map(|disk| disk.path.clone()));
    }
}

/// The disks, in any order.
fn scan(root: &OwnedFd) -> Vec<Listed> {
    let mut paths = Vec::new();
    let mut buffer = Buffer::new();
    // Opened again, because a directory descriptor keeps its position.
    for name in entries(root, ".") {
        let served = served(root, &name, &mut buffer).unwrap_or_default();
        if served.by_bfq {
            paths.push(Listed {
                path: disk_path(&name),
                joined: false,
            });
        }
        if served.by_cost {
            paths.push(Listed {
                path: cost_path(&name),
                joined: joins_writers(root, &name, DEEPEST),
            });
        }
    }
    paths
}

/// True if a volume over this disk or volume, or over one of its partitions, writes in one thread for all groups.
/// io.cost lets the thread that submits a request wait, so all groups would wait for the lightest: over dm-crypt the
/// disk was idle for two thirds of the time (docs/results/fileserver.md, volumes).
fn joins_writers(root: &OwnedFd, name: &str, depth: u32) -> bool {
    let partitions = entries(root, name).into_iter();
    let partitions = partitions.filter(|entry| entry.starts_with(name));
    let devices = std::iter::once(name.to_owned()).chain(partitions.map(|p| format!("{name}/{p}")));
    let mut holders = devices.flat_map(|device| entries(root, &format!("{device}/holders")));
    depth > 0
        && holders
            .any(|holder| writes_for_all(root, &holder) || joins_writers(root, &holder, depth - 1))
}

fn writes_for_all(root: &OwnedFd, volume: &str) -> bool {
    shows(root, volume, "dm/uuid", disk::is_crypt)
        || shows(root, volume, "md/level", disk::is_parity_raid)
}

/// True if a volume of multipath over this disk gives it requests past its scheduler.
fn is_path_of_requests(root: &OwnedFd, name: &str) -> bool {
    let mut holders = entries(root, &format!("{name}/holders")).into_iter();
    holders.any(|holder| {
        let selects = |text: &[u8]| text.contains(&b'[');
        shows(root, &holder, "dm/uuid", disk::is_multipath)
            && shows(root, &holder, "queue/scheduler", selects)
    })
}

/// True if a file of a device can be read and shows this.
fn shows(root: &OwnedFd, device: &str, file: &str, what: fn(&[u8]) -> bool) -> bool {
    let mut buffer = Buffer::new();
    let fd = open_at(root, format!("{device}/{file}"), OFlags::RDONLY);
    fd.and_then(|fd| buffer.pread(fd, false)).is_ok() && what(buffer.bytes())
}

/// The names in a directory below; none if there is no such directory.
fn entries(root: &OwnedFd, path: &str) -> Vec<String> {
    let dir = open_at(root, path, DIRECTORY).and_then(fs::Dir::new);
    let names = dir.into_iter().flatten().flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| !name.starts_with('.')).collect()
}

/// The means that may serve a disk by weight.
#[derive(Debug, Clone, Copy, Default)]
struct Served {
    by_bfq: bool,
    by_cost: bool,
}

/// Neither serves a device that has no request queue of its own (RAM, device mapper, RAID), that a file backs, that
/// is empty, or that gets requests past its scheduler.
fn served(root: &OwnedFd, name: &str, buffer: &mut Buffer) -> Result<Served, Errno> {
    let read = |file: &str, buffer: &mut Buffer| {
        let path = format!("{name}/queue/{file}");
        buffer.pread(open_at(root, path, OFlags::RDONLY)?, false)
    };
    let is_empty = |text: &[u8]| text.trim_ascii() == b"0";
    if shows(root, name, "size", is_empty) || is_path_of_requests(root, name) {
        return Ok(Served::default());
    }
    read("scheduler", buffer)?;
    let mut words = buffer.bytes().split(u8::is_ascii_whitespace);
    if words.any(|word| word == ACTIVE) {
        let flash = read("rotational", buffer).is_ok() && !buffer.bytes().starts_with(b"1");
        let hidden = open_at(root, name, DIRECTORY).is_ok_and(|disk| is_hidden(disk, buffer));
        return Ok(Served {
            by_bfq: true,
            // On a rotational disk BFQ divides the disk's time, which io.cost's model does not know.
            by_cost: flash && !hidden,
        });
    }
    let shown = buffer.bytes().contains(&b'[');
    Ok(Served {
        by_bfq: false,
        by_cost: shown && !name.starts_with("loop"),
    })
}

#[cfg(test)]
mod tests {
    use justitia_policy::cost::{CostModel, CostQos};
    use justitia_policy::knob::{Knob, Value};

    use crate::{Buffer, CgroupFs, RealFs, Why, Written};

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
        fs.block_devices(false, &mut paths);
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
    fn a_disk_of_another_scheduler_reads_and_writes_its_own_lines_of_io_cost() {
        let (root, fs) = host(&[
            ("vda", "[bfq] none\n", None),
            ("vdb", "[none] mq-deadline\n", None),
            ("dm-0", "none\n", None),
            ("loop0", "[none]\n", None),
        ]);
        assert_eq!(listed(&fs), ["block:vda"], "a kernel without io.cost");
        let (block, cgroup) = (root.path().join("block/vdb"), root.path().join("cgroup"));
        std::fs::write(block.join("dev"), "254:16\n").unwrap();
        std::fs::write(block.join("stat"), "1 0 8 5 2 0 16 5 0 9 10\n").unwrap();
        let lines = "8:0 enable=1 ctrl=user min=1.00 max=2.00\n254:16 enable=0 ctrl=auto\n";
        std::fs::write(cgroup.join("io.cost.qos"), lines).unwrap();
        std::fs::write(cgroup.join("io.cost.model"), "8:0 ctrl=user rbps=1\n").unwrap();
        std::fs::write(
            cgroup.join("io.stat"),
            "254:16 rbytes=1 cost.vrate=97.50 cost.usage=12\n",
        )
        .unwrap();
        assert_eq!(listed(&fs), ["block:vda", "cost:vdb"]);
        let disk = fs.open("cost:vdb").unwrap();
        assert_eq!(
            disk.id().0 >> 62,
            3,
            "no cgroup and no scheduler has this id"
        );
        let (off, none) = (CostQos::default(), CostModel::default());
        assert_eq!(
            disk.read_knob(Knob::IoCostQos),
            Ok(Some(Value::CostQos(off)))
        );
        assert_eq!(
            disk.read_knob(Knob::IoCostModel),
            Ok(Some(Value::CostModel(none)))
        );
        let mut buffer = Buffer::new();
        let counters = disk.disk_counters(&mut buffer).unwrap().unwrap();
        assert_eq!((counters.reads, counters.write_bytes), (1, 8192));
        assert_eq!(disk.cost(&mut buffer), Ok(Some((9750, Some(12)))));
        let on = CostQos {
            enable: true,
            ..off
        };
        std::fs::write(cgroup.join("io.cost.qos"), "").unwrap();
        let wrote = disk.write_knob(Knob::IoCostQos, Value::CostQos(on));
        assert_eq!(wrote, Ok(Written::Done));
        let text = std::fs::read_to_string(cgroup.join("io.cost.qos")).unwrap();
        assert_eq!(text, "254:16 enable=1 ctrl=auto");
        std::fs::remove_dir_all(&block).unwrap();
        assert!(disk.read_knob(Knob::IoCostQos).unwrap_err().is_gone());
    }

    #[test]
    fn a_disk_of_bfq_has_both_kinds_of_knobs_unless_it_is_rotational() {
        let (root, fs) = host(&[
            ("sda", "[bfq] none\n", None),
            ("sdb", "[bfq] none\n", None),
            ("sdc", "[bfq] none\n", None),
        ]);
        std::fs::write(root.path().join("cgroup/io.cost.qos"), "").unwrap();
        for (name, rotational) in [("sda", "1\n"), ("sdb", "0\n")] {
            let file = root
                .path()
                .join("block")
                .join(name)
                .join("queue/rotational");
            std::fs::write(file, rotational).unwrap();
        }
        let expected = ["block:sda", "block:sdb", "block:sdc", "cost:sdb"];
        assert_eq!(listed(&fs), expected, "sdc: unknown");
    }

    #[test]
    fn a_disk_below_a_volume_that_writes_for_all_groups_is_not_for_io_cost() {
        let (root, fs) = host(&[
            ("vda", "[none] bfq\n", None),
            ("vdb", "[none] bfq\n", None),
            ("vdc", "[none] bfq\n", None),
            ("vdd", "[none] bfq\n", None),
        ]);
        std::fs::write(root.path().join("cgroup/io.cost.qos"), "").unwrap();
        let block = root.path().join("block");
        // vda and vdb carry LVM, vdb's has a LUKS volume on it; vdc has a RAID 5 over a partition.
        for holder in [
            "vda/holders/dm-0",
            "vdb/holders/dm-1",
            "dm-1/holders/dm-2",
            "vdc/vdc1/holders/md0",
            "vdd/holders",
        ] {
            std::fs::create_dir_all(block.join(holder)).unwrap();
        }
        for (file, text) in [
            ("dm-0/dm/uuid", "LVM-1\n"),
            ("dm-1/dm/uuid", "LVM-2\n"),
            ("dm-2/dm/uuid", "CRYPT-LUKS2-3\n"),
            ("md0/md/level", "raid5\n"),
        ] {
            let path = block.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        assert_eq!(listed(&fs), ["cost:vda", "cost:vdd"]);
        let mut all = Vec::new();
        fs.block_devices(true, &mut all);
        assert_eq!(all, ["cost:vda", "cost:vdb", "cost:vdc", "cost:vdd"]);
    }

    /// Writes files below the directory of block devices.
    fn add(root: &tempfile::TempDir, files: &[(&str, &str)]) {
        for (file, text) in files {
            let path = root.path().join("block").join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
    }

    #[test]
    fn a_path_of_nvme_multipath_is_bfqs_or_its_opening_says_that_io_cost_cannot_serve_it() {
        let (root, fs) = host(&[
            ("nvme0n1", "none\n", None),
            ("nvme0c0n1", "[none] bfq\n", None),
            ("nvme1c0n1", "none [bfq]\n", Some("1\n")),
            ("nvme2n1", "[none] bfq\n", None),
        ]);
        std::fs::write(root.path().join("cgroup/io.cost.qos"), "").unwrap();
        add(
            &root,
            &[
                ("nvme0c0n1/hidden", "1\n"),
                ("nvme1c0n1/hidden", "1\n"),
                ("nvme1c0n1/queue/rotational", "0\n"),
                ("nvme2n1/hidden", "0\n"),
                ("nvme2n1/dev", "259:3\n"),
            ],
        );
        assert_eq!(
            listed(&fs),
            ["block:nvme1c0n1", "cost:nvme0c0n1", "cost:nvme2n1"]
        );
        assert!(fs.open("cost:nvme2n1").is_ok());
        let error = fs.open("cost:nvme0c0n1").unwrap_err();
        assert!(matches!(error.why, Why::Unsupported(_)), "{error}");
        assert!(error.remedy().contains("nvme_core.multipath"));
    }

    #[test]
    fn multipath_of_requests_is_served_in_place_of_its_paths_and_one_of_bios_by_them() {
        let (root, fs) = host(&[
            ("sda", "none [bfq]\n", Some("1\n")),
            ("sdb", "[none] bfq\n", None),
            ("dm-0", "[mq-deadline] bfq\n", None),
            ("sdc", "none [bfq]\n", Some("1\n")),
            ("dm-1", "none\n", None),
        ]);
        std::fs::write(root.path().join("cgroup/io.cost.qos"), "").unwrap();
        for holder in ["sda/holders/dm-0", "sdb/holders/dm-0", "sdc/holders/dm-1"] {
            std::fs::create_dir_all(root.path().join("block").join(holder)).unwrap();
        }
        add(
            &root,
            &[("dm-0/dm/uuid", "mpath-1\n"), ("dm-1/dm/uuid", "mpath-2\n")],
        );
        assert_eq!(listed(&fs), ["block:sdc", "cost:dm-0"]);
        assert!(fs.open("block:sda").unwrap_err().is_gone());
    }

    #[test]
    fn an_empty_disk_serves_nobody() {
        let (root, fs) = host(&[
            ("vda", "[bfq]\n", Some("1\n")),
            ("nbd0", "[bfq]\n", Some("1\n")),
        ]);
        add(&root, &[("vda/size", "8\n"), ("nbd0/size", "0\n")]);
        assert_eq!(listed(&fs), ["block:vda"]);
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
        assert!(matches!(error.why, Why::Invalid(_)), "{error}");
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
    fn a_name_of_no_bfq_disk_opens_nothing_and_a_host_without_sysfs_has_no_disks() {
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
