//! What is to be run: every choice made, checked against the machine, ready to be handed to another
//! process.

use std::path::PathBuf;

use farcore_tuning::{Profile, ProfileError};
use serde::{Deserialize, Serialize};

use crate::fairness::Settings;
use crate::fairness::keys::Keys;
use crate::machine::Machine;
use crate::phase::{CONTEST, Phase, TRACE, YCSB};
use crate::record::{KEY_BYTES, VALUE_BYTES_MAX, VALUE_BYTES_MEAN, VALUE_GRAIN_BYTES};
use crate::skew::{Skew, ZIPF_MAX};
use crate::trace::{Choice, Summary};
use crate::watch::Watch;

/// Most keys of all threads together: hot streams hold 32-bit indexes.
pub const KEYS_MAX: u64 = 1 << 32;
/// Least local memory for each core, in bytes.
pub const LOCAL_BYTES_MIN: u64 = 1 << 20;
/// Most requests in flight on a core.
pub const WINDOW_MAX: usize = 4096;
/// Most embedded memory nodes.
pub const FAR_NODES_MAX: usize = 64;
/// Far latency above which a request would outlast any sensible run, in nanoseconds.
pub const FAR_LATENCY_NS_MAX: u64 = 1_000_000_000;

const RECORD_HEADER_BYTES: u64 = 16;
/// What a map in plain memory takes for each key besides key and value: two allocations, two fat
/// pointers, slack.
const MAP_OVERHEAD_BYTES: u64 = 96;
const SPARE_BYTES: u64 = 256 << 20;

/// A wish that cannot be granted, with the limit and the value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A core that is not there.
    #[error(
        "--cores names core {core}, which does not exist or is not allowed here: the cores are {available:?}"
    )]
    Core {
        /// The core asked for.
        core: usize,
        /// The cores that there are.
        available: Vec<usize>,
    },
    /// A core named twice.
    #[error("--cores names core {core} twice: give each core once")]
    CoreTwice {
        /// The core.
        core: usize,
    },
    /// A number out of range.
    #[error("{flag} is {value}: {limit}")]
    Range {
        /// The flag.
        flag: &'static str,
        /// The value given.
        value: String,
        /// What it must be.
        limit: String,
    },
    /// The machine is too small.
    #[error(
        "not enough memory for {engine}: about {needed_mib} MiB are needed and {available_mib} MiB are available; \
         lower {flags}"
    )]
    Memory {
        /// The engine that needs most.
        engine: &'static str,
        /// What it needs.
        needed_mib: u64,
        /// What there is.
        available_mib: u64,
        /// Which flags to lower.
        flags: &'static str,
    },
    /// The file of the settings is none.
    #[error(transparent)]
    Profile(#[from] ProfileError),
}

/// What far memory holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Encryption {
    /// Plaintext.
    #[default]
    Off,
    /// Ciphertext whose change is noticed. An engine that has no such mode takes the other one.
    Authenticated,
    /// Ciphertext.
    SecrecyOnly,
}

impl Encryption {
    /// True if far memory holds ciphertext.
    #[must_use]
    pub fn is_on(self) -> bool {
        self != Self::Off
    }

    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Authenticated => "authenticated",
            Self::SecrecyOnly => "secrecy only",
        }
    }
}

/// The engines that can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum EngineName {
    /// This project's engine.
    Farcore,
    /// The same with far memory in this process, whatever `--fabric` says.
    FarcoreEmbedded,
    /// 64 locked entities, pages, LRU, whole-page far memory.
    LockedLru,
    /// One `DashMap`; everything in local memory.
    Dashmap,
    /// `RwLock<HashMap>` shards; everything in local memory.
    Sharded,
    /// The map of the crate `scc`; everything in local memory.
    #[cfg(feature = "peers")]
    Scc,
    /// The map of the crate `papaya`; everything in local memory.
    #[cfg(feature = "peers")]
    Papaya,
    /// The cache of the crate `quick_cache`; everything in local memory.
    #[cfg(feature = "peers")]
    QuickCache,
    /// The cache of the crate `moka`; everything in local memory.
    #[cfg(feature = "peers")]
    Moka,
    /// The memory cache of the crate `foyer`; everything in local memory.
    #[cfg(feature = "peers")]
    Foyer,
    /// The store of the crate `fjall`: files, and a cache as large as the local memory.
    #[cfg(feature = "peers")]
    Fjall,
    /// RocksDB: files, and a cache as large as the local memory.
    #[cfg(feature = "rocksdb")]
    Rocksdb,
}

