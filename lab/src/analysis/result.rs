//! The result of the runs of one policy.
//!
//! Top-level figures are medians over the runs, without the warm-up; `whole_run` has the same figures for the
//! whole runs.

use serde::{Deserialize, Serialize};

use super::aggregate::{median, medians};
use super::figures::Figures;
use super::record::RunRecord;
use super::responses::{self, EventFigures};
use super::run;
use super::window;
use crate::experiments::settings::Settings;
use crate::protocol::KnobDifference;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PolicyResult {
    /// Medians over the runs, without the warm-up.
    #[serde(flatten)]
    pub figures: Figures,
    /// Medians over the whole runs.
    pub whole_run: Figures,
    /// Cost of the agent; null if none ran.
    pub agent: Option<AgentFigures>,
    /// True if every knob had its prior value after every run.
    pub knobs_restored: bool,
    /// The knobs that did not.
    pub knob_differences: Vec<KnobDifference>,
    /// Responses to the experiment's events, if it has some.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub responses: Vec<EventFigures>,
    /// Runs, each with its own figures and raw series.
    pub runs: Vec<AnalyzedRun>,
}

/// Cost of the agent: median of the runs for CPU, maximum for memory.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AgentFigures {
    /// CPU time over the agent's life, percent of one core of the guest; null if unknown.
    pub cpu_percent: Option<f64>,
    pub peak_rss_mb: f64,
}

pub type AnalyzedRun = run::AnalyzedRun<Figures, RunRecord>;

impl PolicyResult {
    /// Analyzes the records of one policy.
    pub fn of(settings: &Settings, records: Vec<RunRecord>) -> Self {
        let whole: Vec<Figures> = records
            .iter()
            .map(|record| window::figures(settings, record, 0.0))
            .collect();
        let responses = responses::figures(settings, &records);
        let runs: Vec<AnalyzedRun> = records
            .into_iter()
            .map(|record| AnalyzedRun {
                figures: window::figures(settings, &record, settings.warmup_s),
                record,
            })
            .collect();
        let windows: Vec<Figures> = runs.iter().map(|run| run.figures.clone()).collect();
        let cpu_percent = median(runs.iter().filter_map(|run| {
            let alive_s = run.record.agent_alive_s(settings.measure)?;
            Some(run.record.head.agent?.cpu_s / alive_s * 100.0)
        }));
        let rss = runs
            .iter()
            .filter_map(|run| run.record.head.agent)
            .map(|cost| cost.peak_rss_bytes)
            .max();
        let mut differences: Vec<KnobDifference> = runs
            .iter()
            .flat_map(|run| run.record.knob_differences.clone())
            .collect();
        differences.sort_by(|a, b| a.knob.cmp(&b.knob));
        differences.dedup();
        Self {
            figures: medians(&windows),
            whole_run: medians(&whole),
            agent: rss.map(|rss| AgentFigures {
                cpu_percent,
                peak_rss_mb: rss as f64 / 1e6,
            }),
            knobs_restored: differences.is_empty(),
            knob_differences: differences,
            responses,
            runs,
        }
    }

    /// Boots that failed before one succeeded, over the runs.
    pub fn failed_boots(&self) -> u32 {
        self.runs
            .iter()
            .map(|run| run.record.head.failed_boots)
            .sum()
    }
}
