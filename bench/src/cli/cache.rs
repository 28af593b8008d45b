//! Flags of `cache`, and the plans that they give: one for each trace, or one for each round of
//! puts.

use std::path::PathBuf;

use clap::Args;
use farcore_command::machine::Machine;
use farcore_command::parse_size;

use crate::experiments::cache::lead::puts_before;
use crate::experiments::cache::settings::{Part, RECORD_EXTRA_BYTES, Settings, WINDOW};
use crate::plan::{Plan, PlanError, Scenario};
use crate::trace::made::Shape;

/// Default of the keys of the Zipf part.
const KEYS: u64 = 1_000_000;
/// Memory of a put record beside its value, with room for the pages of compaction.
const FITTING_EXTRA_BYTES: u64 = 64;

/// Flags of `cache`.
#[derive(Clone, Debug, Args)]
pub struct CacheArgs {
    /// The traces [default: zipf-0.8,zipf-1.0,scan]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub traces: Option<Vec<Shape>>,
    /// Keys of the Zipf part [default: 1000000]
    #[arg(long, value_name = "N")]
    pub keys: Option<u64>,
    /// Requests of each trace, or puts that are timed
    #[arg(long, value_name = "N", default_value_t = 10_000_000)]
    pub requests: u64,
    /// Bytes of each value
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub value_bytes: u64,
    /// Local memory
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "12MiB")]
    pub local: u64,
    /// Far memory
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "16MiB")]
    pub far: u64,
    /// The seed of the traces
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Also write each trace into this folder, as NAME.oracleGeneral
    #[arg(long, value_name = "DIR")]
    pub write: Option<PathBuf>,
    /// Instead of traces, put keys that were never put, with far memory that holds all of them and
    /// with this far memory, in turn, N times each; report both rates and their ratio
    #[arg(long, value_name = "N", conflicts_with_all = ["traces", "keys", "write"], value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub put_rounds: Option<u32>,
    /// Write the figures to a file, as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

impl CacheArgs {
    /// One plan for each trace, or for each round, validated.
    ///
    /// # Errors
    /// This machine does not allow a setting.
    pub fn plans(&self, machine: &Machine) -> Result<Vec<Plan>, PlanError> {
        let parts: Vec<Part> = match self.put_rounds {
            Some(rounds) => {
                let fitting_bytes = self.fitting_bytes();
                let part = |round| Part::Puts {
                    round,
                    fitting_bytes,
                };
                (0..rounds).map(part).collect()
            }
            None => {
                let shapes = self.traces.as_deref().unwrap_or(&Shape::ALL);
                shapes.iter().copied().map(Part::Trace).collect()
            }
        };
        let mut plans: Vec<Plan> = Vec::new();
        for part in parts {
            let plan = self.plan(part, machine);
            plan.validate(machine)?;
            if !plans.contains(&plan) {
                plans.push(plan);
            }
        }
        Ok(plans)
    }

    /// Far memory that holds all records of a round.
    fn fitting_bytes(&self) -> u64 {
        let puts = puts_before(self.local, self.far, self.value_bytes);
        let record = self.value_bytes.saturating_add(FITTING_EXTRA_BYTES);
        (puts.saturating_add(self.requests).saturating_mul(record) / 2).saturating_mul(3)
    }

    fn plan(&self, part: Part, machine: &Machine) -> Plan {
        let record_bytes = self.value_bytes.saturating_add(RECORD_EXTRA_BYTES);
        let settings = Settings {
            part,
            keys: self.keys.unwrap_or(KEYS),
            requests: self.requests,
            value_bytes: self.value_bytes,
        };
        Plan {
            cores: machine.cores.first().copied().into_iter().collect(),
            // As many as memory holds.
            keys_per_core: (self.local.saturating_add(self.far) / record_bytes).max(1),
            local_bytes: self.local,
            far_bytes: self.far,
            window: WINDOW,
            seed: self.seed,
            ..Plan::new(Scenario::Cache(Box::new(settings)))
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn plans(flags: &str) -> Result<Vec<Plan>, String> {
        let line = format!("farcore-bench cache {flags}");
        let cli =
            Cli::try_parse_from(line.split_whitespace()).map_err(|error| error.to_string())?;
        let machine = Machine {
            cores: vec![3, 4],
            memory_available_bytes: 8 << 30,
            ..Machine::default()
        };
        match cli.command {
            Command::Cache(args) => args.plans(&machine).map_err(|error| error.to_string()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn there_is_a_plan_for_each_trace_or_round() {
        let traces = plans("").unwrap();
        assert_eq!((traces.len(), &traces[0].cores), (3, &vec![3]));
        assert_eq!(plans("--traces scan,scan").unwrap().len(), 1);
        assert_eq!(plans("--put-rounds 4 --requests 1000").unwrap().len(), 4);
    }

    #[test]
    fn bad_flags_are_named_with_limit_and_value() {
        for (flags, message) in [
            ("--keys 0", "--keys is 0: it must be 1 to"),
            (
                "--requests 0",
                "--requests is 0: it must be 1 to 4294967295",
            ),
            ("--value-bytes 7", "--value-bytes is 7: it must be 8 to"),
            ("--local 1KiB", "--local is 1 KiB: 1 core needs at least"),
            ("--far 0", "--far is 0: far memory must have a size"),
            ("--put-rounds 0", "--put-rounds"),
            (
                "--put-rounds 2 --keys 5",
                "cannot be used with '--keys <N>'",
            ),
            ("--put-rounds 2 --traces scan", "cannot be used with"),
            (
                "--put-rounds 2 --requests 4000000000",
                "farcore needs about ",
            ),
            (
                "--value-bytes 1024 --local 1TiB",
                "farcore needs about 1.0 TiB",
            ),
        ] {
            let error = plans(flags).expect_err(flags);
            assert!(error.contains(message), "{flags}: {error}");
        }
    }
}
