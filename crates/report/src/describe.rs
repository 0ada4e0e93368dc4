//! One description of everything the agent reports: the report's fields and the metrics.
//!
//! The table in [`fields`](crate::fields) feeds the metrics of `justitia-web`, `justitia status --fields` and
//! `docs/metrics.md`. A field has a name in the report's JSON, a metric, or both; a test holds the table
//! against the serialized report, in both directions.
//!
//! Metrics follow the conventions of `OpenMetrics` 1.0 and of Prometheus: base units (seconds, bytes, ratios
//! of 0 to 1), the unit at the end of the name, `_total` for counters. An unknown value has no sample; it is
//! never zero.

use crate::fields::{knobs, AGENT, GATE, GROUP, GUARD, WATCH};
pub use crate::fields::{Field, Get, Kind, Labels, Metric};

/// All fields; those of the agent and the host come first.
pub fn fields() -> impl Iterator<Item = Field> {
    let tables = [AGENT, GUARD, GATE, WATCH, GROUP].into_iter().flatten();
    tables.copied().chain(knobs())
}

/// Every metric family with its help.
pub fn metrics() -> impl Iterator<Item = (Metric, &'static str)> {
    fields().filter_map(|field| Some((field.metric?, field.help)))
}

#[cfg(test)]
mod tests;
