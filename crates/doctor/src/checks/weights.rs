//! Checks for weights without effect: a block layer that does not enforce them, a tool that converts them,
//! and writes that are not charged to their writers.
//!
//! `io.weight` needs io.cost, `io.bfq.weight` needs BFQ; other schedulers have no weights. runc converts
//! `--blkio-weight` W into `io.weight` 1 + (W - 10) * 9999 / 990: 400 becomes 3940, while a container without
//! a weight stays at 100. systemd maps `IOWeight=` W > 100 into BFQ's range as 100 + (W - 100) / 11.

use justitia_cgroup::File;
use justitia_policy::knob::{bfq_weight_of_systemd, io_weight_of_runtime};
use justitia_policy::snapshot::WeightSource;
use justitia_policy::units::Weight;

use super::about;
use crate::check::{Check, Outcome, Severity, Subject};
use crate::facts::{is_within, Facts, GroupFacts, BFQ};
use crate::remedy;

pub(crate) const NOT_ENFORCED: Check = Check {
    id: "weights-not-enforced",
    title: "I/O weights on a disk whose scheduler ignores them",
    severity: Severity::Warning,
    needs: "all groups (io.weight, io.bfq.weight), io.cost.qos, queue/scheduler",
    consequence:
        "the weights have no effect: all groups get the same share of this disk, or the group \
                  with most requests gets most",
    run: not_enforced,
};

pub(crate) const DISTORTED: Check = Check {
    id: "weights-distorted",
    title: "a weight in the kernel's file that differs from the requested one",
    severity: Severity::Warning,
    needs: "all groups (io.weight, io.bfq.weight), the container runtimes' records",
    consequence:
        "the ratio between groups differs from the configured one: too steep against groups \
                  without a weight, or nearly flat",
    run: distorted,
};

pub(crate) const WRITEBACK_NOT_CHARGED: Check = Check {
    id: "writeback-not-charged",
    title: "a file system or volume whose writes are not charged to any group",
    severity: Severity::Note,
    needs: "mounts (/proc/self/mountinfo), /sys/block/*/dm/uuid, /sys/block/*/md/level",
    consequence: "buffered writes go to the disk as the root group's: weights, limits and \
                  memory.high do not order them by group",
    run: writeback_not_charged,
};

/// A weight other than the default that its owner set.
fn set_weight(group: &GroupFacts, out: &mut Outcome) -> Option<u32> {
    let weights = group.weights().map(|known| out.known(known).flatten());
    weights.into_iter().flatten().next()
}

fn not_enforced(facts: &Facts, out: &mut Outcome) -> Option<()> {
    let groups = out.io_groups(facts)?;
    let weighted: Vec<(&GroupFacts, u32)> = groups
        .iter()
        .filter_map(|group| Some((group, set_weight(group, out)?)))
        .collect();
    let (example, weight) = weighted.first()?;
    let cost = out.known(facts.io_cost.clone());
    let disks = out.known(facts.disks());
    let (cost, disks) = (cost?, disks?);
    if disks.is_empty() {
        out.unknown("schedulers", "the host shows no disk");
    }
    for disk in disks {
        let Some(scheduler) = out.known(disk.scheduler.clone()) else {
            continue;
        };
        if scheduler.active == BFQ {
            continue;
        }
        let Some(device) = out.known(disk.device.clone()) else {
            continue;
        };
        if cost
            .as_ref()
            .is_some_and(|devices| devices.contains(&device))
        {
            continue;
        }
        let name = &disk.name;
        let evidence = format!(
            "its scheduler is {} and io.cost is off, with a weight other than 100 on {} ({} has \
             {weight})",
            scheduler.active,
            super::groups(weighted.len()),
            example.path,
        );
        let offered = scheduler.offered.iter().any(|name| name == BFQ);
        let load = if offered { "" } else { "modprobe bfq && " };
        let select = |disk: &String| format!("echo bfq > /sys/block/{disk}/queue/scheduler");
        if !disk.paths.is_empty() {
            let select: Vec<String> = disk.paths.iter().map(select).collect();
            out.find(
                Subject::Disk(name.clone()),
                format!("{evidence}; NVMe multipath has no io.cost"),
            )
            .number("weighted_groups", weighted.len() as f64)
            .remedy(format!(
                "until the next boot: {load}{}",
                select.join(" && ")
            ))
            .remedy("boot with nvme_core.multipath=N: io.cost then serves it like other disks");
            continue;
        }
        // Permanent: udev selects the scheduler whenever the disk appears. A file for each disk: a second remedy
        // keeps the first one's rule.
        let file = remedy::quoted(&format!("/etc/udev/rules.d/60-bfq-{name}.rules"));
        let rule =
            format!("ACTION==\"add|change\", KERNEL==\"{name}\", ATTR{{queue/scheduler}}=\"bfq\"");
        let finding = out
            .find(Subject::Disk(name.clone()), evidence)
            .number("weighted_groups", weighted.len() as f64);
        if cost.is_some() {
            finding.remedy(
                "justitia run enables io.cost on it while groups contend, unless dm-crypt or RAID 4 to 6 is on it or \
                 [disk] iocost = false",
            );
        }
        finding.remedy(format!("{load}{} && echo '{rule}' > {file}", select(name)));
    }
    Some(())
}

