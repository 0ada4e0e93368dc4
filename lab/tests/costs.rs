//! What Justitia costs, in instructions: its benchmarks in a guest whose clock counts them (two
//! nanoseconds each), so that neither the emulation nor the host's other work shows.
//!
//! Look and judge only that they ran; not part of `make test`:
//! `cargo test --release -p justitia-lab --test costs -- --ignored --nocapture`.

mod common;

use std::path::PathBuf;
use std::time::Duration;

use common::{built, machine, report_of, PROLOGUE};
use justitia_lab::kernels::Series;

/// Runs the job's command line.
const SCRIPT: &str = r#"
set_up
export TMPDIR=/data
ulimit -n 65536
echo "+memory +io" >/sys/fs/cgroup/cgroup.subtree_control || give_up "no controllers"
job | while read -r program arguments; do
    echo "@justitia $program $arguments" >/dev/console
    /opt/justitia/"$program" $arguments || give_up "the benchmark failed"
done | report
"#;

/// Builds a benchmark and says where it is.
fn benchmark(package: &str, name: &str) -> PathBuf {
    built(&["bench", "-p", package, "--bench", name])
        .iter()
        .filter(|message| message["target"]["name"] == name)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .expect("an executable")
}

/// Runs a benchmark once with each of these arguments; returns what it printed.
fn count(package: &str, name: &str, arguments: &[&str]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let program = benchmark(package, name);
    let file = program.file_name().unwrap().to_string_lossy().into_owned();
    let mut spec = machine(Series::V6_12, &format!("{PROLOGUE}{SCRIPT}"), dir.path());
    spec.binaries.push(program);
    spec.memory_bytes = 2 << 30;
    spec.data_bytes = 1 << 30;
    spec.counts_instructions = true;
    spec.timeout = Duration::from_secs(1800);
    let lines: Vec<String> = arguments.iter().map(|a| format!("{file} {a}\n")).collect();
    let (output, report) = report_of(&spec, &lines.concat());
    println!("{}\n{report}", output.kernel_release);
    report
}

/// One group in ten is busy. Its processes are the benchmark itself.
#[test]
#[ignore = "boots a virtual machine; takes some minutes"]
fn what_a_tick_over_real_cgroups_costs() {
    let report = count(
        "justitia-agent",
        "tick",
        &["--real 10", "--real 100", "--real 1000"],
    );
    assert!(report.contains("\n   1000 "), "{report}");
}

#[test]
#[ignore = "boots a virtual machine; takes a minute"]
fn what_being_observed_costs_a_read() {
    let report = count("justitia-observe", "read", &[""]);
    assert!(report.contains("\nthe observer "), "{report}");
}
