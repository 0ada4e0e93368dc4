//! Tests the packaged systemd unit on a stock kernel, under systemd: it starts and works with its
//! restrictions, keeps the knobs in force over restarts and crashes, and leaves nothing changed at the end.
//!
//! Slow, so ignored by default; `make test` runs it:
//! `cargo test -p justitia-cli --test unit -- --ignored --nocapture`.

#[path = "../../../lab/tests/common/mod.rs"]
mod common;

use std::time::Duration;

use common::{assert_line, host, numbers, programs, report_of};

const SERVICES: &str = include_str!("services.sh");
const UNIT: &str = include_str!("../../../packaging/justitia.service");
const WEB_UNIT: &str = include_str!("../../../packaging/justitia-web.service");
const RESTORE_UNIT: &str = include_str!("../../../packaging/justitia-restore.service");

/// Becomes a host of systemd, in its own PID namespace, because the guest's first process is the lab's. `job`
/// prints the units, each after a line `@@ NAME`. Only the path of the binary and the destination of its
/// output are changed in them. The check is itself a service; its end is the guest's.
const SCRIPT: &str = r#"
if [ "$1" != check ]; then
    set_up
    mount -t tmpfs tmpfs /var/tmp
    mkdir -p /run/systemd/system/justitia.service.d
    cd /run/systemd/system || give_up "no /run"
    : >/run/lab.toml
    job | while IFS= read -r line; do
        case $line in "@@ "*) unit=${line#@@ } ;; *) printf '%s\n' "$line" >>"$unit" ;; esac
    done
    busybox ip link set lo up
    mkdir -p justitia-web.service.d justitia-restore.service.d
    cat >justitia-web.service.d/lab.conf <<END
[Service]
ExecStart=
ExecStart=/opt/lab/justitia-web --stdin
StandardError=append:/run/web.log
END
    cat >justitia.service.d/lab.conf <<END
[Service]
ExecStart=
ExecStart=/opt/lab/justitia run --wait --hand-over --config /run/lab.toml --manage '/work.slice/*'
ExecStopPost=
ExecStopPost=-/opt/lab/justitia restore --config /run/lab.toml --unless-restarting %n
StandardOutput=append:/run/justitia.log
StandardError=append:/run/justitia.log
END
    cat >justitia-restore.service.d/lab.conf <<END
[Service]
ExecStop=
ExecStop=-/opt/lab/justitia restore --config /run/lab.toml
StandardOutput=append:/run/restore.log
StandardError=append:/run/restore.log
END
    units
    exec unshare --pid --fork --mount --mount-proc \
        /lib/systemd/systemd --system --unit=lab.target --log-target=console --log-level=warning
fi
"#;

const CHECK: &str = r#"
show() { systemctl show -P "$1" justitia; }
is_active() { [ "$(show ActiveState)" = active ]; }
{
    systemctl start light heavy || echo "FAILED: the loads do not start"
    knobs >/run/before
    /opt/lab/justitia try --seconds 20 --manage '/work.slice/*' || echo "FAILED: cannot try"
    as_before && echo "try has written nothing"
    systemctl start justitia && echo "started: $(show ActiveState) $(show Type)" || systemctl status justitia
    wait_for 60 limited && echo "limits are set"
    first=$(show MainPID)
    echo "seccomp: $(grep Seccomp: /proc/$first/status | tr -dc 0-9) capabilities of its threads: $(cat /proc/$first/task/*/status | grep CapPrm | sort -u | tr -d ' \t\n')"
    page() {
        exec 3<>"/dev/tcp/127.0.0.1/$1" || return
        printf 'GET /api/status HTTP/1.1\r\nHost: localhost\r\n\r\n' >&3
        grep -q '^{"version":.*heavy.service' <&3
    } 2>/dev/null
    web() { systemctl show -P "$1" justitia-web; }
    wait_for 20 page 9619 && echo "the page is served"
    echo "page: $(grep -E '^(Uid|CapBnd|NoNewPrivs)' "/proc/$(web MainPID)/status" | tr -d ' \t' | tr '\n' ' ')"
    grep -E '^(Threads|VmRSS)' "/proc/$first/status" | sed 's/^/agent /'
    grep -E '^VmRSS' "/proc/$(web MainPID)/status" | sed 's/^/page /'
    printf 'listen = "127.0.0.1:9700"\n' >/run/lab.toml
    systemctl reload justitia && wait_for 20 page 9700 && echo "the page moved"
    : >/run/lab.toml
    systemctl stop justitia-web && sleep 2 && is_active && echo "the agent goes on without a page"
    systemctl start justitia-web
    systemctl reload justitia && sleep 2 && is_active && [ "$(show MainPID)" = "$first" ] && echo "reloaded"
    /opt/lab/justitia status || echo "FAILED: no status"
    /opt/lab/justitia doctor --seconds 0 >/run/doctor
    grep -q "weights on disks act by" /run/doctor || echo "FAILED: the doctor does not run"
    # Their limits are a large part of this guest's memory, as of no host's.
    grep "justitia.*\.service" /run/doctor | grep -v "may grow by" && echo "FAILED: a fault of the agent's own units"
    weighs() { /opt/lab/justitia status --json | grep -Eq "\"weight\": ?$1\b"; }
    for weight in 800 400; do
        systemctl set-property --runtime heavy IOWeight=$weight
        # Usually at once. A write of the agent's may be on its way and replace systemd's; it notices later.
        wait_for 20 weighs $weight && echo "weight $weight shows" || echo "weight $weight does not show"
        echo "knobs: $(tr '\n' ' ' <$slice/heavy.service/io.weight) $(tr '\n' ' ' <$slice/heavy.service/io.bfq.weight)"
    done
    sleep 6
    echo "bfq: $(tr -dc 0-9 <$slice/heavy.service/io.bfq.weight) foreign: $(grep -c 'heavy.service io.*somebody else' /run/justitia.log)"
    again() { is_active && [ "$(show MainPID)" != "$first" ] && [ "$(show MainPID)" != 0 ]; }
    kill_it() {
        first=$(show MainPID)
        [ "$first" -gt 1 ] && kill -KILL "$first" || echo "FAILED: no process to kill"
    }
    went_on() { grep -c 'continues from the previous agent' /run/justitia.log; }
    # Until the next agent has what was left.
    until_taken() { # COMMAND...
        local before
        before=$(went_on)
        "$@"
        for i in $(seq 600); do [ "$(went_on)" = "$before" ] || break; sleep 0.1; done
    }
    # A decision may lift a limit at any time, so the agents decide nothing new while their knobs are watched: their
    # next steps are due later.
    echo 'interval = "20s"' >/run/lab.toml
    systemctl reload justitia && sleep 2
    watched restart systemctl restart justitia
    again && echo "restarted by hand"
    # The next agent's second step saves what it leaves if it is killed.
    wait_for 40 [ -e /run/justitia/handover ]
    watched kill until_taken kill_it
    wait_for 30 again
    : >/run/lab.toml
    systemctl reload justitia
    echo "restarted: $(show NRestarts)"
    echo "went on: $(went_on)"
    wait_for 60 limited && echo "limits are set again"
    wait_for 20 page 9619 && echo "the page is served again"
    echo 'nonsense = 1' >/run/lab.toml
    systemctl restart justitia; as_before && echo "a restart that fails restores"
    : >/run/lab.toml
    systemctl reset-failed justitia; systemctl restart justitia
    wait_for 60 limited && sleep 11
    printf '[Service]\nRestart=no\n' >/run/systemd/system/justitia.service.d/no.conf
    systemctl daemon-reload
    # systemd writes its own values then, and the agent takes its knobs again.
    sleep 5; wait_for 60 limited && sleep 11
    kill_it
    # 6 s on an idle host, most of them until systemd sees the agent's end; 12 s beside busy processes.
    wait_for 60 as_before && echo "without a next start everything is restored"
    rm /run/systemd/system/justitia.service.d/no.conf
    systemctl daemon-reload; systemctl reset-failed justitia; systemctl start justitia
    wait_for 60 limited && echo "limits are set for the last time"
    # Nobody looks for what it leaves in the directory in use.
    echo 'state_dir = "/run/other"' >/run/lab.toml
    systemctl stop justitia && echo "stopped: $(show Result)"
    echo "page: $(web ActiveState)"
    as_before && echo "every knob is as before"
    echo "memory peak: $(show MemoryPeak)"
    echo "== its log"; cat /run/justitia.log
    echo "== the page's"; cat /run/web.log
    echo "== the last resort's"; cat /run/restore.log
    echo "== knobs"; cat /run/before
} 2>&1 | report
busybox sync
busybox poweroff -f
"#;

/// The agent under the unit's limits of memory and descriptors, with many groups.
const MANY: &str = r#"
set_up
say "set up"
cd /sys/fs/cgroup || give_up "no cgroup2"
{
    echo "+memory +io" >cgroup.subtree_control
    mkdir agent many
    echo "+memory +io" >many/cgroup.subtree_control
    (cd many && mkdir $(seq -f g%g 3000)) || give_up "no groups"
    echo "made after $(cut -d' ' -f1 /proc/uptime) s"
    say "made 3,000 groups"
    unit=$(job)
    setting() { sed -n "s/^$1=//p" <<<"$unit"; }
    setting MemoryMax >agent/memory.max
    (
        ulimit -n "$(setting LimitNOFILE)" || exit
        echo $BASHPID >agent/cgroup.procs
        exec /opt/lab/justitia run --wait --listen off --manage '/many/*' >/run/log 2>&1
    ) &
    say "the agent is started"
    # Each group's files are read within so many steps.
    steps() { timeout 60 /opt/lab/justitia status --json 2>/dev/null | grep -Eo '"ticks_total": ?[0-9]+' | grep -Eo '[0-9]+$'; }
    for i in $(seq 300); do [ "$(steps)" -ge 24 ] 2>/dev/null && break; sleep 1; done
    echo "steps: $(steps) after $(cut -d' ' -f1 /proc/uptime) s"
    for what in max peak current; do echo "memory $what $(cat agent/memory.$what)"; done
    sed 's/^/event /' agent/memory.events
    cat agent/memory.stat
    cat /run/log
} 2>&1 | report
busybox poweroff -f
"#;

#[test]
#[ignore = "boots a virtual machine"]
fn three_thousand_groups_fit_into_the_units_memory() {
    let dir = tempfile::tempdir().unwrap();
    let mut spec = host(MANY, dir.path());
    spec.binaries
        .extend(programs(env!("CARGO_BIN_EXE_justitia"), &[]));
    spec.memory_bytes = 1 << 30;
    spec.timeout = Duration::from_secs(900);
    let (_, report) = report_of(&spec, UNIT);
    println!("{report}");
    for line in ["manages 3000 groups", "BPF programs count"] {
        assert_line(&report, line);
    }
    let [most, peak] = ["max", "peak"].map(|what| numbers(&report, &format!("memory {what} "))[0]);
    for event in ["event max ", "event oom_kill "] {
        assert_eq!(numbers(&report, event), [0.0], "{event}");
    }
    assert!(
        peak <= 0.75 * most,
        "{peak} of {most} used: too little is left"
    );
}

#[test]
#[ignore = "boots a virtual machine and downloads systemd the first time"]
fn the_packaged_unit_works_under_its_restrictions_and_leaves_nothing_changed() {
    let dir = tempfile::tempdir().unwrap();
    let mut spec = host(&format!("{SERVICES}{SCRIPT}{CHECK}"), dir.path());
    let justitia = env!("CARGO_BIN_EXE_justitia");
    spec.binaries.extend(programs(justitia, &["justitia-web"]));
    spec.extra_packages = vec!["systemd".to_owned()];
    spec.data_bytes = 1 << 30;
    // So slow that the services contend for it on a busy host too. Otherwise the agent rightly lifts their limits.
    spec.disk_mbps = Some(8);
    spec.timeout = Duration::from_secs(900);
    let units = [
        ("justitia", UNIT),
        ("justitia-web", WEB_UNIT),
        ("justitia-restore", RESTORE_UNIT),
    ];
    let units = units.map(|(name, text)| format!("@@ {name}.service\n{text}"));
    let (_, report) = report_of(&spec, &units.concat());
    println!("{report}");
    for line in [
        "Groups competed for",
        "would limit 2 groups",
        "try has written nothing",
        "started: active notify",
        "limits are set",
        // DAC_OVERRIDE, SYS_PTRACE, SYS_RESOURCE, PERFMON, BPF: SYS_ADMIN is given up.
        "seccomp: 2 capabilities of its threads: CapPrm:000000c001080002",
        "reloaded",
        "weight 800 shows",
        "weight 400 shows",
        "foreign: 0",
        "restart: prior values seen 0 times",
        "restarted by hand",
        "kill: prior values seen 0 times",
        "restarted: 1",
        "went on: 2",
        "limits are set again",
        "a restart that fails restores",
        "without a next start everything is restored",
        "limits are set for the last time",
        "the page is served",
        "the page moved",
        "the agent goes on without a page",
        "the page is served again",
        "page: inactive",
        "stopped: success",
        "every knob is as before",
        "justitia: BPF programs count in the kernel",
        "/work.slice/heavy.service joined: weight 400",
    ] {
        assert_line(&report, line);
    }
    assert!(!report.contains("FAILED"), "{report}");
    let page = report.lines().find(|line| line.starts_with("page: Uid"));
    let page = page.expect("the page's process");
    assert!(!page.contains("Uid:0"), "{page}");
    assert!(
        page.contains("CapBnd:0000000000000000") && page.contains("NoNewPrivs:1"),
        "{page}"
    );
}
