//! `justitia try`: observes for a minute, and compares the groups' bandwidth with their weighted shares and
//! an agent's decisions. Writes nothing.
//!
//! Each step is also decided in mode `proportional`, with the feedback switched off: no decision takes
//! effect, so gains would only run to their limits. The due bandwidth of a group is therefore its weighted
//! share of the bandwidth, in the same step, of all groups that an agent would order (`ideal_rates` of the
//! policy). It is the share by weight and not a forecast. Groups that mostly read do not compete in this
//! sense: for them the report shows the page cache that they hold and are entitled to.

mod render;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use justitia_agent::socket::ask;
use justitia_agent::{run, Error, Log, Result, Settings};
use justitia_doctor::{examine, Verdict};
use justitia_policy::config::{FeedbackConfig, Mode};
use justitia_policy::plan::{Knob, Value};
use justitia_policy::snapshot::{GroupId, WeightSource};
use justitia_policy::units::Limit;
use justitia_policy::{Config, State};
use justitia_report::status::{label, Problem, Tick};
use rustix::process::geteuid;
use serde::Serialize;

use self::render::render;
use super::doctor;
use super::record::stop_on_signals;
use crate::output;
use crate::settings::{self, ConfigArgs, GlobArgs, PolicyArgs};

/// Arguments of `justitia try`.
#[derive(Debug, Args)]
#[command(after_help = "\
Needs no agent and writes nothing. Run it while the host is busy: without competition there is nothing to report. \
systemd services are included if they have an IOWeight=; name others with --manage '/system.slice/*'. Ctrl-C ends it \
early and reports what it saw so far. Beside a running agent it reports what groups get with that agent.

Groups that write compete while they wait for memory or the disk. GETS is a group's bandwidth in that time. BY WEIGHT \
is its weighted share of the competing groups' bandwidth in the same seconds. A group that leaves its share of page \
cache unused counts with what it gets. OF IDEAL is GETS over BY WEIGHT. CACHE is the page cache that it held last. \
ENTITLED is its share of the page cache by weight, which memory.low would protect. MEMORY.HIGH is the lowest limit \
that an agent in mode proportional would have set.

Exit codes: 0 reported, 1 no group found or ended in the first second, 69 no group's bandwidth is known (not root).

Examples:
  justitia try
  justitia try --seconds 10 --manage '/app/*'")]
pub(crate) struct TryArgs {
    /// Seconds of observation
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(2..=86_400))]
    pub(crate) seconds: u64,
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    #[command(flatten)]
    pub(crate) globs: GlobArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The observations and an agent's decisions: the output of `--json`.
#[derive(Debug, Default, Serialize)]
struct Trial {
    /// Time between the first step and the last.
    seconds: f64,
    /// The part of `seconds` in which at least two groups competed.
    contended_s: f64,
    /// Bytes of the competing groups in `contended_s`.
    contended_bytes: f64,
    /// The part of `contended_bytes` that groups moved beyond their share.
    misplaced_bytes: f64,
    /// The farthest from their share first.
    groups: Vec<Tried>,
    /// The mechanism that enforces weights on each disk: `bfq`, `io.cost` or `none`.
    disks: BTreeMap<String, &'static str>,
    /// Disks whose BFQ `low_latency` an agent would turn off.
    low_latency_disks: Vec<String>,
    /// Checks of `justitia doctor` with findings, the worst first. The doctor reads once, without rates.
    findings: Vec<&'static str>,
    /// Source of the traffic counters: `bpf` or `proc`.
    observer: Option<&'static str>,
    /// Mode of an agent that is already running.
    running_mode: Option<Mode>,
    /// This program, as it was started.
    #[serde(skip)]
    program: String,
    /// systemd has a unit of the agent.
    #[serde(skip)]
    has_unit: bool,
    problems: Vec<Problem>,
}

/// One group over the whole observation.
#[derive(Debug, Default, Serialize)]
struct Tried {
    path: String,
    /// Its name in the table: the owner's, or else the path.
    #[serde(skip)]
    label: String,
    weight: u32,
    weight_source: WeightSource,
    /// Its share of the managed groups' weight in the last step.
    #[serde(skip)]
    proportion: f64,
    /// Bytes that it read and wrote; `None`: unknown in every step.
    bytes: Option<f64>,
    /// Time in which it competed.
    contended_s: f64,
    /// Bytes that it moved in `contended_s`.
    got_bytes: f64,
    /// Its weighted share of the bytes that all competing groups moved in `contended_s`.
    due_bytes: f64,
    /// Time in which it waited for memory or I/O, whether or not it competed.
    waited_s: f64,
    /// Share of the pages that it read which were cached; `None`: not counted, or it read none.
    hit_ratio: Option<f64>,
    #[serde(skip)]
    asked_pages: f64,
    #[serde(skip)]
    hit_pages: f64,
    /// Page cache that it held in the last step; `None`: unknown.
    file_bytes: Option<u64>,
    /// Its entitlement to page cache in the last step; `None`: unknown, or it divides its share among the
    /// groups in it.
    entitlement_bytes: Option<u64>,
    /// The last value that an agent would have written to `memory.low`.
    memory_low: Option<String>,
    /// The lowest limit that an agent would have written to `memory.high`.
    memory_high_bytes: Option<u64>,
}

