//! The library `cjson`: JSON as lua-cjson 2.1 reads and writes it.

use std::cell::Cell;

use mlua::{Lua, Table, Value};

use crate::numbers::general;

/// How deep values may be within each other, at most and by default.
pub(crate) const DEPTH_MAX: usize = 1000;

/// Settings, which begin anew with each script.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) encode_depth: usize,
    pub(crate) decode_depth: usize,
    /// Sparse arrays become objects; from how many times as many places as elements on, and of how
    /// many places.
    pub(crate) sparse: (bool, usize, usize),
    pub(crate) precision: usize,
    pub(crate) encodes_invalid: bool,
    pub(crate) decodes_invalid: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            encode_depth: DEPTH_MAX,
            decode_depth: DEPTH_MAX,
            sparse: (false, 2, 10),
            precision: 14,
            encodes_invalid: false,
            decodes_invalid: true,
        }
    }
}

/// The settings of a script.
pub(crate) type SharedSettings = Cell<Settings>;

/// Why something is no JSON, or what Lua says.
#[derive(Debug)]
pub(crate) enum Failure {
    Text(String),
    Lua(mlua::Error),
}

impl From<mlua::Error> for Failure {
    fn from(error: mlua::Error) -> Self {
        Self::Lua(error)
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

type Result<T> = std::result::Result<T, Failure>;

/// What is written.
#[derive(Debug)]
pub(crate) struct Encoder<'a> {
    settings: Settings,
    out: Vec<u8>,
    bytes_max: usize,
    lua: &'a Lua,
}

impl<'a> Encoder<'a> {
    /// Writes a value as JSON, of `bytes_max` at most.
    pub(crate) fn encode(
        lua: &'a Lua,
        (settings, bytes_max): (Settings, usize),
        value: &Value,
    ) -> Result<Vec<u8>> {
        let mut encoder = Self {
            settings,
            out: Vec::new(),
            bytes_max,
            lua,
        };
        encoder.value(value, 0)?;
        Ok(encoder.out)
    }

    fn value(&mut self, value: &Value, depth: usize) -> Result<()> {
        if self.out.len() > self.bytes_max {
            return Err(Failure::Lua(mlua::Error::MemoryError(
                "not enough memory".to_owned(),
            )));
        }
        match value {
            Value::String(text) => self.string(&text.as_bytes()),
            Value::Number(number) => self.number(*number)?,
            #[expect(clippy::cast_precision_loss, reason = "numbers of Lua are doubles")]
            Value::Integer(number) => self.number(*number as f64)?,
            Value::Boolean(true) => self.out.extend_from_slice(b"true"),
            Value::Boolean(false) => self.out.extend_from_slice(b"false"),
            Value::Nil => self.out.extend_from_slice(b"null"),
            Value::LightUserData(address) if address.0.is_null() => {
                self.out.extend_from_slice(b"null");
            }
            Value::Table(table) => self.table(table, depth + 1)?,
            other => {
                let kind = other.type_name();
                let kind = if kind == "lightuserdata" {
                    "userdata"
                } else {
                    kind
                };
                return Err(format!("Cannot serialise {kind}: type not supported").into());
            }
        }
        Ok(())
    }

    fn number(&mut self, number: f64) -> Result<()> {
        if !number.is_finite() && !self.settings.encodes_invalid {
            return Err("Cannot serialise number: must not be NaN or Inf"
                .to_owned()
                .into());
        }
        let text = general(number, self.settings.precision);
        self.out
            .extend_from_slice(text.trim_start_matches("-nan").as_bytes());
        if text == "-nan" {
            self.out.extend_from_slice(b"nan");
        }
        Ok(())
    }

    fn string(&mut self, text: &[u8]) {
        self.out.push(b'"');
        for &byte in text {
            let escaped: &[u8] = match byte {
                b'"' => b"\\\"",
                b'\\' => b"\\\\",
                b'/' => b"\\/",
                8 => b"\\b",
                9 => b"\\t",
                10 => b"\\n",
                12 => b"\\f",
                13 => b"\\r",
                0..32 | 127 => {
                    self.out
                        .extend_from_slice(format!("\\u{byte:04x}").as_bytes());
                    continue;
                }
                _ => {
                    self.out.push(byte);
                    continue;
                }
            };
            self.out.extend_from_slice(escaped);
        }
        self.out.push(b'"');
    }

