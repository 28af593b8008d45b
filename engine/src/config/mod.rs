//! What an engine is made with. `sizes` derives what follows from it, `checks` what it is held to.

mod checks;
mod log_policy;
mod lost_keys;
mod memory_plan;
mod sizes;
#[cfg(test)]
mod tests;
mod when_full;

use farcore_rdma::{FabricAddress, LinkModel, Lock, Token, VerbsOptions};
use farcore_tuning::Profile;

use std::path::PathBuf;

use crate::cipher::{EncryptionKey, EncryptionMode};
use crate::constants::{INLINE_COLLECTION_BYTES, READ_AHEAD_CHUNKS_MAX};
use crate::error::Result;
use crate::limits::processors;
use crate::shard::{CopyPlan, ShardTuning};
use crate::tree::TreeProgram;

pub use self::log_policy::LogPolicy;
pub use self::lost_keys::LostKeys;
use self::memory_plan::MemoryPlan;
pub(crate) use self::sizes::Sizes;
pub use self::when_full::WhenFull;

/// One direction of a handle's lane, and the least that is derived for one between cores.
const LANE_BYTES: usize = 64 << 10;
/// How to open an engine. Every field has a default that suits a small machine.
#[derive(Clone, Debug)]
pub struct Config {
    /// The cores, one shard each. Default: one processor of each physical core that this process
    /// may use, and no more than its control group's quota pays for. They are pinned and poll while
    /// they are busy; a core without work leaves its processor to the program around it.
    pub cores: Vec<usize>,
    /// The cap on local memory in bytes: index, frames, lanes, landing buffers, counters, the
    /// threads' stacks. Default: an eighth of the memory that is available, 1 GiB at most.
    /// Pages of the program's own files, some 2 MiB once all of its code has run, are not counted:
    /// the kernel drops them when it needs room.
    pub local_bytes: u64,
    /// Far memory in bytes. Default: a quarter of the memory that is available, 4 GiB at most.
    pub far_bytes: u64,
    /// What a put does when memory is full: it fails, or other records are removed for it. Default:
    /// [`WhenFull::Refuse`].
    pub when_full: WhenFull,
    /// What becomes of keys whose records a memory node has lost. Default: [`LostKeys::Keep`].
    pub lost_keys: LostKeys,
    /// A page of the log in bytes, a power of two from 64 KiB to 2 MiB. Default: a 64th of a
    /// shard's local memory.
    pub page_bytes: Option<u32>,
    /// Keys that the index is sized for at the start, at 10 bytes each, or up to 20 where that is
    /// no more than a 32nd of the local memory; it grows beyond. Default 1 million.
    pub keys_expected: u64,
    /// The memory nodes that far memory lies on, as `tcp://host:port`. Default: none; far memory is
    /// in this process.
    pub nodes: Vec<FabricAddress>,
    /// Memory nodes that the engine may have at once, with those that are added while it runs
    /// ([`Engine::add_node`](crate::Engine::add_node)): at most 64. Each position beyond
    /// [`Config::nodes`] has room for as much far memory as each of these, `far_bytes` divided by
    /// their number, and takes local memory for its tables and connections. Default: their number,
    /// so that a node is added only once another one was drained or removed.
    pub nodes_max: Option<usize>,
    /// How many of [`Config::nodes`] must answer each core before the engine opens. It opens as
    /// soon as this many answer and each other one was tried once. The others join when they come:
    /// their share of `far_bytes` is claimed then. Default: all.
    pub nodes_min: Option<usize>,
    /// How long opening waits for [`Config::nodes_min`] nodes, in nanoseconds: at most a day. If
    /// fewer have answered by then, [`Engine::open`](crate::Engine::open) returns
    /// [`Error::Unavailable`]. Missing nodes are logged once a second. Default 10 s.
    pub nodes_wait_ns: u64,
    /// Copies of each page in far memory, on distinct nodes: 1 to 3, and no more than there are
    /// nodes. With two, what is stored survives a node, and `far_bytes` hold half as much.
    /// Default 1.
    pub replicas: usize,
    /// Copies with which a page counts as written, and may leave local memory: fewer than
    /// [`Config::replicas`] only while fewer nodes answer. Missing copies are made when nodes
    /// answer again. Default 1: requests go on with any one node.
    pub replicas_min: usize,
    /// The zone of each node, in the order of [`Config::nodes`]: what fails together, such as a
    /// rack. Copies of a page lie in distinct zones, as far as there are such with room. Default:
    /// none named, and each node is a zone of its own.
    pub zones: Vec<String>,
    /// The share of its time that a core may spend on copying pages again, in percent: 1 to 100.
    /// It is halved while far reads take more than twice as long as before. Default 20.
    pub copy_percent: u8,
    /// The secret that the memory nodes require. Default: none.
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
    /// the kernel. Default: yes.
    pub prefault: bool,
    /// Touch it in slices once the engine is open, rather than before: opening takes milliseconds
    /// instead of seconds, and until all is touched, requests that need more of it wait for the
    /// kernel. [`Stats::touched_bytes`](crate::Stats::touched_bytes) reports how far it is. Before
    /// Linux 5.14 it is touched before. Default: no.
    pub prefault_later: bool,
    /// Request huge pages. Default: yes.
    pub huge_pages: bool,
    /// Lock local memory. Default: where the limit allows.
    pub lock: Lock,
    /// Handles that can be in use at once, one a thread: at most 254 less the number of
    /// [`Config::cores`]. Each takes a lane of local memory to each shard. Default 4.
    pub handles_max: usize,
    /// One direction of a lane from a handle to a shard in bytes, a power of two from 16 KiB to 16
    /// MiB. Half of those to the shard are for keys and values, and a request can wait for each 64
    /// of them, up to 1024. Default 64 KiB.
    pub handle_lane_bytes: usize,
    /// One direction of a lane between two cores in bytes, like [`Config::handle_lane_bytes`].
    /// Default: as [`Config::lane_bytes_used`] derives it.
    pub lane_bytes: Option<usize>,
    /// How long an idle core spins before it sleeps, in nanoseconds: at most 1 s. Default 50 us.
    pub spin_ns: u64,
    /// How long a client may hold a section, in nanoseconds, from 1 ms to 10 s; see
    /// [`Client::section`](crate::Client::section). Default 100 ms.
    pub section_ns: u64,
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
    /// A collection whose elements take no more bytes lies in the record of its key, as a value
    /// does: 0, where each collection has records of its own, to 4096. Default 2048.
    pub inline_collection_bytes: usize,
    /// What [`TreeOp::Run`](crate::TreeOp::Run) runs, by its number: at most 256. Default: nothing.
    pub tree_programs: &'static [TreeProgram],
    /// The seed of the key hash. Default: random, so that no client can choose keys that
    /// collide.
    pub seed: Option<u64>,
    /// Hash tags: if a key has a part between its first `{` and the next `}`, and that part is not
    /// empty, it alone decides the key's shard, as in a Redis Cluster. So keys with one tag can be
    /// changed by one [`Transaction`](crate::Transaction). Many keys with one tag load one core.
    /// Default: no.
    pub hash_tags: bool,
    /// The directory that keeps what is stored: it is loaded when the engine opens, and
    /// [`Engine::snapshot`](crate::Engine::snapshot) writes to it. It is made if it is not there.
    /// Default: none, and what is stored ends with the engine.
    pub data_dir: Option<PathBuf>,
    /// Which changes survive between snapshots, with a data directory. Default:
    /// [`LogPolicy::EverySecond`].
    pub log: LogPolicy,
    /// Snapshots that stay in the data directory, with the logs since the oldest of them. With 2
    /// or more, [`Salvage`](crate::Salvage) finds an older one where the newest is damaged.
    /// Default: 1; 0 counts as 1.
    pub snapshots_kept: usize,
}

