//! Lists records in the order of the index, and reads one where it lies.
//!
//! ```text
//! list:     slots in order -> records in frames are copied; the others are named by address
//! read at:  slot by hash and address -> frame, chunk or flight, as a get, but without a key
//! ```
//!
//! The two together are a scan: its client lists a batch, reads what was named, and lists a place
//! again if a record there has moved meanwhile. If it was lost meanwhile, the place names the lost
//! slot, and its read says that it cannot be read.
//!
//! - I1: an answer holds all records of every place that it covers, or names them. A name holds for
//!   the page that was listed: no other record answers to it, not even one of the same place.
//! - I2: a request copies or names a bounded number of records and visits a bounded part of the
//!   index.

use farcore_rdma::{Endpoint, prefetch};

use crate::constants::UNIT_BYTES;
use crate::error::Error;
use crate::index::Slot;
use crate::index::scan::Order;
use crate::log::record::{self, RecordHeader, RecordView};
use crate::log::{ADDRESS_BITS, Address};
use crate::message::list::{
    END, LIST_BYTES, LIST_HEAD_BYTES, LISTED_BYTES_MAX, List, REFERENCE_BYTES, Reference, later_of,
};
use crate::message::operation::{OperationKind, Version};
use crate::message::outcome::Answer;
use crate::message::request::{AnswerSink, ReplyTo, Request};
use crate::shard::Shard;
use crate::shard::ops::scratch::ListScratch;
use crate::shard::step::{Evidence, Step, answer_or_wait};

/// Slots that are looked up together, so that their cache misses overlap.
const SLOTS_TOGETHER: usize = 64;
/// Homes of the index that a request visits, at most.
const HOMES_MAX: usize = 1024;

/// Where a list stops.
enum Stop {
    /// Before this place: the answer is full.
    Before(Order),
    /// It was not stopped.
    Not,
}

/// An answer under construction.
struct Listing<'a> {
    list: List,
    answer: &'a mut Vec<u8>,
    entries: u32,
    unreadable: u64,
}

impl Listing<'_> {
    /// True if one place is listed, again: whatever is local goes with the answer, or a record that
    /// moves each time would never be read.
    fn is_of_one_place(&self) -> bool {
        self.list.until == self.list.from + 1
    }
}

/// Header, key and padding of a record.
fn head_of(record: &[u8]) -> &[u8] {
    let key_bytes = RecordHeader::decode_from(record).map_or(0, RecordHeader::key_bytes);
    let bytes = record::units_for(key_bytes as usize, 0) as usize * UNIT_BYTES;
    record.get(..bytes).unwrap_or(record)
}

/// True if a record is the head of a long value, which says how long the value is.
fn is_long(record: &[u8]) -> bool {
    RecordHeader::decode_from(record).is_some_and(RecordHeader::is_long)
}

/// True if a record is the head of a tree, which is of another version.
fn is_tree(record: &[u8]) -> bool {
    RecordHeader::decode_from(record).is_some_and(RecordHeader::is_tree)
}

impl<E: Endpoint> Shard<E> {
    /// Answers records from a place of the order on.
    #[cold]
    #[inline(never)]
    pub(in crate::shard) fn list(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        answers: &mut impl AnswerSink,
    ) -> Step {
        let Some(list) = List::decode(request.key(), request.value()) else {
            debug_assert!(false, "a client encoded it");
            return answer_or_wait(lane, request, Answer::Absent, answers);
        };
        let mut scratch = std::mem::take(&mut self.list_scratch);
        let ListScratch { slots, answer } = &mut scratch;
        answer.clear();
        answer.resize(LIST_HEAD_BYTES, 0);
        let mut listing = Listing {
            list,
            answer,
            entries: 0,
            unreadable: 0,
        };
        let next = self.list_from(&mut listing, slots);
        let (entries, unreadable) = (listing.entries, listing.unreadable);
        answer[..8].copy_from_slice(&unreadable.to_le_bytes());
        let value = Answer::Value {
            version: next.map_or(END, |next| next.0),
            value: answer,
        };
        let step = answer_or_wait(lane, request, value, answers);
        self.list_scratch = scratch;
        if step == Step::Done {
            self.metrics.counters.lists.add(1);
            self.metrics.counters.keys_listed.add(u64::from(entries));
        }
        step
    }

    fn list_from(
        &self,
        listing: &mut Listing<'_>,
        slots: &mut Vec<(Order, Slot)>,
    ) -> Option<Order> {
        let until = Order(listing.list.until);
        let mut next = Some(Order(listing.list.from));
        let mut homes = 0;
        while let Some(from) = next.filter(|&from| from < until) {
            if homes >= HOMES_MAX {
                return Some(from);
            }
            slots.clear();
            while let Some(order) = next
                && slots.len() < SLOTS_TOGETHER
                && order < until
            {
                let before = slots.len();
                next = self.index.slots_at(order, slots);
                homes += 1;
                for (_, slot) in &slots[before..] {
                    let framed = self.framed_of(slot.address());
                    if !framed.is_far() {
                        // Header and a short key may lie in two lines.
                        prefetch(framed.pointer());
                        prefetch(framed.pointer().wrapping_add(2 * UNIT_BYTES - 1));
                    }
                }
            }
            let end = slots.partition_point(|&(order, _)| order < until);
            for place in slots[..end].chunk_by(|one, other| one.0 == other.0) {
                if let Stop::Before(order) = self.list_place(listing, place) {
                    return Some(order);
                }
            }
        }
        next.filter(|&from| from < until)
    }

