//! Tests the program as systemd, `justitia run` and an operator start it, with curl as client.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Output, Stdio};

use justitia_report::example;
use justitia_report::feed::{Frame, Tls};
use justitia_report::own::Own;
use justitia_report::status::{Report, Setup};

struct Web {
    child: Child,
    agent: UnixStream,
    /// The address from its log.
    place: String,
}

impl Web {
    /// Starts the program for an agent at its seventh step.
    fn start(listen: &str, tls: Option<Tls>) -> Web {
        let (mut agent, theirs) = UnixStream::pair().unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_justitia-web"))
            .arg("--stdin")
            .stdin(OwnedFd::from(theirs))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        agent.write_all(&line(listen, tls)).unwrap();
        let mut said = String::new();
        BufReader::new(child.stderr.take().unwrap())
            .read_line(&mut said)
            .unwrap();
        let (_, place) = said.split_once("metrics at ").expect("an address");
        Web {
            child,
            agent,
            place: place.trim_end().to_owned(),
        }
    }

    /// Its sockets, as named in `/proc/PID/fd`.
    fn sockets(&self) -> Vec<String> {
        let fds = fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap();
        let links = fds.filter_map(|fd| fs::read_link(fd.ok()?.path()).ok());
        links.map(|link| link.display().to_string()).collect()
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn line(listen: &str, tls: Option<Tls>) -> Vec<u8> {
    let setup = Setup::default();
    let frame = Frame {
        listen: listen.parse().ok(),
        tls,
        own: Own::default(),
        report: Report::new(&setup, &example::tick(7, 2)),
    };
    let mut line = serde_json::to_vec(&frame).unwrap();
    line.push(b'\n');
    line
}

fn owner(child: &Child) -> String {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("Uid:"));
    line.unwrap().to_owned()
}

#[test]
fn the_program_serves_its_input_without_root_and_ends_with_it() {
    let mut web = Web::start("127.0.0.1:0", None);
    let owner = owner(&web.child);
    assert!(!owner.split_whitespace().any(|id| id == "0"), "{owner}");
    let address = web
        .place
        .trim_start_matches("http://")
        .trim_end_matches('/');
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "GET /api/status HTTP/1.1\r\nHost: {address}\r\n\r\n"
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.contains("\"ticks_total\":7"), "{text}");
    web.agent.shutdown(Shutdown::Both).unwrap();
    assert!(web.child.wait().unwrap().success());
}

#[test]
fn without_an_agent_it_is_one_line_of_cause_and_one_of_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_justitia-web"))
        .arg("--state-dir")
        .arg(dir.path())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text.lines().count(), 2, "{text}");
    assert!(text.contains("no agent listens at"), "{text}");
    let output = Command::new(env!("CARGO_BIN_EXE_justitia-web"))
        .args(["--listen", "localhost"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
}

/// Runs the program by hand for an agent that tells each client `said` and ends the connection.
fn by_hand(said: &[u8], arguments: &[&str]) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let agent = UnixListener::bind(dir.path().join("status.sock")).unwrap();
    let web = Command::new(env!("CARGO_BIN_EXE_justitia-web"))
        .arg("--state-dir")
        .arg(dir.path())
        .args(arguments)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    agent.accept().unwrap().0.write_all(said).unwrap();
    web.wait_with_output().unwrap()
}

#[test]
fn with_nothing_to_serve_it_says_so() {
    for (said, arguments, code, words) in [
        (line("off", None), &[][..], 2, "--listen 127.0.0.1:9619"),
        (
            line("127.0.0.1:0", None),
            &["--listen", "off"],
            2,
            "no address",
        ),
        (line("off", None), &["--wait"], 2, "no address"),
        (Vec::new(), &[], 1, "without a report"),
    ] {
        let output = by_hand(&said, arguments);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{text}");
        assert!(text.lines().count() == 2 && text.contains(words), "{text}");
    }
}

#[test]
fn it_does_not_wait_for_what_does_not_come() {
    let long = format!("/{}", "x".repeat(200));
    let output = Command::new("timeout")
        .args([
            "20",
            env!("CARGO_BIN_EXE_justitia-web"),
            "--wait",
            "--state-dir",
            &long,
        ])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

/// Runs curl with a URL and options.
fn curl(arguments: &[&str]) -> Output {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--max-time", "20"]);
    curl.args(arguments).output().expect("curl is installed")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn curl_gets_the_metrics_by_tls_if_it_trusts_the_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let authority = dir.path().join("ca.pem");
    fs::write(&authority, made.cert.pem()).unwrap();
    let tls = Tls::Pem {
        certificate: made.cert.pem(),
        key: made.signing_key.serialize_pem(),
    };
    let web = Web::start("127.0.0.1:0", Some(tls));
    let url = web.place.strip_suffix('/').unwrap();
    assert!(url.starts_with("https://127.0.0.1:"), "{url}");
    let metrics = format!("{url}/metrics");
    let trusts = ["--cacert", authority.to_str().unwrap()];
    for version in ["--tlsv1.2", "--tlsv1.3"] {
        let most = version.replace("--tlsv", "");
        let limits = [version, "--tls-max", &most];
        let answer = curl(&[&trusts[..], &limits, &[&metrics]].concat());
        assert!(
            text(&answer).contains("\njustitia_agent_ticks_total 7\n"),
            "{answer:?}"
        );
    }
    // curl's exit status for a certificate without a trusted issuer.
    assert_eq!(curl(&[&metrics]).status.code(), Some(60));
    let plain = curl(&[&metrics.replace("https:", "http:")]);
    assert!(text(&plain).contains("use https://"), "{plain:?}");
}

#[test]
fn curl_gets_the_metrics_over_a_unix_socket_and_no_port_is_open() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("page.sock");
    let path = path.to_str().unwrap();
    let web = Web::start(&format!("unix:{path}"), None);
    assert_eq!(web.place, format!("unix:{path}"));
    for host in ["localhost", "behind.a.proxy.example"] {
        let answer = curl(&["--unix-socket", path, &format!("http://{host}/metrics")]);
        assert!(
            text(&answer).contains("\njustitia_agent_ticks_total 7\n"),
            "{answer:?}"
        );
    }
    let sockets = |table: &str| {
        let path = format!("/proc/{}/net/{table}", web.child.id());
        let table = fs::read_to_string(path).unwrap();
        let ours = web.sockets();
        let mut inodes = table
            .lines()
            .filter_map(|line| line.split_whitespace().nth(9));
        inodes.any(|inode| ours.contains(&format!("socket:[{inode}]")))
    };
    assert!(!sockets("tcp") && !sockets("tcp6"));
}
