//! Arguments of `justitia lab`, as one clap definition that help, completions and man pages share.
//!
//! Only shapes live here: the name of an option, and how its text becomes a number. The lab checks whether
//! the numbers make sense together, so that a bad value gets the same line of cause and line of remedy
//! wherever it comes from.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use justitia_report::text::word;
use serde::{Deserialize, Serialize};

/// Arguments of `justitia lab`.
#[derive(Debug, Clone, Args)]
pub struct LabArgs {
    /// The command to run.
    #[command(subcommand)]
    pub command: LabCommand,
}

/// The things the lab does.
#[derive(Debug, Clone, Subcommand)]
pub enum LabCommand {
    /// Run an experiment under several policies on a stock kernel and write its report
    Run(Box<RunArgs>),
    /// List the experiments, their policies and what each one shows
    List(ListArgs),
    /// Measure what observing costs the observed load: no observer, /proc and eBPF in turn
    Overhead(OverheadArgs),
    /// Measure where tasks wait on the way to page-cache pages, with the fileserver load
    Waits(WaitsArgs),
    /// Analyze the recorded series in DIR/result.json again and write DIR/report.html; for
    /// DIR/waits.json or DIR/overhead.json, print the table
    Report(ReportArgs),
}

/// Arguments of `justitia lab list`.
#[derive(Debug, Clone, Args)]
pub struct ListArgs {
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `justitia lab report`.
#[derive(Debug, Clone, Args)]
pub struct ReportArgs {
    /// Directory that holds result.json, waits.json or overhead.json
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Print the figures as JSON too
    #[arg(long)]
    pub json: bool,
}

/// Options that all measuring commands have.
#[derive(Debug, Clone, Args)]
pub struct OutputArgs {
    /// Directory for the record (result.json, overhead.json or waits.json), report.html and the guests'
    /// consoles
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Seed of every random choice; run N uses SEED + N - 1
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Print the record instead of the table
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `justitia lab overhead`.
#[derive(Debug, Clone, Args)]
pub struct OverheadArgs {
    /// Loads to observe: randread, read, fileserver [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub loads: Vec<String>,
    /// Pairs for each load
    #[arg(long, value_name = "N", default_value_t = 12)]
    pub pairs: u32,
    /// Seconds of each window
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub seconds: u32,
    /// Series of the stock kernel
    #[arg(long, value_name = "SERIES", default_value = "6.12")]
    pub kernel: String,
    /// Virtual CPUs
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub cpus: u32,
    /// The output.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Arguments of `justitia lab waits`.
#[derive(Debug, Clone, Args)]
pub struct WaitsArgs {
    /// Seconds that the load runs; the second half is measured
    #[arg(long, value_name = "N", default_value_t = 60)]
    pub seconds: u32,
    /// The output.
    #[command(flatten)]
    pub output: OutputArgs,
    /// The guest.
    #[command(flatten)]
    pub guest: GuestArgs,
}

/// Arguments of `justitia lab run`.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// Name of the experiment, as in 'justitia lab list'
    #[arg(value_name = "EXPERIMENT")]
    pub experiment: String,
    /// Policies to compare, in this order [default: the experiment's own]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub policies: Vec<String>,
    /// Weights of the containers, 1 to 10000 each [default: the experiment's own]
    #[arg(long, value_name = "WEIGHT", value_delimiter = ',')]
    pub weights: Vec<u32>,
    /// This many containers of weight 100, 200, 300 and so on
    #[arg(long, value_name = "N", conflicts_with = "weights")]
    pub containers: Option<u32>,
    /// Names of the containers, as many as weights; a slash nests: tenant/web
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub names: Vec<String>,
    /// Seconds of the measured phase, or of each phase (databases) [default: the experiment's own]
    #[arg(long, value_name = "N")]
    pub seconds: Option<u32>,
    /// Run all policies this many times, back to back, and report medians
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub runs: u32,
    /// The output.
    #[command(flatten)]
    pub output: OutputArgs,
    /// The guest.
    #[command(flatten)]
    pub guest: GuestArgs,
    /// The load.
    #[command(flatten)]
    pub load: LoadArgs,
    /// The agent.
    #[command(flatten)]
    pub agent: AgentArgs,
}

/// The virtual machine.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Guest")]
pub struct GuestArgs {
    /// Series of the stock kernel
    #[arg(long, value_name = "SERIES", default_value = "6.12")]
    pub kernel: String,
    /// Memory of the guest, at least 256M [default: the experiment's own]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub memory: Option<u64>,
    /// Virtual CPUs
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub cpus: u32,
    /// Bandwidth of the data disk, 10^6 bytes per second [default: the experiment's own]
    #[arg(long, value_name = "N")]
    pub disk_mbps: Option<u32>,
    /// Page reclaim: the kernel's default, two lists, or generations
    #[arg(long, value_enum, default_value = "kernel", value_name = "LRU")]
    pub lru: Lru,
    /// Block scheduler of the data disk [default: bfq; none with databases]
    #[arg(long, value_enum, value_name = "NAME")]
    pub scheduler: Option<Scheduler>,
    /// Volume between the data disk and the file system, of disks in the guest's memory: needs a clock of
    /// instructions (experiments with files)
    #[arg(long, value_enum, value_name = "KIND")]
    pub volume: Option<Volume>,
    /// Clock of the guest. With instructions, the host's other work and its speed hardly matter; the
    /// disk is in the guest's memory, and a guest second takes several host seconds
    #[arg(long, value_enum, default_value = "host", value_name = "CLOCK")]
    pub clock: ClockArg,
    /// Mount options of the ext4 under test, for example `noauto_da_alloc`
    #[arg(long, value_name = "OPTIONS", default_value = "")]
    pub mount_options: String,
}

/// The load of the containers.
#[derive(Debug, Clone, Default, Args, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = "Load")]
pub struct LoadArgs {
    /// Worker threads of each container (fileserver, readmix)
    #[arg(long, value_name = "N")]
    pub threads: Option<u32>,
    /// Files of each container (fileserver)
    #[arg(long, value_name = "N")]
    pub files: Option<u32>,
    /// Whole-file reads for each new file; more than 1 is read-mostly (fileserver)
    #[arg(long, value_name = "N")]
    pub reads_per_write: Option<u32>,
    /// Appends for each new file; more than 1 is append-mostly (fileserver)
    #[arg(long, value_name = "N")]
    pub appends_per_write: Option<u32>,
    /// Let this container work and pause in turn, each for SECONDS (fileserver) [default: 15]
    #[arg(long, value_name = "NAME[=SECONDS]")]
    pub idle: Vec<String>,
    /// Let this container's anonymous memory grow by SIZE each second (fileserver) [default: 8M]
    #[arg(long, value_name = "NAME[=SIZE]")]
    pub anon_growth: Vec<String>,
    /// Size of each container's file (readmix, reread), of the private ones (sharing), of the reader's
    /// (worth)
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub file_size: Option<u64>,
    /// Size of the file that two containers share (sharing)
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub shared_size: Option<u64>,
    /// Bytes of each request (readmix)
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub block_size: Option<u64>,
    /// Requests that write, percent; 5 is read-mostly, 30 is mixed (readmix)
    #[arg(long, value_name = "N")]
    pub write_percent: Option<u32>,
    /// Skew of the reads: exponent of the Zipf distribution, 0 is uniform (readmix)
    #[arg(long, value_name = "X")]
    pub zipf: Option<f64>,
    /// Bytes that the host writes between caching and rereading (reread), that each container after the
    /// second reads (sharing), or that the scan reads (worth)
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub polluter: Option<u64>,
    /// The high load of one container, transactions per second; all other loads and the objectives
    /// keep their ratio to it (databases). Requests per second of the reader, instead of as many as it
    /// can (worth)
    #[arg(long, value_name = "N")]
    pub rate: Option<u32>,
    /// Size of each database (databases)
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub database_size: Option<u64>,
    /// Distribution of requests over rows: uniform, or sysbench's default, which favors few rows (databases)
    #[arg(long, value_name = "KEYS")]
    pub keys: Option<Keys>,
    /// Requests per second that the data disk serves (databases)
    #[arg(long, value_name = "N")]
    pub disk_iops: Option<u32>,
    /// Let this container declare green, red, flap, garbage, huge or nothing (silent) each second,
    /// instead of its color if it has one (fileserver, readmix, databases)
    #[arg(long, value_name = "NAME=WHAT")]
    pub lie: Vec<String>,
    /// Attacks of the tenant: records, attributes, groups, memory, depth and names (hostile)
    /// [default: all]
    #[arg(long, value_enum, value_name = "ATTACK,...", value_delimiter = ',')]
    pub attacks: Vec<Attack>,
}

/// The agent under test.
#[derive(Debug, Clone, Default, Args, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = "Agent")]
pub struct AgentArgs {
    /// One more argument for `justitia run` in the guest; may be repeated
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    pub agent_arg: Vec<String>,
    /// One more line of the agent's configuration, for example 'disk.iocost = false'; may be repeated
    #[arg(long, value_name = "LINE")]
    pub agent_config: Vec<String>,
    /// Kill the agent after this many measured seconds and start it again a second later
    #[arg(long, value_name = "SECONDS")]
    pub kill_agent_at: Option<u32>,
}

/// Kind of a hostile tenant's attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Attack {
    /// Records of containers that are not its own, or no records.
    Records,
    /// Weights that it may not set, and names that no path can hold.
    Attributes,
    /// Cgroups that look like containers.
    Groups,
    /// Anonymous and mapped memory.
    Memory,
    /// I/O from far below its cgroup.
    Depth,
    /// Names with terminal escape sequences.
    Names,
}

/// Distribution of requests over rows. The names are those of sysbench's `--rand-type`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Keys {
    /// Each row as often as the others
    #[default]
    Uniform,
    /// Three quarters of the requests for one percent of the rows
    Special,
}

