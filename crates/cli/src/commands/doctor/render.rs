//! Renders the report as text: findings first, from the worst on, and all clean checks in one line.

use std::fmt::Write as _;

use justitia_doctor::{CheckReport, Finding, Report, Severity, Subject, Verdict};
use justitia_policy::color::Color;

use crate::output::{self, Page, Screen};

/// Findings shown per check; `--json` has all.
const SHOWN: usize = 5;
/// Unreadable facts shown for a check, or for several checks that lack the same facts.
const REASONS: usize = 3;

pub(crate) fn render(report: &Report, screen: Screen) -> Page {
    let mut text = Page::on(screen);
    let mut found: Vec<&CheckReport> = with(report, Verdict::Finding).collect();
    found.sort_by_key(|check| std::cmp::Reverse(check.severity));
    for check in found {
        finding(&mut text, check);
    }
    silenced(&mut text, report);
    unknown(&mut text, report);
    fine(&mut text, report);
    foot(&mut text, report);
    text
}

fn with(report: &Report, verdict: Verdict) -> impl Iterator<Item = &CheckReport> {
    let checks = report.checks.iter();
    checks.filter(move |check| check.verdict == verdict)
}

fn finding(text: &mut Page, check: &CheckReport) {
    match check.severity {
        Severity::Critical => text.paint(Color::Red, "critical"),
        Severity::Warning => text.paint(Color::Yellow, "warning"),
        Severity::Note => text.push_str("note"),
    }
    writeln!(text, ": {} ({})", check.title, check.id);
    let findings = check.findings.iter();
    let open: Vec<&Finding> = findings
        .filter(|finding| finding.silenced.is_none())
        .collect();
    for finding in open.iter().take(SHOWN) {
        let line = format!("{}: {}", subject(&finding.subject), finding.evidence);
        text.wrapped("  ", "    ", &line);
        if finding.remedy.len() > 1 {
            text.push_str(if finding.all_needed {
                "    all of:\n"
            } else {
                "    any one of:\n"
            });
        }
        for remedy in &finding.remedy {
            // Commands are not wrapped, so that users can copy them.
            writeln!(text, "    > {remedy}");
        }
    }
    if let Some(more @ 1..) = open.len().checked_sub(SHOWN) {
        writeln!(text, "  and {more} more, in --json");
    }
    text.wrapped("  consequence: ", "    ", check.consequence);
    writeln!(text, "  more: {}\n", check.documentation);
}

fn silenced(text: &mut Page, report: &Report) {
    if report.silenced_total == 0 {
        return;
    }
    writeln!(text, "silenced by the configuration");
    for check in &report.checks {
        for finding in &check.findings {
            if let Some(reason) = &finding.silenced {
                let line = format!(
                    "{} of {}: {} (because: {reason})",
                    check.id,
                    subject(&finding.subject),
                    finding.evidence
                );
                text.wrapped("  ", "    ", &line);
            }
        }
    }
    text.push_str("\n");
}

fn unknown(text: &mut Page, report: &Report) {
    if report.could_not_tell_total == 0 {
        return;
    }
    writeln!(text, "could not tell");
    // Many checks lack the same facts: print them once.
    let mut by_reason: Vec<(&[String], Vec<&str>)> = Vec::new();
    for check in &report.checks {
        let reasons = &check.could_not_tell[..];
        if reasons.is_empty() {
            continue;
        }
        match by_reason.iter_mut().find(|(same, _)| *same == reasons) {
            Some((_, ids)) => ids.push(check.id),
            None => by_reason.push((reasons, vec![check.id])),
        }
    }
    for (reasons, ids) in by_reason {
        let shown = &reasons[..reasons.len().min(REASONS)];
        let mut line = format!("{}: {}", ids.join(", "), shown.join("; "));
        if let Some(more @ 1..) = reasons.len().checked_sub(REASONS) {
            let _ = write!(line, "; and {more} more");
        }
        text.wrapped("  ", "    ", &line);
    }
    text.push_str("\n");
}

fn fine(text: &mut Page, report: &Report) {
    let fine: Vec<&str> = with(report, Verdict::Fine).map(|check| check.id).collect();
    if !fine.is_empty() {
        text.wrapped("fine: ", "  ", &fine.join(", "));
        text.push_str("\n");
    }
}

fn foot(text: &mut Page, report: &Report) {
    let host = &report.host;
    let kernel = host.kernel.as_deref().unwrap_or("of unknown release");
    let looked = match host.window_s {
        Some(window) => format!("two samples, {window:.1} s apart"),
        None => "one sample: no rates".to_owned(),
    };
    let line = format!(
        "Linux {kernel}, {} of memory, {} free, {} of swap; cgroups: {}; {looked}",
        output::bytes(host.memory_bytes),
        output::bytes(host.free_bytes),
        output::bytes(host.swap_bytes),
        host.groups_total,
    );
    text.wrapped("", "  ", &line);
    if !host.disks.is_empty() {
        let disks = host.disks.iter().map(|(name, by)| format!("{name} {by}"));
        let disks = disks.collect::<Vec<_>>().join(", ");
        text.wrapped("", "  ", &format!("weights on disks act by: {disks}"));
    }
    writeln!(
        text,
        "{} found, {} silenced, {} could not tell",
        report.findings_total, report.silenced_total, report.could_not_tell_total
    );
}

