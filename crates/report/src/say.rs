//! Lines of a program that has no pages and tables to print. What others are called in them can neither begin
//! a line nor tell a terminal anything.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write as _};

use crate::text::printable;

/// A line on stdout; `false` when nobody reads any more.
///
/// # Errors
/// Stdout cannot be written.
pub fn line(words: impl Display) -> io::Result<bool> {
    let text = format!("{}\n", printable(&words.to_string()));
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(text.as_bytes());
    match written.and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        written => written.map(|()| true),
    }
}

/// A line on stderr. Who has closed it does not want to know.
pub fn warn(words: impl Display) {
    let text = format!("justitia: {}\n", printable(&words.to_string()));
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// What is wrong and what to do, on stderr, in one write so that no other process's lines come between.
pub fn two_lines(cause: &str, remedy: &str) {
    let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (cause, remedy) = (flat(cause), flat(remedy));
    let text = format!(
        "justitia: {}\n  {}\n",
        printable(&cause),
        printable(&remedy)
    );
    let _ = io::stderr().lock().write_all(text.as_bytes());
}
