//! Commands of one list.
//!
//! A list is one structured record. Reads are one request, whose answer is searched when it is
//! replied. Changes are those of [`structured`](super::structured).

use farcore::Operation;

use super::arguments::{integer, is_option, number};
use super::structured::{Done, Effect, Failure, Record, change, finish, update};
use super::{Call, Flow, Refusal, SYNTAX};
use crate::events::classes::EventClasses;
use crate::resp::Writer;
use crate::types::kind::Kind;
use crate::types::list::reply;
use crate::types::list::reply::{ListPlaces, ListReply};
use crate::types::list::value::{ListValue, Occurrences, Side, with_added, with_replaced};
use crate::types::replies::ReplyKind;
use crate::types::search::Search;
use crate::words::stored_key;

type Result = std::result::Result<Flow, Refusal>;

impl Call<'_> {
    /// Requests the list of the first key.
    fn list(&mut self, reply: ListReply) -> Flow {
        let key = self.key();
        self.request(ReplyKind::List(reply), Operation::GetStructured { key })
    }
}

pub(super) fn llen(call: &mut Call<'_>) -> Result {
    Ok(call.list(ListReply::Length))
}

pub(super) fn lindex(call: &mut Call<'_>) -> Result {
    let index = reply::index(integer(call.argument(2))?);
    Ok(call.list(ListReply::Element(index)))
}

pub(super) fn lrange(call: &mut Call<'_>) -> Result {
    let start = reply::index(integer(call.argument(2))?);
    let end = reply::index(integer(call.argument(3))?);
    Ok(call.list(ListReply::Range(start, end)))
}

pub(super) fn lpos(call: &mut Call<'_>) -> Result {
    let all_of = |number: usize| if number == 0 { usize::MAX } else { number };
    let mut occurrences = Occurrences {
        rank: 1,
        count: 1,
        compared: usize::MAX,
    };
    let mut is_array = false;
    let mut place = 3;
    while place < call.count() {
        if place + 1 == call.count() {
            return Err(SYNTAX.into());
        }
        let (option, value) = (call.argument(place), call.argument(place + 1));
        if is_option(option, "rank") {
            occurrences.rank = integer(value)?;
            if occurrences.rank == 0 {
                return Err("ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative to start from the end of the list".into());
            }
        } else if is_option(option, "count") {
            occurrences.count = all_of(number(value, 0, "ERR COUNT can't be negative")?);
            is_array = true;
        } else if is_option(option, "maxlen") {
            occurrences.compared = all_of(number(value, 0, "ERR MAXLEN can't be negative")?);
        } else {
            return Err(SYNTAX.into());
        }
        place += 2;
    }
    let element = call.argument(2).to_vec();
    Ok(call.search(Search::Places(ListPlaces {
        element,
        occurrences,
        is_array,
    })))
}

/// What becomes of a list's record.
pub(super) fn effect(bytes: Option<Vec<u8>>) -> Effect {
    bytes.map_or(Effect::Delete, Effect::Store)
}

/// The event of elements that are added at an end.
pub(super) fn push_event(side: Side) -> &'static str {
    match side {
        Side::Left => "lpush",
        Side::Right => "rpush",
    }
}

/// The event of elements that are taken off an end.
pub(super) fn pop_event(side: Side) -> &'static str {
    match side {
        Side::Left => "lpop",
        Side::Right => "rpop",
    }
}

fn push(call: &mut Call<'_>, side: Side, creates: bool) -> Flow {
    if call.is_early() {
        return Flow::Later;
    }
    let arguments = call.owned_arguments();
    let readiness = call.readiness();
    call.task(move |mut core, output, protocol| async move {
        let key = stored_key(&arguments[1]);
        let bytes = arguments[2..].iter().map(Vec::len).sum();
        let pushed = update((&mut core, &output), (key, bytes), |record| {
            let list = record.value::<ListValue<'_>>()?;
            if list.is_none() && !creates {
                return Ok((Effect::Nothing, 0));
            }
            let added = &arguments[2..];
            let count = list.map_or(0, |list| list.len()) + added.len();
            let bytes = with_added(list, side, added.iter().map(Vec::as_slice));
            Ok((effect(bytes), count))
        });
        let pushed = pushed.await.map(|(count, done)| {
            done.notify(&output, (Kind::List, push_event(side)), key);
            count
        });
        if pushed.as_ref().is_ok_and(|count| *count > 0) {
            readiness.note(&core, &output, key).await;
        }
        finish(&output, protocol, (Kind::List, pushed), |writer, count| {
            writer.count(count);
        });
        core
    })
}

pub(super) fn lpush(call: &mut Call<'_>) -> Result {
    Ok(push(call, Side::Left, true))
}

pub(super) fn lpushx(call: &mut Call<'_>) -> Result {
    Ok(push(call, Side::Left, false))
}

pub(super) fn rpush(call: &mut Call<'_>) -> Result {
    Ok(push(call, Side::Right, true))
}

pub(super) fn rpushx(call: &mut Call<'_>) -> Result {
    Ok(push(call, Side::Right, false))
}

/// What becomes of a record, and the elements that were taken off.
type TakenOff = (Effect, Option<Vec<Vec<u8>>>);

