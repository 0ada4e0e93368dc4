//! Runs windows of one load after another, observed by nothing, through `/proc`, or by eBPF.
//!
//! The loads run in groups that the agent manages. fio reads a fully cached file, with a process for each
//! window. The fileserver is a container that keeps running while agents come and go; its work is counted
//! through its shared page. CPU time is that of the load's own tasks: fio's own accounting, and `cpu.stat` of
//! the container.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::slice::from_ref;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{ensure, Context, Result};

use super::agent::{self, Agent};
use super::container::{self, Container};
use super::run::set_up;
use super::setup::{self, CGROUP};
use super::{files, progress};
use crate::load::clock::monotonic_ns;
use crate::load::fileserver::{Fileserver, Mix};
use crate::load::shared::{Command as Order, Status};
use crate::protocol::{
    AgentCost, ContainerJob, Load, Lru, Observing, OverheadJob, OverheadLoad, OverheadReport,
    Policy, ProgramCost, Scheduler, Window,
};

/// Size of the file that fio reads.
const FILE_BYTES: u64 = 128 << 20;
/// Seconds of load before the operations that count. By then the observer no longer counts each read of a load
/// that reads too much for its budget.
const RAMP_S: u32 = 8;
/// Time limit for the container to be ready.
const PATIENCE: Duration = Duration::from_secs(300);
/// Switches the kernel's statistics of BPF programs.
const BPF_STATS: &str = "/proc/sys/kernel/bpf_stats_enabled";
/// Time limit for loads to stop.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

pub fn run(job: &OverheadJob) -> Result<OverheadReport> {
    let mut environment = BTreeMap::new();
    let data = set_up(None, Lru::Classic, Scheduler::None, &mut environment)?;
    environment.insert("mount_options".to_owned(), setup::make_data(&data, "")?);
    environment.insert("seconds".to_owned(), job.seconds.to_string());

    let mut windows = Vec::new();
    let mut programs = Vec::new();
    for &load in &job.loads {
        let running = Running::start(load, job)?;
        for pair in 0..job.pairs {
            let mut order = Observing::ALL;
            if pair % 2 == 1 {
                order.reverse();
            }
            for observing in order {
                progress(&format!(
                    "{}, pair {} of {}, {}",
                    load.name(),
                    pair + 1,
                    job.pairs,
                    observing.name()
                ));
                windows.push(window(&running, pair, observing, job.seconds)?);
            }
        }
        progress(&format!("{}, program by program", load.name()));
        programs.extend(programs_of(&running, job.seconds)?);
        running.stop();
    }
    Ok(OverheadReport {
        kernel: setup::kernel(),
        environment,
        windows,
        programs,
    })
}

/// One window under one condition.
fn window(running: &Running, pair: u32, observing: Observing, seconds: u32) -> Result<Window> {
    let extra = ["--observer".to_owned(), observing.name()];
    let mut agent = match observing {
        Observing::Nothing => None,
        Observing::Proc | Observing::Bpf => Agent::start(Policy::Observe, false, &[], &extra)?,
    };
    running.work(RAMP_S)?;
    let group = agent::make_group()?;
    let cpu_s = || files::cpu_us(&group).map(|us| us as f64 / 1e6);
    let (began, before) = (Instant::now(), cpu_s()?);
    let done = running.work(seconds)?;
    let (took, cpu_s) = (began.elapsed(), cpu_s()? - before);
    let mut cost: Option<AgentCost> = None;
    if let Some(agent) = &mut agent {
        agent.end()?;
        cost = Some(AgentCost {
            cpu_s,
            ..agent.cost
        });
    }
    Ok(Window {
        load: running.load(),
        pair,
        observing,
        seconds: done.seconds,
        ops: done.ops,
        cpu_us: done.cpu_us,
        agent: cost,
        agent_s: cost.map(|_| took.as_secs_f64()),
    })
}

