//! From a command line to the jobs of an experiment: every choice resolved, checked and recorded.
//!
//! [`Settings`] is part of result.json, so a result says all that is needed to make it again.
//! Memory in bytes, disk bandwidth in 10^6 bytes per second, times in seconds.

use serde::{Deserialize, Serialize};

use super::containers::{containers, ContainerSpec};
use super::guard::{self, Pitfall};
use super::sharing;
use super::{fileserver, find, hostile, readmix, reread};
use super::{Measure, Workload};
use crate::args::{LoadArgs, RunArgs};
use crate::policy::{self, did_you_mean};
use crate::protocol::{ContainerJob, GuestJob, Lru, MemoryDisk, Policy, Scheduler};
use justitia_machine::error::LabError;
use justitia_machine::kernels::Series;
use justitia_machine::qemu::Clock;

/// Least memory of a guest that runs containers.
pub const MIN_MEMORY_BYTES: u64 = 256 << 20;

/// An experiment with every choice made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Its name.
    pub experiment: String,
    /// How its figures are computed.
    pub measure: Measure,
    /// Series of the stock kernel.
    pub kernel_series: String,
    /// Policies, in the order they are run.
    pub policies: Vec<Policy>,
    /// Containers, in the order they are reported.
    pub containers: Vec<ContainerSpec>,
    /// What they run.
    pub workload: Workload,
    /// Seconds of the measured phase.
    pub seconds: u32,
    /// Seconds left out at its start.
    pub warmup_s: f64,
    /// Guest memory.
    pub memory_bytes: u64,
    /// Virtual CPUs.
    pub cpus: u32,
    /// Bandwidth of the data disk.
    pub disk_mb_per_s: u32,
    /// Where the guest's time comes from.
    #[serde(default)]
    pub clock: Clock,
    /// LRU of the guest kernel.
    pub lru: Lru,
    /// Block scheduler of the data disk.
    pub scheduler: Scheduler,
    /// Mount options of the data file system.
    pub mount_options: String,
    /// How often all policies are run.
    pub runs: u32,
    /// Seed of the first run.
    pub seed: u64,
    /// Extra arguments of the agent.
    pub agent_args: Vec<String>,
    /// When the agent is killed.
    pub kill_agent_at_s: Option<u32>,
}

impl Settings {
    /// Resolves and checks a command line.
    ///
    /// # Errors
    /// A usage error for the first value that makes no sense.
    pub fn from_args(args: &RunArgs, kernel_series: &[&str]) -> Result<Self, LabError> {
        let description = find(&args.experiment)?;
        let kernel = args.guest.kernel.as_str();
        if !kernel_series.contains(&kernel) {
            return Err(LabError::usage(
                format!("unknown kernel series '{kernel}'"),
                did_you_mean(kernel, kernel_series),
            ));
        }
        options_fit(description.name, &args.load)?;
        let memory_bytes = args.guest.memory.unwrap_or(description.memory_bytes);
        let workload = match description.name {
            "fileserver" => Workload::Fileserver(fileserver::Parameters::from_args(&args.load)?),
            "readmix" => Workload::Readmix(readmix::Parameters::from_args(&args.load)?),
            "startup" => Workload::Guard(guard::Parameters::of(Pitfall::Startup)),
            "stolen" => Workload::Guard(guard::Parameters::of(Pitfall::Stolen)),
            "root" => Workload::Guard(guard::Parameters::of(Pitfall::Root)),
            "hostile" => {
                Workload::Hostile(hostile::Parameters::from_args(&args.load, memory_bytes)?)
            }
            "sharing" => Workload::Sharing(sharing::Parameters::from_args(&args.load)?),
            _ => Workload::Reread(reread::Parameters::from_args(&args.load)?),
        };
        let possible: Vec<Policy> = Policy::all()
            .filter(|&policy| workload.can_run_under(policy))
            .collect();
        let name = description.name;
        let policies = policy::chosen(name, &args.policies, &possible, description.policies)?;
        if memory_bytes < MIN_MEMORY_BYTES {
            return Err(LabError::usage(
                format!(
                    "--memory {} MiB is too small for a guest",
                    memory_bytes >> 20
                ),
                "use 256M or more",
            ));
        }
        let seconds = args.seconds.unwrap_or(description.seconds);
        in_range("--seconds", u64::from(seconds), 3, 86_400)?;
        let clock = crate::choices::clock(args.guest.clock);
        cpus_start(args.guest.cpus, clock, kernel)?;
        in_range("--runs", u64::from(args.runs), 1, 100)?;
        let disk_mb_per_s = args.guest.disk_mbps.unwrap_or(description.disk_mb_per_s);
        in_range("--disk-mbps", u64::from(disk_mb_per_s), 1, 100_000)?;
        if let Some(at) = args.agent.kill_agent_at {
            in_range("--kill-agent-at", u64::from(at), 1, u64::from(seconds) - 1)?;
        }
        let mut containers = containers(args, description.weights)?;
        if let Workload::Hostile(_) = workload {
            hostile::Parameters::settle(&mut containers, !args.names.is_empty());
        }
        Ok(Self {
            experiment: description.name.to_owned(),
            measure: description.measure,
            kernel_series: kernel.to_owned(),
            policies,
            containers,
            workload,
            seconds,
            warmup_s: warmup_s(description.measure, seconds),
            memory_bytes,
            cpus: args.guest.cpus,
            disk_mb_per_s,
            clock,
            lru: args.guest.lru.into(),
            scheduler: args.guest.scheduler.map_or(Scheduler::Bfq, Into::into),
            mount_options: args.guest.mount_options.clone(),
            runs: args.runs,
            seed: args.seed,
            agent_args: args.agent.agent_arg.clone(),
            kill_agent_at_s: args.agent.kill_agent_at,
        })
    }

