//! The agent's report: one set of records for `status`, `plan` and `explain`.
//!
//! Names end in their unit. An unknown value is `null`; an unknown section is left out. The records are made
//! on request from the last tick, so a tick does not pay for them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use justitia_policy::color::{Color, ColorSource, Declared};
use justitia_policy::config::{Mode, Objective};
use justitia_policy::plan::{Finding, HostRates, Knob, Plan, Reason, Value, Verdict};
use justitia_policy::rates::CacheRates;
use justitia_policy::snapshot::{
    BlockDevice, CacheCounters, Group, GroupId, Pressure, Snapshot, Traffic, WeightSource,
};
use serde::{Deserialize, Serialize};

mod gate;
mod guard;
mod worth;

pub use gate::{GateDeviceStatus, GateMemberStatus, GateStatus, Reading};
pub use guard::{GuardStatus, Reclaimed};
pub use worth::{WorthPoint, WorthStatus, MORE};

/// Prior values of the knobs we hold, shared between ticks until one is added or dropped.
pub type Priors = BTreeMap<(GroupId, Knob), Value>;

/// Names of the groups, shared between ticks until the groups change.
pub type NamesOf = HashMap<GroupId, Names>;

/// The observations and decisions of the last tick.
#[derive(Debug, Clone, Default)]
pub struct Tick {
    pub snapshot: Snapshot,
    pub plan: Plan,
    pub priors: Arc<Priors>,
    pub names: Arc<NamesOf>,
    pub problems: Vec<Problem>,
    /// Ticks since the agent began.
    pub count: u64,
    /// Duration of this tick, from observing to submitting the writes.
    pub took: Duration,
    /// Duration of the longest tick so far.
    pub longest: Duration,
    /// The source of the traffic counters, `bpf` or `proc`.
    pub observer: Option<&'static str>,
    /// Events that the observer's programs did not count; unknown if the kernel does not tell.
    pub missed_events: Option<u64>,
    /// Knobs written since the agent began.
    pub writes_total: u64,
    pub reclaimed: Reclaimed,
    /// The kernel module's gate; `None`: the agent does not hold it.
    pub gate: Option<Reading>,
}

/// The part of the report that is constant between ticks.
#[derive(Debug, Clone)]
pub struct Setup {
    pub mode: Mode,
    pub objective: Objective,
    /// Time between two steps.
    pub interval: Duration,
    /// Start time of the agent.
    pub since: SystemTime,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            mode: Mode::default(),
            objective: Objective::default(),
            interval: Duration::from_secs(1),
            since: UNIX_EPOCH,
        }
    }
}

/// The report, as `justitia status --json` prints it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The agent's version.
    pub version: String,
    pub mode: Mode,
    pub objective: Objective,
    /// Start time of the agent, seconds since 1970.
    pub since_unix_s: u64,
    /// Time between two steps.
    pub interval_s: f64,
    /// Steps so far.
    pub ticks_total: u64,
    /// Duration of the last step, from observing to submitting the writes.
    pub tick_us: u64,
    /// Duration of the longest step so far.
    pub longest_tick_us: u64,
    /// The source of the traffic counters, `bpf` or `proc`; unknown before the first step.
    pub observer: Option<String>,
    /// Events that the observer's programs did not count; unknown if the kernel does not tell.
    #[serde(default)]
    pub missed_events: Option<u64>,
    /// Knobs written since the agent began: none in mode `observe`.
    #[serde(default)]
    pub writes_total: u64,
    /// Proportionality variation of the contending groups since the last step.
    pub pv: Option<f64>,
    /// Share error of the contending groups since the last step.
    pub share_error: Option<f64>,
    pub host: HostStatus,
    /// Managed groups, parents before children.
    pub groups: Vec<GroupStatus>,
    /// Disks that BFQ schedules, or that io.cost could.
    #[serde(default)]
    pub devices: Vec<DeviceStatus>,
    /// The guard; `None`: it has nothing to do.
    pub guard: Option<GuardStatus>,
    /// The kernel module's gate; `None`: the agent does not hold it.
    pub gate: Option<GateStatus>,
    /// Findings of the watch for each kind of decision; empty: it is off, or no decision was made yet.
    #[serde(default)]
    pub watch: Vec<Finding>,
    /// Writes of the last step, which mode `observe` does not perform.
    pub writes: Vec<PlannedWrite>,
    pub problems: Vec<Problem>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct HostStatus {
    /// `MemTotal`.
    pub total_bytes: Option<u64>,
    /// `MemFree`.
    pub free_bytes: Option<u64>,
    /// Page cache of the whole host.
    pub file_bytes: Option<u64>,
    /// [`justitia_policy::snapshot::Host::high_watermark`].
    pub high_watermark_bytes: Option<u64>,
    /// Share of the last period in which some or all (`full`) tasks of the host waited for memory or I/O, 0
    /// to 1. Flattened in JSON.
    #[serde(flatten)]
    pub stalled: HostRates,
}

