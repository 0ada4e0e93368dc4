//! The choices that all experiments of `justitia lab run` share: resolved, validated and recorded.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::args::{ClockArg, RunArgs};
use crate::policy::{self, Policy};
use crate::protocol::{Lru, Scheduler, Volume};
use justitia_machine::error::{LabError, Result};
use justitia_machine::kernels::Series;
use justitia_machine::qemu::Clock;

/// Minimum memory of a guest that runs containers.
const MIN_MEMORY_BYTES: u64 = 256 << 20;
/// More is a mistake.
const MAX_MEMORY_BYTES: u64 = 1 << 40;

/// The shared part of the settings in result.json.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Choices {
    pub kernel_series: Series,
    /// In the order of the runs.
    pub policies: Vec<Policy>,
    pub memory_bytes: u64,
    pub cpus: u32,
    pub disk_mb_per_s: u32,
    #[serde(default)]
    pub clock: Clock,
    pub lru: Lru,
    pub scheduler: Scheduler,
    pub volume: Option<Volume>,
    pub runs: u32,
    pub seed: u64,
    pub agent_args: Vec<String>,
    /// Lines of the agent's configuration, ahead of the policy's own.
    #[serde(default)]
    pub agent_config: Vec<String>,
}

/// An experiment's defaults; the command line overrides them.
#[derive(Debug, Clone, Copy)]
pub struct Defaults {
    pub memory_bytes: u64,
    pub disk_mb_per_s: u32,
    pub scheduler: Scheduler,
}

impl Choices {
    /// Resolves and validates a command line; `default` are the policies that the experiment runs by default,
    /// `possible` all that it has.
    pub fn from_args(
        args: &RunArgs,
        experiment: &str,
        (default, possible): (&[Policy], &[Policy]),
        defaults: Defaults,
    ) -> Result<Self> {
        let kernel = series(&args.guest.kernel)?;
        let memory_bytes = args.guest.memory.unwrap_or(defaults.memory_bytes);
        size_in_range("--memory", memory_bytes, MIN_MEMORY_BYTES, MAX_MEMORY_BYTES)?;
        let disk_mb_per_s = args.guest.disk_mbps.unwrap_or(defaults.disk_mb_per_s);
        in_range("--disk-mbps", disk_mb_per_s, 1, 100_000)?;
        let clock = clock(args.guest.clock);
        cpus_start(args.guest.cpus, clock, kernel)?;
        if args.guest.volume.is_some() && clock == Clock::Host {
            return Err(LabError::usage(
                "--volume is over disks in the guest's memory, which follow the guest's clock",
                "add --clock instructions",
            ));
        }
        in_range("--runs", args.runs, 1, 100)?;
        Ok(Self {
            kernel_series: kernel,
            policies: policy::chosen(experiment, &args.policies, possible, default)?,
            memory_bytes,
            cpus: args.guest.cpus,
            disk_mb_per_s,
            clock,
            lru: args.guest.lru,
            scheduler: args.guest.scheduler.unwrap_or(defaults.scheduler),
            volume: args.guest.volume,
            runs: args.runs,
            seed: args.output.seed,
            agent_args: args.agent.agent_arg.clone(),
            agent_config: args.agent.agent_config.clone(),
        })
    }

    pub fn seed_of(&self, run: u32) -> u64 {
        self.seed.wrapping_add(u64::from(run))
    }
}

/// The kernel series of a command line. The error names the nearest series.
pub fn series(name: &str) -> Result<Series> {
    let cause = || format!("unknown kernel series '{name}'");
    policy::by_name(Series::ALL, |series| series.name(), name, cause)
}

/// Rejects a number outside `least..=most`. The error names the option and the range.
pub fn in_range(option: &str, value: impl Into<u64>, least: u64, most: u64) -> Result<()> {
    within("number", u64::to_string, option, value.into(), least..=most)
}

/// Rejects a size outside `least..=most`, as [`in_range`] does. The error names the option and the range.
pub fn size_in_range(option: &str, bytes: u64, least: u64, most: u64) -> Result<()> {
    let exact = |bytes: &u64| justitia_quantity::exact(*bytes);
    within("size", exact, option, bytes, least..=most)
}

fn within(
    what: &str,
    words: impl Fn(&u64) -> String,
    option: &str,
    value: u64,
    range: RangeInclusive<u64>,
) -> Result<()> {
    if range.contains(&value) {
        return Ok(());
    }
    let (value, least, most) = (words(&value), words(range.start()), words(range.end()));
    Err(LabError::usage(
        format!("{option} {value} is not a {what} from {least} to {most}"),
        format!("use a {what} in that range"),
    ))
}

/// Rejects a number of CPUs with which a guest of this kernel does not boot. The error says what to use.
pub fn cpus_start(cpus: u32, clock: Clock, kernel: Series) -> Result<()> {
    in_range("--cpus", cpus, 1, 64)?;
    // 6.1 waits for its second CPU without letting the emulator take turns (QEMU 7.2); 6.12 and 7.2 do not.
    if clock != Clock::Host && cpus > 1 && kernel == Series::V6_1 {
        return Err(LabError::usage(
            format!(
                "Linux {kernel} does not start {cpus} CPUs where the clock counts instructions"
            ),
            "use --cpus 1 or another kernel",
        ));
    }
    Ok(())
}

fn clock(arg: ClockArg) -> Clock {
    match arg {
        ClockArg::Host => Clock::Host,
        ClockArg::Instructions | ClockArg::Jumping => Clock::Instructions {
            shift: 0,
            jumps: arg == ClockArg::Jumping,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fixture::run_args;

    #[test]
    fn the_kernel_keeps_its_lru_unless_told_otherwise() {
        for (line, lru) in [("", Lru::Kernel), ("--lru classic", Lru::Classic)] {
            let run = run_args(&format!("fileserver {line}"));
            assert_eq!(run.guest.lru, lru);
        }
    }

    #[test]
    fn the_contracts_command_line_is_understood() {
        let line = "fileserver --kernel 6.12 --policies conventional,proportional \
                    --weights 100,200 --seconds 60 --memory 768M --cpus 2 --disk-mbps 40 \
                    --lru mglru --scheduler none --seed 7 --agent-arg --interval=2s";
        let run = run_args(line);
        assert_eq!(run.weights, [100, 200]);
        assert_eq!(run.policies, ["conventional", "proportional"]);
        assert_eq!(run.guest.memory, Some(768 << 20));
        assert_eq!(run.guest.lru, Lru::Mglru);
        assert_eq!(run.guest.scheduler, Some(Scheduler::None));
        assert_eq!(run.agent.agent_arg, ["--interval=2s"]);
    }
}
