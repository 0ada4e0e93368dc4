//! A fake host without pitfalls, in memory, and its manipulation by the tests.

mod machine;
mod pitfalls;
mod remedies;
mod report;
mod unknown;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use justitia_cgroup::fake::{FakeGroup, Fault};
use justitia_cgroup::survey::{FakeHost, Known};
use justitia_cgroup::FakeFs;
use justitia_discover::{DiscoverConfig, Owners, RuntimeDirs};
use justitia_policy::units::{Bytes, Limit};

use crate::{examine, gather, CheckReport, Facts, Look, Report, Verdict};

pub(super) const GIB: u64 = 1 << 30;

pub(super) const MOUNTS: &str = "\
31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,memory_recursiveprot
40 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
41 40 0:5 / /proc rw - proc proc rw
";

/// A fake host: 16 GiB of memory, one disk under BFQ, two workloads with protection and limit, one slice with
/// a limit.
pub(super) struct Host {
    pub(super) files: FakeHost,
    pub(super) fs: Arc<FakeFs>,
    pub(super) runtime: tempfile::TempDir,
    pub(super) managed: Known<HashSet<String>>,
}

pub(super) fn gib(n: u64) -> Limit {
    Limit::Bytes(Bytes(n * GIB))
}

pub(super) fn mib(n: u64) -> Limit {
    Limit::Bytes(Bytes::mib(n))
}

impl Host {
    pub(super) fn healthy() -> Host {
        let host = Host {
            files: FakeHost::new(),
            fs: FakeFs::new(),
            runtime: tempfile::tempdir().unwrap(),
            managed: Ok(HashSet::new()),
        };
        for (path, text) in [
            ("/proc/self/mountinfo", MOUNTS),
            ("/sys/fs/cgroup/cgroup.controllers", "cpu io memory pids\n"),
            ("/proc/sys/kernel/osrelease", "6.12.0\n"),
            (
                "/proc/swaps",
                "Filename Type Size Used Priority\n/dev/sda2 partition 8388608 0 -2\n",
            ),
            ("/proc/sys/vm/swappiness", "60\n"),
            ("/proc/sys/vm/dirty_ratio", "0\n"),
            ("/proc/sys/vm/dirty_bytes", "268435456\n"),
            ("/sys/kernel/mm/lru_gen/enabled", "0x0000\n"),
            ("/sys/kernel/mm/lru_gen/min_ttl_ms", "0\n"),
            (
                "/proc/pressure/memory",
                "some avg10=0.00 avg60=0.00 avg300=0.00 total=1\n",
            ),
            ("/sys/kernel/btf/vmlinux", ""),
            ("/sys/block/sda/device/model", "disk\n"),
            ("/sys/block/sda/size", "1000000\n"),
            ("/sys/block/sda/dev", "8:0\n"),
            ("/sys/block/sda/queue/scheduler", "none [bfq]\n"),
            ("/sys/block/sda/queue/rotational", "1\n"),
            ("/proc/diskstats", "8 0 sda 1 2 3 4 5 6 7 8 9 10 11\n"),
        ] {
            host.files.set(path, text);
        }
        host.meminfo(8 * GIB, 4 * GIB);
        host.group("/system.slice", |slice| {
            slice.high = gib(1);
            slice.anon = Bytes::mib(100);
        });
        host.fs.mkdir("/system.slice/cron.service");
        host.group("/app", |app| {
            app.low = gib(3);
            app.file = Bytes(3 * GIB);
            app.anon = Bytes(GIB);
        });
        host.group("/app/db", |db| {
            db.low = gib(2);
            db.max = gib(4);
            db.anon = Bytes(GIB);
            db.file = Bytes(2 * GIB);
            db.io_weight = Some(800);
            db.bfq_weight = Some(800);
        });
        host.group("/app/web", |web| {
            web.low = gib(1);
            web.max = gib(2);
            web.file = Bytes(GIB);
            web.bfq_weight = Some(100);
        });
        host.group("/", |root| {
            root.file = Bytes(3 * GIB);
            root.descendants = 5;
        });
        host
    }

    pub(super) fn meminfo(&self, free: u64, anon: u64) {
        let text = format!(
            "MemTotal: {} kB\nMemFree: {} kB\nMemAvailable: {} kB\nAnonPages: {} kB\n\
             Dirty: 2048 kB\nSwapTotal: 8388608 kB\nSwapFree: 8388608 kB\n",
            16 * GIB / 1024,
            free / 1024,
            14 * GIB / 1024,
            anon / 1024,
        );
        self.files.set("/proc/meminfo", &text);
    }

    pub(super) fn group(&self, path: &str, change: impl FnOnce(&mut FakeGroup)) {
        self.fs.mkdir(path);
        self.fs.update(path, change);
    }

    pub(super) fn deny(&self, path: &str, file: &str) {
        self.fs.inject(path, file, Fault::Denied);
    }

    /// Gathers facts with two reads `seconds` apart; `meanwhile` runs between them.
    pub(super) fn look(&self, seconds: u64, meanwhile: impl Fn(&Host)) -> Facts {
        let config = DiscoverConfig::managing(&["/app/*"]);
        let runtime = RuntimeDirs::under(self.runtime.path());
        let owners = Owners::new(&config, runtime).unwrap();
        gather(Look {
            host: &self.files,
            groups: &|_| Ok(self.fs.clone()),
            owners: &owners,
            managed: self.managed.clone(),
            window: Duration::from_secs(seconds),
            wait: &mut |_| meanwhile(self),
        })
    }

    pub(super) fn report(&self) -> Report {
        examine(&self.look(1, |_| {}), &[], None)
    }
}

pub(super) fn check<'a>(report: &'a Report, id: &str) -> &'a CheckReport {
    let found = report.checks.iter().find(|check| check.id == id);
    found.unwrap_or_else(|| panic!("no check {id}"))
}

#[test]
fn on_a_host_built_right_every_check_is_silent() {
    let report = Host::healthy().report();
    for check in &report.checks {
        assert_eq!(check.verdict, Verdict::Fine, "{check:#?}");
    }
    assert_eq!(report.verdict, Verdict::Fine);
    assert_eq!(report.host.groups_total, 6);
}

#[test]
fn each_file_is_read_once_and_counters_twice() {
    let host = Host::healthy();
    for at in 0..1000 {
        host.group(&format!("/many/group{at}"), |group| {
            group.max = mib(1);
            group.bfq_weight = Some(100);
        });
    }
    let begin = std::time::Instant::now();
    let report = examine(&host.look(1, |_| {}), &[], None);
    println!("1,000 groups in {:?}", begin.elapsed());
    assert_eq!(report.host.groups_total, 1007);
    for at in 0..1000 {
        let reads = host.fs.reads(&format!("/many/group{at}"));
        assert!(reads.len() >= 13, "{reads:?}");
        for (file, count) in reads {
            let most = if ["memory.stat", "io.stat"].contains(&file) {
                2
            } else {
                1
            };
            assert_eq!(count, most, "{file}");
        }
    }
    for (file, count) in host.files.reads() {
        let most = if file == "/proc/diskstats" { 2 } else { 1 };
        assert_eq!(count, most, "{file}");
    }
    assert_eq!(host.fs.writes(), [], "the doctor writes nothing");
}

#[test]
fn a_group_that_vanishes_between_the_looks_makes_no_check_unsure() {
    let host = Host::healthy();
    let facts = host.look(1, |host| {
        host.fs.rmdir("/app/web");
    });
    let report = examine(&facts, &[], None);
    assert_eq!(report.could_not_tell_total, 0, "{report:#?}");
}
