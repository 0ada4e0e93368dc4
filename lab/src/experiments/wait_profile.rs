//! `justitia lab waits`: where tasks wait on the way to page-cache pages, on a stock kernel.
//!
//! The paper's figure 3 asks this of Linux 4.19 and finds spinlocks. One guest runs the load of the
//! fileserver experiment under the conventional kernel. BPF programs follow the load's tasks through the
//! second half ([`crate::guest::wait_profile`]), [`classify`] assigns each stack a reason and [`analysis`]
//! adds them up.

pub mod analysis;
pub mod classify;

use std::path::Path;

use crate::analysis::record::RunRecord;
use crate::args::{AgentArgs, LoadArgs, RunArgs, WaitsArgs};
use crate::experiment::{Analysis, Boot, Plan};
use crate::experiments::settings::Settings;
use crate::experiments::{fileserver, weighted};
use crate::machine::{Answer, Machine};
use crate::policy::Policy;
use crate::protocol::{GuestJob, Job};
use justitia_machine::error::{LabError, Result, Say};

pub const FILE: &str = "waits.json";

/// The plan of a command line.
pub fn plan(args: &WaitsArgs, command: String) -> Result<Box<dyn Plan>> {
    Ok(Box::new(WaitProfilePlan {
        settings: settings(args)?,
        command,
        document: None,
    }))
}

struct WaitProfilePlan {
    settings: Settings,
    command: String,
    document: Option<analysis::Document>,
}

impl Plan for WaitProfilePlan {
    fn boots(&self) -> Vec<Boot> {
        vec![Boot {
            name: "waits".to_owned(),
            console: "console/waits.log".into(),
            job: Job::Experiment(job(&self.settings)),
        }]
    }

    fn machine(&self, _out: &Path, say: &mut Say) -> Result<Machine> {
        weighted::machine(&self.settings, say)
    }

    fn keep(&mut self, _boot: usize, answer: Answer) -> Result<String> {
        let report: RunRecord = answer.report()?;
        let Some(seen) = &report.waits else {
            return Err(LabError::failed(
                "the guest did not say where tasks waited",
                "build justitia and justitia-lab-guest from the same source",
            ));
        };
        let choices = &self.settings.choices;
        let facts = [
            ("clock", choices.clock.to_string()),
            ("cpus", choices.cpus.to_string()),
            ("memory_bytes", choices.memory_bytes.to_string()),
            ("disk_mb_per_s", choices.disk_mb_per_s.to_string()),
        ];
        let mut machine = answer.machine;
        machine.extend(facts.map(|(name, value)| (name.to_owned(), value)));
        let document = analysis::Document::of(&report, seen, machine, self.command.clone());
        self.document = Some(document);
        Ok(format!("{} places", seen.places.len()))
    }

    fn analysis(&self) -> Option<Box<dyn Analysis>> {
        Some(Box::new(self.document.clone()?))
    }
}

/// The fileserver experiment under the conventional kernel, once.
fn settings(args: &WaitsArgs) -> Result<Settings> {
    let run = RunArgs {
        experiment: fileserver::DESCRIPTION.name.to_owned(),
        policies: vec![Policy::Conventional.name().to_owned()],
        weights: Vec::new(),
        containers: None,
        names: Vec::new(),
        seconds: Some(args.seconds),
        runs: 1,
        output: args.output.clone(),
        guest: args.guest.clone(),
        load: LoadArgs::default(),
        agent: AgentArgs::default(),
    };
    Settings::from_args(&fileserver::DESCRIPTION, &run)
}

fn job(settings: &Settings) -> GuestJob {
    GuestJob {
        profile_waits: true,
        ..settings.job(Policy::Conventional, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::LabCommand;
    use crate::tests::fixture::command;

    fn asked(line: &str) -> Result<Settings> {
        let LabCommand::Waits(args) = command(&format!("waits --out /nowhere {line}")) else {
            panic!("not waits")
        };
        settings(&args)
    }

    #[test]
    fn the_load_is_that_of_the_fileserver_experiment() {
        let waits = asked("--seconds 120").unwrap();
        let experiment = crate::tests::fixture::settings("fileserver");
        assert_eq!(waits.containers, experiment.containers);
        assert_eq!(waits.workload, experiment.workload);
        assert_eq!(waits.choices.memory_bytes, experiment.choices.memory_bytes);
        let conventional = experiment.job(Policy::Conventional, 0);
        let traced = job(&waits);
        assert!(traced.profile_waits && !conventional.profile_waits);
        assert_eq!(traced.containers, conventional.containers);
    }
}
