//! Exports every step for other programs, as a JSON array.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use justitia_agent::{Error, Result};
use justitia_policy::plan::Plan;
use justitia_policy::{Config, Snapshot};
use justitia_record::Step;
use serde::Serialize;

use crate::output::unexpected;

/// A step in JSON. If both plans are the same, it has only one.
#[derive(Debug, Serialize)]
struct Exported<'a> {
    at_s: f64,
    at_unix_ms: u64,
    elapsed_s: f64,
    config: &'a Config,
    snapshot: &'a Snapshot,
    plan: &'a Plan,
    recorded_config: Option<&'a Config>,
    recorded_snapshot: Option<&'a Snapshot>,
    recorded_plan: Option<&'a Plan>,
}

/// A new file for steps. It is removed again unless it gets its end.
#[derive(Debug)]
pub(super) struct Export {
    path: PathBuf,
    file: BufWriter<File>,
    steps: u64,
    whole: bool,
}

impl Drop for Export {
    fn drop(&mut self) {
        if !self.whole {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Export {
    pub(super) fn new(path: &Path) -> Result<Export> {
        let made = OpenOptions::new().write(true).create_new(true).open(path);
        let file = made.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Error::usage(
                format!("{} exists already", path.display()),
                "name another file, or remove it first",
            ),
            _ => Error::io("make", path, &error),
        })?;
        Ok(Export {
            path: path.to_owned(),
            file: BufWriter::new(file),
            steps: 0,
            whole: false,
        })
    }

    fn put(&mut self, text: &str) -> Result<()> {
        let written = self.file.write_all(text.as_bytes());
        written.map_err(|error| Error::io("write", &self.path, &error))
    }

    pub(super) fn add(&mut self, step: &Step) -> Result<()> {
        let other = !step.same();
        let given = step.given.as_ref();
        let record = Exported {
            at_s: step.at_s,
            at_unix_ms: step.tick.at_unix_ms,
            elapsed_s: step.elapsed_s,
            config: &step.config,
            snapshot: step.snapshot(),
            plan: &step.plan,
            recorded_config: Some(&step.tick.config).filter(|c| **c != step.config),
            recorded_snapshot: given.map(|_| &step.tick.snapshot),
            recorded_plan: other.then_some(&step.tick.plan),
        };
        self.put(if self.steps == 0 { "[\n" } else { ",\n" })?;
        self.steps += 1;
        self.put(&serde_json::to_string(&record).map_err(unexpected)?)
    }

    /// Writes the end of the file.
    pub(super) fn finish(mut self) -> Result<()> {
        self.put(if self.steps == 0 { "[]\n" } else { "\n]\n" })?;
        let flushed = self.file.flush();
        self.whole = flushed.is_ok();
        flushed.map_err(|error| Error::io("write", &self.path, &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_there_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        Export::new(&path).unwrap().finish().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "[]\n");
        let error = Export::new(&path).unwrap_err();
        assert!(error.cause.contains("exists already"));
    }
}
