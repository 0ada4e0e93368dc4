//! Tests an agent on a host with two disks, on a stock kernel: a writer alone on a fast disk, and two of different
//! weights on a slow one. One boot, ignored by default; `scripts/test --long` runs it:
//! `cargo test -p justitia-cli --test several_disks -- --ignored --nocapture`.

#[path = "../../../lab/tests/common/mod.rs"]
mod common;

use std::time::Duration;

use common::{host, numbers, on_its_own_clock, programs, report_of};

const SCRIPT: &str = r#"
# Bytes that each group wrote to any disk in 20 s, in the order of the groups.
written() { cat $cgroups/app/$1/io.stat | grep -o 'wbytes=[0-9]*' | awk -F= '{ sum += $2 } END { printf "%.0f", sum }'; } # GROUP
rates() { # NAME
    local group before after=()
    before=($(for group in alone heavy light; do written $group; echo; done))
    sleep 20
    for group in alone heavy light; do
        after+=($(($(written $group) - before[${#after[@]}])))
    done
    echo "$1: ${after[*]}"
}

set_up
memory_disk 384 100
second_disk 384 10
make_groups alone heavy light
$justitia weight /app/heavy 400 >/dev/null || give_up "no weight"
writer alone
writer heavy /run/slow
writer light /run/slow
{
    sleep 10
    rates without
    run_agent /run/agent.log --manage '/app/*' >&2
    sleep 40
    rates with
    echo "limits: $(cat $cgroups/app/{alone,heavy,light}/memory.high | tr '\n' ' ')"
    $justitia status
    cat /run/agent.log
} | report
"#;

#[test]
#[ignore = "boots a virtual machine; scripts/test --long runs it"]
fn a_writer_alone_on_its_disk_keeps_its_speed_and_those_on_another_get_theirs_by_weight() {
    let dir = tempfile::tempdir().unwrap();
    let mut spec = host(SCRIPT, dir.path());
    spec.binaries
        .extend(programs(env!("CARGO_BIN_EXE_justitia"), &[]));
    spec.memory_bytes = 512 << 20;
    on_its_own_clock(&mut spec, 384 + 384);
    spec.timeout = Duration::from_secs(1200);
    let (_, report) = report_of(&spec, "");
    println!("{report}");
    let [without, with] = ["without: ", "with: "].map(|name| numbers(&report, name));
    let ratio = |rates: &[f64]| rates[1] / rates[2];
    println!(
        "alone: {:.2} of without the agent; weights 4:1 bring {:.2} ({:.2} without)",
        with[0] / without[0],
        ratio(&with),
        ratio(&without)
    );
    assert!(report.contains("limits: max "), "{report}");
    // Measured: 0.97 and 1.04, and 2.2 and 3.8 (0.8 to 1.8 without the agent).
    assert!(with[0] > 0.8 * without[0], "{report}");
    assert!(ratio(&with) > 1.5, "{report}");
}
