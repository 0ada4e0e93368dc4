//! Tells in the log which decisions the watch withdraws, and which come back.

use crate::log::Log;
use justitia_policy::plan::{Decided, Finding, Phase};

/// What is withdrawn as far as the log says.
#[derive(Debug, Default)]
pub(crate) struct Told(Vec<Decided>);

impl Told {
    /// Tells what has changed.
    pub(crate) fn tell(&mut self, findings: &[Finding], log: &Log) {
        let withdrawn = |finding: &&Finding| finding.phase == Phase::Withdrawn;
        for finding in findings.iter().filter(withdrawn) {
            if !self.0.contains(&finding.decision) {
                self.0.push(finding.decision);
                log.warn(finding);
            }
        }
        self.0.retain(|&told| {
            let stays = findings
                .iter()
                .filter(withdrawn)
                .any(|f| f.decision == told);
            if !stays {
                log.info(format_args!("{told}: no longer withdrawn"));
            }
            stays
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use justitia_policy::plan::Loss;

    #[test]
    fn a_withdrawal_and_its_end_are_told_once_each() {
        let finding = |phase, withdrawn_s| Finding {
            decision: Decided::Limits,
            phase,
            withdrawn_s,
            rests: 5,
            loss: Some(Loss {
                least: 0.051,
                mean: 0.12,
                most: 0.19,
            }),
        };
        let (log, mut told) = (Log::captured(), Told::default());
        told.tell(&[finding(Phase::InForce, None)], &log);
        for left_s in [300.0, 299.0] {
            told.tell(&[finding(Phase::Withdrawn, Some(left_s))], &log);
        }
        for _ in 0..2 {
            told.tell(&[finding(Phase::InForce, None)], &log);
        }
        let expected = [
            "limits by weight: withdrawn for 300 s; they cost 12 % of all traffic, 5 to 19 % with a certainty of 95 %",
            "limits by weight: no longer withdrawn",
        ];
        assert_eq!(log.lines(), expected);
    }
}
