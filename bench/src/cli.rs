//! The command line: flags, their defaults for this machine, and the plans that come of them.

use std::path::PathBuf;
use std::str::FromStr;

use bytesize::ByteSize;
use clap::{Args, Parser, Subcommand};
use farcore_tuning::{LogFormat, Profile};

use crate::fairness::args::FairnessArgs;
use crate::machine::Machine;
use crate::plan::{Encryption, EngineName, LOCAL_BYTES_MIN, Plan, PlanError, Scenario, Workload};
use crate::record::VALUE_BYTES_MAX;
use crate::skew::Skew;
use crate::trace::args::TraceArgs;
use crate::watch::{Watch, WatchArgs};

const KEYS_PER_CORE: u64 = 250_000;
/// The contest has one hot request for each three keys.
const KEYS_PER_HOT_OP: u64 = 3;
const CORES_MAX: usize = 4;
/// Requests in flight on each core.
const WINDOW: usize = 64;
/// The same where each far request takes a fraction of a millisecond.
const WINDOW_SOCKETS: usize = 256;

/// The core-pinned benchmark of Farcore.
#[derive(Debug, Parser)]
#[command(name = "farcore-bench", version, about)]
pub struct Cli {
    /// How the log on stderr is written: text or json
    #[arg(long, global = true, value_name = "FORMAT", env = LogFormat::VARIABLE, default_value_t)]
    pub log_format: LogFormat,
    /// What to run.
    #[command(subcommand)]
    pub command: Command,
}

/// What can be run.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// The contest: write, verify, rewrite, update, delete, reinsert and a hot mix, every value
    /// verified.
    Contest(ContestArgs),
    /// One of the YCSB core workloads.
    Ycsb(YcsbArgs),
    /// Replays a real cache trace, every value verified.
    ///
    /// get and gets are gets, of absent keys followed by a put of the stated size (unless that is
    /// 0; see --on-miss); set, add, replace and cas are puts; append and prepend are a get and a
    /// put of both lengths; incr and decr a get and a put of the same length; delete is a delete.
    /// Each record of oracleGeneral is a get. Keys are taken as they are written. Times and the
    /// time to live are not applied.
    Trace(TraceArgs),
    /// How long one client waits beside clients that flood the engine and clients that leave their
    /// answers unread.
    ///
    /// Phases: the measured client alone, beside the flooders, beside the sleepers, beside both.
    /// Each client is a thread with a handle of its own, and --window is what each flooder keeps
    /// under way. Every value is verified.
    Fairness(FairnessArgs),
    /// Runs one plan given as JSON on standard input and answers on standard output.
    #[command(hide = true)]
    RunOne,
}

/// Flags that say where and with how much memory a plan runs; `farcore tune` has the same.
#[derive(Clone, Debug, Args)]
pub struct SetupArgs {
    /// Cores to pin to, one thread each, e.g. 0,1 [default: up to four of those allowed]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub cores: Option<Vec<usize>>,
    /// Cap on local memory, e.g. 256MiB [default: a quarter of the data]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub local: Option<u64>,
    /// Size of far memory [default: three times the data]
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
    /// File with the secret that the memory nodes ask for
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Memory nodes that must answer before it begins; the others join later [default: all]
    #[arg(long, value_name = "N")]
    pub nodes_min: Option<usize>,
    /// RDMA device, for rdma:// and rdma+tcp:// [default: the one that the route or the first
    /// active port is of]
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,
    /// Its port [default: the first that is active]
    #[arg(long, value_name = "N")]
    pub port: Option<u8>,
    /// Entry of its GID table [default: RoCE v2 over IPv4 where there is one]
    #[arg(long, value_name = "N")]
    pub gid_index: Option<u8>,
    /// Embedded memory nodes that share far memory
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub far_nodes: usize,
    /// Latency added to each far access, e.g. 2us
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse_nanoseconds)]
    pub far_latency: u64,
    /// Requests in flight on each core [default: the profile's; else 64, or 256 where far memory is
    /// behind sockets, whose round trip is long]
    #[arg(long, value_name = "N")]
    pub window: Option<usize>,
    /// Keep ciphertext in far memory; without a mode it is authenticated
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
    /// Names the keys, the values and the order of the mix
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Leave memory untouched at start
    #[arg(long)]
    pub no_prefault: bool,
}

