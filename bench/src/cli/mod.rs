//! The command line: flags, their defaults for this machine, and the plans that they give.
//!
//! - This file: `ycsb`, and the flags that all commands share
//! - `contest.rs`, `trace.rs`, `fairness.rs`, `cache.rs`, `expiry.rs`, `operations.rs`,
//!   `embed.rs`: the flags of these commands
//! - `size.rs`: the sizes of `contest` and `ycsb`
//! - `manual.rs`: completions of shells and manual pages
//! - `effect.rs`: flags without an effect
//!
//! Parsing reads no file but a profile and a trace. Each `plans` returns plans that have passed
//! [`Plan::validate`].

mod cache;
mod contest;
mod effect;
mod embed;
mod expiry;
mod fairness;
mod manual;
mod operations;
mod size;
mod trace;

use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};
use farcore_command::machine::Machine;
use farcore_command::range::RangeError;
use farcore_command::watch::{Watch, WatchArgs};
use farcore_command::{CoreList, parse_size};
use farcore_tuning::{LogFormat, Profile};

pub use self::cache::CacheArgs;
pub use self::contest::ContestArgs;
pub use self::embed::EmbedArgs;
pub use self::expiry::ExpiryArgs;
pub use self::fairness::FairnessArgs;
pub use self::manual::{CompletionsArgs, ManArgs};
pub use self::operations::OperationsArgs;
pub use self::size::{ContestSize, YcsbSize};
pub use self::trace::{TraceArgs, TraceSize};
use crate::ending::STATUSES;
use crate::plan::{
    Encryption, EngineName, LOCAL_BYTES_MIN, Plan, PlanError, Scenario, WINDOW_MAX, Workload,
};
use crate::skew::Skew;

/// With this the name of a default statistics socket begins.
const SOCKET_NAME: &str = "bench";
/// Most cores used by default.
const CORES_MAX: usize = 4;
/// Default of requests in flight on each core.
const WINDOW: usize = 64;
/// Default over sockets, where a far request takes a fraction of a millisecond.
const WINDOW_SOCKETS: usize = 256;

/// The core-pinned benchmark of Farcore.
#[derive(Debug, Parser)]
#[command(name = "farcore-bench", version, about, after_help = STATUSES)]
pub struct Cli {
    /// Format of the log on stderr: text or json
    #[arg(long, global = true, value_name = "FORMAT", env = LogFormat::VARIABLE, default_value_t)]
    pub log_format: LogFormat,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the contest: write, verify, rewrite, update, delete, reinsert and a hot mix, every
    /// value verified.
    #[command(after_help = STATUSES)]
    Contest(ContestArgs),
    /// Run a YCSB core workload.
    #[command(after_help = STATUSES)]
    Ycsb(YcsbArgs),
    /// Replay a cache trace, every value verified.
    ///
    /// get and gets are gets; a miss is followed by a put of the stated size unless that is 0 (see
    /// --on-miss). set, add, replace and cas are puts. append and prepend are a get and a put of
    /// the combined length. incr and decr are a get and a put of the same length. delete is a
    /// delete. touch and gat are gets, unless --apply-ttl is given. Each record of oracleGeneral is
    /// a get. Keys are used as written. Times are not applied, and the time to live only with
    /// --apply-ttl.
    #[command(after_help = STATUSES)]
    Trace(TraceArgs),
    /// Measure how long one client waits beside clients that flood the engine and clients that
    /// leave their answers unread.
    ///
    /// Each client has its own handle. The measured client sends one request at a time, a flooder
    /// keeps --window far gets in flight, a sleeper submits --sleeper-window far gets and reads no
    /// answer until the phase ends. Every value is verified.
    #[command(after_help = STATUSES, after_long_help = FAIRNESS_TABLES)]
    Fairness(FairnessArgs),
    /// Measure the miss ratio of farcore as a cache over made traces, every value verified.
    ///
    /// One client requests the keys of a trace in order; a put of the value follows a miss.
    #[command(after_help = STATUSES)]
    Cache(CacheArgs),
    /// Measure gets while many keys expire at once, and how fast their memory comes back.
    ///
    /// Gets of other keys are sent at an even rate, --load percent of the most that the engine
    /// serves. Rate and latency are those of the core's processor time, so that other programs on
    /// the machine do not count: latency is the processor time from the moment when a get was due
    /// until its answer. By the clock it is the time from sending a get until its answer. Each core
    /// gets keys of its own shard.
    #[command(after_help = STATUSES)]
    Expiry(ExpiryArgs),
    /// Measure kinds of operations beside each other within one run: conditional puts, counters,
    /// ranges, deletes, scans, exports and long values.
    #[command(after_help = STATUSES)]
    Operations(OperationsArgs),
    /// Measure blocking calls, batches and tasks of a program that embeds the engine, beside the
    /// same callers of concurrent maps and caches, every value verified.
    ///
    /// Each round runs all engines in turn, each in a process of its own, with the same requests in
    /// the same order. Also measured: an idle engine's processor time, and how much it slows a
    /// program that computes on all cores.
    #[command(after_help = STATUSES)]
    Embed(EmbedArgs),
    /// Print the completions of a shell, e.g. `source <(farcore-bench completions bash)`.
    Completions(CompletionsArgs),
    /// Write the manual pages into a folder.
    Man(ManArgs),
    /// Runs one plan given as JSON on standard input and writes the outcome to standard output.
    #[command(hide = true)]
    RunOne,
}

