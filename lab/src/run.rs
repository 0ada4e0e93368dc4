//! `justitia lab`: boots one guest for each policy of each run, studies what they report, writes
//! DIR/result.json and DIR/report.html and prints the table.
//!
//! Files are replaced whole, never half: an interrupted experiment leaves what was there before or
//! the result of the runs that were complete.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{json, Value};

use crate::args::{LabArgs, LabCommand, ListArgs, ReportArgs, RunArgs};
use crate::databases;
use crate::experiments::{self, Settings};
use crate::machine::{Answer, Guest, Machine};
use crate::progress::Progress;
use crate::protocol::Policy;
use crate::study::{json as layout, Document, Environment, RunRecord};
use crate::{report, table};
use justitia_machine::error::LabError;
use justitia_machine::kernels::Series;

/// Name of the record in an experiment's directory.
pub const RESULT: &str = "result.json";
/// Name of the page in an experiment's directory.
pub const REPORT: &str = "report.html";

/// Does what `justitia lab ...` asks for.
///
/// # Errors
/// One line of cause, one of remedy and an exit code; see [`LabError`].
pub fn main(args: &LabArgs) -> Result<(), LabError> {
    match &args.command {
        LabCommand::Run(run) => run_experiment(run),
        LabCommand::List(list) => list_experiments(list),
        LabCommand::Report(report) => render_again(report),
        LabCommand::Overhead(overhead) => print(&crate::overhead::run(overhead)?),
        LabCommand::Waits(waits) => print(&crate::waits::run(waits)?),
    }
}

fn run_experiment(args: &RunArgs) -> Result<(), LabError> {
    if databases::scenario::find(&args.experiment).is_some() {
        return run_databases(args);
    }
    let series: Vec<&str> = Series::ALL.iter().map(|series| series.name()).collect();
    let settings = Settings::from_args(args, &series)?;
    fs::create_dir_all(&args.out).map_err(|error| LabError::io("create", &args.out, error))?;
    probe_writable(&args.out)?;
    let mut progress = Progress::stderr();
    let machine = Machine::for_settings(&settings, &mut |line| progress.say(line))?;
    let command = command_line(std::env::args(), &args.out);
    let document = collect(&settings, &command, &args.out, machine, &mut progress)?;
    drop(progress);
    let text = if args.json {
        summary_json(&document)
    } else {
        table::render(&document)
    };
    print(&text)?;
    if !args.json {
        print(&format!("report: {}\n", args.out.join(REPORT).display()))?;
    }
    Ok(())
}

fn run_databases(args: &RunArgs) -> Result<(), LabError> {
    fs::create_dir_all(&args.out).map_err(|error| LabError::io("create", &args.out, error))?;
    probe_writable(&args.out)?;
    let command = command_line(std::env::args(), &args.out);
    let document = databases::run(args, &command)?;
    if args.json {
        return print(&document.render());
    }
    print(&databases::table::render(&document))?;
    print(&format!("report: {}\n", args.out.join(REPORT).display()))
}

