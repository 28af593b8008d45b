//! Long values: which records are pieces of which value.
//!
//! A value that is too long for a record lies in *pieces*: records of the log that no slot leads
//! to. A slot leads to the *head*, a short record. This table is to pieces what the index is to
//! other records: a piece is alive if and only if it is here.
//!
//! ```text
//! slot -> head: | length:64 | id:64 |      id -> length, addresses of the pieces
//! address -> the head or the piece that lies there
//! ```
//!
//! - L1: `owners` has the address of every piece that is not lost, and of every head.
//! - L2: a value without a head is being written; it ends with its commit, or when its client
//!   pauses for too long.
//! - L3: a piece dies with its value, and a value with its head.

use std::collections::HashMap;

use crate::constants::{UNFINISHED_LONG_VALUES_MAX, UNIT_BYTES};
use crate::log::{Address, SizeClass};
use crate::message::hash::IndexHash;
use crate::shard::local::account_bytes;

/// Bytes of a piece's key.
const PIECE_KEY_BYTES: usize = 12;
/// Bytes of the table that a piece takes, about.
const BYTES_A_PIECE: u64 = 96;
/// The share of local memory that the table may take.
const TABLE_SHARE: u64 = 64;

/// A piece of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::shard) struct Piece {
    /// `None` if it was lost.
    pub(in crate::shard) address: Option<Address>,
    pub(in crate::shard) units: u32,
}

impl Piece {
    pub(in crate::shard) fn class(self) -> SizeClass {
        SizeClass::for_units(self.units)
    }

    /// Bytes that it counts for in its page.
    pub(in crate::shard) fn account_bytes(self) -> u64 {
        account_bytes(self.class(), self.units)
    }
}

/// The record of a long value that lies at an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::shard) enum LongRecord {
    Head(u64),
    Piece(u64, u32),
}

#[derive(Debug)]
struct LongValue {
    length: u64,
    /// Pieces that it has when it is complete.
    pieces_promised: usize,
    /// `None` while it is being written.
    head: Option<Address>,
    /// The hash of its key, once it has a head.
    hash: IndexHash,
    pieces: Vec<Piece>,
    /// When its client wrote last.
    written_ns: u64,
}

/// The long values of a shard.
#[derive(Debug, Default)]
pub(in crate::shard) struct LongValues {
    by_id: HashMap<u64, LongValue>,
    owners: HashMap<Address, LongRecord>,
    last_id: u64,
    /// Values that are being written.
    unfinished: Vec<u64>,
    /// Their pieces that were not written yet.
    promised: usize,
    pieces_max: usize,
}

impl LongValues {
    pub(in crate::shard) fn new(local_bytes: u64) -> Self {
        let pieces = local_bytes / TABLE_SHARE / BYTES_A_PIECE;
        Self {
            pieces_max: usize::try_from(pieces).unwrap_or(usize::MAX),
            ..Self::default()
        }
    }

    /// True if there are none: then no record is a piece or a head.
    #[inline]
    pub(in crate::shard) fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// Values with a head.
    pub(in crate::shard) fn count(&self) -> usize {
        self.by_id.len() - self.unfinished.len()
    }

    /// Values that are being written.
    pub(in crate::shard) fn unfinished(&self) -> usize {
        self.unfinished.len()
    }

    /// Pieces that there can be.
    pub(in crate::shard) fn pieces_max(&self) -> usize {
        self.pieces_max
    }

    /// Starts a value; `None` if too many are being written, or if its pieces have no room in the
    /// table.
    pub(in crate::shard) fn begin(
        &mut self,
        length: u64,
        pieces: usize,
        now_ns: u64,
    ) -> Option<u64> {
        let has_room = self.owners.len() + self.promised + pieces <= self.pieces_max;
        if self.unfinished.len() == UNFINISHED_LONG_VALUES_MAX || !has_room {
            return None;
        }
        self.last_id += 1;
        self.unfinished.push(self.last_id);
        self.promised += pieces;
        let value = LongValue {
            length,
            pieces_promised: pieces,
            head: None,
            hash: IndexHash::default(),
            pieces: Vec::new(),
            written_ns: now_ns,
        };
        self.by_id.insert(self.last_id, value);
        Some(self.last_id)
    }

    /// Pieces of a value that is being written, and the bytes that they are part of; `None` if
    /// there is no such value.
    pub(in crate::shard) fn written(&self, id: u64) -> Option<(&[Piece], u64)> {
        let value = self.by_id.get(&id).filter(|value| value.head.is_none())?;
        Some((&value.pieces, value.length))
    }

