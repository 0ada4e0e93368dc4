//! `justitia lab`: boots a guest for each job of an experiment, analyzes the reports, writes the record and
//! the page and prints the table.
//!
//! Files are replaced atomically: an interrupted experiment leaves the previous result, or the result of the
//! runs that were complete.

use std::fmt::Write as _;
use std::fs;
use std::io::Write;
use std::path::Path;

use serde_json::{json, Value};

use crate::args::{LabArgs, LabCommand, ListArgs, OutputArgs, ReportArgs};
use crate::experiment::{read, Analysis, Plan, Read, RESULT};
use crate::experiments::{overhead, wait_profile};
use crate::machine::Guest;
use crate::policy::Policy;
use crate::progress::Progress;
use crate::registry;
use justitia_machine::error::{LabError, Result};
use justitia_report::{say, Exit};

/// Name of the page in an experiment's directory.
pub const REPORT: &str = "report.html";

/// Executes `justitia lab ...`. The error is one line of cause, one of remedy and an exit code; see [`LabError`].
pub fn main(args: &LabArgs) -> Result<()> {
    let command = |output: &OutputArgs| command_line(std::env::args(), &output.out);
    match &args.command {
        LabCommand::Run(run) => perform(registry::plan(run, command(&run.output))?, &run.output),
        LabCommand::Overhead(args) => perform(overhead::plan(args)?, &args.output),
        LabCommand::Waits(args) => perform(
            wait_profile::plan(args, command(&args.output))?,
            &args.output,
        ),
        LabCommand::List(list) => list_experiments(list),
        LabCommand::Report(report) => report_again(report),
    }
}

/// Executes all jobs of a plan in QEMU and prints the outcome.
fn perform(mut plan: Box<dyn Plan>, output: &OutputArgs) -> Result<()> {
    let out = output.out.as_path();
    // Minutes of measuring follow: find out now whether the results can be written.
    fs::create_dir_all(out)
        .and_then(|()| temporary_in(out))
        .map_err(|error| {
            file_error("write to", out, &error, "name another directory with --out")
        })?;
    let mut progress = Progress::stderr();
    let guest = plan.machine(out, &mut |line| progress.say(line))?;
    let analysis = collect(&mut *plan, out, guest, &mut progress)?;
    drop(progress);
    show(&*analysis, out, output.json)
}

/// Executes all jobs of a plan and writes each new analysis. The error is that of the first guest that
/// failed; what was analyzed before it is written.
pub fn collect<W: Write>(
    plan: &mut dyn Plan,
    out: &Path,
    mut guest: impl Guest,
    progress: &mut Progress<W>,
) -> Result<Box<dyn Analysis>> {
    let boots = plan.boots();
    let mut last = None;
    for (number, boot) in boots.iter().enumerate() {
        progress.step(&format!("{}/{} {}", number + 1, boots.len(), boot.name));
        progress.say("starting the guest");
        let console = out.join(&boot.console);
        let answer = guest.run(&boot.job, &console, &mut |line| progress.say(line))?;
        progress.done(&plan.keep(number, answer)?);
        if let Some(analysis) = plan.analysis() {
            write_whole(
                &out.join(analysis.file()),
                &format!("{}\n", analysis.record()),
            )?;
            write_page(&*analysis, out)?;
            last = Some(analysis);
        }
    }
    last.ok_or_else(|| LabError::usage("nothing to run", "use --runs 1 or more"))
}

fn write_page(analysis: &dyn Analysis, out: &Path) -> Result<()> {
    match analysis.page() {
        Some(page) => write_whole(&out.join(REPORT), &page),
        None => Ok(()),
    }
}

/// Prints the figures and the paths of further output.
fn show(analysis: &dyn Analysis, out: &Path, json: bool) -> Result<()> {
    if json {
        return print(&format!("{:#}\n", analysis.summary()));
    }
    let (what, file) = match analysis.page() {
        Some(_) => ("report", REPORT),
        None => ("record", analysis.file()),
    };
    let path = out.join(file);
    print(&format!("{}{what}: {}\n", analysis.table(), path.display()))
}

