//! The guest of an experiment: determines the size of its virtual machine and boots it.
//!
//! [`Guest`] is what the runner needs to execute jobs. [`Machine`] implements it with QEMU; tests use a
//! synthetic one. Sizes in bytes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;
use tempfile::TempDir;

use crate::protocol::{modules_of, Facts, Job, MemoryDisk, Volume};
use justitia_machine::error::{LabError, Result, Say};
use justitia_machine::host::{HostSeen, Watch};
use justitia_machine::qemu::Clock;
use justitia_machine::vm::{self, VmSpec};

pub trait Guest {
    /// Executes one job; `console` is the path of the guest's console log.
    fn run(&mut self, job: &Job, console: &Path, progress: &mut Say) -> Result<Answer>;
}

#[derive(Debug)]
pub struct Answer {
    /// The guest's report, in JSON.
    pub report: Vec<u8>,
    pub failed_boots: u32,
    pub host: HostSeen,
    pub machine: Facts,
    pub console: PathBuf,
}

impl Answer {
    /// Parses the report.
    pub fn report<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_slice(&self.report).map_err(|error| not_understood(&error))
    }
}

/// A QEMU guest with a stock kernel.
#[derive(Debug)]
pub struct Machine {
    spec: VmSpec,
    /// Holds the files of the machine.
    _dir: Option<TempDir>,
}

impl From<VmSpec> for Machine {
    fn from(spec: VmSpec) -> Self {
        Self::with_dir(spec, None)
    }
}

impl Machine {
    /// A machine that needs a directory while it is used.
    pub fn with_dir(spec: VmSpec, dir: Option<TempDir>) -> Self {
        Self { spec, _dir: dir }
    }
}

impl Guest for Machine {
    fn run(&mut self, job: &Job, console: &Path, progress: &mut Say) -> Result<Answer> {
        let spec = VmSpec {
            console_log: console.to_owned(),
            ..self.spec.clone()
        };
        let job = serde_json::to_vec(job).map_err(|error| not_understood(&error))?;
        let watch = Watch::start();
        let output = vm::run_guest(&spec, &job, progress)?;
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

/// Memory of a guest, with that of its disk on top.
pub(crate) fn with_disk(memory_bytes: u64, disk: Option<&MemoryDisk>) -> u64 {
    // The driver keeps its pages in a radix tree, with a word for each page.
    let all = disk.map_or(0, |disk| {
        let (count, bytes) = disk.disks();
        count * bytes
    });
    memory_bytes + all + all / 64
}

/// The kernel modules of a measuring guest with this volume.
pub(crate) fn guest_modules(volume: Option<Volume>) -> Vec<String> {
    let own = ["bfq", "kyber-iosched", "mq-deadline", "null_blk"];
    let of_volume = volume.map_or(&[][..], modules_of);
    own.iter().chain(of_volume).map(|&m| m.to_owned()).collect()
}

/// Upper bound of host seconds per second of a clock of instructions.
const HOST_S_PER_S: u64 = 20;

/// Upper bound of the host's time for this many seconds of the guest's time.
pub(crate) fn host_time(clock: Clock, guest_s: u64) -> Duration {
    let slower = match clock {
        Clock::Host => 1,
        Clock::Instructions { .. } => HOST_S_PER_S,
    };
    Duration::from_secs(guest_s * slower)
}

fn not_understood(error: &serde_json::Error) -> LabError {
    LabError::failed(
        format!("the guest's report is not understood: {error}"),
        "build justitia and justitia-lab-guest from the same source",
    )
}

/// A program built or installed beside this one.
pub(crate) fn program(name: &str) -> Result<PathBuf> {
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

    #[test]
    fn a_missing_program_is_the_environments_failure() {
        let error = program("no-such-program").unwrap_err();
        assert_eq!(error.exit_code(), 69);
        assert!(error.remedy().contains("cargo build"));
    }
}