    /// Lists the records of one place of the order, or stops before it.
    fn list_place(&self, listing: &mut Listing<'_>, place: &[(Order, Slot)]) -> Stop {
        let order = place[0].0;
        if listing.entries >= listing.list.entries {
            return Stop::Before(order);
        }
        let start = listing.answer.len();
        let (entries, unreadable) = (listing.entries, listing.unreadable);
        let are_listed = place
            .iter()
            .all(|&(order, slot)| self.list_slot(listing, order, slot));
        if !are_listed {
            listing.answer.truncate(start);
            (listing.entries, listing.unreadable) = (entries, unreadable);
            for &(order, slot) in place {
                self.name_slot(listing, order, slot);
            }
        }
        // A place alone may be longer than the limit.
        if listing.answer.len() > LIST_BYTES && start > LIST_HEAD_BYTES {
            listing.answer.truncate(start);
            (listing.entries, listing.unreadable) = (entries, unreadable);
            return Stop::Before(order);
        }
        Stop::Not
    }

    /// Copies what a list wants of a slot's record; false if it must be read at its address.
    fn list_slot(&self, listing: &mut Listing<'_>, order: Order, slot: Slot) -> bool {
        let address = slot.address();
        if self.count_lost(listing, order, slot) {
            return true;
        }
        let Some(record) = self.local.record_at(address) else {
            return false;
        };
        let header = record.header();
        if header.has_expiry() && self.is_past(record.expiry_ms()) {
            return true;
        }
        let (bytes, start) = (record.bytes(), listing.answer.len());
        if !listing.list.values && !header.is_long() {
            let head = record::units_for(header.key_bytes() as usize, 0) as usize * UNIT_BYTES;
            // Unit by unit: most heads are short.
            for unit in bytes[..head].as_chunks::<UNIT_BYTES>().0 {
                listing.answer.extend_from_slice(unit);
            }
        } else if bytes.len() > LISTED_BYTES_MAX && !listing.is_of_one_place() {
            return false;
        } else {
            listing.answer.extend_from_slice(bytes);
        }
        if header.is_tree() {
            let version = self.version_of(header, address);
            record::set_version(&mut listing.answer[start..], version);
        }
        listing.entries += 1;
        true
    }

    /// Names a slot's record by its address.
    fn name_slot(&self, listing: &mut Listing<'_>, order: Order, slot: Slot) {
        if !self.count_lost(listing, order, slot) {
            self.name(listing, order, slot);
        }
    }

    fn name(&self, listing: &mut Listing<'_>, order: Order, slot: Slot) {
        let reference = Reference {
            hash: self.index.hash_at(order),
            address: self.named_at(slot.address()),
            order: order.0,
        };
        let bytes: [u8; REFERENCE_BYTES] = reference.encode();
        listing.answer.extend_from_slice(&bytes);
        listing.entries += 1;
    }

    /// The word that names an address to a client. Above the address it has the opening of its
    /// page, which differs for each page of a number.
    pub(in crate::shard) fn named_at(&self, address: Address) -> u64 {
        let page = address.page(self.shape);
        let opening = match self.local.pages.is_lost_page(page) {
            true => 0,
            false => self.local.page(page).opening,
        };
        u64::from(opening) << ADDRESS_BITS | address.raw()
    }

    /// The address that a word names; `None` if its page was freed since, so that another record
    /// may lie there.
    fn address_named(&self, word: u64) -> Option<Address> {
        let address = Address::from_raw(word);
        (self.named_at(address) == word).then_some(address)
    }

    /// True if a slot leads to no record because it was lost; counts those that are not forgotten.
    /// In a list of one place they are not counted but named, as their records were before.
    fn count_lost(&self, listing: &mut Listing<'_>, order: Order, slot: Slot) -> bool {
        let page = slot.address().page(self.shape);
        let is_lost = self.local.pages.is_lost_page(page);
        if is_lost && self.lost.is_current(page, &self.local.pages) {
            if listing.is_of_one_place() {
                self.name(listing, order, slot);
            } else {
                listing.unreadable += 1;
            }
        }
        is_lost
    }

