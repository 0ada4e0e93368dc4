//! The table of [`crate::describe`]: [`AGENT`] is about the agent, the host and its disks,
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

use crate::describe::{Field, Get, Kind, Metric};

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
