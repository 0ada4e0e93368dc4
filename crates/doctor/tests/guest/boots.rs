//! Pitfalls that depend on the kernel's command line. The lab boots a guest for each test here with the
//! parameters that the test names (`lab/tests/root_tests.rs`).
//!
//! The controllers are not enabled in any cgroup on these boots, so they can move to cgroup v1.

use std::fs;

use rustix::mount::{unmount, UnmountFlags};

use super::hog::Job;
use super::scene::{mount, run, Scene, MIB};
use super::table::{self, About, Right, Row};

/// Mount point for hierarchies of cgroup v1.
const V1: &str = "/run/v1";

fn mount_v1(controller: &str) {
    fs::create_dir_all(V1).unwrap();
    run("mount", &["-t", "cgroup", "-o", controller, "none", V1]);
}

fn unmount_v1() {
    unmount(V1, UnmountFlags::empty()).unwrap();
}

/// `psi=0 cgroup_disable=memory`, and a disk of 5 MB/s.
pub(crate) fn poor() -> Vec<Row> {
    vec![
        Row {
            check: "psi-off",
            case: "booted with psi=0",
            build: |_| {},
            seconds: 0,
            about: About::Host,
            evidence: &["the kernel does not count pressure", "psi=1"],
            right: Right::AnotherBoot,
        },
        Row {
            check: "kernel-features",
            case: "booted with cgroup_disable=memory",
            build: |_| {},
            seconds: 0,
            about: About::Host,
            evidence: &["no memory controller"],
            right: Right::AnotherBoot,
        },
        Row {
            check: "dirty-limit-slow-disk",
            case: "the kernel's default over a disk of 5 MB/s",
            build: |scene| {
                let file = scene.file("busy");
                scene.start(&mount(), &Job::Rewrite(32 * MIB, file));
            },
            seconds: 3,
            about: About::DataDisk,
            evidence: &["may be dirty", "MB/s (as measured just now)"],
            right: Right::By(|scene| scene.dirty_bytes(16 * MIB, 8 * MIB)),
        },
        Row {
            check: "cgroup-v1",
            case: "no cgroup file system at all",
            build: |_| unmount(mount(), UnmountFlags::empty()).unwrap(),
            seconds: 0,
            about: About::Host,
            evidence: &["no cgroup file system is mounted"],
            right: Right::By(|_| {
                let at = mount().to_string_lossy().into_owned();
                run(
                    "mount",
                    &["-t", "cgroup2", "-o", "memory_recursiveprot", "none", &at],
                );
            }),
        },
    ]
}

/// A kernel that still has the memory controller of v1.
pub(crate) fn hybrid() -> Vec<Row> {
    vec![
        Row {
            check: "cgroup-v1",
            case: "memory on v1, cgroup2 without it",
            build: |_| mount_v1("memory"),
            seconds: 0,
            about: About::Host,
            evidence: &["the memory controller is on cgroup v1 at /run/v1"],
            right: Right::By(|_| unmount_v1()),
        },
        Row {
            check: "cgroup-v1",
            case: "blkio on v1",
            build: |_| mount_v1("blkio"),
            seconds: 0,
            about: About::Host,
            evidence: &["the blkio controller is on cgroup v1 at /run/v1"],
            right: Right::By(|_| unmount_v1()),
        },
    ]
}

#[test]
#[ignore = "needs a boot of its own"]
fn poor_boot() {
    table::run(poor(), Scene::bare);
}

#[test]
#[ignore = "needs a boot of its own"]
fn hybrid_boot() {
    table::run(hybrid(), Scene::bare);
}