impl Tried {
    /// Its bandwidth while it competed.
    fn got(&self) -> Option<f64> {
        (self.contended_s > 0.0).then(|| self.got_bytes / self.contended_s)
    }

    /// Its weighted share in that time.
    fn due(&self) -> Option<f64> {
        (self.contended_s > 0.0).then(|| self.due_bytes / self.contended_s)
    }

    /// Its bandwidth over its weighted share.
    fn of_ideal(&self) -> Option<f64> {
        let due = self.due().filter(|due| *due > 0.0)?;
        Some(self.got()? / due)
    }

    fn off(&self) -> f64 {
        (self.got_bytes - self.due_bytes).abs()
    }
}

/// The observations so far.
struct Tally {
    policy: Config,
    state: State,
    trial: Trial,
    groups: BTreeMap<GroupId, Tried>,
}

pub(crate) fn run(args: &TryArgs) -> Result<()> {
    let policy = PolicyArgs {
        globs: args.globs.clone(),
        ..Default::default()
    };
    let settings = settings::with_policy(&args.config, &policy)?;
    let stop = stop_on_signals()?;
    let mut tally = Tally::new(&settings);
    tally.trial.running_mode = ask(&settings.socket()).ok().map(|report| report.mode);
    let mut progress = output::Progress::default();
    run::watch(&settings, &Log::stderr(false), &stop, |tick, step| {
        tally.see(tick, step.elapsed);
        let seconds = tally.trial.seconds;
        progress.show(format_args!("{seconds:.0} of {} s ", args.seconds));
        Ok(seconds < args.seconds as f64)
    })?;
    drop(progress);
    let mut trial = tally.finish();
    trial.survey(&settings)?;
    output::print(args.json, &trial, |screen| render(&trial, screen))?;
    if trial.knows_bandwidth() {
        Ok(())
    } else {
        Err(unknown(geteuid().is_root()))
    }
}

/// The error that no group's bandwidth is known. For root it is known once there are two steps.
fn unknown(is_root: bool) -> Error {
    let cause = "the bandwidth of no group is known";
    if is_root {
        return Error::failed(cause, "observe for at least 2 seconds");
    }
    let remedy = format!("run it as root: sudo {} try", program());
    Error::environment(cause, remedy)
}

/// The problem of a command that observes without being root.
pub(super) fn without_root(is_root: bool, command: &str) -> Option<Problem> {
    (!is_root).then(|| Problem {
        group: None,
        cause: "not run as root: the bandwidth of other users' processes is not known".into(),
        remedy: format!("sudo {} {command}", program()),
    })
}

/// This program as it was started: `justitia`, or a path. Before it is installed, sudo finds only the latter.
fn program() -> String {
    let program = std::env::args_os().next().unwrap_or_default();
    program.to_string_lossy().into_owned()
}

