//! The library `cmsgpack`: MessagePack as lua-cmsgpack reads and writes it.

use mlua::{Lua, Table, Value};

use crate::json::Failure;
use crate::numbers::integer;

/// How deep tables are within each other when they are written: what is deeper is written as nil.
const NESTING_MAX: usize = 16;
/// And when they are read.
const DEPTH_MAX: usize = 1000;
const BAD: &str = "Bad data format in input.";
const MISSING: &str = "Missing bytes in input.";

type Result<T> = std::result::Result<T, Failure>;

/// Writes a value; `out` has `bytes_max` at most.
pub(crate) fn pack(
    (out, bytes_max): (&mut Vec<u8>, usize),
    lua: &Lua,
    value: &Value,
    level: usize,
) -> Result<()> {
    if out.len() > bytes_max {
        return Err(Failure::Lua(mlua::Error::MemoryError(
            "not enough memory".to_owned(),
        )));
    }
    match value {
        Value::String(text) => {
            let text = text.as_bytes();
            string_head(out, text.len())?;
            out.extend_from_slice(&text);
        }
        Value::Boolean(value) => out.push(if *value { 0xc3 } else { 0xc2 }),
        Value::Integer(number) => pack_integer(out, *number),
        Value::Number(number) => pack_number(out, *number),
        Value::Table(table) if level < NESTING_MAX => {
            pack_table((out, bytes_max), lua, table, level + 1)?;
        }
        _ => out.push(0xc0),
    }
    Ok(())
}

fn too_long() -> Failure {
    Failure::Text("too many bytes".to_owned())
}

fn string_head(out: &mut Vec<u8>, len: usize) -> Result<()> {
    if let Ok(short) = u8::try_from(len) {
        if short < 32 {
            out.push(0xa0 | short);
        } else {
            out.extend_from_slice(&[0xd9, short]);
        }
        return Ok(());
    }
    head(out, len, [0xda, 0xdb])
}

/// A head of two bytes or of four.
fn head(out: &mut Vec<u8>, len: usize, [short, long]: [u8; 2]) -> Result<()> {
    if let Ok(len) = u16::try_from(len) {
        out.push(short);
        out.extend_from_slice(&len.to_be_bytes());
    } else {
        out.push(long);
        let len = u32::try_from(len).map_err(|_| too_long())?;
        out.extend_from_slice(&len.to_be_bytes());
    }
    Ok(())
}

fn pack_integer(out: &mut Vec<u8>, number: i64) {
    if let Ok(number) = u64::try_from(number) {
        match (
            u8::try_from(number),
            u16::try_from(number),
            u32::try_from(number),
        ) {
            (Ok(byte), ..) if byte < 128 => out.push(byte),
            (Ok(byte), ..) => out.extend_from_slice(&[0xcc, byte]),
            (_, Ok(short), _) => {
                out.push(0xcd);
                out.extend_from_slice(&short.to_be_bytes());
            }
            (.., Ok(word)) => {
                out.push(0xce);
                out.extend_from_slice(&word.to_be_bytes());
            }
            _ => {
                out.push(0xcf);
                out.extend_from_slice(&number.to_be_bytes());
            }
        }
        return;
    }
    match (
        i8::try_from(number),
        i16::try_from(number),
        i32::try_from(number),
    ) {
        (Ok(byte), ..) if byte >= -32 => out.push(byte.cast_unsigned()),
        (Ok(byte), ..) => out.extend_from_slice(&[0xd0, byte.cast_unsigned()]),
        (_, Ok(short), _) => {
            out.push(0xd1);
            out.extend_from_slice(&short.to_be_bytes());
        }
        (.., Ok(word)) => {
            out.push(0xd2);
            out.extend_from_slice(&word.to_be_bytes());
        }
        _ => {
            out.push(0xd3);
            out.extend_from_slice(&number.to_be_bytes());
        }
    }
}

