//! The arguments, once: help, completions and man pages come from here.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, CommandFactory as _, Parser, Subcommand};
use justitia_agent::config::{MODES, OBJECTIVES, OBSERVERS};
use justitia_args::lab::LabArgs;
use justitia_args::probe::ProbeArgs;
use justitia_args::web::WebArgs;

use crate::commands::gate::GateArgs;
use crate::commands::reserve::ReserveArgs;
use crate::commands::vm::VmArgs;
use crate::commands::warm::WarmArgs;

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
    /// Observe for a minute: who gets what against the weights, and what an agent would do
    Try(TryArgs),
    /// Show what the running agent sees and does
    Status(StatusArgs),
    /// Watch the groups live: shares, page cache, stalls, decisions
    Top(TopArgs),
    /// Show what would be written now, and why
    Plan(PlanArgs),
    /// Explain one group: its weight, what that earns it, its knobs
    Explain(ExplainArgs),
    /// List, show, set or unset weights
    Weight(WeightArgs),
    /// List, show, declare or clear colors: how well a group is
    Color(ColorArgs),
    /// Measure an application and declare its color: green, yellow, red
    Probe(Box<ProbeArgs>),
    /// Serve the live page and the metrics of an agent that was started without them
    Web(WebArgs),
    /// Find what will hurt when memory gets scarce: limits, protections, dirty pages, weights
    Doctor(DoctorArgs),
    /// Have memory free for a group that is about to start
    Reserve(ReserveArgs),
    /// Read files into the page cache, within what their group is entitled to
    Warm(WarmArgs),
    /// Show what the host caches of virtual machines' disks, and keep only what guests come back for
    Vm(Box<VmArgs>),
    /// The optional kernel module's gate, in which writers wait by weight
    Gate(GateArgs),
    /// Record what the agent sees and decides, step by step, into a file
    Record(RecordArgs),
    /// Run the policy over a record, as it was or with other decisions
    Replay(ReplayArgs),
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
    /// [default: the containers, pods and VMs that are found, and services that have a weight]
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
With --hand-over the knobs stay in force when the agent ends, and an agent that starts within two
minutes goes on from them. Who starts it so runs justitia restore when no agent follows, as the unit does.

Modes: observe measures and writes nothing; justitia sets thresholds by weight (the paper);
proportional adds the feedback on measured bandwidth, and moves memory from groups that declare
themselves green to those that declare themselves red; memoplight does only that, for inferred
colors too, whatever the weights.

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
    /// What counts the traffic: BPF programs, or /proc [default: auto]
    #[arg(long, value_name = "SOURCE", value_parser = PossibleValuesParser::new(OBSERVERS))]
    pub(crate) observer: Option<String>,
    /// Start although no cgroup matches yet
    #[arg(long)]
    pub(crate) wait: bool,
    /// When told to stop, leave the knobs and what was learned to the next agent
    #[arg(long)]
    pub(crate) hand_over: bool,
    /// Address of the live page and the metrics, or off [default: 127.0.0.1:9619]
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<String>,
    /// Log each write with its reason
    #[arg(long, short)]
    pub(crate) verbose: bool,
}

/// Arguments of `justitia try`.
#[derive(Debug, Args)]
#[command(
    after_help = "Needs no agent and writes nothing to any cgroup. Run it while the host is busy: where nobody \
competes
there is nothing to tell. Ctrl-C ends it early, with what was seen so far.
GETS is a group's bandwidth while it competed, BY WEIGHT its weighted share of what all who competed
had. MEMORY.LOW and MEMORY.HIGH are what an agent in mode proportional would write.

Examples:
  justitia try
  justitia try --seconds 10 --manage '/app/*'"
)]
pub(crate) struct TryArgs {
    /// How long to observe
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(2..=86_400))]
    pub(crate) seconds: u64,
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Observe these cgroups; may be repeated [default: the containers, pods and VMs that are found]
    #[arg(long, value_name = "GLOB")]
    pub(crate) manage: Vec<String>,
    /// Leave out these cgroups; may be repeated
    #[arg(long, value_name = "GLOB")]
    pub(crate) exclude: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `justitia status`.
