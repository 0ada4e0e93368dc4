//! The lab's errors: what went wrong, and what to do about it.
//!
//! Every error is two lines, one of cause and one of remedy, because the command line prints exactly these.
//! The variant determines the exit code (design contract): 1 the lab ran and failed, 2 the command was wrong,
//! 69 this environment cannot run it. A guest that panics or hangs is a failure of the environment, not of
//! the experiment.

use std::fmt::Display;
use std::path::Path;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LabError {
    /// The machine lacks something, or the virtual machine broke. Exit code 69.
    #[error("{cause}; {remedy}")]
    Environment {
        /// One line: what is wrong.
        cause: String,
        /// One line: what to do next.
        remedy: String,
    },
    /// The experiment ran and failed. Exit code 1.
    #[error("{cause}; {remedy}")]
    Failed {
        /// One line: what is wrong.
        cause: String,
        /// One line: what to do next.
        remedy: String,
    },
    /// The caller asked for something that does not exist. Exit code 2.
    #[error("{cause}; {remedy}")]
    Usage {
        /// One line: what is wrong.
        cause: String,
        /// One line: what to do next.
        remedy: String,
    },
}

impl LabError {
    pub fn environment(cause: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Environment {
            cause: one_line(cause.into()),
            remedy: one_line(remedy.into()),
        }
    }

    pub fn failed(cause: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Failed {
            cause: one_line(cause.into()),
            remedy: one_line(remedy.into()),
        }
    }

    pub fn usage(cause: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Usage {
            cause: one_line(cause.into()),
            remedy: one_line(remedy.into()),
        }
    }

    /// An I/O error on one of the lab's own files.
    pub fn io(action: &str, path: &Path, error: impl Display) -> Self {
        Self::environment(
            format!("cannot {action} {}: {error}", path.display()),
            "check that the directory is writable and that its file system has room",
        )
    }

    pub fn cause(&self) -> &str {
        match self {
            Self::Environment { cause, .. }
            | Self::Failed { cause, .. }
            | Self::Usage { cause, .. } => cause,
        }
    }

    pub fn remedy(&self) -> &str {
        match self {
            Self::Environment { remedy, .. }
            | Self::Failed { remedy, .. }
            | Self::Usage { remedy, .. } => remedy,
        }
    }

    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Environment { .. } => 69,
            Self::Failed { .. } => 1,
            Self::Usage { .. } => 2,
        }
    }
}

fn one_line(text: String) -> String {
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
        assert_eq!(LabError::failed("a", "b").exit_code(), 1);
        assert_eq!(LabError::usage("a", "b").exit_code(), 2);
    }
}
