//! For every check, a host that has the pitfall: the check finds it, with its numbers.

use justitia_cgroup::survey::Unread;
use justitia_cgroup::{xattr, CgroupFs as _};
use justitia_policy::units::{Bytes, Limit};

use super::remedies::beside_a_service;
use super::{check, gib, machine, mib, Host, GIB, MOUNTS};
use crate::{examine, Report, Subject, Verdict, CHECKS};

pub(super) struct Pitfall {
    pub(super) check: &'static str,
    /// Builds the pitfall before the first read.
    pub(super) build: fn(&Host),
    /// Runs between the two reads.
    pub(super) meanwhile: fn(&Host),
    pub(super) about: Subject,
    /// Words that the evidence contains.
    pub(super) evidence: &'static [&'static str],
    /// Words that one of the remedies contains.
    pub(super) remedy: &'static str,
}

pub(super) fn nothing(_: &Host) {}

pub(super) fn group(path: &str) -> Subject {
    Subject::Group(path.to_owned())
}

pub(super) fn disk() -> Subject {
    Subject::Disk("sda".to_owned())
}

/// Asserts that a check finds nothing.
fn fine(report: &Report, id: &str) {
    let check = check(report, id);
    assert_eq!(check.verdict, Verdict::Fine, "{check:#?}");
}

/// Makes a group refault.
fn refaults(host: &Host) {
    host.group("/app/db", |db| db.refault_pages += 1000);
}

fn reservation() -> Vec<Pitfall> {
    vec![
        Pitfall {
            check: "limits-exceed-memory",
            build: |host| {
                host.group("/app/db", |db| db.max = gib(12));
                host.group("/app/web", |web| web.max = gib(8));
            },
            meanwhile: nothing,
            about: Subject::Host,
            evidence: &["21.0 GiB", "131 %", "16.0 GiB", "/app 20.0 GiB"],
            remedy: "by 0.76",
        },
        Pitfall {
            check: "limits-exceed-memory",
            build: |host| host.group("/app", |app| app.max = gib(5)),
            meanwhile: nothing,
            about: group("/app"),
            evidence: &["6.0 GiB", "120 %", "that /app may have", "/app/db 4.0 GiB"],
            remedy: "echo 3414M > /sys/fs/cgroup/app/db/memory.max",
        },
        Pitfall {
            check: "memory-not-reserved",
            build: |host| {
                for path in ["/app", "/app/db", "/app/web"] {
                    host.group(path, |group| group.low = mib(0));
                }
                host.meminfo(GIB / 2, GIB);
            },
            meanwhile: nothing,
            about: group("/app/db"),
            evidence: &[
                "grow by 1.0 GiB",
                "limit of 4.0 GiB",
                "512.0 MiB are free",
                "2.0 MiB",
            ],
            remedy: "echo 3072M > /sys/fs/cgroup/app/db/memory.low",
        },
        Pitfall {
            check: "protection-exceeds-memory",
            build: |host| host.group("/app", |app| app.low = gib(15)),
            meanwhile: nothing,
            about: Subject::Host,
            evidence: &["memory.low", "15.0 GiB", "94 %", "16.0 GiB"],
            remedy: "14.4 GiB",
        },
        Pitfall {
            check: "protection-exceeds-memory",
            build: |host| host.group("/app", |app| app.low = gib(2)),
            meanwhile: nothing,
            about: group("/app"),
            evidence: &["claim 3.0 GiB", "2.0 GiB", "150 %", "/app/db 2.0 GiB"],
            remedy: "echo 3072M > /sys/fs/cgroup/app/memory.low",
        },
        Pitfall {
            check: "protection-cut-off",
            build: |host| host.group("/app", |app| app.low = mib(0)),
            meanwhile: nothing,
            about: group("/app/db"),
            evidence: &["memory.low of 2.0 GiB", "/app has 0"],
            remedy: "echo 2048M > /sys/fs/cgroup/app/memory.low",
        },
        Pitfall {
            check: "recursiveprot-missing",
            build: |host| {
                let mounts = MOUNTS.replace(",memory_recursiveprot", "");
                host.files.set("/proc/self/mountinfo", &mounts);
                for path in ["/app/db", "/app/web"] {
                    host.group(path, |group| group.low = mib(0));
                }
            },
            meanwhile: nothing,
            about: group("/app"),
            evidence: &["memory.low of 3.0 GiB", "/sys/fs/cgroup is mounted without"],
            remedy: "mount -o remount,memory_recursiveprot /sys/fs/cgroup",
        },
        Pitfall {
            check: "recursiveprot-unclaimed",
            build: |host| host.group("/app/web", |web| web.low = mib(0)),
            meanwhile: nothing,
            about: group("/app"),
            evidence: &["1.0 GiB of its memory.low of 3.0 GiB", "/app/web 1.0 GiB"],
            remedy: "echo 2048M > /sys/fs/cgroup/app/memory.low",
        },
    ]
}

