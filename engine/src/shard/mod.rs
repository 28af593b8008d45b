//! A shard: one core's share of the keys, as a state machine.
//!
//! It owns its index, its log, its frames, its read cache and its end of the fabric, and knows no
//! runtime, clock or thread: it is handed requests, completions and the time, and hands back
//! answers and work requests.
//!
//! ```text
//! serve -> index -> frame (answer)
//!                -> stream's chunk (answer)
//!                -> flight (park) -> READ -> advance -> answer
//! advance -> completions, parked requests, then one slice of: flush, eviction, compaction
//! ```
//!
//! - I1: a record is alive if and only if its slot holds its address, or that of a cached copy
//!   whose home it is.
//! - I2: a page is flushed before its frame is reused; frame and extent outlive every work request
//!   on them.
//! - I3: every request is answered exactly once.

mod absences;
mod batch_counters;
mod budget;
#[cfg(any(test, feature = "simulation"))]
mod check;
mod far;
mod local;
mod look_ahead;
mod lookup;
mod ops;
mod pending;
mod room;
mod serve;
mod step;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use farcore_rdma::{Endpoint, Region};
use farcore_tuning::HotKeys;

use self::absences::Absences;
use self::batch_counters::BatchCounters;
use self::far::FarStore;
use self::far::buffers::Buffers;
use self::far::opened::OpenedRecords;
use self::far::pages::FarPages;
use self::far::read_ahead::ReadAhead;
use self::local::LocalLog;
use self::local::long_values::LongValues;
use self::local::page_table::{Framed, PageKind, PageTable};
use self::local::read_cache::Cache;
use self::local::trees::{TreePlace, Trees};
use self::local::victims::Victims;
use self::look_ahead::LookAheadState;
use self::pending::collisions::Collisions;
use self::pending::facts::Facts;
use self::pending::flight::Flights;
use self::room::compactor::Compactor;
use self::room::flusher::Flusher;
use self::room::lost::Lost;
use self::room::pressure::Pressure;
use self::room::repair::Repair;
use crate::cipher::PageCipher;
use crate::cipher::gcm::TAG_BYTES;
use crate::constants::{BATCH_MAX, SECTION_LANE};
use crate::error::Error;
use crate::index::Index;
use crate::journal::Journals;
use crate::log::{Address, PageShape, record};
use crate::message::hash::KeyHasher;
use crate::message::operation::Version;
use crate::observe::metrics::CoreMetrics;
use crate::shard::ops::scratch::{ChangeScratch, ListScratch, TransactionScratch};
use crate::shard::ops::tree_buffers::TreeBuffers;
use crate::shard::ops::tree_findings::TreesAhead;
use crate::shard::room::expiring::Expiring;

pub(crate) use self::far::{COPIES_MAX, CopyPlan, Extents, NODES_MAX, NodeId, QUEUES_PER_NODE};
use self::room::copier::Copier;
pub(crate) use self::room::evictor::Evictor;
pub(crate) use self::room::flusher::Shortfall;
use crate::message::request::{AnswerSink, ReplyTo};
use crate::tree::TreeProgram;

/// READs under way at once, at most.
const FLIGHTS: u32 = 256;
/// Requests that wait for the fabric at once, at most.
const PARKED: u32 = 1024;
/// Frames that only compaction may take.
const FRAMES_RESERVED: usize = 2;
/// Frames that removals from trees may take too, while there are trees.
const FRAMES_FOR_REMOVALS: usize = 1;

/// Whether a shard accepts changes, as far as its journal goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum JournalStop {
    /// It does.
    No,
    /// They wait until the disk has taken what was appended.
    Wait,
    /// The disk has failed: they are refused.
    Refuse,
}

/// What a shard is made of.
#[derive(Debug)]
pub(crate) struct ShardOptions<E> {
    pub(crate) shard: u16,
    pub(crate) local_bytes: u64,
    pub(crate) page_bytes: u32,
    pub(crate) keys_expected: u64,
    pub(crate) cipher: Option<PageCipher>,
    pub(crate) epoch: u32,
    pub(crate) endpoint: E,
    pub(crate) arena: Arc<Region>,
    /// Its own share of far memory, on the nodes that `endpoint` leads to.
    pub(crate) extents: Extents,
    pub(crate) metrics: Arc<CoreMetrics>,
    pub(crate) tuning: ShardTuning,
    /// Records are evicted where puts would be refused for lack of memory.
    pub(crate) evicts: bool,
    /// Keys whose records are lost count as absent at once.
    pub(crate) forgets_lost: bool,
    /// As the engine hashes keys: what far memory says of a record is held against it.
    pub(crate) key_hasher: KeyHasher,
    /// Files are loaded first.
    pub(crate) loads: bool,
}

