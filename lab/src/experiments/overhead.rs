//! `justitia lab overhead`: the cost of observing.
//!
//! One guest runs each load repeatedly under three conditions in turn: nothing observes, the agent observes
//! through `/proc`, the agent observes through eBPF. The agent only observes (`--mode observe`). A *pair* is
//! one window of each condition, adjacent in time. The order is reversed from pair to pair, so that drift
//! affects all conditions alike. [`analysis`] computes the differences within pairs.
//!
//! Separate from the experiments: those compare policies, each in a guest of its own, and a difference of one
//! percent is smaller than the difference between two boots.

pub mod analysis;

use std::path::Path;

use crate::args::OverheadArgs;
use crate::choices::{cpus_start, in_range, series};
use crate::experiment::{Analysis, Boot, Plan};
use crate::machine::{host_time, program, Answer, Machine};
use crate::policy::by_name;
use crate::protocol::{Job, OverheadJob, OverheadLoad};
use justitia_machine::error::{Result, Say};
use justitia_machine::kernels::Series;
use justitia_machine::qemu::Clock;
use justitia_machine::vm::VmSpec;

pub const FILE: &str = "overhead.json";
/// Memory of the guest, enough that all data read stays cached.
const MEMORY_BYTES: u64 = 1 << 30;
/// Fast enough that the disk does not limit the fileserver.
const DISK_MB_PER_S: u32 = 1000;
/// Two nanoseconds per instruction.
const CLOCK: Clock = Clock::Instructions {
    shift: 1,
    jumps: false,
};
/// Upper bound of the time to start the agent, fio and the kernel's programs for one window.
const AROUND_A_WINDOW_S: u64 = 20;

/// The plan of a command line.
pub fn plan(args: &OverheadArgs) -> Result<Box<dyn Plan>> {
    let (series, job) = job(args)?;
    Ok(Box::new(Overhead {
        series,
        cpus: args.cpus,
        job,
        document: None,
    }))
}

struct Overhead {
    series: Series,
    cpus: u32,
    job: OverheadJob,
    document: Option<analysis::Document>,
}

impl Plan for Overhead {
    fn boots(&self) -> Vec<Boot> {
        vec![Boot {
            name: "overhead".to_owned(),
            console: "console/overhead.log".into(),
            job: Job::Overhead(self.job.clone()),
        }]
    }

    fn machine(&self, _out: &Path, _say: &mut Say) -> Result<Machine> {
        let job = &self.job;
        let windows = (u64::from(job.pairs) * 3 + 1) * job.loads.len() as u64;
        let guest_s = 300 + windows * (u64::from(job.seconds) + AROUND_A_WINDOW_S);
        Ok(Machine::from(VmSpec {
            memory_bytes: MEMORY_BYTES,
            cpus: self.cpus,
            disk_mbps: Some(DISK_MB_PER_S),
            data_bytes: 4 << 30,
            modules: vec!["bfq".to_owned()],
            extra_packages: vec!["bpftool".to_owned()],
            // Programs are attached and detached with every window.
            patches_text: true,
            clock: CLOCK,
            ..VmSpec::new(
                self.series,
                vec![program("justitia-lab-guest")?, program("justitia")?],
                host_time(CLOCK, guest_s),
            )
        }))
    }

    fn keep(&mut self, _boot: usize, answer: Answer) -> Result<String> {
        let document = analysis::Document::of(answer.report()?, answer.machine);
        let windows = document.windows.len();
        self.document = Some(document);
        Ok(format!("{windows} windows"))
    }

    fn analysis(&self) -> Option<Box<dyn Analysis>> {
        Some(Box::new(self.document.clone()?))
    }
}

fn job(args: &OverheadArgs) -> Result<(Series, OverheadJob)> {
    in_range("--pairs", args.pairs, 2, 1000)?;
    in_range("--seconds", args.seconds, 2, 600)?;
    let kernel = series(&args.kernel)?;
    cpus_start(args.cpus, CLOCK, kernel)?;
    let mut loads = Vec::new();
    for name in &args.loads {
        let cause = || format!("unknown load '{name}'");
        let named = OverheadLoad::ALL.map(|load| (load.name(), load));
        loads.push(by_name(named, |(name, _)| name, name, cause)?.1);
    }
    if loads.is_empty() {
        loads = OverheadLoad::ALL.to_vec();
    }
    let job = OverheadJob {
        pairs: args.pairs,
        seconds: args.seconds,
        loads,
        seed: args.output.seed,
    };
    Ok((kernel, job))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::LabCommand;
    use crate::tests::fixture::command;

    fn asked(line: &str) -> Result<OverheadJob> {
        let LabCommand::Overhead(args) = command(&format!("overhead --out /nowhere {line}")) else {
            panic!("not overhead")
        };
        job(&args).map(|(_, job)| job)
    }

    #[test]
    fn ten_pairs_of_every_load_unless_told_otherwise() {
        let job = asked("").unwrap();
        assert!(job.pairs >= 10);
        assert_eq!(job.loads, OverheadLoad::ALL);
        assert_eq!(asked("--loads fileserver").unwrap().loads.len(), 1);
    }

    #[test]
    fn bad_values_are_refused() {
        for line in [
            "--pairs 1",
            "--seconds 1",
            "--loads randreads",
            "--kernel 5.4",
        ] {
            let refusal = asked(line).expect_err(line);
            assert_eq!(refusal.exit_code(), 2, "{line}");
        }
    }
}
