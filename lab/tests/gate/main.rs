//! The kernel module in guests: it loads on stock kernels, orders writers, opens when it must, and unloads
//! without a trace.
//!
//! The module is built against the headers of the booted kernel; `gatectl` and `writer` (`kmod/tests/guest`)
//! are the only other programs. Slow, so ignored by default:
//! `cargo test -p justitia-lab --test gate -- --ignored --nocapture --test-threads=2`.
//! `JUSTITIA_TEST_ROUNDS` is how many times the module is loaded and unloaded under load (3).
//! `JUSTITIA_TEST_KERNEL` is the tree of a kernel to boot in place of a stock one, configured as a debugging
//! kernel and built (`docs/gate-debug-kernel.md`). The tests then do not judge the numbers.

#[path = "../common/mod.rs"]
mod common;
mod harm;
mod hosts;
mod mistakes;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use common::{machine, numbers, on_its_own_clock, report_of, PROLOGUE};
use justitia_machine::architecture::Architecture;
use justitia_machine::headers::build_module;
use justitia_machine::kernels::{Series, Wanted};
use justitia_machine::qemu::Clock;
use justitia_machine::vm::VmSpec;

/// Weights of the groups; the group with weight N has the directories `/sys/fs/cgroup/wN` and `/data/wN`.
const WEIGHTS: [u32; 4] = [100, 200, 400, 800];

/// Functions of the guest's programs. `load SECONDS [KIND [NUMBER]]` starts a writer in each group, `rates`
/// waits for them and prints their bytes per second, `hold` starts the gate's holder.
const COMMON: &str = r#"
set_up
memory_disk 1280 40
mount -o remount,noauto_da_alloc /data
echo n >/sys/kernel/mm/lru_gen/enabled
cg=/sys/fs/cgroup
echo "+memory +io" >$cg/cgroup.subtree_control || give_up "no controllers"
PATH=$PATH:/opt/lab
groups="100 200 400 800"
for w in $groups; do
    mkdir $cg/w$w /data/w$w
    # The disk serves the flushers of a group by this: with equal weights it holds the heaviest up.
    echo $w >$cg/w$w/io.bfq.weight
done
weights=$(for w in $groups; do echo $cg/w$w:$w; done)
load() {
    writers=()
    for w in $groups; do
        (echo 0 >$cg/w$w/cgroup.procs && exec writer /data/w$w "$1" 4 ${2:+"$2"} ${3:+"$3"} >/run/rate$w) &
        writers+=($!)
    done
}
rates() {
    wait "${writers[@]}"
    echo "rates $1: $(for w in $groups; do cat /run/rate$w; done | tr '\n' ' ')"
}
hold() {
    gatectl hold "$@" $weights >/run/held &
    holder=$!
    for _ in $(seq 100); do
        [ -s /run/held ] && return
        sleep 0.1
    done
    give_up "the gate cannot be held"
}
let_go() {
    kill -9 $holder
    wait $holder 2>/dev/null
}
load_module() { insmod /opt/lab/justitia.ko || give_up "the module does not load"; }
unload() { # In use as long as a writer is in the kernel's throttling below it.
    for _ in $(seq 150); do
        rmmod justitia 2>/dev/null
        [ -d /sys/module/justitia ] || return 0
        sleep 0.1
    done
    return 1
}
complaints() {
    # KCSAN's reports, each between two lines of equals signs, go apart. The kernel has races of its own; the
    # module's name this module in the title, or in the first frames of one of the two accesses.
    dmesg | awk '
        /kcsan: / { kcsan = 1 }
        /BUG: KCSAN/ { all++; text = ""; inside = 1; mine = 0; called = 0; frame = 9 }
        !inside { print >"/run/said"; next }
        { text = text $0 "\n"; frame++ }
        / (read|write).* to 0x/ { frame = 0 }
        /\[justitia\]/ { called = 1; if (frame < 4 || /KCSAN/) mine = 1 }
        /====/ { inside = 0; if (mine) { races++; printf "%s", text >"/run/races" } else below += called }
        END { if (kcsan) printf "races: %d, in the module %d, called by it %d\n", all, races, below }'
    # Two CPUs may start the timer of the disk of memory at once (null_blk). Only if the stack says that it is that one.
    local others=^$
    grep -q nullb_bwtimer_fn /run/said && others=hrtimer_forward
    grep -E 'BUG:|WARNING:|Oops:|ODEBUG:|corruption|hung task|blocked for more|lockup|stall' /run/said |
        grep -v "$others" >>/run/races
    [ -s /run/races ] && cat /run/races || echo "complaints: none"
    # Of a kernel that looks for more. After its first complaint about locks it looks no further.
    grep debug_locks /proc/lockdep_stats 2>/dev/null
    grep -m1 -o -e KernelAddressSanitizer -e 'kcsan: .* mode configured' /run/said
}
"#;

