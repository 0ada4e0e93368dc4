//! Reports errors on stderr in exactly two lines, cause and remedy, and maps them to the exit code.

use std::process::ExitCode;

use justitia_report::say::two_lines;
use justitia_report::Error;

/// Prints an error and returns its exit code.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    let (cause, remedy, code) = if let Some(error) = error.downcast_ref::<Error>() {
        (error.cause.clone(), error.remedy.clone(), error.exit.code())
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
