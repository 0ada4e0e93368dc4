//! Progress of a run on standard error: policy, phase, elapsed time.
//!
//! On a terminal one line is overwritten in place; elsewhere each phase gets one plain line. A phase is a
//! message without its numbers, so a counter does not fill a log.

use std::io::{IsTerminal, Write};
use std::time::Instant;

#[derive(Debug)]
pub struct Progress<W: Write> {
    out: W,
    in_place: bool,
    begin: Instant,
    step: String,
    phase: String,
    line_open: bool,
}

impl Progress<std::io::Stderr> {
    /// Progress on standard error, in place if both standard error and standard output are terminals.
    pub fn stderr() -> Self {
        let in_place = std::io::stderr().is_terminal() && std::io::stdout().is_terminal();
        Self::new(std::io::stderr(), in_place)
    }
}

impl<W: Write> Progress<W> {
    pub fn new(out: W, in_place: bool) -> Self {
        Self {
            out,
            in_place,
            begin: Instant::now(),
            step: String::new(),
            phase: String::new(),
            line_open: false,
        }
    }

    /// Names the step of the following messages.
    pub fn step(&mut self, name: &str) {
        name.clone_into(&mut self.step);
        self.phase.clear();
    }

    /// Shows a message of the current step.
    pub fn say(&mut self, message: &str) {
        let message = message.replace(char::is_control, " ");
        let seconds = self.begin.elapsed().as_secs();
        let clock = format!("{}:{:02}", seconds / 60, seconds % 60);
        let separator = if self.step.is_empty() { "" } else { ": " };
        let line = format!("[{clock:>6}] {}{separator}{message}", self.step);
        // Progress is a courtesy: a closed standard error must not end an experiment.
        if self.in_place {
            let line: String = line
                .chars()
                .take(terminal_width().saturating_sub(1))
                .collect();
            let _ = write!(self.out, "\r\x1b[2K{line}");
            self.line_open = true;
        } else {
            let phase = phase_of(&message);
            if phase != self.phase {
                let _ = writeln!(self.out, "{line}");
                self.phase = phase;
            }
        }
        let _ = self.out.flush();
    }

    /// Ends the current line with a permanent message.
    pub fn done(&mut self, message: &str) {
        self.phase.clear();
        self.say(message);
        self.end_line();
    }

    fn end_line(&mut self) {
        if self.line_open {
            let _ = writeln!(self.out);
            self.line_open = false;
        }
    }
}

impl<W: Write> Drop for Progress<W> {
    /// Subsequent output, including an error, starts on a new line.
    fn drop(&mut self) {
        self.end_line();
    }
}

/// A message without its numbers.
fn phase_of(message: &str) -> String {
    message.replace(|c: char| c.is_ascii_digit() || c == '.', "")
}

fn terminal_width() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stderr());
    let columns = size.map_or(0, |size| usize::from(size.ws_col));
    if columns == 0 {
        80
    } else {
        columns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(in_place: bool) -> String {
        let mut out = Vec::new();
        let mut progress = Progress::new(&mut out, in_place);
        progress.step("memcg");
        progress.say("booting");
        progress.say("measuring: 1 of 60 s");
        progress.say("measuring: 2 of 60 s");
        progress.done("PV 1.00");
        drop(progress);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_log_gets_one_line_for_each_phase() {
        let lines = shown(false);
        assert_eq!(lines.lines().count(), 3, "{lines}");
        assert!(lines.contains("[  0:00] memcg: measuring: 1 of 60 s\n"));
    }

    #[test]
    fn a_terminal_gets_one_line_that_changes() {
        let text = shown(true);
        assert_eq!(text.matches('\n').count(), 1);
        assert_eq!(text.matches("\r\x1b[2K").count(), 4);
        assert!(text.ends_with("PV 1.00\n"));
    }
}
