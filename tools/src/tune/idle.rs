//! Flags that have no effect beside others are errors: a user who types one expects something of
//! it.

use anyhow::Result;
use farcore_bench::cli::{ContestSize, SetupArgs, TraceSize, YcsbSize};
use farcore_bench::plan::EngineName;

use super::Arguments;
use super::predict::Options;
use super::tuner::{Target, TunerArgs};
use crate::given::{Given, ids};

/// Flags of the size that also hold for YCSB.
const SKEW: [&str; 2] = ["zipf", "one_shard"];

/// Refuses flags that have no effect.
///
/// # Errors
/// One was typed.
pub(super) fn check(arguments: &Arguments, given: &Given) -> Result<()> {
    if arguments.predict.is_some() {
        given.refuse(&ids::<TunerArgs>(), "with --predict")?;
        if arguments.prediction.from.is_some() {
            let why = "with --from, which makes no runs";
            given.refuse(&["repeats"], why)?;
            given.refuse(&ids::<ContestSize>(), why)?;
            given.refuse(&ids::<SetupArgs>(), why)?;
        }
    } else {
        given.refuse(&ids::<Options>(), "without --predict")?;
        check_workload(&arguments.tuner.workload, given)?;
    }
    // The runs are of the benchmark, so its rules hold for the flags of far memory.
    arguments.runs.setup.check_effects(&[EngineName::Farcore])?;
    Ok(())
}

fn check_workload(workload: &Target, given: &Given) -> Result<()> {
    let is_contest = *workload == Target::Contest;
    let is_trace = matches!(workload, Target::Trace(_));
    let is_ycsb = matches!(workload, Target::Ycsb(_));
    if !is_trace {
        given.refuse(&ids::<TraceSize>(), "without --workload trace:FILE")?;
    }
    if !is_ycsb {
        given.refuse(&ids::<YcsbSize>(), "without --workload ycsb-a to ycsb-f")?;
    }
    if is_trace {
        given.refuse(&SKEW, "with --workload trace:FILE")?;
    }
    if !is_contest {
        let mut size = ids::<ContestSize>();
        size.retain(|id| !SKEW.contains(&id.as_str()));
        given.refuse(&size, "without --workload contest")?;
    }
    Ok(())
}
