//! Commands of single sets.
//!
//! A set is one structured record. Reads are one request, whose answer is searched when it is
//! replied. Changes are those of any structured record (`structured`).

use farcore::Operation;

use super::arguments::number;
use super::structured::{self, Effect, Failure, Record, write_count};
use super::transfer::{Transfer, transfer};
use super::{Call, Flow, Refusal, SYNTAX};
use crate::random::Numbers;
use crate::texts::ShortText;
use crate::types::kind::Kind;
use crate::types::replies::ReplyKind;
use crate::types::search::Search;
use crate::types::set::reply::{SetMembers, SetReply};
use crate::types::set::value::{SetLookup, SetValue, with_members, without_members};

type Result = std::result::Result<Flow, Refusal>;

/// What a change of a set comes to.
type Changed<T> = std::result::Result<(Effect, T), Failure>;

impl Call<'_> {
    /// Requests the set of the first key.
    fn set(&mut self, reply: SetReply) -> Flow {
        let key = self.key();
        self.request(ReplyKind::Set(reply), Operation::GetStructured { key })
    }

    /// Replies whether it has a member.
    fn contains(&mut self, member: &[u8]) -> Flow {
        match ShortText::of(member) {
            Some(member) => self.set(SetReply::Contains(member)),
            None => self.search(Search::Members(SetMembers::one(member))),
        }
    }
}

pub(super) fn smembers(call: &mut Call<'_>) -> Result {
    Ok(call.set(SetReply::Members))
}

pub(super) fn scard(call: &mut Call<'_>) -> Result {
    Ok(call.set(SetReply::Count))
}

pub(super) fn sismember(call: &mut Call<'_>) -> Result {
    Ok(call.contains(call.argument(2)))
}

pub(super) fn smismember(call: &mut Call<'_>) -> Result {
    let members = SetMembers::all((2..call.count()).map(|place| call.argument(place)));
    Ok(call.search(Search::Members(members)))
}

pub(super) fn sadd(call: &mut Call<'_>) -> Result {
    let add = |arguments: &[Vec<u8>], record: &Record| {
        let (made, added) = with_members(record.value()?, arguments[2..].iter().map(Vec::as_slice));
        Ok((made.map_or(Effect::Nothing, Effect::Store), added))
    };
    Ok(structured::change(
        call,
        (Kind::Set, "sadd"),
        add,
        write_count,
    ))
}

/// A set without some members, and how many were removed.
pub(super) fn without<'m>(
    set: Option<SetValue<'_>>,
    members: impl Iterator<Item = &'m [u8]>,
) -> (Effect, usize) {
    let Some(set) = set else {
        return (Effect::Nothing, 0);
    };
    let (made, removed) = without_members(set, members);
    let effect = match made {
        _ if removed == 0 => Effect::Nothing,
        Some(record) => Effect::Store(record),
        None => Effect::Delete,
    };
    (effect, removed)
}

pub(super) fn srem(call: &mut Call<'_>) -> Result {
    let remove = |arguments: &[Vec<u8>], record: &Record| {
        let members = arguments[2..].iter().map(Vec::as_slice);
        Ok(without(record.value()?, members))
    };
    Ok(structured::change(
        call,
        (Kind::Set, "srem"),
        remove,
        write_count,
    ))
}

/// Draws one member and removes it.
fn pop_one(record: &Record) -> Changed<Option<Vec<u8>>> {
    let lookup: Option<SetLookup<'_>> = record.value()?;
    let drawn = lookup.and_then(|set| set.get(Numbers::new().below(set.len())));
    let (effect, _) = without(record.value()?, drawn.into_iter());
    Ok((effect, drawn.map(<[u8]>::to_vec)))
}

/// Draws `count` members, or all, and removes them.
fn pop_some(record: &Record, count: usize) -> Changed<Vec<Vec<u8>>> {
    let set: Option<SetValue<'_>> = record.value()?;
    let all: Vec<_> = set.iter().flat_map(SetValue::iter).collect();
    let drawn = Numbers::new().some_of(all, count);
    let (effect, _) = without(set, drawn.iter().copied());
    Ok((effect, drawn.into_iter().map(<[u8]>::to_vec).collect()))
}

pub(super) fn spop(call: &mut Call<'_>) -> Result {
    if call.count() == 2 {
        let pop = |_: &[Vec<u8>], record: &Record| pop_one(record);
        return Ok(structured::change(
            call,
            (Kind::Set, "spop"),
            pop,
            |writer, popped| match popped {
                Some(member) => writer.bulk(&member),
                None => writer.null(),
            },
        ));
    }
    if call.count() > 3 {
        return Err(SYNTAX.into());
    }
    let refusal = "ERR value is out of range, must be positive";
    let count = number(call.argument(2), 0, refusal)?;
    let pop = move |_: &[Vec<u8>], record: &Record| pop_some(record, count);
    Ok(structured::change(
        call,
        (Kind::Set, "spop"),
        pop,
        |writer, popped| {
            writer.set(popped.len());
            for member in popped {
                writer.bulk(&member);
            }
        },
    ))
}

/// A member that `SMOVE` moves.
struct Move(Vec<u8>);

impl Move {
    fn member(&self) -> std::iter::Once<&[u8]> {
        std::iter::once(&self.0)
    }

    fn added_to(&self, record: &Record) -> std::result::Result<Effect, Failure> {
        let (made, _) = with_members(record.value()?, self.member());
        Ok(made.map_or(Effect::Nothing, Effect::Store))
    }
}

impl Transfer for Move {
    type Element = ();

    fn take(
        &self,
        source: &Record,
        target: &Record,
    ) -> std::result::Result<Option<(Effect, ())>, Failure> {
        let set: Option<SetValue<'_>> = source.value()?;
        // The target's type is checked even if the source has no such member.
        target.value::<SetLookup<'_>>()?;
        let (effect, removed) = without(set, self.member());
        Ok((removed > 0).then_some((effect, ())))
    }

    fn add(&self, target: &Record, (): &()) -> std::result::Result<Effect, Failure> {
        self.added_to(target)
    }

    fn put_back(&self, source: &Record, (): &()) -> std::result::Result<Effect, Failure> {
        self.added_to(source)
    }
}

pub(super) fn smove(call: &mut Call<'_>) -> Result {
    if call.key_at(1) == call.key_at(2) {
        // Nothing changes.
        return Ok(call.contains(call.argument(3)));
    }
    let [from, to] = [1, 2].map(|place| call.key_at(place).to_vec());
    let member = Move(call.argument(3).to_vec());
    Ok(call.task(move |mut core, output, protocol| async move {
        // No client waits for a set.
        let moved = transfer((&mut core, &output), (&from, &to), &member, None).await;
        if let Ok(Some(moved)) = &moved {
            moved.taken.notify(&output, (Kind::Set, "srem"), &from);
            moved.added.notify(&output, (Kind::Set, "sadd"), &to);
        }
        structured::finish(&output, protocol, (Kind::Set, moved), |writer, moved| {
            writer.integer(i64::from(moved.is_some()));
        });
        core
    }))
}
