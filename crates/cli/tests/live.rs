//! Tests a live agent: in a guest with a stock kernel three groups write and read, an agent manages them, and
//! the reports of all commands must be correct and agree. One boot for all tests, slow and ignored by
//! default; `make test` runs them: `cargo test -p justitia-cli --test live -- --ignored`.
//!
//! The guest runs `live/guest.sh`. Bounds on bandwidth are wide, because emulation is slow.

#[path = "../../../lab/tests/common/mod.rs"]
mod common;
#[path = "live/openmetrics.rs"]
mod openmetrics;
#[path = "live/run.rs"]
mod run;

use std::collections::BTreeSet;
use std::process::Command;

use openmetrics::Metrics;
use run::{group, list, run};
use serde_json::Value;

const GROUPS: [&str; 3] = ["/app/heavy", "/app/light", "/app/middle"];

/// The agent's reports, one a second.
fn stream() -> Vec<Value> {
    let lines = run().text("top.lines").lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The known values of a field of one group over time.
fn over_time(path: &str, field: &str) -> Vec<f64> {
    let reports = stream();
    let values = reports
        .iter()
        .map(|report| group(report, path)[field].as_f64());
    values.flatten().collect()
}

#[test]
#[ignore = "boots a virtual machine; make test runs it"]
fn bpf_counts_and_everything_is_known_of_every_group() {
    let log = run().text("agent.log");
    assert!(log.contains("BPF programs count in the kernel"), "{log}");
    assert!(!log.contains("panicked"), "{log}");
    let report = run().json("before.json");
    assert_eq!(report["observer"], "bpf");
    let paths: BTreeSet<&str> = list(&report["groups"])
        .iter()
        .filter_map(|group| group["path"].as_str())
        .collect();
    assert_eq!(paths, BTreeSet::from(GROUPS));
    for path in GROUPS {
        let group = group(&report, path);
        let weight = if path == "/app/heavy" { 800 } else { 100 };
        assert_eq!(group["weight"], weight, "{path}");
        let words = "entitlement_bytes threshold_bytes bytes_per_s transferable_bytes_per_s \
                     stalled file_bytes inserted_pages_per_s reclaim_s_per_s \
                     held_for_others_bytes";
        for field in words.split(' ') {
            assert!(group[field].is_number(), "{field} of {path}: {group}");
        }
        let rates = over_time(path, "bytes_per_s");
        assert!(rates.iter().any(|rate| *rate > 1e5), "{path}: {rates:?}");
        // The file is larger than the group's page cache can be: some reads hit, some miss.
        let hits = over_time(path, "hit_ratio");
        let mixed = hits.iter().filter(|ratio| **ratio > 0.0 && **ratio < 1.0);
        assert!(mixed.count() > 0, "{path}: {hits:?}");
    }
    let contend = |group: &&Value| group["contending"] == true;
    assert!(list(&report["groups"]).iter().filter(contend).count() >= 2);
    // The heavy group is entitled to more than a light one, or, while it does not fill that, to all that it holds.
    let [heavy, light] = ["/app/heavy", "/app/light"].map(|path| group(&report, path));
    let bytes = |group: &Value, field| group[field].as_f64().unwrap();
    let entitled = bytes(heavy, "entitlement_bytes");
    let needed = bytes(light, "entitlement_bytes").min(bytes(heavy, "file_bytes"));
    assert!(entitled > needed, "{heavy} {light}");
}

#[test]
#[ignore = "boots a virtual machine; make test runs it"]
fn reports_come_step_by_step_and_never_backwards() {
    let ticks: Vec<u64> = stream()
        .iter()
        .map(|report| report["ticks_total"].as_u64().unwrap())
        .collect();
    assert!(ticks.len() >= 5, "{ticks:?}");
    assert!(ticks.windows(2).all(|pair| pair[0] <= pair[1]), "{ticks:?}");
    assert!(ticks.last() > ticks.first(), "{ticks:?}");
    let writes = |report: &Value| report["writes_total"].as_u64().unwrap();
    let reports = stream();
    assert!(writes(reports.last().unwrap()) > 0, "it was at work");
}

#[test]
#[ignore = "boots a virtual machine; make test runs it"]
fn one_step_is_the_same_over_the_socket_the_port_and_in_the_metrics() {
    let report = run().json("before.json");
    assert_eq!(report, run().json("after.json"), "one step, seen twice");
    assert_eq!(report, run().answer("api-status").json());
    let metrics = Metrics::read(run().answer("metrics").body);
    let mut compared = 0;
    for field in list(&run().json("fields.json")) {
        let (Some(path), Some(name)) = (field["field"].as_str(), field["metric"]["name"].as_str())
        else {
            continue;
        };
        let name = match field["metric"]["kind"].as_str() {
            Some("gauge") => name.to_owned(),
            Some("counter") => format!("{name}_total"),
            _ => continue,
        };
        let us = field["unit"] == "us";
        let told = |value: &Value| match value {
            Value::Number(number) => number.as_f64().map(|n| if us { n / 1e6 } else { n }),
            Value::Bool(yes) => Some(f64::from(u8::from(*yes))),
            Value::Array(items) => Some(items.len() as f64),
            _ => None,
        };
        let mut same = |value: &Value, labels: &[(&str, &str)]| {
            let sample = metrics.value(&name, labels);
            assert_eq!(told(value), sample, "{path} and {name}{labels:?}");
            compared += 1;
        };
        if let Some(field) = path.strip_prefix("groups[].") {
            let place = format!("/{}", field.replace('.', "/"));
            for group in list(&report["groups"]) {
                let value = group.pointer(&place).unwrap_or(&Value::Null);
                same(value, &[("group", group["path"].as_str().unwrap())]);
            }
        } else if let Some(field) = path.strip_prefix("devices[].") {
            for disk in list(&report["devices"]) {
                let name = disk["path"].as_str().unwrap();
                same(&disk[field], &[("disk", name.trim_start_matches("block:"))]);
            }
        } else if let Some(field) = path.strip_prefix("watch[].") {
            let place = format!("/{}", field.replace('.', "/"));
            for finding in list(&report["watch"]) {
                let withdrawn = Value::Bool(finding["phase"] == "withdrawn");
                let value = match field {
                    "phase" => &withdrawn,
                    _ => finding.pointer(&place).unwrap_or(&Value::Null),
                };
                let decision = finding["decision"].as_str().unwrap();
                same(value, &[("decision", decision)]);
            }
        } else {
            let place = format!("/{}", path.replace('.', "/"));
            same(report.pointer(&place).unwrap_or(&Value::Null), &[]);
        }
    }
    assert!(compared > 80, "{compared} values");
}

#[test]
#[ignore = "boots a virtual machine; make test runs it"]
fn metrics_are_open_metrics_and_the_agent_stays_small() {
    let answer = run().answer("metrics");
    assert_eq!(answer.status, "200 OK");
    let kind = answer.header("content-type");
    assert!(
        kind.starts_with("application/openmetrics-text; version=1.0.0"),
        "{kind}"
    );
    let metrics = Metrics::read(answer.body);
    for field in list(&run().json("fields.json")) {
        if let Some(name) = field["metric"]["name"].as_str() {
            assert_eq!(
                metrics.kinds.get(name).map(String::as_str),
                field["metric"]["kind"].as_str()
            );
        }
    }
    for path in GROUPS {
        assert!(metrics
            .value("justitia_group_memory_low_bytes", &[("group", path)])
            .is_some());
        assert!(metrics
            .value("justitia_group_io_bfq_weight", &[("group", path)])
            .is_some());
    }
    assert_eq!(
        metrics.count("justitia_group_color"),
        9,
        "three states of three groups"
    );
    assert_eq!(metrics.labels("justitia_agent_info")["observer"], "bpf");
    let resident = metrics.value("justitia_agent_resident_memory_bytes", &[]);
    assert!(resident.is_some_and(|bytes| bytes < 20e6), "{resident:?}");
    let cpu = metrics.value("justitia_agent_cpu_seconds_total", &[]);
    assert!(cpu.is_some_and(|seconds| seconds > 0.0), "{cpu:?}");
}

/// The cell of a row whose end is aligned with the end of this head.
fn cell<'a>(table: &str, row: &'a str, head: &str) -> &'a str {
    let heads = table.lines().find(|line| line.starts_with("GROUP"));
    let heads = heads.unwrap_or_else(|| panic!("no head in {table}"));
    let end = heads
        .find(head)
        .unwrap_or_else(|| panic!("no {head} in {heads}"))
        + head.len();
    row[..end.min(row.len())]
        .split_whitespace()
        .last()
        .unwrap_or("")
}

