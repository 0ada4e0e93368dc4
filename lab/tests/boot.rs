//! Boots every stock kernel with a shell script in place of the guest program.
//!
//! Slow (a download on the first run, then some seconds per kernel), so it is ignored by default:
//! `cargo test -p justitia-lab --test boot -- --ignored --nocapture`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use justitia_lab::kernels::Series;
use justitia_lab::vm::{run_guest, GuestOutput, VmSpec};

/// Answers through the mailbox with what the guest sees; shell only.
const SCRIPT: &str = r#"#!/bin/bash
echo "@justitia hello from $(uname -r)"
disk_of() {
    for disk in /sys/block/nvme*; do
        read -r serial <"$disk/device/serial"
        [ "$serial" = "$1" ] && echo "/dev/${disk##*/}"
    done
}
mailbox=$(disk_of mailbox)
data=$(disk_of data)
while read -r module; do insmod "/opt/justitia/modules/$module" || exit 3; done </opt/justitia/modules/order
echo bfq >"/sys/block/${data#/dev/}/queue/scheduler" || exit 4
mount -t cgroup2 none /sys/fs/cgroup || exit 5
mke2fs -q -F -t ext4 "$data" && mount "$data" /data || exit 6
crun --version >/dev/null && fio --version >/dev/null && awk 'BEGIN { exit 0 }' || exit 7
report=$(
    uname -r
    dd if="$mailbox" bs=1 skip=8 count=5 2>/dev/null; echo
    cat "/sys/block/${data#/dev/}/queue/scheduler" /sys/fs/cgroup/cgroup.controllers
    cat /proc/pressure/io /proc/cmdline /proc/uptime
    grep MemTotal /proc/meminfo
    stat -c %U:%G /usr/bin/bash /opt/justitia/justitia-lab-guest
    begin=$(date +%s.%N)
    dd if=/dev/zero of=/data/x bs=1M count=40 conv=fsync 2>/dev/null
    awk -v a="$begin" -v b="$(date +%s.%N)" 'BEGIN { printf "throttled_s=%.2f\n", b - a }'
)
length=$(printf %s "$report" | wc -c)
printf %s "$report" | dd of="$mailbox" bs=1M seek=1048584 oflag=seek_bytes conv=notrunc,fsync 2>/dev/null
printf "$(printf '\\x%02x\\x%02x\\0\\0\\0\\0\\0\\0' $((length % 256)) $((length / 256)))" |
    dd of="$mailbox" bs=8 seek=1048576 oflag=seek_bytes conv=notrunc,fsync 2>/dev/null
"#;

fn boot(
    series: Series,
    script: &str,
    dir: &Path,
) -> Result<GuestOutput, justitia_lab::error::LabError> {
    let guest = dir.join("justitia-lab-guest");
    fs::write(&guest, script).unwrap();
    fs::set_permissions(&guest, fs::Permissions::from_mode(0o755)).unwrap();
    let spec = VmSpec {
        kernel: series,
        memory_bytes: 768 << 20,
        cpus: 2,
        disk_mbps: Some(40),
        data_bytes: 1 << 30,
        binaries: vec![guest],
        modules: vec!["bfq".into(), "overlay".into()],
        extra_packages: Vec::new(),
        timeout: Duration::from_secs(120),
        console_log: dir.join("console.log"),
        cmdline: Vec::new(),
    };
    run_guest(&spec, b"a job", &mut |line| eprintln!("{line}"))
}

#[test]
#[ignore = "boots virtual machines and downloads kernels the first time"]
fn every_stock_kernel_boots_and_answers() {
    let dir = tempfile::tempdir().unwrap();
    for series in Series::ALL {
        let begin = Instant::now();
        let output = boot(series, SCRIPT, dir.path()).unwrap_or_else(|error| {
            let log = fs::read_to_string(dir.path().join("console.log")).unwrap_or_default();
            panic!("{error}\n{log}")
        });
        let report = String::from_utf8(output.report.clone()).unwrap();
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
    let error = boot(Series::V6_12, gives_up, dir.path()).unwrap_err();
    assert_eq!((error.exit_code(), error.cause()), (1, "no data disk"));

    let panics = "#!/bin/bash\necho c >/proc/sysrq-trigger\nsleep 60\n";
    let error = boot(Series::V6_12, panics, dir.path()).unwrap_err();
    assert_eq!(error.exit_code(), 69);
    assert!(error.cause().contains("panicked twice"), "{error}");
    assert!(dir.path().join("console.panic.log").exists());
}
