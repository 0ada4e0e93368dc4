//! Prints single lines, for programs without pages and tables. Names of others in a line cannot begin a new
//! line or control the terminal.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write as _};
use std::process::ExitCode;

use crate::error::plain;
use crate::text::printable;
use crate::Error;

/// Prints a line on stdout; `false`: the reader has closed it.
///
/// # Errors
/// Writing to stdout failed for another reason.
pub fn line(words: impl Display) -> io::Result<bool> {
    print(&format!("{}\n", printable(&words.to_string())))
}

/// As [`line()`], for text that is printable.
///
/// # Errors
/// Writing to stdout failed for another reason.
pub fn print(text: &str) -> io::Result<bool> {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(text.as_bytes());
    match written.and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        written => written.map(|()| true),
    }
}

/// The error that stdout takes no text.
pub fn unprinted(error: &io::Error) -> Error {
    let cause = format!("cannot write to standard output: {}", plain(error));
    Error::failed(cause, "check where it leads")
}

/// Prints printable text on stderr in one write, so that lines of other processes do not interleave. Errors
/// are ignored: whoever closed stderr does not want the text.
pub fn complain(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

pub fn warn(words: impl Display) {
    complain(&format!("justitia: {}\n", printable(&words.to_string())));
}

/// Prints an error and returns its exit code.
pub fn error(error: &Error) -> ExitCode {
    two_lines(&error.cause, &error.remedy);
    ExitCode::from(error.exit.code())
}

/// Prints cause and remedy.
pub fn two_lines(cause: &str, remedy: &str) {
    let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (cause, remedy) = (flat(cause), flat(remedy));
    let (cause, remedy) = (printable(&cause), printable(&remedy));
    complain(&format!("justitia: {cause}\n  {remedy}\n"));
}
