//! From frames to ticks.

use std::time::Duration;

use justitia_policy::Snapshot;
use serde::Deserialize as _;
use serde_json::Value;

use crate::encode::forget_state;
use crate::frame::{DEFLATED, DELTA, KEY};
use crate::model::Tick;
use crate::squeeze::{guess_next, unsqueeze, Known};
use crate::tree;

/// A tick of a thousand groups inflates to less than a hundredth of this.
const LARGEST: usize = 256 << 20;

/// Why a tick could not be decoded.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The ticks it builds on are missing.
    NoBase,
    /// It is not what an encoder writes.
    Damaged,
    /// It is in order, but means nothing to this version.
    Unknown(String),
}

/// Turns the frames of a session's ticks into ticks.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    strings: tree::Reader,
    /// The tick before: its tree, guessed on to the next, and its snapshot.
    before: Option<(Value, Snapshot)>,
    /// The number of the tick that builds on it.
    number: u64,
}

impl Decoder {
    /// What comes next does not follow what was before.
    pub(crate) fn lose(&mut self) {
        self.before = None;
    }

    /// The tick of a frame of kind `KEY` or `DELTA`.
    pub(crate) fn tick(&mut self, kind: u8, flags: u8, payload: &[u8]) -> Result<Tick, Trouble> {
        let inflated;
        let payload = if flags & DEFLATED == 0 {
            payload
        } else {
            let bytes = miniz_oxide::inflate::decompress_to_vec_with_limit(payload, LARGEST);
            inflated = bytes.map_err(|_| Trouble::Damaged)?;
            &inflated
        };
        let (number, payload) = payload.split_first_chunk().ok_or(Trouble::Damaged)?;
        let number = u64::from_le_bytes(*number);
        let before = match kind {
            DELTA => {
                let before = self.before.take().filter(|_| number == self.number);
                Some(before.ok_or(Trouble::NoBase)?)
            }
            _ => None,
        };
        let (base, then) = before.unzip();
        let mut tree = base.unwrap_or_default();
        if kind == KEY {
            self.strings = tree::Reader::default();
            self.before = None;
        }
        let taken = self.strings.take(payload, &mut tree, kind == DELTA);
        taken.ok_or(Trouble::Damaged)?;
        let tick = whole(&mut tree, then.as_ref())?;
        forget_state(&mut tree);
        guess_next(&mut tree);
        self.before = Some((tree, tick.snapshot.clone()));
        self.number = number.wrapping_add(1);
        Ok(tick)
    }
}

/// A tick from its tree, with everything that was left out.
fn whole(tree: &mut Value, then: Option<&Snapshot>) -> Result<Tick, Trouble> {
    let unknown = |error: serde_json::Error| Trouble::Unknown(error.to_string());
    let part = |name| tree.get(name).unwrap_or(&Value::Null);
    let now = Snapshot::deserialize(part("snapshot")).map_err(unknown)?;
    let elapsed_ns = part("elapsed_ns").as_u64().unwrap_or(0);
    let elapsed_s = Duration::from_nanos(elapsed_ns).as_secs_f64();
    let mut plan = part("plan").clone();
    unsqueeze(&mut plan, &Known::new(&now, then, elapsed_s)).ok_or(Trouble::Damaged)?;
    // Whole while it is read; the next tick builds on it as it was.
    let place = tree.get_mut("plan").ok_or(Trouble::Damaged)?;
    let squeezed = std::mem::replace(place, plan);
    let tick = Tick::deserialize(&*tree).map_err(unknown)?;
    tree["plan"] = squeezed;
    Ok(tick)
}
