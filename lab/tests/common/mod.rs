//! Shared by the tests: a guest program in shell, and the machine that runs it.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use justitia_machine::error::Result;
use justitia_machine::kernels::Series;
use justitia_machine::qemu::Clock;
use justitia_machine::vm::{run_guest, GuestOutput, VmSpec};

/// Start of a guest program. `job` prints the job, `report` sends its input as the report, `set_up` prepares
/// the modules, BFQ on the data disk, cgroup2 and a file system on `/data`. `memory_disk` then replaces that
/// by a disk in the guest's own memory, as [`on_its_own_clock`] needs it; `second_disk` then makes another
/// one, below `/run/slow`.
pub(crate) const PROLOGUE: &str = r#"#!/bin/bash
set -o pipefail
give_up() {
    echo "@lab-error $*"
    exit 1
}
disk_of() {
    for disk in /sys/block/nvme*; do
        read -r serial <"$disk/device/serial"
        [ "$serial" = "$1" ] && echo "/dev/${disk##*/}"
    done
}
job_disk=$(disk_of job)
data=$(disk_of data)
job() {
    dd if="$job_disk" iflag=skip_bytes,count_bytes skip=8 status=none \
        count="$(od -An -tu8 -N8 "$job_disk" | tr -d ' ')"
}
at() { dd of="$job_disk" bs="$2" seek="$1" oflag=seek_bytes conv=notrunc,fsync iflag=fullblock status=none; }
report() {
    local length shift
    cat >/run/report
    length=$(stat -c %s /run/report)
    at 1048584 1M </run/report || give_up "cannot write the report"
    for shift in 0 8 16 24 32 40 48 56; do
        printf "\\x$(printf %02x $((length >> shift & 255)))"
    done | at 1048576 8 || give_up "cannot write the report's length"
}
set_up() {
    while read -r module; do
        insmod "/opt/lab/modules/$module" || give_up "no module $module"
    done </opt/lab/modules/order
    mount -t cgroup2 -o memory_recursiveprot none /sys/fs/cgroup || give_up "no cgroup2"
    file_system "$data" /data
}
file_system() { # DEVICE DIRECTORY
    echo bfq >"/sys/block/${1#/dev/}/queue/scheduler" || give_up "no BFQ on $1"
    mke2fs -q -F -t ext4 "$1" && mount "$1" "$2" || give_up "no file system on $1"
}
# As lab/src/guest/memory_disk.rs makes it for experiments, with the same settings. Says which device it is.
null_disk() { # NAME MB MB_PER_S
    local dir=/sys/kernel/config/nullb/$1 there=(/sys/block/nullb*) disk
    mkdir $dir || give_up "null_blk makes no disk"
    null_set $dir size=$2 blocksize=4096 memory_backed=1 power=1
    # Its name changed over time: what was not there before is it.
    for disk in /sys/block/nullb* /sys/block/$1; do
        [[ -e $disk && " ${there[*]} " != *" $disk "* ]] && made=/dev/${disk##*/}
    done
    dd if=/dev/zero of="$made" bs=1M count=$2 oflag=direct status=none || give_up "no disk of memory"
    null_set $dir power=0 mbps=$3 irqmode=2 completion_nsec=100000 hw_queue_depth=64 power=1
    # The driver has a budget for each 20 ms (mb_per_tick); a larger request would never be served.
    if (($3 * 50 < 1280)); then echo $(($3 < 4 ? 16 : 64)) >/sys/block/${made#/dev/}/queue/max_sectors_kb; fi
}
null_set() { # DIRECTORY ATTRIBUTE=VALUE...
    local setting
    for setting in "${@:2}"; do
        echo "${setting#*=}" >"$1/${setting%%=*}" || give_up "null_blk refuses $setting"
    done
}
memory_disk() { # MB MB_PER_S
    mount -t configfs none /sys/kernel/config
    null_disk own "$1" "$2"
    data=$made
    umount /data
    file_system "$data" /data
}
second_disk() { # MB MB_PER_S
    null_disk second "$1" "$2"
    mkdir -p /run/slow
    file_system "$made" /run/slow
}
"#;

/// A guest that counts time by its instructions, two nanoseconds each, with `disk_mb` of additional memory
/// for the disk that `memory_disk` makes. The guest, its load and its disk keep the same relative speed
/// however slow the host is.
pub(crate) fn on_its_own_clock(spec: &mut VmSpec, disk_mb: u64) {
    spec.clock = Clock::Instructions {
        shift: 1,
        jumps: false,
    };
    spec.modules.push("null_blk".into());
    // The driver keeps its pages in a radix tree.
    spec.memory_bytes += (disk_mb + disk_mb / 64) << 20;
}

/// A machine that runs this guest program, with its files below `dir`.
pub(crate) fn machine(series: Series, script: &str, dir: &Path) -> VmSpec {
    let binaries = vec![guest_program(script, dir)];
    VmSpec {
        memory_bytes: 512 << 20,
        data_bytes: 256 << 20,
        modules: vec!["bfq".into()],
        // Because of BPF programs and modules: an emulated guest with several threads then sometimes panics.
        patches_text: true,
        console_log: dir.join("console.log"),
        ..VmSpec::new(series, binaries, Duration::from_secs(120))
    }
}

/// [`machine`] with the kernel and the functions of guests that run an agent, or systemd.
pub(crate) fn host(script: &str, dir: &Path) -> VmSpec {
    let functions = include_str!("host.sh");
    machine(
        Series::V6_12,
        &format!("{PROLOGUE}{functions}{script}"),
        dir,
    )
}

fn guest_program(script: &str, dir: &Path) -> PathBuf {
    let path = dir.join("justitia-lab-guest");
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// The program under test and those that it executes. Cargo builds the latter only for the whole workspace.
pub(crate) fn programs(justitia: &str, siblings: &[&str]) -> Vec<PathBuf> {
    let justitia = PathBuf::from(justitia);
    let mut all: Vec<PathBuf> = siblings
        .iter()
        .map(|name| justitia.with_file_name(name))
        .collect();
    for sibling in &all {
        assert!(
            sibling.is_file(),
            "{} is missing: cargo build --workspace --bins, with this test's --profile",
            sibling.display()
        );
    }
    all.push(justitia);
    all
}

/// Boots it, with progress on standard error.
pub(crate) fn boot(spec: &VmSpec, job: &str) -> Result<GuestOutput> {
    run_guest(spec, job.as_bytes(), &mut |line| eprintln!("{line}"))
}

/// Boots it and takes its report; on failure, prints the console.
pub(crate) fn report_of(spec: &VmSpec, job: &str) -> (GuestOutput, String) {
    let output = boot(spec, job).unwrap_or_else(|error| {
        let log = fs::read_to_string(&spec.console_log).unwrap_or_default();
        panic!("{error}\n{log}")
    });
    let report = String::from_utf8_lossy(&output.report).into_owned();
    (output, report)
}

/// Asserts that the report, which the test has printed, contains the text. Otherwise names the lines that begin like
/// it: `make test` repeats only the first line of a failure.
pub(crate) fn assert_line(report: &str, text: &str) {
    let (subject, _) = text.split_once(':').unwrap_or((text, ""));
    let instead: Vec<_> = report
        .lines()
        .filter(|line| line.starts_with(subject))
        .collect();
    assert!(
        report.contains(text),
        "not there: {text}; instead: {instead:?}"
    );
}

/// The numbers on the report's lines that begin so.
pub(crate) fn numbers(report: &str, begins: &str) -> Vec<f64> {
    let lines = report.lines().filter_map(|line| line.strip_prefix(begins));
    let words = lines.flat_map(str::split_whitespace);
    let number = |word: &str| word.parse().unwrap_or_else(|_| panic!("{begins}{word}"));
    let numbers: Vec<f64> = words.map(number).collect();
    assert!(!numbers.is_empty(), "no line {begins:?} in\n{report}");
    numbers
}

/// The parts of a report by name: each starts with a line `@ NAME`.
pub(crate) fn parts(report: &str) -> BTreeMap<String, String> {
    let report = format!("\n{report}");
    let parts = report.split("\n@ ").skip(1);
    parts
        .map(|part| part.split_once('\n').unwrap_or((part, "")))
        .map(|(name, text)| (name.to_owned(), text.trim_end().to_owned()))
        .collect()
}

/// A guest's output, by name.
pub(crate) struct Said(pub(crate) BTreeMap<String, String>);

/// Boots it; prints its report and returns that by name.
pub(crate) fn said(spec: &VmSpec, job: &str) -> Said {
    let (_, report) = report_of(spec, job);
    println!("{report}");
    Said(parts(&report))
}

impl Said {
    pub(crate) fn text(&self, name: &str) -> &str {
        let found = self.0.get(name);
        found.unwrap_or_else(|| panic!("no {name} among {:?}", self.0.keys()))
    }

    pub(crate) fn json(&self, name: &str) -> serde_json::Value {
        let text = self.text(name);
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{name}: {error}\n{text}"))
    }
}

/// Builds with cargo, without running anything; returns cargo's messages about programs.
pub(crate) fn built(arguments: &[&str]) -> Vec<serde_json::Value> {
    built_by(&mut Command::new(env!("CARGO")), arguments)
}

/// The same with a command that passes its arguments on to cargo.
pub(crate) fn built_by(cargo: &mut Command, arguments: &[&str]) -> Vec<serde_json::Value> {
    let output = cargo
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .args(arguments)
        .args(["--no-run", "--message-format=json", "--quiet"])
        .stderr(Stdio::inherit())
        .output()
        .expect("cargo starts");
    assert!(output.status.success(), "cargo: {}", output.status);
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["executable"].is_string())
        .collect()
}
