//! Commands that remove the members of the least or greatest scores: of one sorted set, or of the
//! first that has some, and those of them that wait until there is one.

use std::rc::Rc;

use farcore::{Core, Error, TreeOp, TreeView};

use super::arguments::{is_option, number};
use super::list_takes::{distinct_keys, start, start_or_wait, taken_count, timeout_ms};
use super::trees::{Step, ask, finish, length_of};
use super::{Call, Flow, Refusal, SYNTAX};
use crate::databases::{Database, shown_key};
use crate::events::classes::EventClasses;
use crate::memory::Charge;
use crate::resp::{Protocol, Writer};
use crate::steps;
use crate::tasks::output::TaskOutput;
use crate::types::kind::Kind;
use crate::types::list::reply::list_error_text;
use crate::types::replies::ReplyKind;
use crate::types::sorted::reply::{SortedReply, whole, write_head, write_member};
use crate::waits::key_queues::Awaited;
use crate::waits::parked::{SourceErrors, Takes, Taking, keys_in};
use crate::waits::readiness::Readiness;

type Result = std::result::Result<Flow, Refusal>;

/// Bytes that a member that was removed takes beside its own.
const BESIDE_MEMBER: usize = size_of::<(Vec<u8>, f64)>() + 16;

/// Members that were removed at an end, in the order in which they were.
#[derive(Debug, Default)]
struct Popped {
    members: Vec<(Vec<u8>, f64)>,
    _held: Option<Charge>,
}

fn event(last: bool) -> &'static str {
    if last { "zpopmax" } else { "zpopmin" }
}

/// Removes at most `count` members at an end, and leaves the events. There are fewer if the client
/// may not have the memory for more. What may take several steps is under the section of the key.
async fn pop(
    (core, output): Step<'_>,
    key: &[u8],
    (last, count): (bool, u64),
) -> std::result::Result<Popped, Error> {
    let was_under = core.is_under_section();
    if count != 1 {
        let length = length_of(core, Kind::SortedSet, key).await?;
        if count == 0 {
            return Ok(Popped::default());
        }
        if length.elements > 1 {
            output.enter(core, &[key]).await?;
        }
    }
    let popped = pop_steps((&mut *core, output), key, (last, count)).await;
    if !was_under {
        output.leave(core);
    }
    popped
}

async fn pop_steps(
    (core, output): Step<'_>,
    key: &[u8],
    (last, count): (bool, u64),
) -> std::result::Result<Popped, Error> {
    let (mut popped, mut is_gone, mut bytes) = (Popped::default(), false, 0);
    let mut held = output.hold(0);
    let failed = loop {
        let left = count - popped.members.len() as u64;
        let limit = u32::try_from(left).unwrap_or(u32::MAX);
        let op = TreeOp::Pop { last, limit };
        let step = ask(core, Kind::SortedSet.operation(key, op), |answer| {
            let view = TreeView::of(answer);
            for (member, score) in whole(view.scored()) {
                bytes += member.len() + BESIDE_MEMBER;
                popped.members.push((member.to_vec(), score));
            }
            view.has_more()
        });
        match step.await {
            Ok(has_more) => {
                is_gone = !has_more;
                if is_gone || popped.members.len() as u64 >= count {
                    break None;
                }
            }
            Err(error) => break Some(error),
        }
        if held.grow_to(bytes + bytes / 4).is_err() || output.is_gone() {
            break None;
        }
        steps::count(1);
        steps::count_copied(bytes);
        steps::end_slice(core).await;
    };
    if !popped.members.is_empty() {
        output.notify(EventClasses::SORTED_SET, event(last), key);
        if is_gone {
            output.notify(EventClasses::GENERIC, "del", key);
        }
    }
    popped._held = Some(held);
    match failed {
        Some(error) if popped.members.is_empty() => Err(error),
        _ => Ok(popped),
    }
}

fn pop_one(call: &mut Call<'_>, last: bool) -> Result {
    if call.count() > 3 {
        return Err(SYNTAX.into());
    }
    let count = match call.count() {
        2 => None,
        _ => {
            let refusal = "ERR value is out of range, must be positive";
            Some(number(call.argument(2), 0, refusal)?)
        }
    };
    // What is removed cannot be read again if its reply has no room.
    if count.is_none() && !call.serving.shared.has_large_values() {
        let op = TreeOp::Pop { last, limit: 1 };
        let operation = Kind::SortedSet.operation(call.key(), op);
        return Ok(call.request(ReplyKind::Sorted(SortedReply::Popped), operation));
    }
    if call.is_early() {
        return Ok(Flow::Later);
    }
    let key = call.key().to_vec();
    Ok(call.task(move |mut core, output, protocol| async move {
        let wanted = (last, count.unwrap_or(1) as u64);
        let popped = pop((&mut core, &output), &key, wanted).await;
        let popped = popped.map_err(Into::into);
        finish(&output, protocol, popped, |writer, popped| {
            // Without a number of them, member and score are no pair.
            if count.is_none() {
                writer.array(2 * popped.members.len());
                for (member, score) in &popped.members {
                    writer.bulk(member);
                    writer.score(*score);
                }
                return;
            }
            write_head(popped.members.len(), true, writer);
            for (member, score) in &popped.members {
                write_member((member, *score), true, writer);
            }
        });
        core
    }))
}

