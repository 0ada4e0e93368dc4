//! Turns a command line into the jobs of an experiment with databases: every choice resolved, validated and
//! recorded. [`Settings`] is part of result.json.
//!
//! Memory in bytes, rates in transactions per second, times in seconds.

use serde::{Deserialize, Serialize};

use super::image;
use super::scenario::{Scenario, POLICIES};
use crate::args::RunArgs;
use crate::choices::{in_range, size_in_range, Choices, Defaults};
use crate::policy::{by_name, Policy};
use crate::protocol::databases::{DatabaseJob, DatabasesJob, Keys, Start};
use crate::protocol::{Lie, MemoryDisk, Scheduler};
use justitia_machine::error::{LabError, Result};
use justitia_machine::qemu::Clock;

/// Rows that fill a page of a database.
const ROWS_PER_PAGE: u64 = 2;
const PAGE_BYTES: u64 = 16 << 10;
/// Default bandwidth of the data disk, for reading the databases at the start. The throughput of point
/// selects is determined by the requests per second.
const DISK_MB_PER_S: u32 = 40;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    #[serde(flatten)]
    pub choices: Choices,
    pub containers: Vec<DatabaseJob>,
    pub phases: Vec<String>,
    #[serde(skip)]
    pub starts: Vec<Start>,
    pub phase_s: u32,
    pub rate: u32,
    pub threads: u32,
    pub rows: u32,
    #[serde(default)]
    pub keys: Keys,
    pub database_bytes: u64,
    pub disk_iops: u32,
}

impl Settings {
    /// Resolves and validates a command line.
    pub fn from_args(scenario: &Scenario, args: &RunArgs) -> Result<Self> {
        let defaults = Defaults {
            memory_bytes: scenario.memory_bytes,
            disk_mb_per_s: DISK_MB_PER_S,
            // The paper's subject is memory, so nothing else may distinguish the containers.
            scheduler: Scheduler::None,
        };
        // Static limits divide what the databases hold, and a neighbor begins with nothing.
        let neighbors = scenario.containers.iter().any(|c| c.neighbor.is_some());
        let possible = if neighbors {
            scenario.policies
        } else {
            POLICIES
        };
        let choices =
            Choices::from_args(args, scenario.name, (scenario.policies, possible), defaults)?;
        if choices.volume.is_some() {
            return Err(LabError::usage(
                "--volume is not for experiments with databases",
                "leave it out, or choose an experiment with files",
            ));
        }
        let rate = args.load.rate.unwrap_or(scenario.high);
        in_range("--rate", rate, 10, 1_000_000)?;
        let database_bytes = args.load.database_size.unwrap_or(scenario.database_bytes);
        size_in_range("--database-size", database_bytes, 1 << 20, 16 << 30)?;
        let phase_s = args.seconds.unwrap_or(scenario.phase_s);
        in_range("--seconds", phase_s, 5, 3600)?;
        let threads = args.load.threads.unwrap_or(scenario.threads);
        in_range("--threads", threads, 1, 56)?;
        let disk_iops = args.load.disk_iops.unwrap_or(scenario.disk_iops);
        in_range("--disk-iops", disk_iops, 10, 1_000_000)?;
        Ok(Self {
            choices,
            containers: containers(scenario, rate, &args.load.lie)?,
            phases: scenario.phases.iter().map(|p| p.0.to_owned()).collect(),
            starts: scenario.phases.iter().map(|p| p.1).collect(),
            phase_s,
            rate,
            threads,
            rows: (database_bytes / PAGE_BYTES * ROWS_PER_PAGE) as u32,
            keys: args.load.keys.unwrap_or(scenario.keys),
            database_bytes,
            disk_iops,
        })
    }

    /// The guest's own memory disk, needed when the emulator's disk would follow another clock.
    pub fn memory_disk(&self) -> Option<MemoryDisk> {
        (self.choices.clock != Clock::Host).then(|| MemoryDisk {
            bytes: image::bytes(self.containers.len() as u64, self.database_bytes),
            mb_per_s: self.choices.disk_mb_per_s,
            iops: Some(self.disk_iops),
            copies: true,
            volume: None,
        })
    }

    /// The job of one boot: one policy of run `run`, counted from 0.
    pub fn job(&self, policy: Policy, run: u32) -> DatabasesJob {
        DatabasesJob {
            policy,
            containers: self.containers.clone(),
            phases: self.starts.clone(),
            phase_s: self.phase_s,
            threads: self.threads,
            rows: self.rows,
            keys: self.keys,
            memory_disk: self.memory_disk(),
            lru: self.choices.lru,
            scheduler: self.choices.scheduler,
            agent_args: self.choices.agent_args.clone(),
            agent_config: self.choices.agent_config.clone(),
            seed: self.choices.seed_of(run),
        }
    }
}

fn containers(scenario: &Scenario, rate: u32, lies: &[String]) -> Result<Vec<DatabaseJob>> {
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
            neighbor: container.neighbor,
        })
        .collect();
    for text in lies {
        let (name, lie) = Lie::of_option(text)?;
        let cause = || format!("--lie {text}: no such container");
        by_name(&mut containers, |c| &c.name, name, cause)?.lie = Some(lie);
    }
    Ok(containers)
}

#[cfg(test)]
mod tests;
