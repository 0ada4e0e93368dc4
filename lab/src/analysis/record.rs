//! The record of one run: everything that a guest measured, so that it can be analyzed again.
//!
//! Counters are cumulative since the start of the measured phase.

use serde::{Deserialize, Serialize};

use super::residency::FileSeries;
use super::run::Run;
use crate::experiments::Measure;
use crate::protocol::{AgentCost, GuestReport, KnobDifference, Series, TenantReport};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    #[serde(flatten)]
    pub head: Run,
    /// `uname -r`.
    pub kernel: String,
    /// Actual length of the measured phase.
    pub seconds: f64,
    /// Time that the guest took to prepare the files; `None` if it did not report it.
    pub prepare_s: Option<f64>,
    /// Fraction of the guest's CPU time that was not idle, 0 to 1; `None` if unknown.
    pub guest_cpu_busy: Option<f64>,
    /// Cost of the agent; `None` if none ran or it could not be measured.
    pub agent: Option<AgentCost>,
    /// Knobs whose value after the run differs from that before it.
    pub knob_differences: Vec<KnobDifference>,
    /// Last lines of the agent's log.
    pub agent_log: String,
    /// `justitia status --json` two thirds through.
    pub agent_status: Option<serde_json::Value>,
    pub series: Vec<Series>,
    /// Residency of the watched files.
    #[serde(default)]
    pub files: Vec<FileSeries>,
    /// Observations around a tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantReport>,
}

impl RunRecord {
    /// The time up to which all containers were sampled; `None` without samples.
    pub fn end_s(&self) -> Option<f64> {
        self.series
            .iter()
            .filter_map(Series::end_s)
            .reduce(f64::min)
    }

    /// Approximate lifetime of the agent, over which its CPU time is averaged. The agent starts with the
    /// measured phase if the measure is a window, and before the files are written if reclaim during that is
    /// part of the experiment. `None` if unknown.
    pub fn agent_alive_s(&self, measure: Measure) -> Option<f64> {
        let alive_s = match measure {
            Measure::Window | Measure::Phases => self.seconds,
            Measure::Completion | Measure::Residency => self.seconds + self.prepare_s?,
        };
        (alive_s > 0.0).then_some(alive_s)
    }

    pub fn of(head: Run, report: GuestReport) -> Self {
        Self {
            head,
            kernel: report.kernel,
            seconds: report.seconds,
            prepare_s: report
                .environment
                .get("prepare_s")
                .and_then(|text| text.parse().ok()),
            guest_cpu_busy: report.cpu_busy,
            agent: report.agent,
            knob_differences: KnobDifference::between(&report.knobs_before, &report.knobs_after),
            agent_log: report.agent_log,
            agent_status: report.agent_status,
            series: report.containers,
            files: report.files,
            tenant: report.tenant,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agents_cpu_time_is_spread_over_all_its_life_or_unknown() {
        let mut record = RunRecord {
            seconds: 6.0,
            ..crate::tests::fixture::empty_record()
        };
        assert_eq!(record.agent_alive_s(Measure::Window), Some(6.0));
        assert_eq!(record.agent_alive_s(Measure::Completion), None);
        record.prepare_s = Some(60.0);
        assert_eq!(record.agent_alive_s(Measure::Completion), Some(66.0));
    }
}
