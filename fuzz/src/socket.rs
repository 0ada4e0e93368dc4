//! The agent's socket: requests and answers.

use std::time::Duration;

use justitia_agent::socket::ticks::Line;
use justitia_agent::socket::{color, reply, reserve, Answer, Board, Request};
use justitia_policy::snapshot::{Group, GroupId, Snapshot};
use justitia_policy::units::{Bytes, Weight};
use justitia_report::status::{Setup, Tick};
use serde::de::DeserializeOwned;
use serde::Serialize;

use crate::record::Again;

/// Any bytes on the socket, in either direction. Nothing panics. The first byte chooses.
///
/// As a request: it gets one line, which the client understands. Its effect on the next step concerns
/// groups that are managed or whose full path it gave, has a bounded lifetime, and is harmless to print.
///
/// As an answer or a line of ticks: what was parsed survives a round trip, and a tick can be recorded and
/// replayed.
pub fn socket(bytes: &[u8]) {
    let Some((&how, bytes)) = bytes.split_first() else {
        return;
    };
    match how % 3 {
        0 => asked(&String::from_utf8_lossy(bytes)),
        1 => {
            same_again::<Answer>(bytes);
        }
        _ => {
            if let Some(Line::Tick(tick)) = same_again::<Line<justitia_record::Tick>>(bytes) {
                Again::new().tick(tick);
            }
        }
    }
}

const GROUPS: [(u64, &str); 3] = [(11, "/app/db"), (12, "/app/web"), (13, "/other/web")];

fn asked(line: &str) {
    let board = board();
    let request = serde_json::from_str::<Request>(line);
    if let Ok(request) = &request {
        let again = serde_json::to_string(request).expect("a request can be written");
        assert_eq!(
            serde_json::from_str::<Request>(&again).as_ref().ok(),
            Some(request)
        );
    }
    let Some(answer) = reply(line.as_bytes(), &board) else {
        assert_eq!(request.ok(), Some(Request::Ticks));
        return;
    };
    let text = serde_json::to_string(&answer).expect("an answer can be written");
    assert!(!text.contains('\n'));
    same_again::<Answer>(text.as_bytes()).expect("the client understands the answer");
    for (id, spoken) in board.take_calls() {
        assert!(GROUPS.iter().any(|(known, _)| *known == id.0));
        let Some(spoken) = spoken else { continue };
        assert!(spoken
            .time_to_live
            .is_none_or(|time| time <= color::LONGEST_TIME_TO_LIVE));
        crate::color(format!("green {}", spoken.reason).as_bytes());
    }
    for asked in board.take_asked() {
        let time = Duration::from_secs_f64(asked.left_s);
        assert!((reserve::SHORTEST..=reserve::LONGEST).contains(&time));
        let name = asked.path.strip_prefix('/').expect("a whole path");
        assert!(!name.is_empty() && !name.ends_with('/') && name.len() < line.len());
    }
}

/// Three groups, two of them with the same name.
fn board() -> Board {
    let group = |(id, path): (u64, &str)| Group {
        weight: Some(Weight::DEFAULT),
        ..Group::new(GroupId(id), path)
    };
    let mut snapshot = Snapshot {
        groups: GROUPS.into_iter().map(group).collect(),
        ..Snapshot::default()
    };
    snapshot.host.total = Some(Bytes::mib(1024));
    snapshot.host.free = Some(Bytes::mib(512));
    snapshot.host.file = Some(Bytes::mib(256));
    let board = Board::new(Setup::default());
    board.post(Tick {
        snapshot,
        count: 7,
        ..Tick::default()
    });
    board
}

/// Parses the bytes; the result must survive a round trip.
fn same_again<T: Serialize + DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    let said: T = serde_json::from_slice(bytes).ok()?;
    let once = serde_json::to_string(&said).expect("what was read can be written");
    let again: T = serde_json::from_str(&once).expect("what was written can be read");
    let twice = serde_json::to_string(&again).expect("what was read can be written");
    assert_eq!(once, twice);
    Some(again)
}
