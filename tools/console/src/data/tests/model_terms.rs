//! Expressions as a tree that a plain evaluator computes, and that is written as text.

use std::cmp::Ordering;

use proptest::prelude::*;

/// A value.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Null,
    Integer(i64),
    Number(f64),
    Text(String),
}

use self::Value::{Integer, Null, Number, Text};

/// Compares an integer with a number without rounding either.
fn compare_mixed(integer: i64, number: f64) -> Ordering {
    if number >= 9.3e18 {
        return Ordering::Less;
    }
    if number < -9.3e18 {
        return Ordering::Greater;
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "an i128 holds what is left"
    )]
    let whole = number.floor() as i128;
    match i128::from(integer).cmp(&whole) {
        Ordering::Equal if number > number.floor() => Ordering::Less,
        other => other,
    }
}

/// The order of values: missing ones, numbers, texts.
pub(super) fn order(one: &Value, other: &Value) -> Ordering {
    match (one, other) {
        (Null, Null) => Ordering::Equal,
        (Null, _) => Ordering::Less,
        (_, Null) => Ordering::Greater,
        (Integer(one), Integer(other)) => one.cmp(other),
        (Number(one), Number(other)) => one.partial_cmp(other).unwrap(),
        (Integer(one), Number(other)) => compare_mixed(*one, *other),
        (Number(one), Integer(other)) => compare_mixed(*other, *one).reverse(),
        (Text(one), Text(other)) => one.cmp(other),
        (Text(_), _) => Ordering::Greater,
        (_, Text(_)) => Ordering::Less,
    }
}

