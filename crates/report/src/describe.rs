//! One description of everything the agent reports: the report's fields and the metrics.
//!
//! The table in [`fields`](crate::fields) feeds the metrics of `justitia-web`, `justitia status --fields` and
//! `docs/metrics.md`. A field has a name in the report's JSON, a metric, or both; a test holds the table
//! against the serialized report, in both directions.
//!
//! Metrics follow the conventions of `OpenMetrics` 1.0 and of Prometheus: base units (seconds, bytes, ratios
//! of 0 to 1), the unit at the end of the name, `_total` for counters. An unknown value has no sample; it is
//! never zero.

use std::fmt::Write as _;

pub use crate::fields::{Field, Get, Kind, Labels, Metric};
use crate::fields::{AGENT, GATE, GROUP, GUARD, KNOBS, WATCH};

/// All fields; those of the agent and the host come first.
pub fn fields() -> impl Iterator<Item = &'static Field> {
    AGENT
        .iter()
        .chain(GUARD)
        .chain(GATE)
        .chain(WATCH)
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

`justitia-web` serves metrics at `http://127.0.0.1:9619/metrics` (the key `listen` of the configuration, or
`justitia run --listen ADDR`; `off` for none), as OpenMetrics 1.0 to a client that accepts it, else in
Prometheus's text format 0.0.4. A scrape job:

```yaml
scrape_configs:
  - job_name: justitia
    static_configs:
      - targets: [\"127.0.0.1:9619\"]
```

A value that is not known has no sample; it is never zero. Rates and ratios are those of the last step.
Counters of a group are its subtree's, without what other managed groups below it count; stalls and refaults
are the whole subtree's.

Every metric of a group has these labels, where they are known:

| label | what it is |
|---|---|
| `group` | the cgroup's path, as `justitia explain` takes it |
| `kind` | `container`, `pod`, `service`, `vm` or `group` |
| `name` | what its owner calls it: the container's, machine's or service's name, `namespace/pod`, `namespace/pod/container` |
| `namespace`, `pod`, `container` | of Kubernetes |

A container that is started again may have another cgroup, so another `group`. Its names stay: sum without
`group`. The second line is the hit ratio over five minutes.

```
sum without (group) (increase(justitia_group_read_bytes_total[1h]))
1 - (rate(justitia_group_missed_pages_total[5m]) + rate(justitia_group_readahead_pages_total[5m]))
  / rate(justitia_group_asked_pages_total[5m])
```

In a cluster, the scrape needs `honor_labels: true`, or these labels are called `exported_pod` and so on.

`packaging/grafana/justitia.json` is a dashboard for Grafana 10 and later. It shows one host at a time. A group
has the same color in all panels. Its name labels it, or the first digits of its ID. The picture shows
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
mod tests;
