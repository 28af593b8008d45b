//! Commands of hashes.
//!
//! A hash is a tree of the engine: a map from its fields to their values (`types::element`). A
//! command of few fields is one request. One of many is a task, which changes or reads them in
//! several steps.

use farcore::{Answer, TreeBound, TreeCondition, TreeGuard, TreeOp, TreeValues, TreeView};

use super::arguments::{float, integer};
use super::trees::{self, Step, ask};
use super::{Call, Flow, Refusal};
use crate::events::classes::EventClasses;
use crate::long::task::LongTask;
use crate::long::tree_read::TreeRead;
use crate::resp::Writer;
use crate::tasks::failure::TaskFailure;
use crate::types::element::{self, ElementKeys};
use crate::types::hash::reply::{FieldReply, HashReply};
use crate::types::kind::Kind;
use crate::types::replies::ReplyKind;
use crate::words::parsed_integer;

type Result = std::result::Result<Flow, Refusal>;

/// Fields whose values one request reads, at most.
const FIELDS_AT_ONCE: usize = 32;
/// Bytes of a number's text, at most.
const NUMBER_BYTES_MAX: usize = 1 << 10;
/// A text that is none of a number.
const NO_NUMBER: &[u8] = b"";
/// Copies of a long field that its change holds: two that lie before values, and one on its way.
const FIELD_COPIES: usize = 3;

impl Call<'_> {
    /// Requests one field of the first key's hash, the second argument.
    fn hash_field(&mut self, reply: FieldReply) -> Flow {
        let (key, field) = (self.key(), self.argument(2));
        let is_long = element::is_long(field);
        // Only the answer about several tells whether the key is there.
        let among_several = self.sends(EventClasses::MISSED);
        self.with_elements(|call, elements| {
            elements.add(field, None);
            let field = elements.key(0);
            let fields = [field];
            let (reply, op) = if among_several {
                let keys = TreeValues::Slices(&fields);
                (
                    HashReply::Found { reply, is_long },
                    TreeOp::GetMany { keys },
                )
            } else {
                (
                    HashReply::Field { reply, is_long },
                    TreeOp::Get { key: field },
                )
            };
            call.request(ReplyKind::Hash(reply), Kind::Hash.operation(key, op))
        })
    }

    /// Requests all fields of it.
    fn hash(&mut self, reply: HashReply) -> Flow {
        let op = TreeOp::Range {
            from: TreeBound::Unbounded,
            to: TreeBound::Unbounded,
            reverse: false,
            limit: u32::MAX,
        };
        let key = self.key();
        self.request(ReplyKind::Hash(reply), Kind::Hash.operation(key, op))
    }
}

pub(super) fn hget(call: &mut Call<'_>) -> Result {
    Ok(call.hash_field(FieldReply::Value))
}

pub(super) fn hexists(call: &mut Call<'_>) -> Result {
    Ok(call.hash_field(FieldReply::Exists))
}

pub(super) fn hstrlen(call: &mut Call<'_>) -> Result {
    Ok(call.hash_field(FieldReply::Length))
}

pub(super) fn hmget(call: &mut Call<'_>) -> Result {
    let (key, count) = (call.key(), call.count() - 2);
    let (arguments, input) = (call.arguments, call.input);
    let fields = || (2..call_end(count)).map(|place| arguments.get(place, input));
    let is_one_request = count <= FIELDS_AT_ONCE && !fields().any(element::is_long);
    if !is_one_request && call.is_early() {
        return Ok(Flow::Later);
    }
    Ok(call.with_elements(|call, elements| {
        fields().for_each(|field| elements.add(field, None));
        let keys: Vec<_> = (0..count).map(|place| elements.key(place)).collect();
        let keys = TreeValues::Slices(&keys);
        let operation = Kind::Hash.operation(key, TreeOp::GetMany { keys });
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let reply = ReplyKind::Hash(HashReply::Fields { count });
        if is_one_request {
            return call.request(reply, operation);
        }
        match TreeRead::of_operation(reply, &operation) {
            Some(read) => call.long_task(LongTask::Tree(read)),
            None => call.request(reply, operation),
        }
    }))
}

