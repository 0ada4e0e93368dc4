//! The knobs: control files that Justitia writes, one row each.
//!
//! A row has the knob's file, the kind of its value, the place of its value in a snapshot, when it is
//! restored, the knobs that it belongs together with, and its metric. Reading, writing, the journal,
//! restoring, the report, the metrics and replays go by the row. `writes.rs` decides when a knob is written.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::cost::{CostModel, CostQos, DiskCounters};
use crate::units::{Bytes, GroupId, Limit};

/// Largest `io.weight` (`CGROUP_WEIGHT_MAX`).
pub const IO_MAX: u32 = 10_000;
/// Largest `io.bfq.weight` (`block/bfq-cgroup.c`, `BFQ_MAX_WEIGHT`).
pub const BFQ_MAX: u32 = 1000;

/// The `io.bfq.weight` that systemd writes for an `IOWeight=`: BFQ's range is a tenth of `io.weight`'s.
pub fn bfq_weight_of_systemd(io_weight: u32) -> u32 {
    match io_weight {
        0..=100 => io_weight,
        _ => 100 + (io_weight - 100) * 900 / 9900,
    }
}

/// The `io.weight` that runc and crun write for a `blockIO.weight` where the kernel has no `io.bfq.weight`.
pub fn io_weight_of_runtime(block_io: u32) -> u32 {
    1 + block_io.saturating_sub(10) * 9999 / 990
}

/// A value to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Value {
    /// A memory limit.
    Limit(Limit),
    /// Bytes to reclaim, file pages only.
    Reclaim(Bytes),
    /// An I/O weight.
    Weight(u32),
    /// On or off.
    Switch(bool),
    /// A disk's line of `io.cost.qos`: io.cost's switch and its latency targets.
    CostQos(CostQos),
    /// io.cost's model of a disk.
    CostModel(CostModel),
}

impl fmt::Display for Value {
    /// As the kernel takes it; the writer adds the `swappiness` argument of `memory.reclaim`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Limit(limit) => limit.fmt(f),
            Value::Reclaim(bytes) => bytes.0.fmt(f),
            Value::Weight(weight) => weight.fmt(f),
            Value::Switch(on) => u8::from(*on).fmt(f),
            Value::CostQos(qos) => qos.fmt(f),
            Value::CostModel(model) => model.fmt(f),
        }
    }
}

/// The kind of value that a knob's file takes and shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Bytes, or `max`.
    Limit,
    /// A weight of at least 1, shown as `default N`. All knobs of this kind state one intent.
    Weight {
        /// The largest.
        most: u32,
        /// Text that is written before the number.
        prefix: &'static str,
    },
    /// `0` or `1`.
    Switch,
    /// Words of `io.cost.qos`.
    CostQos,
    /// Words of `io.cost.model`.
    CostModel,
    /// Takes bytes to reclaim and holds nothing, so there is no prior value to restore.
    Reclaim,
}

/// The field of a snapshot that keeps a knob's value.
enum Slot {
    Group {
        get: fn(&Knobs) -> Option<Value>,
        set: fn(&mut Knobs, Value),
        foreign: fn(&mut ForeignKnobs) -> &mut bool,
        operator: fn(&mut OperatorLimits) -> Option<&mut Option<Limit>>,
    },
    /// `of`: the prefix of its disks' paths.
    Disk {
        of: &'static str,
        get: fn(&BlockDevice) -> Option<Value>,
        set: fn(&mut BlockDevice, Value),
    },
    Nowhere,
}

/// Turn in which a knob goes back to its prior value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Turn {
    /// First: the knob throttles, and a larger value frees tasks that are blocked by it. While the agent
    /// runs, writes that raise it also pass all others.
    Throttle,
    /// Then the block layer's knobs.
    Block,
    /// Last: no group is throttled without its protection.
    Protection,
}

/// The metric of a group's knob.
#[derive(Debug, Clone, Copy)]
pub struct Gauge {
    /// Its name.
    pub name: &'static str,
    /// Meaning of the metric, for its `HELP` line.
    pub help: &'static str,
}

