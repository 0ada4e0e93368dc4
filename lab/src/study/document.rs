//! What the runs of a policy come to, and the document of all policies.
//!
//! Top-level figures of a policy are medians over the runs, after the warm-up; `whole_run` holds
//! the same without leaving anything out. [`Document::study`] computes all of them from the
//! records, so a result can be studied again with another warm-up or a newer study.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::aggregate::{median, medians, spread, Spread};
use super::hostile;
use super::record::KnobDifference;
use super::{window, Figures, RunRecord};
use crate::choices::Choices;
use crate::comparison::{self, Compared, Run, SCHEMA};
use crate::experiment::Analysis;
use crate::experiments::{Measure, Settings};
use crate::machine::Machine;
use crate::policy::Policy;
use crate::protocol::{GuestReport, Job};
use crate::{report, table};
use justitia_machine::error::LabError;

/// result.json of an experiment with weights.
pub type Document = comparison::Document<Settings, PolicyResult>;
/// Where and how it was run.
pub type Environment = comparison::Environment<Settings>;

/// One policy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PolicyResult {
    /// Medians over the runs, after the warm-up.
    #[serde(flatten)]
    pub figures: Figures,
    /// Spread of the same over the runs.
    pub spread: Spread,
    /// Medians over the runs, nothing left out.
    pub whole_run: Figures,
    /// What the agent cost; null if none ran.
    pub agent: Option<AgentFigures>,
    /// Every knob had its prior value after every run.
    pub knobs_restored: bool,
    /// Those that had not.
    pub knob_differences: Vec<KnobDifference>,
    /// Runs, each with its own figures and raw series.
    pub runs: Vec<StudiedRun>,
}

/// Cost of the agent: median of the runs for CPU, maximum for memory.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AgentFigures {
    /// CPU time over the agent's life, percent of one core of the guest; null if not known.
    pub cpu_percent: Option<f64>,
    /// Peak resident memory, 10^6 bytes.
    pub peak_rss_mb: f64,
}

/// One run with the figures of its window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StudiedRun {
    /// Figures after the warm-up.
    pub figures: Figures,
    /// What was measured.
    #[serde(flatten)]
    pub record: RunRecord,
}

impl PolicyResult {
    /// Studies the records of one policy.
    pub fn of(settings: &Settings, records: Vec<RunRecord>) -> Self {
        let whole: Vec<Figures> = records
            .iter()
            .map(|record| window::figures(settings, record, 0.0))
            .collect();
        let runs: Vec<StudiedRun> = records
            .into_iter()
            .map(|record| StudiedRun {
                figures: window::figures(settings, &record, settings.warmup_s),
                record,
            })
            .collect();
        let windows: Vec<Figures> = runs.iter().map(|run| run.figures.clone()).collect();
        let cpu_percent = median(runs.iter().filter_map(|run| {
            let alive_s = run.record.agent_alive_s(settings.measure)?;
            Some(run.record.agent?.cpu_s / alive_s * 100.0)
        }));
        let rss = runs
            .iter()
            .filter_map(|run| run.record.agent)
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
            spread: spread(&windows),
            whole_run: medians(&whole),
            agent: rss.map(|rss| AgentFigures {
                cpu_percent,
                peak_rss_mb: rss as f64 / 1e6,
            }),
            knobs_restored: differences.is_empty(),
            knob_differences: differences,
            runs,
        }
    }
}

impl Document {
    /// Studies the records of an experiment.
    pub fn study(environment: Environment, records: BTreeMap<Policy, Vec<RunRecord>>) -> Self {
        let kernel = records.values().flatten().next().map_or_else(
            || environment.settings.choices.kernel_series.clone(),
            |run| run.kernel.clone(),
        );
        let policies: BTreeMap<Policy, PolicyResult> = records
            .into_iter()
            .map(|(policy, records)| (policy, PolicyResult::of(&environment.settings, records)))
            .collect();
        let hostile = hostile::figures(&environment.settings, &policies);
        Self {
            schema: SCHEMA,
            experiment: environment.settings.experiment.clone(),
            kernel,
            environment,
            policies,
            hostile,
        }
    }

    /// Studies the same records again, with another warm-up if one is given.
    #[must_use]
    pub fn study_again(self, warmup_s: Option<f64>) -> Self {
        let mut environment = self.environment;
        if let (Some(warmup_s), Measure::Window) = (warmup_s, environment.settings.measure) {
            environment.settings.warmup_s = warmup_s;
        }
        let records = self
            .policies
            .into_iter()
            .map(|(policy, result)| {
                (
                    policy,
                    result.runs.into_iter().map(|run| run.record).collect(),
                )
            })
            .collect();
        Self::study(environment, records)
    }
}