pub(super) fn zpopmin(call: &mut Call<'_>) -> Result {
    pop_one(call, false)
}

pub(super) fn zpopmax(call: &mut Call<'_>) -> Result {
    pop_one(call, true)
}

/// Members of the first sorted set that has some.
#[derive(Debug)]
struct Wanted {
    /// As they are stored, each once.
    keys: Vec<Vec<u8>>,
    last: bool,
    /// At most this many, as pairs; or one by itself.
    count: Option<usize>,
}

impl Wanted {
    /// Removes them and replies; false if nothing is there. The key at the place `first` comes
    /// first.
    async fn take(
        &self,
        core: &mut Core,
        (output, protocol): (&TaskOutput, Protocol),
        (first, errors): (usize, SourceErrors),
    ) -> bool {
        let wanted = (self.last, self.count.unwrap_or(1) as u64);
        let others = self.keys.iter().enumerate();
        let others = others.filter_map(|(place, key)| (place != first).then_some(key));
        for key in self.keys.get(first).into_iter().chain(others) {
            steps::count(1);
            steps::end_slice(core).await;
            let popped = pop((&mut *core, output), key, wanted).await;
            match errors.filter(popped) {
                Ok(popped) if popped.members.is_empty() => {}
                Ok(popped) => {
                    output.write(|bytes| {
                        self.write(key, &popped, &mut Writer::new(bytes, protocol));
                    });
                    return true;
                }
                Err(error) => {
                    let text = list_error_text(&error);
                    output.write(|bytes| Writer::new(bytes, protocol).error(&text));
                    return true;
                }
            }
        }
        false
    }

    fn write(&self, key: &[u8], popped: &Popped, writer: &mut Writer<'_>) {
        writer.array(if self.count.is_some() { 2 } else { 3 });
        writer.bulk(shown_key(key));
        if self.count.is_some() {
            writer.array(popped.members.len());
        }
        for (member, score) in &popped.members {
            if self.count.is_some() {
                writer.array(2);
            }
            writer.bulk(member);
            writer.score(*score);
        }
    }
}

impl Takes for Wanted {
    fn awaited(&self) -> Awaited {
        Awaited::SortedSet
    }

    fn write_nothing(&self, writer: &mut Writer<'_>) {
        writer.null_array();
    }

    fn keys(&self) -> &[Vec<u8>] {
        &self.keys
    }

    fn in_database(&self, database: Database) -> Rc<dyn Takes> {
        Rc::new(Self {
            keys: keys_in(database, &self.keys),
            ..*self
        })
    }

    fn take_from<'a>(
        &'a self,
        core: &'a mut Core,
        reply: (&'a TaskOutput, Protocol),
        _: &'a Readiness,
        from: (usize, SourceErrors),
    ) -> Taking<'a> {
        Box::pin(self.take(core, reply, from))
    }
}

fn blocking_pop(call: &mut Call<'_>, last: bool) -> Result {
    if call.is_early() {
        return Ok(Flow::Later);
    }
    let end = call.count() - 1;
    let timeout_ms = timeout_ms(call.argument(end))?;
    let wanted = Wanted {
        keys: distinct_keys(call, 1..end),
        last,
        count: None,
    };
    start_or_wait(call, wanted, timeout_ms)
}

pub(super) fn bzpopmin(call: &mut Call<'_>) -> Result {
    blocking_pop(call, false)
}

pub(super) fn bzpopmax(call: &mut Call<'_>) -> Result {
    blocking_pop(call, true)
}

/// What the arguments from the number of keys on want.
fn several(call: &Call<'_>, place: usize) -> std::result::Result<Wanted, Refusal> {
    let refusal = "ERR numkeys should be greater than 0";
    let keys = number(call.argument(place), 1, refusal)?;
    let first = place + 1;
    let end = first.saturating_add(keys);
    if end >= call.count() {
        return Err(SYNTAX.into());
    }
    let last = match call.argument(end) {
        min if is_option(min, "min") => false,
        max if is_option(max, "max") => true,
        _ => return Err(SYNTAX.into()),
    };
    let count = taken_count(call, end + 1)?;
    Ok(Wanted {
        keys: distinct_keys(call, first..end),
        last,
        count: Some(count),
    })
}

pub(super) fn zmpop(call: &mut Call<'_>) -> Result {
    if call.is_early() {
        return Ok(Flow::Later);
    }
    let wanted = several(call, 1)?;
    Ok(start(call, wanted))
}

pub(super) fn bzmpop(call: &mut Call<'_>) -> Result {
    if call.is_early() {
        return Ok(Flow::Later);
    }
    let wanted = several(call, 2)?;
    let timeout_ms = timeout_ms(call.argument(1))?;
    start_or_wait(call, wanted, timeout_ms)
}
