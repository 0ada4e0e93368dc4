//! The program as systemd and `justitia run` start it, and by hand.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use justitia_policy::config::{Mode, Objective};
use justitia_report::example;
use justitia_report::feed::Frame;
use justitia_report::own::Own;
use justitia_report::status::{Report, Setup};

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_justitia-web"))
}

fn line(count: u64) -> Vec<u8> {
    let setup = Setup {
        mode: Mode::Observe,
        objective: Objective::Fair,
        interval: Duration::from_secs(1),
        since: UNIX_EPOCH,
    };
    let frame = Frame {
        listen: Some("127.0.0.1:0".parse().unwrap()),
        own: Own::default(),
        report: Report::new(&setup, &example::tick(count, 2)),
    };
    let mut line = serde_json::to_vec(&frame).unwrap();
    line.push(b'\n');
    line
}

/// The address in the line that says where the page is.
fn told_address(child: &mut Child) -> String {
    let mut text = String::new();
    BufReader::new(child.stderr.take().unwrap())
        .read_line(&mut text)
        .unwrap();
    let (_, rest) = text.split_once("http://").expect("an address");
    rest.trim_end().trim_end_matches('/').to_owned()
}

fn owner(child: &Child) -> String {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("Uid:"));
    line.unwrap().to_owned()
}

#[test]
fn it_serves_what_its_input_tells_as_nobody_and_ends_with_it() {
    let (mut agent, theirs) = UnixStream::pair().unwrap();
    let mut child = program()
        .arg("--stdin")
        .stdin(OwnedFd::from(theirs))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    agent.write_all(&line(7)).unwrap();
    let address = told_address(&mut child);
    assert!(
        !owner(&child).split_whitespace().any(|id| id == "0"),
        "{}",
        owner(&child)
    );
    let mut stream = TcpStream::connect(&address).unwrap();
    write!(
        stream,
        "GET /api/status HTTP/1.1\r\nHost: {address}\r\n\r\n"
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.contains("\"ticks_total\":7"), "{text}");
    drop(agent);
    assert!(child.wait().unwrap().success());
}

#[test]
fn without_an_agent_it_is_one_line_of_cause_and_one_of_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let output = program()
        .arg("--state-dir")
        .arg(dir.path())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text.lines().count(), 2, "{text}");
    assert!(text.contains("no agent listens at"), "{text}");
    let output = program().args(["--listen", "localhost"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}
