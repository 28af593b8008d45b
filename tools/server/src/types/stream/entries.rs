//! What adds, removes and reads entries.

use farcore::{TreeMap, TreeOutcome, TreeStop};

use super::id::{NewId, StreamId};
use super::input::{Answering, Given, deeds};
use super::layout::{Key, Span, id_of};
use super::state::{PAGE_BYTES, Stream, write_entry, write_id};
use crate::types::stream::input::Input;

type Ran = Result<TreeOutcome, TreeStop>;

/// What a stream is trimmed to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TrimTo {
    /// This many entries.
    Length(u64),
    /// What has no lesser ID.
    From(StreamId),
}

/// How a stream is trimmed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Trim {
    pub(crate) to: TrimTo,
    /// As many entries go as whole nodes of Redis have, which is this many each, if not exactly as
    /// many as should.
    pub(crate) node_entries: Option<u64>,
    /// This many go at most; 0 is any number.
    pub(crate) limit: u64,
}

impl Trim {
    /// Adds it to an input.
    pub(crate) fn put(trim: Option<Self>, input: Input) -> Input {
        let Some(trim) = trim else {
            return input.number(0);
        };
        let input = match trim.to {
            TrimTo::Length(length) => input.number(1).number(length),
            TrimTo::From(id) => input.number(2).id(id),
        };
        let input = input.flag(trim.node_entries.is_some());
        let input = input.number(trim.node_entries.unwrap_or(0));
        input.number(trim.limit)
    }

    fn of(given: &mut Given<'_>) -> Option<Self> {
        let to = match given.number() {
            1 => TrimTo::Length(given.number()),
            2 => TrimTo::From(given.id()),
            _ => return None,
        };
        Some(Self {
            to,
            node_entries: {
                let is_rough = given.flag();
                Some(given.number()).filter(|_| is_rough)
            },
            limit: given.number(),
        })
    }

    /// Trims a stream; returns how many entries have gone, and whether more should.
    fn run(self, stream: &mut Stream<'_, '_>) -> Result<(u64, bool), TreeStop> {
        let length = stream.length()?;
        let span = match self.to {
            TrimTo::Length(_) => Some(Span::all_entries()),
            TrimTo::From(id) => id
                .previous()
                .map(|last| Span::entries(StreamId::FIRST, last)),
        };
        let Some(span) = span else {
            return Ok((0, false));
        };
        let excess = match self.to {
            TrimTo::Length(most) => length.saturating_sub(most),
            TrimTo::From(_) => {
                let (from, to) = span.range();
                stream.map.count(from, to)?
            }
        };
        let removed = stream.header.removed;
        let wanted = match self.node_entries {
            Some(entries) => whole_nodes(length, excess, self.limit, (removed, entries)),
            None => excess,
        };
        if wanted == 0 {
            return Ok((0, false));
        }
        let last_id = stream.last_id()?;
        let removed = stream.map.remove_range(span.range(), wanted)?;
        stream.header.last_id = last_id;
        stream.header.removed += removed;
        Ok((removed, removed < wanted))
    }
}

/// Of `excess` entries at the beginning, as many as are whole nodes: each has `entries`, but the
/// first, of which `removed` have gone, and the last. A node of no entries has all.
fn whole_nodes(length: u64, excess: u64, limit: u64, (removed, entries): (u64, u64)) -> u64 {
    let most = if limit == 0 {
        excess
    } else {
        excess.min(limit)
    };
    if most == length {
        return length;
    }
    if entries == 0 {
        return 0;
    }
    let first = (entries - removed % entries).min(length);
    if most < first {
        return 0;
    }
    first + (most - first) / entries * entries
}