impl Default for Config {
    fn default() -> Self {
        let memory = MemoryPlan::of_machine();
        Self {
            cores: processors().for_engine(),
            local_bytes: memory.local_bytes,
            far_bytes: memory.far_bytes,
            when_full: WhenFull::default(),
            lost_keys: LostKeys::default(),
            page_bytes: None,
            keys_expected: 1_000_000,
            nodes: Vec::new(),
            nodes_max: None,
            nodes_min: None,
            nodes_wait_ns: 10_000_000_000,
            replicas: 1,
            replicas_min: 1,
            zones: Vec::new(),
            copy_percent: 20,
            token: None,
            far_silence_ns: 1_000_000_000,
            verbs: VerbsOptions::default(),
            embedded_nodes: 1,
            link: LinkModel::default(),
            encryption: None,
            encryption_mode: EncryptionMode::default(),
            prefault: true,
            prefault_later: false,
            huge_pages: true,
            lock: Lock::Try,
            handles_max: 4,
            handle_lane_bytes: LANE_BYTES,
            lane_bytes: None,
            spin_ns: 50_000,
            section_ns: 100_000_000,
            batch: 64,
            cache_percent: 75,
            read_ahead_chunks: READ_AHEAD_CHUNKS_MAX,
            inline_collection_bytes: INLINE_COLLECTION_BYTES,
            tree_programs: &[],
            seed: None,
            hash_tags: false,
            data_dir: None,
            snapshots_kept: 1,
            log: LogPolicy::default(),
        }
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

    /// The part of the settings that a shard keeps.
    pub(crate) fn tuning(&self) -> ShardTuning {
        ShardTuning {
            batch: self.batch,
            cache_percent: self.cache_percent,
            read_ahead_chunks: self.read_ahead_chunks,
            copies: self.copies(),
            copy_percent: self.copy_percent,
            inline_collection_bytes: self.inline_collection_bytes,
            tree_programs: self.tree_programs,
        }
    }

    /// Positions for memory nodes, of which this many are named.
    pub(crate) fn positions(&self, nodes: usize) -> usize {
        self.nodes_max.unwrap_or(nodes)
    }

    /// Copies of each page in far memory.
    fn copies(&self) -> CopyPlan {
        CopyPlan::new(self.replicas, self.replicas_min)
    }

    /// The zone of each node by number: of equal names, that of the first.
    pub(crate) fn zone_numbers(&self) -> impl Iterator<Item = usize> {
        let first = |zone: &String| self.zones.iter().position(|other| other == zone);
        self.zones.iter().filter_map(first)
    }

    /// Checks every field.
    ///
    /// # Errors
    /// [`Error::Config`] names the first field that is out of range, its value and its limit;
    /// [`Error::LocalMemory`] the least local memory; [`Error::Core`] a core that is not there.
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
}
