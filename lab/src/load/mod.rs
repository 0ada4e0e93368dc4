//! The load generators: what runs inside a container of the lab.
//!
//! `justitia-lab-guest load SPEC` reads a [`Spec`] (JSON), prepares its files, waits for the common
//! start and works until the driver says stop. It talks to the driver only through one shared page
//! ([`shared::Page`]): commands in, progress and counters out; nothing in the measured phase costs
//! a system call that is not part of the load.
//!
//! Phases, each begun by the driver: *wait* -> `Prepare` (files are written, by a process inside
//! the container's own cgroup, so that inodes and pages belong to it) -> `Go` (all containers at
//! the same instant of `CLOCK_MONOTONIC`) -> `Stop`.
//!
//! An *operation* is what a user would wait for: create + write + close of one file, one append,
//! one whole-file read, one delete, one stat; for the random load one request; for the re-read one
//! request. Latency is wall time. Bytes are counted when the system call returns.

pub mod attack;
pub mod fileserver;
pub mod fileset;
pub mod guard;
pub mod io;
pub mod phases;
pub mod random;
pub mod readmix;
pub mod reread;
pub mod shared;
pub mod sharing;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{ensure, Context, Result};
use serde::{Deserialize, Serialize};

use crate::protocol::Load;
use shared::{Command, Mapping, Page, Status};

/// Waiting for a command: often enough to be prompt, rarely enough to cost nothing while emulated.
const COMMAND_POLL: Duration = Duration::from_millis(20);

/// What a load generator is told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// What to run.
    pub load: Load,
    /// Seed of this container (already different from its siblings').
    pub seed: u64,
    /// Directory for the files, inside the container.
    pub data: PathBuf,
    /// The shared page, inside the container.
    pub page: PathBuf,
}

/// One kind of load.
pub trait Workload {
    /// Writes the files; not measured.
    fn prepare(&mut self) -> Result<()>;
    /// Works until the page says stop, or until there is nothing left to do.
    fn run(&self, page: &Page) -> Result<()>;
    /// Whether returning from [`Workload::run`] before a stop means that the work is complete.
    fn ends_by_itself(&self) -> bool {
        false
    }
}

/// Runs the load described by the file `spec_path` to its end.
pub fn run(spec_path: &Path) -> Result<()> {
    let text = fs::read_to_string(spec_path)
        .with_context(|| format!("cannot read {}", spec_path.display()))?;
    let spec: Spec = serde_json::from_str(&text)
        .with_context(|| format!("{} is not a load specification", spec_path.display()))?;
    let page = Mapping::open(&spec.page)?;
    let result = phases(&spec, &page);
    if result.is_err() {
        page.set_status(Status::Failed);
    }
    result
}

fn phases(spec: &Spec, page: &Page) -> Result<()> {
    let mut workload = build(spec)?;
    page.set_status(Status::Waiting);
    if !wait_for(page, Command::Prepare) {
        return Ok(());
    }
    page.set_status(Status::Preparing);
    workload.prepare()?;
    page.set_status(Status::Prepared);
    if !wait_for(page, Command::Go) {
        return Ok(());
    }
    page.sleep_until_start();
    page.set_status(Status::Running);
    workload.run(page)?;
    if workload.ends_by_itself() && !page.stopped() {
        page.finished_now();
    }
    page.set_status(Status::Finished);
    Ok(())
}

/// Waits until the driver asks for `wanted` or something later; false when it asks to stop.
fn wait_for(page: &Page, wanted: Command) -> bool {
    while page.command() < wanted {
        std::thread::sleep(COMMAND_POLL);
    }
    page.command() != Command::Stop
}

fn build(spec: &Spec) -> Result<Box<dyn Workload>> {
    Ok(match spec.load {
        Load::Fileserver { threads, files, .. } => {
            ensure!(threads >= 1, "a fileserver load needs at least one thread");
            ensure!(
                files >= 2 * threads,
                "{files} files are too few for {threads} threads: give at least two per thread"
            );
            Box::new(fileserver::Fileserver::new(
                &spec.load, spec.seed, &spec.data,
            )?)
        }
        Load::Readmix {
            threads,
            file_bytes,
            block_bytes,
            write_percent,
            zipf_theta,
        } => {
            ensure!(threads >= 1, "a readmix load needs at least one thread");
            ensure!(
                block_bytes > 0,
                "a readmix load needs a block size above zero"
            );
            ensure!(
                file_bytes >= u64::from(block_bytes),
                "a readmix file must hold at least one block of {block_bytes} bytes"
            );
            Box::new(readmix::Readmix {
                path: spec.data.join("file"),
                threads,
                file_bytes,
                block_bytes,
                write_percent,
                zipf_theta,
                seed: spec.seed,
            })
        }
        Load::Reread { file_bytes, direct } => Box::new(reread::Reread {
            path: spec.data.join("file"),
            file_bytes,
            direct,
        }),
        Load::Sharing {
            role,
            shared_bytes,
            own_bytes,
            every_s,
            from_s,
        } => Box::new(sharing::Sharing {
            role,
            shared: sharing::SHARED_FILE.into(),
            shared_bytes,
            own: spec.data.join(sharing::OWN_FILE),
            own_bytes,
            every: Duration::from_secs(every_s.into()),
            from: Duration::from_secs(from_s.into()),
        }),
        Load::Guard(ref role) => Box::new(guard::Guard {
            role: role.clone(),
            path: spec.data.join(sharing::OWN_FILE),
            seed: spec.seed,
        }),
    })
}
