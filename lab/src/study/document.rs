//! result.json: the whole experiment, its environment, its figures and its record.
//!
//! Top-level figures of a policy are medians over the runs, after the warm-up; `whole_run` holds
//! the same without leaving anything out. [`Document::study`] computes all of them from the
//! records, so a result can be studied again with another warm-up or a newer study.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::aggregate::{median, medians, spread, Spread};
use super::hostile::{self, HostileFigures};
use super::record::KnobDifference;
use super::{window, Figures, RunRecord};
use crate::experiments::{Measure, Settings};
use crate::protocol::Policy;

/// Version of the layout; readers refuse a newer one.
pub const SCHEMA: u32 = 1;

/// result.json.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// Version of the layout.
    pub schema: u32,
    /// Name of the experiment.
    pub experiment: String,
    /// `uname -r` of the guest.
    pub kernel: String,
    /// All that is needed to make it again.
    pub environment: Environment,
    /// Figures and record of each policy.
    pub policies: BTreeMap<Policy, PolicyResult>,
    /// What a hostile tenant did to the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostile: Option<HostileFigures>,
}

/// Where and how an experiment was run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// The command that made it.
    pub command: String,
    /// Version of Justitia.
    pub justitia_version: String,
    /// When it ended, seconds since 1970.
    pub recorded_at_s: u64,
    /// Facts the guest read back.
    pub guest: BTreeMap<String, String>,
    /// Facts about the virtual machine.
    pub machine: BTreeMap<String, String>,
    /// Every choice, with its default resolved.
    #[serde(flatten)]
    pub settings: Settings,
}

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
            || environment.settings.kernel_series.clone(),
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

    /// Policies in the order they were run.
    pub fn in_order(&self) -> impl Iterator<Item = (Policy, &PolicyResult)> {
        self.environment
            .settings
            .policies
            .iter()
            .filter_map(|policy| self.policies.get(policy).map(|result| (*policy, result)))
    }

    /// Reads result.json.
    ///
    /// # Errors
    /// Says where the text is not a result.
    pub fn parse(text: &str) -> Result<Self, String> {
        let document: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if document.schema > SCHEMA {
            return Err(format!(
                "its schema is {}, newer than {SCHEMA}",
                document.schema
            ));
        }
        Ok(document)
    }

    /// Text of result.json.
    pub fn render(&self) -> String {
        super::json::render(&serde_json::to_value(self).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn a_result_reads_back_as_it_was_written_and_studies_the_same() {
        let document = fixture::document("fileserver --weights 100,200,400 --seconds 50 --runs 3");
        let read = Document::parse(&document.render()).unwrap();
        assert!(read.render() == document.render());
        assert!(read.clone().study_again(None).render() == document.render());
        let other = read.study_again(Some(5.0));
        assert_eq!(other.policies[&Policy::Memcg].figures.from_s, Some(5.0));
    }

    #[test]
    fn the_contracts_keys_are_where_the_contract_has_them() {
        let document = fixture::document("fileserver --weights 100,200 --seconds 50");
        let value: serde_json::Value = serde_json::from_str(&document.render()).unwrap();
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
        let text = fixture::document("reread")
            .render()
            .replace("\"schema\": 1", "\"schema\": 99");
        assert!(Document::parse(&text).unwrap_err().contains("99"));
    }
}
