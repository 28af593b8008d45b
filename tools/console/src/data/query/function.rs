//! The functions of expressions: their types, and what they compute.
//!
//! SQLite has functions of these names. Ours differ where SQLite's depend on how it was built, fail
//! a whole query, or see only ASCII.
//!
//! - I1: a function of a missing value is missing, but for `coalesce`. A result that does not
//!   exist, is not finite or does not fit 64 bits is missing.
//!
//! | function | of | gives |
//! |---|---|---|
//! | `abs(x)` | a number | the same type |
//! | `round(x)`, `round(x, digits)` | a number; halves go away from zero | a number |
//! | `floor(x)`, `ceil(x)`, `sqrt(x)`, `exp(x)`, `ln(x)`, `log2(x)`, `log10(x)` | a number | a number |
//! | `pow(x, y)` | numbers | a number |
//! | `lower(t)`, `upper(t)`, `trim(t)` | a text | a text |
//! | `length(t)` | a text | its characters |
//! | `substr(t, from)`, `substr(t, from, count)` | a text; places from 1, from the end if negative | a text |
//! | `contains(t, part)`, `starts_with(t, part)` | texts | a condition |
//! | `integer(x)` | a number, without its fraction, or a text that is one | an integer |
//! | `number(x)` | a number, or a text that is one | a number |
//! | `text(x)` | anything | a text |
//! | `coalesce(x, ..)` | values of one type | the first that is not missing |
//! | `nullif(x, y)` | values of one type | x, missing if it equals y |

use rusqlite::functions::FunctionFlags;
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, Error, Result};

use super::term::{INTEGER, Kind, NUMBER, TEXT};
use crate::data::cell::number_text;
use crate::data::import::{Class, classify};

/// The prefix of our functions in SQL.
pub(super) const PREFIX: &str = "farcore_";

/// What the arguments of a function must be, and what it gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rule {
    /// Numbers, all taken as numbers with a fraction; gives one.
    Numbers,
    /// A number; gives the same type.
    Same,
    /// A number and an optional integer; gives a number.
    Round,
    /// A text; gives a type.
    Text(Kind),
    /// A text, and one or two integers; gives a text.
    Substr,
    /// Two texts; gives a condition.
    Texts,
    /// Anything; gives a type.
    Any(Kind),
}

/// Computes a function; `None` is the missing value.
type Compute = fn(&[ValueRef<'_>]) -> Option<Value>;

/// A function of expressions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Function {
    /// The name in expressions; in SQL it has [`PREFIX`].
    pub(super) name: &'static str,
    /// The fewest and most arguments.
    pub(super) arguments: (usize, usize),
    /// Their types.
    pub(super) rule: Rule,
    compute: Compute,
}

const fn function(
    name: &'static str,
    arguments: (usize, usize),
    rule: Rule,
    compute: Compute,
) -> Function {
    Function {
        name,
        arguments,
        rule,
        compute,
    }
}

/// The functions that expressions call by name, beside `coalesce` and `nullif` of SQLite.
pub(super) static FUNCTIONS: [Function; 20] = [
    function("abs", (1, 1), Rule::Same, absolute),
    function("round", (1, 2), Rule::Round, round),
    function("floor", (1, 1), Rule::Numbers, |of| {
        real(number(of[0])?.floor())
    }),
    function("ceil", (1, 1), Rule::Numbers, |of| {
        real(number(of[0])?.ceil())
    }),
    function("sqrt", (1, 1), Rule::Numbers, |of| {
        real(number(of[0])?.sqrt())
    }),
    function("exp", (1, 1), Rule::Numbers, |of| {
        real(number(of[0])?.exp())
    }),
    function("ln", (1, 1), Rule::Numbers, |of| real(number(of[0])?.ln())),
    function("log2", (1, 1), Rule::Numbers, |of| {
        real(number(of[0])?.log2())
    }),
    function("log10", (1, 1), Rule::Numbers, |of| {
        real(number(of[0])?.log10())
    }),
    function("pow", (2, 2), Rule::Numbers, |of| {
        real(number(of[0])?.powf(number(of[1])?))
    }),
    function("lower", (1, 1), Rule::Text(TEXT), |of| {
        Some(text(of[0])?.to_lowercase().into())
    }),
    function("upper", (1, 1), Rule::Text(TEXT), |of| {
        Some(text(of[0])?.to_uppercase().into())
    }),
    function("trim", (1, 1), Rule::Text(TEXT), |of| {
        Some(text(of[0])?.trim().to_owned().into())
    }),
    function("length", (1, 1), Rule::Text(INTEGER), length),
    function("substr", (2, 3), Rule::Substr, substr),
    function("contains", (2, 2), Rule::Texts, |of| {
        truth(text(of[0])?.contains(text(of[1])?))
    }),
    function("starts_with", (2, 2), Rule::Texts, |of| {
        truth(text(of[0])?.starts_with(text(of[1])?))
    }),
    function("integer", (1, 1), Rule::Any(INTEGER), to_integer),
    function("number", (1, 1), Rule::Any(NUMBER), to_number),
    function("text", (1, 1), Rule::Any(TEXT), to_text),
];

/// Functions that terms are made of, and that no expression names.
static INNER: [Function; 6] = [
    function("add", (2, 2), Rule::Same, |of| {
        integers(of, i64::checked_add)
    }),
    function("subtract", (2, 2), Rule::Same, |of| {
        integers(of, i64::checked_sub)
    }),
    function("multiply", (2, 2), Rule::Same, |of| {
        integers(of, i64::checked_mul)
    }),
    function("remainder", (2, 2), Rule::Same, |of| {
        integers(of, i64::checked_rem)
    }),
    function("negate", (1, 1), Rule::Same, |of| {
        Some(integer(of[0])?.checked_neg()?.into())
    }),
    function("finite", (1, 1), Rule::Numbers, |of| real(number(of[0])?)),
];

/// Joins two texts, in place of `||`: SQLite's own gives texts as long as its limit on rows.
pub(super) const JOIN: &str = "join";

/// Two texts are too long together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("joined texts are too long")]
pub(super) struct TextTooLong;

fn number(value: ValueRef<'_>) -> Option<f64> {
    match value {
        ValueRef::Integer(value) => Some(value as f64),
        ValueRef::Real(value) => Some(value),
        _ => None,
    }
}

fn integer(value: ValueRef<'_>) -> Option<i64> {
    match value {
        ValueRef::Integer(value) => Some(value),
        _ => None,
    }
}

fn text(value: ValueRef<'_>) -> Option<&str> {
    match value {
        ValueRef::Text(bytes) => std::str::from_utf8(bytes).ok(),
        _ => None,
    }
}

fn real(value: f64) -> Option<Value> {
    value.is_finite().then_some(Value::Real(value))
}

fn truth(value: bool) -> Option<Value> {
    Some(Value::Integer(value.into()))
}

/// The whole part of a number, if it fits 64 bits.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the range is checked, and the fraction is to go"
)]
fn whole(value: f64) -> Option<Value> {
    // 2^63 is the first number that is too large; -2^63 fits.
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    let whole = value.trunc();
    (-LIMIT..LIMIT)
        .contains(&whole)
        .then_some(Value::Integer(whole as i64))
}

