//! Streams: nodes of entries, what a stream is beside them, and groups with what is pending.
//!
//! ```text
//! nodes, each: first ID | listpack of entries
//! count | last ID | first ID, greatest deleted ID, entries added (from the second form on)
//! groups, each: name | last ID | entries read (second form) | pending | consumers
//!   pending, each: ID:128 | delivered:64 | deliveries
//!   consumers, each: name | seen:64 | active:64 (third form) | pending IDs, each 128
//!
//! listpack: entries | deleted | fields | field .. | 0 | entry ..
//! entry: flags | ms | number | fields, field and value ..  | elements of it
//!        flags | ms | number | value ..                    | elements of it: fields as the first
//! ```
//!
//! - S1: IDs of entries, and of what is pending, and names, each come in order.
//! - S2: what consumers have pending is what their group has. Sums of keyed hashes are compared:
//!   the keys are random, so no bytes can be made for which the sums agree and the IDs do not.

use std::hash::{BuildHasher, RandomState};

use super::Found;
use super::strings::{Span, Strings};
use crate::error::{Problem, Stop};
use crate::listpack::{self, Element};
use crate::text::Text;
use crate::window::{Cursor, Window};

const DELETED: i64 = 1;
const SAME_FIELDS: i64 = 2;
const ID_BYTES: u64 = 16;
/// Elements of a node that a step walks, beside those that are no fields.
const ELEMENTS_AT_ONCE: u64 = 1 << 12;

/// The ID of an entry of a stream.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Id {
    /// Milliseconds since 1970.
    pub ms: u64,
    /// Its number among those of the millisecond.
    pub number: u64,
}

impl Id {
    fn of_bytes(bytes: [u8; 16]) -> Self {
        let [a, b, c, d, e, f, g, h, rest @ ..] = bytes;
        Self {
            ms: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            number: u64::from_be_bytes(rest),
        }
    }

    pub(crate) fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.ms.to_be_bytes());
        bytes[8..].copy_from_slice(&self.number.to_be_bytes());
        bytes
    }

    fn read(cursor: &mut Cursor<'_>) -> Result<Self, Stop> {
        Ok(Self {
            ms: cursor.length()?,
            number: cursor.length()?,
        })
    }
}

/// What a stream is beside its entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StreamHead {
    /// Entries that it has.
    pub entries: u64,
    /// The last ID that was given.
    pub last_id: Id,
    /// The greatest ID of the entries that were deleted.
    pub max_deleted: Id,
    /// Entries that were ever added; no fewer than it has.
    pub added: u64,
}

impl StreamHead {
    /// How many entries were added up to an ID, if that can be told; `first` is that of the first
    /// entry.
    fn added_up_to(&self, id: Id, first: Id) -> Option<u64> {
        if self.added == 0 {
            return Some(0);
        }
        if id == self.last_id || (self.entries == 0 && id < self.last_id) {
            return Some(self.added);
        }
        let has_gap = self.max_deleted != Id::default() && self.max_deleted >= first;
        if id > self.last_id || has_gap {
            return None;
        }
        match id.cmp(&first) {
            std::cmp::Ordering::Less => Some(self.added - self.entries),
            std::cmp::Ordering::Equal => Some(self.added - self.entries + 1),
            std::cmp::Ordering::Greater => None,
        }
    }
}

/// A set of IDs, of which only this is known.
#[derive(Clone, Debug, Default)]
struct IdSum {
    keys: (RandomState, RandomState),
    sum: u128,
    count: u64,
}

impl IdSum {
    fn clear(&mut self) {
        (self.sum, self.count) = (0, 0);
    }

    fn add(&mut self, keys: &(RandomState, RandomState), id: Id) {
        let (high, low) = (keys.0.hash_one(id), keys.1.hash_one(id));
        let hash = (u128::from(high) << 64) | u128::from(low);
        self.sum = self.sum.wrapping_add(hash);
        self.count += 1;
    }

    fn equals(&self, other: &Self) -> bool {
        (self.sum, self.count) == (other.sum, other.count)
    }
}

/// What of a node is walked.
#[derive(Clone, Copy, Debug)]
enum Walk {
    /// The names of the first entry's fields.
    Names,
    /// An entry comes.
    Head,
    /// The fields of an entry.
    Entry {
        id: Id,
        places: FieldPlaces,
        /// Elements of it before the last.
        elements: u64,
        is_deleted: bool,
    },
}

