//! `justitia replay`: the policy over a record, as it was or with other decisions.
//!
//! Reads no clock and no configuration but the one that is named, so that the same file and
//! options print the same.

mod export;
mod render;
mod weights;

use std::path::Path;

use anyhow::Result;
use justitia_agent::config::{parse_mode, parse_objective};
use justitia_agent::{Error, Settings};
use justitia_record::{Item, Note, Options, Reader, Replayer, Session, Step, Summary};

use crate::args::ReplayArgs;
use crate::commands::record::failure;
use crate::output::{self, Page, Screen};
use export::Export;
use weights::Weights;

/// What a record says of itself, and what could not be read of it.
#[derive(Debug, Default)]
struct Record {
    file: String,
    sessions: Vec<Session>,
    notes: Vec<Note>,
    /// Whether it ends in good order; `None`: it was not read to its end.
    ended: Option<bool>,
}

/// Prints what the policy makes of a record.
pub(crate) fn run(args: &ReplayArgs) -> Result<()> {
    let settings = args.config.as_deref().map(Settings::load).transpose()?;
    let weights = Weights::new(&args.weight, settings.as_ref())?;
    let weight = |group: &_| weights.of(group);
    let options = Options {
        config: settings.map(|settings| settings.policy),
        mode: args.mode.as_deref().map(parse_mode).transpose()?,
        objective: args.objective.as_deref().map(parse_objective).transpose()?,
        weight: &weight,
    };
    let mut record = Record {
        file: args.file.display().to_string(),
        ..Record::default()
    };
    if let Some(at_s) = args.at {
        let step = step_at(&args.file, at_s, options, &mut record)?;
        weights.check_used()?;
        return if args.json {
            output::print_json(&render::step_json(&record, &step))
        } else {
            render::step(&record, &step, Screen::stdout()).print()
        };
    }
    let mut export = Export::new(&args.export)?;
    let mut summary = Summary::new(args.differences);
    let range = args.from.unwrap_or(0.0)..=args.to.unwrap_or(f64::INFINITY);
    let mut last = None;
    walk(&args.file, options, &mut record, |step| {
        if step.at_s > *range.end() {
            return Ok(false);
        }
        if range.contains(&step.at_s) {
            summary.add(&step);
            export.add(&step)?;
            last = Some((step.config, step.tick.config));
        }
        Ok(true)
    })?;
    let Some((config, recorded)) = last else {
        return Err(nothing_there(&args.file, args.from.or(args.to)).into());
    };
    weights.check_used()?;
    export.finish()?;
    let summary = summary.finish();
    if args.json {
        return output::print_json(&render::summary_json(&record, &config, &recorded, &summary));
    }
    let text = if args.csv {
        Page::own(export::groups_csv(&summary))
    } else {
        render::summary(&record, &config, &recorded, &summary, Screen::stdout())
    };
    text.print()
}

/// Replays a file, step by step, until `see` has seen enough.
fn walk(
    file: &Path,
    options: Options<'_>,
    record: &mut Record,
    mut see: impl FnMut(Step) -> Result<bool>,
) -> Result<()> {
    let mut replayer = Replayer::new(options);
    for item in Reader::open(file).map_err(failure)? {
        record.ended = Some(false);
        match item.map_err(failure)? {
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
    found.ok_or_else(|| nothing_there(file, Some(at_s)).into())
}

fn nothing_there(file: &Path, wanted: Option<f64>) -> Error {
    match wanted {
        Some(seconds) => Error::failed(
            format!("{} holds no step there ({seconds} s)", file.display()),
            "times are seconds since its first step; without options the whole record is shown",
        ),
        None => Error::failed(
            format!("{} holds no step", file.display()),
            "record for longer than the interval",
        ),
    }
}

#[cfg(test)]
#[path = "replay_tests.rs"]
mod tests;