/// One managed group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupStatus {
    /// Path relative to the cgroup2 mount.
    pub path: String,
    /// The cgroup ID.
    pub id: u64,
    /// It lies below a directory that root delegated, so a tenant named it.
    #[serde(default)]
    pub delegated: bool,
    /// Flattened in JSON.
    #[serde(flatten)]
    pub names: Option<Names>,
    pub weight: u32,
    pub weight_source: WeightSource,
    /// `memory.current`.
    pub current_bytes: Option<u64>,
    /// Page cache charged to it.
    pub file_bytes: Option<u64>,
    /// Its counters.
    #[serde(default)]
    pub total: Totals,
    /// The policy's results for it. Flattened in JSON; absent before the first step, and for a group that
    /// holds groups.
    #[serde(flatten)]
    pub verdict: Option<VerdictStatus>,
    /// The color that its application declared, whether or not the policy accepts it; `None`: it declared
    /// none.
    pub declared: Option<Declared>,
    /// Its miss-ratio curve; `None`: not known from its reads so far.
    pub worth: Option<WorthStatus>,
    /// Its knobs that exist on this kernel.
    pub knobs: Vec<KnobStatus>,
    /// Its counters at the kernel module's gate; `None`: the gate has no account of it.
    pub gate: Option<GateMemberStatus>,
}

/// The names of a group. They survive a change of its cgroup: a restarted container has the same names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    /// Container, pod, service, vm or group.
    pub kind: String,
    /// The owner's name for it; for a pod `namespace/pod`.
    pub name: String,
    /// Its Kubernetes namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its Kubernetes pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// Name of the container within its pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
}

/// Counters of a group: traffic and page cache since the agent first saw it, stalls and refaults since the
/// cgroup was created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Bytes that its applications read and wrote.
    #[serde(flatten)]
    pub traffic: Traffic,
    #[serde(flatten)]
    pub cache: CacheCounters,
    /// Stall times of its tasks.
    #[serde(flatten)]
    pub pressure: Pressure,
    /// `workingset_refault_file`.
    pub refault_pages: Option<u64>,
}

/// One disk that BFQ schedules, or that io.cost could.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceStatus {
    /// `block:nvme0n1` if BFQ schedules the disk, otherwise `cost:nvme0n1`.
    pub path: String,
    /// BFQ's `low_latency`, which overrides weights.
    pub low_latency: Option<bool>,
    /// Value of `low_latency` before the agent changed it; `None`: unchanged.
    pub prior: Option<bool>,
    /// Another program changed a knob of the disk while the agent held it, so the agent leaves the disk
    /// alone.
    pub foreign: bool,
    /// All its knobs: BFQ's, or io.cost's.
    #[serde(default)]
    pub knobs: Vec<KnobStatus>,
}

/// The policy's results for one group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VerdictStatus {
    /// Its share of the managed groups' weight, 0 to 1.
    pub proportion: f64,
    /// Page cache it is entitled to.
    pub entitlement_bytes: u64,
    /// The page-cache threshold in force.
    pub threshold_bytes: u64,
    /// Application-level bandwidth since the last step.
    pub bytes_per_s: Option<f64>,
    /// The part of `bytes_per_s` that the disk carries: writes and misses.
    pub transferable_bytes_per_s: Option<f64>,
    /// Bandwidth over its weighted share; 1 is ideal.
    pub of_ideal: Option<f64>,
    pub contending: bool,
    pub color: Color,
    /// The feedback's gain on its share.
    pub gain: f64,
    /// Share of the last period in which some task waited, 0 to 1.
    pub stalled: Option<f64>,
    /// Rates of its page cache. Flattened in JSON.
    #[serde(flatten)]
    pub cache: CacheRates,
    /// Page cache charged to it that belongs to higher-weighted users of the same files. `None`: the users of
    /// files are not observed.
    pub held_for_others_bytes: Option<u64>,
    /// Its own page cache that is charged to others. `None`: the users of files are not observed.
    pub held_by_others_bytes: Option<u64>,
    /// Source of the color: declared or inferred.
    #[serde(default)]
    pub color_source: ColorSource,
    /// Page cache it may hold while it gives memory to others by its color.
    pub cap_bytes: Option<u64>,
    /// Memory it needs to stay satisfied, learned while it gave memory.
    pub working_set_bytes: Option<u64>,
    /// Page cache with which its reads hit as often as with its share. `None`: its entitlement does not
    /// depend on its reads.
    pub needs_bytes: Option<u64>,
    /// The part of its share that it lends to others. `None` as for `needs_bytes`.
    pub lends_bytes: Option<u64>,
    /// Page cache that it borrows beyond its share. `None` as for `needs_bytes`.
    pub borrows_bytes: Option<u64>,
}

