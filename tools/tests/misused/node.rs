//! Wrong uses of `farcore memnode`.

use super::Row;

pub(super) const NODE: &[Row] = &[
    ("memnode", "memnode", 2, &["--memory <SIZE>"]),
    (
        "memnode",
        "memnode --memory 1MiB --listen tcp://127.0.0.1:9 --http 127.0.0.1:9",
        1,
        &["--http 127.0.0.1:9: --listen has the same address"],
    ),
    (
        "memnode",
        "memnode --memory lots",
        1,
        &["--memory `lots`", "32GiB"],
    ),
    ("memnode", "memnode --memory 1EiB", 1, &["--memory 1EiB"]),
    (
        "memnode",
        "memnode --memory 1MiB --port 1",
        1,
        &["--port has no effect", "omit it"],
    ),
    (
        "memnode",
        "memnode --memory 1MiB --threads 0",
        1,
        &["--threads 0", "1 to 1024"],
    ),
    (
        "memnode",
        "memnode --memory 1MiB --lease 0s",
        1,
        &["--lease 0s", "1s to 24h"],
    ),
    (
        "memnode",
        "memnode --memory 1MiB --http here",
        1,
        &["--http `here` is no address", "127.0.0.1:9400"],
    ),
    (
        "memnode",
        "memnode --memory 1MiB --listen tcp://TAKEN",
        1,
        &["--listen tcp://", "in use"],
    ),
    (
        "memnode",
        "memnode --memory 1MiB --token-file /nowhere",
        1,
        &["--token-file /nowhere: No such file"],
    ),
    (
        "memnode",
        "memnode --memory 1MiB --token-file FOLDER/short",
        1,
        &["--token-file ", "5 bytes long", "16 to 4096", "umask 077"],
    ),
    (
        "memnode",
        "memnode --memory 1MiB --etcd 127.0.0.1:1",
        2,
        &["--etcd", "does not begin with etcd://", "PREFIX"],
    ),
    (
        "memnode",
        "memnode --memory 1MiB --zone a=b --etcd etcd://127.0.0.1:1/p",
        2,
        &["--zone", "1 to 64 bytes", "`=`"],
    ),
    (
        "memnode",
        "memnode --memory 1MiB --zone a",
        2,
        &["--etcd <ETCD>"],
    ),
    (
        "memnode",
        "memnode --memory 1MiB --advertise tcp://a:1",
        2,
        &["--etcd <ETCD>"],
    ),
    (
        "memnode",
        "memnode --memory 1MiB --etcd-ca PASSWORD",
        1,
        &["--etcd-ca has no effect without --etcd", "omit it"],
    ),
    (
        "memnode",
        "memnode --memory 1MiB --listen tcp://0.0.0.0:0 --insecure --etcd etcd://127.0.0.1:1/p",
        1,
        &[
            "--listen tcp://0.0.0.0:0",
            "give --advertise",
            "tcp://10.0.0.1:7400",
        ],
    ),
    (
        "memnode",
        "memnode --memory 1MiB --listen tcp://127.0.0.1:0 --etcd etcd://127.0.0.1:1/p",
        1,
        &["--etcd: the node cannot be registered", "efused"],
    ),
];
