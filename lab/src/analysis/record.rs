//! The record of one run: everything that a guest measured, so that it can be analyzed again.
//!
//! Series are stored by column, which takes a third of the size and suits a plot. Counters are cumulative
//! since the start of the measured phase.

use serde::{Deserialize, Serialize};

use super::residency::FileSeries;
use super::run::Run;
use crate::experiments::Measure;
use crate::protocol::{AgentCost, GuestReport, KnobDifference, PhaseReport, Sample, TenantReport};

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

/// One container's samples, by column.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    pub name: String,
    pub weight: u32,
    /// Operations over two seconds.
    pub slow_ops: u64,
    /// Longest operation.
    pub max_latency_us: u64,
    /// Time at which its fixed job was done; `None` for loads without an end and for those stopped before it.
    pub finished_at_s: Option<f64>,
    /// Phases that the load timed itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PhaseReport>,
    /// Time of each sample.
    pub at_s: Vec<f64>,
    /// See [`Sample`]; likewise below.
    pub read_bytes: Vec<u64>,
    /// Bytes written by the application.
    pub write_bytes: Vec<u64>,
    pub device_read_bytes: Vec<u64>,
    /// Bytes written to the device.
    pub device_write_bytes: Vec<u64>,
    pub ops: Vec<u64>,
    /// Sum of latencies.
    pub latency_us: Vec<u64>,
    pub file_bytes: Vec<u64>,
    pub anon_bytes: Vec<u64>,
    /// memory.low, `None` for max.
    pub low_bytes: Vec<Option<u64>>,
    /// memory.high, `None` for max.
    pub high_bytes: Vec<Option<u64>>,
    /// memory.pressure full total.
    pub memory_full_us: Vec<u64>,
    /// io.pressure some total.
    pub io_some_us: Vec<u64>,
}

impl Series {
    /// The columns of these samples.
    pub fn of(samples: &[Sample]) -> Self {
        fn column<T>(samples: &[Sample], field: impl Fn(&Sample) -> T) -> Vec<T> {
            samples.iter().map(field).collect()
        }
        Self {
            at_s: column(samples, |s| s.at_s),
            read_bytes: column(samples, |s| s.read_bytes),
            write_bytes: column(samples, |s| s.write_bytes),
            device_read_bytes: column(samples, |s| s.device_read_bytes),
            device_write_bytes: column(samples, |s| s.device_write_bytes),
            ops: column(samples, |s| s.ops),
            latency_us: column(samples, |s| s.latency_us),
            file_bytes: column(samples, |s| s.file_bytes),
            anon_bytes: column(samples, |s| s.anon_bytes),
            low_bytes: column(samples, |s| s.low_bytes),
            high_bytes: column(samples, |s| s.high_bytes),
            memory_full_us: column(samples, |s| s.memory_full_us),
            io_some_us: column(samples, |s| s.io_some_us),
            ..Self::default()
        }
    }

    pub fn all_bytes(&self) -> Vec<u64> {
        self.read_bytes
            .iter()
            .zip(&self.write_bytes)
            .map(|(r, w)| r + w)
            .collect()
    }

    /// A cumulative counter at a time between two samples, interpolated; `None` outside the record.
    pub fn at(&self, column: &[u64], time_s: f64) -> Option<f64> {
        let after = self.at_s.iter().position(|&t| t >= time_s)?;
        let value = *column.get(after)? as f64;
        if after == 0 {
            return (self.at_s[0] <= time_s + 1e-9).then_some(value);
        }
        let (t0, t1) = (self.at_s[after - 1], self.at_s[after]);
        let before = *column.get(after - 1)? as f64;
        if t1 <= t0 {
            return Some(value);
        }
        Some(before + (value - before) * (time_s - t0) / (t1 - t0))
    }

    pub fn end_s(&self) -> Option<f64> {
        self.at_s.last().copied()
    }
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
    fn a_counter_between_samples_is_interpolated_and_outside_unknown() {
        let series = Series {
            at_s: vec![0.0, 1.0, 3.0],
            ..Series::default()
        };
        let column = [0, 10, 30];
        assert_eq!(series.at(&column, 0.0), Some(0.0));
        assert_eq!(series.at(&column, 0.5), Some(5.0));
        assert_eq!(series.at(&column, 2.0), Some(20.0));
        assert_eq!(series.at(&column, 3.5), None);
        assert_eq!(Series::default().at(&[], 0.0), None);
    }

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
