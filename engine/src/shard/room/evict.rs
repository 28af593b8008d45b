//! Eviction: removes records ahead of need, so that puts find room, where the engine is opened so.
//!
//! Pages go oldest first, by the compactor: what it would move of another victim it removes here,
//! unless the record was read. So a page costs the READ of its directory, and of the records that
//! stay. There are two queues of pages, as in S3-FIFO (Yang et al., "FIFO queues are all you
//! need for cache eviction", 2023):
//!
//! ```text
//! puts -> new pages -> read since they were written? -> moved pages -> read since? -> moved pages
//!           a tenth      no: removed                      the rest      no: removed
//! ```
//!
//! Expired records go first, then pages of which a quarter is dead are compacted, then pages are
//! evicted. It begins while some extents are still free, and its slices grow as these become fewer.
//!
//! - E1: without eviction nothing is allocated, and a batch of requests pays one branch.
//! - E2: of a victim, at most three quarters are moved, so each one makes room.
//! - E3: a record that a request waits for is not removed, unless its page could not be emptied
//!   otherwise or the index has no room beside it.
//! - E4: a record goes with its slot, its cached copy and its live bytes; a lost slot that it took
//!   over is a lost slot again.
//!
//! Where no node takes pages, sealed pages are evicted that are only local. Where the index cannot
//! grow, pages are evicted as well; where a new key finds no slot all the same, the oldest record
//! near its home is removed at once.

use farcore_rdma::Endpoint;

use crate::constants::FRAMES_MIN;
use crate::index::{Position, Slot};
use crate::log::record::RecordHeader;
use crate::log::{Address, SizeClass};
use crate::message::hash::IndexHash;
use crate::observe::removals::Removal;
use crate::shard::Shard;
use crate::shard::local::account_bytes;
use crate::shard::local::page_table::{PageKind, PageState};
use crate::shard::local::trees::NodeName;
use crate::shard::room::compactor::Fate;
use crate::shard::room::copy::ROOM_KEPT;

/// Free extents below which pages are evicted, as one extent in this many.
const LOW_SHARE: usize = 64;
/// Free extents below which pages are evicted, at most.
const LOW_MAX: usize = 64;
/// Pages looked at for one victim.
const PAGES_A_LOOK: usize = 64;
/// Slices of compaction at once, at most, while extents are short.
const SLICES_MAX: usize = 8;
/// Buckets in which room for a slot is made, at first and at last.
const BUCKETS_NEAR: [usize; 2] = [8, 64];
/// Records removed for one slot, at most.
const REMOVED_FOR_SLOT_MAX: usize = 64;

impl<E: Endpoint> Shard<E> {
    /// How many free extents are missing: 0 if pages need not be evicted, or if no node takes any,
    /// whatever is evicted.
    fn missing_extents(&self) -> usize {
        if self.far.pages.is_silent() {
            return 0;
        }
        let mut low = (self.far.pages.count() / LOW_SHARE).clamp(1, LOW_MAX);
        if self.far.pages.is_any_left() {
            // Pages that leave a node need room elsewhere.
            low = low.max(2 * ROOM_KEPT);
        }
        low.saturating_sub(self.far.pages.takable_count())
    }

    /// Slices of compaction that are run at once: more, the fewer extents are free.
    pub(in crate::shard) fn slices_at_once(&self) -> usize {
        if !self.evictor.is_on() {
            return 1;
        }
        (1 + self.missing_extents()).min(SLICES_MAX)
    }

    /// True if pages are evicted, and half of the free extents that should be there are missing:
    /// then pages that are mostly alive are not compacted.
    pub(in crate::shard) fn is_pressed(&self) -> bool {
        self.evictor.is_on() && 2 * self.missing_extents() > self.far.pages.takable_count()
    }

    /// True if the index could not grow because the log needs the rest of local memory.
    fn is_index_short(&self) -> bool {
        self.index.is_refused() && self.local.arena.page_frames() <= FRAMES_MIN
    }

    /// Starts to evict a page if extents or slots are short. False if it did not.
    pub(in crate::shard) fn start_eviction(&mut self) -> bool {
        if !self.evictor.is_on() {
            return false;
        }
        let for_index = self.is_index_short();
        if !for_index && self.missing_extents() == 0 {
            return false;
        }
        let started = self.evict_oldest_far(Fate::StaysIfRead);
        if started && for_index {
            self.index.take_refused();
        }
        started
    }

