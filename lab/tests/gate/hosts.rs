//! Conditions of real hosts that the lab's fileserver lacks: writers that belong to no group, other file
//! systems, writes past the page cache, snapshots, thousands of cgroups, an administrator who unloads the
//! module.

use std::fs;
use std::path::{Path, PathBuf};

use justitia_machine::architecture::Architecture;
use justitia_machine::kernels::Wanted;

use crate::common::numbers;
use crate::harm::shaped;
use crate::{line, module, module_dir, own_kernel, rates, sum, variation};

/// Four tasks of the root cgroup write as much as they can, first without a weight, then with one. A probe
/// shows which task opens files; an attempt to disable ftrace is refused.
const OUTSIDE: &str = r#"
mount -t tracefs none /sys/kernel/tracing
cd /sys/kernel/tracing
echo 'p:opened filp_open' >kprobe_events && echo 1 >events/kprobes/opened/enable ||
    give_up "no probe"
cd /
load_module
mkdir /data/outside
# Counted while the groups' rates are: from second 8 to 28.
outside() { WARM_UP=9 writer /data/outside 18 4 >/run/outside & outside=$!; }
hold
echo 2>/dev/null 0 >/proc/sys/kernel/ftrace_enabled || echo "ftrace_enabled: refused"
before=$(gatectl status | grep -o 'setpoint=[0-9]*' | head -n1)
outside
load 8; rates settling
load 20; rates inside
wait $outside; echo "outside: $(cat /run/outside)"
echo 20 >/proc/sys/vm/dirty_background_ratio
echo 40 >/proc/sys/vm/dirty_ratio
sleep 4
echo "thresholds: $before $(gatectl status | grep -o 'setpoint=[0-9]*' | head -n1)"
echo 10 >/proc/sys/vm/dirty_background_ratio
echo 20 >/proc/sys/vm/dirty_ratio
let_go
echo "opened by workers: $(grep -c kworker /sys/kernel/tracing/trace)"
echo 0 >/sys/kernel/tracing/events/kprobes/opened/enable
weights="$weights $cg:500"
hold
outside
load 8; rates settling
load 20; rates weighted
wait $outside; echo "outside weighted: $(cat /run/outside)"
let_go
unload && echo "unloaded: yes"
echo 0 >/proc/sys/kernel/ftrace_enabled
insmod /opt/lab/justitia.ko 2>/dev/null || echo "without ftrace: refused"
echo 1 >/proc/sys/kernel/ftrace_enabled
"#;

/// Runs on the file system that the job names. Direct writes to a file of btrfs with checksums go through the
/// page cache, so the file has none. btrfs frees the blocks of deleted files when it commits; with commits every
/// 30 s they would fill the disk, and btrfs would stop all writers for seconds.
const FILE_SYSTEM: &str = r#"
fs=$(job)
if [ "$fs" != ext4 ]; then
    umount /data
    options=; [ $fs = btrfs ] && options="-o commit=5"
    mkfs.$fs -q -f "$data" && mount $options "$data" /data || give_up "no $fs"
    for w in $groups; do mkdir /data/w$w; done
fi
load_module
pages() { gatectl status | grep "weight=100 " | grep -o ' pages=[0-9]*' | tail -n1 | cut -d= -f2; }
charged() { # NAME KB
    hold
    (echo 0 >$cg/w100/cgroup.procs && exec writer /data/w100 20 1 direct $2 >/run/direct)
    echo "$1: $(pages) of $(($(cat /run/direct) * 20 / 4096))"
    let_go
}
[ $fs = btrfs ] && chattr +C /data/w100
charged large 1024
charged small 16
[ $fs = btrfs ] && chattr -C /data/w100
export WARM_UP=4
for way in files uring; do
    hold
    # Eight files per thread: the disk stays half empty.
    load 15 $way 8; rates $way
    let_go
done
unload && echo "unloaded: yes"
"#;

