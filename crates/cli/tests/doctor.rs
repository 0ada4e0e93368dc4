//! Tests `justitia doctor` as a user runs it, on any host: cgroup v1, v2 or hybrid, as root or not. The
//! findings depend on the host; the tests check that the output is consistent.

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;

fn doctor(arguments: &[&str]) -> Output {
    // Use neither the configuration nor an agent of this host.
    let dir = tempfile::tempdir().expect("a directory");
    let mut command = Command::new(env!("CARGO_BIN_EXE_justitia"));
    command.arg("doctor").arg("--state-dir").arg(dir.path());
    if !arguments.contains(&"--config") {
        let config = dir.path().join("justitia.toml");
        fs::write(&config, "").expect("a configuration");
        command.arg("--config").arg(config);
    }
    let command = command.args(arguments).env("NO_COLOR", "1");
    command.output().expect("justitia starts")
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("JSON on stdout")
}

fn checks(report: &Value) -> &[Value] {
    report["checks"].as_array().expect("a list of checks")
}

fn exit_code_of(verdict: &Value) -> i32 {
    match verdict.as_str() {
        Some("finding") => 1,
        Some("could_not_tell") => 69,
        Some("fine" | "silenced") => 0,
        other => panic!("verdict {other:?}"),
    }
}

#[test]
fn the_exit_code_is_that_of_the_verdict_and_every_check_says_how_it_ended() {
    let output = doctor(&["--json"]);
    let report = json(&output);
    assert_eq!(output.status.code(), Some(exit_code_of(&report["verdict"])));
    assert_eq!(checks(&report).len(), 23);
    for check in checks(&report) {
        let list = |key: &str| check[key].as_array().expect("a list").len();
        match check["verdict"].as_str() {
            Some("finding") => assert!(list("findings") > 0, "{check}"),
            Some("could_not_tell") => assert!(list("could_not_tell") > 0, "{check}"),
            Some("fine") => assert_eq!(list("findings") + list("could_not_tell"), 0, "{check}"),
            other => panic!("verdict {other:?}: {check}"),
        }
    }
    assert!(report["host"]["memory_bytes"].as_u64() > Some(1 << 20));
    assert!(report["host"]["window_s"].as_f64() >= Some(1.0));
    let stderr = String::from_utf8(output.stderr).expect("text");
    let lines = if output.status.success() { 0 } else { 2 };
    assert_eq!(stderr.lines().count(), lines, "{stderr}");
}

#[test]
fn the_text_has_a_line_for_every_check() {
    let report = json(&doctor(&["--json", "--seconds", "0"]));
    let output = doctor(&["--seconds", "0"]);
    let text = String::from_utf8(output.stdout).expect("text");
    for check in checks(&report) {
        let id = check["id"].as_str().expect("an id");
        assert!(text.contains(id), "{id}:\n{text}");
    }
}

#[test]
fn a_silenced_check_does_not_count_and_shows_the_reason() {
    let before = json(&doctor(&["--json", "--seconds", "0"]));
    let found = checks(&before)
        .iter()
        .find(|check| check["verdict"] == "finding");
    // This test fails on a host without findings: it needs one to silence.
    let found = found.expect("a finding on this host, to be silenced");
    let id = found["id"].as_str().expect("an id");
    let config = tempfile::NamedTempFile::new().expect("a file");
    let text = format!("[doctor]\nsilence = [{{ check = '{id}', reason = 'it is known' }}]\n");
    fs::write(config.path(), text).expect("written");
    let path = config.path().to_str().expect("a path");
    let after = json(&doctor(&["--json", "--seconds", "0", "--config", path]));
    let same = checks(&after).iter().find(|check| check["id"] == id);
    let same = same.expect("the check");
    assert_ne!(same["verdict"], "finding");
    assert_eq!(same["findings"][0]["silenced"], "it is known");
    assert!(after["silenced_total"].as_u64() >= Some(1));
    assert!(after["findings_total"].as_u64() < before["findings_total"].as_u64());
}

#[test]
fn a_group_that_is_not_there_is_an_error_of_two_lines() {
    let output = doctor(&["--seconds", "0", "/no/such/group"]);
    let stderr = String::from_utf8(output.stderr).expect("text");
    assert_eq!(stderr.lines().count(), 2, "{stderr}");
    assert!(matches!(output.status.code(), Some(2 | 69)), "{stderr}");
    assert!(output.stdout.is_empty());
}
