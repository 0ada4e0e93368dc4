//! Tests which requests are accepted, and the headers of every answer.

use super::*;

fn at(address: &str) -> Names {
    Names::new(address.parse().unwrap(), Some("node7".into()))
}

fn ask(names: &Names, text: &str) -> Parsed {
    parse(text.as_bytes(), names)
}

fn host(names: &Names, host: &str) -> bool {
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
    match ask(names, &request) {
        Parsed::Request(_) => true,
        Parsed::Refused(Status::ForeignHost) => false,
        other => panic!("{host}: {other:?}"),
    }
}

#[test]
fn path_and_query_are_told_apart() {
    let parsed = ask(
        &at("127.0.0.1:9619"),
        "GET /api/history?since=7&x HTTP/1.1\r\nhost: localhost:9619\r\nAccept: */*\r\n\r\n",
    );
    let wanted = Request {
        head_only: false,
        path: "/api/history".into(),
        query: "since=7&x".into(),
        format: Format::Text,
    };
    assert_eq!(parsed, Parsed::Request(wanted));
}

#[test]
fn a_request_may_come_in_pieces() {
    let names = at("127.0.0.1:9619");
    let text = "HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for end in 0..text.len() {
        assert_eq!(ask(&names, &text[..end]), Parsed::Partial, "{end}");
    }
    assert!(matches!(
        ask(&names, text),
        Parsed::Request(Request {
            head_only: true,
            ..
        })
    ));
}

#[test]
fn names_that_somebody_else_can_point_here_are_refused() {
    let names = at("127.0.0.1:9619");
    for ours in "localhost LocalHost:9619 127.0.0.1:9619 127.8.8.8 [::1]:80 [::1]".split(' ') {
        assert!(host(&names, ours), "{ours}");
    }
    for foreign in [
        "evil.example",
        "evil.example:9619",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "10.0.0.5",
        "node7",
        "[::1]x",
        "[::1",
        "localhost:",
        "localhost:99999",
        "a:b:c",
        "",
    ] {
        assert!(!host(&names, foreign), "{foreign}");
    }
}

#[test]
fn a_page_on_an_address_answers_to_it_and_to_the_machines_name() {
    let names = at("10.0.0.5:9619");
    for ours in [
        "10.0.0.5:9619",
        "10.0.0.5",
        "node7:9619",
        "NODE7",
        "localhost",
    ] {
        assert!(host(&names, ours), "{ours}");
    }
    for foreign in ["10.0.0.6", "node7.evil.example"] {
        assert!(!host(&names, foreign), "{foreign}");
    }
    let everywhere = at("[::]:9619");
    assert!(host(&everywhere, "10.0.0.6") && host(&everywhere, "[fd00::7]:9619"));
    assert!(!host(&everywhere, "evil.example"));
}

#[test]
fn a_host_is_needed_and_only_one() {
    let names = at("127.0.0.1:9619");
    for text in [
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
        "nonsense\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "\u{0}\u{1}\u{2}",
    ] {
        assert_eq!(
            ask(&names, text),
            Parsed::Refused(Status::BadRequest),
            "{text:?}"
        );
    }
}

#[test]
fn nothing_can_be_changed() {
    let names = at("127.0.0.1:9619");
    for method in [
        "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT",
    ] {
        let text = format!("{method} / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(
            ask(&names, &text),
            Parsed::Refused(Status::NotAllowed),
            "{method}"
        );
    }
    assert!(Answer::status(Status::NotAllowed)
        .head()
        .contains("Allow: GET, HEAD\r\n"));
}

#[test]
fn a_head_without_end_is_refused() {
    let names = at("127.0.0.1:9619");
    let long = format!("GET /{} HTTP/1.1\r\n", "a".repeat(LONGEST_HEAD));
    assert_eq!(ask(&names, &long), Parsed::Refused(Status::TooLarge));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(HEADERS + 1));
    assert_eq!(ask(&names, &many), Parsed::Refused(Status::TooLarge));
}

#[test]
fn every_answer_closes_and_protects() {
    for answer in [
        Answer::status(Status::NotFound),
        Answer::status(Status::ForeignHost),
        Answer::ok("text/html", "x"),
    ] {
        let head = answer.head();
        for line in [
            "Connection: close",
            "Content-Security-Policy: default-src 'none'; script-src 'self';",
            "frame-ancestors 'none'",
            "X-Content-Type-Options: nosniff",
            "Cache-Control: no-store",
            "Content-Length: ",
        ] {
            assert!(head.contains(line), "{line} in {head}");
        }
        assert!(head.ends_with("\r\n\r\n") && !head.trim_end().contains("\r\n\r\n"));
        assert!(!head.contains("Access-Control"), "{head}");
        assert!(!head.contains("unsafe"), "{head}");
    }
}

#[test]
fn an_address_to_click_on_is_one_that_can_be_reached() {
    let reach = |address: &str| reachable(address.parse().unwrap()).to_string();
    assert_eq!(reach("0.0.0.0:80"), "127.0.0.1:80");
    assert_eq!(reach("[::]:80"), "[::1]:80");
    assert_eq!(reach("10.0.0.5:80"), "10.0.0.5:80");
}
