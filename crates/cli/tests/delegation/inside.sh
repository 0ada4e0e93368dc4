#!/bin/bash
# Runs in a container or a service: `justitia probe`, and declarations by hand for its own cgroup, one
# below it, a sibling and the parent. Writes the results to /out/NAME, and waits until they were read.

name=$1
out=/out
[ -d $out ] || out=/run/out
own=/sys/fs/cgroup$(sed s/^0::// /proc/self/cgroup)
own=${own%/}

# Other groups are reachable only if the host's tree is visible.
if [ -d /tree/app ]; then
    parent=/tree/app
elif [ "$own" = /sys/fs/cgroup ]; then
    parent=/sys/fs
else
    parent=${own%/*}
fi
for sibling in "$parent"/victim*; do :; done

set_color() { # WHAT DIRECTORY
    local said
    if [ "$(stat -f -c %T "$2" 2>/dev/null)" != cgroup2fs ]; then
        echo "$1: not to be seen"
    elif said=$(setfattr -n user.justitia.color -v "green $EPOCHSECONDS $name-$1" "$2" 2>&1); then
        echo "$1: set"
    else
        echo "$1: ${said##*: }"
    fi
}

color() { getfattr --only-values -n user.justitia.color "$own" 2>/dev/null; }

# Runs the probe until it has declared a color or refused, then terminates it.
probe() {
    local try probe
    /opt/lab/justitia probe exec --interval 500ms -- true >/dev/null 2>"$out/$name.probe" &
    probe=$!
    for try in {1..240}; do
        kill -0 $probe 2>/dev/null && [ -z "$(color)" ] || break
        sleep 0.25
    done
    echo "probe declared: $(color | cut -d' ' -f1)"
    kill -TERM $probe 2>/dev/null
    wait $probe
    echo "probe ended: $?"
    echo "probe left: $(color)"
}

{
    probe 2>&1
    mkdir "$own/below" 2>/dev/null
    for what in below sibling parent; do
        case $what in
            below) set_color below "$own/below" ;;
            sibling) set_color sibling "$sibling" ;;
            parent) set_color parent "$parent" ;;
        esac
    done
    rmdir "$own/below" 2>/dev/null
    set_color own "$own"
    echo "user: $(id -u)"
} >"$out/$name.part" 2>&1
mv "$out/$name.part" "$out/$name"
for try in {1..1200}; do
    [ -e "$out/$name.seen" ] && break
    sleep 0.25
done
