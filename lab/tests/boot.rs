//! Boots every stock kernel with a shell script in place of the guest program.
//!
//! Slow (a download on the first run, then some seconds per kernel), so it is ignored by default:
//! `cargo test -p justitia-lab --test boot -- --ignored --nocapture`.

mod common;

use std::path::Path;
use std::time::Instant;

use common::{boot, machine, report_of, PROLOGUE};
use justitia_lab::kernels::Series;
use justitia_lab::vm::VmSpec;

/// Answers through the mailbox with what the guest sees; shell only.
const SCRIPT: &str = r#"
echo "@justitia hello from $(uname -r)"
set_up
crun --version >/dev/null && fio --version >/dev/null && awk 'BEGIN { exit 0 }' || give_up "programs"
{
    uname -r
    job; echo
    cat "/sys/block/${data#/dev/}/queue/scheduler" /sys/fs/cgroup/cgroup.controllers
    cat /proc/pressure/io /proc/cmdline /proc/uptime
    grep MemTotal /proc/meminfo
    stat -c %U:%G /usr/bin/bash /opt/justitia/justitia-lab-guest
    begin=$(date +%s.%N)
    dd if=/dev/zero of=/data/x bs=1M count=40 conv=fsync 2>/dev/null
    awk -v a="$begin" -v b="$(date +%s.%N)" 'BEGIN { printf "throttled_s=%.2f\n", b - a }'
} | report
"#;

fn spec(series: Series, script: &str, dir: &Path) -> VmSpec {
    VmSpec {
        disk_mbps: Some(40),
        modules: vec!["bfq".into(), "overlay".into()],
        ..machine(series, script, dir)
    }
}

#[test]
#[ignore = "boots virtual machines and downloads kernels the first time"]
fn every_stock_kernel_boots_and_answers() {
    let dir = tempfile::tempdir().unwrap();
    for series in Series::ALL {
        let begin = Instant::now();
        let script = format!("{PROLOGUE}{SCRIPT}");
        let (output, report) = report_of(&spec(series, &script, dir.path()), "a job");
        eprintln!(
            "{series}: {} init after {:?} s, whole run {:.1} s, retries {}\n{report}",
            output.accelerator.name(),
            output.boot_s,
            begin.elapsed().as_secs_f64(),
            output.retries
        );
        assert!(report.starts_with(&output.kernel_release), "{report}");
        assert!(output.kernel_release.starts_with(series.name()));
        for expected in [
            "\na job\n",
            "[bfq]",
            "memory",
            "some avg10",
            "psi=1",
            "root:root",
        ] {
            assert!(report.contains(expected), "{expected} in {report}");
        }
    }
}

#[test]
#[ignore = "boots virtual machines and downloads kernels the first time"]
fn a_guest_that_gives_up_or_panics_is_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let gives_up = "#!/bin/bash\necho '@justitia-error no data disk'\n";
    let error = boot(&spec(Series::V6_12, gives_up, dir.path()), "").unwrap_err();
    assert_eq!((error.exit_code(), error.cause()), (1, "no data disk"));

    let panics = "#!/bin/bash\necho c >/proc/sysrq-trigger\nsleep 60\n";
    let error = boot(&spec(Series::V6_12, panics, dir.path()), "").unwrap_err();
    assert_eq!(error.exit_code(), 69);
    assert!(error.cause().contains("panicked twice"), "{error}");
    assert!(dir.path().join("console.panic.log").exists());
}
