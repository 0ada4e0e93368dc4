//! `justitia replay`: runs the policy over a record, as it was or with other decisions.
//!
//! Reads no clock, and no configuration except the one named by an option, so the same file and options give
//! the same output.

mod export;
mod render;
mod weights;

use std::path::{Path, PathBuf};

use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::Args;
use export::Export;
use justitia_agent::config::{parse_mode, parse_objective};
use justitia_agent::{Error, Result, Settings};
use justitia_args::seconds;
use justitia_policy::config::{Mode, Objective};
use justitia_policy::units::{Bytes, Weight};
use justitia_record::{Item, Note, Options, Reader, Replayer, Session, Step, Summary};
use weights::{Named, Weights};

use crate::output::{self, Screen};

/// Arguments of `justitia replay`.
#[derive(Debug, Args)]
#[command(after_help = "\
Without options the policy decides with the recorded settings, and makes the same plans, to the last bit, if it is \
the same version. With other options the replay is open loop: the recorded host does not react to other decisions, \
so bandwidth and page cache stay as recorded. Trust the first writes that differ more than the hundredth. The curves \
of the groups' reads (justitia worth) do not depend on what the groups hold, so hit ratios with other shares come \
from them. Same file and options, same output.

Examples:
  justitia replay /var/tmp/friday.jrec
  justitia replay --objective strict --weight db=800 /var/tmp/friday.jrec
  justitia replay --more db=200M /var/tmp/friday.jrec   hits and reads from disks with that
  justitia replay --at 12.5 /var/tmp/friday.jrec       the plan of that step, with reasons
  justitia replay --export /tmp/friday.json /var/tmp/friday.jrec")]
pub(crate) struct ReplayArgs {
    /// A file that justitia record wrote
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Decide under this configuration file: mode, objective, feedback, weights
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Part of the policy that is in force [default: as recorded]
    #[arg(long, value_name = "MODE",
        value_parser = PossibleValuesParser::new(Mode::NAMES).try_map(|name| parse_mode(&name)))]
    pub(crate) mode: Option<Mode>,
    /// Aim of the feedback [default: as recorded]
    #[arg(long, value_name = "AIM",
        value_parser = PossibleValuesParser::new(Objective::NAMES).try_map(|name| parse_objective(&name)))]
    pub(crate) objective: Option<Objective>,
    /// Another weight for a group, by its path or the path's last part; may be repeated
    #[arg(long, value_name = "GROUP=N", value_parser = weights::weight)]
    pub(crate) weight: Vec<(String, Weight)>,
    /// Evaluate a group's curve with this much page cache beyond its share, such as db=200M; may be repeated
    #[arg(long, value_name = "GROUP=SIZE", value_parser = weights::more)]
    pub(crate) more: Vec<(String, Bytes)>,
    /// Skip steps earlier than this many seconds into the record
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) from: Option<f64>,
    /// Skip steps later than this many seconds into the record
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) to: Option<f64>,
    /// Print the plan of the first step at or after this time, with its reasons
    #[arg(long, value_name = "SECONDS", value_parser = seconds, conflicts_with_all = ["from", "to", "export"])]
    pub(crate) at: Option<f64>,
    /// Number of differing writes to show
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) differences: usize,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Write every step into a new file, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) export: Option<PathBuf>,
}

/// A record's sessions, and notes on damaged parts.
#[derive(Debug, Default)]
struct Record {
    file: String,
    sessions: Vec<Session>,
    notes: Vec<Note>,
    /// True if the record has a proper end; `None`: it was not read to its end.
    ended: Option<bool>,
}

pub(crate) fn run(args: &ReplayArgs) -> Result<()> {
    let settings = args.config.as_deref().map(Settings::load).transpose()?;
    let weights = Weights::new(&args.weight, settings.as_ref())?;
    let weight = |group: &_| weights.of(group);
    let more = Named::new(&args.more);
    let more_of = |group: &_| more.of(group);
    let options = Options {
        config: settings.map(|settings| settings.policy()),
        mode: args.mode,
        objective: args.objective,
        weight: &weight,
        more: &more_of,
    };
    let mut record = Record {
        file: args.file.display().to_string(),
        ..Record::default()
    };
    if let Some(at_s) = args.at {
        let step = step_at(&args.file, at_s, options, &mut record)?;
        weights.named.check_used()?;
        more.check_used()?;
        return if args.json {
            output::print_json(&render::step_json(&record, &step))
        } else {
            render::step(&record, &step, Screen::stdout()).print()
        };
    }
    let range = args.from.unwrap_or(0.0)..=args.to.unwrap_or(f64::INFINITY);
    if range.is_empty() {
        return Err(Error::usage(
            format!("--from {} is after --to {}", range.start(), range.end()),
            "name a time to begin, and a later one to end",
        ));
    }
    let mut export = args.export.as_deref().map(Export::new).transpose()?;
    let mut summary = Summary::new(args.differences);
    let mut last = None;
    walk(&args.file, options, &mut record, |step| {
        if step.at_s > *range.end() {
            return Ok(false);
        }
        if range.contains(&step.at_s) {
            summary.add(&step);
            if let Some(export) = &mut export {
                export.add(&step)?;
            }
            last = Some((step.config, step.tick.config));
        }
        Ok(true)
    })?;
    let Some((config, recorded)) = last else {
        return Err(nothing_there(&record, args.from.or(args.to)));
    };
    weights.named.check_used()?;
    more.check_used()?;
    if let Some(export) = export {
        export.finish()?;
    }
    let summary = summary.finish();
    if args.json {
        return output::print_json(&render::summary_json(&record, &config, &recorded, &summary));
    }
    render::summary(&record, &config, &recorded, &summary, Screen::stdout()).print()
}

/// Replays a file, step by step, until `see` stops it.
fn walk(
    file: &Path,
    options: Options<'_>,
    record: &mut Record,
    mut see: impl FnMut(Step) -> Result<bool>,
) -> Result<()> {
    let mut replayer = Replayer::new(options);
    for item in Reader::open(file)? {
        record.ended = Some(false);
        match item? {
            Item::Session(session) => {
                replayer.session();
                record.sessions.push(session);
            }
            Item::Tick(tick) => {
                if !see(replayer.step(*tick))? {
                    record.ended = None;
                    break;
                }
            }
            Item::Note(note) => {
                replayer.lost();
                record.notes.push(note);
            }
            Item::End => record.ended = Some(true),
        }
    }
    Ok(())
}

fn step_at(file: &Path, at_s: f64, options: Options<'_>, record: &mut Record) -> Result<Step> {
    let mut found = None;
    walk(file, options, record, |step| {
        if step.at_s < at_s {
            return Ok(true);
        }
        found = Some(step);
        Ok(false)
    })?;
    found.ok_or_else(|| nothing_there(record, Some(at_s)))
}

fn nothing_there(record: &Record, wanted: Option<f64>) -> Error {
    let file = &record.file;
    let note = record.notes.last().map(|note| format!("; {note}"));
    let note = note.unwrap_or_default();
    match wanted {
        Some(seconds) => Error::failed(
            format!("{file} holds no step there ({seconds} s){note}"),
            "times are seconds since its first step; without options the whole record is shown",
        ),
        None if note.is_empty() => Error::failed(
            format!("{file} holds no step"),
            "record for longer than the interval",
        ),
        None => Error::failed(
            format!("{file} holds no whole step{note}"),
            "record again; a copy may be incomplete",
        ),
    }
}

#[cfg(test)]
mod tests;