/// A node that is read.
#[derive(Clone, Debug)]
struct Node {
    span: Span,
    /// Where what follows it stands.
    end: u64,
    base: Id,
    /// Of the first entry's.
    fields: u64,
    fields_at: usize,
    at: usize,
    entries: u64,
    deleted: u64,
    /// Elements that it has, if it says so, and those that were read.
    declared: Option<u64>,
    elements: u64,
    walk: Walk,
    /// Elements that are left of what is walked.
    left: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Nodes,
    Head,
    Groups,
    Pending(u64),
    Consumers,
    Owned(u64),
}

/// A stream that is read.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    version: u8,
    pairs_max: u64,
    part: Part,
    node: Option<Node>,
    nodes: u64,
    groups: u64,
    consumers: u64,
    head: StreamHead,
    first: Option<Id>,
    /// The last entry, or the last one that is pending.
    last: Option<Id>,
    group: Option<Vec<u8>>,
    consumer: Option<Vec<u8>>,
    pending: IdSum,
    owned: IdSum,
}

/// Where the fields of an entry stand in its node.
#[derive(Clone, Copy, Debug)]
pub(super) struct FieldPlaces {
    /// Where the names are, if they are those of the first entry.
    names_at: Option<usize>,
    at: usize,
    count: u64,
}

impl FieldPlaces {
    pub(super) fn of(self, blob: &[u8]) -> Fields<'_> {
        Fields { blob, places: self }
    }
}

/// The fields of an entry, with their values.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a> {
    blob: &'a [u8],
    places: FieldPlaces,
}

impl Fields<'_> {
    /// How many there are.
    #[must_use]
    pub fn pairs(&self) -> u64 {
        self.places.count
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (Text<'a>, Text<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let Self { blob, places } = self;
        places.count = places.count.checked_sub(1)?;
        // The entry was walked before.
        let text = |at: &mut usize| {
            let (element, behind) = listpack::next(blob, *at).ok()??;
            *at = behind;
            Some(element.text(blob))
        };
        let name = match &mut places.names_at {
            Some(at) => text(at)?,
            None => text(&mut places.at)?,
        };
        Some((name, text(&mut places.at)?))
    }
}

impl Node {
    /// Opens the node whose first ID and listpack are given.
    fn open(base: Id, (span, blob): (Span, &[u8]), end: u64) -> Result<Self, Problem> {
        let (at, declared) = listpack::begin(blob)?;
        let mut node = Self {
            span,
            end,
            base,
            fields: 0,
            fields_at: 0,
            at,
            entries: 0,
            deleted: 0,
            declared,
            elements: 0,
            walk: Walk::Names,
            left: 0,
        };
        node.entries = node.count(blob)?;
        node.deleted = node.count(blob)?;
        node.fields = node.count(blob)?;
        node.fields_at = node.at;
        node.left = node.fields;
        if node.fields == 0 || node.entries + node.deleted == 0 {
            return Err(Problem::Stream);
        }
        Ok(node)
    }

    /// Walks elements that are left, as many as a step does. True if none is left.
    fn walks(&mut self, blob: &[u8]) -> Result<bool, Problem> {
        for _ in 0..self.left.min(ELEMENTS_AT_ONCE) {
            self.element(blob)?;
            self.left -= 1;
        }
        Ok(self.left == 0)
    }

    fn element(&mut self, blob: &[u8]) -> Result<Element, Problem> {
        let (element, behind) = listpack::next(blob, self.at)?.ok_or(Problem::Stream)?;
        self.at = behind;
        self.elements += 1;
        Ok(element)
    }

    fn integer(&mut self, blob: &[u8]) -> Result<i64, Problem> {
        match self.element(blob)? {
            Element::Integer(number) => Ok(number),
            Element::Bytes(_) => Err(Problem::Stream),
        }
    }

    /// A count of elements, of which there are no more than bytes.
    fn count(&mut self, blob: &[u8]) -> Result<u64, Problem> {
        let count = u64::try_from(self.integer(blob)?).map_err(|_| Problem::Stream)?;
        if count > blob.len() as u64 {
            return Err(Problem::Stream);
        }
        Ok(count)
    }

