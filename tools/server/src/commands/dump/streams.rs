//! Payloads of streams.

use farcore::{TreeBound, TreeLength, TreePage};
use farcore_rdb::write::{self, StreamNodes, types};
use farcore_rdb::{Id, StreamHead};

use super::pages::{To, end_step, hold_page};
use crate::commands::trees::Step;
use crate::tasks::failure::TaskFailure;
use crate::types::stream::id::StreamId;
use crate::types::stream::stored::{self, StoredGroup, StreamPart};

/// Reads a part of a stream, page by page.
struct Pages<'p> {
    key: &'p [u8],
    length: &'p TreeLength,
    ends: (Vec<u8>, Vec<u8>),
    has_begun: bool,
    is_over: bool,
}

impl<'p> Pages<'p> {
    fn new((key, length): (&'p [u8], &'p TreeLength), part: &StreamPart) -> Self {
        Self {
            key,
            length,
            ends: part.ends(),
            has_begun: false,
            is_over: false,
        }
    }

    /// How many elements there are.
    async fn count(&self, (core, _): Step<'_>) -> Result<u64, TaskFailure> {
        let (from, to) = &self.ends;
        let (from, to) = (TreeBound::Included(from), TreeBound::Included(to));
        let tree = core.tree(self.key).tagged(self.length.tag);
        let count = tree.at_version(self.length.version).count(from, to).await?;
        Ok(count.unwrap_or(0))
    }

    /// The next page; `None` at the end.
    async fn next(
        &mut self,
        (core, _): Step<'_>,
        (parts, _): &mut To<'_>,
    ) -> Result<Option<(TreePage, (usize, usize))>, TaskFailure> {
        if self.is_over {
            return Ok(None);
        }
        let (from, to) = &self.ends;
        let from = match self.has_begun {
            false => TreeBound::Included(from),
            true => TreeBound::Excluded(from),
        };
        let tree = core.tree(self.key).tagged(self.length.tag);
        let mut tree = tree.at_version(self.length.version);
        let page = tree
            .range(from, TreeBound::Included(to), false, u32::MAX)
            .await?;
        self.has_begun = true;
        self.is_over = !page.has_more();
        let Some((last, _)) = page.last() else {
            return Ok(None);
        };
        self.ends.0 = last.to_vec();
        let read = hold_page(parts, &page)?;
        Ok(Some((page, read)))
    }
}

fn written(id: StreamId) -> Id {
    Id {
        ms: id.ms,
        number: id.number,
    }
}

/// Writes a stream, if it has the same version still.
pub(super) async fn write(
    (core, output): Step<'_>,
    key: &[u8],
    length: &TreeLength,
    mut to: To<'_>,
) -> Result<(), TaskFailure> {
    let source = (key, length);
    to.0.bytes().push(types::STREAM);
    let count = to.0.place();
    let (mut nodes, mut first, mut last, mut entries) = (StreamNodes::default(), None, None, 0);
    let mut pages = Pages::new(source, &StreamPart::Entries);
    while let Some((page, read)) = pages.next((&mut *core, output), &mut to).await? {
        for element in page.iter() {
            let (id, texts) = stored::entry(element);
            let texts: Vec<_> = texts.collect();
            let pairs = texts.chunks_exact(2).map(|pair| (pair[0], pair[1]));
            nodes.push(to.0.bytes(), written(id), pairs, to.1);
            first.get_or_insert(id);
            last = Some(id);
            entries += 1;
        }
        end_step((core, output), read).await?;
    }
    let all = nodes.finish(to.0.bytes(), to.1);
    to.0.fill(count, |bytes| write::length(bytes, all));
    let header_key = stored::header_key();
    let mut tree = core.tree(key).tagged(length.tag).at_version(length.version);
    let header = tree.get(&header_key).await?;
    let (last_id, max_deleted, removed) = header
        .map_or((StreamId::FIRST, StreamId::FIRST, 0), |header| {
            stored::header(&header)
        });
    let head = StreamHead {
        entries,
        last_id: written(last.map_or(last_id, |last| last_id.max(last))),
        max_deleted: written(max_deleted),
        added: removed + entries,
    };
    let first = written(first.unwrap_or(StreamId::FIRST));
    write::stream_head(to.0.bytes(), &head, first);
    let mut pages = Pages::new(source, &StreamPart::Groups);
    let groups = pages.count((&mut *core, output)).await?;
    write::length(to.0.bytes(), groups);
    while let Some((page, read)) = pages.next((&mut *core, output), &mut to).await? {
        for element in page.iter() {
            let group = stored::group(element);
            write_group((&mut *core, output), source, &group, &mut to).await?;
        }
        end_step((core, output), read).await?;
    }
    Ok(())
}

async fn write_group(
    (core, output): Step<'_>,
    source: (&[u8], &TreeLength),
    group: &StoredGroup,
    to: &mut To<'_>,
) -> Result<(), TaskFailure> {
    let read = (written(group.last_id), group.entries_read);
    write::group(to.0.bytes(), &group.name, read, to.1);
    let mut pages = Pages::new(source, &StreamPart::Pending(group.number));
    let pending = pages.count((&mut *core, output)).await?;
    write::length(to.0.bytes(), pending);
    while let Some((page, read)) = pages.next((&mut *core, output), to).await? {
        for element in page.iter() {
            let (id, delivered_ms, deliveries) = stored::pending(element);
            write::pending(to.0.bytes(), written(id), (delivered_ms, deliveries));
        }
        end_step((core, output), read).await?;
    }
    let mut pages = Pages::new(source, &StreamPart::Names(group.number));
    let consumers = pages.count((&mut *core, output)).await?;
    write::length(to.0.bytes(), consumers);
    while let Some((page, read)) = pages.next((&mut *core, output), to).await? {
        for element in page.iter() {
            let (name, number) = stored::name(element);
            let consumer = (group.number, number);
            write_consumer((&mut *core, output), source, (consumer, &name), to).await?;
        }
        end_step((core, output), read).await?;
    }
    Ok(())
}

async fn write_consumer(
    (core, output): Step<'_>,
    source: (&[u8], &TreeLength),
    ((group, consumer), name): ((u32, u32), &[u8]),
    to: &mut To<'_>,
) -> Result<(), TaskFailure> {
    let (key, length) = source;
    let element = stored::consumer_key(group, consumer);
    let mut tree = core.tree(key).tagged(length.tag).at_version(length.version);
    let seen_ms = tree
        .get(&element)
        .await?
        .map_or(0, |seen| stored::seen_ms(&seen));
    write::consumer(to.0.bytes(), name, seen_ms, to.1);
    let mut pages = Pages::new(source, &StreamPart::Owned(group, consumer));
    let owned = pages.count((&mut *core, output)).await?;
    write::length(to.0.bytes(), owned);
    while let Some((page, read)) = pages.next((&mut *core, output), to).await? {
        for (key, _) in page.iter() {
            write::owned(to.0.bytes(), written(stored::owned(key)));
        }
        end_step((core, output), read).await?;
    }
    Ok(())
}
