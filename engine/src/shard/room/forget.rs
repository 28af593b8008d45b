//! Lost records: what is known of records that no node holds any more, and how that ends.
//!
//! A record is lost when its node loses its memory. It is given up when what was read of it was
//! not, twice, what was written.
//!
//! When a node loses its memory, the keys of its records are unknown. Only their slots are known,
//! which give root, tag and home bucket. So a *lost slot* stands for every key of the same bits
//! that has no record of its own. Such a key is answered [`Error::Unavailable`] and never `Absent`,
//! until one of these happens:
//!
//! - it is written: its record takes the lost slot over. The slot may have been another key's, so
//!   the record carries the *loss mark* of the generation, and still stands for the other keys.
//!   The index does not grow;
//! - it is deleted: the slot notes a fingerprint of the key, and does not stand for it any more. If
//!   the slot was taken over, it becomes a lost slot again;
//! - it is forgotten with all that was lost, because the caller says so or the engine was opened to
//!   forget at once: a new generation begins. A collection that has lost a node is forgotten whole;
//!   until then what does not need the node is answered. Slots and marks of an older one
//!   mean nothing, and the slots are removed in slices between requests.
//!
//! ```text
//! address of a lost slot:  | lost page of the generation | fingerprint, low bits |      class: fingerprint, high 6 bits
//! fingerprint:             hash bits from 22 on, as many as fit (18 with pages of 64 KiB, 23 with 2 MiB); 0 excepts no key
//! ```
//!
//! - L1: lost slots of this generation lead to its lost page, those of the previous one to the
//!   other lost page. Older ones do not exist.
//! - L2: a lost key is never answered `Absent` before it is written, deleted or forgotten, with one
//!   exception: a deleted key of the same root, tag, home and fingerprint excepts it too. That is
//!   one pair of keys in 2^40.
//! - L3: errors are on the safe side: a key that was never stored may be answered `Unavailable`.
//!
//! A slot notes one fingerprint. If several keys of the same bits are deleted, only the last is
//! noted, and the others are answered `Unavailable` again.

use std::sync::Arc;

use farcore_rdma::Endpoint;

use crate::constants::UNIT_BYTES;
use crate::error::{Error, LOST};
use crate::index::{Position, Slot};
use crate::log::class::CLASS_UNITS_MAX;
use crate::log::record::{LOSS_MARK_MAX, RecordHeader};
use crate::log::{Address, PageShape, SizeClass};
use crate::message::hash::IndexHash;
use crate::shard::Shard;
use crate::shard::room::lost::KNOWN_BITS;

/// Segments of the index that one slice sweeps.
const SEGMENTS_A_SLICE: usize = 2;
/// The lowest bit of a fingerprint in the hash; lower bits are tag and home, or unused.
const FINGERPRINT_SHIFT: u32 = KNOWN_BITS;

/// A fingerprint of a key that fits a lost slot; never 0.
fn fingerprint(hash: IndexHash, shape: PageShape) -> u64 {
    let bits = shape.unit_bits() + SizeClass::BITS;
    (hash.0 >> FINGERPRINT_SHIFT & ((1 << bits) - 1)).max(1)
}

/// The fingerprint of the key that a lost slot does not stand for, or 0.
fn excepted_by(slot: Slot, shape: PageShape) -> u64 {
    u64::from(slot.address().unit(shape)) | slot.class().raw() << shape.unit_bits()
}

