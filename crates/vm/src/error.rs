//! Errors: one line of cause, one of remedy.

use std::io;

/// Why images cannot be looked after.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel, or its permission, is not enough.
    #[error("{cause}")]
    Environment {
        /// What is missing.
        cause: String,
        /// How to get it.
        remedy: String,
    },
    /// Something went wrong.
    #[error("{cause}")]
    Failed {
        /// What.
        cause: String,
        /// What to do.
        remedy: String,
    },
}

impl Error {
    /// What to do about it, in one line.
    pub fn remedy(&self) -> &str {
        match self {
            Error::Environment { remedy, .. } | Error::Failed { remedy, .. } => remedy,
        }
    }

    pub(crate) fn environment(cause: impl Into<String>, remedy: impl Into<String>) -> Error {
        Error::Environment {
            cause: cause.into(),
            remedy: remedy.into(),
        }
    }

    pub(crate) fn failed(cause: impl Into<String>, remedy: impl Into<String>) -> Error {
        Error::Failed {
            cause: cause.into(),
            remedy: remedy.into(),
        }
    }

    pub(crate) fn io(doing: &str, what: &str, error: &io::Error) -> Error {
        let cause = format!("cannot {doing} {what}: {error}");
        match error.kind() {
            io::ErrorKind::PermissionDenied => Error::environment(cause, "run it as root"),
            _ => Error::failed(cause, "check that it is there and can be used"),
        }
    }
}