/// The part of the settings that a shard keeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShardTuning {
    /// Requests of one lane that are served together, 1 to [`BATCH_MAX`].
    pub(crate) batch: usize,
    /// The most page frames that the read cache may take, in percent; 0 is no read cache.
    pub(crate) cache_percent: u8,
    /// Chunks that are kept ahead of all walks together; 0 is no reading ahead.
    pub(crate) read_ahead_chunks: u32,
    /// Copies of each page in far memory.
    pub(crate) copies: CopyPlan,
    /// The share of its time that copying pages again may take, in percent.
    pub(crate) copy_percent: u8,
    /// See [`Config::inline_collection_bytes`](crate::Config::inline_collection_bytes).
    pub(crate) inline_collection_bytes: usize,
    /// See [`Config::tree_programs`](crate::Config::tree_programs).
    pub(crate) tree_programs: &'static [TreeProgram],
}

/// Rounds after which background work is looked for, whether or not anything stirred.
const ROUNDS_A_LOOK: u64 = 8;

/// One core's share of the keys.
#[derive(Debug)]
pub(crate) struct Shard<E: Endpoint> {
    id: u16,
    epoch: u32,
    shape: PageShape,
    index: Index,
    local: LocalLog,
    seen: LookAheadState,
    collisions: Collisions,
    batch_counters: BatchCounters,
    far: FarStore<E>,
    /// Flags of every record that is written.
    record_flags: u16,
    /// Units that a record's tag takes: 1, or 0 where there are none.
    tag_units: u32,
    opened: OpenedRecords,
    metrics: Arc<CoreMetrics>,
    hot_keys: HotKeys,
    read_ahead: ReadAhead,
    tuning: ShardTuning,
    flights: Flights,
    /// Flights whose next step must be tried again.
    again: VecDeque<u32>,
    /// Flights that wait for a buffer, in their order: a short one, a long one.
    unbuffered: [VecDeque<u32>; 2],
    /// The value, in bytes, whose answer found no room at the lane that was served last.
    short: Option<usize>,
    cache: Cache,
    flusher: Flusher,
    compactor: Compactor,
    copier: Copier,
    version: Version,
    sequence: u64,
    now_ns: u64,
    /// Background work found something to do when it was looked for last.
    background_due: bool,
    /// Free frames then.
    frames_seen: usize,
    pressure: Pressure,
    rounds: u64,
    lost: Lost,
    change_scratch: ChangeScratch,
    list_scratch: ListScratch,
    long: LongValues,
    /// The long value whose head the change under way stores.
    head_of: Option<u64>,
    trees: Trees,
    /// The tree whose head the change under way stores.
    tree_of: Option<TreePlace>,
    /// A change under way keeps the head of an inline collection.
    keeps_inline: bool,
    /// A change under way keeps the long value or the tree of the head that it stores.
    keeps_head: bool,
    /// What changes is appended here, for a file.
    journals: Option<Box<Journals>>,
    journal_stop: JournalStop,
    /// What it is made of: of the journal, and whether a feed is full.
    journal_stops: (JournalStop, bool),
    /// Files are loaded: nothing expires.
    is_loading: bool,
    /// The time since 1970 meanwhile: `unix_ms` begins with it.
    loading_ms: u64,
    /// What is lost is being restored from files.
    repair: Option<Box<Repair>>,
    /// There are long values or trees, so more may end with a record.
    has_heads: bool,
    /// Collections have been stored in their heads since the shard was last emptied.
    has_inline: bool,
    /// `None` while an operation has them.
    tree_buffers: Option<Box<TreeBuffers>>,
    trees_ahead: Option<Box<TreesAhead>>,
    facts: Facts,
    absences: Absences,
    transaction_scratch: TransactionScratch,
    /// The time in milliseconds since 1970; it never goes back.
    unix_ms: u64,
    expiring: Expiring,
    evictor: Evictor,
    key_hasher: KeyHasher,
    /// A thread other than the core's serves requests, and from local memory alone.
    is_lent: bool,
}

