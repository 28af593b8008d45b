//! Wrong uses of `farcore fabric`.

use super::Row;

pub(super) const FABRIC: &[Row] = &[
    (
        "fabric bandwidth",
        "fabric bandwidth --batch 0",
        1,
        &["--batch is 0", "1 to --depth"],
    ),
    (
        "fabric bandwidth",
        "fabric bandwidth --depth 0",
        1,
        &["--depth is 0", "1 to 4096"],
    ),
    (
        "fabric bandwidth",
        "fabric bandwidth --seconds nan",
        1,
        &["--seconds is NaN", "at most 3600"],
    ),
    (
        "fabric bandwidth",
        "fabric bandwidth --seconds 1 --count 1",
        2,
        &["--seconds", "--count"],
    ),
    (
        "fabric devices",
        "fabric devices --count 1",
        2,
        &["--count"],
    ),
    (
        "fabric ping",
        "fabric ping --count many",
        2,
        &["--count", "write a whole number"],
    ),
    (
        "fabric ping",
        "fabric ping --count 0",
        1,
        &["--count is 0", "1 or more"],
    ),
    (
        "fabric ping",
        "fabric ping --bytes 0",
        1,
        &["--bytes 0", "1 to 16 MiB"],
    ),
    (
        "fabric ping",
        "fabric ping --port 1",
        1,
        &["--port has no effect", "omit it"],
    ),
    (
        "fabric ping",
        "fabric ping --token-file x",
        1,
        &["--token-file has no effect", "omit it"],
    ),
    (
        "fabric ping",
        "fabric ping --fabric tcp://127.0.0.1:1 --device mlx5_0",
        1,
        &["--device has no effect with tcp://"],
    ),
    (
        "fabric ping",
        "fabric ping --fabric tcp://127.0.0.1:1",
        1,
        &[
            "--fabric tcp://127.0.0.1:1: Connection refused",
            "`farcore memnode`",
        ],
    ),
    (
        "fabric ping",
        "fabric ping --fabric tcp://127.0.0.1:1 --token-file /nowhere",
        1,
        &["--token-file /nowhere: No such file"],
    ),
    #[cfg(not(feature = "verbs"))]
    (
        "fabric ping",
        "fabric ping --fabric rdma://127.0.0.1:1",
        1,
        &[
            "--fabric rdma://127.0.0.1:1: this build has no verbs",
            "tcp://127.0.0.1:1",
        ],
    ),
];
