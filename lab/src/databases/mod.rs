//! Experiments with databases: MariaDB in containers, sysbench as their clients, the scenarios of
//! MemOpLight's evaluation.
//!
//! Kept apart from the other experiments, whose subject is bandwidth in the ratio of weights: here
//! it is transactions against objectives, in phases. [`scenario`] describes, [`settings`] resolves
//! a command line, [`image`] makes the databases, [`study`] computes, [`report`] and [`table`]
//! show. The guest's part is in `guest::databases`.

pub mod draw;
pub mod figures;
pub mod image;
pub mod paper;
pub mod protocol;
pub mod record;
pub mod report;
pub mod scenario;
pub mod settings;
pub mod study;
pub mod table;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::args::RunArgs;
use crate::machine::{guest_modules, host_time, job_text, program, understood, with_disk};
use crate::policy::Policy;
use crate::progress::Progress;
use crate::protocol::Job;
use crate::run::{write_whole, REPORT, RESULT};
use justitia_machine::error::LabError;
use justitia_machine::host::Watch;
use justitia_machine::kernels::Series;
use justitia_machine::vm::{self, DataDisk, VmSpec};
use protocol::{DatabasesReport, PrepareJob};
use settings::Settings;
use study::{Document, Environment, RunRecord};

/// Debian packages a guest needs for them.
pub const PACKAGES: &[&str] = &["mariadb-server-core", "sysbench"];

/// What starting, warming and stopping take beside the phases.
const AROUND_S: u64 = 240;

/// Runs every policy of every run and writes DIR/result.json and DIR/report.html after each.
///
/// # Errors
/// That of the first guest that failed; what was complete before it is written.
pub fn run(args: &RunArgs, command: &str) -> Result<Document, LabError> {
    let series: Vec<&str> = Series::ALL.iter().map(|series| series.name()).collect();
    let settings = Settings::from_args(args, &series)?;
    let scenario = scenario::find(&args.experiment)
        .ok_or_else(|| LabError::usage("no such experiment", "see 'justitia lab list'"))?;
    let mut progress = Progress::stderr();
    progress.step(scenario.name);
    let kernel: Series = settings.kernel_series.parse()?;
    let prepare = PrepareJob {
        databases: settings.containers.len() as u32,
        rows: settings.rows,
    };
    let console = args.out.join("console");
    let image = image::obtain(
        &prepare,
        settings.database_bytes,
        kernel,
        &console.join("databases.log"),
        &mut |line| progress.say(line),
    )?;
    let mut records: BTreeMap<Policy, Vec<RunRecord>> = BTreeMap::new();
    let mut environment = Environment::new(command, settings.clone());
    let boots = settings.runs as usize * settings.policies.len();
    let mut document = None;
    for run in 0..settings.runs {
        for (i, &policy) in settings.policies.iter().enumerate() {
            let boot = run as usize * settings.policies.len() + i + 1;
            progress.step(&format!("{boot}/{boots} {}", policy.name()));
            let log = console.join(format!("{}-{}.log", policy.name(), run + 1));
            let spec = machine(&settings, kernel, &image, log)?;
            let job = settings.job(scenario, policy, run);
            let record = measure(&spec, job, run, &mut environment, &mut progress)?;
            progress.done(&study::one_line(&settings, &record));
            records.entry(policy).or_default().push(record);
            environment.recorded_at_s = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs());
            let studied = Document::study(scenario.name, environment.clone(), records.clone());
            write(&args.out, &studied)?;
            document = Some(studied);
        }
    }
    document.ok_or_else(|| LabError::usage("nothing to run", "use --runs 1 or more"))
}

/// Writes result and page.
///
/// # Errors
/// Where the directory cannot take them.
pub fn write(dir: &Path, document: &Document) -> Result<(), LabError> {
    write_whole(&dir.join(RESULT), &document.render())?;
    write_whole(&dir.join(REPORT), &report::render(document))
}

/// The studied document in DIR, if it is one with databases.
pub fn read(path: &Path) -> Option<Document> {
    serde_json::from_str(&fs::read_to_string(path).ok()?).ok()
}

/// One boot: one policy of one run.
fn measure<W: std::io::Write>(
    spec: &VmSpec,
    job: protocol::DatabasesJob,
    run: u32,
    environment: &mut Environment,
    progress: &mut Progress<W>,
) -> Result<RunRecord, LabError> {
    progress.say("starting the guest");
    let seed = job.seed;
    let containers = job.containers.len();
    let text = job_text(&Job::Databases(job))?;
    let watch = Watch::start();
    let output = vm::run_guest(spec, &text, &mut |line| progress.say(line))?;
    let host = watch.end();
    let report: DatabasesReport = understood(&output.report)?;
    if report.containers.len() != containers
        || report.containers.iter().any(|c| c.samples.is_empty())
    {
        return Err(LabError::failed(
            "the guest did not report every container",
            format!("read {}", spec.console_log.display()),
        ));
    }
    let facts = [
        ("acceleration", output.accelerator.name().to_owned()),
        ("qemu", output.qemu_version),
    ];
    environment
        .machine
        .extend(facts.map(|(name, value)| (name.to_owned(), value)));
    environment.guest.extend(report.environment.clone());
    Ok(RunRecord {
        run: run + 1,
        seed,
        host_busy_with_others: host.busy_with_others,
        host_speed: host.speed,
        failed_boots: output.retries,
        report,
    })
}

fn machine(
    settings: &Settings,
    kernel: Series,
    image: &Path,
    console_log: PathBuf,
) -> Result<VmSpec, LabError> {
    // Also without an agent: every container has its probe.
    let names = ["justitia-lab-guest", "justitia", "justitia-probe"];
    let binaries = names.into_iter().map(program).collect::<Result<_, _>>()?;
    let phases = settings.phases.len() as u64 * u64::from(settings.phase_s);
    let warm_s = settings.database_bytes * settings.containers.len() as u64
        / (u64::from(settings.disk_mb_per_s) * 250_000);
    // Where the guest makes its disk, this one is only read once.
    let limited = settings.memory_disk().is_none();
    Ok(VmSpec {
        kernel: kernel.into(),
        memory_bytes: with_disk(settings.memory_bytes, settings.memory_disk().as_ref()),
        cpus: settings.cpus,
        possible_cpus: None,
        disk_mbps: limited.then_some(settings.disk_mb_per_s),
        disk_iops: limited.then_some(settings.disk_iops),
        data_bytes: 0,
        data: DataDisk::From(image.to_owned()),
        binaries,
        modules: guest_modules(),
        extra_packages: PACKAGES.iter().map(|p| (*p).to_owned()).collect(),
        timeout: host_time(settings.clock, AROUND_S + warm_s + phases * 3 / 2),
        console_log,
        cmdline: Vec::new(),
        patches_text: false,
        clock: settings.clock,
    })
}
