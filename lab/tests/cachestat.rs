//! bcc's `cachestat` on stock kernels, beside what is known to have happened: a cold and a warm
//! scan of one file. It infers misses from functions that the page cache no longer calls as it
//! did; `docs/experiments/observer.md` has what ours counts.
//!
//! Look and judge only that they ran; not part of `make test`:
//! `cargo test --release -p justitia-lab --test cachestat -- --ignored --nocapture`.

mod common;

use std::time::Duration;

use common::{machine, report_of, PROLOGUE};
use justitia_lab::cache::Cache;
use justitia_lab::kernels::{self, Series};

/// What compiles a tool of bcc, in Debian's packages: the lab takes them by name, without what they
/// depend on.
const COMPILER: &str = "bpfcc-tools python3-bpfcc python3-netaddr libbpfcc libbpf1 libclang-cpp14 \
    libllvm14 libelf1 libgcc-s1 libstdc++6 python3 python3-minimal python3.11 python3.11-minimal \
    libpython3.11-minimal libpython3.11-stdlib libpython3-stdlib libexpat1 libffi8 libedit2 libbsd0 \
    libmd0 libxml2 libicu72 libz3-4 libgmp10 libtinfo6 zlib1g liblzma5 libssl3 libbz2-1.0 media-types";

/// Scans 64 MB, which is 16,384 pages, cold and then warm, while the tool named by the job prints a
/// line every three seconds. It is compiled and attached when its first line is there; that takes
/// minutes when emulated.
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

fn show(series: Series, tool: &str, packages: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let mut spec = machine(series, &format!("{PROLOGUE}{SCRIPT}"), dir.path());
    spec.memory_bytes = 2 << 30;
    spec.extra_packages = packages.iter().map(ToString::to_string).collect();
    spec.timeout = Duration::from_secs(900);
    let (_, report) = report_of(&spec, tool);
    println!("{report}");
    assert!(report.contains("warm scan"), "both scans were made");
}

#[test]
#[ignore = "boots virtual machines and downloads a package the first time"]
fn what_cachestat_compiled_ahead_says_about_a_cold_and_a_warm_scan() {
    for series in Series::ALL {
        show(series, "cachestat", &["libbpf-tools"]);
    }
}

/// The version in Python compiles for the running kernel, and needs its headers: on 6.1, which is
/// of the same Debian as the guest's root.
#[test]
#[ignore = "boots a virtual machine and downloads a compiler the first time; takes minutes"]
fn what_cachestat_compiled_on_the_spot_says_about_a_cold_and_a_warm_scan() {
    let cache = Cache::open().unwrap();
    let mut progress = |line: &str| eprintln!("{line}");
    let lock = cache.lock(&mut progress).unwrap();
    let kernel = kernels::obtain(&cache, &lock, Series::V6_1, &mut progress);
    let release = kernel.unwrap().release;
    drop(lock);
    let headers = [
        format!("linux-headers-{release}"),
        format!("linux-headers-{}", release.replace("cloud-amd64", "common")),
    ];
    let mut packages: Vec<&str> = COMPILER.split_whitespace().collect();
    packages.extend(headers.iter().map(String::as_str));
    show(Series::V6_1, "python3 /usr/sbin/cachestat-bpfcc", &packages);
}