impl<E: Endpoint> Shard<E> {
    /// Requests whose cache misses it overlaps.
    pub(crate) fn batch(&self) -> usize {
        self.tuning.batch
    }

    /// Lays out the arena and builds an empty shard.
    ///
    /// # Errors
    /// [`Error::Config`] if the arena is too small for the index of `keys_expected` keys and a
    /// working log; [`Error::Memory`] if the device does not register it.
    #[expect(clippy::too_many_lines, reason = "one literal names all fields")]
    pub(crate) fn new(mut options: ShardOptions<E>) -> Result<Self, Error> {
        let page_bytes = options.page_bytes as usize;
        assert!(
            (1..=BATCH_MAX).contains(&options.tuning.batch),
            "the configuration was checked"
        );
        let (layout, arena, index) = Self::lay_out(&mut options)?;
        let streams_offset = layout.buffers.bytes();
        let page_count = arena.total() + options.extents.count_max();
        let pages = PageTable::new(page_count);
        let buffers = if options.cipher.is_some() {
            Buffers::new(&layout.buffers)
        } else {
            Buffers::new(&layout.buffers.without_flush())
        };
        let frames = arena.page_frames();
        let flusher = Flusher::new(options.cipher.is_some());
        let nodes = options.extents.positions();
        debug_assert_eq!(options.endpoint.queues(), nodes * QUEUES_PER_NODE);
        let hot_keys = HotKeys::default();
        options.metrics.watch_hot_keys(hot_keys.reader());
        let authenticated = options.cipher.as_ref().and_then(PageCipher::authenticated);
        let (record_flags, tag_bytes) = match authenticated {
            Some(_) => (record::KEYED_TAG, TAG_BYTES),
            None => (0, 0),
        };
        let is_authenticated = authenticated.is_some();
        let opened = OpenedRecords::new(options.cipher.as_ref());
        let memory = (options.local_bytes, options.extents.count_max() as u64);
        let evictor = Evictor::new(options.evicts.then_some(memory), page_bytes as u64);
        let far = FarStore::new(
            options.endpoint,
            FarPages::new(options.extents, pages.len(), options.tuning.copies),
            options.cipher,
            buffers,
            Arc::clone(&options.metrics),
        );
        let local = LocalLog::new(
            arena,
            pages,
            Victims::new(nodes, page_count),
            PageShape::new(options.page_bytes),
            page_bytes - tag_bytes,
        );
        let shard = Self {
            id: options.shard,
            epoch: options.epoch,
            shape: PageShape::new(options.page_bytes),
            index,
            local,
            seen: LookAheadState::default(),
            collisions: Collisions::default(),
            batch_counters: BatchCounters::default(),
            far,
            record_flags,
            tag_units: u32::from(is_authenticated),
            opened,
            metrics: options.metrics,
            hot_keys,
            read_ahead: ReadAhead::new(
                streams_offset as u64,
                layout.chunk_bytes,
                options.tuning.read_ahead_chunks,
            ),
            tuning: options.tuning,
            flights: Flights::new(FLIGHTS, PARKED),
            again: VecDeque::with_capacity(FLIGHTS as usize),
            unbuffered: [0; 2].map(|_| VecDeque::with_capacity(FLIGHTS as usize)),
            short: None,
            cache: Cache::new(frames, options.tuning.cache_percent, options.local_bytes),
            flusher,
            compactor: Compactor::new(options.page_bytes),
            copier: Copier::new(options.tuning.copy_percent),
            lost: Lost::new(options.forgets_lost),
            change_scratch: ChangeScratch::default(),
            list_scratch: ListScratch::default(),
            long: LongValues::new(options.local_bytes),
            head_of: None,
            trees: Trees::new(options.local_bytes, options.tuning.inline_collection_bytes),
            tree_of: None,
            keeps_inline: false,
            keeps_head: false,
            journals: None,
            journal_stop: JournalStop::No,
            journal_stops: (JournalStop::No, false),
            is_loading: options.loads,
            loading_ms: 0,
            repair: None,
            has_heads: false,
            has_inline: false,
            tree_buffers: None,
            trees_ahead: None,
            facts: Facts::new(options.local_bytes),
            absences: Absences::default(),
            transaction_scratch: TransactionScratch::default(),
            unix_ms: 0,
            expiring: Expiring::default(),
            evictor,
            key_hasher: options.key_hasher,
            version: 0,
            sequence: 0,
            now_ns: 0,
            background_due: true,
            frames_seen: 0,
            pressure: Pressure::default(),
            rounds: 0,
            is_lent: false,
        };
        shard.far.publish_bytes();
        Ok(shard)
    }