/// Flags of all comparisons.
#[derive(Clone, Debug, Args)]
pub struct CommonArgs {
    /// Where and with how much.
    #[command(flatten)]
    pub setup: SetupArgs,
    /// Settings that `farcore tune` has found
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// Engines to compare [default: farcore,locked-lru,dashmap,sharded; with --fabric
    /// farcore,farcore-embedded]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub engines: Option<Vec<EngineName>>,
    /// Write the figures to a file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write plots into a folder
    #[arg(long, value_name = "DIR")]
    pub plot: Option<PathBuf>,
    /// Where the engine can be watched.
    #[command(flatten)]
    pub watch: WatchArgs,
    /// Write what the engine (farcore, in its first run) is asked to a file, as `trace` reads it;
    /// takes 8 MiB more of local memory
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Runs of each engine; medians are reported
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
}

/// How much the contest does.
#[derive(Clone, Debug, Args)]
pub struct ContestSize {
    /// Keys of each thread [default: what fits the machine]
    #[arg(long, value_name = "N")]
    pub keys_per_core: Option<u64>,
    /// Requests of the hot mix, all threads together [default: a third of the keys]
    #[arg(long, value_name = "N")]
    pub hot_ops: Option<u64>,
    /// Skew of the mixed phase: the exponent of a Zipf distribution; 0 asks for all keys alike
    #[arg(long, value_name = "EXPONENT", default_value_t = Skew::default().zipf)]
    pub zipf: f64,
    /// Let the hot mix ask for keys of the first core's shard only, where an engine has shards
    #[arg(long)]
    pub one_shard: bool,
}

/// How much a YCSB workload does.
#[derive(Clone, Debug, Args)]
pub struct YcsbSize {
    /// Records loaded first, all threads together
    #[arg(long, value_name = "N", default_value_t = 400_000)]
    pub records: u64,
    /// Transactions, all threads together
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub operations: u64,
    /// Bytes of each value
    #[arg(long, value_name = "N", default_value_t = VALUE_BYTES_MAX)]
    pub value_bytes: usize,
}

/// Flags of `contest`.
#[derive(Clone, Debug, Args)]
pub struct ContestArgs {
    /// How much.
    #[command(flatten)]
    pub size: ContestSize,
    /// The others.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Flags of `ycsb`.
#[derive(Clone, Debug, Args)]
pub struct YcsbArgs {
    /// The workload
    #[arg(long)]
    pub workload: Workload,
    /// How much.
    #[command(flatten)]
    pub size: YcsbSize,
    /// Skew of the mixed phase: the exponent of a Zipf distribution; 0 asks for all keys alike
    #[arg(long, value_name = "EXPONENT", default_value_t = Skew::default().zipf)]
    pub zipf: f64,
    /// The others.
    #[command(flatten)]
    pub common: CommonArgs,
}

pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    ByteSize::from_str(text)
        .map(|size| size.as_u64())
        .map_err(|_| {
            format!("`{text}` is not a size: write e.g. 256MiB, 4GiB or a number of bytes")
        })
}

fn parse_nanoseconds(text: &str) -> Result<u64, String> {
    let duration = humantime::parse_duration(text)
        .map_err(|_| format!("`{text}` is not a duration: write e.g. 2us, 500ns or 0s"))?;
    u64::try_from(duration.as_nanos()).map_err(|_| format!("`{text}` is too long"))
}

impl ContestSize {
    /// The plan of this project's engine, not checked yet.
    #[must_use]
    pub fn plan(&self, machine: &Machine, setup: &SetupArgs) -> Plan {
        let cores = setup.cores(machine);
        let keys_per_core = self.keys_per_core.unwrap_or_else(|| {
            // All engines stay far below half of what is free.
            let fitting = machine.memory_available_bytes / 4 / 1024 / (cores.len() as u64).max(1);
            KEYS_PER_CORE.min(fitting).max(1)
        });
        let keys = keys_per_core.saturating_mul(cores.len() as u64);
        let hot_ops = self.hot_ops.unwrap_or((keys / KEYS_PER_HOT_OP).max(1));
        let skew = self.skew();
        setup.plan(cores, keys_per_core, Scenario::Contest { hot_ops, skew })
    }

    /// Which keys the hot mix asks for.
    #[must_use]
    pub fn skew(&self) -> Skew {
        Skew {
            zipf: self.zipf,
            one_shard: self.one_shard,
        }
    }
}

impl YcsbSize {
    /// The plan of this project's engine, not checked yet.
    #[must_use]
    pub fn plan(
        &self,
        workload: Workload,
        skew: Skew,
        machine: &Machine,
        setup: &SetupArgs,
    ) -> Plan {
        let cores = setup.cores(machine);
        let scenario = Scenario::Ycsb {
            workload,
            operations: self.operations,
            value_bytes: self.value_bytes,
            skew,
        };
        let keys_per_core = self.records.div_ceil((cores.len() as u64).max(1));
        setup.plan(cores, keys_per_core, scenario)
    }
}

