//! One run of one engine, with every setting fixed. A plan is checked against the machine and
//! travels to the child process as JSON.
//!
//! - `engine.rs`: names of the engines, encryption modes
//! - `rules.rs`: the contest as it is held; `forecast.rs`: whether it fits in memory
//! - `sizes.rs`: bytes of the data, and of the memory that a run takes
//! - `validate.rs`: the checks; `error.rs`: why a plan is refused
//!
//! The plan owns the settings of all scenarios. It derives counts and sizes from them (keys, steps
//! of a phase, bytes) and passes numbers or small structs down to [`skew`](crate::skew),
//! [`trace`](crate::trace), [`watch`](farcore_command::watch) and the settings of
//! [`fairness`](crate::experiments::fairness) and its like, none of which knows plans.

mod engine;
mod error;
mod forecast;
mod rules;
mod sizes;
mod validate;

use std::path::PathBuf;

use farcore::Config;
use farcore_command::watch::Watch;
use farcore_tuning::Profile;
use serde::{Deserialize, Serialize};

pub use self::engine::{Encryption, EngineName};
pub use self::error::PlanError;
pub use self::forecast::Forecast;
pub use self::rules::{Scale, TIME_LIMIT_NS_MAX};
use crate::experiments::cache::settings as cache;
use crate::experiments::embed::settings as embed;
use crate::experiments::expiry::settings as expiry;
use crate::experiments::fairness::keys::Keys;
use crate::experiments::fairness::settings::Settings;
use crate::experiments::operations::settings as operations;
use crate::experiments::operations::settings::Part;
use crate::load::SETS;
use crate::phase::{CONTEST, OPERATIONS, Phase, TRACE, YCSB};
use crate::record::{Generator, Lengths};
use crate::skew::{KeyDraws, Skew};
use crate::trace::{Choice, Summary};

/// Least local memory for each core, in bytes.
pub const LOCAL_BYTES_MIN: u64 = 1 << 20;
/// Most requests in flight on a core.
pub const WINDOW_MAX: usize = 4096;
/// Most requests of a mixed phase, all threads together: each draws its key before the run, into 4
/// bytes of memory.
pub const MIXED_OPS_MAX: u64 = 1 << 32;
/// Most embedded memory nodes.
pub const FAR_NODES_MAX: usize = 64;
/// Copies of a page in far memory, at most.
pub const REPLICAS_MAX: usize = 3;
/// Longest far latency, in nanoseconds: a run must end.
pub const FAR_LATENCY_NS_MAX: u64 = 1_000_000_000;

/// Longest wait for memory nodes, in nanoseconds: a day.
pub const NODES_WAIT_NS_MAX: u64 = 86_400_000_000_000;

/// Far memory of `farcore-all-local`, which stays empty.
const ALL_LOCAL_FAR_BYTES: u64 = 64 << 20;

/// The YCSB core workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// Half reads, half updates.
    A,
    /// 95 % reads, 5 % updates.
    B,
    /// Reads only.
    C,
    /// 95 % reads of the latest, 5 % inserts.
    D,
    /// 95 % scans of 1 to 100 records in the order of the index, 5 % inserts.
    E,
    /// Half reads, half read-modify-writes.
    F,
}

/// The phases of a run, and the data they run over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scenario {
    /// The contest.
    Contest {
        /// Requests of the hot mix, all threads together.
        hot_ops: u64,
        /// Which keys they request.
        #[serde(default)]
        skew: Skew,
    },
    /// One YCSB workload.
    Ycsb {
        /// The workload.
        workload: Workload,
        /// Transactions, all threads together.
        operations: u64,
        /// Bytes of each value.
        value_bytes: usize,
        /// Which keys are requested; for workload D, how far behind the latest.
        #[serde(default)]
        skew: Skew,
        /// Time to live of each write, in milliseconds; `None` for ever.
        #[serde(default)]
        ttl_ms: Option<u64>,
    },
    /// A trace, as [`trace::choose`](crate::trace::choose) reads it.
    Trace(Box<Choice>),
    /// One client beside others, as [`fairness`](crate::experiments::fairness) runs it.
    Fairness(Box<Settings>),
    /// Many keys expire at once, as [`expiry`](crate::experiments::expiry) runs it.
    Expiry(Box<expiry::Settings>),
    /// Operations beside each other, as [`operations`](crate::experiments::operations) runs it.
    Operations(Box<operations::Settings>),
    /// The engine as a cache, as [`cache`](crate::experiments::cache) runs it.
    Cache(Box<cache::Settings>),
    /// Callers of an embedded engine, as [`embed`](crate::experiments::embed) runs them.
    Embed(Box<embed::Settings>),
}

