//! bcc's `cachestat` on stock kernels, beside what is known to have happened: a cold and a warm
//! scan of one file. It infers misses from functions that the page cache no longer calls as it
//! did; `docs/experiments/observer.md` has what ours counts.
//!
//! Looks and judges only that it ran; not part of `make test`:
//! `cargo test --release -p justitia-lab --test cachestat -- --ignored --nocapture`.

mod common;

use std::time::Duration;

use common::{machine, report_of, PROLOGUE};
use justitia_lab::kernels::Series;

/// Scans 64 MB, which is 16,384 pages, cold and then warm. Attaching takes a while when emulated.
const SCRIPT: &str = r#"
set_up
mount -t debugfs none /sys/kernel/debug || give_up "no debugfs"
mount -t tracefs none /sys/kernel/tracing 2>/dev/null
dd if=/dev/zero of=/data/f bs=1M count=64 2>/dev/null && sync || give_up "no file"
{
    echo "kernel $(uname -r)"
    for state in cold warm; do
        [ "$state" = cold ] && echo 3 >/proc/sys/vm/drop_caches
        cachestat 1 16 >/run/seen 2>&1 &
        sleep 10
        dd if=/data/f of=/dev/null bs=64k 2>/dev/null
        wait
        echo "$state scan of 16384 pages:"
        cat /run/seen
    done
} | report
"#;

#[test]
#[ignore = "boots virtual machines and downloads a package the first time"]
fn what_cachestat_says_about_a_cold_and_a_warm_scan() {
    let dir = tempfile::tempdir().unwrap();
    for series in Series::ALL {
        let script = format!("{PROLOGUE}{SCRIPT}");
        let mut spec = machine(series, &script, dir.path());
        spec.extra_packages = vec!["libbpf-tools".to_owned()];
        spec.timeout = Duration::from_secs(300);
        let (output, report) = report_of(&spec, "");
        println!("{report}");
        assert!(report.starts_with(&format!("kernel {}", output.kernel_release)));
        assert!(report.contains("warm scan"), "both scans were made");
    }
}
