//! Exports steps for other programs: CSV with a row for each group and step, JSON with everything.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::path::PathBuf;

use justitia_agent::{Error, Result};
use justitia_policy::plan::Plan;
use justitia_policy::{Config, Snapshot};
use justitia_record::{Step, Summary};
use justitia_report::text::printable;
use serde::Serialize;

use crate::output::unexpected;

const COLUMNS: &str = "at_s,at_unix_ms,group,id,weight,recorded_weight,bytes_per_s,\
transferable_bytes_per_s,stalled,hit_ratio,file_bytes,contending,color,of_ideal,gain,\
threshold_bytes,entitlement_bytes,writes,recorded_of_ideal,recorded_gain,\
recorded_threshold_bytes,recorded_writes\n";

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
    /// JSON; otherwise CSV.
    json: bool,
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
    /// Parses the two values of `--export`; no values mean no export.
    pub(super) fn new(arguments: &[String]) -> Result<Option<Export>> {
        let [format, path] = arguments else {
            return Ok(None);
        };
        if !["csv", "json"].contains(&format.as_str()) {
            return Err(Error::usage(
                format!("unknown format {format} for {path}"),
                "use one of: csv, json",
            ));
        }
        let path = PathBuf::from(path);
        let made = OpenOptions::new().write(true).create_new(true).open(&path);
        let file = made.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Error::usage(
                format!("{} exists already", path.display()),
                "name another file, or remove it first",
            ),
            _ => Error::io("make", &path, &error),
        })?;
        let mut export = Export {
            path,
            file: BufWriter::new(file),
            json: format == "json",
            steps: 0,
            whole: false,
        };
        if !export.json {
            export.put(COLUMNS)?;
        }
        Ok(Some(export))
    }

    fn put(&mut self, text: &str) -> Result<()> {
        let written = self.file.write_all(text.as_bytes());
        written.map_err(|error| Error::io("write", &self.path, &error))
    }

    pub(super) fn add(&mut self, step: &Step) -> Result<()> {
        if !self.json {
            return self.put(&rows(step));
        }
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
        match self.steps {
            _ if !self.json => {}
            0 => self.put("[]\n")?,
            _ => self.put("\n]\n")?,
        }
        let flushed = self.file.flush();
        self.whole = flushed.is_ok();
        flushed.map_err(|error| Error::io("write", &self.path, &error))
    }
}

/// A row for each group with a verdict.
fn rows(step: &Step) -> String {
    let mut text = String::new();
    let recorded = &step.tick.plan;
    for verdict in &step.plan.verdicts {
        let id = verdict.group;
        let find = |snapshot: &Snapshot| snapshot.groups.iter().find(|g| g.id == id).cloned();
        let Some(group) = find(step.snapshot()) else {
            continue;
        };
        let before = find(&step.tick.snapshot).and_then(|group| group.weight);
        let then = recorded.verdicts.iter().find(|then| then.group == id);
        let writes = |plan: &Plan| plan.writes.iter().filter(|write| write.group == id).count();
        let _ = writeln!(
            text,
            "{},{},{},{id},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}",
            step.at_s,
            step.tick.at_unix_ms,
            quoted(&group.path),
            cell(group.weight),
            cell(before),
            cell(verdict.bytes_per_s),
            cell(verdict.transferable_bytes_per_s),
            cell(verdict.stalled),
            cell(verdict.cache.hit_ratio),
            cell(group.memory.file.map(|bytes| bytes.0)),
            verdict.contending,
            verdict.color,
            cell(verdict.of_ideal),
            verdict.gain,
            verdict.threshold.0,
            verdict.entitlement.0,
            writes(&step.plan),
            cell(then.and_then(|then| then.of_ideal)),
            cell(then.map(|then| then.gain)),
            cell(then.map(|then| then.threshold.0)),
            writes(recorded),
        );
    }
    text
}

/// The table of groups as CSV: the fields of their JSON.
pub(super) fn groups_csv(summary: &Summary) -> Result<String> {
    const FIELDS: &str = "id,weight,recorded_weight,bytes_per_s,share,ideal_share,threshold_bytes,\
recorded_threshold_bytes,entitlement_bytes,recorded_entitlement_bytes,hit_ratio,recorded_hit_ratio,\
fetched_bytes_per_s,recorded_fetched_bytes_per_s,gain,recorded_gain,writes,recorded_writes";
    let mut text = format!("group,{FIELDS}\n");
    for group in &summary.groups {
        let json = serde_json::to_value(group).map_err(unexpected)?;
        text.push_str(&quoted(&printable(&group.path)));
        for field in FIELDS.split(',') {
            let value = &json[field];
            // A whole number of a fraction has no decimal point.
            let number = value.as_f64().filter(|_| value.is_f64());
            let word = || value.to_string().replace("null", "");
            let _ = write!(
                text,
                ",{}",
                number.map_or_else(word, |number| number.to_string())
            );
        }
        text.push('\n');
    }
    Ok(text)
}

/// An unknown value is an empty cell.
fn cell(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// Quotes a path by RFC 4180.
fn quoted(path: &str) -> String {
    if path.contains([',', '"', '\r', '\n']) {
        format!("\"{}\"", path.replace('"', "\"\""))
    } else {
        path.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_cell_whatever_it_holds() {
        assert_eq!(quoted("/app/db"), "/app/db");
        assert_eq!(quoted("/a,b\"c"), "\"/a,b\"\"c\"");
    }

    #[test]
    fn a_head_has_as_many_columns_as_a_row() {
        let columns = COLUMNS.trim().split(',').count();
        assert_eq!(columns, 22);
        assert_eq!(
            groups_csv(&Summary::new(0))
                .unwrap()
                .trim()
                .split(',')
                .count(),
            19
        );
    }

    #[test]
    fn other_formats_and_files_that_are_there_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x").display().to_string();
        let error = Export::new(&["xml".into(), path.clone()]).unwrap_err();
        assert_eq!(
            (error.exit.code(), error.remedy.as_str()),
            (2, "use one of: csv, json")
        );
        let export = Export::new(&["json".into(), path.clone()]).unwrap();
        export.unwrap().finish().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "[]\n");
        let error = Export::new(&["csv".into(), path]).unwrap_err();
        assert!(error.cause.contains("exists already"));
    }
}