fn limits() -> Vec<Pitfall> {
    vec![
        Pitfall {
            check: "limit-too-small",
            build: |host| host.group("/app/db", |db| db.max = mib(3200)),
            meanwhile: refaults,
            about: group("/app/db"),
            evidence: &[
                "does not fit",
                "3.0 GiB of 3.1 GiB",
                "2.0 GiB (64 %)",
                "1000 pages/s",
            ],
            remedy: "echo 4000M > /sys/fs/cgroup/app/db/memory.max",
        },
        Pitfall {
            check: "limit-too-small",
            build: nothing,
            meanwhile: |host| host.group("/app/db", |db| db.anon = Bytes(GIB + (64 << 20))),
            about: group("/app/db"),
            evidence: &["1.0 GiB of 4.0 GiB", "64.0 MiB/s", "in 48 s"],
            remedy: "echo 5120M > /sys/fs/cgroup/app/db/memory.max",
        },
        Pitfall {
            check: "limit-too-small",
            build: |host| {
                host.group("/app/db", |db| {
                    db.events.oom_kill = Some(3);
                    db.events_local.oom = Some(3);
                });
            },
            meanwhile: nothing,
            about: group("/app/db"),
            evidence: &["3 processes were killed for lack of memory", "4.0 GiB"],
            remedy: "memory.max",
        },
        Pitfall {
            check: "page-cache-starved",
            build: |host| {
                host.group("/app/db", |db| {
                    db.max = mib(3200);
                    db.anon = Bytes::mib(3000);
                    db.file = Bytes::mib(100);
                });
            },
            meanwhile: refaults,
            about: group("/app/db"),
            evidence: &[
                "no room",
                "page cache 100.0 MiB (3 %)",
                "2.9 GiB (94 %)",
                "4.1 MB/s",
            ],
            remedy: "echo 4000M > /sys/fs/cgroup/app/db/memory.max",
        },
    ]
}

fn outsiders() -> Vec<Pitfall> {
    vec![
        Pitfall {
            check: "outside-unbounded",
            build: |host| {
                host.group("/system.slice", |slice| {
                    slice.high = Limit::Max;
                    slice.file = Bytes(4 * GIB);
                });
                host.group("/", |root| root.file = Bytes(7 * GIB));
            },
            meanwhile: nothing,
            about: group("/system.slice"),
            evidence: &["4.0 GiB", "25 %"],
            remedy: "systemctl set-property system.slice MemoryHigh=",
        },
        Pitfall {
            check: "outside-unbounded",
            build: |host| {
                host.group("/system.slice", |slice| {
                    slice.high = Limit::Max;
                    slice.file = Bytes(6 * GIB);
                });
                // A limit on the slice would hit the container in it.
                host.group("/system.slice/docker-0123456789ab.scope", |container| {
                    container.file = Bytes(2 * GIB);
                });
                host.group("/system.slice/cron.service", |cron| {
                    cron.file = Bytes(3 * GIB);
                    cron.anon = Bytes::mib(100);
                });
                host.group("/", |root| root.file = Bytes(9 * GIB));
            },
            meanwhile: nothing,
            about: group("/system.slice"),
            evidence: &[
                "4.0 GiB",
                "25 %",
                "most of it is /system.slice/cron.service's",
            ],
            remedy: "systemctl set-property cron.service MemoryHigh=920M",
        },
        Pitfall {
            check: "outside-unbounded",
            build: |host| host.group("/", |root| root.file = Bytes(5 * GIB)),
            meanwhile: nothing,
            about: Subject::Host,
            evidence: &["the root group itself holds 2.0 GiB", "12 %"],
            remedy: "systemd-run --slice=",
        },
        Pitfall {
            check: "outside-dirtying",
            build: |host| {
                host.group("/system.slice", |slice| {
                    slice.high = Limit::Max;
                    slice.file = Bytes::mib(300);
                    slice.file_dirty = Bytes::mib(128);
                });
            },
            meanwhile: |host| {
                let device = justitia_cgroup::Device { major: 8, minor: 0 };
                host.group("/system.slice", |slice| {
                    slice.io.insert(device, (0, 5_000_000));
                });
            },
            about: group("/system.slice"),
            evidence: &["128.0 MiB of dirty", "50 %", "256.0 MiB", "5.0 MB/s"],
            remedy: "MemoryHigh=",
        },
    ]
}

