//! Synthetic guests for tests: well-formed reports with roughly known figures.
//!
//! Nothing here is a measurement. Bandwidth follows weight to a power that depends on the policy, with a
//! little noise from a fixed sequence.

use std::collections::BTreeMap;

use clap::Parser;
use serde_json::json;

use crate::analysis::record::RunRecord;
use crate::analysis::residency::FileSeries;
use crate::analysis::run::Run;
use crate::analysis::weighted::Document;
use crate::analysis::weighted::Environment;
use crate::args::{LabArgs, LabCommand, RunArgs};
use crate::experiments::description;
use crate::experiments::settings::Settings;
use crate::load::guard::GuardRole;
use crate::load::random::Rng;
use crate::protocol::Series;
use crate::protocol::{
    AgentCost, ContainerJob, GuestJob, Load, PhaseReport, Policy, Sample, TenantReport,
};
use crate::registry::find;
use justitia_machine::error::Result;

/// `justitia lab` as a command of its own.
#[derive(Parser)]
pub(crate) struct Cli {
    #[command(flatten)]
    lab: LabArgs,
}

/// The parsed command of `justitia lab LINE`.
pub(crate) fn command(line: &str) -> LabCommand {
    let words = std::iter::once("lab").chain(line.split_whitespace());
    let cli = Cli::try_parse_from(words).expect("clap takes it");
    cli.lab.command
}

/// Parsed arguments of `justitia lab run LINE`.
pub(crate) fn run_args(line: &str) -> RunArgs {
    let LabCommand::Run(run) = command(&format!("run --out /nowhere {line}")) else {
        panic!("not run")
    };
    *run
}

/// Settings of `justitia lab run LINE`, or the error.
pub(crate) fn asked(line: &str) -> Result<Settings> {
    let args = run_args(line);
    let found = description(&args.experiment);
    let found = found.ok_or_else(|| find(&args.experiment).err().expect("there is none"))?;
    crate::registry::plan(&args, String::new())?;
    Settings::from_args(found, &args)
}

/// Settings of `justitia lab run LINE`.
pub(crate) fn settings(line: &str) -> Settings {
    asked(line).expect("valid settings")
}

/// A map of texts.
pub(crate) fn map<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
}

/// A record without series.
pub(crate) fn empty_record() -> RunRecord {
    RunRecord {
        head: Run {
            kernel: "6.12-test".into(),
            ..Run::default()
        },
        seconds: 60.0,
        ..RunRecord::default()
    }
}

/// An analyzed document of `justitia lab run LINE`, with a hostile value or two in its text fields.
pub(crate) fn document(line: &str) -> Document {
    let settings = settings(line);
    let records = settings
        .choices
        .policies
        .iter()
        .map(|&policy| {
            let records = (0..settings.choices.runs)
                .map(|run| {
                    let mut record = report(&settings.job(policy, run));
                    record.head.run = run + 1;
                    record
                })
                .collect();
            (policy, records)
        })
        .collect();
    let environment = Environment {
        command: format!("justitia lab run {line} --out <DIR> && echo 'a \"quoted\" & word'"),
        justitia_version: env!("CARGO_PKG_VERSION").into(),
        recorded_at_s: 1_780_000_000,
        guest: map([
            ("lru", "classic (lru_gen 0x0000)"),
            ("mount_options", "rw,noauto_da_alloc <test>"),
        ]),
        machine: map([("acceleration", "software emulation")]),
        settings,
    };
    Document::analyze(environment, records)
}

/// A synthetic guest's answer to a job.
pub(crate) fn report(job: &GuestJob) -> RunRecord {
    let agent = job.policy.runs_agent();
    RunRecord {
        head: Run {
            kernel: "6.12-test".into(),
            agent: agent.then_some(AgentCost {
                cpu_s: 0.4,
                peak_rss_bytes: 9_000_000,
                ..AgentCost::default()
            }),
            agent_log: if agent {
                "managing 2 groups\n<b>not markup</b>\n".into()
            } else {
                String::new()
            },
            ..Run::default()
        },
        seconds: f64::from(job.seconds),
        prepare_s: Some(40.5),
        guest_cpu_busy: Some(0.6),
        knob_differences: Vec::new(),
        agent_status: agent.then(|| json!({"groups": [], "problems": [{}, {}]})),
        series: containers(job),
        files: files(job),
        waits: None,
        tenant: attacked(job),
    }
}

fn attacked(job: &GuestJob) -> Option<TenantReport> {
    job.surroundings.attacks.as_ref()?;
    Some(TenantReport {
        done: BTreeMap::from([("fifos".to_owned(), 3)]),
        agent_charged_peak_bytes: Some(20_000_000),
        ..TenantReport::default()
    })
}

