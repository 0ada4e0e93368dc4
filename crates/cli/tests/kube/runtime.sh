# The beginning of the guests of tests/kube.rs, after the lab tests' host.sh: an image and containerd with NRI.
# Nothing is asserted here.

image=localhost/pod:1

patiently() { soon "$@" || give_up "in vain: $*"; } # COMMAND...

# An image with one static program, built here because there is no registry.
make_image() {
    local dir=/run/image layer
    mkdir -p $dir/root/bin
    cp /bin/busybox $dir/root/bin/busybox
    ln -s busybox $dir/root/bin/sleep
    ln -s busybox $dir/root/bin/dd
    ln -s busybox $dir/root/bin/sh
    tar -C $dir/root -cf $dir/layer.tar .
    layer=$(sha256sum $dir/layer.tar)
    echo '{"architecture":"amd64","os":"linux","config":{"Cmd":["/bin/sleep","1000000"]},' \
        '"rootfs":{"type":"layers","diff_ids":["sha256:'"${layer%% *}"'"]}}' >$dir/config.json
    echo '[{"Config":"config.json","RepoTags":["'$image'"],"Layers":["layer.tar"]}]' >$dir/manifest.json
    tar -C $dir -cf $dir/image.tar manifest.json config.json layer.tar
}

# Directories and an image for containerd.
make_ground() {
    set_up
    mkdir -p /run/etc && cp -a /etc/. /run/etc && mount --bind /run/etc /etc || give_up "/etc stays read-only"
    touch /etc/hosts /etc/resolv.conf
    busybox ifconfig lo up
    # containerd's data is in memory: the disk is only for the contending pods.
    mkdir -p /data/containerd && mount -t tmpfs tmpfs /data/containerd || give_up "no memory for containers"
    make_image
}

systemd_cgroup=false
configure_containerd() { # POD-ANNOTATIONS
    cat >/run/containerd.toml <<END
version = 2
root = "/data/containerd"
state = "/run/containerd"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "$image"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      pod_annotations = [$1]
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = $systemd_cgroup
[plugins."io.containerd.nri.v1.nri"]
  disable = false
  disable_connections = false
  socket_path = "/run/nri/nri.sock"
END
}
import_image() { # FILE
    ctr --namespace k8s.io images import "$1" >/dev/console 2>&1 || give_up "no image"
}