/// All functions of the gate in one boot.
const FUNCTIONS: &str = r#"
load_module
echo "loaded: $(gatectl status | head -n1)"
gatectl set $cg/w100:100 2>&1 | sed 's/^/read-only: /'
hold
gatectl hold 2>&1 | sed 's/^/second holder: /'
# Dirty pages from nothing to the setpoint are nobody's to wait for.
WARM_UP=5 load 16; rates stride
echo "stride: $(gatectl status | tr '\n' ' ')"
let_go
echo "let go: $(gatectl status | head -n1)"
load 10; rates open

hold heartbeat_ms=1000 beats=2
load 5
sleep 3
echo "no heartbeat: $(gatectl status | head -n1)"
rates unattended
let_go

hold
load 8
sleep 4
kill -9 "${writers[3]}"
gatectl status | grep -q ^device || echo "no device"
let_go
rates killed
unload && echo "unloaded: $(ls /dev/justitia 2>&1)"
"#;

/// Loads, uses and unloads the module while writers write.
const ROUNDS: &str = r#"
rounds=$(job)
load $((rounds * 20))
for round in $(seq "$rounds"); do
    insmod /opt/lab/justitia.ko || give_up "round $round: does not load"
    hold
    sleep 1
    let_go
    unload || give_up "round $round: does not unload"
    echo "@lab round $round" >/dev/console
done
echo "rounds: $rounds"
kill -9 "${writers[@]}"
"#;

/// Groups and tasks while they wait: frozen, killed, out of memory, without a weight, removed.
const DISTURBANCES: &str = r#"
load_module
mkfifo /run/words
gatectl hold listen=1 $weights </run/words >/run/held &
holder=$!
exec 3>/run/words
echo 32M >$cg/w200/memory.max
load 16
sleep 4
echo 1 >$cg/w400/cgroup.freeze
for second in $(seq 10); do
    sleep 1
    grep -q "frozen 1" $cg/w400/cgroup.events && break
done
echo "frozen after: $second"
echo 0 >$cg/w400/cgroup.freeze
for round in $(seq 20); do
    echo "$cg/w800:0" >&3
    echo "$cg/w800:$((40 * round))" >&3
    sleep 0.1
done
gatectl status
echo 1 >$cg/w100/cgroup.kill
for second in $(seq 10); do
    sleep 1
    rmdir $cg/w100 2>/dev/null && break
done
echo "removed after: $second"
echo "$cg/w400:0" >&3
wait "${writers[@]}" 2>/dev/null
echo "waiting: $(gatectl status | grep -o 'waiting=[1-9].*')"
let_go
unload && echo "unloaded again: yes"
"#;

fn module_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../kmod")
}

/// A program of `kmod/tests/guest`, linked statically.
fn compiled(architecture: Architecture, name: &str, dir: &Path) -> PathBuf {
    let out = dir.join(name);
    let mut compiler = match architecture {
        Architecture::Amd64 => Command::new("cc"),
        Architecture::Arm64 => {
            // Installs the compiler first.
            let mut command = Command::new(module_dir().join("../scripts/arm64"));
            command.arg("aarch64-linux-gnu-gcc");
            command
        }
    };
    let status = compiler
        .args(["-static", "-O2", "-Wall", "-Wextra", "-pthread", "-o"])
        .arg(&out)
        .arg(module_dir().join(format!("tests/guest/{name}.c")))
        .status()
        .expect("a compiler starts");
    assert!(status.success(), "{name}.c does not compile");
    out
}

