//! What delivers entries to consumers, and takes what they acknowledge.

use farcore::{TreeMap, TreeOutcome, TreeStop};

use super::entries::{write_count, write_range};
use super::id::StreamId;
use super::input::{Answering, Given, deeds};
use super::layout::{Pending, Span, id_of};
use super::state::{PAGE_BYTES, Stream, write_id};

type Ran = Result<TreeOutcome, TreeStop>;

fn no_group(key: &[u8], group: &[u8]) -> String {
    let [key, group] = [key, group].map(String::from_utf8_lossy);
    format!(
        "NOGROUP No such key '{key}' or consumer group '{group}' in XREADGROUP with GROUP option"
    )
}

/// Entries that one step delivers, at most.
const DELIVERED_AT_ONCE: u64 = 64;

/// Delivers entries that the group has not had to a consumer, as many as one step can. The number
/// of the answer is how many they are; the reply is one after the other.
pub(super) fn read(input: &[u8], map: &mut TreeMap<'_>, answer: &mut Vec<u8>) -> Ran {
    let mut given = Given::new(input);
    let mut answer = Answering::new(answer, &given);
    map.will_change_several();
    let (key, name, consumer) = (given.bytes(), given.bytes(), given.bytes());
    let (now_ms, most, is_kept) = (given.number(), given.number(), given.flag());
    let Some((mut stream, mut open)) = Stream::open_with_group(map, name)? else {
        answer.fail(&no_group(key, name));
        return Ok(TreeOutcome::Answer);
    };
    let Some(from) = open.group.last_id.next() else {
        return Ok(TreeOutcome::Answer);
    };
    let at_once = most.min(DELIVERED_AT_ONCE);
    let bounds = (false, at_once);
    let written = write_range(stream.map, (from, StreamId::LAST), bounds, &mut answer)?;
    if written.is_empty() {
        return Ok(TreeOutcome::Answer);
    }
    if at_once < most && written.len() as u64 == at_once {
        answer.has_more();
    }
    let (consumer, is_new) = stream.see_consumer(&mut open, consumer, now_ms)?;
    if is_new {
        answer.did(deeds::CONSUMER);
    }
    let group = open.group.number;
    let pending = Pending {
        consumer,
        delivered_ms: now_ms,
        deliveries: 1,
    };
    let (mut count, mut end) = (0, 0);
    for &(id, len) in &written {
        if count > 0 && stream.map.is_spent() {
            answer.has_more();
            break;
        }
        stream.deliver(&mut open.group, id)?;
        if is_kept {
            // The group's last ID may have been set back.
            let before = stream.pending(group, id)?;
            stream.set_pending((group, id), before, pending)?;
        }
        (count, end) = (count + 1, len);
    }
    stream.save_group(&mut open)?;
    answer.truncate(end);
    answer.number(count);
    answer.did(deeds::DONE);
    Ok(TreeOutcome::Answer)
}

/// Delivers entries that are pending at a consumer again, those behind an ID, as many as one step
/// can. The number of the answer is how many they are, the ID that of the last one.
pub(super) fn read_again(input: &[u8], map: &mut TreeMap<'_>, answer: &mut Vec<u8>) -> Ran {
    let mut given = Given::new(input);
    let mut answer = Answering::new(answer, &given);
    map.will_change_several();
    let (key, name, consumer) = (given.bytes(), given.bytes(), given.bytes());
    let (now_ms, most, behind) = (given.number(), given.number(), given.id());
    let Some((mut stream, mut open)) = Stream::open_with_group(map, name)? else {
        answer.fail(&no_group(key, name));
        return Ok(TreeOutcome::Answer);
    };
    let (consumer, is_new) = stream.see_consumer(&mut open, consumer, now_ms)?;
    if is_new {
        answer.did(deeds::CONSUMER);
    }
    let group = open.group.number;
    let at_once = usize::try_from(most.min(DELIVERED_AT_ONCE)).unwrap_or(0);
    let ids = match behind.next() {
        Some(from) => {
            let owner = (group, Some(consumer));
            stream.pending_ids(owner, (from, StreamId::LAST), at_once)?
        }
        None => (Vec::new(), false),
    };
    let (ids, mut has_more) = ids;
    has_more |= at_once as u64 != most && ids.len() == at_once;
    let mut count = 0;
    for id in ids {
        if count > 0 && (stream.map.is_spent() || answer.len() > PAGE_BYTES) {
            has_more = true;
            break;
        }
        if stream.write_entry(id, &mut answer)? {
            if let Some(before) = stream.pending(group, id)? {
                let pending = Pending {
                    delivered_ms: now_ms,
                    deliveries: before.deliveries + 1,
                    ..before
                };
                stream.set_pending((group, id), Some(before), pending)?;
            }
        } else {
            // It was deleted since.
            let mut writer = answer.writer();
            writer.array(2);
            writer.bulk(id.to_string().as_bytes());
            writer.null_array();
        }
        count += 1;
        answer.id(id);
    }
    if has_more {
        answer.has_more();
    }
    answer.number(count);
    answer.did(deeds::DONE);
    Ok(TreeOutcome::Answer)
}

