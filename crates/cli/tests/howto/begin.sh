# The beginning of the guests of tests/howto.rs, after the lab tests' prologue: a host of systemd with an
# agent, and functions that read the agent. `job` prints the code of a how-to page. Nothing is asserted here.

justitia=/opt/lab/justitia
cgroups=/sys/fs/cgroup

say() { echo "@lab $*" >/dev/console; }
tell() { (echo "@ $1"; cat) >>/run/all; } # NAME
patiently() { # COMMAND...
    local end=$((SECONDS + 60))
    while [ $SECONDS -lt $end ]; do
        "$@" >/dev/null 2>&1 && return
        sleep 0.5
    done
    say "in vain: $*"
    echo "$*" >>/run/vain
    tail -n 5 /run/agent.log /run/check.out >/dev/console
}
# Some commands run until they are interrupted.
sudo() { timeout --signal INT 60 "$@"; }

unit() { printf '[Unit]\nDefaultDependencies=no\n%b' "$2" >"$1"; } # FILE LINES
service() { unit "$1.service" "[Service]\nDelegate=yes\nKillMode=process\nStandardError=append:/run/$1.log\n$2\n"; } # NAME LINES

# The bus. systemd connects to it only if the units have these names.
bus() {
    echo messagebus:x:100:100::/:/bin/false >>/etc/passwd
    echo messagebus:x:100: >>/etc/group
    unit dbus.socket '[Socket]\nListenStream=/run/dbus/system_bus_socket\n'
    unit dbus.service '[Unit]\nRequires=dbus.socket\n[Service]\nType=notify\nExecStart=/usr/bin/dbus-daemon --system --address=systemd: --nofork --nopidfile --systemd-activation\n'
}
# User 1000, app, with a user manager whose cgroup has all controllers of the host's manager.
user_app() {
    echo app:x:1000:1000::/home/app:/bin/bash >>/etc/passwd
    echo app:x:1000: >>/etc/group
    echo app:100000:65536 | tee /etc/subuid >/etc/subgid
    mount -t tmpfs tmpfs /home && mkdir /home/app && chown 1000:1000 /home/app
    bus
    # Only the directory of a login session.
    unit user-runtime-dir@1000.service "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/busybox install -d -m 700 -o 1000 -g 1000 /run/user/1000\n"
    mkdir user@1000.service.d
    unit user@1000.service.d/lab.conf '[Service]\nDelegate=yes\nPAMName=\nEnvironment=XDG_RUNTIME_DIR=/run/user/1000\n'
}
app() {
    setpriv --reuid 1000 --regid 1000 --init-groups env -i PATH="$PATH" HOME=/home/app USER=app XDG_RUNTIME_DIR=/run/user/1000 \
        DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/1000/bus "$@" </dev/null
}
on_bus() { dbus-send --system --print-reply --dest=org.freedesktop.DBus / org.freedesktop.DBus.ListNames | grep -q org.freedesktop.systemd1; }

# Becomes a host of systemd. `units` creates the runtime's units. The rest of this script, `check`, is a
# service too.
become_systemd() {
    set_up
    cp -a /etc /run/etc && mount --bind /run/etc /etc || give_up "/etc stays read-only"
    mount -t tmpfs tmpfs /var/lib && mount -t tmpfs tmpfs /var/tmp || give_up "no /var"
    mkdir -p /run/systemd/system /run/page
    : >/etc/machine-id
    : >/run/vain
    busybox ip link set lo up
    job | while IFS= read -r line; do
        case $line in "@@ "*) file=${line#@@ } ;; *) printf '%s\n' "$line" >>"/run/page/$file" ;; esac
    done
    cd /run/systemd/system || give_up "no /run"
    units
    service agent "ExecStart=$justitia run --wait --observer proc --listen off"
    service check "Type=oneshot\nExecStart=$0 check"
    unit lab.target ''
    mkdir lab.target.wants && ln -s ../check.service lab.target.wants/
    exec unshare --pid --fork --mount --mount-proc \
        /lib/systemd/systemd --system --unit=lab.target --log-target=console --log-level=warning --show-status=false
}

# A container's root with one static program, built here because there is no registry.
make_image() { mkdir -p /run/image/bin && cp /bin/busybox /run/image/bin/ && tar -C /run/image -cf /run/image.tar .; }
writes='CMD ["busybox", "sh", "-c", "while :; do dd if=/dev/zero of=/data/$HOSTNAME bs=1M count=96; done"]'
sleeps='CMD ["busybox", "sleep", "1000000"]'

look() { $justitia status --json | tell "$1"; } # NAME
weighs() { $justitia explain "$1" --json | tr -d ' \n' | grep -q "\"weight\":$2,"; } # NAME WEIGHT
# True if the agent holds the group's block weight with this prior value.
leaves() { $justitia explain "$1" --json | tr -d ' \n' | grep -q "\"knob\":\"$file\",[^}]*\"prior\":\"$2\""; } # NAME WEIGHT
# The knobs of a cgroup.
knobs() { # DIRECTORY
    local file
    for file in memory.low memory.high memory.max io.weight io.bfq.weight; do
        [ -e "$1/$file" ] && echo "$file $(tr '\n' ' ' <"$1/$file")"
    done
}
# Follows the page word for word.
follow() {
    local command
    mkdir -p /run/bin && ln -s $justitia /run/bin/ && PATH=/run/bin:$PATH
    while IFS= read -r command; do
        # Through a file, not a pipe: background processes would keep a pipe open.
        eval "$command" >/run/said 2>&1 </dev/null
        tell "page $command" </run/said
    done </run/page/commands
}
finish() {
    for name in vain agent.log check.out; do tell $name </run/$name; done
    cat /run/check.out >/dev/console
    report </run/all
    busybox sync
    busybox poweroff -f
}
