//! Experiments with databases: MariaDB in containers, sysbench as their clients, the scenarios of
//! MemOpLight's evaluation.

pub mod analysis;
pub mod image;
pub mod paper;
pub mod record;
pub mod scenario;
pub mod settings;

use std::path::Path;

use serde_json::Value;

use crate::analysis::run::{records, Records, Run};
use crate::args::RunArgs;
use crate::choices::Choices;
use crate::comparison::{Compared, Comparison};
use crate::experiment::{Analysis, Experiment, Plan};
use crate::machine::{guest_modules, host_time, program, with_disk, Machine};
use crate::policy::Policy;
use crate::protocol::databases::PrepareJob;
use crate::protocol::Job;
use crate::report;
use analysis::{figures, Databases, Document, Environment};
use justitia_machine::error::{Result, Say};
use justitia_machine::vm::{DataDisk, VmSpec};
use record::RunRecord;
use scenario::Scenario;
use settings::Settings;

/// Time for starting, warming and stopping in addition to the phases.
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
        let options = "threads rate database-size keys disk-iops lie";
        options.split(' ').collect()
    }

    fn plan(&self, args: &RunArgs, command: String) -> Result<Box<dyn Plan>> {
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

impl Compared for Databases {
    type Record = RunRecord;
    const EACH_POLICY: bool = true;

    fn choices(&self) -> &Choices {
        &self.databases.choices
    }

    fn choices_mut(&mut self) -> &mut Choices {
        &mut self.databases.choices
    }

    fn job(&self, policy: Policy, run: u32) -> Job {
        Job::Databases(self.databases.job(policy, run))
    }

    fn machine(&self, out: &Path, say: &mut Say) -> Result<Machine> {
        machine(&self.databases, out, say)
    }

    fn is_complete(&self, record: &RunRecord) -> bool {
        record.series.len() == self.databases.containers.len()
            && record.series.iter().all(|series| !series.at_s.is_empty())
    }

    fn head(record: &mut RunRecord) -> &mut Run {
        &mut record.head
    }

    fn line(&self, record: &RunRecord) -> String {
        let figures = figures(&self.databases, &record.series);
        format!(
            "{:.0} transactions, satisfied {}",
            figures.transactions,
            figures
                .satisfied
                .map_or("unknown".to_owned(), |part| format!(
                    "{:.0} %",
                    part * 100.0
                ))
        )
    }

    fn analysis(environment: Environment, records: Records<RunRecord>) -> Box<dyn Analysis> {
        Box::new(analysis::analyze(environment, records))
    }
}

impl Analysis for Document {
    fn record(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    fn page(&self) -> Option<String> {
        Some(report::databases::render(self))
    }

    fn table(&self) -> String {
        report::databases::text(self)
    }

    fn again(self: Box<Self>) -> Box<dyn Analysis> {
        let records = records(self.policies, |result| result.runs);
        Box::new(Document {
            kernel: self.kernel,
            ..analysis::analyze(self.environment, records)
        })
    }
}

/// The machine of all boots; also makes the databases if they are not cached.
fn machine(settings: &Settings, out: &Path, say: &mut Say) -> Result<Machine> {
    let choices = &settings.choices;
    let kernel = choices.kernel_series;
    let prepare = PrepareJob {
        databases: settings.containers.len() as u32,
        rows: settings.rows,
    };
    let log = out.join("console/databases.log");
    let image = image::obtain(&prepare, settings.database_bytes, kernel, &log, say)?;
    // Needed without an agent too: every container has its probe.
    let names = ["justitia-lab-guest", "justitia", "justitia-probe"];
    let binaries = names.into_iter().map(program).collect::<Result<_, _>>()?;
    let phases = settings.phases.len() as u64 * u64::from(settings.phase_s);
    let warm_s = settings.database_bytes * settings.containers.len() as u64
        / (u64::from(choices.disk_mb_per_s) * 250_000);
    let neighbors = settings.containers.iter().any(|c| c.neighbor.is_some());
    let packages = image::PACKAGES.iter();
    let packages = packages.chain(image::NEIGHBORS_PACKAGES.iter().filter(|_| neighbors));
    // If the guest makes its own disk, this one is only read once.
    let limited = settings.memory_disk().is_none();
    Ok(Machine::from(VmSpec {
        memory_bytes: with_disk(choices.memory_bytes, settings.memory_disk().as_ref()),
        cpus: choices.cpus,
        disk_mbps: limited.then_some(choices.disk_mb_per_s),
        disk_iops: limited.then_some(settings.disk_iops),
        data: DataDisk::From(image),
        modules: guest_modules(None),
        extra_packages: packages.map(|p| (*p).to_owned()).collect(),
        clock: choices.clock,
        ..VmSpec::new(
            kernel,
            binaries,
            host_time(choices.clock, AROUND_S + warm_s + phases * 3 / 2),
        )
    }))
}
