# CRI-O with NRI, before cri.sh, and its pods, after agent.sh. Podman puts the image into the storage.

start_crio() {
    mkdir -p /etc/containers /etc/crio
    mount -t tmpfs tmpfs /var/tmp && mount -t tmpfs tmpfs /var/lib || give_up "no /var"
    echo '{"default": [{"type": "insecureAcceptAnything"}]}' >/etc/containers/policy.json
    printf '[storage]\ndriver = "vfs"\nrunroot = "/run/containers/storage"\ngraphroot = "/var/lib/containers/storage"\n' \
        >/etc/containers/storage.conf
    podman import --change 'CMD ["/bin/sleep", "1000000"]' /run/image/layer.tar $image >/dev/console 2>&1 || give_up "no image"
    cat >/etc/crio/crio.conf <<END
[crio]
version_file = "/run/crio/version"
log_dir = "/run/crio/logs"
[crio.api]
listen = "$socket"
[crio.runtime]
cgroup_manager = "cgroupfs"
conmon_cgroup = "pod"
pinns_path = "/opt/lab/pinns"
default_runtime = "runc"
[crio.runtime.runtimes.runc]
runtime_path = "/usr/sbin/runc"
monitor_path = "/usr/bin/conmon"
[crio.image]
pause_image = "$image"
pause_command = ""
[crio.network]
network_dir = "/run/crio/net.d"
plugin_dirs = ["/run/crio/cni"]
[crio.nri]
enable_nri = true
nri_listen = "/run/nri/nri.sock"
END
    /opt/lab/crio --config /etc/crio/crio.conf --config-dir '' --disable-hostport-mapping >>/run/crio.log 2>&1 </dev/null &
    patiently test -S $socket
}

crio_pods() {
    pod shop db 11111111-aaaa-bbbb-cccc-000000000001 "" justitia.io/weight=300 justitia.io/weight.db=700
    container db
    start_agent auto
    patiently known 11111111-aaaa-bbbb-cccc-000000000001 pod_annotation
    pod shop greedy 11111111-aaaa-bbbb-cccc-000000000002 /burstable justitia.io/weight=9000
    container main
    pod dev plain 11111111-aaaa-bbbb-cccc-000000000003 /besteffort
    container main
    patiently known 11111111-aaaa-bbbb-cccc-000000000002 pod_cap
    patiently known 11111111-aaaa-bbbb-cccc-000000000003 qos_class
    look told
    stop_agent

    # Without NRI, CRI-O's records have names and annotations.
    start_agent off
    pod shop passed 11111111-aaaa-bbbb-cccc-000000000004 /burstable justitia.io/weight=140
    container main
    patiently known 11111111-aaaa-bbbb-cccc-000000000004 pod_annotation
    look recorded
    $justitia weight shop/greedy/main --json 2>&1 | tell named >>/run/all
    stop_agent
    tell agent.log </run/agent.log >>/run/all
    tell crio.log </run/crio.log >>/run/all
    report </run/all
}
