//! Pieces of SQL with types, and the values that are bound to them.
//!
//! - I1: the text of a term is written by this program alone: places of columns, operators,
//!   registered functions, and `?N` for values.
//! - I2: a term has at most [`PARTS_MAX`] parts and [`DEPTH_MAX`] levels, also after terms of other
//!   columns were put in.

use rusqlite::types::Value;

use crate::data::cell::ColumnType;

/// Most parts of a term. Terms of columns that build on each other can double with each column.
const PARTS_MAX: usize = 4_096;
/// Most levels of a term. SQLite allows 1000.
const DEPTH_MAX: usize = 400;

/// What a term is, while it is checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A value of a column's type.
    Of(ColumnType),
    /// True, false or missing.
    Condition,
    /// The missing value, which fits every type.
    Null,
}

impl Kind {
    /// The kind for people, with its article.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Of(kind) => kind.words(),
            Self::Condition => "a condition",
            Self::Null => "null",
        }
    }

    /// Whether it can be computed with.
    pub(super) fn is_numeric(self) -> bool {
        matches!(
            self,
            Self::Of(ColumnType::Integer | ColumnType::Number) | Self::Null
        )
    }

    /// Whether it is text or missing.
    pub(super) fn is_text(self) -> bool {
        matches!(self, Self::Of(ColumnType::Text) | Self::Null)
    }

    /// Whether it is an integer or missing.
    pub(super) fn is_integer(self) -> bool {
        matches!(self, Self::Of(ColumnType::Integer) | Self::Null)
    }

    /// Whether it is a condition or missing.
    pub(super) fn is_condition(self) -> bool {
        matches!(self, Self::Condition | Self::Null)
    }
}

/// The kind of an integer.
pub(super) const INTEGER: Kind = Kind::Of(ColumnType::Integer);
/// The kind of a number with a fraction.
pub(super) const NUMBER: Kind = Kind::Of(ColumnType::Number);
/// The kind of a text.
pub(super) const TEXT: Kind = Kind::Of(ColumnType::Text);

/// A piece of SQL.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Term {
    /// The text, in parentheses if it needs them.
    pub(super) sql: String,
    /// What it is.
    pub(super) kind: Kind,
    parts: usize,
    depth: usize,
}

impl Term {
    /// A column, a bound value or a constant.
    pub(super) fn leaf(sql: impl Into<String>, kind: Kind) -> Self {
        Self {
            sql: sql.into(),
            kind,
            parts: 1,
            depth: 1,
        }
    }

    /// A term that is made of others; `None` if it has too many parts or levels.
    pub(super) fn of(sql: String, kind: Kind, inner: &[&Self]) -> Option<Self> {
        let parts = 1 + inner.iter().map(|term| term.parts).sum::<usize>();
        let depth = 1 + inner.iter().map(|term| term.depth).max().unwrap_or(0);
        (parts <= PARTS_MAX && depth <= DEPTH_MAX).then_some(Self {
            sql,
            kind,
            parts,
            depth,
        })
    }

    /// The term as a number, if it is an integer.
    pub(super) fn as_number(&self) -> String {
        match self.kind {
            Kind::Of(ColumnType::Integer) => format!("CAST({} AS REAL)", self.sql),
            _ => self.sql.clone(),
        }
    }
}

/// Counts the parts of terms that shall become one, as they come: many long ones are refused before
/// their texts are held together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Parts(usize);

impl Parts {
    /// Adds a term; false if the terms have too many parts together.
    pub(super) fn add(&mut self, term: &Term) -> bool {
        self.0 += term.parts;
        self.0 < PARTS_MAX
    }
}

/// The values of a statement.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Bound {
    values: Vec<Value>,
}

impl Bound {
    /// Binds a value; returns its place in SQL.
    pub(super) fn add(&mut self, value: impl Into<Value>) -> String {
        self.values.push(value.into());
        format!("?{}", self.values.len())
    }

    /// The values, in order.
    pub(super) fn into_values(self) -> Vec<Value> {
        self.values
    }
}
