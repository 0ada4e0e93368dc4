# The guest's part of tests/gate.rs, after the lab tests' host.sh. Two groups write, and an agent holds the
# gate and ends in every possible way. Nothing is asserted here.

# Prints a command's output under a name, with its exit status if it failed.
keep() { # NAME COMMAND...
    local name=$1 status
    shift
    echo "@ $name"
    timeout 60 "$@" 2>&1 </dev/null
    status=$?
    [ $status -eq 0 ] || echo "status $status"
}

tell() { echo "@ $1"; echo "$2"; } # NAME TEXT

# True if the gate's status has at least LINES lines of this pattern, one by default.
says() { # PATTERN [LINES]
    [ "$($justitia gate status --json | grep -c "$1")" -ge "${2:-1}" ]
}

await() { # STATE
    soon says "\"state\": \"$1\"" || echo "the gate does not become $1"
}

# The module stays in use while a writer is in the kernel's throttling called from it.
unload() { soon rmmod justitia; }

start() { run_agent /run/agent.log --manage '/app/*' --mode justitia --observer proc "$@"; } # ARGUMENTS...

set_up
echo n >/sys/kernel/mm/lru_gen/enabled
make_groups light heavy
$justitia weight /app/heavy 800 >/dev/null || give_up "no weight"
printf '[gate]\nenabled = true\n' >/run/gate.toml

{
    echo
    keep no-module $justitia gate status
    start
    keep enable-no-module $justitia gate enable
    kill -TERM $agent && wait $agent
    insmod /opt/lab/justitia.ko || give_up "the module does not load"
    keep no-agent $justitia gate enable
    keep not-root setpriv --reuid 65534 --clear-groups $justitia gate status
    keep loaded $justitia gate status --json

    writer light
    writer heavy
    writer heavy
    start --config /run/gate.toml
    await closed
    # Then both groups have written to a device.
    soon says '"path": "/app/' 2
    keep configured $justitia gate status --json
    soon says '"enqueued_total": [1-9]'
    keep busy $justitia gate status --json
    keep status $justitia status
    keep top env COLUMNS=160 $justitia top --once
    keep metrics bash -c 'for try in {1..240}; do exec 3<>/dev/tcp/127.0.0.1/9619 && break; sleep 0.25; done 2>/dev/null
        printf "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:9619\r\n\r\n" >&3
        cat <&3'

    echo 1 >$cgroups/app/light/cgroup.kill
    soon rmdir $cgroups/app/light
    soon says '"groups": 2,'
    keep one-left $justitia gate status --json
    keep let-go $justitia gate disable --json
    unload && tell unloaded yes
    insmod /opt/lab/justitia.ko
    keep taken-again $justitia gate enable --json

    kill -TERM $agent && wait $agent
    keep stopped $justitia gate status --json
    start --config /run/gate.toml
    await closed
    kill -9 $agent
    wait $agent 2>/dev/null
    keep killed $justitia gate status --json
    start --config /run/gate.toml
    await closed
    kill -STOP $agent
    # The agent does not answer, so the command reads the module.
    await no-heartbeat
    keep stuck $justitia gate status --json
    kill -CONT $agent
    await closed
    keep awake $justitia gate status --json
    kill -TERM $agent && wait $agent
    unload
    tell complaints "$(dmesg | grep -E 'BUG:|WARNING:|Oops:|hung task|blocked for more|lockup' || echo none)"
} 2>&1 | report
