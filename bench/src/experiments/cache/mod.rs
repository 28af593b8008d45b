//! Measures the miss ratio of Farcore as a cache, over made traces, and how fast puts are while
//! records are evicted.
//!
//! - [`settings`]: the trace, or the puts, and their sizes; [`lead`]: one run in its own process
//! - [`report`]: the figures and their table
//!
//! One client requests the keys of a trace in order; a miss is followed by a put, as an application
//! would fill its cache. Every value is verified. `bench/miss_ratios.py` gives the miss ratios of
//! other policies at the same number of records.
//!
//! I1: a trace that `--write` names appears whole or not at all.

pub mod lead;
pub mod report;
pub mod settings;

use std::fs::Permissions;
use std::io::BufWriter;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, anyhow, bail};
use farcore::{Error, Size};
use farcore_command::machine::Machine;
use farcore_command::outputs::{OutputFile, check_folder};
use farcore_command::{stop, words};

use self::report::render;
use self::settings::{Part, Settings};
use crate::child::Experiment;
use crate::cli::CacheArgs;
use crate::ending::Ending;
use crate::plan::{Plan, Scenario};
use crate::series::{self, Series};
use crate::trace::made::Made;

/// The experiment of this command.
#[derive(Debug)]
pub struct Cache;

impl Experiment for Cache {
    type Run = report::Run;

    fn run(plan: Plan) -> anyhow::Result<Self::Run> {
        lead::run(&plan)
    }
}

impl Series for Cache {
    fn render(runs: &[Self::Run]) -> String {
        render(runs)
    }
}

/// Checks what can be checked before anything runs: the engine's settings, the folder of `--write`
/// and the file of `--json`, which it returns.
///
/// # Errors
/// Farcore cannot run a plan, or a file could not be written.
pub fn check(plans: &[Plan], args: &CacheArgs) -> anyhow::Result<Option<OutputFile>> {
    for plan in plans {
        let bytes = settings_of(plan).map_or(0, |settings| settings.value_bytes);
        let limit = lead::config(plan, plan.far_bytes)?.value_bytes_max();
        let limit = limit.map_err(|error| match error {
            // The number of keys, of which the engine speaks, is no flag of this command.
            Error::LocalMemory {
                local_bytes, least, ..
            } => anyhow!(
                "--local {} is too small: {:#} is needed for as many values of {bytes} bytes as fit; \
                 raise it or --value-bytes, or lower --far",
                Size(local_bytes),
                Size(least)
            ),
            other => anyhow!(words::refusal(&other)),
        })?;
        if bytes > limit as u64 {
            bail!(
                "--value-bytes is {bytes}: farcore takes {limit} with these settings; lower it, or raise --local"
            );
        }
    }
    if let Some(folder) = &args.write {
        check_folder("--write", folder)?;
    }
    OutputFile::open_if("--json", args.json.as_deref())
}

/// The settings of a plan of this command.
fn settings_of(plan: &Plan) -> Option<&Settings> {
    match &plan.scenario {
        Scenario::Cache(settings) => Some(settings),
        _ => None,
    }
}

/// Writes the traces of `--write`, runs the plans, writes the file, prints the table. A signal or a
/// run that fails ends it early, with the figures so far.
///
/// # Errors
/// Standard output cannot be written.
pub fn command(
    machine: Machine,
    plans: Vec<Plan>,
    folder: Option<&Path>,
    file: Option<OutputFile>,
) -> anyhow::Result<Ending> {
    series::command::<Cache>(machine, plans, file, |plans| {
        let Some(folder) = folder else {
            return Vec::new();
        };
        let written = plans.iter().map(|plan| write_trace(plan, folder));
        written.filter_map(Result::err).collect()
    })
}

/// Writes the trace of a plan into a folder. A signal leaves no trace.
fn write_trace(plan: &Plan, folder: &Path) -> anyhow::Result<()> {
    let Some(settings) = settings_of(plan) else {
        return Ok(());
    };
    let Part::Trace(shape) = settings.part else {
        return Ok(());
    };
    let made = Made {
        shape,
        keys: settings.keys,
        requests: settings.requests,
        seed: plan.seed,
    };
    let path = folder.join(format!("{}.oracleGeneral", shape.name()));
    let value_bytes = u32::try_from(settings.value_bytes)?;
    let written = || -> anyhow::Result<()> {
        // The mode of a new file; the system takes away what the user wants taken away.
        let mut file = tempfile::Builder::new()
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(folder)?;
        let goes_on = || !stop::is_requested();
        if made.write(value_bytes, BufWriter::new(file.as_file_mut()), goes_on)? {
            file.persist(&path)?;
        }
        Ok(())
    };
    written().with_context(|| format!("--write {} cannot be written", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::made::Shape;

    #[test]
    fn a_trace_that_cannot_be_written_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let plan = crate::plan::tests::plan_of(Scenario::Cache(Box::new(Settings {
            part: Part::Trace(Shape::Scan),
            keys: 10,
            requests: 100,
            value_bytes: 8,
        })));
        write_trace(&plan, folder.path()).unwrap();
        let file = folder.path().join("scan.oracleGeneral");
        assert_eq!(std::fs::metadata(&file).unwrap().len(), 100 * 24);
        std::fs::remove_file(&file).unwrap();
        // A folder cannot be replaced by a file.
        std::fs::create_dir(&file).unwrap();
        let error = write_trace(&plan, folder.path()).unwrap_err().to_string();
        assert!(
            error.starts_with("--write ") && error.ends_with(" cannot be written"),
            "{error}"
        );
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
