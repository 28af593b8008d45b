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
//! - L2: a value without a head is being written, unless it is an orphan (L3). It gets its head
//!   with its commit, and ends when its client pauses for too long.
//! - L3: a piece dies with its value. A value dies with its head, unless a client has pinned it:
//!   then it has no key any more (an *orphan*), and dies with its last pin.
//! - L4: a pin lapses when nothing of its value was read for too long.

use std::collections::HashMap;

use crate::constants::{LONG_PINS_MAX, UNFINISHED_LONG_VALUES_MAX, UNIT_BYTES};
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
    /// `None` while it is being written, and of an orphan.
    head: Option<Address>,
    is_orphan: bool,
    /// The hash of its key, once it has a head.
    hash: IndexHash,
    pieces: Vec<Piece>,
    /// The numbers of its pins.
    pins: Vec<u64>,
    /// When its client wrote last, or one that keeps it has read last.
    used_ns: u64,
    /// Since when its next piece waits for room; 0 if it does not.
    waits_since_ns: u64,
}

/// The long values of a shard.
#[derive(Debug, Default)]
pub(in crate::shard) struct LongValues {
    by_id: HashMap<u64, LongValue>,
    owners: HashMap<Address, LongRecord>,
    last_id: u64,
    /// Values that are being written.
    unfinished: Vec<u64>,
    /// Values that are pinned, and how many of them are orphans.
    pinned: Vec<u64>,
    orphans: usize,
    pins: usize,
    last_pin: u64,
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

    /// Sets how many pieces there may be: for simulations.
    #[cfg(feature = "simulation")]
    pub(in crate::shard) fn set_pieces_max(&mut self, pieces: usize) {
        self.pieces_max = pieces;
    }

    /// True if there are none: then no record is a piece or a head.
    #[inline]
    pub(in crate::shard) fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// True if there is a value, if only one that is being written.
    pub(in crate::shard) fn has_any(&self) -> bool {
        !self.by_id.is_empty()
    }

    /// Values with a head.
    pub(in crate::shard) fn count(&self) -> usize {
        self.by_id.len() - self.unfinished.len() - self.orphans
    }

    /// Values that are being written, if a value of `pieces` pieces has room without them; else 0:
    /// then waiting for them is in vain.
    pub(in crate::shard) fn unfinished_in_the_way(&self, pieces: usize) -> usize {
        if self.owners.len() + pieces <= self.pieces_max {
            self.unfinished.len()
        } else {
            0
        }
    }

    /// Values that are being written, for checks.
    #[cfg(test)]
    pub(in crate::shard) fn unfinished(&self) -> usize {
        self.unfinished.len()
    }

    /// The number of the next value.
    pub(in crate::shard) fn next_id(&self) -> u64 {
        self.last_id + 1
    }

    /// The numbers of values that are being written.
    pub(in crate::shard) fn unfinished_ids(&self) -> Vec<u64> {
        self.unfinished.clone()
    }

    /// True if a value with a lesser number is being written.
    pub(in crate::shard) fn has_unfinished_before(&self, number: u64) -> bool {
        self.unfinished.iter().any(|&id| id < number)
    }

