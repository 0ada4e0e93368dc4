//! What the agent tells about itself: one set of records for `status`, `plan` and `explain`.
//!
//! Names end in their unit. What is unknown is `null` (and left out where a whole section is).
//! The records are made when somebody asks, from the last tick, so that a tick pays nothing.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use justitia_policy::color::{Color, ColorSource, Declared};
use justitia_policy::config::{Mode, Objective};
use justitia_policy::plan::{HostRates, Knob, Plan, Reason, Value, Verdict};
use justitia_policy::rates::CacheRates;
use justitia_policy::snapshot::{
    BlockDevice, CacheCounters, Group, GroupId, Pressure, Snapshot, Traffic, WeightSource,
};
use serde::{Deserialize, Serialize};

mod gate;
mod guard;
mod worth;

pub use gate::{GateDeviceStatus, GateMemberStatus, GateStatus, Reading};
pub use guard::{GuardStatus, Reclaimed, ReservationStatus};
pub use worth::{WorthPoint, WorthStatus, MORE};

/// Prior values of the knobs we hold, shared between ticks until one is added or dropped.
pub type Priors = BTreeMap<(GroupId, Knob), Value>;

/// What groups are called, shared between ticks until the groups change.
pub type NamesOf = HashMap<GroupId, Names>;

/// The last tick as it was: what was seen, what was decided.
#[derive(Debug, Clone, Default)]
pub struct Tick {
    /// What was seen.
    pub snapshot: Snapshot,
    /// What was decided.
    pub plan: Plan,
    /// What our knobs held before us.
    pub priors: Arc<Priors>,
    /// What the groups are called.
    pub names: Arc<NamesOf>,
    /// What stood in the way.
    pub problems: Vec<Problem>,
    /// How many ticks there were.
    pub count: u64,
    /// How long this one took, from observing to submitting the writes.
    pub took: Duration,
    /// The longest of all of them.
    pub longest: Duration,
    /// Name of what counts the traffic.
    pub observer: Option<&'static str>,
    /// Knobs written since the agent began.
    pub writes_total: u64,
    /// What was asked of `memory.reclaim` since the agent began.
    pub reclaimed: Reclaimed,
    /// The kernel module's gate, if it is held.
    pub gate: Option<Reading>,
}

/// What does not change from tick to tick.
#[derive(Debug, Clone)]
pub struct Setup {
    /// How much of the policy is in force.
    pub mode: Mode,
    /// What the feedback aims at.
    pub objective: Objective,
    /// Time between two steps.
    pub interval: Duration,
    /// When the agent began.
    pub since: SystemTime,
}

/// Everything about the agent, as `justitia status --json` prints it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The agent's version.
    pub version: String,
    /// How much of the policy is in force.
    pub mode: Mode,
    /// What the feedback aims at.
    pub objective: Objective,
    /// When the agent began, seconds since 1970.
    pub since_unix_s: u64,
    /// Time between two steps.
    pub interval_s: f64,
    /// Steps so far.
    pub ticks_total: u64,
    /// How long the last one took, from observing to submitting the writes.
    pub tick_us: u64,
    /// The longest of all of them.
    pub longest_tick_us: u64,
    /// What counts the traffic, `bpf` or `proc`; not known before the first step.
    #[serde(default)]
    pub observer: Option<String>,
    /// Knobs written since the agent began: none in mode `observe`.
    #[serde(default)]
    pub writes_total: u64,
    /// Proportionality variation of the contending groups since the last step.
    pub pv: Option<f64>,
    /// Share error of the contending groups since the last step.
    pub share_error: Option<f64>,
    /// The host as a whole.
    pub host: HostStatus,
    /// Managed groups, parents before children.
    pub groups: Vec<GroupStatus>,
    /// Disks that BFQ schedules, or that io.cost could.
    #[serde(default)]
    pub devices: Vec<DeviceStatus>,
    /// The guard; `None`: it has nothing to do.
    #[serde(default)]
    pub guard: Option<GuardStatus>,
    /// The kernel module's gate; `None`: the agent does not hold it.
    #[serde(default)]
    pub gate: Option<GateStatus>,
    /// What the last step wrote, or would have written in mode `observe`.
    pub writes: Vec<PlannedWrite>,
    /// What stands in the way.
    pub problems: Vec<Problem>,
}

