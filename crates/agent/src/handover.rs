//! The state that an agent leaves to the next one: gains and caps, owners of knobs, reservations and the gate's
//! setting. The knobs stay in force meanwhile, and stay in the journal.
//!
//! One file in the state directory, two lines with a checksum in front as in the journal:
//!
//! ```text
//! CHECKSUM justitia-handover FORMAT STATE-VERSION BOOT-ID
//! CHECKSUM {"mode": ..., "at": ..., "state": ..., ...}
//! ```
//!
//! It is written when the agent hands over. For the case that the agent is killed, it is written every [`SAVE_EVERY`],
//! and from then on whenever a knob leaves its prior value: an older state does not say why the knob is held.
//!
//! Invariants:
//! - The file is replaced whole, or not at all.
//! - An agent that takes the state over removes the file first. A state that kills its agent is used only
//!   once: the next start finds no file, and restores.
//! - A file that is damaged, or of another boot, format or mode, or older than [`USABLE`], is not used. The
//!   agent then logs one line and restores the knobs.
//! - Identity is the cgroup id: the state of a group that is gone applies to no other group.
//!
//! Left out: colors declared over the socket, which live for seconds and are declared again, and traffic
//! counters: the next agent's first step has no rates.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use justitia_policy::config::Mode;
use justitia_policy::snapshot::Reservation;
use justitia_policy::{State, STATE_VERSION};
use serde::{Deserialize, Serialize};

use crate::error::{plain, Error, Result};
use crate::journal::{file_exists, remove, replace};
use crate::owner::Owners;
use crate::record::{checked, push_line};

const FILE: &str = "handover";
const FORMAT: u32 = 1;

/// Interval at which an agent saves its state, in case it is killed.
pub const SAVE_EVERY: Duration = Duration::from_secs(10);
/// A state older than this is not used. Suspends count.
pub const USABLE: Duration = Duration::from_secs(120);

/// The state for the next agent. `S` is the policy's state, borrowed for writing.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Handover<S = State> {
    /// Knobs of one mode are not taken over in another.
    pub(crate) mode: Mode,
    /// Time of the last observation of the host, since this boot.
    pub(crate) at: Duration,
    pub(crate) state: S,
    pub(crate) owners: Owners,
    pub(crate) reservations: Vec<Reservation>,
    pub(crate) gate_asked: Option<bool>,
}

/// The state in a directory, or why it cannot be used.
type Left = std::result::Result<Option<Handover>, String>;

impl Handover<&State> {
    pub(crate) fn save(&self, dir: &Path, boot: &str) -> Result<()> {
        let path = file(dir);
        let mut text = String::new();
        push_line(&mut text, &header(boot));
        let json = serde_json::to_string(self);
        let json = json.map_err(|error| Error::io("write", &path, &error.into()))?;
        push_line(&mut text, &json);
        // No sync: after a power failure there is nothing to take over.
        replace(&path, &text, false).map(drop)
    }
}

impl Handover {
    /// Reads the state in `dir` for an agent that starts at `now`, since this boot. `None`: there is none. An
    /// error says why the state cannot be used.
    pub(crate) fn read(dir: &Path, boot: &str, now: Duration, mode: Mode) -> Left {
        let path = file(dir);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("{}: {}", path.display(), plain(&error))),
        };
        let damaged = || format!("{} is damaged", path.display());
        let mut lines = text.split_inclusive('\n');
        let first = lines.next().and_then(checked).ok_or_else(damaged)?;
        if first != header(boot) {
            let path = path.display();
            return Err(format!(
                "{path} belongs to another boot or has another format"
            ));
        }
        let json = lines.next().and_then(checked).ok_or_else(damaged)?;
        let left: Handover = serde_json::from_str(json).map_err(|_| damaged())?;
        let age = now.saturating_sub(left.at);
        if left.mode != mode {
            return Err("it ran in another mode".into());
        }
        if age > USABLE {
            return Err(format!("it is {} s old", age.as_secs()));
        }
        Ok(Some(left))
    }

    /// Like [`Handover::read`], but also removes the file, for an agent that takes the state over.
    pub(crate) fn take(dir: &Path, boot: &str, now: Duration, mode: Mode) -> Left {
        let left = Handover::read(dir, boot, now, mode);
        discard(dir).map_err(|error| error.cause)?;
        left
    }
}

/// True if there is a state in `dir`.
pub(crate) fn exists(dir: &Path) -> Result<bool> {
    file_exists(&file(dir))
}

/// Removes the state in `dir`, because its knobs are no longer in force.
pub(crate) fn discard(dir: &Path) -> Result<()> {
    remove(&file(dir))
}

fn file(dir: &Path) -> PathBuf {
    dir.join(FILE)
}

fn header(boot: &str) -> String {
    format!("justitia-handover {FORMAT} {STATE_VERSION} {boot}")
}

#[cfg(test)]
mod tests;
