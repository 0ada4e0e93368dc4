# Functions that create pods through CRI in the kubelet's cgroup tree (driver cgroupfs), after runtime.sh. The
# runtime is containerd, or the one that `start_crio` starts.

start_containerd() { # POD-ANNOTATIONS
    configure_containerd "$1"
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
    curl --silent --show-error --http2-prior-knowledge --unix-socket "$socket" \
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

# Creates a pod as the kubelet does: first its cgroup, then the sandbox in it. Sets `pod_config` and
# `pod_labels`.
namespaces="network: 2"
pod() { # NAMESPACE NAME UID CLASS ANNOTATION...
    local namespace=$1 name=$2 uid=$3 parent=/kubepods$4/pod$3 annotation annotations=
    shift 4
    for annotation in "$@"; do
        annotations+="annotations { key: \"${annotation%%=*}\" value: \"${annotation#*=}\" } "
    done
    mkdir -p "$cgroups$parent"
    echo "+memory +io" >"$cgroups$parent/cgroup.subtree_control"
    pod_labels="labels { key: \"io.kubernetes.pod.name\" value: \"$name\" }
        labels { key: \"io.kubernetes.pod.namespace\" value: \"$namespace\" }
        labels { key: \"io.kubernetes.pod.uid\" value: \"$uid\" }"
    pod_config="metadata { name: \"$name\" uid: \"$uid\" namespace: \"$namespace\" } $annotations $pod_labels
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
  $pod_labels
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

make_ground
mkdir -p /dev/shm && mount -t tmpfs tmpfs /dev/shm || give_up "no shared memory"
echo "+memory +io +cpu +pids" >$cgroups/cgroup.subtree_control || give_up "no controllers"
mkdir -p $cgroups/agent $cgroups/kubepods/{burstable,besteffort}
for dir in kubepods kubepods/burstable kubepods/besteffort; do
    echo "+memory +io +cpu +pids" >$cgroups/$dir/cgroup.subtree_control
done
if declare -F start_crio >/dev/null; then
    socket=/run/crio/crio.sock
    mkdir -p /run/crio /run/nri
    start_crio
else
    socket=/run/containerd/containerd.sock
    start_containerd
    import_image /run/image/image.tar
fi
