//! Tests the server over real connections: with slow, misbehaving and many clients.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};

use justitia_report::example;

use super::*;
use crate::connection::SENDING_LARGE;
use crate::http::Answer;
use crate::tests::{address, told};

fn server(groups: usize) -> (Server, Arc<Latest>) {
    let latest = Arc::new(Latest::new(told(&example::tick(1, groups))));
    let listener = Listener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
    let server = Server::start(listener, None, Arc::clone(&latest)).unwrap();
    (server, latest)
}

pub(super) fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(address(server.at())).unwrap();
    let limit = Some(Duration::from_secs(20));
    stream.set_read_timeout(limit).unwrap();
    stream
}

fn exchange(server: &Server, request: &str) -> String {
    let mut stream = connect(server);
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn get(server: &Server, path: &str) -> String {
    exchange(
        server,
        &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    )
}

/// True if the server has kept a connection open on which it owes no data.
fn has_its_place(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let read = (&mut &*stream).read(&mut [0]);
    read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

/// A request like Prometheus's: `OpenMetrics` has an end mark.
const SCRAPE: &str =
    "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: application/openmetrics-text\r\n\r\n";

#[test]
fn a_scrape_arrives_whole() {
    let (server, _) = server(1000);
    let plain = get(&server, "/metrics");
    assert!(plain.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4;"));
    assert!(plain.ends_with('\n') && plain.len() > 1 << 20);
    let open = exchange(&server, SCRAPE);
    assert!(open.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text;"));
    assert!(open.ends_with("# EOF\n") && open.len() > 1 << 20);
    assert!(get(&server, "/api/status").ends_with('}'));
}

#[test]
fn a_head_request_gets_the_head_only() {
    let (server, _) = server(1);
    let text = exchange(&server, "HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(
        text.contains("Content-Length: ") && text.ends_with("\r\n\r\n"),
        "{text}"
    );
}

#[test]
fn a_refusal_reaches_a_client_that_still_sends() {
    let (server, _) = server(1);
    let mut stream = connect(&server);
    let head = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    for _ in 0..10 {
        thread::sleep(Duration::from_millis(20));
        stream.write_all(&[b'x'; 10_000]).unwrap();
    }
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 405 "), "{text}");
    let text = exchange(&server, "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    assert!(text.starts_with("HTTP/1.1 403 "), "{text}");
}

#[test]
fn clients_that_say_nothing_hold_nobody_up() {
    let (server, _) = server(1);
    let silent: Vec<TcpStream> = (0..CONNECTIONS - 1).map(|_| connect(&server)).collect();
    assert!(get(&server, "/healthz").starts_with("HTTP/1.1 200"));
    // The answer came while each silent client still had its place.
    assert!(silent.iter().all(has_its_place));
}

#[test]
fn when_every_place_is_taken_the_silent_ones_lose_theirs() {
    let (server, _) = server(1);
    let _silent: Vec<TcpStream> = (0..2 * CONNECTIONS).map(|_| connect(&server)).collect();
    assert!(get(&server, "/").starts_with("HTTP/1.1 200"));
}

#[test]
fn with_every_place_taken_a_new_client_replaces_the_one_silent_longest() {
    let (server, _) = server(1);
    let silent: Vec<TcpStream> = (0..CONNECTIONS).map(|_| connect(&server)).collect();
    assert!(get(&server, "/healthz").starts_with("HTTP/1.1 200"));
    let open = silent.iter().filter(|stream| has_its_place(stream)).count();
    assert!(open > CONNECTIONS / 2, "{open} of {CONNECTIONS} are left");
}

#[test]
fn answers_take_no_more_of_a_processor_than_their_part() {
    let began = Instant::now();
    let mut cpu = Budget::new(CPU);
    let (mut now, mut used) = (began, 0.0);
    // Each answer takes 0.4 s, one after the other.
    while now < began + Duration::from_secs(100) {
        match cpu.has(0.0, now) {
            Ok(()) => {
                cpu.spend(0.4);
                used += 0.4;
                now += Duration::from_millis(400);
            }
            Err(at) => now = at,
        }
    }
    assert!(used <= 100.0 * CPU.0 + CPU.1 + 0.4, "{used} s");
    assert!(used > 99.0 * CPU.0, "{used} s");
}

#[test]
fn clients_that_do_not_listen_hold_up_only_each_other_and_not_for_long() {
    let (server, _) = server(3000);
    let deaf: Vec<TcpStream> = (0..HEAVY)
        .map(|_| {
            let mut stream = connect(&server);
            stream.write_all(SCRAPE.as_bytes()).unwrap();
            stream
        })
        .collect();
    thread::sleep(Duration::from_millis(500));
    // The page itself needs no memory, so it does not wait for the heavy answers.
    assert!(get(&server, "/").starts_with("HTTP/1.1 200"));
    let mut text = String::new();
    (&deaf[0]).read_to_string(&mut text).unwrap();
    assert!(text.ends_with("# EOF\n"), "it still had its place");
    drop(deaf);
    assert!(exchange(&server, SCRAPE).ends_with("# EOF\n"));
}

#[test]
fn an_answer_that_is_cut_off_does_not_look_whole() {
    let (server, _) = server(3000);
    let mut stream = connect(&server);
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    // The rest is longer than the connection's buffers.
    stream.read_exact(&mut [0; 100]).unwrap();
    drop(server);
    let error = stream.read_to_end(&mut Vec::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn a_long_answer_has_a_longer_deadline_which_the_page_shares() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (socket, _) = listener.accept().unwrap();
    socket.set_nonblocking(true).unwrap();
    let now = Instant::now();
    let mut connection = Connection::new(Wire::new(socket, None).unwrap(), now);
    let answer = Answer::ok("text/plain", vec![0; 64 << 20]);
    connection.answer(answer, false, true, now);
    assert_eq!(connection.deadline, now + SENDING_LARGE);
    let page = include_str!("../page/app.js").replace('_', "");
    let patience = format!("const LONGPATIENCEMS = {};", SENDING_LARGE.as_millis());
    assert!(page.contains(&patience), "{patience}");
}

#[test]
fn clients_that_go_away_are_forgotten() {
    let (server, _) = server(1);
    for _ in 0..3 * CONNECTIONS {
        let mut stream = connect(&server);
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .unwrap();
        let _ = stream.shutdown(Shutdown::Both);
    }
    assert!(get(&server, "/healthz").starts_with("HTTP/1.1 200"));
}

#[test]
fn the_history_has_every_step_without_a_request_for_it() {
    let (server, latest) = server(1);
    for count in 2..=4 {
        thread::sleep(Duration::from_secs(1));
        latest.post(told(&example::tick(count, 1)));
    }
    thread::sleep(Duration::from_millis(400));
    let text = get(&server, "/api/history");
    assert!(
        (1..=4).all(|tick| text.contains(&format!("{{\"tick\":{tick},"))),
        "{text}"
    );
}

#[test]
fn when_it_is_dropped_the_port_is_free() {
    let (server, _) = server(1);
    let address = address(server.at());
    let _open = connect(&server);
    drop(server);
    TcpListener::bind(address).unwrap();
}

#[test]
fn requests_without_pause_are_answered_at_a_limited_rate() {
    let (server, _) = server(1);
    let began = Instant::now();
    let asked = CONTENTS.1 as usize + 30;
    for _ in 0..asked {
        assert!(get(&server, "/api/status").starts_with("HTTP/1.1 200"));
    }
    // The speed of the clock does not matter: the test compares with the server's own rate.
    assert!(began.elapsed().as_secs_f64() > 29.0 / CONTENTS.0);
    assert!(get(&server, "/healthz").starts_with("HTTP/1.1 200"));
}

#[test]
fn a_client_whose_turn_does_not_come_is_asked_to_retry() {
    let (server, _) = server(3000);
    let ask = || {
        let mut stream = connect(&server);
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .unwrap();
        stream
    };
    let deaf: Vec<TcpStream> = (0..HEAVY).map(|_| ask()).collect();
    thread::sleep(Duration::from_millis(500));
    let mut text = String::new();
    ask().read_to_string(&mut text).unwrap();
    assert!(
        text.starts_with("HTTP/1.1 429 ") && text.contains("Retry-After: 1"),
        "{text}"
    );
    drop(deaf);
}

#[test]
fn after_any_use_of_the_processor_answers_come_again_soon() {
    let began = Instant::now();
    let mut cpu = Budget::new(CPU);
    (0..1000).for_each(|_| cpu.spend(1.0));
    let at = cpu.has(0.0, began).unwrap_err();
    assert!(at <= began + Duration::from_secs_f64(2.0 * CPU.1 / CPU.0));
}
