# Shared by the guests that boot systemd: services under load and their knobs.

# Writes files again and again, as services do.
if [ "$1" = load ]; then
    while :; do
        for i in 1 2 3 4; do dd if=/dev/zero of="/data/$2$i" bs=1M count=32 2>/dev/null; done
    done
fi

# Creates, in the directory of units, the services and a target that starts `check`. Its end is the guest's.
units() {
    local name
    for name in light heavy; do
        printf '[Service]\nSlice=work.slice\nIOWeight=%s\nExecStart=%s load %s\n' \
            "$([ $name = light ] && echo 100 || echo 400)" "$0" $name >$name.service
    done
    printf '[Unit]\nDefaultDependencies=no\n' >lab.target
    printf '[Unit]\nDefaultDependencies=no\n[Service]\nType=oneshot\nExecStart=%s check\n' "$0" >check.service
    mkdir lab.target.wants && ln -s ../check.service lab.target.wants/
}

slice=/sys/fs/cgroup/work.slice
light=$slice/light.service
knobs() {
    for name in light heavy; do
        for file in memory.low memory.high io.bfq.weight io.weight; do
            [ -e "$slice/$name.service/$file" ] && echo "$name $file $(tr '\n' ' ' <"$slice/$name.service/$file")"
        done
    done
}
as_before() { [ "$(cat /run/before)" = "$(knobs)" ]; }
limited() { [ "$(cat $light/memory.high)" != max ]; }
wait_for() {
    local i
    for i in $(seq "$1"); do "${@:2}" && return; sleep 1; done
    false
}
# True if a knob of light has its prior value.
prior() {
    local high low
    read -r high <$light/memory.high
    read -r low <$light/memory.low
    [ "$high" = max ] || [ "$low" = 0 ]
}
in_force() { ! prior; }
# Polls the knobs of light. Prints the number of polls, and of those in which a knob had its prior value, and the
# last of these.
watch() {
    local times=0 seen=0 last=
    while [ -e /run/watching ]; do
        times=$((times + 1))
        if prior; then
            seen=$((seen + 1))
            last=", the last was look $times: $(cat $light/memory.low $light/memory.high | tr '\n' ' ')"
        fi
    done
    echo "$1: prior values seen $seen times ($times looks$last)"
}
watched() { # NAME COMMAND...
    wait_for 60 in_force
    touch /run/watching
    watch "$1" & local watcher=$!
    "${@:2}"
    rm /run/watching
    wait $watcher
}

# Creates a certificate for the page and its key, BASE.crt and BASE.key, signed by /run/authority.pem.
certify() { # SUBJECT BASE
    local new="openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc"
    [ -e /run/authority.pem ] || $new -x509 -subj /CN=authority -keyout /run/authority.key -out /run/authority.pem
    $new -subj "/CN=$1" -keyout "$2.key" -out /run/request
    chmod 400 "$2.key"
    echo subjectAltName=DNS:justitia,DNS:localhost >/run/names
    openssl x509 -req -in /run/request -CA /run/authority.pem -CAkey /run/authority.key -CAcreateserial \
        -extfile /run/names -out "$2.crt"
} 2>/run/certify.log
# Through a file, not a pipe: openssl would fail if its reader stops early.
presents() { # SUBJECT
    openssl s_client -connect localhost:9619 </dev/null >/run/presented 2>&1
    openssl x509 -noout -subject -in /run/presented | grep "CN *= *$1$" >/dev/null
}