    /// Polls the fabric, finishes parked requests and, if anything stirred or this is an eighth
    /// round, runs one bounded slice of background work. True if anything was done.
    pub(crate) fn advance(&mut self, now_ns: u64, answers: &mut impl AnswerSink) -> bool {
        self.rounds += 1;
        let due = self.rounds.is_multiple_of(ROUNDS_A_LOOK) || self.is_background_due();
        let mut busy = self.advance_flights(now_ns, answers);
        if due {
            if self.long.has_users() {
                self.end_abandoned();
            }
            self.background_due = self.make_room();
            self.background_due |= self.compact_slice();
            self.background_due |= self.copy_slice();
            self.background_due |= self.forget_slice();
            self.background_due |= self.expire_slice();
            self.background_due |= self.free_trees_slice();
            busy |= self.background_due;
            self.frames_seen = self.local.arena.free_count();
        }
        self.far.ring(now_ns);
        if self.rounds.is_multiple_of(1024) {
            self.publish_gauges();
        }
        busy
    }

    /// Polls the fabric and finishes parked requests. True if anything was done.
    #[inline(always)]
    fn advance_flights(&mut self, now_ns: u64, answers: &mut impl AnswerSink) -> bool {
        self.now_ns = now_ns;
        self.far.ring(now_ns);
        let mut busy = false;
        if self.far.under_way > 0 || self.has_waiting() {
            busy |= self.far.under_way > 0 && self.poll_fabric(answers);
            busy |= self.has_waiting() && self.try_again(answers);
            self.publish_batch_counters();
        }
        busy
    }

    /// As [`Shard::advance`] without background work, for a thread that has borrowed this shard.
    pub(crate) fn advance_lent(&mut self, now_ns: u64, answers: &mut impl AnswerSink) {
        self.advance_flights(now_ns, answers);
        self.far.ring(now_ns);
    }

    /// Any thread may use the fabric, one at a time.
    pub(crate) fn is_movable(&self) -> bool {
        self.far.endpoint.is_movable()
    }

    /// A request of this lane waits for the fabric.
    pub(crate) fn has_parked(&self, lane: ReplyTo) -> bool {
        self.flights.has_parked(lane)
    }

    /// True if no request is parked: all that were consumed are answered.
    pub(crate) fn is_drained(&self) -> bool {
        self.flights.count() == 0
    }

    /// The lane number of requests under a section has another client from now on, or none: what is
    /// known for the client before is forgotten. Other lanes keep what they know and what is kept
    /// for them, though they are not served meanwhile: under sections that follow each other, what
    /// needs much would never get it.
    ///
    /// `begins`: number and shards of the section of the client, as it has said.
    pub(crate) fn change_section(&mut self, begins: Option<(u64, u16)>) {
        self.note_section(begins);
        let lane = ReplyTo::new(SECTION_LANE);
        self.flights.visit(lane);
        self.facts.end(lane);
    }

    /// Has the next round look for background work.
    pub(crate) fn request_background(&mut self) {
        self.background_due = true;
    }

    /// Notes whether requests are served on a thread that has borrowed this shard and must not
    /// touch the fabric. Then those that need it, or more than one record, are left for the core.
    pub(crate) fn lend(&mut self, is_lent: bool) {
        self.is_lent = is_lent;
    }

    /// There may be background work, which only the core does. What is on the fabric is none if
    /// others may go on with it.
    pub(crate) fn needs_core(&self) -> bool {
        self.is_stirred() || self.is_at_work() || !self.is_movable() && self.waits_for_fabric()
    }

    /// There may be background work: the last look found some, or something has happened since.
    #[inline]
    fn is_background_due(&self) -> bool {
        self.far.under_way > 0 || self.is_stirred()
    }

