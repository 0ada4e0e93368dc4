//! Reservations over the socket.
//!
//! ```text
//! {"ask":"reserve","group":"/app/db","bytes":4294967296,"for_ms":60000}
//! {"reserved":{"path":"/app/db","bytes":4294967296,"for_ms":60000,"managed":true}}
//! ```
//!
//! `group` is a managed group, by its path, name or container ID, or the path of a group that does not exist
//! yet. Zero bytes cancel a reservation. An amount that cannot be made free is refused: memory that groups
//! hold besides page cache, and mapped page cache, cannot be reserved.

use std::path::Path;
use std::time::Duration;

use justitia_policy::config::Mode;
use justitia_policy::snapshot::{Group, Reservation, Snapshot};
use justitia_policy::units::Bytes;
use serde::{Deserialize, Serialize};

use super::{converse, require, Answer, Board, Request};
use crate::error::{Error, Result};

/// Longest reservation. A program that starts later reserves later.
pub const LONGEST: Duration = Duration::from_secs(3600);
/// Shortest reservation: the agent cannot act faster.
pub const SHORTEST: Duration = Duration::from_secs(1);

/// The reservation that the agent holds now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reserved {
    /// Path of the group.
    pub path: String,
    /// Amount that is kept free; zero: no reservation any more.
    pub bytes: Bytes,
    /// Lifetime of the reservation, milliseconds.
    pub for_ms: u64,
    /// The group exists and is managed.
    pub managed: bool,
}

/// Asks the agent that listens at `path` to make memory free for a group.
pub fn reserve(path: &Path, group: &str, bytes: Bytes, time: Duration) -> Result<Reserved> {
    require(path, "nobody can reserve memory")?;
    let asked = Request::Reserve {
        group: group.to_owned(),
        bytes: bytes.0,
        for_ms: u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
    };
    converse(path, &asked, "no reservation", |answer| match answer {
        Answer::Reserved(reserved) => Some(reserved),
        _ => None,
    })
}

/// The agent's side: puts the request on the board for the next step, or refuses it with a reason.
pub(super) fn hear(board: &Board, name: &str, bytes: Bytes, for_ms: u64) -> Result<Answer> {
    let (setup, tick) = board.last();
    if setup.mode == Mode::Observe {
        return Err(Error::failed(
            "the agent runs in mode observe: it reclaims nothing",
            "start it in another mode",
        ));
    }
    let snapshot = &tick.snapshot;
    let known = board.report().find(name).map(|group| group.path.clone());
    let path = match known {
        Some(path) => path,
        None if name.starts_with('/') && name.contains(|char| char != '/') => {
            name.trim_end_matches('/').to_owned()
        }
        None => {
            return Err(Error::usage(
                format_args!("{name} is not the name of one managed group"),
                "see justitia status for the managed groups; give the whole path of a group that \
                 does not exist yet, such as /app/db",
            ));
        }
    };
    let group = snapshot.groups.iter().find(|group| group.path == path);
    possible(snapshot, group, &path, bytes)?;
    let time = Duration::from_millis(for_ms).clamp(SHORTEST, LONGEST);
    board.ask_to_reserve(Reservation {
        path: path.clone(),
        bytes,
        left_s: time.as_secs_f64(),
    });
    Ok(Answer::Reserved(Reserved {
        path,
        bytes,
        for_ms: u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
        managed: group.is_some(),
    }))
}

/// Checks that `bytes` could be free for this group.
fn possible(snapshot: &Snapshot, group: Option<&Group>, path: &str, bytes: Bytes) -> Result<()> {
    if bytes == Bytes::ZERO {
        return Ok(());
    }
    // Its own page cache makes way for what it allocates.
    if let Some(room) = group.and_then(Group::ceiling) {
        if bytes > room {
            return Err(Error::failed(
                format_args!(
                    "{path} can grow by {room} only, not by {bytes}: its own limits are lower"
                ),
                "reserve less, or raise its memory.max or memory.high",
            ));
        }
    }
    let Some(most) = could_be_free(snapshot, path) else {
        return Err(Error::failed(
            "the agent does not know yet how much memory there is",
            "try again in a second",
        ));
    };
    if bytes > most {
        return Err(Error::failed(
            format_args!("{bytes} cannot be freed: at most {most} are free or page cache that can be reclaimed"),
            format_args!("reserve {most} or less, or stop something that holds memory"),
        ));
    }
    Ok(())
}

/// Free memory, and page cache that is neither mapped nor reserved for others already.
fn could_be_free(snapshot: &Snapshot, path: &str) -> Option<Bytes> {
    let host = &snapshot.host;
    let all = host.free? + host.file? - host.high_watermark?;
    // Only an amount that is certainly too much is refused: unknown mapped pages are not counted.
    let groups = snapshot.groups.iter();
    let leaves = groups.filter(|group| group.weight.is_some());
    let mapped: Bytes = leaves.filter_map(|group| group.memory.file_mapped).sum();
    let others = snapshot.reservations.iter();
    let others = others.filter(|known| known.path != path);
    Some(all - mapped - others.map(|known| known.bytes).sum())
}

#[cfg(test)]
mod tests;