/// An expression of a known type.
#[derive(Clone, Debug)]
pub(super) enum Term {
    Column(usize),
    Value(Value),
    /// Of integers.
    Whole(char, Box<Term>, Box<Term>),
    /// Of numbers.
    Real(char, Box<Term>, Box<Term>),
    Negative(Box<Term>),
    Joined(Box<Term>, Box<Term>),
    Call(&'static str, Vec<Term>),
    Coalesce(Box<Term>, Box<Term>),
    Case(Box<Term>, Box<Term>, Box<Term>),
    Compared(&'static str, Box<Term>, Box<Term>),
    Both(Box<Term>, Box<Term>),
    Either(Box<Term>, Box<Term>),
    Not(Box<Term>),
    IsNull(Box<Term>),
    Between(Box<Term>, Box<Term>, Box<Term>),
    In(Box<Term>, Vec<Term>),
}

fn boxed(term: Term) -> Box<Term> {
    Box::new(term)
}

impl Term {
    /// The text, for columns of these names.
    pub(super) fn text(&self, names: &[String]) -> String {
        let of = |term: &Self| term.text(names);
        match self {
            Self::Column(place) => names[*place].clone(),
            Self::Value(Null) => "NULL".to_owned(),
            Self::Value(Integer(value)) if *value < 0 => format!("({value})"),
            Self::Value(Integer(value)) => value.to_string(),
            Self::Value(Number(value)) if *value < 0.0 => format!("({value:?})"),
            Self::Value(Number(value)) => format!("{value:?}"),
            Self::Value(Text(text)) => format!("'{}'", text.replace('\'', "''")),
            Self::Whole(sign, one, other) | Self::Real(sign, one, other) => {
                format!("({} {sign} {})", of(one), of(other))
            }
            Self::Negative(one) => format!("(- {})", of(one)),
            Self::Joined(one, other) => format!("({} || {})", of(one), of(other)),
            Self::Call(name, arguments) => {
                let list: Vec<_> = arguments.iter().map(of).collect();
                format!("{name}({})", list.join(", "))
            }
            Self::Coalesce(one, other) => format!("coalesce({}, {})", of(one), of(other)),
            Self::Case(test, one, other) => {
                format!(
                    "CASE WHEN {} THEN {} ELSE {} END",
                    of(test),
                    of(one),
                    of(other)
                )
            }
            Self::Compared(sign, one, other) => format!("({} {sign} {})", of(one), of(other)),
            Self::Both(one, other) => format!("({} AND {})", of(one), of(other)),
            Self::Either(one, other) => format!("({} OR {})", of(one), of(other)),
            Self::Not(one) => format!("(NOT {})", of(one)),
            Self::IsNull(one) => format!("({} IS NULL)", of(one)),
            Self::Between(one, low, high) => {
                format!("({} BETWEEN {} AND {})", of(one), of(low), of(high))
            }
            Self::In(one, list) => {
                let list: Vec<_> = list.iter().map(of).collect();
                format!("({} IN ({}))", of(one), list.join(", "))
            }
        }
    }

    fn truth(&self, row: &[Value]) -> Option<bool> {
        match self.value(row) {
            Integer(value) => Some(value != 0),
            _ => None,
        }
    }

    fn compared(sign: &str, one: &Value, other: &Value) -> Option<bool> {
        if matches!(one, Null) || matches!(other, Null) {
            return None;
        }
        let order = order(one, other);
        Some(match sign {
            "=" => order.is_eq(),
            "<>" => order.is_ne(),
            "<" => order.is_lt(),
            "<=" => order.is_le(),
            ">" => order.is_gt(),
            _ => order.is_ge(),
        })
    }

    /// The value for a row.
    pub(super) fn value(&self, row: &[Value]) -> Value {
        let truth = |truth: Option<bool>| truth.map_or(Null, |truth| Integer(truth.into()));
        match self {
            Self::Column(place) => row[*place].clone(),
            Self::Value(value) => value.clone(),
            Self::Whole(sign, one, other) => whole(*sign, &one.value(row), &other.value(row)),
            Self::Real(sign, one, other) => real(*sign, &one.value(row), &other.value(row)),
            Self::Negative(one) => match one.value(row) {
                Integer(value) => value.checked_neg().map_or(Null, Integer),
                Number(value) => Number(-value),
                _ => Null,
            },
            Self::Joined(one, other) => match (one.value(row), other.value(row)) {
                (Text(one), Text(other)) => Text(one + &other),
                _ => Null,
            },
            Self::Call(name, arguments) => {
                let values: Vec<_> = arguments.iter().map(|term| term.value(row)).collect();
                call(name, &values)
            }
            Self::Coalesce(one, other) => match one.value(row) {
                Null => other.value(row),
                value => value,
            },
            Self::Case(test, one, other) => match test.truth(row) {
                Some(true) => one.value(row),
                _ => other.value(row),
            },
            Self::Compared(sign, one, other) => {
                truth(Self::compared(sign, &one.value(row), &other.value(row)))
            }
            Self::Both(one, other) => truth(both(one.truth(row), other.truth(row))),
            Self::Either(one, other) => {
                let (one, other) = (one.truth(row), other.truth(row));
                truth(both(one.map(|one| !one), other.map(|other| !other)).map(|all| !all))
            }
            Self::Not(one) => truth(one.truth(row).map(|one| !one)),
            Self::IsNull(one) => truth(Some(matches!(one.value(row), Null))),
            Self::Between(one, low, high) => {
                let one = one.value(row);
                let low = Self::compared(">=", &one, &low.value(row));
                truth(both(low, Self::compared("<=", &one, &high.value(row))))
            }
            Self::In(one, list) => {
                let one = one.value(row);
                let found = list
                    .iter()
                    .map(|other| Self::compared("=", &one, &other.value(row)));
                let found: Vec<_> = found.collect();
                truth(if found.contains(&Some(true)) {
                    Some(true)
                } else if found.contains(&None) {
                    None
                } else {
                    Some(false)
                })
            }
        }
    }
}

/// `AND` of three-valued logic.
fn both(one: Option<bool>, other: Option<bool>) -> Option<bool> {
    match (one, other) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    }
}

fn whole(sign: char, one: &Value, other: &Value) -> Value {
    let (Integer(one), Integer(other)) = (one, other) else {
        return Null;
    };
    let (one, other) = (i128::from(*one), i128::from(*other));
    let value = match sign {
        '+' => Some(one + other),
        '-' => Some(one - other),
        '*' => Some(one * other),
        _ if other == 0 => None,
        // The one quotient that does not fit has a remainder that does; it counts as missing.
        _ if one == i128::from(i64::MIN) && other == -1 => None,
        _ => Some(one % other),
    };
    value
        .and_then(|value| i64::try_from(value).ok())
        .map_or(Null, Integer)
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Integer(value) => Some(*value as f64),
        Number(value) => Some(*value),
        _ => None,
    }
}

