//! The Debian package on a stock kernel, under systemd: installing it writes no knob, the documented command turns
//! it on, an upgrade hands the knobs over, and purging it under load leaves every knob as it was.
//!
//! Slow, and needs a package: `scripts/package --check` builds one and runs this.

#[path = "../../../lab/tests/common/mod.rs"]
mod common;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use common::{machine, report_of, PROLOGUE};
use justitia_machine::kernels::Series;

const SERVICES: &str = include_str!("services.sh");

/// Becomes systemd's host with a root that can be written to: a layer of memory over the guest's own.
const SCRIPT: &str = r#"
root=/run/layer/root
if [ "$1" != check ]; then
    set_up
    mkdir -p /run/layer/upper /run/layer/work $root /run/systemd/system
    mount -t overlay -o lowerdir=/,upperdir=/run/layer/upper,workdir=/run/layer/work none $root ||
        give_up "no layer over the root"
    for dir in dev sys run tmp data opt/lab; do
        mount --bind /$dir $root/$dir || give_up "no $dir"
    done
    mount --bind /sys/fs/cgroup $root/sys/fs/cgroup
    # Debian makes this link when a system is installed; maintainer scripts need it.
    ln -s bash $root/bin/sh
    # Without an ID it is a first boot, which asks questions.
    echo 0123456789abcdef0123456789abcdef >$root/etc/machine-id
    cd /run/systemd/system || give_up "no /run"
    busybox ip link set lo up
    units
    exec unshare --pid --fork --mount chroot $root /bin/sh -c 'mount -t proc proc /proc
        exec /lib/systemd/systemd --system --unit=lab.target --log-target=console --log-level=warning'
fi
"#;

/// `job` prints the command that turns it on.
const CHECK: &str = r#"
managed() { justitia status | grep -q '^/work.slice/heavy.service'; }
# The image's packages are not in its database, and not all programs that dpkg looks for are in it.
dpkg() { command dpkg --force-depends,bad-path "$@"; }
{
    mkdir -p /var/lib/dpkg/info /var/lib/dpkg/updates /var/lib/dpkg/triggers
    : >/var/lib/dpkg/status
    files() { find / -xdev -name '*justitia*' | sort; }
    files >/run/files
    systemctl start light heavy || echo "FAILED: the loads do not start"
    knobs >/run/before
    dpkg -i /opt/lab/justitia.deb && echo "installed"
    echo "the unit is $(systemctl is-enabled justitia) and $(systemctl is-active justitia justitia-web | tr '\n' ' ')"
    sed -i '1i manage = ["/work.slice/*"]' /etc/justitia.toml
    systemctl reload justitia
    wait_for 30 managed && sleep 10
    justitia status | sed -n '1s/.*mode \([a-z]*\).*/it is in mode \1/p'
    as_before && echo "installing has written no knob"
    sudo() { "$@"; }
    eval "$(job)" && wait_for 60 limited && echo "turned on: limits are set"
    first=$(systemctl show -P MainPID justitia)
    # Prior values are seen for a moment: the package's daemon-reload has systemd write its own to services.
    watched upgrade dpkg -i /opt/lab/justitia.deb
    [ "$(systemctl show -P MainPID justitia)" != "$first" ] && echo "another agent runs"
    limited && echo "limits are set by the new agent"
    dpkg --purge justitia && echo "purged"
    as_before && echo "every knob is as before"
    systemctl cat justitia >/dev/null 2>&1 || echo "no unit is left"
    [ "$(files)" = "$(cat /run/files)" ] && echo "no file is left"
} 2>&1 | report
busybox sync
busybox poweroff -f
"#;

#[test]
#[ignore = "boots a virtual machine, and needs JUSTITIA_TEST_PACKAGE"]
fn installing_writes_no_knob_and_purging_under_load_leaves_none_changed() {
    let package = std::env::var_os("JUSTITIA_TEST_PACKAGE").map(PathBuf::from);
    let package =
        package.expect("JUSTITIA_TEST_PACKAGE=justitia_VERSION.deb; scripts/package builds one");
    let dir = tempfile::tempdir().unwrap();
    let mut spec = machine(
        Series::V6_12,
        &format!("{PROLOGUE}{SERVICES}{SCRIPT}{CHECK}"),
        dir.path(),
    );
    let there = dir.path().join("justitia.deb");
    fs::copy(package, &there).unwrap();
    spec.binaries.push(there);
    spec.modules.push("overlay".to_owned());
    let packages = ["systemd", "dpkg", "tar", "perl-base", "init-system-helpers"];
    spec.extra_packages = packages.map(str::to_owned).into();
    spec.data_bytes = 1 << 30;
    spec.disk_mbps = Some(40);
    spec.timeout = Duration::from_secs(900);

    let page = include_str!("../../../docs/packages.md");
    let turn_on = page
        .lines()
        .find(|line| line.starts_with("sudo sed "))
        .expect("the command that turns it on");
    let (_, report) = report_of(&spec, turn_on);
    println!("{report}");
    for line in [
        "Next, run: justitia doctor",
        "installed",
        "the unit is enabled and active active",
        "it is in mode observe",
        "installing has written no knob",
        "turned on: limits are set",
        "another agent runs",
        "limits are set by the new agent",
        "purged",
        "every knob is as before",
        "no unit is left",
        "no file is left",
    ] {
        assert!(report.contains(line), "not there: {line}\n{report}");
    }
}
