//! A snapshot: the host, the groups and their knobs, as the agent saw them at one instant.
//!
//! Counters are cumulative, as the kernel keeps them; [`crate::step()`] takes the differences. A
//! value that could not be read is `None`, never zero.

use serde::{Deserialize, Serialize};

use crate::color::Declared;
use crate::units::{Bytes, Limit, Weight};
use crate::worth::Curve;

pub use crate::knob::{BlockDevice, ForeignKnobs, Knobs, OperatorLimits};
pub use crate::units::GroupId;

/// Everything the policy may look at.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The host as a whole.
    pub host: Host,
    /// Managed groups and all their ancestors below the cgroup root, parents before children.
    pub groups: Vec<Group>,
    /// Disks with knobs that Justitia may write.
    #[serde(default)]
    pub devices: Vec<BlockDevice>,
    /// Files that several groups use. `None`: no observer sees them, and every page counts as the payer's
    /// own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<Vec<SharedFile>>,
    /// The root cgroup, if the guard is in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outside: Option<Outside>,
    /// Memory to keep free for groups that are about to start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reservations: Vec<Reservation>,
    /// The kernel module's gate, if this agent holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<GateSeen>,
}

/// The kernel module's gate, held by this agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateSeen {
    /// Writers wait for their turn; otherwise all writers pass.
    pub closed: bool,
    /// The root cgroup, which stands for writers without a group; `None`: unknown, and they pass.
    #[serde(default)]
    pub root: Option<GroupId>,
    /// The weights it was fed, by group.
    pub fed: Vec<(GroupId, u32)>,
}

/// The root cgroup, for memory that is charged to no group below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outside {
    /// Its id.
    pub root: GroupId,
    /// Its `memory.reclaim` can be written, and takes nothing from protected groups.
    pub reclaim: bool,
}

/// Memory to keep free until a group has taken it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reservation {
    /// Path of the group, which need not exist yet.
    pub path: String,
    /// Amount to keep free.
    pub bytes: Bytes,
    /// Seconds until it expires.
    pub left_s: f64,
}

/// A file that several groups use (paper, III.B.2). The kernel charges a page to the group that
/// touched it first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedFile {
    /// Groups that use it.
    pub users: Vec<GroupId>,
    /// Page cache of the file that is charged to each group, whether or not the group uses the file.
    pub held: Vec<(GroupId, Bytes)>,
}

/// The host as a whole (`/proc/meminfo`, `/proc/zoneinfo`, `/proc/pressure`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// `MemTotal`.
    pub total: Option<Bytes>,
    /// `MemFree`.
    pub free: Option<Bytes>,
    /// Page cache of the whole host: `Cached + Buffers - Shmem`, the paper's `NR_FILE_PAGES`.
    pub file: Option<Bytes>,
    /// The zones' high watermarks, plus the memory that lower zones withhold from allocations that a higher
    /// zone could serve (`lowmem_reserve`). kswapd works below this much free memory.
    pub high_watermark: Option<Bytes>,
    /// `SwapTotal`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swap: Option<Bytes>,
    /// Stalls of all tasks of the host, for display only.
    #[serde(default)]
    pub pressure: Pressure,
}

impl Host {
    /// Free memory above the high watermark; `None`: unknown.
    pub fn spare(&self) -> Option<Bytes> {
        Some(self.free? - self.high_watermark?)
    }
}

/// One cgroup.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Identity.
    pub id: GroupId,
    /// The parent, if it is in the snapshot too; `None` right below the cgroup root.
    pub parent: Option<GroupId>,
    /// Path relative to the cgroup2 mount, for example `/app/db`.
    pub path: String,
    /// `None`: an ancestor that only contains managed groups. It is transparent, and so is an inner group
    /// without a weight of its own: it counts with the sum of its children's weights, so that containers
    /// under different slices compete by their own numbers. An inner group with a weight divides among its
    /// children what that weight earns.
    pub weight: Option<Weight>,
    /// Source of the weight.
    pub weight_source: WeightSource,
    /// It lies in a subtree that root delegated. A weight stated there divides that subtree's share.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub delegated: bool,
    /// Memory gauges.
    pub memory: Memory,
    /// Application-level traffic counters.
    pub traffic: Traffic,
    /// Page-cache counters, if an observer counts them.
    #[serde(default)]
    pub cache: CacheCounters,
    /// Numbers of the block devices that carried much of what it read and wrote of late. The first is
    /// one that carried most or nearly so. Empty: not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<u64>,
    /// The part of its bytes, 0 to 1, that each of several devices carried, in the same order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub device_parts: Vec<f64>,
    /// Pressure stall totals.
    pub pressure: Pressure,
    /// Present values of its knobs.
    pub knobs: Knobs,
    /// Seconds since its counters were last read, if that was before the previous step.
    #[serde(default)]
    pub read_after_s: Option<f64>,
    /// Ages of the values that stand from an earlier read.
    #[serde(default, skip_serializing_if = "Ages::are_new")]
    pub ages: Ages,
    /// The declaration of its application; `None`: it never declared anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declared: Option<Declared>,
    /// Hit ratio by size of page cache; `None` if its reads do not show it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worth: Option<Curve>,
}

/// For how many seconds values of a group have stood; `None`: they were read in this step. A quiet group,
/// which is not read in each step, has no ages: [`Group::read_after_s`] tells when it is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ages {
    /// All of [`Memory`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_s: Option<f64>,
    /// [`Pressure::cpu_some_us`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_s: Option<f64>,
}

impl Ages {
    pub(crate) fn are_new(&self) -> bool {
        *self == Ages::default()
    }
}