/// A window in which the kernel times each BPF program.
fn programs_of(running: &Running, seconds: u32) -> Result<Vec<ProgramCost>> {
    let extra = ["--observer".to_owned(), Observing::Bpf.name()];
    let mut agent = Agent::start(Policy::Observe, false, &[], &extra)?;
    running.work(RAMP_S)?;
    files::write(Path::new(BPF_STATS), "1")?;
    let before = program_times()?;
    let done = running.work(seconds)?;
    let after = program_times()?;
    files::write(Path::new(BPF_STATS), "0")?;
    if let Some(agent) = &mut agent {
        agent.end()?;
    }
    Ok(after
        .into_iter()
        .map(|(id, (name, runs, ns))| {
            let (runs_before, ns_before) = before.get(&id).map_or((0, 0), |b| (b.1, b.2));
            ProgramCost {
                load: running.load(),
                name,
                runs: runs - runs_before,
                ns: ns - ns_before,
                ops: done.ops,
                cpu_us: done.cpu_us,
            }
        })
        .collect())
}

/// Name, runs and nanoseconds of each program that ran, by id.
fn program_times() -> Result<BTreeMap<u64, (String, u64, u64)>> {
    let output = Command::new("bpftool")
        .args(["--json", "prog", "show"])
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run bpftool")?;
    ensure!(output.status.success(), "bpftool failed: {}", output.status);
    times_in(&output.stdout)
}

fn times_in(json: &[u8]) -> Result<BTreeMap<u64, (String, u64, u64)>> {
    let programs: Vec<serde_json::Value> =
        serde_json::from_slice(json).context("bpftool's output is not a list in JSON")?;
    Ok(programs
        .iter()
        .filter_map(|program| {
            let number = |key: &str| program[key].as_u64();
            let name = program["name"].as_str()?.to_owned();
            let times = (name, number("run_cnt")?, number("run_time_ns")?);
            Some((number("id")?, times))
        })
        .collect())
}

/// The work of a load in a window.
struct Done {
    seconds: f64,
    ops: u64,
    cpu_us: f64,
}

enum Running {
    Fio(Fio),
    Fileserver(Box<Container>),
}

impl Running {
    fn start(load: OverheadLoad, job: &OverheadJob) -> Result<Self> {
        Ok(match load {
            OverheadLoad::Fileserver => Self::Fileserver(Box::new(fileserver_container(job)?)),
            load => Self::Fio(Fio::prepare(load, job.seed)?),
        })
    }

    fn load(&self) -> OverheadLoad {
        match self {
            Self::Fio(fio) => fio.load,
            Self::Fileserver(_) => OverheadLoad::Fileserver,
        }
    }

    fn work(&self, seconds: u32) -> Result<Done> {
        match self {
            Self::Fio(fio) => fio.work(seconds),
            Self::Fileserver(container) => {
                let look = || -> Result<(Instant, u64, u64)> {
                    let us = files::cpu_us(&container.group)?;
                    Ok((Instant::now(), container.page.counters().ops, us))
                };
                let (began, ops, cpu_us) = look()?;
                thread::sleep(Duration::from_secs(seconds.into()));
                container.ensure_alive()?;
                let (ended, ops_then, cpu_us_then) = look()?;
                Ok(Done {
                    seconds: (ended - began).as_secs_f64(),
                    ops: ops_then - ops,
                    cpu_us: (cpu_us_then - cpu_us) as f64,
                })
            }
        }
    }

    fn stop(self) {
        if let Self::Fileserver(container) = self {
            container::stop_all(&[*container], STOP_PATIENCE);
        }
    }
}

/// Reads of a cached file by fio, in a group of its own.
struct Fio {
    load: OverheadLoad,
    group: PathBuf,
    file: PathBuf,
    seed: u64,
}

impl Fio {
    fn prepare(load: OverheadLoad, seed: u64) -> Result<Self> {
        let group = Path::new(CGROUP).join("app/fio");
        fs::create_dir_all(&group).context("cannot make fio's cgroup")?;
        let file = setup::data_dir().join("fio");
        let fio = Self {
            load,
            group,
            file,
            seed,
        };
        // Written and read by the group itself, so that the pages are charged to it.
        if !fio.file.exists() {
            let size = FILE_BYTES.to_string();
            fio.run(&["--rw=write", "--bs=1m", "--end_fsync=1", "--size", &size])?;
            fio.run(&["--rw=read", "--bs=1m", "--size", &size])?;
        }
        Ok(fio)
    }

