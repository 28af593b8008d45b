//! What an engine is made with, and the sizes that follow from it.

#[cfg(test)]
mod tests;
mod when_full;

use farcore_rdma::{FabricAddress, FabricEndpoint, LinkModel, Lock, Scheme, Token, VerbsOptions};
use farcore_tuning::Profile;

use crate::cipher::{EncryptionKey, EncryptionMode};
use crate::constants::{
    BATCH_MAX, CACHE_PERCENT_MAX, KEY_BYTES_MAX, PAGE_BYTES_MAX, PAGE_BYTES_MIN, QUEUE_DEPTH,
    READ_AHEAD_CHUNKS_MAX, SPIN_NS_MAX, VALUE_BYTES_MAX,
};
use crate::error::{Error, Result};
use crate::limits::{available_cores, processors};
use crate::log::PageShape;
use crate::shard::{Evictor, NODES_MAX, QUEUES_PER_NODE, Shard, ShardTuning};
use crate::transport::lane::{self, LANES_MAX};
use crate::transport::queue::OWN_INLINE_MAX;

pub use self::when_full::WhenFull;

/// Memory of one core that no shard uses: its executor, counters, stacks and the queue of its own
/// requests, in bytes.
const CORE_BYTES: u64 = 1 << 20;

/// The longest wait for memory nodes that do not answer.
const NODES_WAIT_NS_MAX: u64 = 86_400_000_000_000;
/// Memory of the thread that keeps sessions at memory nodes, where there are any, in bytes.
const HEARTBEATS_BYTES: u64 = 1 << 20;
/// Keys that an index can be sized for.
const KEYS_EXPECTED_MAX: u64 = 1 << 40;
/// One direction of a handle's lane, and the least that is derived for one between cores.
const LANE_BYTES: usize = 64 << 10;
/// One direction of a core's lanes to all the others, before each is rounded up to a power of two.
/// Source: measured on two cores, see docs/decisions/0018-lane-length.md.
const CORE_LANES_BYTES: usize = 1 << 20;
/// The share of local memory that lanes between cores may take where they are longer than the
/// least.
const CORE_LANES_SHARE: u64 = 32;

