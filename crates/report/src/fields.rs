//! Defines a field, and the table of [`crate::describe`]: [`AGENT`] has the fields of the agent, the host and
//! its disks, [`GROUP`] those of each group, [`GUARD`] those of the guard, [`GATE`] those of the kernel
//! module's gate, [`WATCH`] the measured costs of decisions, and [`knobs`] the values of each group's knobs.

/// A value of the report, by its path in [`Report`]. A `?` in the path: it may be absent.
macro_rules! report {
    ($($path:tt)+) => {
        Get::Report(|report| number(report.$($path)+))
    };
}

/// A value of each group, by its path in [`GroupStatus`].
macro_rules! group {
    ($($path:tt)+) => {
        Get::Group(|group| number(group.$($path)+))
    };
}

/// A time of each group, which the report has in microseconds, in seconds.
macro_rules! group_seconds {
    ($($path:tt)+) => {
        Get::Group(|group| Some(number(group.$($path)+)? / 1e6))
    };
}

mod agent;
mod gate;
mod group;
mod guard;
mod watch;

pub(super) use agent::AGENT;
pub(super) use gate::GATE;
pub(super) use group::GROUP;
pub(super) use guard::GUARD;
pub(super) use watch::WATCH;

use justitia_policy::knob::Knob;
use justitia_policy::plan::Finding;
use serde::Serialize;

use crate::own::Own;
use crate::status::{DeviceStatus, GateDeviceStatus, GroupStatus, Report};

/// One value that the agent reports.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Field {
    /// Its path in the report, for example `groups[].file_bytes`; `None`: a metric only.
    #[serde(rename = "field")]
    pub json: Option<&'static str>,
    /// The unit of the value in the report; empty for a count, a ratio or a word.
    pub unit: &'static str,
    pub help: &'static str,
    /// `None`: in the report only.
    pub metric: Option<Metric>,
}

/// A metric family.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Metric {
    /// The family's name, with its unit, without `_total` and `_info`.
    pub name: &'static str,
    pub kind: Kind,
    /// The unit, with which the name ends; empty: none.
    pub unit: &'static str,
    /// The source of the samples.
    #[serde(skip)]
    pub get: Get,
}

/// Types of `OpenMetrics` that are used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Goes up and down.
    Gauge,
    /// Never decreases while the agent runs.
    Counter,
    /// Words as labels; the value is 1.
    Info,
    /// One sample for each state; the sample of the current state is 1.
    StateSet,
}

impl Kind {
    /// The suffix of a sample's name after the family's name.
    pub fn suffix(self) -> &'static str {
        match self {
            Kind::Gauge | Kind::StateSet => "",
            Kind::Counter => "_total",
            Kind::Info => "_info",
        }
    }
}

/// Label names and values.
pub type Labels = Vec<(&'static str, String)>;

/// Reads the value from the report, in the metric's unit. `None`: unknown, no sample.
#[derive(Debug, Clone, Copy)]
pub enum Get {
    Report(fn(&Report) -> Option<f64>),
    /// Words of the report, as labels.
    ReportInfo(fn(&Report) -> Labels),
    /// One value of the agent's process.
    Own(fn(&Own) -> Option<f64>),
    /// One value for each group.
    Group(fn(&GroupStatus) -> Option<f64>),
    /// Words of each group, as labels.
    GroupInfo(fn(&GroupStatus) -> Labels),
    /// The current state of each group, out of the named ones.
    GroupState(&'static [&'static str], fn(&GroupStatus) -> Option<String>),
    /// The value of a knob of each group.
    Knob(Knob),
    /// One value for each disk.
    Device(fn(&DeviceStatus) -> Option<f64>),
    /// One value for each backing device of the gate.
    GateDevice(fn(&GateDeviceStatus) -> f64),
    /// One value for each kind of decision.
    Watch(fn(&Finding) -> Option<f64>),
}

/// A field of the report: its path, its unit, and its description.
const fn field(json: &'static str, unit: &'static str, help: &'static str) -> Field {
    Field {
        json: Some(json),
        unit,
        help,
        metric: None,
    }
}

/// A metric without a field of the report.
const fn extra(help: &'static str) -> Field {
    Field {
        json: None,
        ..field("", "", help)
    }
}

/// The values of each group's knobs: one metric for each knob with a gauge in the table of knobs.
pub(super) fn knobs() -> impl Iterator<Item = Field> {
    Knob::ALL.iter().filter_map(|&knob| {
        let gauge = knob.gauge()?;
        Some(extra(gauge.help).gauge(gauge.name, Get::Knob(knob)))
    })
}

impl Field {
    /// Adds a metric.
    const fn metric(self, name: &'static str, kind: Kind, get: Get) -> Field {
        Field {
            metric: Some(Metric {
                name,
                kind,
                unit: unit_of(name),
                get,
            }),
            ..self
        }
    }

    const fn gauge(self, name: &'static str, get: Get) -> Field {
        self.metric(name, Kind::Gauge, get)
    }

    const fn counter(self, name: &'static str, get: Get) -> Field {
        self.metric(name, Kind::Counter, get)
    }
}

/// The unit with which the name of a metric ends; empty: none.
const fn unit_of(name: &str) -> &'static str {
    const UNITS: [&str; 5] = ["bytes_per_second", "seconds", "bytes", "ratio", "pages"];
    let mut at = 0;
    while at < UNITS.len() {
        if ends_with(name.as_bytes(), UNITS[at].as_bytes()) {
            return UNITS[at];
        }
        at += 1;
    }
    ""
}

/// `<[u8]>::ends_with`, which a constant cannot call.
const fn ends_with(text: &[u8], end: &[u8]) -> bool {
    match (text, end) {
        (_, []) => true,
        ([text @ .., one], [end @ .., other]) => *one == *other && ends_with(text, end),
        ([], _) => false,
    }
}

/// A value as a sample; unknown has none.
fn number(value: impl Number) -> Option<f64> {
    value.sample()
}

trait Number {
    fn sample(self) -> Option<f64>;
}

impl<T: Number> Number for Option<T> {
    fn sample(self) -> Option<f64> {
        self.and_then(T::sample)
    }
}

/// 1 yes, 0 no.
impl Number for bool {
    fn sample(self) -> Option<f64> {
        Some(f64::from(u8::from(self)))
    }
}

macro_rules! numbers {
    ($($kind:ty)+) => {
        $(impl Number for $kind {
            #[allow(clippy::cast_lossless, reason = "one macro for all")]
            fn sample(self) -> Option<f64> {
                Some(self as f64)
            }
        })+
    };
}

numbers!(f64 u64 u32 usize);
