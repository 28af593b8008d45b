//! Errors of the engine in terms of the flags: the engine names fields of its configuration, which
//! a user of the command has never typed.

use anyhow::{Error, anyhow};
use farcore_bench::plan::Plan;

use crate::text::{grouped, line, shown};

/// Fields and the flags that set them; longer texts first.
const FLAGS: [(&str, &str); 9] = [
    // What follows has no flags.
    (
        "`keys_expected`, `far_bytes`, `page_bytes`, `handles_max`, `handle_lane_bytes` or `lane_bytes`",
        "--keys-per-core or --far",
    ),
    ("`nodes_min`, `nodes_wait_ns`", "--nodes-min"),
    ("`nodes_min`", "--nodes-min"),
    ("`local_bytes`", "--local"),
    ("`far_bytes`", "--far"),
    ("`keys_expected`", "--keys-per-core"),
    ("`cores`", "--cores"),
    ("`nodes`", "--fabric"),
    ("`token`", "--token-file"),
];

/// The number after "at least " in the limit of a field.
fn least(limit: &str) -> Option<u64> {
    let (number, _) = limit.strip_prefix("at least ")?.split_once(' ')?;
    number.parse().ok()
}

/// Local memory that is too small for a plan, as one sentence.
fn too_little_local(plan: &Plan, error: &Error) -> Option<String> {
    let farcore::Error::Config {
        field: "local_bytes",
        limit,
        ..
    } = error.downcast_ref()?
    else {
        return None;
    };
    let needed = least(limit)?;
    Some(format!(
        "--local {} is too small: {} is needed for {} keys and --far {}; raise it, or lower --keys-per-core or --far",
        shown(plan.local_bytes),
        shown(needed),
        grouped(plan.keys()),
        shown(plan.far_bytes)
    ))
}

/// The error with flags in place of fields.
pub(super) fn in_flags(plan: &Plan, error: &Error) -> Error {
    if let Some(sentence) = too_little_local(plan, error) {
        return anyhow!(sentence);
    }
    let text = line(error);
    anyhow!(
        FLAGS
            .iter()
            .fold(text, |text, (field, flag)| text.replace(field, flag))
    )
}
