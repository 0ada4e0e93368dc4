//! Defines the command line. Help, completions and man pages are generated from it.

use std::path::PathBuf;

use clap::{CommandFactory as _, Parser, Subcommand};
use justitia_args::lab::LabArgs;
use justitia_args::probe::ProbeArgs;
use justitia_args::web::WebArgs;

use crate::commands::{
    color, doctor, explain, gate, plan, record, replay, reserve, restore, run, status, top, trial,
    vm, warm, weight, worth,
};

/// Gives each container or VM its share of buffered I/O, by one number: its weight.
#[derive(Debug, Parser)]
#[command(
    name = "justitia",
    version,
    max_term_width = 100,
    disable_help_subcommand = true,
    after_help = "Examples:
  justitia run --manage '/app/*'    manage the cgroups below /app until Ctrl-C
  justitia status                   who gets what, and who should
  justitia top                      the same, live
  justitia weight /app/db 800       eight times the default

Exit codes: 0 done, 1 failed, 2 wrong arguments or configuration, 69 this machine cannot do it (the message says \
what is missing). A file or directory that cannot be read or written is 1, or 69 without the permission.

Pages that messages name, such as docs/gate.md, are in /usr/share/doc/justitia (package) or \
/usr/local/share/doc/justitia (make install)."
)]
pub(crate) struct Cli {
    /// The command to run.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the agent: observe, decide, apply, until it is told to stop
    Run(run::RunArgs),
    /// Observe for a minute: who gets what against the weights, and what an agent would do
    Try(trial::TryArgs),
    /// Show what the running agent sees and does
    Status(status::StatusArgs),
    /// Watch the groups live: shares, page cache, stalls, decisions
    Top(top::TopArgs),
    /// Show what would be written now, and why
    Plan(plan::PlanArgs),
    /// Explain one group: its weight, what that earns it, its knobs
    Explain(explain::ExplainArgs),
    /// Show what page cache is worth to each group: hit ratios with more and with less
    Worth(worth::WorthArgs),
    /// List, show, set or unset weights
    Weight(weight::WeightArgs),
    /// List, show, declare or clear colors: whether a group is satisfied
    Color(color::ColorArgs),
    /// Measure an application and declare its color: green, yellow, red
    Probe(Box<ProbeArgs>),
    /// Serve the live page and the metrics of an agent that was started without them
    Web(WebArgs),
    /// Find what will hurt when memory gets scarce: limits, protections, dirty pages, weights
    Doctor(doctor::DoctorArgs),
    /// Reserve free memory for a group that is about to start
    Reserve(reserve::ReserveArgs),
    /// Read files into the page cache, within what their group is entitled to
    Warm(warm::WarmArgs),
    /// Show the host's page cache of virtual machines' disks, and keep only what guests request again
    Vm(Box<vm::VmArgs>),
    /// The optional kernel module's gate, in which writers wait by weight
    Gate(gate::GateArgs),
    /// Record what the agent sees and decides, step by step, into a file
    Record(record::RecordArgs),
    /// Run the policy over a record, as it was or with other decisions
    Replay(replay::ReplayArgs),
    /// Restore the knobs that a killed agent left behind
    Restore(restore::RestoreArgs),
    /// Run the papers' experiments on stock kernels in virtual machines
    #[command(after_help = "Examples:
  justitia lab list
  justitia lab run fileserver --seconds 60 --out /tmp/fileserver")]
    Lab(Box<LabArgs>),
    /// Write the man pages into a directory
    #[command(hide = true, after_help = "Example:\n  justitia man target/man")]
    Man {
        /// Directory for the man pages; created if it does not exist
        dir: PathBuf,
    },
    /// Print the completions of a shell
    #[command(
        hide = true,
        after_help = "Example:\n  justitia completions bash > /etc/bash_completion.d/justitia"
    )]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// The complete command, for help, completions and man pages.
pub(crate) fn command() -> clap::Command {
    Cli::command()
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod pages_tests;
