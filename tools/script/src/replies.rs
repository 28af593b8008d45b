//! Replies: of commands as values of Lua, and of a script as its client reads them.

use mlua::{Lua, Table, Value};

use crate::numbers::{general, integer};
use crate::switch::Switch;

/// How deep tables of a reply are within each other, at most.
const DEPTH_MAX: usize = 1000;
/// Elements between two looks whether a slice is over, and their work, in instructions.
const PIECE: usize = 64;
const PIECE_WORK: usize = 640;
/// Bytes of a value of a reply beside its own, about.
const HEAD_BYTES: usize = 16;
/// What a client reads of a table that is deeper; as Redis.
const TOO_DEEP: &str = "ERR reached lua stack limit";

/// An error as a client reads it.
pub(crate) fn error(text: &str) -> Vec<u8> {
    let mut reply = Vec::new();
    write_error(&mut reply, text.as_bytes());
    reply
}

/// A string as a client reads it.
pub(crate) fn bulk(bytes: &[u8]) -> Vec<u8> {
    let mut reply = Vec::new();
    write_bulk(&mut reply, bytes);
    reply
}

fn write_error(reply: &mut Vec<u8>, text: &[u8]) {
    reply.push(b'-');
    write_line(reply, text);
}

/// Writes text that ends its line.
fn write_line(reply: &mut Vec<u8>, text: &[u8]) {
    let is_end = |byte: u8| byte == b'\r' || byte == b'\n';
    reply.extend(
        text.iter()
            .map(|&byte| if is_end(byte) { b' ' } else { byte }),
    );
    reply.extend_from_slice(b"\r\n");
}

/// Writes the head of something with a length.
pub(crate) fn write_head(reply: &mut Vec<u8>, kind: u8, length: usize) {
    write_number(reply, kind, i64::try_from(length).unwrap_or(i64::MAX));
}

pub(crate) fn write_number(reply: &mut Vec<u8>, kind: u8, number: i64) {
    /// Digits of the longest number.
    const DIGITS: usize = 20;
    let (mut digits, mut at, mut left) = ([0; DIGITS], DIGITS, number.unsigned_abs());
    loop {
        at -= 1;
        digits[at] = b'0' + (left % 10).to_le_bytes()[0];
        left /= 10;
        if left == 0 {
            break;
        }
    }
    reply.push(kind);
    if number < 0 {
        reply.push(b'-');
    }
    reply.extend_from_slice(&digits[at..]);
    reply.extend_from_slice(b"\r\n");
}

pub(crate) fn write_bulk(reply: &mut Vec<u8>, bytes: &[u8]) {
    write_head(reply, b'$', bytes.len());
    reply.extend_from_slice(bytes);
    reply.extend_from_slice(b"\r\n");
}

/// Counts an element as work of the script.
fn count(switch: &Switch, place: usize) -> mlua::Result<()> {
    if place.is_multiple_of(PIECE) {
        switch.work(PIECE_WORK).map_err(mlua::Error::RuntimeError)?;
    }
    Ok(())
}

/// What a reply is written for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Protocols<'a> {
    pub(crate) switch: &'a Switch,
    /// The client speaks RESP3.
    pub(crate) is_resp3: bool,
    /// The script has chosen RESP3 for its own replies.
    pub(crate) script_is_resp3: bool,
}

