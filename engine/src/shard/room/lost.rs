//! What a shard knows of records that no node holds any more; [`forget`](super::forget) says what
//! follows.

use std::sync::Arc;

use crate::log::record::RecordHeader;
use crate::message::hash::IndexHash;
use crate::shard::local::page_table::PageTable;

/// Bits of a hash that are tag and home: those that a lost slot has, beside its root.
pub(super) const KNOWN_BITS: u32 = 22;
/// Bytes of a bit for each value of these.
const TAKERS_BYTES: usize = (1 << KNOWN_BITS) / 8;

/// The word and the bit of a hash.
fn taker(hash: IndexHash) -> (usize, u64) {
    let known = hash.0 & ((1 << KNOWN_BITS) - 1);
    let word = usize::try_from(known / 64).unwrap_or(0);
    (word, 1 << (known % 64))
}

/// What a shard knows of lost records.
#[derive(Debug)]
pub(in crate::shard) struct Lost {
    /// Names of the nodes that have lost their memory.
    pub(super) nodes: Arc<str>,
    /// The current generation, from 1.
    pub(super) generation: u16,
    /// Lost slots of this generation.
    pub(super) slots: u64,
    /// Those of them that except a deleted key, which was almost surely theirs.
    pub(super) excepted_slots: u64,
    /// Lost slots of the previous generation that were not removed yet.
    pub(super) forgotten_slots: u64,
    /// There are lost slots of this generation, or records that took one over.
    pub(super) any: bool,
    /// The next segment to sweep for lost slots of the previous generation.
    pub(super) sweep: Option<usize>,
    /// Keys forgotten so far.
    pub(super) forgotten: u64,
    /// What is lost is forgotten at once.
    pub(super) at_once: bool,
    /// A bit for each pair of home and tag that a record of this generation has which took a lost
    /// slot over. [`TAKERS_BYTES`] bytes from the first one on.
    pub(super) takers: Option<Box<[u64]>>,
    /// How often something was lost.
    pub(super) losses: u64,
}

impl Default for Lost {
    fn default() -> Self {
        Self {
            nodes: Arc::from(""),
            generation: 1,
            slots: 0,
            excepted_slots: 0,
            forgotten_slots: 0,
            any: false,
            sweep: None,
            forgotten: 0,
            at_once: false,
            takers: None,
            losses: 0,
        }
    }
}

impl Lost {
    /// Nothing is lost yet; whether what is lost later is forgotten at once.
    pub(in crate::shard) fn new(at_once: bool) -> Self {
        Self {
            at_once,
            ..Self::default()
        }
    }

    /// True if what is lost is forgotten at once.
    pub(in crate::shard) fn is_forgotten_at_once(&self) -> bool {
        self.at_once
    }

    /// Keys that are lost: slots of this generation without those whose key was deleted.
    pub(in crate::shard) fn keys(&self) -> u64 {
        self.slots.saturating_sub(self.excepted_slots)
    }

    /// Lost slots of this generation.
    #[cfg(any(test, feature = "simulation"))]
    pub(in crate::shard) fn slots(&self) -> u64 {
        self.slots
    }

    /// Lost slots in the index, forgotten ones included.
    pub(in crate::shard) fn slots_in_index(&self) -> u64 {
        self.slots + self.forgotten_slots
    }

    /// True if a lost page stands for records of this generation.
    pub(in crate::shard) fn is_current(&self, page: u32, pages: &PageTable) -> bool {
        page == pages.lost_page(self.generation)
    }

    /// Notes that the index was emptied: no slot is lost, and no record took one over.
    pub(in crate::shard) fn clear(&mut self) {
        (self.slots, self.excepted_slots) = (0, 0);
        (self.forgotten_slots, self.any) = (0, false);
        self.takers = None;
    }

    /// True if a key may be lost.
    #[inline]
    pub(in crate::shard) fn is_any(&self) -> bool {
        self.any && !farcore_tuning::mutated!("lost-answers-absent")
    }

    /// True if keys were lost, if only ones that are forgotten.
    pub(in crate::shard) fn was_any(&self) -> bool {
        self.any || self.forgotten > 0
    }

    /// Names of the nodes that have lost their memory.
    pub(in crate::shard) fn nodes(&self) -> &Arc<str> {
        &self.nodes
    }

    /// True if the record took over a slot that also stands for other keys.
    #[inline]
    pub(in crate::shard) fn is_marked(&self, header: RecordHeader) -> bool {
        self.any && header.loss_mark() == self.generation
    }

    /// The loss mark of records that take a lost slot over.
    pub(in crate::shard) fn mark(&self) -> u16 {
        self.generation
    }

    pub(in crate::shard) fn note_slots(&mut self, slots: u64) {
        self.slots += slots;
        self.any |= slots > 0;
    }

    /// Notes that a record took a lost slot over, which may have excepted a key.
    pub(in crate::shard) fn note_taken_over(&mut self, hash: IndexHash, excepts: bool) {
        debug_assert!(self.slots > 0);
        let (word, bit) = taker(hash);
        let takers = self
            .takers
            .get_or_insert_with(|| vec![0; TAKERS_BYTES / 8].into());
        takers[word] |= bit;
        self.slots = self.slots.saturating_sub(1);
        self.excepted_slots = self.excepted_slots.saturating_sub(u64::from(excepts));
    }

    /// Notes that something was lost.
    pub(in crate::shard) fn note_loss(&mut self) {
        self.losses += 1;
    }

    /// How often something was lost.
    pub(in crate::shard) fn losses(&self) -> u64 {
        self.losses
    }

    /// True if a record of the same bits as a key of this hash took a lost slot over, which may
    /// have been the key's.
    pub(in crate::shard) fn may_hide(&self, hash: IndexHash) -> bool {
        let (word, bit) = taker(hash);
        let takers = self.takers.as_ref();
        takers.is_some_and(|takers| takers[word] & bit != 0)
    }

    /// Notes the name of a node that has lost its memory.
    pub(in crate::shard) fn note_node(&mut self, name: &Arc<str>) {
        if self.nodes.split(", ").any(|known| known == &**name) {
            return;
        }
        self.nodes = if self.nodes.is_empty() {
            Arc::clone(name)
        } else {
            format!("{}, {name}", self.nodes).into()
        };
    }
}
