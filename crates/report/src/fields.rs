//! What a field is, and the table of [`crate::describe`]: [`AGENT`] is about the agent, the host and its disks,
//! [`GROUP`] about each group, [`GUARD`] about the guard, [`GATE`] about
//! the kernel module's gate, [`KNOBS`] about what each group's knobs hold.

mod agent;
mod gate;
mod group;
mod guard;
mod knob;

pub(super) use agent::AGENT;
pub(super) use gate::GATE;
pub(super) use group::GROUP;
pub(super) use guard::GUARD;
pub(super) use knob::KNOBS;

use justitia_policy::knob::Knob;
use serde::Serialize;

use crate::own::Own;
use crate::status::{DeviceStatus, GateDeviceStatus, GroupStatus, Report};

/// One thing the agent tells.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Field {
    /// Its place in the report, for example `groups[].file_bytes`; `None`: a metric only.
    #[serde(rename = "field")]
    pub json: Option<&'static str>,
    /// The unit of the value in the report; empty: a count, a ratio, a word.
    pub unit: &'static str,
    /// What it is.
    pub help: &'static str,
    /// The metric; `None`: in the report only.
    pub metric: Option<Metric>,
}

/// A metric family.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Metric {
    /// The family's name, with its unit, without `_total` and `_info`.
    pub name: &'static str,
    /// Gauge, counter and so on.
    pub kind: Kind,
    /// The unit, which ends the name; empty: none.
    pub unit: &'static str,
    /// Where the samples come from.
    #[serde(skip)]
    pub get: Get,
}

/// Types of `OpenMetrics` that are used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Goes up and down.
    Gauge,
    /// Only grows while the agent lives.
    Counter,
    /// Words as labels; the value is 1.
    Info,
    /// One sample for each state; that of the present one is 1.
    StateSet,
}

impl Kind {
    /// The word in a `# TYPE` line.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
            Kind::Info => "info",
            Kind::StateSet => "stateset",
        }
    }

    /// What a sample's name has after the family's.
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

/// How to get the value, already in the metric's unit. `None`: not known, no sample.
#[derive(Debug, Clone, Copy)]
pub enum Get {
    /// One value of the report.
    Report(fn(&Report) -> Option<f64>),
    /// Words of the report.
    ReportInfo(fn(&Report) -> Labels),
    /// One value about the agent's process.
    Own(fn(&Own) -> Option<f64>),
    /// One value for each group.
    Group(fn(&GroupStatus) -> Option<f64>),
    /// Words about each group.
    GroupInfo(fn(&GroupStatus) -> Labels),
    /// The state of each group, of those named.
    GroupState(&'static [&'static str], fn(&GroupStatus) -> Option<String>),
    /// What a knob of each group holds.
    Knob(Knob),
    /// One value for each disk.
    Device(fn(&DeviceStatus) -> Option<f64>),
    /// One value for each backing device of the gate.
    GateDevice(fn(&GateDeviceStatus) -> f64),
}

impl Get {
    /// The label that tells samples apart.
    pub fn label(self) -> Option<&'static str> {
        match self {
            Get::Report(_) | Get::ReportInfo(_) | Get::Own(_) => None,
            Get::Group(_) | Get::GroupInfo(_) | Get::GroupState(..) | Get::Knob(_) => Some("group"),
            Get::Device(_) => Some("disk"),
            Get::GateDevice(_) => Some("device"),
        }
    }
}

/// A field without a metric.
const fn plain(json: &'static str, unit: &'static str, help: &'static str) -> Field {
    Field {
        json: Some(json),
        unit,
        help,
        metric: None,
    }
}

/// What is in the metrics only.
const fn extra(help: &'static str) -> Field {
    Field {
        json: None,
        unit: "",
        help,
        metric: None,
    }
}

impl Field {
    /// The same with a metric.
    const fn metric(self, name: &'static str, kind: Kind, unit: &'static str, get: Get) -> Field {
        Field {
            metric: Some(Metric {
                name,
                kind,
                unit,
                get,
            }),
            ..self
        }
    }

    const fn gauge(self, name: &'static str, unit: &'static str, get: Get) -> Field {
        self.metric(name, Kind::Gauge, unit, get)
    }
}
