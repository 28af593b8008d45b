//! What every command says of flags that are unknown, wrong or without effect, and of files that
//! are missing: one error that names the flag as it was typed, the limit, the value and the remedy.
//!
//! The list of commands is that of the flags' parser, so that a new command fails these tests until
//! it is in [`ROWS`]. What concerns addresses, secrets and servers is in the tests of the commands.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use self::support::{TokenFile, commands};

/// The name of a command, its arguments, its exit code, and parts of its error. TRACE, PASSWORD,
/// FOLDER and TOKEN are files and a folder, TAKEN is an address that cannot be listened at.
type Row = (&'static str, &'static str, i32, &'static [&'static str]);

const CARD: &[Row] = &[
    (
        "card run",
        "card run --card-entries 3",
        1,
        &["--card-entries is 3", "16 to 65536"],
    ),
    (
        "card run",
        "card run --cxl-latency 1e9",
        1,
        &["--cxl-latency is 1000000000", "0 to 1000000"],
    ),
    (
        "card run",
        "card run --pattern storm --period 9 --special 11",
        1,
        &["--special is 11", "write 0 to"],
    ),
    (
        "card run",
        "card run --policies lru",
        1,
        &["--policies has no effect without --one-tier", "omit it"],
    ),
    (
        "card run",
        "card run --one-tier --policy lru",
        1,
        &["--policy has no effect with --one-tier"],
    ),
    (
        "card run",
        "card run --policy lru --alpha 3",
        1,
        &["--alpha has no effect with --policy lru"],
    ),
    (
        "card run",
        "card run --preset plain --to-cxl 3",
        1,
        &["--to-cxl has no effect without pages", "--cxl-pages"],
    ),
    (
        "card run",
        "card run --trace TRACE --seed 3",
        1,
        &["--seed has no effect with --trace"],
    ),
    (
        "card run",
        "card run --trace TRACE",
        1,
        &["--warmup is 200000", "has 50 messages", "smaller"],
    ),
    (
        "card run",
        "card run --trace TRACE --limit 0",
        1,
        &["--limit is 0", "1 or more"],
    ),
    (
        "card run",
        "card run --trace /nowhere",
        1,
        &["--trace /nowhere: No such file"],
    ),
    ("card run", "card run --limit 3", 2, &["--trace <FILE>"]),
    (
        "card run",
        "card run --settings TRACE",
        1,
        &["--settings ", "no JSON of settings"],
    ),
    (
        "card run",
        "card run --settings /nowhere",
        1,
        &["--settings /nowhere: No such file"],
    ),
    (
        "card run",
        "card run --window 3 --rate 1e6",
        2,
        &["--window", "--rate", "cannot be used with"],
    ),
    ("card sweep", "card sweep", 2, &["--vary <NAME=VALUES>"]),
    (
        "card sweep",
        "card sweep --vary nothing=1",
        1,
        &["--vary nothing: there is no such setting", "--help"],
    ),
    (
        "card sweep",
        "card sweep --vary queue-pairs=x",
        1,
        &["--vary: ", "'--queue-pairs <N>'", "write a whole number"],
    ),
    (
        "card sweep",
        "card sweep --vary card-entries=1",
        1,
        &["--vary: --card-entries is 1", "16 to 65536"],
    ),
    (
        "card sweep",
        "card sweep --vary queue-pairs=1 --points 3",
        1,
        &["--points has no effect with sweep"],
    ),
    (
        "card sweep",
        "card sweep --vary alpha=1,2 --policy lru",
        1,
        &["--vary: --alpha has no effect with --policy lru: omit it"],
    ),
    (
        "card sweep",
        "card sweep --vary to-cxl=1,2 --preset plain",
        1,
        &["--vary: --to-cxl has no effect without pages behind CXL"],
    ),
    (
        "card sweep",
        "card sweep --vary cxl-pages=0 --batch-max 3",
        1,
        &["--batch-max has no effect without pages behind CXL"],
    ),
    (
        "card sweep",
        "card sweep --vary policy=lru,fifo --alpha 3",
        1,
        &["--alpha has no effect in any combination: omit it"],
    ),
    (
        "card sweep",
        "card sweep --vary pattern=zipf --period 9",
        1,
        &["--period has no effect with --pattern zipf"],
    ),
    (
        "card sweep",
        "card sweep --vary window=1,2 --rate 1e6",
        1,
        &["--vary window", "--rate", "omit one"],
    ),
    (
        "card sweep",
        "card sweep --vary regions=1,2 --trace TRACE",
        1,
        &["--vary: --regions has no effect with --trace"],
    ),
    (
        "card sweep",
        "card sweep --vary rate=1e6 --trace TRACE --recorded-times",
        1,
        &["--vary: --rate has no effect with --recorded-times"],
    ),
    (
        "card sweep",
        "card sweep --vary queue-pairs=1,2 --queue-pairs 5",
        1,
        &["--queue-pairs has no effect with --vary queue-pairs: omit it"],
    ),
    (
        "card sweep",
        "card sweep --vary points=1,2",
        1,
        &["--vary: --points has no effect with sweep"],
    ),
    (
        "card sweep",
        "card sweep --vary queue-pairs=1 --jobs 0",
        2,
        &["--jobs", "1 to 4096"],
    ),
    (
        "card sweep",
        "card sweep --vary queue-pairs=1 --repeats 0",
        2,
        &["--repeats", "1 to 1000"],
    ),
    (
        "card sweep",
        "card sweep --vary warmup=1 --trace TRACE --repeats 3",
        1,
        &["--repeats has no effect with --trace"],
    ),
    (
        "card trace convert",
        "card trace convert TRACE --to csv",
        2,
        &["--out <FILE>"],
    ),
    (
        "card trace convert",
        "card trace convert TRACE --to tsv --out x",
        2,
        &["'tsv'", "csv"],
    ),
    (
        "card trace convert",
        "card trace convert /nowhere --to csv --out FOLDER/x",
        1,
        &["/nowhere: No such file"],
    ),
    (
        "card trace generate",
        "card trace generate --out FOLDER/x --messages 0",
        1,
        &["--messages is 0", "1 to 20000000"],
    ),
    (
        "card trace generate",
        "card trace generate --out FOLDER/x --rate 1",
        1,
        &["--rate is 1", "1000 to"],
    ),
    (
        "card trace generate",
        "card trace generate --out FOLDER/x --exponent 9",
        1,
        &["--exponent is 9", "0 to 4"],
    ),
    (
        "card trace inspect",
        "card trace inspect /nowhere",
        1,
        &["/nowhere: No such file"],
    ),
    (
        "card trace inspect",
        "card trace inspect PASSWORD",
        1,
        &["line 1", "`farcore-card-trace 1`"],
    ),
    (
        "card trace inspect",
        "card trace inspect TRACE --limit 0",
        1,
        &["--limit is 0", "1 or more"],
    ),
];