/// One run of one engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The engine.
    pub engine: EngineName,
    /// The cores, one thread each unless [`Plan::workers`] says otherwise.
    pub cores: Vec<usize>,
    /// Threads, where there are more than cores; they take turns on these.
    #[serde(default)]
    pub workers: Option<usize>,
    /// Keys of each thread.
    pub keys_per_core: u64,
    /// Cap on local memory, in bytes.
    pub local_bytes: u64,
    /// Size of far memory, in bytes.
    pub far_bytes: u64,
    /// Addresses of the memory nodes that hold it; empty for far memory in this process.
    #[serde(default)]
    pub fabric: Vec<String>,
    /// The file with the secret of the memory nodes.
    #[serde(default)]
    pub token_file: Option<PathBuf>,
    /// Memory nodes that must answer before the run begins; `None` for all.
    #[serde(default)]
    pub nodes_min: Option<usize>,
    /// Longest wait for these nodes, in nanoseconds; `None` for farcore's default.
    #[serde(default)]
    pub nodes_wait_ns: Option<u64>,
    /// The RDMA device, by name.
    pub device: Option<String>,
    /// Its port.
    pub port: Option<u8>,
    /// The entry of its GID table.
    pub gid_index: Option<u8>,
    /// Embedded memory nodes that share far memory; engines without nodes ignore it.
    pub far_nodes: usize,
    /// Copies of each page of far memory, which share [`Plan::far_bytes`].
    #[serde(default = "one")]
    pub replicas: usize,
    /// Latency added to each far access, in nanoseconds.
    pub far_latency_ns: u64,
    /// Most requests in flight on a core.
    pub window: usize,
    /// Settings of farcore. Its `window` is empty: [`Plan::window`] serves every engine.
    #[serde(default)]
    pub profile: Profile,
    /// Whether far memory holds ciphertext, and in which mode.
    pub encrypt: Encryption,
    /// Whether memory is touched before the first phase.
    pub prefault: bool,
    /// Determines the keys, the values and the order of the hot mix.
    pub seed: u64,
    /// Where the engine publishes its metrics.
    #[serde(default)]
    pub watch: Watch,
    /// The file that farcore records its requests in; other engines record none.
    #[serde(default)]
    pub record: Option<PathBuf>,
    /// Longest time of all phases together, in nanoseconds; what is unfinished then is left out.
    #[serde(default)]
    pub time_limit_ns: Option<u64>,
    /// Whether lengths and hot writes of the contest are those of its rules.
    #[serde(default)]
    pub by_rules: bool,
    /// The phases and their data.
    pub scenario: Scenario,
}

/// The copies of a page in plans that name no number.
const fn one() -> usize {
    1
}

impl Plan {
    /// A small plan of a scenario, to be changed: farcore on the first core, with 64 MiB of local
    /// and of far memory in this process.
    #[must_use]
    pub fn new(scenario: Scenario) -> Self {
        Self {
            engine: EngineName::Farcore,
            cores: vec![0],
            workers: None,
            keys_per_core: 1,
            local_bytes: 64 << 20,
            far_bytes: 64 << 20,
            fabric: Vec::new(),
            token_file: None,
            nodes_min: None,
            nodes_wait_ns: None,
            device: None,
            port: None,
            gid_index: None,
            far_nodes: 1,
            replicas: 1,
            far_latency_ns: 0,
            window: 64,
            profile: Profile::default(),
            encrypt: Encryption::Off,
            prefault: true,
            seed: 1,
            watch: Watch::default(),
            record: None,
            time_limit_ns: None,
            by_rules: false,
            scenario,
        }
    }