/// Adds an entry under a new ID, and trims the stream.
pub(super) fn add(input: &[u8], map: &mut TreeMap<'_>, answer: &mut Vec<u8>) -> Ran {
    let mut given = Given::new(input);
    let mut answer = Answering::new(answer, &given);
    let new_id = match given.number() {
        0 => NewId::Whole(given.id()),
        1 => NewId::Of(given.number()),
        _ => NewId::From(given.number()),
    };
    let makes = given.flag();
    let trim = Trim::of(&mut given);
    if trim.is_some() {
        map.will_change_several();
    }
    if !makes && map.is_empty() {
        return Ok(TreeOutcome::Absent);
    }
    let mut stream = Stream::open_or_new(map)?;
    let last = stream.last_id()?;
    if last == StreamId::LAST {
        answer.fail("ERR The stream has exhausted the last possible ID, unable to add more items");
        return Ok(TreeOutcome::Answer);
    }
    let id = match new_id {
        NewId::Whole(id) => Some(id),
        NewId::Of(ms) if ms == last.ms => last.next().filter(|next| next.ms == ms),
        NewId::Of(ms) => Some(StreamId { ms, number: 0 }),
        NewId::From(now_ms) if now_ms > last.ms => Some(StreamId {
            ms: now_ms,
            number: 0,
        }),
        NewId::From(_) => last.next(),
    };
    let Some(id) = id.filter(|id| *id > last) else {
        answer.fail(
            "ERR The ID specified in XADD is equal or smaller than the target stream top item",
        );
        return Ok(TreeOutcome::Answer);
    };
    answer.did(deeds::ADDED);
    if stream.is_new() {
        answer.did(deeds::MADE);
        stream.map.will_change_several();
        stream.save()?;
    }
    stream.map.put(Key::entry(id).bytes(), given.rest())?;
    write_id(id, &mut answer);
    if let Some(trim) = trim {
        let (trimmed, has_more) = trim.run(&mut stream)?;
        if trimmed > 0 {
            answer.did(deeds::TRIMMED);
            stream.save()?;
        }
        if has_more {
            answer.has_more();
        }
    }
    Ok(TreeOutcome::Answer)
}

/// Removes the entries of IDs, those from the first one on that one step can. The number of the
/// answer is how many IDs were looked at, the reply how many had an entry.
pub(super) fn delete(input: &[u8], map: &mut TreeMap<'_>, answer: &mut Vec<u8>) -> Ran {
    let mut given = Given::new(input);
    let mut answer = Answering::new(answer, &given);
    map.will_change_several();
    let Some(mut stream) = Stream::open(map)? else {
        return Ok(TreeOutcome::Absent);
    };
    let last_id = stream.last_id()?;
    let (mut looked, mut removed) = (0, 0u64);
    while !given.is_empty() {
        if looked > 0 && stream.map.is_spent() {
            break;
        }
        let id = given.id();
        looked += 1;
        if stream.map.remove(Key::entry(id).bytes())? {
            removed += 1;
            stream.header.max_deleted = stream.header.max_deleted.max(id);
        }
    }
    if removed > 0 {
        stream.header.last_id = last_id;
        stream.header.removed += removed;
        stream.save()?;
        answer.did(deeds::DONE);
    }
    answer.number(looked);
    write_count(removed, &mut answer);
    Ok(TreeOutcome::Answer)
}

/// Trims a stream as far as one step can. The reply is how many entries have gone.
pub(super) fn trim(input: &[u8], map: &mut TreeMap<'_>, answer: &mut Vec<u8>) -> Ran {
    let mut given = Given::new(input);
    let mut answer = Answering::new(answer, &given);
    map.will_change_several();
    let trim = Trim::of(&mut given);
    let (Some(trim), Some(mut stream)) = (trim, Stream::open(map)?) else {
        return Ok(TreeOutcome::Absent);
    };
    let (trimmed, has_more) = trim.run(&mut stream)?;
    if trimmed > 0 {
        answer.did(deeds::TRIMMED);
        stream.save()?;
    }
    if has_more {
        answer.has_more();
    }
    answer.number(trimmed);
    write_count(trimmed, &mut answer);
    Ok(TreeOutcome::Answer)
}

/// Replies how many entries there are. The ID of the answer is the last one that was given, the
/// number that of the first entry behind an ID.
pub(super) fn length(input: &[u8], map: &mut TreeMap<'_>, answer: &mut Vec<u8>) -> Ran {
    let given = Given::new(input);
    let mut answer = Answering::new(answer, &given);
    let Some(mut stream) = Stream::open(map)? else {
        return Ok(TreeOutcome::Absent);
    };
    let length = stream.length()?;
    let last = stream.last_id()?;
    answer.id(last);
    answer.number(length);
    write_count(length, &mut answer);
    Ok(TreeOutcome::Answer)
}

