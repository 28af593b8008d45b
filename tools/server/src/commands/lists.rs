//! Commands of one list.
//!
//! A list is a collection of the engine. What concerns few of its elements is one request, whose
//! answer is the reply; if the answer leaves something to do, a task goes on (`long/list_task.rs`).
//! What reads or changes many elements is a task from the beginning, and so is what must tell of
//! events, or wakes clients that wait.

use farcore::constants::TREE_PUSH_MAX;
use farcore::{Core, Error, TreeOp, TreeValues};

use super::arguments::{integer, is_option, number};
use super::{Call, Flow, Refusal, SYNTAX};
use crate::events::classes::EventClasses;
use crate::long::list_changes::PopStep;
use crate::long::list_reads::FoundReply;
use crate::long::list_steps::operate;
use crate::long::list_task::{ListStep, ListTask};
use crate::resp::Writer;
use crate::steps;
use crate::tasks::output::TaskOutput;
use crate::types::kind::Kind;
use crate::types::list::reply::{
    ListReply, Occurrences, TakenElements, list_error_text, short_index,
};
use crate::types::list::side::Side;
use crate::types::replies::{OfAbsent, ReplyKind};
use crate::waits::key_queues::Awaited;
use crate::words::NO_INTEGER;

type Result = std::result::Result<Flow, Refusal>;

/// Bytes of elements that are added in one step, unless one alone has more.
const PUSH_BYTES: usize = 64 << 10;
/// Elements that are added in one step without memory for their places.
const FEW: usize = 8;

impl Call<'_> {
    /// Gives an operation on the first key's list to the engine; its answer is the reply, or a task
    /// goes on. While events are sent, the command is a task, which `step` makes.
    fn list(
        &mut self,
        (op, reply): (TreeOp<'_>, ListReply),
        step: impl FnOnce(&Self) -> ListStep,
    ) -> Flow {
        let shared = &self.serving.shared;
        // What a change answers cannot be read again if it was too long to be kept.
        let is_taken = match reply {
            ListReply::Popped | ListReply::PoppedSome(..) | ListReply::Set => true,
            ListReply::Length
            | ListReply::Element(_)
            | ListReply::Range(..)
            | ListReply::Pushed
            | ListReply::Trimmed(..) => false,
        };
        // Elements that are short alone may make a long answer together, which is too long to be
        // kept from the moment on that another client stores a large value.
        let is_page = matches!(reply, ListReply::PoppedSome(..));
        let needs_room = is_page || is_taken && shared.has_large_values();
        if self.plan.is_some() || shared.event_classes.is_any() || needs_room {
            return self.list_task(step);
        }
        self.list_request(op, reply)
    }

    /// Gives an operation on the first key's list to the engine; its answer is the reply, or a task
    /// goes on.
    fn list_request(&mut self, op: TreeOp<'_>, reply: ListReply) -> Flow {
        let key = self.key();
        let operation = Kind::List.operation(key, op);
        let has_large = self.serving.shared.has_large_values();
        self.submit_with(&operation, ReplyKind::List(reply), |connection| {
            // Commands behind it that would see what it has not done yet wait.
            let waits = match reply {
                ListReply::Range(..) => Some(false),
                ListReply::PoppedSome(..) | ListReply::Set | ListReply::Trimmed(..) => Some(true),
                ListReply::Length
                | ListReply::Element(_)
                | ListReply::Pushed
                | ListReply::Popped => None,
            };
            if let Some(changes) = waits {
                let under_way = connection.keys_under_way.get_or_insert_default();
                under_way.note(key, changes);
            }
            let is_long = has_large && matches!(reply, ListReply::Element(_));
            if waits.is_some() || is_long || reply == ListReply::Pushed {
                connection.keep_key(key);
            }
            connection.promise(ReplyKind::List(reply));
        })
    }

    /// Starts a task of the first key's list.
    fn list_task(&mut self, step: impl FnOnce(&Self) -> ListStep) -> Flow {
        if let Some(plan) = &mut self.plan {
            plan.is_possible = false;
            return Flow::Done;
        }
        if self.is_early() {
            return Flow::Later;
        }
        steps::count_copied(self.arguments.span_bytes());
        let task = ListTask {
            key: self.key().to_vec(),
            step: step(self),
        };
        self.task(move |mut core, output, protocol| async move {
            task.run(&mut core, &output, protocol).await;
            core
        })
    }
}

pub(super) fn llen(call: &mut Call<'_>) -> Result {
    Ok(call.list((TreeOp::Len, ListReply::Length), |_| ListStep::Length))
}

