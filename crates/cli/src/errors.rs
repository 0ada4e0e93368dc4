//! Errors on stderr: exactly two lines, one of cause and one of remedy, and the exit code.

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use justitia_agent::{Error, Exit};
use justitia_machine::error::LabError;

use crate::output::{self, Page};

/// Prints an error and gives the exit code for it.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    let (cause, remedy, code) = if let Some(error) = error.downcast_ref::<Error>() {
        (error.cause.clone(), error.remedy.clone(), error.exit.code())
    } else if let Some(error) = error.downcast_ref::<LabError>() {
        lab(error)
    } else {
        (
            format!("{error:#}"),
            "report this with the command line".to_owned(),
            1,
        )
    };
    two_lines(&cause, &remedy);
    ExitCode::from(code)
}

/// Prints what clap found wrong in our form; help and version as they are.
pub(crate) fn report_usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let (cause, remedy) = usage(error);
    two_lines(&cause, &remedy);
    ExitCode::from(Exit::Usage.code())
}

/// What is wrong and what to do, on stderr.
pub(crate) fn two_lines(cause: &str, remedy: &str) {
    let mut page = Page::new();
    writeln!(page, "justitia: {}", flat(cause));
    writeln!(page, "  {}", flat(remedy));
    output::complain(&page);
}

fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
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
        suggestion(error).unwrap_or_else(|| "see justitia --help".into()),
    )
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
    let all = words(ContextKind::ValidValue).map(|words| format!("there are: {words}"));
    match (near, all) {
        (Some(near), Some(all)) => Some(format!("{near} {all}")),
        (near, all) => near.or(all),
    }
}

fn lab(error: &LabError) -> (String, String, u8) {
    (
        error.cause().to_owned(),
        error.remedy().to_owned(),
        error.exit_code(),
    )
}