    fn work(&self, seconds: u32) -> Result<Done> {
        let (pattern, block) = match self.load {
            OverheadLoad::Randread => ("--rw=randread", "--bs=4k"),
            _ => ("--rw=read", "--bs=128k"),
        };
        let runtime = format!("--runtime={seconds}");
        let size = format!("--size={FILE_BYTES}");
        self.run(&[pattern, block, &size, "--time_based", &runtime])
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("fio");
        command
            .args(["--name=w", "--ioengine=psync", "--invalidate=0", "--thread"])
            .args(["--norandommap", "--output-format=json"])
            .arg(format!("--randseed={}", self.seed))
            .arg(format!("--filename={}", self.file.display()))
            .args(arguments)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit());
        command
    }

    /// Runs fio on the file, in its group.
    fn run(&self, arguments: &[&str]) -> Result<Done> {
        let mut command = self.command(arguments);
        setup::enter_group(&mut command, &self.group)?;
        let output = command.output().context("cannot run fio")?;
        ensure!(output.status.success(), "fio failed: {}", output.status);
        done_by_fio(&output.stdout)
    }
}

/// Operations, time and CPU time of fio's only job.
fn done_by_fio(json: &[u8]) -> Result<Done> {
    // fio may print notes before the document.
    let from = json.iter().position(|b| *b == b'{').unwrap_or_default();
    let value: serde_json::Value =
        serde_json::from_slice(&json[from..]).context("fio's output is not JSON")?;
    let job = &value["jobs"][0];
    let side = if job["read"]["total_ios"].as_u64() > Some(0) {
        "read"
    } else {
        "write"
    };
    let ops = job[side]["total_ios"].as_u64();
    let seconds = job[side]["runtime"].as_f64().map(|ms| ms / 1e3);
    let percent = job["usr_cpu"].as_f64().zip(job["sys_cpu"].as_f64());
    let (Some(ops), Some(seconds), Some((user, system))) = (ops, seconds, percent) else {
        anyhow::bail!("fio's output lacks a number");
    };
    Ok(Done {
        seconds,
        ops,
        cpu_us: (user + system) / 100.0 * seconds * 1e6,
    })
}

/// A container that runs the fileserver load until it is told to stop.
fn fileserver_container(job: &OverheadJob) -> Result<Container> {
    let load = Load::Fileserver(Fileserver {
        mix: Mix {
            threads: 2,
            files: 400,
            ..Mix::default()
        },
        ..Fileserver::default()
    });
    let container = ContainerJob {
        name: "fileserver".to_owned(),
        weight: 100,
        lie: None,
        user: None,
        load,
    };
    let container = Container::start(0, &container, job.seed, Scheduler::None)?;
    let wait_for = |wanted| container::wait_for(from_ref(&container), wanted, PATIENCE);
    wait_for(Status::Waiting)?;
    container.page.set_command(Order::Prepare);
    wait_for(Status::Prepared)?;
    container.page.go(monotonic_ns());
    // The first seconds fill the page cache and are atypical.
    thread::sleep(Duration::from_secs(10));
    Ok(container)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_jobs_seed_decides_which_blocks_are_read() {
        let fio = |seed| Fio {
            load: OverheadLoad::Randread,
            group: PathBuf::new(),
            file: PathBuf::new(),
            seed,
        };
        let line = |seed| format!("{:?}", fio(seed).command(&[]));
        assert!(line(7).contains("--randseed=7") && !line(7).contains("randrepeat"));
        assert_ne!(line(7), line(8));
    }

    #[test]
    fn fios_numbers_are_those_of_its_only_job() {
        let json = br#"fio: a note
        {"jobs": [{"read": {"total_ios": 5000, "runtime": 2000}, "write": {"total_ios": 0},
                   "usr_cpu": 10.0, "sys_cpu": 40.0}]}"#;
        let done = done_by_fio(json).unwrap();
        assert_eq!(done.ops, 5000);
        assert!((done.seconds - 2.0).abs() < 1e-9);
        assert!((done.cpu_us - 1e6).abs() < 1e-3);
        assert!(done_by_fio(b"{}").is_err());
    }

    #[test]
    fn programs_that_never_ran_have_no_times() {
        let json = br#"[{"id": 7, "type": "tracing", "name": "filemap_read", "run_time_ns": 900,
                         "run_cnt": 3}, {"id": 8, "type": "tracing", "name": "over_high"}]"#;
        let times = times_in(json).unwrap();
        assert_eq!(times.len(), 1);
        assert_eq!(times[&7], ("filemap_read".to_owned(), 3, 900));
        assert!(times_in(b"{\"error\": \"no\"}").is_err());
    }
}