fn pack_number(out: &mut Vec<u8>, number: f64) {
    let whole = integer(number);
    #[expect(clippy::cast_precision_loss, reason = "one that is changed is none")]
    if whole as f64 == number && whole != i64::MIN {
        return pack_integer(out, whole);
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "one that is changed is none"
    )]
    let short = number as f32;
    if f64::from(short) == number {
        out.push(0xca);
        out.extend_from_slice(&short.to_be_bytes());
    } else {
        out.push(0xcb);
        out.extend_from_slice(&number.to_be_bytes());
    }
}

/// The elements of an array; `None` of another table, with how many pairs it has.
fn array_len(table: &Table) -> Result<(Option<usize>, usize)> {
    let (mut most, mut count, mut is_array) = (0_i64, 0_usize, true);
    table.for_each(|key: Value, _: Value| {
        let place = match key {
            Value::Integer(place) => place,
            #[expect(clippy::cast_precision_loss, reason = "one that is changed is none")]
            Value::Number(number) if integer(number) as f64 == number => integer(number),
            _ => 0,
        };
        is_array &= place > 0;
        most = most.max(place);
        count += 1;
        Ok(())
    })?;
    let is_whole = usize::try_from(most).is_ok_and(|most| most == count);
    Ok(((is_array && is_whole).then_some(count), count))
}

fn pack_table(
    (out, bytes_max): (&mut Vec<u8>, usize),
    lua: &Lua,
    table: &Table,
    level: usize,
) -> Result<()> {
    let (len, count) = array_len(table)?;
    if let Some(len) = len {
        match u8::try_from(len) {
            Ok(short) if short < 16 => out.push(0x90 | short),
            _ => head(out, len, [0xdc, 0xdd])?,
        }
        for place in 1..=len {
            let element: Value = table.raw_get(place)?;
            pack((out, bytes_max), lua, &element, level)?;
        }
        return Ok(());
    }
    match u8::try_from(count) {
        Ok(short) if short < 16 => out.push(0x80 | short),
        _ => head(out, count, [0xde, 0xdf])?,
    }
    let next: mlua::Function = lua.globals().raw_get("next")?;
    let mut key = Value::Nil;
    loop {
        let value;
        (key, value) = next.call::<(Value, Value)>((table, key))?;
        if key.is_nil() {
            return Ok(());
        }
        pack((out, bytes_max), lua, &key, level)?;
        pack((out, bytes_max), lua, &value, level)?;
    }
}

/// What is read.
#[derive(Debug)]
pub(crate) struct Unpacker<'a> {
    pub(crate) lua: &'a Lua,
    pub(crate) bytes: &'a [u8],
}