    /// Starts to evict the oldest page in far memory that can be read now.
    pub(in crate::shard) fn evict_oldest_far(&mut self, fate: Fate) -> bool {
        let turn = self.evictor.is_turn_of_new();
        let oldest = self.oldest_far(turn).or_else(|| self.oldest_far(!turn));
        let Some(number) = oldest else {
            return false;
        };
        self.local.take_requested(number);
        self.start_victim(number, fate);
        true
    }

    /// The oldest new or moved page in far memory that can be read now. It leaves its queue when it
    /// is freed.
    fn oldest_far(&mut self, is_new: bool) -> Option<u32> {
        let mut place = 0;
        for _ in 0..PAGES_A_LOOK {
            let queue = self.evictor.queue(is_new);
            let number = queue.at(place, &self.local.pages)?;
            if self.local.page(number).pins > 0 {
                place += 1;
            } else if self.can_be_read(number) {
                return Some(number);
            } else {
                self.evictor.queue(is_new).put_behind(place);
            }
        }
        None
    }

    /// Starts to evict the oldest page that is only local.
    fn evict_oldest_sealed(&mut self) -> bool {
        let pages = &self.local.pages;
        let is_idle = |&&number: &&u32| pages.get(number).pins == 0 && !pages.get(number).damaged;
        let Some(&number) = self.local.sealed.iter().find(is_idle) else {
            return false;
        };
        self.start_victim(number, Fate::StaysIfRead);
        true
    }

    /// Frames are short and nothing is under way that frees one: removes records for it. False if
    /// there is nothing to remove, or pages can be flushed.
    pub(in crate::shard) fn evict_urgently(&mut self) -> bool {
        if !self.evictor.is_on() {
            return false;
        }
        if self.compactor.victim_page().is_some() {
            self.compactor.remove_all_if_stuck();
            return true;
        }
        if !self.far.pages.is_silent() {
            if self.far.pages.takable_count() > 0 && !self.local.sealed.is_empty() {
                return false;
            }
            if self.evict_oldest_far(Fate::StaysIfRead) {
                return true;
            }
        }
        self.evict_oldest_sealed()
    }

    /// Frames are short while no node is known to take pages: removes local records rather than
    /// letting puts wait until it is known that none does.
    pub(in crate::shard) fn evict_beside_silence(&mut self) -> bool {
        if !self.evictor.is_on() || self.far.pages.all_answer() {
            return false;
        }
        let is_short = self.local.arena.free_count() <= self.local.arena.reserve();
        let must = is_short && !self.far.pages.is_sure_of_room();
        must && self.compactor.victim_page().is_none() && self.evict_oldest_sealed()
    }

    /// Makes room for a flush of all pages: records are removed whether they were read or not,
    /// because what is moved would have to be flushed too. False if there is nothing to remove.
    pub(in crate::shard) fn evicts_for_flush(&mut self) -> bool {
        self.evictor.is_on()
            && (self.compactor.victim_page().is_some() || self.evict_oldest_far(Fate::Goes))
    }

    /// True if a record of a victim that is evicted stays because it was read, or because a request
    /// waits for it.
    pub(in crate::shard) fn stays(&self, hash: IndexHash) -> bool {
        self.evictor.was_read(hash)
            || self.flights.count() > 0 && self.flights.of_hash(hash).is_some()
    }

    /// Removes a far record that was not read from far memory; false if it must be: its length is
    /// in its header, or its header says whether its slot stands for lost keys too.
    pub(in crate::shard) fn evict_unread(
        &mut self,
        hash: IndexHash,
        position: Position,
        slot: Slot,
    ) -> bool {
        if self.lost.is_any() || slot.class().units().is_none() {
            return false;
        }
        let bytes = account_bytes(slot.class(), 0);
        let feeds = self.feeds();
        let removed = self.trees.known_at(slot.address());
        if feeds && removed.is_none() {
            // A feed wants the key, which is in the record.
            return false;
        }
        self.metrics.removals.note(Removal::Evicted, removed);
        if let Some((key, _)) = removed.filter(|_| feeds) {
            let key = key.to_vec();
            self.note_gone(&key);
        }
        self.index.remove(hash, position);
        self.absences.note(hash, self.version);
        self.retire(slot.address(), bytes);
        self.note_evicted(bytes);
        true
    }

