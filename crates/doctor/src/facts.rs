//! The input of the checks: the host, all its cgroups, and counters from two reads.
//!
//! Units: bytes, pages in the counters of `memory.stat`, seconds. A value is [`Known`], or the reason why it
//! is not. `Ok(None)` means that the group does not have the file. That is a fact too: without the memory
//! controller a group's memory is its parent's.

use justitia_cgroup::parse::host::Descendants;
use justitia_cgroup::parse::memory::{MemInfo, MemoryStat};
use justitia_cgroup::survey::{Disk, HostFacts, Known, Unread};
use justitia_cgroup::{Device, File, MemoryEvents};
use justitia_discover::Kind;
use justitia_policy::cost::DiskCounters;
use justitia_policy::snapshot::WeightSource;
use justitia_policy::units::{Bytes, Limit, Weight};

/// Name prefixes of devices below `/dev` that are sources of mounts and not disks.
const NO_DISKS: [&str; 6] = ["loop", "zram", "ram", "fuse", "sr", "fd"];

/// The reason why a rate is not known.
pub(crate) fn no_second_look() -> Unread {
    Unread::new("rates", "there was only one sample (--seconds 0)")
}

/// Index of a group in [`Facts::groups`].
pub(crate) type At = usize;

pub(crate) const ROOT: At = 0;

#[derive(Debug, Clone)]
pub struct Facts {
    /// The host's own files.
    pub host: HostFacts,
    /// Mount point of cgroup2, for the commands in remedies.
    pub mount_point: String,
    /// `Ok` if the cgroups could be read.
    pub tree: Known<()>,
    /// All groups, parents before children, the root first. Empty if the cgroups could not be read.
    pub groups: Vec<GroupFacts>,
    /// Groups that exist and could not be opened or listed.
    pub closed: Vec<Unread>,
    /// Time between the two reads; `None`: there was only one.
    pub window_s: Option<f64>,
    /// Page size in bytes.
    pub page: u64,
    /// Devices with io.cost enabled; `None`: the kernel has no io.cost.
    pub io_cost: Known<Option<Vec<Device>>>,
    /// True if groups have `memory.reclaim`; `None`: there is no group that could have it.
    pub reclaim: Option<bool>,
    /// Counters of the disks, first and second read.
    pub disk_counters: [Known<Vec<(Device, DiskCounters)>>; 2],
}

#[derive(Debug, Clone)]
pub struct GroupFacts {
    /// Relative to the mount, `/` for the root.
    pub path: String,
    /// Index of its parent; `None` for the root.
    pub parent: Option<usize>,
    /// Indices of the groups directly below it.
    pub children: Vec<usize>,
    /// Kind of a container, a pod, a VM or a group managed by configuration; `None`: none of these.
    pub workload: Option<Kind>,
    /// A running agent manages it, so its knobs have the agent's values.
    pub managed: Known<bool>,
    /// It manages the group or one below it, so block weights in the group's files are the agent's.
    pub weighed: Known<bool>,
    /// A threaded group has no memory of its own.
    pub threaded: Known<bool>,
    /// `memory.min`, and so on: the root has no limits and no protections.
    pub min: Known<Option<Limit>>,
    pub low: Known<Option<Limit>>,
    pub high: Known<Option<Limit>>,
    pub max: Known<Option<Limit>>,
    pub swap_max: Known<Option<Limit>>,
    /// `memory.current`; the root has none.
    pub current: Known<Option<Bytes>>,
    /// `memory.swap.current`.
    pub swap: Known<Option<Bytes>>,
    /// `memory.stat`, first and second read.
    pub stat: [Known<Option<MemoryStat>>; 2],
    /// `memory.events`: events of the group and its descendants.
    pub events: Known<Option<MemoryEvents>>,
    /// `memory.events.local`: events of the group itself.
    pub events_local: Known<Option<MemoryEvents>>,
    /// The default of `io.weight`.
    pub io_weight: Known<Option<u32>>,
    /// The default of `io.bfq.weight`.
    pub bfq_weight: Known<Option<u32>>,
    /// The weight that its owner stated elsewhere.
    pub asked: Known<Option<(Weight, WeightSource)>>,
    /// Bytes written to all devices (`io.stat`), first and second read; `None`: no io controller.
    pub written: [Known<Option<u64>>; 2],
    /// `cgroup.stat`.
    pub descendants: Known<Option<Descendants>>,
    /// True if the kernel accounts its pressure.
    pub psi: Known<bool>,
    /// Time between its two reads.
    pub window_s: Option<f64>,
}

impl GroupFacts {
    /// Page cache at the first read: `file - shmem`.
    pub fn file(&self) -> Known<Option<Bytes>> {
        self.stat(0, |stat| stat.memory().file, "file and shmem")
    }