fn distorted(facts: &Facts, out: &mut Outcome) -> Option<()> {
    let groups = out.io_groups(facts)?;
    for group in groups.iter().skip(1) {
        if group.weighed == Ok(true) {
            continue;
        }
        let io = out.known(group.io_weight.clone()).flatten();
        let bfq = out.known(group.bfq_weight.clone()).flatten();
        let asked = out.known(group.asked.clone()).flatten();
        let asked = asked.filter(|(_, source)| *source == WeightSource::OciBlockIo);
        let asked = asked.map(|(weight, _)| weight.get());
        let (file, holds, asked, by) = match (asked, bfq, io) {
            (Some(asked), Some(bfq), _) => (File::IoBfqWeight, bfq, asked, "blkio-weight"),
            (Some(asked), None, Some(io)) => (File::IoWeight, io, asked, "blkio-weight"),
            (None, Some(bfq), Some(io)) if io != Weight::DEFAULT.get() => {
                (File::IoBfqWeight, bfq, io, "IOWeight")
            }
            _ => continue,
        };
        if holds == asked || out.known(group.managed.clone()).is_none() {
            continue;
        }
        let value = match file {
            // BFQ's largest weight is 1000.
            File::IoBfqWeight => asked.min(1000).to_string(),
            _ => format!("'default {asked}'"),
        };
        out.find(about(group), distortion(file, holds, asked, by))
            .number("asked", f64::from(asked))
            .number("holds", f64::from(holds))
            .remedy(remedy::write(facts, group, file, &value))
            .remedy("justitia run: it uses the requested weight");
    }
    Some(())
}

fn distortion(file: File, holds: u32, asked: u32, by: &str) -> String {
    let who = if holds == io_weight_of_runtime(asked) {
        ", runc's conversion"
    } else if holds == bfq_weight_of_systemd(asked) {
        ", systemd's conversion"
    } else {
        ""
    };
    let default = f64::from(Weight::DEFAULT.get());
    format!(
        "{by} asks for {asked}, {} holds {holds}{who}: {:.2} times a group without a weight \
         instead of {:.2} times",
        file.name(),
        f64::from(holds) / default,
        f64::from(asked) / default
    )
}

/// File systems with per-cgroup writeback. `ext3` is served by ext4's code.
const CHARGED: [&str; 6] = ["ext2", "ext3", "ext4", "btrfs", "f2fs", "xfs"];
/// File systems with data on disks or servers that are known to lack per-cgroup writeback.
const UNCHARGED: [&str; 24] = [
    "zfs", "bcachefs", "nfs", "nfs4", "cifs", "smb3", "ceph", "9p", "virtiofs", "vfat", "exfat",
    "msdos", "ntfs", "ntfs3", "hfsplus", "jfs", "reiserfs", "ocfs2", "gfs2", "lustre", "nilfs2",
    "udf", "minix", "fuseblk",
];
/// FUSE file systems that hold no data of workloads.
const DESKTOP: [&str; 3] = ["fuse.lxcfs", "fuse.portal", "fuse.gvfsd-fuse"];

fn writeback_not_charged(facts: &Facts, out: &mut Outcome) -> Option<()> {
    let mounts = out.known(facts.host.mounts.clone())?;
    let mut seen = Vec::new();
    for mount in &mounts {
        let boot = ["/boot", "/efi"]
            .iter()
            .any(|at| is_within(&mount.mount_point, at));
        let kind = mount.kind.as_str();
        if mount.read_only || boot || DESKTOP.contains(&kind) || seen.contains(&&mount.source) {
            continue;
        }
        let journaled = mount.has("data=journal");
        let why = if CHARGED.contains(&kind) {
            if !(journaled && kind.starts_with("ext")) {
                continue;
            }
            format!("{kind} with data=journal has no cgroup writeback")
        } else if UNCHARGED.contains(&kind) || kind.starts_with("fuse.") {
            format!("{kind} has no cgroup writeback")
        } else {
            continue;
        };
        seen.push(&mount.source);
        let remedy = if journaled {
            "mount it with data=ordered".to_owned()
        } else {
            "keep data that groups write in bulk on ext4, xfs or btrfs".to_owned()
        };
        let evidence = format!("{why} ({})", mount.source);
        out.find(Subject::Mount(mount.mount_point.clone()), evidence)
            .remedy(remedy);
    }
    for volume in out.known(facts.host.volumes.clone())? {
        let evidence = format!(
            "a kernel thread of {} writes to its disks for all groups",
            volume.driver
        );
        let remedy = if volume.driver == "dm-crypt" {
            "let it write in the writer's thread (cryptsetup refresh --perf-no_write_workqueue NAME) and set [disk] \
             iocost = \"all\", or select BFQ"
        } else {
            "keep data that groups write in bulk on a volume without it"
        };
        out.find(Subject::Disk(volume.name), evidence)
            .remedy(remedy);
    }
    Some(())
}
