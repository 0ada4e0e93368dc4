//! The shape of an experiment: arguments -> plan -> jobs -> analysis -> page.
//!
//! An [`Experiment`] only describes. It resolves a command line into a [`Plan`]. The runner boots a guest for
//! each of the plan's jobs and returns the answers. The plan analyzes them into an [`Analysis`]: the record,
//! the page and the table. Experiments that compare policies share one plan,
//! [`comparison`](crate::comparison).

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::args::RunArgs;
use crate::machine::{Answer, Machine};
use crate::policy::Policy;
use crate::protocol::Job;
use justitia_machine::error::{Result, Say};

/// Name of the record of an experiment that compares policies.
pub const RESULT: &str = "result.json";

/// Parses a record; the error says what is wrong with it.
pub type Read = fn(&str) -> Result<Box<dyn Analysis>, String>;

/// Parses a record of type `D`, see [`Read`].
pub fn read<D: Analysis + DeserializeOwned + 'static>(
    text: &str,
) -> Result<Box<dyn Analysis>, String> {
    let document: D = serde_json::from_str(text).map_err(|error| error.to_string())?;
    Ok(Box::new(document))
}

/// An experiment of `justitia lab run`.
pub trait Experiment: Sync {
    fn name(&self) -> &'static str;
    /// The finding that the experiment is to show, one line.
    fn claim(&self) -> &'static str;
    fn policies(&self) -> &'static [Policy];
    /// Supported options of the load and of the agent, without their dashes.
    fn options(&self) -> Vec<&'static str>;
    /// Resolves and validates a command line.
    fn plan(&self, args: &RunArgs, command: String) -> Result<Box<dyn Plan>>;
    /// Parses its result.json.
    fn read(&self, text: &str) -> Result<Box<dyn Analysis>, String>;
}

pub trait Plan {
    fn boots(&self) -> Vec<Boot>;
    /// The machine of its boots; also makes its prerequisites. `out`: the experiment's directory. An
    /// environment error if a program or the kernel module is missing. Also the errors of a guest.
    fn machine(&self, out: &Path, say: &mut Say) -> Result<Machine>;
    /// Keeps the report of a boot, given by its index. Returns the outcome in one line.
    fn keep(&mut self, boot: usize, answer: Answer) -> Result<String>;
    /// Analyzes the kept reports; `None`: too few to be written yet.
    fn analysis(&self) -> Option<Box<dyn Analysis>>;
}

#[derive(Debug)]
pub struct Boot {
    pub name: String,
    /// Path of its console log, below the experiment's directory.
    pub console: PathBuf,
    pub job: Job,
}

pub trait Analysis {
    fn file(&self) -> &'static str {
        RESULT
    }
    /// Figures, environment and raw series.
    fn record(&self) -> Value;
    /// The output of `--json`: the record without the policies' raw runs.
    fn summary(&self) -> Value {
        let mut value = self.record();
        let policies = value.get_mut("policies").and_then(Value::as_object_mut);
        for policy in policies.into_iter().flat_map(Map::values_mut) {
            if let Some(policy) = policy.as_object_mut() {
                policy.remove("runs");
            }
        }
        value
    }
    /// report.html; `None`: the table is enough.
    fn page(&self) -> Option<String> {
        None
    }
    /// Text for a terminal.
    fn table(&self) -> String;
    /// Analyzes the same record again.
    fn again(self: Box<Self>) -> Box<dyn Analysis>;
}
