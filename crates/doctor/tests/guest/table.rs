//! The table: for every check, ways to build its pitfall, the expected evidence, and the repair.
//!
//! `JUSTITIA_TEST_FILTER=table::` runs only this. `JUSTITIA_TEST_ROW=WORDS` runs only the rows whose check or
//! case contains these words; `|` separates alternatives.

use std::collections::BTreeSet;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::time::{Duration, Instant};

use justitia_doctor::{CheckReport, Report, Subject, Verdict, CHECKS};

use super::scene::{data_disk, Scene};
use super::{boots, memory, rest};

/// Longer than any step takes on a loaded machine under emulation.
const PATIENCE: Duration = Duration::from_secs(60);

/// The subject of a pitfall.
#[derive(Clone, Copy)]
pub(crate) enum About {
    Host,
    /// A group below the scene's topmost one; the topmost one itself if empty.
    Group(&'static str),
    DataDisk,
    /// The file system mounted at the path the scene noted.
    Mount,
}

/// The repair of a pitfall.
#[derive(Clone, Copy)]
pub(crate) enum Right {
    By(fn(&mut Scene)),
    /// Only another boot repairs it. On the usual boot the check must find nothing.
    AnotherBoot,
}

/// A pitfall and its repair.
pub(crate) struct Row {
    pub(crate) check: &'static str,
    pub(crate) case: &'static str,
    /// Builds the pitfall, or sets [`Scene::impossible`].
    pub(crate) build: fn(&mut Scene),
    /// Time between the two reads.
    pub(crate) seconds: u64,
    pub(crate) about: About,
    /// Words that the evidence contains. `{top}` is the path of the scene's groups, `{ram}` the host's
    /// memory.
    pub(crate) evidence: &'static [&'static str],
    pub(crate) right: Right,
}

/// Cases that no stock kernel in a guest can reproduce, with the reason. Their checks have other rows, and
/// the fake host (`src/tests/`) covers these cases.
const NOT_HERE: [(&str, &str, &str); 5] = [
    (
        "kernel-features",
        "no BTF",
        "Debian builds all of its kernels with it",
    ),
    (
        "kernel-features",
        "no memory.reclaim, no workingset_refault_file",
        "the oldest kernel here is 6.1; they came with 5.19 and 5.9",
    ),
    (
        "swappiness-extreme",
        "silent above 100 with zram",
        "6.1's zram needs a compressor that only a loader of modules brings",
    ),
    (
        "dirty-limit-slow-disk",
        "a disk that spins, not measured",
        "at 100 MB/s it takes more memory than a guest has; measured instead",
    ),
    (
        "writeback-not-charged",
        "ZFS, NFS, FUSE",
        "no server and no such module in the guest; FAT and data=journal instead",
    ),
];

/// The rows of all boots.
fn all() -> impl Iterator<Item = Row> {
    usual().chain(boots::poor()).chain(boots::hybrid())
}

/// The rows of the usual boot.
fn usual() -> impl Iterator<Item = Row> {
    memory::rows().into_iter().chain(rest::rows())
}

