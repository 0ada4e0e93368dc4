//! From a command line to the jobs of an experiment: every choice resolved, checked and recorded.
//!
//! [`Settings`] is part of result.json, so a result says all that is needed to make it again.
//! Memory in bytes, disk bandwidth in 10^6 bytes per second, times in seconds.

use serde::{Deserialize, Serialize};

use super::{did_you_mean, fileserver, find, find_policy, policy_name, readmix, reread};
use super::{Measure, Workload};
use crate::args::{LoadArgs, RunArgs};
use crate::error::LabError;
use crate::protocol::{ContainerJob, GuestJob, Lru, PolicyUnderTest, Scheduler};

/// Most containers in one guest.
pub const MAX_CONTAINERS: usize = 64;
/// Least memory of a guest that runs containers.
pub const MIN_MEMORY_BYTES: u64 = 256 << 20;
/// Working and pausing time of `--idle NAME` without a number.
const DEFAULT_DUTY_S: u32 = 15;
/// Growth of `--anon-growth NAME` without a number.
const DEFAULT_ANON_GROWTH: u64 = 8 << 20;

/// One container of an experiment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerSpec {
    /// Name; slashes nest.
    pub name: String,
    /// I/O weight, 1 to 10000.
    pub weight: u32,
    /// Works for this long, then pauses as long; `None` works all the time.
    pub duty_s: Option<u32>,
    /// Growth of its anonymous memory.
    pub anon_growth_bytes_per_s: u64,
}

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
    pub policies: Vec<PolicyUnderTest>,
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
        let workload = match description.name {
            "fileserver" => Workload::Fileserver(fileserver::Parameters::from_args(&args.load)?),
            "readmix" => Workload::Readmix(readmix::Parameters::from_args(&args.load)?),
            _ => Workload::Reread(reread::Parameters::from_args(&args.load)?),
        };
        let policies = policies(args, description.policies, &workload)?;
        let memory_bytes = args.guest.memory.unwrap_or(description.memory_bytes);
        if memory_bytes < MIN_MEMORY_BYTES {
            return Err(LabError::usage(
                format!("--memory {} MiB is too small for a guest", memory_bytes >> 20),
                "use 256M or more",
            ));
        }
        let seconds = args.seconds.unwrap_or(description.seconds);
        in_range("--seconds", u64::from(seconds), 3, 86_400)?;
        in_range("--cpus", u64::from(args.guest.cpus), 1, 64)?;
        in_range("--runs", u64::from(args.runs), 1, 100)?;
        let disk_mb_per_s = args.guest.disk_mbps.unwrap_or(description.disk_mb_per_s);
        in_range("--disk-mbps", u64::from(disk_mb_per_s), 1, 100_000)?;
        if let Some(at) = args.agent.kill_agent_at {
            in_range("--kill-agent-at", u64::from(at), 1, u64::from(seconds) - 1)?;
        }
        Ok(Self {
            experiment: description.name.to_owned(),
            measure: description.measure,
            kernel_series: kernel.to_owned(),
            policies,
            containers: containers(args, description.weights)?,
            workload,
            seconds,
            warmup_s: warmup_s(description.measure, seconds),
            memory_bytes,
            cpus: args.guest.cpus,
            disk_mb_per_s,
            lru: args.guest.lru.into(),
            scheduler: args.guest.scheduler.into(),
            mount_options: args.guest.mount_options.clone(),
            runs: args.runs,
            seed: args.seed,
            agent_args: args.agent.agent_arg.clone(),
            kill_agent_at_s: args.agent.kill_agent_at,
        })
    }

    /// The job of one boot: one policy of run `run`, counted from 0.
    pub fn job(&self, policy: PolicyUnderTest, run: u32) -> GuestJob {
        GuestJob {
            policy,
            containers: self
                .containers
                .iter()
                .map(|container| ContainerJob {
                    name: container.name.clone(),
                    weight: container.weight,
                    load: self.workload.load(container, policy),
                })
                .collect(),
            seconds: self.seconds,
            lru: self.lru,
            scheduler: self.scheduler,
            mount_options: self.mount_options.clone(),
            agent_args: self.agent_args.clone(),
            polluter_bytes: self.workload.polluter_bytes(),
            kill_agent_at_s: self.kill_agent_at_s.filter(|_| super::runs_agent(policy)),
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

/// The first 20 s, or the first third of a short run; a fixed job has no warm-up.
fn warmup_s(measure: Measure, seconds: u32) -> f64 {
    match measure {
        Measure::Completion => 0.0,
        Measure::Window if seconds > 40 => 20.0,
        Measure::Window => f64::from(seconds) / 3.0,
    }
}

fn policies(
    args: &RunArgs,
    default: &[PolicyUnderTest],
    workload: &Workload,
) -> Result<Vec<PolicyUnderTest>, LabError> {
    let mut policies = Vec::new();
    for name in &args.policies {
        let policy = find_policy(name)?;
        if policies.contains(&policy) {
            return Err(LabError::usage(format!("policy '{name}' is named twice"), "name it once"));
        }
        if policy == PolicyUnderTest::Direct && matches!(workload, Workload::Readmix(_)) {
            return Err(LabError::usage(
                format!("readmix has no policy '{}'", policy_name(policy)),
                "leave it out, or use fileserver or reread",
            ));
        }
        policies.push(policy);
    }
    Ok(if policies.is_empty() { default.to_vec() } else { policies })
}

fn containers(args: &RunArgs, default: &[u32]) -> Result<Vec<ContainerSpec>, LabError> {
    let weights: Vec<u32> = match args.containers {
        Some(count) => {
            in_range("--containers", u64::from(count), 1, MAX_CONTAINERS as u64)?;
            (1..=count).map(|i| i * 100).collect()
        }
        None if args.weights.is_empty() => default.to_vec(),
        None => args.weights.clone(),
    };
    if weights.len() > MAX_CONTAINERS {
        return Err(LabError::usage(
            format!("{} containers are too many", weights.len()),
            format!("name at most {MAX_CONTAINERS} weights"),
        ));
    }
    for &weight in &weights {
        in_range("weight", u64::from(weight), 1, 10_000)?;
    }
    let names = names(args, &weights)?;
    let mut specs: Vec<ContainerSpec> = names
        .into_iter()
        .zip(weights)
        .map(|(name, weight)| ContainerSpec {
            name,
            weight,
            duty_s: None,
            anon_growth_bytes_per_s: 0,
        })
        .collect();
    for text in &args.load.idle {
        let (name, value) = name_and_value(text);
        let duty = match value {
            None => DEFAULT_DUTY_S,
            Some(text) => text.parse().ok().filter(|&s| s > 0).ok_or_else(|| {
                LabError::usage(format!("--idle {name}={text}: not a time"), "use whole seconds")
            })?,
        };
        named(&mut specs, "--idle", name)?.duty_s = Some(duty);
    }
    for text in &args.load.anon_growth {
        let (name, value) = name_and_value(text);
        let growth = match value {
            None => DEFAULT_ANON_GROWTH,
            Some(text) => crate::args::size(text).map_err(|why| {
                LabError::usage(format!("--anon-growth {name}={text}: {why}"), "use a size, like 8M")
            })?,
        };
        named(&mut specs, "--anon-growth", name)?.anon_growth_bytes_per_s = growth;
    }
    Ok(specs)
}

/// Given names, checked, or `w100`, `w200`, ... with a number appended where weights repeat.
fn names(args: &RunArgs, weights: &[u32]) -> Result<Vec<String>, LabError> {
    if args.names.is_empty() {
        return Ok(weights
            .iter()
            .enumerate()
            .map(|(i, weight)| {
                let earlier = weights[..i].iter().filter(|&w| w == weight).count();
                if earlier == 0 {
                    format!("w{weight}")
                } else {
                    format!("w{weight}-{}", earlier + 1)
                }
            })
            .collect());
    }
    if args.names.len() != weights.len() {
        return Err(LabError::usage(
            format!("{} names for {} containers", args.names.len(), weights.len()),
            "give --names as many names as there are weights",
        ));
    }
    for (i, name) in args.names.iter().enumerate() {
        let good_part = |part: &str| {
            !part.is_empty()
                && !part.starts_with('.')
                && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
        };
        if name.len() > 100 || !name.split('/').all(good_part) {
            return Err(LabError::usage(
                format!("'{name}' cannot name a container"),
                "use letters, digits, '-', '_' and '.', with '/' between levels",
            ));
        }
        let clash = args.names[..i].iter().find(|other| {
            name == *other
                || name.starts_with(&format!("{other}/"))
                || other.starts_with(&format!("{name}/"))
        });
        if let Some(other) = clash {
            return Err(LabError::usage(
                format!("'{name}' and '{other}' cannot both be containers"),
                "give every container a name of its own, none inside another",
            ));
        }
    }
    Ok(args.names.clone())
}

fn name_and_value(text: &str) -> (&str, Option<&str>) {
    text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)))
}