/// How to open an engine. Every field has a default that suits a small machine.
#[derive(Clone, Debug)]
pub struct Config {
    /// The cores, one shard each. Default: one processor of each physical core that this process
    /// may use, and no more than its control group's quota pays for. They are pinned and poll while
    /// they are busy; a core without work leaves its processor to the program around it.
    pub cores: Vec<usize>,
    /// The cap on local memory in bytes: index, frames, lanes, landing buffers, counters, the
    /// threads' stacks. Default 1 GiB. Pages of the program's own files, some 2 MiB once all of its
    /// code has run, are not counted: the kernel drops them when it needs room.
    pub local_bytes: u64,
    /// Far memory in bytes. Default 4 GiB.
    pub far_bytes: u64,
    /// What a put does when memory is full: it fails, or other records are removed for it. Default:
    /// [`WhenFull::Refuse`].
    pub when_full: WhenFull,
    /// A page of the log in bytes, a power of two from 64 KiB to 2 MiB. Default: a 64th of a
    /// shard's local memory.
    pub page_bytes: Option<u32>,
    /// Keys that the index is sized for at the start, at 10 bytes each, or up to 20 where that is
    /// no more than a 32nd of the local memory; it grows beyond. Default 1 million.
    pub keys_expected: u64,
    /// The memory nodes that far memory lies on, as `tcp://host:port`. Default: none; far memory is
    /// in this process.
    pub nodes: Vec<FabricAddress>,
    /// How many of [`Config::nodes`] must answer each core before the engine opens. It opens as
    /// soon as so many answer and each other one was tried once. The others join when they come:
    /// their share of `far_bytes` is claimed then. Default: all.
    pub nodes_min: Option<usize>,
    /// How long opening waits for [`Config::nodes_min`] nodes, in nanoseconds: at most a day. If
    /// fewer have answered by then, [`Engine::open`](crate::Engine::open) returns
    /// [`Error::Unavailable`]. Missing nodes are logged once a second. Default 10 s.
    pub nodes_wait_ns: u64,
    /// The secret that the memory nodes ask for. Default: none.
    pub token: Option<Token>,
    /// How long a memory node may leave a request unanswered before what lies there is unavailable,
    /// in nanoseconds. Default 1 s.
    pub far_silence_ns: u64,
    /// Device and queue pairs, where the memory nodes are reached over an RDMA device.
    pub verbs: VerbsOptions,
    /// Embedded memory nodes, which share `far_bytes` evenly: 1 to 64. Default 1.
    pub embedded_nodes: usize,
    /// How far the embedded far memory pretends to be. Default: no distance, no faults.
    pub link: LinkModel,
    /// Encrypts far memory and the wire. Default: none, everything there is plaintext.
    pub encryption: Option<EncryptionKey>,
    /// What the encryption promises, if there is a key. Default:
    /// [`EncryptionMode::Authenticated`], which is AES-GCM.
    pub encryption_mode: EncryptionMode,
    /// Touch all memory at the start, local and embedded far memory, so that no request waits for
    /// the kernel. Default: yes, which takes 5 GiB with the default sizes.
    pub prefault: bool,
    /// Ask for huge pages. Default: yes.
    pub huge_pages: bool,
    /// Lock local memory. Default: where the limit allows.
    pub lock: Lock,
    /// Handles that can be in use at once, one a thread: at most 255 less the number of
    /// [`Config::cores`]. Each takes a lane of local memory to each shard. Default 4.
    pub handles_max: usize,
    /// One direction of a lane from a handle to a shard in bytes, a power of two from 16 KiB to 16
    /// MiB. Half of those to the shard are for keys and values, and a request can wait for each 64
    /// of them, up to 1024. Default 64 KiB.
    pub handle_lane_bytes: usize,
    /// The same of a lane between two cores. Default: as [`Config::lane_bytes_used`] derives it.
    pub lane_bytes: Option<usize>,
    /// How long an idle core spins before it sleeps, in nanoseconds: at most 1 s. Default 50 us.
    pub spin_ns: u64,
    /// Requests that are taken from a lane, or from the core's own queue, and served together, so
    /// that their cache misses overlap, 1 to 128. Default 64.
    pub batch: usize,
    /// The most page frames that the read cache may take, in percent: 0 to 90, where 0 is no read
    /// cache. Within it the split between log and cache follows the hits. Default 75.
    pub cache_percent: u8,
    /// Chunks that are kept ahead of misses that walk the log in order, all walks of a shard
    /// together: 0 to 12, where 0 is no reading ahead. A chunk is a 512th of a shard's local
    /// memory, from 8 to 64 KiB. Default 12.
    pub read_ahead_chunks: u32,
    /// The seed of the key hash. Default: random, so that no client can choose keys that
    /// collide.
    pub seed: Option<u64>,
    /// Hash tags: if a key has a part between its first `{` and the next `}`, and that part is not
    /// empty, it alone decides the key's shard, as in a Redis Cluster. So keys with one tag can be
    /// changed by one [`Transaction`](crate::Transaction). Many keys with one tag load one core.
    /// Default: no.
    pub hash_tags: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            cores: processors().for_engine(),
            local_bytes: 1 << 30,
            far_bytes: 4 << 30,
            when_full: WhenFull::default(),
            page_bytes: None,
            keys_expected: 1_000_000,
            nodes: Vec::new(),
            nodes_min: None,
            nodes_wait_ns: 10_000_000_000,
            token: None,
            far_silence_ns: 1_000_000_000,
            verbs: VerbsOptions::default(),
            embedded_nodes: 1,
            link: LinkModel::default(),
            encryption: None,
            encryption_mode: EncryptionMode::default(),
            prefault: true,
            huge_pages: true,
            lock: Lock::Try,
            handles_max: 4,
            handle_lane_bytes: LANE_BYTES,
            lane_bytes: None,
            spin_ns: 50_000,
            batch: 64,
            cache_percent: 75,
            read_ahead_chunks: READ_AHEAD_CHUNKS_MAX,
            seed: None,
            hash_tags: false,
        }
    }
}

