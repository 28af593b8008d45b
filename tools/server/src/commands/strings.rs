//! Commands of strings.

use std::collections::HashSet;

use farcore::{
    Change, Condition, Core, Expiry, ExpiryCondition, Operation, PutOptions, PutOutcome,
    Transaction,
};

use super::arguments::{TimeUnit, float, integer, is_option, positive_expiry, stored_key};
use super::{Call, Flow, NO_INTEGER, Refusal, SYNTAX};
use crate::event_classes::EventClasses;
use crate::long_input::LongInput;
use crate::parts::PartsKind;
use crate::replies::{ReplyKind, error_text};
use crate::resp::Writer;
use crate::tasks::TaskOutput;

type Result = std::result::Result<Flow, Refusal>;

/// A value that is too long for an offset; as Redis.
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
        stored_key(self.argument(place))
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

/// The options of `SET`.
struct SetOptions<'a> {
    condition: Condition<'a>,
    expiry: Expiry,
    previous: bool,
}

impl<'a> SetOptions<'a> {
    fn of(call: &Call<'a>) -> std::result::Result<Self, Refusal> {
        let mut options = Self {
            condition: Condition::Always,
            expiry: Expiry::Never,
            previous: false,
        };
        let mut has_expiry = false;
        let mut place = 3;
        while place < call.count() {
            let option = call.argument(place);
            let value = (place + 1 < call.count()).then(|| call.argument(place + 1));
            let is_free = options.condition == Condition::Always;
            if is_option(option, "get") {
                options.previous = true;
            } else if is_option(option, "nx") && is_free {
                options.condition = Condition::Absent;
            } else if is_option(option, "xx") && is_free {
                options.condition = Condition::Present;
            } else if is_option(option, "ifeq") && is_free {
                options.condition = Condition::Equals(value.ok_or(SYNTAX)?);
                place += 1;
            } else if is_option(option, "keepttl") && !has_expiry {
                (options.expiry, has_expiry) = (Expiry::Keep, true);
            } else if let Some(unit) = TimeUnit::of_option(option)
                && !has_expiry
            {
                let time = value.ok_or(SYNTAX)?;
                (options.expiry, has_expiry) = (positive_expiry(time, unit, "set")?, true);
                place += 1;
            } else {
                return Err(SYNTAX.into());
            }
            place += 1;
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
    } = SetOptions::of(call)?;
    if previous && condition != Condition::Always {
        return Ok(set_and_get(call));
    }
    let kind = if previous {
        ReplyKind::Value
    } else {
        ReplyKind::StoredOrNull
    };
    let change = Change::Put {
        value,
        expiry,
        condition,
        previous,
        structured: false,
    };
    Ok(call.change(kind, change))
}

/// `SET` with a condition and `GET`: replies the value before, whether or not it was replaced.
fn set_and_get(call: &mut Call<'_>) -> Flow {
    let arguments = call.owned_arguments();
    // They were checked before.
    let Ok(options) = SetOptions::of(call) else {
        return Flow::Done;
    };
    let compared = match options.condition {
        Condition::Equals(value) => Some(value.to_vec()),
        _ => None,
    };
    let (expiry, is_absent) = (options.expiry, options.condition == Condition::Absent);
    call.task(move |mut core, output, protocol| async move {
        let key = stored_key(&arguments[1]);
        let mut stored = None;
        let reply = loop {
            let before = match core.get(key).await {
                Ok(before) => before.map(|value| (value.to_vec(), value.version())),
                Err(error) => break Err(error),
            };
            let holds = match (&before, &compared) {
                (before, _) if is_absent => before.is_none(),
                (Some((value, _)), Some(compared)) => value == compared,
                (before, _) => before.is_some(),
            };
            if !holds {
                break Ok(before);
            }
            let version = before.as_ref().map_or(0, |&(_, version)| version);
            let options = PutOptions {
                expiry,
                condition: Condition::Version(version),
                structured: false,
            };
            match core.put_with(key, &arguments[2], options).await {
                // Another client was faster.
                Ok(PutOutcome::Unmet(_)) => {}
                Ok(outcome) => {
                    stored = Some(outcome);
                    break Ok(before);
                }
                Err(error) => break Err(error),
            }
        };
        if let Ok(before) = &reply {
            if before.is_none() {
                output.notify(EventClasses::MISSED, "keymiss", key);
            }
            if let Some(stored) = stored {
                notify_set(&output, key, before.is_none(), (expiry, stored));
            }
        }
        output.write(|bytes| {
            let mut writer = Writer::new(bytes, protocol);
            match reply {
                Ok(Some((value, _))) => writer.bulk(&value),
                Ok(None) => writer.null(),
                Err(error) => writer.error(&error_text(&error)),
            }
        });
        core
    })
}

/// Leaves the events of a put that has happened.
fn notify_set(
    output: &TaskOutput,
    key: &[u8],
    is_new: bool,
    (expiry, stored): (Expiry, PutOutcome),
) {
    if is_new {
        output.notify(EventClasses::NEW, "new", key);
    }
    output.notify(EventClasses::STRING, "set", key);
    if let Expiry::At(_) | Expiry::In(_) = expiry {
        output.notify(EventClasses::GENERIC, "expire", key);
    }
    if stored == PutOutcome::Expired {
        output.notify(EventClasses::EXPIRED, "expired", key);
    }
}

/// Stores a value that is too long for a record, as it comes.
pub(super) fn set_long(call: &mut Call<'_>, name: &str, bytes: usize) -> Result {
    let expiry = match (name, call.count()) {
        ("set" | "setnx", 2) => Expiry::Never,
        ("setex", 3) => positive_expiry(call.argument(2), TimeUnit::Seconds, name)?,
        ("psetex", 3) => positive_expiry(call.argument(2), TimeUnit::Milliseconds, name)?,
        _ => return Err(TOO_LONG.into()),
    };
    let is_new = name == "setnx";
    let options = PutOptions {
        expiry,
        condition: if is_new {
            Condition::Absent
        } else {
            Condition::Always
        },
        ..PutOptions::default()
    };
    if call.serving.defers(call.connection) {
        return Ok(Flow::Later);
    }
    let key = call.key().to_vec();
    let input = LongInput::gathered(bytes, call.serving.piece_bytes_max());
    let parts = input.parts();
    let flow = call.task(move |mut core, output, protocol| async move {
        // What comes in pieces cannot be stored again, so this is what the key was shortly before.
        let was_absent =
            output.sends(EventClasses::NEW) && matches!(core.exists(&key).await, Ok(false));
        let put = core.put_long_with(&key, bytes as u64, parts, options).await;
        if let Ok(stored @ (PutOutcome::Stored(_) | PutOutcome::Expired)) = put {
            notify_set(&output, &key, is_new || was_absent, (expiry, stored));
        }
        output.write(|bytes| {
            let mut writer = Writer::new(bytes, protocol);
            match put {
                Ok(PutOutcome::Unmet(_)) => writer.integer(0),
                Ok(_) if is_new => writer.integer(1),
                Ok(_) => writer.simple("OK"),
                Err(error) => writer.error(&error_text(&error)),
            }
        });
        core
    });
    if flow == Flow::Done {
        call.connection.stream = Some(input);
    }
    Ok(flow)
}

pub(super) fn setnx(call: &mut Call<'_>) -> Result {
    let change = Change::Put {
        value: call.argument(2),
        expiry: Expiry::Never,
        condition: Condition::Absent,
        previous: false,
        structured: false,
    };
    Ok(call.change(ReplyKind::IsStored, change))
}

fn set_until(call: &mut Call<'_>, unit: TimeUnit, name: &str) -> Result {
    let expiry = positive_expiry(call.argument(2), unit, name)?;
    let change = Change::Put {
        value: call.argument(3),
        expiry,
        condition: Condition::Always,
        previous: false,
        structured: false,
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
    let change = Change::Put {
        value: call.argument(2),
        expiry: Expiry::Never,
        condition: Condition::Always,
        previous: true,
        structured: false,
    };
    Ok(call.change(ReplyKind::Value, change))
}

pub(super) fn getdel(call: &mut Call<'_>) -> Result {
    let change = Change::Delete {
        condition: Condition::Always,
        previous: true,
    };
    Ok(call.change(ReplyKind::Value, change))
}

pub(super) fn getex(call: &mut Call<'_>) -> Result {
    let expiry = match call.count() {
        2 => return get(call),
        3 if is_option(call.argument(2), "persist") => Expiry::Never,
        4 => {
            let unit = TimeUnit::of_option(call.argument(2)).ok_or(SYNTAX)?;
            positive_expiry(call.argument(3), unit, "getex")?
        }
        _ => return Err(SYNTAX.into()),
    };
    let change = Change::SetExpiry {
        expiry,
        condition: ExpiryCondition::Always,
        value: true,
    };
    Ok(call.change(ReplyKind::Value, change))
}

pub(super) fn delifeq(call: &mut Call<'_>) -> Result {
    let change = Change::Delete {
        condition: Condition::Equals(call.argument(2)),
        previous: false,
    };
    Ok(call.change(ReplyKind::IsDeleted, change))
}

pub(super) fn mget(call: &mut Call<'_>) -> Result {
    let count = call.count() - 1;
    Ok(
        call.requests(PartsKind::Values, count, |call, part| Operation::Get {
            key: call.key_at(1 + part),
        }),
    )
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
    Ok(
        call.requests(PartsKind::Stored, count, |call, part| Operation::Put {
            key: call.key_at(1 + 2 * part),
            value: call.argument(2 + 2 * part),
        }),
    )
}

/// Stores all or none. If the keys lie in several shards, others may see some before the rest.
pub(super) fn msetnx(call: &mut Call<'_>) -> Result {
    pairs(call, "msetnx")?;
    let arguments = call.owned_arguments();
    Ok(call.task(move |mut core, output, protocol| async move {
        let stored = store_if_absent(&mut core, &arguments[1..]).await;
        if matches!(stored, Ok(true)) {
            let mut seen = HashSet::new();
            for pair in arguments[1..].chunks_exact(2) {
                let key = stored_key(&pair[0]);
                let stored = (Expiry::Never, PutOutcome::Stored(0));
                notify_set(&output, key, seen.insert(key), stored);
            }
        }
        output.write(|bytes| {
            let mut writer = Writer::new(bytes, protocol);
            match stored {
                Ok(is_stored) => writer.integer(i64::from(is_stored)),
                Err(error) => writer.error(&error_text(&error)),
            }
        });
        core
    }))
}

async fn store_if_absent(core: &mut Core, pairs: &[Vec<u8>]) -> farcore::Result<bool> {
    let pairs = || {
        pairs
            .chunks_exact(2)
            .map(|pair| (stored_key(&pair[0]), &pair[1]))
    };
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
        // They lie in several shards, or are too many.
        Err(
            farcore::Error::KeysApart { .. }
            | farcore::Error::TransactionKeys { .. }
            | farcore::Error::TransactionTooLong { .. }
            | farcore::Error::KeyTwice { .. },
        ) => {}
        Err(error) => return Err(error),
    }
    for (key, _) in pairs() {
        if core.exists(key).await? {
            return Ok(false);
        }
    }
    for (key, value) in pairs() {
        core.put(key, value).await?;
    }
    Ok(true)
}

pub(super) fn strlen(call: &mut Call<'_>) -> Result {
    let key = call.key();
    Ok(call.request(ReplyKind::Length, Operation::Inspect { key }))
}

pub(super) fn append(call: &mut Call<'_>) -> Result {
    let tail = call.argument(2);
    Ok(call.change(ReplyKind::Length, Change::Append { tail }))
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

pub(super) fn setrange(call: &mut Call<'_>) -> Result {
    let offset = integer(call.argument(2))?;
    let offset = u64::try_from(offset).map_err(|_| "ERR offset is out of range")?;
    let bytes = call.argument(3);
    if offset.saturating_add(bytes.len() as u64) > 512 << 20 && !bytes.is_empty() {
        return Err(TOO_LONG.into());
    }
    Ok(call.change(ReplyKind::Length, Change::SetRange { offset, bytes }))
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
    let by = float(call.argument(2))?;
    Ok(call.change(ReplyKind::Value, Change::IncrementFloat { by }))
}