impl Protocols<'_> {
    fn write_null(self, reply: &mut Vec<u8>) {
        let null: &[u8] = if self.is_resp3 { b"_\r\n" } else { b"$-1\r\n" };
        reply.extend_from_slice(null);
    }

    fn write_bool(self, reply: &mut Vec<u8>, value: bool) {
        let text: &[u8] = match (self.is_resp3, value) {
            (true, true) => b"#t\r\n",
            (true, false) => b"#f\r\n",
            (false, true) => b":1\r\n",
            (false, false) => b":0\r\n",
        };
        reply.extend_from_slice(text);
    }

    /// Writes a value of a script as its client reads it.
    pub(crate) fn write(self, reply: &mut Vec<u8>, value: &Value) -> mlua::Result<()> {
        self.write_within(reply, value, 0)
    }

    fn write_within(self, reply: &mut Vec<u8>, value: &Value, depth: usize) -> mlua::Result<()> {
        self.switch.make(match value {
            Value::String(text) => HEAD_BYTES + text.as_bytes().len(),
            _ => HEAD_BYTES,
        })?;
        match value {
            Value::String(text) => write_bulk(reply, &text.as_bytes()),
            Value::Integer(number) => write_number(reply, b':', *number),
            Value::Number(number) => write_number(reply, b':', integer(*number)),
            Value::Boolean(value) if self.script_is_resp3 => self.write_bool(reply, *value),
            Value::Boolean(true) => write_number(reply, b':', 1),
            Value::Table(_) if depth >= DEPTH_MAX => write_error(reply, TOO_DEEP.as_bytes()),
            Value::Table(table) => return self.write_table(reply, table, depth + 1),
            _ => self.write_null(reply),
        }
        Ok(())
    }

    fn write_table(self, reply: &mut Vec<u8>, table: &Table, depth: usize) -> mlua::Result<()> {
        let field = |name: &str| table.raw_get::<Value>(name);
        if let Value::String(text) = field("err")? {
            self.switch.make(text.as_bytes().len())?;
            write_error(reply, &text.as_bytes());
            return Ok(());
        }
        if let Value::String(text) = field("ok")? {
            self.switch.make(text.as_bytes().len())?;
            reply.push(b'+');
            write_line(reply, &text.as_bytes());
            return Ok(());
        }
        if let Some(number) = number_of(&field("double")?) {
            self.write_double(reply, number);
            return Ok(());
        }
        if let Value::Table(map) = field("map")? {
            return self.write_pairs(reply, &map, depth);
        }
        if let Value::Table(set) = field("set")? {
            return self.write_keys(reply, &set, depth);
        }
        if let Value::String(digits) = field("big_number")? {
            self.switch.make(digits.as_bytes().len())?;
            self.write_big(reply, &digits.as_bytes());
            return Ok(());
        }
        if let Value::Table(verbatim) = field("verbatim_string")?
            && let Value::String(text) = verbatim.raw_get("string")?
            && let Value::String(format) = verbatim.raw_get("format")?
        {
            self.switch.make(text.as_bytes().len())?;
            self.write_verbatim(reply, &format.as_bytes(), &text.as_bytes());
            return Ok(());
        }
        let (mut elements, mut count) = (Vec::new(), 0);
        loop {
            let element: Value = table.raw_get(count + 1)?;
            if element.is_nil() {
                break;
            }
            self.write_within(&mut elements, &element, depth)?;
            count += 1;
            self::count(self.switch, count)?;
        }
        write_head(reply, b'*', count);
        reply.append(&mut elements);
        Ok(())
    }

    fn write_double(self, reply: &mut Vec<u8>, number: f64) {
        let text = general(number, 17);
        if self.is_resp3 {
            reply.push(b',');
            write_line(reply, text.as_bytes());
        } else {
            write_bulk(reply, text.as_bytes());
        }
    }

    fn write_big(self, reply: &mut Vec<u8>, digits: &[u8]) {
        if self.is_resp3 {
            reply.push(b'(');
            write_line(reply, digits);
        } else {
            write_bulk(reply, digits);
        }
    }

    fn write_verbatim(self, reply: &mut Vec<u8>, format: &[u8], text: &[u8]) {
        if !self.is_resp3 {
            return write_bulk(reply, text);
        }
        let mut kind = *b"   ";
        for (letter, given) in kind.iter_mut().zip(format) {
            *letter = *given;
        }
        write_head(reply, b'=', text.len() + 4);
        reply.extend_from_slice(&kind);
        reply.push(b':');
        reply.extend_from_slice(text);
        reply.extend_from_slice(b"\r\n");
    }

    fn write_pairs(self, reply: &mut Vec<u8>, map: &Table, depth: usize) -> mlua::Result<()> {
        let (mut pairs, mut count) = (Vec::new(), 0);
        map.for_each(|key: Value, value: Value| {
            self.write_within(&mut pairs, &key, depth)?;
            self.write_within(&mut pairs, &value, depth)?;
            count += 1;
            self::count(self.switch, count)
        })?;
        if self.is_resp3 {
            write_head(reply, b'%', count);
        } else {
            write_head(reply, b'*', 2 * count);
        }
        reply.append(&mut pairs);
        Ok(())
    }

    fn write_keys(self, reply: &mut Vec<u8>, set: &Table, depth: usize) -> mlua::Result<()> {
        let (mut keys, mut count) = (Vec::new(), 0);
        set.for_each(|key: Value, _: Value| {
            count += 1;
            self::count(self.switch, count)?;
            self.write_within(&mut keys, &key, depth)
        })?;
        write_head(reply, if self.is_resp3 { b'~' } else { b'*' }, count);
        reply.append(&mut keys);
        Ok(())
    }
}

fn number_of(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => Some(*number),
        #[expect(clippy::cast_precision_loss, reason = "numbers of Lua are doubles")]
        Value::Integer(number) => Some(*number as f64),
        _ => None,
    }
}

