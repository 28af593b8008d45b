//! Flags of `embed`, and the plans that they give: one for each engine whose callers are measured,
//! and one for each engine that is measured at rest.

use std::path::PathBuf;

use clap::Args;
use farcore::Config;
use farcore::constants::KEY_BYTES_MAX;
use farcore_command::machine::Machine;
use farcore_command::range::RangeError;
use farcore_command::words::size;

use super::parse_nanoseconds;
use crate::experiments::embed::settings::{Caller, Part, Settings, Subject};
use crate::plan::{LOCAL_BYTES_MIN, Plan, PlanError, Scenario};

/// Default numbers of threads.
const THREADS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Default numbers of tasks.
const TASKS: [usize; 5] = [1, 8, 64, 1000, 10_000];
/// Default threads of the runtime.
const WORKERS: usize = 2;
/// Default share of gets.
const READS: f64 = 0.95;
const SECONDS: f64 = 0.1;
const IDLE_SECONDS: f64 = 3.0;
/// Default number of rounds.
const REPEATS: u32 = 5;
const PAIRS: usize = 15;
const CALLERS: [Caller; 5] = [
    Caller::Handle,
    Caller::Client,
    Caller::Batch,
    Caller::Tasks,
    Caller::Window,
];
/// Most keys of the engine beside a program: it is opened again for each pair.
const BESIDE_KEYS_MAX: u64 = 100_000;
/// Far memory, as a multiple of the data, and at least.
const FAR_FACTOR: u64 = 3;
const FAR_BYTES_MIN: u64 = 64 << 20;
/// Local memory of a core at least where all data is local: the buffers of the largest pages.
const CORE_BYTES: u64 = 64 * LOCAL_BYTES_MIN;

/// Flags of `embed`.
#[derive(Clone, Debug, Args)]
pub struct EmbedArgs {
    /// Engines to compare [default: farcore, farcore-dedicated where there are two cores, and all
    /// maps; with --local-percent farcore,farcore-far]; builds with the feature `peers` have more
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub engines: Option<Vec<Subject>>,
    /// What is measured; idle and beside are for farcore
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "LIST",
        default_value = "callers,idle,beside"
    )]
    pub parts: Vec<Part>,
    /// Who calls [default: handle,client,batch,tasks,window]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub callers: Option<Vec<Caller>>,
    /// Numbers of threads of handle, client, batch and window [default: 1,2,4,8,16,32,64]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub threads: Option<Vec<usize>>,
    /// Numbers of tasks [default: 1,8,64,1000,10000]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub tasks: Option<Vec<usize>>,
    /// Threads of the tasks' runtime [default: 2]
    #[arg(long, value_name = "N")]
    pub workers: Option<usize>,
    /// Time that each number of callers is measured in a round, and half of each pair of beside
    /// [default: 0.1]
    #[arg(long, value_name = "SECONDS")]
    pub seconds: Option<f64>,
    /// Time that an idle engine is measured [default: 3]
    #[arg(long, value_name = "SECONDS")]
    pub idle_seconds: Option<f64>,
    /// Pairs of windows of beside, with and without an engine [default: 15]
    #[arg(long, value_name = "N")]
    pub pairs: Option<usize>,
    /// Keys, all loaded before the callers start
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub keys: u64,
    /// Bytes of each value
    #[arg(long, value_name = "N", default_value_t = 128)]
    pub value_bytes: usize,
    /// Share of gets among the operations; the others are puts [default: 0.95]
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true)]
    pub reads: Option<f64>,
    /// Local memory of farcore-far, in percent of the data; lanes of callers come on top
    #[arg(long, value_name = "PERCENT")]
    pub local_percent: Option<u64>,
    /// Latency added to each far access of farcore-far, e.g. 2us [default: none]
    #[arg(long, value_name = "DURATION", value_parser = parse_nanoseconds)]
    pub far_latency: Option<u64>,
    /// Rounds of all engines in turn; medians are reported, with the least and the most [default:
    /// 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeats: Option<u32>,
    /// Seed of the keys, the values and the order of requests
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Do not touch memory at start
    #[arg(long)]
    pub no_prefault: bool,
    /// Write the figures to a file, as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the plot embed.svg into a folder
    #[arg(long, value_name = "DIR")]
    pub plot: Option<PathBuf>,
}

impl EmbedArgs {
    /// The engines of the flag, or the default ones, each once.
    pub(super) fn engines(&self, machine: &Machine) -> Vec<Subject> {
        let is_possible =
            |subject: &Subject| *subject != Subject::FarcoreDedicated || machine.cores.len() > 1;
        let default = || match self.local_percent {
            Some(_) => vec![Subject::Farcore, Subject::FarcoreFar],
            None => Subject::DEFAULT
                .iter()
                .copied()
                .filter(is_possible)
                .collect(),
        };
        let mut engines = Vec::new();
        for subject in self.engines.clone().unwrap_or_else(default) {
            if !engines.contains(&subject) {
                engines.push(subject);
            }
        }
        engines
    }

    /// The rounds of the flag, or the default.
    #[must_use]
    pub fn repeats(&self) -> u32 {
        self.repeats.unwrap_or(REPEATS)
    }

