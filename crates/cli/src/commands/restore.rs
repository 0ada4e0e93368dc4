//! `justitia restore`: put back what an agent that was killed left behind.

use anyhow::Result;
use clap::Args;
use justitia_agent::run::restore_host;
use justitia_agent::Error;
use serde::Serialize;

use crate::output::{self, Page};
use crate::settings::{self, ConfigArgs};

/// Arguments of `justitia restore`.
#[derive(Debug, Args)]
#[command(
    after_help = "A knob goes back only if it still holds what the agent wrote; what \
somebody else set since stays.\nNot needed after the agent ended by itself, nor before it starts \
again.

Example:
  justitia restore"
)]
pub(crate) struct RestoreArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct RestoreOutput {
    restored: usize,
    unchanged: usize,
    vanished: usize,
    foreign: Vec<String>,
    problems: Vec<justitia_report::status::Problem>,
}

/// Restores, and says what became of the knobs.
pub(crate) fn run(args: &RestoreArgs) -> Result<()> {
    let settings = settings::load(&args.config)?;
    let found = restore_host(&settings)?;
    let nothing = found.is_none();
    let restored = found.unwrap_or_default();
    let failure = restored.problems.first().cloned();
    if args.json {
        output::print_json(&RestoreOutput {
            restored: restored.restored,
            unchanged: restored.unchanged,
            vanished: restored.vanished,
            foreign: restored.foreign,
            problems: restored.problems,
        })?;
    } else if nothing {
        output::print_line(format_args!("nothing to restore"))?;
    } else {
        let mut text = Page::new();
        writeln!(text, "{}", restored.summary());
        for knob in &restored.foreign {
            writeln!(text, "{knob} was set by somebody else: left alone");
        }
        text.print()?;
    }
    match failure {
        None => Ok(()),
        Some(problem) => Err(Error::failed(problem.cause, problem.remedy).into()),
    }
}
