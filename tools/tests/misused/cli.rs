//! Wrong uses of `farcore cli`.

use super::Row;

/// Those that reach a server are in the tests of `cli`.
pub(super) const CLI: &[Row] = &[
    (
        "cli",
        "cli --timeout 0s get k",
        1,
        &["--timeout 0s", "1ms to 24h"],
    ),
    (
        "cli",
        "cli --timeout 500000000000years get k",
        1,
        &["--timeout 500000000000years", "1ms to 24h"],
    ),
    (
        "cli",
        "cli --server here",
        1,
        &["--server", "tcp://host:port"],
    ),
    (
        "cli",
        "cli --port 1",
        1,
        &["--port has no effect", "omit it"],
    ),
    (
        "cli",
        "cli --token-file /nowhere",
        1,
        &["--token-file /nowhere: No such file"],
    ),
    (
        "cli",
        "cli --keep-going stats",
        1,
        &["--keep-going has no effect", "omit it"],
    ),
    (
        "cli",
        "cli --server tcp://127.0.0.1:1",
        1,
        &["tcp://127.0.0.1:1: ", "`farcore serve --native ADDRESS`"],
    ),
    #[cfg(not(feature = "verbs"))]
    (
        "cli",
        "cli --server rdma://127.0.0.1:1",
        1,
        &[
            "--server rdma://127.0.0.1:1: this build has no verbs",
            "tcp://127.0.0.1:1",
        ],
    ),
    (
        "cli bench",
        "cli bench --in-flight 0",
        1,
        &["--in-flight", "1 to 1024"],
    ),
    (
        "cli bench",
        "cli bench --reads 101",
        1,
        &["--reads", "0 to 100"],
    ),
    (
        "cli cas",
        "cli cas k old v",
        1,
        &["EXPECTED", "write a whole number"],
    ),
    ("cli del", "cli del", 1, &["<KEY>"]),
    (
        "cli expire",
        "cli expire k 0",
        1,
        &["SECONDS", "1 to 18446744073709551"],
    ),
    (
        "cli forget-lost",
        "cli forget-lost all",
        1,
        &["unexpected argument 'all'"],
    ),
    ("cli get", "cli get", 1, &["<KEY>"]),
    (
        "cli incr",
        "cli incr k much",
        1,
        &["BY", "write a whole number"],
    ),
    ("cli mget", "cli mget", 1, &["<KEYS>"]),
    (
        "cli put",
        "cli put k v --ttl 0",
        1,
        &["--ttl", "1 to 18446744073709551"],
    ),
    (
        "cli put",
        "cli put k v --if-absent --if-version 3",
        1,
        &["--if-absent", "--if-version"],
    ),
    (
        "cli scan",
        "cli scan --limit 0",
        1,
        &["--limit", "1 or more"],
    ),
    ("cli stats", "cli stats k", 1, &["unexpected argument 'k'"]),
    ("cli ttl", "cli ttl k l", 1, &["unexpected argument 'l'"]),
];