fn subject(subject: &Subject) -> String {
    match subject {
        Subject::Host => "host".to_owned(),
        Subject::Group(path) | Subject::Mount(path) => path.clone(),
        Subject::Disk(name) => format!("disk {name}"),
    }
}

#[cfg(test)]
mod tests {
    use justitia_doctor::HostReport;

    use super::*;

    fn finding(subject: Subject, evidence: &str, silenced: Option<&str>) -> Finding {
        Finding {
            subject,
            evidence: evidence.into(),
            numbers: std::collections::BTreeMap::new(),
            remedy: vec!["echo 512M > /cg/app/db/memory.low".into()],
            all_needed: false,
            silenced: silenced.map(str::to_owned),
        }
    }

    fn check(
        id: &'static str,
        severity: Severity,
        verdict: Verdict,
        findings: Vec<Finding>,
        could_not_tell: &[&str],
    ) -> CheckReport {
        CheckReport {
            id,
            title: "a title",
            severity,
            verdict,
            consequence: "a long consequence that has to be wrapped where the terminal is narrow",
            needs: "files",
            documentation: format!("docs/doctor.md#{id}"),
            findings,
            could_not_tell: could_not_tell.iter().map(ToString::to_string).collect(),
        }
    }

    fn report() -> Report {
        let group = || Subject::Group("/app/db".into());
        let many = (0..7).map(|_| finding(group(), "uses 1.0 GiB of 1.1 GiB", None));
        Report {
            verdict: Verdict::Finding,
            findings_total: 8,
            silenced_total: 1,
            could_not_tell_total: 2,
            host: HostReport {
                kernel: Some("6.12.0".into()),
                memory_bytes: Some(1 << 30),
                free_bytes: None,
                swap_bytes: Some(0),
                groups_total: 12,
                window_s: Some(1.0),
                disks: [("sda".to_owned(), "bfq")].into(),
            },
            checks: vec![
                check(
                    "a-warning",
                    Severity::Warning,
                    Verdict::Finding,
                    many.collect(),
                    &[],
                ),
                check(
                    "a-crisis",
                    Severity::Critical,
                    Verdict::Finding,
                    vec![finding(Subject::Disk("sda".into()), "is full", None)],
                    &[],
                ),
                check(
                    "a-habit",
                    Severity::Note,
                    Verdict::Silenced,
                    vec![finding(Subject::Host, "no swap", Some("so decided"))],
                    &[],
                ),
                check(
                    "a-riddle",
                    Severity::Note,
                    Verdict::CouldNotTell,
                    vec![],
                    &["a", "b", "c", "d"],
                ),
                check(
                    "another-riddle",
                    Severity::Note,
                    Verdict::CouldNotTell,
                    vec![],
                    &["a", "b", "c", "d"],
                ),
                check("a-joy", Severity::Note, Verdict::Fine, vec![], &[]),
            ],
        }
    }

    fn text(width: Option<usize>) -> Page {
        let screen = Screen {
            width,
            colors: false,
        };
        render(&report(), screen)
    }

    #[test]
    fn the_worst_finding_is_on_top_and_every_check_is_listed() {
        let text = text(None);
        assert!(
            text.starts_with("critical: a title (a-crisis)\n  disk sda: is full\n"),
            "{text}"
        );
        for words in [
            "warning: a title (a-warning)",
            "  /app/db: uses 1.0 GiB of 1.1 GiB\n    > echo 512M > /cg/app/db/memory.low\n",
            "  and 2 more, in --json\n",
            "  more: docs/doctor.md#a-warning\n",
            "  a-habit of host: no swap (because: so decided)\n",
            "  a-riddle, another-riddle: a; b; c; and 1 more\n",
            "fine: a-joy\n",
            "1.0 GiB of memory, - free, 0 B of swap; cgroups: 12; two samples, 1.0 s apart\n",
            "8 found, 1 silenced, 2 could not tell\n",
        ] {
            assert!(text.contains(words), "{words}:\n{text}");
        }
    }

    #[test]
    fn several_remedies_are_said_to_be_alternatives_or_steps() {
        let text = |remedies: usize, all_needed| {
            let mut report = report();
            report.checks.truncate(2);
            let found = &mut report.checks[1].findings[0];
            found.remedy = vec!["echo 1 > /a".into(); remedies];
            found.all_needed = all_needed;
            render(&report, Screen::FILE)
        };
        for (remedies, all_needed, words) in [
            (1, true, "is full\n    > echo 1 > /a\n  cons"),
            (
                2,
                false,
                "is full\n    any one of:\n    > echo 1 > /a\n    > echo 1 > /a\n",
            ),
            (
                2,
                true,
                "is full\n    all of:\n    > echo 1 > /a\n    > echo 1 > /a\n",
            ),
        ] {
            let text = text(remedies, all_needed);
            assert!(text.contains(words), "{words}: {text}");
        }
    }

    #[test]
    fn sentences_fit_the_terminal_and_commands_stay_whole() {
        let text = text(Some(40));
        for line in text.lines() {
            let command = line.trim_start().starts_with('>') || line.contains("more: ");
            assert!(
                command || line.chars().count() <= 40 || !line.contains("  "),
                "{line}"
            );
        }
        assert!(text.contains("\n    has to be wrapped"), "{text}");
        assert!(
            text.contains("> echo 512M > /cg/app/db/memory.low\n"),
            "{text}"
        );
    }
}
