# Debian's own libvirt, after begin.sh. Its machine runs without KVM and has nothing to boot from.

units() {
    printf '%s\n' libvirt-qemu:x:64055:64055::/:/bin/false >>/etc/passwd
    printf '%s\n' libvirt-qemu:x:64055: libvirt:x:101: kvm:x:102: >>/etc/group
    mkdir -p /etc/libvirt
    printf 'security_driver = "none"\nuser = "root"\ngroup = "root"\nstdio_handler = "file"\nnamespaces = []\n' >/etc/libvirt/qemu.conf
    for dir in cache log; do mount -t tmpfs tmpfs /var/$dir; done
    bus
    mkdir systemd-machined.service.d && unit systemd-machined.service.d/lab.conf ''
    service libvirtd 'Type=notify\nExecStart=/usr/sbin/libvirtd --config /dev/null'
}
[ "$1" = check ] || become_systemd

scope() { echo $cgroups/machine.slice/machine-qemu*; }
{
    file=io.bfq.weight
    systemctl start dbus agent
    patiently on_bus
    systemctl start systemd-machined libvirtd
    virsh version | tell versions
    truncate -s 64M /data/db.img
    cat >/run/db.xml <<END
<domain type='qemu'>
  <name>db</name><memory unit='MiB'>32</memory><vcpu>1</vcpu>
  <os><type arch='x86_64' machine='pc'>hvm</type></os>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <disk type='file' device='disk'>
      <driver name='qemu' type='raw' cache='writeback'/><source file='/data/db.img'/><target dev='vda' bus='virtio'/>
    </disk>
  </devices>
</domain>
END
    virsh define /run/db.xml
    virsh start db
    say "the machine runs"
    patiently weighs db 100
    follow
    patiently weighs db 400
    look page
    # A weight that takes precedence over libvirt's, so that the agent writes another block weight.
    $justitia weight db 800
    patiently leaves db 127
    virsh blkiotune db --weight 300
    patiently leaves db 118
    $justitia weight db --unset
    patiently weighs db 300
    look update
    say "its weight changes"
    virsh destroy db
    virsh start db
    patiently weighs db 400
    look again
    scope | tell scope
    cp /run/page/toml /etc/justitia.toml
    systemctl kill --signal HUP agent
    patiently weighs db 800
    look configured
    knobs "$(scope)" | tell held
    systemctl stop agent
    knobs "$(scope)" | tell left
    virsh destroy db
} >/run/check.out 2>&1
finish
