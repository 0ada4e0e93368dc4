# The guest's part of tests/outages.rs, after the lab tests' host.sh: two Redis servers, one with its
# probe inside its group (near) and one with its probe outside (far), two groups that write (left, right),
# and an agent. Then probes, servers and groups fail in turn. Nothing is asserted here.

# Prints the agent's view of both groups under a name.
keep() { # NAME
    local group
    for group in near far; do
        echo "@ $1-$group"
        timeout 60 $justitia color /app/$group --json 2>&1
    done
    say "$1"
}

# Waits for a process, and prints its exit status under a name.
ended() { # NAME PROCESS
    local status=0
    wait "$2" || status=$?
    printf '@ %s-ended\n%s\n' "$1" $status
}

# True if an agent raised the block weight of the group.
raised() { ! grep -q '^default 100$' $cgroups/app/near/io.bfq.weight; }

# Waits until a declaration has this standing.
stands() { timeout 60 $justitia color /app/$1 --json | grep -q "\"standing\": \"$2\""; } # GROUP STANDING
await() { # GROUP STANDING
    soon stands "$@" && return
    echo "@ timeout of $1"
    echo "$1 does not become $2"
}

server() { # GROUP PORT
    (
        into "app/$1"
        exec redis-server --port "$2" --bind 127.0.0.1 --save '' --dir /run
    ) >>"/run/$1.server" 2>&1 </dev/null &
    server=$!
}

near_probe() {
    (
        into app/near
        exec $justitia probe redis --max-latency 5s
    ) >>/run/near.probe 2>&1 </dev/null &
    near_probe=$!
}

# Kills a process without the shell's message about it.
kill_hard() { # PROCESS
    kill -9 "$1"
    wait "$1" 2>/dev/null
}

knobs() { # NAME
    local file
    echo "@ $1"
    for file in memory.low memory.high io.bfq.weight io.weight; do
        [ -e $cgroups/app/near/$file ] && echo "$file $(tr '\n' ' ' <$cgroups/app/near/$file)"
    done
}

are_frozen() { [ "$(cat $cgroups/app/{near,far}/cgroup.events | grep -c "frozen $1")" = 2 ]; } # 1 or 0
frozen() { # 1 or 0
    echo "$1" >$cgroups/app/near/cgroup.freeze
    echo "$1" >$cgroups/app/far/cgroup.freeze
    soon are_frozen "$1"
}

set_up
make_groups near far left right
dd if=/dev/zero of=/data/cached bs=1M count=96 status=none

{
    server far 6380
    server near 6379
    (into app/near && cat /data/cached >/dev/null)
    writer left
    writer right
    run_agent /run/agent.log --manage '/app/*' --observer proc
    near_probe
    $justitia probe redis --port 6380 --group /app/far --max-latency 5s >/run/far.probe 2>&1 </dev/null &
    far_probe=$!

    await near fresh; await far fresh
    keep begin

    kill_hard $near_probe
    await near stale
    keep killed
    echo "@ left-behind"
    getfattr --absolute-names --only-values -n user.justitia.color $cgroups/app/near; echo
    near_probe
    await near fresh
    keep again

    kill_hard $server
    await near stale
    keep server-gone
    server near 6379
    await near fresh
    keep server-back
    echo "@ same-probe"
    kill -0 $near_probe && echo yes

    knobs knobs-before
    frozen 1
    await near stale; await far stale
    keep frozen
    echo "@ status-before"
    timeout 60 $justitia status --json
    $justitia weight /app/near 800 >/dev/null
    echo "@ slowest-answer-ms"
    slowest=0
    for look in {1..10}; do
        begin=${EPOCHREALTIME/./}
        timeout 60 $justitia status --json >/run/status || echo "no answer"
        took=$(((${EPOCHREALTIME/./} - begin) / 1000))
        [ $took -gt $slowest ] && slowest=$took
        sleep 1
    done
    echo "$slowest"
    echo "@ status-after"
    cat /run/status
    knobs knobs-frozen
    keep still-frozen
    frozen 0
    await near fresh; await far fresh
    keep thawed
    echo "@ same-probes"
    kill -0 $near_probe && kill -0 $far_probe && echo yes

    kill -TERM $near_probe $far_probe
    ended near-probe $near_probe
    ended far-probe $far_probe
    await near removed
    keep ended
    kill -TERM $agent
    ended agent $agent
    knobs knobs-after

    # The next agent waits for its turn, and cannot begin when it comes: BPF needs these capabilities.
    run_agent /run/turn.log --manage '/app/*' --observer proc --hand-over=in-turn
    soon raised && knobs knobs-in-turn
    setpriv --bounding-set=-bpf,-perfmon,-sys_admin \
        $justitia run --manage '/app/*' --observer bpf --hand-over=in-turn >/run/next.log 2>&1 </dev/null &
    next=$!
    soon grep -q "waiting for its end" /run/next.log
    kill -TERM $agent
    ended turn $agent
    ended next $next
    knobs knobs-after-next
    for log in near.probe far.probe agent.log turn.log next.log; do
        echo "@ $log"
        cat /run/$log
    done
} 2>&1 | report
