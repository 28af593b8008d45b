//! What makes, changes and removes groups and consumers.

use farcore::{TreeMap, TreeOutcome, TreeStop};

use super::entries::write_count;
use super::id::StreamId;
use super::input::{Answering, Given, deeds};
use super::layout::{Ends, Key, group_key, named_key};
use super::state::Stream;

type Ran = Result<TreeOutcome, TreeStop>;

/// What is said where there is no stream.
pub(crate) const NO_KEY: &str = "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option to create an empty stream automatically.";

/// Elements of a group that goes, of each kind, that one step removes.
const REMOVED_AT_ONCE: u64 = 256;

/// What is said of a group that is not there.
pub(crate) fn no_group(group: &[u8], key: &[u8]) -> String {
    let [group, key] = [group, key].map(String::from_utf8_lossy);
    format!("NOGROUP No such consumer group '{group}' for key name '{key}'")
}

/// The ID of an input: it may be the last one that was given.
fn given_id(given: &mut Given<'_>, stream: &mut Stream<'_, '_>) -> Result<StreamId, TreeStop> {
    let is_last = given.flag();
    let id = given.id();
    if is_last { stream.last_id() } else { Ok(id) }
}

/// Makes a group.
pub(super) fn create(input: &[u8], map: &mut TreeMap<'_>, answer: &mut Vec<u8>) -> Ran {
    let mut given = Given::new(input);
    let mut answer = Answering::new(answer, &given);
    map.will_change_several();
    let name = given.bytes();
    let makes = given.flag();
    if map.is_empty() && !makes {
        answer.fail(NO_KEY);
        return Ok(TreeOutcome::Answer);
    }
    let mut stream = Stream::open_or_new(map)?;
    let id = given_id(&mut given, &mut stream)?;
    let read = given.flag().then(|| given.number());
    if stream.group(name)?.is_some() {
        answer.fail("BUSYGROUP Consumer Group name already exists");
        return Ok(TreeOutcome::Answer);
    }
    if stream.is_new() {
        answer.did(deeds::MADE);
    }
    stream.make_group(name, (id, read))?;
    stream.save()?;
    answer.did(deeds::DONE);
    answer.writer().simple("OK");
    Ok(TreeOutcome::Answer)
}

/// Sets the last ID of a group.
pub(super) fn set_id(input: &[u8], map: &mut TreeMap<'_>, answer: &mut Vec<u8>) -> Ran {
    let mut given = Given::new(input);
    let mut answer = Answering::new(answer, &given);
    let (name, key) = (given.bytes(), given.bytes());
    let Some(mut stream) = Stream::open(map)? else {
        answer.fail(NO_KEY);
        return Ok(TreeOutcome::Answer);
    };
    let Some(mut open) = stream.group(name)? else {
        answer.fail(&no_group(name, key));
        return Ok(TreeOutcome::Answer);
    };
    open.group.last_id = given_id(&mut given, &mut stream)?;
    open.group.entries_read = given.flag().then(|| given.number());
    stream.save_group(&mut open)?;
    answer.did(deeds::DONE);
    answer.writer().simple("OK");
    Ok(TreeOutcome::Answer)
}

/// Makes a consumer.
pub(super) fn create_consumer(input: &[u8], map: &mut TreeMap<'_>, answer: &mut Vec<u8>) -> Ran {
    let mut given = Given::new(input);
    let mut answer = Answering::new(answer, &given);
    map.will_change_several();
    let (name, key) = (given.bytes(), given.bytes());
    let (consumer, now_ms) = (given.bytes(), given.number());
    let Some(mut stream) = Stream::open(map)? else {
        answer.fail(NO_KEY);
        return Ok(TreeOutcome::Answer);
    };
    let Some(mut open) = stream.group(name)? else {
        answer.fail(&no_group(name, key));
        return Ok(TreeOutcome::Answer);
    };
    let is_new = stream.consumer(&open.group, consumer)?.is_none();
    if is_new {
        stream.see_consumer(&mut open, consumer, now_ms)?;
        answer.did(deeds::CONSUMER);
    }
    write_count(u64::from(is_new), &mut answer);
    Ok(TreeOutcome::Answer)
}

