//! bcc's `cachestat` and `cachetop` on stock kernels, compared with known activity: a cold and a warm scan of
//! one file. The tools infer misses from functions that the page cache no longer calls as it did;
//! `docs/experiments/observer.md` describes what our observer counts.

mod common;

use std::time::Duration;

use common::{machine, report_of, PROLOGUE};
use justitia_machine::architecture::Architecture;
use justitia_machine::cache::Cache;
use justitia_machine::kernels::{self, Series};

/// Debian packages to compile a bcc tool. The lab takes them by name, without their dependencies.
const COMPILER: &str = "bpfcc-tools python3-bpfcc python3-netaddr libbpfcc libbpf1 libclang-cpp14 \
    libllvm14 libelf1 libgcc-s1 libstdc++6 python3 python3-minimal python3.11 python3.11-minimal \
    libpython3.11-minimal libpython3.11-stdlib libpython3-stdlib libexpat1 libffi8 libedit2 libbsd0 \
    libmd0 libxml2 libicu72 libz3-4 libgmp10 libtinfo6 zlib1g liblzma5 libssl3 libbz2-1.0 media-types";

/// Scans 64 MB, which is 16,384 pages, cold and then warm, while the job's tool prints a line every three
/// seconds. The tool is compiled and attached once its first line appears, which takes minutes under
/// emulation.
const SCRIPT: &str = r#"
set_up
mount -t debugfs none /sys/kernel/debug || give_up "no debugfs"
mount -t tracefs none /sys/kernel/tracing 2>/dev/null
dd if=/dev/zero of=/data/f bs=1M count=64 2>/dev/null && sync || give_up "no file"
read -r -a tool <<<"$(job)"
export PYTHONUNBUFFERED=1
"${tool[@]}" 3 300 >>/run/seen 2>&1 &
tool_pid=$!
until grep -q '^ *[0-9]' /run/seen || ! kill -0 $tool_pid 2>/dev/null; do sleep 1; done
{
    echo "kernel $(uname -r), ${tool[*]}"
    sleep 7
    for state in cold warm; do
        [ "$state" = cold ] && echo 3 >/proc/sys/vm/drop_caches && sleep 7
        echo "$state scan of 16384 pages:" >>/run/seen
        dd if=/data/f of=/dev/null bs=64k 2>/dev/null
        sleep 7
    done
    cat /run/seen
} | report
"#;

/// A terminal for a tool that draws on it: `tmux` provides one without a person, and can report its content.
const TERMINAL: &str = "tmux libevent-core-2.1-7 libutempter0 libncursesw6 ncurses-base libc-bin";

