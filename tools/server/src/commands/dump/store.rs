//! The store of a value that was checked, under the section of its key: the first step replaces
//! what the key holds.
//!
//! - W1: if a step fails, what was stored is removed.

use std::ops::Range;

use farcore::{
    Answer, Condition, Core, Error, Expiry, ExpiryCondition, Operation, PutOptions, TreeChange,
    TreeChanges, TreeGuard, TreeOp, TreeScore, TreeScoreRule, TreeScores, TreeValues, TreeView,
    Version,
};
use farcore_rdb::{Decoder, Id, Item, Step as Decoded, ValueKind, Window};

use super::check::{BAD, Checked};
use crate::commands::trees::{Step, ask, undo};
use crate::long::copy::{Segment, put_segments};
use crate::steps;
use crate::tasks::failure::TaskFailure;
use crate::types::element::ElementKeys;
use crate::types::kind::Kind;
use crate::types::sorted::member::{stored_member, value_of};
use crate::types::stream::id::StreamId;
use crate::types::stream::stored::{self, Element, StoredGroup};

/// Elements of one request, and bytes of them.
const ELEMENTS_AT_ONCE: usize = 128;
const BYTES_AT_ONCE: usize = 16 << 10;
/// IDs whose owners are noted at once.
const OWNED_AT_ONCE: usize = 64;

/// What is stored at once: pairs of texts in one buffer, with a score.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    pairs: Vec<(Range<usize>, Range<usize>, f64)>,
}

impl Batch {
    fn push(&mut self, first: &[u8], second: &[u8], score: f64) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(first);
        let middle = self.bytes.len();
        self.bytes.extend_from_slice(second);
        let end = self.bytes.len();
        self.pairs.push((start..middle, middle..end, score));
    }

    /// True if what it has is to be stored before this many bytes more are added.
    fn is_full(&self, more: usize) -> bool {
        let bytes = self.bytes.len();
        self.pairs.len() >= ELEMENTS_AT_ONCE || (bytes > 0 && bytes + more > BYTES_AT_ONCE)
    }

    fn pairs(&self) -> impl Iterator<Item = (&[u8], &[u8], f64)> {
        (self.pairs.iter()).map(|(first, second, score)| {
            (
                &self.bytes[first.clone()],
                &self.bytes[second.clone()],
                *score,
            )
        })
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.pairs.clear();
    }
}

/// A collection that is stored.
struct Target<'k> {
    key: &'k [u8],
    kind: Kind,
    /// Of what was stored; none before the first step.
    version: Option<Version>,
    batch: Batch,
    elements: ElementKeys,
}

/// Stores a value of a type.
pub(super) async fn store(
    (core, output): Step<'_>,
    key: &[u8],
    (value_type, value): (u8, &[u8]),
    (checked, expiry): (&Checked, Expiry),
) -> Result<(), TaskFailure> {
    let mut decoder = Decoder::new(value_type, 0).map_err(|_| BAD)?;
    decoder.allow(checked.unpacked());
    let kind = match decoder.kind() {
        ValueKind::String => {
            return store_string((core, output), key, (decoder, value), expiry).await;
        }
        ValueKind::List => Kind::List,
        ValueKind::Set => Kind::Set,
        ValueKind::Hash => Kind::Hash,
        ValueKind::SortedSet => Kind::SortedSet,
        ValueKind::Stream => Kind::Stream,
    };
    let mut target = Target {
        key,
        kind,
        version: None,
        batch: Batch::default(),
        elements: ElementKeys::default(),
    };
    let step = (&mut *core, output);
    let mut stored = match kind {
        Kind::Stream => target.stream(step, (decoder, value)).await,
        _ => target.collection(step, (decoder, value)).await,
    };
    if stored.is_ok() && expiry != Expiry::Never {
        let always = ExpiryCondition::Always;
        stored = core
            .expire(key, expiry, always)
            .await
            .map(|_| ())
            .map_err(Into::into);
    }
    if let (Err(_), Some(version)) = (&stored, target.version) {
        undo(core, key, version).await?;
    }
    stored
}

