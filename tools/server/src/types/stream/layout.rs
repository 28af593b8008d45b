//! The elements of a stream's map, and what they hold.
//!
//! ```text
//! key                                 | value
//! 0                                   | header: last ID, greatest deleted ID, removed, next group
//! 1 name                              | group: number, last ID, entries read, next consumer
//! 2 group:32 ID:128                   | pending: consumer:32, time:64, deliveries:64
//! 3 group:32 consumer:32 ID:128       | (empty) one that is pending at this consumer
//! 4 group:32 consumer:32              | consumer: seen:64, name
//! 5 group:32 name                     | the consumer's number:32
//! 9 ID:128                            | entry: count:32, and length:32 and bytes of each text
//! ```
//!
//! Numbers in keys are big-endian, so that the map's order is that of IDs. Entries come last: what
//! is added most lies at the map's end. How many entries there are, and how many are pending, is
//! what the map counts between two keys.
//!
//! - K1: each pending ID of a group is pending at one consumer, and no other one is.
//! - K2: the header says the last ID, unless that of the last entry is greater. So an entry that is
//!   added changes nothing else.

use farcore::TreeBound;
use farcore::constants::KEY_BYTES_MAX;

use super::id::StreamId;

const HEADER: u8 = 0;
const GROUP: u8 = 1;
const PENDING: u8 = 2;
const OWNED: u8 = 3;
const CONSUMER: u8 = 4;
const NAMED: u8 = 5;
const ENTRY: u8 = 9;

/// The longest key without a name.
const PLACES: usize = 25;

/// A key without a name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    bytes: [u8; PLACES],
    len: usize,
}

impl Key {
    fn new(kind: u8) -> Self {
        let mut bytes = [0; PLACES];
        bytes[0] = kind;
        Self { bytes, len: 1 }
    }

    fn with(mut self, part: &[u8]) -> Self {
        let end = self.len + part.len();
        self.bytes[self.len..end].copy_from_slice(part);
        self.len = end;
        self
    }

    pub(super) fn header() -> Self {
        Self::new(HEADER)
    }

    pub(super) fn entry(id: StreamId) -> Self {
        Self::new(ENTRY).with(&id.to_bytes())
    }

    pub(super) fn pending(group: u32, id: StreamId) -> Self {
        Self::new(PENDING)
            .with(&group.to_be_bytes())
            .with(&id.to_bytes())
    }

    pub(super) fn owned(group: u32, consumer: u32, id: StreamId) -> Self {
        Self::new(OWNED)
            .with(&group.to_be_bytes())
            .with(&consumer.to_be_bytes())
            .with(&id.to_bytes())
    }

