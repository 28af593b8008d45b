//! The library `struct`: values in the formats of C.

use mlua::{Lua, Value};

use crate::json::Failure;
use crate::numbers::integer;

/// Alignment at most by default, and that of `!` alone.
const ALIGNMENT: usize = 8;
/// Bytes of an integer at most.
const INTEGER_BYTES_MAX: usize = 32;

type Result<T> = std::result::Result<T, Failure>;

/// How a format goes on.
#[derive(Debug)]
struct Format<'a> {
    rest: &'a [u8],
    is_little: bool,
    alignment: usize,
    /// The function that reads it.
    name: &'static str,
}

impl<'a> Format<'a> {
    fn new(format: &'a [u8], name: &'static str) -> Self {
        Self {
            rest: format,
            is_little: true,
            alignment: 1,
            name,
        }
    }

    fn digits(&mut self) -> Result<Option<usize>> {
        let count = self
            .rest
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        let (digits, rest) = self.rest.split_at(count);
        self.rest = rest;
        if count == 0 {
            return Ok(None);
        }
        let number = String::from_utf8_lossy(digits).parse::<u32>();
        let number = number.ok().filter(|number| *number < 0x7fff_ffff);
        let number = number.ok_or_else(|| "integral size overflow".to_owned())?;
        Ok(Some(usize::try_from(number).unwrap_or(usize::MAX)))
    }

    /// The next option, with its size and the bytes before it that align it at a place.
    fn next(&mut self, at: usize) -> Result<Option<(u8, usize, usize)>> {
        let Some((&option, rest)) = self.rest.split_first() else {
            return Ok(None);
        };
        self.rest = rest;
        let size = match option {
            b'B' | b'b' | b'x' => 1,
            b'H' | b'h' => 2,
            b'L' | b'l' | b'T' | b'd' => 8,
            b'f' => 4,
            b'c' => self.digits()?.unwrap_or(1),
            b'i' | b'I' => {
                let size = self.digits()?.unwrap_or(4);
                if size > INTEGER_BYTES_MAX {
                    let text =
                        format!("integral size {size} is larger than limit of {INTEGER_BYTES_MAX}");
                    return Err(text.into());
                }
                size
            }
            _ => 0,
        };
        let fill = match option {
            b's' | b'c' | b'x' | b' ' | b'<' | b'>' | b'!' => 0,
            _ if size < 2 || self.alignment < 2 => 0,
            _ => {
                let unit = size.min(self.alignment);
                if !unit.is_power_of_two() {
                    return Err("alignment is not a power of 2".to_owned().into());
                }
                (unit - (at & (unit - 1))) & (unit - 1)
            }
        };
        Ok(Some((option, size, fill)))
    }

    /// An option that has no value.
    fn control(&mut self, option: u8) -> Result<()> {
        match option {
            b' ' => {}
            b'>' => self.is_little = false,
            b'<' => self.is_little = true,
            b'!' => {
                let alignment = self.digits()?.unwrap_or(ALIGNMENT);
                if alignment == 0 || !alignment.is_power_of_two() {
                    return Err("alignment is not a power of 2".to_owned().into());
                }
                self.alignment = alignment;
            }
            other => {
                let other = char::from(other);
                let name = self.name;
                let text = format!("bad argument #1 to '{name}' (invalid format option '{other}')");
                return Err(text.into());
            }
        }
        Ok(())
    }
}

fn number(value: Option<&Value>, place: usize) -> Result<f64> {
    match value {
        Some(Value::Number(number)) => Ok(*number),
        #[expect(clippy::cast_precision_loss, reason = "numbers of Lua are doubles")]
        Some(Value::Integer(number)) => Ok(*number as f64),
        Some(Value::String(text)) if text.to_string_lossy().trim().parse::<f64>().is_ok() => {
            Ok(text.to_string_lossy().trim().parse().unwrap_or(0.0))
        }
        other => {
            let kind = other.map_or("no value", Value::type_name);
            Err(format!("bad argument #{place} to 'pack' (number expected, got {kind})").into())
        }
    }
}

