//! A stream, as its programs look at it and change it.

use farcore::{TreeBound, TreeMap, TreeStop};

use super::id::StreamId;
use super::input::Answering;
use super::layout::{
    Group, Header, Key, Pending, Span, consumer_of, group_key, id_of, named_key, number_of,
    stored_consumer, texts,
};

type Result<T> = std::result::Result<T, TreeStop>;

/// Bytes of a reply from which no more entries are added to it: the rest follows.
pub(super) const PAGE_BYTES: usize = 16 << 10;
/// Entries that a node of Redis has, unless it is set otherwise.
pub(super) const NODE_ENTRIES: u64 = 100;

/// A stream.
pub(super) struct Stream<'s, 'm> {
    pub(super) map: &'s mut TreeMap<'m>,
    pub(super) header: Header,
    /// As it is stored.
    stored: Option<Header>,
}

/// What is looked up of a group: its name, and what is stored of it.
pub(super) struct OpenGroup {
    key: Vec<u8>,
    pub(super) group: Group,
    stored: Option<Group>,
}

impl<'s, 'm> Stream<'s, 'm> {
    /// The stream of a map; `None` if there is none.
    pub(super) fn open(map: &'s mut TreeMap<'m>) -> Result<Option<Self>> {
        if map.is_empty() {
            return Ok(None);
        }
        let stored = map.get(Key::header().bytes())?.map(Header::of);
        Ok(Some(Self {
            map,
            header: stored.unwrap_or_default(),
            stored,
        }))
    }

    /// The stream of a map and its group of a name; `None` if there is no such group.
    pub(super) fn open_with_group(
        map: &'s mut TreeMap<'m>,
        name: &[u8],
    ) -> Result<Option<(Self, OpenGroup)>> {
        let Some(mut stream) = Self::open(map)? else {
            return Ok(None);
        };
        let group = stream.group(name)?;
        Ok(group.map(|group| (stream, group)))
    }

    /// The stream of a map, which is new if there is none.
    pub(super) fn open_or_new(map: &'s mut TreeMap<'m>) -> Result<Self> {
        let stored = match map.is_empty() {
            true => None,
            false => map.get(Key::header().bytes())?.map(Header::of),
        };
        Ok(Self {
            map,
            header: stored.unwrap_or_default(),
            stored,
        })
    }

    /// True if there was no such key.
    pub(super) fn is_new(&self) -> bool {
        self.stored.is_none()
    }

    /// Stores the header, if it has changed.
    pub(super) fn save(&mut self) -> Result<()> {
        if self.stored != Some(self.header) {
            self.map.put(Key::header().bytes(), &self.header.stored())?;
        }
        Ok(())
    }

    /// How many entries there are.
    pub(super) fn length(&mut self) -> Result<u64> {
        let span = Span::all_entries();
        let (from, _) = span.range();
        // Entries come last.
        self.map.count(from, TreeBound::Unbounded)
    }

    /// Entries that were ever added.
    pub(super) fn added(&mut self) -> Result<u64> {
        Ok(self.header.removed + self.length()?)
    }

    fn end(&mut self, is_last: bool) -> Result<Option<StreamId>> {
        let mut end = None;
        let span = Span::all_entries();
        self.map.walk(span.range(), is_last, |key, _| {
            end = Some(id_of(key));
            false
        })?;
        Ok(end)
    }

    /// The ID of the first entry.
    pub(super) fn first(&mut self) -> Result<Option<StreamId>> {
        self.end(false)
    }

    /// The ID of the last entry.
    pub(super) fn top(&mut self) -> Result<Option<StreamId>> {
        self.end(true)
    }

    /// The last ID that was given.
    pub(super) fn last_id(&mut self) -> Result<StreamId> {
        let top = self.top()?.unwrap_or(StreamId::FIRST);
        Ok(top.max(self.header.last_id))
    }

