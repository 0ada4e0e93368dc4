//! The guest of an experiment: sizes its virtual machine and boots it.
//!
//! [`Guest`] is what the runner needs from whoever does its jobs; [`Machine`] does so in QEMU,
//! and tests answer from a synthetic one. Sizes in bytes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;
use tempfile::TempDir;

use crate::experiment::Answer;
use crate::experiments::Settings;
use crate::gate_module;
use crate::protocol::{Job, MemoryDisk};
use justitia_machine::error::LabError;
use justitia_machine::host::Watch;
use justitia_machine::kernels::Series;
use justitia_machine::qemu::Clock;
use justitia_machine::vm::{self, DataDisk, VmSpec};

/// Does jobs.
pub trait Guest {
    /// Does one job; `console` is where the guest's console is kept.
    ///
    /// # Errors
    /// What kept the guest from reporting.
    fn run(
        &mut self,
        job: &Job,
        console: &Path,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Answer, LabError>;
}

/// A QEMU guest with a stock kernel.
#[derive(Debug)]
pub struct Machine {
    spec: VmSpec,
    /// Holds the kernel module, if there is one.
    _module: Option<TempDir>,
}

impl From<VmSpec> for Machine {
    fn from(spec: VmSpec) -> Self {
        Self {
            spec,
            _module: None,
        }
    }
}

impl Machine {
    /// The machine that `settings` describe.
    ///
    /// # Errors
    /// Environment, if the programs that run in the guest are not beside this one, or the kernel module
    /// is wanted and cannot be built here.
    pub fn for_settings(
        settings: &Settings,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Self, LabError> {
        let kernel: Series = settings.choices.kernel_series.parse()?;
        let mut binaries = vec![program("justitia-lab-guest")?];
        if settings
            .choices
            .policies
            .iter()
            .any(|policy| policy.runs_agent())
        {
            binaries.push(program("justitia")?);
        }
        let mut module = None;
        if settings
            .choices
            .policies
            .iter()
            .any(|policy| policy.has_gate())
        {
            let dir = tempfile::tempdir().map_err(|error| {
                LabError::io("create a directory in", &std::env::temp_dir(), error)
            })?;
            binaries.push(gate_module::build(kernel, dir.path(), progress)?);
            module = Some(dir);
        }
        Ok(Self {
            _module: module,
            spec: VmSpec {
                kernel: kernel.into(),
                memory_bytes: with_disk(
                    settings.choices.memory_bytes,
                    settings.memory_disk().as_ref(),
                ),
                cpus: settings.choices.cpus,
                possible_cpus: None,
                disk_mbps: Some(settings.choices.disk_mb_per_s),
                disk_iops: None,
                data_bytes: data_bytes(settings),
                data: DataDisk::Scratch,
                binaries,
                modules: guest_modules(),
                extra_packages: Vec::new(),
                timeout: time_limit(settings),
                console_log: PathBuf::new(),
                cmdline: Vec::new(),
                // The killed agent's programs go, and its successor's come, beside a load that runs.
                patches_text: settings.kill_agent_at_s.is_some(),
                clock: settings.choices.clock,
            },
        })
    }
}

impl Guest for Machine {
    fn run(
        &mut self,
        job: &Job,
        console: &Path,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Answer, LabError> {
        let spec = VmSpec {
            console_log: console.to_owned(),
            ..self.spec.clone()
        };
        let watch = Watch::start();
        let output = vm::run_guest(&spec, &job_text(job)?, progress)?;
        let host = watch.end();
        let facts = [
            ("acceleration", output.accelerator.name().to_owned()),
            ("qemu", output.qemu_version),
        ];
        Ok(Answer {
            report: output.report,
            failed_boots: output.retries,
            host,
            machine: facts.map(|(name, value)| (name.to_owned(), value)).into(),
            console: console.to_owned(),
        })
    }
}

/// Room for the file sets three times over: files are deleted and created at different times. No disk
/// where the guest makes one.
fn data_bytes(settings: &Settings) -> u64 {
    if settings.memory_disk().is_some() {
        return 0;
    }
    (settings.file_set_bytes() * 3).max(4 << 30)
}

/// Memory of a guest: that of its disk comes on top.
pub(crate) fn with_disk(memory_bytes: u64, disk: Option<&MemoryDisk>) -> u64 {
    // The driver keeps its pages in a radix tree, with a word for each.
    memory_bytes + disk.map_or(0, |disk| disk.bytes + disk.bytes / 64)
}

/// The kernel modules of a guest that measures.
pub(crate) fn guest_modules() -> Vec<String> {
    ["bfq", "null_blk"].map(str::to_owned).to_vec()
}

/// Host seconds that a second of a clock of instructions takes at most.
const HOST_S_PER_S: u64 = 20;

/// The host's time that so many seconds of the guest's take at most.
pub(crate) fn host_time(clock: Clock, guest_s: u64) -> Duration {
    let slower = match clock {
        Clock::Host => 1,
        Clock::Instructions { .. } => HOST_S_PER_S,
    };
    Duration::from_secs(guest_s * slower)
}

/// Booting, filling the disk at half its speed, measuring under emulation, and patience.
fn time_limit(settings: &Settings) -> Duration {
    let fill_s = settings.file_set_bytes() / (u64::from(settings.choices.disk_mb_per_s) * 500_000);
    let guest_s = 300 + fill_s + 2 * u64::from(settings.seconds);
    host_time(settings.choices.clock, guest_s)
}

/// A job as the guest reads it.
pub(crate) fn job_text(job: &Job) -> Result<Vec<u8>, LabError> {
    serde_json::to_vec(job).map_err(|error| not_understood(&error))
}

/// A report as the guest wrote it.
pub(crate) fn understood<T: DeserializeOwned>(report: &[u8]) -> Result<T, LabError> {
    serde_json::from_slice(report).map_err(|error| not_understood(&error))
}

fn not_understood(error: &serde_json::Error) -> LabError {
    LabError::failed(
        format!("the guest's report is not understood: {error}"),
        "build justitia and justitia-lab-guest from the same source",
    )
}

/// A program that was built or installed beside this one.
pub(crate) fn program(name: &str) -> Result<PathBuf, LabError> {
    let missing = |where_: &str| {
        LabError::environment(
            format!("{name} is missing{where_}"),
            "build it: cargo build --release --workspace --bins",
        )
    };
    let own = std::env::current_exe().map_err(|_| missing(""))?;
    let dir = own.parent().ok_or_else(|| missing(""))?;
    [dir.join(name), dir.join("../lib/justitia").join(name)]
        .into_iter()
        .find(|path| path.is_file())
        .ok_or_else(|| missing(&format!(" beside {}", own.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

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

    #[test]
    fn a_missing_program_is_the_environments_failure() {
        let error = program("no-such-program").unwrap_err();
        assert_eq!(error.exit_code(), 69);
        assert!(error.remedy().contains("cargo build"));
    }
}
