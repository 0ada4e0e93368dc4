//! Rows of the table: pitfalls of swap, weights, the kernel and the cgroup hierarchy.

use std::fs;
use std::path::Path;

use rustix::mount::MountFlags;

use super::hog::{within, Job};
use super::scene::{
    data_disk, disks, drop_caches, mount, remount, run, select, set, Scene, LRU_GEN, MIB,
};
use super::table::{About, Right, Row};

pub(crate) fn rows() -> Vec<Row> {
    let mut rows = swap();
    rows.extend(weights());
    rows.extend(file_systems());
    rows.extend(kernel());
    rows.extend(hierarchy());
    rows
}

fn swap() -> Vec<Row> {
    vec![
        Row {
            check: "swap-none",
            case: "most of RAM is anonymous",
            build: |scene| scene.start(&scene.group("db"), &Job::Hold(600 * MIB)),
            seconds: 0,
            about: About::Host,
            evidence: &["no swap, and", "of anonymous memory", "of {ram}"],
            right: Right::By(|scene| scene.swap_on(16 * MIB)),
        },
        Row {
            check: "swap-unlimited",
            case: "a limited group swaps",
            build: |scene| {
                scene.swap_on(96 * MIB);
                scene.knob("db", "memory.max", 32 * MIB);
                scene.start(&scene.group("db"), &Job::Hold(64 * MIB));
            },
            seconds: 0,
            about: About::Group("db"),
            evidence: &["limited to 32.0 MiB of memory", "of swap besides"],
            right: Right::By(|scene| scene.knob("db", "memory.swap.max", 64 * MIB)),
        },
        Row {
            check: "swappiness-extreme",
            case: "0, with swap",
            build: |scene| {
                scene.swap_on(16 * MIB);
                scene.sysctl("swappiness", 0);
            },
            seconds: 0,
            about: About::Host,
            evidence: &["vm.swappiness is 0", "16.0 MiB of swap"],
            right: Right::By(|scene| scene.sysctl("swappiness", 10)),
        },
        Row {
            check: "swappiness-extreme",
            case: "180, with swap on a disk",
            build: |scene| {
                scene.swap_on(16 * MIB);
                scene.sysctl("swappiness", 180);
            },
            seconds: 0,
            about: About::Host,
            evidence: &["vm.swappiness is 180", "/swap is on a disk"],
            right: Right::By(|scene| scene.sysctl("swappiness", 10)),
        },
    ]
}

/// A container for which its runtime recorded a weight of 400.
fn container(scene: &Scene) {
    let bundle = "run/containerd/io.containerd.runtime.v2.task/moby/0123456789ab";
    let bundle = scene.files.path().join(bundle);
    fs::create_dir_all(&bundle).unwrap();
    let path = scene.path("0123456789ab");
    let config = format!(
        r#"{{"linux":{{"cgroupsPath":"{path}","resources":{{"blockIO":{{"weight":400}}}}}}}}"#
    );
    fs::write(bundle.join("config.json"), config).unwrap();
}

/// Unloads BFQ.
fn without_bfq(scene: &mut Scene) {
    for disk in disks() {
        select(&disk, "none");
    }
    scene.unload("bfq");
}

