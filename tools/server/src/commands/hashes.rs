//! Commands of hashes.
//!
//! A hash is one structured record. Reads are one request, whose answer is searched when it is
//! replied. Changes read the record, make the next one, and store it if the version is still the
//! one that was read; so each is one step for other clients, and it begins anew if another was
//! faster.

use farcore::{
    Answer, Condition, Core, DeleteOutcome, Error, Expiry, Operation, PutOptions, PutOutcome,
    Refused,
};

use super::arguments::{float, integer, parsed, stored_key};
use super::{Call, Flow, Refusal, read_of};
use crate::connection::Pending;
use crate::event_classes::EventClasses;
use crate::hash_reply::{DAMAGED, FieldReply, HashFields, HashReply, ShortField};
use crate::hash_value::{Entry, HashValue, with_fields, without_fields};
use crate::parts::Parts;
use crate::replies::{ReplyKind, error_text};
use crate::resp::{Protocol, Writer};
use crate::tasks::TaskOutput;
use crate::token::Token;

type Result = std::result::Result<Flow, Refusal>;

impl Call<'_> {
    /// Requests the hash of the first key.
    fn hash(&mut self, reply: HashReply) -> Flow {
        let key = self.key();
        self.request(ReplyKind::Hash(reply), Operation::GetStructured { key })
    }

    /// Requests one field of it, the second argument.
    fn hash_field(&mut self, reply: FieldReply) -> Flow {
        let field = self.argument(2);
        match ShortField::of(field) {
            Some(field) => self.hash(HashReply::Field(reply, field)),
            None => self.hash_fields(HashFields::one(reply, field)),
        }
    }

    /// The same for fields that do not fit a reply's kind.
    fn hash_fields(&mut self, fields: HashFields) -> Flow {
        if let Some(plan) = &mut self.plan {
            plan.is_possible = false;
            return Flow::Done;
        }
        let token = Token::new(self.number, self.connection.next_number(), 0);
        let key = self.key();
        match self.submit_part(Operation::GetStructured { key }, token) {
            Ok(()) => {
                let parts = Box::new(Parts::of_fields(fields));
                self.connection.pending.push_back(Pending::Parts(parts));
                self.connection.outstanding += 1;
                Flow::Done
            }
            Err(Refused::Full) => Flow::Later,
            // Such a key cannot exist.
            Err(Refused::Error(Error::KeyTooLong { .. })) => {
                self.reply(|writer| fields.write(&Answer::Absent, writer))
            }
            Err(Refused::Error(error)) => self.reply(|writer| writer.error(&error_text(&error))),
        }
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
    let fields = HashFields::all((2..call.count()).map(|place| call.argument(place)));
    Ok(call.hash_fields(fields))
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
    Ok(call.hash(HashReply::Length))
}

/// Why a hash was not read or changed.
pub(super) enum Failure {
    Engine(Error),
    Refused(Refusal),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

impl Failure {
    /// As the client reads it.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Engine(Error::ValueTooLong { bytes, max }) => {
                format!("ERR hash is too large: it takes {bytes} bytes, the limit is {max} bytes")
            }
            Self::Engine(error) => error_text(error),
            Self::Refused(Refusal(text)) => text.clone(),
        }
    }
}

/// Leaves the event of a read that has found no key.
pub(super) fn notify_missed(
    output: &TaskOutput,
    key: &[u8],
    read: &std::result::Result<(u64, Vec<u8>), Failure>,
) {
    if let Ok((0, _)) = read {
        output.notify(EventClasses::MISSED, "keymiss", key);
    }
}

/// What has become of a hash.
enum Done {
    Nothing,
    Stored { is_new: bool },
    Deleted,
}

impl Done {
    /// Leaves its events; `name` is that of the change.
    fn notify(self, output: &TaskOutput, name: &'static str, key: &[u8]) {
        match self {
            Self::Nothing => {}
            Self::Stored { is_new } => {
                if is_new {
                    output.notify(EventClasses::NEW, "new", key);
                }
                output.notify(EventClasses::HASH, name, key);
            }
            Self::Deleted => {
                output.notify(EventClasses::HASH, name, key);
                output.notify(EventClasses::GENERIC, "del", key);
            }
        }
    }
}

