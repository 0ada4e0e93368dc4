//! Plain lines on stderr, few, each of use to an operator.
//!
//! Under systemd (`JOURNAL_STREAM` is set) each line carries its priority as `<N>`, which journald
//! takes off again. A closed stderr is no reason to stop.

use std::collections::HashSet;
use std::fmt;
use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use crate::text::printable;

/// Priorities of `syslog(3)` that are used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Something did not work.
    Warning,
    /// Something an operator wants to find later: start, stop, a group that joined.
    Info,
    /// Each line of each plan; only with `--verbose`.
    Debug,
}

impl Level {
    fn prefix(self) -> &'static str {
        match self {
            Level::Warning => "<4>",
            Level::Info => "<6>",
            Level::Debug => "<7>",
        }
    }
}

/// Where log lines go. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Log {
    verbose: bool,
    prefix: bool,
    seen: Arc<Mutex<HashSet<String>>>,
    captured: Option<Arc<Mutex<Vec<String>>>>,
}

impl Log {
    /// Lines on stderr; debug lines only when `verbose`.
    pub fn stderr(verbose: bool) -> Log {
        let prefix = std::env::var_os("JOURNAL_STREAM").is_some();
        Log {
            verbose,
            prefix,
            seen: Arc::default(),
            captured: None,
        }
    }

    /// Lines kept in memory, for tests.
    pub fn captured() -> Log {
        Log {
            verbose: true,
            prefix: false,
            seen: Arc::default(),
            captured: Some(Arc::default()),
        }
    }

    /// The same without debug lines, for benchmarks.
    pub fn captured_without_debug() -> Log {
        Log {
            verbose: false,
            ..Log::captured()
        }
    }

    /// What was captured so far.
    pub fn lines(&self) -> Vec<String> {
        self.captured.as_ref().map_or_else(Vec::new, |lines| {
            lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
        })
    }

    /// Whether debug lines are wanted: spares the caller making them.
    pub fn is_verbose(&self) -> bool {
        self.verbose
    }

    /// Something an operator wants to find later.
    pub fn info(&self, message: impl fmt::Display) {
        self.write(Level::Info, &message);
    }

    /// Something did not work.
    pub fn warn(&self, message: impl fmt::Display) {
        self.write(Level::Warning, &message);
    }

    /// A detail.
    pub fn debug(&self, message: impl fmt::Display) {
        if self.verbose {
            self.write(Level::Debug, &message);
        }
    }

    /// Like [`Log::warn`], but the same words only once in the agent's life.
    pub fn warn_once(&self, message: impl fmt::Display) {
        let text = message.to_string();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        // A host with ever new problems must not make the agent grow.
        if seen.len() >= 4096 {
            seen.clear();
        }
        if seen.insert(text.clone()) {
            drop(seen);
            self.write(Level::Warning, &text);
        }
    }

    fn write(&self, level: Level, message: &dyn fmt::Display) {
        if let Some(lines) = &self.captured {
            lines
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(printable(&message.to_string()).into_owned());
            return;
        }
        let prefix = if self.prefix { level.prefix() } else { "" };
        // One write call, so that lines of other processes do not come in between.
        let message = message.to_string();
        let line = format!("{prefix}justitia: {}\n", printable(&message));
        let _ = std::io::stderr().lock().write_all(line.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_problem_is_logged_once() {
        let log = Log::captured();
        log.warn_once("a");
        log.warn_once("b");
        log.warn_once("a");
        assert_eq!(log.lines(), ["a", "b"]);
    }
}
