//! What goes wrong with a target, as an operator reads it: one line of cause, one of remedy. It passes;
//! an [`Error`](justitia_report::error::Error) ends the probe.

use std::fmt;

use justitia_report::error::one_line;

/// Why a target could not be measured this time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{cause}")]
pub struct Trouble {
    /// What is wrong.
    pub cause: String,
    /// What to do about it.
    pub remedy: String,
}

impl Trouble {
    /// A cause and its remedy.
    pub fn new(cause: impl fmt::Display, remedy: impl fmt::Display) -> Trouble {
        Trouble {
            cause: one_line(&cause.to_string()),
            remedy: one_line(&remedy.to_string()),
        }
    }
}
