//! Arguments of `justitia lab`, `justitia probe` and `justitia web`, which are programs of their own.
//!
//! `justitia` uses the definitions for its help, man pages and completions, and rejects wrong arguments
//! before it hands over. The program then parses the same words by the same definition. Only shapes live
//! here: a text becomes a value, and nothing is done with it, so that `justitia` links nothing of these
//! programs.

use std::ffi::OsString;
use std::io::ErrorKind::BrokenPipe;
use std::num::{IntErrorKind, ParseFloatError, ParseIntError};
use std::ops::RangeInclusive;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory, Parser};
use justitia_report::say::{self, two_lines};
use justitia_report::{Error, Exit};

pub mod lab;
pub mod probe;
pub mod web;

/// The `main` of a program: runs it with its arguments, prints its error and returns its exit code.
pub fn main<C: Parser>(run: impl FnOnce(&C) -> Result<(), Error>) -> ExitCode {
    let arguments = match C::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return answer::<C>(&error),
    };
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => say::error(&error),
    }
}

/// Prints clap's error as one line of cause and one of remedy; prints help and version unchanged.
///
/// The refusal of a value parser is an [`Error`], or two lines: the rest of a cause that begins with the option and
/// the value, and the remedy.
pub fn answer<C: CommandFactory>(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        let printed = error.print();
        return match printed {
            Err(error) if error.kind() != BrokenPipe => say::error(&say::unprinted(&error)),
            _ => ExitCode::SUCCESS,
        };
    }
    let command = command_of(C::command(), std::env::args_os().skip(1));
    let (cause, remedy) = usage(error, &command);
    two_lines(&cause, &remedy);
    ExitCode::from(Exit::Usage.code())
}

/// Seconds, finite and not negative.
///
/// # Errors
/// A refusal, see [`answer`].
pub fn seconds(text: &str) -> Result<f64, String> {
    let what = "of seconds from 0\nuse for example 10 or 1.5";
    number(text, 0.0..=f64::MAX, what)
}

/// A number in a range; `what` is the rest of the refusal.
fn number(text: &str, range: RangeInclusive<f64>, what: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => Err(format!("is not a number {what}")),
    }
}

fn usage(error: &clap::Error, command: &str) -> (String, String) {
    if let Some(refusal) = refused_value(error) {
        return refusal;
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        || error.kind() == ErrorKind::MissingSubcommand
    {
        return (
            "no command given".into(),
            format!("see {command} --help for the commands"),
        );
    }
    let text = error.to_string();
    let cause: String = text
        .lines()
        .take_while(|line| !line.trim().is_empty() && !line.trim_start().starts_with('['))
        .collect::<Vec<_>>()
        .join(" ");
    let cause = cause.strip_prefix("error: ").unwrap_or(&cause).to_owned();
    (
        cause,
        suggestion(error).unwrap_or_else(|| format!("see {command} --help")),
    )
}

/// Cause and remedy of a value that its parser refused, in the form that the configuration's errors have.
fn refused_value(error: &clap::Error) -> Option<(String, String)> {
    if error.kind() != ErrorKind::ValueValidation {
        return None;
    }
    let text = |kind| match error.get(kind)? {
        ContextValue::String(text) => Some(text.as_str()),
        _ => None,
    };
    let (option, value) = (
        text(ContextKind::InvalidArg)?,
        text(ContextKind::InvalidValue)?,
    );
    // `--seconds <N>` or `<SIZE>`.
    let option = option
        .split(" <")
        .next()?
        .trim_matches(['<', '>', '[', ']']);
    let source = std::error::Error::source(error)?;
    if let Some(Error { cause, remedy, .. }) = source.downcast_ref() {
        return Some((cause.clone(), remedy.clone()));
    }
    let words = source.to_string();
    let (why, remedy) = match words.split_once('\n') {
        Some((why, remedy)) => (why.to_owned(), remedy),
        None => clap_words(source, &words),
    };
    Some((format!("{option} {value} {why}"), remedy.to_owned()))
}

/// The refusal of a parser of clap or of the standard library, and its remedy.
fn clap_words(source: &(dyn std::error::Error + 'static), words: &str) -> (String, &'static str) {
    let range = words.split_once(" is not in ");
    if let Some((least, most)) = range.and_then(|(_, range)| range.split_once("..=")) {
        let why = format!("is not a number from {least} to {most}");
        return (why, "use a number in that range");
    }
    if let Some(integer) = source.downcast_ref::<ParseIntError>() {
        return match integer.kind() {
            IntErrorKind::PosOverflow => ("is too large".to_owned(), "use a smaller number"),
            _ => (
                "is not a whole number from 0".to_owned(),
                "use for example 10",
            ),
        };
    }
    if source.is::<ParseFloatError>() {
        return ("is not a number".to_owned(), "use for example 1.5");
    }
    (format!("is refused: {words}"), "see the command's --help")
}

/// The words of the command in these arguments: `justitia color set`. clap's errors do not always name it.
fn command_of(mut command: Command, arguments: impl Iterator<Item = OsString>) -> String {
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let mut words = name.to_owned();
    for argument in arguments {
        if let Some(below) = command.find_subcommand(&argument).cloned() {
            words = format!("{words} {}", below.get_name());
            command = below;
        }
    }
    words
}

fn suggestion(error: &clap::Error) -> Option<String> {
    let words = |kind| match error.get(kind)? {
        ContextValue::String(word) => Some(word.clone()),
        ContextValue::Strings(words) if !words.is_empty() => Some(words.join(", ")),
        _ => None,
    };
    let near = [
        ContextKind::SuggestedSubcommand,
        ContextKind::SuggestedArg,
        ContextKind::SuggestedValue,
    ];
    let near = near
        .into_iter()
        .find_map(words)
        .map(|word| format!("did you mean {word}?"));
    let all = words(ContextKind::ValidValue).map(|words| format!("use one of: {words}"));
    match (near, all) {
        (Some(near), Some(all)) => Some(format!("{near} {all}")),
        (near, all) => near.or(all),
    }
}
