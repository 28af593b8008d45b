//! Flags of `operations`, and the plans that they give: one for each part.

use std::path::PathBuf;

use clap::Args;
use farcore_command::machine::Machine;
use farcore_command::parse_size;

use super::SetupArgs;
use crate::experiments::operations::settings::{LONG_BYTES_MAX, Part, Settings};
use crate::plan::{Plan, PlanError, Scenario};

/// Bytes of each record that an export reads: long enough that the link decides, not the records.
const EXPORT_VALUE_BYTES: usize = 1024;
/// An export has this multiple of its local memory.
const EXPORT_FACTOR: u64 = 8;
/// Local memory for long values: a multiple of a round's bytes, since each round replaces them.
const LONG_ROUNDS: u64 = 24;
/// Local memory of each core for long values at least.
const LONG_CORE_BYTES: u64 = 32 << 20;

/// Local memory for each element of a collection, with what compaction has not freed yet.
const ELEMENT_BYTES: u64 = 256;
/// Local memory for collections at least.
const COLLECTIONS_BYTES: u64 = 256 << 20;

/// Flags of `operations`.
#[derive(Clone, Debug, Args)]
pub struct OperationsArgs {
    /// What is measured
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "LIST",
        default_value = "requests,scan,export,long,collections,sections"
    )]
    pub parts: Vec<Part>,
    /// Keys of each kind of request, all threads together [default: 1000000]
    #[arg(long, value_name = "N")]
    pub keys: Option<u64>,
    /// Bytes of each value of requests and of the scan [default: 64]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub value_bytes: Option<u64>,
    /// Keys of the scan, all threads together [default: 4000000]
    #[arg(long, value_name = "N")]
    pub scan_keys: Option<u64>,
    /// Keys of the export, with values of 1 KiB; an eighth of them is local [default: 1000000]
    #[arg(long, value_name = "N")]
    pub export_keys: Option<u64>,
    /// Bytes a second of the export's link; one core exports, as each core has a link of its own
    /// [default: 1250MB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub link: Option<u64>,
    /// Bytes of each long value [default: 64MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub long_value: Option<u64>,
    /// Elements of the longest collection [default: 1000000]
    #[arg(long, value_name = "N")]
    pub collection_elements: Option<u64>,
    /// Cores and memory; --far-latency is for the export, 10us by default, and for collections.
    #[command(flatten)]
    pub setup: SetupArgs,
    /// Write the figures to a file, as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Default keys of requests and of the export, and of the scan.
const KEYS: u64 = 1_000_000;
const SCAN_KEYS: u64 = 4_000_000;
/// Default keys that are read beside sections.
const SECTION_KEYS: u64 = 200_000;
const VALUE_BYTES: u64 = 64;
/// Default bytes a second of the export's link.
const LINK_BYTES_PER_SECOND: u64 = 1_250_000_000;
/// Default latency of the export's link, in nanoseconds.
const LINK_LATENCY_NS: u64 = 10_000;

impl OperationsArgs {
    /// One plan for each part, validated.
    ///
    /// # Errors
    /// This machine does not allow a setting.
    pub fn plans(&self, machine: &Machine) -> Result<Vec<Plan>, PlanError> {
        self.check_effects()?;
        let mut plans: Vec<Plan> = Vec::new();
        for &part in &self.parts {
            let plan = self.plan(part, machine);
            plan.validate(machine)?;
            if !plans.contains(&plan) {
                plans.push(plan);
            }
        }
        Ok(plans)
    }

    fn plan(&self, part: Part, machine: &Machine) -> Plan {
        let mut cores = self.setup.cores(machine);
        if matches!(part, Part::Export | Part::Collections) {
            cores.truncate(1);
        }
        let threads = (cores.len() as u64).max(1);
        let value_bytes = self.value_bytes.unwrap_or(VALUE_BYTES);
        let value_bytes = usize::try_from(value_bytes).unwrap_or(usize::MAX);
        let long_bytes = self.long_value.unwrap_or(LONG_BYTES_MAX);
        let (keys, value_bytes) = match part {
            Part::Requests => (self.keys.unwrap_or(KEYS), value_bytes),
            Part::Scan => (self.scan_keys.unwrap_or(SCAN_KEYS), value_bytes),
            Part::Export => (self.export_keys.unwrap_or(KEYS), EXPORT_VALUE_BYTES),
            Part::Long => (threads, value_bytes),
            Part::Collections => (self.collection_elements.unwrap_or(KEYS), value_bytes),
            Part::Sections => (self.keys.unwrap_or(SECTION_KEYS), value_bytes),
        };
        let settings = Settings {
            part,
            value_bytes,
            link_bytes_per_second: self.link.unwrap_or(LINK_BYTES_PER_SECOND),
            long_bytes,
        };
        let scenario = Scenario::Operations(Box::new(settings));
        let mut plan = self.setup.plan(cores, keys.div_ceil(threads), scenario);
        let local_bytes = match part {
            Part::Requests | Part::Scan | Part::Sections => plan.all_local_bytes(),
            Part::Export => {
                plan.far_latency_ns = self.setup.far_latency.unwrap_or(LINK_LATENCY_NS);
                plan.local_bytes.min(plan.data_bytes() / EXPORT_FACTOR)
            }
            Part::Collections => keys.saturating_mul(ELEMENT_BYTES).max(COLLECTIONS_BYTES),
            Part::Long => {
                let round = long_bytes.saturating_mul(2);
                let core = LONG_CORE_BYTES.saturating_mul(threads);
                round.saturating_mul(LONG_ROUNDS).max(core)
            }
        };
        let least = LONG_CORE_BYTES.saturating_mul(threads) / 2;
        plan.local_bytes = self.setup.local.unwrap_or(local_bytes.max(least));
        plan.far_latency_ns = match part {
            Part::Export => plan.far_latency_ns,
            Part::Collections => self.setup.far_latency.unwrap_or(0),
            _ => 0,
        };
        plan
    }
}
