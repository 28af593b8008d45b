//! What tells about streams, groups and consumers.
//!
//! A report that may be long comes in pages. Each ends with the name after which the next one
//! begins: the answer's ID says how long that is.

use farcore::{TreeMap, TreeOutcome, TreeStop};

use super::groups::no_group;
use super::id::StreamId;
use super::input::{Answering, Given};
use super::layout::{Ends, Group, consumer_name, group_name, number_of};
use super::state::{PAGE_BYTES, Stream, write_id};

type Ran = Result<TreeOutcome, TreeStop>;

/// Groups or consumers of one page.
const PAGE_NAMES: usize = 32;

fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn write_optional(number: Option<i64>, answer: &mut Answering<'_>) {
    match number {
        Some(number) => answer.writer().integer(number),
        None => answer.writer().null(),
    }
}

fn write_field_id(name: &str, id: StreamId, answer: &mut Answering<'_>) {
    answer.writer().bulk(name.as_bytes());
    write_id(id, answer);
}

/// What a stream is: the fields that both forms of the report have, and those of the short one,
/// unless it is the long one.
pub(super) fn stream(input: &[u8], map: &mut TreeMap<'_>, answer: &mut Vec<u8>) -> Ran {
    let mut given = Given::new(input);
    let mut answer = Answering::new(answer, &given);
    let is_full = given.flag();
    let Some(mut stream) = Stream::open(map)? else {
        return Ok(TreeOutcome::Absent);
    };
    let length = stream.length()?;
    let groups = Ends::groups();
    let (from, to) = groups.range();
    let groups = stream.map.count(from, to)?;
    let (first, top) = (stream.first()?, stream.top()?);
    let last_id = stream.last_id()?;
    // What stands for the nodes of Redis's tree.
    let nodes = length.div_ceil(super::state::NODE_ENTRIES);
    let mut writer = answer.writer();
    writer.map(if is_full { 9 } else { 10 });
    for (name, number) in [
        ("length", length),
        ("radix-tree-keys", nodes),
        ("radix-tree-nodes", nodes + 1),
    ] {
        writer.bulk(name.as_bytes());
        writer.integer(integer(number));
    }
    write_field_id("last-generated-id", last_id, &mut answer);
    let deleted = stream.header.max_deleted;
    write_field_id("max-deleted-entry-id", deleted, &mut answer);
    answer.writer().bulk(b"entries-added");
    let added = stream.header.removed + length;
    answer.writer().integer(integer(added));
    let recorded = first.unwrap_or(StreamId::FIRST);
    write_field_id("recorded-first-entry-id", recorded, &mut answer);
    answer.number(groups);
    if is_full {
        return Ok(TreeOutcome::Answer);
    }
    answer.writer().bulk(b"groups");
    answer.writer().integer(integer(groups));
    for (name, id) in [("first-entry", first), ("last-entry", top)] {
        answer.writer().bulk(name.as_bytes());
        let is_written = match id {
            Some(id) => stream.write_entry(id, &mut answer)?,
            None => false,
        };
        if !is_written {
            answer.writer().null();
        }
    }
    Ok(TreeOutcome::Answer)
}

/// A name, with what is stored under it.
type Named = (Vec<u8>, Vec<u8>);

/// Names of a range, of a page, each with what is stored of it.
fn names(
    map: &mut TreeMap<'_>,
    ends: &Ends,
    name_of: impl Fn(&[u8]) -> &[u8],
) -> Result<(Vec<Named>, bool), TreeStop> {
    let mut found = Vec::new();
    let has_more = map.walk(ends.range(), false, |key, stored| {
        if found.len() < PAGE_NAMES {
            found.push((name_of(key).to_vec(), stored.to_vec()));
            return true;
        }
        // It is looked at to see whether there is one more.
        found.push((Vec::new(), Vec::new()));
        false
    })?;
    let is_full = found.len() > PAGE_NAMES;
    found.truncate(PAGE_NAMES);
    Ok((found, has_more || is_full))
}

/// Groups of a stream that come behind a name, if one is given. The number of the answer is how
/// many they are. The long form has the fields before a group's pending IDs.
pub(super) fn groups(input: &[u8], map: &mut TreeMap<'_>, answer: &mut Vec<u8>) -> Ran {
    let mut given = Given::new(input);
    let mut answer = Answering::new(answer, &given);
    let ends = match given.flag() {
        true => Ends::groups_behind(given.bytes()),
        false => Ends::groups(),
    };
    let Some(mut stream) = Stream::open(map)? else {
        return Ok(TreeOutcome::Absent);
    };
    let (found, mut has_more) = names(stream.map, &ends, group_name)?;
    let (mut count, mut last) = (0, None);
    for (name, stored) in found {
        if answer.len() > PAGE_BYTES {
            has_more = true;
            break;
        }
        let group = Group::of(&stored);
        let names = Ends::names(group.number);
        let (from, to) = names.range();
        let consumers = stream.map.count(from, to)?;
        let pending = stream.pending_count(group.number, None)?;
        let lag = stream.lag(&group)?;
        let mut writer = answer.writer();
        writer.map(6);
        writer.bulk(b"name");
        writer.bulk(&name);
        writer.bulk(b"consumers");
        writer.integer(integer(consumers));
        writer.bulk(b"pending");
        writer.integer(integer(pending));
        write_field_id("last-delivered-id", group.last_id, &mut answer);
        answer.writer().bulk(b"entries-read");
        write_optional(group.entries_read.map(integer), &mut answer);
        answer.writer().bulk(b"lag");
        write_optional(lag, &mut answer);
        (count, last) = (count + 1, Some(name));
    }
    answer.end_page(count, last.filter(|_| has_more).as_deref());
    Ok(TreeOutcome::Answer)
}

