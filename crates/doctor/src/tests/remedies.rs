//! Remedies do no harm, name the owner's command, and can be pasted.

use justitia_cgroup::fake::FakeGroup;
use justitia_cgroup::File;
use justitia_policy::units::{Bytes, Limit};

use super::{check, gib, mib, Host, GIB, MOUNTS};
use crate::remedy;

/// A service with page cache that no limit bounds, beside the two workloads.
pub(super) fn beside_a_service(change: impl FnOnce(&mut FakeGroup)) -> Host {
    let host = Host::healthy();
    host.group("/system.slice", |slice| {
        slice.high = Limit::Max;
        slice.file = Bytes(8 * GIB);
        slice.shmem = Bytes(4 * GIB);
    });
    host.group("/system.slice/db.service", |db| {
        db.file = Bytes(8 * GIB);
        db.shmem = Bytes(4 * GIB);
        change(db);
    });
    host.group("/", |root| root.file = Bytes(7 * GIB));
    host
}

#[test]
fn a_bound_for_an_outsider_leaves_its_memory_that_is_not_page_cache() {
    let report = beside_a_service(|db| db.anon = Bytes(GIB)).report();
    let remedy = &check(&report, "outside-unbounded").findings[0].remedy[0];
    assert!(
        remedy.contains("db.service MemoryHigh=5940M"),
        "5 GiB and a twentieth of memory: {remedy}"
    );
}

#[test]
fn no_remedy_sets_a_limit_below_what_the_group_uses() {
    let host = Host::healthy();
    host.group("/app", |app| app.max = gib(5));
    host.group("/app/db", |db| db.anon = Bytes::mib(1900));
    let report = host.report();
    let remedies = &check(&report, "limits-exceed-memory").findings[0].remedy;
    assert!(
        remedies.iter().all(|remedy| !remedy.contains("echo")),
        "{remedies:?}"
    );
}

#[test]
fn the_limit_to_lower_is_the_one_that_is_set() {
    let host = Host::healthy();
    host.group("/app", |app| app.max = gib(5));
    host.group("/app/db", |db| {
        db.max = Limit::Max;
        db.high = gib(4);
    });
    let report = host.report();
    let remedy = &check(&report, "limits-exceed-memory").findings[0].remedy[0];
    let command = " (echo 3414M > /sys/fs/cgroup/app/db/memory.high, ";
    assert!(remedy.contains(command), "{remedy}");
}

#[test]
fn only_pods_are_set_in_their_spec_and_only_what_it_knows() {
    let pod = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod12_34.slice";
    for (path, file, remedy) in [
        (pod, File::MemoryMax, "resources.limits.memory"),
        (pod, File::MemoryLow, "resources.requests.memory"),
        (pod, File::MemorySwapMax, "echo "),
        ("/kubepods.slice", File::MemoryMax, "echo "),
        (
            "/kubepods.slice/kubepods-burstable.slice",
            File::MemoryLow,
            "echo ",
        ),
    ] {
        let host = Host::healthy();
        host.group(path, |_| {});
        let facts = host.look(0, |_| {});
        let group = facts.groups.iter().find(|group| group.path == path);
        let set = remedy::set(&facts, group.unwrap(), file, Bytes::mib(64));
        assert!(set.contains(remedy), "{path} {file:?}: {set}");
    }
}

#[test]
fn a_container_with_a_larger_limit_keeps_its_swap() {
    let scope = "/system.slice/docker-0123456789abcdef.scope";
    for (swap_max, option) in [
        (mib(256), "--memory 1250M --memory-swap 1506M "),
        (Limit::Max, "--memory 1250M --memory-swap -1 "),
    ] {
        let remedy = remedy_for(scope, |group| group.swap_max = swap_max);
        assert!(remedy.contains(option), "{remedy}");
    }
}

#[test]
fn a_remedy_for_a_group_of_another_manager_does_not_name_a_unit_or_container_of_the_host() {
    for above in [
        "/user.slice/user-1000.slice/user@1000.service/app.slice",
        "/machine.slice/machine-x.scope/payload/system.slice",
        "/lxc.payload.x/system.slice",
    ] {
        for name in ["mariadb.service", "docker-0123456789abcdef.scope"] {
            let remedy = remedy_for_small_limit(&format!("{above}/{name}"));
            assert!(remedy.contains("echo "), "{remedy}");
        }
    }
    let remedy = remedy_for_small_limit("/system.slice/mariadb.service");
    assert!(remedy.contains("set-property mariadb.service"), "{remedy}");
}

fn remedy_for_small_limit(path: &str) -> String {
    remedy_for(path, |_| {})
}

