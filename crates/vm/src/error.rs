//! Errors, and those of the operating system as such.

use std::io;

use justitia_report::error::plain;
pub use justitia_report::Error;

/// The error of an operation on `what`.
pub(crate) fn of_io(doing: &str, what: &str, error: &io::Error) -> Error {
    let cause = format!("cannot {doing} {what}: {}", plain(error));
    match error.kind() {
        io::ErrorKind::PermissionDenied => Error::environment(cause, "run it as root"),
        _ => Error::failed(cause, "check that it is there and can be used"),
    }
}
