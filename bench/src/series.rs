//! Runs of farcore one after the other, each in a process of its own, and how their figures are
//! published.
//!
//! I1: neither a file that cannot be written nor a closed standard output hides what the other one
//!     would show; the file is written first.

use std::path::Path;

use serde::Serialize;

use crate::engines::Farcore;
use crate::origin::Origin;
use crate::outputs::{OutputFile, print};
use crate::plan::Plan;
use crate::stop;

/// Checks what can be checked before anything runs: the engine's settings and the file of `--json`,
/// which it returns.
///
/// # Errors
/// Farcore cannot run a plan, or the file could not be written.
pub(crate) fn check(plans: &[Plan], json: Option<&Path>) -> anyhow::Result<Option<OutputFile>> {
    for plan in plans {
        Farcore::check(plan)?;
    }
    OutputFile::open_if("--json", json)
}

/// Runs the plans until one fails or a signal comes: the runs so far, and the failure.
pub(crate) fn measure<R>(
    plans: &[Plan],
    mut run: impl FnMut(&Plan) -> anyhow::Result<Option<R>>,
) -> (Vec<R>, Option<anyhow::Error>) {
    let mut runs = Vec::new();
    for plan in plans {
        if stop::is_requested() {
            break;
        }
        match run(plan) {
            Ok(Some(run)) => runs.push(run),
            Ok(None) => break,
            Err(error) => return (runs, Some(error)),
        }
    }
    (runs, None)
}

/// Writes the file and prints the table, and adds what could not be done to `failures`. Without a
/// table nothing was measured: an older file stays as it is.
pub(crate) fn publish(
    table: Option<String>,
    file: Option<OutputFile>,
    report: &impl Serialize,
    origin: &Origin,
    failures: &mut Vec<anyhow::Error>,
) {
    let Some(table) = table else {
        if failures.is_empty() {
            let nothing = "partial: a signal ended the command before anything was measured";
            failures.extend(print(nothing).err());
        }
        return;
    };
    failures.extend(file.and_then(|file| file.write_json(report).err()));
    let printed = print(table).and_then(|()| origin.note().map_or(Ok(()), print));
    failures.extend(printed.err());
}