    /// True if entries behind an ID may have been deleted.
    fn has_tombstones(&mut self, from: StreamId) -> Result<bool> {
        let deleted = self.header.max_deleted;
        if deleted == StreamId::FIRST {
            return Ok(false);
        }
        let first = self.first()?;
        Ok(first.is_some_and(|first| first <= deleted) && from <= deleted)
    }

    /// How many entries were added up to an ID, if that can be told.
    pub(super) fn added_up_to(&mut self, id: StreamId) -> Result<Option<u64>> {
        let length = self.length()?;
        let added = self.header.removed + length;
        if added == 0 {
            return Ok(Some(0));
        }
        let last = self.last_id()?;
        if id == last || (length == 0 && id < last) {
            return Ok(Some(added));
        }
        let first = self.first()?;
        let (Some(first), true) = (first, id < last) else {
            return Ok(None);
        };
        let deleted = self.header.max_deleted;
        if deleted != StreamId::FIRST && deleted >= first {
            return Ok(None);
        }
        Ok(match id.cmp(&first) {
            std::cmp::Ordering::Less => Some(self.header.removed),
            std::cmp::Ordering::Equal => Some(self.header.removed + 1),
            std::cmp::Ordering::Greater => None,
        })
    }

    /// How many entries a group has not read, if that can be told. It is negative if the group was
    /// said to have read more than were added; as Redis.
    pub(super) fn lag(&mut self, group: &Group) -> Result<Option<i64>> {
        let added = self.added()?;
        if added == 0 {
            return Ok(Some(0));
        }
        let read = match group.entries_read {
            Some(read) if !self.has_tombstones(group.last_id)? => Some(read),
            _ => self.added_up_to(group.last_id)?,
        };
        let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        Ok(read.map(|read| signed(added) - signed(read)))
    }

    /// Has a group's last delivered ID move on to the ID of an entry.
    pub(super) fn deliver(&mut self, group: &mut Group, id: StreamId) -> Result<()> {
        if id <= group.last_id {
            return Ok(());
        }
        group.entries_read = match group.entries_read {
            Some(read) if !self.has_tombstones(id)? => Some(read + 1),
            _ => self.added_up_to(id)?,
        };
        group.last_id = id;
        Ok(())
    }

    /// Writes an entry, which is an array of its ID and its texts; false if there is none.
    pub(super) fn write_entry(&mut self, id: StreamId, answer: &mut Answering<'_>) -> Result<bool> {
        let Some(stored) = self.map.get(Key::entry(id).bytes())? else {
            return Ok(false);
        };
        write_entry(id, stored, answer);
        Ok(true)
    }

    /// True if there is an entry.
    pub(super) fn has_entry(&mut self, id: StreamId) -> Result<bool> {
        Ok(self.map.get(Key::entry(id).bytes())?.is_some())
    }

    /// A group by its name.
    pub(super) fn group(&mut self, name: &[u8]) -> Result<Option<OpenGroup>> {
        let key = group_key(name);
        let group = self.map.get(&key)?.map(Group::of);
        Ok(group.map(|group| OpenGroup {
            key,
            group,
            stored: Some(group),
        }))
    }

    /// Makes a group.
    pub(super) fn make_group(
        &mut self,
        name: &[u8],
        (last_id, entries_read): (StreamId, Option<u64>),
    ) -> Result<()> {
        let number = self.header.next_group;
        self.header.next_group += 1;
        let mut open = OpenGroup {
            key: group_key(name),
            group: Group {
                number,
                last_id,
                entries_read,
                next_consumer: 0,
            },
            stored: None,
        };
        self.save_group(&mut open)
    }

    /// Stores a group, if it has changed.
    pub(super) fn save_group(&mut self, open: &mut OpenGroup) -> Result<()> {
        if open.stored != Some(open.group) {
            self.map.put(&open.key, &open.group.stored())?;
            open.stored = Some(open.group);
        }
        Ok(())
    }

    /// The number of a consumer.
    pub(super) fn consumer(&mut self, group: &Group, name: &[u8]) -> Result<Option<u32>> {
        let named = self.map.get(&named_key(group.number, name))?;
        Ok(named.map(number_of))
    }

