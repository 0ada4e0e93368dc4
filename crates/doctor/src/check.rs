//! What a check is.
//!
//! A check is a pure function from [`Facts`] to an [`Outcome`]. Its id is for ever: configurations
//! and dashboards name it. Its section in `docs/doctor.md` has the id as its heading.

use std::collections::{BTreeMap, BTreeSet};

use justitia_cgroup::survey::{Known, Unread};
use justitia_policy::units::Bytes;
use serde::Serialize;

use crate::facts::{Facts, GroupFacts};

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing; may be meant so.
    Note,
    /// Will hurt when memory gets scarce.
    Warning,
    /// Hurts now, or makes everything else worthless.
    Critical,
}

/// What a finding is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "kind", content = "name", rename_all = "lowercase")]
pub enum Subject {
    /// The host as a whole.
    Host,
    /// A cgroup, by its path.
    Group(String),
    /// A disk, by its name.
    Disk(String),
    /// A file system, by its mount point.
    Mount(String),
}

/// A pitfall, found.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// Where.
    pub subject: Subject,
    /// What was seen, with its numbers.
    pub evidence: String,
    /// The same numbers for programs; units are in the names.
    pub numbers: BTreeMap<&'static str, f64>,
    /// What to do: commands or settings, any one of which helps.
    pub remedy: Vec<String>,
}

impl Finding {
    /// A finding without numbers and remedies yet.
    pub fn new(subject: Subject, evidence: impl Into<String>) -> Finding {
        Finding {
            subject,
            evidence: evidence.into(),
            numbers: BTreeMap::new(),
            remedy: Vec::new(),
        }
    }

    /// With a number.
    #[must_use]
    pub fn number(mut self, name: &'static str, value: f64) -> Finding {
        self.numbers.insert(name, value);
        self
    }

    /// With a number of bytes.
    #[must_use]
    pub fn bytes(self, name: &'static str, bytes: Bytes) -> Finding {
        self.number(name, bytes.as_f64())
    }

    /// With a remedy.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Finding {
        self.remedy.push(remedy.into());
        self
    }
}

/// How a check ended.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    /// What was found.
    pub findings: Vec<Finding>,
    /// What would have been needed to tell.
    pub unknown: BTreeSet<Unread>,
}

impl Outcome {
    /// Notes a finding.
    pub fn find(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    /// The value, if it is known; if not, that is noted.
    pub fn known<T>(&mut self, known: Known<T>) -> Option<T> {
        match known {
            Ok(value) => Some(value),
            Err(unread) => {
                self.unknown.insert(unread);
                None
            }
        }
    }

    /// All groups, if they could be looked at. Those that could not be opened are noted: a check
    /// over all groups cannot tell of them.
    pub fn tree<'a>(&mut self, facts: &'a Facts) -> Option<&'a [GroupFacts]> {
        self.unknown.extend(facts.closed.iter().cloned());
        self.known(facts.tree.clone()).map(|()| &facts.groups[..])
    }

    /// The same, if the groups have memory of their own.
    pub fn memory_groups<'a>(&mut self, facts: &'a Facts) -> Option<&'a [GroupFacts]> {
        self.unknown.extend(facts.closed.iter().cloned());
        self.known(facts.memory_groups())
    }

    /// The same, if the groups' I/O is told apart.
    pub fn io_groups<'a>(&mut self, facts: &'a Facts) -> Option<&'a [GroupFacts]> {
        self.unknown.extend(facts.closed.iter().cloned());
        self.known(facts.io_groups())
    }
}

/// One check.
#[derive(Debug, Clone, Copy)]
pub struct Check {
    /// Its name, for ever.
    pub id: &'static str,
    /// What it finds, in a few words.
    pub title: &'static str,
    /// How bad that is.
    pub severity: Severity,
    /// What it needs to read.
    pub needs: &'static str,
    /// What happens to those who leave it so.
    pub consequence: &'static str,
    /// The check itself.
    pub run: fn(&Facts, &mut Outcome),
}