    /// Answers the record at an address, or its head; [`Answer::Absent`] if no slot of the hash
    /// leads there any more, [`Answer::Deleted`] if it has expired, [`Error::Damaged`] if it was
    /// lost.
    #[inline(never)]
    pub(in crate::shard) fn read_at(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        evidence: &Evidence<'_>,
        answers: &mut impl AnswerSink,
    ) -> Step {
        let hash = request.hash;
        let Some(address) = self.address_of(request) else {
            return answer_or_wait(lane, request, Answer::Absent, answers);
        };
        let page = address.page(self.shape);
        let is_lost = self.local.pages.is_lost_page(page);
        let is_forgotten = is_lost && !self.lost.is_current(page, &self.local.pages);
        let position = self.index.find_address(hash, address);
        let Some(position) = position.filter(|_| !is_forgotten) else {
            return answer_or_wait(lane, request, Answer::Absent, answers);
        };
        if is_lost {
            let error = Error::Damaged {
                shard: self.id,
                sequence: 0,
                unit: address.unit(self.shape),
            };
            return self.fail(lane, request, error, answers);
        }
        if evidence.damaged.contains(&address) {
            return self.fail(lane, request, self.lost_error(Some(address)), answers);
        }
        if let Some(record) = self.local.record_at(address) {
            let parts = (address, record.expiry_ms(), record.bytes());
            return self.answer_record(lane, request, parts, answers);
        }
        let far = match evidence.confirmed.filter(|far| far.address == address) {
            Some(far) => far,
            None => {
                let slot = self.index.slot(position);
                match self.find_far_by(
                    |shard, record| shard.is_of_slot(record.key(), address),
                    slot,
                ) {
                    Ok(far) => far,
                    Err(step) => return step,
                }
            }
        };
        let Some(bytes) = far.record else {
            debug_assert!(false, "it is confirmed with what was read");
            return Step::fetch(self.index.slot(position));
        };
        let expiry_ms = RecordView::parse(bytes).and_then(|view| view.expiry_ms());
        let step = self.answer_record(lane, request, (address, expiry_ms, bytes), answers);
        if step == Step::Done {
            self.note_served(&far);
        }
        step
    }

    fn answer_record(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        (address, expiry_ms, record): (Address, Option<u64>, &[u8]),
        answers: &mut impl AnswerSink,
    ) -> Step {
        let value = match request.kind() {
            _ if self.is_past(expiry_ms) => {
                return answer_or_wait(lane, request, Answer::Deleted, answers);
            }
            OperationKind::ReadHeadAt if !is_long(record) => head_of(record),
            _ => record,
        };
        // Others that are at hand go with it, if their room is certain.
        let has_others = !request.value().is_empty() && answers.has_room(lane, LIST_BYTES);
        if !has_others && !is_tree(record) {
            return answer_or_wait(lane, request, Answer::Value { version: 1, value }, answers);
        }
        let mut scratch = std::mem::take(&mut self.list_scratch);
        scratch.answer.clear();
        self.add_copy(&mut scratch.answer, address, value);
        let later = if has_others {
            self.add_at_hand(request, &mut scratch.answer)
        } else {
            0
        };
        let answer = Answer::Value {
            version: 1 + later,
            value: &scratch.answer,
        };
        let step = answer_or_wait(lane, request, answer, answers);
        self.list_scratch = scratch;
        step
    }

    /// Adds a copy of a record or of its head. A tree has the version of its last change.
    fn add_copy(&self, answer: &mut Vec<u8>, address: Address, record: &[u8]) {
        let start = answer.len();
        answer.extend_from_slice(record);
        if let Some(header) = RecordHeader::decode_from(record).filter(|header| header.is_tree()) {
            let version = self.version_of(header, address);
            record::set_version(&mut answer[start..], version);
        }
    }

    /// Adds the records after the first, up to one that must be waited for, has moved or expired,
    /// or has no room. Returns how many.
    fn add_at_hand(&mut self, request: &Request<'_>, answer: &mut Vec<u8>) -> Version {
        let later = later_of(request.value());
        for (hash, _) in later.clone() {
            self.index.prefetch(hash);
        }
        let mut count = 0;
        for (hash, address) in later {
            let Some(address) = self.address_named(address) else {
                break;
            };
            let Some(position) = self.index.find_address(hash, address) else {
                break;
            };
            if self.local.pages.is_lost_page(address.page(self.shape)) {
                break;
            }
            let (record, expiry_ms, far) = match self.local.record_at(address) {
                Some(record) => (record.bytes(), record.expiry_ms(), None),
                None => {
                    let slot = self.index.slot(position);
                    let is_meant = |shard: &Self, record: &RecordView<'_>| {
                        shard.is_of_slot(record.key(), address)
                    };
                    let Some(far) = self.at_hand(is_meant, slot) else {
                        break;
                    };
                    let Some(view) = far.record.and_then(RecordView::parse) else {
                        break;
                    };
                    (view.bytes(), view.expiry_ms(), Some(far))
                }
            };
            let wanted = match request.kind() {
                OperationKind::ReadHeadAt if !is_long(record) => head_of(record),
                _ => record,
            };
            if self.is_past(expiry_ms) || answer.len() + wanted.len() > LIST_BYTES {
                break;
            }
            self.add_copy(answer, address, wanted);
            if let Some(far) = far {
                self.note_served(&far);
            }
            count += 1;
        }
        count
    }

    /// The address that a request names; `None` if its page was freed since.
    pub(in crate::shard) fn address_of(&self, request: &Request<'_>) -> Option<Address> {
        let bytes = request.key().first_chunk()?;
        self.address_named(u64::from_le_bytes(*bytes))
    }
}