#[derive(Debug, Args)]
#[command(
    after_help = "OF IDEAL is a group's bandwidth over its weighted share: 1.00 is what its \
weight promises.
STALL is the share of the last period in which it waited for memory or I/O.
A COLOR in parentheses is inferred; the others were declared (justitia color).

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
    /// Print what each field of the JSON is, with its unit; needs no agent
    #[arg(long)]
    pub(crate) fields: bool,
}

/// Arguments of `justitia top`.
#[derive(Debug, Args)]
#[command(
    after_help = "Press ? for the keys and what the columns say. q quits. Colors: set NO_COLOR \
to have none.
CACHE/THRESHOLD is the page cache of a group against what is protected of it.
SHARE/IDEAL is its part of the contenders' bandwidth against its part of their weight.

Examples:
  justitia top
  justitia top --interval 500ms
  justitia top --once               one frame as text, as wide as COLUMNS says
  justitia top --json | jq '.pv'    one line for each interval"
)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Time between two looks at the agent, 100ms to 60s
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub(crate) interval: String,
    /// Print one frame as text and end
    #[arg(long)]
    pub(crate) once: bool,
    /// Print JSON, one line for each interval
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
cgroup's directory: a\nrunning agent follows it within ten seconds, and it goes with the cgroup. The \
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

/// Arguments of `justitia color`.
#[derive(Debug, Args)]
#[command(after_help = "green: satisfied, would not benefit from more
yellow: satisfied, would do better with more
red: not satisfied
While a group is red and memory is scarce, memory flows to it from green groups, then yellow
ones. A color counts for color_ttl (5 s) unless --for says otherwise: whoever declares colors
repeats them. A container declares its own in the xattr user.justitia.color of its cgroup.

Examples:
  justitia color                            every managed group
  justitia color /app/db
  justitia color /app/db green --reason 'p99 3 ms'
  justitia color /app/db red --for 10m
  justitia color /app/db --clear")]
pub(crate) struct ColorArgs {
    /// Path of the group relative to the cgroup2 mount, or its last part if an agent runs
    #[arg(value_name = "GROUP")]
    pub(crate) group: Option<String>,
    /// green, yellow or red
    #[arg(value_name = "COLOR", requires = "group")]
    pub(crate) color: Option<String>,
    /// Why, for people
    #[arg(long, value_name = "TEXT", requires = "color", default_value = "")]
    pub(crate) reason: String,
    /// For how long it counts, up to seven days, such as 10s, 5m or 2h
    #[arg(long = "for", value_name = "TIME", requires = "color")]
    pub(crate) time: Option<String>,
    /// Take back what was declared
    #[arg(long, requires = "group", conflicts_with = "color")]
    pub(crate) clear: bool,
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `justitia doctor`.
#[derive(Debug, Args)]
#[command(
    after_help = "Looks at the host and all its cgroups, changes nothing, needs no agent. Each \
finding comes with
what was seen, what it leads to and what to do. What could not be read is said, and is
never taken for fine. Findings that are meant so are silenced in the configuration, with
a reason: silence = [{ check = \"swap-none\", reason = \"...\" }] in [doctor].

Exit codes: 0 nothing found, 1 something found, 69 nothing found, but not everything
could be told.

Examples:
  justitia doctor
  justitia doctor /app/db           what concerns this group
  justitia doctor --json | jq '.checks[] | select(.verdict == \"finding\")'"
)]
pub(crate) struct DoctorArgs {
    /// Only what concerns this cgroup: itself, what is above and below it, the host
    #[arg(value_name = "GROUP")]
    pub(crate) group: Option<String>,
    /// Time between the two looks that give the rates; 0: look once, without rates
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(0..=60))]
    pub(crate) seconds: u64,
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `justitia record`.
#[derive(Debug, Args)]
#[command(
    after_help = "Records the running agent's steps until Ctrl-C: what it was given, what it