fn named<'a>(
    specs: &'a mut [ContainerSpec],
    option: &str,
    name: &str,
) -> Result<&'a mut ContainerSpec, LabError> {
    match specs.iter().position(|spec| spec.name == name) {
        Some(index) => Ok(&mut specs[index]),
        None => {
            let names: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
            Err(LabError::usage(
                format!("{option} {name}: no such container"),
                did_you_mean(name, &names),
            ))
        }
    }
}

/// Refuses load options that the experiment would silently ignore.
fn options_fit(experiment: &str, load: &LoadArgs) -> Result<(), LabError> {
    let fileserver: &[&str] = &["fileserver"];
    let given: [(&str, bool, &[&str]); 14] = [
        ("--threads", load.threads.is_some(), &["fileserver", "readmix"]),
        ("--files", load.files.is_some(), fileserver),
        ("--mean-file-size", load.mean_file_size.is_some(), fileserver),
        ("--append-size", load.append_size.is_some(), fileserver),
        ("--prealloc-percent", load.prealloc_percent.is_some(), fileserver),
        ("--reads-per-write", load.reads_per_write.is_some(), fileserver),
        ("--appends-per-write", load.appends_per_write.is_some(), fileserver),
        ("--idle", !load.idle.is_empty(), fileserver),
        ("--anon-growth", !load.anon_growth.is_empty(), fileserver),
        ("--file-size", load.file_size.is_some(), &["readmix", "reread"]),
        ("--block-size", load.block_size.is_some(), &["readmix"]),
        ("--write-percent", load.write_percent.is_some(), &["readmix"]),
        ("--zipf", load.zipf.is_some(), &["readmix"]),
        ("--polluter", load.polluter.is_some(), &["reread"]),
    ];
    match given.iter().find(|(_, set, fits)| *set && !fits.contains(&experiment)) {
        None => Ok(()),
        Some((option, _, fits)) => Err(LabError::usage(
            format!("{experiment} has no option {option}"),
            format!("leave it out; it belongs to {}", fits.join(" and ")),
        )),
    }
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