    /// Adds the next piece of a value.
    pub(in crate::shard) fn add(&mut self, id: u64, address: Address, units: u32, now_ns: u64) {
        let Some(value) = self.by_id.get_mut(&id) else {
            return;
        };
        let place = u32::try_from(value.pieces.len()).unwrap_or(u32::MAX);
        value.written_ns = now_ns;
        self.promised = self.promised.saturating_sub(1);
        let piece = Piece {
            address: Some(address),
            units,
        };
        value.pieces.push(piece);
        self.owners.insert(address, LongRecord::Piece(id, place));
    }

    /// Gives a value its head.
    pub(in crate::shard) fn adopt(&mut self, id: u64, hash: IndexHash, head: Address) {
        if let Some(value) = self.by_id.get_mut(&id) {
            value.hash = hash;
            self.unfinished.retain(|&other| other != id);
            value.head = Some(head);
            self.owners.insert(head, LongRecord::Head(id));
        }
    }

    /// Takes a value off its head, which is about to be written elsewhere: the value does not die
    /// with the record. [`LongValues::adopt`] must follow.
    pub(in crate::shard) fn detach(&mut self, head: Address) -> Option<u64> {
        match self.owners.get(&head) {
            Some(&LongRecord::Head(id)) => {
                self.owners.remove(&head);
                Some(id)
            }
            _ => None,
        }
    }

    /// What lies at an address.
    pub(in crate::shard) fn owner(&self, address: Address) -> Option<LongRecord> {
        self.owners.get(&address).copied()
    }

    /// The hash of a value's key.
    pub(in crate::shard) fn hash_of(&self, id: u64) -> IndexHash {
        self.by_id
            .get(&id)
            .map_or(IndexHash::default(), |value| value.hash)
    }

    /// Hash and head of the value that the piece at an address is of; `None` if it is being
    /// written.
    pub(in crate::shard) fn head_of_piece(&self, piece: Address) -> Option<(IndexHash, Address)> {
        let Some(LongRecord::Piece(id, _)) = self.owner(piece) else {
            return None;
        };
        let value = self.by_id.get(&id)?;
        Some((value.hash, value.head?))
    }

    /// A piece of a value.
    pub(in crate::shard) fn piece(&self, id: u64, place: u32) -> Option<Piece> {
        let value = self.by_id.get(&id)?;
        value.pieces.get(place as usize).copied()
    }

    /// The length of the value whose head lies at an address, and its id.
    pub(in crate::shard) fn at_head(&self, head: Address) -> Option<(u64, u64)> {
        match self.owners.get(&head)? {
            LongRecord::Head(id) => Some((self.by_id.get(id)?.length, *id)),
            LongRecord::Piece(..) => None,
        }
    }

    /// The length of a value; 0 if there is none.
    pub(in crate::shard) fn length(&self, id: u64) -> u64 {
        self.by_id.get(&id).map_or(0, |value| value.length)
    }

    /// The value whose head lies at an address.
    pub(in crate::shard) fn id_at(&self, head: Address) -> Option<u64> {
        self.at_head(head).map(|(_, id)| id)
    }

    /// Notes that a record lies elsewhere now.
    pub(in crate::shard) fn moved(&mut self, from: Address, to: Address) {
        let Some(owner) = self.owners.remove(&from) else {
            return;
        };
        self.owners.insert(to, owner);
        match owner {
            LongRecord::Head(id) => {
                if let Some(value) = self.by_id.get_mut(&id) {
                    value.head = Some(to);
                }
            }
            LongRecord::Piece(id, place) => self.set_address(id, place, Some(to)),
        }
    }

    fn set_address(&mut self, id: u64, place: u32, address: Option<Address>) {
        let value = self.by_id.get_mut(&id);
        if let Some(piece) = value.and_then(|value| value.pieces.get_mut(place as usize)) {
            piece.address = address;
        }
    }

    /// Notes that the piece at an address cannot be read any more.
    pub(in crate::shard) fn lose_piece(&mut self, address: Address) {
        if let Some(LongRecord::Piece(id, place)) = self.owners.get(&address).copied() {
            self.owners.remove(&address);
            self.set_address(id, place, None);
        }
    }

    /// Ends a value; returns its pieces, whose records are dead now.
    pub(in crate::shard) fn end(&mut self, id: u64) -> Vec<Piece> {
        let Some(value) = self.by_id.remove(&id) else {
            return Vec::new();
        };
        match value.head {
            Some(head) => drop(self.owners.remove(&head)),
            None => {
                self.unfinished.retain(|&other| other != id);
                let left = value.pieces_promised - value.pieces.len();
                self.promised = self.promised.saturating_sub(left);
            }
        }
        for address in value.pieces.iter().filter_map(|piece| piece.address) {
            self.owners.remove(&address);
        }
        value.pieces
    }