    /// Goes on by one step: returns an entry of at most `pairs_max` fields that was walked, unless
    /// it was deleted.
    fn step(&mut self, blob: &[u8], pairs_max: u64) -> Result<Option<(Id, FieldPlaces)>, Problem> {
        if matches!(self.walk, Walk::Head) {
            self.begin_entry(blob, pairs_max)?;
        }
        if !self.walks(blob)? {
            return Ok(None);
        }
        let last = self.integer(blob)?;
        match std::mem::replace(&mut self.walk, Walk::Head) {
            Walk::Names | Walk::Head if last == 0 => Ok(None),
            Walk::Names | Walk::Head => Err(Problem::Stream),
            Walk::Entry {
                id,
                places,
                elements,
                is_deleted,
            } => {
                if u64::try_from(last) != Ok(elements) {
                    return Err(Problem::Stream);
                }
                let left = match is_deleted {
                    true => &mut self.deleted,
                    false => &mut self.entries,
                };
                *left = left.checked_sub(1).ok_or(Problem::Stream)?;
                Ok((!is_deleted).then_some((id, places)))
            }
        }
    }

    /// Reads what an entry begins with.
    fn begin_entry(&mut self, blob: &[u8], pairs_max: u64) -> Result<(), Problem> {
        let flags = self.integer(blob)?;
        // A difference of 64 bits stands there with a sign.
        let unsigned = |number: i64| u64::from_le_bytes(number.to_le_bytes());
        let (ms, number) = (self.integer(blob)?, self.integer(blob)?);
        let id = Id {
            ms: self.base.ms.wrapping_add(unsigned(ms)),
            number: self.base.number.wrapping_add(unsigned(number)),
        };
        let has_same = flags & SAME_FIELDS != 0;
        let count = match has_same {
            true => self.fields,
            false => self.count(blob)?,
        };
        let is_deleted = flags & DELETED != 0;
        if count == 0 {
            return Err(Problem::Stream);
        }
        if count > pairs_max && !is_deleted {
            return Err(Problem::Fields(count));
        }
        self.left = if has_same { count } else { 2 * count };
        self.walk = Walk::Entry {
            id,
            places: FieldPlaces {
                names_at: has_same.then_some(self.fields_at),
                at: self.at,
                count,
            },
            elements: self.left + 3 + u64::from(!has_same),
            is_deleted,
        };
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.entries + self.deleted == 0 && matches!(self.walk, Walk::Head)
    }

    fn check_end(&self, blob: &[u8]) -> Result<(), Problem> {
        let has_all = self
            .declared
            .is_none_or(|declared| declared == self.elements);
        match listpack::next(blob, self.at)? {
            None if has_all => Ok(()),
            _ => Err(Problem::Stream),
        }
    }
}

