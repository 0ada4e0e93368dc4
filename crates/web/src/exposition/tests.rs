//! Tests that the text follows its format, whatever the names of groups.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use justitia_policy::config::{Mode, Objective};

use super::*;
use justitia_report::example;
use justitia_report::status::{Setup, Tick};

fn report(tick: &Tick) -> Report {
    let setup = Setup {
        mode: Mode::Observe,
        objective: Objective::Strict,
        interval: Duration::from_secs(2),
        since: UNIX_EPOCH + Duration::from_secs(5),
    };
    Report::new(&setup, tick)
}

fn text(tick: &Tick) -> String {
    Scrape::new(Format::OpenMetrics, report(tick), Own::default()).collect()
}

/// Labels of a group in the example.
const DB: &str = "group=\"/app/db\",kind=\"group\",name=\"db\"";

/// The result of an independent, strict parser: types of families by name, and samples as name, labels and
/// value.
struct Read {
    kinds: HashMap<String, String>,
    samples: Vec<(String, String, f64)>,
}

fn read(text: &str) -> Read {
    let body = text.strip_suffix("# EOF\n").expect("an end mark");
    let mut kinds = HashMap::new();
    let mut samples = Vec::new();
    let mut family = String::new();
    for line in body.lines() {
        assert!(!line.is_empty() && !line.starts_with("# EOF"), "{line}");
        if let Some(meta) = line.strip_prefix("# ") {
            let mut words = meta.splitn(3, ' ');
            let (what, name, rest) = (words.next(), words.next().unwrap(), words.next());
            if what == Some("TYPE") {
                family = name.to_owned();
                let old = kinds.insert(family.clone(), rest.unwrap().to_owned());
                assert!(old.is_none(), "{name} comes twice");
            }
            assert_eq!(name, family, "{line}");
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let suffix = match kinds[&family].as_str() {
            "counter" => "_total",
            "info" => "_info",
            _ => "",
        };
        assert_eq!(name, format!("{family}{suffix}"), "{line}");
        let value = match value {
            "+Inf" => f64::INFINITY,
            number => number.parse().unwrap(),
        };
        samples.push((
            name.to_owned(),
            labels.trim_end_matches('}').to_owned(),
            value,
        ));
    }
    Read { kinds, samples }
}

fn value(read: &Read, name: &str, labels: &str) -> Option<f64> {
    let found = read
        .samples
        .iter()
        .find(|(n, l, _)| n == name && l == labels);
    found.map(|(_, _, value)| *value)
}

#[test]
fn every_family_is_there_with_its_type_even_without_groups() {
    for groups in [0, 8] {
        let read = read(&text(&example::tick(3, groups)));
        for (metric, _) in metrics() {
            assert_eq!(read.kinds[metric.name], word(&metric.kind));
        }
    }
}

#[test]
fn values_are_in_base_units() {
    let read = read(&text(&example::tick(3, 8)));
    assert_eq!(
        value(&read, "justitia_agent_tick_seconds", ""),
        Some(0.002_303)
    );
    assert_eq!(value(&read, "justitia_agent_ticks_total", ""), Some(3.0));
    assert_eq!(value(&read, "justitia_agent_writes_total", ""), Some(18.0));
    assert_eq!(
        value(&read, "justitia_agent_start_time_seconds", ""),
        Some(5.0)
    );
    assert_eq!(
        value(&read, "justitia_group_memory_high_bytes", DB),
        Some(f64::INFINITY)
    );
    let info = concat!(
        "version=\"",
        env!("CARGO_PKG_VERSION"),
        "\",mode=\"observe\",objective=\"strict\",observer=\"bpf\""
    );
    assert_eq!(value(&read, "justitia_agent_info", info), Some(1.0));
    assert_eq!(
        value(&read, "justitia_disk_low_latency", "disk=\"nvme0n1\""),
        Some(0.0)
    );
}

#[test]
fn every_metric_of_a_group_has_its_names_and_two_cgroups_of_one_container_differ_in_the_path_only()
{
    let mut tick = example::tick(3, 8);
    let again = "/kubepods.slice/kubepods-burstable.slice/again".to_owned();
    let pod = tick.snapshot.groups[7].id;
    let names = tick.names[&pod].clone();
    tick.names = Arc::new([(pod, names)].into());
    let before = read(&text(&tick));
    tick.snapshot.groups[7].path.clone_from(&again);
    let after = read(&text(&tick));
    let named = concat!(
        ",kind=\"container\",name=\"shop/batch-0/batch\",",
        "namespace=\"shop\",pod=\"batch-0\",container=\"batch\""
    );
    let of_pod = |read: &Read, path: &str| -> Vec<(String, String)> {
        let of_group = format!("group=\"{path}\"");
        let samples = read.samples.iter();
        let found = samples.filter_map(|(name, labels, _)| {
            Some((name.clone(), labels.strip_prefix(&of_group)?.to_owned()))
        });
        found.collect()
    };
    let before = of_pod(&before, "/kubepods.slice/kubepods-burstable.slice/batch");
    assert!(before.len() > 40);
    for (name, labels) in &before {
        assert!(labels.starts_with(named), "{name} {labels}");
    }
    assert_eq!(before, of_pod(&after, &again));
}

#[test]
fn a_group_has_exactly_one_color() {
    let read = read(&text(&example::tick(3, 8)));
    let colors = read
        .samples
        .iter()
        .filter(|(name, labels, _)| name == "justitia_group_color" && labels.starts_with(DB));
    let colors: Vec<f64> = colors.map(|(_, _, value)| *value).collect();
    assert_eq!(colors.len(), 3);
    assert_eq!(colors.iter().filter(|value| **value > 0.0).count(), 1);
}

#[test]
fn names_of_groups_are_escaped() {
    let mut tick = example::tick(3, 1);
    tick.snapshot.groups[0].path = "/a\"b\\c\nd{e=\"f\"} 1".into();
    let text = text(&tick);
    assert!(
        text.contains("group=\"/a\\\"b\\\\c\\nd{e=\\\"f\\\"} 1\",kind="),
        "{text}"
    );
    assert!(text
        .lines()
        .all(|line| line.starts_with("# ") || line.starts_with("justitia_")));
}

#[test]
fn no_two_samples_are_the_same_series() {
    let mut tick = example::tick(3, 8);
    // Another group replaced the first one at its path while the report was made.
    let twice = tick.snapshot.groups[0].path.clone();
    tick.snapshot.groups[1].path = twice;
    let read = read(&text(&tick));
    let mut seen = HashSet::new();
    for (name, labels, _) in &read.samples {
        assert!(seen.insert((name, labels)), "{name}{{{labels}}}");
    }
}

#[test]
fn unknown_values_have_no_sample() {
    let mut tick = example::tick(3, 2);
    tick.plan.pv = None;
    tick.plan.verdicts[1].cache.hit_ratio = None;
    tick.snapshot.groups[1].memory.file = None;
    tick.snapshot.shared = None;
    let read = read(&text(&tick));
    assert_eq!(value(&read, "justitia_proportionality_variation", ""), None);
    let db = DB;
    assert_eq!(value(&read, "justitia_group_hit_ratio", db), None);
    assert_eq!(value(&read, "justitia_group_page_cache_bytes", db), None);
    for held in ["for", "by"].map(|whom| format!("justitia_group_held_{whom}_others_bytes")) {
        assert_eq!(value(&read, &held, db), None);
    }
    assert!(value(&read, "justitia_group_hit_ratio", &DB.replace("db", "web")).is_some());
}

#[test]
fn before_the_first_step_there_are_no_group_values() {
    let read = read(&text(&Tick::default()));
    assert!(read
        .samples
        .iter()
        .all(|(_, labels, _)| !labels.contains("group=")));
    assert_eq!(value(&read, "justitia_contending_groups", ""), None);
    assert_eq!(value(&read, "justitia_groups", ""), Some(0.0));
}

#[test]
fn no_more_than_a_family_of_a_thousand_groups_is_in_memory_at_once() {
    let report = report(&example::tick(40, 1000));
    let pieces = Scrape::new(Format::Text, report, Own::default());
    let sizes: Vec<usize> = pieces.map(|piece| piece.len()).collect();
    let whole: usize = sizes.iter().sum();
    assert!(whole > 1 << 20);
    assert!(sizes.iter().all(|size| size * 10 < whole), "{sizes:?}");
}

#[test]
fn both_formats_have_the_same_samples() {
    let report = report(&example::tick(3, 8));
    let lines = |format| -> Vec<String> {
        let text: String = Scrape::new(format, report.clone(), Own::default()).collect();
        text.lines().map(str::to_owned).collect()
    };
    let is_sample = |line: &&String| !line.starts_with('#');
    let (open, text) = (lines(Format::OpenMetrics), lines(Format::Text));
    assert!(open
        .iter()
        .filter(is_sample)
        .eq(text.iter().filter(is_sample)));
}

#[test]
fn in_the_text_format_a_family_is_called_as_its_samples() {
    let text: String =
        Scrape::new(Format::Text, report(&example::tick(3, 8)), Own::default()).collect();
    let mut family = String::new();
    for line in text.lines() {
        if let Some(meta) = line.strip_prefix("# TYPE ") {
            let (name, kind) = meta.split_once(' ').unwrap();
            assert!(["counter", "gauge"].contains(&kind), "{line}");
            family = name.to_owned();
        } else if let Some(meta) = line.strip_prefix("# HELP ") {
            assert!(meta.starts_with(&format!("{family} ")), "{line}");
        } else {
            assert_eq!(line.split(['{', ' ']).next(), Some(family.as_str()));
        }
    }
    assert!(text.contains("# TYPE justitia_agent_info gauge\n"));
    assert!(text.contains("# TYPE justitia_agent_ticks_total counter\n"));
}

#[test]
fn only_a_client_that_asks_gets_open_metrics() {
    assert_eq!(Format::accepted("*/*"), Format::Text);
    assert_eq!(Format::accepted(""), Format::Text);
    let prometheus =
        "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3";
    assert_eq!(Format::accepted(prometheus), Format::OpenMetrics);
}
