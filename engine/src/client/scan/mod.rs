//! A scan as its client drives it: list a batch of one shard's records, read those that the list
//! only names, and list a place again if a record there has moved meanwhile.
//!
//! ```text
//! list from..until -> records ------------------------------> emitted
//!                  -> references -> reads, many at once ----> emitted
//!                                   moved: list its place --^
//! ```
//!
//! [`ShardScan`] is the state of one batch, without any input or output: it says what to send and
//! takes answers. `pages` turns it into [`Handle::scan`](crate::Handle::scan) and
//! [`Handle::export`](crate::Handle::export), and the same of core clients.
//!
//! - I1: every record that a place holds while it is listed is emitted, unless it is gone when its
//!   turn to be read comes.
//! - I2: no record of a place is emitted twice, although its place is listed twice.

mod page;
mod pages;

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::error::Error;
use crate::message::hash::IndexHash;
use crate::message::list::{
    ADDRESS_BYTES, END, LIST_BYTES, LIST_HEAD_BYTES, List, READ_TOGETHER_MAX, REFERENCE_BYTES,
    Reference, add_later,
};
use crate::message::outcome::Answer;

use self::page::run_of_records;
pub use self::page::{Cursor, Entries, Entry, ExportOptions, ExportSummary, ScanOptions, ScanPage};

/// The place of a list's answer; reads have lower ones.
pub(crate) const LIST: u32 = (1 << 24) - 1;
/// Requests under way at once where they read in the order of addresses.
const READS_IN_ORDER: usize = 4;
/// References of a request by address while the size of records is not known.
const READ_TOGETHER_MIN: usize = 8;
/// References of one batch, at most: their places are below that of a list.
pub(super) const REFERENCES_MAX: usize = LIST as usize - 1;
/// Far records of a batch of an export, by default.
pub(super) const EXPORT_BATCH: usize = 1 << 22;

/// A request that a scan wants to send.
#[derive(Clone, Debug)]
pub(crate) enum Want {
    List(List),
    /// Read the record of a reference, and those of later ones, encoded.
    ReadAt {
        place: u32,
        count: u32,
        hash: IndexHash,
        address: [u8; ADDRESS_BYTES],
        later: Vec<u8>,
    },
}

/// How records are emitted: the place in the batch, and one or more records.
pub(crate) type Emit<'a> = dyn FnMut(u32, &[u8]) + 'a;

/// One batch of a scan of one shard.
#[derive(Debug)]
pub(crate) struct ShardScan {
    values: bool,
    /// Read in the order of addresses rather than of the index.
    by_address: bool,
    /// Entries and references that it gathers, at most.
    entries_max: u32,
    /// Where the list goes on; `None` at the end of the shard.
    next: Option<u64>,
    /// A list is under way.
    listing: Option<List>,
    /// Entries listed.
    entries: u32,
    /// What is to be read, with its sequence. A read's token is its place here.
    references: Vec<(u32, Reference)>,
    sent: usize,
    read: usize,
    /// References of one request by address: about as many as an answer has room for.
    together: usize,
    /// Reads under way: the first reference of each, and how many.
    reading: HashMap<u32, u32>,
    /// References that were sent with others and not read: the first, and how many.
    left: BTreeMap<u32, u32>,
    /// Places to be listed again, with their sequence.
    again: BTreeMap<u64, u32>,
    /// Keys emitted of places that have several records, or are listed again.
    emitted: HashMap<u64, HashSet<Vec<u8>>>,
    /// The sequence of what is emitted.
    sequence: u32,
    unreadable: u64,
    error: Option<Error>,
}

impl ShardScan {
    pub(crate) fn new(from: u64, values: bool, by_address: bool, entries_max: usize) -> Self {
        let entries_max = entries_max.clamp(1, REFERENCES_MAX / 2);
        Self {
            values,
            by_address,
            entries_max: u32::try_from(entries_max).unwrap_or(u32::MAX),
            next: Some(from),
            listing: None,
            entries: 0,
            references: Vec::new(),
            sent: 0,
            read: 0,
            together: READ_TOGETHER_MIN,
            reading: HashMap::new(),
            left: BTreeMap::new(),
            again: BTreeMap::new(),
            emitted: HashMap::new(),
            sequence: 0,
            unreadable: 0,
            error: None,
        }
    }

