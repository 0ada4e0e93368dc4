//! Pitfalls of the host, not of its groups: a part of the table in `pitfalls.rs`.

use justitia_cgroup::fake::Fault;
use justitia_policy::units::Bytes;

use super::pitfalls::{disk, group, nothing, Pitfall};
use super::{GIB, MOUNTS};
use crate::Subject;

pub(super) fn host_wide() -> Vec<Pitfall> {
    vec![
        Pitfall {
            check: "swap-none",
            build: |host| {
                host.files
                    .set("/proc/swaps", "Filename Type Size Used Priority\n");
                host.meminfo(GIB, 12 * GIB);
            },
            meanwhile: nothing,
            about: Subject::Host,
            evidence: &["12.0 GiB", "75 %"],
            remedy: "zramctl --find --size 4096M",
        },
        Pitfall {
            check: "swap-unlimited",
            build: |host| host.group("/app/db", |db| db.swap = Bytes(GIB)),
            meanwhile: nothing,
            about: group("/app/db"),
            evidence: &[
                "limited to 4.0 GiB",
                "uses 1.0 GiB of swap besides, 25 % of that limit",
            ],
            remedy: "echo 0 > /sys/fs/cgroup/app/db/memory.swap.max",
        },
        Pitfall {
            check: "swappiness-extreme",
            build: |host| host.files.set("/proc/sys/vm/swappiness", "0\n"),
            meanwhile: nothing,
            about: Subject::Host,
            evidence: &["vm.swappiness is 0", "8.0 GiB"],
            remedy: "sysctl vm.swappiness=",
        },
        Pitfall {
            check: "swappiness-extreme",
            build: |host| host.files.set("/proc/sys/vm/swappiness", "180\n"),
            meanwhile: nothing,
            about: Subject::Host,
            evidence: &["vm.swappiness is 180", "/dev/sda2 is on a disk"],
            remedy: "sysctl vm.swappiness=",
        },
        Pitfall {
            check: "dirty-limit-slow-disk",
            build: |host| {
                host.files.set("/proc/sys/vm/dirty_bytes", "0\n");
                host.files.set("/proc/sys/vm/dirty_ratio", "20\n");
            },
            meanwhile: nothing,
            about: disk(),
            evidence: &["2.8 GiB", "100 MB/s", "30 s"],
            remedy: "sysctl vm.dirty_bytes=500000000 vm.dirty_background_bytes=250000000",
        },
        Pitfall {
            check: "dirty-limit-slow-disk",
            build: nothing,
            meanwhile: |host| {
                // 20,000 sectors written in a second in which the disk was never idle.
                let text = "8 0 sda 1 2 3 4 5 6 20007 8 9 1010 11\n";
                host.files.set("/proc/diskstats", text);
            },
            about: disk(),
            evidence: &["256.0 MiB", "10 MB/s (as measured", "26 s"],
            remedy: "sysctl vm.dirty_bytes=",
        },
    ]
}

pub(super) fn lacking() -> Vec<Pitfall> {
    vec![
        Pitfall {
            check: "psi-off",
            build: |host| {
                let off = rustix::io::Errno::OPNOTSUPP;
                host.files.refuse("/proc/pressure/memory", off);
            },
            meanwhile: nothing,
            about: Subject::Host,
            evidence: &["psi=1"],
            remedy: "psi=1",
        },
        Pitfall {
            check: "psi-off",
            build: |host| host.fs.inject("/app/db", "memory.pressure", Fault::Absent),
            meanwhile: nothing,
            about: group("/app/db"),
            evidence: &["not counted"],
            remedy: "echo 1 > /sys/fs/cgroup/app/db/cgroup.pressure",
        },
        Pitfall {
            check: "cgroup-v1",
            build: |host| {
                let v1 = "35 31 0:32 / /cg/memory rw - cgroup cgroup rw,memory\n";
                let mounts = format!("{MOUNTS}{v1}");
                host.files.set("/proc/self/mountinfo", &mounts);
            },
            meanwhile: nothing,
            about: Subject::Host,
            evidence: &["memory controller", "/cg/memory"],
            remedy: "systemd.unified_cgroup_hierarchy=1",
        },
        Pitfall {
            check: "kernel-features",
            build: |host| host.files.remove("/sys/kernel/btf/vmlinux"),
            meanwhile: nothing,
            about: Subject::Host,
            evidence: &["no BTF", "/proc instead of BPF"],
            remedy: "CONFIG_DEBUG_INFO_BTF",
        },
        Pitfall {
            check: "kernel-features",
            build: |host| {
                host.files
                    .set("/sys/block/sda/queue/scheduler", "[none] kyber\n");
            },
            meanwhile: nothing,
            about: Subject::Host,
            evidence: &["no scheduler that knows weights"],
            remedy: "CONFIG_BLK_CGROUP_IOCOST",
        },
        Pitfall {
            check: "kernel-features",
            build: |host| {
                for path in ["/app", "/app/db", "/system.slice"] {
                    host.group(path, |group| group.reclaim = false);
                }
            },
            meanwhile: nothing,
            about: Subject::Host,
            evidence: &["no memory.reclaim"],
            remedy: "5.19",
        },
    ]
}

