//! Errors of this crate: one line of cause, one of remedy.

use std::io;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel lacks a feature, or we lack a permission.
    #[error("{cause}")]
    Environment {
        cause: String,
        /// The remedy, in one line.
        remedy: String,
    },
    #[error("{cause}")]
    Failed {
        cause: String,
        /// The remedy, in one line.
        remedy: String,
    },
}

impl Error {
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