struct Row {
    file: &'static str,
    kind: Kind,
    slot: Slot,
    restored: Turn,
    /// The knob that a manager also resets when it applies its configuration again.
    sibling: Option<Knob>,
    /// The knob whose value this one repeats in a smaller range. If both change, that knob states the intent.
    repeats: Option<Knob>,
    gauge: Option<Gauge>,
}

macro_rules! knobs {
    ($($(#[$doc:meta])* $name:ident = $file:literal { $($field:ident: $value:expr,)* })*) => {
        /// A control file that Justitia writes, of a cgroup or of a disk.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Knob {
            $($(#[$doc])* #[serde(rename = $file)] $name,)*
        }

        impl Knob {
            /// All knobs.
            pub const ALL: &'static [Knob] = &[$(Knob::$name),*];
        }

        const TABLE: &[Row] = &[$(Row { file: $file, $($field: $value,)* }),*];
    };
}

/// The slot of a group's knob: the kind of its value, its field, and the field that says whose it is.
macro_rules! of_group {
    ($value:ident $field:ident, foreign $foreign:ident, operator $operator:expr) => {
        Slot::Group {
            get: |knobs| knobs.$field.map(Value::$value),
            set: |knobs, value| {
                if let Value::$value(value) = value {
                    knobs.$field = Some(value);
                }
            },
            foreign: |foreign| &mut foreign.$foreign,
            operator: $operator,
        }
    };
}

/// The same for a disk's knob.
macro_rules! of_disk {
    ($of:literal, $value:ident $field:ident) => {
        Slot::Disk {
            of: $of,
            get: |disk| disk.$field.map(Value::$value),
            set: |disk, value| {
                if let Value::$value(value) = value {
                    disk.$field = Some(value);
                }
            },
        }
    };
}

knobs! {
    /// `memory.low`: the threshold of weight-aware reclaim.
    MemoryLow = "memory.low" {
        kind: Kind::Limit,
        slot: of_group!(Limit low, foreign low, operator |limits| Some(&mut limits.low)),
        restored: Turn::Protection,
        sibling: Some(Knob::MemoryHigh),
        repeats: None,
        gauge: Some(Gauge {
            name: "justitia_group_memory_low_bytes",
            help: "Value of the group's memory.low.",
        }),
    }
    /// `memory.high`: the throttle of weight-ordered allocation.
    MemoryHigh = "memory.high" {
        kind: Kind::Limit,
        slot: of_group!(Limit high, foreign high, operator |limits| Some(&mut limits.high)),
        restored: Turn::Throttle,
        sibling: Some(Knob::MemoryLow),
        repeats: None,
        gauge: Some(Gauge {
            name: "justitia_group_memory_high_bytes",
            help: "Value of the group's memory.high; +Inf is no limit.",
        }),
    }
    /// `memory.reclaim`: reclaims file pages now. It has no value to restore.
    MemoryReclaim = "memory.reclaim" {
        kind: Kind::Reclaim,
        slot: Slot::Nowhere,
        restored: Turn::Protection,
        sibling: None,
        repeats: None,
        gauge: None,
    }
    /// `io.weight`, the default entry.
    IoWeight = "io.weight" {
        kind: Kind::Weight { most: IO_MAX, prefix: "default " },
        slot: of_group!(Weight io_weight, foreign io_weight, operator |_| None),
        restored: Turn::Block,
        sibling: None,
        repeats: None,
        gauge: Some(Gauge {
            name: "justitia_group_io_weight",
            help: "Value of the group's io.weight.",
        }),
    }
    /// `io.bfq.weight`, the default entry.
    IoBfqWeight = "io.bfq.weight" {
        // Every kernel that has the file takes a bare number.
        kind: Kind::Weight { most: BFQ_MAX, prefix: "" },
        slot: of_group!(Weight bfq_weight, foreign io_weight, operator |_| None),
        restored: Turn::Block,
        sibling: None,
        repeats: Some(Knob::IoWeight),
        gauge: Some(Gauge {
            name: "justitia_group_io_bfq_weight",
            help: "Value of the group's io.bfq.weight.",
        }),
    }
    /// `low_latency` of a disk's BFQ, which raises the weight of queues that it takes for interactive.
    BfqLowLatency = "low_latency" {
        kind: Kind::Switch,
        slot: of_disk!("block:", Switch low_latency),
        restored: Turn::Block,
        sibling: None,
        repeats: None,
        gauge: None,
    }
    /// A disk's line of the root's `io.cost.qos`: whether io.cost serves the disk.
    IoCostQos = "io.cost.qos" {
        kind: Kind::CostQos,
        slot: of_disk!("cost:", CostQos cost_qos),
        restored: Turn::Block,
        sibling: None,
        repeats: None,
        gauge: None,
    }
    /// A disk's line of the root's `io.cost.model`: io.cost's model of the disk.
    IoCostModel = "io.cost.model" {
        kind: Kind::CostModel,
        slot: of_disk!("cost:", CostModel cost_model),
        restored: Turn::Block,
        sibling: None,
        repeats: None,
        gauge: None,
    }
}

impl Knob {
    const fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    /// The file's name.
    pub const fn file_name(self) -> &'static str {
        self.row().file
    }

    /// The knob with this file name.
    pub fn from_file_name(name: &str) -> Option<Knob> {
        let mut all = Knob::ALL.iter().copied();
        all.find(|knob| knob.file_name() == name)
    }

    /// The kind of value that the file takes and shows.
    pub const fn kind(self) -> Kind {
        self.row().kind
    }

    /// True if the file keeps what is written, so that there is a prior value to restore.
    pub fn holds_value(self) -> bool {
        self.kind() != Kind::Reclaim
    }

    /// True if its value is a number of bytes.
    pub fn is_memory(self) -> bool {
        matches!(self.kind(), Kind::Limit | Kind::Reclaim)
    }

    /// Turn in which it goes back to its prior value.
    pub const fn restored(self) -> Turn {
        self.row().restored
    }

    /// The knob that a manager also resets.
    pub const fn sibling(self) -> Option<Knob> {
        self.row().sibling
    }

    /// The knob that states the intent which this one repeats.
    pub const fn repeats(self) -> Option<Knob> {
        self.row().repeats
    }

    /// The value that a container runtime writes here for a `blockIO.weight`.
    pub fn by_runtime(self, block_io: u32) -> Option<u32> {
        match self {
            Knob::IoBfqWeight => Some(block_io),
            Knob::IoWeight => Some(io_weight_of_runtime(block_io)),
            _ => None,
        }
    }

    /// The metric of a group's knob.
    pub const fn gauge(self) -> Option<Gauge> {
        self.row().gauge
    }

    /// The knobs of a group that hold a value.
    pub fn of_groups() -> impl Iterator<Item = Knob> {
        let all = Knob::ALL.iter().copied();
        all.filter(|knob| matches!(knob.row().slot, Slot::Group { .. }))
    }

    /// The knobs of a disk.
    pub fn of_disks() -> impl Iterator<Item = Knob> {
        let all = Knob::ALL.iter().copied();
        all.filter(|knob| matches!(knob.row().slot, Slot::Disk { .. }))
    }

    /// The knobs of the disk at this path.
    pub fn of_disk(path: &str) -> impl Iterator<Item = Knob> + use<'_> {
        let has = move |knob: &Knob| match knob.row().slot {
            Slot::Disk { of, .. } => path.starts_with(of),
            _ => false,
        };
        Knob::ALL.iter().copied().filter(has)
    }

    /// True for a disk's knob. No manager applies the configuration of a disk again and again, so a disk's
    /// knob that is back at its prior value was put there by somebody.
    pub fn is_disks(self) -> bool {
        matches!(self.row().slot, Slot::Disk { .. })
    }

    /// True for a knob of io.cost.
    pub fn is_cost(self) -> bool {
        matches!(self.kind(), Kind::CostQos | Kind::CostModel)
    }

    /// The knobs that state a group's weight. The first that differs from the default states the intent.
    pub fn weights() -> impl Iterator<Item = Knob> {
        let all = Knob::ALL.iter().copied();
        all.filter(|knob| matches!(knob.kind(), Kind::Weight { .. }))
    }

    /// Parses the text that [`Value`]'s `Display` gives for this knob.
    pub fn value(self, text: &str) -> Option<Value> {
        match self.kind() {
            Kind::Limit if text == "max" => Some(Value::Limit(Limit::Max)),
            Kind::Limit => Some(Value::Limit(Limit::Bytes(Bytes(text.parse().ok()?)))),
            Kind::Weight { .. } => Some(Value::Weight(text.parse().ok()?)),
            Kind::Switch => match text {
                "0" => Some(Value::Switch(false)),
                "1" => Some(Value::Switch(true)),
                _ => None,
            },
            Kind::CostQos => CostQos::parse(text).map(Value::CostQos),
            Kind::CostModel => CostModel::parse(text).map(Value::CostModel),
            Kind::Reclaim => None,
        }
    }
}

impl fmt::Display for Knob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.file_name())
    }
}