    /// Anonymous memory at the first read.
    pub fn anon(&self) -> Known<Option<Bytes>> {
        self.stat(0, |stat| stat.anon.map(Bytes), "anon")
    }

    /// Pages that are dirty or under writeback.
    pub fn dirty(&self) -> Known<Option<Bytes>> {
        self.stat(0, |stat| stat.memory().file_dirty, "file_dirty")
    }

    /// A field of `memory.stat` at the first read (0) or the second one (1).
    fn stat<T>(
        &self,
        look: usize,
        field: impl Fn(&MemoryStat) -> Option<T>,
        name: &str,
    ) -> Known<Option<T>> {
        let Some(stat) = self.stat[look].as_ref().map_err(Clone::clone)? else {
            return Ok(None);
        };
        let lacks = || {
            let what = format!("{} of {}", File::MemoryStat.name(), self.path);
            Unread::new(what, format!("has no {name}"))
        };
        field(stat).map(Some).ok_or_else(lacks)
    }

    /// Time between its two reads; unknown if there was only one.
    fn window(&self) -> Known<f64> {
        self.window_s
            .filter(|window| *window > 0.0)
            .ok_or_else(no_second_look)
    }

    /// Growth of a counter of `memory.stat` per second; negative if it shrinks. `None`: the group has no
    /// memory controller or is gone.
    pub fn rate(
        &self,
        field: impl Fn(&MemoryStat) -> Option<u64>,
        name: &str,
    ) -> Known<Option<f64>> {
        let Some(first) = self.stat(0, &field, name)? else {
            return Ok(None);
        };
        let window = self.window()?;
        let second = self.stat(1, &field, name)?;
        Ok(second.map(|second| (second as f64 - first as f64) / window))
    }

    /// Bytes per second that it writes; `None` without the io controller.
    pub fn write_rate(&self) -> Known<Option<f64>> {
        let [first, second] = self.written.clone();
        let Some(first) = first? else {
            return Ok(None);
        };
        let window = self.window()?;
        Ok(second?.map(|second| second.saturating_sub(first) as f64 / window))
    }

    /// The limit that its owner set: the smaller of `memory.max` and `memory.high`. The `memory.high` of a
    /// running agent does not count.
    pub fn own_limit(&self) -> Known<Option<Bytes>> {
        let bytes =
            |knob: &Known<Option<Limit>>| knob.clone().map(|limit| limit.and_then(Limit::bytes));
        let max = bytes(&self.max)?;
        let high = match bytes(&self.high) {
            Ok(None) => None,
            _ if self.managed.clone()? => None,
            high => high?,
        };
        Ok([max, high].into_iter().flatten().min())
    }

    /// The file that holds this limit of its owner's.
    pub(crate) fn limited_by(&self, limit: Bytes) -> File {
        let max = self.max.clone().ok().flatten();
        if max.and_then(Limit::bytes) == Some(limit) {
            File::MemoryMax
        } else {
            File::MemoryHigh
        }
    }

    /// Its weights other than the default: as its owner stated it elsewhere, and in its files, unless a running agent
    /// wrote them.
    pub(crate) fn weights(&self) -> [Known<Option<u32>>; 3] {
        let asked = self.asked.clone();
        let asked = asked.map(|asked| asked.map(|(weight, _)| weight.get()));
        let set = |weight: &u32| *weight != Weight::DEFAULT.get();
        let owners = |in_file: &Known<Option<u32>>| match in_file.clone()?.filter(set) {
            Some(weight) => Ok((!self.weighed.clone()?).then_some(weight)),
            None => Ok(None),
        };
        [
            asked.map(|asked| asked.filter(set)),
            owners(&self.bfq_weight),
            owners(&self.io_weight),
        ]
    }

    /// A protection (`min` or `low`) in bytes: `u64::MAX` for `max`, zero without the file.
    pub fn protection(&self, file: File) -> Known<Bytes> {
        let knob = if file == File::MemoryMin {
            &self.min
        } else {
            &self.low
        };
        match knob {
            Ok(None) => Ok(Bytes::ZERO),
            Ok(Some(Limit::Bytes(bytes))) => Ok(*bytes),
            Ok(Some(Limit::Max)) => Ok(Bytes(u64::MAX)),
            Err(unread) => Err(unread.clone()),
        }
    }
}

/// The I/O scheduler that serves cgroups by weight.
pub(crate) const BFQ: &str = "bfq";

