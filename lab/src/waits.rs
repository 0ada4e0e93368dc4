//! `justitia lab waits`: where tasks wait on the way to page-cache pages, on a stock kernel.
//!
//! The paper's figure 3 asks this of Linux 4.19 and finds spinlocks. One guest runs the fileserver
//! load as the experiment of that name has it, under the conventional kernel; BPF programs follow the
//! load's tasks through the second half ([`crate::guest::waits`]), [`classify`] gives each stack a
//! reason and [`study`] adds them up.

pub mod classify;
pub mod study;

use std::fs;
use std::path::Path;

use crate::args::{AgentArgs, LoadArgs, RunArgs, WaitsArgs};
use crate::experiments::{fileserver, Settings};
use crate::machine::{Guest, Machine};
use crate::progress::Progress;
use crate::protocol::{GuestJob, Policy};
use crate::run::{command_line, write_whole};
use justitia_machine::error::LabError;
use justitia_machine::kernels::Series;

/// Name of the record.
pub const RESULT: &str = "waits.json";

/// Measures and writes DIR/waits.json.
///
/// # Errors
/// One line of cause, one of remedy; see [`LabError`].
pub fn run(args: &WaitsArgs) -> Result<String, LabError> {
    let settings = settings(args)?;
    fs::create_dir_all(&args.out).map_err(|error| LabError::io("create", &args.out, error))?;
    let mut progress = Progress::stderr();
    progress.step("waits");
    let mut machine = Machine::for_settings(&settings, &mut |line| progress.say(line))?;
    let console = args.out.join("console").join("waits.log");
    let answer = machine.run(&job(&settings), &console, &mut |line| progress.say(line))?;
    let Some(seen) = &answer.report.waits else {
        return Err(LabError::failed(
            "the guest did not say where tasks waited",
            "build justitia and justitia-lab-guest from the same source",
        ));
    };
    progress.done(&format!("{} places", seen.places.len()));
    drop(progress);
    let mut facts = answer.machine;
    facts.insert("clock".to_owned(), settings.clock.to_string());
    facts.insert("cpus".to_owned(), settings.cpus.to_string());
    facts.insert("memory_bytes".to_owned(), settings.memory_bytes.to_string());
    facts.insert(
        "disk_mb_per_s".to_owned(),
        settings.disk_mb_per_s.to_string(),
    );
    let command = command_line(std::env::args(), &args.out);
    let studied = study::Document::of(&answer.report, seen, facts, command);
    let path = args.out.join(RESULT);
    write_whole(&path, &studied.render())?;
    Ok(if args.json {
        studied.summary()
    } else {
        format!("{}record: {}\n", studied.table(), path.display())
    })
}

/// Studies the record in a directory again, with the rules of today; `None`: there is none.
///
/// # Errors
/// It is not a record.
pub fn again(dir: &Path, json: bool) -> Result<Option<String>, LabError> {
    let path = dir.join(RESULT);
    let Ok(text) = fs::read_to_string(&path) else {
        return Ok(None);
    };
    let document: study::Document = serde_json::from_str(&text).map_err(|why| {
        LabError::usage(
            format!("{} is not a record of waits: {why}", path.display()),
            "run 'justitia lab waits' again, or use the version of Justitia that wrote it",
        )
    })?;
    let document = document.study();
    Ok(Some(if json {
        document.summary()
    } else {
        document.table()
    }))
}

/// The fileserver experiment under the conventional kernel, once.
fn settings(args: &WaitsArgs) -> Result<Settings, LabError> {
    let series: Vec<&str> = Series::ALL.iter().map(|series| series.name()).collect();
    let run = RunArgs {
        experiment: fileserver::DESCRIPTION.name.to_owned(),
        out: args.out.clone(),
        policies: vec![Policy::Conventional.name().to_owned()],
        weights: Vec::new(),
        containers: None,
        names: Vec::new(),
        seconds: Some(args.seconds),
        runs: 1,
        seed: args.seed,
        json: args.json,
        guest: args.guest.clone(),
        load: LoadArgs::default(),
        agent: AgentArgs::default(),
    };
    Settings::from_args(&run, &series)
}

fn job(settings: &Settings) -> GuestJob {
    GuestJob {
        trace_waits: true,
        ..settings.job(Policy::Conventional, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::LabCommand;
    use crate::fixture::command;

    fn asked(line: &str) -> Result<Settings, LabError> {
        let LabCommand::Waits(args) = command(&format!("waits --out /nowhere {line}")) else {
            panic!("not waits")
        };
        settings(&args)
    }

    #[test]
    fn the_load_is_that_of_the_fileserver_experiment() {
        let waits = asked("--seconds 120").unwrap();
        let experiment = crate::fixture::settings("fileserver");
        assert_eq!(waits.containers, experiment.containers);
        assert_eq!(waits.workload, experiment.workload);
        assert_eq!(waits.memory_bytes, experiment.memory_bytes);
        let conventional = experiment.job(Policy::Conventional, 0);
        let traced = job(&waits);
        assert!(traced.trace_waits && !conventional.trace_waits);
        assert_eq!(traced.containers, conventional.containers);
    }

    #[test]
    fn bad_values_are_refused_with_a_remedy() {
        for line in ["--seconds 1", "--kernel 5.4", "--cpus 0"] {
            let refusal = asked(line).expect_err(line);
            assert_eq!(refusal.exit_code(), 2, "{line}");
            assert!(!refusal.remedy().is_empty());
        }
    }
}