    /// Where the next batch begins; `None` at the end of the shard.
    pub(crate) fn next(&self) -> Option<u64> {
        self.next
    }

    /// Entries listed so far.
    pub(crate) fn entries(&self) -> usize {
        self.entries as usize
    }

    /// Records that were lost or cannot be read.
    pub(crate) fn unreadable(&self) -> u64 {
        self.unreadable
    }

    /// The error that ended it.
    pub(crate) fn take_error(&mut self) -> Option<Error> {
        self.error.take()
    }

    /// Starts the next batch.
    pub(crate) fn go_on(&mut self) {
        debug_assert!(self.is_done());
        self.entries = 0;
        self.sequence = 0;
        self.emitted.clear();
        self.references.clear();
        debug_assert!(self.left.is_empty() && self.reading.is_empty());
        (self.sent, self.read) = (0, 0);
    }

    /// True once nothing is under way and the batch is complete, or has failed.
    pub(crate) fn is_done(&self) -> bool {
        self.listing.is_none()
            && self.reading.is_empty()
            && (self.error.is_some()
                || self.read == self.sent
                    && self.sent == self.references.len()
                    && self.again.is_empty()
                    && (self.next.is_none() || self.entries >= self.entries_max))
    }

    /// The next request to send, if any; [`ShardScan::note_sent`] confirms it.
    pub(crate) fn want(&mut self) -> Option<Want> {
        if self.error.is_some() || self.listing.is_some() {
            return None;
        }
        let more = self.next.filter(|_| self.entries < self.entries_max);
        // By address, everything is listed before anything is read.
        if let Some((&place, &count)) = self.left.first_key_value() {
            return self.read_of(place, count);
        }
        if self.sent < self.references.len() && !(self.by_address && more.is_some()) {
            // Together, they are read in order: a few requests at once keep it.
            let together = if self.by_address { self.together } else { 1 };
            if self.by_address && self.reading.len() >= READS_IN_ORDER {
                return None;
            }
            let count = together.min(self.references.len() - self.sent);
            let place = u32::try_from(self.sent).unwrap_or(LIST);
            return self.read_of(place, u32::try_from(count).unwrap_or(1));
        }
        if let Some(from) = more {
            return Some(Want::List(List {
                from,
                until: END,
                entries: self.entries_max - self.entries,
                values: self.values,
            }));
        }
        // What was read is not needed any more: places of references stay below that of a list.
        if self.read < self.sent {
            return None;
        }
        let (&order, _) = self.again.first_key_value()?;
        self.references.clear();
        (self.sent, self.read) = (0, 0);
        Some(Want::List(List {
            from: order,
            until: order + 1,
            entries: u32::MAX,
            values: self.values,
        }))
    }

    /// Notes that what [`ShardScan::want`] returned was sent.
    pub(crate) fn note_sent(&mut self, want: &Want) {
        match want {
            Want::List(list) => self.listing = Some(*list),
            Want::ReadAt { place, count, .. } => {
                if self.left.remove(place).is_none() {
                    self.sent += *count as usize;
                }
                self.reading.insert(*place, *count);
            }
        }
    }

    /// The request for some references.
    fn read_of(&self, place: u32, count: u32) -> Option<Want> {
        let wanted = self
            .references
            .get(place as usize..(place + count) as usize)?;
        let ((_, first), rest) = wanted.split_first()?;
        let mut later = Vec::new();
        for (_, reference) in rest {
            add_later(&mut later, reference);
        }
        Some(Want::ReadAt {
            place,
            count,
            hash: first.hash,
            address: first.address.to_le_bytes(),
            later,
        })
    }

    /// Takes an answer and emits the records that it brings.
    pub(crate) fn take(&mut self, place: u32, answer: Answer<'_>, emit: &mut Emit<'_>) {
        if place == LIST {
            self.take_list(answer, emit);
        } else {
            self.take_read(place, answer, emit);
        }
    }