/// The module of this name, built from `source`.
fn module(
    architecture: Architecture,
    kernel: &Wanted,
    source: &Path,
    name: &str,
    dir: &Path,
) -> PathBuf {
    let progress = &mut |line: &str| eprintln!("{line}");
    build_module(architecture, kernel, source, name, dir, progress).unwrap()
}

/// The kernel that replaces stock ones.
fn own_kernel() -> Option<Wanted> {
    std::env::var_os("JUSTITIA_TEST_KERNEL").map(|tree| Wanted::Built(tree.into()))
}

/// A guest that runs this program after [`COMMON`]; the report is its output, and the kernel's complaints.
fn spec(series: Series, script: &str, dir: &Path) -> VmSpec {
    spec_on(Architecture::Amd64, series, script, dir)
}

fn spec_on(architecture: Architecture, series: Series, script: &str, dir: &Path) -> VmSpec {
    let script = format!("{PROLOGUE}{COMMON}{{\n{script}complaints\n}} 2>&1 | report\n");
    let mut spec = machine(series, &script, dir);
    if let Some(kernel) = own_kernel() {
        spec.kernel = kernel;
    }
    spec.architecture = architecture;
    let programs = ["gatectl", "writer"].map(|name| compiled(architecture, name, dir));
    let module = module(architecture, &spec.kernel, &module_dir(), "justitia", dir);
    spec.binaries.push(module);
    spec.binaries.extend(programs);
    spec.memory_bytes = 768 << 20;
    // With room for a second disk.
    on_its_own_clock(&mut spec, 1280 + 256);
    // So that a host that is late for the guest's timers has no part in the rates. The disk is in the guest's memory.
    spec.clock = Clock::Instructions {
        shift: 1,
        jumps: true,
    };
    if series == Series::V6_1 {
        // It does not boot with two CPUs on such a clock.
        spec.cpus = 1;
    }
    spec.timeout = Duration::from_secs(3600);
    if own_kernel().is_some() {
        // KASAN checks every memory access; its shadow takes an eighth of memory.
        spec.memory_bytes += spec.memory_bytes / 4;
        spec.timeout *= 2;
        spec.cmdline.push("kasan_multi_shot".into());
    }
    spec
}

/// The rest of the report's line with this prefix.
fn line<'a>(report: &'a str, begins: &str) -> &'a str {
    report
        .lines()
        .find_map(|line| line.strip_prefix(begins))
        .unwrap_or_else(|| panic!("no line {begins:?} in\n{report}"))
}

/// The guest's kernel has not complained, and its lock checker was active to the end.
fn no_complaints(report: &str) {
    assert!(report.contains("complaints: none"), "{report}");
    for line in report.lines().filter(|line| line.contains("debug_locks:")) {
        assert!(line.ends_with(" 1"), "{report}");
    }
}

fn rates(report: &str, name: &str) -> Vec<f64> {
    let rates = numbers(report, &format!("rates {name}: "));
    assert_eq!(rates.len(), WEIGHTS.len(), "{report}");
    rates
}

/// Mean distance from the ratio of the weights, as in the paper's equation 2.
fn variation(rates: &[f64]) -> f64 {
    let distance = |(rate, weight): (&f64, &u32)| {
        (rate / rates[0] - f64::from(*weight) / f64::from(WEIGHTS[0])).abs()
    };
    rates.iter().zip(&WEIGHTS).map(distance).sum::<f64>() / 4.0
}

fn sum(rates: &[f64]) -> f64 {
    rates.iter().sum()
}

