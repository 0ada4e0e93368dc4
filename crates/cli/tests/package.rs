//! Tests the Debian package on a stock kernel, under systemd: installing it writes no knob, the documented
//! command enables it, the page is served with TLS or over a Unix socket as docs/operators.md says, an
//! upgrade hands the knobs over, and purging it under load restores every knob.
//!
//! Slow, and needs a package: `scripts/package --check` builds one and runs this.

#[path = "../../../lab/tests/common/mod.rs"]
mod common;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use common::{assert_line, machine, report_of, PROLOGUE};
use justitia_machine::kernels::Series;

const SERVICES: &str = include_str!("services.sh");

/// Becomes a host of systemd with a writable root: a tmpfs layer over the guest's own root.
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
    job >$root/run/page
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

/// The page with TLS, then over a Unix socket, by the documented keys of the configuration and the documented
/// drop-in.
const PAGE: &str = r#"
in_web() { systemctl show -P "$1" justitia-web; }
by_tls() { curl --silent --fail --max-time 10 --cacert /run/authority.pem "https://localhost:9619/$1" | grep "$2" >/dev/null; }
over_socket() { # GROUP
    setpriv --reuid 1234 --regid "$1" --clear-groups curl --silent --max-time 10 --unix-socket /run/justitia-web/page.sock \
        http://localhost/metrics | grep 'name="heavy"' >/dev/null
}
configure() { # LINE
    cp /run/configuration /etc/justitia.toml
    sed -i "1i $1" /etc/justitia.toml
    systemctl reload justitia
}
check_page() {
    echo www-data:x:33: >>/etc/group
    cp /etc/justitia.toml /run/configuration
    mkdir /etc/justitia
    renew() { certify "$1" /run/new && mv /run/new.key /etc/justitia/page.key && mv /run/new.crt /etc/justitia/page.pem; }
    renew first
    configure "$(grep '^tls = ' /run/page)"
    wait_for 30 by_tls metrics 'name="heavy"' && presents first && echo "the metrics are there by TLS"
    by_tls api/status '^{"version"' && by_tls '' '<html' && echo "the page is there by TLS"
    curl --silent --max-time 10 http://localhost:9619/metrics | grep -q https:// && echo "who asks without TLS is told"
    openssl req -x509 -newkey rsa:2048 -noenc -subj /CN=other -keyout /run/other.key -out /run/other.pem 2>/dev/null
    curl --silent --max-time 10 --cacert /run/other.pem https://localhost:9619/metrics; echo "a stranger ends with $?"
    web=$(in_web MainPID)
    echo "web: $(grep -E '^(CapPrm|CapEff|CapBnd|NoNewPrivs)' "/proc/$web/status" | tr -d ' \t' | tr '\n' ' ')"
    user=$(stat -c %u "/proc/$web")
    [ "$user" != 0 ] && ! setpriv --reuid "$user" --regid "$user" --clear-groups cat /etc/justitia/page.key &&
        echo "the key is closed to it"
    renew second
    wait_for 20 presents second && [ "$(in_web MainPID)" = "$web" ] && echo "a renewed certificate is followed"
    echo nonsense >/etc/justitia/page.pem
    sleep 3
    presents second && by_tls metrics 'name="heavy"' && echo "while it is damaged the last one stays"

    mkdir -p /etc/systemd/system/justitia-web.service.d
    sed '/^tls = \|^listen = \|^sudo /d' /run/page >/etc/systemd/system/justitia-web.service.d/override.conf
    systemctl daemon-reload
    systemctl restart justitia-web
    configure "$(grep '^listen = ' /run/page)"
    wait_for 30 over_socket 33 && echo "the page's group reaches the socket"
    over_socket 1234 || echo "others do not"
    curl --silent --max-time 10 --cacert /run/authority.pem https://localhost:9619/metrics; echo "the port ends with $?"
    rm -r /etc/systemd/system/justitia-web.service.d /etc/justitia
    systemctl daemon-reload
    cp /run/configuration /etc/justitia.toml
    systemctl restart justitia-web
    systemctl reload justitia
}
"#;

