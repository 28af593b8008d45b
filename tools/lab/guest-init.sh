#!/bin/busybox sh
# The guest's first process, run by busybox from the initramfs. It loads the modules, mounts the
# host's root file system read-only below a scratch layer in memory, and starts guest-main.sh.
#
#   /modules/*.ko, /modules/order   the modules, and their order
#   /lab/                           guest-main.sh and its files; copied to /run/farcore-lab
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
# cache=loose: the root does not change while the guest runs, and without it every access is a
# request to the host.
$b mount -t 9p -o trans=virtio,version=9p2000.L,msize=524288,access=any,ro,cache=loose root /host ||
    fail "cannot mount the host's root file system"
$b mount -t tmpfs -o mode=755,size=75% scratch /scratch
$b mkdir /scratch/upper /scratch/work
$b mount -t overlay -o lowerdir=/host,upperdir=/scratch/upper,workdir=/scratch/work root /new ||
    fail "cannot mount the scratch layer over the host's root file system"
$b mount --move /dev /new/dev
$b mount --move /proc /new/proc
$b mount --move /sys /new/sys
$b mount -t tmpfs run /new/run || fail "cannot mount /run"
$b cp -r /lab /new/run/farcore-lab || fail "cannot copy to /run/farcore-lab"
exec $b switch_root /new /bin/bash /run/farcore-lab/guest-main.sh
