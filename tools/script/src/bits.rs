//! The library `bit`: operations on 32 bits.

use mlua::{Value, Variadic};

use crate::numbers::integer;

/// A number as 32 bits, as the library rounds it.
fn bits(value: Option<&Value>, place: usize, name: &str) -> Result<u32, String> {
    let number = match value {
        Some(Value::Number(number)) => *number,
        Some(Value::Integer(number)) => {
            return Ok(low(*number));
        }
        Some(Value::String(text)) => text.to_string_lossy().trim().parse().map_err(|_| {
            format!("bad argument #{place} to '{name}' (number expected, got string)")
        })?,
        other => {
            let kind = other.map_or("no value", Value::type_name);
            return Err(format!(
                "bad argument #{place} to '{name}' (number expected, got {kind})"
            ));
        }
    };
    Ok(low(integer(number.round_ties_even())))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it takes the low bits"
)]
fn low(number: i64) -> u32 {
    number as u32
}

/// What an operation of a name comes to.
pub(crate) fn run(name: &str, values: &Variadic<Value>) -> Result<Result<f64, String>, String> {
    let first = bits(values.first(), 1, name)?;
    let shift = || bits(values.get(1), 2, name).map(|shift| shift & 31);
    let folded = |fold: fn(u32, u32) -> u32| {
        (values.iter().enumerate().skip(1)).try_fold(first, |all, (place, value)| {
            bits(Some(value), place + 1, name).map(|one| fold(all, one))
        })
    };
    let result = match name {
        "tobit" => first,
        "bnot" => !first,
        "bswap" => first.swap_bytes(),
        "band" => folded(|one, other| one & other)?,
        "bor" => folded(|one, other| one | other)?,
        "bxor" => folded(|one, other| one ^ other)?,
        "lshift" => first << shift()?,
        "rshift" => first >> shift()?,
        "arshift" => (first.cast_signed() >> shift()?).cast_unsigned(),
        "rol" => first.rotate_left(shift()?),
        "ror" => first.rotate_right(shift()?),
        "tohex" => return Ok(Err(to_hex(first, values, name)?)),
        _ => 0,
    };
    Ok(Ok(f64::from(result.cast_signed())))
}

fn to_hex(number: u32, values: &Variadic<Value>, name: &str) -> Result<String, String> {
    let digits = match values.get(1) {
        None => 8,
        some => bits(some, 2, name)?.cast_signed(),
    };
    let count = usize::try_from(digits.unsigned_abs().min(8)).unwrap_or(8);
    let text = if digits < 0 {
        format!("{number:08X}")
    } else {
        format!("{number:08x}")
    };
    Ok(text[8 - count..].to_owned())
}
