//! Defines Justitia's output: the agent's report ([`status`]) and the description of its fields
//! ([`describe`]), errors with their remedy, and log lines.
//!
//! The agent makes a report of each step; commands, the terminal screen and the web page read it. They share
//! these types and do not import each other. This crate does not know where a report comes from or where it
//! goes.

pub mod describe;
pub mod error;
#[cfg(any(test, feature = "example"))]
#[path = "tests/example.rs"]
pub mod example;
pub mod feed;
mod fields;
pub mod log;
pub mod own;
pub mod say;
pub mod shortfall;
pub mod status;
pub mod text;

pub use error::{Error, Exit, Result};
pub use log::Log;
