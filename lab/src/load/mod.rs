//! The load generators that run inside the lab's containers.
//!
//! `justitia-lab-guest load SPEC` reads a [`Spec`] (JSON), prepares its files, waits for the common start and
//! works until the driver says stop. It communicates with the driver only through one shared page
//! ([`shared::Page`]): commands in, progress and counters out. The measured phase has no system call that is
//! not part of the load.
//!
//! Phases, each started by the driver: *wait* -> `Prepare` (a process inside the container's own cgroup
//! writes the files, so that inodes and pages belong to it) -> `Go` (all containers at the same instant of
//! `CLOCK_MONOTONIC`) -> `Stop`.
//!
//! An *operation* is an action that a user would wait for: create + write + close of one file, one append,
//! one whole-file read, one delete, one stat; for the random load one request; for the re-read one request.
//! Latency is wall time. Bytes are counted when the system call returns.

pub mod attack;
pub mod clock;
pub mod fileserver;
pub mod fileset;
pub mod guard;
pub mod io;
pub mod phases;
pub mod random;
pub mod readmix;
pub mod reread;
pub mod responses;
pub mod shared;
pub mod sharing;
pub mod worth;

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{bail, Context, Result};
use serde::{Deserialize, Serialize};

use shared::{Command, Mapping, Page, Status};

/// Interval of polling for a command: short enough to be prompt, long enough to cost nothing under emulation.
const COMMAND_POLL: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    pub load: Load,
    pub place: Place,
    /// The shared page, inside the container.
    pub page: PathBuf,
}

/// A container's own parameters. Paths are those inside the container.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// Already different for each container.
    pub seed: u64,
    pub data: PathBuf,
    /// Directory that containers share, for loads that share files.
    pub shared: PathBuf,
}

impl Place {
    /// Its only file, for loads that have one.
    pub fn file(&self) -> PathBuf {
        self.data.join("file")
    }
}

/// One kind of load: its parameters and its work.
pub trait Workload {
    /// Writes the files; not measured.
    fn prepare(&self, place: &Place) -> Result<()>;
    /// Works until the page says stop, or until the work is done.
    fn run(&self, place: &Place, page: &Page) -> Result<()>;
    /// True if returning from [`Workload::run`] before a stop means that the work is complete.
    fn ends_by_itself(&self) -> bool {
        false
    }
    /// True if the page cache left by the preparation is the experiment: the policy is then enforced before,
    /// and nothing is dropped.
    fn caching_counts(&self) -> bool {
        false
    }
    /// True if its containers share a directory.
    fn shares_files(&self) -> bool {
        false
    }
}

/// An enum of the types that implement a trait, by their names in JSON.
macro_rules! kinds {
    ($(#[$about:meta])* $all:ident, each a $behavior:ident: $($name:ident: $kind:ty,)*) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $all {
            $($name($kind),)*
        }

        impl std::ops::Deref for $all {
            type Target = dyn $behavior;

            fn deref(&self) -> &Self::Target {
                match self {
                    $(Self::$name(kind) => kind,)*
                }
            }
        }
    };
}
pub(crate) use kinds;

kinds! {
    /// Loads by their names in a job.
    Load, each a Workload:
    Fileserver: fileserver::Fileserver,
    Readmix: readmix::Readmix,
    Reread: reread::Reread,
    Sharing: sharing::Sharing,
    Guard: guard::GuardRole,
    Worth: worth::Worth,
    Responses: responses::Stay,
}

/// Runs the load that the file `spec_path` describes, to its end.
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
    let workload = &*spec.load;
    page.set_status(Status::Waiting);
    if !wait_for(page, Command::Prepare) {
        return Ok(());
    }
    page.set_status(Status::Preparing);
    workload.prepare(&spec.place)?;
    page.set_status(Status::Prepared);
    if !wait_for(page, Command::Go) {
        return Ok(());
    }
    page.sleep_until_start();
    page.set_status(Status::Running);
    workload.run(&spec.place, page)?;
    if workload.ends_by_itself() && !page.stopped() {
        page.finished_now();
    }
    page.set_status(Status::Finished);
    Ok(())
}

/// Waits until the driver requests `wanted` or a later command; false when it requests a stop.
fn wait_for(page: &Page, wanted: Command) -> bool {
    while page.command() < wanted {
        thread::sleep(COMMAND_POLL);
    }
    page.command() != Command::Stop
}

/// Joins threads; returns their first failure.
fn join(workers: Vec<thread::ScopedJoinHandle<'_, Result<()>>>) -> Result<()> {
    let mut result = Ok(());
    for worker in workers {
        result = result.and(worker.join().unwrap_or_else(|_| bail!("a worker panicked")));
    }
    result
}

/// Prepares a load below a directory, runs it for some milliseconds and stops it; returns its page.
#[cfg(test)]
fn run_for(load: &(dyn Workload + Sync), dir: &Path, milliseconds: u64) -> Mapping {
    let page = Mapping::create(&dir.join("page")).unwrap();
    let place = in_dir(dir, 1);
    load.prepare(&place).unwrap();
    page.go(clock::monotonic_ns());
    thread::scope(|scope| {
        let run = scope.spawn(|| load.run(&place, &page));
        thread::sleep(Duration::from_millis(milliseconds));
        page.set_command(Command::Stop);
        run.join().unwrap().unwrap();
    });
    page
}

#[cfg(test)]
fn in_dir(dir: &Path, seed: u64) -> Place {
    Place {
        seed,
        data: dir.join("data"),
        shared: dir.join("shared"),
    }
}