/// The sizes that follow from a configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) page_bytes: u32,
    /// One direction of a lane between two cores.
    pub(crate) lane_bytes: usize,
    /// The arena of one shard.
    pub(crate) arena_bytes: u64,
    /// What each memory node lends, in whole pages.
    pub(crate) node_bytes: u64,
    /// The most extents of one shard.
    pub(crate) extents_max: usize,
    pub(crate) value_bytes_max: usize,
}

/// What so much local memory is divided into, enough or not.
#[derive(Clone, Copy, Debug)]
struct Budget {
    lane_bytes: usize,
    /// Pages that each memory node lends.
    pages_of_node: u64,
    /// The most extents of one shard.
    extents: u64,
    value_bytes_max: usize,
    /// One core's share.
    share: u64,
    /// The least share that will do.
    share_min: u64,
    /// What lanes, tables and connections leave of the share, in whole pages.
    arena_bytes: u64,
}

fn wrong(field: &'static str, value: impl ToString, limit: impl Into<String>) -> Error {
    Error::Config {
        field,
        value: value.to_string(),
        limit: limit.into(),
    }
}

/// The same of a size.
fn wrong_bytes(
    field: &'static str,
    bytes: impl std::fmt::Display,
    limit: impl Into<String>,
) -> Error {
    wrong(field, format_args!("{bytes} bytes"), limit)
}

/// "1 core", "2 cores".
fn counted(count: u64, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{ending}")
}

/// True if a shard's addresses reach all of its pages, local and far.
fn fits_in_addresses(budget: &Budget, page: u64, pages_max: u64) -> bool {
    budget.extents.saturating_add(budget.share / page) + 2 <= pages_max
}

/// What a value may take beside a lane, or beside a core's own queue, where some are too long for
/// it.
fn bytes_beside(inline_max: usize, value_bytes_max: usize) -> usize {
    if value_bytes_max > inline_max {
        value_bytes_max + 2 * KEY_BYTES_MAX
    } else {
        0
    }
}

impl Config {
    /// The default with the settings of a profile. Its window is for those who submit: the engine
    /// has none.
    #[must_use]
    pub fn from_profile(profile: &Profile) -> Self {
        let default = Self::default();
        Self {
            batch: profile.batch.map_or(default.batch, |batch| batch as usize),
            page_bytes: profile.page_bytes.or(default.page_bytes),
            cache_percent: profile.cache_percent.unwrap_or(default.cache_percent),
            read_ahead_chunks: profile
                .read_ahead_chunks
                .unwrap_or(default.read_ahead_chunks),
            lane_bytes: profile.lane_bytes.map(|bytes| bytes as usize),
            spin_ns: profile.spin_ns.map_or(default.spin_ns, u64::from),
            ..default
        }
    }

    /// The bytes of a page that [`Config::page_bytes`] gives, or that follow from local memory and
    /// cores.
    #[must_use]
    pub fn page_bytes_used(&self) -> u32 {
        self.page_bytes_of(self.local_bytes)
    }

    fn page_bytes_of(&self, local_bytes: u64) -> u32 {
        self.page_bytes.unwrap_or_else(|| {
            let share = local_bytes / (self.cores.len() as u64).max(1);
            let derived = usize::try_from(share / 64).unwrap_or(usize::MAX);
            let derived = 1usize << derived.max(1).ilog2();
            let derived = derived.clamp(PAGE_BYTES_MIN, PAGE_BYTES_MAX);
            u32::try_from(derived).unwrap_or(u32::MAX)
        })
    }

    /// The bytes of one direction of a lane between two cores: [`Config::lane_bytes`], or else a
    /// derived size.
    ///
    /// The derived size is 1 MiB divided among the other cores and rounded up to a power of two, at
    /// least 64 KiB. So a line that a core writes for another one has left both caches when it is
    /// written again, which costs less than taking it back from the other cache (measured). It is
    /// halved, down to 64 KiB, while all lanes of a core take more than a 32nd of its local memory,
    /// or while the engine would not fit. On one core there is no such lane, and the size is that
    /// of two cores.
    ///
    /// # Errors
    /// As [`Config::validate`].
    pub fn lane_bytes_used(&self) -> Result<usize> {
        self.sizes().map(|sizes| sizes.lane_bytes)
    }