/// Large writes of all groups while the file system is frozen repeatedly; then the heaviest and the lightest
/// group append to one file.
const LOCKS: &str = r#"
load_module
for gate in gate open; do
    # The files of both rounds together would fill the disk.
    rm -f /data/w*/* /data/shared
    [ $gate = gate ] && hold
    load 30 big 32
    sleep 5
    echo "freeze $gate: $(writer /data 20 1 freeze)"
    rates big-$gate
    [ $gate = gate ] && echo "longest wait: $(gatectl status | grep -o 'longest_wait_ms=[0-9]*')"
    for w in 200 400; do group $w beside$w /data/w$w 20 4; done
    group 100 light-$gate /data 20 1 append
    group 800 heavy-$gate /data 20 1 append
    told light-$gate heavy-$gate
    [ $gate = gate ] && let_go
done
unload && echo "unloaded: yes"
"#;

/// Settings of one holder do not carry over to the next. On a disk so slow that its writers are in the
/// kernel's own throttling, rmmod does not hang.
const HOLDERS: &str = r#"
load_module
echo "at first: $(gatectl status | grep ^config)"
hold order=1 aging=0 timeout_ms=700
echo "held: $(gatectl status | grep ^config)"
let_go
echo "afterwards: $(gatectl status | grep ^config)"
second_disk 64 1
echo 4194304 >/proc/sys/vm/dirty_background_bytes
echo 8388608 >/proc/sys/vm/dirty_bytes
hold
group 100 late /run/slow 60 4 files 2
sleep 10
let_go
begun=$(date +%s%N)
timeout -s INT 4 rmmod justitia 2>/dev/null
echo "rmmod: $? after $((($(date +%s%N) - begun) / 1000000)) ms"
kill -9 "${others[@]}"
unload && echo "unloaded: yes"
"#;

/// Groups that write a little and stay, beside four that write as much as they can. The function graph tracer
/// measures the cost of a look.
const MANY: &str = r#"
load_module
mount -t tracefs none /sys/kernel/tracing
cd /sys/kernel/tracing
echo jg_tick >set_ftrace_filter || give_up "the tracer does not know jg_tick"
echo 4096 >buffer_size_kb
cd /
made=0
for many in 10 100 1000; do
    while ((made < many)); do
        made=$((made + 1))
        mkdir $cg/many$made /data/many$made
        weights="$weights $cg/many$made:100"
    done
    hold
    for ((i = 1; i <= many; i++)); do
        (echo 0 >$cg/many$i/cgroup.procs && exec dd if=/dev/zero of=/data/many$i/file bs=128k count=1 status=none)
    done
    load 12
    sleep 4
    echo function_graph >/sys/kernel/tracing/current_tracer
    echo >/sys/kernel/tracing/trace
    sleep 5
    echo 0 >/sys/kernel/tracing/tracing_on
    grep -o '[0-9.]* us' /sys/kernel/tracing/trace |
        awk -v many=$many '{ sum += $1; n++ } END { printf "cost %d: %.0f us in %d looks, %.3f %% of a CPU\n", many, sum, n, sum / 5e4 }'
    echo nop >/sys/kernel/tracing/current_tracer
    echo 1 >/sys/kernel/tracing/tracing_on
    rates many-$many
    begun=$(date +%s%N)
    let_go
    echo "closed $many: $((($(date +%s%N) - begun) / 1000000)) ms"
done
unload && echo "unloaded: yes"
"#;

/// Cgroups that write and vanish while others wait, and a device that is forgotten while a task waits at it. Tasks
/// of no group keep the device above its setpoint, so the module looks whether it rests.
const RACES: &str = r#"
load_module
mkdir /data/outside
hold
load 40
writer /data/outside 40 4 >/run/outside &
sleep 3
for round in $(seq 150); do
    mkdir $cg/short
    (echo 0 >$cg/short/cgroup.procs && exec dd if=/dev/zero of=/data/short bs=64k count=4 status=none)
    rm /data/short
    rmdir $cg/short
done
echo "rounds: $round"
rates short
second_disk 64 1
group 100 late /run/slow 40 2 files 2
for second in $(seq 38); do
    sleep 1
    gatectl status | grep -o '^device bdi=[0-9]*' | sort | uniq -d
done | sort | uniq -c | sed 's/^/twice: /'
told late
let_go
unload && echo "unloaded: yes"
"#;

fn run(script: &str, job: &str, change: impl FnOnce(&mut justitia_machine::vm::VmSpec)) -> String {
    let report = shaped(script, job, change);
    assert_eq!(line(&report, "unloaded: "), "yes");
    report
}

/// Builds the module with delays that widen races, and checks whether they were lost.
fn with_delays(kernel: &Wanted, dir: &Path) -> PathBuf {
    let source = dir.join("kmod");
    fs::create_dir(&source).unwrap();
    let sources = fs::read_dir(module_dir()).unwrap();
    let files = sources.map(|entry| entry.unwrap().path());
    for path in files
        .filter(|path| path.is_file())
        .chain([module_dir().join("tests/inject.h")])
    {
        fs::copy(&path, source.join(path.file_name().unwrap())).unwrap();
    }
    let kbuild = source.join("Kbuild");
    let text = fs::read_to_string(&kbuild).unwrap();
    fs::write(
        &kbuild,
        format!("{text}CFLAGS_device.o := -DJUSTITIA_TEST -include $(src)/inject.h\n"),
    )
    .unwrap();
    module(Architecture::Amd64, kernel, &source, "justitia", dir)
}

#[test]
#[ignore = "boots a virtual machine"]
fn writers_of_no_group_leave_groups_their_share_and_the_hook_stays() {
    let report = run(OUTSIDE, "", |_| ());
    // All writers without a weight count as one more group of weight 100, or of the root's weight, here 500.
    for (inside, outside, weight) in [
        ("inside", "outside: ", 100.0),
        ("weighted", "outside weighted: ", 500.0),
    ] {
        let (inside, outside) = (rates(&report, inside), numbers(&report, outside)[0]);
        let share = sum(&inside) / (sum(&inside) + outside);
        let wanted = 1500.0 / (1500.0 + weight);
        println!(
            "groups have {share:.3} beside weight {weight}, {wanted:.3} by weight; variation {:.2}",
            variation(&inside)
        );
        assert!(share > 0.8 * wanted, "{report}");
    }
    assert!(variation(&rates(&report, "weighted")) < 0.5, "{report}");
    assert_eq!(line(&report, "ftrace_enabled: "), "refused");
    assert_eq!(line(&report, "without ftrace: "), "refused");
    assert_eq!(line(&report, "opened by workers: "), "0");
    let thresholds: Vec<f64> = line(&report, "thresholds: ")
        .split_whitespace()
        .map(|word| word.trim_start_matches("setpoint=").parse().unwrap())
        .collect();
    assert!(thresholds[1] > 1.5 * thresholds[0], "{report}");
}

fn works_on(file_system: &str, packages: &[&str]) {
    let report = run(FILE_SYSTEM, file_system, |spec| {
        spec.extra_packages = packages.iter().map(ToString::to_string).collect();
        if file_system != "ext4" {
            spec.modules.push(file_system.to_owned());
        }
    });
    for name in ["large", "small"] {
        let charged = line(&report, &format!("{name}: "));
        let (pages, of) = charged.split_once(" of ").unwrap();
        let (pages, of): (f64, f64) = (pages.parse().unwrap(), of.parse().unwrap());
        assert!((pages - of).abs() <= 0.02 * of + 16.0, "{name}: {report}");
    }
    // Without the gate the variation is 1.9.
    for way in ["files", "uring"] {
        let variation = variation(&rates(&report, way));
        println!("{file_system}, {way}: variation {variation:.2}");
        // A kernel that looks for errors may be slower than the disk.
        assert!(own_kernel().is_some() || variation < 0.5, "{way}: {report}");
    }
}

#[test]
#[ignore = "boots a virtual machine"]
fn dirtied_pages_and_only_those_are_charged_on_ext4() {
    works_on("ext4", &[]);
}

#[test]
#[ignore = "boots a virtual machine"]
fn dirtied_pages_and_only_those_are_charged_on_xfs() {
    works_on("xfs", &["xfsprogs"]);
}

#[test]
#[ignore = "boots a virtual machine"]
fn dirtied_pages_and_only_those_are_charged_on_btrfs() {
    works_on("btrfs", &["btrfs-progs"]);
}

#[test]
#[ignore = "boots a virtual machine"]
fn a_freeze_does_not_wait_behind_the_gate() {
    let report = run(LOCKS, "", |_| ());
    let (closed, open) = (
        numbers(&report, "freeze gate: ")[0],
        numbers(&report, "freeze open: ")[0],
    );
    println!("longest freeze: {closed} ms with the gate, {open} without");
    // A freeze writes back everything dirty.
    assert!(closed < 1.5 * open + 1000.0, "{report}");
}

#[test]
#[ignore = "boots a virtual machine"]
fn a_holder_leaves_no_settings_and_nobody_is_stuck_in_rmmod() {
    let report = run(HOLDERS, "", |_| ());
    assert_eq!(line(&report, "at first: "), line(&report, "afterwards: "));
    assert!(line(&report, "held: ").contains("order=1 aging=0 timeout_ms=700"));
    let milliseconds: f64 = line(&report, "rmmod: ")
        .split_whitespace()
        .nth(2)
        .unwrap()
        .parse()
        .unwrap();
    assert!(milliseconds < 1000.0, "{report}");
}

#[test]
#[ignore = "boots a virtual machine"]
fn a_thousand_groups_cost_less_than_half_a_percent_of_a_cpu() {
    let report = run(MANY, "", |spec| spec.memory_bytes += 256 << 20);
    for many in [10, 100, 1000] {
        let cost = line(&report, &format!("cost {many}: "));
        let percent = cost.split(", ").nth(1).unwrap();
        let percent: f64 = percent.split(' ').next().unwrap().parse().unwrap();
        assert!(percent < 0.5, "{cost}");
    }
}

#[test]
#[ignore = "boots a virtual machine"]
fn neither_a_cgroup_nor_a_device_that_goes_is_looked_at_any_more() {
    let dir = tempfile::tempdir().unwrap();
    let report = run(RACES, "", |spec| {
        let module = with_delays(&spec.kernel, dir.path());
        spec.binaries.retain(|path| !path.ends_with("justitia.ko"));
        spec.binaries.push(module);
    });
    assert_eq!(line(&report, "rounds: "), "150");
    assert!(!report.contains("twice: "), "{report}");
}
