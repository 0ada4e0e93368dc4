//! For every check, a host on which it cannot tell: the check says so, and why.

use std::collections::HashSet;
use std::time::Duration;

use justitia_cgroup::survey::Unread;
use justitia_discover::{DiscoverConfig, Owners, RuntimeDirs};
use rustix::io::Errno;

use super::{check, Host, MOUNTS};
use crate::{examine, gather, Look, Verdict, CHECKS};

/// A check, and a group's file without which it cannot tell.
const OF_GROUPS: [(&str, &str, &str); 9] = [
    ("limits-exceed-memory", "/app/db", "memory.max"),
    ("protection-exceeds-memory", "/app/db", "memory.low"),
    ("protection-cut-off", "/app", "memory.min"),
    ("recursiveprot-unclaimed", "/app", "memory.current"),
    ("page-cache-starved", "/app/db", "memory.stat"),
    ("outside-unbounded", "/", "memory.stat"),
    ("swap-unlimited", "/app/db", "memory.swap.max"),
    ("weights-distorted", "/app/db", "io.bfq.weight"),
    ("zombie-cgroups", "/", "cgroup.stat"),
];

/// A check, and a file of the host without which it cannot tell.
const OF_HOST: [(&str, &str); 9] = [
    ("memory-not-reserved", "/proc/meminfo"),
    ("recursiveprot-missing", "/proc/self/mountinfo"),
    ("outside-dirtying", "/proc/sys/vm/dirty_bytes"),
    ("swap-none", "/proc/swaps"),
    ("dirty-limit-slow-disk", "/sys/block/sda/queue/rotational"),
    ("weights-not-enforced", "/sys/block/sda/queue/scheduler"),
    ("mglru-protection", "/sys/kernel/mm/lru_gen/enabled"),
    ("psi-off", "/proc/pressure/memory"),
    ("kernel-features", "/sys/kernel/btf/vmlinux"),
];

type Blind = (&'static str, fn(&Host), &'static str);

/// A check, how it is blinded, and what it says then.
const OTHERWISE: [Blind; 4] = [
    (
        "swappiness-extreme",
        |host| host.files.set("/proc/sys/vm/swappiness", "much\n"),
        "/proc/sys/vm/swappiness: holds text that is not understood",
    ),
    (
        "writeback-not-charged",
        |host| host.files.remove("/proc/self/mountinfo"),
        "/proc/self/mountinfo: not there",
    ),
    (
        "cgroup-v1",
        |host| {
            let part = MOUNTS.replace("0:28 / /sys", "0:28 /docker/x /sys");
            host.files.set("/proc/self/mountinfo", &part);
        },
        "only /docker/x of them is mounted here",
    ),
    (
        "controllers-off",
        |host| host.fs.shut("/app/db", Some(Errno::ACCESS)),
        "/app/db: no permission",
    ),
];

/// Asserts that a check says why it cannot tell.
fn cannot_tell(id: &str, blind: impl FnOnce(&Host), why: &str) {
    let host = Host::healthy();
    blind(&host);
    let report = host.report();
    let check = check(&report, id);
    assert_eq!(check.verdict, Verdict::CouldNotTell, "{check:#?}");
    assert!(
        check.could_not_tell.iter().any(|line| line.contains(why)),
        "{why}: {check:#?}"
    );
    assert_eq!(report.verdict, Verdict::CouldNotTell);
}

#[test]
fn a_check_that_cannot_read_what_it_needs_says_so_and_is_never_fine() {
    for (id, path, file) in OF_GROUPS {
        let why = format!("{file} of {path}: permission denied");
        cannot_tell(id, |host| host.deny(path, file), &why);
    }
    for (id, path) in OF_HOST {
        let why = format!("{path}: permission denied");
        cannot_tell(id, |host| host.files.refuse(path, Errno::ACCESS), &why);
    }
    for (id, blind, why) in OTHERWISE {
        cannot_tell(id, blind, why);
    }
}

#[test]
fn every_check_can_be_blinded() {
    for check in &CHECKS {
        // The check that needs rates has its own test below.
        let mut listed = (OF_GROUPS.iter().map(|(id, ..)| id))
            .chain(OF_HOST.iter().map(|(id, ..)| id))
            .chain(OTHERWISE.iter().map(|(id, ..)| id));
        let listed = listed.any(|id| *id == check.id);
        assert!(listed || check.id == "limit-too-small", "{}", check.id);
    }
}

