//! Errors as an operator reads them: one line of cause, one of remedy, and an exit code.

use std::fmt;
use std::io;
use std::path::Path;

/// What the process exits with when an error reaches the top.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Something went wrong while doing it.
    Failed,
    /// The request itself was wrong: arguments or configuration.
    Usage,
    /// This environment cannot do it (`EX_UNAVAILABLE` of `sysexits.h`).
    Environment,
}

impl Exit {
    /// The number.
    pub fn code(self) -> u8 {
        match self {
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Environment => 69,
        }
    }
}

/// An error with its remedy. Displays as the cause alone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{cause}")]
pub struct Error {
    /// What is wrong, in one line, with the path or key it is about.
    pub cause: String,
    /// What to do next, in one line.
    pub remedy: String,
    /// What the process exits with.
    pub exit: Exit,
}

impl Error {
    /// An error of this kind. Line breaks would break the promise of one line each.
    pub fn new(exit: Exit, cause: impl fmt::Display, remedy: impl fmt::Display) -> Error {
        Error {
            cause: one_line(&cause.to_string()),
            remedy: one_line(&remedy.to_string()),
            exit,
        }
    }

    /// Something went wrong while doing it.
    pub fn failed(cause: impl fmt::Display, remedy: impl fmt::Display) -> Error {
        Error::new(Exit::Failed, cause, remedy)
    }

    /// The request was wrong.
    pub fn usage(cause: impl fmt::Display, remedy: impl fmt::Display) -> Error {
        Error::new(Exit::Usage, cause, remedy)
    }

    /// The environment cannot do it.
    pub fn environment(cause: impl fmt::Display, remedy: impl fmt::Display) -> Error {
        Error::new(Exit::Environment, cause, remedy)
    }

    /// A file operation that failed; the remedy follows from the kind of failure.
    pub fn io(doing: &str, path: &Path, error: &io::Error) -> Error {
        let cause = format!("cannot {doing} {}: {}", path.display(), plain(error));
        match error.kind() {
            io::ErrorKind::PermissionDenied => Error::environment(cause, "run it as root"),
            io::ErrorKind::NotFound => Error::failed(cause, "check the path"),
            io::ErrorKind::StorageFull => Error::failed(cause, "make room on that file system"),
            _ => Error::failed(cause, "check that the path is usable"),
        }
    }
}

/// The operating system's words without Rust's "(os error N)".
pub fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error ") {
        Some(end) => text[..end].to_lowercase(),
        None => text,
    }
}

/// A text without its line breaks.
pub fn one_line(text: &str) -> String {
    text.split('\n')
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join("; ")
}

/// What functions of this crate return.
pub type Result<T> = std::result::Result<T, Error>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line_of_cause_and_one_of_remedy() {
        let error = Error::failed("first\nsecond\n", "do\nthis");
        assert_eq!(error.to_string(), "first; second");
        assert_eq!(error.remedy, "do; this");
    }

    #[test]
    fn a_denied_file_is_the_environments_fault() {
        let denied = io::Error::from_raw_os_error(13);
        let error = Error::io("open", Path::new("/x"), &denied);
        assert_eq!(error.exit.code(), 69);
        assert_eq!(error.cause, "cannot open /x: permission denied");
    }
}