/// The exponent with which bandwidth follows weight, and the total relative to conventional.
fn shape(policy: Policy) -> (f64, f64) {
    match policy {
        Policy::Conventional | Policy::Observe | Policy::GateFifo => (0.3, 1.0),
        Policy::Memcg => (1.25, 0.86),
        Policy::Direct => (0.85, 0.5),
        Policy::Justitia => (0.75, 0.99),
        Policy::Proportional
        | Policy::FirstTouch
        | Policy::Guarded
        | Policy::Hostile
        | Policy::GateStride
        | Policy::GateLoop => (1.0, 1.02),
        Policy::GateAging => (0.5, 1.0),
        Policy::GateInsert => (0.3, 0.6),
        _ => (1.0, 0.9),
    }
}

fn containers(job: &GuestJob) -> Vec<Series> {
    let (power, total) = shape(job.policy);
    let strength = |c: &ContainerJob, power: f64| f64::from(c.weight).powf(power);
    let sum = |power: f64| {
        job.containers
            .iter()
            .map(|c| strength(c, power))
            .sum::<f64>()
    };
    let weights = sum(1.0);
    let mut noise = Rng::new(job.seed, job.policy as u64);
    job.containers
        .iter()
        .map(|container| {
            let (limit, finite) = match container.load {
                Load::Reread(ref load) => (load.file_bytes as f64, true),
                _ => (f64::INFINITY, false),
            };
            let low = job
                .policy
                .runs_agent()
                .then(|| (500e6 * f64::from(container.weight) / weights) as u64);
            let (mut moved, mut finished) = (0.0, None);
            let mut samples = Vec::new();
            for second in 0..=job.seconds {
                let read = moved * if finite { 1.0 } else { 0.4 };
                samples.push(Sample {
                    at_s: f64::from(second),
                    read_bytes: read as u64,
                    write_bytes: (moved - read) as u64,
                    device_read_bytes: (read * 0.3) as u64,
                    device_write_bytes: (moved * 0.5) as u64,
                    ops: (moved / 80_000.0) as u64,
                    latency_us: (moved / 80_000.0 * 2_500.0) as u64,
                    file_bytes: (low.unwrap_or(60_000_000) as f64 * around(&mut noise, 0.1)) as u64,
                    low_bytes: Some(low.unwrap_or(0)),
                    high_bytes: low.map(|low| low + 20_000_000),
                    memory_full_us: u64::from(second) * 20_000,
                    io_some_us: u64::from(second) * 400_000,
                });
                // The policy takes effect over the first ten seconds.
                let power = 0.3 + (power - 0.3) * (f64::from(second) / 10.0).min(1.0);
                let share = strength(container, power) / sum(power);
                let step = 60e6 * total * share * around(&mut noise, 0.12);
                if moved < limit && moved + step >= limit {
                    finished = Some(f64::from(second) + (limit - moved) / step);
                }
                moved = (moved + step).min(limit);
            }
            Series {
                name: container.name.clone(),
                weight: container.weight,
                slow_ops: 1,
                max_latency_us: 2_100_000,
                finished_at_s: finished,
                phases: phases(job.policy, &container.load),
                ..Series::of(&samples)
            }
        })
        .collect()
}

/// The phases of a load that has some: under pressure, a tenth of the bandwidth unless guarded.
fn phases(policy: Policy, load: &Load) -> Vec<PhaseReport> {
    let Load::Guard(GuardRole::Starter { .. } | GuardRole::Server(_)) = load else {
        return Vec::new();
    };
    let pressed = if policy == Policy::Guarded { 1 } else { 10 };
    let phase = |name: &str, slower: u64| PhaseReport {
        name: name.into(),
        seconds: Some(2.0 * slower as f64),
        bytes: 100_000_000,
        ops: 1000,
        p50_us: Some(900),
        p99_us: Some(4000 * slower),
        max_us: Some(5000 * slower),
    };
    vec![phase("quiet", 1), phase("pressed", pressed)]
}

/// The shared file, if there is one: it stays under proportional, and the other policies halve it.
fn files(job: &GuestJob) -> Vec<FileSeries> {
    let Some(Load::Sharing(load)) = job.containers.first().map(|c| &c.load) else {
        return Vec::new();
    };
    let bytes = load.shared_bytes;
    let least = match job.policy {
        Policy::Proportional => bytes,
        _ => bytes / 2,
    };
    let resident = |second: u32| Some(if second == job.seconds { least } else { bytes });
    vec![FileSeries {
        name: "shared file".into(),
        bytes,
        at_s: (0..=job.seconds).map(f64::from).collect(),
        resident_bytes: (0..=job.seconds).map(resident).collect(),
    }]
}

/// One, give or take this much.
fn around(noise: &mut Rng, width: f64) -> f64 {
    1.0 + width * (noise.unit() - 0.5) * 2.0
}
