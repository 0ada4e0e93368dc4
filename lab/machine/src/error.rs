//! The lab's errors: what went wrong, and what to do about it.
//!
//! Every error is two lines, one of cause and one of remedy, because the command line prints exactly these.
//! The constructor determines the exit code (design contract): 1 the lab ran and failed, 2 the command was wrong,
//! 69 this environment cannot run it. A guest that panics or hangs is a failure of the environment, not of
//! the experiment.

use std::fmt::Display;
use std::path::Path;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{cause}; {remedy}")]
pub struct LabError {
    /// One line: what is wrong.
    cause: String,
    /// One line: what to do next.
    remedy: String,
    exit_code: u8,
}

impl LabError {
    fn new(exit_code: u8, cause: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            cause: one_line(cause.into()),
            remedy: one_line(remedy.into()),
            exit_code,
        }
    }

    /// The machine lacks something, or the virtual machine broke. Exit code 69.
    pub fn environment(cause: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(69, cause, remedy)
    }

    /// The experiment ran and failed. Exit code 1.
    pub fn failed(cause: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(1, cause, remedy)
    }

    /// The caller asked for something that does not exist. Exit code 2.
    pub fn usage(cause: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(2, cause, remedy)
    }

    /// An I/O error on one of the lab's own files.
    pub fn io(action: &str, path: &Path, error: impl Display) -> Self {
        Self::environment(
            format!("cannot {action} {}: {error}", path.display()),
            "check that the directory is writable and that its file system has room",
        )
    }

    pub fn cause(&self) -> &str {
        &self.cause
    }

    pub fn remedy(&self) -> &str {
        &self.remedy
    }

    pub fn exit_code(&self) -> u8 {
        self.exit_code
    }
}

/// A result of the lab.
pub type Result<T, E = LabError> = std::result::Result<T, E>;

/// Takes a line of progress.
pub type Say<'a> = dyn FnMut(&str) + 'a;

/// Turns the error of an operation on one of the lab's own files into [`LabError::io`].
pub trait OrCannot<T> {
    /// `action` and `path` as in "cannot create /some/path".
    fn or_cannot(self, action: &str, path: &Path) -> Result<T>;
}

impl<T, E: Display> OrCannot<T> for Result<T, E> {
    fn or_cannot(self, action: &str, path: &Path) -> Result<T> {
        self.map_err(|error| LabError::io(action, path, error))
    }
}

/// One line, without the "(os error N)" that Rust adds to the system's words.
fn one_line(mut text: String) -> String {
    while let Some(start) = text.find(" (os error ") {
        let end = text[start..]
            .find(')')
            .map_or(text.len(), |end| start + end + 1);
        text.replace_range(start..end, "");
    }
    if text.contains('\n') {
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_exit_code_and_two_single_lines() {
        let error = LabError::environment("one\n  two", "do\nthis");
        assert_eq!(
            (error.exit_code(), error.cause(), error.remedy()),
            (69, "one two", "do this")
        );
        let absent = std::io::Error::from_raw_os_error(2);
        assert_eq!(
            LabError::io("read", Path::new("/x"), absent).cause(),
            "cannot read /x: No such file or directory"
        );
        assert_eq!(LabError::failed("a", "b").exit_code(), 1);
        assert_eq!(LabError::usage("a", "b").exit_code(), 2);
    }
}
