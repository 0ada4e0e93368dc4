//! Errors: a cause, a remedy, and a kind of failure.

use std::io;
use std::path::Path;

/// A kind of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The request was wrong; another file or option is needed.
    Usage,
    /// The operation failed.
    Failed,
    /// Permission is missing.
    Denied,
}

/// Reason why a record could not be written or read. Displays only the cause.
#[derive(Debug, thiserror::Error)]
#[error("{cause}")]
pub struct Error {
    /// The problem, with the path.
    pub cause: String,
    /// The remedy.
    pub remedy: String,
    pub kind: Kind,
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(kind: Kind, cause: String, remedy: impl Into<String>) -> Error {
        let remedy = remedy.into();
        Error {
            cause,
            remedy,
            kind,
        }
    }

    pub(crate) fn io(doing: &str, name: &str, error: &io::Error) -> Error {
        let text = error.to_string();
        let words = text.split(" (os error ").next().unwrap_or(&text);
        let cause = format!("cannot {doing} {name}: {}", words.to_lowercase());
        let (kind, remedy) = match error.kind() {
            io::ErrorKind::PermissionDenied => {
                (Kind::Denied, "run it as root, or name a file of your own")
            }
            io::ErrorKind::NotFound => (Kind::Failed, "check the path"),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => (
                Kind::Failed,
                "make room on that file system; what was recorded before can be read",
            ),
            _ => (Kind::Failed, "check that the path is a usable file"),
        };
        Error::new(kind, cause, remedy)
    }

    pub(crate) fn not_a_record(name: &str) -> Error {
        Error::new(
            Kind::Failed,
            format!("{name} is not a record"),
            "name a file that justitia record wrote",
        )
    }

    pub(crate) fn empty(name: &str) -> Error {
        Error::new(
            Kind::Failed,
            format!("{name} is empty"),
            "record something first: justitia record FILE",
        )
    }

    /// The format is of a later version.
    pub(crate) fn newer_format(name: &str, format: u16) -> Error {
        Error::new(
            Kind::Failed,
            format!(
                "{name} has format {format}; this version of justitia reads up to {}",
                crate::FORMAT
            ),
            "use a version of justitia as new as the one that wrote it",
        )
    }

    /// The format is of an earlier version.
    pub(crate) fn older_format(name: &str, format: u16) -> Error {
        Error::new(
            Kind::Failed,
            format!(
                "{name} has format {format}, of justitia before its first release; this version reads {}",
                crate::FORMAT
            ),
            "record anew, or read it with the version that wrote it",
        )
    }

    /// The record holds something necessary that this version does not understand.
    pub(crate) fn newer(name: &str, what: &str, offset: u64, written_by: &str) -> Error {
        Error::new(
            Kind::Failed,
            format!(
                "{name} holds data at byte {offset} that this version does not understand: {what}"
            ),
            format!("use justitia {written_by} or later"),
        )
    }

    pub(crate) fn exists(path: &Path) -> Error {
        Error::new(
            Kind::Usage,
            format!("{} exists already", path.display()),
            "name another file, or append to this one: --append",
        )
    }

    pub(crate) fn in_use(path: &Path) -> Error {
        Error::new(
            Kind::Failed,
            format!("{} is being written by another recorder", path.display()),
            "stop that one, or name another file",
        )
    }
}
