#!/usr/bin/env python3
"""Miss ratios of LRU, FIFO, SIEVE and S3-FIFO over oracleGeneral traces, by libCacheSim.

For comparison with `farcore-bench cache`, which writes the traces with --write and says how many
records it held:

    python3 -m venv venv && venv/bin/pip install libcachesim
    venv/bin/python bench/miss_ratios.py 35000 zipf-0.8.oracleGeneral zipf-1.0.oracleGeneral

The cache size counts records, because all records of these traces are of one length.
"""

import struct
import sys

import libcachesim

RECORD = struct.Struct("<IQIq")  # time, object, size, next access
POLICIES = [libcachesim.LRU, libcachesim.FIFO, libcachesim.Sieve, libcachesim.S3FIFO]


def keys_of(path):
    """The requested keys, in order."""
    with open(path, "rb") as file:
        return [key for _, key, _, _ in RECORD.iter_unpack(file.read())]


def miss_ratio(policy, keys, records):
    """The share of requests that miss in an empty cache of so many records."""
    cache = policy(cache_size=records)
    request = libcachesim.Request()
    request.obj_size = 1
    misses = 0
    for key in keys:
        request.obj_id = key
        misses += not cache.get(request)
    return misses / len(keys)


def main():
    if len(sys.argv) < 3:
        sys.exit("usage: miss_ratios.py RECORDS TRACE...")
    records = int(sys.argv[1])
    names = " | ".join(policy.__name__ for policy in POLICIES)
    print(f"| trace | {names} |\n|---|{'---|' * len(POLICIES)}")
    for path in sys.argv[2:]:
        keys = keys_of(path)
        ratios = [f"{miss_ratio(policy, keys, records):.4f}" for policy in POLICIES]
        print(f"| {path} | {' | '.join(ratios)} |", flush=True)


if __name__ == "__main__":
    main()
