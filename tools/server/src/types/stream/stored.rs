//! A stream's map as `DUMP` reads it and `RESTORE` writes it: element by element, without its
//! programs.

use farcore::constants::KEY_BYTES_MAX;

use super::id::StreamId;
use super::layout::{
    Ends, Group, Header, Key, Pending, Span, consumer_name, consumer_of, group_key, group_name,
    id_of, named_key, number_of, put_texts, stored_consumer, texts,
};

/// The longest name of a group or a consumer: a key of a map has no more bytes.
pub(crate) const NAME_BYTES_MAX: usize = KEY_BYTES_MAX - 5;

/// The consumer of what is pending at none yet.
const NONE: u32 = u32::MAX;

/// What of a stream is read, in pages.
#[derive(Clone, Debug)]
pub(crate) enum StreamPart {
    Entries,
    Groups,
    /// What is pending in a group.
    Pending(u32),
    /// The names of a group's consumers.
    Names(u32),
    /// What is pending at a consumer of a group.
    Owned(u32, u32),
}

impl StreamPart {
    /// The first and the last key of it, both included.
    pub(crate) fn ends(&self) -> (Vec<u8>, Vec<u8>) {
        let of_span = |span: Span| span.ends();
        match *self {
            Self::Entries => of_span(Span::all_entries()),
            Self::Groups => Ends::groups().into_keys(),
            Self::Pending(group) => of_span(Span::all_pending(group, None)),
            Self::Names(group) => Ends::names(group).into_keys(),
            Self::Owned(group, consumer) => of_span(Span::all_pending(group, Some(consumer))),
        }
    }
}

/// A group as it is stored.
#[derive(Clone, Debug)]
pub(crate) struct StoredGroup {
    pub(crate) name: Vec<u8>,
    pub(crate) number: u32,
    pub(crate) last_id: StreamId,
    pub(crate) entries_read: Option<u64>,
}

/// An element of a map.
pub(crate) type Element = (Vec<u8>, Vec<u8>);

/// The ID of an entry, or of what is pending, and the entry's texts.
pub(crate) fn entry<'e>(
    (key, stored): (&[u8], &'e [u8]),
) -> (StreamId, impl Iterator<Item = &'e [u8]> + use<'e>) {
    (id_of(key), texts(stored).1)
}

/// A group.
pub(crate) fn group((key, stored): (&[u8], &[u8])) -> StoredGroup {
    let group = Group::of(stored);
    StoredGroup {
        name: group_name(key).to_vec(),
        number: group.number,
        last_id: group.last_id,
        entries_read: group.entries_read,
    }
}

/// An ID that is pending, when it was delivered last, and how often.
pub(crate) fn pending((key, stored): (&[u8], &[u8])) -> (StreamId, u64, u64) {
    let pending = Pending::of(stored);
    (id_of(key), pending.delivered_ms, pending.deliveries)
}

/// An ID that is pending at a consumer.
pub(crate) fn owned(key: &[u8]) -> StreamId {
    id_of(key)
}

/// The name of a consumer, and its number.
pub(crate) fn name((key, stored): (&[u8], &[u8])) -> (Vec<u8>, u32) {
    (consumer_name(key).to_vec(), number_of(stored))
}

/// The key under which a consumer is.
pub(crate) fn consumer_key(group: u32, consumer: u32) -> Vec<u8> {
    Key::consumer(group, consumer).bytes().to_vec()
}

/// When a consumer was seen.
pub(crate) fn seen_ms(stored: &[u8]) -> u64 {
    consumer_of(stored).0
}

/// The key under which a stream's header is.
pub(crate) fn header_key() -> Vec<u8> {
    Key::header().bytes().to_vec()
}

/// The last ID, the greatest deleted ID, and how many entries are gone.
pub(crate) fn header(stored: &[u8]) -> (StreamId, StreamId, u64) {
    let header = Header::of(stored);
    (header.last_id, header.max_deleted, header.removed)
}

/// The element of a header.
pub(crate) fn header_element(
    (last_id, max_deleted): (StreamId, StreamId),
    removed: u64,
    next_group: u32,
) -> Element {
    let header = Header {
        last_id,
        max_deleted,
        removed,
        next_group,
    };
    (header_key(), header.stored().to_vec())
}

/// The element of an entry.
pub(crate) fn entry_element<'t>(
    id: StreamId,
    texts: impl ExactSizeIterator<Item = &'t [u8]>,
) -> Element {
    let mut stored = Vec::new();
    put_texts(texts, &mut stored);
    (Key::entry(id).bytes().to_vec(), stored)
}

/// The element of a group of this many consumers.
pub(crate) fn group_element(group: &StoredGroup, next_consumer: u32) -> Element {
    let stored = Group {
        number: group.number,
        last_id: group.last_id,
        entries_read: group.entries_read,
        next_consumer,
    };
    (group_key(&group.name), stored.stored().to_vec())
}

/// The element of an ID that is pending at no consumer yet.
pub(crate) fn pending_element(
    group: u32,
    id: StreamId,
    (delivered_ms, deliveries): (u64, u64),
) -> Element {
    let pending = Pending {
        consumer: NONE,
        delivered_ms,
        deliveries,
    };
    (pending_key(group, id), pending.stored().to_vec())
}

/// The key of an ID that is pending.
pub(crate) fn pending_key(group: u32, id: StreamId) -> Vec<u8> {
    Key::pending(group, id).bytes().to_vec()
}

/// The elements by which what is stored as pending is pending at a consumer.
pub(crate) fn owned_elements(
    (group, consumer): (u32, u32),
    id: StreamId,
    stored: &[u8],
) -> [Element; 2] {
    let pending = Pending {
        consumer,
        ..Pending::of(stored)
    };
    let owned = Key::owned(group, consumer, id).bytes().to_vec();
    [
        (pending_key(group, id), pending.stored().to_vec()),
        (owned, Vec::new()),
    ]
}

/// The elements of a consumer.
pub(crate) fn consumer_elements(
    (group, consumer): (u32, u32),
    name: &[u8],
    seen_ms: u64,
) -> [Element; 2] {
    let number = consumer.to_le_bytes().to_vec();
    [
        (named_key(group, name), number),
        (
            consumer_key(group, consumer),
            stored_consumer(seen_ms, name),
        ),
    ]
}