    /// The longest lanes between cores that so much local memory may have.
    fn lane_bytes_most(&self, local_bytes: u64) -> usize {
        let others = self.cores.len().saturating_sub(1).max(1);
        let most = local_bytes / (others as u64 + 1) / CORE_LANES_SHARE;
        let mut bytes = (CORE_LANES_BYTES / others).next_power_of_two();
        while bytes > LANE_BYTES && (others * lane::lane_bytes(bytes)) as u64 > most {
            bytes /= 2;
        }
        bytes.max(LANE_BYTES)
    }

    /// Bytes of the lanes to one shard, and of the values that are too long for one: they lie
    /// beside it, one each way, with their keys.
    fn lanes_bytes(&self, lane_bytes: usize, value_bytes_max: usize) -> u64 {
        let one = |bytes: usize| {
            let beside = 2 * bytes_beside(lane::inline_max(bytes), value_bytes_max);
            (lane::lane_bytes(bytes) + beside) as u64
        };
        let others = self.cores.len().saturating_sub(1) as u64;
        others * one(lane_bytes) + self.handles_max as u64 * one(self.handle_lane_bytes)
    }

    /// Far records carry tags.
    fn authenticates(&self) -> bool {
        self.encryption.is_some() && self.encryption_mode == EncryptionMode::Authenticated
    }

    /// Divides so much local memory. What is divided has been checked before, but for whether it is
    /// enough.
    fn budget(&self, local_bytes: u64, nodes: u64) -> Budget {
        let cores = self.cores.len() as u64;
        let share = local_bytes / cores;
        let page_bytes = self.page_bytes_of(local_bytes);
        let page = u64::from(page_bytes);
        let pages_of_node = self.far_bytes / nodes / page;
        // Those that are left over go round, so that no shard has more than one of each node more
        // than another.
        let extents = pages_of_node.div_ceil(cores).saturating_mul(nodes);
        let value_bytes_max = VALUE_BYTES_MAX.min(page_bytes as usize / 2);
        let others = CORE_BYTES
            + bytes_beside(OWN_INLINE_MAX, value_bytes_max) as u64
            + Shard::<FabricEndpoint>::table_bytes(
                share,
                page_bytes,
                extents,
                self.authenticates(),
            )
            + Shard::<FabricEndpoint>::fact_bytes(self.cores.len() + self.handles_max)
            + self.evictor_bytes(share, extents, page)
            + self.fabric_bytes();
        let least =
            Shard::<FabricEndpoint>::local_bytes_min(page_bytes, self.keys_expected / cores);
        let most = self.lane_bytes_most(local_bytes);
        let mut lane_bytes = self.lane_bytes.unwrap_or(most);
        loop {
            let fixed = others + self.lanes_bytes(lane_bytes, value_bytes_max);
            let share_min = fixed + least;
            if share < share_min && self.lane_bytes.is_none() && lane_bytes > LANE_BYTES {
                lane_bytes /= 2;
                continue;
            }
            return Budget {
                lane_bytes,
                pages_of_node,
                extents,
                value_bytes_max,
                share,
                share_min,
                arena_bytes: share.saturating_sub(fixed) / page * page,
            };
        }
    }

    /// Bytes of what a shard that evicts keeps beside its tables.
    fn evictor_bytes(&self, share: u64, extents: u64, page: u64) -> u64 {
        match self.when_full {
            WhenFull::Refuse => 0,
            WhenFull::Evict => Evictor::bytes_for(share, extents, page),
        }
    }

    /// The least local memory that will do, where what there is will not: tables grow with it, and
    /// pages may. `None` if none does, for it is more than the shards can address.
    fn local_bytes_min(&self, nodes: u64) -> Option<u64> {
        let mut bytes = self.local_bytes;
        loop {
            let budget = self.budget(bytes, nodes);
            let page_bytes = self.page_bytes_of(bytes);
            let pages_max = PageShape::new(page_bytes).pages_max();
            if !fits_in_addresses(&budget, u64::from(page_bytes), pages_max) {
                return None;
            }
            if budget.share >= budget.share_min {
                return Some(bytes);
            }
            bytes = budget.share_min.saturating_mul(self.cores.len() as u64);
        }
    }