#[test]
#[ignore = "boots a virtual machine; make test runs it"]
fn top_shows_what_status_says_at_any_width() {
    let report = run().json("before.json");
    for (name, width) in [("top-80", 80), ("top-120", 120)] {
        let table = run().said(name);
        assert!(table.is_ascii(), "{table}");
        assert!(table.lines().all(|line| line.len() <= width), "{table}");
        assert!(table.starts_with("mode proportional"), "{table}");
        for path in GROUPS {
            let rows: Vec<&str> = table.lines().filter(|l| l.starts_with(path)).collect();
            let [row] = rows[..] else {
                panic!("one line for {path}: {table}")
            };
            let group = group(&report, path);
            assert_eq!(cell(table, row, "WEIGHT"), group["weight"].to_string());
            let rate = group["bytes_per_s"].as_f64().unwrap() / 1e6;
            assert_eq!(cell(table, row, "MB/S"), format!("{rate:.2}"));
            if width == 120 {
                let mib = group["entitlement_bytes"].as_f64().unwrap() / f64::from(1 << 20);
                let shown = cell(table, row, "ENTITLED").trim_end_matches('M');
                let shown: f64 = shown.parse().unwrap_or_else(|_| panic!("{row}"));
                assert!((shown - mib).abs() <= 0.5, "{mib} MiB: {row}");
            }
        }
    }
    let text = run().said("status");
    for path in GROUPS {
        assert!(text.lines().any(|line| line.starts_with(path)), "{text}");
    }
    assert!(text.contains("counted by bpf"), "{text}");
}