    pub(super) fn consumer(group: u32, consumer: u32) -> Self {
        Self::new(CONSUMER)
            .with(&group.to_be_bytes())
            .with(&consumer.to_be_bytes())
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The key of a group.
pub(super) fn group_key(name: &[u8]) -> Vec<u8> {
    [&[GROUP], name].concat()
}

/// The key of the name of a consumer.
pub(super) fn named_key(group: u32, name: &[u8]) -> Vec<u8> {
    [&[NAMED], &group.to_be_bytes()[..], name].concat()
}

/// The name in the key of a group.
pub(super) fn group_name(key: &[u8]) -> &[u8] {
    key.get(1..).unwrap_or_default()
}

/// The name in the key of the name of a consumer.
pub(super) fn consumer_name(key: &[u8]) -> &[u8] {
    key.get(5..).unwrap_or_default()
}

/// The ID at the end of a key.
pub(super) fn id_of(key: &[u8]) -> StreamId {
    StreamId::of_bytes(key.last_chunk().copied().unwrap_or_default())
}

/// Both ends of a range of keys, included.
pub(super) struct Ends(Vec<u8>, Vec<u8>);

impl Ends {
    pub(super) fn range(&self) -> (TreeBound<'_>, TreeBound<'_>) {
        (TreeBound::Included(&self.0), TreeBound::Included(&self.1))
    }

    /// Both keys, of which a client may send the longer one too.
    pub(super) fn into_keys(mut self) -> (Vec<u8>, Vec<u8>) {
        self.1.truncate(KEY_BYTES_MAX);
        (self.0, self.1)
    }

    /// From the first key with a beginning to the last one of these bytes and all that continue it.
    fn beginning(with: &[u8]) -> Self {
        // No part behind a beginning is as long.
        let end = [with, &[u8::MAX; 1024]].concat();
        Self(with.to_vec(), end)
    }

    pub(super) fn groups() -> Self {
        Self::beginning(&[GROUP])
    }

    /// From a group on that comes behind one.
    pub(super) fn groups_behind(name: &[u8]) -> Self {
        let Self(_, end) = Self::groups();
        Self([&group_key(name)[..], &[0]].concat(), end)
    }

    /// The names of a group's consumers.
    pub(super) fn names(group: u32) -> Self {
        Self::beginning(&[&[NAMED], &group.to_be_bytes()[..]].concat())
    }

    /// The names of a group's consumers that come behind one.
    pub(super) fn names_behind(group: u32, name: &[u8]) -> Self {
        let Self(_, end) = Self::names(group);
        Self([&named_key(group, name)[..], &[0]].concat(), end)
    }

    /// All of one kind that a group has beside its own element.
    pub(super) fn of_group(group: u32) -> [Self; 4] {
        [PENDING, OWNED, CONSUMER, NAMED]
            .map(|kind| Self::beginning(&[&[kind], &group.to_be_bytes()[..]].concat()))
    }
}

/// A range of keys without names, both ends included.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span(Key, Key);

impl Span {
    pub(super) fn range(&self) -> (TreeBound<'_>, TreeBound<'_>) {
        let (from, to) = (self.0.bytes(), self.1.bytes());
        (TreeBound::Included(from), TreeBound::Included(to))
    }

    /// Both keys.
    pub(super) fn ends(&self) -> (Vec<u8>, Vec<u8>) {
        (self.0.bytes().to_vec(), self.1.bytes().to_vec())
    }

    pub(super) fn entries(from: StreamId, to: StreamId) -> Self {
        Self(Key::entry(from), Key::entry(to))
    }

    pub(super) fn all_entries() -> Self {
        Self::entries(StreamId::FIRST, StreamId::LAST)
    }

    /// What is pending, of a group or of one consumer of it.
    pub(super) fn pending(
        group: u32,
        consumer: Option<u32>,
        (from, to): (StreamId, StreamId),
    ) -> Self {
        match consumer {
            None => Self(Key::pending(group, from), Key::pending(group, to)),
            Some(consumer) => {
                let key = |id| Key::owned(group, consumer, id);
                Self(key(from), key(to))
            }
        }
    }

    pub(super) fn all_pending(group: u32, consumer: Option<u32>) -> Self {
        Self::pending(group, consumer, (StreamId::FIRST, StreamId::LAST))
    }
}

/// Reads what elements hold. What is missing counts as zero: the checksums of records exclude that.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let Some((taken, rest)) = self.0.split_first_chunk() else {
            debug_assert!(false, "it was stored so");
            return [0; N];
        };
        self.0 = rest;
        *taken
    }

    fn id(&mut self) -> StreamId {
        StreamId::of_bytes(self.take())
    }

    fn long(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    fn short(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }
}

/// What a stream is beside its entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Header {
    /// The last ID that was given, as far as no entry has a greater one.
    pub(super) last_id: StreamId,
    /// The greatest ID of the entries that were deleted.
    pub(super) max_deleted: StreamId,
    /// Entries that were added and are gone.
    pub(super) removed: u64,
    pub(super) next_group: u32,
}

impl Header {
    pub(super) fn of(stored: &[u8]) -> Self {
        let mut fields = Fields(stored);
        Self {
            last_id: fields.id(),
            max_deleted: fields.id(),
            removed: fields.long(),
            next_group: fields.short(),
        }
    }

    pub(super) fn stored(&self) -> [u8; 44] {
        let mut stored = [0; 44];
        stored[..16].copy_from_slice(&self.last_id.to_bytes());
        stored[16..32].copy_from_slice(&self.max_deleted.to_bytes());
        stored[32..40].copy_from_slice(&self.removed.to_le_bytes());
        stored[40..].copy_from_slice(&self.next_group.to_le_bytes());
        stored
    }
}

/// A group of consumers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Group {
    pub(super) number: u32,
    /// The last ID that was delivered.
    pub(super) last_id: StreamId,
    /// Entries that were read up to it, as far as that is known.
    pub(super) entries_read: Option<u64>,
    pub(super) next_consumer: u32,
}

impl Group {
    pub(super) fn of(stored: &[u8]) -> Self {
        let mut fields = Fields(stored);
        Self {
            number: fields.short(),
            last_id: fields.id(),
            entries_read: Some(fields.long()).filter(|&read| read != u64::MAX),
            next_consumer: fields.short(),
        }
    }

    pub(super) fn stored(&self) -> [u8; 32] {
        let mut stored = [0; 32];
        stored[..4].copy_from_slice(&self.number.to_le_bytes());
        stored[4..20].copy_from_slice(&self.last_id.to_bytes());
        let read = self.entries_read.unwrap_or(u64::MAX);
        stored[20..28].copy_from_slice(&read.to_le_bytes());
        stored[28..].copy_from_slice(&self.next_consumer.to_le_bytes());
        stored
    }
}

