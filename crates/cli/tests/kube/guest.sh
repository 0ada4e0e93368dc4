# The guest's part of tests/kube.rs, behind the lab tests' prologue: containerd with NRI, pods made through
# CRI in the cgroup tree that the kubelet makes, an agent beside it. Nothing is judged here.

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

# An image of one static program, made here: there is no registry.
make_image() {
    local dir=/run/image layer
    mkdir -p $dir/root/bin
    cp /bin/busybox $dir/root/bin/busybox
    ln -s busybox $dir/root/bin/sleep
    ln -s busybox $dir/root/bin/dd
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

# One call of CRI: the request is text on standard input, the answer is text.
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
    grep -qi '^grpc-status: *0' /run/headers || give_up "$1: $(grep -i '^grpc' /run/headers)"
    [ -n "$3" ] && tail -c +6 /run/response | protoc -I /opt/lab --decode=runtime.v1.$3 /opt/lab/cri.proto
    return 0
}

id_of() { sed -n 's/^id: "\(.*\)"/\1/p'; }

# A pod as the kubelet makes it: its cgroup first, then the sandbox in it. What it is stays in `pod_config`.
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
        linux { cgroup_parent: \"$parent\" security_context { namespace_options { network: 2 } } }"
    sandbox=$(echo "config { $pod_config }" | cri RunPodSandbox RunPodSandboxRequest Id | id_of)
    say "pod $namespace/$name: $sandbox"
}

container() { # NAME
    local id
    id=$(cri CreateContainer CreateContainerRequest Id <<END | id_of
pod_sandbox_id: "$sandbox"
config {
  metadata { name: "$1" } image { image: "$image" } command: "/bin/sleep" command: "1000000"
  labels { key: "io.kubernetes.container.name" value: "$1" }
}
sandbox_config { $pod_config }
END
)
    echo "container_id: \"$id\"" | cri StartContainer StartContainerRequest
    say "container $1: $id"
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
make_image
start_containerd
ctr --namespace k8s.io images import /run/image/image.tar >/dev/console 2>&1 || give_up "no image"

start_agent() { # NRI
    cat >/run/agent.toml <<END
observer = "proc"
listen = "off"
interval = "250ms"
[kubernetes]
nri = "$1"
caps = { shop = 500 }
END
    (
        echo "$BASHPID" >$cgroups/agent/cgroup.procs
        exec $justitia run --wait --config /run/agent.toml
    ) >>/run/agent.log 2>&1 </dev/null &
    agent=$!
    patiently $justitia status
}
stop_agent() {
    kill $agent
    wait $agent
    say "agent ended with $?"
}
# Waits until the agent knows of a pod's cgroup by its uid, and of the weight's source if one is given.
known() { # UID [SOURCE]
    $justitia status --json | tr -d ' \n' | grep -q "pod$1\",\"id\":[0-9]*,\"weight\":[0-9]*,\"weight_source\":\"$2"
}
unknown() { ! known "$1"; }
look() { $justitia status --json | tell "$1" >>/run/all; } # NAME

pod shop db 11111111-aaaa-bbbb-cccc-000000000001 "" justitia.io/weight=300 justitia.io/weight.db=700
db=$sandbox
container db
container sidecar
start_agent auto
patiently known 11111111-aaaa-bbbb-cccc-000000000001 pod_annotation
pod shop greedy 11111111-aaaa-bbbb-cccc-000000000002 /burstable justitia.io/weight=9000
container main
pod dev greedy 11111111-aaaa-bbbb-cccc-000000000003 /burstable justitia.io/weight=9000
container main
pod dev plain 11111111-aaaa-bbbb-cccc-000000000004 /besteffort
container main
patiently known 11111111-aaaa-bbbb-cccc-000000000002 pod_cap
patiently known 11111111-aaaa-bbbb-cccc-000000000003 pod_cap
patiently known 11111111-aaaa-bbbb-cccc-000000000004 qos_class
look told
$justitia status 2>&1 | tell status.text >>/run/all
$justitia explain pod11111111-aaaa-bbbb-cccc-000000000002 2>&1 | tell explain.text >>/run/all
for spec in /run/containerd/io.containerd.runtime.v2.task/k8s.io/*/config.json; do
    tr -d '\n' <$spec | grep -o '"annotations":{[^}]*}'
done | tell specs >>/run/all

# The runtime stands still: the agent goes on.
kill -STOP $containerd
look stopped
sleep 2
look stopped.later
kill -CONT $containerd
# The agent stands still: the runtime goes on without it.
kill -STOP $agent
pod shop late 11111111-aaaa-bbbb-cccc-000000000005 /burstable justitia.io/weight=120
container main
kill -CONT $agent
patiently known 11111111-aaaa-bbbb-cccc-000000000005 pod_annotation
# The runtime is restarted: containers go on, what was told stays, what is new is told.
kill -KILL $containerd
wait $containerd
sleep 1
look down
start_containerd
pod shop new 11111111-aaaa-bbbb-cccc-000000000006 /burstable justitia.io/weight=130
container main
patiently known 11111111-aaaa-bbbb-cccc-000000000006 pod_annotation
look restarted
remove_pod $db
rmdir $cgroups/kubepods/pod11111111-aaaa-bbbb-cccc-000000000001
patiently unknown 11111111-aaaa-bbbb-cccc-000000000001
stop_agent

# Without NRI: names are recorded, annotations only where the runtime is told to pass them.
start_agent off
patiently known 11111111-aaaa-bbbb-cccc-000000000006 qos_class
look recorded
$justitia weight shop/greedy/main --json 2>&1 | tell named >>/run/all
kill $containerd
wait $containerd
start_containerd '"justitia.io/*"'
pod shop passed 11111111-aaaa-bbbb-cccc-000000000007 /burstable justitia.io/weight=140
container main
patiently known 11111111-aaaa-bbbb-cccc-000000000007 pod_annotation
look passed
stop_agent
{ containerd --version; runc --version; uname -r; } 2>&1 | tell versions >>/run/all
tell agent.log </run/agent.log >>/run/all
tell containerd.log </run/containerd.log >>/run/all
report </run/all