#[test]
#[ignore = "boots a virtual machine; make test runs it"]
fn a_group_is_explained_and_an_unknown_one_is_answered_with_the_known_ones() {
    let text = run().said("explain");
    for words in [
        "/app/heavy (cgroup ",
        "800 from xattr justitia.weight",
        "memory.low",
        "low_latency",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let json = run().json("explain.json");
    assert_eq!(
        (&json["path"], &json["weight"]),
        (&"/app/heavy".into(), &800.into())
    );
    let low = list(&json["knobs"])
        .iter()
        .find(|knob| knob["knob"] == "memory.low");
    assert_eq!(low.expect("memory.low")["prior"], "0", "{json}");
    let (code, lines) = run().refusal("explain-nobody");
    assert_eq!((code, lines.len()), (2, 2), "{lines:?}");
    assert!(lines[1].contains("/app/heavy"), "{lines:?}");
    assert!(run().said("fields").contains("groups[].hit_ratio"));
    run().said("plan");
}

#[test]
#[ignore = "boots a virtual machine; make test runs it"]
fn the_page_is_served_and_strangers_are_refused() {
    let page = run().answer("page");
    assert_eq!(
        (page.status, page.header("content-type")),
        ("200 OK", "text/html; charset=utf-8")
    );
    assert!(page.body.to_lowercase().starts_with("<!doctype html>"));
    let script = run().answer("script");
    assert!(
        script.status == "200 OK" && script.header("content-type").starts_with("text/javascript")
    );
    assert_eq!(run().answer("health").status, "200 OK");
    assert_eq!(run().answer("nowhere").status, "404 Not Found");
    assert_eq!(run().answer("foreign").status, "403 Forbidden");
    let history = run().answer("history").json();
    let points = list(&history["points"]);
    assert!(points.len() >= 4, "{} points", points.len());
    assert!(points
        .windows(2)
        .all(|pair| pair[0]["tick"].as_u64() < pair[1]["tick"].as_u64()));
    let paths: BTreeSet<&str> = list(&history["groups"])
        .iter()
        .filter_map(|group| group["path"].as_str())
        .collect();
    assert_eq!(paths, BTreeSet::from(GROUPS));
    let decisions = list(&history["decisions"]);
    assert!(decisions
        .iter()
        .any(|decision| decision["knob"] == "memory.low"));
}

#[test]
#[ignore = "boots a virtual machine; make test runs it"]
fn a_weight_set_while_the_agent_runs_is_followed() {
    assert!(run().said("weight-middle").contains("300"));
    let report = run().json("status-300");
    let middle = group(&report, "/app/middle");
    assert_eq!(middle["weight"], 300, "{middle}");
    assert_eq!(middle["weight_source"], "xattr");
    let log = run().text("agent.log");
    assert!(log.contains("/app/middle has weight 300 now"), "{log}");
    let before = run().json("before.json");
    assert_eq!(group(&before, "/app/middle")["weight"], 100);
}

#[test]
#[ignore = "boots a virtual machine; make test runs it"]
fn a_record_replays_to_the_same_decisions_there_and_here() {
    assert!(run().said("record").starts_with("recorded "));
    let replay = run().json("replay.json");
    let ticks = replay["ticks"].as_u64().unwrap();
    assert!(ticks >= 4, "{replay}");
    assert_eq!(replay["same"], ticks, "{replay}");
    assert_eq!(
        (&replay["missed"], &replay["differences"]),
        (&0.into(), &0.into())
    );
    assert_eq!(
        (&replay["complete"], &replay["open_loop"]),
        (&true.into(), &false.into())
    );
    assert!(replay["recorded_writes"].as_u64() > Some(0), "{replay}");
    assert_eq!(replay["sessions"][0]["source"], "agent");
    let text = run().said("replay");
    let same = format!("the same plan in {ticks} of {ticks} ticks");
    assert!(text.contains(&same), "{text}");
    assert!(run()
        .said("replay-at")
        .contains("The same plan as recorded."));

    // A replay on this machine's CPU gives the same results as on the guest's, to the last bit.
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("agent.jrec");
    std::fs::write(&file, run().bytes("agent.jrec")).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_justitia"))
        .args(["replay", "--json"])
        .arg(&file)
        .output()
        .expect("justitia starts");
    let mut here: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    here["file"] = replay["file"].clone();
    assert_eq!(here, replay);
}

#[test]
#[ignore = "boots a virtual machine; make test runs it"]
fn with_another_weight_a_replay_decides_otherwise_and_says_so() {
    let replay = run().json("replay-other");
    assert_eq!(replay["open_loop"], true);
    assert_eq!(group(&replay, "/app/light")["weight"], 800);
    assert_eq!(group(&replay, "/app/light")["recorded_weight"], 100);
    assert!(replay["differences"].as_u64() > Some(0), "{replay}");
}

/// The settings that differ between two snapshots.
fn changed(before: &str, after: &str) -> Vec<String> {
    // The kernel shows a disk's line from the first use of io.cost on, and nobody can remove it. Off and automatic
    // is what it is without a line.
    let off = |line: &str| {
        line.ends_with(": ") || line.contains("ctrl=auto") && !line.contains("enable=1")
    };
    let lines = |name| -> BTreeSet<&str> {
        let lines = run().text(name).lines();
        lines
            .filter(|line| !(line.contains("/io.cost.") && off(line)))
            .collect()
    };
    let (before, after) = (lines(before), lines(after));
    assert!(before.len() > 50, "{before:?}");
    let differ = before.symmetric_difference(&after);
    differ.map(|line| (*line).to_owned()).collect()
}

#[test]
#[ignore = "boots a virtual machine; make test runs it"]
fn after_an_agent_ended_every_knob_is_as_before() {
    assert_eq!(run().status("agent"), 0);
    let during = changed("knobs.before", "knobs.during");
    for knob in [
        "/app/heavy/memory.low",
        // The group that has a limit depends on the moment: a group that does not wait has none.
        "/memory.high",
        "/app/heavy/io.bfq.weight",
        "low_latency",
    ] {
        assert!(
            during.iter().any(|line| line.contains(knob)),
            "{knob}: {during:#?}"
        );
    }
    assert_eq!(changed("knobs.before", "knobs.after"), [""; 0]);
    let log = run().text("agent.log");
    // At some time the agent limited the lightest group.
    assert!(log.contains("/app/light memory.high = "), "{log}");
    assert!(log.contains("knobs restored"), "{log}");
}

#[test]
#[ignore = "boots a virtual machine; make test runs it"]
fn a_try_prints_the_share_of_each_group_and_leaves_no_trace() {
    let text = run().text("try");
    assert_eq!(run().status("try"), 0, "{}", run().text("try.err"));
    for words in [
        "20 s observed, nothing written.",
        "OF IDEAL",
        "bfq",
        "Next:",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(text.lines().count() <= 24, "{text}");
    let trial: Value = serde_json::from_str(run().text("try.json")).unwrap();
    assert_eq!(
        (&trial["observer"], &trial["running_mode"]),
        (&"bpf".into(), &Value::Null)
    );
    assert_eq!(trial["problems"], Value::Array(Vec::new()));
    assert!(trial["contended_s"].as_f64() > Some(2.0), "{trial}");
    let of = |path, field: &str| group(&trial, path)[field].as_f64().unwrap();
    for (path, weight) in [("/app/heavy", 800), ("/app/light", 100)] {
        assert_eq!(group(&trial, path)["weight"], weight);
        assert!(
            of(path, "got_bytes") > 0.0 && of(path, "file_bytes") > 0.0,
            "{trial}"
        );
        let hits = of(path, "hit_ratio");
        assert!(hits > 0.0 && hits < 1.0, "{hits}");
    }
    // The stock kernel serves both equally, while their weights are 8 to 1.
    let ratio = |field: &str| of("/app/heavy", field) / of("/app/light", field);
    assert!(ratio("due_bytes") > 2.0 * ratio("got_bytes"), "{trial}");
    assert!(of("/app/heavy", "entitlement_bytes") > of("/app/light", "entitlement_bytes"));

    assert_eq!(
        changed("knobs.before", "knobs.try"),
        [""; 0],
        "it only looks"
    );
    assert_eq!(run().text("tree.before"), run().text("tree.try"));

    let beside: Value = serde_json::from_str(run().text("try-beside.json")).unwrap();
    assert_eq!(beside["running_mode"], "proportional");
    assert_eq!(run().status("try-nobody"), 69);
    assert!(run().text("try-nobody").contains("not run as root"));
    let complaint = run().text("try-nobody.err");
    assert!(
        complaint.contains("the bandwidth of no group is known"),
        "{complaint}"
    );
    let (code, complaint) = (run().status("try-none"), run().text("try-none.err"));
    assert!(
        code == 1 && complaint.contains("no cgroup matches /nowhere/*"),
        "{complaint}"
    );
}

#[test]
#[ignore = "boots a virtual machine; make test runs it"]
fn without_an_agent_record_observes_itself_and_status_and_top_are_refused() {
    assert!(run().text("own").starts_with("recorded "));
    assert_eq!(run().status("own"), 0, "{}", run().text("own.err"));
    let replay = run().json("own-replay.json");
    assert_eq!(replay["sessions"][0]["source"], "own");
    assert_eq!(replay["recorded_config"]["mode"], "observe");
    assert_eq!(
        (&replay["same"], &replay["recorded_writes"]),
        (&replay["ticks"], &0.into())
    );
    assert!(replay["ticks"].as_u64() >= Some(3), "{replay}");
    for path in GROUPS {
        assert!(
            group(&replay, path)["bytes_per_s"].as_f64() > Some(0.0),
            "{path}"
        );
    }
    assert_eq!(
        changed("knobs.before", "knobs.own"),
        [""; 0],
        "it only looks"
    );
    for name in ["status-nobody", "top-nobody"] {
        let (code, lines) = run().refusal(name);
        assert_eq!((code, lines.len()), (1, 2), "{lines:?}");
        assert!(lines[0].contains("no agent listens"), "{lines:?}");
    }
}

#[test]
#[ignore = "boots a virtual machine; make test runs it"]
fn through_proc_values_that_only_bpf_sees_are_unknown_and_never_zero() {
    let report = run().json("proc.json");
    assert_eq!(report["observer"], "proc");
    let metrics = Metrics::read(run().answer("proc-metrics").body);
    for path in GROUPS {
        let group = group(&report, path);
        assert!(group["bytes_per_s"].is_number(), "{group}");
        for field in [
            "hit_ratio",
            "evicted_pages_per_s",
            "throttled_s_per_s",
            "held_for_others_bytes",
        ] {
            assert!(group[field].is_null(), "{field}: {group}");
        }
        assert!(metrics
            .value("justitia_group_weight", &[("group", path)])
            .is_some());
    }
    for name in [
        "justitia_group_hit_ratio",
        "justitia_group_held_by_others_bytes",
    ] {
        assert_eq!(metrics.count(name), 0, "{name}");
    }
    let table = run().said("proc-top");
    let row = table
        .lines()
        .find(|line| line.starts_with("/app/heavy"))
        .expect("heavy");
    assert_eq!(cell(table, row, "HIT"), "-", "{table}");
    assert_eq!(run().status("proc"), 0);
    assert_eq!(changed("knobs.before", "knobs.proc"), [""; 0]);
}
