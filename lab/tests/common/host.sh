# After the prologue, for guests that run an agent, or systemd.

justitia=/opt/lab/justitia
cgroups=/sys/fs/cgroup

say() { echo "@lab $*" >/dev/console; }
tell() { echo "@ $1"; cat; } # NAME

# Retries a command for two minutes or longer.
soon() { # COMMAND...
    local try
    for try in {1..480}; do
        "$@" >/dev/null 2>&1 && return
        sleep 0.25
    done
    return 1
}

# Creates groups below /app, and one for the agent.
make_groups() { # NAME...
    busybox ip link set lo up || give_up "no loopback interface"
    echo "+memory +io" >$cgroups/cgroup.subtree_control || give_up "no controllers"
    mkdir $cgroups/agent $cgroups/app && echo "+memory +io" >$cgroups/app/cgroup.subtree_control
    (cd $cgroups/app && mkdir "$@") || give_up "no groups"
}
into() { echo "$BASHPID" >"$cgroups/$1/cgroup.procs"; } # GROUP

# Starts an agent in its own group, and waits until it answers. Sets `agent` to its process ID.
run_agent() { # LOG ARGUMENTS...
    (
        into agent
        exec $justitia run "${@:2}"
    ) >>"$1" 2>&1 </dev/null &
    agent=$!
    soon $justitia status && return
    cat "$1"
    give_up "the agent does not answer"
}

# Writes files of a group again and again.
writer() { # GROUP [DIRECTORY]
    (
        into "app/$1"
        while :; do
            for i in 1 2 3 4; do
                dd if=/dev/zero of="${2:-/data}/$1$i" bs=64k count=512 conv=notrunc status=none
            done
        done
    ) >/dev/null 2>&1 </dev/null &
}

unit() { printf '[Unit]\nDefaultDependencies=no\n%b' "$2" >"$1"; } # FILE LINES
# The bus. systemd connects to it only if the units have these names.
bus() {
    echo messagebus:x:100:100::/:/bin/false >>/etc/passwd
    echo messagebus:x:100: >>/etc/group
    unit dbus.socket '[Socket]\nListenStream=/run/dbus/system_bus_socket\n'
    unit dbus.service '[Unit]\nRequires=dbus.socket\n[Service]\nType=notify\nExecStart=/usr/bin/dbus-daemon --system --address=systemd: --nofork --nopidfile --systemd-activation\n'
}
on_bus() { dbus-send --system --print-reply --dest=org.freedesktop.DBus / org.freedesktop.DBus.ListNames | grep -q org.freedesktop.systemd1; }
# Becomes systemd, in the directory of units. This script is a service, too, with the argument `check`; its end
# is the guest's.
boot_systemd() { # OPTION...
    unit lab.target ''
    unit check.service "[Service]\nType=oneshot\nExecStart=$0 check\n"
    mkdir lab.target.wants && ln -s ../check.service lab.target.wants/
    exec unshare --pid --fork --mount --mount-proc \
        /lib/systemd/systemd --system --unit=lab.target --log-target=console --log-level=warning "$@"
}
