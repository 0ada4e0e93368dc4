//! The page is where it is said to be, and a port that cannot be had ends nothing.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use justitia_report::example;

use super::*;
use crate::testing::frame;

const ANY: Option<&str> = Some("127.0.0.1:0");

fn answers(address: SocketAddr) -> bool {
    let Ok(mut stream) = TcpStream::connect(address) else {
        return false;
    };
    let _ = write!(stream, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text);
    text.starts_with("HTTP/1.1 200")
}

#[test]
fn a_port_that_is_taken_is_one_warning_with_a_remedy_and_is_had_once_it_is_free() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let listen = address.to_string();
    let log = Log::captured();
    let mut page = Page::bind(
        frame(&example::tick(1, 1), Some(&listen)),
        Place::AsTold,
        log.clone(),
    );
    page.serve();
    page.retry_at = Instant::now();
    page.follow(frame(&example::tick(2, 1), Some(&listen)));
    let lines = log.lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(
        lines[0].contains(&listen) && lines[0].contains("--listen"),
        "{lines:?}"
    );
    drop(taken);
    page.follow(frame(&example::tick(3, 1), Some(&listen)));
    assert_eq!(page.address(), None);
    page.retry_at = Instant::now();
    page.follow(frame(&example::tick(4, 1), Some(&listen)));
    assert!(answers(address));
}

#[test]
fn where_it_is_is_logged_and_off_is_silent() {
    let log = Log::captured();
    let mut page = Page::bind(
        frame(&example::tick(1, 1), None),
        Place::AsTold,
        log.clone(),
    );
    page.serve();
    assert_eq!((page.address(), log.lines().len()), (None, 0));
    page.follow(frame(&example::tick(2, 1), ANY));
    let address = page.address().unwrap();
    assert_eq!(
        log.lines(),
        [format!("live page and metrics at http://{address}/")]
    );
}

#[test]
fn it_moves_when_the_agent_says_so_unless_the_command_line_did() {
    let mut page = Page::bind(
        frame(&example::tick(1, 1), ANY),
        Place::AsTold,
        Log::captured(),
    );
    page.serve();
    let first = page.address().unwrap();
    page.follow(frame(&example::tick(2, 1), Some("[::1]:0")));
    assert!(page.address().unwrap().is_ipv6() && !answers(first));
    page.follow(frame(&example::tick(3, 1), None));
    assert_eq!(page.address(), None);

    let place = Place::At(ANY.map(|address| address.parse().unwrap()));
    let mut page = Page::bind(frame(&example::tick(1, 1), None), place, Log::captured());
    page.serve();
    let first = page.address().unwrap();
    page.follow(frame(&example::tick(2, 1), Some("[::1]:0")));
    assert_eq!(page.address(), Some(first));
}

#[test]
fn nobody_is_answered_before_it_serves() {
    let mut page = Page::bind(
        frame(&example::tick(1, 1), ANY),
        Place::AsTold,
        Log::captured(),
    );
    assert_eq!(page.address(), None);
    page.serve();
    assert!(answers(page.address().unwrap()));
}