/// Runs every policy of every run and writes the result after each complete run.
///
/// # Errors
/// That of the first guest that failed; the runs before it are written.
pub fn collect<W: Write>(
    settings: &Settings,
    command: &str,
    out: &Path,
    mut guest: impl Guest,
    progress: &mut Progress<W>,
) -> Result<Document, LabError> {
    let mut records: BTreeMap<Policy, Vec<RunRecord>> = BTreeMap::new();
    let mut environment = Environment {
        command: command.to_owned(),
        justitia_version: env!("CARGO_PKG_VERSION").to_owned(),
        recorded_at_s: 0,
        guest: BTreeMap::new(),
        machine: BTreeMap::new(),
        settings: settings.clone(),
    };
    let boots = settings.runs as usize * settings.policies.len();
    let mut document = None;
    for run in 0..settings.runs {
        for (i, &policy) in settings.policies.iter().enumerate() {
            let boot = run as usize * settings.policies.len() + i + 1;
            let of_runs = if settings.runs > 1 {
                format!(", run {}", run + 1)
            } else {
                String::new()
            };
            progress.step(&format!("{boot}/{boots} {}{of_runs}", policy.name()));
            progress.say("starting the guest");
            let job = settings.job(policy, run);
            let console = out
                .join("console")
                .join(format!("{}-{}.log", policy.name(), run + 1));
            let answer = guest.run(&job, &console, &mut |line| progress.say(line))?;
            check(&answer, settings, &console)?;
            environment.machine.extend(answer.machine);
            environment
                .guest
                .extend(shared_facts(&answer.report.environment));
            let record = RunRecord {
                host_busy_with_others: answer.host.busy_with_others,
                host_speed: answer.host.speed,
                ..RunRecord::of(&answer.report, run + 1, job.seed, answer.failed_boots)
            };
            progress.done(&outcome(settings, &record));
            records.entry(policy).or_default().push(record);
        }
        environment.recorded_at_s = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        environment.settings.runs = run + 1;
        let studied = Document::study(environment.clone(), records.clone());
        write_whole(&out.join(RESULT), &studied.render())?;
        write_whole(&out.join(REPORT), &report::render(&studied))?;
        document = Some(studied);
    }
    document.ok_or_else(|| LabError::usage("nothing to run", "use --runs 1 or more"))
}

/// A guest answers for every container it was given, in their order.
fn check(answer: &Answer, settings: &Settings, console: &Path) -> Result<(), LabError> {
    let asked = settings
        .containers
        .iter()
        .map(|container| container.name.as_str());
    let answered = answer
        .report
        .containers
        .iter()
        .map(|container| container.name.as_str());
    if asked.eq(answered)
        && answer
            .report
            .containers
            .iter()
            .all(|c| !c.samples.is_empty())
    {
        return Ok(());
    }
    Err(LabError::failed(
        "the guest did not report every container",
        format!("read {}", console.display()),
    ))
}

