//! Log lines for the operator, on stderr.
//!
//! If stderr is the journal's stream (`JOURNAL_STREAM`), each line begins with its priority as `<N>`, which journald
//! strips. Errors of writing to stderr are ignored.

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::say::complain;
use crate::text::printable;

/// Priorities of `syslog(3)` as journald's prefixes.
const WARNING: &str = "<4>";
/// An event that an operator looks for later: start, stop, a group that joined.
const INFO: &str = "<6>";
/// Each line of each plan; only with `--verbose`.
const DEBUG: &str = "<7>";

/// A log. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Log {
    verbose: bool,
    prefix: bool,
    seen: Arc<Mutex<HashSet<String>>>,
    captured: Option<Arc<Mutex<Vec<String>>>>,
}

/// Takes a lock, also after a thread panicked while it held it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// True if this file is the stream that systemd names as `DEVICE:INODE`.
fn is_journal(file: impl AsFd) -> bool {
    let Ok(stat) = rustix::fs::fstat(file) else {
        return false;
    };
    let stream = format!("{}:{}", stat.st_dev, stat.st_ino);
    std::env::var_os("JOURNAL_STREAM").is_some_and(|named| *named == *stream)
}

impl Log {
    /// Writes to stderr; debug lines only when `verbose`.
    pub fn stderr(verbose: bool) -> Log {
        Log {
            verbose,
            prefix: is_journal(io::stderr()),
            seen: Arc::default(),
            captured: None,
        }
    }

    /// Keeps lines in memory, for tests.
    pub fn captured() -> Log {
        Log {
            verbose: true,
            prefix: false,
            seen: Arc::default(),
            captured: Some(Arc::default()),
        }
    }

    /// Keeps lines in memory without debug lines, for benchmarks.
    pub fn captured_without_debug() -> Log {
        Log {
            verbose: false,
            ..Log::captured()
        }
    }

    /// The lines captured so far.
    pub fn lines(&self) -> Vec<String> {
        let lines = self.captured.as_ref();
        lines.map_or_else(Vec::new, |lines| lock(lines).clone())
    }

    /// True if debug lines are written; if not, the caller need not format them.
    pub fn is_verbose(&self) -> bool {
        self.verbose
    }

    pub fn info(&self, message: impl fmt::Display) {
        self.write(INFO, &message);
    }

    pub fn warn(&self, message: impl fmt::Display) {
        self.write(WARNING, &message);
    }

    pub fn debug(&self, message: impl fmt::Display) {
        if self.verbose {
            self.write(DEBUG, &message);
        }
    }

    /// Like [`Log::warn`], but drops a message that was logged before.
    pub fn warn_once(&self, message: impl fmt::Display) {
        let text = message.to_string();
        let mut seen = lock(&self.seen);
        // Bounds memory on a host that keeps producing new messages.
        if seen.len() >= 4096 {
            seen.clear();
        }
        if seen.insert(text.clone()) {
            drop(seen);
            self.write(WARNING, &text);
        }
    }

    fn write(&self, priority: &str, message: &dyn fmt::Display) {
        if let Some(lines) = &self.captured {
            lock(lines).push(printable(&message.to_string()).into_owned());
            return;
        }
        let prefix = if self.prefix { priority } else { "" };
        let message = message.to_string();
        complain(&format!("{prefix}justitia: {}\n", printable(&message)));
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