    /// The places of an array; `None` of what is an object.
    fn array_len(&self, table: &Table) -> Result<Option<usize>> {
        let (mut most, mut items, mut is_array) = (0, 0, true);
        table.for_each(|key: Value, _: Value| {
            let place = match key {
                Value::Integer(place) => usize::try_from(place).ok(),
                Value::Number(number) => place_of(number),
                _ => None,
            };
            match place.filter(|place| *place > 0) {
                Some(place) => most = most.max(place),
                None => is_array = false,
            }
            items += 1;
            Ok(())
        })?;
        if !is_array {
            return Ok(None);
        }
        let (converts, ratio, safe) = self.settings.sparse;
        if ratio > 0 && most > items * ratio && most > safe {
            if converts {
                return Ok(None);
            }
            return Err("Cannot serialise table: excessively sparse array"
                .to_owned()
                .into());
        }
        Ok(Some(most))
    }

    fn table(&mut self, table: &Table, depth: usize) -> Result<()> {
        if depth > self.settings.encode_depth {
            return Err(format!("Cannot serialise, excessive nesting ({depth})").into());
        }
        match self.array_len(table)? {
            Some(len) if len > 0 => {
                self.out.push(b'[');
                for place in 1..=len {
                    if place > 1 {
                        self.out.push(b',');
                    }
                    let element: Value = table.raw_get(place)?;
                    self.value(&element, depth)?;
                }
                self.out.push(b']');
            }
            _ => self.object(table, depth)?,
        }
        Ok(())
    }

    fn object(&mut self, table: &Table, depth: usize) -> Result<()> {
        self.out.push(b'{');
        let mut is_first = true;
        let next: mlua::Function = self.lua.globals().raw_get("next")?;
        let mut key = Value::Nil;
        loop {
            let value;
            (key, value) = next.call::<(Value, Value)>((table, key))?;
            if key.is_nil() {
                break;
            }
            if !std::mem::take(&mut is_first) {
                self.out.push(b',');
            }
            match &key {
                Value::String(text) => self.string(&text.as_bytes()),
                Value::Number(_) | Value::Integer(_) => {
                    self.out.push(b'"');
                    self.value(&key, depth)?;
                    self.out.push(b'"');
                }
                _ => {
                    let text = "Cannot serialise table: table key must be a number or string";
                    return Err(text.to_owned().into());
                }
            }
            self.out.push(b':');
            self.value(&value, depth)?;
        }
        self.out.push(b'}');
        Ok(())
    }
}

/// A number as a place, if it is one.
fn place_of(number: f64) -> Option<usize> {
    let whole = crate::numbers::integer(number);
    #[expect(clippy::cast_precision_loss, reason = "one that is changed is none")]
    let is_whole = whole as f64 == number;
    usize::try_from(whole).ok().filter(|_| is_whole)
}

/// What is read.
#[derive(Debug)]
pub(crate) struct Decoder<'a> {
    lua: &'a Lua,
    settings: Settings,
    text: &'a [u8],
    at: usize,
}

/// A token.
enum Token {
    Value(Value),
    Mark(u8),
    End,
    Invalid(&'static str),
}

impl<'a> Decoder<'a> {
    /// Reads JSON.
    pub(crate) fn decode(lua: &'a Lua, settings: Settings, text: &'a [u8]) -> Result<Value> {
        if text.len() >= 2 && (text[0] == 0 || text[1] == 0) {
            return Err("JSON parser does not support UTF-16 or UTF-32"
                .to_owned()
                .into());
        }
        let mut decoder = Self {
            lua,
            settings,
            text,
            at: 0,
        };
        let (token, at) = decoder.token()?;
        let value = decoder.value(token, at, 0)?;
        match decoder.token()? {
            (Token::End, _) => Ok(value),
            (token, at) => Err(wrong("the end", &token, at)),
        }
    }

    fn value(&mut self, token: Token, at: usize, depth: usize) -> Result<Value> {
        match token {
            Token::Value(value) => Ok(value),
            Token::Mark(b'{') => self.object(depth + 1),
            Token::Mark(b'[') => self.array(depth + 1),
            token => Err(wrong("value", &token, at)),
        }
    }

    fn descend(&self, depth: usize) -> Result<()> {
        if depth > self.settings.decode_depth {
            let text = format!(
                "Found too many nested data structures ({depth}) at character {}",
                self.at
            );
            return Err(text.into());
        }
        Ok(())
    }