/// The values of a group's knobs. `None`: the file does not exist, so the knob cannot be used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Knobs {
    /// `memory.low`.
    pub low: Option<Limit>,
    /// `memory.high`.
    pub high: Option<Limit>,
    /// `memory.max`.
    pub max: Option<Limit>,
    /// `memory.swap.max`, where the host has swap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swap_max: Option<Limit>,
    /// `io.weight`, the default entry.
    pub io_weight: Option<u32>,
    /// `io.bfq.weight`, the default entry.
    pub bfq_weight: Option<u32>,
    /// `memory.reclaim` can be written.
    pub reclaim: bool,
    /// Knobs that somebody else changed while we held them: they are the user's now.
    pub foreign: ForeignKnobs,
    /// The operator's values from before Justitia; the policy stays within them.
    #[serde(default)]
    pub operator: OperatorLimits,
}

impl Knobs {
    /// The value of a knob; `None`: the file does not exist, or the knob is not a group's.
    pub fn get(&self, knob: Knob) -> Option<Value> {
        match knob.row().slot {
            Slot::Group { get, .. } => get(self),
            _ => None,
        }
    }

    /// Notes the value of a knob. A value of another kind, and a knob that is not a group's, changes nothing.
    pub fn set(&mut self, knob: Knob, value: Value) {
        if let Slot::Group { set, .. } = knob.row().slot {
            set(self, value);
        }
    }