    /// The callers of the flag, or all.
    pub(super) fn callers(&self) -> Vec<Caller> {
        self.callers.clone().unwrap_or_else(|| CALLERS.to_vec())
    }

    /// The plans, validated: callers of each engine, then idle engines, then programs beside them.
    ///
    /// # Errors
    /// A flag has no effect, or this machine does not allow a setting.
    pub fn plans(&self, machine: &Machine) -> Result<Vec<Plan>, PlanError> {
        let engines = self.engines(machine);
        self.check_effects(machine, &engines)?;
        let mut plans: Vec<Plan> = Vec::new();
        for part in [Part::Callers, Part::Idle, Part::Beside] {
            if !self.parts.contains(&part) {
                continue;
            }
            let at_rest = engines
                .iter()
                .filter(|&&subject| part == Part::Callers || subject.can_rest());
            for &subject in at_rest {
                let plan = self.plan(subject, part, machine);
                check_far(&plan)?;
                plan.validate(machine)?;
                plans.push(plan);
            }
        }
        Ok(plans)
    }

    fn plan(&self, subject: Subject, part: Part, machine: &Machine) -> Plan {
        let (cores, caller_cores) = match subject {
            Subject::FarcoreDedicated => match machine.cores.split_first() {
                Some((&first, others)) => (vec![first], others.to_vec()),
                None => (Vec::new(), Vec::new()),
            },
            // As an embedder gets them who sets none.
            subject if subject.is_ours() => (Config::default().cores, Vec::new()),
            _ => (machine.cores.clone(), Vec::new()),
        };
        let is_far = subject == Subject::FarcoreFar;
        let keys = match part {
            Part::Beside => self.keys.min(BESIDE_KEYS_MAX),
            Part::Callers | Part::Idle => self.keys,
        };
        let settings = Settings {
            subject,
            part,
            callers: self.callers(),
            threads: self.threads.clone().unwrap_or_else(|| THREADS.to_vec()),
            tasks: self.tasks.clone().unwrap_or_else(|| TASKS.to_vec()),
            workers: self.workers.unwrap_or(WORKERS),
            keys,
            value_bytes: self.value_bytes,
            reads: self.reads.unwrap_or(READS),
            seconds: self.seconds.unwrap_or(SECONDS),
            idle_seconds: self.idle_seconds.unwrap_or(IDLE_SECONDS),
            pairs: self.pairs.unwrap_or(PAIRS),
            local_percent: self.local_percent.filter(|_| is_far),
            caller_cores,
            machine_cores: machine.cores.clone(),
        };
        let mut plan = Plan {
            engine: subject.engine(),
            keys_per_core: keys.div_ceil((cores.len() as u64).max(1)),
            cores,
            local_bytes: 0,
            far_bytes: FAR_BYTES_MIN,
            far_latency_ns: self.far_latency.filter(|_| is_far).unwrap_or(0),
            window: crate::experiments::embed::settings::WINDOW,
            prefault: !self.no_prefault,
            seed: self.seed,
            ..Plan::new(Scenario::Embed(Box::new(settings)))
        };
        let data = plan.data_bytes();
        let records = match self.local_percent {
            Some(percent) if is_far => {
                plan.far_bytes = data.saturating_mul(FAR_FACTOR).max(FAR_BYTES_MIN);
                data.saturating_mul(percent) / 100
            }
            _ => {
                let least = CORE_BYTES.saturating_mul(plan.threads());
                plan.all_local_bytes().max(least)
            }
        };
        plan.local_bytes = with_lanes(&plan, records);
        plan
    }
}

/// Checks that --local-percent leaves some memory. The engine refuses what is too little for it.
fn check_far(plan: &Plan) -> Result<(), RangeError> {
    let Scenario::Embed(settings) = &plan.scenario else {
        return Ok(());
    };
    match settings.local_percent {
        Some(percent) if plan.local_bytes < plan.threads() * LOCAL_BYTES_MIN => {
            let limit = format!(
                "local memory would be {}; raise it, or --keys",
                size(plan.local_bytes)
            );
            Err(RangeError::new("--local-percent", percent, limit))
        }
        _ => Ok(()),
    }
}

