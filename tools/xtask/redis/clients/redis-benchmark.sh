#!/usr/bin/env bash
# redis-benchmark, a few requests: HOST PORT CUT_PORT MODE
set -euo pipefail
bench() { redis-benchmark -h "$1" -p "$2" --csv "${@:3}"; }
if [ "$4" = connect ]; then
    tests=ping_mbulk
    lines=$(bench "$1" "$2" -n 1 -c 1 -t "$tests")
    expected=1
else
    tests=ping,set,get,incr,hset,mset
    lines=$(bench "$1" "$2" -n 2000 -c 10 -P 16 -r 1000 -d 128 -t "$tests")
    expected=7
fi
# A line for each test, with its rate, and the heading.
found=$(grep -cE '^"[A-Z]+.*","[0-9]+\.[0-9]+"' <<<"$lines" || true)
if [ "$found" != "$expected" ]; then
    echo "expected $expected tests, got $found: $(tr '\n' ' ' <<<"$lines")"
    exit 1
fi
echo "$(redis-benchmark --version): $tests"