    #[inline]
    fn is_stirred(&self) -> bool {
        self.background_due
            || self.compactor.due
            || self.frames_seen != self.local.arena.free_count()
    }

    /// Sets the time between two rounds: what starts now waits from now on.
    #[inline]
    pub(crate) fn note_time(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// The time that was noted last.
    pub(crate) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Something is on its way to or from far memory.
    #[inline]
    pub(crate) fn waits_for_fabric(&self) -> bool {
        self.far.under_way > 0 || self.flights.count() > 0
    }

    /// Nothing parked, nothing on the fabric and no background work wanted: the core may park.
    pub(crate) fn is_quiet(&self) -> bool {
        self.flights.count() == 0
            && self.far.under_way == 0
            && self.again.is_empty()
            && !self.is_at_work()
    }

    /// Background work is under way or wanted.
    fn is_at_work(&self) -> bool {
        let compactor_rests =
            self.compactor.is_idle() || self.compactor.is_stuck() && self.pressure.stands();
        !self.flusher.is_idle()
            || !self.forgetting_done()
            || !compactor_rests
            || self.trees.has_dying()
            || self.wants_room()
    }

    /// Publishes the figures that are states rather than events.
    pub(crate) fn publish_gauges(&mut self) {
        let counters = &self.metrics.counters;
        counters.keys.set(self.index.len() as u64);
        counters.long_values.set(self.long.count() as u64);
        counters.lost_keys.set(self.lost.keys());
        counters.copying.set(u64::from(self.lacks_copies()));
        counters.index_bytes.set(self.index.bytes() as u64);
        counters.index_growth_steps.set(self.index.growth_steps());
        counters
            .frames_free
            .set(self.local.arena.free_count() as u64);
        let page_frames = self.local.arena.page_frames();
        counters.frames_total.set(self.local.arena.total() as u64);
        counters
            .frames_index
            .set((self.local.arena.total() - page_frames) as u64);
        counters.frames_sealed.set(self.local.sealed.len() as u64);
        counters.frames_clean.set(self.local.clean.len() as u64);
        counters.frames_cache.set(self.cache.frames() as u64);
        let known = self.local.arena.free_count()
            + self.local.sealed.len()
            + self.local.clean.len()
            + self.cache.frames();
        counters
            .frames_open
            .set(page_frames.saturating_sub(known) as u64);
        counters.pending.set(self.flights.parked_count() as u64);
        counters
            .landing_in_use_bytes
            .set(self.far.buffers.in_use_bytes());
        let far = &self.local.victims;
        counters.far_pages.set(far.pages);
        counters.far_live_bytes.set(far.live_bytes);
        let dead = far.record_bytes.saturating_sub(far.live_bytes);
        counters.far_dead_bytes.set(dead);
        let page_bytes = self.shape.page_bytes() as u64;
        self.far.pages.publish_nodes(&self.metrics, page_bytes);
    }

    /// Where a record is, if its page has a frame.
    #[inline]
    fn framed_of(&self, address: Address) -> Framed {
        self.local.framed_of(address)
    }

    /// Pins a page: it is not freed until [`Shard::unpin`].
    #[inline]
    fn pin(&mut self, page: u32) {
        self.local.pin(page);
    }

    #[inline]
    fn unpin(&mut self, page: u32) {
        if self.local.unpin(page) {
            self.free_if_dead(page);
        }
    }

    /// Frees a page with nothing alive in it, unless it is open, flushing or pinned.
    fn free_if_dead(&mut self, page: u32) {
        let Some(kind) = self.local.free_if_dead(page) else {
            return;
        };
        if kind == PageKind::Cache {
            self.cache.forget(page);
        }
        self.read_ahead.forget_page(page);
        self.far.release(page);
        self.pressure.relieve();
    }

    /// Notes that the record at an address is dead: with a head its long value or tree ends.
    #[inline]
    fn note_dead(&mut self, address: Address) {
        if self.has_heads {
            self.end_at(address);
        }
    }

    /// Counts a record dead whose slot holds its address no longer.
    #[inline]
    fn retire(&mut self, address: Address, bytes: u64) {
        let page = address.page(self.shape);
        if self.local.pages.is_lost_page(page) {
            return;
        }
        if self.local.retire(page, bytes) {
            self.free_if_dead(page);
        }
        self.compactor.note_dead(bytes);
        self.note_dead(address);
    }
}
