#!/bin/busybox sh
# The guest's first process: mounts what every program expects, finds the tools disk by its serial
# (NVMe numbers are not stable), runs the guest program and powers off whatever it returns.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb
[ -c /dev/null ] || busybox mount -t devtmpfs devtmpfs /dev
busybox mount -t proc proc /proc
busybox mount -t sysfs sysfs /sys
busybox mount -t tmpfs -o mode=755 tmpfs /run
busybox mount -t tmpfs -o mode=1777 tmpfs /tmp
echo "lab-init: up"
for disk in /sys/block/nvme*; do
    read -r serial <"$disk/device/serial" 2>/dev/null || continue
    if [ "$serial" = tools ]; then
        busybox mount -t ext4 -o ro "/dev/${disk##*/}" /opt/lab
    fi
done
if [ -x /opt/lab/guest ]; then
    /opt/lab/guest
    echo "lab-init: the guest program ended with status $?"
else
    echo "lab-init: no guest program"
fi
busybox sync
busybox poweroff -f
# Power-off takes a moment; a first process that ends is a panic.
while :; do busybox sleep 1; done