/// Directories of systemd's units.
const UNITS: [&str; 4] = [
    "/etc/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

impl Trial {
    /// True if the bandwidth of any group is known.
    fn knows_bandwidth(&self) -> bool {
        self.groups.iter().any(|group| group.bytes.is_some())
    }

    /// Adds the doctor's findings.
    fn survey(&mut self, settings: &Settings) -> Result<()> {
        let report = examine(
            &doctor::survey(settings, Duration::ZERO)?,
            &settings.silences,
            None,
        );
        let mut found: Vec<_> = report.checks.iter().collect();
        found.retain(|check| check.verdict == Verdict::Finding);
        found.sort_by_key(|check| std::cmp::Reverse(check.severity));
        self.findings = found.iter().map(|check| check.id).collect();
        self.disks = report.host.disks;
        self.program = program();
        let mut units = UNITS.iter();
        self.has_unit = units.any(|dir| Path::new(dir).join("justitia.service").exists());
        let problem = without_root(geteuid().is_root(), "try");
        self.problems.extend(problem);
        Ok(())
    }
}

impl Tally {
    fn new(settings: &Settings) -> Tally {
        Tally {
            policy: Config {
                mode: Mode::Proportional,
                feedback: FeedbackConfig {
                    // No smoothing: the ratio to the share is that of this step alone.
                    smoothing_s: 0.0,
                    integral_per_s: 0.0,
                    proportional: 0.0,
                    ..settings.feedback
                },
                ..settings.policy()
            },
            state: State::default(),
            trial: Trial::default(),
            groups: BTreeMap::new(),
        }
    }

    fn see(&mut self, tick: Tick, elapsed: Duration) {
        let (state, plan) =
            justitia_policy::step(&self.state, &tick.snapshot, &self.policy, elapsed);
        self.state = state;
        self.trial.problems = tick.problems;
        self.trial.observer = tick.observer;
        self.trial.seconds += elapsed.as_secs_f64();
        for group in &tick.snapshot.groups {
            if let Some(weight) = group.weight {
                let tried = self.groups.entry(group.id).or_default();
                tried.path.clone_from(&group.path);
                let names = tick.names.get(&group.id);
                label(&group.path, names).clone_into(&mut tried.label);
                tried.weight = weight.get();
                tried.weight_source = group.weight_source;
                tried.file_bytes = group.memory.file.map(|bytes| bytes.0);
            }
        }
        for write in &plan.writes {
            match (self.groups.get_mut(&write.group), write.knob, &write.value) {
                (Some(tried), Knob::MemoryLow, value) => {
                    tried.memory_low = Some(value.to_string());
                }
                (Some(tried), Knob::MemoryHigh, Value::Limit(Limit::Bytes(bytes))) => {
                    let least = tried.memory_high_bytes.unwrap_or(u64::MAX).min(bytes.0);
                    tried.memory_high_bytes = Some(least);
                }
                (None, Knob::BfqLowLatency, _) => {
                    let mut disks = tick.snapshot.devices.iter();
                    let disk = disks.find(|disk| disk.id == write.group);
                    let name = disk.map(|disk| disk.path.trim_start_matches("block:").to_owned());
                    let known = &mut self.trial.low_latency_disks;
                    known.extend(name.filter(|name| !known.contains(name)));
                }
                _ => {}
            }
        }
        self.compare(&plan, elapsed);
    }

    /// Adds each competing group's bandwidth and share in this step.
    fn compare(&mut self, plan: &justitia_policy::plan::Plan, elapsed: Duration) {
        let seconds = elapsed.as_secs_f64();
        let mut competing = Vec::new();
        for verdict in &plan.verdicts {
            let Some(tried) = self.groups.get_mut(&verdict.group) else {
                continue;
            };
            tried.entitlement_bytes = Some(verdict.entitlement.0);
            tried.proportion = verdict.proportion;
            tried.waited_s += f64::from(u8::from(verdict.contending)) * seconds;
            let cache = &verdict.cache;
            if let (Some(hits), Some(asked)) = (cache.hit_ratio, cache.asked_pages_per_s) {
                tried.asked_pages += asked * seconds;
                tried.hit_pages += hits * asked * seconds;
                tried.hit_ratio = Some(tried.hit_pages / tried.asked_pages);
            }
            let Some(rate) = verdict.bytes_per_s else {
                continue;
            };
            *tried.bytes.get_or_insert(0.0) += rate * seconds;
            if let Some(of_ideal) = verdict.of_ideal {
                let due = (of_ideal > 0.0).then(|| rate / of_ideal);
                competing.push((verdict.group, verdict.proportion, rate, due));
            }
        }
        let total: f64 = competing.iter().map(|c| c.2).sum();
        if competing.len() < 2 || total <= 0.0 {
            return;
        }
        // The share of a group follows from its bandwidth over its ratio to the share. A group that moved
        // nothing has no such ratio: it is due a part of the rest.
        let rest = total - competing.iter().filter_map(|c| c.3).sum::<f64>();
        let silent = competing.iter().filter(|c| c.3.is_none());
        let silent_weight: f64 = silent.map(|c| c.1).sum();
        self.trial.contended_s += seconds;
        self.trial.contended_bytes += total * seconds;
        for (group, proportion, rate, due) in competing {
            let due = due.unwrap_or_else(|| rest.max(0.0) * proportion / silent_weight);
            self.trial.misplaced_bytes += (rate - due).max(0.0) * seconds;
            if let Some(tried) = self.groups.get_mut(&group) {
                tried.contended_s += seconds;
                tried.got_bytes += rate * seconds;
                tried.due_bytes += due * seconds;
            }
        }
    }

    fn finish(mut self) -> Trial {
        self.trial.groups = self.groups.into_values().collect();
        // The sort is stable: groups at the same distance stay in order of creation.
        let by_distance = |a: &Tried, b: &Tried| b.off().total_cmp(&a.off());
        self.trial.groups.sort_by(by_distance);
        self.trial
    }
}

#[cfg(test)]
mod tests;
