//! What Justitia tells, and how: the agent's [`status`] and the description of its fields
//! ([`describe`]), errors with their remedy, lines of a log.
//!
//! The agent makes a report of each step; commands, the terminal screen and the web page read it. They
//! share these types and do not import each other. Left out on purpose: where a report comes from and
//! where it goes.

pub mod describe;
pub mod error;
#[cfg(any(test, feature = "example"))]
pub mod example;
pub mod feed;
mod fields;
pub mod log;
pub mod own;
pub mod say;
pub mod status;
pub mod text;

pub use error::{Error, Exit, Result};
pub use log::Log;
