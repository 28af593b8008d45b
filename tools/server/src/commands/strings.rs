//! Commands of strings.

use std::collections::HashSet;

use farcore::constants::TRANSACTION_KEYS_MAX;
use farcore::{Change, Condition, Expiry, ExpiryCondition, Operation, PutOutcome, Transaction};

use super::arguments::{TimeUnit, float, integer, is_option, positive_expiry};
use super::trees::{Step, undo};
use super::{Call, Flow, Refusal, SYNTAX, many_reads};
use crate::conn::joined_reply::JoinedReplyKind;
use crate::events::classes::EventClasses;
use crate::long::change::{ChangeKind, LongChange, SetCondition, SetRule, notify_set};
use crate::long::task::{LongTask, swap};
use crate::steps;
use crate::types::replies::{OfAbsent, ReplyKind};
use crate::words::{NO_FLOAT, NO_INTEGER};

type Result = std::result::Result<Flow, Refusal>;

/// Bytes of the longest value of Redis.
const REDIS_BYTES_MAX: u64 = 512 << 20;
/// What a client reads of an expiry of `GETEX` that is none; as Redis.
const NO_GETEX_EXPIRY: &str = "ERR invalid expire time in 'getex' command";
/// What a client reads of a value that is too long for an offset; as Redis.
pub(super) const TOO_LONG: &str = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";

impl<'a> Call<'a> {
    /// The first key, as it is stored.
    #[inline]
    pub(super) fn key(&self) -> &'a [u8] {
        self.key_at(1)
    }

    /// A key, as it is stored.
    #[inline]
    pub(super) fn key_at(&self, place: usize) -> &'a [u8] {
        self.argument(place)
    }

    /// Gives a change of the first key to the engine.
    #[inline]
    pub(super) fn change(&mut self, kind: ReplyKind, change: Change<'_>) -> Flow {
        let key = self.key();
        self.request(kind, Operation::Change { key, change })
    }
}

pub(super) fn get(call: &mut Call<'_>) -> Result {
    let key = call.key();
    Ok(call.request(ReplyKind::Value, Operation::Get { key }))
}

/// What options say about an expiry.
#[derive(Clone, Copy)]
enum Expiring<'a> {
    Not,
    /// It stays.
    Keeps,
    /// There is none any more.
    Ends,
    At(&'a [u8], TimeUnit),
}

impl<'a> Expiring<'a> {
    /// What one option more says: it may stand there again, and the last one counts.
    fn and(self, next: Self) -> std::result::Result<Self, Refusal> {
        let agree = match (self, next) {
            (Self::Not, _) | (Self::Keeps, Self::Keeps) | (Self::Ends, Self::Ends) => true,
            (Self::At(_, unit), Self::At(_, other)) => unit == other,
            _ => false,
        };
        if agree { Ok(next) } else { Err(SYNTAX.into()) }
    }

    /// Those of `GETEX`.
    fn of_getex(call: &Call<'a>) -> std::result::Result<Self, Refusal> {
        let (mut expiring, mut place) = (Self::Not, 2);
        while place < call.count() {
            let option = call.argument(place);
            expiring = expiring.and(if is_option(option, "persist") {
                Self::Ends
            } else {
                let unit = TimeUnit::of_option(option).ok_or(SYNTAX)?;
                place += 1;
                if place == call.count() {
                    return Err(SYNTAX.into());
                }
                Self::At(call.argument(place), unit)
            })?;
            place += 1;
        }
        Ok(expiring)
    }
}

/// The options of `SET`.
pub(super) struct SetOptions<'a> {
    pub(super) condition: Condition<'a>,
    pub(super) expiry: Expiry,
    pub(super) previous: bool,
}