/// What becomes of a hash.
enum Effect {
    Nothing,
    Store(Vec<u8>),
    Delete,
}

/// Reads the hash of a key with its version; 0 if there is none.
pub(super) async fn read(
    core: &mut Core,
    key: &[u8],
) -> std::result::Result<(u64, Vec<u8>), Failure> {
    let read = read_of(core.get_structured(key).await)?;
    Ok(read.map_or((0, Vec::new()), |value| (value.version(), value.to_vec())))
}

/// The hash that was read; `None` if there is none.
pub(super) fn whole(
    version: u64,
    bytes: &[u8],
) -> std::result::Result<Option<HashValue<'_>>, Failure> {
    if version == 0 {
        return Ok(None);
    }
    match HashValue::of(bytes) {
        Some(hash) => Ok(Some(hash)),
        None => Err(Failure::Refused(DAMAGED.into())),
    }
}

/// Changes the hash of a key in one step, and keeps the key's expiry.
async fn update<T>(
    core: &mut Core,
    key: &[u8],
    change: impl Fn(Option<HashValue<'_>>) -> std::result::Result<(Effect, T), Refusal>,
) -> std::result::Result<(T, Done), Failure> {
    loop {
        let (version, bytes) = read(core, key).await?;
        let (effect, reply) = change(whole(version, &bytes)?).map_err(Failure::Refused)?;
        let condition = Condition::Version(version);
        let done = match effect {
            Effect::Nothing => Some(Done::Nothing),
            Effect::Store(bytes) => {
                let options = PutOptions {
                    expiry: Expiry::Keep,
                    condition,
                    structured: true,
                };
                let put = core.put_with(key, &bytes, options).await?;
                let is_new = version == 0;
                matches!(put, PutOutcome::Stored(_)).then_some(Done::Stored { is_new })
            }
            Effect::Delete => {
                let deleted = core.delete_if(key, condition).await?;
                (!matches!(deleted, DeleteOutcome::Mismatch(_))).then_some(Done::Deleted)
            }
        };
        // Else another client was faster.
        if let Some(done) = done {
            return Ok((reply, done));
        }
    }
}

/// Starts the change of a hash, which is the event `name`, and replies what it returns.
fn change<T: 'static>(
    call: &mut Call<'_>,
    name: &'static str,
    change: impl Fn(&[Vec<u8>], Option<HashValue<'_>>) -> std::result::Result<(Effect, T), Refusal>
    + 'static,
    write: impl FnOnce(&mut Writer<'_>, T) + 'static,
) -> Flow {
    // It would be copied each time that it is tried.
    if call.plan.is_none() && !call.connection.pending.is_empty() {
        return Flow::Later;
    }
    let arguments = call.owned_arguments();
    call.task(move |mut core, output, protocol| async move {
        let key = stored_key(&arguments[1]);
        let changed = update(&mut core, key, |hash| change(&arguments, hash)).await;
        let changed = changed.map(|(reply, done)| {
            done.notify(&output, name, key);
            reply
        });
        finish(&output, protocol, changed, write);
        core
    })
}

/// Writes what a change returns, or why it did not happen.
fn finish<T>(
    output: &TaskOutput,
    protocol: Protocol,
    result: std::result::Result<T, Failure>,
    write: impl FnOnce(&mut Writer<'_>, T),
) {
    output.write(|bytes| {
        let mut writer = Writer::new(bytes, protocol);
        match result {
            Ok(reply) => write(&mut writer, reply),
            Err(failure) => writer.error(&failure.text()),
        }
    });
}

fn write_count(writer: &mut Writer<'_>, count: usize) {
    writer.integer(i64::try_from(count).unwrap_or(i64::MAX));
}

/// Fields and values, alternately, as entries.
fn entries(arguments: &[Vec<u8>]) -> Vec<Entry<'_>> {
    (arguments.chunks_exact(2))
        .map(|pair| (&pair[0][..], &pair[1][..]))
        .collect()
}

fn set(call: &mut Call<'_>, name: &str, write: fn(&mut Writer<'_>, usize)) -> Result {
    if !call.count().is_multiple_of(2) {
        let text = format!("ERR wrong number of arguments for '{name}' command");
        return Err(Refusal(text));
    }
    let add = |arguments: &[Vec<u8>], hash: Option<HashValue<'_>>| {
        let (bytes, added) = with_fields(hash, &entries(&arguments[2..]));
        Ok((Effect::Store(bytes), added))
    };
    Ok(change(call, "hset", add, write))
}