impl Facts {
    /// The groups if they have a controller; otherwise the reason why they have not. `v1_name`: its name in
    /// cgroup v1.
    pub(crate) fn controlled_groups(
        &self,
        controller: &str,
        v1_name: &str,
    ) -> Known<&[GroupFacts]> {
        self.tree.clone()?;
        let controllers = self.host.controllers.as_ref().map_err(Clone::clone)?;
        if controllers.iter().flatten().any(|have| have == controller) {
            return Ok(&self.groups);
        }
        let what = format!("the {controller} of cgroups");
        let why = match self.v1_mount(v1_name) {
            Some(at) => format!("the {v1_name} controller is on cgroup v1 at {at}"),
            None => format!("the {controller} controller is not available"),
        };
        Err(Unread::new(what, why))
    }

    /// Mount point of a controller's cgroup v1 hierarchy.
    pub fn v1_mount(&self, controller: &str) -> Option<&str> {
        let mounts = self.host.mounts.as_ref().ok()?;
        let mount = mounts.iter().find(|mount| mount.is_v1_of(controller))?;
        Some(&mount.mount_point)
    }

    /// A field of the host's `/proc/meminfo`.
    pub fn meminfo(&self, field: impl Fn(&MemInfo) -> Option<Bytes>, name: &str) -> Known<Bytes> {
        let info = self.host.memory.as_ref().map_err(Clone::clone)?;
        field(info).ok_or_else(|| Unread::new("the host's memory", format!("has no {name}")))
    }

    /// `MemTotal`.
    pub fn ram(&self) -> Known<Bytes> {
        self.meminfo(|info| info.total, "MemTotal")
    }

    /// A group's ancestors, from its parent upward, without the root.
    pub fn ancestors<'a>(&'a self, group: &GroupFacts) -> impl Iterator<Item = &'a GroupFacts> {
        let mut next = group.parent;
        std::iter::from_fn(move || {
            let at = next.filter(|at| *at != ROOT)?;
            let group = self.groups.get(at)?;
            next = group.parent;
            Some(group)
        })
    }

    pub fn children<'a>(&'a self, group: &'a GroupFacts) -> impl Iterator<Item = &'a GroupFacts> {
        group.children.iter().filter_map(|at| self.groups.get(*at))
    }

    /// True if unclaimed protection of a parent goes to its children (mount option `memory_recursiveprot`).
    pub fn recursive_protection(&self) -> Known<bool> {
        match self.host.cgroup2()? {
            Some(mount) => Ok(mount.has("memory_recursiveprot")),
            None => Err(Unread::new("memory_recursiveprot", "no cgroup2 is mounted")),
        }
    }

    /// The mechanism that serves a disk by weight: `bfq`, `io.cost` or `none`; `None`: unknown.
    pub fn served(&self, disk: &Disk) -> Option<&'static str> {
        let bfq = disk.scheduler.as_ref().ok()?.active == BFQ;
        let device = disk.device.as_ref().ok()?;
        let cost = self.io_cost.as_ref().ok()?.as_ref();
        Some(match cost.is_some_and(|devices| devices.contains(device)) {
            true => "io.cost",
            false if bfq => BFQ,
            false => "none",
        })
    }

    /// The relevant disks: those with mounted file systems. All disks if the source of a mount does not name
    /// its disk (device mapper, RAID).
    pub fn disks(&self) -> Known<Vec<&Disk>> {
        let disks = self.host.disks.as_ref().map_err(Clone::clone)?;
        let mounts = self.host.mounts.as_ref().map_err(Clone::clone)?;
        let sources = mounts
            .iter()
            .filter_map(|mount| mount.source.strip_prefix("/dev/"))
            .filter(|source| !NO_DISKS.iter().any(|name| source.starts_with(name)));
        let of = |source| disks.iter().find(|disk| is_part_of(source, &disk.name));
        let used: Option<Vec<&Disk>> = sources.map(of).collect();
        let Some(mut used) = used.filter(|used| !used.is_empty()) else {
            return Ok(disks.iter().collect());
        };
        used.sort_by(|a, b| a.name.cmp(&b.name));
        used.dedup();
        Ok(used)
    }
}

/// True if a device is a disk or a partition of it: `sda1` of `sda`, `nvme0n1p2` of `nvme0n1`, but
/// not `sdaa`.
fn is_part_of(device: &str, disk: &str) -> bool {
    let Some(rest) = device.strip_prefix(disk) else {
        return false;
    };
    // A disk whose name ends in a digit has partitions with a `p`: `nvme0n10` is another disk than `nvme0n1`.
    let ends_in_digit = disk.ends_with(|last: char| last.is_ascii_digit());
    let digits = match rest.strip_prefix('p') {
        Some(digits) => digits,
        None if ends_in_digit => "",
        None => rest,
    };
    rest.is_empty() || (!digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
}

/// True if a path is another path or is below it.
pub(crate) fn is_within(path: &str, above: &str) -> bool {
    path.strip_prefix(above.trim_end_matches('/'))
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
