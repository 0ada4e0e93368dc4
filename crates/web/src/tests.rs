//! Tests that the page follows its address, and that a failed bind stops nothing; frames of a made-up agent,
//! for all tests.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::UNIX_EPOCH;

use justitia_report::example;
use justitia_report::own::Own;
use justitia_report::status::{Setup, Tick};

use super::*;

const ANY: Option<&str> = Some("127.0.0.1:0");

/// The report of a tick, from an agent that started five seconds after the epoch.
pub(crate) fn report(tick: &Tick, interval: Duration) -> Report {
    let setup = Setup {
        interval,
        since: UNIX_EPOCH + Duration::from_secs(5),
        ..Setup::default()
    };
    Report::new(&setup, tick)
}

/// The agent's frame of a tick, with an interval of one second.
pub(crate) fn told(tick: &Tick) -> Frame<Report> {
    frame(tick, None)
}

/// The agent's frame of a tick.
pub(crate) fn frame(tick: &Tick, listen: Option<&str>) -> Frame<Report> {
    Frame {
        listen: listen.map(|address| address.parse().unwrap()),
        tls: None,
        own: Own::default(),
        report: report(tick, Duration::from_secs(1)),
    }
}

pub(crate) fn address(listen: &Listen) -> SocketAddr {
    match listen {
        Listen::Tcp(address) => *address,
        Listen::Unix(path) => panic!("listens at {}", path.display()),
    }
}

/// A self-signed certificate for 127.0.0.1 and its key, in PEM.
pub(crate) fn certificate() -> Tls {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    Tls::Pem {
        certificate: made.cert.pem(),
        key: made.signing_key.serialize_pem(),
    }
}

/// A page at the address that the agent names.
fn page(listen: Option<&str>, log: &Log) -> Page {
    let first = frame(&example::tick(1, 1), listen);
    Page::bind(first, Place::AsTold, log.clone())
}

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
fn a_port_that_is_taken_is_one_warning_with_a_remedy_and_is_bound_once_it_is_free() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap();
    let listen = at.to_string();
    let log = Log::captured();
    let mut page = page(Some(&listen), &log);
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
    assert_eq!(page.at().map(address), None);
    page.retry_at = Instant::now();
    page.follow(frame(&example::tick(4, 1), Some(&listen)));
    assert!(answers(at));
}

#[test]
fn the_pages_address_is_logged_and_a_page_that_is_off_logs_nothing() {
    let log = Log::captured();
    let mut page = page(None, &log);
    page.serve();
    assert_eq!((page.at().map(address), log.lines().len()), (None, 0));
    page.follow(frame(&example::tick(2, 1), ANY));
    let at = address(page.at().unwrap());
    assert_eq!(
        log.lines(),
        [format!("live page and metrics at http://{at}/")]
    );
}

#[test]
fn the_page_follows_the_agents_address_unless_the_command_line_gives_one() {
    let mut page = page(ANY, &Log::captured());
    page.serve();
    let first = address(page.at().unwrap());
    page.follow(frame(&example::tick(2, 1), Some("[::1]:0")));
    assert!(address(page.at().unwrap()).is_ipv6() && !answers(first));
    page.follow(frame(&example::tick(3, 1), None));
    assert_eq!(page.at().map(address), None);

    let place = Place::At(ANY.map(|address| address.parse().unwrap()));
    let mut page = Page::bind(frame(&example::tick(1, 1), None), place, Log::captured());
    page.serve();
    let first = address(page.at().unwrap());
    page.follow(frame(&example::tick(2, 1), Some("[::1]:0")));
    assert_eq!(page.at().map(address), Some(first));
}

#[test]
fn nobody_is_answered_before_it_serves() {
    let mut page = page(ANY, &Log::captured());
    assert_eq!(page.at().map(address), None);
    page.serve();
    assert!(answers(address(page.at().unwrap())));
}

#[test]
fn a_page_with_tls_never_serves_without_it_and_keeps_the_last_valid_certificate() {
    let log = Log::captured();
    let mut count = 1;
    let mut told = |tls: Option<Tls>| {
        count += 1;
        Frame {
            tls,
            ..frame(&example::tick(count, 1), ANY)
        }
    };
    let unreadable = || Some(Tls::Unreadable("cannot read /key".into()));
    let mut page = Page::bind(told(unreadable()), Place::AsTold, log.clone());
    page.serve();
    page.retry_at = Instant::now();
    page.follow(told(unreadable()));
    assert_eq!(page.at(), None);
    let lines = log.lines();
    assert!(lines.len() == 1 && lines[0].contains("/key"), "{lines:?}");

    page.follow(told(Some(certificate())));
    let at = address(page.at().unwrap());
    assert!(!answers(at));
    assert!(log.lines()[1].contains("https://"), "{:?}", log.lines());
    // A renewal does not restart the server, whether it succeeds or fails.
    let mismatched = match (certificate(), certificate()) {
        (Tls::Pem { certificate, .. }, Tls::Pem { key, .. }) => Tls::Pem { certificate, key },
        other => panic!("{other:?}"),
    };
    for tls in [Some(certificate()), Some(mismatched), unreadable()] {
        page.follow(told(tls));
        assert_eq!(page.at().map(address), Some(at));
    }
    let lines = log.lines();
    assert!(lines[2].contains("stays") && lines.len() == 4, "{lines:?}");

    page.follow(told(None));
    assert!(answers(address(page.at().unwrap())));
}