    /// Values being written whose clients have not written since a time.
    pub(in crate::shard) fn abandoned(&self, since_ns: u64) -> Vec<u64> {
        let is_abandoned = |id: &&u64| {
            let value = self.by_id.get(id);
            value.is_some_and(|value| value.written_ns < since_ns)
        };
        let ids = self.unfinished.iter();
        ids.filter(is_abandoned).copied().collect()
    }

    /// Addresses of pieces and heads that satisfy a predicate.
    pub(in crate::shard) fn lying(&self, there: impl Fn(Address) -> bool) -> Vec<Address> {
        let addresses = self.owners.keys().copied();
        addresses.filter(|&address| there(address)).collect()
    }

    /// Forgets all values: their records were counted dead.
    pub(in crate::shard) fn clear(&mut self) {
        self.by_id = HashMap::new();
        self.owners = HashMap::new();
        self.unfinished = Vec::new();
        self.promised = 0;
    }

    /// Pieces that are alive, for checks.
    #[cfg(test)]
    pub(in crate::shard) fn pieces(&self) -> impl Iterator<Item = Piece> {
        self.by_id.values().flat_map(|value| value.pieces.clone())
    }
}

/// Bytes of value that a piece holds: four pieces fill a page.
pub(crate) fn piece_bytes(page_bytes: usize) -> usize {
    (page_bytes - (4 << 10)) / 4 / UNIT_BYTES * UNIT_BYTES - 3 * UNIT_BYTES
}

const _: () = assert!(PIECE_KEY_BYTES <= UNIT_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u64) -> Address {
        Address::from_raw(number)
    }

    #[test]
    fn a_value_ends_with_its_head_and_takes_its_pieces_along() {
        let mut long = LongValues::new(1 << 20);
        let id = long.begin(5000, 2, 0).unwrap();
        assert!(long.is_empty() && long.unfinished() == 1);
        long.add(id, address(10), 100, 1);
        long.add(id, address(20), 50, 2);
        assert_eq!(long.owner(address(20)), Some(LongRecord::Piece(id, 1)));
        long.adopt(id, IndexHash(5), address(30));
        assert_eq!((long.count(), long.unfinished()), (1, 0));
        assert_eq!(long.at_head(address(30)), Some((5000, id)));
        long.moved(address(30), address(31));
        long.moved(address(10), address(11));
        long.moved(address(99), address(98));
        assert_eq!(long.at_head(address(31)), Some((5000, id)));
        long.lose_piece(address(20));
        assert_eq!(long.piece(id, 1).unwrap().address, None);
        let pieces: Vec<_> = long.end(id).iter().map(|piece| piece.address).collect();
        assert_eq!(pieces, [Some(address(11)), None]);
        assert!(long.is_empty() && long.count() == 0);
    }

    #[test]
    fn a_value_that_is_not_finished_is_found_by_its_last_write() {
        let mut long = LongValues::new(1 << 20);
        let old = long.begin(1, 1, 5).unwrap();
        let young = long.begin(1, 1, 9).unwrap();
        assert!(long.abandoned(5).is_empty());
        assert_eq!(long.abandoned(9), [old]);
        long.adopt(young, IndexHash(6), address(3));
        assert_eq!(long.abandoned(100), [old]);
        long.end(old);
        assert_eq!(long.unfinished(), 0);
    }

    #[test]
    fn the_table_and_unfinished_values_are_bounded() {
        let mut long = LongValues::new(1 << 20);
        assert_eq!(long.begin(1, long.pieces_max() + 1, 0), None);
        // Room that one was promised is not promised to another.
        let all = long.begin(1, long.pieces_max(), 0).unwrap();
        assert_eq!(long.begin(1, 1, 0), None);
        long.end(all);
        for _ in 0..UNFINISHED_LONG_VALUES_MAX {
            assert!(long.begin(1, 1, 0).is_some());
        }
        assert_eq!(long.begin(1, 1, 0), None);
    }

    #[test]
    fn four_pieces_fit_a_page_with_their_headers_and_tags() {
        for page_bytes in [64 << 10, 256 << 10, 2 << 20] {
            let record = UNIT_BYTES + PIECE_KEY_BYTES + piece_bytes(page_bytes);
            let units = record.div_ceil(UNIT_BYTES) + 1;
            assert!(4 * units * UNIT_BYTES + 4096 <= page_bytes + 64);
        }
    }
}
