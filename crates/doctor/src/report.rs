//! Builds the report from the outcomes: applies silences, restricts it to a group, and derives verdicts.

use std::collections::BTreeMap;

use justitia_cgroup::survey::{Disk, Unread};
use serde::Serialize;

use crate::check::{Check, Finding, Outcome, Severity, Subject};
use crate::checks::CHECKS;
use crate::facts::{is_within, Facts};
use crate::Silence;

/// Page with the explanation of the checks, below the documentation's root; the ID is the anchor.
const PAGE: &str = "docs/doctor.md";

/// The result of one check or of all. A check with unknown facts is never [`Verdict::Fine`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// At least one finding is not silenced.
    Finding,
    /// No finding but silenced ones, and some facts could not be read.
    CouldNotTell,
    /// All findings are silenced.
    Silenced,
    /// Nothing was found, and all facts could be read.
    Fine,
}

/// A [`Check`] and its result.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CheckReport {
    pub id: &'static str,
    pub title: &'static str,
    pub severity: Severity,
    pub verdict: Verdict,
    pub consequence: &'static str,
    pub needs: &'static str,
    /// Page and anchor of its section.
    pub documentation: String,
    pub findings: Vec<Finding>,
    /// The facts that could not be read, each with the reason.
    pub could_not_tell: Vec<String>,
}

/// Key figures of the host; `None`: unknown.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HostReport {
    /// Release of the kernel.
    pub kernel: Option<String>,
    pub memory_bytes: Option<u64>,
    pub free_bytes: Option<u64>,
    pub swap_bytes: Option<u64>,
    /// Cgroups that were read.
    pub groups_total: usize,
    /// Time between the two reads.
    pub window_s: Option<f64>,
    /// The mechanism that serves each disk by weight: `bfq`, `io.cost` or `none`. Disks for which it is
    /// unknown are left out.
    pub disks: BTreeMap<String, &'static str>,
}

/// The doctor's report.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The worst verdict of all checks.
    pub verdict: Verdict,
    /// Findings that are not silenced.
    pub findings_total: usize,
    /// Findings that are silenced.
    pub silenced_total: usize,
    /// Checks that could not tell.
    pub could_not_tell_total: usize,
    pub host: HostReport,
    /// All checks, in the order of [`CHECKS`].
    pub checks: Vec<CheckReport>,
}

/// Runs all checks over the facts. With a group, the report has only the findings that concern it: about the
/// host, the group, its ancestors and its descendants.
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
    let mut findings = outcome.findings;
    findings.retain(|finding| group.is_none_or(|group| concerns(&finding.subject, group)));
    for finding in &mut findings {
        let mut silences = silences.iter();
        let silence = silences.find(|silence| silence.covers(check.id, &finding.subject));
        finding.silenced = silence.map(|silence| silence.reason.clone());
    }
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

fn concerns(subject: &Subject, group: &str) -> bool {
    match subject {
        Subject::Group(path) => is_within(path, group) || is_within(group, path),
        _ => true,
    }
}
