//! Checks for prerequisites that the host lacks: cgroup v2, its controllers, features of the kernel.

use super::about;
use crate::check::{Check, Outcome, Severity, Subject};
use crate::facts::{Facts, GroupFacts};
use crate::remedy;

pub(crate) const CGROUP_V1: Check = Check {
    id: "cgroup-v1",
    title: "controllers on cgroup v1",
    severity: Severity::Critical,
    needs: "cgroup mounts (/proc/self/mountinfo)",
    consequence:
        "buffered writes are throttled and charged regardless of groups, memory.low does not \
                  work, and there is no pressure per group: Justitia cannot manage this host",
    run: cgroup_v1,
};

pub(crate) const CONTROLLERS_OFF: Check = Check {
    id: "controllers-off",
    title: "workloads without the memory or the io controller",
    severity: Severity::Warning,
    needs: "which files the groups have",
    consequence: "the group's memory or I/O is its parent's: it has no share, no limit and no \
                  protection of its own",
    run: controllers_off,
};

pub(crate) const FEATURES: Check = Check {
    id: "kernel-features",
    title: "features of the kernel that Justitia would use",
    severity: Severity::Note,
    needs: "the files cgroup.controllers, memory.reclaim, memory.stat, /sys/kernel/btf, \
            queue/scheduler, /proc/self/mountinfo",
    consequence: "Justitia works without them, but less exactly; each finding says what is lost",
    run: features,
};

const UNIFIED: &str =
    "add systemd.unified_cgroup_hierarchy=1 cgroup_no_v1=all to the kernel's command line and reboot";

fn cgroup_v1(facts: &Facts, out: &mut Outcome) -> Option<()> {
    out.known(facts.host.mounts.clone())?;
    for controller in ["memory", "blkio"] {
        if let Some(at) = facts.v1_mount(controller) {
            let evidence = format!("the {controller} controller is on cgroup v1 at {at}");
            out.find(Subject::Host, evidence).remedy(UNIFIED);
        }
    }
    match out.known(facts.host.cgroup2()) {
        Some(None) if out.findings.is_empty() => {
            out.find(Subject::Host, "no cgroup file system is mounted")
                .remedy("mount -t cgroup2 -o memory_recursiveprot none /sys/fs/cgroup");
        }
        Some(Some(mount)) if mount.root != "/" => {
            let why = format!("only {} of them is mounted here", mount.root);
            out.unknown("the host's cgroups", why);
        }
        _ => {}
    }
    Some(())
}

fn controllers_off(facts: &Facts, out: &mut Outcome) -> Option<()> {
    let memory = out.memory_groups(facts).is_some();
    let io = out.io_groups(facts).is_some();
    for group in out.tree(facts)? {
        let Some(kind) = group.workload else { continue };
        if out.known(group.threaded.clone()) != Some(false) {
            continue;
        }
        let current = out.known(group.current.clone());
        let written = out.known(group.written[0].clone());
        let mut missing = Vec::new();
        if memory && current == Some(None) {
            missing.push("memory");
        }
        if io && written == Some(None) {
            missing.push("io");
        }
        if missing.is_empty() {
            continue;
        }
        let evidence = format!("this {kind} has no {} controller", missing.join(" and no "));
        out.find(about(group), evidence)
            .remedy(enable(facts, group, &missing));
    }
    Some(())
}

/// The command that enables controllers for a group, in all its ancestors from the root on.
fn enable(facts: &Facts, group: &GroupFacts, controllers: &[&str]) -> String {
    if let Some(unit) = remedy::unit(&group.path) {
        let accounting: Vec<&str> = controllers
            .iter()
            .map(|controller| match *controller {
                "memory" => "MemoryAccounting=yes",
                _ => "IOAccounting=yes",
            })
            .collect();
        let unit = remedy::quoted(unit);
        return format!("systemctl set-property {unit} {}", accounting.join(" "));
    }
    let above = facts.ancestors(group).map(|above| above.path.as_str());
    let mut above: Vec<&str> = above.chain([""]).collect();
    above.reverse();
    let file = |above: &&str| {
        let file = format!("{}{above}/cgroup.subtree_control", facts.mount_point);
        remedy::quoted(&file)
    };
    let files: Vec<String> = above.iter().map(file).collect();
    format!(
        "echo '+{}' | tee {}",
        controllers.join(" +"),
        files.join(" ")
    )
}

fn features(facts: &Facts, out: &mut Outcome) -> Option<()> {
    let mut lacks = |what: &str, cost: &str, remedy: &str| {
        out.find(Subject::Host, format!("{what}: {cost}"))
            .remedy(remedy);
    };
    if facts.host.btf == Ok(false) {
        lacks(
            "no BTF",
            "traffic is counted by /proc instead of BPF, without hits, misses and evictions",
            "boot a kernel built with CONFIG_DEBUG_INFO_BTF",
        );
    }
    if facts.reclaim == Some(false) {
        lacks(
            "no memory.reclaim",
            "the agent cannot reclaim from a single group; corrections wait for pressure",
            "boot Linux 5.19 or later",
        );
    }
    let refaults = |group: &GroupFacts| match &group.stat[0] {
        Ok(Some(stat)) => Some(stat.workingset_refault_file.is_some()),
        _ => None,
    };
    if facts.groups.iter().find_map(refaults) == Some(false) {
        lacks(
            "no workingset_refault_file in memory.stat",
            "the agent does not see reads that would hit with more memory",
            "boot Linux 5.9 or later",
        );
    }
    if let Ok(Some(mount)) = facts.host.cgroup2() {
        if mount.read_only {
            lacks(
                "cgroup2 is mounted read-only",
                "Justitia can observe, but not manage",
                "run it on the host, or in a container with the host's cgroup2 writable",
            );
        }
    }
    for (controller, v1_name) in [("memory", "memory"), ("io", "blkio")] {
        let have = facts
            .host
            .controllers
            .as_ref()
            .ok()
            .and_then(Option::as_ref);
        let missing = have.is_some_and(|have| !have.iter().any(|have| have == controller));
        // A controller on cgroup v1 is another check's finding.
        if missing && facts.v1_mount(v1_name).is_none() {
            lacks(
                &format!("no {controller} controller"),
                "Justitia cannot manage this host",
                "boot without cgroup_disable=, with cgroup_enable=memory where the kernel needs it",
            );
        }
    }
    no_scheduler(facts, out);
    let _ = out.known(facts.host.btf.clone());
    let _ = out.known(facts.host.mounts.clone());
    out.memory_groups(facts)?;
    if facts.reclaim.is_none() {
        let why = "there is no group to look in";
        out.unknown("the file memory.reclaim", why);
    }
    Some(())
}

/// No disk offers BFQ and the kernel has no io.cost, so nothing enforces weights.
fn no_scheduler(facts: &Facts, out: &mut Outcome) {
    let cost = out.known(facts.io_cost.clone());
    let (Some(cost), Some(disks)) = (cost, out.known(facts.disks())) else {
        return;
    };
    if disks.is_empty() || cost.is_some() {
        return;
    }
    for disk in disks {
        match out.known(disk.scheduler.clone()) {
            Some(scheduler) if scheduler.offered.iter().any(|name| name == "bfq") => return,
            Some(_) => {}
            None => return,
        }
    }
    out.find(
        Subject::Host,
        "no scheduler that knows weights: writes, reads from the disk and direct I/O do not \
             follow them",
    )
    .remedy("modprobe bfq")
    .remedy("a kernel built with CONFIG_BLK_CGROUP_IOCOST or CONFIG_IOSCHED_BFQ");
}