    /// The number of a consumer, which is made if there is none, and is seen now; and whether it is
    /// new.
    pub(super) fn see_consumer(
        &mut self,
        open: &mut OpenGroup,
        name: &[u8],
        now_ms: u64,
    ) -> Result<(u32, bool)> {
        let group = open.group.number;
        let known = self.consumer(&open.group, name)?;
        let consumer = match known {
            Some(consumer) => consumer,
            None => {
                let consumer = open.group.next_consumer;
                open.group.next_consumer += 1;
                self.map
                    .put(&named_key(group, name), &consumer.to_le_bytes())?;
                self.save_group(open)?;
                consumer
            }
        };
        let stored = stored_consumer(now_ms, name);
        self.map
            .put(Key::consumer(group, consumer).bytes(), &stored)?;
        Ok((consumer, known.is_none()))
    }

    /// When a consumer was seen, and its name.
    pub(super) fn seen(&mut self, group: u32, consumer: u32) -> Result<(u64, Vec<u8>)> {
        let stored = self.map.get(Key::consumer(group, consumer).bytes())?;
        let (seen_ms, name) = stored.map_or((0, &[][..]), consumer_of);
        Ok((seen_ms, name.to_vec()))
    }

    /// What is pending under an ID.
    pub(super) fn pending(&mut self, group: u32, id: StreamId) -> Result<Option<Pending>> {
        let stored = self.map.get(Key::pending(group, id).bytes())?;
        Ok(stored.map(Pending::of))
    }

    /// Has an ID be pending at a consumer; `before` is what it was.
    pub(super) fn set_pending(
        &mut self,
        (group, id): (u32, StreamId),
        before: Option<Pending>,
        pending: Pending,
    ) -> Result<()> {
        let owner = before.map(|before| before.consumer);
        if owner != Some(pending.consumer) {
            if let Some(owner) = owner {
                self.map.remove(Key::owned(group, owner, id).bytes())?;
            }
            let owned = Key::owned(group, pending.consumer, id);
            self.map.put(owned.bytes(), &[])?;
        }
        let key = Key::pending(group, id);
        self.map.put(key.bytes(), &pending.stored())?;
        Ok(())
    }

    /// Has an ID be pending no more.
    pub(super) fn end_pending(&mut self, group: u32, id: StreamId, was: Pending) -> Result<()> {
        self.map.remove(Key::pending(group, id).bytes())?;
        let owned = Key::owned(group, was.consumer, id);
        self.map.remove(owned.bytes())?;
        Ok(())
    }

    /// How many IDs are pending, of a group or of one of its consumers.
    pub(super) fn pending_count(&mut self, group: u32, consumer: Option<u32>) -> Result<u64> {
        let span = Span::all_pending(group, consumer);
        let (from, to) = span.range();
        self.map.count(from, to)
    }

    /// IDs that are pending, the first ones of a range; and whether there are more than one step
    /// reads.
    pub(super) fn pending_ids(
        &mut self,
        (group, consumer): (u32, Option<u32>),
        range: (StreamId, StreamId),
        most: usize,
    ) -> Result<(Vec<StreamId>, bool)> {
        let mut ids = Vec::new();
        if most == 0 {
            return Ok((ids, false));
        }
        let span = Span::pending(group, consumer, range);
        let has_more = self.map.walk(span.range(), false, |key, _| {
            ids.push(id_of(key));
            ids.len() < most
        })?;
        Ok((ids, has_more))
    }
}

/// Writes an entry.
pub(super) fn write_entry(id: StreamId, stored: &[u8], answer: &mut Answering<'_>) {
    let (count, texts) = texts(stored);
    let mut writer = answer.writer();
    writer.array(2);
    writer.bulk(id.to_string().as_bytes());
    writer.array(count);
    for text in texts {
        writer.bulk(text);
    }
}

/// Writes an ID.
pub(super) fn write_id(id: StreamId, answer: &mut Answering<'_>) {
    answer.writer().bulk(id.to_string().as_bytes());
}
