//! What goes wrong, as an operator reads it: one line of cause, one of remedy.
//!
//! [`Trouble`] is the target's and passes; [`Error`] ends the probe.

use std::fmt;

/// What an error means for the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Something went wrong while doing it.
    Failed,
    /// The request itself was wrong.
    Usage,
    /// This environment cannot do it.
    Environment,
}

/// The probe cannot go on. Displays as the cause alone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{cause}")]
pub struct Error {
    /// What is wrong.
    pub cause: String,
    /// What to do next.
    pub remedy: String,
    /// What the process exits with.
    pub exit: Exit,
}

impl Error {
    /// An error of this kind.
    pub fn new(exit: Exit, cause: impl fmt::Display, remedy: impl fmt::Display) -> Error {
        Error {
            cause: one_line(&cause.to_string()),
            remedy: one_line(&remedy.to_string()),
            exit,
        }
    }

    /// The request was wrong.
    pub fn usage(cause: impl fmt::Display, remedy: impl fmt::Display) -> Error {
        Error::new(Exit::Usage, cause, remedy)
    }
}

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

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
