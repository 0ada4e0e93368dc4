//! The binary's probes of commands: what they print, how they end, what they refuse.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{kill_process, Pid, Signal};
use serde_json::Value;

fn justitia(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_justitia-probe"));
    command.args(arguments);
    command
}

fn output(arguments: &[&str]) -> (Output, String, String) {
    let output = justitia(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    (output, stdout, stderr)
}

/// Runs the words of a line, and a script as one more if it is not empty.
fn running(line: &str, script: &str) -> Child {
    let script = Some(script).filter(|script| !script.is_empty());
    let arguments: Vec<&str> = line.split(' ').chain(script).collect();
    justitia(&arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The text on its stderr, after its end.
fn said(child: &mut Child) -> String {
    let mut said = String::new();
    let mut stderr = child.stderr.take().unwrap();
    stderr.read_to_string(&mut said).unwrap();
    said
}

/// Waits for the child's end, which must come soon.
fn ends(child: &mut Child) -> std::process::ExitStatus {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if start.elapsed() > Duration::from_secs(10) {
            let _ = child.kill();
            panic!("does not end");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn once_prints_the_color_and_ends() {
    for (script, color) in [("exit 0", "green"), ("exit 1", "yellow"), ("exit 2", "red")] {
        let (done, stdout, stderr) = output(&["exec", "--once", "--", "sh", "-c", script]);
        assert!(done.status.success(), "{stderr}");
        assert_eq!(stdout, format!("{color} says {color}\n"));
    }
    let (done, stdout, _) = output(&["exec", "--once", "--json", "--red", ">5", "echo", "7"]);
    assert!(done.status.success());
    let line: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(line["color"], "red");
    assert_eq!(line["reason"], "value 7 (over 5)");
}

#[test]
fn a_target_that_cannot_be_measured_once_is_a_failure_with_cause_and_remedy() {
    let (done, stdout, stderr) = output(&["exec", "--once", "--", "sh", "-c", "exit 9"]);
    assert_eq!(done.status.code(), Some(1));
    assert!(stdout.is_empty());
    let lines: Vec<&str> = stderr.lines().collect();
    assert_eq!(lines.len(), 2, "{stderr}");
    assert!(lines[0].contains("exits with 9"), "{stderr}");
}

#[test]
fn a_dry_run_prints_the_declaration_each_period_until_a_signal() {
    let mut child = running("exec --dry-run --interval 100ms --window 1 true", "");
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for count in 1..4 {
        let line = lines.next().unwrap().unwrap();
        assert_eq!(line, format!("green {count} says green"));
    }
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(ends(&mut child).success());
}

#[test]
fn json_has_a_line_for_each_period_with_and_without_a_color() {
    let dir = tempfile::tempdir().unwrap();
    let flag = dir.path().join("flag");
    let script = format!("test -e {0} && exit 9; touch {0}", flag.display());
    let mut child = running("exec --json --interval 100ms -- sh -c", &script);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    let first = next();
    assert_eq!(first["color"], "red");
    assert_eq!(first["measured"]["color"], "green");
    let second = next();
    assert!(second["color"].is_null(), "{second}");
    assert!(second["cause"].as_str().unwrap().contains("exits with 9"));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert!(ends(&mut child).success());
    let said = said(&mut child);
    assert_eq!(said.lines().count(), 2, "told once: {said}");
}

#[test]
fn it_ends_when_nobody_reads_its_lines() {
    let mut child = running("exec --dry-run --interval 100ms true", "");
    drop(child.stdout.take());
    ends(&mut child);
}

#[test]
fn the_signal_that_ends_it_ends_a_command_that_hangs() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pid");
    let script = format!("echo $$ >{}; sleep 60", file.display());
    let mut child = running("exec --dry-run --timeout 60s -- sh -c", &script);
    let pid = loop {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        if let Some(pid) = text.trim().parse().ok().and_then(Pid::from_raw) {
            break pid;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(ends(&mut child).success());
    // The process that adopts it may reap it late, so a zombie counts as gone.
    let status = format!("/proc/{}/status", pid.as_raw_nonzero());
    let gone = (0..1000).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        std::fs::read_to_string(&status).map_or(true, |text| text.contains("State:\tZ"))
    });
    assert!(gone, "the command survived the probe");
}

#[test]
fn a_group_that_is_not_there_is_refused_with_cause_and_remedy() {
    let (done, stdout, stderr) = output(&["exec", "--group", "no-such-group", "true"]);
    assert!(matches!(done.status.code(), Some(1 | 69)), "{stderr}");
    assert!(stdout.is_empty());
    assert_eq!(stderr.lines().count(), 2, "{stderr}");
}

#[test]
fn stats_prints_the_probes_own_cost_at_the_end() {
    let mut child = running("exec --dry-run --stats --interval 100ms true", "");
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.next().is_some());
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    ends(&mut child);
    let said = said(&mut child);
    assert!(said.contains("CPU seconds per hour"), "{said}");
}
