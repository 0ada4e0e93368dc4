//! A problem with a target, for an operator: one line of cause, one of remedy. It is temporary; an
//! [`Error`](justitia_report::error::Error) ends the probe.

use std::fmt;

use justitia_report::error::one_line;

/// Cause and remedy of a measurement that failed this time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{cause}")]
pub struct Trouble {
    pub cause: String,
    pub remedy: String,
}

impl Trouble {
    pub fn new(cause: impl fmt::Display, remedy: impl fmt::Display) -> Trouble {
        Trouble {
            cause: one_line(&cause.to_string()),
            remedy: one_line(&remedy.to_string()),
        }
    }
}
