//! Commands of hashes.
//!
//! A hash is one structured record. Reads are one request, whose answer is searched when it is
//! replied. Changes are those of any structured record (`structured`).

use farcore::Operation;

use super::arguments::{float, integer};
use super::structured::{self, Effect, Record, write_count};
use super::{Call, Flow, Refusal};
use crate::resp::Writer;
use crate::texts::ShortText;
use crate::types::hash::reply::{FieldReply, HashFields, HashReply};
use crate::types::hash::value::{Entry, HashValue, with_fields, without_fields};
use crate::types::kind::Kind;
use crate::types::replies::ReplyKind;
use crate::types::search::Search;
use crate::words::parsed_integer;

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
        match ShortText::of(field) {
            Some(field) => self.hash(HashReply::Field(reply, field)),
            None => self.search(Search::Fields(HashFields::one(reply, field))),
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
    Ok(call.search(Search::Fields(fields)))
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

/// Starts the change of a hash, which is the event `name`, and replies what it returns.
fn change<T: 'static>(
    call: &mut Call<'_>,
    name: &'static str,
    change: impl Fn(&[Vec<u8>], Option<HashValue<'_>>) -> std::result::Result<(Effect, T), Refusal>
    + 'static,
    write: impl FnOnce(&mut Writer<'_>, T) + 'static,
) -> Flow {
    let change =
        move |arguments: &[Vec<u8>], record: &Record| Ok(change(arguments, record.value()?)?);
    structured::change(call, (Kind::Hash, name), change, write)
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
            Some(value) => parsed_integer(value).ok_or("ERR hash value is not an integer")?,
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
