//! Wrong uses of the other commands.

use super::Row;

pub(super) const OTHERS: &[Row] = &[
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
    (
        "data check",
        "data check FOLDER/none",
        1,
        &["/none: readdir failed", "No such file"],
    ),
    (
        "data repair",
        "data repair FOLDER/none",
        1,
        &["/none: readdir failed", "No such file"],
    ),
    (
        "rdb check",
        "rdb check FOLDER/none.rdb",
        1,
        &["none.rdb cannot be read"],
    ),
    ("rdb check", "rdb check", 2, &["<FILE>"]),
    ("rdb export", "rdb export", 2, &["<FILE>"]),
    (
        "rdb export",
        "rdb export FOLDER/out.rdb --from nowhere",
        1,
        &["--from nowhere", "HOST:PORT"],
    ),
    (
        "rdb import",
        "rdb import FOLDER/none.rdb",
        1,
        &["none.rdb cannot be read"],
    ),
    (
        "rdb import",
        "rdb import FOLDER/none.rdb --to nowhere",
        1,
        &["--to nowhere", "HOST:PORT"],
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
