//! Reads every setting of every cgroup, to prove that none stays changed.
//!
//! A *knob* is a cgroup file that its owner can read and write and whose value changes only by a write.
//! Excluded: member lists, triggers (`cgroup.kill`, `memory.reclaim`), pressure files (writing registers a
//! trigger) and `memory.peak` (a counter that can be reset).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use justitia_policy::cost::{CostModel, CostQos};

use super::setup::CGROUP;
use crate::load::attack::FLEETING;
use crate::protocol::Knobs;

/// Readable and writable, but not settings.
const NOT_SETTINGS: &str =
    "cgroup.procs cgroup.threads cgroup.kill memory.reclaim memory.peak memory.swap.peak";

/// Reads every knob of the guest: those of its cgroups, and BFQ's `low_latency` of each disk.
pub fn of_guest() -> Knobs {
    let mut knobs = snapshot(Path::new(CGROUP));
    for disk in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let knob = disk.path().join("queue/iosched/low_latency");
        if let Ok(value) = fs::read_to_string(&knob) {
            knobs.insert(knob.display().to_string(), value.trim_end().to_owned());
        }
    }
    knobs
}

/// Reads every knob below `root`: path relative to it -> value. Skips groups that vanish meanwhile, those
/// that a hostile tenant creates and removes, and those that no path can name.
pub fn snapshot(root: &Path) -> Knobs {
    let mut knobs = Knobs::new();
    collect(root, root, &mut knobs);
    knobs
}

fn collect(root: &Path, dir: &Path, knobs: &mut Knobs) {
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        let Ok(metadata) = entry.metadata() else {
            continue;
        };
        if metadata.is_dir() {
            if entry.file_name() != FLEETING {
                collect(root, &path, knobs);
            }
        } else if is_knob(
            &entry.file_name().to_string_lossy(),
            metadata.permissions().mode(),
        ) {
            if let (Ok(value), Ok(name)) = (fs::read_to_string(&path), path.strip_prefix(root)) {
                let name = name.to_string_lossy().into_owned();
                let value = without_defaults(&name, value.trim_end());
                knobs.insert(name, value);
            }
        }
    }
}

/// `io.cost.qos` and `io.cost.model` without the disks of which every setting is the kernel's default. The kernel
/// lists a disk from the first write on, and has no way to remove the line (`block/blk-iocost.c`).
fn without_defaults(knob: &str, value: &str) -> String {
    let is_default = |settings: &str| match knob {
        "io.cost.qos" => CostQos::parse(settings) == Some(CostQos::default()),
        "io.cost.model" => CostModel::parse(settings) == Some(CostModel::default()),
        _ => false,
    };
    let lines = value.lines().filter(|line| {
        let settings = line.split_once(' ').map(|(_, settings)| settings);
        !settings.is_some_and(is_default)
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn is_knob(name: &str, mode: u32) -> bool {
    mode & 0o600 == 0o600
        && !name.ends_with(".pressure")
        && !NOT_SETTINGS.split(' ').any(|other| other == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_told_from_triggers() {
        assert!(is_knob("memory.low", 0o644));
        assert!(is_knob("io.bfq.weight", 0o644));
        assert!(!is_knob("memory.reclaim", 0o200));
        assert!(!is_knob("memory.stat", 0o444));
        assert!(!is_knob("cgroup.procs", 0o644));
        assert!(!is_knob("io.pressure", 0o644));
    }

    #[test]
    fn a_disk_that_io_cost_leaves_to_the_kernel_is_as_one_it_never_served() {
        let off = "254:0 enable=0 ctrl=auto rpct=0.00 rlat=25000 wpct=0.00 wlat=25000 min=1.00 max=10000.00";
        let guessed = "254:0 ctrl=auto model=linear rbps=488636629 rseqiops=8932 rrandiops=8518";
        assert_eq!(without_defaults("io.cost.qos", off), "");
        assert_eq!(without_defaults("io.cost.model", guessed), "");
        let on = off.replace("enable=0", "enable=1");
        let two = format!("{on}\n{}", off.replace("254:0", "254:16"));
        assert_eq!(without_defaults("io.cost.qos", &two), on);
        let set = guessed.replace("auto", "user");
        assert_eq!(without_defaults("io.cost.model", &set), set);
        assert_eq!(
            without_defaults("io.max", "254:0 rbps=max"),
            "254:0 rbps=max"
        );
    }

    #[test]
    fn every_level_is_read() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("app/c1")).unwrap();
        fs::write(dir.path().join("app/c1/memory.low"), "0\n").unwrap();
        fs::write(dir.path().join("app/memory.high"), "max\n").unwrap();
        let before = snapshot(dir.path());
        assert_eq!(before["app/c1/memory.low"], "0");
        assert_eq!(before.len(), 2);
        fs::write(dir.path().join("app/c1/memory.low"), "4096\n").unwrap();
        let after = snapshot(dir.path());
        assert_eq!(after["app/c1/memory.low"], "4096");
        assert_eq!(after["app/memory.high"], "max");
    }
}
