//! One description of everything the agent tells: the report's fields and the metrics.
//!
//! The table in [`fields`](crate::fields) feeds the metrics of `justitia-web`, `justitia
//! status --fields` and `docs/metrics.md`. A field has a name in the report's JSON, a metric, or
//! both; a test holds the table against the serialized report, in both directions.
//!
//! Metrics follow the conventions of `OpenMetrics` 1.0 and of Prometheus: base units (seconds, bytes,
//! ratios of 0 to 1), the unit at the end of the name, `_total` for counters. A value that is not
//! known has no sample; it is never zero.

use std::fmt::Write as _;

use justitia_policy::knob::Knob;
use serde::Serialize;

use crate::fields::{AGENT, GATE, GROUP, GUARD, KNOBS};
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

/// Everything, the agent and the host first.
pub fn fields() -> impl Iterator<Item = &'static Field> {
    AGENT
        .iter()
        .chain(GUARD)
        .chain(GATE)
        .chain(GROUP)
        .chain(KNOBS)
}

/// Every metric family with its help.
pub fn metrics() -> impl Iterator<Item = (&'static Metric, &'static str)> {
    fields().filter_map(|field| Some((field.metric.as_ref()?, field.help)))
}

/// The page `docs/metrics.md`.
pub fn markdown() -> String {
    let mut text = String::from(HEAD);
    for (metric, help) in metrics() {
        let label = metric.get.label().unwrap_or_default();
        let (name, kind) = (metric.name, metric.kind.word());
        let suffix = metric.kind.suffix();
        let _ = writeln!(text, "| `{name}{suffix}` | {kind} | {label} | {help} |");
    }
    text.push_str(REPORT_HEAD);
    for field in fields() {
        if let Some(json) = field.json {
            let (unit, help) = (field.unit, field.help);
            let _ = writeln!(text, "| `{json}` | {unit} | {help} |");
        }
    }
    text
}

const HEAD: &str = "\
# Metrics and fields

Made from the description in `crates/report/src/fields`; a test holds this page to it.

`justitia-web` serves metrics in the OpenMetrics text format at `http://127.0.0.1:9619/metrics` (the key
`listen` of the configuration, or `justitia run --listen ADDR`; `off` for none). A scrape job:

```yaml
scrape_configs:
  - job_name: justitia
    static_configs:
      - targets: [\"127.0.0.1:9619\"]
```

A value that is not known has no sample; it is never zero. Rates and ratios are those of the last step.

`packaging/grafana/justitia.json` is a dashboard for Grafana 10 and later. It shows one host at a time. A group
has the same color in all panels, and the first digits of its ID label a container or pod. The picture shows
the panels as Grafana's own components (`@grafana/ui` 11.6) draw them, with Prometheus data of an agent in a
virtual machine. The dashboard was not opened in a Grafana server.

![The dashboard's panels](grafana.png)

## Metrics

| metric | type | label | what it is |
|---|---|---|---|
";

const REPORT_HEAD: &str = "
## Fields of the report

As `justitia status --json` prints it and `/api/status` serves it; `justitia status --fields` prints
this table. A value that is not known is `null` or absent.

| field | unit | what it is |
|---|---|---|
";

#[cfg(test)]
#[path = "describe_tests.rs"]
mod tests;
