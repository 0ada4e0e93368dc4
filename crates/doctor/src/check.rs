//! Defines a check: a pure function from [`Facts`] to an [`Outcome`].
//!
//! A check's ID never changes, because configurations and dashboards name it. It is the heading of the
//! check's section in `docs/doctor.md`.

use std::collections::{BTreeMap, BTreeSet};

use justitia_cgroup::survey::{Known, Unread};
use justitia_policy::units::Bytes;
use serde::Serialize;

use crate::facts::{Facts, GroupFacts};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing; may be intended.
    Note,
    /// Causes harm when memory becomes scarce.
    Warning,
    /// Causes harm now, or defeats everything else.
    Critical,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "kind", content = "name", rename_all = "lowercase")]
pub enum Subject {
    Host,
    /// A cgroup, by its path.
    Group(String),
    /// A disk, by its name.
    Disk(String),
    /// A file system, by its mount point.
    Mount(String),
}

/// A pitfall that a check found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    pub subject: Subject,
    /// The observation, with its numbers.
    pub evidence: String,
    /// The same numbers for programs; units are in the names.
    pub numbers: BTreeMap<&'static str, f64>,
    /// Commands or settings.
    pub remedy: Vec<String>,
    /// The finding ends with all of `remedy` only; otherwise any one helps.
    pub all_needed: bool,
    /// The operator's reason for accepting it; `None`: not silenced.
    pub silenced: Option<String>,
}

impl Finding {
    pub fn number(&mut self, name: &'static str, value: f64) -> &mut Finding {
        self.numbers.insert(name, value);
        self
    }

    pub fn bytes(&mut self, name: &'static str, bytes: Bytes) -> &mut Finding {
        self.number(name, bytes.as_f64())
    }

    pub fn remedy(&mut self, remedy: impl Into<String>) -> &mut Finding {
        self.remedy.push(remedy.into());
        self
    }
}

/// The result of a check.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    pub findings: Vec<Finding>,
    /// Facts that the check needed and that could not be read.
    pub unknown: BTreeSet<Unread>,
}

impl Outcome {
    /// Adds a finding; numbers and remedies are added to it afterwards.
    pub fn find(&mut self, subject: Subject, evidence: impl Into<String>) -> &mut Finding {
        let at = self.findings.len();
        self.findings.push(Finding {
            subject,
            evidence: evidence.into(),
            numbers: BTreeMap::new(),
            remedy: Vec::new(),
            all_needed: false,
            silenced: None,
        });
        &mut self.findings[at]
    }

    pub fn unknown(&mut self, what: impl Into<String>, why: impl Into<String>) {
        self.unknown.insert(Unread::new(what, why));
    }

    /// The value if it is known; otherwise records it as unknown.
    pub fn known<T>(&mut self, known: Known<T>) -> Option<T> {
        match known {
            Ok(value) => Some(value),
            Err(unread) => {
                self.unknown.insert(unread);
                None
            }
        }
    }

    /// All groups if they could be read. Groups that could not be opened are recorded as unknown, because a
    /// check over all groups cannot judge them.
    pub fn tree<'a>(&mut self, facts: &'a Facts) -> Option<&'a [GroupFacts]> {
        self.unknown.extend(facts.closed.iter().cloned());
        self.known(facts.tree.clone()).map(|()| &facts.groups[..])
    }

    /// As [`Outcome::tree`], if the groups' memory is known.
    pub fn memory_groups<'a>(&mut self, facts: &'a Facts) -> Option<&'a [GroupFacts]> {
        self.controlled(facts, "memory", "memory")
    }

    /// As [`Outcome::tree`], if the groups' I/O is known.
    pub fn io_groups<'a>(&mut self, facts: &'a Facts) -> Option<&'a [GroupFacts]> {
        self.controlled(facts, "io", "blkio")
    }

    fn controlled<'a>(
        &mut self,
        facts: &'a Facts,
        controller: &str,
        v1_name: &str,
    ) -> Option<&'a [GroupFacts]> {
        self.unknown.extend(facts.closed.iter().cloned());
        self.known(facts.controlled_groups(controller, v1_name))
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Check {
    /// Never changes.
    pub id: &'static str,
    /// The pitfall, in a few words.
    pub title: &'static str,
    pub severity: Severity,
    /// The facts that it reads.
    pub needs: &'static str,
    /// The effect of the pitfall.
    pub consequence: &'static str,
    /// Ends early with `None` if there is nothing to judge, or if it is unknown. The findings so far count.
    pub run: fn(&Facts, &mut Outcome) -> Option<()>,
}
