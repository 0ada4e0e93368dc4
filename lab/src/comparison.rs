//! The plan of every experiment that compares policies: each policy of each run in a guest of its own, and
//! one document of all of them.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::de::DeserializeOwned;
use serde::Serialize;

use crate::analysis::document::{environment, Environment};
use crate::analysis::run::Run;
use crate::choices::Choices;
use crate::experiment::{Analysis, Boot, Plan};
use crate::machine::{Answer, Machine};
use crate::policy::Policy;
use crate::protocol::Job;
use justitia_machine::error::LabError;

/// Facts in a guest's report that differ from boot to boot.
const OWN_FACTS: [&str; 3] = ["prepare_s", "agent_ended_in_time", "kernel_complaints"];

/// The settings of one kind of comparison, with everything that depends on them.
pub trait Compared: Clone + Serialize + 'static {
    /// A guest's answer.
    type Report: DeserializeOwned;
    /// The part of the report that is kept.
    type Record: Clone;
    /// True if a result may be written before all policies of a run are complete.
    const EACH_POLICY: bool;

    fn choices(&self) -> &Choices;
    fn choices_mut(&mut self) -> &mut Choices;
    /// The job of one boot: one policy of run `run`, counted from 0.
    fn job(&self, policy: Policy, run: u32) -> Job;
    /// See [`Plan::machine`].
    ///
    /// # Errors
    /// See [`Plan::machine`].
    fn machine(&self, out: &Path, say: &mut dyn FnMut(&str)) -> Result<Machine, LabError>;
    /// The facts in a guest's report, and the names of its containers with their number of samples.
    fn told(report: &Self::Report) -> (&BTreeMap<String, String>, Vec<(&str, usize)>);
    fn containers(&self) -> Vec<&str>;
    fn record(run: Run, report: Self::Report) -> Self::Record;
    /// The outcome of a boot, in one line.
    fn line(&self, record: &Self::Record) -> String;
    fn analysis(
        environment: Environment<Self>,
        records: BTreeMap<Policy, Vec<Self::Record>>,
    ) -> Box<dyn Analysis>;
}

/// A comparison in progress.
pub struct Comparison<S: Compared> {
    environment: Environment<S>,
    records: BTreeMap<Policy, Vec<S::Record>>,
}

impl<S: Compared> Comparison<S> {
    pub fn new(settings: S, command: String) -> Self {
        Self {
            environment: environment(settings, command),
            records: BTreeMap::new(),
        }
    }

    /// The boots in order: policy, and run counted from 0.
    fn order(&self) -> impl Iterator<Item = (Policy, u32)> + '_ {
        let choices = self.environment.settings.choices();
        (0..choices.runs).flat_map(|run| choices.policies.iter().map(move |policy| (*policy, run)))
    }
}

impl<S: Compared> Plan for Comparison<S> {
    fn boots(&self) -> Vec<Boot> {
        let settings = &self.environment.settings;
        let boot = |(policy, run): (Policy, u32)| Boot {
            name: match settings.choices().runs {
                1 => policy.name().to_owned(),
                _ => format!("{}, run {}", policy.name(), run + 1),
            },
            console: format!("console/{}-{}.log", policy.name(), run + 1).into(),
            job: settings.job(policy, run),
        };
        self.order().map(boot).collect()
    }

    fn machine(&self, out: &Path, say: &mut dyn FnMut(&str)) -> Result<Machine, LabError> {
        self.environment.settings.machine(out, say)
    }

    fn keep(&mut self, boot: usize, answer: Answer) -> Result<String, LabError> {
        let Some((policy, run)) = self.order().nth(boot) else {
            return Err(LabError::failed("no such boot", "report this as a bug"));
        };
        let report: S::Report = answer.report()?;
        let settings = &self.environment.settings;
        let (facts, answered) = S::told(&report);
        let names = answered.iter().map(|(name, _)| *name);
        if !names.eq(settings.containers()) || answered.iter().any(|(_, samples)| *samples == 0) {
            return Err(LabError::failed(
                "the guest did not report every container",
                format!("read {}", answer.console.display()),
            ));
        }
        let fact = |name: &str| facts.get(name).map_or("", String::as_str);
        let shared = facts
            .iter()
            .filter(|(name, _)| !OWN_FACTS.contains(&name.as_str()))
            .map(|(name, value)| (name.clone(), value.clone()));
        self.environment.guest.extend(shared);
        self.environment.machine.extend(answer.machine);
        self.environment.recorded_at_s = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        let run = Run {
            run: run + 1,
            seed: settings.choices().seed_of(run),
            host_busy_with_others: answer.host.busy_with_others,
            host_speed: answer.host.speed,
            failed_boots: answer.failed_boots,
            kernel_complaints: fact("kernel_complaints")
                .lines()
                .map(str::to_owned)
                .collect(),
            agent_killed: fact("agent_ended_in_time") == "false",
        };
        let record = S::record(run, report);
        let line = settings.line(&record);
        self.records.entry(policy).or_default().push(record);
        Ok(line)
    }

    fn analysis(&self) -> Option<Box<dyn Analysis>> {
        let mut environment = self.environment.clone();
        let policies = &environment.settings.choices().policies;
        let of = |policy: &Policy| self.records.get(policy).map_or(0, Vec::len);
        let complete = policies.iter().map(of).min()?;
        let all = policies.iter().map(of).sum::<usize>();
        if !S::EACH_POLICY {
            if complete == 0 || all != complete * policies.len() {
                return None;
            }
            environment.settings.choices_mut().runs = complete as u32;
        }
        Some(S::analysis(environment, self.records.clone()))
    }
}
