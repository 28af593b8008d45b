//! Flags of `expiry`, and the plans that they give: one for each place.

use std::path::PathBuf;

use clap::Args;
use farcore_command::machine::Machine;
use farcore_command::parse_size;

use super::{SetupArgs, WaitArgs, parse_milliseconds};
use crate::experiments::expiry::settings::{Place, Settings};
use crate::plan::{Plan, PlanError, Scenario};

/// Flags of `expiry`.
#[derive(Clone, Debug, Args)]
pub struct ExpiryArgs {
    /// Keys that expire, all threads together
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub expiring: u64,
    /// Keys that do not, all threads together; those that expire are written evenly among them
    #[arg(long, value_name = "N", default_value_t = 250_000)]
    pub keys: u64,
    /// Bytes of each value
    #[arg(long, value_name = "SIZE", default_value = "128", value_parser = parse_size)]
    pub value_bytes: u64,
    /// Where the records are when they expire
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "LIST",
        default_value = "local,far"
    )]
    pub places: Vec<Place>,
    /// Gets meanwhile, in percent of the most that the engine serves
    #[arg(long, value_name = "PERCENT", default_value_t = 10)]
    pub load: u64,
    /// Time from the start of loading until the first key expires
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_milliseconds)]
    pub lead: u64,
    /// Time in which all of them expire
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_milliseconds)]
    pub within: u64,
    /// When memory is measured, from the last expiry on
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "DURATIONS",
        default_value = "1s,2s,5s,10s",
        value_parser = parse_milliseconds
    )]
    pub after: Vec<u64>,
    /// Cores and memory; --local is for the place far.
    #[command(flatten)]
    pub setup: SetupArgs,
    /// How long to wait for memory nodes.
    #[command(flatten)]
    pub wait: WaitArgs,
    /// Write the figures to a file, as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

impl ExpiryArgs {
    /// One plan for each place, validated.
    ///
    /// # Errors
    /// This machine does not allow a setting.
    pub fn plans(&self, machine: &Machine) -> Result<Vec<Plan>, PlanError> {
        self.check_effects()?;
        let cores = self.setup.cores(machine);
        let keys_per_core = self.keys.div_ceil((cores.len() as u64).max(1));
        let mut plans: Vec<Plan> = Vec::new();
        for &place in &self.places {
            let settings = Settings {
                place,
                expiring: self.expiring,
                value_bytes: usize::try_from(self.value_bytes).unwrap_or(usize::MAX),
                load_percent: self.load,
                lead_ms: self.lead,
                within_ms: self.within,
                after_ms: self.after.clone(),
            };
            let scenario = Scenario::Expiry(Box::new(settings));
            let mut plan = self.setup.plan(cores.clone(), keys_per_core, scenario);
            plan.nodes_wait_ns = self.wait.wait_for_nodes;
            if place == Place::Local {
                plan.local_bytes = plan.all_local_bytes();
            }
            plan.validate(machine)?;
            if !plans.contains(&plan) {
                plans.push(plan);
            }
        }
        Ok(plans)
    }
}