#[test]
fn no_file_of_a_workload_can_be_hidden_unnoticed() {
    let read: Vec<&str> = {
        let host = Host::healthy();
        host.report();
        host.fs.reads("/app/db").into_keys().collect()
    };
    assert!(read.len() >= 14, "{read:?}");
    // For inner groups `cgroup.stat` only shows which one has most of the dying groups.
    for file in read.into_iter().filter(|file| *file != "cgroup.stat") {
        let host = Host::healthy();
        host.deny("/app/db", file);
        let report = host.report();
        assert_eq!(report.verdict, Verdict::CouldNotTell, "{file}");
    }
}

#[test]
fn one_look_gives_no_rates() {
    let report = examine(&Host::healthy().look(0, |_| {}), &[], None);
    for id in ["limit-too-small", "page-cache-starved"] {
        let check = check(&report, id);
        assert_eq!(check.verdict, Verdict::CouldNotTell, "{check:#?}");
        assert!(check.could_not_tell[0].contains("--seconds 0"));
    }
    assert_eq!(report.host.window_s, None);
}

#[test]
fn a_finding_stands_although_something_else_could_not_be_read() {
    let host = Host::healthy();
    host.group("/app", |app| app.low = super::mib(0));
    host.deny("/system.slice", "memory.low");
    let report = host.report();
    let check = check(&report, "protection-cut-off");
    assert_eq!(check.verdict, Verdict::Finding);
    assert_eq!(check.could_not_tell.len(), 1);
}

#[test]
fn a_group_that_cannot_be_opened_blinds_every_check_over_all_groups() {
    let host = Host::healthy();
    host.fs.shut("/app/db", Some(Errno::ACCESS));
    let report = host.report();
    for id in [
        "limits-exceed-memory",
        "zombie-cgroups",
        "weights-distorted",
    ] {
        let check = check(&report, id);
        assert_eq!(check.verdict, Verdict::CouldNotTell, "{check:#?}");
    }
}

#[test]
fn memory_on_cgroup_v1_is_named_as_the_reason() {
    let host = Host::healthy();
    let mounts = format!("{MOUNTS}35 31 0:32 / /cg/memory rw - cgroup cgroup rw,memory\n");
    host.files.set("/proc/self/mountinfo", &mounts);
    host.files.set("/sys/fs/cgroup/cgroup.controllers", "cpu\n");
    let report = host.report();
    let check = check(&report, "limits-exceed-memory");
    assert_eq!(check.verdict, Verdict::CouldNotTell);
    assert_eq!(
        check.could_not_tell,
        ["the memory of cgroups: the memory controller is on cgroup v1 at /cg/memory"]
    );
    let weights = super::check(&report, "weights-not-enforced");
    assert_eq!(
        weights.could_not_tell,
        ["the io of cgroups: the io controller is not available"]
    );
}

#[test]
fn without_any_cgroups_the_host_is_still_looked_at() {
    let host = Host::healthy();
    host.files.set(
        "/proc/self/mountinfo",
        "40 1 8:1 / / rw - ext4 /dev/sda1 rw\n",
    );
    host.files.set("/proc/sys/vm/swappiness", "0\n");
    let owners = Owners::new(&DiscoverConfig::default(), RuntimeDirs::none()).unwrap();
    let facts = gather(Look {
        host: &host.files,
        groups: &|_| Err(Unread::new("cgroups", "no cgroup2 is mounted")),
        owners: &owners,
        managed: Ok(HashSet::new()),
        window: Duration::ZERO,
        wait: &mut |_| {},
    });
    let report = examine(&facts, &[], None);
    assert_eq!(
        check(&report, "swappiness-extreme").verdict,
        Verdict::Finding
    );
    assert_eq!(check(&report, "cgroup-v1").verdict, Verdict::Finding);
    let blind = check(&report, "zombie-cgroups");
    assert_eq!(blind.could_not_tell, ["cgroups: no cgroup2 is mounted"]);
}

#[test]
fn a_disk_of_unknown_number_is_not_taken_for_one_with_io_cost() {
    let host = Host::healthy();
    host.files.set("/sys/block/sda/queue/scheduler", "[none]\n");
    host.files.remove("/sys/block/sda/dev");
    host.files.set("/sys/block/sda/size", "8\n");
    let report = host.report();
    let check = check(&report, "weights-not-enforced");
    assert_eq!(check.verdict, Verdict::CouldNotTell, "{check:#?}");
}
