//! Tests `justitia top` without a terminal, against a served report: one frame, JSON lines, refusals.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use justitia_agent::socket::{Board, Server};
use justitia_report::status::{Setup, Tick};

fn serve(dir: &Path) -> (Arc<Board>, Server) {
    let board = Arc::new(Board::new(Setup::default()));
    let server = Server::listen(&dir.join("agent.sock"), board.clone()).unwrap();
    (board, server)
}

fn top(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_justitia"));
    command.arg("top").arg("--state-dir").arg(dir);
    command.args(arguments).stdin(Stdio::null());
    command
}

fn output(dir: &Path, arguments: &[&str]) -> (Output, String, String) {
    let output = top(dir, arguments).output().expect("run justitia");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    (output, stdout, stderr)
}

#[test]
fn one_frame_is_plain_text() {
    let dir = tempfile::tempdir().unwrap();
    let _served = serve(dir.path());
    let (output, stdout, stderr) = output(dir.path(), &["--once"]);
    assert!(output.status.success(), "{stderr}");
    assert!(stdout.starts_with("mode proportional"), "{stdout}");
    assert!(stdout.contains("no cgroup to manage yet"), "{stdout}");
    assert!(!stdout.contains('\x1b'), "{stdout}");
}

#[test]
fn a_frame_is_as_wide_as_columns_says() {
    let dir = tempfile::tempdir().unwrap();
    let _served = serve(dir.path());
    let head = |columns: &str| {
        let mut command = top(dir.path(), &["--once"]);
        let output = command.env("COLUMNS", columns).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let head = text.lines().find(|line| line.starts_with("GROUP"));
        head.expect("a table").to_owned()
    };
    assert!(head("60").len() <= 60 && head("100").len() > 60);
    assert_eq!(head("no number"), head("120"), "the default");
}

#[test]
fn one_json_line_is_what_status_says() {
    let dir = tempfile::tempdir().unwrap();
    let (board, _server) = serve(dir.path());
    let (output, stdout, _) = output(dir.path(), &["--once", "--json"]);
    assert!(output.status.success());
    assert_eq!(stdout.lines().count(), 1);
    let report: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(report, serde_json::to_value(board.report()).unwrap());
}

#[test]
fn json_goes_on_while_the_agent_is_away_and_ends_when_nobody_reads() {
    let dir = tempfile::tempdir().unwrap();
    let (board, server) = serve(dir.path());
    let mut child = top(dir.path(), &["--json", "--interval", "100ms"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut tick = || {
        let line = lines.next().expect("a line").unwrap();
        let report: serde_json::Value = serde_json::from_str(&line).unwrap();
        report["ticks_total"].as_u64().unwrap()
    };
    assert_eq!((tick(), tick()), (0, 0));
    drop(server);
    board.post(Tick {
        count: 9,
        ..Tick::default()
    });
    std::thread::sleep(Duration::from_millis(300));
    let _server = Server::listen(&dir.path().join("agent.sock"), board).unwrap();
    let again = (0..100).any(|_| tick() == 9);
    assert!(again);
    drop(lines);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_frame_that_cannot_be_shown_is_an_error_of_two_lines() {
    let dir = tempfile::tempdir().unwrap();
    let cases: [(&[&str], i32, &str, &str); 3] = [
        (&[], 2, "not a terminal", "use --once or --json"),
        (&["--interval", "1ms", "--once"], 2, "interval 1ms", "1s"),
        (&["--once"], 1, "no agent listens", "start it"),
    ];
    for (arguments, code, cause, remedy) in cases {
        let (output, stdout, stderr) = output(dir.path(), arguments);
        let lines: Vec<&str> = stderr.lines().collect();
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        assert_eq!(lines.len(), 2, "{stderr}");
        assert!(
            lines[0].contains(cause) && lines[1].contains(remedy),
            "{stderr}"
        );
        assert!(stdout.is_empty());
    }
}