    /// True if a foreign writer took the knob over.
    pub fn is_foreign(&self, knob: Knob) -> bool {
        let mut foreign = self.foreign;
        foreign.flag(knob).is_some_and(|flag| *flag)
    }
}

/// Values of the knobs from before Justitia. `None`: not known, no constraint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorLimits {
    /// `memory.low`: protection that is never lowered.
    pub low: Option<Limit>,
    /// `memory.high`: a limit that is never raised.
    pub high: Option<Limit>,
    /// `io.bfq.weight` or `io.weight`: the weight of the group among unmanaged siblings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_weight: Option<u32>,
}

impl OperatorLimits {
    /// The limit of a knob; `None`: this knob has none.
    pub fn limit(&mut self, knob: Knob) -> Option<&mut Option<Limit>> {
        match knob.row().slot {
            Slot::Group { operator, .. } => operator(self),
            _ => None,
        }
    }
}

/// Knobs that a foreign writer took over. The policy plans nothing for them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForeignKnobs {
    /// `memory.low`.
    pub low: bool,
    /// `memory.high`.
    pub high: bool,
    /// `io.weight` or `io.bfq.weight`.
    pub io_weight: bool,
}

impl ForeignKnobs {
    /// The flag of a group's knob.
    pub fn flag(&mut self, knob: Knob) -> Option<&mut bool> {
        match knob.row().slot {
            Slot::Group { foreign, .. } => Some(foreign(self)),
            _ => None,
        }
    }
}