    /// This plan with other settings; a window in the profile replaces the plan's.
    #[must_use]
    pub fn with_profile(self, profile: Profile) -> Self {
        let window = profile.window.map(|window| window as usize);
        Self {
            window: window.unwrap_or(self.window),
            profile: Profile {
                window: None,
                ..profile
            },
            ..self
        }
    }

    /// This plan for another engine. All data is local for `farcore-all-local`.
    #[must_use]
    pub fn for_engine(&self, engine: EngineName) -> Self {
        let mut plan = Self {
            engine,
            ..self.clone()
        };
        if engine == EngineName::FarcoreAllLocal {
            plan.local_bytes = self.all_local_bytes();
            plan.far_bytes = ALL_LOCAL_FAR_BYTES;
            plan.far_latency_ns = 0;
        }
        plan
    }

    /// What sets the number of keys.
    #[must_use]
    pub const fn keys_flag(&self) -> &'static str {
        match self.scenario {
            Scenario::Contest { .. } => "--keys-per-core",
            Scenario::Ycsb { .. } => "--records",
            Scenario::Trace(_) => "--limit",
            Scenario::Fairness(_) | Scenario::Expiry(_) | Scenario::Embed(_) => "--keys",
            // As many as its memory holds.
            Scenario::Cache(_) => "--local or --far",
            Scenario::Operations(ref settings) => match settings.part {
                Part::Scan => "--scan-keys",
                Part::Export => "--export-keys",
                Part::Collections => "--collection-elements",
                Part::Requests | Part::Long | Part::Sections => "--keys",
            },
        }
    }

    /// Threads, each with keys of its own.
    #[must_use]
    pub fn threads(&self) -> u64 {
        self.workers.unwrap_or(self.cores.len()) as u64
    }

    /// The core of a thread.
    #[must_use]
    pub fn core_of(&self, thread: usize) -> Option<usize> {
        let place = thread.checked_rem(self.cores.len())?;
        self.cores.get(place).copied()
    }

    /// Makes and verifies the keys and values.
    #[must_use]
    pub fn generator(&self) -> Generator {
        let lengths = if self.by_rules {
            Lengths::Bounded
        } else {
            Lengths::Even
        };
        Generator::new(self.seed).with_lengths(lengths)
    }

    /// Keys loaded first, all threads together.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.keys_per_core.saturating_mul(self.threads())
    }

    /// Most keys ever stored.
    #[must_use]
    pub fn keys_max(&self) -> u64 {
        match &self.scenario {
            Scenario::Ycsb {
                workload: Workload::D | Workload::E,
                operations,
                ..
            } => {
                // 5 % inserts, with room for chance.
                self.keys().saturating_add(operations / 16 + 1024)
            }
            Scenario::Trace(choice) => choice.summary.keys,
            Scenario::Fairness(settings) => Keys::new(settings, self.keys(), self.seed).count(),
            Scenario::Expiry(settings) => self.keys().saturating_add(settings.expiring),
            Scenario::Embed(settings) => settings.keys,
            Scenario::Operations(settings) if settings.part == Part::Requests => {
                self.keys().saturating_mul(SETS)
            }
            _ => self.keys(),
        }
    }

    /// Handles in use at once. `fairness` and `embed` use handles, and `cache` has those of an
    /// embedder; the others run as jobs on cores.
    #[must_use]
    pub fn handles(&self) -> usize {
        match &self.scenario {
            Scenario::Fairness(settings) => settings.clients(),
            Scenario::Embed(settings) => settings.handles(),
            Scenario::Cache(_) => Config::default().handles_max,
            _ => 1,
        }
    }

    /// The phases in order.
    #[must_use]
    pub fn phases(&self) -> &'static [Phase] {
        match self.scenario {
            Scenario::Contest { .. } => &CONTEST,
            Scenario::Ycsb { .. } => &YCSB,
            Scenario::Trace(_) => &TRACE,
            Scenario::Operations(_) => &OPERATIONS,
            // Its phases are measured in seconds, not in requests.
            Scenario::Fairness(_)
            | Scenario::Expiry(_)
            | Scenario::Embed(_)
            | Scenario::Cache(_) => &[],
        }
    }

    /// Flags that only some engines can obey, and what the others lack.
    #[must_use]
    pub fn needs(&self) -> Vec<(&'static str, &'static str)> {
        const EXPIRY: &str = "keys that expire";
        match &self.scenario {
            Scenario::Ycsb {
                workload, ttl_ms, ..
            } => {
                let scans = (*workload == Workload::E)
                    .then_some(("--workload e", "scans in the order of the index"));
                let expiry = ttl_ms.map(|_| ("--ttl", EXPIRY));
                scans.into_iter().chain(expiry).collect()
            }
            Scenario::Trace(choice) => {
                let expiry = choice.options.lifetimes_per_mille;
                expiry.iter().map(|_| ("--apply-ttl", EXPIRY)).collect()
            }
            Scenario::Contest { .. }
            | Scenario::Fairness(_)
            | Scenario::Expiry(_)
            | Scenario::Operations(_)
            | Scenario::Embed(_)
            | Scenario::Cache(_) => Vec::new(),
        }
    }

    /// The summary of the trace, for a trace scenario.
    #[must_use]
    pub fn trace(&self) -> Option<&Summary> {
        match &self.scenario {
            Scenario::Trace(choice) => Some(&choice.summary),
            _ => None,
        }
    }

    /// Requests of the mixed phase, all threads together.
    #[must_use]
    pub fn mixed_ops(&self) -> u64 {
        match &self.scenario {
            Scenario::Contest { hot_ops, .. } => *hot_ops,
            Scenario::Ycsb { operations, .. } => *operations,
            Scenario::Trace(choice) => choice.summary.requests(),
            // These have no mixed phase.
            Scenario::Fairness(_)
            | Scenario::Expiry(_)
            | Scenario::Operations(_)
            | Scenario::Embed(_)
            | Scenario::Cache(_) => 0,
        }
    }

    /// Requests of one thread in a phase.
    #[must_use]
    pub fn steps(&self, phase: Phase, thread: u64) -> u64 {
        match phase {
            Phase::Hot | Phase::Transactions => {
                let (ops, threads) = (self.mixed_ops(), self.threads());
                ops / threads + u64::from(thread < ops % threads)
            }
            Phase::Replay => {
                let place = usize::try_from(thread).ok();
                let counts = self.trace().map(|trace| &trace.requests_by_thread);
                let count = counts.and_then(|counts| counts.get(place?));
                count.copied().unwrap_or(0)
            }
            _ => phase.steps(self.keys_per_core),
        }
    }

    /// How the keys of the mixed phase are drawn; `None` for scenarios that name their keys.
    #[must_use]
    pub fn key_draws(&self) -> Option<KeyDraws> {
        let (skew, is_latest) = match self.scenario {
            Scenario::Contest { skew, .. } => (skew, false),
            Scenario::Ycsb { skew, workload, .. } => (skew, workload == Workload::D),
            Scenario::Trace(_)
            | Scenario::Fairness(_)
            | Scenario::Expiry(_)
            | Scenario::Operations(_)
            | Scenario::Embed(_)
            | Scenario::Cache(_) => return None,
        };
        Some(KeyDraws {
            keys: if is_latest {
                self.keys_per_core
            } else {
                self.keys()
            },
            count: self.mixed_ops().div_ceil(self.threads()),
            zipf: skew.zipf,
            scattered: !is_latest,
            seed: self.seed,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests;