impl ContestArgs {
    /// One plan for each engine.
    ///
    /// # Errors
    /// A wish that this machine cannot grant.
    pub fn plans(&self, machine: &Machine) -> Result<Vec<Plan>, PlanError> {
        let plan = self.size.plan(machine, &self.common.setup);
        self.common.plans(machine, plan)
    }
}

impl YcsbArgs {
    /// One plan for each engine.
    ///
    /// # Errors
    /// A wish that this machine cannot grant.
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
    /// The cores that were named, or the first of the machine's.
    #[must_use]
    pub fn cores(&self, machine: &Machine) -> Vec<usize> {
        let first = || machine.cores.iter().copied().take(CORES_MAX).collect();
        self.cores.clone().unwrap_or_else(first)
    }

    /// The plan of this project's engine, with what no flag says filled in; not checked yet.
    #[must_use]
    pub fn plan(&self, cores: Vec<usize>, keys_per_core: u64, scenario: Scenario) -> Plan {
        let fabric: Vec<String> = match &self.fabric[..] {
            [only] if only == "embedded" => Vec::new(),
            nodes => nodes.to_vec(),
        };
        let behind_sockets = fabric.iter().any(|node| node.starts_with("tcp://"));
        let window = if behind_sockets {
            WINDOW_SOCKETS
        } else {
            WINDOW
        };
        let mut plan = Plan {
            engine: EngineName::Farcore,
            cores,
            keys_per_core,
            local_bytes: 0,
            far_bytes: 0,
            fabric,
            token_file: self.token_file.clone(),
            nodes_min: self.nodes_min,
            far_nodes: self.far_nodes,
            far_latency_ns: self.far_latency,
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
            scenario,
        };
        let local_least = (plan.threads() * LOCAL_BYTES_MIN * 16).max(1);
        plan.local_bytes = self
            .local
            .unwrap_or((plan.data_bytes() / 4).max(local_least));
        plan.far_bytes = self
            .far
            .unwrap_or(plan.data_bytes().saturating_mul(3).max(64 << 20));
        plan
    }
}

