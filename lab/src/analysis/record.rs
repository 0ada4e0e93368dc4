//! The record of one run: the report of a guest, kept so that it can be analyzed again.
//!
//! Counters are cumulative since the start of the measured phase.

use serde::{Deserialize, Serialize};

use super::residency::FileSeries;
use super::run::Run;
use crate::experiments::Measure;
use crate::protocol::{KnobDifference, Series, TenantReport, WaitProfile};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    #[serde(flatten)]
    pub head: Run,
    /// Actual length of the measured phase.
    pub seconds: f64,
    /// Time that the guest took to prepare the files; `None` if it did not report it.
    pub prepare_s: Option<f64>,
    /// Fraction of the guest's CPU time that was not idle, 0 to 1; `None` if unknown.
    pub guest_cpu_busy: Option<f64>,
    /// Knobs whose value after the agent ended differs from that before it started.
    pub knob_differences: Vec<KnobDifference>,
    /// `justitia status --json` two thirds through.
    pub agent_status: Option<serde_json::Value>,
    /// Per container, in the order of the job.
    pub series: Vec<Series>,
    /// Residency of the watched files (sharing).
    #[serde(default)]
    pub files: Vec<FileSeries>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantReport>,
    /// Places where tasks waited; `None` unless the job requested them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits: Option<WaitProfile>,
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