/// How to read the tables of `fairness`; the end of its long help.
const FAIRNESS_TABLES: &str = "\
Phases:
  alone            the measured client only
  beside flooders  with the flooders
  beside sleepers  with the sleepers
  beside both      with flooders and sleepers
Phases of clients whose number is 0 are left out.

Columns:
  passed by          answers to all flooders while the measured client waited for one
  runs, hung         runs that reached the phase, and those in which a client waited longer
                     than --give-up for an answer
  measured ops/s     answers to the measured client in a second
  longest wait       longest time that the measured client waited for an answer
  flooders ops/s     answers to all flooders in a second
  slowest/fastest    answers to the slowest flooder, as a share of those to the fastest
  their longest wait longest time that a flooder received no answer
  left unread        requests of the sleepers that are still in flight when measuring starts
  far reads          READs of far memory during the phase

With several runs, cells are medians, with the least and the most in brackets.

The exit statuses are those of `farcore-bench --help`.";

/// Flags of cores, memory and far memory; `farcore tune` has the same.
#[derive(Clone, Debug, Args)]
pub struct SetupArgs {
    /// Cores to pin to, one thread each, e.g. 0,1 or 0-3,8 [default: up to four of those allowed]
    #[arg(long, value_name = "LIST")]
    pub cores: Option<CoreList>,
    /// Cap on local memory, e.g. 256MiB [default: a quarter of the data]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub local: Option<u64>,
    /// Size of far memory [default: three times the data, for each of --replicas]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub far: Option<u64>,
    /// Where far memory is: `embedded`, or memory nodes, e.g.
    /// tcp://10.0.0.1:7400,tcp://10.0.0.2:7400
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "LIST",
        default_value = "embedded"
    )]
    pub fabric: Vec<String>,
    /// File with the shared secret of the memory nodes
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Memory nodes that must answer before the run begins; the others join later [default: all]
    #[arg(long, value_name = "N")]
    pub nodes_min: Option<usize>,
    /// RDMA device, for rdma:// and rdma+tcp:// [default: the device of the route, else of the
    /// first active port]
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,
    /// Port of the device [default: the first active one]
    #[arg(long, value_name = "N")]
    pub port: Option<u8>,
    /// Entry of the port's GID table [default: RoCE v2 over IPv4 where there is one]
    #[arg(long, value_name = "N")]
    pub gid_index: Option<u8>,
    /// Embedded memory nodes that share far memory [default: 1]
    #[arg(long, value_name = "N")]
    pub far_nodes: Option<usize>,
    /// Copies of each page of far memory, on as many memory nodes: 1 to 3; --far has room for all
    /// of them [default: 1]
    #[arg(long, value_name = "N")]
    pub replicas: Option<usize>,
    /// Latency added to each access of embedded far memory, e.g. 2us [default: none]
    #[arg(long, value_name = "DURATION", value_parser = parse_nanoseconds)]
    pub far_latency: Option<u64>,
    /// Requests in flight on each core [default: the profile's; else 64, or 256 with tcp:// nodes,
    /// whose round trips are long]
    #[arg(long, value_name = "N")]
    pub window: Option<usize>,
    /// Encrypt far memory [default mode: authenticated]
    #[arg(
        long,
        value_name = "MODE",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_value = "off",
        default_missing_value = "authenticated",
        hide_default_value = true
    )]
    pub encrypt: Encryption,
    /// Seed of the keys, the values and the order of the mix
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Do not touch memory at start
    #[arg(long)]
    pub no_prefault: bool,
}