async fn store_string(
    (core, output): Step<'_>,
    key: &[u8],
    (mut decoder, value): (Decoder, &[u8]),
    expiry: Expiry,
) -> Result<(), TaskFailure> {
    let options = PutOptions {
        expiry,
        condition: Condition::Always,
    };
    loop {
        match decoder.next(Window::whole(value)).map_err(|_| BAD)? {
            Decoded::Item(Item::String(text)) => {
                let all = [Segment::Bytes(&text)];
                let _ = put_segments(core, key, &all, options, output).await?;
                return Ok(());
            }
            Decoded::Busy => steps::count_copied(BYTES_AT_ONCE),
            _ => return Err(BAD.into()),
        }
        steps::end_slice(core).await;
    }
}

impl Target<'_> {
    async fn collection(
        &mut self,
        (core, output): Step<'_>,
        (mut decoder, value): (Decoder, &[u8]),
    ) -> Result<(), TaskFailure> {
        loop {
            match decoder.next(Window::whole(value)).map_err(|_| BAD)? {
                Decoded::End => break,
                Decoded::Item(Item::Element(element)) => {
                    self.add((&mut *core, output), (&element, &[]), 0.0).await?;
                }
                Decoded::Item(Item::Pair(field, value)) => {
                    self.add((&mut *core, output), (&field, &value), 0.0)
                        .await?;
                }
                Decoded::Item(Item::Scored(member, score)) => {
                    self.add((&mut *core, output), (&member, &[]), score)
                        .await?;
                }
                Decoded::Item(Item::Count(_)) => {}
                Decoded::Busy => steps::count_copied(BYTES_AT_ONCE),
                _ => return Err(BAD.into()),
            }
            steps::end_slice(core).await;
        }
        self.flush((core, output)).await
    }

    /// Adds a pair to the batch, which is stored before if it has no room.
    async fn add(
        &mut self,
        (core, output): Step<'_>,
        (first, second): (&[u8], &[u8]),
        score: f64,
    ) -> Result<(), TaskFailure> {
        if self.batch.is_full(first.len() + second.len()) {
            self.flush((core, output)).await?;
        }
        self.batch.push(first, second, score);
        Ok(())
    }

    /// Stores the batch.
    async fn flush(&mut self, (core, output): Step<'_>) -> Result<(), TaskFailure> {
        let mut batch = std::mem::take(&mut self.batch);
        let (count, bytes) = (batch.pairs.len(), batch.bytes.len());
        let longest = batch
            .pairs()
            .map(|(first, second, _)| first.len() + second.len())
            .max();
        output.note_value(longest.unwrap_or(0));
        match self.kind {
            Kind::List => self.push(core, &batch).await?,
            Kind::SortedSet => self.score(core, &batch).await?,
            Kind::Stream => {
                let changes = batch.pairs().map(|(key, value, _)| TreeChange {
                    key,
                    value: Some(value),
                });
                let changes: Vec<_> = changes.collect();
                self.update(core, &changes).await?;
            }
            Kind::Hash | Kind::Set => {
                let mut elements = std::mem::take(&mut self.elements);
                elements.clear();
                batch
                    .pairs()
                    .for_each(|(element, value, _)| elements.add(element, Some(value)));
                let changes = batch.pairs().enumerate();
                let changes =
                    changes.map(|(place, (_, value, _))| elements.change(place, Some(value)));
                let changes: Vec<_> = changes.collect();
                let updated = self.update(core, &changes).await;
                drop(changes);
                self.elements = elements;
                updated?;
            }
        }
        batch.clear();
        self.batch = batch;
        steps::count(count);
        steps::count_copied(bytes);
        output.turn(core, bytes).await;
        steps::end_slice(core).await;
        Ok(())
    }

    async fn push(&mut self, core: &mut Core, batch: &Batch) -> Result<(), TaskFailure> {
        let values: Vec<_> = batch.pairs().map(|(element, _, _)| element).collect();
        if values.is_empty() {
            return Ok(());
        }
        let op = TreeOp::Push {
            front: false,
            exists: false,
            replaces: self.version.is_none(),
            values: TreeValues::Slices(&values),
        };
        self.write(core, op, 0).await.map(|_| ())
    }

    async fn score(&mut self, core: &mut Core, batch: &Batch) -> Result<(), TaskFailure> {
        let members = batch
            .pairs()
            .map(|(member, _, score)| (stored_member(member), member, score));
        let members: Vec<_> = members.collect();
        let changes = members.iter().map(|(stored, member, score)| TreeScore {
            member: stored,
            score: Some(*score),
            value: value_of(member),
        });
        let changes: Vec<_> = changes.collect();
        let mut left = &changes[..];
        while !left.is_empty() {
            let op = TreeOp::Score {
                changes: TreeScores::Slices(left),
                rule: TreeScoreRule::default(),
                replaces: self.version.is_none(),
            };
            let done = self.write(core, op, 3).await?;
            left = &left[done.min(left.len())..];
        }
        Ok(())
    }

    async fn update(
        &mut self,
        core: &mut Core,
        changes: &[TreeChange<'_>],
    ) -> Result<(), TaskFailure> {
        let mut left = changes;
        while !left.is_empty() {
            let op = TreeOp::Update {
                changes: TreeChanges::Slices(left),
                replaces: self.version.is_none(),
            };
            let done = self.write(core, op, 2).await?;
            left = &left[done.min(left.len())..];
        }
        Ok(())
    }

    /// The guard of the next step: no other client has changed what was stored.
    fn guard(&self) -> TreeGuard {
        TreeGuard {
            tag: self.kind.tag(),
            version: self.version,
        }
    }

    /// Writes; returns the number at a place of the answer, which tells how many changes of a map
    /// were made.
    async fn write(
        &mut self,
        core: &mut Core,
        op: TreeOp<'_>,
        place: usize,
    ) -> Result<usize, TaskFailure> {
        let operation = Operation::Tree {
            key: self.key,
            op,
            guard: self.guard(),
        };
        let take = |answer: &Answer<'_>| {
            let view = TreeView::of(answer);
            (view.version(), view.number(place))
        };
        let (version, number) = ask(core, operation, take).await?;
        self.version = Some(version);
        Ok(usize::try_from(number).unwrap_or(usize::MAX))
    }

    /// Adds an element of a stream's map to the batch.
    async fn put(
        &mut self,
        (core, output): Step<'_>,
        (key, value): Element,
    ) -> Result<(), TaskFailure> {
        self.add((core, output), (&key, &value), 0.0).await
    }

    async fn stream(
        &mut self,
        (core, output): Step<'_>,
        (mut decoder, value): (Decoder, &[u8]),
    ) -> Result<(), TaskFailure> {
        let mut restored = RestoredStream::default();
        loop {
            let mut elements = Vec::new();
            match decoder.next(Window::whole(value)).map_err(|_| BAD)? {
                Decoded::End => break,
                Decoded::Item(item) => restored.add(item, &mut elements),
                Decoded::Busy => steps::count_copied(BYTES_AT_ONCE),
                _ => return Err(BAD.into()),
            }
            for element in elements {
                self.put((&mut *core, output), element).await?;
            }
            if restored.owned.len() >= OWNED_AT_ONCE || restored.ends_consumer {
                self.own((&mut *core, output), &mut restored).await?;
            }
            steps::end_slice(core).await;
        }
        self.own((&mut *core, output), &mut restored).await?;
        if let Some(group) = restored.group.take() {
            let element = stored::group_element(&group, restored.consumers);
            self.put((&mut *core, output), element).await?;
        }
        let ids = (restored.last_id, restored.max_deleted);
        let header = stored::header_element(ids, restored.removed, restored.groups);
        self.put((&mut *core, output), header).await?;
        self.flush((core, output)).await
    }

    /// Has IDs that are pending be so at their consumer.
    async fn own(
        &mut self,
        (core, output): Step<'_>,
        restored: &mut RestoredStream,
    ) -> Result<(), TaskFailure> {
        restored.ends_consumer = false;
        let owned = std::mem::take(&mut restored.owned);
        let mut left = &owned[..];
        if !left.is_empty() {
            self.flush((&mut *core, output)).await?;
        }
        while let Some(&((group, _), _)) = left.first() {
            let some = &left[..left.len().min(OWNED_AT_ONCE)];
            let keys: Vec<_> = some
                .iter()
                .map(|(_, id)| stored::pending_key(group, *id))
                .collect();
            let keys: Vec<_> = keys.iter().map(|key| &key[..]).collect();
            let op = TreeOp::GetMany {
                keys: TreeValues::Slices(&keys),
            };
            let operation = Operation::Tree {
                key: self.key,
                op,
                guard: self.guard(),
            };
            let found = ask(core, operation, |answer| {
                let values = TreeView::of(answer).values();
                values
                    .map(|value| value.map(<[u8]>::to_vec))
                    .collect::<Vec<_>>()
            });
            let found = found.await?;
            if found.is_empty() {
                return Err(Error::CollectionVersion { current: 0 }.into());
            }
            for ((owner, id), pending) in some.iter().zip(&found) {
                let pending = pending.as_deref().ok_or(BAD)?;
                for element in stored::owned_elements(*owner, *id, pending) {
                    self.put((&mut *core, output), element).await?;
                }
            }
            left = &left[found.len().min(left.len())..];
            if !left.is_empty() {
                self.flush((&mut *core, output)).await?;
            }
        }
        Ok(())
    }
}

