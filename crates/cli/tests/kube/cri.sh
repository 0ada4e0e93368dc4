# The beginning of the guests of tests/kube.rs, after the lab tests' prologue: containerd with NRI, and
# functions that create pods through CRI in the kubelet's cgroup tree. Nothing is asserted here.

justitia=/opt/lab/justitia
cgroups=/sys/fs/cgroup
image=localhost/pod:1

say() { echo "@lab $*" >/dev/console; }
tell() { echo "@ $1"; cat; } # NAME
patiently() { # COMMAND...
    local try
    for try in {1..480}; do
        "$@" >/dev/null 2>&1 && return
        sleep 0.25
    done
    give_up "in vain: $*"
}

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

start_containerd() { # POD-ANNOTATIONS
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
[plugins."io.containerd.nri.v1.nri"]
  disable = false
  disable_connections = false
  socket_path = "/run/nri/nri.sock"
END
    containerd --config /run/containerd.toml >>/run/containerd.log 2>&1 </dev/null &
    containerd=$!
    patiently ctr version
}

# One CRI call: the request is text on standard input, the answer is text on standard output.
cri() { # METHOD REQUEST RESPONSE
    local length
    protoc -I /opt/lab --encode=runtime.v1.$2 /opt/lab/cri.proto >/run/message || give_up "$1 cannot be encoded"
    length=$(stat -c %s /run/message)
    {
        printf "\\0\\x$(printf %02x $((length >> 24 & 255)))\\x$(printf %02x $((length >> 16 & 255)))"
        printf "\\x$(printf %02x $((length >> 8 & 255)))\\x$(printf %02x $((length & 255)))"
        cat /run/message
    } >/run/request
    curl --silent --show-error --http2-prior-knowledge --unix-socket /run/containerd/containerd.sock \
        --header 'content-type: application/grpc' --header 'te: trailers' --data-binary @/run/request \
        --dump-header /run/headers --output /run/response "http://localhost/runtime.v1.RuntimeService/$1"
    grep -qi '^grpc-status: *0' /run/headers || {
        say "$1: $(grep -i '^grpc' /run/headers)"
        give_up "$1"
    }
    [ -n "$3" ] && tail -c +6 /run/response | protoc -I /opt/lab --decode=runtime.v1.$3 /opt/lab/cri.proto
    return 0
}

id_of() { sed -n 's/^id: "\(.*\)"/\1/p'; }

# Creates a pod as the kubelet does: first its cgroup, then the sandbox in it. Sets `pod_config`.
namespaces="network: 2"
pod() { # NAMESPACE NAME UID CLASS ANNOTATION...
    local namespace=$1 name=$2 uid=$3 parent=/kubepods$4/pod$3 annotation annotations=
    shift 4
    for annotation in "$@"; do
        annotations+="annotations { key: \"${annotation%%=*}\" value: \"${annotation#*=}\" } "
    done
    mkdir -p "$cgroups$parent"
    echo "+memory +io" >"$cgroups$parent/cgroup.subtree_control"
    pod_config="metadata { name: \"$name\" uid: \"$uid\" namespace: \"$namespace\" } $annotations
        labels { key: \"io.kubernetes.pod.name\" value: \"$name\" }
        labels { key: \"io.kubernetes.pod.namespace\" value: \"$namespace\" }
        labels { key: \"io.kubernetes.pod.uid\" value: \"$uid\" }
        log_directory: \"/run/logs/$name\"
        linux { cgroup_parent: \"$parent\" security_context { namespace_options { $namespaces } } }"
    sandbox=$(echo "config { $pod_config }" | cri RunPodSandbox RunPodSandboxRequest Id | id_of)
    say "pod $namespace/$name: $sandbox"
}

# Creates a container of this pod from text of ContainerConfig; without text it sleeps. Sets `container` to
# its ID.
container() { # NAME [TEXT [ATTEMPT]]
    local text=${2:-"image { image: '$image' } command: '/bin/sleep' command: '1000000'"}
    container=$(cri CreateContainer CreateContainerRequest Id <<END | id_of
pod_sandbox_id: "$sandbox"
config {
  metadata { name: "$1" attempt: ${3:-0} } log_path: "$1"
  $text
  labels { key: "io.kubernetes.container.name" value: "$1" }
}
sandbox_config { $pod_config }
END
)
    echo "container_id: \"$container\"" | cri StartContainer StartContainerRequest
    say "container $1: $container"
}

remove_pod() { # SANDBOX
    echo "pod_sandbox_id: \"$1\"" | cri StopPodSandbox PodSandboxRequest
    echo "pod_sandbox_id: \"$1\"" | cri RemovePodSandbox PodSandboxRequest
}

set_up
mkdir -p /dev/shm /run/etc && mount -t tmpfs tmpfs /dev/shm || give_up "no shared memory"
cp -a /etc/. /run/etc && mount --bind /run/etc /etc || give_up "/etc stays read-only"
touch /etc/hosts /etc/resolv.conf
busybox ifconfig lo up
echo "+memory +io +cpu +pids" >$cgroups/cgroup.subtree_control || give_up "no controllers"
mkdir -p $cgroups/agent $cgroups/kubepods/{burstable,besteffort}
for dir in kubepods kubepods/burstable kubepods/besteffort; do
    echo "+memory +io +cpu +pids" >$cgroups/$dir/cgroup.subtree_control
done
# containerd's data is in memory: the disk is only for the contending pods.
mkdir -p /data/containerd && mount -t tmpfs tmpfs /data/containerd || give_up "no memory for containers"
make_image
start_containerd
ctr --namespace k8s.io images import /run/image/image.tar >/dev/console 2>&1 || give_up "no image"

