//! The live page beside a whole agent on a fake host.

mod common;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use common::{host, until, BOOT};
use justitia_agent::status::Report;
use justitia_agent::web::{parse_listen, start};
use justitia_agent::{Agent, Log, Settings};
use justitia_discover::RuntimeDirs;
use justitia_policy::config::Mode;

fn get(address: std::net::SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn what_the_agent_saw_is_what_the_page_and_the_metrics_tell() {
    let fake = host(&["db", "web"]);
    let state = tempfile::tempdir().unwrap();
    let mut settings = Settings {
        manage: vec!["/app/*".into()],
        state_dir: state.path().to_owned(),
        ..Settings::default()
    };
    settings.policy.mode = Mode::Observe;
    let log = Log::captured();
    let mut agent = Agent::new(
        fake.clone(),
        settings,
        RuntimeDirs::none(),
        BOOT,
        log.clone(),
    )
    .unwrap();
    let listen = parse_listen("127.0.0.1:0").unwrap();
    let server = start(listen, agent.board(), &log).unwrap();
    assert!(get(server.address(), "/healthz").starts_with("HTTP/1.1 503"));
    for _ in 0..2 {
        fake.advance(Duration::from_secs(1));
        agent.tick();
    }
    let metrics = get(server.address(), "/metrics");
    assert!(
        metrics.contains("\njustitia_agent_ticks_total 2\n"),
        "{metrics}"
    );
    assert!(
        metrics.contains("\njustitia_group_weight{group=\"/app/db\"} 100\n"),
        "{metrics}"
    );
    assert!(metrics.contains("mode=\"observe\""), "{metrics}");
    let status = get(server.address(), "/api/status");
    let (_, json) = status.split_once("\r\n\r\n").unwrap();
    let report: Report = serde_json::from_str(json).unwrap();
    assert_eq!(report.groups.len(), 2);
    until("the steps are seen", || {
        get(server.address(), "/healthz").starts_with("HTTP/1.1 200")
    });
    let history = get(server.address(), "/api/history");
    assert!(history.contains("\"path\":\"/app/db\""), "{history}");
}
