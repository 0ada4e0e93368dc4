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

use std::path::{Path, PathBuf};

use serde_json::{json, Value};

use crate::args::RunArgs;
use crate::comparison::Comparison;
use crate::experiment::{Analysis, Experiment, Plan};
use crate::machine::{guest_modules, host_time, program, with_disk, Machine};
use crate::policy::Policy;
use justitia_machine::error::LabError;
use justitia_machine::kernels::Series;
use justitia_machine::vm::{DataDisk, VmSpec};
use protocol::PrepareJob;
use scenario::Scenario;
use settings::Settings;
use study::{Databases, Document};

/// Debian packages a guest needs for them.
pub const PACKAGES: &[&str] = &["mariadb-server-core", "sysbench"];

/// What starting, warming and stopping take beside the phases.
const AROUND_S: u64 = 240;

impl Experiment for Scenario {
    fn name(&self) -> &'static str {
        self.name
    }

    fn claim(&self) -> &'static str {
        self.claim
    }

    fn policies(&self) -> &'static [Policy] {
        self.policies
    }

    fn options(&self) -> Vec<&'static str> {
        vec![
            "threads",
            "rate",
            "database-size",
            "keys",
            "disk-iops",
            "lie",
            "percent",
            "period",
            "no-yellow",
        ]
    }

    fn facts(&self) -> Value {
        json!({
            "seconds": self.phase_s,
            "memory_bytes": self.memory_bytes,
            "disk_iops": self.disk_iops,
        })
    }

    fn plan(&self, args: &RunArgs, command: String) -> Result<Box<dyn Plan>, LabError> {
        let settings = Databases {
            experiment: self.name.to_owned(),
            databases: Settings::from_args(self, args)?,
        };
        Ok(Box::new(Comparison::new(settings, command)))
    }

    fn read(&self, text: &str) -> Result<Box<dyn Analysis>, String> {
        let mut document = Document::parse(text)?;
        self.name
            .clone_into(&mut document.environment.settings.experiment);
        Ok(Box::new(document))
    }
}

/// The machine of all boots; the databases are made here if the cache has none.
fn machine(
    settings: &Settings,
    out: &Path,
    say: &mut dyn FnMut(&str),
) -> Result<Machine, LabError> {
    let kernel: Series = settings.choices.kernel_series.parse()?;
    let prepare = PrepareJob {
        databases: settings.containers.len() as u32,
        rows: settings.rows,
    };
    let log = out.join("console/databases.log");
    let image = image::obtain(&prepare, settings.database_bytes, kernel, &log, say)?;
    // Also without an agent: every container has its probe.
    let names = ["justitia-lab-guest", "justitia", "justitia-probe"];
    let binaries = names.into_iter().map(program).collect::<Result<_, _>>()?;
    let phases = settings.phases.len() as u64 * u64::from(settings.phase_s);
    let warm_s = settings.database_bytes * settings.containers.len() as u64
        / (u64::from(settings.choices.disk_mb_per_s) * 250_000);
    // Where the guest makes its disk, this one is only read once.
    let limited = settings.memory_disk().is_none();
    Ok(Machine::from(VmSpec {
        kernel: kernel.into(),
        memory_bytes: with_disk(
            settings.choices.memory_bytes,
            settings.memory_disk().as_ref(),
        ),
        cpus: settings.choices.cpus,
        possible_cpus: None,
        disk_mbps: limited.then_some(settings.choices.disk_mb_per_s),
        disk_iops: limited.then_some(settings.disk_iops),
        data_bytes: 0,
        data: DataDisk::From(image),
        binaries,
        modules: guest_modules(),
        extra_packages: PACKAGES.iter().map(|p| (*p).to_owned()).collect(),
        timeout: host_time(settings.choices.clock, AROUND_S + warm_s + phases * 3 / 2),
        console_log: PathBuf::new(),
        cmdline: Vec::new(),
        patches_text: false,
        clock: settings.choices.clock,
    }))
}
