//! The experiments: what the commands of the benchmark measure beside the contest and its like.
//!
//! - [`fairness`]: how long one client waits beside others
//! - [`expiry`]: many keys expire at once
//! - [`operations`]: kinds of operations beside each other
//! - [`cache`]: miss ratios over made traces
//! - [`embed`]: callers of a program that embeds the engine, beside those of maps
//!
//! Each is an [`Experiment`]. The command hands its plans to child processes, and each child runs
//! one here: this is the only place that lists them all.

pub mod cache;
pub mod embed;
pub mod expiry;
pub mod fairness;
pub mod operations;

use crate::child::{self, answer};
use crate::plan::Scenario;
use crate::run::Comparison;

#[cfg(doc)]
use crate::child::Experiment;

/// Runs the plan that the parent of this process has sent, and answers it.
///
/// # Errors
/// The plan cannot be parsed, the parent has ended, or the outcome cannot be written.
pub fn serve() -> anyhow::Result<()> {
    let plan = child::receive()?;
    match plan.scenario {
        Scenario::Contest { .. } | Scenario::Ycsb { .. } | Scenario::Trace(_) => {
            answer::<Comparison>(plan)
        }
        Scenario::Fairness(_) => answer::<fairness::Fairness>(plan),
        Scenario::Expiry(_) => answer::<expiry::Expiry>(plan),
        Scenario::Operations(_) => answer::<operations::Operations>(plan),
        Scenario::Cache(_) => answer::<cache::Cache>(plan),
        Scenario::Embed(_) => answer::<embed::Embed>(plan),
    }
}
