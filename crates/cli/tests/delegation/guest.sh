# The guest's part of tests/delegation.rs, after the lab tests' host.sh: containers of several runtimes
# and services of systemd try to declare colors beside an agent outside. Nothing is asserted here.

out=/run/out

# The result of a case, and the agent's view of it.
look() { # NAME LOG [PROCESS]
    local try declared
    for try in {1..1200}; do
        [ -e "$out/$1" ] && break
        [ -z "$3" ] || kill -0 "$3" 2>/dev/null || break
        sleep 0.25
    done
    [ -e "$out/$1" ] || { echo "not run" >"$out/$1"; cat "$2" >/dev/console; }
    say "$1: $(tr '\n' ';' <"$out/$1")"
    {
        tell "$1" <"$out/$1"
        tell "$1.log" <"$2"
        tell "$1.probe" <"$out/$1.probe"
    } >>/run/all 2>&1
    # The agent reads groups in which nothing happens, as the sibling, less often.
    for declared in $(sed -n 's/^\(own\|sibling\|parent\): set.*/\1/p' "$out/$1"); do
        for try in {1..40}; do
            $justitia color --json | grep -q "\"reason\": \"$1-$declared\"" && break
            sleep 0.25
        done
    done
    $justitia color --json 2>&1 | tell "$1.heard" >>/run/all
    touch "$out/$1.seen"
}

# The root file system of these containers.
rootfs() { # DIRECTORY
    mkdir -p "$1"/{proc,sys/fs/cgroup,dev,usr,opt/lab,out,tree,tmp,run,var/log,var/tmp,etc}
    ln -s usr/bin "$1/bin"
    ln -s usr/lib "$1/lib"
    ln -s usr/lib64 "$1/lib64"
}

bind() { echo ",{\"destination\":\"$2\",\"type\":\"bind\",\"source\":\"$1\",\"options\":[\"rbind\",\"$3\"]}"; }

# A container of crun or runc. `mode` is the mode of the cgroup mount, `user` the user of the first process,
# `map` the host's user that is root in the container. `tree`: it has the host's cgroups too. `scope`:
# systemd creates the cgroup.
oci() { # RUNTIME NAME COMMAND...
    local runtime=$1 name=$1-$2 dir=/run/bundles/$1-$2 caps namespaces maps binds group=/app/$1-$2
    shift 2
    rootfs $dir/rootfs
    caps='["CAP_CHOWN","CAP_SETUID","CAP_SETGID","CAP_DAC_OVERRIDE","CAP_FOWNER"]'
    namespaces='{"type":"pid"},{"type":"mount"},{"type":"ipc"},{"type":"uts"},{"type":"cgroup"}'
    maps=
    if [ -n "$map" ]; then
        namespaces="$namespaces,{\"type\":\"user\"}"
        maps="[{\"containerID\":0,\"hostID\":$map,\"size\":65536}]"
        maps=",\"uidMappings\":$maps,\"gidMappings\":$maps"
        chown "$map:$map" $dir $dir/rootfs
    fi
    binds=$(bind /usr /usr ro; bind /opt/lab /opt/lab ro; bind $out /out rw)
    [ -n "$scope" ] && group=work.slice:crun:$name
    [ -n "$tree" ] && binds=$binds$(bind $cgroups /tree rw)
    cat >$dir/config.json <<END
{"ociVersion":"1.0.2",
 "process":{"terminal":false,"user":{"uid":${user:-0},"gid":${user:-0}},"cwd":"/",
  "args":["/bin/bash","-c","$*"],"env":["PATH=/usr/sbin:/usr/bin:/sbin:/bin"],
  "capabilities":{"bounding":$caps,"effective":$caps,"permitted":$caps}},
 "root":{"path":"rootfs"},
 "mounts":[{"destination":"/proc","type":"proc","source":"proc"},
  {"destination":"/dev","type":"tmpfs","source":"tmpfs","options":["nosuid","mode=755","size=65536k"]},
  {"destination":"/sys/fs/cgroup","type":"cgroup","source":"cgroup",
   "options":["nosuid","noexec","nodev","relatime","${mode:-rw}"]}$binds],
 "linux":{"cgroupsPath":"$group","namespaces":[$namespaces]$maps}}
END
    (cd $dir && exec $runtime --root /run/$runtime ${scope:+--systemd-cgroup} run "$name") >$dir/log 2>&1 </dev/null &
    look "$name" $dir/log $!
    wait $!
}

