//! The document of an experiment with weighted containers, computed from its records. A result can be
//! analyzed again with another warm-up or newer rules.

use std::collections::BTreeMap;

use super::document::{self, SCHEMA};
use super::hostile;
use super::record::RunRecord;
use super::result::PolicyResult;
use super::run::{self, Records};
use crate::experiments::settings::Settings;
use crate::policy::Policy;

pub type Document = document::Document<Settings, PolicyResult>;
pub type Environment = document::Environment<Settings>;

impl Document {
    /// Analyzes the records of an experiment.
    pub fn analyze(environment: Environment, records: Records<RunRecord>) -> Self {
        let kernel = records.values().flatten().next().map_or_else(
            || environment.settings.choices.kernel_series.to_string(),
            |run| run.head.kernel.clone(),
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

    /// Analyzes the same records again.
    #[must_use]
    pub fn analyze_again(self) -> Self {
        let records = run::records(self.policies, |result| result.runs);
        Self::analyze(self.environment, records)
    }

    /// Policies in the order of the runs.
    pub fn in_order(&self) -> impl Iterator<Item = (Policy, &PolicyResult)> {
        let policies = self.environment.settings.choices.policies.iter();
        policies.filter_map(|policy| self.policies.get(policy).map(|result| (*policy, result)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Analysis;
    use crate::tests::fixture;

    #[test]
    fn a_result_reads_back_as_it_was_written_and_analyzes_the_same() {
        let document = fixture::document("fileserver --weights 100,200,400 --seconds 50 --runs 3");
        let read = Document::parse(&document.record().to_string()).unwrap();
        assert!(read.record() == document.record());
        assert!(read.analyze_again().record() == document.record());
    }

    #[test]
    fn the_contracts_keys_are_where_the_contract_has_them() {
        let document = fixture::document("fileserver --weights 100,200 --seconds 50");
        let value: serde_json::Value = document.record();
        assert_eq!(value["experiment"], "fileserver");
        assert!(value["kernel"].is_string());
        assert_eq!(value["environment"]["lru"], "kernel");
        assert_eq!(value["environment"]["scheduler"], "bfq");
        let policy = &value["policies"]["proportional"];
        for key in "pv share_error utility total_mb_per_s pv_writes hit_ratio".split(' ') {
            assert!(policy[key].is_number(), "{key}");
            assert!(policy["whole_run"][key].is_number(), "whole_run {key}");
        }
        assert_eq!(policy["containers"][1]["weight"], 200);
        assert!(policy["containers"][1]["mb_per_s"].is_number());
        assert_eq!(policy["knobs_restored"], true);
        assert!(policy["agent"]["cpu_percent"].is_number());
        let times = &policy["runs"][0]["series"][0]["at_s"];
        assert_eq!(times.as_array().unwrap().len(), 51);
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