/// Those that reach a server are in the tests of `cli`.
const CLI: &[Row] = &[
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

#[cfg(feature = "console")]
const CONSOLE: &[Row] = &[
    ("console", "console", 2, &["--data <DIR>"]),
    (
        "console",
        "console --data FOLDER/d --parallel 0",
        1,
        &["--parallel 0", "1 to 256"],
    ),
    (
        "console",
        "console --data FOLDER/d --import-limit 0",
        1,
        &["--import-limit 0", "1MiB or more"],
    ),
    (
        "console",
        "console --data FOLDER/d --import-limit big",
        2,
        &["--import-limit", "256MiB"],
    ),
    (
        "console",
        "console --data FOLDER/d --host a/b",
        1,
        &["--host `a/b`", "console.example.org"],
    ),
    (
        "console",
        "console --data FOLDER/d --listen 0.0.0.0:1",
        1,
        &["--listen 0.0.0.0:1", "--behind-tls"],
    ),
    (
        "console",
        "console --data FOLDER/d --listen here",
        2,
        &["--listen", "ADDRESS:PORT"],
    ),
    (
        "console",
        "console --data FOLDER/d --listen TAKEN --admin-password-file PASSWORD",
        1,
        &["--listen ", "in use", "another address or port"],
    ),
    (
        "console",
        "console --data /dev/null/x --admin-password-file PASSWORD",
        1,
        &["--data /dev/null/x: Not a directory"],
    ),
    (
        "console",
        "console --data FOLDER/d --admin-password-file TRACE --admin-name=",
        1,
        &["--admin-name has 0 characters", "1 to 64"],
    ),
    (
        "console",
        "console --data FOLDER/d --admin-password-file FOLDER/short",
        1,
        &["--admin-password-file ", "has 5 characters", "at least 12"],
    ),
    (
        "console",
        "console --data FOLDER/d",
        1,
        &["no terminal", "--admin-password-file FILE"],
    ),
    (
        "console",
        "console --data FOLDER/d --behind-tls --open-to-all",
        2,
        &["cannot be used with"],
    ),
];
#[cfg(not(feature = "console"))]
const CONSOLE: &[Row] = &[];

const FABRIC: &[Row] = &[
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
        &["--bytes 0", "1 to 16.0 MiB"],
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

const NODE: &[Row] = &[
    ("memnode", "memnode", 2, &["--memory <SIZE>"]),
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
];

const SERVE: &[Row] = &[
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
        &["--local 1 EiB and --far 1 GiB: only ", "available"],
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
    (
        "serve",
        "serve --resp 127.0.0.1:0 --native tcp://localhost:7401 --open-to-all",
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
        "serve --tls 127.0.0.1:0 --tls-cert TRACE --tls-key /nowhere",
        1,
        &["--tls-key /nowhere: No such file"],
    ),
    (
        "serve",
        "serve --resp 127.0.0.1:0 --local 32MiB --far 32MiB --cores 0 --tls 127.0.0.1:0 --tls-cert TRACE --tls-key TRACE",
        1,
        &["--tls-cert ", "no certificate is in it"],
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

const OTHERS: &[Row] = &[
    (
        "completions",
        "completions csh",
        2,
        &["'csh'", "possible values"],
    ),
    ("doctor", "doctor --jason", 2, &["--jason", "--json"]),
    ("man", "man", 2, &["--out <DIR>"]),
    (
        "man",
        "man --out /dev/null/x",
        1,
        &["--out /dev/null/x cannot be written"],
    ),
    ("run-one", "run-one", 1, &["the plan cannot be parsed"]),
    ("top", "top --json", 2, &["--once"]),
    (
        "top",
        "top --interval 1ms",
        1,
        &["--interval is 1ms", "100ms to 24h"],
    ),
    (
        "top",
        "top --interval 500000000000years",
        1,
        &["--interval is 500000000000years", "100ms to 24h"],
    ),
    (
        "top",
        "top --once --json --size 9x9",
        1,
        &["--size has no effect with --json"],
    ),
    ("top", "top --once --size big", 2, &["--size", "80x24"]),
    (
        "top",
        "top --log-format json",
        1,
        &["--log-format has no effect with top"],
    ),
    (
        "top",
        "top --once /nonexistent/x",
        1,
        &[
            "/nonexistent/x",
            "`farcore serve --stats-socket /nonexistent/x`",
        ],
    ),
    (
        "tune",
        "tune --json",
        1,
        &["--json has no effect without --predict"],
    ),
    (
        "tune",
        "tune --predict cores=1 --budget 1s",
        1,
        &["--budget has no effect with --predict"],
    ),
    (
        "tune",
        "tune --predict cores=1 --from x --repeats 2",
        1,
        &["--repeats has no effect with --from"],
    ),
    (
        "tune",
        "tune --predict cores=0",
        2,
        &["--predict", "1 to 4096"],
    ),
    (
        "tune",
        "tune --predict cores=1 --from /nowhere",
        1,
        &["--from /nowhere: No such file"],
    ),
    (
        "tune",
        "tune --predict cores=1 --cores 0 --local 512KiB",
        1,
        &["--local is 512 KiB", "at least 1 MiB"],
    ),
    (
        "tune",
        "tune --predict cores=1 --cores 0 --local 2MiB --keys-per-core 1000000",
        1,
        &[
            "--local 2 MiB is too small: ",
            "for 1000000 keys and --far ",
        ],
    ),
    (
        "tune",
        "tune --predict cores=1 --fabric tcp://127.0.0.1:1",
        1,
        &["omit --fabric", "--from"],
    ),
    (
        "tune",
        "tune --far 1EiB",
        1,
        &["--far 1 EiB", "available", "lower"],
    ),
];

const ROWS: [&[Row]; 7] = [CARD, CLI, CONSOLE, FABRIC, NODE, SERVE, OTHERS];

fn rows() -> impl Iterator<Item = &'static Row> {
    ROWS.into_iter().flatten()
}

/// What the rows name.
struct Place {
    folder: TempDir,
    taken: TcpListener,
}

impl Place {
    fn new() -> Self {
        let place = Self {
            folder: tempfile::tempdir().unwrap(),
            taken: TcpListener::bind("127.0.0.1:0").unwrap(),
        };
        for (name, text) in [
            ("password", "correct horse battery\n"),
            ("short", "short\n"),
        ] {
            fs::write(place.path(name), text).unwrap();
        }
        let trace = "card trace generate --messages 50 --out TRACE";
        assert_eq!(place.run(trace), (Some(0), String::new()));
        place
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Runs a line: its exit code, and what it says on stderr but for its log.
    fn run(&self, line: &str) -> (Option<i32>, String) {
        let line = line
            .replace("FOLDER", &self.folder.path().display().to_string())
            .replace("PASSWORD", &self.path("password"))
            .replace("TRACE", &self.path("trace"))
            .replace("TAKEN", &self.taken.local_addr().unwrap().to_string());
        let mut command = Command::new(env!("CARGO_BIN_EXE_farcore"));
        command.args(line.split_whitespace()).stdin(Stdio::null());
        let output = command.env("RUST_LOG", "off").output().unwrap();
        assert_eq!(output.stdout, b"", "{line}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), said)
    }
}

/// What holds for every error.
fn check(name: &str, line: &str, code: i32, said: &str) {
    assert!(!said.contains("panicked"), "{line}: {said}");
    assert!(said.matches("os error").count() <= 1, "{line}: {said}");
    // A field of an engine's or a server's settings.
    let words = said.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let fields: Vec<&str> = words.filter(|word| word.contains('_')).collect();
    let is_field = |word: &&&str| {
        ["_bytes", "_max", "_ns", "_min"]
            .iter()
            .any(|end| word.ends_with(end))
    };
    assert_eq!(fields.iter().find(is_field), None, "{line}: {said}");
    if said.starts_with("error: ") {
        let is_cli = name.starts_with("cli");
        assert_eq!(code, if is_cli { 1 } else { 2 }, "{line}: {said}");
        assert_eq!(said.matches("error: ").count(), 1, "{line}: {said}");
        assert!(said.contains("--help"), "{line}: {said}");
    } else {
        // A command of commands may fail before it knows which one is meant.
        let group = name.split(' ').next().unwrap_or_default();
        let is_named = said.starts_with(&format!("farcore {group}")) || name == "run-one";
        assert!(is_named, "{line}: {said}");
        assert_eq!(said.lines().count(), 1, "{line}: {said}");
    }
}

#[test]
fn every_command_is_in_the_list() {
    let names: BTreeSet<String> = rows().map(|row| row.0.to_owned()).collect();
    assert_eq!(names, commands());
}

#[test]
fn an_unknown_flag_is_named() {
    let place = Place::new();
    for name in commands() {
        let line = format!("{name} --nothing-at-all");
        let (code, said) = place.run(&line);
        let expected = if name.starts_with("cli") { 1 } else { 2 };
        assert_eq!(code, Some(expected), "{line}: {said}");
        assert!(said.contains("'--nothing-at-all'"), "{line}: {said}");
        check(&name, &line, expected, &said);
    }
    let (code, said) = place.run("mend");
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("unrecognized subcommand 'mend'"), "{said}");
}

#[test]
fn every_error_names_flag_limit_value_and_remedy() {
    let place = Place::new();
    for &(name, line, code, parts) in rows() {
        let (ended, said) = place.run(line);
        assert_eq!(ended, Some(code), "{line}: {said}");
        for part in parts {
            assert!(said.contains(part), "{line}: no {part:?} in {said}");
        }
        check(name, line, code, &said);
        let left = fs::read_dir(place.folder.path()).unwrap();
        let names = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let known = |name: &String| ["password", "short", "trace"].contains(&name.as_str());
        assert!(
            names.into_iter().all(|name| known(&name)),
            "{line} leaves a file"
        );
    }
}

/// The examples of a first-time user: what the other side says is in words of the flags, too.
#[test]
fn a_token_that_differs_is_named_by_its_flag() {
    let token = TokenFile::new("misused");
    let node = support::Node::start(
        &[],
        &[
            "--listen",
            "tcp://127.0.0.1:0",
            "--memory",
            "64MiB",
            "--no-huge-pages",
            "--token-file",
            token.path(),
        ],
    );
    let open = support::Node::start(
        &[],
        &[
            "--listen",
            "tcp://127.0.0.1:0",
            "--memory",
            "64MiB",
            "--no-huge-pages",
        ],
    );
    let place = Place::new();
    fs::write(place.path("other"), "another token, long enough").unwrap();
    let (guarded, open) = (node.address, open.address);
    let serve = "serve --resp 127.0.0.1:0 --local 32MiB --far 32MiB --cores 0 --no-huge-pages";
    for command in [serve, "fabric ping --count 1"] {
        for (flags, part) in [
            (
                format!("--fabric tcp://{guarded} --token-file FOLDER/other"),
                "rejected the token: --token-file differs from the node's",
            ),
            (
                format!("--fabric tcp://{guarded}"),
                "requires a token: give --token-file",
            ),
            (
                format!("--fabric tcp://{open} --token-file FOLDER/other"),
                "has no token: omit --token-file",
            ),
        ] {
            let line = format!("{command} {flags}");
            let (code, said) = place.run(&line);
            assert_eq!(code, Some(1), "{line}: {said}");
            assert!(
                said.contains("--fabric tcp://") && said.contains(part),
                "{line}: {said}"
            );
            let name = line.split(" --").next().unwrap_or_default();
            check(name, &line, 1, &said);
        }
    }
    let line = format!("{serve} --far 1GiB --fabric tcp://{open}").replace("--far 32MiB ", "");
    let (code, said) = place.run(&line);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("--far"), "{said}");
    check("serve", &line, 1, &said);
}