impl<E: Endpoint> Shard<E> {
    /// What a lost slot of this generation holds: the fingerprint of the key that it does not stand
    /// for, or 0.
    pub(in crate::shard) fn lost_place(&self, excepted: u64) -> (SizeClass, Address) {
        let shape = self.shape;
        let page = self.local.pages.lost_page(self.lost.generation);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "masked to the bits of a unit"
        )]
        let unit = (excepted & ((1 << shape.unit_bits()) - 1)) as u32;
        let class = SizeClass::from_raw(excepted >> shape.unit_bits());
        (class, Address::new(shape, page, unit))
    }

    /// True if a slot that leads to a lost page stands for the keys of a hash.
    pub(in crate::shard) fn stands_for(&self, slot: Slot, hash: IndexHash) -> bool {
        let shape = self.shape;
        slot.address().page(shape) == self.local.pages.lost_page(self.lost.generation)
            && excepted_by(slot, shape) != fingerprint(hash, shape)
    }

    /// True if a lost slot excepts a key.
    pub(in crate::shard) fn excepts(&self, position: Position) -> bool {
        excepted_by(self.index.slot(position), self.shape) != 0
    }

    /// Excepts a deleted key from the lost slots of its bits; returns how many there are.
    #[cold]
    pub(in crate::shard) fn except_from_lost(&mut self, hash: IndexHash) -> usize {
        let excepted = self.lost_place(fingerprint(hash, self.shape));
        let (shape, page) = (self.shape, self.local.pages.lost_page(self.lost.generation));
        let mut newly = 0;
        let count = self.index.replace_each(hash, |slot| {
            let is_lost = slot.address().page(shape) == page;
            newly += u64::from(is_lost && excepted_by(slot, shape) == 0);
            is_lost.then_some(excepted)
        });
        self.lost.excepted_slots += newly;
        count
    }

    /// Removes the slot of a key that is deleted while other keys may be lost. If its record took a
    /// lost slot over, the slot becomes lost again.
    #[cold]
    #[inline(never)]
    pub(in crate::shard) fn remove_beside_lost(
        &mut self,
        hash: IndexHash,
        position: Position,
        header: RecordHeader,
    ) {
        let others = self.except_from_lost(hash);
        let is_marked = self.lost.is_marked(header);
        if others > 0 || is_marked {
            self.note_removed(hash);
        }
        if is_marked && others == 0 {
            let (class, address) = self.lost_place(fingerprint(hash, self.shape));
            self.index.replace(position, class, address);
            self.lost.note_slots(1);
            self.lost.excepted_slots += 1;
        } else {
            self.index.remove(hash, position);
        }
    }

    /// The error for a key that may be lost; `damaged` is the address of a record that may be the
    /// key's and cannot be read.
    pub(in crate::shard) fn lost_error(&self, damaged: Option<Address>) -> Error {
        match damaged {
            Some(address) => Error::Damaged {
                shard: self.id,
                sequence: self.local.pages.get(address.page(self.shape)).sequence,
                unit: address.unit(self.shape),
            },
            None => Error::Unavailable {
                node: Arc::clone(self.lost.nodes()),
                reason: LOST.into(),
            },
        }
    }

    /// Gives up a far record whose bytes twice were not what was written: its slot becomes lost.
    #[cold]
    pub(in crate::shard) fn give_up(&mut self, position: Position, slot: Slot) {
        let address = slot.address();
        let number = address.page(self.shape);
        for name in self.far.pages.node_names(number) {
            self.lost.note_node(&name);
        }
        let (class, place) = self.lost_place(0);
        self.index.replace(position, class, place);
        self.lost.note_slots(1);
        self.note_loss();
        self.background_due |= self.lost.at_once;
        self.metrics.counters.records_damaged.add(1);
        // The length of a record too long for a class was in its header, which is unreadable:
        // assume the least.
        let units = slot.class().units().unwrap_or(CLASS_UNITS_MAX + 1);
        if slot.class().units().is_none() {
            self.local.note_long_given_up(number);
        }
        self.retire(address, u64::from(units) * UNIT_BYTES as u64);
    }

    /// Gives up the far records at addresses that may be a key's.
    #[cold]
    pub(in crate::shard) fn give_up_damaged(&mut self, hash: IndexHash, damaged: &[Address]) {
        for &address in damaged {
            // A record that is local now is another one, in a page that reuses the number.
            if self.framed_of(address).is_far()
                && let Some(position) = self.index.find_address(hash, address)
            {
                let slot = self.index.slot(position);
                self.give_up(position, slot);
            }
        }
    }

    /// A lost slot that stands for the keys of a hash.
    pub(in crate::shard) fn lost_slot(&self, hash: IndexHash) -> Option<Position> {
        let mut candidates = self.index.candidates(hash);
        let found = candidates.find(|&(_, slot)| self.stands_for(slot, hash));
        found.map(|(position, _)| position)
    }

    /// True if a key belongs to the slot that leads to an address. A key of another slot there
    /// means that the record is not what was written.
    pub(in crate::shard) fn is_of_slot(&self, key: &[u8], address: Address) -> bool {
        let hash = self.key_hasher.hash(key);
        self.index.find_address(hash, address).is_some()
    }

    /// Counts lost keys as absent from now on. Their slots are removed in slices;
    /// [`Shard::forgetting_done`] reports the end.
    pub(crate) fn start_forgetting(&mut self) {
        debug_assert!(
            self.lost.sweep.is_none(),
            "one generation is forgotten at a time"
        );
        self.lose_torn_trees();
        let lost = &mut self.lost;
        if !std::mem::take(&mut lost.any) {
            return;
        }
        tracing::info!(
            shard = self.id,
            keys = lost.keys(),
            "forgetting lost keys: they are absent from now on"
        );
        self.absences.note_all(self.version);
        lost.forgotten += lost.keys();
        lost.forgotten_slots = std::mem::take(&mut lost.slots);
        lost.excepted_slots = 0;
        lost.generation = lost.generation % LOSS_MARK_MAX + 1;
        lost.sweep = Some(0);
        lost.takers = None;
        self.background_due = true;
    }

    /// Forgets what is lost, if that is wanted at once and the generation before is swept.
    pub(in crate::shard) fn forget_at_once(&mut self) {
        let is_any = self.lost.any || self.trees.has_torn();
        if self.lost.at_once && is_any && self.forgetting_done() {
            self.start_forgetting();
        }
    }

    /// Counts trees that have lost a node lost as a whole: their heads' slots become lost.
    pub(in crate::shard) fn lose_torn_trees(&mut self) {
        if !self.trees.has_torn() {
            return;
        }
        for place in self.trees.take_torn() {
            let Some((hash, head)) = self.trees.head_of(place) else {
                continue;
            };
            let Some(position) = self.index.find_address(hash, head) else {
                debug_assert!(false, "a slot leads to every head");
                continue;
            };
            let slot = self.index.slot(position);
            let (class, lost_place) = self.lost_place(0);
            self.index.replace(position, class, lost_place);
            self.lost.note_slots(1);
            match self.local.record_at(head) {
                Some(record) => {
                    let units = record.header().units();
                    self.retire_slot(slot, self.framed_of(head), units);
                }
                None => {
                    let units = slot.class().units();
                    if units.is_none() {
                        self.local.note_long_given_up(head.page(self.shape));
                    }
                    let units = units.unwrap_or(CLASS_UNITS_MAX + 1);
                    self.retire(head, u64::from(units) * UNIT_BYTES as u64);
                }
            }
        }
    }

    /// True once all slots are removed after [`Shard::start_forgetting`].
    pub(crate) fn forgetting_done(&self) -> bool {
        self.lost.sweep.is_none()
    }

    /// Keys forgotten so far.
    pub(crate) fn keys_forgotten(&self) -> u64 {
        self.lost.forgotten
    }

    /// Removes the forgotten slots of some segments. True if there is more to do.
    ///
    /// Growth moves slots to segments of higher numbers only, so none escapes.
    pub(in crate::shard) fn forget_slice(&mut self) -> bool {
        self.forget_at_once();
        let Some(next) = self.lost.sweep else {
            return false;
        };
        let shape = self.shape;
        let (pages, now) = (
            &self.local.pages,
            self.local.pages.lost_page(self.lost.generation),
        );
        let is_forgotten = |slot: Slot| {
            let page = slot.address().page(shape);
            pages.is_lost_page(page) && page != now
        };
        let end = next + SEGMENTS_A_SLICE;
        let before = self.index.len();
        let more = self.index.remove_where(next..end, is_forgotten);
        let removed = (before - self.index.len()) as u64;
        self.lost.forgotten_slots = self.lost.forgotten_slots.saturating_sub(removed);
        self.lost.sweep = more.then_some(end);
        true
    }
}
