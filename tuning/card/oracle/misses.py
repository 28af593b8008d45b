#!/usr/bin/env python3
"""Counts misses with libCacheSim and writes misses.csv, which tuning/card/tests/oracle.rs compares.

    python3 -m venv /tmp/oracle && /tmp/oracle/bin/pip install libcachesim==0.3.5
    /tmp/oracle/bin/python tuning/card/oracle/misses.py            # writes misses.csv beside it
    /tmp/oracle/bin/python tuning/card/oracle/misses.py --speed    # rates of libCacheSim and replays

Run it in the project's folder. The traces come from `card_replay`, an example of farcore-card.
"""

import importlib.metadata
import pathlib
import struct
import subprocess
import sys
import tempfile
import time

import libcachesim as lcs

VERSION = "0.3.5"
EXAMPLE = ["cargo", "run", "-q", "--release", "-p", "farcore-card", "--example", "card_replay", "--"]
POLICIES = {
    "lru": lcs.LRU,
    "fifo": lcs.FIFO,
    "lfu": lcs.LFU,
    "clock": lcs.Clock,
    "sieve": lcs.Sieve,
    "s3-fifo": lcs.S3FIFO,
    "belady": lcs.Belady,
}
PLACES = [200, 1000, 5000]
NEVER = 2**63 - 1


def keys_of(path):
    """The first handle of each message."""
    keys = []
    with open(path) as file:
        assert next(file).strip() == "farcore-card-trace 1"
        for line in file:
            words = line.split()
            if words and words[0] != "token" and not words[0].startswith("#"):
                keys.append(int(words[2], 16))
    return keys


def next_accesses(keys):
    upcoming, following = {}, [NEVER] * len(keys)
    for at in range(len(keys) - 1, -1, -1):
        following[at] = upcoming.get(keys[at], NEVER)
        upcoming[keys[at]] = at
    return following


def misses(policy, places, keys, following):
    cache = POLICIES[policy](places, hashpower=16)
    request = lcs.Request()
    request.obj_size = 1
    count = 0
    for key, following_one in zip(keys, following):
        request.obj_id = key
        request.next_access_vtime = following_one
        count += not cache.get(request)
    return count


def speed(folder):
    """Replays one binary trace with libCacheSim's own loop, and the same accesses here."""
    keys = keys_of(folder / "zipf.card")
    repeats = 20_000_000 // len(keys)
    path = folder / "zipf.oracleGeneral.bin"
    record = struct.Struct("<IQIq")
    once = b"".join(record.pack(0, key, 1, -1) for key in keys)
    with open(path, "wb") as file:
        for _ in range(repeats):
            file.write(once)
    reader = lcs.TraceReader(str(path), lcs.TraceType.ORACLE_GENERAL_TRACE)
    print("policy,accesses of libCacheSim in M/s")
    for policy in ["lru", "fifo", "sieve", "s3-fifo"]:
        reader.reset()
        cache = POLICIES[policy](2000, hashpower=16)
        start = time.perf_counter()
        ratio, _ = cache.process_trace(reader)
        rate = repeats * len(keys) / (time.perf_counter() - start) / 1e6
        print(f"{policy},{rate:.1f} (miss ratio {ratio:.4f})")
    print("policy,accesses here in M/s,misses", flush=True)
    subprocess.run([*EXAMPLE, "speed"], check=True)


def main():
    found = importlib.metadata.version("libcachesim")
    if found != VERSION:
        sys.exit(f"libcachesim is {found}: install libcachesim=={VERSION}")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        subprocess.run([*EXAMPLE, "traces", name], check=True)
        if "--speed" in sys.argv:
            speed(folder)
            return
        table = pathlib.Path(__file__).with_name("misses.csv")
        lines = [f"# Misses counted by libcachesim {VERSION}; oracle/misses.py makes this file.", "trace,policy,places,misses"]
        for trace in ["zipf", "shifting", "scan"]:
            keys = keys_of(folder / f"{trace}.card")
            following = next_accesses(keys)
            for policy in POLICIES:
                for places in PLACES:
                    lines.append(f"{trace},{policy},{places},{misses(policy, places, keys, following)}")
        table.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
