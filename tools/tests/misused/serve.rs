//! Wrong uses of `farcore serve`.

use super::Row;

pub(super) const SERVE: &[Row] = &[
    (
        "serve",
        "serve --local 32MiB --far 64MiB --client-memory 1EiB",
        1,
        &[
            "--local 32 MiB, --far 64 MiB, --client-memory 1 EiB: only ",
            "lower them",
        ],
    ),
    (
        "serve",
        "serve --local 32MiB --far 1 --cores 0",
        1,
        &["--far is 1 byte: at least 512 KiB, a page of 512 KiB"],
    ),
    (
        "serve",
        "serve --local 1MiB --far 32MiB --cores 0",
        1,
        &[
            "--local 1 MiB is too small: ",
            "for 1 core and --far 32 MiB",
        ],
    ),
    (
        "serve",
        "serve --local 1EiB --far 1GiB",
        1,
        &["--local 1 EiB, --far 1 GiB: only ", "available"],
    ),
    (
        "serve",
        "serve --cluster-lease 5s",
        1,
        &[
            "--cluster-lease has no effect without a map in etcd",
            "--cluster-map etcd://HOST:PORT/PREFIX",
            "omit it",
        ],
    ),
    (
        "serve",
        "serve --cluster-map FOLDER/map --cluster-lease 10s",
        1,
        &[
            "--cluster-lease has no effect without a map in etcd",
            "--cluster-map etcd://HOST:PORT/PREFIX",
            "omit it",
        ],
    ),
    (
        "serve",
        "serve --cluster-map FOLDER/map --etcd-ca FOLDER/none",
        1,
        &[
            "--etcd-ca has no effect without etcd",
            "--cluster-map or --nodes-from etcd://HOST:PORT/PREFIX",
            "omit it",
        ],
    ),
    (
        "serve",
        "serve --nodes-from FOLDER/none --etcd-user me --etcd-password-file PASSWORD",
        1,
        &["--etcd-", "has no effect without etcd", "omit it"],
    ),
    // The flags of etcd are for both, so both are encrypted or none is.
    (
        "serve",
        "serve --nodes-from etcd://127.0.0.1:1/p --cluster-map etcds://127.0.0.1:1/p --etcd-ca PASSWORD",
        1,
        &["etcd://127.0.0.1:1/p", "etcds://", "--etcd-ca"],
    ),
    (
        "serve",
        "serve --nodes-from FOLDER/none",
        1,
        &["--nodes-from ", "/none: cannot be read: No such file"],
    ),
    (
        "serve",
        "serve --nodes-from PASSWORD",
        1,
        &["--nodes-from ", "/password: line 1: ", "tcp://host:port"],
    ),
    (
        "serve",
        "serve --nodes-from etcd://127.0.0.1:1",
        2,
        &[
            "--nodes-from",
            "it has no prefix",
            "etcd://HOST:PORT[,HOST:PORT..]/PREFIX",
        ],
    ),
    (
        "serve",
        "serve --nodes-from dns:a?type=A",
        2,
        &[
            "--nodes-from",
            "\"type=A\" has no meaning",
            "dns:[//RESOLVER[:PORT]/]NAME",
        ],
    ),
    (
        "serve",
        "serve --nodes-from dns://127.0.0.1:1/_farcore._tcp.a --wait-for-nodes 0s",
        1,
        &[
            "--nodes-from dns://127.0.0.1:1/_farcore._tcp.a",
            "the resolver 127.0.0.1:1",
            "refused",
        ],
    ),
    (
        "serve",
        "serve --nodes-from etcd://127.0.0.1:1/p --wait-for-nodes 0s",
        1,
        &["--nodes-from etcd://127.0.0.1:1/p", "efused"],
    ),
    (
        "serve",
        "serve --nodes-from etcd://127.0.0.1:1/p --wait-for-nodes 2days",
        1,
        &["--wait-for-nodes is 2days", "0s to 1day"],
    ),
    (
        "serve",
        "serve --nodes-from FOLDER/none --fabric tcp://127.0.0.1:1",
        2,
        &["--nodes-from", "--fabric", "cannot be used with"],
    ),
    (
        "serve",
        "serve --local lots",
        2,
        &["--local", "`lots` is not a size", "4GiB"],
    ),
    (
        "serve",
        "serve --cores 4095",
        1,
        &["--cores names core 4095", "may use"],
    ),
    (
        "serve",
        "serve --cores 9-3",
        2,
        &["--cores", "9-3 counts down: write 3-9"],
    ),
    (
        "serve",
        "serve --resp TAKEN",
        1,
        &["--resp 127.0.0.1:", "in use", "another address or port"],
    ),
    // The engine, which no memory node answers, is not opened.
    (
        "serve",
        "serve --resp 127.0.0.1:0 --fabric tcp://127.0.0.1:1 --native tcp://localhost:7401 --open-to-all",
        1,
        &["--native tcp://localhost:7401", "in numbers"],
    ),
    (
        "serve",
        "serve --http TAKEN",
        1,
        &["127.0.0.1:", "in use", "give --http another address"],
    ),
    (
        "serve",
        "serve --resp 127.0.0.1:0 --stats-socket /nonexistent/x",
        1,
        &["--stats-socket /nonexistent/x cannot be opened"],
    ),
    // The engine, which no memory node answers, is not opened; nor is another address looked at.
    (
        "serve",
        "serve --resp TAKEN --fabric tcp://127.0.0.1:1 --stats-socket TRACE",
        1,
        &[
            "--stats-socket ",
            "/trace cannot be opened",
            "not a socket: remove it or choose another path",
        ],
    ),
    (
        "serve",
        "serve --tls TAKEN --tls-cert TRACE --tls-key TRACE",
        1,
        &["--tls 127.0.0.1:", "in use"],
    ),
    (
        "serve",
        "serve --resp 127.0.0.1:0 --tls 127.0.0.1:0 --tls-cert TRACE --tls-key /nowhere",
        1,
        &["--tls-key /nowhere: No such file"],
    ),
    (
        "serve",
        // The engine, which has not enough memory, is not opened first.
        "serve --resp 127.0.0.1:0 --local 1MiB --far 32MiB --cores 0 --tls 127.0.0.1:0 --tls-cert TRACE --tls-key TRACE",
        1,
        &["--tls-cert ", "no certificate is in it", "give a PEM file"],
    ),
    (
        "serve",
        "serve --idle-timeout 0s",
        1,
        &["--idle-timeout is 0s", "1ms to 365days"],
    ),
    (
        "serve",
        "serve --client-memory 0",
        1,
        &["--client-memory is 0", "1 MiB or more"],
    ),
    (
        "serve",
        "serve --far-latency 1h",
        1,
        &["--far-latency is 1h", "at most 1s"],
    ),
    (
        "serve",
        "serve --far-latency 2us --fabric tcp://127.0.0.1:1",
        2,
        &["--far-latency", "--fabric"],
    ),
    (
        "serve",
        "serve --fabric tcp://127.0.0.1:1 --device mlx5_0",
        1,
        &["--device has no effect without"],
    ),
    (
        "serve",
        "serve --fabric tcp://127.0.0.1:1 --token-file FOLDER/short",
        1,
        &["--token-file ", "5 bytes long", "16 to 4096"],
    ),
    #[cfg(not(feature = "verbs"))]
    (
        "serve",
        "serve --fabric rdma://127.0.0.1:1",
        1,
        &[
            "--fabric rdma://127.0.0.1:1: this build has no verbs",
            "tcp://127.0.0.1:1",
        ],
    ),
    (
        "serve",
        "serve --small-bytes 1KiB",
        1,
        &["--small-bytes has no effect without --native", "omit it"],
    ),
    (
        "serve",
        "serve --native-memory 1GiB",
        1,
        &["--native-memory has no effect without --native"],
    ),
    (
        "serve",
        "serve --native-clients 3",
        1,
        &["--native-clients has no effect without --native"],
    ),
    (
        "serve",
        "serve --native-timeout 3s",
        1,
        &["--native-timeout has no effect without --native"],
    ),
    (
        "serve",
        "serve --native tcp://127.0.0.1:0 --small-bytes 100",
        1,
        &["--small-bytes is 100", "512 to"],
    ),
    (
        "serve",
        "serve --native tcp://127.0.0.1:0 --native-clients 0",
        1,
        &["--native-clients is 0", "1 to"],
    ),
    (
        "serve",
        "serve --native tcp://127.0.0.1:0 --native-timeout 0s",
        1,
        &["--native-timeout is 0s", "1ms to"],
    ),
    (
        "serve",
        "serve --native tcp://127.0.0.1:0 --native-memory 0",
        1,
        &["--native-memory is 0", "1 MiB or more"],
    ),
    (
        "serve",
        "serve --native tcp://127.0.0.1:0 --native-token-file /nowhere",
        1,
        &["--native-token-file /nowhere: No such file"],
    ),
    (
        "serve",
        "serve --resp 127.0.0.1:0 --local 32MiB --far 32MiB --cores 0 --native tcp://TAKEN",
        1,
        &["--native tcp://127.0.0.1:", "in use", "another address"],
    ),
];
