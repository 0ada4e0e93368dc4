//! Runs the workspace's tests that need root on a cgroup2 host, in guests with stock kernels: all
//! of them on one kernel, those of BPF programs on every kernel, because these look into the
//! kernel's own types.
//!
//! Which they are is read off the sources: every crate that marks a test with [`MARK`]. They run as
//! their unoptimized test binaries, so that arithmetic is checked, and all of them must have run.
//! Slow, so ignored by default:
//! `cargo test --release -p justitia-lab --test root_tests -- --ignored --nocapture --test-threads=1`.
//! `JUSTITIA_TEST_FILTER` runs only the tests whose names contain it, and does not count them.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use common::{built, machine, report_of, PROLOGUE};
use justitia_lab::kernels::Series;

/// How a test says that it belongs here.
const MARK: &str = "#[ignore = \"needs root on a cgroup2 host";

/// Precedes a program's exit status in the report.
const STATUS: &str = "exit status of ";

/// The packages whose tests run on every kernel.
const EVERYWHERE: [&str; 2] = ["justitia-observe", "justitia-vm"];

/// Slow, and the kernel has little part in it: not run on every kernel.
const ONCE: &str = "a_thousand_groups_that_come_and_go";

/// How often programs are attached and detached under load. One thread of emulation needs some ten
/// seconds for each; `JUSTITIA_TEST_ROUNDS=100` is for an evening.
const ROUNDS: &str = "3";

/// Runs the programs whose names are the job's lines, with what stands behind the name: a filter,
/// and how often to attach and detach. Temporary files go to the data disk: pages of a tmpfs could
/// not be reclaimed. The guest has bash, but nothing under the name of `sh`.
const SCRIPT: &str = r#"
set_up
echo "+memory +io" >/sys/fs/cgroup/cgroup.subtree_control || give_up "no controllers"
mkdir /run/bin && ln -s "$(command -v bash)" /run/bin/sh || give_up "no sh"
export PATH=/run/bin:$PATH TMPDIR=/data JUSTITIA_TEST_CGROUP2=/sys/fs/cgroup RUST_BACKTRACE=1
job | while read -r program rounds filter; do
    echo "@justitia $program" >/dev/console
    export JUSTITIA_TEST_ROUNDS=$rounds
    timeout $((600 + 15 * rounds)) "/opt/justitia/$program" $filter --ignored --test-threads=1 --nocapture 2>&1 </dev/null
    echo "exit status of $program: $?"
done | report
"#;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn contains_mark(path: &Path) -> bool {
    if path.is_dir() {
        let mut entries = fs::read_dir(path).unwrap();
        return entries.any(|entry| contains_mark(&entry.unwrap().path()));
    }
    path.extension().is_some_and(|ending| ending == "rs")
        && fs::read_to_string(path).unwrap().contains(MARK)
}

/// The packages with marked tests. A crate's folder is named like its package.
fn packages() -> BTreeSet<String> {
    fs::read_dir(workspace().join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| contains_mark(&path.join("src")) || contains_mark(&path.join("tests")))
        .map(|path| format!("justitia-{}", path.file_name().unwrap().to_string_lossy()))
        .collect()
}

/// Builds the packages' test binaries and says where they are.
fn build(packages: &BTreeSet<String>) -> Vec<PathBuf> {
    let mut arguments = vec!["test"];
    arguments.extend(packages.iter().flat_map(|name| ["-p", name]));
    built(&arguments)
        .iter()
        .filter(|message| message["profile"]["test"] == true)
        .filter_map(|message| message["executable"].as_str().map(PathBuf::from))
        .collect()
}

/// How many ignored tests a binary has, without those whose name contains `skipped`.
fn ignored_tests(binary: &Path, skipped: Option<&str>) -> usize {
    let output = Command::new(binary)
        .args(["--list", "--ignored", "--format=terse"])
        .output()
        .expect("a test binary starts");
    assert!(output.status.success(), "{}", output.status);
    let list = String::from_utf8(output.stdout).unwrap();
    let tests = list.lines().filter(|line| line.ends_with(": test"));
    tests
        .filter(|line| skipped.is_none_or(|name| !line.contains(name)))
        .count()
}

/// The count in a test binary's last line.
fn passed(line: &str) -> Option<usize> {
    let (count, _) = line
        .strip_prefix("test result: ok. ")?
        .split_once(" passed")?;
    count.parse().ok()
}

/// Runs the marked tests of these packages on a kernel, without those whose name contains `skipped`.
fn run(series: Series, packages: &BTreeSet<String>, skipped: Option<&str>) {
    let count = |binary: &PathBuf| ignored_tests(binary, skipped);
    let mut binaries = build(packages);
    binaries.retain(|binary| count(binary) > 0);
    let expected: usize = binaries.iter().map(count).sum();
    assert!(expected > 0, "no tests in {packages:?}");

    let dir = tempfile::tempdir().unwrap();
    let script = format!("{PROLOGUE}{SCRIPT}");
    let mut spec = machine(series, &script, dir.path());
    spec.memory_bytes = 1 << 30;
    // Files that fill the memory, twice over; sparse.
    spec.data_bytes = 4 << 30;
    spec.patches_text = true;
    spec.binaries.extend(binaries.iter().cloned());
    let names: Vec<_> = binaries
        .iter()
        .map(|path| path.file_name().unwrap().to_string_lossy())
        .collect();
    let filter = std::env::var("JUSTITIA_TEST_FILTER").unwrap_or_default();
    let skip = skipped.map_or(String::new(), |name| format!("--skip {name}"));
    let rounds = std::env::var("JUSTITIA_TEST_ROUNDS").unwrap_or_else(|_| ROUNDS.to_owned());
    let more = rounds
        .parse()
        .map(|rounds: u64| Duration::from_secs(15 * rounds));
    spec.timeout = Duration::from_secs(1200) + more.expect("JUSTITIA_TEST_ROUNDS is a number");
    let job: Vec<String> = names
        .iter()
        .map(|name| format!("{name} {rounds} {filter} {skip}\n"))
        .collect();
    let (output, report) = report_of(&spec, &job.concat());
    println!("{}\n{report}", output.kernel_release);

    for name in names {
        let ended_well = format!("{STATUS}{name}: 0");
        assert!(
            report.lines().any(|line| line == ended_well),
            "{name} failed"
        );
    }
    let ran: usize = report.lines().filter_map(passed).sum();
    if filter.is_empty() {
        assert_eq!(ran, expected, "every test must have run");
    }
}

/// The tests of BPF programs alone, on a kernel on which the others do not run.
fn run_everywhere(series: Series) {
    let chosen: BTreeSet<String> = EVERYWHERE.map(str::to_owned).into();
    let missing: Vec<_> = chosen.difference(&packages()).cloned().collect();
    assert!(missing.is_empty(), "no tests in {missing:?}");
    run(series, &chosen, Some(ONCE));
}

#[test]
#[ignore = "boots a virtual machine"]
fn tests_that_need_root_pass_on_6_12() {
    run(Series::V6_12, &packages(), None);
}

#[test]
#[ignore = "boots a virtual machine"]
fn the_tests_of_bpf_programs_pass_on_6_1() {
    run_everywhere(Series::V6_1);
}

#[test]
#[ignore = "boots a virtual machine"]
fn the_tests_of_bpf_programs_pass_on_7_2() {
    run_everywhere(Series::V7_2);
}