impl EngineName {
    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Farcore => "farcore",
            Self::FarcoreEmbedded => "farcore-embedded",
            Self::LockedLru => "locked-lru",
            Self::Dashmap => "dashmap",
            Self::Sharded => "sharded",
            #[cfg(feature = "peers")]
            Self::Scc => "scc",
            #[cfg(feature = "peers")]
            Self::Papaya => "papaya",
            #[cfg(feature = "peers")]
            Self::QuickCache => "quick-cache",
            #[cfg(feature = "peers")]
            Self::Moka => "moka",
            #[cfg(feature = "peers")]
            Self::Foyer => "foyer",
            #[cfg(feature = "peers")]
            Self::Fjall => "fjall",
            #[cfg(feature = "rocksdb")]
            Self::Rocksdb => "rocksdb",
        }
    }

    /// Whether it is this project's, wherever its far memory is.
    #[must_use]
    pub const fn is_ours(self) -> bool {
        matches!(self, Self::Farcore | Self::FarcoreEmbedded)
    }

    /// Whether the engine knows a far tier.
    #[must_use]
    pub const fn has_far_tier(self) -> bool {
        matches!(
            self,
            Self::Farcore | Self::FarcoreEmbedded | Self::LockedLru
        )
    }
}

/// The YCSB core workloads without scans.
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
    /// Half reads, half read-modify-writes.
    F,
}

/// Which phases, over what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scenario {
    /// The contest's flow.
    Contest {
        /// Requests of the hot mix, all threads together.
        hot_ops: u64,
        /// Which keys they ask for.
        #[serde(default)]
        skew: Skew,
    },
    /// One YCSB workload.
    Ycsb {
        /// Which one.
        workload: Workload,
        /// Transactions, all threads together.
        operations: u64,
        /// Bytes of each value.
        value_bytes: usize,
        /// Which keys are asked for, or for workload D how far behind the latest.
        #[serde(default)]
        skew: Skew,
    },
    /// A trace, as [`trace::scenario`](crate::trace::scenario) makes it.
    Trace(Box<Choice>),
    /// One client beside others, as [`fairness`](crate::fairness) runs it.
    Fairness(Box<Settings>),
}

/// One run of one engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The engine.
    pub engine: EngineName,
    /// The cores, one thread each.
    pub cores: Vec<usize>,
    /// Keys of each thread.
    pub keys_per_core: u64,
    /// Cap on local memory.
    pub local_bytes: u64,
    /// Size of far memory.
    pub far_bytes: u64,
    /// Memory nodes that it lies on; none is in this process.
    #[serde(default)]
    pub fabric: Vec<String>,
    /// The file of the secret that they ask for.
    #[serde(default)]
    pub token_file: Option<PathBuf>,
    /// How many of the nodes must answer before it begins; none is all.
    #[serde(default)]
    pub nodes_min: Option<usize>,
    /// The RDMA device, by name.
    pub device: Option<String>,
    /// Its port.
    pub port: Option<u8>,
    /// The entry of its GID table.
    pub gid_index: Option<u8>,
    /// Embedded memory nodes that share it; engines without nodes take it as one.
    pub far_nodes: usize,
    /// Latency added to each far access.
    pub far_latency_ns: u64,
    /// Most requests in flight on a core.
    pub window: usize,
    /// Settings of this project's engine. The window stands above, for every engine has one.
    #[serde(default)]
    pub profile: Profile,
    /// Whether far memory holds ciphertext, and of which kind.
    pub encrypt: Encryption,
    /// Whether memory is touched before the first phase.
    pub prefault: bool,
    /// Names the keys, the values and the order of the hot mix.
    pub seed: u64,
    /// Where the engine's figures can be watched.
    #[serde(default)]
    pub watch: Watch,
    /// Where the engine's requests are recorded; engines other than `farcore` do not.
    #[serde(default)]
    pub record: Option<PathBuf>,
    /// The phases.
    pub scenario: Scenario,
}

impl Plan {
    /// The same with other settings.
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

    /// Threads, one for each core.
    #[must_use]
    pub fn threads(&self) -> u64 {
        self.cores.len() as u64
    }