fn pitfalls() -> Vec<Pitfall> {
    let mut all = reservation();
    all.extend(limits());
    all.extend(outsiders());
    all.extend(machine::host_wide());
    all.extend(machine::lacking());
    all.extend(machine::weights());
    all.extend(machine::kernel());
    all
}

#[test]
fn every_check_finds_its_pitfall_with_its_numbers() {
    for pitfall in pitfalls() {
        let host = Host::healthy();
        (pitfall.build)(&host);
        let report = examine(&host.look(1, pitfall.meanwhile), &[], None);
        let check = check(&report, pitfall.check);
        assert_eq!(check.verdict, Verdict::Finding, "{check:#?}");
        let matching = check.findings.iter().find(|finding| {
            let has = |word: &&str| finding.evidence.contains(*word);
            finding.subject == pitfall.about && pitfall.evidence.iter().all(has)
        });
        let Some(finding) = matching else {
            panic!("{:?} {:?}: {check:#?}", pitfall.about, pitfall.evidence);
        };
        assert!(
            finding
                .remedy
                .iter()
                .any(|line| line.contains(pitfall.remedy)),
            "{}: {finding:#?}",
            pitfall.remedy
        );
    }
}

#[test]
fn every_check_has_a_pitfall_in_the_table() {
    let pitfalls = pitfalls();
    for check in &CHECKS {
        assert!(
            pitfalls.iter().any(|pitfall| pitfall.check == check.id),
            "{}",
            check.id
        );
    }
}

#[test]
fn a_service_with_a_weight_is_no_outsider() {
    let host = beside_a_service(|db| db.io_weight = Some(400));
    fine(&host.report(), "outside-unbounded");
}

#[test]
fn the_weight_that_an_agent_gives_a_slice_does_not_make_it_an_insider() {
    let mut host = beside_a_service(|_| {});
    host.group("/system.slice", |slice| {
        slice.io_weight = Some(900);
        slice.bfq_weight = Some(400);
    });
    host.group("/system.slice/docker-1.scope", |_| {});
    host.managed = Ok(["/system.slice/docker-1.scope".to_owned()].into());
    let report = host.report();
    let about = &check(&report, "outside-unbounded").findings[0].subject;
    assert_eq!(*about, group("/system.slice"));
    fine(&report, "weights-distorted");
}

#[test]
fn services_with_a_small_limit_have_no_page_cache_to_lose() {
    let host = beside_a_service(|_| {});
    for workload in ["/app/db", "/app/web", "/app"] {
        host.fs.rmdir(workload);
    }
    host.group("/system.slice/agent.service", |agent| agent.max = mib(192));
    fine(&host.report(), "outside-unbounded");
    host.group("/system.slice/agent.service", |agent| agent.max = gib(1));
    assert_eq!(
        check(&host.report(), "outside-unbounded").verdict,
        Verdict::Finding
    );
}

#[test]
fn a_small_anonymous_group_without_refaults_is_not_starved() {
    let host = Host::healthy();
    host.group("/app/db", |db| {
        db.max = mib(3200);
        db.anon = Bytes::mib(3000);
        db.file = Bytes::mib(100);
    });
    let report = host.report();
    for id in ["page-cache-starved", "limit-too-small"] {
        fine(&report, id);
    }
}

#[test]
fn a_kill_is_reported_only_for_the_group_whose_limit_was_hit() {
    let host = Host::healthy();
    host.group("/app", |app| {
        app.max = gib(8);
        app.events.oom_kill = Some(1);
    });
    // In web the host's OOM killer killed a process: the group's own limit was not hit.
    host.group("/app/web", |web| web.events.oom_kill = Some(1));
    fine(&host.report(), "limit-too-small");
}

#[test]
fn a_running_agents_writes_are_no_decision_of_the_owner() {
    let mut host = Host::healthy();
    host.group("/app/db", |db| {
        db.max = Limit::Max;
        db.high = gib(3);
        db.bfq_weight = Some(200);
    });
    let ids = ["limit-too-small", "weights-distorted"];
    host.managed = Ok(["/app/db".to_owned()].into());
    let report = examine(&host.look(1, refaults), &[], None);
    for id in ids {
        fine(&report, id);
    }
    host.managed = Err(Unread::new("the agent's groups", "no permission"));
    let report = examine(&host.look(1, refaults), &[], None);
    for check in ids.map(|id| check(&report, id)) {
        assert_eq!(check.verdict, Verdict::CouldNotTell, "{check:#?}");
        assert!(check.findings.is_empty(), "{check:#?}");
        assert_eq!(check.could_not_tell, ["the agent's groups: no permission"]);
    }
}

