//! Encodes sessions and ticks as frames.

use std::io;

use serde::{Deserialize, Serialize};

use crate::frame::{self, frame, Note};
use crate::model::{Session, Tick};
use crate::KEYFRAME_EVERY;

/// An item of a record: the contents of a frame, as `MessagePack` with the names of fields, so that fields may come
/// and go; or a note.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Item<S = Session, T = Box<Tick>> {
    /// A session begins.
    Session(S),
    /// One step.
    Tick(T),
    /// A part that could not be read. It is in no frame.
    #[serde(skip)]
    Note(Note),
    /// The recorder ended by itself.
    End,
}

/// Encodes sessions and ticks as the bytes of a record. Does no I/O.
#[derive(Debug, Default)]
pub struct Encoder {
    /// The contents of the previous frame. If they are empty, the next frame is a key frame.
    before: Vec<u8>,
    since_key: u64,
}

impl Encoder {
    pub fn new() -> Encoder {
        Encoder::default()
    }

    /// The start of a file.
    pub fn preamble() -> Vec<u8> {
        frame::preamble(crate::FORMAT).to_vec()
    }

    /// The frame that begins a session.
    pub fn session(&mut self, session: &Session) -> io::Result<Vec<u8>> {
        self.before.clear();
        frame(&contents(&Item::Session(session))?, &[])
    }

    /// The frame of a tick. It is a key frame if the tick holds what the policy remembered, after a gap, and
    /// at least every [`KEYFRAME_EVERY`] ticks.
    pub fn tick(&mut self, tick: &Tick) -> io::Result<Vec<u8>> {
        self.since_key += 1;
        if tick.missed > 0 || tick.before.is_some() || self.since_key >= KEYFRAME_EVERY {
            self.before.clear();
        }
        if self.before.is_empty() {
            self.since_key = 0;
        }
        let contents = contents(&Item::Tick(tick))?;
        let frame = frame(&contents, &self.before)?;
        self.before = contents;
        Ok(frame)
    }

    /// The frame that ends a session properly.
    pub fn end() -> io::Result<Vec<u8>> {
        frame(&contents(&Item::End)?, &[])
    }

    #[doc(hidden)]
    /// A frame that decodes, for tests that go deeper than the checksum. It holds the payload of a session
    /// (kind 1), of a tick (2), or just these bytes.
    pub fn frame_around(kind: u8, payload: &[u8]) -> Vec<u8> {
        // A map of one field.
        let entry = match kind {
            1 => &b"\x81\xa7session"[..],
            2 => b"\x81\xa4tick",
            _ => b"",
        };
        frame(&[entry, payload].concat(), &[]).expect("bytes can be compressed")
    }
}

fn contents(item: &Item<&Session, &Tick>) -> io::Result<Vec<u8>> {
    rmp_serde::to_vec_named(item).map_err(io::Error::other)
}
