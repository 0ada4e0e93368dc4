//! The policy of Justitia: pure functions from what was seen to what is to be done.
//!
//! Nothing here does I/O, reads a clock or logs. Data flows one way:
//!
//! ```text
//! snapshot -> rates -> habits -> ownership, balance (colors) -> entitle (shares)
//!          -> feedback, limits, guard -> writes -> plan
//! ```
//!
//! [`step()`] goes through them in this order. Every quantity names its unit; a value that could
//! not be read is `None`, and each module says what it does then.

pub mod color;
pub mod config;
pub mod feedback;
mod gate;
pub mod guard;
pub mod metrics;
pub mod plan;
pub mod rates;
pub mod share;
pub mod snapshot;
mod step;
#[cfg(test)]
mod testing;
pub mod units;
mod verdicts;
mod writes;

pub use color::Color;
pub use config::Config;
pub use plan::Plan;
pub use snapshot::Snapshot;
pub use step::{step, State, STATE_VERSION};
