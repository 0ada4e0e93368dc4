//! Silences: findings that the operator knows and accepts, each with a reason.

use justitia_discover::Glob;

use crate::check::Subject;

/// One accepted kind of finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Silence {
    /// The check's ID.
    pub check: String,
    /// Only findings about groups that match; `None`: all findings of the check.
    pub group: Option<Glob>,
    /// The reason for accepting it. Never empty.
    pub reason: String,
}

impl Silence {
    pub fn covers(&self, check: &str, subject: &Subject) -> bool {
        self.check == check
            && match (&self.group, subject) {
                (None, _) => true,
                (Some(glob), Subject::Group(path)) => glob.matches(path),
                (Some(_), _) => false,
            }
    }
}
