# Debian's own Podman, run by root and by a user, after begin.sh.

units() {
    user_app
    mkdir -p /etc/containers/systemd
    printf '[storage]\ndriver = "vfs"\nrunroot = "/run/containers/storage"\ngraphroot = "/var/lib/elsewhere"\n' \
        >/etc/containers/storage.conf
    printf '[containers]\nnetns = "none"\nlog_driver = "k8s-file"\n' >/etc/containers/containers.conf
    echo '{"default": [{"type": "insecureAcceptAnything"}]}' >/etc/containers/policy.json
    touch /etc/resolv.conf
    mkdir -p /dev/shm && mount -t tmpfs tmpfs /dev/shm || give_up "no shared memory"
    mkdir shop.service.d
    unit shop.service.d/lab.conf ''
}
[ "$1" = check ] || become_systemd

group_of() { echo $cgroups/*/*"$(podman inspect --format '{{.Id}}' "$1")"*; }
as_user() { app systemd-run --user --quiet --pipe --wait "$@"; }
{
    make_image
    file=io.bfq.weight
    systemctl start dbus agent
    patiently on_bus
    podman --version | tell versions
    podman import --change "$sleeps" /run/image.tar docker.io/library/mariadb
    podman tag docker.io/library/mariadb docker.io/library/nginx
    podman import --change "$writes" /run/image.tar localhost/writer
    podman run --detach --volume /data:/data --name heavy --blkio-weight 800 localhost/writer
    podman run --detach --volume /data:/data --rm --name light --blkio-weight 100 localhost/writer
    say "containers run"
    patiently weighs heavy 800
    patiently weighs light 100
    look run
    # A weight that takes precedence over Podman's, so that the agent writes another block weight.
    $justitia weight heavy 400
    patiently leaves heavy '[^"]*'
    podman update --blkio-weight 300 heavy
    $justitia weight heavy --unset
    patiently weighs heavy 300
    look update
    podman restart --time 0 heavy
    podman rename heavy great
    patiently weighs great 300
    look restart
    say "restarted"
    cp /run/page/ini /etc/containers/systemd/shop.container
    follow
    patiently weighs db 400
    patiently weighs shop 200
    look page
    $justitia status 2>&1 | tell table
    say "the page"
    for name in great db; do knobs "$(group_of $name)" | tell $name.held; done

    systemctl start user@1000
    as_user podman import --change "$sleeps" /run/image.tar docker.io/library/mariadb
    as_user podman run --detach --name mine --annotation io.justitia.weight=300 docker.io/library/mariadb
    as_user podman run --detach --name other --blkio-weight 200 docker.io/library/mariadb
    say "a user's containers"
    for name in mine other; do as_user podman inspect --format '{{.Id}}' $name | tell user.$name; done
    patiently weighs "$(as_user podman ps --quiet --filter name=mine)" 300
    look user
    systemctl stop agent
    for name in great db; do knobs "$(group_of $name)" | tell $name.left; done
} >/run/check.out 2>&1
finish