fn weights() -> Vec<Row> {
    vec![
        Row {
            check: "weights-not-enforced",
            case: "scheduler none, until it is BFQ",
            build: |scene| {
                set(scene.group("db").join("io.weight"), "default 800");
                select(&data_disk(), "none");
            },
            seconds: 0,
            about: About::DataDisk,
            evidence: &["scheduler is none and io.cost is off", "{top}/db has 800"],
            right: Right::By(|_| select(&data_disk(), "bfq")),
        },
        Row {
            check: "weights-not-enforced",
            case: "scheduler mq-deadline, until there is io.cost",
            build: |scene| {
                set(scene.group("db").join("io.weight"), "default 50");
                let disk = data_disk();
                let offered = format!("/sys/block/{disk}/queue/scheduler");
                if fs::read_to_string(offered).unwrap().contains("mq-deadline") {
                    select(&disk, "mq-deadline");
                } else {
                    let reason = "mq-deadline is a module that the guest was not given";
                    scene.impossible = Some(reason.into());
                }
            },
            seconds: 0,
            about: About::DataDisk,
            evidence: &["scheduler is mq-deadline", "{top}/db has 50"],
            right: Right::By(|scene| {
                let device = format!("/sys/block/{}/dev", data_disk());
                let device = fs::read_to_string(device).unwrap().trim().to_owned();
                let qos = mount().join("io.cost.qos");
                set(&qos, &format!("{device} enable=1"));
                scene.at_the_end(move || set(qos, &format!("{device} enable=0")));
            }),
        },
        Row {
            check: "weights-distorted",
            case: "as systemd squeezes it",
            build: |scene| {
                set(scene.group("db").join("io.weight"), "default 400");
                set(scene.group("db").join("io.bfq.weight"), "127");
            },
            seconds: 0,
            about: About::Group("db"),
            evidence: &[
                "IOWeight asks for 400",
                "io.bfq.weight holds 127, systemd's",
                "1.27",
            ],
            right: Right::By(|scene| set(scene.group("db").join("io.bfq.weight"), "400")),
        },
        Row {
            check: "weights-distorted",
            case: "as runc converts it, without BFQ",
            build: |scene| {
                without_bfq(scene);
                container(scene);
                set(
                    scene.group("0123456789ab").join("io.weight"),
                    "default 3940",
                );
            },
            seconds: 0,
            about: About::Group("0123456789ab"),
            evidence: &[
                "blkio-weight asks for 400, io.weight holds 3940, runc's",
                "39.40 times",
            ],
            right: Right::By(|scene| {
                set(scene.group("0123456789ab").join("io.weight"), "default 400");
            }),
        },
        Row {
            check: "weights-distorted",
            case: "a runtime's weight never written to BFQ's file",
            build: |scene| {
                container(scene);
                scene.group("0123456789ab");
            },
            seconds: 0,
            about: About::Group("0123456789ab"),
            evidence: &["blkio-weight asks for 400, io.bfq.weight holds 100"],
            right: Right::By(|scene| {
                set(scene.group("0123456789ab").join("io.bfq.weight"), "400");
            }),
        },
    ]
}

/// Mounts a new file system in a file of 32 MiB on the data disk.
fn mount_image(scene: &mut Scene, format: fn(&Path), kind: &str, options: &str) {
    let (image, dir) = (scene.file("image"), scene.file("mounted"));
    fs::write(&image, vec![0; 32 << 20]).unwrap();
    format(&image);
    fs::create_dir(&dir).unwrap();
    let [image, dir] = [image, dir].map(|path| path.to_string_lossy().into_owned());
    let options = format!("loop,{options}");
    run("mount", &["-t", kind, "-o", &options, &image, &dir]);
    scene.note.clone_from(&dir);
    scene.at_the_end(move || unmount(&dir));
}

fn ext4(image: &Path) {
    let image = image.to_string_lossy();
    run("mke2fs", &["-q", "-F", "-t", "ext4", &image]);
}

/// Writes an empty FAT16 file system of 65,536 sectors, because the guest has no `mkfs` for it. The boot
/// sector is first, then two tables of 66 sectors each, then the root directory, all zeros.
fn fat(image: &Path) {
    let mut bytes = fs::read(image).unwrap();
    let fields: [(usize, &[u8]); 12] = [
        (0, &[0xeb, 0x3c, 0x90]),
        // Bytes per sector, sectors per cluster, reserved sectors, tables, root directory entries.
        (11, &512u16.to_le_bytes()),
        (13, &[4, 1, 0, 2]),
        (17, &512u16.to_le_bytes()),
        // A fixed disk, sectors per table, sectors per track, heads.
        (21, &[0xf8]),
        (22, &66u16.to_le_bytes()),
        (24, &[32, 0, 2, 0]),
        (32, &65_536u32.to_le_bytes()),
        (38, &[0x29]),
        (54, b"FAT16   "),
        (510, &[0x55, 0xaa]),
        (512, &[0xf8, 0xff, 0xff, 0xff]),
    ];
    for (at, field) in fields {
        bytes[at..at + field.len()].copy_from_slice(field);
    }
    let second = 512 * 67;
    bytes[second..second + 4].copy_from_slice(&[0xf8, 0xff, 0xff, 0xff]);
    fs::write(image, bytes).unwrap();
}

fn unmount(dir: &str) {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    if mounts.contains(dir) {
        run("umount", &[dir]);
    }
}