    /// The highest value of a field, below one for which none does, for which some local memory
    /// will do; 0 if there is none.
    fn most(&self, too_high: u64, nodes: u64, set: impl Fn(&mut Self, u64)) -> u64 {
        let (mut enough, mut too_high) = (0, too_high);
        while too_high - enough > 1 {
            let value = enough.midpoint(too_high);
            let mut config = self.clone();
            set(&mut config, value);
            if config.local_bytes_min(nodes).is_some() {
                enough = value;
            } else {
                too_high = value;
            }
        }
        enough
    }

    /// The most far memory that `local_bytes` suffices for: with the expected number of keys, or,
    /// where no far memory is possible with so many, with none.
    fn far_bytes_most(&self, nodes: u64) -> u64 {
        let most = self.most(self.far_bytes, nodes, |config, far_bytes| {
            config.far_bytes = far_bytes;
        });
        if most > 0 {
            return most;
        }
        self.most(self.far_bytes, nodes, |config, far_bytes| {
            config.far_bytes = far_bytes;
            config.keys_expected = 0;
        })
    }

    /// The part of the settings that a shard keeps.
    pub(crate) fn tuning(&self) -> ShardTuning {
        ShardTuning {
            batch: self.batch,
            cache_percent: self.cache_percent,
            read_ahead_chunks: self.read_ahead_chunks,
        }
    }

    fn check_knobs(&self) -> Result<()> {
        if !(1..=BATCH_MAX).contains(&self.batch) {
            return Err(wrong("batch", self.batch, format!("1 to {BATCH_MAX}")));
        }
        if self.cache_percent > CACHE_PERCENT_MAX {
            let limit = format!("0 to {CACHE_PERCENT_MAX}; the log needs the rest");
            return Err(wrong("cache_percent", self.cache_percent, limit));
        }
        if self.read_ahead_chunks > READ_AHEAD_CHUNKS_MAX {
            let limit = format!("0 to {READ_AHEAD_CHUNKS_MAX}");
            return Err(wrong("read_ahead_chunks", self.read_ahead_chunks, limit));
        }
        if self.spin_ns > SPIN_NS_MAX {
            let limit = format!("at most {SPIN_NS_MAX}, a second");
            return Err(wrong("spin_ns", self.spin_ns, limit));
        }
        Ok(())
    }

    /// Checks every field.
    ///
    /// # Errors
    /// [`Error::Config`] names the first field that is out of range, its value and its limit;
    /// [`Error::Core`] a core that is not there.
    pub fn validate(&self) -> Result<()> {
        self.sizes().map(drop)
    }

    /// The longest value that an engine of this configuration takes, in bytes: half a page, 1 MiB
    /// at most.
    ///
    /// Two records of half a page do not fit one page beside its header and directory, nor do two
    /// of more than half a page less the key and some 100 bytes. Where most values are so long,
    /// half of each page is empty: far and local memory hold half as much.
    ///
    /// # Errors
    /// As [`Config::validate`].
    pub fn value_bytes_max(&self) -> Result<usize> {
        self.sizes().map(|sizes| sizes.value_bytes_max)
    }