/// Facts that hold for every boot; those that differ from one policy to another stay in the log.
fn shared_facts(facts: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let own = ["prepare_s", "agent_ended_in_time", "kernel_complaints"];
    facts
        .iter()
        .filter(|(name, _)| !own.contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

fn outcome(settings: &Settings, record: &RunRecord) -> String {
    let figures = crate::study::window::figures(settings, record, settings.warmup_s);
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

fn list_experiments(args: &ListArgs) -> Result<(), LabError> {
    if args.json {
        let mut list: Vec<Value> = experiments::ALL
            .iter()
            .map(|experiment| {
                json!({
                    "name": experiment.name,
                    "claim": experiment.claim,
                    "weights": experiment.weights,
                    "policies": experiment.policies,
                    "seconds": experiment.seconds,
                    "memory_bytes": experiment.memory_bytes,
                    "disk_mb_per_s": experiment.disk_mb_per_s,
                })
            })
            .collect();
        list.extend(databases::scenario::ALL.iter().map(|scenario| {
            json!({
                "name": scenario.name,
                "claim": scenario.claim,
                "policies": scenario.policies,
                "seconds": scenario.phase_s,
                "memory_bytes": scenario.memory_bytes,
                "disk_iops": scenario.disk_iops,
            })
        }));
        return print(&layout::render(&Value::from(list)));
    }
    let mut text = String::from("experiments\n");
    for experiment in experiments::ALL {
        let policies: Vec<&str> = experiment.policies.iter().map(|p| p.name()).collect();
        let _ = writeln!(text, "  {:<17}{}", experiment.name, experiment.claim);
        let _ = writeln!(text, "  {:<17}compares {}", "", policies.join(", "));
    }
    for scenario in databases::scenario::ALL {
        let policies: Vec<&str> = scenario.policies.iter().map(|p| p.name()).collect();
        let _ = writeln!(text, "  {:<17}{}", scenario.name, scenario.claim);
        let _ = writeln!(text, "  {:<17}compares {}", "", policies.join(", "));
    }
    text += "\npolicies\n";
    for policy in Policy::all() {
        let _ = writeln!(text, "  {:<14}{}", policy.name(), policy.meaning());
    }
    print(&text)
}

fn render_again(args: &ReportArgs) -> Result<(), LabError> {
    let path = args.dir.join(RESULT);
    if let Some(document) = databases::read(&path) {
        databases::write(&args.dir, &document)?;
        return print(&databases::table::render(&document));
    }
    if !path.exists() {
        if let Some(text) = crate::waits::again(&args.dir, args.json)? {
            return print(&text);
        }
    }
    let text = fs::read_to_string(&path).map_err(|error| {
        LabError::usage(
            format!("cannot read {}: {error}", path.display()),
            "name a directory that 'justitia lab run ... --out DIR' filled",
        )
    })?;
    let document = Document::parse(&text).map_err(|why| {
        LabError::usage(
            format!("{} is not a result: {why}", path.display()),
            "run the experiment again, or use the version of Justitia that wrote it",
        )
    })?;
    let document = document.study_again(args.warmup);
    let page = args.dir.join(REPORT);
    write_whole(&page, &report::render(&document))?;
    if args.json {
        return print(&summary_json(&document));
    }
    print(&format!(
        "{}report: {}\n",
        table::render(&document),
        page.display()
    ))
}

/// The document without the raw runs, which are in result.json.
fn summary_json(document: &Document) -> String {
    let mut value = serde_json::to_value(document).unwrap_or_default();
    if let Some(policies) = value.get_mut("policies").and_then(Value::as_object_mut) {
        for policy in policies.values_mut().filter_map(Value::as_object_mut) {
            policy.remove("runs");
        }
    }
    layout::render(&value)
}

/// Writes to standard output; a reader that has left is not an error.
fn print(text: &str) -> Result<(), LabError> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(LabError::failed(
            format!("cannot print: {error}"),
            "check standard output",
        )),
        _ => Ok(()),
    }
}

/// Replaces a file: all of the new text or all of the old.
pub(crate) fn write_whole(path: &Path, text: &str) -> Result<(), LabError> {
    let dir = path.parent().unwrap_or(Path::new("."));
    let failed = |error: std::io::Error| LabError::io("write", path, error);
    let mut file = temporary_in(dir).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    file.as_file().sync_all().map_err(failed)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}

/// Minutes of measuring are not spent on a directory that cannot take the result.
fn probe_writable(dir: &Path) -> Result<(), LabError> {
    temporary_in(dir)
        .map(drop)
        .map_err(|error| LabError::io("write to", dir, error))
}

fn temporary_in(dir: &Path) -> std::io::Result<tempfile::NamedTempFile> {
    use std::os::unix::fs::PermissionsExt;
    tempfile::Builder::new()
        .prefix(".justitia-lab-")
        .permissions(fs::Permissions::from_mode(0o644))
        .tempfile_in(dir)
}

/// The command as one could type it again, with DIR in place of the directory that was named.
pub(crate) fn command_line(arguments: impl Iterator<Item = String>, out: &Path) -> String {
    let out = out.display().to_string();
    let mut words = vec!["justitia".to_owned(), "lab".to_owned()];
    for argument in arguments.skip(1) {
        let argument = match argument.strip_prefix("--out=") {
            Some(_) => "--out=DIR".to_owned(),
            None if argument == out => "DIR".to_owned(),
            None => argument,
        };
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_=.,/:%+@".contains(&b);
        if !argument.is_empty() && argument.bytes().all(plain) {
            words.push(argument);
        } else {
            words.push(format!("'{}'", argument.replace('\'', "'\\''")));
        }
    }
    words.join(" ")
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