/// Runs [`FUNCTIONS`], and `more` after it; returns the report.
fn the_gate_works(architecture: Architecture, series: Series, more: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let script = format!("{FUNCTIONS}{more}");
    let spec = spec_on(architecture, series, &script, dir.path());
    let (_, report) = report_of(&spec, "");
    println!("{report}");
    let open = |begins: &str, reason: u32| {
        let text = line(&report, begins);
        assert!(text.contains(&format!(" open={reason} ")), "{text}");
    };
    open("loaded: ", 1);
    assert!(line(&report, "read-only: ").contains("Bad file descriptor"));
    assert!(line(&report, "second holder: ").contains("busy"));
    open("stride: ", 0);
    open("let go: ", 1);
    open("no heartbeat: ", 2);
    assert!(line(&report, "unloaded: ").contains("No such file"));
    no_complaints(&report);

    let (stride, free) = (rates(&report, "stride"), rates(&report, "open"));
    let (ordered, unordered) = (variation(&stride), variation(&free));
    println!("variation {ordered:.2} with the gate, {unordered:.2} without");
    if own_kernel().is_some() {
        return report;
    }
    let status = line(&report, "stride: ");
    assert!(ordered < 0.5, "{stride:?}, {status}\n{report}");
    // A gate that keeps the flushers idle costs nine tenths. Without a gate, writers are ahead of the disk by
    // what the page cache absorbs in so short a time.
    assert!(sum(&stride) > 0.5 * sum(&free), "{report}");
    report
}

#[test]
#[ignore = "boots a virtual machine"]
fn the_gate_orders_opens_and_goes_and_waiting_tasks_are_free_to_end_on_6_12() {
    let report = the_gate_works(Architecture::Amd64, Series::V6_12, DISTURBANCES);
    for what in ["frozen after: ", "removed after: "] {
        let seconds: u32 = line(&report, what).parse().unwrap();
        assert!(seconds < 10, "{report}");
    }
    assert_eq!(line(&report, "waiting: "), "");
    assert_eq!(line(&report, "unloaded again: "), "yes");
}

#[test]
#[ignore = "boots a virtual machine"]
fn the_gate_orders_opens_and_goes_on_7_2() {
    the_gate_works(Architecture::Amd64, Series::V7_2, "");
}

#[test]
#[ignore = "boots a virtual machine"]
fn the_gate_orders_opens_and_goes_on_6_1() {
    the_gate_works(Architecture::Amd64, Series::V6_1, "");
}

#[test]
#[ignore = "builds for another processor and boots it"]
fn the_gate_orders_opens_and_goes_on_arm64() {
    the_gate_works(Architecture::Arm64, Series::V6_12, "");
}

/// Builds on this machine with another release's compiler, from packages. For the other kernels, the tests
/// that load the module build it.
#[test]
#[ignore = "fetches packages"]
fn the_module_builds_for_the_newest_kernel() {
    let dir = tempfile::tempdir().unwrap();
    let [.., newest] = Series::ALL;
    let kernel: Wanted = newest.into();
    let built = module(
        Architecture::Amd64,
        &kernel,
        &module_dir(),
        "justitia",
        dir.path(),
    );
    assert!(built.metadata().unwrap().len() > 10_000);
}

#[test]
#[ignore = "boots a virtual machine"]
fn loading_and_unloading_under_load_leaves_nothing() {
    let rounds = std::env::var("JUSTITIA_TEST_ROUNDS").unwrap_or_else(|_| "3".to_owned());
    let count: u64 = rounds.parse().expect("JUSTITIA_TEST_ROUNDS is a number");
    let dir = tempfile::tempdir().unwrap();
    let mut spec = spec(Series::V6_12, ROUNDS, dir.path());
    // No rate matters here, and two hundred rounds on a clock of instructions take hours.
    spec.clock = Clock::Host;
    spec.timeout = Duration::from_secs(1200 + 60 * count);
    let (_, report) = report_of(&spec, &format!("{rounds}\n"));
    assert!(report.contains(&format!("rounds: {rounds}")), "{report}");
    no_complaints(&report);
}