impl<'a> SetOptions<'a> {
    /// Those among `count` arguments.
    pub(super) fn of(
        count: usize,
        argument: impl Fn(usize) -> &'a [u8],
    ) -> std::result::Result<Self, Refusal> {
        let mut options = Self {
            condition: Condition::Always,
            expiry: Expiry::Never,
            previous: false,
        };
        let mut expiring = Expiring::Not;
        let mut place = 0;
        while place < count {
            let option = argument(place);
            let value = (place + 1 < count).then(|| argument(place + 1));
            let may_be = |condition| {
                options.condition == Condition::Always || options.condition == condition
            };
            if is_option(option, "get") {
                options.previous = true;
            } else if is_option(option, "nx") && may_be(Condition::Absent) {
                options.condition = Condition::Absent;
            } else if is_option(option, "xx") && may_be(Condition::Present) {
                options.condition = Condition::Present;
            } else if is_option(option, "ifeq") && may_be(Condition::Always) {
                options.condition = Condition::Equals(value.ok_or(SYNTAX)?);
                place += 1;
            } else if is_option(option, "keepttl") {
                expiring = expiring.and(Expiring::Keeps)?;
            } else if let Some(unit) = TimeUnit::of_option(option) {
                expiring = expiring.and(Expiring::At(value.ok_or(SYNTAX)?, unit))?;
                place += 1;
            } else {
                return Err(SYNTAX.into());
            }
            place += 1;
        }
        // As Redis, which reads the time once the options are known.
        match expiring {
            Expiring::At(time, unit) => options.expiry = positive_expiry(time, unit, "set")?,
            Expiring::Keeps => options.expiry = Expiry::Keep,
            Expiring::Not | Expiring::Ends => {}
        }
        Ok(options)
    }
}

pub(super) fn set(call: &mut Call<'_>) -> Result {
    let (key, value) = (call.key(), call.argument(2));
    if call.count() == 3 {
        return Ok(call.request(ReplyKind::Stored, Operation::Put { key, value }));
    }
    let SetOptions {
        condition,
        expiry,
        previous,
    } = SetOptions::of(call.count() - 3, |place| call.argument(3 + place))?;
    let change = Change::Put {
        value,
        expiry,
        condition,
        previous,
    };
    let kind = if previous {
        ReplyKind::Value
    } else {
        ReplyKind::StoredOrNull
    };
    let needs_value = previous || matches!(condition, Condition::Equals(_));
    if !needs_value && !call.may_exceed_record(value.len()) {
        return Ok(call.change(kind, change));
    }
    let rule = SetRule {
        expiry,
        condition: SetCondition::of(condition),
        previous,
    };
    let long = LongChange::new(key, value, ChangeKind::Set(rule));
    if previous && condition != Condition::Always {
        // The value before is replied whether or not it was replaced.
        return Ok(call.long_task(LongTask::Change(long)));
    }
    Ok(call.request_or_long(kind, change, long))
}

pub(super) fn setnx(call: &mut Call<'_>) -> Result {
    let change = Change::Put {
        value: call.argument(2),
        expiry: Expiry::Never,
        condition: Condition::Absent,
        previous: false,
    };
    Ok(call.change(ReplyKind::IsStored, change))
}

fn set_until(call: &mut Call<'_>, unit: TimeUnit, name: &str) -> Result {
    let expiry = positive_expiry(call.argument(2), unit, name)?;
    let value = call.argument(3);
    if call.may_exceed_record(value.len()) {
        let rule = SetRule {
            expiry,
            condition: SetCondition::Always,
            previous: false,
        };
        let long = LongChange::new(call.key(), value, ChangeKind::Set(rule));
        return Ok(call.long_task(LongTask::Change(long)));
    }
    let change = Change::Put {
        value,
        expiry,
        condition: Condition::Always,
        previous: false,
    };
    Ok(call.change(ReplyKind::Stored, change))
}

pub(super) fn setex(call: &mut Call<'_>) -> Result {
    set_until(call, TimeUnit::Seconds, "setex")
}

pub(super) fn psetex(call: &mut Call<'_>) -> Result {
    set_until(call, TimeUnit::Milliseconds, "psetex")
}

pub(super) fn getset(call: &mut Call<'_>) -> Result {
    let (key, value) = (call.key(), call.argument(2));
    let change = Change::Put {
        value,
        expiry: Expiry::Never,
        condition: Condition::Always,
        previous: true,
    };
    let long = LongChange::new(key, value, ChangeKind::Set(swap(Expiry::Never)));
    Ok(call.request_or_long(ReplyKind::Value, change, long))
}

pub(super) fn getdel(call: &mut Call<'_>) -> Result {
    let change = Change::Delete {
        condition: Condition::Always,
        previous: true,
    };
    Ok(call.change(ReplyKind::Taken, change))
}