impl Compared for Settings {
    type Report = GuestReport;
    type Record = RunRecord;
    type Result = PolicyResult;
    const EACH_POLICY: bool = false;

    fn choices(&self) -> &Choices {
        &self.choices
    }

    fn choices_mut(&mut self) -> &mut Choices {
        &mut self.choices
    }

    fn job(&self, policy: Policy, run: u32) -> Job {
        Job::Experiment(self.job(policy, run))
    }

    fn machine(&self, _out: &Path, say: &mut dyn FnMut(&str)) -> Result<Machine, LabError> {
        Machine::for_settings(self, say)
    }

    fn told(report: &GuestReport) -> (&BTreeMap<String, String>, Vec<(&str, usize)>) {
        let containers = report.containers.iter();
        let told = containers.map(|c| (c.name.as_str(), c.samples.len()));
        (&report.environment, told.collect())
    }

    fn containers(&self) -> Vec<&str> {
        self.containers.iter().map(|c| c.name.as_str()).collect()
    }

    fn record(run: Run, report: GuestReport) -> RunRecord {
        RunRecord::of(run, &report)
    }

    fn line(&self, record: &RunRecord) -> String {
        let figures = window::figures(self, record, self.warmup_s);
        let known = |value: Option<f64>, digits: usize| {
            value.map_or_else(|| "unknown".to_owned(), |value| format!("{value:.digits$}"))
        };
        if let Some(shared) = figures.files.first() {
            let part = shared.least_part().map(|part| part * 100.0);
            return format!(
                "at least {} % of the {} stayed",
                known(part, 0),
                shared.name
            );
        }
        format!(
            "PV {}, share error {}, total {} MB/s",
            known(figures.pv, 2),
            known(figures.share_error, 3),
            known(figures.total_mb_per_s, 1)
        )
    }

    fn document(environment: Environment, records: BTreeMap<Policy, Vec<RunRecord>>) -> Document {
        Document::study(environment, records)
    }

    fn analysis(document: Document) -> Box<dyn Analysis> {
        Box::new(document)
    }
}

impl Analysis for Document {
    fn record(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    /// The document without the raw runs.
    fn summary(&self) -> Value {
        let mut value = self.record();
        if let Some(policies) = value.get_mut("policies").and_then(Value::as_object_mut) {
            for policy in policies.values_mut().filter_map(Value::as_object_mut) {
                policy.remove("runs");
            }
        }
        value
    }

    fn page(&self) -> Option<String> {
        Some(report::render(self))
    }

    fn table(&self) -> String {
        table::render(self)
    }

    fn again(self: Box<Self>, warmup_s: Option<f64>) -> Box<dyn Analysis> {
        Box::new(self.study_again(warmup_s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn a_result_reads_back_as_it_was_written_and_studies_the_same() {
        let document = fixture::document("fileserver --weights 100,200,400 --seconds 50 --runs 3");
        let read = Document::parse(&document.record().to_string()).unwrap();
        assert!(read.record() == document.record());
        assert!(read.clone().study_again(None).record() == document.record());
        let other = read.study_again(Some(5.0));
        assert_eq!(other.policies[&Policy::Memcg].figures.from_s, Some(5.0));
    }

    #[test]
    fn the_contracts_keys_are_where_the_contract_has_them() {
        let document = fixture::document("fileserver --weights 100,200 --seconds 50");
        let value: serde_json::Value = document.record();
        assert_eq!(value["experiment"], "fileserver");
        assert!(value["kernel"].is_string());
        assert_eq!(value["environment"]["lru"], "classic");
        assert_eq!(value["environment"]["scheduler"], "bfq");
        let policy = &value["policies"]["proportional"];
        for key in [
            "pv",
            "share_error",
            "utility",
            "total_mb_per_s",
            "pv_writes",
            "hit_ratio",
        ] {
            assert!(policy[key].is_number(), "{key}");
            assert!(policy["whole_run"][key].is_number(), "whole_run {key}");
        }
        assert_eq!(policy["containers"][1]["weight"], 200);
        assert!(policy["containers"][1]["mb_per_s"].is_number());
        assert_eq!(policy["knobs_restored"], true);
        assert!(policy["agent"]["cpu_percent"].is_number());
        assert!(policy["spread"]["pv"]["max"].is_number());
        assert_eq!(
            policy["runs"][0]["series"][0]["at_s"]
                .as_array()
                .unwrap()
                .len(),
            51
        );
        assert!(value["policies"]["conventional"]["agent"].is_null());
    }

    #[test]
    fn a_newer_layout_is_refused() {
        let mut value = fixture::document("reread").record();
        value["schema"] = 99.into();
        let text = value.to_string();
        assert!(Document::parse(&text).unwrap_err().contains("99"));
    }
}
