//! What a tick of the agent costs over real cgroups, in instructions: the agent's benchmark in a
//! guest whose clock counts them (two nanoseconds each), so that neither the emulation nor the
//! host's other work shows.
//!
//! Looks and judges only that it ran; not part of `make test`:
//! `cargo test --release -p justitia-lab --test tick_cost -- --ignored --nocapture`.

mod common;

use std::path::PathBuf;
use std::time::Duration;

use common::{built, machine, report_of, PROLOGUE};
use justitia_lab::kernels::Series;

/// One group in ten is busy. Its processes are the benchmark itself, which needs a name that does
/// not change.
const SCRIPT: &str = r#"
set_up
export TMPDIR=/data
ulimit -n 65536
for groups in 10 100 1000; do
    echo "@justitia $groups groups" >/dev/console
    /opt/justitia/"$(job)" --real $groups || give_up "the benchmark failed"
done | report
"#;

/// Builds the benchmark and says where it is.
fn benchmark() -> PathBuf {
    built(&["bench", "-p", "justitia-agent", "--bench", "tick"])
        .iter()
        .filter(|message| message["target"]["name"] == "tick")
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .expect("an executable")
}

#[test]
#[ignore = "boots a virtual machine; takes some minutes"]
fn what_a_tick_over_real_cgroups_costs() {
    let dir = tempfile::tempdir().unwrap();
    let program = benchmark();
    let name = program.file_name().unwrap().to_string_lossy().into_owned();
    let mut spec = machine(Series::V6_12, &format!("{PROLOGUE}{SCRIPT}"), dir.path());
    spec.binaries.push(program);
    spec.memory_bytes = 2 << 30;
    spec.data_bytes = 1 << 30;
    spec.counts_instructions = true;
    spec.timeout = Duration::from_secs(1800);
    let (output, report) = report_of(&spec, &name);
    println!("{}\n{report}", output.kernel_release);
    assert!(report.contains("\n   1000 "), "{report}");
}