/// `job` prints the command that enables the agent.
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
    eval "$(grep '^sudo ' /run/page)" && wait_for 60 limited && echo "turned on: limits are set"
    check_page
    wait_for 60 limited
    first=$(systemctl show -P MainPID justitia)
    # Prior values are seen for a moment: the package's daemon-reload has systemd write its own to services.
    watched upgrade dpkg -i /opt/lab/justitia.deb
    [ "$(systemctl show -P MainPID justitia)" != "$first" ] && echo "another agent runs"
    limited && echo "limits are set by the new agent"
    dpkg --purge justitia && echo "purged"
    as_before && echo "every knob is as before"
    systemctl cat justitia >/dev/null 2>&1 || echo "no unit is left"
    [ "$(files)" = "$(cat /run/files)" ] && echo "no file is left"
} 2>&1 | tee /dev/console | report
busybox sync
busybox poweroff -f
"#;

/// The lines that a user copies from the pages: the command that enables the agent, the keys `tls` and
/// `listen`, and the drop-in.
fn documented() -> String {
    let packages = include_str!("../../../docs/packages.md");
    let operators = include_str!("../../../docs/operators.md");
    let turn_on = packages.lines().find(|line| line.starts_with("sudo sed "));
    let key = |begin: &str| {
        let mut code = operators.split('`');
        code.find(|code| code.starts_with(begin))
    };
    let drop_in = operators
        .split("  ```")
        .find(|text| text.contains("[Service]"));
    let all = [turn_on, key("tls = "), key("listen = \"unix:"), drop_in];
    let all = all.map(|found| found.expect("the pages have it"));
    let lines = all.iter().flat_map(|text| text.lines());
    lines.map(str::trim).collect::<Vec<_>>().join("\n") + "\n"
}

#[test]
#[ignore = "boots a virtual machine, and needs JUSTITIA_TEST_PACKAGE"]
fn installing_writes_no_knob_and_purging_under_load_leaves_none_changed() {
    let package = std::env::var_os("JUSTITIA_TEST_PACKAGE").map(PathBuf::from);
    let package =
        package.expect("JUSTITIA_TEST_PACKAGE=justitia_VERSION.deb; scripts/package builds one");
    let dir = tempfile::tempdir().unwrap();
    let mut spec = machine(
        Series::V6_12,
        &format!("{PROLOGUE}{SERVICES}{PAGE}{SCRIPT}{CHECK}"),
        dir.path(),
    );
    let there = dir.path().join("justitia.deb");
    fs::copy(package, &there).unwrap();
    spec.binaries.push(there);
    spec.modules.push("overlay".to_owned());
    let packages = "curl dpkg init-system-helpers openssl perl-base systemd tar";
    spec.extra_packages = packages.split(' ').map(str::to_owned).collect();
    spec.data_bytes = 1 << 30;
    spec.disk_mbps = Some(40);
    spec.timeout = Duration::from_secs(1800);

    let (_, report) = report_of(&spec, &documented());
    println!("{report}");
    for line in [
        "Next, run: justitia doctor",
        "installed",
        "the unit is enabled and active active",
        "it is in mode observe",
        "installing has written no knob",
        "turned on: limits are set",
        "the metrics are there by TLS",
        "the page is there by TLS",
        "who asks without TLS is told",
        // curl's exit status for a certificate from an unknown authority.
        "a stranger ends with 60",
        "web: CapPrm:0000000000000000 CapEff:0000000000000000 CapBnd:0000000000000000 NoNewPrivs:1",
        "the key is closed to it",
        "a renewed certificate is followed",
        "while it is damaged the last one stays",
        "the page's group reaches the socket",
        "others do not",
        // curl's exit status for a port at which nobody listens.
        "the port ends with 7",
        "another agent runs",
        "limits are set by the new agent",
        "purged",
        "every knob is as before",
        "no unit is left",
        "no file is left",
    ] {
        assert_line(&report, line);
    }
}