fn integers(of: &[ValueRef<'_>], compute: fn(i64, i64) -> Option<i64>) -> Option<Value> {
    compute(integer(of[0])?, integer(of[1])?).map(Value::Integer)
}

fn absolute(of: &[ValueRef<'_>]) -> Option<Value> {
    match of[0] {
        ValueRef::Integer(value) => value.checked_abs().map(Value::Integer),
        other => real(number(other)?.abs()),
    }
}

fn round(of: &[ValueRef<'_>]) -> Option<Value> {
    let value = number(of[0])?;
    let digits = match of.get(1) {
        Some(&digits) => integer(digits)?,
        None => 0,
    };
    // A double has 15 to 17 digits: more change nothing, and so few leave nothing.
    let digits = i32::try_from(digits.clamp(-400, 400)).ok()?;
    let scaled = value * 10_f64.powi(digits.min(300));
    if digits > 15 || !scaled.is_finite() {
        return real(value);
    }
    if digits < -308 {
        return real(0.0);
    }
    real(scaled.round() / 10_f64.powi(digits))
}

fn length(of: &[ValueRef<'_>]) -> Option<Value> {
    let count = text(of[0])?.chars().count();
    i64::try_from(count).ok().map(Value::Integer)
}

fn substr(of: &[ValueRef<'_>]) -> Option<Value> {
    let whole = text(of[0])?;
    let from = integer(of[1])?;
    let count = match of.get(2) {
        Some(&count) => usize::try_from(integer(count)?.max(0)).ok()?,
        None => usize::MAX,
    };
    let start = if from < 0 {
        let back = usize::try_from(from.unsigned_abs()).ok()?;
        whole.chars().count().saturating_sub(back)
    } else {
        usize::try_from(from.max(1) - 1).ok()?
    };
    let part: String = whole.chars().skip(start).take(count).collect();
    Some(part.into())
}

fn to_integer(of: &[ValueRef<'_>]) -> Option<Value> {
    match of[0] {
        ValueRef::Integer(value) => Some(Value::Integer(value)),
        ValueRef::Real(value) => whole(value),
        other => match classify(text(other)?) {
            Class::Integer(value) => Some(Value::Integer(value)),
            Class::Number(value) => whole(value),
            _ => None,
        },
    }
}

fn to_number(of: &[ValueRef<'_>]) -> Option<Value> {
    match of[0] {
        ValueRef::Text(_) => match classify(text(of[0])?) {
            Class::Integer(value) => real(value as f64),
            Class::Number(value) => real(value),
            _ => None,
        },
        other => real(number(other)?),
    }
}

fn to_text(of: &[ValueRef<'_>]) -> Option<Value> {
    match of[0] {
        ValueRef::Integer(value) => Some(value.to_string().into()),
        ValueRef::Real(value) => Some(number_text(value).into()),
        other => Some(text(other)?.to_owned().into()),
    }
}

/// The function of this name, in any case.
pub(super) fn find(name: &str) -> Option<&'static Function> {
    let lower = name.to_ascii_lowercase();
    let name = match lower.as_str() {
        "power" => "pow",
        "ceiling" => "ceil",
        "substring" => "substr",
        other => other,
    };
    FUNCTIONS.iter().find(|function| function.name == name)
}

/// Whether SQL may call this function.
pub(super) fn is_ours(name: &str) -> bool {
    let name = name.strip_prefix(PREFIX);
    name.is_some_and(|name| {
        let mut all = FUNCTIONS.iter().chain(&INNER);
        name == JOIN || all.any(|function| function.name == name)
    })
}

/// Gives a connection the functions. Texts are joined up to `text_max` bytes; longer ones are
/// [`TextTooLong`].
///
/// # Errors
/// Those of SQLite.
pub(super) fn register(connection: &Connection, text_max: usize) -> Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8
        | FunctionFlags::SQLITE_DETERMINISTIC
        | FunctionFlags::SQLITE_INNOCUOUS;
    for function in FUNCTIONS.iter().chain(&INNER) {
        let name = format!("{PREFIX}{}", function.name);
        let compute = function.compute;
        let (fewest, most) = function.arguments;
        for count in fewest..=most {
            let arguments = i32::try_from(count).unwrap_or(-1);
            connection.create_scalar_function(name.as_str(), arguments, flags, move |context| {
                let mut of = [ValueRef::Null; 3];
                for (at, value) in of.iter_mut().take(count).enumerate() {
                    *value = context.get_raw(at);
                }
                Ok(compute(&of[..count]).unwrap_or(Value::Null))
            })?;
        }
    }
    let name = format!("{PREFIX}{JOIN}");
    connection.create_scalar_function(name.as_str(), 2, flags, move |context| {
        let (Some(one), Some(other)) = (text(context.get_raw(0)), text(context.get_raw(1))) else {
            return Ok(None);
        };
        if one.len() + other.len() > text_max {
            return Err(Error::UserFunctionError(Box::new(TextTooLong)));
        }
        Ok(Some([one, other].concat()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_compute() {
        let connection = Connection::open_in_memory().unwrap();
        register(&connection, 10).unwrap();
        for (call, value) in [
            ("abs(-3)", "3"),
            ("abs(-2.5)", "2.5"),
            ("abs(-9223372036854775807 - 1)", "NULL"),
            ("round(2.5)", "3.0"),
            ("round(-2.5)", "-3.0"),
            ("round(2.345, 2)", "2.35"),
            ("round(1234, -2)", "1200.0"),
            ("round(1e300, 400)", "1e300"),
            ("round(1e300, -400)", "0.0"),
            ("ln(0)", "NULL"),
            ("ln(-1.0)", "NULL"),
            ("sqrt(9)", "3.0"),
            ("pow(2, 10)", "1024.0"),
            ("pow(10, 400)", "NULL"),
            ("lower('ÄB')", "'äb'"),
            ("upper('straße')", "'STRASSE'"),
            ("length('日本')", "2"),
            ("substr('日本語', 2)", "'本語'"),
            ("substr('abcdef', -3, 2)", "'de'"),
            ("substr('abc', 0, -1)", "''"),
            ("substr('abc', -9223372036854775807 - 1)", "'abc'"),
            ("contains('abc', 'bc')", "1"),
            ("starts_with('abc', 'bc')", "0"),
            ("integer(-2.9)", "-2"),
            ("integer(1e19)", "NULL"),
            ("integer(' 12 ')", "12"),
            ("integer('12x')", "NULL"),
            ("number('1e3')", "1000.0"),
            ("number('nan')", "NULL"),
            ("text(1.0)", "'1'"),
            ("text(NULL)", "NULL"),
            ("add(9223372036854775807, 1)", "NULL"),
            ("remainder(-7, 3)", "-1"),
            ("remainder(7, 0)", "NULL"),
            ("negate(-9223372036854775807 - 1)", "NULL"),
            ("finite(1e308 * 10)", "NULL"),
            ("join('日本', 'abcd')", "'日本abcd'"),
            ("join('a', NULL)", "NULL"),
        ] {
            let sql = format!("SELECT {PREFIX}{call} IS {value}");
            let is_equal: bool = connection.query_row(&sql, [], |row| row.get(0)).unwrap();
            assert!(is_equal, "{sql}");
        }
        let long = format!("SELECT {PREFIX}join('日本', 'abcde')");
        let joined: Result<String> = connection.query_row(&long, [], |row| row.get(0));
        let error = joined.unwrap_err().to_string();
        assert!(error.contains(&TextTooLong.to_string()), "{error}");
    }

    #[test]
    fn names_have_synonyms_and_no_case() {
        assert_eq!(find("POWER").unwrap().name, "pow");
        assert!(find("load_extension").is_none() && find("add").is_none());
        assert!(is_ours("farcore_add") && !is_ours("add") && !is_ours("farcore_x"));
    }
}