/// One knob of one group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KnobStatus {
    pub knob: Knob,
    /// Current value, in the kernel's format.
    pub now: String,
    /// Value before the agent changed it; `None`: unchanged.
    pub prior: Option<String>,
    /// Another program changed it while the agent held it, so the agent leaves it alone.
    pub foreign: bool,
}

/// One write of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedWrite {
    /// Path of the group, name of the disk (`block:NAME`, `cost:NAME`), or `/`.
    pub path: String,
    pub knob: Knob,
    /// Value when the plan was made.
    pub now: Option<String>,
    /// Value to write.
    pub value: String,
    /// `reason` in words.
    pub because: String,
    pub reason: Reason,
}

/// A problem of one group or disk, or of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Path of the group or disk; `None`: the whole host.
    pub group: Option<String>,
    pub cause: String,
    pub remedy: String,
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Problem {
    pub fn general(error: &crate::error::Error) -> Problem {
        Problem {
            group: None,
            cause: error.cause.clone(),
            remedy: error.remedy.clone(),
        }
    }

    /// A problem with a group's or disk's files.
    pub fn of(path: &str, error: &justitia_cgroup::Error) -> Problem {
        Problem {
            group: Some(path.to_owned()),
            cause: error.to_string(),
            remedy: error.remedy().to_owned(),
        }
    }
}

impl Report {
    pub fn new(setup: &Setup, tick: &Tick) -> Report {
        let host = &tick.snapshot.host;
        let since = setup.since.duration_since(UNIX_EPOCH);
        let verdicts = tick.plan.verdicts.iter();
        let verdicts: BTreeMap<GroupId, &Verdict> =
            verdicts.map(|verdict| (verdict.group, verdict)).collect();
        let sharing_is_seen = tick.snapshot.shared.is_some();
        let groups = tick.snapshot.groups.iter().filter_map(|group| {
            let verdict = verdicts.get(&group.id);
            let verdict = verdict.map(|verdict| VerdictStatus::new(verdict, sharing_is_seen));
            GroupStatus::new(group, verdict, tick)
        });
        let devices = tick.snapshot.devices.iter();
        let devices = devices.map(|device| DeviceStatus::new(device, &tick.priors));
        Report {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            mode: setup.mode,
            objective: setup.objective,
            since_unix_s: since.unwrap_or_default().as_secs(),
            interval_s: setup.interval.as_secs_f64(),
            ticks_total: tick.count,
            tick_us: micros(tick.took),
            longest_tick_us: micros(tick.longest),
            observer: tick.observer.map(str::to_owned),
            missed_events: tick.missed_events,
            writes_total: tick.writes_total,
            pv: tick.plan.pv,
            share_error: tick.plan.share_error,
            host: HostStatus {
                total_bytes: host.total.map(|bytes| bytes.0),
                free_bytes: host.free.map(|bytes| bytes.0),
                file_bytes: host.file.map(|bytes| bytes.0),
                high_watermark_bytes: host.high_watermark.map(|bytes| bytes.0),
                stalled: tick.plan.host,
            },
            groups: groups.collect(),
            devices: devices.collect(),
            guard: GuardStatus::of(tick),
            gate: tick.gate.as_ref().map(GateStatus::of),
            watch: tick.plan.watch.clone(),
            writes: planned_writes(&tick.snapshot, &tick.plan),
            problems: tick.problems.clone(),
        }
    }

