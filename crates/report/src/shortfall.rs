//! Reasons why a group gets less bandwidth than its weight promises, as far as the agent's report has them.

use justitia_policy::config::Mode;
use justitia_policy::plan::{Phase, Watched};

use crate::status::{GroupStatus, Report, VerdictStatus};

/// A group below this part of its ideal bandwidth is below its share. The loop leaves smaller errors alone for a while.
const BELOW: f64 = 0.9;
/// A group that holds less than this part of its entitlement does not fill it.
const USED: f64 = 0.8;

/// The reasons, the most specific first; none if the group is not below its share, or its bandwidth is not compared.
pub fn reasons(report: &Report, group: &GroupStatus) -> Vec<String> {
    let Some(verdict) = &group.verdict else {
        return Vec::new();
    };
    if !verdict.contending {
        return idle(report, verdict).into_iter().collect();
    }
    if verdict.of_ideal.is_none_or(|of_ideal| of_ideal >= BELOW) {
        return Vec::new();
    }
    let mut reasons = hindrances(report, group, verdict);
    if reasons.is_empty() {
        reasons.push(loop_state(group, verdict));
    }
    reasons
}

/// A group that does not contend is below its share if others contend and get more for their weight.
fn idle(report: &Report, verdict: &VerdictStatus) -> Option<String> {
    let verdicts = || {
        report
            .groups
            .iter()
            .filter_map(|group| group.verdict.as_ref())
    };
    verdicts().find(|other| other.contending)?;
    let all: f64 = verdicts()
        .filter_map(|one| one.transferable_bytes_per_s)
        .sum();
    let own = verdict.transferable_bytes_per_s?;
    (own < BELOW * verdict.proportion * all).then(|| {
        "it does not contend: its tasks hardly wait for the disk or for memory, so others use the rest".to_owned()
    })
}

fn hindrances(report: &Report, group: &GroupStatus, verdict: &VerdictStatus) -> Vec<String> {
    let mut reasons = Vec::new();
    if verdict.cap_bytes.is_some() {
        let color = verdict.color;
        reasons.push(format!(
            "it is {color} and gives page cache to groups that are worse off"
        ));
    }
    let foreign = group.knobs.iter().filter(|knob| knob.foreign);
    reasons.extend(foreign.map(|knob| format!("another program set its {}", knob.knob)));
    let withdrawn = |what| {
        let mut findings = report.watch.iter();
        findings.any(|finding| finding.decision == what && finding.phase == Phase::Withdrawn)
    };
    let of = [Watched::IoCost, Watched::Gains, Watched::Limits];
    let of = of.into_iter().filter(|what| withdrawn(*what));
    reasons.extend(of.map(|what| format!("the agent has withdrawn its {what}, see watch")));
    if report.mode != Mode::Proportional {
        reasons.push("the mode in force does not correct bandwidth".into());
    }
    reasons
}

/// The state of the feedback for a group that nothing known hinders.
fn loop_state(group: &GroupStatus, verdict: &VerdictStatus) -> String {
    let used = USED * verdict.entitlement_bytes as f64;
    let holds = group.file_bytes;
    if holds.is_some_and(|holds| (holds as f64) < used) {
        return "it holds less page cache than its share".to_owned();
    }
    format!(
        "nothing known hinders it; the feedback's gain on its share is {:.2}",
        verdict.gain
    )
}

#[cfg(test)]
mod tests {
    use justitia_policy::plan::{Finding, Knob};

    use super::*;
    use crate::example::tick;
    use crate::status::Setup;

    /// The example's report. Its first group contends, and `change` is made to it.
    fn said(change: impl FnOnce(&mut Report)) -> Vec<String> {
        let mut report = Report::new(&Setup::default(), &tick(100, 3));
        let group = &mut report.groups[0];
        for knob in &mut group.knobs {
            knob.foreign = false;
        }
        let verdict = group.verdict.as_mut().unwrap();
        (verdict.contending, verdict.of_ideal, verdict.cap_bytes) = (true, Some(0.5), None);
        group.file_bytes = Some(verdict.entitlement_bytes);
        report.watch.clear();
        change(&mut report);
        reasons(&report, &report.groups[0])
    }

    fn first(report: &mut Report) -> &mut VerdictStatus {
        report.groups[0].verdict.as_mut().unwrap()
    }

    #[track_caller]
    fn assert_only(reasons: &[String], words: &str) {
        assert!(
            matches!(reasons, [only] if only.contains(words)),
            "{reasons:?} without {words:?}"
        );
    }

    #[test]
    fn a_group_at_its_share_or_not_compared_has_no_reason() {
        assert_eq!(said(|report| first(report).of_ideal = Some(0.95)), [""; 0]);
        assert_eq!(said(|report| first(report).of_ideal = None), [""; 0]);
        assert_eq!(said(|report| report.groups[0].verdict = None), [""; 0]);
    }

    #[test]
    fn each_hindrance_is_named() {
        assert_only(
            &said(|report| first(report).cap_bytes = Some(1)),
            "gives page cache",
        );
        assert_only(
            &said(|report| report.mode = Mode::Justitia),
            "does not correct",
        );
        let foreign = said(|report| {
            let knobs = &mut report.groups[0].knobs;
            knobs
                .iter_mut()
                .find(|of| of.knob == Knob::MemoryHigh)
                .unwrap()
                .foreign = true;
        });
        assert_only(&foreign, "another program set its memory.high");
        let withdrawn = said(|report| {
            report.watch = vec![Finding {
                decision: Watched::Gains,
                phase: Phase::Withdrawn,
                withdrawn_s: Some(60.0),
                comparisons: 2,
                loss: None,
            }];
        });
        assert_only(&withdrawn, "withdrawn its gains in block weights");
    }

    #[test]
    fn without_a_hindrance_the_state_of_the_feedback_is_named() {
        assert_only(&said(|_| ()), "gain ");
        assert_only(
            &said(|report| report.groups[0].file_bytes = Some(0)),
            "less page cache than its share",
        );
    }

    #[test]
    fn an_idle_group_has_a_reason_only_while_others_contend_and_get_more() {
        let idle = |own: f64, others: bool| {
            said(|report| {
                for (i, group) in report.groups.iter_mut().enumerate() {
                    let verdict = group.verdict.as_mut().unwrap();
                    verdict.contending = others && i > 0;
                    verdict.transferable_bytes_per_s = Some(if i > 0 { 10e6 } else { own });
                }
            })
        };
        assert_only(&idle(1e6, true), "does not contend");
        assert_eq!(idle(1e6, false), [""; 0]);
        assert_eq!(idle(1e9, true), [""; 0]);
    }
}