pub(super) fn lindex(call: &mut Call<'_>) -> Result {
    let Ok(index) = integer(call.argument(2)) else {
        return Ok(call.refuse_after_look(Some(Kind::List), OfAbsent::Null, NO_INTEGER));
    };
    let step = |_: &Call<'_>| ListStep::Element(index);
    Ok(match short_index(index) {
        Some(short) => {
            let op = TreeOp::Slice {
                first: index,
                last: index,
                limit: 1,
            };
            call.list((op, ListReply::Element(short)), step)
        }
        None => call.list_task(step),
    })
}

pub(super) fn lrange(call: &mut Call<'_>) -> Result {
    let (first, last) = (integer(call.argument(2))?, integer(call.argument(3))?);
    let step = |_: &Call<'_>| ListStep::Range(first, last);
    Ok(match short_index(first).zip(short_index(last)) {
        Some(short) => {
            let op = TreeOp::Slice {
                first,
                last,
                limit: u32::MAX,
            };
            call.list((op, ListReply::Range(short.0, short.1)), step)
        }
        None => call.list_task(step),
    })
}

pub(super) fn lpos(call: &mut Call<'_>) -> Result {
    let all_of = |number: usize| match number {
        0 => u64::MAX,
        number => number as u64,
    };
    let mut occurrences = Occurrences {
        rank: 1,
        count: 1,
        compared: u64::MAX,
    };
    let mut reply = FoundReply::One;
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
            reply = FoundReply::Array;
        } else if is_option(option, "maxlen") {
            occurrences.compared = all_of(number(value, 0, "ERR MAXLEN can't be negative")?);
        } else {
            return Err(SYNTAX.into());
        }
        place += 2;
    }
    Ok(call.list_task(|call| ListStep::Find(call.argument(2).to_vec(), occurrences, reply)))
}

/// Adds elements at an end, in as many steps as it takes; returns how many there are then, 0 if
/// there is no list and none is to be made, and leaves the events.
async fn add(
    (core, output): (&mut Core, &TaskOutput),
    key: &[u8],
    (side, exists): (Side, bool),
    mut elements: &[Vec<u8>],
) -> (u64, std::result::Result<(), Error>) {
    let (mut count, mut exists) = (0, exists);
    while !elements.is_empty() {
        let mut bytes = 0;
        let fits = elements.iter().take(TREE_PUSH_MAX).take_while(|element| {
            let is_first = bytes == 0;
            bytes += element.len() + 1;
            is_first || bytes <= PUSH_BYTES
        });
        let (some, rest) = elements.split_at(fits.count().max(1));
        steps::count(some.len());
        let values: Vec<_> = some.iter().map(Vec::as_slice).collect();
        let op = TreeOp::Push {
            front: side == Side::Left,
            exists,
            replaces: false,
            values: TreeValues::Slices(&values),
        };
        match operate(core, key, (op, None), |answer| answer.number(0)).await {
            Ok(0) => break,
            Ok(added) => {
                if count == 0 && added == some.len() as u64 {
                    output.notify(EventClasses::NEW, "new", key);
                }
                count = added;
            }
            Err(error) => {
                notify_added(output, key, (side, count));
                return (count, Err(error));
            }
        }
        (elements, exists) = (rest, false);
        steps::end_slice(core).await;
    }
    notify_added(output, key, (side, count));
    (count, Ok(()))
}

fn notify_added(output: &TaskOutput, key: &[u8], (side, count): (Side, u64)) {
    if count > 0 {
        output.notify(EventClasses::LIST, side.push_event(), key);
    }
}

fn push(call: &mut Call<'_>, side: Side, exists: bool) -> Flow {
    let count = call.count() - 2;
    let is_one_step =
        count == 1 || count <= TREE_PUSH_MAX && call.arguments.span_bytes() <= PUSH_BYTES;
    let shared = &call.serving.shared;
    // The client that waits longest takes an element before the command is replied to.
    let wakes =
        shared.waiting.clients() > 0 && shared.waiting.first(Awaited::List, call.key()).is_some();
    let wakes = wakes || call.connection.is_executing();
    if !is_one_step || wakes || call.plan.is_some() || shared.event_classes.is_any() {
        return push_in_steps(call, side, exists);
    }
    let elements = (2..call.count()).map(|place| call.argument(place));
    let (mut few, mut many) = ([&[][..]; FEW], Vec::new());
    let mut longest = 0;
    let noted = elements.inspect(|element| longest = element.len().max(longest));
    let values = if count <= FEW {
        few.iter_mut()
            .zip(noted)
            .for_each(|(place, one)| *place = one);
        &few[..count]
    } else {
        many.extend(noted);
        &many[..]
    };
    shared.note_value(longest);
    steps::count(count / FEW);
    let op = TreeOp::Push {
        front: side == Side::Left,
        exists,
        replaces: false,
        values: TreeValues::Slices(values),
    };
    call.list_request(op, ListReply::Pushed)
}

