//! Which records of a victim are alive, and what leads to them: a slot, a cached copy of which the
//! record is the home, or the table of long values.

use farcore_rdma::Endpoint;

use crate::index::{Position, Slot};
use crate::log::page::DirectoryEntry;
use crate::log::{Address, SizeClass};
use crate::message::hash::IndexHash;
use crate::message::long::piece_key;
use crate::observe::removals::Removal;
use crate::shard::Shard;
use crate::shard::local::account_bytes;
use crate::shard::local::long_values::LongRecord;
use crate::shard::local::trees::NodeName;

/// A record that is alive, and what leads to it.
#[derive(Clone, Copy)]
pub(super) struct Living {
    /// Where its slot is; `None` for a piece of a long value and a node of a tree.
    pub(super) slot: Option<(Position, Slot)>,
    /// The node that it is.
    pub(super) node: Option<NodeName>,
    pub(super) address: Address,
    pub(super) class: SizeClass,
    /// The hash of the key that it goes with: its own, or that of its value.
    pub(super) hash: IndexHash,
}

/// What leads to the record of a directory entry.
pub(super) enum EntryState {
    Dead,
    /// A slot holds the record's address, or the table of long values does.
    Direct(Living),
    /// The slot holds a cached copy whose home the record is.
    Cached(Slot),
    /// It is a node of a dying tree.
    Dying(NodeName),
}

impl<E: Endpoint> Shard<E> {
    pub(super) fn life_of(&self, entry: &DirectoryEntry, address: Address) -> EntryState {
        for (position, slot) in self.index.candidates(entry.hash) {
            if slot.address() == address {
                return EntryState::Direct(Living {
                    slot: Some((position, slot)),
                    node: None,
                    address,
                    class: slot.class(),
                    hash: entry.hash,
                });
            }
            if self.framed_of(slot.address()).is_cached()
                && self.local.home_of(slot.address()) == address
            {
                return EntryState::Cached(slot);
            }
        }
        let node = NodeName::of_hash(entry.hash);
        if !self.trees.is_empty() && self.trees.lies_at(node, address) {
            return self.life_of_node(node, address);
        }
        self.life_of_piece(address)
    }

    fn life_of_node(&self, node: NodeName, address: Address) -> EntryState {
        let head = self.trees.head_of(node.tree);
        let Some(((hash, _), place)) = head.zip(self.trees.place_of(node)) else {
            return EntryState::Dying(node);
        };
        EntryState::Direct(Living {
            slot: None,
            node: Some(node),
            address,
            class: place.class(),
            hash,
        })
    }

    pub(super) fn life_of_piece(&self, address: Address) -> EntryState {
        let Some(LongRecord::Piece(id, place)) = self.long.owner(address) else {
            return EntryState::Dead;
        };
        let piece = self.long.piece(id, place);
        piece.map_or(EntryState::Dead, |piece| {
            EntryState::Direct(Living {
                slot: None,
                node: None,
                address,
                class: piece.class(),
                hash: self.long.hash_of(id),
            })
        })
    }

    /// True if a key is that of the record which the slot or the table means.
    pub(super) fn is_of_living(&self, key: &[u8], living: &Living) -> bool {
        if let Some(node) = living.node {
            return *key == self.trees.node_key(node);
        }
        match living.slot {
            Some(_) => self.is_of_slot(key, living.address),
            None => match self.long.owner(living.address) {
                Some(LongRecord::Piece(id, place)) => *key == piece_key(id, place),
                _ => false,
            },
        }
    }

    /// Points what leads to a record to where it was moved, and counts the old place dead.
    pub(super) fn redirect(&mut self, living: &Living, moved: Address, units: u32) {
        if let Some((position, slot)) = living.slot
            && !farcore_tuning::mutated!("slot-not-redirected")
        {
            self.index.replace(position, slot.class(), moved);
        }
        if !self.long.is_empty() && !farcore_tuning::mutated!("piece-not-moved") {
            self.long.moved(living.address, moved);
        }
        match living.node {
            Some(_) if farcore_tuning::mutated!("node-not-moved") => {}
            Some(node) => self.trees.set_place(node, moved, units),
            None if self.trees.is_empty() => {}
            None => self.trees.head_moved(living.address, moved),
        }
        self.retire(living.address, account_bytes(living.class, units));
    }

    /// Gives up a record that twice was not what was written.
    pub(super) fn give_up_living(&mut self, living: &Living) {
        if let Some((position, slot)) = living.slot {
            return self.give_up(position, slot);
        }
        if let Some(node) = living.node {
            return self.give_up_node(node);
        }
        if let Some(LongRecord::Piece(id, place)) = self.long.owner(living.address)
            && let Some(piece) = self.long.piece(id, place)
        {
            self.metrics.counters.records_damaged.add(1);
            self.long.lose_piece(living.address);
            self.note_loss();
            self.retire(living.address, piece.account_bytes());
        }
    }

    /// Removes a record that was not read from far memory, or the value that a piece is of; false
    /// if it must be read for that.
    pub(super) fn evict_living(&mut self, living: &Living) -> bool {
        match living.slot {
            // Its key must be read.
            Some(_) if self.metrics.removals.wants(Removal::Evicted) || self.feeds() => false,
            Some((position, slot)) => self.evict_unread(living.hash, position, slot),
            None => self.evict_around(living),
        }
    }

    /// Removes the long value of a piece, or the tree of a node; false if it cannot be now.
    pub(super) fn evict_around(&mut self, living: &Living) -> bool {
        match living.node {
            Some(node) => self.evict_tree_of(node),
            None => self.evict_value_of(living.address),
        }
    }

    /// True if any slot leads to a page, or to a copy of one of its records. Cost: the whole index
    /// is read.
    #[cold]
    pub(super) fn has_slots(&self, page: u32) -> bool {
        let mut has_slots = false;
        self.index.for_each(|slot| {
            let address = slot.address();
            has_slots |= address.page(self.shape) == page
                || self.framed_of(address).is_cached()
                    && self.local.home_of(address).page(self.shape) == page;
        });
        let shape = self.shape;
        has_slots |= self
            .trees
            .any_lies(|address| address.page(self.shape) == page);
        has_slots |= !(self.long.lying(|address| address.page(shape) == page)).is_empty();
        has_slots
    }
}
