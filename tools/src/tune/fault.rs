//! Errors of the engine in terms of the flags: the engine names fields of its configuration, which
//! a user of the command has never typed.

use anyhow::{Error, anyhow};

use crate::text::line;

/// Fields and the flags that set them; longer texts first.
const FLAGS: [(&str, &str); 10] = [
    // What follows has no flags.
    (
        "`keys_expected`, `far_bytes`, `page_bytes`, `handles_max`, `handle_lane_bytes` or `lane_bytes`",
        "--keys-per-core or --far",
    ),
    ("`nodes_min`, `nodes_wait_ns`", "--nodes-min"),
    // The runs name a flag of the benchmark.
    ("--nodes-min, --wait-for-nodes", "--nodes-min"),
    ("`nodes_min`", "--nodes-min"),
    ("`local_bytes`", "--local"),
    ("`far_bytes`", "--far"),
    ("`keys_expected`", "--keys-per-core"),
    ("`cores`", "--cores"),
    ("`nodes`", "--fabric"),
    ("`token`", "--token-file"),
];

/// The error with flags in place of fields.
pub(super) fn in_flags(error: &Error) -> Error {
    let text = line(error);
    anyhow!(
        FLAGS
            .iter()
            .fold(text, |text, (field, flag)| text.replace(field, flag))
    )
}