pub(super) fn getex(call: &mut Call<'_>) -> Result {
    let expiry = match Expiring::of_getex(call)? {
        Expiring::Not | Expiring::Keeps => return get(call),
        Expiring::Ends => Expiry::Never,
        Expiring::At(time, unit) => {
            let Ok(expiry) = positive_expiry(time, unit, "getex") else {
                let is_number = integer(time).is_ok();
                let text = if is_number {
                    NO_GETEX_EXPIRY
                } else {
                    NO_INTEGER
                };
                return Ok(call.refuse_after_look(None, OfAbsent::Null, text));
            };
            expiry
        }
    };
    if call.serving.shared.event_classes.is_any() && expiry == Expiry::Never {
        // Its task tells whether there was an expiry, whatever the value is.
        let long = LongChange::new(call.key(), &[], ChangeKind::Expire(expiry));
        return Ok(call.long_task(LongTask::Change(long)));
    }
    let change = Change::SetExpiry {
        expiry,
        condition: ExpiryCondition::Always,
        value: true,
    };
    Ok(call.change(ReplyKind::Expiring(expiry), change))
}

pub(super) fn delifeq(call: &mut Call<'_>) -> Result {
    let (key, compared) = (call.key(), call.argument(2));
    let change = Change::Delete {
        condition: Condition::Equals(compared),
        previous: false,
    };
    let long = LongChange::new(key, compared, ChangeKind::DeleteIfEqual);
    Ok(call.request_or_long(ReplyKind::IsDeleted, change, long))
}

pub(super) fn mget(call: &mut Call<'_>) -> Result {
    let count = call.count() - 1;
    let has_begun = call.connection.sent_parts.is_some();
    let may_be_long = count > many_reads::KEYS_MAX || call.serving.shared.has_large_values();
    if may_be_long && call.plan.is_none() && !has_begun {
        return Ok(many_reads::start(call));
    }
    Ok(call.requests(JoinedReplyKind::Values, count, |call, part| {
        Operation::Get {
            key: call.key_at(1 + part),
        }
    }))
}

/// How many pairs of keys and values there are.
fn pairs(call: &Call<'_>, name: &str) -> std::result::Result<usize, Refusal> {
    if call.count().is_multiple_of(2) {
        let text = format!("ERR wrong number of arguments for '{name}' command");
        return Err(Refusal(text));
    }
    Ok(call.count() / 2)
}

pub(super) fn mset(call: &mut Call<'_>) -> Result {
    let count = pairs(call, "mset")?;
    Ok(call.requests(JoinedReplyKind::Stored, count, |call, part| {
        Operation::Put {
            key: call.key_at(1 + 2 * part),
            value: call.argument(2 + 2 * part),
        }
    }))
}

/// Stores all or none, under the sections of their shards if these are several.
pub(super) fn msetnx(call: &mut Call<'_>) -> Result {
    pairs(call, "msetnx")?;
    let arguments = call.owned_arguments();
    Ok(call.task(move |mut core, output, protocol| async move {
        if output.sends(EventClasses::EXPIRED) {
            // One that has expired is removed when it is read.
            for pair in arguments[1..].chunks_exact(2) {
                steps::count(1);
                steps::end_slice(&core).await;
                let _ = core.get(&pair[0]).await;
            }
        }
        let stored = store_if_absent((&mut core, &output), &arguments[1..]).await;
        if matches!(stored, Ok(true)) {
            let mut seen = HashSet::new();
            for pair in arguments[1..].chunks_exact(2) {
                let key = &pair[0];
                let stored = (Expiry::Never, PutOutcome::Stored(0));
                notify_set(&output, key, seen.insert(key), stored);
            }
        }
        output.finish(protocol, stored, |writer, is_stored| {
            writer.integer(i64::from(is_stored));
        });
        core
    }))
}

