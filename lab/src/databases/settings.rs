//! From a command line to the jobs of an experiment with databases: every choice resolved, checked
//! and recorded. [`Settings`] is part of result.json.
//!
//! Memory in bytes, rates in transactions per second, times in seconds.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use super::image;
use super::protocol::{DatabaseJob, DatabasesJob, Keys};
use super::scenario::{find, Scenario, POLICIES};
use crate::args::RunArgs;
use crate::experiments::settings::{cpus_start, in_range, MIN_MEMORY_BYTES};
use crate::policy::{self, did_you_mean, Policy};
use crate::protocol::{Lie, Lru, MemoryDisk, Scheduler};
use justitia_machine::error::LabError;
use justitia_machine::qemu::Clock;

/// Rows that fill a page of a database.
const ROWS_PER_PAGE: u64 = 2;
/// Bytes of a page.
const PAGE_BYTES: u64 = 16 << 10;
/// Bandwidth of the data disk unless the command line names another: for reading the databases at
/// the start. What point selects get is decided by the requests a second.
const DISK_MB_PER_S: u32 = 40;

/// An experiment with every choice made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Series of the stock kernel.
    pub kernel_series: String,
    /// Policies, in the order they are run.
    pub policies: Vec<Policy>,
    /// Containers with their objectives and loads.
    pub containers: Vec<DatabaseJob>,
    /// What each phase is called.
    pub phases: Vec<String>,
    /// Seconds of a phase.
    pub phase_s: u32,
    /// The high load.
    pub rate: u32,
    /// Client threads of each container.
    pub threads: u32,
    /// Rows of each database.
    pub rows: u32,
    /// Which of them are asked for.
    #[serde(default)]
    pub keys: Keys,
    /// Size of each database.
    pub database_bytes: u64,
    /// Guest memory.
    pub memory_bytes: u64,
    /// Virtual CPUs.
    pub cpus: u32,
    /// Requests per second of the data disk.
    pub disk_iops: u32,
    /// Bandwidth of the data disk.
    pub disk_mb_per_s: u32,
    /// Where the guest's time comes from.
    #[serde(default)]
    pub clock: Clock,
    /// LRU of the guest kernel.
    pub lru: Lru,
    /// Block scheduler of the data disk.
    pub scheduler: Scheduler,
    /// How often all policies are run.
    pub runs: u32,
    /// Seed of the first run.
    pub seed: u64,
    /// Extra arguments of the agent.
    pub agent_args: Vec<String>,
    /// Its configuration file.
    pub agent_config: String,
}

impl Settings {
    /// Resolves and checks a command line.
    ///
    /// # Errors
    /// A usage error for the first value that makes no sense.
    pub fn from_args(args: &RunArgs, kernel_series: &[&str]) -> Result<Self, LabError> {
        let scenario = find(&args.experiment).ok_or_else(|| {
            LabError::usage(
                format!("'{}' is no experiment with databases", args.experiment),
                "see 'justitia lab list'",
            )
        })?;
        let kernel = args.guest.kernel.as_str();
        if !kernel_series.contains(&kernel) {
            return Err(LabError::usage(
                format!("unknown kernel series '{kernel}'"),
                did_you_mean(kernel, kernel_series),
            ));
        }
        options_fit(args)?;
        let rate = args.load.rate.unwrap_or(scenario.high);
        in_range("--rate", u64::from(rate), 10, 1_000_000)?;
        let database_bytes = args.load.database_size.unwrap_or(scenario.database_bytes);
        in_range("--database-size", database_bytes, 1 << 20, 16 << 30)?;
        let memory_bytes = args.guest.memory.unwrap_or(scenario.memory_bytes);
        in_range("--memory", memory_bytes, MIN_MEMORY_BYTES, 1 << 40)?;
        let phase_s = args.seconds.unwrap_or(scenario.phase_s);
        in_range("--seconds", u64::from(phase_s), 5, 3600)?;
        let threads = args.load.threads.unwrap_or(scenario.threads);
        in_range("--threads", u64::from(threads), 1, 56)?;
        let disk_iops = args.load.disk_iops.unwrap_or(scenario.disk_iops);
        in_range("--disk-iops", u64::from(disk_iops), 10, 1_000_000)?;
        let disk_mb_per_s = args.guest.disk_mbps.unwrap_or(DISK_MB_PER_S);
        in_range("--disk-mbps", u64::from(disk_mb_per_s), 1, 100_000)?;
        let clock = crate::choices::clock(args.guest.clock);
        cpus_start(args.guest.cpus, clock, kernel)?;
        in_range("--runs", u64::from(args.runs), 1, 100)?;
        Ok(Self {
            kernel_series: kernel.to_owned(),
            policies: policy::chosen(scenario.name, &args.policies, POLICIES, scenario.policies)?,
            containers: containers(scenario, rate, &args.load.lie)?,
            phases: scenario.phases.iter().map(|p| p.0.to_owned()).collect(),
            phase_s,
            rate,
            threads,
            rows: (database_bytes / PAGE_BYTES * ROWS_PER_PAGE) as u32,
            keys: args.load.keys.map_or(scenario.keys, Into::into),
            database_bytes,
            memory_bytes,
            cpus: args.guest.cpus,
            disk_iops,
            disk_mb_per_s,
            clock,
            lru: args.guest.lru.into(),
            // The paper's subject is memory: nothing else is to tell the containers apart.
            scheduler: args.guest.scheduler.map_or(Scheduler::None, Into::into),
            runs: args.runs,
            seed: args.seed,
            agent_args: args.agent.agent_arg.clone(),
            agent_config: agent_config(args)?,
        })
    }

