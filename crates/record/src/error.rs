//! The errors of records.

use std::io;
use std::path::Path;

use justitia_report::error::plain;
pub use justitia_report::{Error, Result};

pub(crate) fn io(doing: &str, name: &str, error: &io::Error) -> Error {
    use io::ErrorKind::{NotFound, PermissionDenied, QuotaExceeded, StorageFull};
    let cause = format!("cannot {doing} {name}: {}", plain(error).to_lowercase());
    match error.kind() {
        PermissionDenied => Error::environment(cause, "run it as root, or name a file of your own"),
        NotFound => Error::failed(cause, "check the path"),
        StorageFull | QuotaExceeded => Error::failed(
            cause,
            "make room on that file system; what was recorded before can be read",
        ),
        _ => Error::failed(cause, "check that the path is a usable file"),
    }
}

pub(crate) fn not_a_record(name: &str) -> Error {
    Error::failed(
        format!("{name} is not a record"),
        "name a file that justitia record wrote",
    )
}

pub(crate) fn empty(name: &str) -> Error {
    Error::failed(
        format!("{name} is empty"),
        "record something first: justitia record FILE",
    )
}

/// The format is of a later version.
pub(crate) fn newer_format(name: &str, format: u16) -> Error {
    Error::failed(
        format!(
            "{name} has format {format}; this version of justitia reads up to {}",
            crate::FORMAT
        ),
        "use a version of justitia as new as the one that wrote it",
    )
}

/// The format is of an earlier version.
pub(crate) fn older_format(name: &str, format: u16) -> Error {
    Error::failed(format!(
            "{name} has format {format}, of justitia before its first release; this version reads {}",
            crate::FORMAT
        ),
        "record anew, or read it with the version that wrote it",
    )
}

/// The record holds something necessary that this version does not understand.
pub(crate) fn newer(name: &str, what: &str, offset: u64, written_by: &str) -> Error {
    Error::failed(
        format!("{name} holds data at byte {offset} that this version does not understand: {what}"),
        format!("use justitia {written_by} or later"),
    )
}

pub(crate) fn exists(path: &Path) -> Error {
    Error::usage(
        format!("{} exists already", path.display()),
        "name another file, or append to this one: --append",
    )
}

pub(crate) fn in_use(path: &Path) -> Error {
    Error::failed(
        format!("{} is being written by another recorder", path.display()),
        "stop that one, or name another file",
    )
}