/// The host as a whole.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct HostStatus {
    /// `MemTotal`.
    pub total_bytes: Option<u64>,
    /// `MemFree`.
    pub free_bytes: Option<u64>,
    /// Page cache of the whole host.
    pub file_bytes: Option<u64>,
    /// Of [`justitia_policy::snapshot::Host::high_watermark`].
    pub high_watermark_bytes: Option<u64>,
    /// Share of the last period in which some or all (`full`) tasks of the host waited for memory
    /// or I/O, 0 to 1: fields of their own in JSON.
    #[serde(flatten)]
    pub stalled: HostRates,
}

/// One managed group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupStatus {
    /// Path relative to the cgroup2 mount.
    pub path: String,
    /// The cgroup id.
    pub id: u64,
    /// What it is called: fields of their own in JSON.
    #[serde(flatten)]
    pub names: Option<Names>,
    /// Its weight.
    pub weight: u32,
    /// Where that came from.
    pub weight_source: WeightSource,
    /// `memory.current`.
    pub current_bytes: Option<u64>,
    /// Page cache it holds.
    pub file_bytes: Option<u64>,
    /// What was counted of it.
    #[serde(default)]
    pub total: Totals,
    /// What the policy makes of it: fields of their own in JSON, not there before the first step.
    #[serde(flatten)]
    pub verdict: Option<VerdictStatus>,
    /// What its application declared about itself, whether that counts or not; `None`: it never did.
    #[serde(default)]
    pub declared: Option<Declared>,
    /// What page cache is worth to it; `None`: its reads have not told.
    #[serde(default)]
    pub worth: Option<WorthStatus>,
    /// Its knobs that exist on this kernel.
    pub knobs: Vec<KnobStatus>,
    /// What it did at the kernel module's gate; `None`: it is not known there.
    #[serde(default)]
    pub gate: Option<GateMemberStatus>,
}

/// What a group is called, whichever cgroup it has now: a container that is started again has the same names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    /// What it is: container, pod, service, vm or group.
    pub kind: String,
    /// What its owner calls it; of a pod `namespace/pod`.
    pub name: String,
    /// Its Kubernetes namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its Kubernetes pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// Its name within the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
}

/// What was counted of a group: traffic and page cache since the agent first saw it, stalls and refaults since
/// the cgroup was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Bytes of its applications.
    #[serde(flatten)]
    pub traffic: Traffic,
    /// What its page cache did.
    #[serde(flatten)]
    pub cache: CacheCounters,
    /// How long its tasks waited.
    #[serde(flatten)]
    pub pressure: Pressure,
    /// `workingset_refault_file`.
    #[serde(default)]
    pub refault_pages: Option<u64>,
}

impl Totals {
    fn of(group: &Group) -> Totals {
        Totals {
            traffic: group.traffic,
            cache: group.cache,
            pressure: group.pressure,
            refault_pages: group.memory.refault_pages,
        }
    }
}

/// One disk that BFQ schedules, or that io.cost could.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceStatus {
    /// `block:nvme0n1` where BFQ schedules it, `cost:nvme0n1` where not.
    pub path: String,
    /// BFQ's `low_latency`, which overrides weights.
    pub low_latency: Option<bool>,
    /// What that was before us, if we changed it.
    pub prior: Option<bool>,
    /// Somebody else changed a knob while we held it; the disk is theirs.
    pub foreign: bool,
    /// All its knobs: BFQ's, or io.cost's.
    #[serde(default)]
    pub knobs: Vec<KnobStatus>,
}

