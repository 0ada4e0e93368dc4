//! The part of the lab that runs inside the guest: the driver of one experiment.
//!
//! Order of a boot: mounts, job from its disk, LRU, scheduler, data file system, cgroups, containers
//! (created, waiting), file sets, the agent, the measured phase, the agent's end, the report, power off.
//! [`run`] is that order; the modules are its parts.
//!
//! Equal for all policies: everything up to the start of the measured phase. For the fileserver and readmix
//! loads each container writes its own files from within its cgroup, then everything is flushed and the page
//! cache emptied, and only then are limits and the agent enforced: all policies start cold and clean. For
//! reread and sharing the caching is the experiment: limits and the agent are enforced before the files are
//! written, and nothing is dropped.
//!
//! Progress goes to the console. A failure is one line after [`FAILURE_PREFIX`] and a power-off without a
//! report, which the host treats as a failed run.

pub mod agent;
pub mod container;
pub mod databases;
pub mod disks;
pub mod files;
mod gate;
pub mod knobs;
pub mod liar;
pub mod measure;
mod memory_disk;
pub mod oci;
pub mod overhead;
pub mod residency;
pub mod run;
pub mod sample;
pub mod setup;
pub mod surroundings;
pub mod tenant;
pub mod wait_profile;

use std::io::Write;
use std::panic;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::system::{reboot, RebootCommand};

use crate::protocol::Job;
use justitia_machine::qemu::SERIAL_JOB;
use justitia_machine::vm::{FAILURE_PREFIX, PROGRESS_PREFIX};

/// Executes the job on the job disk and switches the guest off. Does not return.
pub fn drive() -> ! {
    // The guest must be switched off in any case, or the host waits for the time limit.
    let outcome = panic::catch_unwind(driver);
    match outcome {
        Ok(Ok(())) => progress("done"),
        Ok(Err(error)) => say(FAILURE_PREFIX, &error_line(&error)),
        Err(_) => say(FAILURE_PREFIX, "the driver panicked; see the message above"),
    }
    power_off()
}

fn driver() -> Result<()> {
    std::env::set_var("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    setup::mount_all()?;
    let job_disk = disks::find(SERIAL_JOB)?;
    match disks::receive(&job_disk.node)? {
        Job::Experiment(job) => disks::send(&job_disk.node, &run::run(&job)?),
        Job::Overhead(job) => disks::send(&job_disk.node, &overhead::run(&job)?),
        Job::Databases(job) => disks::send(&job_disk.node, &databases::run(&job)?),
        Job::PrepareDatabases(job) => disks::send(&job_disk.node, &databases::prepare(&job)?),
    }
}

/// An error as one line; lines of a quoted log are joined.
fn error_line(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    text.lines()
        .map(str::trim)
        .filter(|l| !l.is_empty())
        .collect::<Vec<_>>()
        .join(" | ")
}

/// Waits until a condition holds, and checks it at intervals; false if it does not hold in time.
fn holds_within(
    timeout: Duration,
    interval: Duration,
    mut holds: impl FnMut() -> Result<bool>,
) -> Result<bool> {
    let deadline = Instant::now() + timeout;
    while !holds()? {
        if Instant::now() >= deadline {
            return Ok(false);
        }
        thread::sleep(interval);
    }
    Ok(true)
}

/// Prints a line of progress.
pub fn progress(line: &str) {
    say(PROGRESS_PREFIX, line);
}

fn say(prefix: &str, line: &str) {
    // A lost console must not end the measurement.
    let _ = writeln!(std::io::stdout(), "{prefix}{line}");
}

/// Switches the guest off. Only the job disk matters, and it has been flushed; the data disk is scratch, and
/// writing its dirty pages back would only take time.
fn power_off() -> ! {
    let _ = std::io::stdout().flush();
    let error = reboot(RebootCommand::PowerOff);
    say(FAILURE_PREFIX, &format!("cannot power off: {error:?}"));
    loop {
        thread::park();
    }
}

/// True if this machine is a guest of the lab: the kernel was told to start the lab's init. Prevents the
/// program from switching off the machine of a person who runs it by hand.
pub fn is_guest() -> bool {
    std::fs::read_to_string("/proc/cmdline").is_ok_and(|line| {
        line.split_whitespace()
            .any(|word| word == "init=/sbin/lab-init")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line() {
        let error = anyhow::anyhow!("first\n  second\n\nthird").context("outer");
        assert_eq!(error_line(&error), "outer: first | second | third");
    }
}