    /// Keys written first, all threads together.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.keys_per_core.saturating_mul(self.threads())
    }

    /// Most keys ever stored.
    #[must_use]
    pub fn keys_max(&self) -> u64 {
        match &self.scenario {
            Scenario::Ycsb {
                workload: Workload::D,
                operations,
                ..
            } => {
                // 5 % inserts, with room for chance.
                self.keys() + operations / 16 + 1024
            }
            Scenario::Trace(choice) => choice.summary.keys,
            Scenario::Fairness(settings) => Keys::new(settings, self.keys(), self.seed).count(),
            _ => self.keys(),
        }
    }

    /// Handles that are in use at once: the other scenarios run as jobs on the engine's cores.
    #[must_use]
    pub fn handles(&self) -> usize {
        match &self.scenario {
            Scenario::Fairness(settings) => settings.clients(),
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
            // Its phases are as long as time says.
            Scenario::Fairness(_) => &[],
        }
    }

    /// What the trace holds, where there is one.
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
            // As many as fit the time.
            Scenario::Fairness(_) => 0,
        }
    }

    /// Requests that one thread makes in a phase.
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

    /// Bytes of all records as first written, headers included; for a trace, of the most that are
    /// stored at once.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        let value_bytes = match &self.scenario {
            Scenario::Contest { .. } => VALUE_BYTES_MEAN,
            Scenario::Ycsb { value_bytes, .. } => *value_bytes as u64,
            Scenario::Trace(choice) => {
                let headers = self.keys_max().saturating_mul(RECORD_HEADER_BYTES);
                return choice.summary.live_bytes_peak.saturating_add(headers);
            }
            Scenario::Fairness(settings) => return settings.data_bytes(self.keys()),
        };
        self.keys_max()
            .saturating_mul(value_bytes + KEY_BYTES as u64 + RECORD_HEADER_BYTES)
    }

    /// About how much memory the run will take, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let bytes = match self.engine {
            // What lies on memory nodes is not this process's.
            EngineName::Farcore if !self.fabric.is_empty() => self.local_bytes,
            EngineName::Farcore | EngineName::FarcoreEmbedded => {
                self.local_bytes.saturating_add(self.far_bytes)
            }
            EngineName::LockedLru => {
                let map = self.data_bytes() + self.keys_max().saturating_mul(MAP_OVERHEAD_BYTES);
                self.local_bytes
                    .min(map)
                    .saturating_mul(2)
                    .saturating_add(self.data_bytes())
            }
            _ => self
                .data_bytes()
                .saturating_add(self.keys_max().saturating_mul(MAP_OVERHEAD_BYTES)),
        };
        let scripts = self.trace().map_or(0, |trace| trace.memory_bytes);
        bytes.saturating_add(scripts).saturating_add(SPARE_BYTES)
    }

    /// Checks every choice.
    ///
    /// # Errors
    /// The first choice that cannot be granted.
    pub fn validate(&self, machine: &Machine) -> Result<(), PlanError> {
        for (place, &core) in self.cores.iter().enumerate() {
            if !machine.cores.contains(&core) {
                return Err(PlanError::Core {
                    core,
                    available: machine.cores.clone(),
                });
            }
            if self.cores[..place].contains(&core) {
                return Err(PlanError::CoreTwice { core });
            }
        }
        let range = |flag, value: String, limit: String| PlanError::Range { flag, value, limit };
        if self.cores.is_empty() {
            return Err(range(
                "--cores",
                "empty".into(),
                "name at least one core".into(),
            ));
        }
        if self.keys_per_core == 0 {
            return Err(range(
                "the number of keys a core",
                "0".into(),
                "it must be at least 1".into(),
            ));
        }
        if self.keys_max() > KEYS_MAX {
            return Err(range(
                "the number of keys",
                self.keys_max().to_string(),
                format!("at most {KEYS_MAX} in all"),
            ));
        }
        if !(1..=WINDOW_MAX).contains(&self.window) {
            let limit = format!("it must be 1 to {WINDOW_MAX} requests in flight a core");
            return Err(range("--window", self.window.to_string(), limit));
        }
        let counted = match self.scenario {
            Scenario::Contest { .. } => Some("--hot-ops"),
            Scenario::Ycsb { .. } => Some("--operations"),
            Scenario::Trace(_) => Some("the number of requests in the trace"),
            Scenario::Fairness(_) => None,
        };
        if let Some(flag) = counted
            && self.mixed_ops() == 0
        {
            return Err(range(flag, "0".into(), "it must be at least 1".into()));
        }
        if let Scenario::Contest { skew, .. } | Scenario::Ycsb { skew, .. } = self.scenario
            && !(0.0..=ZIPF_MAX).contains(&skew.zipf)
        {
            let limit = format!("it must be 0 (all keys alike) to {ZIPF_MAX}");
            return Err(range("--zipf", skew.zipf.to_string(), limit));
        }
        if let Scenario::Fairness(settings) = &self.scenario {
            settings.validate(self)?;
        }
        if let Scenario::Ycsb { value_bytes, .. } = self.scenario
            && (!(VALUE_GRAIN_BYTES..=VALUE_BYTES_MAX).contains(&value_bytes)
                || value_bytes % VALUE_GRAIN_BYTES != 0)
        {
            let limit = format!(
                "it must be a multiple of {VALUE_GRAIN_BYTES} from {VALUE_GRAIN_BYTES} to {VALUE_BYTES_MAX}"
            );
            return Err(range("--value-bytes", value_bytes.to_string(), limit));
        }
        let local_min = LOCAL_BYTES_MIN * self.threads();
        if self.local_bytes < local_min {
            let limit = format!("{} cores need at least {local_min} bytes", self.cores.len());
            return Err(range(
                "--local",
                format!("{} bytes", self.local_bytes),
                limit,
            ));
        }
        if self.engine.has_far_tier() && self.far_bytes == 0 {
            return Err(range(
                "--far",
                "0 bytes".into(),
                "far memory must have a size".into(),
            ));
        }
        if !(1..=FAR_NODES_MAX).contains(&self.far_nodes) {
            let limit = format!("it must be 1 to {FAR_NODES_MAX} memory nodes");
            return Err(range("--far-nodes", self.far_nodes.to_string(), limit));
        }
        if let Some(nodes_min) = self.nodes_min
            && !(1..=self.fabric.len()).contains(&nodes_min)
        {
            let limit = match self.fabric.len() {
                0 => "it is for memory nodes: name them with --fabric".into(),
                nodes => format!("it must be 1 to {nodes}, the memory nodes of --fabric"),
            };
            return Err(range("--nodes-min", nodes_min.to_string(), limit));
        }
        if self.far_latency_ns > FAR_LATENCY_NS_MAX {
            let limit = "it must be at most one second".into();
            return Err(range(
                "--far-latency",
                format!("{} ns", self.far_latency_ns),
                limit,
            ));
        }
        let (needed, available) = (self.memory_bytes(), machine.memory_available_bytes);
        if needed > available {
            return Err(PlanError::Memory {
                engine: self.engine.name(),
                needed_mib: needed >> 20,
                available_mib: available >> 20,
                flags: match self.engine {
                    EngineName::Farcore | EngineName::FarcoreEmbedded => "--local or --far",
                    _ => "the number of keys, or leave the engine out of --engines",
                },
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contest(hot_ops: u64) -> Scenario {
        Scenario::Contest {
            hot_ops,
            skew: Skew::default(),
        }
    }

    fn plan() -> Plan {
        Plan {
            engine: EngineName::Farcore,
            cores: vec![0, 1],
            keys_per_core: 1000,
            local_bytes: 64 << 20,
            far_bytes: 64 << 20,
            fabric: Vec::new(),
            token_file: None,
            nodes_min: None,
            device: None,
            port: None,
            gid_index: None,
            far_nodes: 1,
            far_latency_ns: 0,
            window: 64,
            profile: Profile::default(),
            encrypt: Encryption::Off,
            prefault: true,
            seed: 1,
            watch: Watch::default(),
            record: None,
            scenario: contest(1000),
        }
    }

    fn machine() -> Machine {
        Machine {
            cores: vec![0, 1],
            memory_available_bytes: 1 << 30,
            ..Machine::default()
        }
    }

    #[test]
    fn a_sound_plan_passes() {
        assert_eq!(plan().validate(&machine()), Ok(()));
    }

    #[expect(clippy::type_complexity, reason = "a table of cases")]
    #[test]
    fn bad_wishes_are_named_with_limit_and_value() {
        let cases: [(fn(&mut Plan), &str); 10] = [
            (
                |plan| plan.cores = vec![0, 7],
                "core 7, which does not exist",
            ),
            (|plan| plan.cores = vec![1, 1], "core 1 twice"),
            (|plan| plan.cores.clear(), "at least one core"),
            (|plan| plan.keys_per_core = 0, "must be at least 1"),
            (
                |plan| plan.far_nodes = 65,
                "--far-nodes is 65: it must be 1 to 64",
            ),
            (
                |plan| plan.window = 0,
                "--window is 0: it must be 1 to 4096",
            ),
            (
                |plan| plan.local_bytes = 4096,
                "--local is 4096 bytes: 2 cores need at least 2097152",
            ),
            (
                |plan| plan.far_bytes = 8 << 30,
                "8512 MiB are needed and 1024 MiB are available",
            ),
            (|plan| plan.keys_per_core = 1 << 33, "at most 4294967296"),
            (|plan| plan.scenario = contest(0), "--hot-ops is 0"),
        ];
        for (spoil, message) in cases {
            let mut plan = plan();
            spoil(&mut plan);
            let error = plan.validate(&machine()).expect_err(message).to_string();
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn mixed_requests_are_shared_out_in_full() {
        let mut plan = plan();
        plan.scenario = contest(1001);
        assert_eq!(plan.steps(Phase::Hot, 0) + plan.steps(Phase::Hot, 1), 1001);
    }
}