impl<'a> Unpacker<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        if count > self.bytes.len() {
            return Err(MISSING.to_owned().into());
        }
        let (taken, rest) = self.bytes.split_at(count);
        self.bytes = rest;
        Ok(taken)
    }

    /// A number of as many bytes, the highest first.
    fn number(&mut self, bytes: usize) -> Result<u64> {
        let taken = self.take(bytes)?;
        Ok(taken
            .iter()
            .fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn length(&mut self, bytes: usize) -> Result<usize> {
        Ok(usize::try_from(self.number(bytes)?).unwrap_or(usize::MAX))
    }

    /// The next value.
    #[expect(clippy::cast_precision_loss, reason = "numbers of Lua are doubles")]
    pub(crate) fn value(&mut self, depth: usize) -> Result<Value> {
        if depth > DEPTH_MAX {
            return Err(BAD.to_owned().into());
        }
        let kind = self.take(1)?[0];
        let signed = |number: u64, bits: u32| {
            let shift = 64 - bits;
            Value::Number(((number << shift).cast_signed() >> shift) as f64)
        };
        Ok(match kind {
            0x00..=0x7f => Value::Number(f64::from(kind)),
            0xe0..=0xff => Value::Number(f64::from(kind.cast_signed())),
            0x80..=0x8f => return self.map(usize::from(kind & 15), depth),
            0x90..=0x9f => return self.array(usize::from(kind & 15), depth),
            0xa0..=0xbf => return self.string(usize::from(kind & 31)),
            0xc0 => Value::Nil,
            0xc2 => Value::Boolean(false),
            0xc3 => Value::Boolean(true),
            0xc4 | 0xd9 => {
                let len = self.length(1)?;
                return self.string(len);
            }
            0xc5 | 0xda => {
                let len = self.length(2)?;
                return self.string(len);
            }
            0xc6 | 0xdb => {
                let len = self.length(4)?;
                return self.string(len);
            }
            0xca => {
                let bits = u32::try_from(self.number(4)?).unwrap_or(0);
                Value::Number(f64::from(f32::from_bits(bits)))
            }
            0xcb => Value::Number(f64::from_bits(self.number(8)?)),
            0xcc => Value::Number(self.number(1)? as f64),
            0xcd => Value::Number(self.number(2)? as f64),
            0xce => Value::Number(self.number(4)? as f64),
            0xcf => Value::Number(self.number(8)? as f64),
            0xd0 => signed(self.number(1)?, 8),
            0xd1 => signed(self.number(2)?, 16),
            0xd2 => signed(self.number(4)?, 32),
            0xd3 => signed(self.number(8)?, 64),
            0xdc => {
                let len = self.length(2)?;
                return self.array(len, depth);
            }
            0xdd => {
                let len = self.length(4)?;
                return self.array(len, depth);
            }
            0xde => {
                let len = self.length(2)?;
                return self.map(len, depth);
            }
            0xdf => {
                let len = self.length(4)?;
                return self.map(len, depth);
            }
            _ => return Err(BAD.to_owned().into()),
        })
    }

    fn string(&mut self, len: usize) -> Result<Value> {
        let bytes = self.take(len)?;
        Ok(Value::String(self.lua.create_string(bytes)?))
    }

    fn array(&mut self, len: usize, depth: usize) -> Result<Value> {
        let table = self.lua.create_table()?;
        for place in 1..=len {
            let element = self.value(depth + 1)?;
            table.raw_set(place, element)?;
        }
        Ok(Value::Table(table))
    }

    fn map(&mut self, len: usize, depth: usize) -> Result<Value> {
        let table = self.lua.create_table()?;
        for _ in 0..len {
            let key = self.value(depth + 1)?;
            let value = self.value(depth + 1)?;
            table.raw_set(key, value)?;
        }
        Ok(Value::Table(table))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::state;

    #[test]
    fn any_message_is_refused_or_read_and_written_alike() {
        let lua = state().expect("a state");
        let packed = |value: &Value| {
            let mut out = Vec::new();
            pack((&mut out, usize::MAX), &lua, value, 0).map(|()| out)
        };
        let read = |bytes: &[u8]| Unpacker { lua: &lua, bytes }.value(0);
        farcore_fuzz::Target::new("script messages")
            .seed(b"\x82\xa1a\x93\x01\xff\xc0\xa1b\xcb\x3f\xb9\x99\x99\x99\x99\x99\x9a")
            .seed(b"\xde\x00\x01\x01\xca\x3f\x80\x00\x00")
            .seed(b"\xdc\x00\x02\xd3\xff\xff\xff\xff\x00\x00\x00\x00\xd9\x01x")
            .memory(4 << 20, 1024)
            .run(|bytes| {
                let mut unpacker = Unpacker { lua: &lua, bytes };
                while let Ok(value) = unpacker.value(0) {
                    // What is nested too deep is written as nil, and an array with a hole as a map.
                    let plain = packed(&value).and_then(|first| read(&first));
                    let plain = plain
                        .and_then(|value| packed(&value))
                        .and_then(|one| read(&one));
                    if let Ok(value) = plain {
                        let first = packed(&value).expect("a plain value");
                        let again = read(&first).expect("what was written");
                        // The elements of maps have no order.
                        let second = packed(&again).expect("what was read").len();
                        assert_eq!(first.len(), second, "{first:?}");
                    }
                    if unpacker.bytes.is_empty() {
                        break;
                    }
                }
                let _ = lua.gc_collect();
            });
    }
}