#[test]
fn weights_that_a_running_agent_wrote_are_not_weights_of_the_owner() {
    let mut host = Host::healthy();
    let disk = "/sys/block/sda/queue/scheduler";
    host.files.set(disk, "[none] mq-deadline bfq\n");
    host.group("/", |root| root.io_cost_qos = Some(String::new()));
    let asked = |weight: &str| {
        let db = host.fs.open("/app/db").unwrap();
        db.set_xattr(xattr::WEIGHT, weight).unwrap();
    };
    asked("100");
    host.group("/app/db", |db| db.bfq_weight = Some(300));
    let id = "weights-not-enforced";
    assert_eq!(
        check(&host.report(), id).findings.len(),
        1,
        "without an agent"
    );
    host.managed = Ok(["/app/db".to_owned()].into());
    fine(&host.report(), id);
    host.managed = Err(Unread::new("the agent's groups", "no permission"));
    assert_eq!(check(&host.report(), id).verdict, Verdict::CouldNotTell);
    host.managed = Ok(["/app/db".to_owned()].into());
    asked("800");
    let report = host.report();
    let remedy = &check(&report, id).findings[0].remedy;
    let steps = ["justitia run", "echo bfq > "];
    assert_eq!(remedy.len(), steps.len(), "{remedy:?}");
    for (line, words) in remedy.iter().zip(steps) {
        assert!(line.contains(words), "{remedy:?}");
    }
}

#[test]
fn a_cd_drive_is_no_disk() {
    let host = Host::healthy();
    for (file, text) in [
        ("device/type", "5\n"),
        ("size", "2097151\n"),
        ("dev", "11:0\n"),
        ("queue/scheduler", "[mq-deadline]\n"),
        ("queue/rotational", "1\n"),
    ] {
        host.files.set(&format!("/sys/block/sr0/{file}"), text);
    }
    host.files.set("/proc/sys/vm/dirty_bytes", "0\n");
    host.files.set("/proc/sys/vm/dirty_ratio", "20\n");
    let mounts = MOUNTS.replace("/dev/sda1", "/dev/mapper/vg-root");
    host.files.set("/proc/self/mountinfo", &mounts);
    let report = host.report();
    let slow = &check(&report, "dirty-limit-slow-disk").findings;
    let subjects: Vec<_> = slow.iter().map(|finding| &finding.subject).collect();
    assert_eq!(subjects, [&disk()]);
    fine(&report, "weights-not-enforced");
}

#[test]
fn a_mounted_cd_makes_no_unused_disk_relevant() {
    let host = Host::healthy();
    for (file, text) in [
        ("device/model", "disk\n"),
        ("size", "1000000\n"),
        ("dev", "8:16\n"),
        ("queue/scheduler", "[none] bfq\n"),
    ] {
        host.files.set(&format!("/sys/block/sdb/{file}"), text);
    }
    let mounts = format!("{MOUNTS}42 40 11:0 / /cd ro - iso9660 /dev/sr0 ro\n");
    host.files.set("/proc/self/mountinfo", &mounts);
    fine(&host.report(), "weights-not-enforced");
}

#[test]
fn a_tenth_namespace_is_another_disk_than_the_first() {
    let host = Host::healthy();
    for (disk, scheduler) in [("nvme0n1", "[none] bfq\n"), ("nvme0n10", "none [bfq]\n")] {
        for (file, text) in [
            ("device/model", "disk\n"),
            ("size", "1000000\n"),
            ("dev", "259:1\n"),
            ("queue/scheduler", scheduler),
        ] {
            host.files.set(&format!("/sys/block/{disk}/{file}"), text);
        }
    }
    let mounts = format!("{MOUNTS}42 40 259:1 / /data rw - ext4 /dev/nvme0n10 rw\n");
    host.files.set("/proc/self/mountinfo", &mounts);
    fine(&host.report(), "weights-not-enforced");
}