    fn object(&mut self, depth: usize) -> Result<Value> {
        self.descend(depth)?;
        let table = self.lua.create_table()?;
        let (mut token, mut at) = self.token()?;
        if matches!(token, Token::Mark(b'}')) {
            return Ok(Value::Table(table));
        }
        loop {
            let key = match token {
                Token::Value(Value::String(key)) => key,
                token => return Err(wrong("object key string", &token, at)),
            };
            match self.token()? {
                (Token::Mark(b':'), _) => {}
                (token, at) => return Err(wrong("colon", &token, at)),
            }
            let (next, next_at) = self.token()?;
            let value = self.value(next, next_at, depth)?;
            table.raw_set(key, value)?;
            match self.token()? {
                (Token::Mark(b'}'), _) => return Ok(Value::Table(table)),
                (Token::Mark(b','), _) => {}
                (token, at) => return Err(wrong("comma or object end", &token, at)),
            }
            (token, at) = self.token()?;
        }
    }

    fn array(&mut self, depth: usize) -> Result<Value> {
        self.descend(depth)?;
        let table = self.lua.create_table()?;
        let (mut token, mut at) = self.token()?;
        if matches!(token, Token::Mark(b']')) {
            return Ok(Value::Table(table));
        }
        let mut place = 1;
        loop {
            let value = self.value(token, at, depth)?;
            table.raw_set(place, value)?;
            place += 1;
            match self.token()? {
                (Token::Mark(b']'), _) => return Ok(Value::Table(table)),
                (Token::Mark(b','), _) => {}
                (token, at) => return Err(wrong("comma or array end", &token, at)),
            }
            (token, at) = self.token()?;
        }
    }

    /// The next token, and where it begins, from 1 on.
    fn token(&mut self) -> Result<(Token, usize)> {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
        let at = self.at + 1;
        let Some(&byte) = self.text.get(self.at) else {
            return Ok((Token::End, at));
        };
        let token = match byte {
            b'{' | b'}' | b'[' | b']' | b':' | b',' => {
                self.at += 1;
                Token::Mark(byte)
            }
            b'"' => return self.string(at),
            b'-' | b'0'..=b'9' => self.number(),
            _ if self.takes(b"true") => Token::Value(Value::Boolean(true)),
            _ if self.takes(b"false") => Token::Value(Value::Boolean(false)),
            _ if self.takes(b"null") => Token::Value(Value::NULL),
            b'i' | b'I' | b'n' | b'N' if self.settings.decodes_invalid => self.number(),
            _ => Token::Invalid("invalid token"),
        };
        Ok((token, at))
    }

    fn takes(&mut self, word: &[u8]) -> bool {
        let takes = self.text[self.at..].starts_with(word);
        if takes {
            self.at += word.len();
        }
        takes
    }

    fn number(&mut self) -> Token {
        let rest = &self.text[self.at..];
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
        let mut len = rest.iter().take_while(|byte| is_part(byte)).count();
        let digits = rest.strip_prefix(b"-").unwrap_or(rest);
        let is_plain = digits.first().is_some_and(u8::is_ascii_digit);
        let has_zero = digits.len() > 1 && digits[0] == b'0' && digits[1].is_ascii_alphanumeric();
        if !self.settings.decodes_invalid && (!is_plain || has_zero) {
            return Token::Invalid("invalid number");
        }
        // The longest beginning that is a number.
        while len > 0 {
            let text = String::from_utf8_lossy(&rest[..len]).to_ascii_lowercase();
            let (sign, unsigned) = match text.strip_prefix('-') {
                Some(unsigned) => (-1.0, unsigned),
                None => (1.0, &text[..]),
            };
            let parsed = match unsigned.strip_prefix("0x") {
                #[expect(clippy::cast_precision_loss, reason = "as strtod")]
                Some(hex) => u64::from_str_radix(hex, 16)
                    .ok()
                    .map(|number| number as f64),
                None if unsigned.starts_with('+') => None,
                None => unsigned.parse::<f64>().ok(),
            };
            if let Some(number) = parsed {
                self.at += len;
                return Token::Value(Value::Number(sign * number));
            }
            // Of a long run of letters only its beginning can be a number.
            len = if len > 400 { 400 } else { len - 1 };
        }
        if matches!(rest.first(), Some(b'i' | b'I' | b'n' | b'N')) {
            return Token::Invalid("invalid token");
        }
        Token::Invalid("invalid number")
    }

