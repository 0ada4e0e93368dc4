//! Cases that the gate must not harm, and the ways in which pages become dirty: files deleted before they are
//! written back, shared mappings, `io_uring`, a heavy group that hardly writes, a slow disk beside a fast
//! one, and a writer without competition.
//!
//! Each test compares with the same load while the gate is open, in the same boot.

use justitia_machine::kernels::Series;
use justitia_machine::vm::VmSpec;

use crate::common::{numbers, report_of};
use crate::{line, no_complaints, rates, spec, sum, variation};

/// `group NAME LOAD...` runs a writer in a group and prints its rate as `NAME: bytes per second`.
const SHAPES: &str = r#"
group() { # WEIGHT NAME WRITER'S ARGUMENTS
    local weight=$1 name=$2
    shift 2
    (echo 0 >$cg/w$weight/cgroup.procs && exec writer "$@" >/run/$name) &
    others+=($!)
}
told() {
    wait "${others[@]}"
    others=()
    for name in "$@"; do echo "$name: $(cat /run/$name)"; done
    echo "@lab wrote $*" >/dev/console
}
"#;

/// The kinds of `writer` that dirty pages other than by new files that stay. Three files per thread exceed
/// what may be dirty, and every other file is deleted before it is written back.
const WAYS: &str = r#"
load_module
export WARM_UP=4
for way in "files 3" mmap uring; do
    name=${way%% *}
    hold
    load 12 $way; rates $name
    let_go
    load 12 $way; rates open-$name
done
unload && echo "unloaded: yes"
"#;

/// Four groups of equal weight whose files are replaced before they are written back, alternately with and
/// without the gate. `pages` are those dirtied and written. The first round, on a fresh disk, does not count.
const YOUNG: &str = r#"
load_module
export WARM_UP=4
for w in $groups; do echo 100 >$cg/w$w/io.bfq.weight; done
weights=$(for w in $groups; do echo $cg/w$w:100; done)
pages() { awk '/^nr_(dirtied|written) / { printf "%s ", $2 }' /proc/vmstat; }
load 10 files 3; rates first
for gate in gate open gate open gate open gate open; do
    [ $gate = gate ] && hold
    load 15 files 3
    sleep $WARM_UP
    before=($(pages))
    rates $gate
    after=($(pages))
    echo "pages $gate: $((after[0] - before[0])) $((after[1] - before[1]))"
    [ $gate = gate ] && gatectl status | grep ^device
    [ $gate = gate ] && let_go
done
unload && echo "unloaded: yes"
"#;

/// w800 writes 256 KB per second while the others write as much as they can; then the same with a second
/// disk, of 4 MB/s.
const NEIGHBOURS: &str = r#"
load_module
export WARM_UP=6
neighbours() { # SECONDS NAME
    group 100 $2-100 /data/w100 $1 4
    group 200 $2-200 /data/w200 $1 4
    group 400 $2-400 /data/w400 $1 4
}
for gate in gate open; do
    [ $gate = gate ] && hold
    neighbours 20 $gate
    group 800 $gate-trickle /data/w800 20 1 trickle 256
    told $gate-100 $gate-200 $gate-400 $gate-trickle
    [ $gate = gate ] && let_go
done
second_disk 256 4
for gate in gate open; do
    [ $gate = gate ] && hold
    neighbours 40 $gate-fast
    group 800 $gate-slow /run/slow 40 2
    told $gate-fast-100 $gate-fast-200 $gate-fast-400 $gate-slow
    [ $gate = gate ] && gatectl status | grep ^device
    [ $gate = gate ] && let_go
done
unload && echo "unloaded: yes"
"#;

/// One writer alone, 4 KB at a time into a file that stays far below all thresholds: without the module, with
/// the gate open, and with it closed, alternately.
const ALONE: &str = r#"
alone() { # NAME
    group 400 $1 /data/w400 1 1 overwrite 8
    told $1
}
# The first ones pay for pages and for the file's blocks.
alone warm; alone warm
for round in $(seq 7); do
    alone without
    load_module
    alone open
    hold
    alone settling
    alone closed
    let_go
    unload || give_up "the module does not unload"
done
"#;

/// A group with little memory beside two without a limit, while tasks of no group write to a second disk.
const ROOM: &str = r#"
load_module
export WARM_UP=8
second_disk 512 20
echo 64M >$cg/w200/memory.max
for gate in gate open; do
    [ $gate = gate ] && hold
    group 100 $gate-light /data/w100 28 4
    group 800 $gate-heavy /data/w800 28 4
    group 200 $gate-small /data/w200 28 4
    writer /run/slow 28 4 >/run/$gate-outside &
    others+=($!)
    sleep 20
    echo "dirty $gate: $(grep -E '^file_(dirty|writeback) ' $cg/w200/memory.stat | tr '\n' ' ')"
    [ $gate = gate ] && gatectl status | grep -e ^gate -e ^device
    told $gate-light $gate-heavy $gate-small $gate-outside
    [ $gate = gate ] && let_go
done
echo "killed: $(grep -w oom_kill $cg/w200/memory.events)"
unload && echo "unloaded: yes"
"#;

fn shape(script: &str) -> String {
    shaped(script, "", |_| ())
}