fn text(value: Option<&Value>, place: usize) -> Result<Vec<u8>> {
    match value {
        Some(Value::String(text)) => Ok(text.as_bytes().to_vec()),
        Some(Value::Number(number)) => Ok(crate::numbers::general(*number, 14).into_bytes()),
        Some(Value::Integer(number)) => Ok(number.to_string().into_bytes()),
        other => {
            let kind = other.map_or("no value", Value::type_name);
            Err(format!("bad argument #{place} to 'pack' (string expected, got {kind})").into())
        }
    }
}

fn write_integer(out: &mut Vec<u8>, number: i64, (size, is_little): (usize, bool)) {
    let fill = if number < 0 { 0xff } else { 0 };
    let bytes = number.to_le_bytes();
    let mut bytes: Vec<_> = (0..size)
        .map(|place| bytes.get(place).copied().unwrap_or(fill))
        .collect();
    if !is_little {
        bytes.reverse();
    }
    out.extend_from_slice(&bytes);
}

fn read_integer(bytes: &[u8], is_little: bool, is_signed: bool) -> f64 {
    let mut number = 0_u64;
    let mut add = |byte: &u8| number = number << 8 | u64::from(*byte);
    if is_little {
        bytes.iter().rev().for_each(&mut add);
    } else {
        bytes.iter().for_each(&mut add);
    }
    let shift = u32::try_from(64_usize.saturating_sub(bytes.len() * 8)).unwrap_or(0);
    #[expect(clippy::cast_precision_loss, reason = "numbers of Lua are doubles")]
    if is_signed {
        ((number << shift).cast_signed() >> shift) as f64
    } else {
        number as f64
    }
}

/// Packs values, into `bytes_max` at most.
pub(crate) fn pack(format: &[u8], values: &[Value], bytes_max: usize) -> Result<Vec<u8>> {
    let (mut format, mut out, mut taken) = (Format::new(format, "pack"), Vec::new(), 0);
    while let Some((option, size, fill)) = format.next(out.len())? {
        if out.len() + size > bytes_max {
            return Err(Failure::Lua(mlua::Error::MemoryError(
                "not enough memory".to_owned(),
            )));
        }
        out.resize(out.len() + fill, 0);
        let (value, place) = (values.get(taken), taken + 2);
        taken += 1;
        match option {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                let number = integer(number(value, place)?);
                write_integer(&mut out, number, (size, format.is_little));
            }
            b'x' => {
                out.push(0);
                taken -= 1;
            }
            b'f' => {
                #[expect(clippy::cast_possible_truncation, reason = "as C")]
                let number = number(value, place)? as f32;
                let bytes = if format.is_little {
                    number.to_le_bytes()
                } else {
                    number.to_be_bytes()
                };
                out.extend_from_slice(&bytes);
            }
            b'd' => {
                let number = number(value, place)?;
                let bytes = if format.is_little {
                    number.to_le_bytes()
                } else {
                    number.to_be_bytes()
                };
                out.extend_from_slice(&bytes);
            }
            b'c' | b's' => {
                let text = text(value, place)?;
                let size = if size == 0 { text.len() } else { size };
                if text.len() < size {
                    return Err(
                        format!("bad argument #{place} to 'pack' (string too short)").into(),
                    );
                }
                out.extend_from_slice(&text[..size]);
                if option == b's' {
                    out.push(0);
                }
            }
            option => {
                format.control(option)?;
                taken -= 1;
            }
        }
    }
    Ok(out)
}