impl CommonArgs {
    /// The same plan for each engine, with the profile's settings.
    ///
    /// # Errors
    /// A profile that is none, or a wish that this machine cannot grant.
    pub(crate) fn plans(&self, machine: &Machine, mut plan: Plan) -> Result<Vec<Plan>, PlanError> {
        if let Some(file) = &self.profile {
            plan = plan.with_profile(Profile::read(file)?);
            plan.window = self.setup.window.unwrap_or(plan.window);
        }
        plan.watch = self.watch.watch()?;
        let engines = self
            .engines
            .as_deref()
            .unwrap_or(if plan.fabric.is_empty() {
                &[
                    EngineName::Farcore,
                    EngineName::LockedLru,
                    EngineName::Dashmap,
                    EngineName::Sharded,
                ]
            } else {
                &[EngineName::Farcore, EngineName::FarcoreEmbedded]
            });
        let mut plans = Vec::new();
        for &engine in engines {
            let plan = Plan {
                engine,
                ..plan.clone()
            };
            plan.validate(machine)?;
            if !plans.contains(&plan) {
                plans.push(plan);
            }
        }
        if let Some(file) = &self.record {
            let ours = plans.iter_mut().find(|plan| plan.engine.is_ours());
            let ours = ours.ok_or_else(|| PlanError::Range {
                flag: "--record",
                value: file.display().to_string(),
                limit: "only farcore records: add it to --engines".into(),
            })?;
            ours.record = Some(file.clone());
        }
        Ok(plans)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Machine {
        Machine {
            cores: vec![0, 1],
            memory_available_bytes: 8 << 30,
            ..Machine::default()
        }
    }

    fn contest(flags: &[&str]) -> ContestArgs {
        let line = ["farcore-bench", "contest"].iter().chain(flags);
        match Cli::try_parse_from(line).unwrap().command {
            Command::Contest(args) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn no_flags_give_a_plan_for_every_engine() {
        let plans = contest(&[]).plans(&machine()).unwrap();
        assert_eq!(plans.len(), 4);
        assert!(
            plans
                .iter()
                .all(|plan| plan.cores == [0, 1] && plan.keys_per_core == KEYS_PER_CORE)
        );
    }

    #[test]
    fn flags_are_understood() {
        let flags = "--cores 1 --keys-per-core 10 --local 4GiB --far 1gb --far-nodes 3 --far-latency 2us --window 8 \
                     --engines dashmap,locked-lru --encrypt --hot-ops 5 --seed 9 --no-prefault --runs 3 --json a --plot b";
        let flags: Vec<&str> = flags.split_whitespace().collect();
        let machine = Machine {
            memory_available_bytes: 32 << 30,
            ..machine()
        };
        let plans = contest(&flags).plans(&machine).unwrap();
        assert_eq!(
            plans[1],
            Plan {
                engine: EngineName::LockedLru,
                cores: vec![1],
                keys_per_core: 10,
                local_bytes: 4 << 30,
                far_bytes: 1_000_000_000,
                fabric: Vec::new(),
                token_file: None,
                nodes_min: None,
                device: None,
                port: None,
                gid_index: None,
                far_nodes: 3,
                far_latency_ns: 2_000,
                window: 8,
                profile: Profile::default(),
                encrypt: Encryption::Authenticated,
                prefault: false,
                seed: 9,
                watch: Watch::default(),
                record: None,
                scenario: Scenario::Contest {
                    hot_ops: 5,
                    skew: Skew::default(),
                },
            }
        );
    }

    #[test]
    fn encryption_is_authenticated_unless_it_says_otherwise() {
        let of = |flags: &[&str]| contest(flags).plans(&machine()).unwrap()[0].encrypt;
        assert_eq!(of(&[]), Encryption::Off);
        assert_eq!(of(&["--encrypt"]), Encryption::Authenticated);
        assert_eq!(of(&["--encrypt=authenticated"]), Encryption::Authenticated);
        assert_eq!(of(&["--encrypt=secrecy-only"]), Encryption::SecrecyOnly);
        let wrong = Cli::try_parse_from(["farcore-bench", "contest", "--encrypt=rot13"]);
        let refused = wrong.unwrap_err().to_string();
        assert!(refused.contains("secrecy-only"), "{refused}");
    }

    #[test]
    fn memory_nodes_are_compared_with_embedded_ones() {
        let flags = [
            "--fabric",
            "tcp://a:1,tcp://b:2",
            "--token-file",
            "t",
            "--nodes-min",
            "1",
        ];
        let plans = contest(&flags).plans(&machine()).unwrap();
        let engines: Vec<_> = plans.iter().map(|plan| plan.engine).collect();
        assert_eq!(engines, [EngineName::Farcore, EngineName::FarcoreEmbedded]);
        assert_eq!(plans[0].window, WINDOW_SOCKETS);
        assert_eq!(plans[0].fabric, ["tcp://a:1", "tcp://b:2"]);
        assert_eq!(plans[0].token_file, Some("t".into()));
        assert_eq!(plans[0].nodes_min, Some(1));
    }

    #[test]
    fn figures_are_shown_to_this_machine_only() {
        let plans = contest(&["--stats-socket", "--http", "127.0.0.1:0"]).plans(&machine());
        let watch = plans.unwrap().remove(0).watch;
        assert_eq!(watch.stats_socket, Some("default".into()));
        assert_eq!(watch.http, Some(([127, 0, 0, 1], 0).into()));
        let flags = ["--stats-socket", "a", "--http", "0.0.0.0:0"];
        let refused = contest(&flags).plans(&machine()).unwrap_err().to_string();
        assert!(refused.contains("--insecure"), "{refused}");
        let flags = ["--http", "0.0.0.0:0", "--insecure"];
        assert!(contest(&flags).plans(&machine()).is_ok());
    }

    #[test]
    fn the_window_is_the_flag_s_else_the_profile_s() {
        let file = std::env::temp_dir().join(format!("farcore-window-{}", std::process::id()));
        std::fs::write(&file, "window = 96\nbatch = 8\n").unwrap();
        let name = file.to_str().unwrap();
        let tuned = contest(&["--profile", name]).plans(&machine()).unwrap();
        let asked = contest(&["--profile", name, "--window", "7"]);
        let asked = asked.plans(&machine()).unwrap();
        assert_eq!((tuned[0].window, asked[0].window), (96, 7));
        assert_eq!(asked[0].profile.batch, Some(8));
        std::fs::remove_file(&file).unwrap();
        let gone = contest(&["--profile", name]).plans(&machine());
        assert!(gone.unwrap_err().to_string().contains(name));
    }

    #[test]
    fn bad_flags_say_what_to_write() {
        for (flags, message) in [
            (["--local", "much"], "write e.g. 256MiB"),
            (["--far-latency", "2"], "write e.g. 2us"),
            (["--engines", "redis"], "possible values"),
            (["--runs", "0"], "1..=1000"),
        ] {
            let line = ["farcore-bench", "contest"].iter().chain(&flags);
            let error = Cli::try_parse_from(line).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