/// Takes elements off an end of a list, the outermost first; `None` without a list.
pub(super) fn take_off(
    record: &Record,
    side: Side,
    count: usize,
) -> std::result::Result<TakenOff, Failure> {
    let Some(list) = record.value::<ListValue<'_>>()? else {
        return Ok((Effect::Nothing, None));
    };
    let taken = list.outermost(side, count);
    let effect = if taken.is_empty() {
        Effect::Nothing
    } else {
        effect(list.without_end(side, count))
    };
    Ok((effect, Some(taken)))
}

/// Writes elements as an array.
pub(super) fn write_elements(writer: &mut Writer<'_>, elements: &[Vec<u8>]) {
    writer.array(elements.len());
    elements.iter().for_each(|element| writer.bulk(element));
}

fn pop(call: &mut Call<'_>, side: Side, name: &str) -> Result {
    let count = match call.count() {
        2 => None,
        3 => {
            let refusal = "ERR value is out of range, must be positive";
            Some(number(call.argument(2), 0, refusal)?)
        }
        _ => {
            let text = format!("ERR wrong number of arguments for '{name}' command");
            return Err(Refusal(text));
        }
    };
    let take = move |_: &[Vec<u8>], record: &Record| take_off(record, side, count.unwrap_or(1));
    Ok(change(
        call,
        (Kind::List, pop_event(side)),
        take,
        move |writer, taken| match (taken, count) {
            (Some(taken), Some(_)) => write_elements(writer, &taken),
            (None, Some(_)) => writer.null_array(),
            (taken, None) => match taken.iter().flatten().next() {
                Some(element) => writer.bulk(element),
                None => writer.null(),
            },
        },
    ))
}

pub(super) fn lpop(call: &mut Call<'_>) -> Result {
    pop(call, Side::Left, "lpop")
}

pub(super) fn rpop(call: &mut Call<'_>) -> Result {
    pop(call, Side::Right, "rpop")
}

fn write_ok(writer: &mut Writer<'_>, (): ()) {
    writer.simple("OK");
}

pub(super) fn lset(call: &mut Call<'_>) -> Result {
    let set = |arguments: &[Vec<u8>], record: &Record| {
        let list = record.value::<ListValue<'_>>()?.ok_or("ERR no such key")?;
        let place = list.place(integer(&arguments[2])?);
        let place = place.ok_or("ERR index out of range")?;
        let element = std::iter::once(&arguments[3][..]);
        let bytes = with_replaced(Some(list), place..place + 1, element);
        Ok((effect(bytes), ()))
    };
    Ok(change(call, (Kind::List, "lset"), set, write_ok))
}

pub(super) fn linsert(call: &mut Call<'_>) -> Result {
    let behind = match call.argument(2) {
        place if is_option(place, "before") => 0,
        place if is_option(place, "after") => 1,
        _ => return Err(SYNTAX.into()),
    };
    let insert = move |arguments: &[Vec<u8>], record: &Record| {
        let Some(list) = record.value::<ListValue<'_>>()? else {
            return Ok((Effect::Nothing, 0));
        };
        let Some(pivot) = list.iter().position(|one| one == arguments[3]) else {
            return Ok((Effect::Nothing, -1));
        };
        let place = pivot + behind;
        let element = std::iter::once(&arguments[4][..]);
        let bytes = with_replaced(Some(list), place..place, element);
        Ok((
            effect(bytes),
            i64::try_from(list.len() + 1).unwrap_or(i64::MAX),
        ))
    };
    Ok(change(
        call,
        (Kind::List, "linsert"),
        insert,
        |writer, length| {
            writer.integer(length);
        },
    ))
}

pub(super) fn lrem(call: &mut Call<'_>) -> Result {
    let count = integer(call.argument(2))?;
    let remove = move |arguments: &[Vec<u8>], record: &Record| {
        let Some(list) = record.value::<ListValue<'_>>()? else {
            return Ok((Effect::Nothing, 0));
        };
        Ok(match list.without(&arguments[3], count) {
            (_, 0) => (Effect::Nothing, 0),
            (bytes, removed) => (effect(bytes), removed),
        })
    };
    Ok(change(
        call,
        (Kind::List, "lrem"),
        remove,
        |writer, removed| {
            writer.count(removed);
        },
    ))
}

pub(super) fn ltrim(call: &mut Call<'_>) -> Result {
    let (start, end) = (integer(call.argument(2))?, integer(call.argument(3))?);
    let key = call.key().to_vec();
    Ok(call.task(move |mut core, output, protocol| async move {
        let trimmed = update((&mut core, &output), (&key, 0), |record| {
            let Some(list) = record.value::<ListValue<'_>>()? else {
                return Ok((Effect::Nothing, false));
            };
            let kept = list.places(start, end);
            let effect = if kept.len() == list.len() {
                Effect::Nothing
            } else {
                effect(list.part(kept))
            };
            Ok((effect, true))
        });
        let trimmed = trimmed.await.map(|(is_list, done)| match done {
            // As Redis, which tells of a list that is all within the range too.
            Done::Nothing if is_list => output.notify(EventClasses::LIST, "ltrim", &key),
            done => done.notify(&output, (Kind::List, "ltrim"), &key),
        });
        finish(&output, protocol, (Kind::List, trimmed), write_ok);
        core
    }))
}