/// Unpacks values of bytes from a place on; the last one is where what follows begins, from 1 on.
pub(crate) fn unpack(lua: &Lua, format: &[u8], data: &[u8], from: usize) -> Result<Vec<Value>> {
    let (mut format, mut at, mut values) = (Format::new(format, "unpack"), from, Vec::new());
    while let Some((option, mut size, fill)) = format.next(at)? {
        at += fill;
        let short =
            || Failure::Text("bad argument #2 to 'unpack' (data string too short)".to_owned());
        let bytes = data
            .get(at..)
            .and_then(|rest| rest.get(..size))
            .ok_or_else(short)?;
        match option {
            b'b' | b'h' | b'l' | b'i' => {
                values.push(Value::Number(read_integer(bytes, format.is_little, true)));
            }
            b'B' | b'H' | b'L' | b'T' | b'I' => {
                values.push(Value::Number(read_integer(bytes, format.is_little, false)));
            }
            b'x' => {}
            b'f' => {
                let bytes: [u8; 4] = bytes.try_into().map_err(|_| short())?;
                let number = if format.is_little {
                    f32::from_le_bytes(bytes)
                } else {
                    f32::from_be_bytes(bytes)
                };
                values.push(Value::Number(f64::from(number)));
            }
            b'd' => {
                let bytes: [u8; 8] = bytes.try_into().map_err(|_| short())?;
                let number = if format.is_little {
                    f64::from_le_bytes(bytes)
                } else {
                    f64::from_be_bytes(bytes)
                };
                values.push(Value::Number(number));
            }
            b'c' => {
                if size == 0 {
                    let last = match values.pop() {
                        Some(Value::Number(number)) if number >= 0.0 => number,
                        _ => return Err("format 'c0' needs a previous size".to_owned().into()),
                    };
                    size = usize::try_from(integer(last)).unwrap_or(usize::MAX);
                }
                let end = at.checked_add(size).ok_or_else(short)?;
                let bytes = data.get(at..end).ok_or_else(short)?;
                values.push(Value::String(lua.create_string(bytes)?));
            }
            b's' => {
                let rest = data.get(at..).unwrap_or_default();
                let len = rest.iter().position(|byte| *byte == 0);
                let len = len.ok_or_else(|| "unfinished string in data".to_owned())?;
                values.push(Value::String(lua.create_string(&rest[..len])?));
                size = len + 1;
            }
            option => format.control(option)?,
        }
        at += size;
    }
    #[expect(clippy::cast_precision_loss, reason = "numbers of Lua are doubles")]
    values.push(Value::Number((at + 1) as f64));
    Ok(values)
}

/// Bytes of what a format packs.
pub(crate) fn size(format: &[u8]) -> Result<usize> {
    let (mut format, mut at) = (Format::new(format, "size"), 0);
    while let Some((option, size, fill)) = format.next(at)? {
        at += fill + size;
        match option {
            b's' => {
                return Err("bad argument #1 to 'size' (option 's' has no fixed size)"
                    .to_owned()
                    .into());
            }
            b'c' if size == 0 => {
                return Err("bad argument #1 to 'size' (option 'c0' has no fixed size)"
                    .to_owned()
                    .into());
            }
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' | b'x' | b'f' | b'd'
            | b'c' => {}
            option => format.control(option)?,
        }
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::state;

    #[test]
    fn any_format_is_refused_or_reads_what_it_writes() {
        let lua = state().expect("a state");
        farcore_fuzz::Target::new("script structs")
            .seed(b"\x06>!4bhi8\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11\x12")
            .seed(b"\x04<Bc0s\x03abcdef\0")
            .words(&["i8", "c0", "!8", "<", ">", "=", "s", "x", "d", "f", "T", "c99999"])
            .memory(4 << 20, 1024)
            .run(|bytes| {
                let mut input = farcore_fuzz::Input::new(bytes);
                let format = input.bytes(24);
                let length = size(format);
                let Ok(mut values) = unpack(&lua, format, input.rest(), 0) else {
                    return;
                };
                values.pop();
                // A length that `c0` has taken is missing.
                if let Ok(packed) = pack(format, &values, 1 << 20)
                    && let Ok(length) = length
                {
                    assert_eq!(packed.len(), length);
                    let mut again = unpack(&lua, format, &packed, 0).expect("what was written");
                    again.pop();
                    assert_eq!(again.len(), values.len());
                }
                let _ = lua.gc_collect();
            });
    }
}
