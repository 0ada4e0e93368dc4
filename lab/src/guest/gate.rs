//! The kernel module in the guest: loaded before the policy is enforced and unloaded after it; and the
//! kernel's complaints in between.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{ensure, Result};

use super::setup::{run, TOOLS};
use crate::gate_module::NAME;
use crate::protocol::Policy;

/// Markers in the kernel's log of something wrong.
const COMPLAINTS: [&str; 7] = [
    "BUG:",
    "WARNING:",
    "Oops:",
    "hung task",
    "blocked for more",
    "lockup",
    "rcu_sched self-detected",
];

/// Loads the module, with the hook that this policy needs.
pub(super) fn load(policy: Policy) -> Result<()> {
    let mut insmod = Command::new("insmod");
    insmod.arg(Path::new(TOOLS).join(format!("{NAME}.ko")));
    if policy == Policy::GateInsert {
        insmod.arg("insert_hook=1");
    }
    run(&mut insmod)
}

/// Unloads it. The module is in use while a writer is in the kernel's throttling below it.
pub(super) fn unload() -> Result<()> {
    let begun = Instant::now();
    while let Err(error) = run(Command::new("rmmod").arg(NAME)) {
        if begun.elapsed() > Duration::from_secs(30) {
            return Err(error);
        }
        thread::sleep(Duration::from_millis(100));
    }
    ensure!(
        !Path::new("/dev/justitia").exists(),
        "the module left /dev/justitia behind"
    );
    Ok(())
}

pub(super) fn complaints() -> Result<Vec<String>> {
    let output = Command::new("dmesg").output()?;
    let log = String::from_utf8_lossy(&output.stdout).into_owned();
    let bad = |line: &&str| COMPLAINTS.iter().any(|word| line.contains(word));
    Ok(log.lines().filter(bad).map(str::to_owned).collect())
}
