# The guest's part of tests/live.rs, after the lab tests' host.sh: three groups write and read, an agent
# manages them, and every command that reads the agent runs. Nothing is asserted here: the report carries
# each command's output, messages and exit status.

out=/run/out
groups="light middle heavy"

# Runs a command and keeps its output under a name.
keep() { # NAME COMMAND...
    local name=$1
    shift
    timeout 120 "$@" >"$out/$name" 2>"$out/$name.err" </dev/null
    echo $? >"$out/$name.status"
}

# Keeps an HTTP answer with its head.
get() { # NAME PATH [PORT [HOST]]
    local port=${3:-9619}
    keep "$1" bash -c 'exec 3<>"/dev/tcp/127.0.0.1/$0" || exit 1
        printf "GET %s HTTP/1.1\r\nHost: %s\r\nAccept: application/openmetrics-text\r\n\r\n" "$1" "$2" >&3
        cat <&3' "$port" "$2" "${4:-127.0.0.1:$port}"
}

# Every setting of every cgroup and of the disk: files that change only by a write.
knobs() { # NAME
    {
        find $cgroups -type f -perm -600 ! -name '*.pressure' ! -name '*.peak' \
            ! -name cgroup.procs ! -name cgroup.threads | sort
        echo "/sys/block/${data#/dev/}/queue/iosched/low_latency"
    } | while read -r file; do
        mapfile -t lines <"$file" && echo "$file: ${lines[*]}"
    done 2>/dev/null >"$out/$1"
}

# Reads with hits and misses, and writes, until the guest ends. It is nice, so that the commands get CPU time.
load() { # GROUP
    (
        into "app/$1"
        exec nice -n 19 fio --output="/run/fio.$1" --directory=/data --thread --ioengine=psync \
            --fallocate=none --time_based --runtime=600 \
            --name="$1-reads" --rw=randread --norandommap \
            --random_distribution=zipf:1.2 --bs=16k --size=64m --rate=6m --invalidate=0 \
            --name="$1-writes" --rw=write --bs=64k --size=48m
    ) >/dev/null 2>&1 </dev/null &
}

start() { run_agent "$out/$1.log" --manage '/app/*' "${@:2}"; } # NAME ARGUMENTS...

finish() { # NAME
    kill -TERM "$agent"
    wait "$agent"
    echo $? >"$out/$1.status"
}

ticks() { grep -o '"ticks_total": *[0-9]*' "$out/$1" | grep -o '[0-9]*$'; }

set_up
memory_disk 512 40
mkdir $out
make_groups $groups
keep weight-heavy $justitia weight /app/heavy 800
knobs knobs.before
find $cgroups /run/justitia 2>/dev/null | sort >"$out/tree.before"

echo "@lab the load begins"
for group in $groups; do load "$group"; done

# Commands without an agent. The user nobody can neither load BPF programs nor read others' I/O counters.
sleep 5
keep try env COLUMNS=100 $justitia try --manage '/app/*' --seconds 20
keep try.json $justitia try --manage '/app/*' --seconds 10 --json
keep try-nobody setpriv --reuid=65534 --regid=65534 --clear-groups \
    $justitia try --manage '/app/*' --seconds 2
keep try-none $justitia try --manage '/nowhere/*' --seconds 2
knobs knobs.try
find $cgroups /run/justitia 2>/dev/null | sort >"$out/tree.try"
echo "@lab a look without an agent"

start agent --verbose --interval 4s
for try in {1..40}; do
    keep waiting $justitia status --json
    [ "$(grep -c '"contending": true' "$out/waiting")" -ge 2 ] && break
    sleep 1
done
echo "@lab the groups contend after $try looks"

watched=$(job)
[ -z "$watched" ] || timeout "$watched" $justitia top --json --interval 1s >"$out/recording.lines" 2>/dev/null </dev/null
timeout 40 $justitia top --json --interval 1s >"$out/top.lines" 2>/dev/null </dev/null &
stream=$!
$justitia record --seconds 20 /run/agent.jrec >"$out/record" 2>"$out/record.err" </dev/null &
recorder=$!

# Freezes the groups, so that the commands have the CPUs.
freeze() { # 1 or 0
    for group in $groups; do echo "$1" >"$cgroups/app/$group/cgroup.freeze"; done
}

# One step in the output of every command: begins at the start of an interval, and repeats until no further
# step comes in between.
for try in {1..12}; do
    keep earlier.json $justitia status --json
    for look in {1..80}; do
        keep before.json $justitia status --json
        [ "$(ticks earlier.json)" = "$(ticks before.json)" ] || break
        sleep 0.1
    done
    freeze 1
    get metrics /metrics
    get api-status /api/status
    keep top-80 env COLUMNS=80 $justitia top --once
    keep top-120 env COLUMNS=120 $justitia top --once
    keep after.json $justitia status --json
    freeze 0
    [ "$(ticks before.json)" = "$(ticks after.json)" ] && break
done
echo "@lab one step seen in every way after $try tries"
keep status $justitia status
keep fields $justitia status --fields
keep fields.json $justitia status --fields --json
keep plan $justitia plan
keep explain $justitia explain heavy
keep explain.json $justitia explain /app/heavy --json
keep explain-nobody $justitia explain nobody
get page /
get script /app.js
get nowhere /nowhere
get health /healthz
get foreign / 9619 evil.example
knobs knobs.during

keep try-beside.json $justitia try --manage '/app/*' --seconds 8 --json
keep weight-middle $justitia weight /app/middle 300
for try in {1..20}; do
    $justitia explain middle 2>/dev/null | grep -q '300 from' && break
    sleep 1
done
echo "@lab the new weight is followed after $try looks"
wait $recorder
echo $? >"$out/record.status"
kill $stream
get history /api/history
keep status-300 $justitia status --json
echo "@lab the agent ends"
finish agent
knobs knobs.after

keep replay.json $justitia replay --json /run/agent.jrec
keep replay $justitia replay /run/agent.jrec
keep replay-at $justitia replay --at 4 /run/agent.jrec
keep replay-other $justitia replay --json --weight light=800 /run/agent.jrec
cp /run/agent.jrec "$out/agent.jrec"
keep status-nobody $justitia status
keep top-nobody $justitia top --once

echo "@lab a record without an agent"
keep own $justitia record --manage '/app/*' --seconds 4 /run/own.jrec
keep own-replay.json $justitia replay --json /run/own.jrec
knobs knobs.own

echo "@lab an agent that counts through /proc"
start proc --observer proc --listen 127.0.0.1:9620
sleep 5
keep proc.json $justitia status --json
get proc-metrics /metrics 9620
keep proc-top env COLUMNS=80 $justitia top --once
finish proc
knobs knobs.proc

for file in "$out"/*; do
    printf '@@ %s %s\n' "${file##*/}" "$(stat -c %s "$file")"
    cat "$file"
    echo
done | report