fn real(sign: char, one: &Value, other: &Value) -> Value {
    let (Some(one), Some(other)) = (number(one), number(other)) else {
        return Null;
    };
    let value = match sign {
        '+' => one + other,
        '-' => one - other,
        '*' => one * other,
        _ if other == 0.0 => return Null,
        _ => one / other,
    };
    if value.is_nan() { Null } else { Number(value) }
}

fn call(name: &str, values: &[Value]) -> Value {
    match (name, values) {
        ("abs", [Integer(value)]) => value.checked_abs().map_or(Null, Integer),
        ("length", [Text(text)]) => Integer(i64::try_from(text.chars().count()).unwrap()),
        ("upper", [Text(text)]) => Text(text.to_uppercase()),
        ("substr", [Text(text), Integer(from)]) => {
            let skipped = usize::try_from((from - 1).max(0)).unwrap();
            Text(text.chars().skip(skipped).collect())
        }
        ("text", [Integer(value)]) => Text(value.to_string()),
        ("contains", [Text(text), Text(part)]) => Integer(text.contains(part.as_str()).into()),
        ("sqrt" | "floor" | "abs", [value]) => {
            let Some(value) = number(value) else {
                return Null;
            };
            let value = match name {
                "sqrt" => value.sqrt(),
                "floor" => value.floor(),
                _ => value.abs(),
            };
            if value.is_finite() {
                Number(value)
            } else {
                Null
            }
        }
        _ => Null,
    }
}

/// What a term gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Gives {
    Integer,
    Number,
    Text,
    Truth,
}

pub(super) fn integers() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => (-5_i64..6).prop_map(Integer),
        1 => prop_oneof![Just(i64::MAX), Just(i64::MIN + 1), Just(1 << 53)].prop_map(Integer),
        1 => Just(Null)
    ]
}

pub(super) fn numbers() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => (-8_i32..9).prop_map(|value| Number(f64::from(value) / 4.0 + 0.0)),
        1 => prop_oneof![Just(1e300), Just(-2.5e-9), Just(9007199254740993.0)].prop_map(Number),
        1 => Just(Null)
    ]
}

pub(super) fn texts() -> impl Strategy<Value = Value> {
    prop_oneof![4 => "[abé' ]{0,3}".prop_map(Text), 1 => Just(Null)]
}