/// A stream as its parts come.
#[derive(Debug, Default)]
struct RestoredStream {
    last_id: StreamId,
    max_deleted: StreamId,
    removed: u64,
    groups: u32,
    group: Option<StoredGroup>,
    consumers: u32,
    /// Owners by group and number, of IDs that are pending.
    owned: Vec<((u32, u32), StreamId)>,
    /// The owners of all IDs before are known.
    ends_consumer: bool,
}

fn read(id: Id) -> StreamId {
    StreamId {
        ms: id.ms,
        number: id.number,
    }
}

impl RestoredStream {
    /// The number of the group that comes.
    fn number(&self) -> u32 {
        self.group.as_ref().map_or(0, |group| group.number)
    }

    /// Takes a part; adds the elements that it has in the map.
    fn add(&mut self, item: Item<'_>, into: &mut Vec<Element>) {
        match item {
            Item::Entry(id, fields) => {
                let texts: Vec<_> = fields.flat_map(|(field, value)| [field, value]).collect();
                let texts = texts.iter().map(|text| &text[..]);
                into.push(stored::entry_element(read(id), texts));
            }
            Item::Stream(head) => {
                self.last_id = read(head.last_id);
                self.max_deleted = read(head.max_deleted);
                self.removed = head.added.saturating_sub(head.entries);
            }
            Item::Group {
                name,
                last_id,
                entries_read,
            } => {
                if let Some(before) = self.group.take() {
                    into.push(stored::group_element(&before, self.consumers));
                }
                self.ends_consumer = true;
                self.consumers = 0;
                self.group = Some(StoredGroup {
                    name: name.to_vec(),
                    number: self.groups,
                    last_id: read(last_id),
                    entries_read,
                });
                self.groups += 1;
            }
            Item::Pending {
                id,
                delivered_ms,
                deliveries,
            } => {
                let delivery = (delivered_ms, deliveries);
                into.push(stored::pending_element(self.number(), read(id), delivery));
            }
            Item::Consumer { name, seen_ms } => {
                let consumer = (self.number(), self.consumers);
                into.extend(stored::consumer_elements(consumer, &name, seen_ms));
                self.ends_consumer = true;
                self.consumers += 1;
            }
            Item::Owned(id) => {
                let owner = (self.number(), self.consumers.saturating_sub(1));
                self.owned.push((owner, read(id)));
            }
            _ => {}
        }
    }
}
