//! Records: what the agent saw and decided, step by step, in a file, and the policy run over it
//! again.
//!
//! ```text
//! write: Tick -> model (JSON tree) -> squeeze -> tree (delta) -> deflate -> frame -> file
//! read:  file -> frame -> inflate -> tree (delta) -> unsqueeze -> model (JSON tree) -> Tick
//! ```
//!
//! The format is described in `docs/record-format.md`; `tests/fixtures` holds files of former
//! versions that must stay readable. Invariants:
//!
//! - A record describes itself: it names its fields. A field that a reader does not know is
//!   ignored, one that a writer did not know yet gets its default. So **a field that is added to
//!   [`Snapshot`](justitia_policy::Snapshot) or [`Plan`](justitia_policy::Plan) needs
//!   `#[serde(default)]`** (an `Option` has it already), and one that is there is not renamed.
//! - Numbers come back bit for bit, floating-point numbers too. Those that are not finite come
//!   back as unknown.
//! - Every step is one frame and one `write(2)`: whoever is killed loses the step it was writing.
//! - No bytes make the reader panic; what is damaged is said, with its place.
//!
//! What it leaves out: whence ticks come (the agent's socket) and how a replay is shown (the CLI).

mod crc;
mod decode;
mod derive;
mod encode;
mod error;
mod frame;
mod model;
mod reader;
mod replay;
mod squeeze;
mod summary;
mod tree;
mod writer;

pub use encode::Encoder;
pub use error::{Error, Kind, Result};
pub use model::{Remembered, Session, Source, Tick};
pub use reader::{Item, Note, Reader};
pub use replay::{path_of, Difference, Options, Replayer, Step};
pub use summary::{GroupSummary, Summary};
pub use writer::{Existing, Writer};

/// The version of the format that this crate writes, and the newest it reads.
pub const FORMAT: u16 = 1;
/// Every so many ticks everything is written, so that a reader can start there.
pub const KEYFRAME_EVERY: u64 = 60;
