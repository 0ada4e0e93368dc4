//! Runs the workspace's tests that need root on a cgroup2 host, in guests with stock kernels. All of them run
//! on one kernel. Tests of BPF programs, which access the kernel's own types, and of the doctor, which judges
//! what kernels make of their knobs, run on every kernel. The doctor also has pitfalls that only a boot
//! causes: each such test has a guest of its own.
//!
//! The tests are found in the sources: every crate that marks a test with [`MARK`]. They run as the test binaries
//! of the dev profile, so that arithmetic is checked, and all of them must have run. Slow, so ignored by default:
//! `cargo test -p justitia-lab --test root_tests -- --ignored --nocapture --test-threads=1`.
//! `JUSTITIA_TEST_FILTER` runs only the tests whose names contain it, and does not count them.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use common::{built, built_by, machine, report_of, PROLOGUE};
use justitia_machine::architecture::Architecture;
use justitia_machine::kernels::Series;

/// Marks a test for this runner.
const MARK: &str = "#[ignore = \"needs root on a cgroup2 host";

/// Precedes a program's exit status in the report.
const STATUS: &str = "exit status of ";

/// Packages whose tests run on every kernel.
const EVERYWHERE: [&str; 3] = ["justitia-doctor", "justitia-observe", "justitia-vm"];

/// Packages whose tests run on another processor.
const ON_ARM64: [&str; 3] = ["justitia-agent", "justitia-cgroup", "justitia-observe"];

/// Slow and hardly dependent on the kernel: not run on every kernel.
const ONCE: &str = "a_thousand_groups";

/// The same for a whole program: the policy of the image cache is the same on every kernel, and the programs
/// that count for it are tested on every kernel.
const PROGRAM_ONCE: &str = "keeping-";

/// On 6.1 and 7.2 the SMB server does not find the share that Debian 12's ksmbd-tools names (`BAD_NETWORK_NAME`).
const OF_SMB: &str = "cifs";

/// The package with tests that need a boot of their own, and their module.
const BOOTED_PACKAGE: &str = "justitia-doctor";
const BOOTS: &str = "boots::";

/// Those tests, the kernel, the words on its command line, and the speed of the disk in MB/s.
const BOOTED: [(&str, Series, &[&str], Option<u32>); 2] = [
    (
        "boots::poor_boot",
        Series::V6_12,
        &["psi=0", "cgroup_disable=memory"],
        Some(5),
    ),
    // Debian builds newer kernels without v1's memory controller.
    (
        "boots::hybrid_boot",
        Series::V6_1,
        &["cgroup_no_v1=named"],
        None,
    ),
];

/// Modules that the guests need besides BFQ: another scheduler, mounts of files, file systems without cgroup
/// writeback, an SMB server and its client.
const MODULES: &str = "mq-deadline loop vfat nls_cp437 nls_ascii fuse ksmbd cifs nls_utf8";

/// The programs of the SMB server.
const SERVER: &str = "ksmbd-tools";

/// Number of times that programs are attached and detached under load. One thread of emulation needs some ten
/// seconds for each; `JUSTITIA_TEST_ROUNDS=100` takes an evening.
const ROUNDS: &str = "1";

/// Precedes [`SCRIPT`] where cgroup2 is to have the controllers, and the SMB client a server.
const CONTROLLERS: &str = r#"
busybox ip link set lo up || give_up "no loopback interface"
mount -t tmpfs none /etc/ksmbd || give_up "no directory of the SMB server"
echo "+memory +io" >/sys/fs/cgroup/cgroup.subtree_control || give_up "no controllers"
"#;

/// Runs the programs named by the job's lines, with the arguments after the name: a filter, and the number of
/// attach and detach rounds. Temporary files go to the data disk, because pages of a tmpfs could not be
/// reclaimed. The guest has bash, but no program named `sh`.
const SCRIPT: &str = r#"
mkdir /run/bin && ln -s "$(command -v bash)" /run/bin/sh || give_up "no sh"
export PATH=/run/bin:$PATH TMPDIR=/data JUSTITIA_TEST_CGROUP2=/sys/fs/cgroup RUST_BACKTRACE=1
export JUSTITIA_TEST_PROGRESS=/dev/console
job | while read -r program rounds filter; do
    echo "@lab $program" >/dev/console
    export JUSTITIA_TEST_ROUNDS=$rounds
    timeout $((600 + 15 * rounds)) "/opt/lab/$program" $filter --ignored --test-threads=1 --nocapture 2>&1 </dev/null
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

/// The package in this folder; folders and packages have the same names.
fn package_in(folder: &Path) -> String {
    format!(
        "justitia-{}",
        folder.file_name().unwrap_or_default().to_string_lossy()
    )
}

