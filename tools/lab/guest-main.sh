#!/bin/bash
# The guest's second stage, with the host's own user land: makes the devices, runs the command, reports its exit status.
#
#   settings   modules, huge_pages, devices, terminal, writable=(directories)
#   command    environment, working directory and command; sourced
#
# Three virtio ports lead out: `out` and `err` carry the command's output, `report` one line: `status N`, or `failed WHY` if
# the command could not be started. No line at all means that the guest died.
lab=/run/farcore-lab
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
. $lab/settings

port() {
    local directory name
    for directory in /sys/class/virtio-ports/*; do
        read -r name < "$directory/name"
        [ "$name" = "$1" ] && echo "/dev/${directory##*/}"
    done
}
report=$(port report)
finish() {
    echo "$*" > "$report"
    sync
    echo o > /proc/sysrq-trigger # power off at once
    sleep 100
}
must() {
    "$@" || finish "failed $*: exit status $?"
}

mkdir -p /dev/pts /dev/shm /dev/hugepages
must mount -t devpts devpts /dev/pts
must mount -t tmpfs shm /dev/shm
must mount -t hugetlbfs huge /dev/hugepages
must mount -t cgroup2 cgroup /sys/fs/cgroup
release=$(uname -r)
must mkdir -p "/lib/modules/$release" # for modprobe
must mount --bind "$modules/$release" "/lib/modules/$release"
echo "$huge_pages" > /proc/sys/vm/nr_hugepages
read -r had < /proc/sys/vm/nr_hugepages
[ "$had" = "$huge_pages" ] || finish "failed to have $huge_pages huge pages of 2 MiB, got $had: give more --memory"
echo 1048576 > /proc/sys/fs/aio-max-nr

for i in "${!writable[@]}"; do
    must mount -t 9p -o trans=virtio,version=9p2000.L,msize=524288,access=any,cache=mmap "writable$i" "${writable[i]}"
done

# Soft-RoCE over dummy links: device rxeN with 10.77.N.1. An MTU of 4200 leaves room for RDMA's largest, 4096.
must hostname farcore-lab
must ip link set lo up
for ((i = 0; i < devices; i++)); do
    must ip link add "lab$i" mtu 4200 type dummy
    must ip addr add "10.77.$i.1/24" dev "lab$i"
    must ip link set "lab$i" up
    must rdma link add "rxe$i" type rxe netdev "lab$i"
done
must ulimit -l unlimited # verbs pin memory
must ulimit -n 65536
ulimit -c 0

# What the command leaves running is killed with its control group, so that it does not hold its output open.
group=/sys/fs/cgroup/command
must mkdir $group
if [ "$terminal" = 1 ]; then
    echo $$ > $group/cgroup.procs
    # Brackets of its own: setsid must fork to become a session's leader.
    (exec setsid --wait --ctty bash $lab/command <> /dev/hvc0 >&0 2>&0)
    finish "status $?"
fi
# A port can be opened only once, and programs like to reopen /dev/stdout: hence a pipe and a cat for each.
must mkfifo $lab/out $lab/err
cat $lab/out > "$(port out)" &
cats=$!
cat $lab/err > "$(port err)" &
cats="$cats $!"
(
    echo $BASHPID > $group/cgroup.procs
    exec bash $lab/command < /dev/null > $lab/out 2> $lab/err
)
status=$?
echo 1 > $group/cgroup.kill
wait $cats
finish "status $status"
