//! The plan of every experiment that compares policies: each policy of each run in a guest of its own, and
//! one document of all of them.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::de::DeserializeOwned;
use serde::Serialize;

use crate::analysis::document::{environment, Environment};
use crate::analysis::run::{Records, Run};
use crate::choices::Choices;
use crate::experiment::{Analysis, Boot, Plan};
use crate::machine::{Answer, Machine};
use crate::policy::Policy;
use crate::protocol::Job;
use justitia_machine::error::{LabError, Result, Say};

/// The settings of one kind of comparison, with everything that depends on them.
pub trait Compared: Clone + Serialize + 'static {
    /// A guest's report, which is kept.
    type Record: Clone + DeserializeOwned;
    /// True if a result may be written before all policies of a run are complete.
    const EACH_POLICY: bool;

    fn choices(&self) -> &Choices;
    fn choices_mut(&mut self) -> &mut Choices;
    /// The job of one boot: one policy of run `run`, counted from 0.
    fn job(&self, policy: Policy, run: u32) -> Job;
    /// See [`Plan::machine`].
    fn machine(&self, out: &Path, say: &mut Say) -> Result<Machine>;
    /// True if the guest reported samples of every container.
    fn is_complete(&self, record: &Self::Record) -> bool;
    fn head(record: &mut Self::Record) -> &mut Run;
    /// The outcome of a boot, in one line.
    fn line(&self, record: &Self::Record) -> String;
    fn analysis(
        environment: Environment<Self>,
        records: Records<Self::Record>,
    ) -> Box<dyn Analysis>;
}

pub struct Comparison<S: Compared> {
    environment: Environment<S>,
    records: Records<S::Record>,
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

    fn machine(&self, out: &Path, say: &mut Say) -> Result<Machine> {
        self.environment.settings.machine(out, say)
    }

    fn keep(&mut self, boot: usize, answer: Answer) -> Result<String> {
        let Some((policy, run)) = self.order().nth(boot) else {
            return Err(LabError::failed("no such boot", "report this as a bug"));
        };
        let mut record: S::Record = answer.report()?;
        let settings = &self.environment.settings;
        if !settings.is_complete(&record) {
            return Err(LabError::failed(
                "the guest did not report every container",
                format!("read {}", answer.console.display()),
            ));
        }
        let head = S::head(&mut record);
        head.run = run + 1;
        head.seed = settings.choices().seed_of(run);
        head.host_busy_with_others = answer.host.busy_with_others;
        head.host_speed = answer.host.speed;
        head.failed_boots = answer.failed_boots;
        self.environment.guest.append(&mut head.environment);
        self.environment.machine.extend(answer.machine);
        self.environment.recorded_at_s = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
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