    /// Finds a group by path, or else by its owner's name, or else by a path that ends in `/name`, or else by
    /// the beginning of a container's ID, at least four characters. The match must be unique. Groups below a
    /// delegated directory, which a tenant names, are found by path or by an ID of at least twelve digits only.
    pub fn find(&self, name: &str) -> Option<&GroupStatus> {
        let exact = name.trim_end_matches('/');
        let suffix = format!("/{}", exact.trim_start_matches('/'));
        let only = |which: &dyn Fn(&GroupStatus) -> bool| {
            let mut found = self.groups.iter().filter(|group| which(group));
            found.next().filter(|_| found.next().is_none())
        };
        let called = |group: &GroupStatus, is: &dyn Fn(&str) -> bool| {
            group.names.as_ref().is_some_and(|of| is(&of.name))
        };
        let roots = |group: &GroupStatus| !group.delegated;
        let begins = |id: &str| name.len() >= 4 && is_id(id) && id.starts_with(name);
        only(&|group| group.path == exact)
            .or_else(|| only(&|group| roots(group) && called(group, &|of| of == name)))
            .or_else(|| only(&|group| roots(group) && group.path.ends_with(&suffix)))
            .or_else(|| only(&|group| roots(group) && called(group, &begins)))
            .or_else(|| only(&|group| is_id(name) && called(group, &begins)))
    }

    /// True if the group holds managed groups. Then it divides its share among them, and has no verdict.
    pub fn divides(&self, group: &GroupStatus) -> bool {
        let path = group.path.trim_end_matches('/');
        let below = |other: &str| other.len() > 1 && other.starts_with('/');
        let mut others = self.groups.iter();
        others.any(|other| other.path.strip_prefix(path).is_some_and(below))
    }

    /// As [`Report::find`]. The error lists the managed groups if they are few.
    pub fn named(&self, name: &str) -> crate::Result<&GroupStatus> {
        self.find(name).ok_or_else(|| {
            let paths = self.groups.iter().map(|group| group.path.as_str());
            let mut tenants = self.groups.iter().filter(|group| group.delegated);
            let called =
                |group: &GroupStatus| group.names.as_ref().is_some_and(|of| of.name == name);
            let remedy = match self.groups.len() {
                _ if tenants.any(called) => {
                    "a tenant gave a group this name: use its path, which justitia status shows"
                        .to_owned()
                }
                0 => "no group is managed yet: see justitia status".to_owned(),
                1..=8 => format!("managed groups: {}", paths.collect::<Vec<_>>().join(" ")),
                _ => "see justitia status for the managed groups".to_owned(),
            };
            crate::Error::usage(
                format!("{name} is not the name of one managed group"),
                remedy,
            )
        })
    }
}

/// True if a name is a container's ID.
fn is_id(name: &str) -> bool {
    name.len() >= 12 && name.bytes().all(|c| c.is_ascii_hexdigit())
}

/// A group's name in tables: the owner's name for a container, pod or virtual machine, the path for other groups.
pub fn label<'a>(path: &'a str, names: Option<&'a Names>) -> &'a str {
    let named = names.filter(|of| {
        let last = path.rsplit('/').next();
        ["container", "pod", "vm"].contains(&of.kind.as_str())
            && last != Some(&of.name)
            && !is_id(&of.name)
    });
    named.map_or(path, |of| &of.name)
}

impl GroupStatus {
    /// Its name in tables ([`label`]).
    pub fn label(&self) -> &str {
        label(&self.path, self.names.as_ref())
    }

    /// The value of a knob as a number; `max` is infinite.
    pub fn knob_number(&self, knob: Knob) -> Option<f64> {
        let status = self.knobs.iter().find(|status| status.knob == knob)?;
        match status.now.as_str() {
            "max" => Some(f64::INFINITY),
            number => number.parse().ok(),
        }
    }

    /// `None`: an ancestor of managed groups without a weight of its own.
    fn new(group: &Group, verdict: Option<VerdictStatus>, tick: &Tick) -> Option<GroupStatus> {
        let worth = |curve| WorthStatus::new(curve, group.memory.file);
        let gate = |gate| GateMemberStatus::of(gate, group.id.0);
        Some(GroupStatus {
            path: group.path.clone(),
            id: group.id.0,
            delegated: group.delegated,
            names: tick.names.get(&group.id).cloned(),
            weight: group.weight?.get(),
            weight_source: group.weight_source,
            current_bytes: group.memory.current.map(|bytes| bytes.0),
            file_bytes: group.memory.file.map(|bytes| bytes.0),
            total: Totals {
                traffic: group.traffic,
                cache: group.cache,
                pressure: group.pressure,
                refault_pages: group.memory.refault_pages,
            },
            verdict,
            declared: group.declared.clone(),
            worth: group.worth.as_ref().map(worth),
            knobs: Knob::of_groups()
                .filter_map(|knob| {
                    let foreign = group.knobs.is_foreign(knob);
                    KnobStatus::new(group.id, knob, group.knobs.get(knob), foreign, &tick.priors)
                })
                .collect(),
            gate: tick.gate.as_ref().and_then(gate),
        })
    }
}