impl Group {
    /// A group of which nothing is known yet.
    pub fn new(id: GroupId, path: &str) -> Group {
        Group {
            id,
            parent: None,
            path: path.to_owned(),
            weight: None,
            weight_source: WeightSource::default(),
            delegated: false,
            memory: Memory::default(),
            traffic: Traffic::default(),
            cache: CacheCounters::default(),
            devices: Vec::new(),
            device_parts: Vec::new(),
            pressure: Pressure::default(),
            knobs: Knobs::default(),
            read_after_s: None,
            ages: Ages::default(),
            declared: None,
            worth: None,
        }
    }

    /// The part of its bytes that this device carries: all, if parts are not known.
    pub(crate) fn part_on(&self, device: u64) -> f64 {
        let at = self.devices.iter().position(|&used| used == device);
        let part = at.and_then(|at| self.device_parts.get(at));
        part.copied().unwrap_or(1.0)
    }

    /// The most page cache that the operator's own limits allow; `None`: no such limit, or unknown.
    pub fn ceiling(&self) -> Option<Bytes> {
        let limits = [self.knobs.operator.high, self.knobs.max];
        let limits = limits.into_iter().flatten();
        let lowest = limits.filter_map(Limit::bytes).min()?;
        Some(lowest - self.non_file()?)
    }

    /// All memory that is not page cache ([`Memory::non_file`]).
    pub fn non_file(&self) -> Option<Bytes> {
        self.memory.non_file()
    }
}

/// Source of a weight, in the order of preference.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WeightSource {
    /// The configuration file.
    Config,
    /// The xattr `user.justitia.weight` on the cgroup directory.
    Xattr,
    /// The annotation `justitia.io/weight` of a Kubernetes pod, or that for one of its containers.
    PodAnnotation,
    /// The cap of a pod's namespace, because the annotation asks for more.
    PodCap,
    /// The OCI annotation `io.justitia.weight`.
    OciAnnotation,
    /// The OCI `blockIO.weight`.
    OciBlockIo,
    /// `io.bfq.weight` or `io.weight`.
    IoWeight,
    /// No weight was stated: the QoS class of a Kubernetes pod.
    QosClass,
    /// No weight was stated: 100.
    #[default]
    Default,
}

/// Mapped page cache that even the lightest group keeps under a limit: enough for the code of a database
/// server. A tenant that maps its cache gains no more than this.
pub(crate) const CODE: Bytes = Bytes::mib(16);

/// Memory gauges of a group (`memory.current`, `memory.stat`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// `memory.current`.
    pub current: Option<Bytes>,
    /// Page cache: `file - shmem`.
    pub file: Option<Bytes>,
    /// Page cache in page tables ([`Memory::mapped_file`]). Reclaiming it makes code thrash.
    pub file_mapped: Option<Bytes>,
    /// `file_dirty + file_writeback`.
    pub file_dirty: Option<Bytes>,
    /// `anon`.
    pub anon: Option<Bytes>,
    /// `memory.swap.current`, where the host has swap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swap: Option<Bytes>,
    /// `workingset_refault_file`, a counter of pages.
    pub refault_pages: Option<u64>,
}

impl Memory {
    /// The mapped page cache of a group whose `memory.stat` says `mapped` for `file_mapped`: the kernel counts mapped
    /// shared memory with it (`mm/rmap.c`), such as a database's buffers. All of `shmem` may be mapped, but some of the
    /// mapped page cache is code.
    pub fn mapped_file(mapped: Bytes, file: Bytes, shmem: Bytes) -> Bytes {
        (mapped - shmem).max(mapped.min(file).min(CODE))
    }

    /// All memory that is not page cache: anonymous, kernel, shmem, sockets. The two gauges are not read at
    /// the same instant, so the result is at least the anonymous memory.
    pub fn non_file(&self) -> Option<Bytes> {
        let other = self.current? - self.file?;
        Some(other.max(self.anon.unwrap_or_default()))
    }
}

/// Application-level traffic of a group, cumulative bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    /// Bytes applications read, from memory or not.
    pub read_bytes: Option<u64>,
    /// Bytes applications wrote, to memory or not.
    pub write_bytes: Option<u64>,
    /// Bytes that reads had to fetch from a device (page-cache misses and readahead).
    pub missed_bytes: Option<u64>,
}

/// Page-cache counters of a group, cumulative. `None` without an observer that counts them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheCounters {
    /// Pages that buffered reads asked for; each call counts the pages in which its bytes lie.
    pub asked_pages: Option<u64>,
    /// Asked pages that were not in the page cache when the call asked.
    pub missed_pages: Option<u64>,
    /// Asked pages that were there only because the same reader's readahead had just fetched them: neither
    /// hit nor miss.
    pub readahead_pages: Option<u64>,
    /// Pages that the group's reads and faults brought into the page cache. If a tracepoint is the only
    /// source, pages of its writes are included.
    pub inserted_pages: Option<u64>,
    /// Page-cache pages charged to the group that reclaim evicted.
    pub evicted_pages: Option<u64>,
    /// Faults on mapped files that reached the file system's fault handler.
    pub mmap_faults: Option<u64>,
    /// Faults on mapped files that waited for the disk.
    pub mmap_major_faults: Option<u64>,
    /// Microseconds the group's tasks spent in direct reclaim, for the host or for a limit.
    pub reclaim_us: Option<u64>,
    /// Microseconds they slept because the group was above `memory.high`.
    pub throttled_us: Option<u64>,
}

/// Pressure stall totals, cumulative microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Pressure {
    /// `memory.pressure`, some.
    pub memory_some_us: Option<u64>,
    /// `memory.pressure`, full.
    pub memory_full_us: Option<u64>,
    /// `io.pressure`, some.
    pub io_some_us: Option<u64>,
    /// `io.pressure`, full.
    pub io_full_us: Option<u64>,
    /// `cpu.pressure`, some.
    pub cpu_some_us: Option<u64>,
}
