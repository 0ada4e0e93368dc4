//! Tests the live page of a complete agent on a fake host, through the agent's socket.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use justitia_agent::socket::feed::{Feed as Told, Place as ToldPlace};
use justitia_agent::{Agent, Settings};
use justitia_cgroup::FakeFs;
use justitia_discover::RuntimeDirs;
use justitia_policy::config::Mode;
use justitia_report::feed::Listen;
use justitia_report::status::Report;
use justitia_report::Log;
use justitia_web::{Feed, Page, Place};

fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(20), "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_page_and_the_metrics_show_what_the_agent_saw() {
    let fake = FakeFs::new();
    for name in ["db", "web"] {
        fake.mkdir(&format!("/app/{name}"));
    }
    let state = tempfile::tempdir().unwrap();
    let mut settings = Settings {
        manage: vec!["/app/*".into()],
        state_dir: state.path().to_owned(),
        listen: Some("127.0.0.1:0".parse().unwrap()),
        ..Settings::default()
    };
    settings.mode = Mode::Observe;
    let (place, path) = (ToldPlace::from(&settings), settings.status_socket());
    let fs = Arc::clone(&fake);
    let mut agent = Agent::new(fs, settings, RuntimeDirs::none(), "boot", Log::captured()).unwrap();
    let mut told = Told::new(agent.board(), place);
    told.listen(&path).unwrap();

    let mut feed = Feed::connect(state.path(), false).unwrap();
    let first = feed.read().unwrap().unwrap();
    let mut page = Page::bind(first, Place::AsTold, Log::captured());
    page.serve();
    let Some(&Listen::Tcp(address)) = page.at() else {
        panic!("it serves a port");
    };
    let page = Arc::new(Mutex::new(page));
    let following = Arc::clone(&page);
    let reader = thread::spawn(move || {
        while let Some(frame) = feed.read().unwrap() {
            following.lock().unwrap().follow(frame);
        }
    });

    assert!(get(address, "/healthz").starts_with("HTTP/1.1 503"));
    for _ in 0..2 {
        fake.advance(Duration::from_secs(1));
        agent.tick();
    }
    until("the steps are told", || {
        get(address, "/metrics").contains("\njustitia_agent_ticks_total 2\n")
    });
    let metrics = get(address, "/metrics");
    assert!(
        metrics.contains(
            "\njustitia_group_weight{group=\"/app/db\",kind=\"group\",name=\"db\"} 100\n"
        ),
        "{metrics}"
    );
    assert!(metrics.contains("mode=\"observe\""), "{metrics}");
    assert!(
        metrics.contains("\njustitia_agent_resident_memory_bytes "),
        "{metrics}"
    );
    let status = get(address, "/api/status");
    let (_, json) = status.split_once("\r\n\r\n").unwrap();
    let report: Report = serde_json::from_str(json).unwrap();
    assert_eq!(report, agent.board().report());
    until("the steps are seen", || {
        get(address, "/healthz").starts_with("HTTP/1.1 200")
    });
    let history = get(address, "/api/history");
    assert!(history.contains("\"path\":\"/app/db\""), "{history}");

    drop(told);
    reader.join().unwrap();
    let refused = Feed::connect(state.path(), false).unwrap_err();
    assert!(refused.cause.contains("no agent listens"), "{refused}");
}