/// What the policy makes of one group.
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
    /// Of that, what the disk carries.
    pub transferable_bytes_per_s: Option<f64>,
    /// Bandwidth over its weighted share; 1 is ideal.
    pub of_ideal: Option<f64>,
    /// It takes part in the competition.
    pub contending: bool,
    /// How well it is.
    pub color: Color,
    /// The feedback's gain on its share.
    pub gain: f64,
    /// Share of the last period in which some task waited, 0 to 1.
    pub stalled: Option<f64>,
    /// What its page cache did: fields of their own in JSON.
    #[serde(flatten)]
    pub cache: CacheRates,
    /// Page cache charged to it that belongs to higher-weighted users of the same files. `None`:
    /// nothing sees who uses which file.
    #[serde(default)]
    pub held_for_others_bytes: Option<u64>,
    /// Page cache of its own that is charged to others. `None`: likewise.
    #[serde(default)]
    pub held_by_others_bytes: Option<u64>,
    /// Whether the color was declared.
    #[serde(default)]
    pub color_source: ColorSource,
    /// Page cache it may hold while it gives memory to others by its color.
    #[serde(default)]
    pub cap_bytes: Option<u64>,
    /// Memory it needs to stay well, learned while it gave.
    #[serde(default)]
    pub working_set_bytes: Option<u64>,
    /// Page cache with which its reads hit as often as with its share. `None`: its reads do not decide
    /// what it gets.
    #[serde(default)]
    pub needs_bytes: Option<u64>,
    /// What it leaves of its share to others. `None`: likewise.
    #[serde(default)]
    pub lends_bytes: Option<u64>,
    /// What it has the use of beyond its share. `None`: likewise.
    #[serde(default)]
    pub borrows_bytes: Option<u64>,
}

/// One knob of one group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KnobStatus {
    /// The file.
    pub knob: Knob,
    /// What it holds, as the kernel prints it.
    pub now: String,
    /// What it held before us, if we changed it.
    pub prior: Option<String>,
    /// Somebody else changed it while we held it; it is theirs.
    pub foreign: bool,
}

/// One write of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedWrite {
    /// The group.
    pub path: String,
    /// Its file.
    pub knob: Knob,
    /// What the file held when the plan was made.
    pub now: Option<String>,
    /// What to write.
    pub value: String,
    /// Why, in words.
    pub because: String,
    /// Why, as a record.
    pub reason: Reason,
}

/// Something that stands in the way of one group, or of all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The group it is about; `None`: all.
    pub group: Option<String>,
    /// What is wrong.
    pub cause: String,
    /// What to do about it.
    pub remedy: String,
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Problem {
    /// A problem of the whole host.
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
    /// The report of a tick.
    pub fn new(setup: &Setup, tick: &Tick) -> Report {
        let host = &tick.snapshot.host;
        let verdicts: BTreeMap<GroupId, &Verdict> = tick
            .plan
            .verdicts
            .iter()
            .map(|verdict| (verdict.group, verdict))
            .collect();
        let sharing_is_seen = tick.snapshot.shared.is_some();
        let groups = tick.snapshot.groups.iter().filter_map(|group| {
            let verdict = verdicts.get(&group.id);
            let verdict = verdict.map(|verdict| VerdictStatus::new(verdict, sharing_is_seen));
            let mut status = GroupStatus::new(group, verdict, &tick.priors)?;
            let reading = tick.gate.as_ref();
            status.gate = reading.and_then(|gate| GateMemberStatus::of(gate, group.id.0));
            status.names = tick.names.get(&group.id).cloned();
            Some(status)
        });
        let devices = tick.snapshot.devices.iter();
        let devices = devices.map(|device| DeviceStatus::new(device, &tick.priors));
        Report {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            mode: setup.mode,
            objective: setup.objective,
            since_unix_s: setup
                .since
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs()),
            interval_s: setup.interval.as_secs_f64(),
            ticks_total: tick.count,
            tick_us: micros(tick.took),
            longest_tick_us: micros(tick.longest),
            observer: tick.observer.map(str::to_owned),
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
            writes: planned_writes(&tick.snapshot, &tick.plan),
            problems: tick.problems.clone(),
        }
    }

    /// The group of this path, the only one that its owner calls so, or the only one whose path ends in `/name`.
    pub fn find(&self, name: &str) -> Option<&GroupStatus> {
        let exact = name.trim_end_matches('/');
        let suffix = format!("/{}", exact.trim_start_matches('/'));
        let only = |which: &dyn Fn(&GroupStatus) -> bool| {
            let mut found = self.groups.iter().filter(|group| which(group));
            found.next().filter(|_| found.next().is_none())
        };
        let called = |group: &GroupStatus| group.names.as_ref().is_some_and(|of| of.name == name);
        only(&|group| group.path == exact)
            .or_else(|| only(&called))
            .or_else(|| only(&|group| group.path.ends_with(&suffix)))
    }
}

