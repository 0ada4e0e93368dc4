//! The programs of `justitia lab waits` run on each kernel and account for all time. The tests profile a
//! group of a few shells that write and sleep, for some seconds.
//!
//! Slow, so ignored by default:
//! `cargo test -p justitia-lab --test waits -- --ignored --nocapture --test-threads=1`.

mod common;

use std::fs;
use std::time::Duration;

use common::{machine, report_of, PROLOGUE};
use justitia_lab::protocol::{Doing, Place, WaitProfile};
use justitia_machine::kernels::Series;

/// Name of the program under test; the script takes its usual name.
const TRACER: &str = "tracer";

/// Tasks of the group: some that each rewrite a file, and one that sleeps.
const SCRIPT: &str = r#"
set_up
mkdir -p /sys/fs/cgroup/app/load || give_up "no cgroup"
for ((n = 0; n < 4; n++)); do
    (
        echo "$BASHPID" >/sys/fs/cgroup/app/load/cgroup.procs
        while :; do
            for ((i = 0; i < 500; i++)); do echo "$i"; done >/data/$n
            read -r -t 0.01 <> <(:)
        done
    ) </dev/null >/dev/null 2>&1 &
done
sleep 1
echo "@lab looking" >/dev/console
/opt/lab/tracer waits /sys/fs/cgroup/app 4 2>/run/errors | report || give_up "$(cat /run/errors)"
"#;

fn look(series: Series) {
    let dir = tempfile::tempdir().unwrap();
    let script = format!("{PROLOGUE}{SCRIPT}");
    let mut spec = machine(series, &script, dir.path());
    let tracer = dir.path().join(TRACER);
    fs::copy(env!("CARGO_BIN_EXE_justitia-lab-guest"), &tracer).unwrap();
    spec.binaries.push(tracer);
    // Programs are attached while a load runs.
    spec.timeout = Duration::from_secs(900);
    let (output, report) = report_of(&spec, "");
    let seen: WaitProfile = serde_json::from_str(&report)
        .unwrap_or_else(|error| panic!("{}: {error}: {report}", output.kernel_release));

    assert_eq!(seen.no_spinning, None, "{}", output.kernel_release);
    assert_eq!(seen.lost, 0);
    assert!(seen.tasks >= 4, "{} tasks", seen.tasks);
    let spent = |doing| -> f64 {
        let places = seen.places.iter().filter(|place| place.doing == doing);
        places.map(|place| place.ns as f64 / 1e9).sum()
    };
    let window = seen.seconds * seen.tasks as f64;
    let accounted = spent(Doing::Running) + spent(Doing::Runnable) + spent(Doing::Blocked);
    println!("{}: {accounted:.2} of {window:.2} s", output.kernel_release);
    // Tasks that come and go exist for a part of the window only.
    assert!(accounted <= window * 1.001);
    assert!(accounted > seen.seconds * 4.0 * 0.95);
    assert!(spent(Doing::Running) > 0.0 && spent(Doing::Runnable) > 0.0);
    let named = |place: &Place| {
        place.doing == Doing::Blocked && place.frames.iter().any(|f| f.contains("schedule"))
    };
    assert!(seen.places.iter().any(named), "no stacks: {report}");
}

#[test]
#[ignore = "boots a virtual machine"]
fn the_times_of_a_groups_tasks_add_up_to_the_window_on_6_1() {
    look(Series::V6_1);
}

#[test]
#[ignore = "boots a virtual machine"]
fn the_times_of_a_groups_tasks_add_up_to_the_window_on_6_12() {
    look(Series::V6_12);
}

#[test]
#[ignore = "boots a virtual machine"]
fn the_times_of_a_groups_tasks_add_up_to_the_window_on_7_2() {
    look(Series::V7_2);
}