/// One disk that BFQ schedules, or that io.cost could serve.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockDevice {
    /// Identity. It changes when the scheduler is changed, even if that is BFQ again.
    pub id: GroupId,
    /// Directory of its knobs: `block:nvme0n1` of BFQ's, `cost:nvme0n1` of io.cost's. A disk may have both.
    pub path: String,
    /// BFQ's `low_latency`. `None`: not known, so it is left alone.
    pub low_latency: Option<bool>,
    /// Somebody else changed a knob while we held it: the disk is the user's now.
    pub foreign: bool,
    /// Its line of `io.cost.qos`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_qos: Option<CostQos>,
    /// Its line of `io.cost.model`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_model: Option<CostModel>,
    /// Its counters, if io.cost could serve it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counters: Option<DiskCounters>,
    /// io.cost's `vrate`: its speed relative to the model, in hundredths of a percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vrate: Option<u32>,
    /// Time of the disk, at its `vrate`, that io.cost has granted to all groups since it was enabled, microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_used_us: Option<u64>,
    /// Its model as given by the configuration or by udev.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_model: Option<CostModel>,
}

impl BlockDevice {
    /// The disk's name, `nvme0n1`.
    pub fn name(&self) -> &str {
        self.path.split_once(':').map_or("", |(_, name)| name)
    }

    /// A disk of which nothing is known yet.
    pub fn new(id: GroupId, path: &str) -> BlockDevice {
        BlockDevice {
            id,
            path: path.to_owned(),
            low_latency: None,
            foreign: false,
            cost_qos: None,
            cost_model: None,
            counters: None,
            vrate: None,
            cost_used_us: None,
            given_model: None,
        }
    }

    /// Forgets the values of its knobs.
    pub fn forget_values(&mut self) {
        *self = BlockDevice {
            foreign: self.foreign,
            ..BlockDevice::new(self.id, &self.path)
        };
    }

    /// The value of a knob; `None`: unknown, or the knob is not a disk's.
    pub fn get(&self, knob: Knob) -> Option<Value> {
        match knob.row().slot {
            Slot::Disk { get, .. } => get(self),
            _ => None,
        }
    }

    /// Notes the value of a knob. A value of another kind, and a knob that is not a disk's, changes nothing.
    pub fn set(&mut self, knob: Knob, value: Value) {
        if let Slot::Disk { set, .. } = knob.row().slot {
            set(self, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value that a file of this kind takes.
    fn example(knob: Knob) -> Option<Value> {
        match knob.kind() {
            Kind::Limit => Some(Value::Limit(Limit::Bytes(Bytes::mib(7)))),
            Kind::Weight { most, .. } => Some(Value::Weight(most)),
            Kind::Switch => Some(Value::Switch(true)),
            Kind::CostQos => Some(Value::CostQos(CostQos {
                user: true,
                max: 15_000,
                ..CostQos::default()
            })),
            Kind::CostModel => Some(Value::CostModel(CostModel {
                user: true,
                rbps: 7,
                ..CostModel::default()
            })),
            Kind::Reclaim => None,
        }
    }

    #[test]
    fn a_row_stands_at_its_knobs_number_and_its_text_is_read_back() {
        for (number, &knob) in Knob::ALL.iter().enumerate() {
            assert_eq!(knob as usize, number);
            assert_eq!(Knob::from_file_name(knob.file_name()), Some(knob));
            let name = serde_json::to_string(&knob).unwrap();
            assert_eq!(name, format!("\"{knob}\""), "records name files");
            let value = example(knob);
            assert_eq!(value.is_some(), knob.holds_value());
            let text = value.map(|value| value.to_string());
            assert_eq!(text.and_then(|text| knob.value(&text)), value);
        }
    }

    #[test]
    fn every_knob_that_holds_a_value_has_one_place_of_its_own() {
        for knob in Knob::of_groups() {
            let mut knobs = Knobs::default();
            knobs.set(knob, example(knob).unwrap());
            let told = Knob::of_groups().filter(|&other| knobs.get(other).is_some());
            assert_eq!(told.collect::<Vec<_>>(), [knob]);
            *knobs.foreign.flag(knob).unwrap() = true;
            assert!(knobs.is_foreign(knob));
        }
        let both = Knob::of_groups().chain(Knob::of_disks());
        let holds = Knob::ALL.iter().filter(|knob| knob.holds_value());
        assert_eq!(both.count(), holds.count());
    }
}