impl GroupStatus {
    /// Its name in tables: a container, pod or virtual machine has its owner's name, other groups their path.
    pub fn label(&self) -> &str {
        let is_id = |name: &str| name.len() >= 12 && name.bytes().all(|c| c.is_ascii_hexdigit());
        let named = self.names.as_ref().filter(|of| {
            let last = self.path.rsplit('/').next();
            ["container", "pod", "vm"].contains(&of.kind.as_str())
                && last != Some(&of.name)
                && !is_id(&of.name)
        });
        named.map_or(&self.path, |of| &of.name)
    }

    /// What a knob holds, as a number; `max` is infinite.
    pub fn knob_number(&self, knob: Knob) -> Option<f64> {
        let status = self.knobs.iter().find(|status| status.knob == knob)?;
        match status.now.as_str() {
            "max" => Some(f64::INFINITY),
            number => number.parse().ok(),
        }
    }

    /// `None` for an ancestor that is only there to hold managed groups.
    fn new(group: &Group, verdict: Option<VerdictStatus>, priors: &Priors) -> Option<GroupStatus> {
        Some(GroupStatus {
            path: group.path.clone(),
            id: group.id.0,
            names: None,
            weight: group.weight?.get(),
            weight_source: group.weight_source,
            current_bytes: group.memory.current.map(|bytes| bytes.0),
            file_bytes: group.memory.file.map(|bytes| bytes.0),
            total: Totals::of(group),
            verdict,
            declared: group.declared.clone(),
            worth: group
                .worth
                .as_ref()
                .map(|curve| WorthStatus::new(curve, group.memory.file)),
            knobs: Knob::of_groups()
                .filter_map(|knob| {
                    let foreign = group.knobs.is_foreign(knob);
                    KnobStatus::new(group.id, knob, group.knobs.get(knob), foreign, priors)
                })
                .collect(),
            gate: None,
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
        self.path
            .split_once(':')
            .map_or(&self.path, |(_, name)| name)
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
    /// `None`: the knob is not there.
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

/// Where a weight came from, in words.
pub fn source_words(source: WeightSource) -> &'static str {
    match source {
        WeightSource::Config => "configuration",
        WeightSource::Xattr => "xattr user.justitia.weight",
        WeightSource::PodAnnotation => "pod annotation justitia.io/weight",
        WeightSource::PodCap => "pod annotation, capped for its namespace",
        WeightSource::OciAnnotation => "OCI annotation io.justitia.weight",
        WeightSource::OciBlockIo => "OCI blockIO weight",
        WeightSource::IoWeight => Knob::IoWeight.file_name(),
        WeightSource::QosClass => "QoS class of the pod",
        WeightSource::Default => "default",
    }
}

/// The path of what is neither a group of the snapshot nor a disk.
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