/// The packages with marked tests.
fn packages() -> BTreeSet<String> {
    fs::read_dir(workspace().join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| contains_mark(&path.join("src")) || contains_mark(&path.join("tests")))
        .map(|path| package_in(&path))
        .collect()
}

/// Paths of the packages' test binaries. The whole workspace is built, because for some packages alone the
/// dependencies would have fewer features and be compiled again.
fn build(packages: &BTreeSet<String>) -> Vec<PathBuf> {
    test_binaries(packages, &built(&["test", "--workspace"]))
}

fn test_binaries(packages: &BTreeSet<String>, messages: &[serde_json::Value]) -> Vec<PathBuf> {
    messages
        .iter()
        .filter(|message| message["profile"]["test"] == true)
        .filter(|message| {
            let manifest = message["manifest_path"].as_str().map(Path::new);
            let folder = manifest.and_then(Path::parent);
            folder.is_some_and(|folder| packages.contains(&package_in(folder)))
        })
        .filter_map(|message| message["executable"].as_str().map(PathBuf::from))
        .collect()
}

/// The name of a test program without its build hash.
fn stem(binary: &Path) -> String {
    let name = binary.file_name().unwrap_or_default().to_string_lossy();
    name.rsplit_once('-')
        .map_or_else(|| name.to_string(), |(stem, _)| stem.to_owned())
}

/// The ignored tests of a binary whose names contain no word of `skipped`.
fn ignored_tests(binary: &Path, skipped: &[&str]) -> Vec<String> {
    let output = Command::new(binary)
        .args(["--list", "--ignored", "--format=terse"])
        .output()
        .expect("a test binary starts");
    assert!(output.status.success(), "{}", output.status);
    let list = String::from_utf8(output.stdout).unwrap();
    let names = list.lines().filter_map(|line| line.strip_suffix(": test"));
    names
        .filter(|name| !skipped.iter().any(|word| name.contains(word)))
        .map(str::to_owned)
        .collect()
}

/// The count in a test binary's last line.
fn passed(line: &str) -> Option<usize> {
    let (count, _) = line
        .strip_prefix("test result: ok. ")?
        .split_once(" passed")?;
    count.parse().ok()
}

/// The programs to run, and the guest that runs them.
struct Run<'a> {
    architecture: Architecture,
    series: Series,
    binaries: Vec<PathBuf>,
    /// Number of tests; `None` if the caller's filter decides.
    expected: Option<usize>,
    /// For the test programs: which tests.
    arguments: String,
    /// Preparation in the guest.
    preparation: &'a str,
    cmdline: &'a [&'a str],
    disk_mbps: Option<u32>,
}

impl Run<'_> {
    /// Boots and runs. Every program must succeed, and every test must have run.
    fn go(&self) {
        let dir = tempfile::tempdir().unwrap();
        // For the doctor's table.
        let row = std::env::var("JUSTITIA_TEST_ROW").unwrap_or_default();
        let row = format!("export JUSTITIA_TEST_ROW='{row}'\n");
        let script = format!("{PROLOGUE}\nset_up\n{}{row}{SCRIPT}", self.preparation);
        let mut spec = machine(self.series, &script, dir.path());
        spec.architecture = self.architecture;
        spec.memory_bytes = 1 << 30;
        // Room for files of twice the memory size; sparse.
        spec.data_bytes = 4 << 30;
        spec.disk_mbps = self.disk_mbps;
        spec.patches_text = true;
        spec.cmdline = self.cmdline.iter().map(|word| (*word).to_owned()).collect();
        spec.modules.extend(MODULES.split(' ').map(str::to_owned));
        spec.extra_packages.push(SERVER.to_owned());
        spec.binaries.extend(self.binaries.iter().cloned());
        let names: Vec<_> = self
            .binaries
            .iter()
            .map(|path| path.file_name().unwrap().to_string_lossy())
            .collect();
        let rounds = std::env::var("JUSTITIA_TEST_ROUNDS").unwrap_or_else(|_| ROUNDS.to_owned());
        let more = rounds
            .parse()
            .map(|rounds: u64| Duration::from_secs(15 * rounds));
        spec.timeout = Duration::from_secs(1800) + more.expect("JUSTITIA_TEST_ROUNDS is a number");
        let job: Vec<String> = names
            .iter()
            .map(|name| format!("{name} {rounds} {}\n", self.arguments))
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
        if let Some(expected) = self.expected {
            let ran: usize = report.lines().filter_map(passed).sum();
            assert_eq!(ran, expected, "every test must have run");
        }
    }
}