/// How long a run waits for memory nodes.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct WaitArgs {
    /// Wait for the memory nodes of --fabric to come up, for 10 minutes or as long as stated, e.g.
    /// =30s; the log names those that are missing [default: 10 seconds]
    #[arg(
        long,
        value_name = "DURATION",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "10m",
        value_parser = parse_nanoseconds
    )]
    pub wait_for_nodes: Option<u64>,
}

/// Flags of all comparisons of engines.
#[derive(Clone, Debug, Args)]
pub struct CommonArgs {
    /// Cores and memory.
    #[command(flatten)]
    pub setup: SetupArgs,
    /// How long to wait for memory nodes.
    #[command(flatten)]
    pub wait: WaitArgs,
    /// Profile written by `farcore tune`
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// Engines to compare [default: farcore,locked-lru,farcore-all-local,dashmap,sharded; with
    /// --fabric farcore,farcore-embedded]; builds with the features `peers` and `rocksdb` have more
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub engines: Option<Vec<EngineName>>,
    /// Write the figures to a file, as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write plots into a folder, as SVG
    #[arg(long, value_name = "DIR")]
    pub plot: Option<PathBuf>,
    /// Where the engine publishes its metrics.
    #[command(flatten)]
    pub watch: WatchArgs,
    /// Record the requests of farcore's first run in a file that `trace` replays; takes 8 MiB of
    /// memory beside --local
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Runs of each engine; medians are reported
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
}

/// Flags of `ycsb`.
#[derive(Clone, Debug, Args)]
pub struct YcsbArgs {
    /// The workload
    #[arg(long)]
    pub workload: Workload,
    /// The size.
    #[command(flatten)]
    pub size: YcsbSize,
    /// Skew of the transactions: the exponent of a Zipf distribution; 0 requests all keys alike
    #[arg(
        long,
        value_name = "EXPONENT",
        default_value_t = Skew::default().zipf,
        allow_negative_numbers = true
    )]
    pub zipf: f64,
    /// Flags of all comparisons.
    #[command(flatten)]
    pub common: CommonArgs,
}

fn parse_nanoseconds(text: &str) -> Result<u64, String> {
    let duration = humantime::parse_duration(text)
        .map_err(|_| format!("`{text}` is not a duration: write e.g. 2us, 500ns or 0s"))?;
    u64::try_from(duration.as_nanos()).map_err(|_| format!("`{text}` is too long"))
}

/// A time to live in milliseconds, rounded up.
fn parse_milliseconds(text: &str) -> Result<u64, String> {
    parse_nanoseconds(text).map(|nanoseconds| nanoseconds.div_ceil(1_000_000))
}

/// Reads the profile of a flag. Its window, unless a flag replaces it, must be one that a plan may
/// have; a plan's own check would name the flag that was not given.
fn read_profile(file: &Path, setup: &SetupArgs) -> Result<Profile, PlanError> {
    let profile = Profile::read(file)?;
    match profile.window.filter(|_| setup.window.is_none()) {
        Some(window) if !(1..=WINDOW_MAX).contains(&(window as usize)) => {
            let limit = format!("it must be 1 to {WINDOW_MAX} requests in flight a core");
            Err(RangeError::new("window of --profile", window, limit).into())
        }
        _ => Ok(profile),
    }
}

impl YcsbArgs {
    /// One plan for each engine.
    ///
    /// # Errors
    /// A setting that this machine does not allow.
    pub fn plans(&self, machine: &Machine) -> Result<Vec<Plan>, PlanError> {
        let setup = &self.common.setup;
        let skew = Skew {
            zipf: self.zipf,
            ..Skew::default()
        };
        let plan = self.size.plan(self.workload, skew, machine, setup);
        self.common.plans(machine, plan)
    }
}

impl SetupArgs {
    /// The cores of the flag, or the machine's first four.
    #[must_use]
    pub fn cores(&self, machine: &Machine) -> Vec<usize> {
        let first = || machine.cores.iter().copied().take(CORES_MAX).collect();
        let given = self.cores.as_ref().map(|list| list.0.clone());
        given.unwrap_or_else(first)
    }

    /// The memory nodes of the flag; none for embedded far memory.
    #[must_use]
    pub fn nodes(&self) -> &[String] {
        match &self.fabric[..] {
            [only] if only == "embedded" => &[],
            nodes => nodes,
        }
    }

