//! Records: what the agent saw and decided, step by step, in a file, and the policy run over it
//! again.
//!
//! ```text
//! write: Tick -> MessagePack -> zstd frame, with the tick before as its prefix -> file
//! read:  file -> zstd frame -> MessagePack -> Tick
//! ```
//!
//! The format is described in `docs/record-format.md`; `tests/fixtures` holds a file that must stay
//! readable. Invariants:
//!
//! - A record describes itself: it names its fields. A field that a reader does not know is
//!   ignored, one that a writer did not know yet gets its default. So **a field that is added to
//!   [`Snapshot`](justitia_policy::Snapshot) or [`Plan`](justitia_policy::Plan) needs
//!   `#[serde(default)]`** (an `Option` has it already), and one that is there is not renamed.
//! - Numbers come back bit for bit, floating-point numbers too.
//! - Every step is one frame and one `write(2)`: whoever is killed loses the step it was writing.
//! - No bytes make the reader panic or take more memory than a large step does; what is damaged is
//!   said, with its place.
//!
//! What it leaves out: whence ticks come (the agent's socket) and how a replay is shown (the CLI).

mod encode;
mod error;
mod frame;
mod model;
mod reader;
mod replay;
mod summary;
mod writer;

pub use encode::Encoder;
pub use error::{Error, Kind, Result};
pub use model::{Remembered, Session, Source, Tick};
pub use reader::{Item, Note, Reader};
pub use replay::{path_of, Difference, Options, Replayer, Step};
pub use summary::{GroupSummary, Summary};
pub use writer::{Existing, Writer};

/// The version of the format that this crate writes and reads.
pub const FORMAT: u16 = 2;
/// At least every so many ticks comes a key frame, where a reader can start.
pub const KEYFRAME_EVERY: u64 = 60;