async fn store_if_absent((core, output): Step<'_>, pairs: &[Vec<u8>]) -> farcore::Result<bool> {
    let pairs = || pairs.chunks_exact(2).map(|pair| (&pair[0][..], &pair[1]));
    if pairs().len() <= TRANSACTION_KEYS_MAX {
        let mut transaction = Transaction::new();
        for (key, value) in pairs() {
            transaction = transaction.expect(key, 0).put(key, value);
        }
        match core.transaction(&transaction).await {
            Ok(outcome) => {
                return Ok(matches!(
                    outcome,
                    farcore::TransactionOutcome::Committed { .. }
                ));
            }
            // They lie in several shards, or are too long together.
            Err(
                farcore::Error::KeysApart { .. }
                | farcore::Error::TransactionTooLong { .. }
                | farcore::Error::KeyTwice { .. },
            ) => {}
            Err(error) => return Err(error),
        }
    }
    let keys: Vec<_> = pairs().map(|(key, _)| key).collect();
    output.enter(core, &keys).await?;
    for key in &keys {
        steps::count(1);
        steps::end_slice(core).await;
        if core.exists(key).await? {
            return Ok(false);
        }
    }
    let mut stored = Vec::with_capacity(keys.len());
    for (key, value) in pairs() {
        steps::count(1);
        steps::end_slice(core).await;
        match core.put(key, value).await {
            Ok(version) => stored.push((key, version)),
            Err(error) => {
                for (key, version) in stored {
                    undo(core, key, version).await?;
                }
                return Err(error);
            }
        }
    }
    Ok(true)
}

pub(super) fn strlen(call: &mut Call<'_>) -> Result {
    let key = call.key();
    Ok(call.request(ReplyKind::Length, Operation::Inspect { key }))
}

pub(super) fn append(call: &mut Call<'_>) -> Result {
    let (key, tail) = (call.key(), call.argument(2));
    let long = LongChange::new(key, tail, ChangeKind::Append);
    Ok(call.request_or_long(ReplyKind::Length, Change::Append { tail }, long))
}

pub(super) fn getrange(call: &mut Call<'_>) -> Result {
    let (start, end) = (integer(call.argument(2))?, integer(call.argument(3))?);
    let key = call.key();
    // Only what lies at known offsets can be read without the rest.
    if let (Ok(offset), Ok(end)) = (u32::try_from(start), u32::try_from(end)) {
        let bytes = end
            .saturating_sub(offset)
            .saturating_add(u32::from(end >= offset));
        let operation = Operation::GetRange { key, offset, bytes };
        return Ok(call.request(ReplyKind::Part { offset, bytes }, operation));
    }
    let kind = ReplyKind::Range { start, end };
    Ok(call.request(kind, Operation::Get { key }))
}

/// True if `bytes` from an offset on end beyond the longest value of Redis.
pub(super) fn is_beyond(offset: u64, bytes: usize) -> bool {
    bytes > 0 && offset.saturating_add(bytes as u64) > REDIS_BYTES_MAX
}

pub(super) fn setrange(call: &mut Call<'_>) -> Result {
    let offset = integer(call.argument(2))?;
    let offset = u64::try_from(offset).map_err(|_| "ERR offset is out of range")?;
    let bytes = call.argument(3);
    if is_beyond(offset, bytes.len()) {
        return Ok(call.refuse_after_look(None, OfAbsent::Refused, TOO_LONG));
    }
    let change = Change::SetRange { offset, bytes };
    let long = LongChange::new(call.key(), bytes, ChangeKind::SetRange { offset });
    Ok(call.request_or_long(ReplyKind::Length, change, long))
}

fn increment(call: &mut Call<'_>, by: i64) -> Flow {
    call.change(ReplyKind::Integer, Change::Increment { by })
}

pub(super) fn incr(call: &mut Call<'_>) -> Result {
    Ok(increment(call, 1))
}

pub(super) fn decr(call: &mut Call<'_>) -> Result {
    Ok(increment(call, -1))
}

pub(super) fn incrby(call: &mut Call<'_>) -> Result {
    let by = integer(call.argument(2)).map_err(|_| NO_INTEGER)?;
    Ok(increment(call, by))
}

pub(super) fn decrby(call: &mut Call<'_>) -> Result {
    let by = integer(call.argument(2))?.checked_neg();
    let by = by.ok_or("ERR decrement would overflow")?;
    Ok(increment(call, by))
}

pub(super) fn incrbyfloat(call: &mut Call<'_>) -> Result {
    let Ok(by) = float(call.argument(2)) else {
        return Ok(call.refuse_after_look(None, OfAbsent::Refused, NO_FLOAT));
    };
    Ok(call.change(ReplyKind::Float, Change::IncrementFloat { by }))
}
