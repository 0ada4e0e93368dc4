//! Tests that the description matches the report, that names follow the conventions, and that the documents
//! agree.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::*;
use crate::example;
use crate::status::{Report, Setup};
use crate::text::word;

fn report() -> Report {
    let setup = Setup::default();
    Report::new(&setup, &example::tick(40, 8))
}

/// Every leaf of a record: its path, with `[]` for the members of a list, and whether it is a number. A null
/// could be of any type.
fn leaves(value: &Value, path: &str, found: &mut BTreeSet<(String, bool)>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let dot = if path.is_empty() { "" } else { "." };
                leaves(value, &format!("{path}{dot}{name}"), found);
            }
        }
        Value::Array(members) => {
            for member in members {
                leaves(member, &format!("{path}[]"), found);
            }
        }
        leaf => {
            found.insert((path.to_owned(), leaf.is_number() || leaf.is_null()));
        }
    }
}

fn reported() -> BTreeSet<(String, bool)> {
    let mut found = BTreeSet::new();
    leaves(&serde_json::to_value(report()).unwrap(), "", &mut found);
    found
}

#[test]
fn every_number_of_the_report_is_described() {
    let described: BTreeSet<&str> = fields().filter_map(|field| field.json).collect();
    for (path, is_number) in reported() {
        // These are null or words. Knobs are described together, and so are the classes of a list.
        let words = [
            "gate.devices[].lengths[]",
            "groups[].knobs[].prior",
            "devices[].prior",
            "devices[].knobs[].prior",
            "writes[].now",
            "problems[].group",
        ];
        if is_number && !words.contains(&path.as_str()) {
            assert!(described.contains(path.as_str()), "{path} is not described");
        }
    }
}

#[test]
fn every_described_field_is_in_the_report() {
    let reported = reported();
    for name in fields().filter_map(|field| field.json) {
        let is_there = reported.iter().any(|(path, _)| {
            path.strip_prefix(name)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        });
        assert!(is_there, "{name} is described, and not in the report");
    }
}

#[test]
fn nothing_is_described_twice() {
    let mut names: Vec<&str> = fields().filter_map(|field| field.json).collect();
    names.extend(metrics().map(|(metric, _)| metric.name));
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn metric_names_are_valid_and_end_in_their_unit_which_is_a_base_unit() {
    for (metric, _) in metrics() {
        let name = metric.name;
        assert!(name.starts_with("justitia_"), "{name}");
        assert!(
            name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'),
            "{name}"
        );
        assert!(
            !name.ends_with("_total") && !name.ends_with("_info"),
            "{name}"
        );
        let bad = ["_us", "_ms", "_kib", "_mib", "_mb", "_percent", "_per_s"];
        assert!(!bad.iter().any(|bad| name.ends_with(bad)), "{name}");
        if !metric.unit.is_empty() {
            assert!(name.ends_with(&format!("_{}", metric.unit)), "{name}");
        }
        for (word, unit) in [
            ("_bytes", "bytes"),
            ("_seconds", "seconds"),
            ("_ratio", "ratio"),
        ] {
            assert!(!name.ends_with(word) || metric.unit == unit, "{name}");
        }
        let is_word = matches!(metric.kind, Kind::Info | Kind::StateSet);
        assert!(!is_word || metric.unit.is_empty(), "{name}");
    }
}

#[test]
fn helps_are_sentences() {
    for field in fields() {
        assert!(
            field.help.ends_with('.') && field.help.len() > 10,
            "{}",
            field.help
        );
        assert!(!field.help.contains(['\n', '|']), "{}", field.help);
    }
}

#[test]
fn a_metric_of_a_field_with_a_unit_has_the_base_unit_of_it() {
    for field in fields() {
        let Some(metric) = field.metric else { continue };
        let base = match field.unit {
            "B" => "bytes",
            "B/s" => "bytes_per_second",
            "s" | "us" => "seconds",
            "pages" => "pages",
            _ => continue,
        };
        assert_eq!(metric.unit, base, "{}", metric.name);
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// `JUSTITIA_BLESS=1 cargo test -p justitia-report metrics_page` regenerates the page.
#[test]
fn the_metrics_page_is_made_from_the_description() {
    let path = root().join("docs/metrics.md");
    if std::env::var_os("JUSTITIA_BLESS").is_some() {
        std::fs::write(&path, markdown()).unwrap();
    }
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        text == markdown(),
        "docs/metrics.md is not up to date: JUSTITIA_BLESS=1 cargo test -p justitia-report metrics_page"
    );
}

/// All strings under this key, at any depth.
fn texts<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_str() {
                    Some(text) if name == key => found.push(text),
                    _ => texts(value, key, found),
                }
            }
        }
        Value::Array(members) => members.iter().for_each(|member| texts(member, key, found)),
        _ => {}
    }
}

fn dashboard() -> Value {
    let path = root().join("packaging/grafana/justitia.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn the_dashboard_asks_only_for_metrics_that_exist() {
    let dashboard = dashboard();
    let mut queries = Vec::new();
    texts(&dashboard, "expr", &mut queries);
    texts(&dashboard, "query", &mut queries);
    texts(&dashboard, "definition", &mut queries);
    assert!(queries.len() > 10, "{queries:?}");
    let samples: BTreeSet<String> = metrics()
        .map(|(metric, _)| format!("{}{}", metric.name, metric.kind.suffix()))
        .collect();
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    for query in queries {
        // A label may have a family's name: the label of a state set.
        for word in query
            .split(|c| !is_name(c))
            .filter(|word| word.starts_with("justitia_"))
        {
            assert!(samples.contains(word), "{word} in {query}");
        }
    }
}

#[test]
fn the_dashboard_names_no_data_source_of_its_own() {
    let dashboard = dashboard();
    let mut sources = Vec::new();
    texts(&dashboard, "uid", &mut sources);
    sources.retain(|uid| *uid != dashboard["uid"]);
    assert!(!sources.is_empty());
    assert!(
        sources.iter().all(|uid| *uid == "${datasource}"),
        "{sources:?}"
    );
    let panels = dashboard["panels"].as_array().unwrap();
    let mut ids: Vec<i64> = panels
        .iter()
        .filter_map(|panel| panel["id"].as_i64())
        .collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), panels.len());
}

/// The label that distinguishes the samples of a metric.
fn label(get: Get) -> &'static str {
    match get {
        Get::Report(_) | Get::ReportInfo(_) | Get::Own(_) => "",
        Get::Group(_) | Get::GroupInfo(_) | Get::GroupState(..) | Get::Knob(_) => "group",
        Get::Device(_) => "disk",
        Get::GateDevice(_) => "device",
        Get::Watch(_) => "decision",
    }
}

/// The page `docs/metrics.md`.
fn markdown() -> String {
    let mut text = String::from(HEAD);
    for (metric, help) in metrics() {
        let label = label(metric.get);
        let (name, kind) = (metric.name, word(&metric.kind));
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
