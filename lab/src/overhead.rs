//! `justitia lab overhead`: what observing costs the observed.
//!
//! One guest runs each load again and again under three conditions in turn: nothing observes, the
//! agent observes through `/proc`, the agent observes through eBPF. The agent only looks
//! (`--mode observe`). A *pair* is one window of each condition, next to each other in time, the
//! order turned round from pair to pair, so that what drifts falls on all of them alike. [`study`]
//! takes the differences within pairs.
//!
//! Kept apart from the experiments: those compare policies, each in a guest of its own, and
//! differences of one percent drown in what differs between two boots.

pub mod study;

use std::fs;

use crate::args::OverheadArgs;
use crate::experiments::settings::{cpus_start, in_range};
use crate::machine::{host_time, job_text, program, understood};
use crate::policy::did_you_mean;
use crate::progress::Progress;
use crate::protocol::{Job, OverheadJob, OverheadLoad, OverheadReport};
use justitia_machine::error::LabError;
use justitia_machine::kernels::Series;
use justitia_machine::qemu::Clock;
use justitia_machine::vm::{self, DataDisk, VmSpec};

/// Name of the record.
pub const RESULT: &str = "overhead.json";
/// Memory of the guest: everything that is read stays cached.
const MEMORY_BYTES: u64 = 1 << 30;
/// The disk is not to be what limits the fileserver.
const DISK_MB_PER_S: u32 = 1000;
/// Two nanoseconds an instruction.
const CLOCK: Clock = Clock::Instructions {
    shift: 1,
    jumps: false,
};
/// What starting the agent, fio and the kernel's programs takes for one window, at most.
const AROUND_A_WINDOW_S: u64 = 20;

/// Measures and writes DIR/overhead.json.
///
/// # Errors
/// One line of cause, one of remedy; see [`LabError`].
pub fn run(args: &OverheadArgs) -> Result<String, LabError> {
    let (series, job) = job(args)?;
    fs::create_dir_all(&args.out).map_err(|error| LabError::io("create", &args.out, error))?;
    let windows = (u64::from(job.pairs) * 3 + 1) * job.loads.len() as u64;
    let spec = VmSpec {
        kernel: series.into(),
        memory_bytes: MEMORY_BYTES,
        cpus: args.cpus,
        possible_cpus: None,
        disk_mbps: Some(DISK_MB_PER_S),
        disk_iops: None,
        data_bytes: 4 << 30,
        data: DataDisk::Scratch,
        binaries: vec![program("justitia-lab-guest")?, program("justitia")?],
        modules: vec!["bfq".to_owned()],
        extra_packages: vec!["bpftool".to_owned()],
        timeout: host_time(
            CLOCK,
            300 + windows * (u64::from(job.seconds) + AROUND_A_WINDOW_S),
        ),
        console_log: args.out.join("console").join("overhead.log"),
        cmdline: Vec::new(),
        // Programs come and go with every window.
        patches_text: true,
        clock: CLOCK,
    };
    let mut progress = Progress::stderr();
    progress.step("overhead");
    let text = job_text(&Job::Overhead(job))?;
    let output = vm::run_guest(&spec, &text, &mut |line| progress.say(line))?;
    let report: OverheadReport = understood(&output.report)?;
    progress.done(&format!("{} windows", report.windows.len()));
    drop(progress);
    let studied = study::Document::of(report, output.accelerator.name(), &output.qemu_version);
    let path = args.out.join(RESULT);
    crate::run::write_whole(&path, &studied.render())?;
    Ok(if args.json {
        studied.render()
    } else {
        format!("{}record: {}\n", studied.table(), path.display())
    })
}

fn job(args: &OverheadArgs) -> Result<(Series, OverheadJob), LabError> {
    in_range("--pairs", u64::from(args.pairs), 2, 1000)?;
    in_range("--seconds", u64::from(args.seconds), 2, 600)?;
    cpus_start(args.cpus, CLOCK, &args.kernel)?;
    let names: Vec<&str> = OverheadLoad::ALL.iter().map(|load| load.name()).collect();
    let mut loads = Vec::new();
    for name in &args.loads {
        let load = OverheadLoad::ALL.into_iter().find(|l| l.name() == name);
        loads.push(load.ok_or_else(|| {
            LabError::usage(format!("unknown load '{name}'"), did_you_mean(name, &names))
        })?);
    }
    if loads.is_empty() {
        loads = OverheadLoad::ALL.to_vec();
    }
    let job = OverheadJob {
        pairs: args.pairs,
        seconds: args.seconds,
        loads,
        seed: args.seed,
    };
    Ok((args.kernel.parse()?, job))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::LabCommand;
    use crate::fixture::command;

    fn asked(line: &str) -> Result<OverheadJob, LabError> {
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
    fn bad_values_are_refused_with_a_remedy() {
        for line in [
            "--pairs 1",
            "--seconds 1",
            "--loads randreads",
            "--kernel 5.4",
        ] {
            let refusal = asked(line).expect_err(line);
            assert_eq!(refusal.exit_code(), 2, "{line}");
            assert!(!refusal.remedy().is_empty());
        }
        let refusal = asked("--loads randreads").unwrap_err();
        assert!(refusal.remedy().contains("'randread'"));
    }
}
