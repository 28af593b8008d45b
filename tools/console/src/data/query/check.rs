//! Which types the parts of an expression may have, and how they fit each other.
//!
//! - I1: an error names the place of the part that does not fit, what is needed, and what it is.

use sqlparser::ast::{BinaryOperator, Expr, Spanned};
use sqlparser::tokenizer::Location;

use super::function::{self, PREFIX, Rule};
use super::term::{INTEGER, Kind, NUMBER, Parts, TEXT, Term};

/// What is wrong with an expression, with the place.
pub(super) type Checked<T> = Result<T, String>;

/// What is wrong with a term of too many parts or levels.
const TOO_LONG: &str = "the expression is too long once the columns that it uses are put in: save an intermediate result as a dataset";

/// A place for people; empty if it is not known.
pub(super) fn place(at: Location) -> String {
    match (at.line, at.column) {
        (0, _) => String::new(),
        (1, column) => format!("column {column}: "),
        (line, column) => format!("line {line}, column {column}: "),
    }
}

/// The error of a part of an expression, with its place.
pub(super) fn wrong<T>(expression: &Expr, what: impl std::fmt::Display) -> Checked<T> {
    Err(format!("{}{what}", place(expression.span().start)))
}

/// The two sides of an operator.
pub(super) struct Operands<'a> {
    /// The operator.
    pub(super) operator: &'a BinaryOperator,
    /// Where each side stands, and what it is.
    pub(super) both: [(&'a Expr, &'a Term); 2],
}

impl Operands<'_> {
    /// Refuses sides of the wrong type.
    pub(super) fn need(&self, holds: fn(Kind) -> bool, what: &str) -> Checked<()> {
        let wrong_one = self.both.iter().find(|(_, term)| !holds(term.kind));
        wrong_one.map_or(Ok(()), |(place, term)| {
            let (operator, found) = (self.operator, term.kind.words());
            wrong(
                place,
                format!("`{operator}` needs {what}, and this is {found}"),
            )
        })
    }

    /// Integers by our function, which knows when they do not fit; other numbers by SQLite.
    pub(super) fn arithmetic(&self, sign: &str, name: &str) -> Checked<(String, Kind)> {
        self.need(Kind::is_numeric, "numbers")?;
        let [(_, one), (_, other)] = self.both;
        if one.kind.is_integer() && other.kind.is_integer() {
            let sql = format!("{PREFIX}{name}({}, {})", one.sql, other.sql);
            return Ok((sql, INTEGER));
        }
        let sql = format!("({} {sign} {})", one.as_number(), other.as_number());
        Ok((sql, NUMBER))
    }
}

/// A comparison of two terms.
pub(super) fn compared(left: &Expr, one: &Term, sign: &str, other: &Term) -> Checked<Term> {
    let fits = (one.kind.is_numeric() && other.kind.is_numeric())
        || (one.kind.is_text() && other.kind.is_text());
    if !fits {
        return wrong(
            left,
            format!(
                "{} cannot be compared with {}",
                one.kind.words(),
                other.kind.words()
            ),
        );
    }
    let sql = format!("({} {sign} {})", one.sql, other.sql);
    made(left, sql, Kind::Condition, &[one, other])
}

/// Checks the arguments of a function; returns what it gives.
pub(super) fn given(function: &function::Function, terms: &[(&Expr, Term)]) -> Checked<Kind> {
    let need = |(place, term): &(&Expr, Term), holds: bool, what: &str| {
        if holds {
            return Ok(());
        }
        wrong(
            place,
            format!(
                "`{}` needs {what} here, and this is {}",
                function.name,
                term.kind.words()
            ),
        )
    };
    for (at, argument) in terms.iter().enumerate() {
        let kind = argument.1.kind;
        match (function.rule, at) {
            (Rule::Numbers | Rule::Same, _) | (Rule::Round, 0) => {
                need(argument, kind.is_numeric(), "a number")?;
            }
            (Rule::Text(_) | Rule::Texts, _) | (Rule::Substr, 0) => {
                need(argument, kind.is_text(), "a text")?;
            }
            (Rule::Round | Rule::Substr, _) => need(argument, kind.is_integer(), "an integer")?,
            (Rule::Any(_), _) => need(argument, kind != Kind::Condition, "a value")?,
        }
    }
    Ok(match function.rule {
        Rule::Numbers | Rule::Round => NUMBER,
        Rule::Same => terms[0].1.kind,
        Rule::Text(kind) | Rule::Any(kind) => kind,
        Rule::Substr => TEXT,
        Rule::Texts => Kind::Condition,
    })
}

/// The kind that fits several results.
pub(super) fn common(results: &[(&Expr, Term)]) -> Checked<Kind> {
    let mut kind = Kind::Null;
    for (place, term) in results {
        kind = match (kind, term.kind) {
            (Kind::Null, other) | (other, Kind::Null) => other,
            (one, other) if one == other => one,
            (one, other) if one.is_numeric() && other.is_numeric() => NUMBER,
            (one, other) => {
                return wrong(
                    place,
                    format!(
                        "this is {}, and a value before it is {}",
                        other.words(),
                        one.words()
                    ),
                );
            }
        };
    }
    Ok(kind)
}

/// A term as a value of a kind that fits it.
pub(super) fn fitted(term: &Term, kind: Kind) -> String {
    if kind == NUMBER {
        term.as_number()
    } else {
        term.sql.clone()
    }
}

/// Counts a term that becomes part of an expression; refuses it if there are too many parts.
pub(super) fn counted(expression: &Expr, parts: &mut Parts, term: Term) -> Checked<Term> {
    if parts.add(&term) {
        Ok(term)
    } else {
        wrong(expression, TOO_LONG)
    }
}

/// A term of others, unless it becomes too long.
pub(super) fn made(expression: &Expr, sql: String, kind: Kind, inner: &[&Term]) -> Checked<Term> {
    match Term::of(sql, kind, inner) {
        Some(term) => Ok(term),
        None => wrong(expression, TOO_LONG),
    }
}