/// Has IDs be pending no more, those from the first one on that one step can. The number of the
/// answer is how many IDs were looked at, the reply how many were pending.
pub(super) fn acknowledge(input: &[u8], map: &mut TreeMap<'_>, answer: &mut Vec<u8>) -> Ran {
    let mut given = Given::new(input);
    let mut answer = Answering::new(answer, &given);
    map.will_change_several();
    let name = given.bytes();
    let Some((mut stream, open)) = Stream::open_with_group(map, name)? else {
        return Ok(TreeOutcome::Absent);
    };
    let group = open.group.number;
    let (mut looked, mut ended) = (0, 0);
    while !given.is_empty() {
        if looked > 0 && stream.map.is_spent() {
            break;
        }
        let id = given.id();
        looked += 1;
        if let Some(was) = stream.pending(group, id)? {
            stream.end_pending(group, id, was)?;
            ended += 1;
        }
    }
    answer.number(looked);
    write_count(ended, &mut answer);
    Ok(TreeOutcome::Answer)
}

/// What is pending of a group: how much, from which ID to which, and how much at each consumer
/// that comes behind a name. The number of the answer is how many consumers the reply has behind
/// its first part, which it has if no name is given.
pub(super) fn pending(input: &[u8], map: &mut TreeMap<'_>, answer: &mut Vec<u8>) -> Ran {
    let mut given = Given::new(input);
    let mut answer = Answering::new(answer, &given);
    let (key, name) = (given.bytes(), given.bytes());
    let Some((mut stream, open)) = Stream::open_with_group(map, name)? else {
        answer.fail(&no_such(key, name));
        return Ok(TreeOutcome::Answer);
    };
    let group = open.group.number;
    let count = stream.pending_count(group, None)?;
    answer.number(count);
    write_count(count, &mut answer);
    if count == 0 {
        let mut writer = answer.writer();
        writer.null();
        writer.null();
        writer.null_array();
        return Ok(TreeOutcome::Answer);
    }
    let all = Span::all_pending(group, None);
    for reverse in [false, true] {
        let mut end = StreamId::FIRST;
        stream.map.walk(all.range(), reverse, |key, _| {
            end = id_of(key);
            false
        })?;
        write_id(end, &mut answer);
    }
    Ok(TreeOutcome::Answer)
}

/// How a pending ID is reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PendingForm {
    /// With its consumer, the time since it was delivered, and deliveries.
    Idle,
    /// With its consumer, when it was delivered, and deliveries.
    OfGroup,
    /// With when it was delivered, and deliveries.
    OfConsumer,
}

impl PendingForm {
    fn of(number: u64) -> Self {
        let all = [Self::Idle, Self::OfGroup, Self::OfConsumer];
        let found = all.into_iter().find(|form| *form as u64 == number);
        found.unwrap_or(Self::Idle)
    }
}

/// What is said of a key or group that is not there.
pub(crate) fn no_such(key: &[u8], group: &[u8]) -> String {
    let [key, group] = [key, group].map(String::from_utf8_lossy);
    format!("NOGROUP No such key '{key}' or consumer group '{group}'")
}

/// Pending IDs of a range, of a group or of one of its consumers, that were delivered at least so
/// long ago. The number of the answer is how many they are, the ID that of the last one that was
/// looked at.
pub(super) fn pending_range(input: &[u8], map: &mut TreeMap<'_>, answer: &mut Vec<u8>) -> Ran {
    let mut given = Given::new(input);
    let mut answer = Answering::new(answer, &given);
    let (key, name) = (given.bytes(), given.bytes());
    let form = PendingForm::of(given.number());
    let (now_ms, idle_ms, most) = (given.number(), given.number(), given.number());
    let (from, to) = (given.id(), given.id());
    let consumer = given.flag().then(|| given.bytes());
    let Some((mut stream, open)) = Stream::open_with_group(map, name)? else {
        answer.fail(&no_such(key, name));
        return Ok(TreeOutcome::Answer);
    };
    let group = open.group.number;
    let consumer = match consumer {
        None => None,
        Some(name) => match stream.consumer(&open.group, name)? {
            None => return Ok(TreeOutcome::Answer),
            known => known,
        },
    };
    if from > to || most == 0 {
        return Ok(TreeOutcome::Answer);
    }
    let owner = (group, consumer);
    let (ids, mut has_more) = stream.pending_ids(owner, (from, to), LOOKED_AT_ONCE)?;
    has_more |= ids.len() == LOOKED_AT_ONCE;
    let mut count = 0;
    for id in ids {
        if count == most {
            has_more = false;
            break;
        }
        answer.id(id);
        let Some(pending) = stream.pending(group, id)? else {
            continue;
        };
        let idle = now_ms.saturating_sub(pending.delivered_ms);
        if idle < idle_ms {
            continue;
        }
        let (_, name) = stream.seen(group, pending.consumer)?;
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let mut writer = answer.writer();
        writer.array(if form == PendingForm::OfConsumer {
            3
        } else {
            4
        });
        writer.bulk(id.to_string().as_bytes());
        if form != PendingForm::OfConsumer {
            writer.bulk(&name);
        }
        let time = match form {
            PendingForm::Idle => idle,
            PendingForm::OfGroup | PendingForm::OfConsumer => pending.delivered_ms,
        };
        writer.integer(number(time));
        writer.integer(number(pending.deliveries));
        count += 1;
    }
    if has_more {
        answer.has_more();
    }
    answer.number(count);
    Ok(TreeOutcome::Answer)
}

/// Pending IDs that one step looks at.
const LOOKED_AT_ONCE: usize = 128;