    /// Removes the long value of a piece; false if it is being written, or if its head must be read
    /// for that.
    #[cold]
    pub(in crate::shard) fn evict_value_of(&mut self, piece: Address) -> bool {
        let Some((hash, head)) = self.long.head_of_piece(piece) else {
            return false;
        };
        let Some(position) = self.index.find_address(hash, head) else {
            debug_assert!(false, "a slot leads to every head");
            return false;
        };
        match self.local.record_at(head) {
            Some(record) => {
                self.evict_record((hash, record.key()), head, record.header());
                true
            }
            None => self.evict_unread(hash, position, self.index.slot(position)),
        }
    }

    /// Removes the tree of a node, and frees the node; false if the head must be read for that.
    #[cold]
    pub(in crate::shard) fn evict_tree_of(&mut self, node: NodeName) -> bool {
        if let Some((hash, head)) = self.trees.head_of(node.tree) {
            let Some(position) = self.index.find_address(hash, head) else {
                debug_assert!(false, "a slot leads to every head");
                return false;
            };
            let is_evicted = match self.local.record_at(head) {
                Some(record) => {
                    self.evict_record((hash, record.key()), head, record.header());
                    true
                }
                None => self.evict_unread(hash, position, self.index.slot(position)),
            };
            if !is_evicted {
                return false;
            }
        }
        self.free_dying_node(node);
        true
    }

    /// Removes the record of a slot, local, cached or far, by its header.
    pub(in crate::shard) fn evict_record(
        &mut self,
        (hash, key): (IndexHash, &[u8]),
        address: Address,
        header: RecordHeader,
    ) {
        let Some(position) = self.index.find_address(hash, address) else {
            return;
        };
        let slot = self.index.slot(position);
        let bytes = account_bytes(slot.class(), header.units());
        let removed = Some((key, self.version_of(header, address)));
        self.metrics.removals.note(Removal::Evicted, removed);
        self.note_gone(key);
        self.remove_record(hash, (position, slot, self.framed_of(address), header));
        self.note_evicted(bytes);
    }

    fn note_evicted(&self, bytes: u64) {
        self.metrics.counters.evicted.add(1);
        self.metrics.counters.evicted_bytes.add(bytes);
    }

    /// Inserts a slot for which the index has no room and no memory, in place of others near its
    /// home. False if the index is not at its limit, or none near can be removed.
    #[cold]
    #[inline(never)]
    pub(in crate::shard) fn insert_in_place_of_others(
        &mut self,
        hash: IndexHash,
        class: SizeClass,
        address: Address,
    ) -> bool {
        if !self.evictor.is_on() || !self.is_index_at_limit(hash) {
            return false;
        }
        for _ in 0..REMOVED_FOR_SLOT_MAX {
            let near = BUCKETS_NEAR.into_iter();
            let Some(slot) = near
                .filter_map(|buckets| self.oldest_near(hash, buckets))
                .next()
            else {
                return false;
            };
            self.evict_near(hash, slot);
            let arena = &mut self.local.arena;
            if self.index.insert(hash, class, address, arena).is_ok() {
                return true;
            }
        }
        false
    }

    /// The slot near a hash's home whose record is the oldest, of those whose record can be removed
    /// now.
    fn oldest_near(&self, hash: IndexHash, buckets: usize) -> Option<(Position, Slot)> {
        let age = |slot: Slot| {
            let number = slot.address().page(self.shape);
            if self.local.pages.is_lost_page(number) {
                return None;
            }
            let page = self.local.page(number);
            let needs_header = self.lost.is_any() || slot.class().units().is_none();
            match page.state() {
                PageState::Far if needs_header => None,
                PageState::Clean | PageState::Far => Some((false, page.sequence)),
                PageState::Sealed if page.kind() == PageKind::Log => Some((true, page.sealed_at)),
                _ => None,
            }
        };
        let near = self.index.near(hash, buckets);
        let aged = near.filter_map(|(position, slot)| Some((age(slot)?, position, slot)));
        let oldest = aged.min_by_key(|&(age, ..)| age);
        oldest.map(|(_, position, slot)| (position, slot))
    }

    /// Removes the record of a slot that lies near the home of a hash.
    pub(in crate::shard) fn evict_near(
        &mut self,
        near: IndexHash,
        (position, slot): (Position, Slot),
    ) {
        match self.local.record_at(slot.address()) {
            Some(record) => {
                let hash = self.key_hasher.hash(record.key());
                self.evict_record((hash, record.key()), slot.address(), record.header());
            }
            // Both hashes are of one segment, which is all that the removal needs. Whose key is
            // absent from now on is not known.
            None => {
                if self.evict_unread(near, position, slot) {
                    self.absences.note_all(self.version);
                }
            }
        }
    }
}