fn file_systems() -> Vec<Row> {
    vec![
        Row {
            check: "writeback-not-charged",
            case: "ext4 that journals data",
            build: |scene| mount_image(scene, ext4, "ext4", "data=journal"),
            seconds: 0,
            about: About::Mount,
            evidence: &["data=journal", "/dev/loop"],
            right: Right::By(|scene| {
                unmount(&scene.note);
                let image = scene.file("image").to_string_lossy().into_owned();
                run("mount", &["-o", "loop,data=ordered", &image, &scene.note]);
            }),
        },
        Row {
            check: "writeback-not-charged",
            case: "FAT",
            build: |scene| mount_image(scene, fat, "vfat", "rw"),
            seconds: 0,
            about: About::Mount,
            evidence: &["vfat has no cgroup writeback", "/dev/loop"],
            right: Right::By(|scene| unmount(&scene.note)),
        },
    ]
}

/// Removes groups that still have page cache. Returns the number of dying groups that the kernel counts.
fn leave_zombies(scene: &Scene) -> u64 {
    for at in 0..150 {
        let job = scene.group("job");
        let file = scene.file(&format!("job-{at}"));
        within(&job, || fs::write(file, vec![1; 64 << 10]).unwrap());
        fs::remove_dir(&job).unwrap();
    }
    let stat = fs::read_to_string(mount().join("cgroup.stat")).unwrap();
    let dying = stat
        .lines()
        .find_map(|line| line.strip_prefix("nr_dying_descendants "));
    dying.and_then(|count| count.parse().ok()).unwrap()
}

fn kernel() -> Vec<Row> {
    vec![
        Row {
            check: "mglru-protection",
            case: "memory.low under MGLRU",
            build: |scene| {
                scene.knob("db", "memory.low", 64 * MIB);
                set(LRU_GEN, "y");
            },
            seconds: 0,
            about: About::Host,
            evidence: &["MGLRU is on", "{top}/db 64.0 MiB"],
            right: Right::By(|_| set(LRU_GEN, "n")),
        },
        Row {
            check: "mglru-protection",
            case: "min_ttl_ms",
            build: |scene| {
                set(LRU_GEN, "y");
                scene.change("/sys/kernel/mm/lru_gen/min_ttl_ms", "1000");
            },
            seconds: 0,
            about: About::Host,
            evidence: &["min_ttl_ms is 1000"],
            right: Right::By(|_| set("/sys/kernel/mm/lru_gen/min_ttl_ms", "0")),
        },
        Row {
            check: "zombie-cgroups",
            case: "removed with page cache",
            build: |scene| {
                let dying = leave_zombies(scene);
                let few = format!("its parent gets the page cache, {dying} stay");
                scene.impossible = (dying < 100).then_some(few);
            },
            seconds: 0,
            about: About::Host,
            evidence: &["removed cgroups beside", "below {top}"],
            right: Right::By(|_| drop_caches()),
        },
        Row {
            check: "psi-off",
            case: "of a group",
            build: |scene| {
                let pressure = scene.group("db").join("cgroup.pressure");
                if pressure.exists() {
                    set(pressure, "0");
                } else {
                    scene.impossible = Some("it has no cgroup.pressure".into());
                }
            },
            seconds: 0,
            about: About::Group("db"),
            evidence: &["not counted"],
            right: Right::By(|scene| set(scene.group("db").join("cgroup.pressure"), "1")),
        },
    ]
}

fn hierarchy() -> Vec<Row> {
    vec![
        Row {
            check: "controllers-off",
            case: "a workload whose parent hands nothing on",
            build: |scene| {
                scene.manage = vec![scene.path("app/*")];
                scene.group("app");
                scene.group("app/db");
            },
            seconds: 0,
            about: About::Group("app/db"),
            evidence: &["no memory and no io controller"],
            right: Right::By(|scene| {
                set(
                    scene.group("app").join("cgroup.subtree_control"),
                    "+memory +io",
                );
            }),
        },
        Row {
            check: "controllers-off",
            case: "a workload without io",
            build: |scene| {
                scene.manage = vec![scene.path("app/*")];
                set(scene.group("app").join("cgroup.subtree_control"), "+memory");
                scene.group("app/db");
            },
            seconds: 0,
            about: About::Group("app/db"),
            evidence: &["has no io controller"],
            right: Right::By(|scene| {
                set(scene.group("app").join("cgroup.subtree_control"), "+io");
            }),
        },
        Row {
            check: "kernel-features",
            case: "cgroup2 read-only",
            build: |scene| {
                scene.at_the_end(|| remount(MountFlags::empty(), "memory_recursiveprot"));
                remount(MountFlags::RDONLY, "memory_recursiveprot");
            },
            seconds: 0,
            about: About::Host,
            evidence: &["mounted read-only"],
            right: Right::By(|_| remount(MountFlags::empty(), "memory_recursiveprot")),
        },
    ]
}
