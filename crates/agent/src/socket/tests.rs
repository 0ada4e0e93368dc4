//! Requests are answered, nonsense gets an error that says what to ask, and no client delays others.

use super::*;
use std::time::Instant;

fn board() -> Arc<Board> {
    Arc::new(Board::new(Setup::default()))
}

#[test]
fn it_answers_with_the_last_tick_and_only_to_its_owner() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agent.sock");
    let board = board();
    let server = Server::listen(&path, board.clone()).unwrap();
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert_eq!(ask(&path).unwrap().ticks_total, 0);
    board.post(Tick {
        count: 7,
        ..Tick::default()
    });
    assert_eq!(ask(&path).unwrap().ticks_total, 7);
    drop(server);
    assert!(!path.exists());
    assert!(ask(&path).unwrap_err().cause.contains("no agent listens"));
}

#[test]
fn nonsense_is_answered_with_what_to_send() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agent.sock");
    let _server = Server::listen(&path, board()).unwrap();
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(b"{\"ask\":\"everything\"}\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(
        text.contains("\"error\"") && text.contains("status"),
        "{text}"
    );
}

#[test]
fn a_client_that_says_nothing_holds_up_others_for_a_while_only() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agent.sock");
    let _server = Server::listen(&path, board()).unwrap();
    let _silent = UnixStream::connect(&path).unwrap();
    let began = Instant::now();
    ask(&path).unwrap();
    assert!(began.elapsed() < 2 * PATIENCE);
}

#[test]
fn a_client_that_asks_or_listens_a_little_at_a_time_holds_up_others_for_a_while_only() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agent.sock");
    let board = board();
    let _server = Server::listen(&path, board.clone()).unwrap();
    let pause = Duration::from_millis(50);
    let mut asks = UnixStream::connect(&path).unwrap();
    let asking = thread::spawn(move || {
        while asks.write_all(b" ").is_ok() {
            thread::sleep(pause);
        }
    });
    ask(&path).unwrap();
    asking.join().unwrap();
    board.post(justitia_report::example::tick(1, 300));
    let mut listens = request(&path, &Request::Status).unwrap();
    let listening = thread::spawn(move || {
        let mut total = 0;
        loop {
            match listens.read(&mut [0; 2048]) {
                Ok(0) | Err(_) => return total,
                Ok(count) => total += count,
            }
            thread::sleep(pause);
        }
    });
    let mut whole = String::new();
    let mut reads = request(&path, &Request::Status).unwrap();
    reads.read_to_string(&mut whole).unwrap();
    assert!(whole.ends_with("}\n"));
    assert!(listening.join().unwrap() < whole.len(), "it was left");
}

#[test]
fn a_socket_left_behind_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agent.sock");
    drop(UnixListener::bind(&path).unwrap());
    let _server = Server::listen(&path, board()).unwrap();
    ask(&path).unwrap();
}

#[test]
fn the_server_ends_whatever_became_of_its_path() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agent.sock");
    let server = Server::listen(&path, board()).unwrap();
    fs::remove_file(&path).unwrap();
    // Somebody else's file stands in its place, so the socket is not made again.
    fs::write(&path, "").unwrap();
    drop(server);
    let server = Server::listen(&path, board()).unwrap();
    fs::remove_dir_all(dir.path()).unwrap();
    drop(server);
}

#[test]
fn a_socket_that_was_removed_with_its_directory_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    fs::create_dir(&state).unwrap();
    let path = state.join("agent.sock");
    let _server = Server::listen(&path, board()).unwrap();
    fs::remove_dir_all(&state).unwrap();
    let began = Instant::now();
    while ask(&path).is_err() {
        assert!(began.elapsed() < Duration::from_secs(30));
        thread::sleep(Duration::from_millis(20));
    }
}
