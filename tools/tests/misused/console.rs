//! Wrong uses of `farcore console`.

use super::Row;

pub(super) const CONSOLE: &[Row] = &[
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
        "console --data FOLDER/d --import-limit 1",
        1,
        &["--import-limit 1 byte", "1MiB or more"],
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