#[test]
fn every_check_has_a_row_and_every_row_a_check() {
    let known: BTreeSet<&str> = CHECKS.iter().map(|check| check.id).collect();
    let provoked: BTreeSet<&str> = all().map(|row| row.check).collect();
    assert_eq!(known, provoked);
    for (check, ..) in NOT_HERE {
        assert!(known.contains(check), "{check}");
    }
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn every_check_finds_its_pitfall_and_is_silent_when_that_is_put_right() {
    run(usual(), Scene::new);
    for row in boots::poor().into_iter().chain(boots::hybrid()) {
        println!("in a boot of its own: {}: {}", row.check, row.case);
    }
    println!("not provoked in any guest: {}", NOT_HERE.len());
    for (check, case, reason) in NOT_HERE {
        println!("  {check}: {case}: {reason}");
    }
}

/// Runs all rows, each on its own scene, even if one fails.
pub(crate) fn run(rows: impl IntoIterator<Item = Row>, scene: fn() -> Scene) {
    let only = std::env::var("JUSTITIA_TEST_ROW").unwrap_or_default();
    let mut failed = Vec::new();
    let (mut passed, mut impossible) = (0, 0);
    for row in rows {
        let name = format!("{}: {}", row.check, row.case);
        if !only.split('|').any(|words| name.contains(words)) {
            continue;
        }
        // The lab follows progress in this file.
        if let Some(follow) = std::env::var_os("JUSTITIA_TEST_PROGRESS") {
            let _ = std::fs::write(follow, format!("@lab {name}\n"));
        }
        let begin = Instant::now();
        let ended = catch_unwind(AssertUnwindSafe(|| step_through(&row, scene())));
        let took = begin.elapsed().as_secs_f64();
        match ended {
            Ok(Ok(said)) => {
                println!("ok {took:.1} s, {name}\n   {said}");
                passed += 1;
            }
            Ok(Err(reason)) => {
                println!("not on this kernel: {name}: {reason}");
                impossible += 1;
            }
            Err(_) => failed.push(name),
        }
    }
    let failures = failed.len();
    println!("rows: {passed} passed, {impossible} not on this kernel, {failures} failed");
    assert!(failed.is_empty(), "failed: {failed:#?}");
    assert!(passed > 0 || !only.is_empty(), "no row was run");
}

/// Builds the pitfall, waits for the finding, repairs it, and waits until the finding is gone. Returns the
/// evidence. An error is the reason why the kernel cannot have the pitfall.
fn step_through(row: &Row, mut scene: Scene) -> Result<String, String> {
    (row.build)(&mut scene);
    if let Some(reason) = scene.impossible.take() {
        return Err(reason);
    }
    let about = match row.about {
        About::Host => Subject::Host,
        About::Group(name) => scene.subject(name),
        About::DataDisk => Subject::Disk(data_disk()),
        About::Mount => Subject::Mount(scene.note.clone()),
    };
    let words: Vec<String> = row
        .evidence
        .iter()
        .map(|words| match words {
            _ if words.contains("{top}") => words.replace("{top}", &scene.path("")),
            _ if words.contains("{ram}") => words.replace("{ram}", &scene.memory()),
            words => (*words).to_owned(),
        })
        .collect();
    let said = until(&scene, row.seconds, row.check, |check| {
        let mut findings = check.findings.iter();
        findings
            .find(|finding| {
                finding.subject == about
                    && words.iter().all(|words| finding.evidence.contains(words))
                    && !finding.remedy.is_empty()
            })
            .map(|finding| finding.evidence.clone())
    });
    let said = said.unwrap_or_else(|check| panic!("no {words:?} of {about:?}: {check:#?}"));
    if let Right::By(right) = row.right {
        right(&mut scene);
        let silent = until(&scene, row.seconds, row.check, |check| {
            (check.verdict == Verdict::Fine).then_some(())
        });
        silent.unwrap_or_else(|check| panic!("not silent: {check:#?}"));
    }
    Ok(said)
}

/// Runs the doctor until a check's report satisfies the condition. An error is the last report.
fn until<T>(
    scene: &Scene,
    seconds: u64,
    id: &str,
    wanted: impl Fn(&CheckReport) -> Option<T>,
) -> Result<T, Box<CheckReport>> {
    let begin = Instant::now();
    loop {
        let report = scene.diagnose(seconds);
        let check = check(&report, id);
        if let Some(found) = wanted(check) {
            return Ok(found);
        }
        if begin.elapsed() > PATIENCE {
            return Err(Box::new(check.clone()));
        }
        std::thread::sleep(Duration::from_millis(300));
    }
}

pub(crate) fn check<'a>(report: &'a Report, id: &str) -> &'a CheckReport {
    report.checks.iter().find(|check| check.id == id).unwrap()
}
