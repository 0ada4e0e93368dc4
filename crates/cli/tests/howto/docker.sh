# Debian's own Docker, with both cgroup drivers, after begin.sh.

units() {
    user_app
    echo docker:x:999: >>/etc/group
    service containerd 'Type=notify\nExecStart=/usr/bin/containerd'
    service docker 'Type=notify\nEnvironmentFile=/run/docker.env\nExecStart=/usr/sbin/dockerd $OPTIONS'
}
[ "$1" = check ] || become_systemd

start_docker() { # OPTIONS [SETTING]
    echo "OPTIONS=$1" >/run/docker.env
    mkdir -p /etc/docker
    echo "{\"iptables\": false, \"ip6tables\": false, \"storage-driver\": \"vfs\" $2}" >/etc/docker/daemon.json
    systemctl start docker || tail -20 /run/docker.log >/dev/console
    docker info --format '{{.CgroupDriver}} {{.CgroupVersion}} {{.ServerVersion}} {{.DockerRootDir}}' | tell "$driver.info"
    say "$driver: dockerd is up"
    docker import --change "$sleeps" /run/image.tar mariadb
    docker import --change "$writes" /run/image.tar writer
}
writer() { docker run --detach --network none --volume /data:/data --name "$1" "${@:2}" writer; } # NAME OPTIONS...
apps_docker() { app docker --host unix:///run/user/1000/docker.sock "$@"; }
group_of() { echo $cgroups/*/*"$(docker inspect --format '{{.Id}}' "$1")"*; }
# The common steps of both drivers. At the end the agent holds the block weight of heavy.
updates() { # 800-AS-WRITTEN 300-AS-WRITTEN
    writer heavy --blkio-weight 800 --memory-reservation 16m
    writer light --blkio-weight 100
    say "$driver: containers run"
    patiently weighs heavy 800
    patiently weighs light 100
    look $driver.run
    # A weight that takes precedence over Docker's, so that the agent writes another block weight.
    $justitia weight heavy 400
    patiently weighs heavy 400
    patiently leaves heavy "$1"
    docker update --cpu-shares 512 heavy
    docker update --blkio-weight 300 heavy
    patiently leaves heavy "$2"
    look $driver.before
    $justitia weight heavy --unset
    patiently weighs heavy 300
    look $driver.update
    say "$driver: updates"
}

{
    make_image
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
    look $driver.restart
    say "restarted"
    cd /run/page && mv yaml compose.yaml
    follow
    patiently weighs db 400
    patiently weighs shop-web-1 200
    look $driver.page
    $justitia status 2>&1 | tell "$driver.table"
    say "the page"
    for name in heavy little db; do knobs $(group_of $name) | tell "$driver.$name.held"; done
    systemctl stop agent
    for name in heavy little db; do knobs $(group_of $name) | tell "$driver.$name.left"; done
    docker kill $(docker ps --quiet)
    systemctl stop docker containerd
    say "$driver: done"

    # The other driver, with dockerd's own containerd, another data directory and a kernel without BFQ.
    driver=cgroupfs file=io.weight
    echo none >"/sys/block/${data#/dev/}/queue/scheduler" && rmmod bfq || say "BFQ stays"
    start_docker '' ', "exec-opts": ["native.cgroupdriver=cgroupfs"], "data-root": "/var/lib/elsewhere"'
    systemctl start agent
    updates 7980 2930
    knobs $(group_of heavy) | tell "$driver.heavy.held"
    systemctl stop agent
    knobs $(group_of heavy) | tell "$driver.heavy.left"
    docker kill $(docker ps --quiet)
    systemctl stop docker
    say "$driver: done"

    # Docker of a user without privileges.
    systemctl start dbus agent
    patiently on_bus
    systemctl start user@1000
    app systemd-run --user --unit docker --setenv PATH --setenv DOCKERD_ROOTLESS_ROOTLESSKIT_NET=host \
        --setenv DOCKERD_ROOTLESS_ROOTLESSKIT_PORT_DRIVER=none /usr/share/docker.io/contrib/dockerd-rootless.sh \
        --bridge none --ip-forward=false --iptables=false --ip6tables=false --storage-driver vfs
    patiently apps_docker info
    apps_docker import --change "$sleeps" /run/image.tar mariadb
    apps_docker run --detach --network none --name mine --annotation io.justitia.weight=300 mariadb
    apps_docker run --detach --network none --name other --blkio-weight 200 mariadb
    for name in mine other; do apps_docker inspect --format '{{.Id}}' $name | tell user.$name; done
    patiently weighs "$(apps_docker ps --quiet --filter name=mine)" 300
    look user
} >/run/check.out 2>&1
finish