fn push_in_steps(call: &mut Call<'_>, side: Side, exists: bool) -> Flow {
    if call.is_early() {
        return Flow::Later;
    }
    let arguments = call.owned_arguments();
    let readiness = call.readiness();
    call.task(move |mut core, output, protocol| async move {
        let (key, elements) = (&arguments[1][..], &arguments[2..]);
        let longest = elements.iter().map(Vec::len).max();
        output.note_value(longest.unwrap_or(0));
        let step = (&mut core, &output);
        let (count, added) = add(step, key, (side, exists), elements).await;
        if count > 0 {
            readiness.note(&core, Awaited::List, key).await;
        }
        output.write(|bytes| {
            let mut writer = Writer::new(bytes, protocol);
            match added {
                Ok(()) => writer.integer(i64::try_from(count).unwrap_or(i64::MAX)),
                Err(error) => writer.error(&list_error_text(&error)),
            }
        });
        core
    })
}

pub(super) fn lpush(call: &mut Call<'_>) -> Result {
    Ok(push(call, Side::Left, false))
}

pub(super) fn lpushx(call: &mut Call<'_>) -> Result {
    Ok(push(call, Side::Left, true))
}

pub(super) fn rpush(call: &mut Call<'_>) -> Result {
    Ok(push(call, Side::Right, false))
}

pub(super) fn rpushx(call: &mut Call<'_>) -> Result {
    Ok(push(call, Side::Right, true))
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
    let step = |_: &Call<'_>| {
        ListStep::Pop(PopStep {
            side,
            count: count.map(|count| count as u64),
            taken: TakenElements::default(),
        })
    };
    let limit = u32::try_from(count.unwrap_or(1));
    let Ok(limit) = limit else {
        return Ok(call.list_task(step));
    };
    let last = side.is_last();
    let reply = match count {
        Some(_) => ListReply::PoppedSome(side, limit),
        None => ListReply::Popped,
    };
    Ok(call.list((TreeOp::Pop { last, limit }, reply), step))
}

pub(super) fn lpop(call: &mut Call<'_>) -> Result {
    pop(call, Side::Left, "lpop")
}

pub(super) fn rpop(call: &mut Call<'_>) -> Result {
    pop(call, Side::Right, "rpop")
}

pub(super) fn lset(call: &mut Call<'_>) -> Result {
    let (index, element) = (integer(call.argument(2)), call.argument(3));
    // As Redis, which looks at the key first.
    let Ok(rank) = index else {
        return Ok(call.list_task(|_| ListStep::Unset(NO_INTEGER)));
    };
    call.serving.shared.note_value(element.len());
    let op = TreeOp::SetAt {
        rank,
        value: element,
    };
    Ok(call.list((op, ListReply::Set), |call| {
        ListStep::Set(rank, call.argument(3).to_vec())
    }))
}

pub(super) fn linsert(call: &mut Call<'_>) -> Result {
    let behind = match call.argument(2) {
        place if is_option(place, "before") => false,
        place if is_option(place, "after") => true,
        _ => return Err(SYNTAX.into()),
    };
    Ok(call.list_task(|call| ListStep::Insert {
        pivot: call.argument(3).to_vec(),
        behind,
        element: call.argument(4).to_vec(),
    }))
}

pub(super) fn lrem(call: &mut Call<'_>) -> Result {
    let count = integer(call.argument(2))?;
    Ok(call.list_task(|call| ListStep::Remove(call.argument(3).to_vec(), count)))
}

pub(super) fn ltrim(call: &mut Call<'_>) -> Result {
    let (first, last) = (integer(call.argument(2))?, integer(call.argument(3))?);
    let step = |_: &Call<'_>| ListStep::Trim(first, last);
    Ok(match short_index(first).zip(short_index(last)) {
        Some(short) => {
            let op = TreeOp::Trim { first, last };
            call.list((op, ListReply::Trimmed(short.0, short.1)), step)
        }
        None => call.list_task(step),
    })
}
