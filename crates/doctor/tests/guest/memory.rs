//! Rows of the table: pitfalls of groups' memory.

use rustix::mount::MountFlags;

use super::hog::{cached, dirty, Hog, Job};
use super::scene::{drop_caches, mount, remount, Scene, MIB};
use super::table::{About, Right, Row};

pub(crate) fn rows() -> Vec<Row> {
    let mut rows = reservation();
    rows.extend(protection());
    rows.extend(limits());
    rows.extend(outsiders());
    rows
}

fn reservation() -> Vec<Row> {
    vec![
        Row {
            check: "limits-exceed-memory",
            case: "more than RAM at the top",
            build: |scene| {
                scene.knob("db", "memory.max", 800 * MIB);
                scene.knob("web", "memory.high", 800 * MIB);
            },
            seconds: 0,
            about: About::Host,
            evidence: &["limits sum to 1.6 GiB", "{ram} of memory", "{top} 1.6 GiB"],
            right: Right::By(|scene| {
                scene.knob("db", "memory.max", 150 * MIB);
                scene.knob("web", "memory.high", 150 * MIB);
            }),
        },
        Row {
            check: "limits-exceed-memory",
            case: "more than the parent's limit",
            build: |scene| {
                scene.knob("", "memory.max", 300 * MIB);
                scene.knob("db", "memory.max", 800 * MIB);
                scene.knob("web", "memory.max", 800 * MIB);
            },
            seconds: 0,
            about: About::Group(""),
            evidence: &[
                "533 %",
                "300.0 MiB that {top} may have",
                "{top}/db 800.0 MiB",
            ],
            right: Right::By(|scene| {
                scene.knob("db", "memory.max", 150 * MIB);
                scene.knob("web", "memory.max", 150 * MIB);
            }),
        },
        Row {
            check: "memory-not-reserved",
            case: "a limit as large as the host, nothing protected",
            build: |scene| scene.knob("db", "memory.max", 1024 * MIB),
            seconds: 0,
            about: About::Group("db"),
            evidence: &[
                "limit of 1.0 GiB",
                "nothing of it is protected",
                "are free for",
            ],
            right: Right::By(|scene| {
                scene.knob("", "memory.low", 64 * MIB);
                scene.knob("db", "memory.low", 64 * MIB);
            }),
        },
    ]
}

fn protection() -> Vec<Row> {
    vec![
        Row {
            check: "protection-exceeds-memory",
            case: "nearly all of RAM at the top",
            build: |scene| scene.knob("", "memory.low", 960 * MIB),
            seconds: 0,
            about: About::Host,
            evidence: &[
                "memory.low of the top-level groups sums to 960.0 MiB",
                "of the {ram}",
            ],
            right: Right::By(|scene| scene.knob("", "memory.low", 400 * MIB)),
        },
        Row {
            check: "protection-exceeds-memory",
            case: "children claim more than their parent has",
            build: |scene| {
                scene.knob("", "memory.min", 32 * MIB);
                scene.knob("db", "memory.min", 48 * MIB);
                cached(&scene.group("db"), &scene.file("db"), 64 * MIB);
            },
            seconds: 0,
            about: About::Group(""),
            evidence: &[
                "claim 48.0 MiB of its memory.min of 32.0 MiB, 150 %",
                "{top}/db",
            ],
            right: Right::By(|scene| scene.knob("", "memory.min", 48 * MIB)),
        },
        Row {
            check: "protection-cut-off",
            case: "below a group with none",
            build: |scene| scene.knob("db", "memory.low", 64 * MIB),
            seconds: 0,
            about: About::Group("db"),
            evidence: &["memory.low of 64.0 MiB", "{top} has 0"],
            right: Right::By(|scene| scene.knob("", "memory.low", 64 * MIB)),
        },
        Row {
            check: "recursiveprot-missing",
            case: "mounted without it",
            build: |scene| {
                scene.at_the_end(|| remount(MountFlags::empty(), "memory_recursiveprot"));
                remount(MountFlags::empty(), "");
                scene.knob("", "memory.low", 64 * MIB);
                scene.group("db");
            },
            seconds: 0,
            about: About::Group(""),
            evidence: &["memory.low of 64.0 MiB", "none of its children has any"],
            right: Right::By(|_| remount(MountFlags::empty(), "memory_recursiveprot")),
        },
        Row {
            check: "recursiveprot-unclaimed",
            case: "one child claims a part, the other has the memory",
            build: |scene| {
                scene.knob("", "memory.low", 64 * MIB);
                scene.knob("db", "memory.low", 16 * MIB);
                cached(&scene.group("db"), &scene.file("db"), 24 * MIB);
                cached(&scene.group("web"), &scene.file("web"), 64 * MIB);
            },
            seconds: 0,
            about: About::Group(""),
            evidence: &[
                "48.0 MiB of its memory.low of 64.0 MiB",
                "go by usage to {top}/web ",
            ],
            right: Right::By(|scene| scene.knob("", "memory.low", 16 * MIB)),
        },
    ]
}

/// Lets a process of a group run out of memory.
fn run_out(scene: &Scene, name: &str) {
    Hog::start(&scene.group(name), &Job::Hold(64 * MIB)).wait();
}