impl Keys {
    pub fn name(self) -> String {
        word(&self)
    }
}

/// The kernel's reclaim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lru {
    /// The kernel's default: classic on Debian's 6.1, mglru on 6.12 and 7.2
    Kernel,
    /// Active and inactive list
    Classic,
    /// Multi-generational LRU
    Mglru,
}

/// The guest's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ClockArg {
    /// The host's time
    Host,
    /// One nanosecond for each instruction, real time while the guest is idle; only under emulation
    Instructions,
    /// Like instructions, but an idle guest jumps to its next timer: for loads that mostly wait for the disk
    Jumping,
}

/// The block scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheduler {
    /// Budget fair queueing: honors weights by itself
    Bfq,
    /// No scheduler: weights have no effect without io.cost
    None,
    /// Deadlines: weights have no effect without io.cost
    MqDeadline,
    /// Latency targets: weights have no effect without io.cost
    Kyber,
}

impl Scheduler {
    /// The kernel's name for it.
    pub fn name(self) -> String {
        word(&self)
    }
}

/// A volume over disks of the stated speed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Volume {
    /// Device mapper's linear target, as LVM uses it, over one disk
    Linear,
    /// dm-crypt over one disk, with the null cipher: real ones take the emulated CPU
    Crypt,
    /// dm-crypt that writes in the writer's thread (`no_write_workqueue`)
    CryptInline,
    /// RAID 1 of two disks (md)
    Raid1,
    /// RAID 5 of three disks (md)
    Raid5,
    /// RAID 5 of three disks as LVM makes it (dm-raid)
    LvmRaid5,
}

impl Volume {
    /// The option's value.
    pub fn name(self) -> String {
        word(&self)
    }
}

/// A size, see [`justitia_quantity::size`].
///
/// # Errors
/// A refusal, see [`crate::answer`].
pub fn size(text: &str) -> Result<u64, String> {
    justitia_quantity::size(text).map_err(|why| why + "\nuse for example 768M, 1G or 65536")
}