/// Runs a script after [`SHAPES`] in a machine with a change.
pub(crate) fn shaped(script: &str, job: &str, change: impl FnOnce(&mut VmSpec)) -> String {
    let dir = tempfile::tempdir().unwrap();
    let mut spec = spec(Series::V6_12, &format!("{SHAPES}{script}"), dir.path());
    change(&mut spec);
    let (_, report) = report_of(&spec, job);
    println!("{report}");
    no_complaints(&report);
    report
}

/// The sum of the numbers on the lines of these names.
fn total(report: &str, names: &[String]) -> f64 {
    let number = |name: &String| line(report, &format!("{name}: ")).parse::<f64>().unwrap();
    names.iter().map(number).sum()
}

fn neighbours(prefix: &str) -> Vec<String> {
    [100, 200, 400]
        .map(|weight| format!("{prefix}-{weight}"))
        .into()
}

#[test]
#[ignore = "boots a virtual machine"]
fn pages_dirtied_by_any_way_are_ordered_and_most_of_the_throughput_stays() {
    let report = shape(WAYS);
    for way in ["files", "mmap", "uring"] {
        let (closed, open) = (rates(&report, way), rates(&report, &format!("open-{way}")));
        let ratio = sum(&closed) / sum(&open);
        println!(
            "{way}: variation {:.2} with the gate, {:.2} without; total {ratio:.3} of without",
            variation(&closed),
            variation(&open)
        );
        // The heaviest group does not write fast enough for its share of files that die young.
        let most = if way == "files" { 1.0 } else { 0.5 };
        assert!(variation(&closed) < most, "{way}: {report}");
        // The fewer pages may be dirty, the fewer are deleted before they are written back. The ratio to an
        // open gate is 0.5 to 0.8; the total of the open gate varies by a third. A pace that follows what is
        // written, not what leaves, has a fifth.
        let least = if way == "files" { 0.3 } else { 0.8 };
        assert!(ratio > least, "{way}: {report}");
    }
}

#[test]
#[ignore = "boots a virtual machine"]
fn files_that_die_young_keep_their_throughput() {
    let report = shape(YOUNG);
    let sum = |gate: &str| {
        numbers(&report, &format!("rates {gate}: "))
            .iter()
            .sum::<f64>()
    };
    let ratio = sum("gate") / sum("open");
    let written = |gate: &str| {
        let pages = numbers(&report, &format!("pages {gate}: "));
        let of = |which: usize| pages.iter().skip(which).step_by(2).sum::<f64>();
        of(1) / of(0)
    };
    println!(
        "files that die young have {ratio:.3} of without the gate; of a dirtied page {:.3} are written, {:.3} without",
        written("gate"),
        written("open")
    );
    // 0.88 to 0.94; with the setpoint below the freerun ceiling it was 0.66. The reference writes more when its
    // groups are unequal, and its rounds vary by a fifth.
    assert!(ratio > 0.75, "{report}");
}

#[test]
#[ignore = "boots a virtual machine"]
fn neither_a_trickle_of_high_weight_nor_a_slow_disk_holds_others_up() {
    let report = shape(NEIGHBOURS);
    for (what, prefix) in [("trickle", ""), ("slow disk", "-fast")] {
        let sum = |gate: &str| total(&report, &neighbours(&format!("{gate}{prefix}")));
        let ratio = sum("gate") / sum("open");
        println!("beside a {what}: neighbours have {ratio:.3} of without the gate");
        assert!(ratio > 0.95, "{what}: {report}");
    }
    let own = |name: &str| total(&report, &[name.to_owned()]);
    // It gets its full rate.
    assert!(own("gate-trickle") > 0.95 * 256.0 * 1024.0, "{report}");
    assert!(own("gate-slow") > 0.9 * own("open-slow"), "{report}");
}

#[test]
#[ignore = "boots a virtual machine"]
fn a_writer_alone_does_not_notice_the_gate() {
    let report = shape(ALONE);
    let without = numbers(&report, "without: ");
    let ratio = |name: &str| -> Vec<f64> {
        let rates = numbers(&report, &format!("{name}: "));
        assert_eq!((rates.len(), without.len()), (7, 7), "{report}");
        let mut ratios: Vec<f64> = rates.iter().zip(&without).map(|(a, b)| a / b).collect();
        ratios.sort_by(f64::total_cmp);
        println!(
            "4 KB overwrites, gate {name}: median {:.4} of without the module, {:.4} to {:.4}",
            ratios[3], ratios[0], ratios[6]
        );
        ratios
    };
    let (open, closed) = (ratio("open"), ratio("closed"));
    // By the guest's own clock: instructions, not the host's time.
    assert!(open[3] > 0.96 && closed[3] > 0.95, "{report}");
}

#[test]
#[ignore = "boots a virtual machine"]
fn neither_a_group_in_little_memory_nor_writers_on_another_disk_are_held_up() {
    let report = shape(ROOM);
    let rate = |name: &str| total(&report, &[name.to_owned()]);
    let outside = rate("gate-outside") / rate("open-outside");
    let inside = ["gate-light", "gate-heavy", "gate-small"].map(str::to_owned);
    let small = rate("gate-small") / total(&report, &inside) / (2.0 / 11.0);
    println!("outside writers have {outside:.3} of without the gate; weight 200 in 64 MiB has {small:.2} of its share");
    assert!(outside > 0.9, "{report}");
    assert!(small > 0.8, "{report}");
    assert_eq!(line(&report, "killed: "), "oom_kill 0");
}
