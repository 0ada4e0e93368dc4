//! The whole of Justitia on stock kernels in virtual machines, as a user runs it. Slow, so ignored
//! by default; `make test` runs them: `cargo test --release -p justitia-cli --test vm -- --ignored`.
//!
//! Bandwidth under emulation is noisy and these runs are short; the bounds here tell working from
//! broken. How good it is stands in docs/results.

use std::process::Command;

use serde_json::Value;

/// Runs an experiment with `justitia lab run` and returns its result.json.
fn lab(arguments: &[&str]) -> Value {
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().join("out");
    let status = Command::new(env!("CARGO_BIN_EXE_justitia"))
        .args(["lab", "run"])
        .args(arguments)
        .arg("--out")
        .arg(&out)
        .status()
        .expect("justitia starts");
    assert!(status.success(), "justitia lab run {arguments:?}: {status}");
    let report = std::fs::read_to_string(out.join("report.html")).expect("report.html");
    assert!(report.contains("<svg"), "the report has figures");
    let text = std::fs::read_to_string(out.join("result.json")).expect("result.json");
    serde_json::from_str(&text).expect("JSON")
}

fn number(result: &Value, policy: &str, key: &str) -> f64 {
    result["policies"][policy][key]
        .as_f64()
        .unwrap_or_else(|| panic!("{policy}.{key}: {result}"))
}

fn only_run<'a>(result: &'a Value, policy: &str) -> &'a Value {
    let runs = list(&result["policies"][policy]["runs"]);
    assert_eq!(runs.len(), 1);
    &runs[0]
}

fn list(value: &Value) -> &[Value] {
    value
        .as_array()
        .unwrap_or_else(|| panic!("a list: {value}"))
}

fn assert_restored(result: &Value, policy: &str) {
    let policy = &result["policies"][policy];
    assert_eq!(
        policy["knobs_restored"], true,
        "{}",
        policy["knob_differences"]
    );
}

#[test]
#[ignore = "boots virtual machines; make test runs it"]
fn writers_get_their_weighted_share_and_every_knob_is_restored() {
    let result = lab(&[
        "fileserver",
        "--weights",
        "100,200,400,800",
        "--seconds",
        "40",
        "--policies",
        "conventional,proportional",
        "--mount-options",
        "noauto_da_alloc",
    ]);
    let conventional = number(&result, "conventional", "share_error");
    let proportional = number(&result, "proportional", "share_error");
    assert!(
        conventional > 0.15,
        "the run must be contended: {conventional}"
    );
    assert!(
        proportional < conventional / 2.0,
        "{proportional} against {conventional}"
    );
    assert_restored(&result, "proportional");
}

#[test]
#[ignore = "boots virtual machines; make test runs it"]
fn the_old_and_the_new_kernel_work_and_a_killed_agent_leaves_nothing_behind() {
    for kernel in ["6.1", "7.2"] {
        let result = lab(&[
            "fileserver",
            "--kernel",
            kernel,
            "--weights",
            "100,400",
            "--seconds",
            "24",
            "--policies",
            "proportional",
            "--kill-agent-at",
            "10",
            "--lru",
            "mglru",
        ]);
        assert_restored(&result, "proportional");
        // By the agent that was started next, not only by the one that ended in peace.
        let log = only_run(&result, "proportional")["agent_log"].as_str();
        let log = log.expect("the agent's log");
        let put_back = log
            .lines()
            .find_map(|line| line.split_once("an earlier agent did not end well: "))
            .and_then(|(_, summary)| summary.split_once(" knobs restored"))
            .and_then(|(count, _)| count.parse::<u32>().ok());
        assert!(put_back.is_some_and(|count| count >= 1), "{log}");
        assert!(number(&result, "proportional", "total_mb_per_s") > 5.0);
    }
}

#[test]
#[ignore = "boots virtual machines; make test runs it"]
fn observing_writes_nothing() {
    let result = lab(&[
        "readmix",
        "--weights",
        "100,800",
        "--seconds",
        "15",
        "--policies",
        "observe",
        "--file-size",
        "96M",
    ]);
    assert_restored(&result, "observe");
    // An agent that writes and restores would pass that, too: nothing may change on the way.
    let run = only_run(&result, "observe");
    let status = &run["agent_status"];
    let groups = list(&status["groups"]);
    assert!(!groups.is_empty(), "{status}");
    let knobs = groups.iter().flat_map(|group| list(&group["knobs"]));
    for held in knobs.chain(list(&status["devices"])) {
        assert!(held["prior"].is_null(), "{status}");
    }
    for series in list(&run["series"]) {
        let (low, high) = (list(&series["low_bytes"]), list(&series["high_bytes"]));
        assert!(!low.is_empty() && !high.is_empty(), "{series}");
        assert!(low.iter().all(|low| *low == 0), "memory.low: {low:?}");
        assert!(high.iter().all(Value::is_null), "memory.high: {high:?}");
    }
}
