//! Wrong uses of `farcore pool`.

use super::Row;

pub(super) const POOL: &[Row] = &[
    (
        "pool bench",
        "pool bench --seconds 0",
        1,
        &["--seconds is 0", "at most 3600"],
    ),
    (
        "pool bench",
        "pool bench --threads 65",
        1,
        &["--threads is 65", "1 to 64"],
    ),
    (
        "pool bench",
        "pool bench --nodes nonsense",
        1,
        &["--nodes", "`nonsense` has no scheme", "tcp://host:port"],
    ),
    (
        "pool demo",
        "pool demo --token-file x",
        1,
        &["--token-file has no effect", "omit it"],
    ),
    (
        "pool demo",
        "pool demo --device mlx5_0",
        1,
        &["--device has no effect", "omit it"],
    ),
    (
        "pool status",
        "pool status",
        1,
        &["--nodes is missing", "--nodes tcp://127.0.0.1:7400"],
    ),
    (
        "pool status",
        "pool status --nodes tcp://127.0.0.1:1 --wait 3601",
        1,
        &["--wait is 3601", "0 to 3600"],
    ),
    (
        "pool status",
        "pool status --nodes tcp://127.0.0.1:1 --wait 0",
        1,
        &["--nodes", "127.0.0.1:1", "Connection refused"],
    ),
    (
        "pool status",
        "pool status --nodes =tcp://127.0.0.1:1",
        1,
        &["--nodes", "zone is empty"],
    ),
    (
        "pool status",
        "pool status --nodes tcp://127.0.0.1:1 --token-file /nowhere",
        1,
        &["--token-file /nowhere: No such file"],
    ),
];
