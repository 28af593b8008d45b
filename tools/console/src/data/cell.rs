//! Values of datasets, their types, and how numbers are written.
//!
//! - I1: a number is finite. Infinities and NaN are read and computed as missing.
//! - I2: a text has no NUL.

use serde::{Deserialize, Serialize};

use crate::error::ApiResult;

/// What a column holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ColumnType {
    /// Whole numbers of 64 bits.
    Integer,
    /// Numbers with a fraction, as IEEE 754 doubles.
    Number,
    /// Text.
    Text,
}

impl ColumnType {
    /// The type's name in SQL.
    pub(super) fn sql(self) -> &'static str {
        match self {
            Self::Integer => "INTEGER",
            Self::Number => "REAL",
            Self::Text => "TEXT",
        }
    }

    /// The type for people, with its article.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Integer => "an integer",
            Self::Number => "a number",
            Self::Text => "a text",
        }
    }
}

/// A column of a dataset or result.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Column {
    /// The name, unique among the columns.
    pub(crate) name: String,
    /// What it holds.
    #[serde(rename = "type")]
    pub(crate) kind: ColumnType,
}

impl Column {
    /// A column.
    pub(crate) fn new(name: impl Into<String>, kind: ColumnType) -> Self {
        Self {
            name: name.into(),
            kind,
        }
    }
}

/// A value, borrowed from where it lies.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Cell<'a> {
    /// It is missing.
    Null,
    /// A whole number.
    Integer(i64),
    /// A finite number.
    Number(f64),
    /// A text.
    Text(&'a str),
}

impl Cell<'_> {
    /// A number, missing if it is not finite.
    pub(crate) fn number(value: f64) -> Self {
        if value.is_finite() {
            Self::Number(value)
        } else {
            Self::Null
        }
    }

    /// The size that counts against limits: 1 byte if missing, 8 for numbers, a text's length
    /// and 2.
    pub(super) fn bytes(self) -> u64 {
        match self {
            Self::Null => 1,
            Self::Integer(_) | Self::Number(_) => 8,
            Self::Text(text) => text.len() as u64 + 2,
        }
    }
}

/// Takes the rows of a file or result, one by one.
pub(crate) trait RowSink {
    /// Takes a row: one cell a column, of the column's type or missing.
    ///
    /// # Errors
    /// A limit is reached, the row cannot be stored, or the work shall stop.
    fn row(&mut self, row: &[Cell<'_>]) -> ApiResult<()>;
}

/// The shortest text that is read as the same number. Very large and small numbers have an
/// exponent.
pub(super) fn number_text(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 || (1e-5..1e16).contains(&size) {
        format!("{value}")
    } else {
        format!("{value:e}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_have_short_texts() {
        let written = [
            (0.0, "0"),
            (-2.5, "-2.5"),
            (1e15, "1000000000000000"),
            (1e16, "1e16"),
            (1e300, "1e300"),
            (1e-7, "1e-7"),
        ];
        for (value, text) in written {
            assert_eq!(number_text(value), text);
        }
    }

    proptest! {
        #[test]
        fn texts_of_numbers_are_read_back(value in proptest::num::f64::NORMAL) {
            let text = number_text(value);
            prop_assert_eq!(text.parse::<f64>().unwrap().to_bits(), value.to_bits());
        }
    }
}
