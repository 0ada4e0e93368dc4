//! The access log of a web server: nginx or Apache, or any log with one line for each request.
//!
//! - Throughput: lines per second.
//! - Latency: a percentile of the times in the lines since the last look. A request with a status of 500 or
//!   more counts as slower than any other. A look without a time is idle: servers write their logs in bursts.
//! - Waiting: a log does not tell, because requests appear only once they are answered. A server that hangs
//!   writes nothing, which looks like no requests: probe a URL to detect that.

mod line;
mod tail;

use std::path::PathBuf;

use super::{now_seconds, Target};
use crate::measure::{percentile, Measurement, Rate};
use crate::Trouble;
pub use line::{Field, Unit};
use tail::Tail;

/// The log, and the form of its lines.
#[derive(Debug, Clone)]
pub struct Config {
    /// The file. It may be renamed and made again, or truncated.
    pub path: PathBuf,
    /// Place of the time in a line.
    pub field: Field,
    /// Unit of the time.
    pub unit: Unit,
    /// The percentile that counts.
    pub percentile: f64,
}

pub struct Log {
    config: Config,
    tail: Tail,
    /// True once a line had a time, so that the field is right.
    timed: bool,
    /// Lines since the probe started: a counter for the rate.
    lines: f64,
    work: Rate,
}

impl Log {
    /// A log that is read from the first measurement on.
    pub fn new(config: Config) -> Log {
        Log {
            tail: Tail::new(config.path.clone()),
            config,
            timed: false,
            lines: 0.0,
            work: Rate::default(),
        }
    }
}

impl Target for Log {
    fn measure(&mut self) -> Result<Measurement, Trouble> {
        let Config { field, unit, .. } = &self.config;
        let (mut times, mut failed, mut lines) = (Vec::new(), 0u64, 0u64);
        let skipped = self.tail.read(|text| {
            lines += 1;
            if line::failed(text) {
                failed += 1;
                times.push(f64::INFINITY);
            } else if let Some(seconds) = line::seconds(field, text, *unit) {
                self.timed = true;
                times.push(seconds);
            }
        })?;
        if lines > 0 && times.is_empty() && !self.timed {
            return Err(Trouble::failed(
                format!(
                    "{} has no time {field} in its lines",
                    self.config.path.display()
                ),
                "add $request_time to nginx's log_format, or say where it is with --time-field",
            ));
        }
        self.lines += lines as f64;
        let mut notes = Vec::new();
        if failed > 0 {
            notes.push(format!("{failed} of {lines} failed"));
        }
        if skipped > 0 {
            notes.push(format!("{skipped} bytes not read"));
        }
        Ok(Measurement {
            idle: times.is_empty(),
            per_second: self.work.of(self.lines, now_seconds()),
            latency_seconds: percentile(&mut times, self.config.percentile),
            note: (!notes.is_empty()).then(|| notes.join(", ")),
            ..Measurement::default()
        })
    }

    fn needs_two(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