impl DeviceStatus {
    fn new(device: &BlockDevice, priors: &Priors) -> DeviceStatus {
        DeviceStatus {
            path: device.path.clone(),
            low_latency: device.low_latency,
            prior: Knob::of_disks().find_map(|knob| match priors.get(&(device.id, knob)) {
                Some(Value::Switch(on)) => Some(*on),
                _ => None,
            }),
            foreign: device.foreign,
            knobs: Knob::of_disk(&device.path)
                .filter_map(|knob| {
                    let now = device.get(knob);
                    KnobStatus::new(device.id, knob, now, device.foreign, priors)
                })
                .collect(),
        }
    }

    /// The disk's name.
    pub fn name(&self) -> &str {
        justitia_cgroup::disk_name(&self.path).unwrap_or(&self.path)
    }
}

impl VerdictStatus {
    fn new(verdict: &Verdict, sharing_is_seen: bool) -> VerdictStatus {
        VerdictStatus {
            proportion: verdict.proportion,
            entitlement_bytes: verdict.entitlement.0,
            threshold_bytes: verdict.threshold.0,
            bytes_per_s: verdict.bytes_per_s,
            transferable_bytes_per_s: verdict.transferable_bytes_per_s,
            of_ideal: verdict.of_ideal,
            contending: verdict.contending,
            color: verdict.color,
            gain: verdict.gain,
            stalled: verdict.stalled,
            cache: verdict.cache,
            held_for_others_bytes: sharing_is_seen.then_some(verdict.held_for_others.0),
            held_by_others_bytes: sharing_is_seen.then_some(verdict.held_by_others.0),
            color_source: verdict.color_source,
            cap_bytes: verdict.cap.map(|bytes| bytes.0),
            working_set_bytes: verdict.working_set.map(|bytes| bytes.0),
            needs_bytes: verdict.stake.map(|stake| stake.needs.0),
            lends_bytes: verdict.stake.map(|stake| stake.lends.0),
            borrows_bytes: verdict.stake.map(|stake| stake.borrows.0),
        }
    }
}

impl KnobStatus {
    /// `None`: the knob does not exist here.
    fn new(
        of: GroupId,
        knob: Knob,
        now: Option<Value>,
        foreign: bool,
        priors: &Priors,
    ) -> Option<KnobStatus> {
        Some(KnobStatus {
            knob,
            now: now?.to_string(),
            prior: priors.get(&(of, knob)).map(Value::to_string),
            foreign,
        })
    }
}

/// The source of a weight, in words.
pub fn source_words(source: WeightSource) -> &'static str {
    match source {
        WeightSource::Config => "configuration",
        WeightSource::Xattr => "xattr justitia.weight",
        WeightSource::PodAnnotation => "pod annotation justitia.io/weight",
        WeightSource::PodCap => "pod annotation, capped for its namespace",
        WeightSource::OciAnnotation => "OCI annotation io.justitia.weight",
        WeightSource::OciBlockIo => "OCI blockIO weight",
        WeightSource::IoWeight => Knob::IoWeight.file_name(),
        WeightSource::QosClass => "QoS class of the pod",
        WeightSource::Default => "default",
    }
}

/// The path of a write's target that is neither a group of the snapshot nor a disk: `/` for the root cgroup,
/// otherwise the ID.
fn other_path(snapshot: &Snapshot, id: GroupId) -> String {
    match snapshot.outside {
        Some(outside) if outside.root == id => "/".to_owned(),
        _ => id.to_string(),
    }
}

fn planned_writes(snapshot: &Snapshot, plan: &Plan) -> Vec<PlannedWrite> {
    let groups = snapshot.groups.iter().map(|group| (group.id, group));
    let groups: BTreeMap<GroupId, &Group> = groups.collect();
    let planned = plan.writes.iter().map(|write| {
        let group = groups.get(&write.group);
        let disk = snapshot.devices.iter().find(|disk| disk.id == write.group);
        let path = group
            .map(|group| &group.path)
            .or(disk.map(|disk| &disk.path));
        let now = group
            .and_then(|group| group.knobs.get(write.knob))
            .or(disk.and_then(|disk| disk.get(write.knob)));
        PlannedWrite {
            path: path.map_or_else(|| other_path(snapshot, write.group), Clone::clone),
            knob: write.knob,
            now: now.map(|value| value.to_string()),
            value: write.value.to_string(),
            because: write.reason.to_string(),
            reason: write.reason,
        }
    });
    planned.collect()
}

#[cfg(test)]
mod tests;
