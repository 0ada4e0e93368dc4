//! Experiments with weighted containers in the shape of all experiments.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{json, Value};

use super::{Description, Settings, CONTAINERS};
use crate::analysis::document::Run;
use crate::analysis::{window, Document, Environment, PolicyResult, RunRecord};
use crate::args::RunArgs;
use crate::choices::Choices;
use crate::comparison::{Compared, Comparison};
use crate::experiment::{Analysis, Experiment, Plan};
use crate::machine::Machine;
use crate::policy::Policy;
use crate::protocol::{GuestReport, Job};
use crate::{report, table};
use justitia_machine::error::LabError;

impl Experiment for Description {
    fn name(&self) -> &'static str {
        self.name
    }

    fn claim(&self) -> &'static str {
        self.claim
    }

    fn policies(&self) -> &'static [Policy] {
        self.policies
    }

    fn options(&self) -> Vec<&'static str> {
        [CONTAINERS, self.options].concat()
    }

    fn facts(&self) -> Value {
        json!({
            "weights": self.weights,
            "seconds": self.seconds,
            "memory_bytes": self.memory_bytes,
            "disk_mb_per_s": self.disk_mb_per_s,
        })
    }

    fn plan(&self, args: &RunArgs, command: String) -> Result<Box<dyn Plan>, LabError> {
        let settings = Settings::from_args(self, args)?;
        Ok(Box::new(Comparison::new(settings, command)))
    }

    fn read(&self, text: &str) -> Result<Box<dyn Analysis>, String> {
        Ok(Box::new(Document::parse(text)?))
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
        Document::analyze(environment, records)
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
        Box::new(self.analyze_again(warmup_s))
    }
}