fn list_experiments(args: &ListArgs) -> Result<()> {
    if args.json {
        let list = registry::all().map(|experiment| {
            json!({
                "name": experiment.name(),
                "claim": experiment.claim(),
                "policies": experiment.policies(),
            })
        });
        return print(&format!("{:#}\n", list.collect::<Value>()));
    }
    let mut text = String::from("experiments\n");
    for experiment in registry::all() {
        let policies: Vec<&str> = experiment.policies().iter().map(|p| p.name()).collect();
        let _ = writeln!(text, "  {:<20}{}", experiment.name(), experiment.claim());
        let _ = writeln!(text, "  {:<20}compares {}", "", policies.join(", "));
    }
    text += "\npolicies\n";
    for policy in Policy::all() {
        let _ = writeln!(text, "  {:<14}{}", policy.name(), policy.meaning());
    }
    print(&text)
}

/// Analyzes the record in a directory again, with the current rules.
fn report_again(args: &ReportArgs) -> Result<()> {
    let others: [(&str, Read); 2] = [
        (wait_profile::FILE, read::<wait_profile::analysis::Document>),
        (overhead::FILE, read::<overhead::analysis::Document>),
    ];
    let other = others.iter().find(|(file, _)| args.dir.join(file).exists());
    let (file, read) = match other {
        Some(other) if !args.dir.join(RESULT).exists() => *other,
        _ => (RESULT, read_result as Read),
    };
    let path = args.dir.join(file);
    let text = fs::read_to_string(&path).map_err(|error| {
        let remedy = "name a directory that 'justitia lab run ... --out DIR' filled";
        file_error("read", &path, &error, remedy)
    })?;
    let analysis = read(&text).map_err(|why| {
        LabError::failed(
            format!("{} is not a result: {why}", path.display()),
            "run the experiment again, or use the version of Justitia that wrote it",
        )
    })?;
    let analysis = analysis.again();
    write_page(&*analysis, &args.dir)?;
    show(&*analysis, &args.dir, args.json)
}

/// Parses the result of the experiment that it names.
fn read_result(text: &str) -> Result<Box<dyn Analysis>, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let name = value["experiment"]
        .as_str()
        .ok_or("it names no experiment")?;
    let experiment = registry::find(name).map_err(|error| error.cause().to_owned())?;
    experiment.read(text)
}

/// Writes to standard output; a reader that has left is not an error.
fn print(text: &str) -> Result<()> {
    say::print(text).map(drop).map_err(|error| {
        let error = say::unprinted(&error);
        LabError::failed(error.cause, error.remedy)
    })
}

/// Replaces a file atomically.
fn write_whole(path: &Path, text: &str) -> Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    let failed = |error: std::io::Error| LabError::io("write", path, error);
    let mut file = temporary_in(dir).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    file.as_file().sync_all().map_err(failed)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}

/// The error of a file or directory that the user named, with the exit code that every command gives it.
fn file_error(doing: &str, path: &Path, error: &std::io::Error, remedy: &str) -> LabError {
    let error = justitia_report::Error::io(doing, path, error);
    match error.exit {
        Exit::Environment => LabError::environment(error.cause, error.remedy),
        _ => LabError::failed(error.cause, remedy),
    }
}

fn temporary_in(dir: &Path) -> std::io::Result<tempfile::NamedTempFile> {
    use std::os::unix::fs::PermissionsExt;
    tempfile::Builder::new()
        .prefix(".justitia-lab-")
        .permissions(fs::Permissions::from_mode(0o644))
        .tempfile_in(dir)
}

/// The command in a repeatable form, with DIR in place of the directory that was named.
fn command_line(arguments: impl Iterator<Item = String>, out: &Path) -> String {
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
mod tests;