/// Removes a consumer and what is pending at it, as far as one step can. The number of the answer
/// is how many IDs were pending of those that have gone.
pub(super) fn delete_consumer(input: &[u8], map: &mut TreeMap<'_>, answer: &mut Vec<u8>) -> Ran {
    let mut given = Given::new(input);
    let mut answer = Answering::new(answer, &given);
    map.will_change_several();
    let (name, key) = (given.bytes(), given.bytes());
    let consumer_name = given.bytes();
    let Some(mut stream) = Stream::open(map)? else {
        answer.fail(NO_KEY);
        return Ok(TreeOutcome::Answer);
    };
    let Some(open) = stream.group(name)? else {
        answer.fail(&no_group(name, key));
        return Ok(TreeOutcome::Answer);
    };
    let group = open.group.number;
    let Some(consumer) = stream.consumer(&open.group, consumer_name)? else {
        write_count(0, &mut answer);
        return Ok(TreeOutcome::Answer);
    };
    let all = (StreamId::FIRST, StreamId::LAST);
    let owner = (group, Some(consumer));
    let (ids, _) = stream.pending_ids(owner, all, 64)?;
    let mut gone = 0;
    for id in ids {
        if gone > 0 && stream.map.is_spent() {
            break;
        }
        stream.map.remove(Key::pending(group, id).bytes())?;
        let owned = Key::owned(group, consumer, id);
        stream.map.remove(owned.bytes())?;
        gone += 1;
    }
    answer.did(deeds::DONE);
    answer.number(gone);
    if stream.pending_count(group, Some(consumer))? > 0 {
        answer.has_more();
    } else {
        stream.map.remove(&named_key(group, consumer_name))?;
        let key = Key::consumer(group, consumer);
        stream.map.remove(key.bytes())?;
    }
    Ok(TreeOutcome::Answer)
}

/// Removes a group's name. The number of the answer is the number of the group, of which
/// [`forget`] removes the rest.
pub(super) fn destroy(input: &[u8], map: &mut TreeMap<'_>, answer: &mut Vec<u8>) -> Ran {
    let mut given = Given::new(input);
    let mut answer = Answering::new(answer, &given);
    let name = given.bytes();
    let Some(mut stream) = Stream::open(map)? else {
        answer.fail(NO_KEY);
        return Ok(TreeOutcome::Answer);
    };
    let Some(open) = stream.group(name)? else {
        write_count(0, &mut answer);
        return Ok(TreeOutcome::Answer);
    };
    stream.map.remove(&group_key(name))?;
    answer.did(deeds::DONE);
    answer.number(u64::from(open.group.number));
    write_count(1, &mut answer);
    Ok(TreeOutcome::Answer)
}

/// Removes what a group had whose name is gone, as far as one step can: no other group gets its
/// number.
pub(super) fn forget(input: &[u8], map: &mut TreeMap<'_>, answer: &mut Vec<u8>) -> Ran {
    let mut given = Given::new(input);
    let mut answer = Answering::new(answer, &given);
    map.will_change_several();
    let group = u32::try_from(given.number()).unwrap_or(u32::MAX);
    if map.is_empty() {
        return Ok(TreeOutcome::Absent);
    }
    for kind in Ends::of_group(group) {
        if map.is_spent() {
            answer.has_more();
            break;
        }
        let (from, to) = kind.range();
        let removed = map.remove_range((from, to), REMOVED_AT_ONCE)?;
        if removed == REMOVED_AT_ONCE || map.count(from, to)? > 0 {
            answer.has_more();
            break;
        }
    }
    Ok(TreeOutcome::Answer)
}
