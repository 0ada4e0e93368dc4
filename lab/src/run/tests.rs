//! Orchestration with a synthetic guest: what is written, when, and what an error leaves behind.

use super::*;
use std::collections::BTreeMap;

use crate::analysis::weighted::Document;
use crate::comparison::Comparison;
use crate::machine::Answer;
use crate::protocol::Job;
use crate::tests::fixture;
use justitia_machine::error::Say;
use justitia_machine::host::HostSeen;

/// Answers at once; fails at the boot with this number, counted from 1.
struct Synthetic {
    boots: usize,
    fail_at: usize,
    forget_a_container: bool,
    complaints: &'static str,
}

impl Synthetic {
    fn failing_at(fail_at: usize) -> Self {
        Self {
            boots: 0,
            fail_at,
            forget_a_container: false,
            complaints: "",
        }
    }
}

impl Guest for Synthetic {
    fn run(&mut self, job: &Job, console: &Path, progress: &mut Say) -> Result<Answer> {
        self.boots += 1;
        progress("measuring for 60 s");
        if self.boots == self.fail_at {
            return Err(LabError::environment(
                "the guest panicked twice",
                "read the log",
            ));
        }
        let Job::Experiment(job) = job else {
            panic!("not a job with weights")
        };
        let mut report = fixture::report(job);
        report.head.kernel_complaints = self.complaints.lines().map(str::to_owned).collect();
        report.head.agent_killed = !self.complaints.is_empty();
        if self.forget_a_container {
            report.series.pop();
        }
        Ok(Answer {
            report: serde_json::to_vec(&report).unwrap(),
            console: console.to_owned(),
            failed_boots: 0,
            host: HostSeen {
                busy_with_others: Some(0.5),
                speed: Some(700.0),
            },
            machine: BTreeMap::new(),
        })
    }
}

fn collect_in(dir: &Path, line: &str, guest: Synthetic) -> (Result<Box<dyn Analysis>>, String) {
    let mut log = Vec::new();
    let mut progress = Progress::new(&mut log, false);
    let mut plan = Comparison::new(fixture::settings(line), "justitia lab run".to_owned());
    let result = collect(&mut plan, dir, guest, &mut progress);
    drop(progress);
    (result, String::from_utf8(log).unwrap())
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_run_leaves_a_result_and_a_report_and_says_what_it_does() {
    let dir = tempfile::tempdir().unwrap();
    let line = "fileserver --weights 100,200 --seconds 60 --runs 2";
    let (result, log) = collect_in(dir.path(), line, Synthetic::failing_at(0));
    assert_eq!(names(dir.path()), [REPORT, RESULT]);
    let read = Document::parse(&fs::read_to_string(dir.path().join(RESULT)).unwrap()).unwrap();
    assert!(read.record() == result.unwrap().record());
    assert_eq!(read.policies[&Policy::Memcg].runs.len(), 2);
    let record = &read.policies[&Policy::Memcg].runs[1].record;
    assert_eq!(record.head.host_busy_with_others, Some(0.5));
    assert_eq!(record.head.host_speed, Some(700.0));
    assert!(log.contains("8/8 proportional, run 2: PV 0."), "{log}");
}

#[test]
fn kernel_complaints_and_a_killed_agent_are_kept_and_noted() {
    let dir = tempfile::tempdir().unwrap();
    let guest = Synthetic {
        complaints: "BUG: one\nWARNING: <two>",
        ..Synthetic::failing_at(0)
    };
    let line = "fileserver --weights 100,200 --policies proportional";
    let result = collect_in(dir.path(), line, guest).0.unwrap();
    let read = Document::parse(&result.record().to_string()).unwrap();
    let head = &read.policies[&Policy::Proportional].runs[0].record.head;
    assert_eq!(head.kernel_complaints, ["BUG: one", "WARNING: <two>"]);
    let table = result.table();
    for note in [
        "run 1: the kernel complained 2 times",
        "run 1: the agent did not end in time",
    ] {
        assert!(table.contains(note), "{note}: {table}");
    }
    let sound = collect_in(dir.path(), line, Synthetic::failing_at(0))
        .0
        .unwrap();
    assert!(!sound.record().to_string().contains("kernel_complaints"));
}

#[test]
fn a_failure_keeps_the_complete_runs_and_nothing_half() {
    let dir = tempfile::tempdir().unwrap();
    let line = "fileserver --weights 100,200 --seconds 60 --runs 2";
    let (result, _) = collect_in(dir.path(), line, Synthetic::failing_at(6));
    assert_eq!(result.err().expect("a failure").exit_code(), 69);
    let read = Document::parse(&fs::read_to_string(dir.path().join(RESULT)).unwrap()).unwrap();
    assert_eq!(read.environment.settings.choices.runs, 1);
    assert_eq!(read.policies[&Policy::Conventional].runs.len(), 1);

    let dir = tempfile::tempdir().unwrap();
    let (result, _) = collect_in(dir.path(), line, Synthetic::failing_at(1));
    assert!(result.is_err());
    assert_eq!(names(dir.path()), Vec::<String>::new());
}

#[test]
fn a_report_that_lacks_a_container_is_a_failure() {
    let dir = tempfile::tempdir().unwrap();
    let guest = Synthetic {
        forget_a_container: true,
        ..Synthetic::failing_at(0)
    };
    let (result, _) = collect_in(dir.path(), "reread", guest);
    assert_eq!(result.err().expect("a failure").exit_code(), 1);
}

#[test]
fn a_result_is_analyzed_again_without_a_guest() {
    let dir = tempfile::tempdir().unwrap();
    collect_in(dir.path(), "readmix --seconds 60", Synthetic::failing_at(0))
        .0
        .unwrap();
    fs::remove_file(dir.path().join(REPORT)).unwrap();
    let before = fs::read(dir.path().join(RESULT)).unwrap();
    let args = ReportArgs {
        dir: dir.path().to_owned(),
        json: false,
    };
    report_again(&args).unwrap();
    assert!(fs::read_to_string(dir.path().join(REPORT))
        .unwrap()
        .contains("first 20 s left out"));
    assert_eq!(fs::read(dir.path().join(RESULT)).unwrap(), before);
}

#[test]
fn a_directory_without_a_result_is_a_failure() {
    let dir = tempfile::tempdir().unwrap();
    let args = ReportArgs {
        dir: dir.path().to_owned(),
        json: false,
    };
    assert_eq!(report_again(&args).unwrap_err().exit_code(), 1);
    fs::write(dir.path().join(RESULT), "{}").unwrap();
    assert!(report_again(&args)
        .unwrap_err()
        .cause()
        .contains("not a result"));
}

#[test]
fn the_recorded_command_names_no_directory_of_this_machine() {
    let line = |words: &str| {
        let words = words.split('|').map(str::to_owned);
        command_line(words, Path::new("/home/me/r"))
    };
    assert_eq!(
        line("/opt/x/justitia-lab|run|reread|--out|/home/me/r|--names|a b"),
        "justitia lab run reread --out DIR --names 'a b'"
    );
    assert_eq!(
        line("justitia-lab|--out=/home/me/r"),
        "justitia lab --out=DIR"
    );
}

#[test]
fn the_summary_has_figures_but_no_series() {
    let value = fixture::document("reread").summary();
    assert!(value["policies"]["memcg"]["pv"].is_number());
    assert!(value["policies"]["memcg"]["runs"].is_null());
}
