//! Tests beside the table: no finding on a guest without pitfalls, none for the wrong group, and a thousand
//! groups.

use std::fs;
use std::path::PathBuf;

use justitia_doctor::Verdict;

use super::hog::{Hog, Job};
use super::scene::{set, Scene, MIB};
use super::table::check;

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn a_guest_built_right_has_no_finding() {
    let scene = Scene::new();
    scene.knob("", "memory.low", 96 * MIB);
    scene.knob("", "memory.high", 400 * MIB);
    for name in ["db", "web"] {
        scene.knob(name, "memory.max", 200 * MIB);
        scene.knob(name, "memory.low", 48 * MIB);
        set(scene.group(name).join("io.weight"), "default 400");
        set(scene.group(name).join("io.bfq.weight"), "400");
    }
    let report = scene.diagnose(1);
    for check in &report.checks {
        assert_eq!(check.verdict, Verdict::Fine, "{check:#?}");
    }
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn a_kill_is_reported_only_for_the_group_whose_limit_was_hit() {
    let scene = Scene::new();
    scene.knob("", "memory.max", 500 * MIB);
    scene.knob("db", "memory.max", 32 * MIB);
    Hog::start(&scene.group("db"), &Job::Hold(64 * MIB)).wait();
    let events = fs::read_to_string(scene.root().join("memory.events")).unwrap();
    assert!(
        !events.contains("oom_kill 0"),
        "the kernel counts it above: {events}"
    );
    let report = scene.diagnose(1);
    let subjects = check(&report, "limit-too-small").findings.iter();
    let subjects: Vec<_> = subjects.map(|finding| finding.subject.clone()).collect();
    assert_eq!(subjects, [scene.subject("db")]);
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn a_thousand_groups_are_all_looked_at() {
    let scene = Scene::new();
    let groups: Vec<PathBuf> = (0..1000).map(|at| scene.group(&format!("g{at}"))).collect();
    let report = scene.diagnose(0);
    for group in groups {
        fs::remove_dir(group).unwrap();
    }
    assert!(report.host.groups_total > 1000);
}