/// The end of the arguments that are fields.
fn call_end(fields: usize) -> usize {
    2 + fields
}

pub(super) fn hgetall(call: &mut Call<'_>) -> Result {
    Ok(call.hash(HashReply::All))
}

pub(super) fn hkeys(call: &mut Call<'_>) -> Result {
    Ok(call.hash(HashReply::Names))
}

pub(super) fn hvals(call: &mut Call<'_>) -> Result {
    Ok(call.hash(HashReply::Values))
}

pub(super) fn hlen(call: &mut Call<'_>) -> Result {
    let operation = Kind::Hash.operation(call.key(), TreeOp::Len);
    Ok(call.request(ReplyKind::Elements(Kind::Hash), operation))
}

fn set(call: &mut Call<'_>, name: &str, reply: ReplyKind) -> Result {
    let end = call.count();
    if !end.is_multiple_of(2) {
        let text = format!("ERR wrong number of arguments for '{name}' command");
        return Err(Refusal(text));
    }
    call.update_elements(Kind::Hash, reply, (2..end, 2), |argument| {
        (argument(0), Some(argument(1)))
    })
}

pub(super) fn hset(call: &mut Call<'_>) -> Result {
    set(call, "hset", ReplyKind::Number { place: 0 })
}

pub(super) fn hmset(call: &mut Call<'_>) -> Result {
    set(call, "hmset", ReplyKind::Stored)
}

pub(super) fn hdel(call: &mut Call<'_>) -> Result {
    let (reply, end) = (ReplyKind::Number { place: 1 }, call.count());
    call.update_elements(Kind::Hash, reply, (2..end, 1), |argument| {
        (argument(0), None)
    })
}

pub(super) fn hsetnx(call: &mut Call<'_>) -> Result {
    let (key, field, value) = (call.key(), call.argument(2), call.argument(3));
    call.check_element(field, value)?;
    let stored = element::stored_bytes(field, value);
    call.serving.shared.note_value(stored);
    if call.sends(EventClasses::NEW) {
        // The answer does not tell whether the key was there.
        let value = value.to_vec();
        let change = FieldChange::of(call);
        return Ok(change.start(
            call,
            "hset",
            move |old| match old {
                Some(_) => Ok((None, 0)),
                None => Ok((Some(value.clone()), 1)),
            },
            write_integer,
        ));
    }
    Ok(call.with_elements(|call, elements| {
        elements.add(field, Some(value));
        let op = TreeOp::Insert {
            key: elements.key(0),
            value: elements.stored(0, value),
            condition: TreeCondition::IfAbsent,
        };
        call.request(ReplyKind::IsStored, Kind::Hash.operation(key, op))
    }))
}

fn write_integer(writer: &mut Writer<'_>, integer: i64) {
    writer.integer(integer);
}

/// The change of one field that depends on its value.
struct FieldChange {
    key: Vec<u8>,
    field: Vec<u8>,
}

impl FieldChange {
    /// That of the first key's hash and the second argument.
    fn of(call: &Call<'_>) -> Self {
        Self {
            key: call.key().to_vec(),
            field: call.argument(2).to_vec(),
        }
    }

    /// Starts it: `change` makes the new value of the one that the field has, none if that stays,
    /// and what is replied.
    fn start<T: 'static>(
        self,
        call: &mut Call<'_>,
        name: &'static str,
        change: impl Fn(Option<&[u8]>) -> std::result::Result<(Option<Vec<u8>>, T), TaskFailure>
        + 'static,
        write: impl FnOnce(&mut Writer<'_>, T) + 'static,
    ) -> Flow {
        call.task(move |mut core, output, protocol| async move {
            let changed = self.run((&mut core, &output), change).await;
            let changed = changed.map(|(reply, done)| {
                if done.is_new {
                    output.notify(EventClasses::NEW, "new", &self.key);
                }
                if done.is_changed {
                    output.notify(EventClasses::HASH, name, &self.key);
                }
                reply
            });
            trees::finish(&output, protocol, changed, write);
            core
        })
    }

