# The guest's part of tests/docker.rs, behind the lab tests' prologue: Debian's own Docker under systemd, and an
# agent that finds what it runs. `job` prints the code of docs/howto/docker.md. Nothing is judged here.

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

if [ "$1" != check ]; then
    set_up
    cp -a /etc /run/etc && mount --bind /run/etc /etc || give_up "/etc stays read-only"
    mount -t tmpfs tmpfs /var/lib && mount -t tmpfs tmpfs /var/tmp || give_up "no /var"
    mkdir -p /run/systemd/system /run/shop
    echo docker:x:999: >>/etc/group
    : >/etc/machine-id
    : >/run/vain
    busybox ip link set lo up
    job | while IFS= read -r line; do
        case $line in "@@ "*) file=${line#@@ } ;; *) printf '%s\n' "$line" >>"/run/shop/$file" ;; esac
    done
    cd /run/systemd/system || give_up "no /run"
    unit() { printf '[Unit]\nDefaultDependencies=no\n%b' "$2" >"$1"; }
    service() { unit "$1.service" "[Service]\nDelegate=yes\nKillMode=process\nStandardError=append:/run/$1.log\n$2\n"; }
    service containerd 'Type=notify\nExecStart=/usr/bin/containerd'
    service docker 'Type=notify\nEnvironmentFile=/run/docker.env\nExecStart=/usr/sbin/dockerd $OPTIONS'
    service agent "ExecStart=$justitia run --wait --observer proc --listen off"
    service check "Type=oneshot\nExecStart=$0 check"
    unit lab.target ''
    mkdir lab.target.wants && ln -s ../check.service lab.target.wants/
    exec unshare --pid --fork --mount --mount-proc \
        /lib/systemd/systemd --system --unit=lab.target --log-target=console --log-level=warning --show-status=false
fi

start_docker() { # OPTIONS [SETTING]
    echo "OPTIONS=$1" >/run/docker.env
    mkdir -p /etc/docker
    echo "{\"iptables\": false, \"ip6tables\": false, \"storage-driver\": \"vfs\" $2}" >/etc/docker/daemon.json
    systemctl start docker || tail -20 /run/docker.log >/dev/console
    docker info --format '{{.CgroupDriver}} {{.CgroupVersion}} {{.ServerVersion}} {{.DockerRootDir}}' | tell "$driver.info"
    say "$driver: dockerd is up"
    # Images of one static program, made here: there is no registry.
    docker import --change 'CMD ["busybox", "sleep", "1000000"]' /run/image.tar mariadb
    docker import --change 'CMD ["busybox", "sh", "-c", "while :; do dd if=/dev/zero of=/data/$HOSTNAME bs=1M count=96; done"]' \
        /run/image.tar writer
}
writer() { docker run --detach --network none --volume /data:/data --name "$1" "${@:2}" writer; } # NAME OPTIONS...
group_of() { echo $cgroups/*/*"$(docker inspect --format '{{.Id}}' "$1")"*; }
look() { $justitia status --json | tell "$driver.$1"; } # NAME
weighs() { $justitia explain "$1" --json | tr -d ' \n' | grep -q "\"weight\":$2,"; } # NAME WEIGHT
# The agent holds the container's block weight, and this is what it will leave behind.
leaves() { $justitia explain "$1" --json | tr -d ' \n' | grep -q "\"knob\":\"$file\",[^}]*\"prior\":\"$2\""; } # NAME WEIGHT
# What a container's cgroup is set to.
knobs() { # NAME
    local file
    for file in memory.low memory.high memory.max io.weight io.bfq.weight; do
        [ -e "$(group_of "$1")/$file" ] && echo "$file $(tr '\n' ' ' <"$(group_of "$1")/$file")"
    done
}

# What both drivers begin with; ends with a heavy whose block weight the agent holds.
updates() { # 800-AS-WRITTEN 300-AS-WRITTEN
    writer heavy --blkio-weight 800 --memory-reservation 16m
    writer light --blkio-weight 100
    say "$driver: containers run"
    patiently weighs heavy 800
    patiently weighs light 100
    look run
    # One that comes before Docker's, so that the agent writes another one.
    $justitia weight heavy 400
    patiently leaves heavy "$1"
    docker update --cpu-shares 512 heavy
    docker update --blkio-weight 300 heavy
    patiently leaves heavy "$2"
    look before
    $justitia weight heavy --unset
    patiently weighs heavy 300
    look update
    say "$driver: updates"
}

{
    mkdir -p /run/image/bin && cp /bin/busybox /run/image/bin/ && tar -C /run/image -cf /run/image.tar .
    driver=systemd file=io.bfq.weight
    systemctl start containerd agent
    start_docker --containerd=/run/containerd/containerd.sock
    updates 800 300
    docker update --blkio-weight 600 heavy
    patiently weighs heavy 600
    patiently leaves heavy 600
    docker restart --time 0 light
    docker rename light little
    patiently weighs little 100
    look restart
    say "restarted"
    cd /run/shop && mkdir -p /run/bin && ln -s $justitia /run/bin/ && PATH=/run/bin:$PATH
    sudo() { "$@"; }
    while IFS= read -r command; do
        eval "$command" 2>&1 </dev/null | tell "page $command"
    done <commands
    patiently weighs db 400
    look page
    $justitia status 2>&1 | tell "$driver.table"
    say "the page"
    for name in heavy little db; do knobs $name | tell "$driver.$name.held"; done
    systemctl stop agent
    for name in heavy little db; do knobs $name | tell "$driver.$name.left"; done
    docker kill $(docker ps --quiet)
    systemctl stop docker containerd
    say "$driver: done"

    # The other driver, dockerd's own containerd, its data elsewhere, and a kernel without BFQ.
    driver=cgroupfs file=io.weight
    echo none >"/sys/block/${data#/dev/}/queue/scheduler" && rmmod bfq || say "BFQ stays"
    start_docker '' ', "exec-opts": ["native.cgroupdriver=cgroupfs"], "data-root": "/var/lib/elsewhere"'
    systemctl start agent
    updates 7980 2930
    knobs heavy | tell "$driver.heavy.held"
    systemctl stop agent
    knobs heavy | tell "$driver.heavy.left"
    docker kill $(docker ps --quiet)
    systemctl stop docker
} >/run/check.out 2>&1
for name in vain agent.log check.out; do tell $name </run/$name; done
cat /run/check.out >/dev/console
report </run/all
busybox sync
busybox poweroff -f
