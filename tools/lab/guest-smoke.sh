#!/bin/bash
# Checks what verbs tests require of the guest: active ports with RoCE v2 addresses, pinned memory,
# huge pages.
failures=0
check() { # WHAT COMMAND...
    local what=$1
    shift
    if "$@"; then
        echo "ok: $what"
    else
        echo "FAILED: $what"
        failures=$((failures + 1))
    fi
}
active() { [ "$(cat "/sys/class/infiniband/$1/ports/1/state")" = "4: ACTIVE" ]; }
# RDMA-CM and the tests use an IPv4 address: an IPv4-mapped GID of type RoCE v2.
roce_v2() {
    local port=/sys/class/infiniband/$1/ports/1 index
    for index in {0..15}; do
        [ "$(cat "$port/gid_attrs/types/$index" 2>/dev/null)" = "RoCE v2" ] || continue
        case $(cat "$port/gids/$index") in
            0000:0000:0000:0000:0000:ffff:0a4d:*) return 0 ;;
        esac
    done
    return 1
}
for device in rxe0 rxe1; do
    check "$device: port 1 is active" active $device
    check "$device: a RoCE v2 address" roce_v2 $device
done
check "uverbs device" test -c /dev/infiniband/uverbs0
check "RDMA-CM device" test -c /dev/infiniband/rdma_cm
check "memory can be pinned without limit" test "$(ulimit -l)" = unlimited
check "huge pages" test "$(cat /proc/sys/vm/nr_hugepages)" -gt 0
exit $((failures > 0))
