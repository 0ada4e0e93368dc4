//! The cost of Justitia in instructions: its benchmarks in a guest whose clock counts them (two nanoseconds
//! each), so that neither the emulation nor the host's other work has an effect.
//!
//! For inspection: it asserts only that they ran. Not part of `make test`:
//! `cargo test --release -p justitia-lab --test costs -- --ignored --nocapture`.

mod common;

use std::path::PathBuf;
use std::time::Duration;

use common::{built, machine, report_of, PROLOGUE};
use justitia_machine::kernels::Series;
use justitia_machine::qemu::Clock;

const SCRIPT: &str = r#"
set_up
export TMPDIR=/data
ulimit -n 65536
echo "+memory +io" >/sys/fs/cgroup/cgroup.subtree_control || give_up "no controllers"
job | while read -r program arguments; do
    echo "@lab $program $arguments" >/dev/console
    /opt/lab/"$program" $arguments || give_up "the benchmark failed"
done | report
"#;

/// Runs `justitia doctor` over as many cgroups as each line of the job says, each with a process and a little
/// page cache, and prints the time (bash counts in milliseconds). Then runs the agent, with and without BPF,
/// for a minute, and prints its memory.
const PROGRAM: &str = r#"
set_up
export TMPDIR=/data HOME=/run TIMEFORMAT='%R s elapsed, %U s user, %S s system'
mkdir -p /run/justitia
cd /sys/fs/cgroup || give_up "no cgroups"
echo "+memory +io +pids" >cgroup.subtree_control || give_up "no controllers"
job | while read -r groups; do
    echo "@lab doctor over $groups" >/dev/console
    for ((n = 0; n < groups; n++)); do
        [ -d "g$n" ] && continue
        mkdir "g$n" || give_up "no cgroup"
        (
            echo "$BASHPID" >"g$n/cgroup.procs"
            echo "$n" >"/data/$n"
            exec sleep 100000 </dev/null >/dev/null 2>&1
        ) &
    done
    sleep 2
    for seconds in 0 1; do
        { time /opt/lab/justitia doctor --json --seconds $seconds >/run/report.json 2>/run/errors; } 2>/run/time
        echo "$groups groups, --seconds $seconds: $(cat /run/time); $(grep -c '"verdict"' /run/report.json) verdicts"
    done
    for observer in proc bpf; do
        /opt/lab/justitia run --manage '/g*' --observer $observer --listen off >/run/log 2>&1 &
        agent=$!
        sleep 60
        echo "$groups groups, agent with $observer: $(grep -E 'VmHWM|VmRSS' /proc/$agent/status | tr -s '\t\n ' ' ')"
        kill $agent
        wait $agent || echo "the agent: $? $(tail -n 3 /run/log)"
    done
done | report
"#;

/// Builds a benchmark and returns its path.
fn benchmark(package: &str, name: &str) -> PathBuf {
    built(&["bench", "-p", package, "--bench", name])
        .iter()
        .filter(|message| message["target"]["name"] == name)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .expect("an executable")
}

/// Runs a benchmark once with each of these arguments; returns its output.
fn count(package: &str, name: &str, arguments: &[&str]) -> String {
    let program = benchmark(package, name);
    let file = program.file_name().unwrap().to_string_lossy().into_owned();
    let lines: Vec<String> = arguments.iter().map(|a| format!("{file} {a}\n")).collect();
    counted(SCRIPT, program, &lines.concat())
}

/// Runs a script, with a program beside it, in the guest that counts instructions.
fn counted(script: &str, program: PathBuf, job: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let mut spec = machine(Series::V6_12, &format!("{PROLOGUE}{script}"), dir.path());
    spec.binaries.push(program);
    spec.memory_bytes = 2 << 30;
    spec.data_bytes = 1 << 30;
    spec.clock = Clock::Instructions {
        shift: 1,
        jumps: false,
    };
    spec.timeout = Duration::from_secs(1800);
    let (output, report) = report_of(&spec, job);
    println!("{}\n{report}", output.kernel_release);
    report
}

/// One group in ten is busy. Its processes are the benchmark itself.
#[test]
#[ignore = "boots a virtual machine; takes some minutes"]
fn the_cost_of_a_tick_over_real_cgroups() {
    let report = count(
        "justitia-agent",
        "tick",
        &["--real 10", "--real 100", "--real 1000"],
    );
    assert!(report.contains("\n   1000 "), "{report}");
}

#[test]
#[ignore = "boots a virtual machine; takes a minute"]
fn the_cost_of_an_observed_read() {
    let report = count("justitia-observe", "read", &[""]);
    assert!(report.contains("\nthe observer "), "{report}");
}

#[test]
#[ignore = "boots a virtual machine; takes some minutes"]
fn the_cost_of_the_program() {
    let program = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target/release/justitia");
    assert!(program.exists(), "cargo build --release comes first");
    let report = counted(PROGRAM, program, "10\n100\n1000\n");
    assert!(report.contains("1000 groups, --seconds 1: "), "{report}");
}
