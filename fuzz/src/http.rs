//! Heads of HTTP requests to the live page.

use std::net::{IpAddr, Ipv4Addr};

use justitia_report::feed::DEFAULT_LISTEN;
use justitia_web::http::{parse, Names, Parsed, Request, Status, LONGEST_HEAD};

/// Any bytes as a request. Nothing panics. A verdict does not change when more bytes follow, so the pieces in
/// which a request arrives do not matter. A head of the maximum length has a verdict. Every accepted request
/// is a read, with a `Host` that nobody else can point here.
pub fn http(bytes: &[u8]) {
    let names = Names::new(DEFAULT_LISTEN, Some("node7".into()));
    let bytes = &bytes[..bytes.len().min(LONGEST_HEAD)];
    let whole = parse(bytes, &names);
    assert!(whole != Parsed::Partial || bytes.len() < LONGEST_HEAD);
    for end in (0..bytes.len()).step_by(1 + bytes.len() / 64) {
        let part = parse(&bytes[..end], &names);
        assert!(
            part == Parsed::Partial || part == whole,
            "{part:?}, {whole:?} at {end}"
        );
    }
    match &whole {
        Parsed::Partial => {}
        Parsed::Refused(status) => assert_ne!(*status, Status::Ok),
        Parsed::Request(request) => asks_us_to_read(bytes, request),
    }
}

/// Parses the head again, in the plainest way.
fn asks_us_to_read(bytes: &[u8], request: &Request) {
    let head = String::from_utf8_lossy(bytes);
    let mut lines = head
        .lines()
        .map(str::trim)
        .skip_while(|line| line.is_empty());
    let first = lines.next().unwrap_or_default();
    let method = if request.head_only { "HEAD " } else { "GET " };
    assert!(first.starts_with(method), "{first}");
    assert!(
        !request.path.contains(['?', ' ', '\r', '\n']),
        "{}",
        request.path
    );
    assert!(request.path.len() + request.query.len() <= first.len());
    let mut hosts = lines
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_once(':'))
        .filter(|(name, _)| name.eq_ignore_ascii_case("host"))
        .map(|(_, value)| value.trim());
    let host = hosts.next().expect("a Host");
    assert_eq!(hosts.next(), None, "a second Host");
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.parse::<u16>().is_ok() && !name.ends_with(':') => name,
        _ => host,
    };
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    let address: Option<IpAddr> = bare.parse().or_else(|_| host.parse()).ok();
    let ours = address.is_some_and(|address| address.is_loopback())
        || name.eq_ignore_ascii_case("localhost");
    assert!(ours && DEFAULT_LISTEN.ip() == Ipv4Addr::LOCALHOST, "{host}");
}