remembered, what it decided and why. Without an agent, or with options of its own,
it observes by itself, in mode observe: it writes nothing to any cgroup. A recorder
that is too slow misses steps, which the record says; the agent never waits for it.
What was recorded survives kill -9 of the recorder.

Examples:
  justitia record /var/tmp/friday.jrec
  justitia record --append --seconds 600 /var/tmp/friday.jrec
  justitia record --manage '/app/*' --interval 500ms /tmp/app.jrec"
)]
pub(crate) struct RecordArgs {
    /// The file; it must not be there yet
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Go on with a record that is there
    #[arg(long)]
    pub(crate) append: bool,
    /// End after so many seconds
    #[arg(long, value_name = "N")]
    pub(crate) seconds: Option<u64>,
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Observe these cgroups without the agent; may be repeated
    #[arg(long, value_name = "GLOB")]
    pub(crate) manage: Vec<String>,
    /// Observe without the agent, but not these cgroups; may be repeated
    #[arg(long, value_name = "GLOB")]
    pub(crate) exclude: Vec<String>,
    /// Observe without the agent, this often, 100ms to 60s
    #[arg(long, value_name = "TIME")]
    pub(crate) interval: Option<String>,
}

/// Arguments of `justitia replay`.
#[derive(Debug, Args)]
#[command(
    after_help = "Without options the policy decides under what it was told then, and comes to the
same plans, to the last bit, if it is the same version. With other options the
replay is open loop: the recorded host does not react to other decisions, so
bandwidth and page cache are those of then. Trust the first writes that differ
more than the hundredth. Same file and options, same output.

Examples:
  justitia replay /var/tmp/friday.jrec
  justitia replay --objective strict --weight db=800 /var/tmp/friday.jrec
  justitia replay --at 12.5 /var/tmp/friday.jrec       the plan of that step, with reasons
  justitia replay --export csv /tmp/friday.csv /var/tmp/friday.jrec"
)]
pub(crate) struct ReplayArgs {
    /// A file that justitia record wrote
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Decide under this configuration file: mode, objective, feedback, weights
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// How much of the policy is in force [default: as recorded]
    #[arg(long, value_name = "MODE", value_parser = PossibleValuesParser::new(MODES))]
    pub(crate) mode: Option<String>,
    /// What the feedback aims at [default: as recorded]
    #[arg(long, value_name = "AIM", value_parser = PossibleValuesParser::new(OBJECTIVES))]
    pub(crate) objective: Option<String>,
    /// Another weight for a group, by its path or the last part of it; may be repeated
    #[arg(long, value_name = "GROUP=N")]
    pub(crate) weight: Vec<String>,
    /// Leave out what is earlier than so many seconds into the record
    #[arg(long, value_name = "SECONDS")]
    pub(crate) from: Option<f64>,
    /// Leave out what is later
    #[arg(long, value_name = "SECONDS")]
    pub(crate) to: Option<f64>,
    /// Print the plan of the first step at or after this time, with its reasons
    #[arg(long, value_name = "SECONDS", conflicts_with_all = ["from", "to", "csv", "export"])]
    pub(crate) at: Option<f64>,
    /// How many of the writes that differ to show
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) differences: usize,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the table of groups as CSV
    #[arg(long, conflicts_with = "json")]
    pub(crate) csv: bool,
    /// Write every step into a new file: csv for a row for each group, json for everything
    #[arg(long, num_args = 2, value_names = ["FORMAT", "FILE"])]
    pub(crate) export: Vec<String>,
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
    /// Do nothing if systemd is about to start this unit again and the agent handed over
    #[arg(long, value_name = "UNIT")]
    pub(crate) unless_restarting: Option<String>,
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
