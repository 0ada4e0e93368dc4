//! From ticks to frames.

use justitia_policy::Snapshot;
use serde_json::Value;

use crate::derive::DERIVATIONS;
use crate::frame::{self, frame, CRITICAL, DEFLATED, DELTA, END, KEY, SESSION};
use crate::model::{Session, Tick};
use crate::squeeze::{guess_next, squeeze, Known};
use crate::tree;
use crate::KEYFRAME_EVERY;

/// Shorter payloads are not worth deflating.
const WORTH_DEFLATING: usize = 64;
/// zlib's default.
const DEFLATE_LEVEL: u8 = 6;

/// Turns sessions and ticks into the bytes of a record. Does no I/O.
#[derive(Debug, Default)]
pub struct Encoder {
    strings: tree::Writer,
    /// The tick before: its tree, guessed on to the next, and its snapshot.
    before: Option<(Value, Snapshot)>,
    /// The next tick's number within the session.
    number: u64,
    since_key: u64,
}

impl Encoder {
    /// An encoder that has written nothing.
    pub fn new() -> Encoder {
        Encoder::default()
    }

    /// The start of a file.
    pub fn preamble() -> Vec<u8> {
        frame::preamble(crate::FORMAT).to_vec()
    }

    /// The frame that begins a session.
    pub fn session(&mut self, session: &Session) -> Result<Vec<u8>, serde_json::Error> {
        *self = Encoder::default();
        let session = Session {
            derivations: DERIVATIONS,
            ..session.clone()
        };
        Ok(frame(SESSION, CRITICAL, &serde_json::to_vec(&session)?))
    }

    /// The frame of a tick: in full if it says what the policy remembered, after a gap, and once
    /// in a while.
    pub fn tick(&mut self, tick: &Tick) -> Result<Vec<u8>, serde_json::Error> {
        if tick.missed > 0 || tick.before.is_some() || self.since_key + 1 >= KEYFRAME_EVERY {
            self.before = None;
        }
        let mut tree = serde_json::to_value(tick)?;
        let before = self.before.take();
        let known = Known::new(
            &tick.snapshot,
            before.as_ref().map(|(_, snapshot)| snapshot),
            tick.elapsed().as_secs_f64(),
        );
        if let Some(plan) = tree.get_mut("plan") {
            squeeze(plan, &known);
        }
        if before.is_none() {
            self.strings = tree::Writer::default();
            self.since_key = 0;
        } else {
            self.since_key += 1;
        }
        let mut payload = self.number.to_le_bytes().to_vec();
        let base = before.as_ref().map(|(tree, _)| tree);
        let mut bytes = tree::Bytes::default();
        self.strings.put(&mut bytes, &tree, base);
        bytes.append_to(&mut payload);
        let kind = if before.is_none() { KEY } else { DELTA };
        self.number += 1;
        forget_state(&mut tree);
        guess_next(&mut tree);
        self.before = Some((tree, tick.snapshot.clone()));
        Ok(deflated(kind, &payload))
    }

    #[doc(hidden)]
    /// A valid frame around any payload, for tests that mean to go deeper than the checksum.
    pub fn frame_around(kind: u8, payload: &[u8]) -> Vec<u8> {
        frame(kind, CRITICAL, payload)
    }

    /// The frame that ends a session in good order.
    pub fn end() -> Vec<u8> {
        frame(END, 0, &[])
    }
}

/// What the policy remembered is in keyframes only: it is no base for the next tick.
pub(crate) fn forget_state(tree: &mut Value) {
    if let Some(fields) = tree.as_object_mut() {
        fields.remove("before");
    }
}

fn deflated(kind: u8, payload: &[u8]) -> Vec<u8> {
    if payload.len() >= WORTH_DEFLATING {
        let short = miniz_oxide::deflate::compress_to_vec(payload, DEFLATE_LEVEL);
        if short.len() < payload.len() {
            return frame(kind, CRITICAL | DEFLATED, &short);
        }
    }
    frame(kind, CRITICAL, payload)
}
