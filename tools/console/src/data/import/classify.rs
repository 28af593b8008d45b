//! What the text of a CSV cell is, and what type fits all cells of a column.
//!
//! - Empty cells are missing, in columns of every type.
//! - An integer has no leading zero and no plus sign, and fits 64 bits: `007` and handles of 8
//!   hexadecimal digits stay texts.
//! - A number is what JSON calls one. `NaN`, `inf` and `Infinity`, in any case and with a sign, are
//!   missing numbers in a column that has numbers, and texts elsewhere.

use crate::data::cell::{Cell, ColumnType};

/// What a cell's text is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(in crate::data) enum Class {
    /// Nothing.
    Empty,
    /// A whole number of 64 bits.
    Integer(i64),
    /// A finite number.
    Number(f64),
    /// A word for a number that is not finite.
    NotFinite,
    /// Anything else.
    Text,
}

/// The text of a number in JSON, whole or not.
fn is_number(text: &[u8]) -> bool {
    let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let text = text.strip_prefix(b"-").unwrap_or(text);
    let whole = digits(text);
    if whole == 0 || (whole > 1 && text[0] == b'0') {
        return false;
    }
    let mut rest = &text[whole..];
    if let Some(after) = rest.strip_prefix(b".") {
        let count = digits(after);
        if count == 0 {
            return false;
        }
        rest = &after[count..];
    }
    if let [b'e' | b'E', after @ ..] = rest {
        let after = match after {
            [b'+' | b'-', after @ ..] => after,
            _ => after,
        };
        let count = digits(after);
        if count == 0 {
            return false;
        }
        rest = &after[count..];
    }
    rest.is_empty()
}

fn is_not_finite(text: &str) -> bool {
    let word = text.strip_prefix(['-', '+']).unwrap_or(text);
    ["nan", "inf", "infinity"]
        .iter()
        .any(|known| word.eq_ignore_ascii_case(known))
}

/// Classifies a text. Spaces around a number do not count.
pub(in crate::data) fn classify(text: &str) -> Class {
    if text.is_empty() {
        return Class::Empty;
    }
    let text = text.trim_matches([' ', '\t']);
    if is_number(text.as_bytes()) {
        let is_whole = text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'-');
        if is_whole && text != "-0" {
            return text.parse().map_or(Class::Text, Class::Integer);
        }
        let value = text.parse::<f64>().unwrap_or(f64::INFINITY);
        return if value.is_finite() {
            Class::Number(value)
        } else {
            Class::Text
        };
    }
    if is_not_finite(text) {
        Class::NotFinite
    } else {
        Class::Text
    }
}

/// What was seen in a column.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Seen {
    integers: bool,
    numbers: bool,
    not_finite: bool,
    texts: bool,
}

impl Seen {
    /// Adds a cell.
    pub(super) fn add(&mut self, class: Class) {
        match class {
            Class::Empty => {}
            Class::Integer(_) => self.integers = true,
            Class::Number(_) => self.numbers = true,
            Class::NotFinite => self.not_finite = true,
            Class::Text => self.texts = true,
        }
    }

    /// The type that fits all cells.
    pub(super) fn kind(self) -> ColumnType {
        if self.texts {
            ColumnType::Text
        } else if self.numbers || (self.integers && self.not_finite) {
            ColumnType::Number
        } else if self.integers {
            ColumnType::Integer
        } else {
            ColumnType::Text
        }
    }
}

/// The cell of a text in a column of a type that fits it.
pub(super) fn cell(text: &str, kind: ColumnType) -> Cell<'_> {
    if kind == ColumnType::Text {
        return if text.is_empty() {
            Cell::Null
        } else {
            Cell::Text(text)
        };
    }
    match (classify(text), kind) {
        (Class::Integer(value), ColumnType::Integer) => Cell::Integer(value),
        (Class::Integer(value), _) => Cell::Number(value as f64),
        (Class::Number(value), ColumnType::Number) => Cell::Number(value),
        _ => Cell::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_classified() {
        for (text, class) in [
            ("", Class::Empty),
            ("0", Class::Integer(0)),
            (" -42\t", Class::Integer(-42)),
            ("9223372036854775807", Class::Integer(i64::MAX)),
            ("9223372036854775808", Class::Text),
            ("-0", Class::Number(-0.0)),
            ("0.5e-3", Class::Number(0.0005)),
            ("1E5", Class::Number(100_000.0)),
            ("1e999", Class::Text),
            ("007", Class::Text),
            ("04070000", Class::Text),
            ("1.", Class::Text),
            (".5", Class::Text),
            ("+1", Class::Text),
            ("1e", Class::Text),
            ("0x10", Class::Text),
            ("1 2", Class::Text),
            ("-", Class::Text),
            (" ", Class::Text),
            ("NaN", Class::NotFinite),
            ("-inf", Class::NotFinite),
            ("INFINITY", Class::NotFinite),
            ("infinite", Class::Text),
        ] {
            assert_eq!(classify(text), class, "{text:?}");
        }
    }

    fn kind(texts: &[&str]) -> ColumnType {
        let mut seen = Seen::default();
        texts.iter().for_each(|text| seen.add(classify(text)));
        seen.kind()
    }

    #[test]
    fn a_type_fits_all_cells() {
        assert_eq!(kind(&["1", "", "-2"]), ColumnType::Integer);
        assert_eq!(kind(&["1", "2.5"]), ColumnType::Number);
        assert_eq!(kind(&["1", "nan"]), ColumnType::Number);
        assert_eq!(kind(&["nan", "inf"]), ColumnType::Text);
        assert_eq!(kind(&["1", "x"]), ColumnType::Text);
        assert_eq!(kind(&["", ""]), ColumnType::Text);
        assert_eq!(cell("1", ColumnType::Number), Cell::Number(1.0));
        assert_eq!(cell("nan", ColumnType::Number), Cell::Null);
        assert_eq!(cell("nan", ColumnType::Text), Cell::Text("nan"));
        assert_eq!(cell("", ColumnType::Text), Cell::Null);
    }
}
