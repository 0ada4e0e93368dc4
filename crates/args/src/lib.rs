//! Arguments of `justitia lab`, `justitia probe` and `justitia web`, which are programs of their own.
//!
//! `justitia` uses the definitions for its help, man pages and completions, and rejects wrong arguments
//! before it hands over. The program then parses the same words by the same definition. Only shapes live
//! here: a text becomes a value, and nothing is done with it, so that `justitia` links nothing of these
//! programs.

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use justitia_report::say::two_lines;
use justitia_report::Exit;

pub mod lab;
pub mod probe;
pub mod web;

/// Prints clap's error as one line of cause and one of remedy; prints help and version unchanged.
pub fn answer(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let (cause, remedy) = usage(error);
    two_lines(&cause, &remedy);
    ExitCode::from(Exit::Usage.code())
}

fn usage(error: &clap::Error) -> (String, String) {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        || error.kind() == ErrorKind::MissingSubcommand
    {
        return (
            "no command given".into(),
            "see justitia --help for the commands".into(),
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
        suggestion(error).unwrap_or_else(|| format!("see {} --help", command_of(error))),
    )
}

/// The words of the command that was given, from the error's usage: `justitia color set`.
fn command_of(error: &clap::Error) -> String {
    let usage = match error.get(ContextKind::Usage) {
        Some(ContextValue::StyledStr(usage)) => usage.to_string(),
        _ => String::new(),
    };
    let words = usage
        .split_whitespace()
        .skip_while(|word| !word.starts_with("justitia"));
    let words = words.take_while(|word| word.starts_with(|first: char| first.is_ascii_lowercase()));
    let words: Vec<&str> = words.collect();
    if words.is_empty() {
        return "justitia".into();
    }
    words.join(" ")
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
