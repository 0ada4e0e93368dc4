//! The shape of an experiment: arguments -> plan -> jobs -> analysis -> page.
//!
//! An [`Experiment`] only describes. It resolves a command line into a [`Plan`]; the runner boots a guest
//! for each of the plan's jobs and hands the answers back; the plan analyzes them, and an [`Analysis`] is
//! the record, the page and the table. Experiments that compare policies share one plan,
//! [`comparison`](crate::comparison).

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::args::RunArgs;
use crate::machine::{Answer, Machine};
use crate::policy::Policy;
use crate::protocol::Job;
use justitia_machine::error::LabError;

/// Name of the record of an experiment that compares policies.
pub const RESULT: &str = "result.json";

/// Reads a record; says what is wrong with one that cannot be read.
pub type Read = fn(&str) -> Result<Box<dyn Analysis>, String>;

/// An experiment of `justitia lab run`.
pub trait Experiment: Sync {
    fn name(&self) -> &'static str;
    /// What it shows, one line.
    fn claim(&self) -> &'static str;
    /// Policies unless the command line names others.
    fn policies(&self) -> &'static [Policy];
    /// Options of the load and of the agent that it understands, without their dashes.
    fn options(&self) -> Vec<&'static str>;
    /// More about it, for `justitia lab list --json`.
    fn facts(&self) -> Value;
    /// Resolves and checks a command line.
    ///
    /// # Errors
    /// A usage error for the first value that makes no sense.
    fn plan(&self, args: &RunArgs, command: String) -> Result<Box<dyn Plan>, LabError>;
    /// Reads its result.json.
    ///
    /// # Errors
    /// Says where the text is not a result.
    fn read(&self, text: &str) -> Result<Box<dyn Analysis>, String>;
}

/// An experiment with every choice made.
pub trait Plan {
    /// Its boots, in their order.
    fn boots(&self) -> Vec<Boot>;
    /// The machine of its boots; what has to be made first is made here. `out`: the experiment's directory.
    ///
    /// # Errors
    /// Environment, if a program or the kernel module is missing; those of a guest.
    fn machine(&self, out: &Path, say: &mut dyn FnMut(&str)) -> Result<Machine, LabError>;
    /// Keeps what the boot at this place reported. Answers what it came to, in one line.
    ///
    /// # Errors
    /// The report is not one of this experiment.
    fn keep(&mut self, boot: usize, answer: Answer) -> Result<String, LabError>;
    /// Analyzes what was kept; `None`: not enough to be written yet.
    fn analysis(&self) -> Option<Box<dyn Analysis>>;
}

/// One boot of a guest.
#[derive(Debug)]
pub struct Boot {
    /// Shown while it runs.
    pub name: String,
    /// Where its console is kept, below the experiment's directory.
    pub console: PathBuf,
    pub job: Job,
}

/// The outcome of an experiment.
pub trait Analysis {
    /// Name of its record.
    fn file(&self) -> &'static str {
        RESULT
    }
    /// Figures, environment and raw series.
    fn record(&self) -> Value;
    /// What `--json` prints.
    fn summary(&self) -> Value {
        self.record()
    }
    /// report.html; `None`: the table says it all.
    fn page(&self) -> Option<String> {
        None
    }
    /// For a terminal.
    fn table(&self) -> String;
    /// The same record analyzed again, with another warm-up where one is given and there is one.
    fn again(self: Box<Self>, warmup_s: Option<f64>) -> Box<dyn Analysis>;
}