/// The remedies for a group whose limit is too small.
fn remedy_for(path: &str, change: impl FnOnce(&mut FakeGroup)) -> String {
    let host = Host::healthy();
    host.group(path, |group| {
        change(group);
        group.max = mib(1000);
        group.anon = Bytes::mib(600);
        group.file = Bytes::mib(390);
        group.events.oom_kill = Some(3);
        group.events_local.oom = Some(3);
    });
    let report = host.report();
    let check = report
        .checks
        .iter()
        .find(|check| check.id == "limit-too-small");
    let findings = &check.unwrap().findings;
    findings[0].remedy.join("\n")
}

#[test]
fn remedies_for_a_group_that_has_hardly_begun_do_not_depend_on_its_use() {
    let host = Host::healthy();
    for path in ["/app", "/app/web"] {
        host.group(path, |group| group.low = mib(0));
    }
    host.group("/app/db", |db| {
        db.anon = Bytes::mib(1);
        db.file = Bytes::ZERO;
    });
    host.group("/app/web", |web| web.file = Bytes::mib(1));
    host.meminfo(GIB, GIB);
    let report = host.report();
    for (id, remedy) in [
        (
            "protection-cut-off",
            "echo 2048M > /sys/fs/cgroup/app/memory.low",
        ),
        (
            "memory-not-reserved",
            "set its memory.low to what it will need, at most",
        ),
    ] {
        let findings = &check(&report, id).findings;
        let mut remedies = findings.iter().flat_map(|finding| &finding.remedy);
        assert!(remedies.any(|line| line.contains(remedy)), "{findings:#?}");
    }
}

#[test]
fn a_protection_that_ancestors_cut_off_needs_all_remedies_and_any_other_finding_one() {
    let host = Host::healthy();
    host.group("/app", |app| app.low = mib(0));
    host.files
        .set("/sys/block/sda/queue/scheduler", "[none] mq-deadline\n");
    let report = host.report();
    let all = |id| check(&report, id).findings[0].all_needed;
    assert!(all("protection-cut-off"));
    assert!(!all("weights-not-enforced"));
}

#[test]
fn a_remedy_keeps_the_backslashes_of_a_unit_in_a_shell() {
    let host = Host::healthy();
    host.group("/system.slice", |slice| {
        slice.high = Limit::Max;
        slice.file = Bytes(4 * GIB);
    });
    let culprit = r"/system.slice/system-my\x2dapp.slice";
    host.group(culprit, |slice| slice.file = Bytes(4 * GIB));
    host.group("/", |root| root.file = Bytes(7 * GIB));
    let report = host.report();
    let remedy = &check(&report, "outside-unbounded").findings[0].remedy[0];
    let script = format!("printf '%s\\n' {remedy}");
    let shell = std::process::Command::new("sh")
        .args(["-c", &script])
        .output();
    let words = String::from_utf8(shell.unwrap().stdout).unwrap();
    assert!(
        words.lines().any(|word| word == r"system-my\x2dapp.slice"),
        "{remedy}: {words}"
    );
}

#[test]
fn a_mount_point_with_a_space_stays_one_word_of_a_remedy() {
    let host = Host::healthy();
    let mounts = MOUNTS.replace("/sys/fs/cgroup", r"/sys/fs/c\040g");
    let mounts = mounts.replace(",memory_recursiveprot", "");
    host.files.set("/proc/self/mountinfo", &mounts);
    let controllers = "/sys/fs/c g/cgroup.controllers";
    host.files.set(controllers, "cpu io memory pids\n");
    host.group("/app/db", |group| group.low = mib(0));
    host.group("/app/web", |group| group.low = mib(0));
    let report = host.report();
    let remedy = &check(&report, "recursiveprot-missing").findings[0].remedy[0];
    assert!(remedy.ends_with(" '/sys/fs/c g'"), "{remedy}");
}

#[test]
fn the_rules_of_two_disks_are_two_files() {
    let host = Host::healthy();
    for disk in ["sda", "sdb"] {
        for (file, text) in [
            ("device/model", "disk\n"),
            ("size", "1000000\n"),
            ("dev", if disk == "sda" { "8:0\n" } else { "8:16\n" }),
            ("queue/scheduler", "[none] bfq\n"),
        ] {
            host.files.set(&format!("/sys/block/{disk}/{file}"), text);
        }
    }
    let mounts = format!("{MOUNTS}42 40 8:16 / /b rw - ext4 /dev/sdb rw\n");
    host.files.set("/proc/self/mountinfo", &mounts);
    let report = host.report();
    let findings = &check(&report, "weights-not-enforced").findings;
    let target = |remedy: &Vec<String>| {
        let (_, file) = remedy.last().unwrap().rsplit_once(" > ").unwrap();
        file.to_owned()
    };
    let targets: Vec<_> = findings.iter().map(|found| target(&found.remedy)).collect();
    let rules = ["sda", "sdb"].map(|disk| format!("/etc/udev/rules.d/60-bfq-{disk}.rules"));
    assert_eq!(targets, rules);
}