/// So much local memory and that of the lanes between all handles and cores: each has a way there
/// and a way back, with room for the longest value and its keys beside it. Such a value is half a
/// page, and pages grow with local memory.
fn with_lanes(plan: &Plan, bytes: u64) -> u64 {
    let ways = (plan.handles() as u64).saturating_mul(plan.threads() * 2);
    let mut local_bytes = bytes;
    // Pages have at most a few sizes, so this ends.
    loop {
        let config = Config {
            cores: plan.cores.clone(),
            local_bytes,
            ..Config::default()
        };
        let value = u64::from(config.page_bytes_used() / 2);
        let way = (config.handle_lane_bytes + 2 * KEY_BYTES_MAX) as u64 + value;
        let sum = bytes.saturating_add(ways.saturating_mul(way));
        // Tables take their shares of it.
        let sum = sum.saturating_add(sum / 32);
        if sum == local_bytes {
            return sum;
        }
        local_bytes = sum;
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn machine(cores: usize) -> Machine {
        Machine {
            cores: (0..cores).collect(),
            memory_available_bytes: 64 << 30,
            ..Machine::default()
        }
    }

    fn plans(cores: usize, flags: &str) -> Result<Vec<Plan>, PlanError> {
        let line = format!("farcore-bench embed {flags}");
        match Cli::try_parse_from(line.split_whitespace())
            .unwrap()
            .command
        {
            Command::Embed(args) => {
                // The engine's default cores are those of this machine.
                let machine = machine(cores.max(Config::default().cores.len()));
                args.plans(&machine)
            }
            other => panic!("{other:?}"),
        }
    }

    fn settings(plan: &Plan) -> &Settings {
        match &plan.scenario {
            Scenario::Embed(settings) => settings,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn by_default_every_engine_runs_and_farcore_rests_too() {
        let plans = plans(2, "").unwrap();
        let named: Vec<(Part, &str)> = plans
            .iter()
            .map(|plan| (settings(plan).part, settings(plan).subject.name()))
            .collect();
        assert_eq!(
            named[..3],
            [
                (Part::Callers, "farcore"),
                (Part::Callers, "farcore-dedicated"),
                (Part::Callers, "dashmap")
            ]
        );
        assert_eq!(
            named[named.len() - 4..],
            [
                (Part::Idle, "farcore"),
                (Part::Idle, "farcore-dedicated"),
                (Part::Beside, "farcore"),
                (Part::Beside, "farcore-dedicated")
            ]
        );
        let dedicated = &plans[1];
        assert_eq!(dedicated.cores, [0]);
        assert_eq!(settings(dedicated).caller_cores[0], 1);
        assert_eq!(plans[0].cores, Config::default().cores);
        assert!(settings(&plans[0]).caller_cores.is_empty());
        assert!(plans.iter().all(|plan| plan.keys_max() <= 1_000_000));
    }

    #[test]
    fn every_number_of_keys_and_threads_fits() {
        for flags in [
            "--keys 1",
            "--keys 1000 --threads 1",
            "--keys 100000",
            "--threads 128",
        ] {
            for plan in plans(2, flags).unwrap() {
                let checked = crate::engines::Farcore::check(&plan);
                assert!(checked.is_ok(), "{flags}: {checked:?}");
            }
        }
    }

    #[test]
    fn little_local_memory_is_for_farcore_far_alone() {
        let flags = "--local-percent 20 --far-latency 2us --threads 4 --parts callers";
        let plans = plans(2, flags).unwrap();
        let far = &plans[1];
        let names: Vec<&str> = plans
            .iter()
            .map(|plan| settings(plan).subject.name())
            .collect();
        assert_eq!(names, ["farcore", "farcore-far"]);
        assert_eq!((plans[0].far_latency_ns, far.far_latency_ns), (0, 2000));
        let fifth = far.data_bytes() / 5;
        assert!((fifth..2 * fifth).contains(&far.local_bytes), "{far:?}");
        assert!(crate::engines::Farcore::check(far).is_ok());
        assert!(plans[0].local_bytes > plans[0].data_bytes());
    }

    #[test]
    fn bad_flags_are_named_with_limit_and_value() {
        for (flags, message) in [
            ("--threads 0", "--threads is 0: it must be 1 to 128"),
            ("--tasks 0", "--tasks is 0: it must be 1 to"),
            ("--workers 0", "--workers is 0"),
            ("--seconds 0", "--seconds is 0: it must be more than 0"),
            ("--seconds NaN", "--seconds is NaN"),
            ("--reads 1.5", "--reads is 1.5: it must be 0"),
            (
                "--value-bytes 100",
                "--value-bytes is 100: it must be a multiple",
            ),
            ("--keys 0", "--keys is 0: it must be at least 1"),
            (
                "--local-percent 100",
                "--local-percent is 100: it must be 1 to 99",
            ),
            ("--far-latency 2us", "--far-latency has no effect"),
            ("--engines farcore-far", "--engines is farcore-far"),
            (
                "--local-percent 20 --engines farcore",
                "--local-percent has no effect",
            ),
            ("--callers client --tasks 4", "--tasks has no effect"),
            ("--callers client --workers 4", "--workers has no effect"),
            ("--callers tasks --threads 4", "--threads has no effect"),
            ("--parts idle --callers tasks", "--callers has no effect"),
            ("--parts callers --pairs 3", "--pairs has no effect"),
            ("--parts idle --reads 0.5", "--reads has no effect"),
            ("--parts beside --repeats 2", "--repeats has no effect"),
            ("--parts idle --plot d", "--plot has no effect"),
            ("--parts idle --seconds 1", "--seconds has no effect"),
            (
                "--parts callers --idle-seconds 3",
                "--idle-seconds has no effect",
            ),
            ("--parts idle --engines dashmap", "--parts is idle"),
            (
                "--parts idle --local-percent 20",
                "--local-percent has no effect without the part callers",
            ),
        ] {
            let error = plans(2, flags).expect_err(flags).to_string();
            assert!(error.contains(message), "{flags}: {error}");
        }
    }
}