    /// Bytes of all file sets together.
    pub fn file_set_bytes(&self) -> u64 {
        let containers = self.containers.len() as u64;
        match &self.workload {
            Workload::Fileserver(p) => p.bytes(containers),
            Workload::Hostile(p) => p.bytes(containers),
            Workload::Readmix(p) => containers * p.file_bytes,
            Workload::Reread(p) => containers * p.file_bytes + p.polluter_bytes,
            Workload::Sharing(p) => p.bytes(containers),
            Workload::Guard(p) => p.bytes(),
        }
    }

    /// The disk that the guest makes of memory, where the emulator's would go by another clock: room
    /// for the file sets and half as much, because files are deleted and created at different times.
    pub fn memory_disk(&self) -> Option<MemoryDisk> {
        (self.clock != Clock::Host).then(|| MemoryDisk {
            bytes: (self.file_set_bytes() * 3 / 2).next_multiple_of(1 << 20),
            mb_per_s: self.disk_mb_per_s,
            iops: None,
            copies: false,
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
                    weight: container.weight,
                    lie: container.lie,
                    user: container.user,
                    load: self.workload.load(
                        place,
                        container,
                        policy,
                        self.memory_bytes,
                        self.warmup_s,
                    ),
                })
                .collect(),
            seconds: self.seconds,
            memory_disk: self.memory_disk(),
            lru: self.lru,
            scheduler: self.scheduler,
            mount_options: self.mount_options.clone(),
            agent_args: self.agent_args.clone(),
            polluter_bytes: self.workload.polluter_bytes(),
            surroundings: self.workload.surroundings(&self.containers, policy),
            trace_waits: false,
            kill_agent_at_s: self.kill_agent_at_s.filter(|_| policy.runs_agent()),
            seed: self.seed.wrapping_add(u64::from(run)),
        }
    }
}

/// Refuses a number outside `least..=most`.
///
/// # Errors
/// Names the option and the range.
pub fn in_range(option: &str, value: u64, least: u64, most: u64) -> Result<(), LabError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(LabError::usage(
        format!("{option} {value} is out of range"),
        format!("use a number from {least} to {most}"),
    ))
}

/// Refuses a number of CPUs that a guest of this kernel does not come up with.
///
/// # Errors
/// Says what to use.
pub fn cpus_start(cpus: u32, clock: Clock, kernel: &str) -> Result<(), LabError> {
    in_range("--cpus", u64::from(cpus), 1, 64)?;
    // It waits for its second CPU without letting the emulator take turns (QEMU 7.2; 6.12 and 7.2 do not).
    if clock != Clock::Host && cpus > 1 && kernel == Series::V6_1.name() {
        return Err(LabError::usage(
            format!(
                "Linux {kernel} does not start {cpus} CPUs where the clock counts instructions"
            ),
            "use --cpus 1 or another kernel",
        ));
    }
    Ok(())
}

/// The first 20 s, or the first third of a short run; a fixed job has no warm-up.
fn warmup_s(measure: Measure, seconds: u32) -> f64 {
    match measure {
        Measure::Completion | Measure::Phases => 0.0,
        Measure::Window | Measure::Residency if seconds > 40 => 20.0,
        Measure::Window | Measure::Residency => f64::from(seconds) / 3.0,
    }
}

/// Refuses load options that the experiment would silently ignore.
fn options_fit(experiment: &str, load: &LoadArgs) -> Result<(), LabError> {
    let fileserver: &[&str] = &["fileserver", "hostile"];
    let databases: &[&str] = &["the experiments with databases"];
    let given: [(&str, bool, &[&str]); 20] = [
        (
            "--threads",
            load.threads.is_some(),
            &["fileserver", "hostile", "readmix"],
        ),
        ("--files", load.files.is_some(), fileserver),
        (
            "--mean-file-size",
            load.mean_file_size.is_some(),
            fileserver,
        ),
        ("--append-size", load.append_size.is_some(), fileserver),
        (
            "--prealloc-percent",
            load.prealloc_percent.is_some(),
            fileserver,
        ),
        (
            "--reads-per-write",
            load.reads_per_write.is_some(),
            fileserver,
        ),
        (
            "--appends-per-write",
            load.appends_per_write.is_some(),
            fileserver,
        ),
        ("--idle", !load.idle.is_empty(), fileserver),
        ("--anon-growth", !load.anon_growth.is_empty(), fileserver),
        (
            "--file-size",
            load.file_size.is_some(),
            &["readmix", "reread", "sharing"],
        ),
        ("--shared-size", load.shared_size.is_some(), &["sharing"]),
        ("--block-size", load.block_size.is_some(), &["readmix"]),
        (
            "--write-percent",
            load.write_percent.is_some(),
            &["readmix"],
        ),
        ("--zipf", load.zipf.is_some(), &["readmix"]),
        (
            "--polluter",
            load.polluter.is_some(),
            &["reread", "sharing"],
        ),
        ("--rate", load.rate.is_some(), databases),
        ("--database-size", load.database_size.is_some(), databases),
        ("--keys", load.keys.is_some(), databases),
        ("--disk-iops", load.disk_iops.is_some(), databases),
        (
            "--lie",
            !load.lie.is_empty(),
            &["fileserver", "readmix", "the experiments with databases"],
        ),
    ];
    let ignored = given
        .iter()
        .find(|(_, set, fits)| *set && !fits.contains(&experiment));
    let Some((option, _, fits)) = ignored else {
        return Ok(());
    };
    Err(LabError::usage(
        format!("{experiment} has no option {option}"),
        format!("leave it out; it belongs to {}", fits.join(" and ")),
    ))
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
