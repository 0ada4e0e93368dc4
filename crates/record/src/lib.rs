//! Records of what the agent saw and decided, step by step, in a file; and a replay of the policy over them.
//!
//! ```text
//! write: Tick -> MessagePack -> zstd frame, with the tick before as its prefix -> file
//! read:  file -> zstd frame -> MessagePack -> Tick
//! ```
//!
//! The format is described in `docs/record-format.md`; `tests/fixtures` holds a file that must stay readable.
//! Invariants:
//!
//! - A record describes itself: it names its fields. A field that a reader does not know is ignored. A field
//!   that the writer did not know yet gets its default. Therefore **a field that is added to
//!   [`Snapshot`](justitia_policy::Snapshot) or [`Plan`](justitia_policy::Plan) needs `#[serde(default)]`**
//!   (an `Option` has it already), and an existing field is not renamed.
//! - Numbers come back bit for bit, floating-point numbers too.
//! - Every step is one frame and one `write(2)`: a recorder that is killed loses the step that it was
//!   writing.
//! - No input makes the reader panic or take more memory than a large step does. Damage is reported with its
//!   place.
//!
//! Left out: the source of ticks (the agent's socket) and the display of a replay (the CLI).

mod encode;
mod error;
mod frame;
mod model;
mod reader;
mod replay;
mod summary;
mod writer;

pub use encode::{Encoder, Item};
pub use error::{Error, Result};
pub use frame::Note;
pub use model::{Remembered, Session, Source, Tick};
pub use reader::Reader;
pub use replay::{path_of, Difference, Options, Replayer, Step};
pub use summary::{GroupSummary, Summary};
pub use writer::Writer;

/// The version of the format that this crate writes and reads.
pub const FORMAT: u16 = 2;
/// A key frame, at which a reader can start, comes at least once in this many ticks.
pub const KEYFRAME_EVERY: u64 = 60;
