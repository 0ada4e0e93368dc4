//! The arguments, once: help, completions and man pages come from here.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, CommandFactory as _, Parser, Subcommand};
use justitia_agent::config::{MODES, OBJECTIVES};
use justitia_lab::args::LabArgs;

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
  justitia weight /app/db 800       eight times the default

Exit codes: 0 done, 1 failed, 2 wrong arguments or configuration,
69 this machine cannot do it (the message says what is missing)."
)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the agent: observe, decide, apply, until it is told to stop
    Run(RunArgs),
    /// Show what the running agent sees and does
    Status(StatusArgs),
    /// Show what would be written now, and why
    Plan(PlanArgs),
    /// Explain one group: its weight, what that earns it, its knobs
    Explain(ExplainArgs),
    /// List, show, set or unset weights
    Weight(WeightArgs),
    /// Put back what an agent that was killed left behind
    Restore(RestoreArgs),
    /// Run the papers' experiments on stock kernels in virtual machines
    #[command(after_help = "Examples:
  justitia lab list
  justitia lab run fileserver --seconds 60 --out /tmp/fileserver")]
    Lab(Box<LabArgs>),
    /// Write the man pages into a directory
    #[command(hide = true, after_help = "Example:\n  justitia man target/man")]
    Man {
        /// Directory for the man pages; made if it is not there
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

/// Where to find the configuration.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ConfigArgs {
    /// Configuration file [default: /etc/justitia.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Directory of the agent's journal, lock and socket [default: /run/justitia]
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
}

/// What the policy is to do; each wins over the configuration file.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct PolicyArgs {
    /// Cgroups to manage, relative to the cgroup2 mount; may be repeated
    /// [default: the containers, pods and VMs that are found]
    #[arg(long, value_name = "GLOB")]
    pub(crate) manage: Vec<String>,
    /// Cgroups to leave alone; may be repeated
    #[arg(long, value_name = "GLOB")]
    pub(crate) exclude: Vec<String>,
    /// How much of the policy is in force [default: proportional]
    #[arg(long, value_name = "MODE", value_parser = PossibleValuesParser::new(MODES))]
    pub(crate) mode: Option<String>,
    /// What the feedback aims at [default: fair]
    #[arg(long, value_name = "AIM", value_parser = PossibleValuesParser::new(OBJECTIVES))]
    pub(crate) objective: Option<String>,
    /// Time between two steps, 100ms to 60s [default: 1s]
    #[arg(long, value_name = "TIME")]
    pub(crate) interval: Option<String>,
}

/// Arguments of `justitia run`.
#[derive(Debug, Args)]
#[command(
    after_help = "Every knob goes back to what it held before when the agent ends. After \
kill -9 the next start\ndoes that, or justitia restore. SIGHUP reads the configuration again.

Modes: observe measures and writes nothing; justitia sets thresholds by weight (the paper);
proportional adds the feedback on measured bandwidth.

Examples:
  justitia run --manage '/app/*'
  justitia run --mode observe --wait
  justitia run --config /etc/justitia.toml"
)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
    /// Start although no cgroup matches yet
    #[arg(long)]
    pub(crate) wait: bool,
    /// Log each write with its reason
    #[arg(long, short)]
    pub(crate) verbose: bool,
}

/// Arguments of `justitia status`.
#[derive(Debug, Args)]
#[command(
    after_help = "OF IDEAL is a group's bandwidth over its weighted share: 1.00 is what its \
weight promises.
STALL is the share of the last period in which it waited for memory or I/O.

Examples:
  justitia status
  justitia status --json | jq '.groups[] | {path, of_ideal}'"
)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `justitia plan`.
#[derive(Debug, Args)]
#[command(
    after_help = "Shows the running agent's last step. Without an agent, or with options of \
its own, it observes\ntwice, one interval apart, and shows what an agent would write. It writes \
nothing itself.

Examples:
  justitia plan
  justitia plan --manage '/app/*' --mode justitia"
)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `justitia explain`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  justitia explain /app/db
  justitia explain db --json")]
pub(crate) struct ExplainArgs {
    /// Path of the group relative to the cgroup2 mount, or its last part
    #[arg(value_name = "GROUP")]
    pub(crate) group: String,
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `justitia weight`.
#[derive(Debug, Args)]
#[command(
    after_help = "A weight set here is the extended attribute user.justitia.weight of the \
cgroup's directory: a\nrunning agent follows it at once, and it goes with the cgroup. The \
configuration file wins over it.

Examples:
  justitia weight                   every managed group, and where its weight comes from
  justitia weight /app/db
  justitia weight /app/db 800
  justitia weight /app/db --unset"
)]
pub(crate) struct WeightArgs {
    /// Path of the group relative to the cgroup2 mount, or the last part of a managed one's
    #[arg(value_name = "GROUP")]
    pub(crate) group: Option<String>,
    /// The new weight, 1 to 10000
    #[arg(value_name = "N", requires = "group", allow_negative_numbers = true)]
    pub(crate) weight: Option<String>,
    /// Remove the weight set here
    #[arg(long, requires = "group", conflicts_with = "weight")]
    pub(crate) unset: bool,
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Cgroups that are managed, when the configuration does not say
    #[arg(long, value_name = "GLOB")]
    pub(crate) manage: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

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

/// The whole command, for help, completions and man pages.
pub(crate) fn command() -> clap::Command {
    Cli::command()
}

#[cfg(test)]
#[path = "args_tests.rs"]
mod tests;
