//! Runs of farcore one after the other, each in a process of its own.

use std::path::Path;

use crate::engines::Farcore;
use crate::outputs::OutputFile;
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
