//! Turns a command line into the jobs of an experiment: every choice resolved, validated and recorded.
//!
//! [`Settings`] is part of result.json, so a result contains everything needed to reproduce it. Memory in
//! bytes, disk bandwidth in 10^6 bytes per second, times in seconds.

use serde::{Deserialize, Serialize};

use super::containers::{containers, ContainerSpec};
use super::{At, Description, Measure, Workload};
use crate::args::RunArgs;
use crate::choices::{in_range, Choices, Defaults};
use crate::policy::Policy;
use crate::protocol::{ContainerJob, GuestJob, MemoryDisk, Scheduler};
use justitia_machine::error::Result;
use justitia_machine::qemu::Clock;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    pub experiment: String,
    pub measure: Measure,
    #[serde(flatten)]
    pub choices: Choices,
    /// In the order of the report.
    pub containers: Vec<ContainerSpec>,
    pub workload: Workload,
    pub seconds: u32,
    pub warmup_s: f64,
    pub mount_options: String,
    pub kill_agent_at_s: Option<u32>,
}

impl Settings {
    /// Resolves and validates a command line.
    pub fn from_args(description: &Description, args: &RunArgs) -> Result<Self> {
        let memory_bytes = args.guest.memory.unwrap_or(description.memory_bytes);
        let workload = (description.workload)(&args.load, memory_bytes)?;
        let possible: Vec<Policy> = Policy::all()
            .filter(|&policy| workload.can_run_under(policy))
            .collect();
        let defaults = Defaults {
            memory_bytes,
            disk_mb_per_s: description.disk_mb_per_s,
            scheduler: Scheduler::Bfq,
        };
        let choices = Choices::from_args(
            args,
            description.name,
            (description.policies, &possible),
            defaults,
        )?;
        let seconds = args.seconds.unwrap_or(description.seconds);
        in_range("--seconds", seconds, 3, 86_400)?;
        if let Some(at) = args.agent.kill_agent_at {
            in_range("--kill-agent-at", at, 1, u64::from(seconds) - 1)?;
        }
        let mut containers = containers(args, description.weights)?;
        workload.settle(&mut containers, !args.names.is_empty());
        Ok(Self {
            experiment: description.name.to_owned(),
            measure: description.measure,
            choices,
            containers,
            workload,
            seconds,
            warmup_s: warmup_s(description.measure, seconds),
            mount_options: args.guest.mount_options.clone(),
            kill_agent_at_s: args.agent.kill_agent_at,
        })
    }

    pub fn file_set_bytes(&self) -> u64 {
        self.workload.bytes(self.containers.len() as u64)
    }

    /// The guest's own memory disk, needed when the emulator's disk would follow another clock. It has room
    /// for the file sets and half as much again, because files are deleted and created at different times.
    pub fn memory_disk(&self) -> Option<MemoryDisk> {
        (self.choices.clock != Clock::Host).then(|| MemoryDisk {
            bytes: (self.file_set_bytes() * 3 / 2).next_multiple_of(1 << 20),
            mb_per_s: self.choices.disk_mb_per_s,
            iops: None,
            copies: false,
            volume: self.choices.volume,
        })
    }

    /// The job of one boot: one policy of run `run`, counted from 0.
    pub fn job(&self, policy: Policy, run: u32) -> GuestJob {
        GuestJob {
            policy,
            containers: self
                .containers
                .iter()
                .enumerate()
                .map(|(place, container)| ContainerJob {
                    name: container.name.clone(),
                    weight: self.workload.stated(container),
                    lie: container.lie,
                    user: container.user,
                    load: self.workload.load(&At {
                        place,
                        container,
                        policy,
                        memory_bytes: self.choices.memory_bytes,
                        from_s: self.warmup_s,
                    }),
                })
                .collect(),
            group_weights: self.workload.group_weights(&self.containers),
            seconds: self.seconds,
            memory_disk: self.memory_disk(),
            lru: self.choices.lru,
            scheduler: self.choices.scheduler,
            mount_options: self.mount_options.clone(),
            agent_args: self.choices.agent_args.clone(),
            agent_config: self.choices.agent_config.clone(),
            polluter_bytes: self.workload.polluter_bytes(),
            surroundings: self.workload.surroundings(&self.containers, policy),
            profile_waits: false,
            kill_agent_at_s: self.kill_agent_at_s.filter(|_| policy.runs_agent()),
            seed: self.choices.seed_of(run),
        }
    }
}

/// The first 20 s, or the first third of a short run; a fixed job has no warm-up.
fn warmup_s(measure: Measure, seconds: u32) -> f64 {
    match measure {
        Measure::Completion | Measure::Phases => 0.0,
        Measure::Window | Measure::Residency if seconds > 40 => 20.0,
        Measure::Window | Measure::Residency => f64::from(seconds) / 3.0,
    }
}

#[cfg(test)]
mod tests;
