//! The setting `listen`, and a port that cannot be had.

use std::net::TcpListener;
use std::time::{Duration, UNIX_EPOCH};

use justitia_policy::config::{Mode, Objective};

use super::*;
use crate::status::Setup;

fn board() -> Arc<Board> {
    Arc::new(Board::new(Setup {
        mode: Mode::Observe,
        objective: Objective::Fair,
        interval: Duration::from_secs(1),
        since: UNIX_EPOCH,
    }))
}

#[test]
fn an_address_needs_a_number_and_a_port() {
    assert_eq!(parse_listen("off"), Ok(None));
    let address = parse_listen("[::1]:80").unwrap().unwrap();
    assert_eq!(address.to_string(), "[::1]:80");
    for wrong in [
        "",
        "on",
        "localhost:80",
        "127.0.0.1",
        ":80",
        "127.0.0.1:99999",
        "OFF",
    ] {
        let (cause, remedy) = parse_listen(wrong).unwrap_err();
        assert!(
            cause.contains(wrong) && remedy.contains("127.0.0.1:9619"),
            "{cause}; {remedy}"
        );
    }
}

#[test]
fn the_default_is_this_machine_only() {
    assert!(DEFAULT_LISTEN.ip().is_loopback());
    assert_eq!(DEFAULT_LISTEN.port(), 9619);
}

#[test]
fn a_port_that_is_taken_is_one_warning_with_a_remedy() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let log = Log::captured();
    assert!(start(Some(address), board(), &log).is_none());
    let lines = log.lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(
        lines[0].contains(&address.to_string()) && lines[0].contains("--listen"),
        "{lines:?}"
    );
}

#[test]
fn where_it_is_is_logged_and_off_is_silent() {
    let log = Log::captured();
    assert!(start(None, board(), &log).is_none());
    assert!(log.lines().is_empty());
    let server = start("0.0.0.0:0".parse().ok(), board(), &log).unwrap();
    let port = server.address().port();
    assert!(
        log.lines()[0].ends_with(&format!("http://127.0.0.1:{port}/")),
        "{:?}",
        log.lines()
    );
}
