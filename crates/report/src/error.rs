//! Errors for operators: one line of cause, one line of remedy, and an exit code.

use std::fmt;
use std::io;
use std::path::Path;

pub use justitia_cgroup::error::plain;

/// The exit status of the process when an error reaches `main`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Failed = 1,
    /// Wrong arguments or configuration.
    Usage = 2,
    /// The environment lacks what the request needs (`EX_UNAVAILABLE` of `sysexits.h`).
    Environment = 69,
}

impl Exit {
    pub fn code(self) -> u8 {
        self as u8
    }
}

/// An error with its remedy. Displays as the cause alone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{cause}")]
pub struct Error {
    /// One line that names the path or key concerned.
    pub cause: String,
    /// One line: what to do next.
    pub remedy: String,
    pub exit: Exit,
}

impl Error {
    /// Joins the lines of `cause` and of `remedy`, so that each stays one line.
    pub fn new(exit: Exit, cause: impl fmt::Display, remedy: impl fmt::Display) -> Error {
        Error {
            cause: one_line(&without_numbers(cause.to_string())),
            remedy: one_line(&remedy.to_string()),
            exit,
        }
    }

    pub fn failed(cause: impl fmt::Display, remedy: impl fmt::Display) -> Error {
        Error::new(Exit::Failed, cause, remedy)
    }

    pub fn usage(cause: impl fmt::Display, remedy: impl fmt::Display) -> Error {
        Error::new(Exit::Usage, cause, remedy)
    }

    pub fn environment(cause: impl fmt::Display, remedy: impl fmt::Display) -> Error {
        Error::new(Exit::Environment, cause, remedy)
    }

    /// A failed file operation; the remedy follows from the kind of error.
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

/// A wrong argument or setting, as cause and remedy.
impl From<(String, String)> for Error {
    fn from((cause, remedy): (String, String)) -> Error {
        Error::usage(cause, remedy)
    }
}

impl From<justitia_cgroup::Error> for Error {
    fn from(error: justitia_cgroup::Error) -> Error {
        let exit = match error.why {
            justitia_cgroup::Why::Denied(_) => Exit::Environment,
            _ => Exit::Failed,
        };
        Error::new(exit, &error, error.remedy())
    }
}

impl From<justitia_cgroup::MountError> for Error {
    fn from(error: justitia_cgroup::MountError) -> Error {
        Error::environment(&error, error.remedy())
    }
}

/// A text in which Rust's "(os error N)" does not follow the system's words.
fn without_numbers(mut text: String) -> String {
    while let Some(start) = text.find(" (os error ") {
        let end = text[start..]
            .find(')')
            .map_or(text.len(), |end| start + end + 1);
        text.replace_range(start..end, "");
    }
    text
}

/// Joins the lines of a text, without empty ones.
pub fn one_line(text: &str) -> String {
    text.split('\n')
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join("; ")
}

pub type Result<T> = std::result::Result<T, Error>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line_of_cause_and_one_of_remedy() {
        let error = Error::failed("first\nsecond\n", "do\nthis");
        assert_eq!(error.to_string(), "first; second");
        assert_eq!(error.remedy, "do; this");
        let refused = io::Error::from_raw_os_error(111);
        let error = Error::failed(format!("a ({refused}), b: {refused}"), "");
        assert_eq!(error.cause, "a (Connection refused), b: Connection refused");
    }

    #[test]
    fn a_denied_file_is_the_environments_fault() {
        let denied = io::Error::from_raw_os_error(13);
        let error = Error::io("open", Path::new("/x"), &denied);
        assert_eq!(error.exit.code(), 69);
        assert_eq!(error.cause, "cannot open /x: permission denied");
    }
}
