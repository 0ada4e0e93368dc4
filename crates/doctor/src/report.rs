//! From outcomes to a report: what is silenced, what concerns a group, how each check ended.

use std::collections::BTreeMap;

use justitia_cgroup::survey::{Disk, Unread};
use serde::Serialize;

use crate::check::{Check, Finding, Outcome, Severity, Subject};
use crate::checks::CHECKS;
use crate::facts::Facts;
use crate::Silence;

/// Where the checks are explained, below the documentation's root; the id is the anchor.
const PAGE: &str = "docs/doctor.md";

/// How a check, or all of them, ended. What is unknown is never fine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Something was found that is not silenced.
    Finding,
    /// Nothing was found, but not everything could be read.
    CouldNotTell,
    /// All that was found is silenced.
    Silenced,
    /// Looked at, and fine.
    Fine,
}

/// A finding of a report.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FindingReport {
    /// What it is about.
    pub subject: Subject,
    /// What was seen.
    pub evidence: String,
    /// The numbers of it.
    pub numbers: BTreeMap<&'static str, f64>,
    /// What to do.
    pub remedy: Vec<String>,
    /// Why the operator accepts it; `None`: nobody does.
    pub silenced: Option<String>,
}

/// What became of one check.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CheckReport {
    /// Its id.
    pub id: &'static str,
    /// What it finds.
    pub title: &'static str,
    /// How bad that is.
    pub severity: Severity,
    /// How it ended.
    pub verdict: Verdict,
    /// What happens if it stays so.
    pub consequence: &'static str,
    /// What it reads.
    pub needs: &'static str,
    /// Where to read more.
    pub documentation: String,
    /// What was found.
    pub findings: Vec<FindingReport>,
    /// What could not be read, and why.
    pub could_not_tell: Vec<String>,
}

/// The host in a few numbers, `None` where they are not known.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HostReport {
    /// Release of the kernel.
    pub kernel: Option<String>,
    /// Memory.
    pub memory_bytes: Option<u64>,
    /// Memory that is free.
    pub free_bytes: Option<u64>,
    /// Swap.
    pub swap_bytes: Option<u64>,
    /// Cgroups that were looked at.
    pub groups_total: usize,
    /// Time between the two looks.
    pub window_s: Option<f64>,
    /// Who serves each disk by weight: `bfq`, `io.cost` or `none`. Empty where that is not known.
    pub disks: BTreeMap<String, &'static str>,
}

/// What the doctor says.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// How it all ended.
    pub verdict: Verdict,
    /// Findings that are not silenced.
    pub findings_total: usize,
    /// Findings that are.
    pub silenced_total: usize,
    /// Checks that could not tell.
    pub could_not_tell_total: usize,
    /// The host.
    pub host: HostReport,
    /// Every check.
    pub checks: Vec<CheckReport>,
}

/// Runs all checks over the facts. With a group: what concerns it, that is findings about the
/// host, about it, and about groups above and below it.
pub fn examine(facts: &Facts, silences: &[Silence], group: Option<&str>) -> Report {
    let checks: Vec<CheckReport> = CHECKS
        .iter()
        .map(|check| check_report(check, facts, silences, group))
        .collect();
    let count = |verdict| {
        let checks = checks.iter();
        checks.filter(|check| check.verdict == verdict).count()
    };
    let findings = || checks.iter().flat_map(|check| &check.findings);
    let silenced = findings()
        .filter(|finding| finding.silenced.is_some())
        .count();
    let verdict = [Verdict::Finding, Verdict::CouldNotTell, Verdict::Silenced]
        .into_iter()
        .find(|verdict| count(*verdict) > 0)
        .unwrap_or(Verdict::Fine);
    Report {
        verdict,
        findings_total: findings().count() - silenced,
        silenced_total: silenced,
        could_not_tell_total: checks
            .iter()
            .filter(|check| !check.could_not_tell.is_empty())
            .count(),
        host: host(facts),
        checks,
    }
}

fn host(facts: &Facts) -> HostReport {
    let memory = facts.host.memory.as_ref().ok();
    HostReport {
        kernel: facts.host.release.clone().ok(),
        memory_bytes: memory.and_then(|info| info.total).map(|bytes| bytes.0),
        free_bytes: memory.and_then(|info| info.free).map(|bytes| bytes.0),
        swap_bytes: memory.and_then(|info| info.swap_total).map(|bytes| bytes.0),
        groups_total: facts.groups.len(),
        window_s: facts.window_s,
        disks: facts
            .disks()
            .map(|disks| {
                let served = |disk: &&Disk| Some((disk.name.clone(), facts.served(disk)?));
                disks.iter().filter_map(served).collect()
            })
            .unwrap_or_default(),
    }
}

fn check_report(
    check: &Check,
    facts: &Facts,
    silences: &[Silence],
    group: Option<&str>,
) -> CheckReport {
    let mut outcome = Outcome::default();
    (check.run)(facts, &mut outcome);
    let findings: Vec<FindingReport> = outcome
        .findings
        .into_iter()
        .filter(|finding| group.is_none_or(|group| concerns(&finding.subject, group)))
        .map(|finding| finding_report(check.id, finding, silences))
        .collect();
    let verdict = if findings.iter().any(|finding| finding.silenced.is_none()) {
        Verdict::Finding
    } else if !outcome.unknown.is_empty() {
        Verdict::CouldNotTell
    } else if findings.is_empty() {
        Verdict::Fine
    } else {
        Verdict::Silenced
    };
    CheckReport {
        id: check.id,
        title: check.title,
        severity: check.severity,
        verdict,
        consequence: check.consequence,
        needs: check.needs,
        documentation: format!("{PAGE}#{}", check.id),
        findings,
        could_not_tell: outcome.unknown.iter().map(Unread::to_string).collect(),
    }
}

fn finding_report(check: &str, finding: Finding, silences: &[Silence]) -> FindingReport {
    let silence = silences
        .iter()
        .find(|silence| silence.covers(check, &finding.subject));
    FindingReport {
        silenced: silence.map(|silence| silence.reason.clone()),
        subject: finding.subject,
        evidence: finding.evidence,
        numbers: finding.numbers,
        remedy: finding.remedy,
    }
}

fn concerns(subject: &Subject, group: &str) -> bool {
    let below = |path: &str, above: &str| {
        path.strip_prefix(above.trim_end_matches('/'))
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    match subject {
        Subject::Group(path) => below(path, group) || below(group, path),
        _ => true,
    }
}
