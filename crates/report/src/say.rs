//! Prints single lines, for programs without pages and tables. Names of others in a line cannot begin a new
//! line or control the terminal.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write as _};

use crate::text::printable;

/// Prints a line on stdout; `false`: the reader has closed it.
///
/// # Errors
/// Writing to stdout failed for another reason.
pub fn line(words: impl Display) -> io::Result<bool> {
    let text = format!("{}\n", printable(&words.to_string()));
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(text.as_bytes());
    match written.and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        written => written.map(|()| true),
    }
}

/// Prints a line on stderr. Errors are ignored: whoever closed stderr does not want the line.
pub fn warn(words: impl Display) {
    let text = format!("justitia: {}\n", printable(&words.to_string()));
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Prints cause and remedy on stderr in one write, so that lines of other processes do not interleave.
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
