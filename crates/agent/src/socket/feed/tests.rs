//! A client gets every step, nothing that it sends is read, and it delays nobody.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use justitia_report::example;
use justitia_report::status::Setup;

use super::*;

struct Rig {
    board: Arc<Board>,
    feed: Feed,
    dir: tempfile::TempDir,
}

fn at(listen: &str) -> Place {
    Place {
        listen: listen.parse().ok(),
        tls: None,
    }
}

impl Rig {
    fn new() -> Rig {
        let board = Arc::new(Board::new(Setup::default()));
        let dir = tempfile::tempdir().unwrap();
        let mut feed = Feed::new(Arc::clone(&board), at("127.0.0.1:9"));
        feed.listen(&dir.path().join("status.sock")).unwrap();
        Rig { board, feed, dir }
    }

    fn connect(&self) -> BufReader<UnixStream> {
        let stream = UnixStream::connect(self.dir.path().join("status.sock")).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        BufReader::new(stream)
    }
}

fn next(client: &mut BufReader<UnixStream>) -> Frame<Report> {
    let mut line = String::new();
    client.read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap()
}

#[test]
fn a_new_client_gets_the_last_step_and_each_one_after_it() {
    let rig = Rig::new();
    let mut early = rig.connect();
    assert_eq!(next(&mut early).report.ticks_total, 0);
    for count in 1..=3 {
        rig.board.post(example::tick(count, 4));
        let frame = next(&mut early);
        assert_eq!(frame.report, rig.board.report());
        assert!(frame.own.resident_bytes > Some(1 << 20));
    }
    assert_eq!(next(&mut rig.connect()).report.ticks_total, 3);
}

#[test]
fn a_new_address_of_the_page_comes_with_the_next_step() {
    let rig = Rig::new();
    let mut client = rig.connect();
    assert_eq!(next(&mut client).listen, "127.0.0.1:9".parse().ok());
    rig.feed.follow(Place::default());
    rig.board.post(example::tick(1, 1));
    assert_eq!(next(&mut client).listen, None);
}

#[test]
fn each_step_comes_with_the_tls_files_as_they_are_then() {
    let rig = Rig::new();
    let mut client = rig.connect();
    assert_eq!(next(&mut client).tls, None);
    let files = TlsFiles {
        certificate: rig.dir.path().join("page.pem"),
        key: rig.dir.path().join("page.key"),
    };
    rig.feed.follow(Place {
        tls: Some(files.clone()),
        ..at("127.0.0.1:9")
    });
    rig.board.post(example::tick(1, 1));
    let Some(Tls::Unreadable(cause)) = next(&mut client).tls else {
        panic!("nothing is there to read");
    };
    assert!(cause.contains("page.pem"), "{cause}");
    for (count, key) in [(2, "old"), (3, "new")] {
        std::fs::write(&files.certificate, "certificate").unwrap();
        std::fs::write(&files.key, key).unwrap();
        rig.board.post(example::tick(count, 1));
        let (certificate, key) = ("certificate".to_owned(), key.to_owned());
        let told = next(&mut client).tls;
        assert_eq!(told, Some(Tls::Pem { certificate, key }));
    }
}

#[test]
fn a_step_is_serialized_once_however_many_listen() {
    let rig = Rig::new();
    rig.board.post(example::tick(1, 1));
    let posted = rig.board.now();
    let first = rig.feed.shared.line(&posted).unwrap();
    assert!(Arc::ptr_eq(&first, &rig.feed.shared.line(&posted).unwrap()));
    rig.board.post(example::tick(2, 1));
    let second = rig.feed.shared.line(&rig.board.now()).unwrap();
    assert!(!Arc::ptr_eq(&first, &second));
}

#[test]
fn a_client_that_does_not_listen_misses_steps_and_the_others_get_theirs() {
    let rig = Rig::new();
    let mut deaf = rig.connect();
    let mut client = rig.connect();
    next(&mut client);
    // Each is more than a socket holds.
    for count in 1..=20 {
        rig.board.post(example::tick(count, 1000));
        assert_eq!(next(&mut client).report.ticks_total, count);
    }
    let mut heard = Vec::new();
    while heard.last() != Some(&20) {
        heard.push(next(&mut deaf).report.ticks_total);
    }
    assert!(heard.len() < 10, "{heard:?}");
}

#[test]
fn nothing_that_a_client_sends_is_read() {
    let rig = Rig::new();
    let mut client = rig.connect();
    next(&mut client);
    let said = client
        .get_mut()
        .write_all(b"{\"ask\":\"gate\",\"on\":true}\n");
    assert_eq!(said.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    rig.board.post(example::tick(1, 1));
    assert_eq!(next(&mut client).report.ticks_total, 1);
    assert_eq!(rig.board.take_gate_asked(), None);
}

#[test]
fn the_socket_is_its_owners_and_clients_are_few() {
    let rig = Rig::new();
    let path = rig.dir.path().join("status.sock");
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut clients: Vec<_> = (0..MOST_CLIENTS).map(|_| rig.connect()).collect();
    for client in &mut clients {
        next(client);
    }
    let mut line = String::new();
    assert_eq!(rig.connect().read_line(&mut line).unwrap(), 0, "{line}");
}

#[test]
fn when_it_is_dropped_clients_see_the_end_and_the_socket_is_gone() {
    let rig = Rig::new();
    let mut client = rig.connect();
    let (ours, theirs) = UnixStream::pair().unwrap();
    rig.feed.add(ours).unwrap();
    let mut given = BufReader::new(theirs);
    assert_eq!(next(&mut client).report.ticks_total, 0);
    assert_eq!(next(&mut given).report.ticks_total, 0);
    drop(rig.feed);
    let mut line = String::new();
    assert_eq!(client.read_line(&mut line).unwrap(), 0);
    assert_eq!(given.read_line(&mut line).unwrap(), 0);
    assert!(!rig.dir.path().join("status.sock").exists());
}