/// A name, if it comes behind the one before.
fn ordered(
    before: &mut Option<Vec<u8>>,
    (span, strings, window): (&Span, &Strings, Window<'_>),
) -> Result<(), Problem> {
    let name = strings.text(span, window);
    if before.as_ref().is_some_and(|before| before[..] >= name[..]) {
        return Err(Problem::Group);
    }
    *before = Some(name.to_vec());
    Ok(())
}

impl Stream {
    /// Begins a stream of a version of its form, whose entries have at most `pairs_max` fields.
    pub(super) fn begin(
        (version, pairs_max): (u8, u64),
        cursor: &mut Cursor<'_>,
    ) -> Result<Self, Stop> {
        Ok(Self {
            version,
            pairs_max,
            part: Part::Nodes,
            node: None,
            nodes: cursor.count(ID_BYTES)?,
            groups: 0,
            consumers: 0,
            head: StreamHead::default(),
            first: None,
            last: None,
            group: None,
            consumer: None,
            pending: IdSum::default(),
            owned: IdSum::default(),
        })
    }

    /// The bytes of the node that is read.
    pub(super) fn node(&self) -> Option<&Span> {
        self.node.as_ref().map(|node| &node.span)
    }

    /// Goes on by one step; returns the first byte that is needed then.
    pub(super) fn advance(
        &mut self,
        strings: &mut Strings,
        cursor: &mut Cursor<'_>,
        window: Window<'_>,
    ) -> Result<(Found, u64), Stop> {
        let before = cursor.at();
        let found = match self.part {
            Part::Nodes if self.node.is_some() => return self.in_node(strings, window, before),
            Part::Nodes if self.nodes == 0 => {
                self.part = Part::Head;
                Found::Nothing
            }
            Part::Nodes => {
                self.open(strings, cursor, window)?;
                return Ok((Found::Nothing, before));
            }
            Part::Head => self.read_head(cursor)?,
            Part::Groups if self.groups == 0 => Found::End,
            Part::Groups => self.read_group(strings, cursor, window)?,
            Part::Pending(0) => {
                self.consumers = cursor.count(1)?;
                self.part = Part::Consumers;
                self.consumer = None;
                Found::Nothing
            }
            Part::Pending(left) => self.read_pending(left, cursor)?,
            Part::Consumers if self.consumers == 0 => {
                if !self.owned.equals(&self.pending) {
                    return Err(Problem::Group.into());
                }
                self.groups -= 1;
                self.part = Part::Groups;
                Found::Nothing
            }
            Part::Consumers => self.read_consumer(strings, cursor, window)?,
            Part::Owned(0) => {
                self.consumers -= 1;
                self.part = Part::Consumers;
                Found::Nothing
            }
            Part::Owned(left) => {
                let id = Id::of_bytes(cursor.array()?);
                self.follow(id, Problem::Group)?;
                self.owned.add(&self.pending.keys, id);
                self.part = Part::Owned(left - 1);
                Found::Owned(id)
            }
        };
        Ok((found, cursor.at()))
    }

    /// Notes an ID, which must come behind the last one.
    fn follow(&mut self, id: Id, problem: Problem) -> Result<(), Problem> {
        if self.last.is_some_and(|last| last >= id) {
            return Err(problem);
        }
        self.last = Some(id);
        Ok(())
    }

    fn open(
        &mut self,
        strings: &mut Strings,
        cursor: &mut Cursor<'_>,
        window: Window<'_>,
    ) -> Result<(), Stop> {
        let key = strings.fetch(1, cursor, window)?;
        let base = strings.bytes(&key, window);
        let base = Id::of_bytes(base.try_into().map_err(|_| Problem::Stream)?);
        let span = strings.fetch(0, cursor, window)?;
        let blob = strings.bytes(&span, window);
        self.node = Some(Node::open(base, (span, blob), cursor.at())?);
        self.nodes -= 1;
        Ok(())
    }

    fn in_node(
        &mut self,
        strings: &Strings,
        window: Window<'_>,
        before: u64,
    ) -> Result<(Found, u64), Stop> {
        let Some(node) = &mut self.node else {
            return Ok((Found::Nothing, before));
        };
        let blob = strings.bytes(&node.span, window);
        if node.is_over() {
            node.check_end(blob)?;
            let end = node.end;
            self.node = None;
            return Ok((Found::Nothing, end));
        }
        let Some((id, places)) = node.step(blob, self.pairs_max)? else {
            return Ok((Found::Nothing, before));
        };
        self.follow(id, Problem::Stream)?;
        self.first.get_or_insert(id);
        self.head.entries += 1;
        Ok((Found::Entry(id, places), before))
    }

    fn read_head(&mut self, cursor: &mut Cursor<'_>) -> Result<Found, Stop> {
        let entries = cursor.length()?;
        let last_id = Id::read(cursor)?;
        let (mut max_deleted, mut added) = (Id::default(), entries);
        if self.version >= 2 {
            let _first = Id::read(cursor)?;
            max_deleted = Id::read(cursor)?;
            added = cursor.length()?;
        }
        self.groups = cursor.count(1)?;
        let is_behind = self.last.is_some_and(|last| last > last_id);
        if entries != self.head.entries || added < entries || is_behind {
            return Err(Problem::Stream.into());
        }
        self.head = StreamHead {
            entries,
            last_id,
            max_deleted,
            added,
        };
        self.part = Part::Groups;
        Ok(Found::Stream(self.head))
    }

    fn read_group(
        &mut self,
        strings: &mut Strings,
        cursor: &mut Cursor<'_>,
        window: Window<'_>,
    ) -> Result<Found, Stop> {
        let name = strings.fetch(0, cursor, window)?;
        let last_id = Id::read(cursor)?;
        let entries_read = match self.version {
            1 => {
                let first = self.first.unwrap_or_default();
                self.head.added_up_to(last_id, first)
            }
            // All bits are set if it is not known.
            _ => Some(cursor.length()?).filter(|&read| read != u64::MAX),
        };
        let pending = cursor.count(ID_BYTES)?;
        ordered(&mut self.group, (&name, strings, window))?;
        self.part = Part::Pending(pending);
        self.last = None;
        self.pending.clear();
        self.owned.clear();
        Ok(Found::Group(name, last_id, entries_read))
    }

    fn read_pending(&mut self, left: u64, cursor: &mut Cursor<'_>) -> Result<Found, Stop> {
        let id = Id::of_bytes(cursor.array()?);
        let delivered_ms = u64::from_le_bytes(cursor.array()?);
        let deliveries = cursor.length()?;
        self.follow(id, Problem::Group)?;
        let keys = self.pending.keys.clone();
        self.pending.add(&keys, id);
        self.part = Part::Pending(left - 1);
        Ok(Found::Pending(id, delivered_ms, deliveries))
    }

    fn read_consumer(
        &mut self,
        strings: &mut Strings,
        cursor: &mut Cursor<'_>,
        window: Window<'_>,
    ) -> Result<Found, Stop> {
        let name = strings.fetch(0, cursor, window)?;
        let seen_ms = u64::from_le_bytes(cursor.array()?);
        if self.version >= 3 {
            // When it was active: no command of Redis 7.0 shows that.
            let _: [u8; 8] = cursor.array()?;
        }
        let owned = cursor.count(ID_BYTES)?;
        ordered(&mut self.consumer, (&name, strings, window))?;
        self.part = Part::Owned(owned);
        self.last = None;
        Ok(Found::Consumer(name, seen_ms))
    }
}

#[cfg(test)]
mod tests {
    use crate::write::{self, StreamNodes, types};
    use crate::{Decoder, Error, Item, Packer, Problem, Step, Window};

    use super::*;

    const FIELDS: u64 = 3 * ELEMENTS_AT_ONCE;

    /// The nodes of a stream whose only entry has many fields.
    fn of_many_fields() -> Vec<u8> {
        let (mut nodes, mut packer) = (Vec::new(), Packer::default());
        let texts: Vec<_> = (0..FIELDS).map(|field| field.to_string()).collect();
        let texts = texts.iter().map(|text| (text.as_bytes(), text.as_bytes()));
        let mut written = StreamNodes::default();
        written.push(&mut nodes, Id { ms: 1, number: 1 }, texts, &mut packer);
        let mut value = Vec::new();
        write::length(&mut value, written.finish(&mut nodes, &mut packer));
        value.extend(nodes);
        value
    }

    /// Steps until the entry, and whether it was refused.
    fn steps(value: &[u8], pairs_max: u64) -> (u64, Option<Problem>) {
        let mut decoder = Decoder::new(types::STREAM, 0).expect("a type");
        decoder.limit_fields(pairs_max);
        let mut steps = 0;
        loop {
            match decoder.next(Window::whole(value)) {
                Ok(Step::Item(Item::Entry(_, fields))) => {
                    assert_eq!((fields.pairs(), fields.count()), (FIELDS, 12_288));
                    return (steps, None);
                }
                Ok(Step::Room(bytes)) => decoder.allow(bytes),
                Ok(Step::Busy) => steps += 1,
                Ok(step) => panic!("{step:?}"),
                Err(Error { problem, .. }) => return (steps, Some(problem)),
            }
        }
    }

    #[test]
    fn a_step_walks_some_fields_and_too_many_are_refused_before() {
        let value = of_many_fields();
        let (all, refused) = steps(&value, FIELDS);
        assert_eq!(refused, None);
        let (few, refused) = steps(&value, FIELDS - 1);
        assert_eq!(refused, Some(Problem::Fields(FIELDS)));
        // Names and values, the last of each by the step that ends them.
        let walked = FIELDS / ELEMENTS_AT_ONCE - 1;
        assert!(few >= walked && all >= few + walked, "{few} of {all}");
    }
}