/// Runs the marked tests of these packages on a kernel, except those whose names contain a word of `skipped`.
fn run(series: Series, packages: &BTreeSet<String>, skipped: &[&str]) {
    let count = |binary: &PathBuf| ignored_tests(binary, skipped).len();
    let mut binaries = build(packages);
    let once = |binary: &PathBuf| {
        let name = binary.file_name().unwrap_or_default().to_string_lossy();
        skipped.contains(&ONCE) && name.starts_with(PROGRAM_ONCE)
    };
    binaries.retain(|binary| count(binary) > 0 && !once(binary));
    let expected: usize = binaries.iter().map(count).sum();
    assert!(expected > 0, "no tests in {packages:?}");
    let filter = std::env::var("JUSTITIA_TEST_FILTER").unwrap_or_default();
    let skip: Vec<String> = skipped
        .iter()
        .map(|word| format!("--skip {word}"))
        .collect();
    Run {
        architecture: Architecture::Amd64,
        series,
        binaries,
        expected: filter.is_empty().then_some(expected),
        arguments: format!("{filter} {}", skip.join(" ")),
        preparation: CONTROLLERS,
        cmdline: &[],
        disk_mbps: None,
    }
    .go();
}

/// Runs the tests of the packages in [`EVERYWHERE`] on a kernel on which the others do not run.
fn run_everywhere(series: Series) {
    let everywhere = BTreeSet::from(EVERYWHERE.map(str::to_owned));
    let missing: Vec<_> = everywhere.difference(&packages()).cloned().collect();
    assert!(missing.is_empty(), "no tests in {missing:?}");
    run(series, &everywhere, &[BOOTS, ONCE, OF_SMB]);
}

#[test]
#[ignore = "boots a virtual machine"]
fn tests_that_need_root_pass_on_6_12() {
    run(Series::V6_12, &packages(), &[BOOTS]);
}

#[test]
#[ignore = "boots a virtual machine"]
fn the_tests_for_every_kernel_pass_on_6_1() {
    run_everywhere(Series::V6_1);
}

#[test]
#[ignore = "boots a virtual machine"]
fn the_tests_for_every_kernel_pass_on_7_2() {
    run_everywhere(Series::V7_2);
}

/// The tests of the agent and of the observer's counting, built by `scripts/arm64`. Programs for another
/// processor do not run here, so the number of tests comes from this machine's own.
#[test]
#[ignore = "builds for another processor and boots it"]
fn tests_that_need_root_pass_on_arm64() {
    let packages = BTreeSet::from(ON_ARM64.map(str::to_owned));
    let here = build(&packages).into_iter();
    let counts = here.map(|binary| (stem(&binary), ignored_tests(&binary, &[]).len()));
    let counts: BTreeMap<String, usize> = counts.filter(|(_, count)| *count > 0).collect();
    let mut arguments = vec!["cargo", "test"];
    for package in &ON_ARM64 {
        arguments.extend(["--package", package]);
    }
    let mut cargo = Command::new(workspace().join("scripts/arm64"));
    let mut binaries = test_binaries(&packages, &built_by(&mut cargo, &arguments));
    binaries.retain(|binary| counts.contains_key(&stem(binary)));
    let filter = std::env::var("JUSTITIA_TEST_FILTER").unwrap_or_default();
    Run {
        architecture: Architecture::Arm64,
        series: Series::V6_12,
        binaries,
        expected: filter.is_empty().then(|| counts.values().sum()),
        arguments: filter,
        preparation: CONTROLLERS,
        cmdline: &[],
        disk_mbps: None,
    }
    .go();
}

#[test]
#[ignore = "boots virtual machines"]
fn pitfalls_that_only_a_boot_brings_are_found() {
    let mut binaries = build(&BTreeSet::from([BOOTED_PACKAGE.to_owned()]));
    let of_boots = |binary: &PathBuf| {
        let mut names = ignored_tests(binary, &[]);
        names.retain(|name| name.starts_with(BOOTS));
        names
    };
    binaries.retain(|binary| !of_boots(binary).is_empty());
    let there: BTreeSet<String> = binaries.iter().flat_map(of_boots).collect();
    let booted: BTreeSet<String> = BOOTED.map(|(name, ..)| name.to_owned()).into();
    assert_eq!(there, booted, "each has a boot");
    for (name, series, cmdline, disk_mbps) in BOOTED {
        Run {
            architecture: Architecture::Amd64,
            series,
            binaries: binaries.clone(),
            expected: Some(1),
            arguments: format!("--exact {name}"),
            preparation: "",
            cmdline,
            disk_mbps,
        }
        .go();
    }
}
