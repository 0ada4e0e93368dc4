//! Tests an agent on a host with two disks, on a stock kernel: a writer alone on a fast disk, and two of different
//! weights on a slow one; then a group that writes to both disks joins. One boot, ignored by default;
//! `scripts/test --long` runs it: `cargo test -p justitia-cli --test several_disks -- --ignored --nocapture`.

#[path = "../../../lab/tests/common/mod.rs"]
mod common;

use std::time::Duration;

use justitia_machine::qemu::Clock;

use common::{host, numbers, on_its_own_clock, programs, report_of};

const SCRIPT: &str = r#"
# Bytes that each group wrote in 20 s to the disk of its directory, in the order of the groups.
written() { # GROUP DIRECTORY
    grep "^$(mountpoint -d $2) " $cgroups/app/$1/io.stat | grep -o 'wbytes=[0-9]*' | cut -d= -f2
}
rates() { # NAME (GROUP DIRECTORY)...
    local name=$1 before=() after=() at
    shift
    for ((at = 1; at <= $#; at += 2)); do before+=($(written "${@:at:2}")); done
    sleep 20
    for ((at = 1; at <= $#; at += 2)); do
        after+=($(($(written "${@:at:2}") - before[${#after[@]}])))
    done
    echo "$name: ${after[*]}"
}
one_each=(alone /data heavy /run/slow light /run/slow)

set_up
memory_disk 384 100
second_disk 512 30
make_groups alone heavy light both
$justitia weight /app/heavy 400 >/dev/null || give_up "no weight"
writer alone
writer heavy /run/slow
writer light /run/slow
{
    sleep 10
    rates without ${one_each[@]}
    run_agent /run/agent.log --manage '/app/*' >&2
    sleep 40
    rates with ${one_each[@]}
    echo "limits: $(cat $cgroups/app/{alone,heavy,light}/memory.high | tr '\n' ' ')"
    # Without a redirection here, which would leave this pipe open in the writer.
    writer both
    writer both /run/slow
    say both
    sleep 60
    rates both ${one_each[@]} both /data both /run/slow
    echo "limits with both: $(cat $cgroups/app/*/memory.high | tr '\n' ' ')"
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
    on_its_own_clock(&mut spec, 384 + 512);
    spec.clock = Clock::Instructions {
        shift: 1,
        jumps: true,
    };
    spec.timeout = Duration::from_secs(1200);
    let (_, report) = report_of(&spec, "");
    println!("{report}");
    let [without, with, both] =
        ["without: ", "with: ", "both: "].map(|name| numbers(&report, name));
    let ratio = |rates: &[f64]| rates[1] / rates[2];
    println!(
        "alone: {:.2} of without the agent; weights 4:1 bring {:.2} ({:.2} without)",
        with[0] / without[0],
        ratio(&with),
        ratio(&without)
    );
    let fast = both[0] + both[3];
    println!(
        "beside a group on both disks: {:.2} of the fast disk's bytes (0.50 by weight), which carries {:.2} of before; \
         weights 4:1 bring {:.2}",
        both[0] / fast,
        fast / with[0],
        ratio(&both)
    );
    assert!(report.contains("limits: max "), "{report}");
    // Measured: 1.05 and 3.9 (0.85 without the agent); with the group on both disks 4.0, and 0.52 of the fast disk.
    assert!(with[0] > 0.8 * without[0], "{report}");
    assert!(ratio(&with) > 1.5 && ratio(&both) > 1.5, "{report}");
    assert!(both[0] > 0.3 * fast, "{report}");
    // io.cost alone divides both disks so. An agent that compares bytes of different disks reported 0.53 here, this
    // one 0.04.
    let (_, share_error) = report.split_once("share error ").expect("a status");
    let share_error = share_error.lines().next().and_then(|e| e.parse().ok());
    assert!(share_error.is_some_and(|e: f64| e < 0.25), "{report}");
}
