# The pod of the Helm chart beside pods that write, after cri.sh and services.sh. This script does the
# kubelet's work for a DaemonSet's pod: it creates the host paths, restarts an ended container in its pod,
# and stops one by SIGTERM. The texts of its containers, translated from helm's output, are beside it.

agent_uid=22222222-aaaa-bbbb-cccc-00000000000
pid_of() { cat "/run/containerd/io.containerd.runtime.v2.task/k8s.io/$1/init.pid"; }
did() { echo "$*"; say "$*"; }
goes() { kill -0 "$(pid_of "$1")"; }
log() { cat /run/logs/justitia-"$1"/"$2" 2>/dev/null; } # POD CONTAINER

# Writes files again and again on the data disk.
writer() { # NAME UID WEIGHT
    pod shop "$1" "$2" /burstable "justitia.io/weight=$3"
    container main 'image { image: "'$image'" } command: "/bin/sh" command: "-c"
        command: "while :; do for i in 1 2 3 4; do dd if=/dev/zero of=/data/'"$1"'$i bs=1M count=32; done; done"
        mounts { container_path: "/data" host_path: "/data/files" }'
}
knobs() {
    local file
    echo "low_latency $(cat $low_latency)"
    for file in $cgroups/kubepods/burstable/pod1*/{,*/}{memory.low,memory.high,io.bfq.weight,io.weight}; do
        echo "${file#"$cgroups"} $(tr '\n' ' ' <"$file")"
    done
}

# A knob that an agent holds from the first contention until it ends, whatever the pods do meanwhile.
low_latency=/sys/block/${data#/dev/}/queue/iosched/low_latency
prior() {
    local value
    read -r value <$low_latency
    [ "$value" = 1 ]
}
# True if the pods' weights are in force at their cgroups.
in_force() {
    local low weight
    read -r low <$light/memory.low
    # Beside io.cost, BFQ has the plain weights, and that of the light pod is the default.
    read -r weight <$heavy/io.bfq.weight
    ! prior && [ "$low" != 0 ] && [ "$weight" != "default 100" ]
}

# A pod of the DaemonSet with this revision of the image, identified by its number.
daemon() { # NUMBER REVISION
    local path
    while read -r path; do mkdir -p "$path"; done </opt/lab/host-paths
    cp /opt/lab/justitia.toml /run/kubelet/config/justitia.toml
    namespaces="network: 2 pid: 2"
    pod justitia "justitia-$1" "$agent_uid$1" /burstable
    container agent "$(cat "/opt/lab/agent.$2") labels { key: \"pod\" value: \"$1\" }"
    agent=$container
    container web "$(cat "/opt/lab/web.$2")"
    web=$container
}
# Stops both containers by SIGTERM, and by SIGKILL after 30 s, then removes the pod.
end_daemon() { # SANDBOX AGENT WEB
    local id
    for id in "$3" "$2"; do
        echo "container_id: \"$id\" timeout: 30" | cri StopContainer StopContainerRequest
    done
    remove_pod "$1"
}
went_on() { log "$1" agent | grep -c 'continues from the previous agent'; } # POD
waits() { log "$1" agent | grep -q 'waiting for its end'; } # POD
# Writes and renews a Secret as the kubelet does.
secret() { # SUBJECT
    local dir=/run/kubelet/tls
    mkdir -p $dir/.."$1"
    certify "$1" $dir/.."$1"/tls
    ln -s .."$1" $dir/..new && mv -T $dir/..new $dir/..data
    [ -e $dir/tls.crt ] || ln -s ..data/tls.crt ..data/tls.key $dir/
}
page() {
    curl --silent --max-time 5 --cacert /run/authority.pem --resolve justitia:9619:127.0.0.1 \
        https://justitia:9619/metrics >/run/metrics
    grep -q 'pod="light"' /run/metrics
}
# Credentials of a process, and whether its root is read-only.
right() { # PID
    grep -E '^(Uid|CapEff|CapBnd|NoNewPrivs|Seccomp):' "/proc/$1/status" | tr -d ' \t' | tr '\n' ' '
    busybox awk '$5 == "/" { split($6, how, ","); print "root:" how[1] }' "/proc/$1/mountinfo"
}
restart_agent() {
    local attempt=$((++attempts)) before
    before=$(went_on 1)
    kill -KILL "$(pid_of "$agent")"
    while goes "$agent" 2>/dev/null; do sleep 0.1; done
    container agent "$(cat /opt/lab/agent.first)" $attempt
    agent=$container
    wait_for 60 eval '[ "$(went_on 1)" != '"$before"' ]'
}
roll() {
    local old=("$sandbox" "$agent" "$web")
    daemon 2 second
    wait_for 60 waits 2 && did "the next agent waits"
    # The chart's minReadySeconds.
    sleep 5
    end_daemon "${old[@]}"
    wait_for 60 eval '[ "$(went_on 2)" = 1 ]' && did "the next agent goes on"
}

attempts=0
mkdir -p /data/files
secret first
for revision in first second; do
    import_image /opt/lab/justitia.$revision.tar
done
ctr --namespace k8s.io images ls | tell images >>/run/all
writer light 11111111-aaaa-bbbb-cccc-000000000001 100
writer heavy 11111111-aaaa-bbbb-cccc-000000000002 600
light=$cgroups/kubepods/burstable/pod11111111-aaaa-bbbb-cccc-000000000001
heavy=$cgroups/kubepods/burstable/pod11111111-aaaa-bbbb-cccc-000000000002
knobs >/run/before
{
    daemon 1 first
    wait_for 120 in_force && did "weights hold"
    echo "agent: $(right "$(pid_of "$agent")")"
    wait_for 20 page && presents first && did "the page is served by the Secret's certificate"
    curl --silent --max-time 10 http://localhost:9619/metrics | grep -q https:// && did "who asks without TLS is told"
    echo "web: $(right "$(pid_of "$web")")"
    ls "/proc/$(pid_of "$agent")/root/etc/justitia-tls/tls.key"
    ls "/proc/$(pid_of "$web")/root/etc/justitia-tls" || did "the page's container has no file of the Secret"
    secret second
    wait_for 20 presents second && page && did "the page is served by the renewed one"
} >/run/steps 2>&1
$justitia status --json | tell status >>/run/all
$justitia status 2>&1 | tell status.text >>/run/all
knobs | tell knobs >>/run/all
grep -v '^#' /run/metrics | grep 'pod=' | head -n 5 | tell metrics >>/run/all
{
    # The agent saves its state every 10 s: after this a killed agent has left one.
    sleep 11
    watched kill restart_agent
    wait_for 60 in_force && did "weights hold again"
    watched roll roll
    wait_for 60 in_force && did "weights hold under the next image"
    end_daemon "$sandbox" "$agent" "$web"
    as_before && did "deleted: every knob is as before"
    echo "left in its directory: $(ls /run/justitia | tr '\n' ' ')"
} >>/run/steps 2>&1
tell steps </run/steps >>/run/all
for pod in 1 2; do
    for name in agent web; do log $pod $name | cut -c1-300 | tell log.$pod.$name >>/run/all; done
done
tail -n 20 /run/containerd.log | tell containerd.log >>/run/all
report </run/all
