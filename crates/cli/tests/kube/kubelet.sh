# The kubelet, standalone, with static pods beside an agent, after runtime.sh and services.sh. systemd is the
# first process of its PID namespace, and makes the cgroups for the kubelet and runc. The check is itself a
# service; its end is the guest's.

pods=$cgroups/kubepods.slice
burstable=$pods/kubepods-burstable.slice
low_latency=/sys/block/${data#/dev/}/queue/iosched/low_latency
did() { echo "$*"; say "$*"; }

service() { # NAME COMMAND [LINE]...
    printf '%s\n' '[Unit]' DefaultDependencies=no '[Service]' "ExecStart=$2" "StandardOutput=append:/run/$1.log" \
        "StandardError=append:/run/$1.log" "${@:3}" >"$1.service"
}
configure_agent() { # NRI
    cat >/run/agent.toml <<END
listen = "off"
[kubernetes]
nri = "$1"
caps = { shop = 800 }
END
}
# Writes a static pod's file, whole at once.
static_pod() { # NAMESPACE NAME RESOURCES COMMAND [ANNOTATION]...
    local annotation file=/run/pods/$1-$2.yaml
    cat >"/run/$1-$2.yaml" <<END
apiVersion: v1
kind: Pod
metadata:
  name: $2
  namespace: $1
  annotations:
    lab: static
$(for annotation in "${@:5}"; do echo "    ${annotation%%=*}: \"${annotation#*=}\""; done)
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
    - name: main
      image: $image
      imagePullPolicy: Never
      command: [/bin/sh, -c, "$4"]
      resources: $3
      volumeMounts: [{ name: data, mountPath: /data }]
  volumes: [{ name: data, hostPath: { path: /data/files } }]
END
    mv "/run/$1-$2.yaml" "$file"
}
sleeps="sleep 1000000"
writes() { # NAME
    echo "while :; do for i in 1 2 3 4; do dd if=/dev/zero of=/data/$1\$i bs=1M count=32; done; done"
}
# The UID of the running pod with this name: the kubelet names a directory of logs for each pod.
uid() { # NAMESPACE_NAME
    local dir of
    for dir in "/var/log/pods/$1-node_"*; do
        of=${dir##*_}
        [ -n "$(group "$of")" ] && echo "$of"
    done
}
group() { # UID
    compgen -G "$pods/kubepods-pod$1.slice" || compgen -G "$pods/*/kubepods-*-pod$1.slice"
}
runs() { # NAMESPACE_NAME
    local dir
    dir=$(group "$(uid "$1")") && [ "$(cat "$dir"/*/cgroup.procs 2>/dev/null | wc -l)" -ge 2 ]
}

# The knobs of slices, of pods by name, and of their containers by value.
values() { # DIRECTORY
    local file
    for file in memory.low memory.high io.bfq.weight io.weight; do
        echo -n "$file $(tr '\n' ' ' <"$1/$file")"
    done
    echo
}
knobs() {
    local dir name slice
    echo "low_latency $(cat "$low_latency")"
    for dir in $pods $burstable $pods/kubepods-besteffort.slice; do echo "${dir##*/} $(values "$dir")"; done
    for dir in /var/log/pods/*; do
        name=${dir##*/}
        slice=$(group "${name##*_}") || continue
        echo "${name%_*} $(values "$slice")"
        for dir in "$slice"/*/; do values "$dir"; done | sort | sed "s|^|${name%_*}/ |"
    done
}
in_force() {
    local low weight slice
    slice=$(group "$(uid shop_web)")
    read -r low <"$slice/memory.low"
    read -r weight <"$slice/io.bfq.weight"
    [ "$(cat "$low_latency")" = 0 ] && [ "$low" -gt $((64 << 20)) ] && [ "$weight" != "default 100" ]
}
reserved() { [ "$(cat $burstable/memory.low)" = "$1" ]; } # BYTES
known() { # NAME SOURCE
    $justitia status --json | tr -d ' \n' | grep -q "\"name\":\"$1\",[^{}]*\"weight_source\":\"$2\""
}
look() { $justitia status --json | tell "$1" >>/run/all; } # NAME
tasks() { ctr --namespace k8s.io tasks ls | busybox awk '$3 == "RUNNING" { print $1 }' | sort; }
# Polls the burstable slice for longer than the kubelet's period of one minute.
rewritten() {
    local end=$((SECONDS + 130)) low times=0 above=0
    while ((SECONDS < end)); do
        read -r low <$burstable/memory.low
        if ((low == 134217728)); then times=$((times + 1)); elif ((low > 134217728)); then above=$((above + 1)); fi
        sleep 0.1
    done
    echo "memory.low of the slice: the kubelet's value at $times looks, above it at $above"
}

if [ "$1" != check ]; then
    make_ground
    for dir in lib log tmp; do mount -t tmpfs tmpfs /var/$dir || give_up "no /var/$dir"; done
    # Without an ID it is a first boot.
    echo 0123456789abcdef0123456789abcdef >/etc/machine-id
    mkdir -p /run/systemd/system /run/pods /data/files
    cd /run/systemd/system || give_up "no /run"
    units
    service containerd "/usr/bin/containerd --config /run/containerd.toml" Type=notify Delegate=yes KillMode=process
    # The kubelet wants an address of its node that is not a loopback address.
    busybox ip address add 192.0.2.1/32 dev lo
    service kubelet "/opt/lab/kubelet --config=/run/kubelet.yaml --hostname-override=node --node-ip=192.0.2.1" KillMode=process
    service justitia "$justitia run --wait --config /run/agent.toml" Type=notify
    cat >/run/kubelet.yaml <<'END'
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
staticPodPath: /run/pods
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: systemd
memoryReservationPolicy: TieredReservation
enableServer: false
authentication: { webhook: { enabled: false }, anonymous: { enabled: true } }
authorization: { mode: AlwaysAllow }
volumePluginDir: /run/plugins
makeIPTablesUtilChains: false
failSwapOn: false
# The writers' page cache is the point of the test, not a reason to evict them.
evictionHard: { memory.available: "0%", nodefs.available: "0%", nodefs.inodesFree: "0%", imagefs.available: "0%" }
END
    exec unshare --pid --fork --mount --mount-proc \
        /lib/systemd/systemd --system --unit=lab.target --log-target=console --log-level=warning
fi

systemd_cgroup=true
configure_containerd
systemctl start containerd || give_up "no containerd"
import_image /run/image/image.tar
configure_agent auto
few='{ requests: { memory: 32Mi } }'
static_pod shop db '{ limits: { cpu: 500m, memory: 64Mi } }' "$sleeps" justitia.io/weight=700 justitia.io/weight.main=300
static_pod shop web '{ requests: { memory: 64Mi } }' "$(writes web)" justitia.io/weight=600
static_pod shop plain "$few" "$sleeps"
static_pod dev web "$few" "$sleeps" justitia.io/weight=9000
static_pod dev batch '{}' "$(writes batch)"
systemctl start kubelet
{
    for pod in shop_db shop_web shop_plain dev_web dev_batch; do
        wait_for 240 runs $pod || did "FAILED: $pod does not run"
    done
    wait_for 90 reserved 134217728 && did "the kubelet reserves memory"
} >/run/steps 2>&1
knobs >/run/before
{
    systemctl start justitia
    wait_for 60 known shop/db-node pod_annotation
    look told
    wait_for 180 in_force && did "weights hold"
    knobs | tell knobs >>/run/all
    rewritten
    wait_for 60 in_force && did "weights hold beside the kubelet's writes"
    look minutes

    was=$(uid shop_web)
    static_pod shop web '{ requests: { memory: 64Mi } }' "$(writes web)" justitia.io/weight=500
    wait_for 120 eval '[ "$(uid shop_web)" != "$was" ] && runs shop_web' && did "a changed file makes another pod"
    wait_for 60 known shop/web-node pod_annotation
    wait_for 60 in_force && did "weights hold for it"
    sleep 5
    look changed

    tasks=$(tasks)
    systemctl restart kubelet
    wait_for 120 eval '[ "$(grep -c "Kubelet is running in standalone mode" /run/kubelet.log)" = 2 ]'
    sleep 75
    [ "$(tasks)" = "$tasks" ] && did "the pods outlive the kubelet's restart"
    wait_for 60 in_force && did "weights hold after it"
    look restarted

    static_pod shop late '{ requests: { memory: 16Mi } }' "$sleeps" justitia.io/weight=120
    wait_for 120 runs shop_late && wait_for 60 known shop/late-node pod_annotation && did "a pod comes"
    sleep 5
    look late
    systemctl stop justitia
    knobs >/run/after
    [ "$(sed '/kubepods/s/ 134217728/ 150994944/' /run/before)" = "$(grep -v ^shop_late /run/after)" ] &&
        did "every knob is as before, but for the kubelet's reservation for the new pod"
    rm /run/pods/shop-late.yaml
    wait_for 120 reserved 134217728
    wait_for 30 as_before && did "every knob is as before"

    # Without NRI the runtime records names, and annotations only if it is configured to pass them.
    configure_agent off
    systemctl start justitia
    wait_for 180 in_force && did "weights hold without NRI"
    look recorded
    configure_containerd '"justitia.io/*"'
    systemctl restart containerd
    static_pod shop db '{ limits: { cpu: 500m, memory: 64Mi } }' "$sleeps" justitia.io/weight=350 justitia.io/weight.main=310
    wait_for 240 known shop/db-node/main pod_annotation && did "an annotation is read from the records"
    look passed
    systemctl stop justitia
    as_before && did "every knob is as before once more"
} >>/run/steps 2>&1
tell steps </run/steps >>/run/all
for when in before after; do tell $when </run/$when >>/run/all; done
{ /opt/lab/kubelet --version; containerd --version; runc --version; systemctl --version; uname -r; } 2>&1 | tell versions >>/run/all
tell justitia.log </run/justitia.log >>/run/all
for log in kubelet containerd; do tail -n 60 /run/$log.log | cut -c1-400 | tell $log.log >>/run/all; done
report </run/all
busybox sync
busybox poweroff -f