    /// How many memory nodes there are, of either kind.
    fn nodes_checked(&self) -> Result<usize> {
        let limit = || format!("1 to {NODES_MAX}");
        if self.nodes.is_empty() {
            if !(1..=NODES_MAX).contains(&self.embedded_nodes) {
                return Err(wrong("embedded_nodes", self.embedded_nodes, limit()));
            }
            if let Some(nodes_min) = self.nodes_min {
                let limit = "memory nodes of other processes: name `nodes`, or leave it out";
                return Err(wrong("nodes_min", nodes_min, limit));
            }
            return Ok(self.embedded_nodes);
        }
        if self.nodes.len() > NODES_MAX {
            return Err(wrong("nodes", self.nodes.len(), limit()));
        }
        let nodes_min = self.nodes_min.unwrap_or(self.nodes.len());
        if !(1..=self.nodes.len()).contains(&nodes_min) {
            let limit = format!("1 to {}, the number of `nodes`", self.nodes.len());
            return Err(wrong("nodes_min", nodes_min, limit));
        }
        if self.nodes_wait_ns > NODES_WAIT_NS_MAX {
            let limit = format!("at most {NODES_WAIT_NS_MAX}, a day");
            return Err(wrong("nodes_wait_ns", self.nodes_wait_ns, limit));
        }
        for (place, node) in self.nodes.iter().enumerate() {
            if self.nodes[..place].contains(node) {
                return Err(wrong("nodes", node, "name each memory node once"));
            }
            if node.scheme() != Scheme::Tcp && !cfg!(feature = "verbs") {
                let limit = "this build speaks `tcp://` only: build it with the feature `verbs`";
                return Err(wrong("nodes", node, limit));
            }
            if (node.scheme() == Scheme::Tcp) != (self.nodes[0].scheme() == Scheme::Tcp) {
                let limit = "reach all memory nodes by sockets, or all over RDMA devices";
                return Err(wrong("nodes", node, limit));
            }
        }
        if !(1_000_000..=600_000_000_000).contains(&self.far_silence_ns) {
            let limit = "1 ms to 10 minutes, in nanoseconds";
            return Err(wrong("far_silence_ns", self.far_silence_ns, limit));
        }
        self.verbs
            .validate()
            .map_err(|error| wrong("verbs", error.field, error.to_string()))?;
        Ok(self.nodes.len())
    }

    /// Bytes of one core's connections.
    fn fabric_bytes(&self) -> u64 {
        let scheme = self
            .nodes
            .first()
            .map_or(Scheme::Tcp, farcore_rdma::FabricAddress::scheme);
        let cores = self.cores.len() as u64;
        let heartbeats = match self.nodes.is_empty() {
            true => 0,
            false => HEARTBEATS_BYTES.div_ceil(cores.max(1)),
        };
        let queues = self.nodes.len() * QUEUES_PER_NODE;
        FabricEndpoint::bytes_for(scheme, queues, QUEUE_DEPTH) + heartbeats
    }

    pub(crate) fn sizes(&self) -> Result<Sizes> {
        let cores = self.cores.len() as u64;
        self.check_cores()?;
        self.check_lanes()?;
        self.check_knobs()?;
        let page_bytes = self.page_bytes_used();
        let range = PAGE_BYTES_MIN..=PAGE_BYTES_MAX;
        if !page_bytes.is_power_of_two() || !range.contains(&(page_bytes as usize)) {
            return Err(wrong_bytes(
                "page_bytes",
                page_bytes,
                "a power of two from 64 KiB to 2 MiB",
            ));
        }
        let nodes = self.nodes_checked()? as u64;
        let page = u64::from(page_bytes);
        let budget = self.budget(self.local_bytes, nodes);
        if budget.pages_of_node < cores {
            let limit = format!(
                "at least {} bytes, a page of {page} bytes for each of {} on each of {}",
                nodes * cores * page,
                counted(cores, "core"),
                counted(nodes, "memory node")
            );
            return Err(wrong_bytes("far_bytes", self.far_bytes, limit));
        }
        self.check_addresses(&budget, page, nodes)?;
        self.check_share(&budget, nodes)?;
        Ok(Sizes {
            page_bytes,
            lane_bytes: budget.lane_bytes,
            arena_bytes: budget.arena_bytes,
            node_bytes: budget.pages_of_node * page,
            extents_max: usize::try_from(budget.extents).unwrap_or(usize::MAX),
            value_bytes_max: budget.value_bytes_max,
        })
    }

