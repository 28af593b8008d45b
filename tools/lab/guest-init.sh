#!/bin/busybox sh
# The guest's first process, from the initramfs, with busybox alone: loads the modules, makes the host's root file system
# the guest's (read-only, with a scratch layer in memory over it) and hands over to guest-main.sh.
#
#   /modules/*.ko, /modules/order   what to load, in this order
#   /lab/                           guest-main.sh and what it needs; copied to /run/farcore-lab
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t sysfs sysfs /sys
$b mount -t devtmpfs dev /dev
fail() {
    echo "farcore-lab: $*"
    $b poweroff -f
}
while read -r module; do
    $b insmod "/modules/$module" || fail "cannot load module $module"
done < /modules/order
# cache=loose: nothing changes the root below us that we would have to see, and without it every access asks the host.
$b mount -t 9p -o trans=virtio,version=9p2000.L,msize=524288,access=any,ro,cache=loose root /host ||
    fail "cannot mount the host's root file system"
$b mount -t tmpfs -o mode=755,size=75% scratch /scratch
$b mkdir /scratch/upper /scratch/work
$b mount -t overlay -o lowerdir=/host,upperdir=/scratch/upper,workdir=/scratch/work root /new ||
    fail "cannot lay the scratch layer over the host's root file system"
$b mount --move /dev /new/dev
$b mount --move /proc /new/proc
$b mount --move /sys /new/sys
$b mount -t tmpfs run /new/run || fail "cannot mount /run"
$b cp -r /lab /new/run/farcore-lab || fail "cannot copy to /run/farcore-lab"
exec $b switch_root /new /bin/bash /run/farcore-lab/guest-main.sh