# A container of Podman from a directory, because there is no registry. `map` is the directory's owner.
pod() { # NAME MANAGER OPTIONS...
    local name=podman-$1 manager=$2 dir=/run/pods/podman-$1
    shift 2
    rootfs $dir
    [ -n "$map" ] && chown -hR "$map:$map" $dir
    podman --root /run/podman/storage --runroot /run/podman/run --tmpdir /run/podman/tmp \
        --storage-driver vfs --network-config-dir /run/podman/net --events-backend none \
        --cgroup-manager "$manager" \
        run --rm --name "$name" --network none --no-hosts --log-driver none \
        -v /usr:/usr:ro -v /opt/lab:/opt/lab:ro -v $out:/out "$@" \
        --rootfs $dir /opt/lab/inside.sh "$name" >$dir.log 2>&1 </dev/null &
    look "$name" $dir.log $!
    wait $!
}

service() { # NAME LINES
    unit "/run/systemd/system/$1.service" "[Service]\nSlice=work.slice\nExecStart=/opt/lab/inside.sh $1\n$2"
    systemctl daemon-reload
    systemctl start "$1" >"/run/$1.log" 2>&1
    look "$1" "/run/$1.log"
}

inside=/opt/lab/inside.sh
if [ "$1" != check ]; then
    set_up
    # The mount options that systemd uses.
    mount -o remount,nsdelegate,memory_recursiveprot $cgroups || give_up "no nsdelegate"
    make_groups victim
    mkdir -p $out /run/systemd/system
    chmod 1777 $out
    mount -t tmpfs tmpfs /var/tmp
    mkdir /dev/shm && mount -t tmpfs tmpfs /dev/shm || give_up "no shared memory"
    cp -a /etc /run/etc && mount --bind /run/etc /etc || give_up "/etc stays read-only"
    : >/etc/machine-id
    echo app:x:1000:1000::/:/bin/bash >>/etc/passwd
    echo app:x:1000: >>/etc/group
    printf 'color_ttl = "1h"\n' >/run/agent.toml
    run_agent /run/agent.log --config /run/agent.toml --mode observe --observer proc \
        --manage '/app/*' --manage '/work.slice/*' --manage '/machine.slice/libpod-*.scope'
    { crun --version; runc --version; podman --version; systemctl --version; uname -r; } 2>&1 |
        tell versions >/run/all

    for runtime in crun runc; do
        oci $runtime root "$inside $runtime-root"
        mode=ro oci $runtime ro "$inside $runtime-ro"
        tree=1 user=1000 oci $runtime user "$inside $runtime-user"
        tree=1 oci $runtime chown "chown 1000 /sys/fs/cgroup && exec setpriv --reuid 1000 --regid 1000 --clear-groups $inside $runtime-chown"
        tree=1 map=100000 oci $runtime userns "$inside $runtime-userns"
    done
    # Last, because it can declare colors that it should not.
    tree=1 oci crun tree "$inside crun-tree"

    pod plain cgroupfs --cgroup-parent /app
    pod unmask cgroupfs --cgroup-parent /app --security-opt unmask=/sys/fs/cgroup
    pod always cgroupfs --cgroup-parent /app --systemd=always
    pod user cgroupfs --cgroup-parent /app --security-opt unmask=/sys/fs/cgroup --user 1000
    map=100000 pod userns cgroupfs --cgroup-parent /app --security-opt unmask=/sys/fs/cgroup \
        --uidmap 0:100000:65536 --gidmap 0:100000:65536 -v $cgroups:/tree

    cd /run/systemd/system || give_up "no /run"
    unit victim.service '[Service]\nSlice=work.slice\nExecStart=/bin/sleep 3600\n'
    bus
    boot_systemd
fi

systemctl start victim
service systemd-delegate 'User=app\nDelegate=yes\n'
service systemd-plain 'User=app\n'
service systemd-protect 'User=app\nDelegate=yes\nProtectControlGroups=yes\n'
systemctl start dbus
soon on_bus
scope=1 tree=1 user=1000 oci runc scope-user "$inside runc-scope-user"
scope=1 tree=1 map=100000 oci runc scope-userns "$inside runc-scope-userns"
scope=1 tree=1 map=100000 oci crun scope-userns "$inside crun-scope-userns"
pod systemd systemd --security-opt unmask=/sys/fs/cgroup
pod flat systemd --security-opt unmask=/sys/fs/cgroup --annotation run.oci.systemd.subgroup=
{
    find $cgroups -name '*libpod*'
    systemctl --no-pager status dbus
} 2>&1 | tell systemd.log >>/run/all
tell agent.log </run/agent.log >>/run/all
report </run/all
busybox sync
busybox poweroff -f