    /// A string; what is wrong in one is where it is found.
    fn string(&mut self, at: usize) -> Result<(Token, usize)> {
        let mut out = Vec::new();
        self.at += 1;
        loop {
            let Some(&byte) = self.text.get(self.at) else {
                return Ok((Token::Invalid("unexpected end of string"), self.at + 1));
            };
            self.at += 1;
            match byte {
                b'"' => break,
                b'\\' => {
                    let escape = self.at;
                    if let Err(text) = self.escape(&mut out) {
                        return Ok((Token::Invalid(text), escape));
                    }
                }
                byte => out.push(byte),
            }
        }
        let text = self.lua.create_string(&out)?;
        Ok((Token::Value(Value::String(text)), at))
    }

    fn escape(&mut self, out: &mut Vec<u8>) -> std::result::Result<(), &'static str> {
        let letter = self.text.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        out.push(match letter {
            b'"' | b'\\' | b'/' => letter,
            b'b' => 8,
            b't' => 9,
            b'n' => 10,
            b'f' => 12,
            b'r' => 13,
            b'u' => {
                let letter = self.unicode().ok_or("invalid unicode escape code")?;
                let mut bytes = [0; 4];
                out.extend_from_slice(letter.encode_utf8(&mut bytes).as_bytes());
                return Ok(());
            }
            _ => return Err("invalid escape code"),
        });
        Ok(())
    }

    fn unit(&mut self) -> Option<u32> {
        let digits = std::str::from_utf8(self.text.get(self.at..self.at + 4)?).ok()?;
        if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        self.at += 4;
        u32::from_str_radix(digits, 16).ok()
    }

    fn unicode(&mut self) -> Option<char> {
        let first = self.unit()?;
        if !(0xD800..0xDC00).contains(&first) {
            return char::from_u32(first);
        }
        if !self.takes(b"\\u") {
            return None;
        }
        let second = self.unit()?;
        if !(0xDC00..0xE000).contains(&second) {
            return None;
        }
        char::from_u32(0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00))
    }
}

/// Why a token is wrong.
fn wrong(expected: &str, found: &Token, at: usize) -> Failure {
    let found = match found {
        Token::Invalid(text) => text,
        Token::End => "T_END",
        Token::Mark(b'{') => "T_OBJ_BEGIN",
        Token::Mark(b'}') => "T_OBJ_END",
        Token::Mark(b'[') => "T_ARR_BEGIN",
        Token::Mark(b']') => "T_ARR_END",
        Token::Mark(b':') => "T_COLON",
        Token::Mark(_) => "T_COMMA",
        Token::Value(Value::String(_)) => "T_STRING",
        Token::Value(Value::Boolean(_)) => "T_BOOLEAN",
        Token::Value(Value::Number(_)) => "T_NUMBER",
        Token::Value(_) => "T_NULL",
    };
    format!("Expected {expected} but found {found} at character {at}").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::state;

    #[test]
    fn any_text_is_no_json_or_read_and_written_alike() {
        let lua = state().expect("a state");
        let settings = Settings {
            encodes_invalid: true,
            ..Settings::default()
        };
        let encoded = |value: &Value| Encoder::encode(&lua, (settings, usize::MAX), value);
        farcore_fuzz::Target::new("script json")
            .seed(br#"{"a":[1,-2.5e3,true,false,null,"b\u00e9\n\ud83d\ude00"],"":{}}"#)
            .seed(b"[[[[1]]],0x1f,nan,-inf,0e10]")
            .words(&["\\u", "null", "[", "]", "{", "}", "\":", "1e308", "\\ud83d"])
            .memory(4 << 20, 1024)
            .run(|bytes| {
                let Ok(value) = Decoder::decode(&lua, settings, bytes) else {
                    return;
                };
                let Ok(first) = encoded(&value) else {
                    // An array with an element far beyond the others.
                    return;
                };
                let again = Decoder::decode(&lua, settings, &first).expect("what was written");
                // The elements of objects have no order.
                let second = encoded(&again).expect("what was read").len();
                assert_eq!(first.len(), second, "{}", String::from_utf8_lossy(&first));
                let _ = lua.gc_collect();
            });
    }
}