/// An entry that was delivered and is not acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pending {
    pub(super) consumer: u32,
    /// When it was delivered last, in milliseconds since 1970.
    pub(super) delivered_ms: u64,
    /// How often it was delivered.
    pub(super) deliveries: u64,
}

impl Pending {
    pub(super) fn of(stored: &[u8]) -> Self {
        let mut fields = Fields(stored);
        Self {
            consumer: fields.short(),
            delivered_ms: fields.long(),
            deliveries: fields.long(),
        }
    }

    pub(super) fn stored(&self) -> [u8; 20] {
        let mut stored = [0; 20];
        stored[..4].copy_from_slice(&self.consumer.to_le_bytes());
        stored[4..12].copy_from_slice(&self.delivered_ms.to_le_bytes());
        stored[12..].copy_from_slice(&self.deliveries.to_le_bytes());
        stored
    }
}

/// When a consumer was seen, of what is stored of it, and its name.
pub(super) fn consumer_of(stored: &[u8]) -> (u64, &[u8]) {
    let mut fields = Fields(stored);
    let seen_ms = fields.long();
    (seen_ms, fields.0)
}

/// What is stored of a consumer.
pub(super) fn stored_consumer(seen_ms: u64, name: &[u8]) -> Vec<u8> {
    [&seen_ms.to_le_bytes()[..], name].concat()
}

/// A number that is all that is stored.
pub(super) fn number_of(stored: &[u8]) -> u32 {
    Fields(stored).short()
}

/// The texts of an entry.
pub(super) fn texts(stored: &[u8]) -> (usize, impl Iterator<Item = &[u8]>) {
    let (count, mut rest) = stored.split_first_chunk().unwrap_or((&[0; 4], &[]));
    let texts = std::iter::from_fn(move || {
        let (length, behind) = rest.split_first_chunk()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        let (text, behind) = behind.split_at_checked(length)?;
        rest = behind;
        Some(text)
    });
    let count = usize::try_from(u32::from_le_bytes(*count)).unwrap_or(usize::MAX);
    (count, texts)
}

/// Adds what is stored of an entry of these texts.
pub(crate) fn put_texts<'t>(texts: impl ExactSizeIterator<Item = &'t [u8]>, into: &mut Vec<u8>) {
    let short = |length: usize| u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
    into.extend(short(texts.len()));
    for text in texts {
        into.extend(short(text.len()));
        into.extend_from_slice(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_read_again() {
        let id = |ms| StreamId { ms, number: 3 };
        let header = Header {
            last_id: id(5),
            max_deleted: id(4),
            removed: 17,
            next_group: 2,
        };
        assert_eq!(Header::of(&header.stored()), header);
        for entries_read in [None, Some(0), Some(9)] {
            let group = Group {
                number: 1,
                last_id: id(7),
                entries_read,
                next_consumer: 5,
            };
            assert_eq!(Group::of(&group.stored()), group);
        }
        let pending = Pending {
            consumer: 3,
            delivered_ms: 1 << 41,
            deliveries: 2,
        };
        assert_eq!(Pending::of(&pending.stored()), pending);
        assert_eq!(consumer_of(&stored_consumer(8, b"name")), (8, &b"name"[..]));
        let mut stored = Vec::new();
        put_texts([&b"field"[..], b""].into_iter(), &mut stored);
        let (count, found) = texts(&stored);
        assert_eq!(
            (count, found.collect::<Vec<_>>()),
            (2, vec![&b"field"[..], b""])
        );
    }

    #[test]
    fn keys_are_in_the_order_of_ids_and_kinds() {
        let id = |ms| StreamId { ms, number: 0 };
        let keys = [
            Key::header().bytes().to_vec(),
            group_key(b"g"),
            Key::pending(1, id(1)).bytes().to_vec(),
            Key::pending(1, id(256)).bytes().to_vec(),
            Key::owned(1, 2, id(1)).bytes().to_vec(),
            Key::consumer(1, 2).bytes().to_vec(),
            named_key(1, b"c"),
            Key::entry(id(0)).bytes().to_vec(),
            Key::entry(StreamId::LAST).bytes().to_vec(),
        ];
        assert!(keys.is_sorted());
        assert_eq!(id_of(&keys[3]), id(256));
        assert_eq!(group_name(&keys[1]), b"g");
        assert_eq!(consumer_name(&keys[6]), b"c");
    }
}