    fn take_list(&mut self, answer: Answer<'_>, emit: &mut Emit<'_>) {
        let Some(list) = self.listing.take() else {
            return;
        };
        let (next, bytes) = match answer {
            Answer::Value { version, value } => (version, value),
            Answer::Failed(error) => return self.fail(error),
            _ => return self.fail(&Error::Closed),
        };
        let is_again = list.until != END;
        let again = if is_again {
            self.again.remove_entry(&list.from)
        } else {
            let unreadable = bytes.first_chunk();
            self.unreadable += unreadable.map_or(0, |word| u64::from_le_bytes(*word));
            self.next = (next != END).then_some(next);
            None
        };
        let mut rest = bytes.get(LIST_HEAD_BYTES..).unwrap_or_default();
        let listed = self.references.len();
        while !rest.is_empty() {
            // Records that follow each other are emitted together.
            let (run, count) = run_of_records(rest, self.values);
            if run > 0 {
                if let Some((order, sequence)) = again {
                    self.emit_again(order, sequence, &rest[..run], emit);
                } else {
                    emit(self.sequence, &rest[..run]);
                    self.sequence += 1;
                    self.entries += count;
                }
                rest = &rest[run..];
            }
            if let Some(reference) = Reference::decode(rest) {
                if let Some((_, sequence)) = again {
                    self.references.push((sequence, reference));
                } else {
                    self.references.push((self.sequence, reference));
                    self.sequence += 1;
                    self.entries += 1;
                }
                rest = rest.get(REFERENCE_BYTES..).unwrap_or_default();
            } else if run == 0 {
                debug_assert!(false, "an entry is a record or a reference");
                break;
            }
        }
        self.note_shared_places(listed);
    }

    /// Notes the places of which several records were named.
    fn note_shared_places(&mut self, listed: usize) {
        let added = &self.references[listed..];
        for pair in added.windows(2) {
            if pair[0].1.order == pair[1].1.order {
                self.emitted.entry(pair[0].1.order).or_default();
            }
        }
        if self.by_address && (self.next.is_none() || self.entries >= self.entries_max) {
            self.references[self.sent..].sort_unstable_by_key(|(_, one)| one.address);
        }
    }

    fn take_read(&mut self, place: u32, answer: Answer<'_>, emit: &mut Emit<'_>) {
        let sent = self.references.get(place as usize).copied();
        let count = self.reading.remove(&place);
        let (Some((sequence, Reference { order, .. })), Some(count)) = (sent, count) else {
            debug_assert!(false, "it was sent");
            return;
        };
        let read = match answer {
            Answer::Value { version, .. } => u32::try_from(version).unwrap_or(1).clamp(1, count),
            _ => 1,
        };
        self.read += read as usize;
        if read < count {
            self.left.insert(place + read, count - read);
        }
        match answer {
            Answer::Value { value, .. } => {
                // References that do not fit are sent again, out of order.
                let bytes = (value.len() / read as usize).max(1);
                self.together = (LIST_BYTES / bytes).clamp(1, READ_TOGETHER_MAX);
                self.emit_read(place, value, emit);
            }
            Answer::Absent => {
                self.emitted.entry(order).or_default();
                if !farcore_tuning::mutated!("moved-place-not-listed") {
                    self.again.entry(order).or_insert(sequence);
                }
            }
            // It has expired.
            Answer::Deleted => {}
            Answer::Failed(Error::Damaged { .. }) => self.unreadable += 1,
            Answer::Failed(error) => self.fail(error),
            _ => self.fail(&Error::Closed),
        }
    }

    /// Emits the records of references that follow each other.
    fn emit_read(&mut self, place: u32, records: &[u8], emit: &mut Emit<'_>) {
        for (number, entry) in (place..).zip(Entries::new(records, self.values)) {
            let Some(&(sequence, Reference { order, .. })) = self.references.get(number as usize)
            else {
                return;
            };
            if self.emitted.contains_key(&order) {
                self.emit_again(order, sequence, entry.bytes, emit);
            } else {
                emit(sequence, entry.bytes);
            }
        }
    }

    /// Emits records of a place, except for those that were emitted before.
    fn emit_again(&mut self, order: u64, sequence: u32, records: &[u8], emit: &mut Emit<'_>) {
        let emitted = self.emitted.entry(order).or_default();
        for entry in Entries::new(records, self.values) {
            if emitted.insert(entry.key.to_vec()) || farcore_tuning::mutated!("listed-twice") {
                emit(sequence, entry.bytes);
            }
        }
    }

    fn fail(&mut self, error: &Error) {
        self.error.get_or_insert_with(|| error.clone());
    }
}