    /// The disk that the guest makes of memory, where the emulator's would go by another clock.
    pub fn memory_disk(&self) -> Option<MemoryDisk> {
        (self.clock != Clock::Host).then(|| MemoryDisk {
            bytes: image::bytes(self.containers.len() as u64, self.database_bytes),
            mb_per_s: self.disk_mb_per_s,
            iops: Some(self.disk_iops),
            copies: true,
        })
    }

    /// The job of one boot: one policy of run `run`, counted from 0.
    pub fn job(&self, scenario: &Scenario, policy: Policy, run: u32) -> DatabasesJob {
        DatabasesJob {
            policy,
            containers: self.containers.clone(),
            phases: scenario.phases.iter().map(|phase| phase.1).collect(),
            phase_s: self.phase_s,
            threads: self.threads,
            rows: self.rows,
            keys: self.keys,
            memory_disk: self.memory_disk(),
            lru: self.lru,
            scheduler: self.scheduler,
            agent_args: self.agent_args.clone(),
            agent_config: self.agent_config.clone(),
            seed: self.seed.wrapping_add(u64::from(run)),
        }
    }
}

fn containers(
    scenario: &Scenario,
    rate: u32,
    lies: &[String],
) -> Result<Vec<DatabaseJob>, LabError> {
    let mut containers: Vec<DatabaseJob> = scenario
        .containers
        .iter()
        .map(|container| DatabaseJob {
            name: container.name.to_owned(),
            weight: Scenario::weight(container),
            objective_tps: scenario.scale(container.objective, rate),
            limit_part: container.limit_mb,
            offered_tps: container
                .offered
                .iter()
                .map(|&offered| (offered > 0).then(|| scenario.scale(offered, rate)))
                .collect(),
            lie: None,
        })
        .collect();
    for text in lies {
        let (name, lie) = Lie::of_option(text)?;
        let container = containers.iter_mut().find(|c| c.name == name);
        let container = container.ok_or_else(|| {
            let names: Vec<&str> = scenario.containers.iter().map(|c| c.name).collect();
            LabError::usage(
                format!("--lie {text}: no such container"),
                did_you_mean(name, &names),
            )
        })?;
        container.lie = Some(lie);
    }
    Ok(containers)
}

/// The agent's configuration file for the study of parameters; empty without one.
fn agent_config(args: &RunArgs) -> Result<String, LabError> {
    let agent = &args.agent;
    let mut text = String::new();
    // Writing to a String cannot fail.
    if let Some(percent) = agent.percent {
        in_range("--percent", u64::from(percent), 1, 50)?;
        let _ = writeln!(text, "color_percent = {percent}");
    }
    if let Some(period) = agent.period {
        in_range("--period", u64::from(period), 1, 60)?;
        let _ = writeln!(text, "color_period = \"{period}s\"");
    }
    if agent.no_yellow {
        text += "color_yellow = false\n";
    }
    Ok(text)
}

/// Refuses options that an experiment with databases would silently ignore.
fn options_fit(args: &RunArgs) -> Result<(), LabError> {
    let load = &args.load;
    let given = [
        ("--weights", !args.weights.is_empty()),
        ("--containers", args.containers.is_some()),
        ("--names", !args.names.is_empty()),
        ("--mount-options", !args.guest.mount_options.is_empty()),
        ("--files", load.files.is_some()),
        ("--mean-file-size", load.mean_file_size.is_some()),
        ("--append-size", load.append_size.is_some()),
        ("--prealloc-percent", load.prealloc_percent.is_some()),
        ("--reads-per-write", load.reads_per_write.is_some()),
        ("--appends-per-write", load.appends_per_write.is_some()),
        ("--idle", !load.idle.is_empty()),
        ("--anon-growth", !load.anon_growth.is_empty()),
        ("--file-size", load.file_size.is_some()),
        ("--shared-size", load.shared_size.is_some()),
        ("--block-size", load.block_size.is_some()),
        ("--write-percent", load.write_percent.is_some()),
        ("--zipf", load.zipf.is_some()),
        ("--polluter", load.polluter.is_some()),
        ("--kill-agent-at", args.agent.kill_agent_at.is_some()),
    ];
    match given.iter().find(|(_, set)| *set) {
        None => Ok(()),
        Some((option, _)) => Err(LabError::usage(
            format!("{} has no option {option}", args.experiment),
            "leave it out; use --rate, --database-size, --keys, --disk-iops and --threads",
        )),
    }
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