    fn check_cores(&self) -> Result<()> {
        let available = available_cores();
        if let Some(&core) = self.cores.iter().find(|core| !available.contains(core)) {
            return Err(Error::Core { core, available });
        }
        if self.cores.is_empty() {
            return Err(wrong("cores", "empty", "name at least one core"));
        }
        let mut distinct = self.cores.clone();
        distinct.sort_unstable();
        distinct.dedup();
        if distinct.len() != self.cores.len() {
            return Err(wrong(
                "cores",
                format!("{:?}", self.cores),
                "name each core once",
            ));
        }
        Ok(())
    }

    /// Handles, lanes and keys.
    fn check_lanes(&self) -> Result<()> {
        let lanes_left = LANES_MAX.saturating_sub(self.cores.len());
        if self.handles_max > lanes_left {
            let limit = format!(
                "at most {lanes_left} with {}, for a shard has {LANES_MAX} lanes, one for each core and handle",
                counted(self.cores.len() as u64, "core")
            );
            return Err(wrong("handles_max", self.handles_max, limit));
        }
        let of_handles = Some(self.handle_lane_bytes);
        for (field, bytes) in [
            ("handle_lane_bytes", of_handles),
            ("lane_bytes", self.lane_bytes),
        ] {
            if let Some(bytes) = bytes
                && !(bytes.is_power_of_two() && (16 << 10..=16 << 20).contains(&bytes))
            {
                let limit = "a power of two from 16 KiB to 16 MiB";
                return Err(wrong_bytes(field, bytes, limit));
            }
        }
        if self.keys_expected > KEYS_EXPECTED_MAX {
            let limit = format!("at most {KEYS_EXPECTED_MAX}");
            return Err(wrong("keys_expected", self.keys_expected, limit));
        }
        Ok(())
    }

    /// Local and far pages of a core have one range of numbers.
    fn check_addresses(&self, budget: &Budget, page: u64, nodes: u64) -> Result<()> {
        let cores = self.cores.len() as u64;
        let of_cores = counted(cores, "core");
        let page_bytes = self.page_bytes_used();
        let pages_max = PageShape::new(page_bytes).pages_max();
        let local_pages = budget.share / page;
        if !fits_in_addresses(budget, page, pages_max) {
            let because = format!(
                "for {of_cores} with pages of {page_bytes} bytes: those of a core's local and far memory are {pages_max} together at most; raise `page_bytes`"
            );
            // Half of the pages, if they have to be shared.
            let left = pages_max - budget.extents.min(pages_max / 2) - 2;
            if local_pages > left || local_pages > budget.extents {
                let most = left.saturating_mul(page).saturating_mul(cores);
                let limit = format!("at most {most} bytes {because}");
                return Err(wrong_bytes("local_bytes", self.local_bytes, limit));
            }
            let limit = format!("at most {} bytes {because}", self.far_bytes_most(nodes));
            return Err(wrong_bytes("far_bytes", self.far_bytes, limit));
        }
        Ok(())
    }

    /// A core's share of local memory is enough, or what to change is named.
    fn check_share(&self, budget: &Budget, nodes: u64) -> Result<()> {
        let cores = self.cores.len() as u64;
        let of_cores = counted(cores, "core");
        if budget.share < budget.share_min {
            if let Some(least) = self.local_bytes_min(nodes) {
                let limit = format!(
                    "at least {least} bytes for {of_cores}, {} keys and {} bytes of far memory: raise it, or lower `keys_expected`, `far_bytes`, `page_bytes`, `handles_max`, `handle_lane_bytes` or `lane_bytes`",
                    self.keys_expected, self.far_bytes
                );
                return Err(wrong_bytes("local_bytes", self.local_bytes, limit));
            }
            let because = "whatever the local memory, because its pages count too";
            let keys = self.most(self.keys_expected, nodes, |config, keys| {
                config.keys_expected = keys;
            });
            if keys > 0 {
                let limit = format!(
                    "at most {keys} for {of_cores} and {} bytes of far memory, {because}",
                    self.far_bytes
                );
                return Err(wrong("keys_expected", self.keys_expected, limit));
            }
            let limit = format!(
                "at most {} bytes for {of_cores}, {because}",
                self.far_bytes_most(nodes)
            );
            return Err(wrong_bytes("far_bytes", self.far_bytes, limit));
        }
        Ok(())
    }
}
