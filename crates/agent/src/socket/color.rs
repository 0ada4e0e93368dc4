//! Colors over the socket: for probes outside a container, for other agents, for people.
//!
//! ```text
//! {"ask":"color","group":"/app/db","color":"green","reason":"p99 3 ms","for_ms":5000}
//! {"heard":{"path":"/app/db","id":4711}}
//! {"ask":"clear_color","group":"db"}
//! ```
//!
//! `group` is a path below the cgroup2 mount, or a managed group's name or container ID if no other group has it.
//! Without `for_ms` a color counts for the configured time to live, so declarations must be repeated. The
//! agent takes a color in at its next step.
//!
//! The socket belongs to root. A container into which it is mounted can declare the color of every group.

use std::path::Path;
use std::time::Duration;

use justitia_cgroup::parse::color::reason;
use justitia_policy::snapshot::GroupId;
use justitia_policy::Color;
use serde::{Deserialize, Serialize};

use super::{converse, Answer, Board, Request};
use crate::colors::Spoken;
use crate::error::Result;

/// The longest time to live of a declaration.
pub const LONGEST_TIME_TO_LIVE: Duration = Duration::from_secs(7 * 24 * 3600);

/// The group that a color was declared for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heard {
    /// Its path relative to the cgroup2 mount.
    pub path: String,
    /// Its cgroup id.
    pub id: u64,
}

/// Declares a group's color to the agent that listens at `path`. `reason` is for people; without
/// `time_to_live` the agent's own applies.
pub fn declare_color(
    path: &Path,
    group: &str,
    color: Color,
    reason: &str,
    time_to_live: Option<Duration>,
) -> Result<Heard> {
    let for_ms = time_to_live.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    tell(
        path,
        &Request::Color {
            group: group.to_owned(),
            color,
            // A reason longer than the agent keeps would only fill the request.
            reason: self::reason(reason),
            for_ms,
        },
    )
}

/// Withdraws the color that was declared for a group over the socket.
pub fn clear_color(path: &Path, group: &str) -> Result<Heard> {
    let group = group.to_owned();
    tell(path, &Request::ClearColor { group })
}

fn tell(path: &Path, what: &Request) -> Result<Heard> {
    converse(path, what, "a report", |answer| match answer {
        Answer::Heard(heard) => Some(heard),
        _ => None,
    })
}

/// The agent's side: puts the declaration on the board for the next step.
pub(super) fn hear(board: &Board, name: &str, spoken: Option<Spoken>) -> Result<Answer> {
    let report = board.report();
    let group = report.named(name)?;
    board.call(GroupId(group.id), spoken);
    Ok(Answer::Heard(Heard {
        path: group.path.clone(),
        id: group.id,
    }))
}

/// The declaration, within bounds.
pub(super) fn spoken(color: Color, text: &str, for_ms: Option<u64>) -> Spoken {
    Spoken {
        color,
        reason: reason(text),
        time_to_live: for_ms.map(|ms| Duration::from_millis(ms).min(LONGEST_TIME_TO_LIVE)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::Server;
    use crate::status::{Setup, Tick};

    use justitia_report::example;
    use std::sync::Arc;

    fn board(tick: Tick) -> Arc<Board> {
        let board = Board::new(Setup::default());
        board.post(tick);
        Arc::new(board)
    }

    #[test]
    fn a_declared_color_waits_for_the_next_step_and_the_last_one_counts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.sock");
        let board = board(example::tick(1, 3));
        let _server = Server::listen(&path, board.clone()).unwrap();
        let heard = declare_color(&path, "db", Color::Green, "p99\u{1b} 3 ms", None).unwrap();
        assert_eq!(heard.path, "/app/db");
        let hour = Some(Duration::from_secs(3600));
        declare_color(&path, "/app/db", Color::Red, "late", hour).unwrap();
        clear_color(&path, "/app/web").unwrap();
        let calls = board.take_calls();
        assert_eq!(calls.len(), 2);
        let spoken = calls[&GroupId(heard.id)].clone().unwrap();
        assert_eq!((spoken.color, spoken.time_to_live), (Color::Red, hour));
        assert!(calls.values().any(Option::is_none));
        assert!(board.take_calls().is_empty());
    }

    #[test]
    fn a_group_nobody_manages_has_no_color() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.sock");
        let board = board(example::tick(1, 3));
        let _server = Server::listen(&path, board.clone()).unwrap();
        let error = declare_color(&path, "/app/dbb", Color::Green, "", None).unwrap_err();
        assert!(error.cause.contains("/app/dbb"), "{error}");
        assert!(error.remedy.contains("/app/db"), "{error:?}");
        assert_eq!(error.exit, crate::Exit::Usage);
        assert!(board.take_calls().is_empty());
        let nobody = dir.path().join("nobody.sock");
        let error = declare_color(&nobody, "/app/db", Color::Green, "", None).unwrap_err();
        assert!(error.cause.contains("no agent listens"), "{error}");
    }

    #[test]
    fn request_and_answer_are_one_documented_line_each() {
        let line = r#"{"ask":"color","group":"/app/db","color":"green","reason":"p99 3 ms","for_ms":5000}"#;
        let request: Request = serde_json::from_str(line).unwrap();
        assert!(matches!(
            request,
            Request::Color {
                for_ms: Some(5000),
                ..
            }
        ));
        assert_eq!(serde_json::to_string(&request).unwrap(), line);
        let heard = r#"{"heard":{"path":"/app/db","id":4711}}"#;
        let answer: Answer = serde_json::from_str(heard).unwrap();
        assert_eq!(serde_json::to_string(&answer).unwrap(), heard);
        let short = r#"{"ask":"color","group":"db","color":"red"}"#;
        assert!(serde_json::from_str::<Request>(short).is_ok());
        for wrong in [
            r#"{"ask":"color","group":"db"}"#,
            r#"{"ask":"color","group":"db","color":"blue"}"#,
            r#"{"ask":"color","group":"db","color":"red","for":5}"#,
        ] {
            assert!(serde_json::from_str::<Request>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_time_to_live_is_bounded() {
        let spoken = spoken(Color::Red, &"x".repeat(9000), Some(u64::MAX));
        assert_eq!(spoken.time_to_live, Some(LONGEST_TIME_TO_LIVE));
        assert_eq!(spoken.reason.len(), 255);
    }
}