    /// The plan for farcore with defaults filled in; not validated.
    #[must_use]
    pub fn plan(&self, cores: Vec<usize>, keys_per_core: u64, scenario: Scenario) -> Plan {
        let fabric = self.nodes().to_vec();
        let behind_sockets = fabric.iter().any(|node| node.starts_with("tcp://"));
        let window = if behind_sockets {
            WINDOW_SOCKETS
        } else {
            WINDOW
        };
        let mut plan = Plan {
            engine: EngineName::Farcore,
            cores,
            workers: None,
            keys_per_core,
            local_bytes: 0,
            far_bytes: 0,
            fabric,
            token_file: self.token_file.clone(),
            nodes_min: self.nodes_min,
            nodes_wait_ns: None,
            far_nodes: self.far_nodes.unwrap_or(1),
            replicas: self.replicas.unwrap_or(1),
            far_latency_ns: self.far_latency.unwrap_or(0),
            window: self.window.unwrap_or(window),
            profile: Profile::default(),
            device: self.device.clone(),
            port: self.port,
            gid_index: self.gid_index,
            encrypt: self.encrypt,
            prefault: !self.no_prefault,
            seed: self.seed,
            watch: Watch::default(),
            record: None,
            time_limit_ns: None,
            by_rules: false,
            scenario,
        };
        let local_least = (plan.threads() * LOCAL_BYTES_MIN * 16).max(1);
        plan.local_bytes = self
            .local
            .unwrap_or((plan.data_bytes() / 4).max(local_least));
        let copied = plan.data_bytes().saturating_mul(3).max(64 << 20);
        let copies = plan.replicas.max(1) as u64;
        plan.far_bytes = self.far.unwrap_or(copied.saturating_mul(copies));
        plan
    }
}

impl CommonArgs {
    /// The engines of the flag, or the default ones.
    #[must_use]
    pub fn engines(&self) -> &[EngineName] {
        let default: &[EngineName] = if self.setup.nodes().is_empty() {
            &[
                EngineName::Farcore,
                EngineName::LockedLru,
                EngineName::FarcoreAllLocal,
                EngineName::Dashmap,
                EngineName::Sharded,
            ]
        } else {
            &[EngineName::Farcore, EngineName::FarcoreEmbedded]
        };
        self.engines.as_deref().unwrap_or(default)
    }

    /// The engines of the flag, or those of the default ones that can do what a plan needs.
    fn engines_for(&self, plan: &Plan) -> &[EngineName] {
        const OURS: &[EngineName] = &[EngineName::Farcore, EngineName::FarcoreAllLocal];
        let is_embedded = self.setup.nodes().is_empty();
        if self.engines.is_none() && plan.by_rules {
            // The maps have no far tier, and `locked-lru` would take hours.
            return &[EngineName::Farcore];
        }
        if self.engines.is_none() && is_embedded && !plan.needs().is_empty() {
            OURS
        } else {
            self.engines()
        }
    }

    /// A plan for each engine, with the profile's settings; validated.
    ///
    /// # Errors
    /// The profile cannot be read, or this machine does not allow a setting.
    pub(crate) fn plans(&self, machine: &Machine, mut plan: Plan) -> Result<Vec<Plan>, PlanError> {
        plan.nodes_wait_ns = self.wait.wait_for_nodes;
        let engines = self.engines_for(&plan);
        self.check_effects(engines)?;
        if let Some(file) = &self.profile {
            plan = plan.with_profile(read_profile(file, &self.setup)?);
            plan.window = self.setup.window.unwrap_or(plan.window);
        }
        plan.watch = self.watch.watch(SOCKET_NAME)?;
        let mut plans = Vec::new();
        for &engine in engines {
            // Local memory for all data leaves nothing to add to the default comparison.
            let is_default = self.engines.is_none();
            let is_same = plan.local_bytes >= plan.all_local_bytes();
            if is_default && is_same && engine == EngineName::FarcoreAllLocal {
                continue;
            }
            let plan = plan.for_engine(engine);
            plan.validate(machine)?;
            if !plans.contains(&plan) {
                plans.push(plan);
            }
        }
        if let Some(file) = &self.record {
            // Without any, the flag has been refused.
            if let Some(ours) = plans.iter_mut().find(|plan| plan.engine.is_ours()) {
                ours.record = Some(file.clone());
            }
        }
        Ok(plans)
    }
}

#[cfg(test)]
mod tests;
