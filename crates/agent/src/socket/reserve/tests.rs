//! An amount that can be made free is reserved; any other is refused with a reason.

use super::*;
use crate::socket::Server;
use crate::status::{Setup, Tick};
use justitia_policy::units::Limit;
use justitia_report::example;
use std::sync::Arc;

fn board(mode: Mode, tick: Tick) -> Arc<Board> {
    let board = Board::new(Setup {
        mode,
        ..Setup::default()
    });
    board.post(tick);
    Arc::new(board)
}

fn refusal(board: &Board, name: &str, bytes: Bytes) -> String {
    let error = hear(board, name, bytes, 1000).unwrap_err();
    assert!(!error.remedy.is_empty() && board.take_asked().is_empty());
    let unknown = error.cause.contains("is not the name");
    assert_eq!(error.exit == crate::Exit::Usage, unknown, "{error}");
    error.cause
}

#[test]
fn a_possible_reservation_waits_for_the_next_step() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agent.sock");
    let board = board(Mode::Proportional, example::tick(1, 3));
    let _server = Server::listen(&path, board.clone()).unwrap();
    let minute = Duration::from_secs(60);
    let reserved = reserve(&path, "db", Bytes::mib(100), minute).unwrap();
    assert_eq!((&*reserved.path, reserved.managed), ("/app/db", true));
    let later = reserve(&path, "/app/later/", Bytes::mib(10), minute).unwrap();
    assert_eq!((&*later.path, later.managed), ("/app/later", false));
    let asked = board.take_asked();
    assert_eq!(asked.len(), 2);
    assert_eq!((asked[0].bytes, asked[0].left_s), (Bytes::mib(100), 60.0));
    reserve(&path, "db", Bytes::ZERO, minute).unwrap();
    assert_eq!(board.take_asked()[0].bytes, Bytes::ZERO);
}

#[test]
fn an_impossible_reservation_is_refused() {
    let board = board(Mode::Proportional, example::tick(1, 3));
    let cause = refusal(&board, "db", Bytes::mib(1 << 20));
    assert!(cause.contains("cannot be freed"), "{cause}");
    assert!(refusal(&board, "dbb", Bytes::mib(1)).contains("dbb"));
    let mut tick = example::tick(1, 3);
    let db = tick
        .snapshot
        .groups
        .iter_mut()
        .find(|g| g.path == "/app/db");
    let db = db.unwrap();
    db.knobs.max = Some(Limit::Bytes(db.non_file().unwrap() + Bytes::mib(50)));
    board.post(tick);
    assert!(refusal(&board, "db", Bytes::mib(51)).contains("its own limits"));
    board.post(Tick::default());
    let cause = refusal(&board, "/app/db", Bytes::mib(1));
    assert!(cause.contains("does not know yet"), "{cause}");
}

#[test]
fn nothing_is_reserved_for_the_root() {
    let board = board(Mode::Proportional, example::tick(1, 3));
    for name in ["", "/", "//", "///"] {
        let cause = refusal(&board, name, Bytes::ZERO);
        assert!(
            cause.contains("not the name of one managed group"),
            "{cause}"
        );
    }
}

#[test]
fn an_agent_that_only_observes_reserves_nothing() {
    let board = board(Mode::Observe, example::tick(1, 3));
    assert!(refusal(&board, "db", Bytes::mib(1)).contains("mode observe"));
}

#[test]
fn without_an_agent_reserving_fails_and_says_how_to_start_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("nobody.sock");
    let error = reserve(&path, "db", Bytes::mib(1), LONGEST).unwrap_err();
    assert_eq!(error.exit.code(), 1);
    assert!(error.remedy.contains("justitia run"), "{error}");
}

#[test]
fn request_and_answer_are_one_documented_line_each() {
    let line = r#"{"ask":"reserve","group":"/app/db","bytes":4294967296,"for_ms":60000}"#;
    let request: Request = serde_json::from_str(line).unwrap();
    assert_eq!(serde_json::to_string(&request).unwrap(), line);
    let line =
        r#"{"reserved":{"path":"/app/db","bytes":4294967296,"for_ms":60000,"managed":true}}"#;
    let answer: Answer = serde_json::from_str(line).unwrap();
    assert_eq!(serde_json::to_string(&answer).unwrap(), line);
    let wrong = r#"{"ask":"reserve","group":"/app/db","bytes":-1,"for_ms":1}"#;
    assert!(serde_json::from_str::<Request>(wrong).is_err());
}