    /// True if clients write or keep values, which ends when they pause for too long.
    pub(in crate::shard) fn has_users(&self) -> bool {
        !self.unfinished.is_empty() || !self.pinned.is_empty()
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
            is_orphan: false,
            hash: IndexHash::default(),
            pieces: Vec::new(),
            pins: Vec::new(),
            used_ns: now_ns,
            waits_since_ns: 0,
        };
        self.by_id.insert(self.last_id, value);
        Some(self.last_id)
    }

    /// Pieces of a value that is being written, and the bytes that they are part of; `None` if
    /// there is no such value.
    pub(in crate::shard) fn written(&self, id: u64) -> Option<(&[Piece], u64)> {
        let is_unfinished = |value: &&LongValue| value.head.is_none() && !value.is_orphan;
        let value = self.by_id.get(&id).filter(is_unfinished)?;
        Some((&value.pieces, value.length))
    }

    /// Notes that the next piece of a value waits for room; returns for how long it has.
    pub(in crate::shard) fn note_waiting(&mut self, id: u64, now_ns: u64) -> u64 {
        let Some(value) = self.by_id.get_mut(&id) else {
            return 0;
        };
        if value.waits_since_ns == 0 {
            value.waits_since_ns = now_ns;
        }
        now_ns.saturating_sub(value.waits_since_ns)
    }

    /// Adds the next piece of a value.
    pub(in crate::shard) fn add(&mut self, id: u64, address: Address, units: u32, now_ns: u64) {
        let Some(value) = self.by_id.get_mut(&id) else {
            return;
        };
        let place = u32::try_from(value.pieces.len()).unwrap_or(u32::MAX);
        value.used_ns = now_ns;
        value.waits_since_ns = 0;
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

    /// Pins a value that has a head; returns the pin's number, or `None` if there are `max` pins.
    pub(in crate::shard) fn pin(&mut self, id: u64, max: usize, now_ns: u64) -> Option<u64> {
        let has_room = self.pins < max.min(LONG_PINS_MAX);
        let value = self.by_id.get_mut(&id).filter(|_| has_room)?;
        if value.pins.is_empty() {
            self.pinned.push(id);
        }
        self.last_pin += 1;
        self.pins += 1;
        value.pins.push(self.last_pin);
        value.used_ns = now_ns;
        Some(self.last_pin)
    }

    /// Releases a pin. `None` if there is none of this number; true if the value is to end.
    pub(in crate::shard) fn unpin(&mut self, id: u64, pin: u64) -> Option<bool> {
        let value = self.by_id.get_mut(&id)?;
        let place = value.pins.iter().position(|&one| one == pin)?;
        value.pins.swap_remove(place);
        self.pins -= 1;
        if !value.pins.is_empty() {
            return Some(false);
        }
        let is_orphan = value.is_orphan;
        self.pinned.retain(|&other| other != id);
        Some(is_orphan)
    }

    /// Notes that a client has read from a value or means to go on, so that its pins do not lapse.
    pub(in crate::shard) fn note_used(&mut self, id: u64, now_ns: u64) {
        if self.pinned.is_empty() && self.unfinished.is_empty() {
            return;
        }
        if let Some(value) = self.by_id.get_mut(&id) {
            value.used_ns = now_ns;
        }
    }

    /// The head of a value dies. True if the value lives on without one, because it is pinned.
    pub(in crate::shard) fn orphan(&mut self, id: u64) -> bool {
        let Some(value) = self.by_id.get_mut(&id) else {
            return false;
        };
        if value.pins.is_empty() {
            return false;
        }
        if let Some(head) = value.head.take() {
            self.owners.remove(&head);
            value.is_orphan = true;
            self.orphans += 1;
        }
        true
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

    /// True if a piece of a value was lost.
    pub(in crate::shard) fn is_torn(&self, id: u64) -> bool {
        let value = self.by_id.get(&id);
        value.is_some_and(|value| value.pieces.iter().any(|piece| piece.address.is_none()))
    }

    /// The hashes of the keys whose values have lost a piece.
    pub(in crate::shard) fn torn_hashes(&self) -> impl Iterator<Item = IndexHash> {
        let values = self.by_id.values().filter(|value| value.head.is_some());
        let is_torn = |value: &&LongValue| value.pieces.iter().any(|piece| piece.address.is_none());
        values.filter(is_torn).map(|value| value.hash)
    }

    /// Ends a value; returns its pieces, whose records are dead now.
    pub(in crate::shard) fn end(&mut self, id: u64) -> Vec<Piece> {
        let Some(value) = self.by_id.remove(&id) else {
            return Vec::new();
        };
        match value.head {
            Some(head) => drop(self.owners.remove(&head)),
            None if value.is_orphan => self.orphans -= 1,
            None => {
                self.unfinished.retain(|&other| other != id);
                let left = value.pieces_promised - value.pieces.len();
                self.promised = self.promised.saturating_sub(left);
            }
        }
        for address in value.pieces.iter().filter_map(|piece| piece.address) {
            self.owners.remove(&address);
        }
        if !value.pins.is_empty() {
            self.pins -= value.pins.len();
            self.pinned.retain(|&other| other != id);
        }
        value.pieces
    }

    /// Values being written whose clients have not written since a time, and orphans that were not
    /// read since. Pins of other values that were not read since lapse.
    pub(in crate::shard) fn abandoned(&mut self, since_ns: u64) -> Vec<u64> {
        let is_abandoned = |by_id: &HashMap<u64, LongValue>, id: &u64| {
            let value = by_id.get(id);
            value.is_some_and(|value| value.used_ns < since_ns)
        };
        let unfinished = self.unfinished.iter().copied();
        let mut abandoned: Vec<_> = unfinished
            .filter(|id| is_abandoned(&self.by_id, id))
            .collect();
        for id in self.pinned.clone() {
            if !is_abandoned(&self.by_id, &id) {
                continue;
            }
            self.pinned.retain(|&other| other != id);
            if let Some(value) = self.by_id.get_mut(&id) {
                self.pins -= std::mem::take(&mut value.pins).len();
                if value.is_orphan {
                    abandoned.push(id);
                }
            }
        }
        abandoned
    }

    /// Addresses of pieces and heads that satisfy a predicate.
    pub(in crate::shard) fn lying(&self, there: impl Fn(Address) -> bool) -> Vec<Address> {
        let addresses = self.owners.keys().copied();
        let mut lying: Vec<_> = addresses.filter(|&address| there(address)).collect();
        // The map's order changes from run to run.
        lying.sort_unstable();
        lying
    }

    /// Forgets all values: their records were counted dead.
    pub(in crate::shard) fn clear(&mut self) {
        self.by_id = HashMap::new();
        self.owners = HashMap::new();
        self.unfinished = Vec::new();
        self.pinned = Vec::new();
        (self.orphans, self.pins, self.promised) = (0, 0, 0);
    }

    /// Checks the table: which records belong to which value, and what each value lives on.
    #[cfg(any(test, feature = "simulation"))]
    pub(in crate::shard) fn check(&self) {
        let (mut owners, mut promised, mut pins) = (0, 0, 0);
        let (mut unfinished, mut pinned) = (Vec::new(), Vec::new());
        for (&id, value) in &self.by_id {
            if let Some(head) = value.head {
                let owner = self.owner(head);
                assert_eq!(owner, Some(LongRecord::Head(id)), "long values L1: head");
                owners += 1;
            }
            for (place, piece) in (0u32..).zip(&value.pieces) {
                let Some(address) = piece.address else {
                    continue;
                };
                let owner = self.owner(address);
                let own = Some(LongRecord::Piece(id, place));
                assert_eq!(owner, own, "long values L1: piece {place}");
                owners += 1;
            }
            let (written, due) = (value.pieces.len(), value.pieces_promised);
            let is_unfinished = value.head.is_none() && !value.is_orphan;
            if is_unfinished {
                unfinished.push(id);
                promised += due - written;
            } else {
                assert_eq!(written, due, "long I1: pieces of {id}");
            }
            let lives = !value.is_orphan || !value.pins.is_empty() && value.head.is_none();
            assert!(lives, "long values L3: orphan {id}");
            pins += value.pins.len();
            pinned.extend((!value.pins.is_empty()).then_some(id));
        }
        assert_eq!(owners, self.owners.len(), "long values L1: owners");
        let sorted = |ids: &[u64]| {
            let mut ids = ids.to_vec();
            ids.sort_unstable();
            ids
        };
        let lists = [&self.unfinished, &self.pinned].map(|ids| sorted(ids));
        let [listed, kept] = lists;
        assert_eq!(listed, sorted(&unfinished), "long values L2: being written");
        assert_eq!(promised, self.promised, "long values L2: promised");
        assert_eq!(kept, sorted(&pinned), "long values L3: pinned");
        assert_eq!(pins, self.pins, "long values L3: pins");
        let orphans = self.by_id.values().filter(|value| value.is_orphan).count();
        assert_eq!(orphans, self.orphans, "long values L3: orphans");
    }

    /// Pieces that are alive, for checks.
    #[cfg(any(test, feature = "simulation"))]
    pub(in crate::shard) fn pieces(&self) -> impl Iterator<Item = Piece> {
        self.by_id.values().flat_map(|value| value.pieces.clone())
    }
}

/// Pieces that fill a page.
pub(in crate::shard) const PIECES_A_PAGE: u64 = 4;

/// Bytes of value that a piece holds: four pieces fill a page.
pub(crate) fn piece_bytes(page_bytes: usize) -> usize {
    (page_bytes - (4 << 10)) / 4 / UNIT_BYTES * UNIT_BYTES - 3 * UNIT_BYTES
}

const _: () = assert!(PIECE_KEY_BYTES <= UNIT_BYTES);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::breach::assert_breaks;

    fn address(number: u64) -> Address {
        Address::from_raw(number)
    }

    #[test]
    fn a_planted_breach_of_long_values_is_found() {
        type Breach = fn(&mut LongValues, [u64; 3]);
        let breaches: [(&str, Breach); 9] = [
            ("long values L1", |long, _| {
                long.owners.remove(&address(1));
            }),
            ("long values L1", |long, [id, ..]| {
                long.owners.insert(address(50), LongRecord::Head(id));
            }),
            ("long values L1", |long, [id, ..]| {
                long.owners.insert(address(1), LongRecord::Piece(id, 1));
            }),
            ("long values L2", |long, _| long.unfinished.clear()),
            ("long values L2", |long, _| long.promised += 1),
            ("long values L3", |long, [_, orphan, _]| {
                long.by_id.get_mut(&orphan).unwrap().pins.clear();
            }),
            ("long values L3", |long, _| long.pinned.clear()),
            ("long values L3", |long, _| long.orphans = 0),
            ("long I1", |long, [id, ..]| {
                long.by_id.get_mut(&id).unwrap().pieces_promised += 1;
            }),
        ];
        for (invariant, plant) in breaches {
            let mut long = LongValues::new(1 << 20);
            let mut place = 0;
            // A value, an orphan, and one that is being written.
            let ids = [(); 3].map(|()| long.begin(100, 2, 1).unwrap());
            for id in ids {
                for _ in 0..if id == ids[2] { 1 } else { 2 } {
                    place += 1;
                    long.add(id, address(place), 3, 1);
                }
            }
            for id in [ids[0], ids[1]] {
                place += 1;
                long.adopt(id, IndexHash(id), address(place));
            }
            long.pin(ids[1], 9, 1).unwrap();
            assert!(long.orphan(ids[1]));
            long.check();
            plant(&mut long, ids);
            assert_breaks(invariant, || long.check());
        }
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
    fn a_pinned_value_outlives_its_head_until_its_last_pin() {
        let mut long = LongValues::new(1 << 20);
        let id = long.begin(5000, 1, 0).unwrap();
        long.add(id, address(10), 100, 1);
        long.adopt(id, IndexHash(5), address(30));
        assert!(!long.orphan(id), "it is not pinned");
        let [first, second] = [1, 2].map(|now_ns| long.pin(id, 9, now_ns).unwrap());
        assert!(long.orphan(id));
        assert_eq!(long.at_head(address(30)), None);
        assert_eq!((long.count(), long.written(id)), (0, None));
        assert!(long.piece(id, 0).is_some());
        assert_eq!(long.unpin(id, first), Some(false));
        assert_eq!(long.unpin(id, first), None, "it was released");
        assert_eq!(long.unpin(id, second), Some(true));
        assert_eq!(long.end(id).len(), 1);
        assert!(long.is_empty() && !long.has_users());
    }

    #[test]
    fn pins_lapse_and_are_bounded() {
        let mut long = LongValues::new(1 << 20);
        let ids = [1, 2].map(|place| {
            let id = long.begin(5000, 1, 0).unwrap();
            long.add(id, address(10 * place), 100, 1);
            long.adopt(id, IndexHash(place), address(10 * place + 5));
            id
        });
        let stale = ids.map(|id| long.pin(id, 9, 5).unwrap());
        assert!(long.orphan(ids[0]));
        assert!(long.abandoned(5).is_empty());
        assert_eq!(long.abandoned(6), [ids[0]], "the other has a head");
        long.end(ids[0]);
        assert_eq!(long.unpin(ids[1], stale[1]), None);
        for _ in 0..LONG_PINS_MAX {
            assert!(long.pin(ids[1], usize::MAX, 7).is_some());
        }
        assert_eq!(long.pin(ids[1], usize::MAX, 7), None);
        long.end(ids[1]);
        assert!(long.is_empty() && !long.has_users());
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
