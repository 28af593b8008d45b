#!/bin/bash
# The guest's second stage, in the host's user land: creates the devices, runs the command, reports
# its exit status.
#
#   settings   modules, huge_pages, devices, terminal, writable=(directories)
#   command    environment, working directory and command; sourced
#
# Four virtio ports lead to the host: `out` and `err` carry the command's output, `report` one
# line: `status N`, or `failed WHY` if the command could not be started. No line means that the
# guest died. `pulse` gets a line every two seconds: none means that the guest's kernel stands still.
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

while :; do echo && sleep 2; done > "$(port pulse)" &

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
[ "$had" = "$huge_pages" ] || finish "failed to reserve $huge_pages huge pages of 2 MiB, got $had: raise --memory"
echo 1048576 > /proc/sys/fs/aio-max-nr

for i in "${!writable[@]}"; do
    must mount -t 9p -o trans=virtio,version=9p2000.L,msize=524288,access=any,cache=mmap "writable$i" "${writable[i]}"
done

# Soft-RoCE over dummy links: device rxeN with 10.77.N.1. An MTU of 4200 has room for RDMA's
# largest, 4096.
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

# Processes that the command leaves behind are killed with its control group, so that they do not
# hold its output open.
group=/sys/fs/cgroup/command
must mkdir $group
if [ "$terminal" = 1 ]; then
    echo $$ > $group/cgroup.procs
    # In a subshell, because setsid must fork to lead a session.
    (exec setsid --wait --ctty bash $lab/command <> /dev/hvc0 >&0 2>&0)
    finish "status $?"
fi
# A port can be opened only once, but programs reopen /dev/stdout: hence a pipe and a cat for each
# port.
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