#[test]
fn on_nvme_multipath_only_bfq_on_all_paths_enforces_weights_and_nobody_proposes_io_cost() {
    let host = Host::healthy();
    for (file, text) in [
        ("nvme0n1/device/model", "disk\n"),
        ("nvme0n1/size", "1000000\n"),
        ("nvme0n1/dev", "259:1\n"),
        ("nvme0c0n1/hidden", "1\n"),
        ("nvme0c0n1/queue/scheduler", "[none] bfq\n"),
    ] {
        host.files.set(&format!("/sys/block/{file}"), text);
    }
    let mounts = format!("{MOUNTS}42 40 259:1 / /data rw - ext4 /dev/nvme0n1p1 rw\n");
    host.files.set("/proc/self/mountinfo", &mounts);
    let report = host.report();
    let [found] = &check(&report, "weights-not-enforced").findings[..] else {
        panic!("{report:#?}");
    };
    assert_eq!(found.subject, Subject::Disk("nvme0n1".to_owned()));
    let remedies = found.remedy.join("\n");
    assert!(
        remedies.contains("echo bfq > /sys/block/nvme0c0n1/queue/scheduler"),
        "{remedies}"
    );
    assert!(remedies.contains("nvme_core.multipath=N"), "{remedies}");
    assert!(
        !remedies.contains("justitia run") && !remedies.contains("udev"),
        "{remedies}"
    );
    assert_eq!(report.host.disks["nvme0n1"], "none");
    host.files
        .set("/sys/block/nvme0c0n1/queue/scheduler", "none [bfq]\n");
    let report = host.report();
    fine(&report, "weights-not-enforced");
    assert_eq!(report.host.disks["nvme0n1"], "bfq");
}

/// A host of one group without a weight, whose disk has no scheduler.
fn on_a_disk_without_weights() -> Host {
    let host = Host::healthy();
    host.group("/app/db", |db| {
        db.io_weight = Some(100);
        db.bfq_weight = None;
    });
    host.files
        .set("/sys/block/sda/queue/scheduler", "[none] bfq\n");
    host
}

#[test]
fn a_weight_that_a_container_wrote_itself_is_nobodys_request() {
    let host = on_a_disk_without_weights();
    let docker = "/system.slice/docker-0123456789ab.scope";
    host.group(docker, |docker| docker.file = Bytes::mib(1));
    let group = host.fs.open(docker).unwrap();
    group.set_xattr(xattr::WEIGHT, "800").unwrap();
    fine(&host.report(), "weights-not-enforced");
    group.set_xattr(xattr::WEIGHT_OF_DELEGATED, "700").unwrap();
    let report = host.report();
    let evidence = &check(&report, "weights-not-enforced").findings[0].evidence;
    assert!(evidence.contains("has 700"), "{evidence}");
}

#[test]
fn a_weight_that_a_tenant_wrote_is_a_request_only_below_its_own_directory() {
    let host = on_a_disk_without_weights();
    let tenants = "/user.slice/user@1000.service";
    host.fs.mkdir(tenants);
    host.fs.delegate(tenants, 1000, true);
    let docker = "/system.slice/docker-0123456789ab.scope";
    for top in [tenants, docker] {
        let made = format!("{top}/made");
        host.group(&made, |made| made.file = Bytes::mib(1));
        host.fs.delegate(&made, 1000, true);
        let [top, made] = [top, &made].map(|path| host.fs.open(path).unwrap());
        top.set_xattr(xattr::WEIGHT, "800").unwrap();
        fine(&host.report(), "weights-not-enforced");
        made.set_xattr(xattr::WEIGHT, "700").unwrap();
        let report = host.report();
        let evidence = &check(&report, "weights-not-enforced").findings[0].evidence;
        assert!(evidence.contains("has 700"), "{evidence}");
        made.remove_xattr(xattr::WEIGHT).unwrap();
    }
}

#[test]
fn weights_that_nobody_set_need_no_scheduler() {
    let host = on_a_disk_without_weights();
    fine(&host.report(), "weights-not-enforced");
}

#[test]
fn a_kernel_with_io_cost_knows_weights_without_bfq() {
    let host = Host::healthy();
    host.files
        .set("/sys/block/sda/queue/scheduler", "[none] kyber\n");
    host.group("/", |root| root.io_cost_qos = Some(String::new()));
    fine(&host.report(), "kernel-features");
}

#[test]
fn io_cost_serves_where_the_scheduler_does_not() {
    let host = Host::healthy();
    host.files.set("/sys/block/sda/queue/scheduler", "[none]\n");
    host.group("/", |root| {
        root.io_cost_qos = Some("8:0 enable=1 ctrl=auto".into());
    });
    let report = host.report();
    assert_eq!(report.host.disks["sda"], "io.cost");
    fine(&report, "weights-not-enforced");
}
