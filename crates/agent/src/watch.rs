//! Logs which kinds of decisions the watch withdraws, and the end of each withdrawal.

use crate::log::Log;
use justitia_policy::plan::{Finding, Phase, Watched};

/// Kinds whose withdrawal the log has reported.
#[derive(Debug, Default)]
pub(crate) struct Withdrawn(Vec<Watched>);

impl Withdrawn {
    /// Logs changes since the last step.
    pub(crate) fn log(&mut self, findings: &[Finding], log: &Log) {
        let mut withdrawn = Vec::new();
        for finding in findings.iter().filter(|f| f.phase == Phase::Withdrawn) {
            withdrawn.push(finding.decision);
            if !self.0.contains(&finding.decision) {
                log.warn(finding);
            }
        }
        for kind in self.0.iter().filter(|kind| !withdrawn.contains(kind)) {
            log.info(format_args!("{kind}: no longer withdrawn"));
        }
        self.0 = withdrawn;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use justitia_policy::plan::Loss;

    #[test]
    fn the_log_reports_a_withdrawal_and_its_end_once_each() {
        let finding = |phase, withdrawn_s| Finding {
            decision: Watched::Limits,
            phase,
            withdrawn_s,
            comparisons: 5,
            loss: Some(Loss {
                least: 0.051,
                mean: 0.12,
                most: 0.19,
            }),
        };
        let (log, mut withdrawn) = (Log::captured(), Withdrawn::default());
        withdrawn.log(&[finding(Phase::InForce, None)], &log);
        for left_s in [300.0, 299.0] {
            withdrawn.log(&[finding(Phase::Withdrawn, Some(left_s))], &log);
        }
        for _ in 0..2 {
            withdrawn.log(&[finding(Phase::InForce, None)], &log);
        }
        let expected = [
            "limits by weight: withdrawn for 300 s; cost 12 % of all traffic (95 % interval: 5 to 19 %)",
            "limits by weight: no longer withdrawn",
        ];
        assert_eq!(log.lines(), expected);
    }
}