    /// Reads the field, makes its new value, and stores it if the field still has the old one;
    /// else it begins anew.
    async fn run<T>(
        &self,
        (core, output): Step<'_>,
        change: impl Fn(Option<&[u8]>) -> std::result::Result<(Option<Vec<u8>>, T), TaskFailure>,
    ) -> std::result::Result<(T, FieldDone), TaskFailure> {
        let needed = FIELD_COPIES * self.field.len() + NUMBER_BYTES_MAX;
        let _held = output.hold_when_free(core, needed).await?;
        let is_long = element::is_long(&self.field);
        let mut elements = ElementKeys::default();
        loop {
            elements.clear();
            elements.add(&self.field, None);
            let keys = [elements.key(0)];
            let keys = TreeValues::Slices(&keys);
            let read = Kind::Hash.operation(&self.key, TreeOp::GetMany { keys });
            let found = ask(core, read, |answer| {
                let view = TreeView::of(answer);
                let stored = view.values().next().flatten();
                let is_short = |stored: &&[u8]| {
                    let value = element::value_in(stored, is_long);
                    value.is_some_and(|value| value.len() <= NUMBER_BYTES_MAX)
                };
                let short = stored.filter(is_short).map(<[u8]>::to_vec);
                (view.version(), stored.is_some(), short)
            });
            let (version, is_there, stored) = found.await?;
            let value = (stored.as_deref()).and_then(|stored| element::value_in(stored, is_long));
            // What is longer is no number.
            let old = value.or_else(|| is_there.then_some(NO_NUMBER));
            let (new, reply) = change(old)?;
            let Some(new) = new else {
                return Ok((reply, FieldDone::default()));
            };
            elements.clear();
            elements.add(&self.field, Some(&new));
            let op = TreeOp::CompareAndSet {
                key: elements.key(0),
                expected: stored.as_deref(),
                value: Some(elements.stored(0, &new)),
            };
            // Of a key that was absent it must be known whether it is new.
            let guard = TreeGuard {
                tag: Kind::Hash.tag(),
                version: (version == 0).then_some(0),
            };
            let swap = farcore::Operation::Tree {
                key: &self.key,
                op,
                guard,
            };
            let swapped = ask(core, swap, |answer| matches!(answer, Answer::Value { .. }));
            match swapped.await {
                Ok(true) => {
                    let done = FieldDone {
                        is_new: version == 0,
                        is_changed: true,
                    };
                    return Ok((reply, done));
                }
                // Another client was faster.
                Ok(false) | Err(farcore::Error::CollectionVersion { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// What has become of a hash whose field was changed.
#[derive(Clone, Copy, Default)]
struct FieldDone {
    is_new: bool,
    is_changed: bool,
}

pub(super) fn hincrby(call: &mut Call<'_>) -> Result {
    let by = integer(call.argument(3))?;
    call.check_element(call.argument(2), &[])?;
    let change = FieldChange::of(call);
    let add = move |old: Option<&[u8]>| {
        let number = match old {
            Some(value) => parsed_integer(value).ok_or("ERR hash value is not an integer")?,
            None => 0,
        };
        let sum = number.checked_add(by);
        let sum = sum.ok_or("ERR increment or decrement would overflow")?;
        Ok((Some(sum.to_string().into_bytes()), sum))
    };
    Ok(change.start(call, "hincrby", add, write_integer))
}

pub(super) fn hincrbyfloat(call: &mut Call<'_>) -> Result {
    let by = float(call.argument(3))?;
    if !by.is_finite() {
        return Err("ERR value is NaN or Infinity".into());
    }
    call.check_element(call.argument(2), &[])?;
    let change = FieldChange::of(call);
    let add = move |old: Option<&[u8]>| {
        let number = match old {
            Some(value) => float(value).map_err(|_| "ERR hash value is not a float")?,
            None => 0.0,
        };
        let sum = number + by;
        if !sum.is_finite() {
            return Err("ERR increment would produce NaN or Infinity".into());
        }
        // No negative zero.
        let text = (sum + 0.0).to_string().into_bytes();
        Ok((Some(text.clone()), text))
    };
    Ok(change.start(call, "hincrbyfloat", add, |writer, text| writer.bulk(&text)))
}