pub(super) fn hset(call: &mut Call<'_>) -> Result {
    set(call, "hset", write_count)
}

pub(super) fn hmset(call: &mut Call<'_>) -> Result {
    set(call, "hmset", |writer, _| writer.simple("OK"))
}

pub(super) fn hsetnx(call: &mut Call<'_>) -> Result {
    let add = |arguments: &[Vec<u8>], hash: Option<HashValue<'_>>| {
        if hash.is_some_and(|hash| hash.get(&arguments[2]).is_some()) {
            return Ok((Effect::Nothing, 0));
        }
        let (bytes, added) = with_fields(hash, &entries(&arguments[2..]));
        Ok((Effect::Store(bytes), added))
    };
    Ok(change(call, "hset", add, write_count))
}

pub(super) fn hdel(call: &mut Call<'_>) -> Result {
    let remove = |arguments: &[Vec<u8>], hash: Option<HashValue<'_>>| {
        let Some(hash) = hash else {
            return Ok((Effect::Nothing, 0));
        };
        let (bytes, removed) = without_fields(hash, arguments[2..].iter().map(Vec::as_slice));
        let effect = match bytes {
            _ if removed == 0 => Effect::Nothing,
            Some(bytes) => Effect::Store(bytes),
            None => Effect::Delete,
        };
        Ok((effect, removed))
    };
    Ok(change(call, "hdel", remove, write_count))
}

fn write_sum(writer: &mut Writer<'_>, sum: i64) {
    writer.integer(sum);
}

pub(super) fn hincrby(call: &mut Call<'_>) -> Result {
    let by = integer(call.argument(3))?;
    let add = move |arguments: &[Vec<u8>], hash: Option<HashValue<'_>>| {
        let field = &arguments[2][..];
        let number = match hash.and_then(|hash| hash.get(field)) {
            Some(value) => parsed(value).ok_or("ERR hash value is not an integer")?,
            None => 0,
        };
        let sum = number.checked_add(by);
        let sum = sum.ok_or("ERR increment or decrement would overflow")?;
        let (bytes, _) = with_fields(hash, &[(field, sum.to_string().as_bytes())]);
        Ok((Effect::Store(bytes), sum))
    };
    Ok(change(call, "hincrby", add, write_sum))
}

pub(super) fn hincrbyfloat(call: &mut Call<'_>) -> Result {
    let by = float(call.argument(3))?;
    if !by.is_finite() {
        return Err("ERR value is NaN or Infinity".into());
    }
    let add = move |arguments: &[Vec<u8>], hash: Option<HashValue<'_>>| {
        let field = &arguments[2][..];
        let number = match hash.and_then(|hash| hash.get(field)) {
            Some(value) => float(value).map_err(|_| "ERR hash value is not a float")?,
            None => 0.0,
        };
        let sum = number + by;
        if !sum.is_finite() {
            return Err("ERR increment would produce NaN or Infinity".into());
        }
        // No negative zero.
        let text = (sum + 0.0).to_string();
        let (bytes, _) = with_fields(hash, &[(field, text.as_bytes())]);
        Ok((Effect::Store(bytes), text))
    };
    Ok(change(call, "hincrbyfloat", add, |writer, text| {
        writer.bulk(text.as_bytes());
    }))
}