/// Writes entries of a range, a bounded number, one after the other. The number of the answer is
/// how many they are, the ID that of the last one; there may be more.
pub(super) fn range(input: &[u8], map: &mut TreeMap<'_>, answer: &mut Vec<u8>) -> Ran {
    let mut given = Given::new(input);
    let mut answer = Answering::new(answer, &given);
    let (from, to) = (given.id(), given.id());
    let (reverse, most) = (given.flag(), given.number());
    if map.is_empty() {
        return Ok(TreeOutcome::Absent);
    }
    write_range(map, (from, to), (reverse, most), &mut answer)?;
    Ok(TreeOutcome::Answer)
}

/// Does this.
pub(super) fn write_range(
    map: &mut TreeMap<'_>,
    (from, to): (StreamId, StreamId),
    (reverse, most): (bool, u64),
    answer: &mut Answering<'_>,
) -> Result<Vec<(StreamId, usize)>, TreeStop> {
    let mut written = Vec::new();
    if from > to || most == 0 {
        return Ok(written);
    }
    let mut is_full = false;
    let span = Span::entries(from, to);
    let goes_on = map.walk(span.range(), reverse, |key, stored| {
        if !written.is_empty() && answer.len() + stored.len() > PAGE_BYTES {
            is_full = true;
            return false;
        }
        let id = id_of(key);
        write_entry(id, stored, answer);
        written.push((id, answer.len()));
        (written.len() as u64) < most
    })?;
    if is_full || goes_on {
        answer.has_more();
    }
    answer.number(written.len() as u64);
    if let Some(&(last, _)) = written.last() {
        answer.id(last);
    }
    Ok(written)
}

/// Sets the last ID.
pub(super) fn set_id(input: &[u8], map: &mut TreeMap<'_>, answer: &mut Vec<u8>) -> Ran {
    let mut given = Given::new(input);
    let mut answer = Answering::new(answer, &given);
    let (id, max_deleted) = (given.id(), given.id());
    let added = given.flag().then(|| given.number());
    let Some(mut stream) = Stream::open(map)? else {
        answer.fail("ERR no such key");
        return Ok(TreeOutcome::Answer);
    };
    let (length, top) = (stream.length()?, stream.top()?);
    if top.is_some_and(|top| id < top) {
        answer.fail("ERR The ID specified in XSETID is smaller than the target stream top item");
        return Ok(TreeOutcome::Answer);
    }
    if added.is_some_and(|added| added < length) {
        answer.fail(
            "ERR The entries_added specified in XSETID is smaller than the target stream length",
        );
        return Ok(TreeOutcome::Answer);
    }
    stream.header.last_id = id;
    if let Some(added) = added {
        stream.header.removed = added - length;
    }
    if max_deleted != StreamId::FIRST {
        stream.header.max_deleted = max_deleted;
    }
    stream.save()?;
    answer.did(deeds::DONE);
    answer.writer().simple("OK");
    Ok(TreeOutcome::Answer)
}

/// Replies a number.
pub(super) fn write_count(count: u64, answer: &mut Answering<'_>) {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    answer.writer().integer(count);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_trimmed_roughly_goes_by_whole_nodes() {
        // Nodes of 100, 100 and 55 entries.
        assert_eq!(whole_nodes(255, 99, 0, (0, 100)), 0);
        assert_eq!(whole_nodes(255, 100, 0, (0, 100)), 100);
        assert_eq!(whole_nodes(255, 254, 0, (0, 100)), 200);
        assert_eq!(whole_nodes(255, 255, 0, (0, 100)), 255);
        assert_eq!(whole_nodes(255, 255, 30, (0, 100)), 0);
        assert_eq!(whole_nodes(255, 255, 150, (0, 100)), 100);
        // Of the first one, 40 have gone.
        assert_eq!(whole_nodes(215, 60, 0, (40, 100)), 60);
        assert_eq!(whole_nodes(215, 161, 0, (140, 100)), 160);
        assert_eq!(whole_nodes(30, 10, 0, (0, 100)), 0);
    }
}