/// The names of groups, as texts.
pub(super) fn group_names(input: &[u8], map: &mut TreeMap<'_>, answer: &mut Vec<u8>) -> Ran {
    let mut given = Given::new(input);
    let mut answer = Answering::new(answer, &given);
    let ends = match given.flag() {
        true => Ends::groups_behind(given.bytes()),
        false => Ends::groups(),
    };
    let (found, has_more) = names(map, &ends, group_name)?;
    for (name, _) in &found {
        answer.writer().bulk(name);
    }
    let last = found.last().map(|(name, _)| &name[..]);
    answer.end_page(found.len() as u64, last.filter(|_| has_more));
    Ok(TreeOutcome::Answer)
}

/// What a group is, in the long report: the fields before its pending IDs.
pub(super) fn group(input: &[u8], map: &mut TreeMap<'_>, answer: &mut Vec<u8>) -> Ran {
    let mut given = Given::new(input);
    let mut answer = Answering::new(answer, &given);
    let name = given.bytes();
    let Some((mut stream, open)) = Stream::open_with_group(map, name)? else {
        return Ok(TreeOutcome::Absent);
    };
    let pending = stream.pending_count(open.group.number, None)?;
    let lag = stream.lag(&open.group)?;
    let mut writer = answer.writer();
    writer.map(7);
    writer.bulk(b"name");
    writer.bulk(name);
    write_field_id("last-delivered-id", open.group.last_id, &mut answer);
    answer.writer().bulk(b"entries-read");
    write_optional(open.group.entries_read.map(integer), &mut answer);
    answer.writer().bulk(b"lag");
    write_optional(lag, &mut answer);
    answer.writer().bulk(b"pel-count");
    answer.writer().integer(integer(pending));
    Ok(TreeOutcome::Answer)
}

/// How a consumer is reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ConsumerForm {
    /// Name and pending IDs, of those that have some.
    Pending,
    /// As `XINFO CONSUMERS`.
    Info,
    /// Its name.
    Name,
}

impl ConsumerForm {
    fn of(number: u64) -> Self {
        let all = [Self::Pending, Self::Info];
        let found = all.into_iter().find(|form| *form as u64 == number);
        found.unwrap_or(Self::Name)
    }
}

/// Consumers of a group that come behind a name, if one is given. The number of the answer is how
/// many the reply has.
pub(super) fn consumers(input: &[u8], map: &mut TreeMap<'_>, answer: &mut Vec<u8>) -> Ran {
    let mut given = Given::new(input);
    let mut answer = Answering::new(answer, &given);
    let (key, name) = (given.bytes(), given.bytes());
    let (form, now_ms) = (ConsumerForm::of(given.number()), given.number());
    let behind = given.flag().then(|| given.bytes());
    let Some(mut stream) = Stream::open(map)? else {
        return Ok(TreeOutcome::Absent);
    };
    let Some(open) = stream.group(name)? else {
        answer.fail(&no_group(name, key));
        return Ok(TreeOutcome::Answer);
    };
    let group = open.group.number;
    let ends = match behind {
        Some(behind) => Ends::names_behind(group, behind),
        None => Ends::names(group),
    };
    let (found, mut has_more) = names(stream.map, &ends, consumer_name)?;
    let (mut count, mut last) = (0, None);
    for (name, stored) in found {
        if answer.len() > PAGE_BYTES {
            has_more = true;
            break;
        }
        let consumer = number_of(&stored);
        let pending = stream.pending_count(group, Some(consumer))?;
        let (seen_ms, _) = stream.seen(group, consumer)?;
        let mut writer = answer.writer();
        match form {
            ConsumerForm::Pending if pending == 0 => {
                last = Some(name);
                continue;
            }
            ConsumerForm::Pending => {
                writer.array(2);
                writer.bulk(&name);
                writer.bulk_integer(integer(pending));
            }
            ConsumerForm::Info => {
                writer.map(3);
                writer.bulk(b"name");
                writer.bulk(&name);
                writer.bulk(b"pending");
                writer.integer(integer(pending));
                writer.bulk(b"idle");
                writer.integer(integer(now_ms.saturating_sub(seen_ms)));
            }
            ConsumerForm::Name => writer.bulk(&name),
        }
        (count, last) = (count + 1, Some(name));
    }
    answer.end_page(count, last.filter(|_| has_more).as_deref());
    Ok(TreeOutcome::Answer)
}

/// What a consumer is, in the long report: the fields before its pending IDs.
pub(super) fn consumer(input: &[u8], map: &mut TreeMap<'_>, answer: &mut Vec<u8>) -> Ran {
    let mut given = Given::new(input);
    let mut answer = Answering::new(answer, &given);
    let (group, name) = (given.bytes(), given.bytes());
    let Some((mut stream, open)) = Stream::open_with_group(map, group)? else {
        return Ok(TreeOutcome::Absent);
    };
    let group = open.group.number;
    let Some(consumer) = stream.consumer(&open.group, name)? else {
        return Ok(TreeOutcome::Absent);
    };
    let pending = stream.pending_count(group, Some(consumer))?;
    let (seen_ms, _) = stream.seen(group, consumer)?;
    let mut writer = answer.writer();
    writer.map(4);
    writer.bulk(b"name");
    writer.bulk(name);
    writer.bulk(b"seen-time");
    writer.integer(integer(seen_ms));
    writer.bulk(b"pel-count");
    writer.integer(integer(pending));
    Ok(TreeOutcome::Answer)
}