/// The same two scans, each in a process of its own, while the job's tool draws a screen of processes every
/// thirty seconds. A scan starts right after a screen was drawn, so that it ends before the next one. Its
/// process is then looked for on the following two. The disk's own counters give the true value. Reading the
/// screen puts the reader on it too, so it is read rarely.
const SCRIPT_FOR_SCREENS: &str = r#"
set_up
mount -t debugfs none /sys/kernel/debug || give_up "no debugfs"
mount -t tracefs none /sys/kernel/tracing 2>/dev/null
mkdir -p /dev/pts && mount -t devpts none /dev/pts || give_up "no terminals"
dd if=/dev/zero of=/data/f bs=1M count=64 2>/dev/null && sync || give_up "no file"
mkfifo /run/never
nap() { read -rt "$1" <>/run/never; } # without a process of its own
export LC_ALL=C.UTF-8
tmux -f /dev/null new-session -d -x 100 -y 50 "TERM=screen $(job) 30 2>/run/complaints" || give_up "no tmux"
# A screen counts when it is seen the second time: it may be half drawn at the first. The first line
# begins with a clock.
screens() {
    local now clock seen= kept= drawn=0
    while now=$(tmux capture-pane -p); do
        clock=${now%% *}
        if [[ $clock == *:*:* && $clock == "$seen" && $clock != "$kept" ]]; then
            kept=$clock
            drawn=$((drawn + 1))
            echo "$now" >/run/screen.$drawn
            echo $drawn >/run/drawn
        fi
        seen=$clock
        nap 4
    done
}
echo 0 >/run/drawn
screens &
drawing=$!
next() { # how many
    local until=$(($(</run/drawn) + $1))
    while [ "$(</run/drawn)" -lt $until ]; do
        kill -0 $drawing 2>/dev/null || give_up "the tool ended: $(cat /run/complaints)"
        nap 1
    done
}
delivered() { # pages
    read -r _ _ sectors _ <"/sys/block/${data#/dev/}/stat"
    echo $((sectors / 8))
}
{
    echo "kernel $(uname -r), $(job)"
    printf '%-5s %8s %8s %8s   %s\n' scan hits misses dirties 'truth: asked for, from the disk'
    for state in cold warm; do
        next 1
        if [ $state = cold ]; then
            echo 3 >/proc/sys/vm/drop_caches
            next 1
        fi
        before=$(delivered)
        dd if=/data/f of=/dev/null bs=64k 2>/dev/null &
        scan=$!
        wait $scan
        first=$(($(</run/drawn) + 1))
        next 2
        mawk -v pid=$scan '$1 == pid { hits += $4; misses += $5; dirties += $6 }
            END { printf "%8d %8d %8d   ", hits, misses, dirties }' \
            /run/screen.$first /run/screen.$((first + 1)) >/run/sums
        printf '%-5s %s%8d %8d\n' $state "$(</run/sums)" 16384 $(($(delivered) - before))
        {
            echo "its process on the screen after the $state scan, and who else is there:"
            mawk -v pid=$scan 'NR <= 2 || $1 == pid || ++others <= 3' /run/screen.$first
        } >>/run/seen
    done
    cat /run/seen
} | report
"#;

fn show(series: Series, script: &str, tool: &str, packages: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let mut spec = machine(series, &format!("{PROLOGUE}{script}"), dir.path());
    spec.memory_bytes = 2 << 30;
    spec.extra_packages = packages.iter().map(ToString::to_string).collect();
    spec.timeout = Duration::from_secs(900);
    let (_, report) = report_of(&spec, tool);
    println!("{report}");
    assert!(report.contains("warm scan"), "both scans were made");
}

#[test]
#[ignore = "boots virtual machines and downloads a package the first time"]
fn cachestat_compiled_ahead_over_a_cold_and_a_warm_scan() {
    for series in Series::ALL {
        show(series, SCRIPT, "cachestat", &["libbpf-tools"]);
    }
}

/// The Python version compiles for the running kernel and needs its headers: on 6.1, which comes from the
/// same Debian release as the guest's root.
fn show_compiled_there(script: &str, tool: &str, packages: &str) {
    let mut progress = |line: &str| eprintln!("{line}");
    let cache = Cache::open().unwrap().lock(&mut progress).unwrap();
    let architecture = Architecture::default();
    let kernel = kernels::obtain(&cache, architecture, Series::V6_1, &mut progress);
    let release = kernel.unwrap().release;
    drop(cache);
    let headers = [
        format!("linux-headers-{release}"),
        format!("linux-headers-{}", release.replace("cloud-amd64", "common")),
    ];
    let mut packages: Vec<&str> = COMPILER
        .split_whitespace()
        .chain(packages.split_whitespace())
        .collect();
    packages.extend(headers.iter().map(String::as_str));
    show(Series::V6_1, script, tool, &packages);
}

#[test]
#[ignore = "boots a virtual machine and downloads a compiler the first time; takes minutes"]
fn cachestat_compiled_on_the_spot_over_a_cold_and_a_warm_scan() {
    show_compiled_there(SCRIPT, "python3 /usr/sbin/cachestat-bpfcc", "");
}

#[test]
#[ignore = "boots a virtual machine and downloads a compiler the first time; takes minutes"]
fn cachetop_over_the_process_of_a_cold_and_of_a_warm_scan() {
    show_compiled_there(
        SCRIPT_FOR_SCREENS,
        "python3 /usr/sbin/cachetop-bpfcc",
        TERMINAL,
    );
}