/// Reads a reply of a command, which is no error.
///
/// # Errors
/// There is no memory for it, or the script is ended.
pub(crate) fn read(lua: &Lua, switch: &Switch, bytes: &[u8]) -> mlua::Result<Value> {
    Reader { lua, switch, bytes }.value(0)
}

/// A reply that is read.
struct Reader<'a> {
    lua: &'a Lua,
    switch: &'a Switch,
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn line(&mut self) -> &'a [u8] {
        let end = self.bytes.iter().position(|byte| *byte == b'\r');
        let end = end.unwrap_or(self.bytes.len());
        let line = &self.bytes[..end];
        self.bytes = self.bytes.get(end + 2..).unwrap_or_default();
        line
    }

    /// The number of a line; `None` if it is negative.
    fn count(&mut self) -> Option<usize> {
        std::str::from_utf8(self.line()).ok()?.parse().ok()
    }

    fn block(&mut self) -> Option<&'a [u8]> {
        let count = self.count()?;
        let block = self.bytes.get(..count)?;
        self.bytes = self.bytes.get(count + 2..).unwrap_or_default();
        Some(block)
    }

    fn field(&self, name: &str, bytes: &[u8]) -> mlua::Result<Value> {
        let table = self.lua.create_table()?;
        table.raw_set(name, self.lua.create_string(bytes)?)?;
        Ok(Value::Table(table))
    }

    fn value(&mut self, depth: usize) -> mlua::Result<Value> {
        let Some((kind, rest)) = self.bytes.split_first() else {
            return Ok(Value::Nil);
        };
        self.bytes = rest;
        if depth > DEPTH_MAX {
            return Ok(Value::Nil);
        }
        match kind {
            b'+' => {
                let line = self.line();
                self.field("ok", line)
            }
            b'-' => {
                let line = self.line();
                self.field("err", line)
            }
            b':' => {
                let text = String::from_utf8_lossy(self.line());
                Ok(Value::Number(text.parse().unwrap_or(0.0)))
            }
            b'$' => match self.block() {
                Some(block) => Ok(Value::String(self.lua.create_string(block)?)),
                None => Ok(Value::Boolean(false)),
            },
            b'*' | b'>' => self.elements(depth),
            b'%' => self.pairs(depth),
            b'~' => self.members(depth),
            b'#' => Ok(Value::Boolean(self.line() == b"t")),
            b',' => {
                let text = String::from_utf8_lossy(self.line());
                let table = self.lua.create_table()?;
                table.raw_set("double", text.parse().unwrap_or(f64::NAN))?;
                Ok(Value::Table(table))
            }
            b'(' => {
                let line = self.line();
                self.field("big_number", line)
            }
            b'=' => self.verbatim(),
            _ => {
                self.line();
                Ok(Value::Nil)
            }
        }
    }

    fn elements(&mut self, depth: usize) -> mlua::Result<Value> {
        let Some(count) = self.count() else {
            return Ok(Value::Boolean(false));
        };
        let table = self
            .lua
            .create_table_with_capacity(count.min(self.bytes.len()), 0)?;
        for place in 1..=count {
            let element = self.value(depth + 1)?;
            table.raw_set(place, element)?;
            self::count(self.switch, place)?;
        }
        Ok(Value::Table(table))
    }

    fn pairs(&mut self, depth: usize) -> mlua::Result<Value> {
        let count = self.count().unwrap_or(0);
        let map = self.lua.create_table()?;
        for place in 1..=count {
            self::count(self.switch, place)?;
            let key = self.value(depth + 1)?;
            let value = self.value(depth + 1)?;
            if !key.is_nil() {
                map.raw_set(key, value)?;
            }
        }
        let table = self.lua.create_table()?;
        table.raw_set("map", map)?;
        Ok(Value::Table(table))
    }

    fn members(&mut self, depth: usize) -> mlua::Result<Value> {
        let count = self.count().unwrap_or(0);
        let set = self.lua.create_table()?;
        for place in 1..=count {
            self::count(self.switch, place)?;
            let key = self.value(depth + 1)?;
            if !key.is_nil() {
                set.raw_set(key, true)?;
            }
        }
        let table = self.lua.create_table()?;
        table.raw_set("set", set)?;
        Ok(Value::Table(table))
    }

    fn verbatim(&mut self) -> mlua::Result<Value> {
        let block = self.block().unwrap_or_default();
        let (format, text) = block.split_at(block.len().min(3));
        let verbatim = self.lua.create_table()?;
        verbatim.raw_set("format", self.lua.create_string(format)?)?;
        let text = text.get(1..).unwrap_or_default();
        verbatim.raw_set("string", self.lua.create_string(text)?)?;
        let table = self.lua.create_table()?;
        table.raw_set("verbatim_string", verbatim)?;
        Ok(Value::Table(table))
    }
}