pub(super) fn weights() -> Vec<Pitfall> {
    vec![
        Pitfall {
            check: "weights-not-enforced",
            build: |host| {
                let path = "/sys/block/sda/queue/scheduler";
                host.files.set(path, "[none] mq-deadline\n");
            },
            meanwhile: nothing,
            about: disk(),
            evidence: &["1 group (", "/app/db has 800", "scheduler is none", "io.cost is off"],
            remedy: "modprobe bfq && echo bfq > /sys/block/sda/queue/scheduler",
        },
        Pitfall {
            check: "weights-distorted",
            build: |host| host.group("/app/db", |db| db.bfq_weight = Some(163)),
            meanwhile: nothing,
            about: group("/app/db"),
            evidence: &["asks for 800", "io.bfq.weight holds 163", "systemd", "1.63 times"],
            remedy: "echo 800 > /sys/fs/cgroup/app/db/io.bfq.weight",
        },
        Pitfall {
            check: "weights-distorted",
            build: |host| {
                let id = "0123456789ab0123456789ab0123456789ab0123456789ab0123456789abcdef";
                let tasks = "run/containerd/io.containerd.runtime.v2.task/moby";
                let dir = host.runtime.path().join(tasks).join(id);
                std::fs::create_dir_all(&dir).unwrap();
                let config = format!(
                    r#"{{"linux":{{"cgroupsPath":"system.slice:docker:{id}",
                        "resources":{{"blockIO":{{"weight":400}}}}}}}}"#
                );
                std::fs::write(dir.join("config.json"), config).unwrap();
                let path = format!("/system.slice/docker-{id}.scope");
                host.group(&path, |group| group.io_weight = Some(3940));
            },
            meanwhile: nothing,
            about: group(
                "/system.slice/docker-0123456789ab0123456789ab0123456789ab0123456789ab0123456789abcdef.scope",
            ),
            evidence: &["blkio-weight asks for 400", "io.weight holds 3940", "runc", "39.40", "4.00"],
            remedy: "echo 'default 400' > ",
        },
        Pitfall {
            check: "writeback-not-charged",
            build: |host| {
                let mounts = format!("{MOUNTS}42 40 0:50 / /tank rw - zfs tank rw\n");
                host.files.set("/proc/self/mountinfo", &mounts);
            },
            meanwhile: nothing,
            about: Subject::Mount("/tank".into()),
            evidence: &["zfs has no cgroup writeback", "tank"],
            remedy: "ext4",
        },
        Pitfall {
            check: "writeback-not-charged",
            build: |host| {
                let mounts = MOUNTS.replace("/dev/sda1 rw", "/dev/sda1 rw,data=journal");
                host.files.set("/proc/self/mountinfo", &mounts);
            },
            meanwhile: nothing,
            about: Subject::Mount("/".into()),
            evidence: &["data=journal", "/dev/sda1"],
            remedy: "data=ordered",
        },
        Pitfall {
            check: "writeback-not-charged",
            build: |host| host.files.set("/sys/block/dm-3/dm/uuid", "CRYPT-LUKS2-1-data\n"),
            meanwhile: nothing,
            about: Subject::Disk("dm-3".into()),
            evidence: &["dm-crypt", "for all groups"],
            remedy: "no_write_workqueue",
        },
    ]
}

pub(super) fn kernel() -> Vec<Pitfall> {
    vec![
        Pitfall {
            check: "mglru-protection",
            build: |host| host.files.set("/sys/kernel/mm/lru_gen/enabled", "0x0007\n"),
            meanwhile: nothing,
            about: Subject::Host,
            evidence: &["MGLRU is on", "6.12.0", "3 groups", "/app 3.0 GiB"],
            remedy: "echo n > /sys/kernel/mm/lru_gen/enabled",
        },
        Pitfall {
            check: "mglru-protection",
            build: |host| {
                host.files.set("/sys/kernel/mm/lru_gen/enabled", "0x0001\n");
                host.files
                    .set("/sys/kernel/mm/lru_gen/min_ttl_ms", "1000\n");
            },
            meanwhile: nothing,
            about: Subject::Host,
            evidence: &["min_ttl_ms is 1000"],
            remedy: "echo 0 > /sys/kernel/mm/lru_gen/min_ttl_ms",
        },
        Pitfall {
            check: "zombie-cgroups",
            build: |host| {
                host.group("/", |root| root.dying = 500);
                host.group("/app", |app| app.dying = 480);
            },
            meanwhile: nothing,
            about: Subject::Host,
            evidence: &["500 removed", "5 that live", "480 of them below /app"],
            remedy: "echo 1G > /sys/fs/cgroup/app/memory.reclaim",
        },
        Pitfall {
            check: "controllers-off",
            build: |host| {
                for file in ["memory.current", "memory.stat", "memory.max", "memory.low"] {
                    host.fs.inject("/app/web", file, Fault::Absent);
                }
            },
            meanwhile: nothing,
            about: group("/app/web"),
            evidence: &["no memory controller"],
            remedy: "echo '+memory' | tee /sys/fs/cgroup/cgroup.subtree_control /sys/fs/cgroup/app/cgroup.subtree_control",
        },
    ]
}