fn limits() -> Vec<Row> {
    vec![
        Row {
            check: "limit-too-small",
            case: "a file that does not fit is read over and over",
            build: |scene| {
                scene.knob("db", "memory.max", 64 * MIB);
                cached(
                    scene.root().parent().unwrap(),
                    &scene.file("table"),
                    96 * MIB,
                );
                drop_caches();
                let table = scene.file("table");
                scene.start(&scene.group("db"), &Job::Read(8 * MIB, table));
            },
            seconds: 2,
            about: About::Group("db"),
            evidence: &[
                "hot page cache does not fit",
                "of 64.0 MiB, page cache",
                "pages/s again",
            ],
            right: Right::By(|scene| scene.knob("db", "memory.max", 160 * MIB)),
        },
        Row {
            check: "limit-too-small",
            case: "anonymous memory grows towards it",
            build: |scene| {
                scene.knob("db", "memory.max", 400 * MIB);
                scene.start(&scene.group("db"), &Job::Grow(5 * MIB));
            },
            seconds: 2,
            about: About::Group("db"),
            evidence: &[
                "anonymous memory is",
                "of 400.0 MiB and grows by",
                "fills the limit in",
            ],
            right: Right::By(Scene::calm),
        },
        Row {
            check: "limit-too-small",
            case: "a process was killed",
            build: |scene| {
                // The kernel counts the kill in the parent too, whose limit was not hit.
                scene.knob("", "memory.max", 500 * MIB);
                scene.knob("db", "memory.max", 32 * MIB);
                run_out(scene, "db");
            },
            seconds: 1,
            about: About::Group("db"),
            evidence: &["killed for lack of memory", "limit is 32.0 MiB"],
            // The counter of kills lasts as long as the group.
            right: Right::By(|scene| {
                std::fs::remove_dir(scene.group("db")).unwrap();
                scene.knob("db", "memory.max", 128 * MIB);
            }),
        },
        Row {
            check: "page-cache-starved",
            case: "anonymous memory leaves no room",
            build: |scene| {
                scene.knob("db", "memory.max", 96 * MIB);
                cached(
                    scene.root().parent().unwrap(),
                    &scene.file("table"),
                    32 * MIB,
                );
                drop_caches();
                let table = scene.file("table");
                scene.start(&scene.group("db"), &Job::Read(88 * MIB, table));
            },
            seconds: 2,
            about: About::Group("db"),
            evidence: &[
                "left its page cache no room",
                "of 96.0 MiB",
                "pages/s again",
            ],
            right: Right::By(|scene| scene.knob("db", "memory.max", 160 * MIB)),
        },
    ]
}

fn outsiders() -> Vec<Row> {
    vec![
        Row {
            check: "outside-unbounded",
            case: "a slice without a limit",
            build: |scene| {
                scene.knob("db", "memory.max", 64 * MIB);
                cached(&scene.group("backup"), &scene.file("backup"), 144 * MIB);
            },
            seconds: 0,
            about: About::Group(""),
            evidence: &[
                "it holds ",
                "of page cache outside any limit",
                "most of it is {top}/backup's",
            ],
            right: Right::By(|scene| scene.knob("backup", "memory.high", 48 * MIB)),
        },
        Row {
            check: "outside-unbounded",
            case: "the root group",
            build: |scene| {
                scene.knob("db", "memory.max", 64 * MIB);
                cached(&mount(), &scene.file("backup"), 144 * MIB);
            },
            seconds: 0,
            about: About::Host,
            evidence: &[
                "the root group itself holds",
                "of page cache outside any limit",
            ],
            right: Right::By(|scene| {
                std::fs::remove_file(scene.file("backup")).unwrap();
                scene.knob("backup", "memory.high", 48 * MIB);
                cached(&scene.group("backup"), &scene.file("backup"), 144 * MIB);
            }),
        },
        Row {
            check: "outside-dirtying",
            case: "a slice without a limit",
            build: |scene| {
                scene.knob("db", "memory.max", 64 * MIB);
                scene.dirty_bytes(64 * MIB, 48 * MIB);
                scene.sysctl("dirty_writeback_centisecs", 0);
                dirty(&scene.group("logs"), &scene.file("logs"), 40 * MIB);
            },
            seconds: 1,
            about: About::Group(""),
            evidence: &[
                "it holds ",
                "dirty limit of 64.0 MiB",
                "writing",
                "{top}/logs's",
            ],
            right: Right::By(|scene| scene.knob("logs", "memory.high", 48 * MIB)),
        },
        Row {
            check: "outside-dirtying",
            case: "the root group",
            build: |scene| {
                scene.knob("db", "memory.max", 64 * MIB);
                scene.dirty_bytes(64 * MIB, 48 * MIB);
                scene.sysctl("dirty_writeback_centisecs", 0);
                dirty(&mount(), &scene.file("logs"), 40 * MIB);
            },
            seconds: 0,
            about: About::Host,
            evidence: &["the root group itself holds", "dirty limit of 64.0 MiB"],
            right: Right::By(|_| rustix::fs::sync()),
        },
    ]
}