/// Terms of a type over columns: two of integers, two of numbers, two of texts.
pub(super) fn terms(gives: Gives, depth: u32) -> BoxedStrategy<Term> {
    let leaf = |columns: std::ops::Range<usize>, values: BoxedStrategy<Value>| prop_oneof![3 => columns.prop_map(Term::Column), 1 => values.prop_map(Term::Value)];
    let inner = |gives| terms(gives, depth.saturating_sub(1)).prop_map(boxed);
    if gives == Gives::Truth {
        return truths(depth);
    }
    if depth == 0 {
        return match gives {
            Gives::Integer => leaf(0..2, integers().boxed()).boxed(),
            Gives::Number => leaf(2..4, numbers().boxed()).boxed(),
            _ => leaf(4..6, texts().boxed()).boxed(),
        };
    }
    let same = prop_oneof![
        (inner(gives), inner(gives)).prop_map(|(one, other)| Term::Coalesce(one, other)),
    ];
    match gives {
        Gives::Integer => {
            let signs = prop_oneof![Just('+'), Just('-'), Just('*'), Just('%')];
            prop_oneof![
                same,
                (signs, inner(gives), inner(gives)).prop_map(|(s, a, b)| Term::Whole(s, a, b)),
                inner(gives).prop_map(Term::Negative),
                inner(gives).prop_map(|one| Term::Call("abs", vec![*one])),
                inner(Gives::Text).prop_map(|one| Term::Call("length", vec![*one])),
                cases(gives, depth),
            ]
            .boxed()
        }
        Gives::Number => {
            let signs = prop_oneof![Just('+'), Just('-'), Just('*'), Just('/')];
            let either = prop_oneof![inner(gives), inner(Gives::Integer)];
            let names = prop_oneof![Just("sqrt"), Just("floor"), Just("abs")];
            prop_oneof![
                same,
                (signs, inner(gives), either).prop_map(|(s, a, b)| Term::Real(s, a, b)),
                inner(gives).prop_map(Term::Negative),
                (names, inner(gives)).prop_map(|(name, one)| Term::Call(name, vec![*one])),
                cases(gives, depth),
            ]
            .boxed()
        }
        Gives::Text | Gives::Truth => prop_oneof![
            same,
            (inner(gives), inner(gives)).prop_map(|(one, other)| Term::Joined(one, other)),
            inner(gives).prop_map(|one| Term::Call("upper", vec![*one])),
            (inner(gives), 1_i64..4).prop_map(|(one, from)| {
                Term::Call("substr", vec![*one, Term::Value(Integer(from))])
            }),
            inner(Gives::Integer).prop_map(|one| Term::Call("text", vec![*one])),
            cases(gives, depth),
        ]
        .boxed(),
    }
}

fn cases(gives: Gives, depth: u32) -> impl Strategy<Value = Term> {
    let below = depth.saturating_sub(1);
    let parts = (
        terms(Gives::Truth, below),
        terms(gives, below),
        terms(gives, below),
    );
    parts.prop_map(|(test, one, other)| Term::Case(boxed(test), boxed(one), boxed(other)))
}

fn truths(depth: u32) -> BoxedStrategy<Term> {
    let below = depth.saturating_sub(1);
    let value = move |gives| terms(gives, below).prop_map(boxed);
    let signs = || {
        prop_oneof![
            Just("="),
            Just("<>"),
            Just("<"),
            Just("<="),
            Just(">"),
            Just(">=")
        ]
    };
    let mixed = || prop_oneof![value(Gives::Integer), value(Gives::Number)];
    let simple = prop_oneof![
        (signs(), mixed(), mixed()).prop_map(|(s, a, b)| Term::Compared(s, a, b)),
        (signs(), value(Gives::Text), value(Gives::Text))
            .prop_map(|(s, a, b)| Term::Compared(s, a, b)),
        mixed().prop_map(Term::IsNull),
        (mixed(), mixed(), mixed()).prop_map(|(a, b, c)| Term::Between(a, b, c)),
        (
            mixed(),
            proptest::collection::vec(terms(Gives::Integer, below), 1..3)
        )
            .prop_map(|(one, list)| Term::In(one, list)),
        (value(Gives::Text), value(Gives::Text))
            .prop_map(|(one, other)| Term::Call("contains", vec![*one, *other])),
    ];
    if depth == 0 {
        return simple.boxed();
    }
    let inner = move || truths(below).prop_map(boxed);
    prop_oneof![
        3 => simple,
        1 => (inner(), inner()).prop_map(|(one, other)| Term::Both(one, other)),
        1 => (inner(), inner()).prop_map(|(one, other)| Term::Either(one, other)),
        1 => inner().prop_map(Term::Not),
    ]
    .boxed()
}
