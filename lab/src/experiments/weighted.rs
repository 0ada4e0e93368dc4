//! Experiments with weighted containers as implementations of [`Experiment`].

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::settings::Settings;
use super::{Description, CONTAINERS};
use crate::analysis::record::RunRecord;
use crate::analysis::run::{Records, Run};
use crate::analysis::weighted::Document;
use crate::analysis::weighted::Environment;
use crate::analysis::window;
use crate::args::RunArgs;
use crate::choices::Choices;
use crate::comparison::{Compared, Comparison};
use crate::experiment::{Analysis, Experiment, Plan};
use crate::gate_module;
use crate::machine::{guest_modules, host_time, program, with_disk, Machine};
use crate::policy::Policy;
use crate::protocol::Job;
use crate::report;
use justitia_machine::error::{OrCannot, Result, Say};
use justitia_machine::vm::VmSpec;

impl Experiment for Description {
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
        let options = std::iter::once(&CONTAINERS).chain(self.options);
        options.flat_map(|words| words.split(' ')).collect()
    }

    fn plan(&self, args: &RunArgs, command: String) -> Result<Box<dyn Plan>> {
        let settings = Settings::from_args(self, args)?;
        Ok(Box::new(Comparison::new(settings, command)))
    }

    fn read(&self, text: &str) -> Result<Box<dyn Analysis>, String> {
        Ok(Box::new(Document::parse(text)?))
    }
}

impl Compared for Settings {
    type Record = RunRecord;
    const EACH_POLICY: bool = false;

    fn choices(&self) -> &Choices {
        &self.choices
    }

    fn choices_mut(&mut self) -> &mut Choices {
        &mut self.choices
    }

    fn job(&self, policy: Policy, run: u32) -> Job {
        Job::Experiment(self.job(policy, run))
    }

    fn machine(&self, _out: &Path, say: &mut Say) -> Result<Machine> {
        machine(self, say)
    }

    fn is_complete(&self, record: &RunRecord) -> bool {
        let names = self.containers.iter().map(|c| &c.name);
        names.eq(record.series.iter().map(|series| &series.name))
            && record.series.iter().all(|series| !series.at_s.is_empty())
    }

    fn head(record: &mut RunRecord) -> &mut Run {
        &mut record.head
    }

    fn line(&self, record: &RunRecord) -> String {
        let figures = window::figures(self, record, self.warmup_s);
        let known = |value: Option<f64>, digits: usize| {
            value.map_or_else(|| "unknown".to_owned(), |value| format!("{value:.digits$}"))
        };
        if let Some(shared) = figures.files.first() {
            let part = shared.least_part().map(|part| part * 100.0);
            return format!(
                "at least {} % of the {} stayed",
                known(part, 0),
                shared.name
            );
        }
        format!(
            "PV {}, share error {}, total {} MB/s",
            known(figures.pv, 2),
            known(figures.share_error, 3),
            known(figures.total_mb_per_s, 1)
        )
    }

    fn analysis(environment: Environment, records: Records<RunRecord>) -> Box<dyn Analysis> {
        Box::new(Document::analyze(environment, records))
    }
}

impl Analysis for Document {
    fn record(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    fn page(&self) -> Option<String> {
        Some(report::render(self))
    }

    fn table(&self) -> String {
        report::text::render(self)
    }

    fn again(self: Box<Self>) -> Box<dyn Analysis> {
        Box::new(self.analyze_again())
    }
}

/// The machine for `settings`. An environment error if the programs that run in the guest are not beside
/// this one, or if the kernel module is needed and cannot be built here.
pub fn machine(settings: &Settings, progress: &mut Say) -> Result<Machine> {
    let choices = &settings.choices;
    let kernel = choices.kernel_series;
    let mut binaries = vec![program("justitia-lab-guest")?];
    if choices.policies.iter().any(|policy| policy.runs_agent()) {
        binaries.push(program("justitia")?);
    }
    let mut module = None;
    if choices.policies.iter().any(|policy| policy.has_gate()) {
        let dir = tempfile::tempdir().or_cannot("create a directory in", &std::env::temp_dir())?;
        binaries.push(gate_module::build(kernel, dir.path(), progress)?);
        module = Some(dir);
    }
    Ok(Machine::with_dir(
        VmSpec {
            memory_bytes: with_disk(choices.memory_bytes, settings.memory_disk().as_ref()),
            cpus: choices.cpus,
            disk_mbps: Some(choices.disk_mb_per_s),
            data_bytes: data_bytes(settings),
            modules: guest_modules(choices.volume),
            extra_packages: choices
                .volume
                .map(|_| "dmsetup".to_owned())
                .into_iter()
                .collect(),
            // The killed agent's programs are detached, and its successor's attached, while a load runs.
            patches_text: settings.kill_agent_at_s.is_some(),
            clock: choices.clock,
            ..VmSpec::new(kernel, binaries, time_limit(settings))
        },
        module,
    ))
}

/// Room for the file sets three times over, because files are deleted and created at different times. No disk
/// if the guest makes one.
fn data_bytes(settings: &Settings) -> u64 {
    if settings.memory_disk().is_some() {
        return 0;
    }
    (settings.file_set_bytes() * 3).max(4 << 30)
}

/// Time for booting, filling the disk at half its speed, measuring under emulation, and a margin.
fn time_limit(settings: &Settings) -> Duration {
    let fill_s = settings.file_set_bytes() / (u64::from(settings.choices.disk_mb_per_s) * 500_000);
    let guest_s = 300 + fill_s + 2 * u64::from(settings.seconds);
    host_time(settings.choices.clock, guest_s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fixture;

    #[test]
    fn the_disk_has_room_for_the_file_sets_and_the_limit_for_filling_it() {
        let small = fixture::settings("fileserver");
        assert_eq!(data_bytes(&small), 4 << 30);
        let large = fixture::settings("readmix --file-size 2G");
        assert_eq!(data_bytes(&large), 3 * 4 * (2 << 30));
        assert!(time_limit(&large) > time_limit(&small) + Duration::from_secs(300));
    }

    #[test]
    fn a_disk_of_memory_comes_on_top_and_its_guest_takes_longer() {
        let host = fixture::settings("readmix --file-size 64M");
        let own = fixture::settings("readmix --file-size 64M --clock instructions");
        let disk = own.memory_disk().expect("a disk of memory");
        assert_eq!(data_bytes(&own), 0);
        let memory = with_disk(own.choices.memory_bytes, Some(&disk));
        assert!(memory > own.choices.memory_bytes + disk.bytes);
        assert_eq!(
            with_disk(host.choices.memory_bytes, host.memory_disk().as_ref()),
            host.choices.memory_bytes
        );
        assert!(time_limit(&own) > 10 * time_limit(&host));
    }
}
