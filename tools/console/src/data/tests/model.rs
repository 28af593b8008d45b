//! Queries against a plain evaluator of the same queries over rows in memory.

use std::cmp::Ordering;

use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::model_terms::Value::{Integer, Null, Number, Text};
use super::model_terms::{Gives, Term, Value, integers, numbers, order, terms, texts};
use super::{Place, query, small};
use crate::data::cell::{Cell, Column, ColumnType};

type Row = Vec<Value>;

/// The types of the six columns, in pairs.
const KINDS: [ColumnType; 3] = [ColumnType::Integer, ColumnType::Number, ColumnType::Text];

fn columns() -> Vec<Column> {
    (0..6)
        .map(|at| Column::new(format!("c{at}"), KINDS[at / 2]))
        .collect()
}

fn rows(most: usize) -> impl Strategy<Value = Vec<Row>> {
    let row = (
        integers(),
        integers(),
        numbers(),
        numbers(),
        texts(),
        texts(),
    );
    let row = row.prop_map(|(a, b, c, d, e, f)| vec![a, b, c, d, e, f]);
    proptest::collection::vec(row, 0..most)
}

fn cell(value: &Value) -> Cell<'_> {
    match value {
        Null => Cell::Null,
        Integer(value) => Cell::Integer(*value),
        Number(value) => Cell::number(*value),
        Text(text) => Cell::Text(text),
    }
}

/// A filter of the query, by column, operator and value.
type Filter = (usize, &'static str, Value);

/// A query of the model.
#[derive(Clone, Debug)]
struct Asked {
    /// The places of the columns that are compared, and whether unmatched rows stay.
    join: Option<(usize, usize, bool)>,
    derived: Vec<(Gives, Term)>,
    filters: Vec<Filter>,
    group: Vec<usize>,
    aggregates: Vec<(&'static str, usize)>,
    /// Places in the result, as far as it has them.
    order: Vec<(usize, bool)>,
    limit: usize,
    offset: usize,
}

fn asked() -> impl Strategy<Value = Asked> {
    let gives = prop_oneof![
        Just(Gives::Integer),
        Just(Gives::Number),
        Just(Gives::Text),
        Just(Gives::Truth)
    ];
    let derived = gives.prop_flat_map(|gives| (Just(gives), terms(gives, 3)));
    let join = prop_oneof![
        2 => Just(None),
        1 => (0..6_usize, 0..6_usize, any::<bool>()).prop_filter_map("types differ", |(a, b, left)| {
            ((a < 4) == (b < 4)).then_some(Some((a, b, left)))
        })
    ];
    let signs = || {
        prop_oneof![
            Just("="),
            Just("!="),
            Just("<"),
            Just(">="),
            Just("is_null"),
            Just("not_null")
        ]
    };
    let filter = prop_oneof![
        (0..4_usize, signs(), prop_oneof![integers(), numbers()]),
        (4..6_usize, prop_oneof![signs(), Just("contains")], texts()),
    ];
    let functions = prop_oneof![
        Just("count"),
        Just("sum"),
        Just("mean"),
        Just("minimum"),
        Just("maximum"),
        Just("p50"),
        Just("p99"),
        Just("stddev")
    ];
    let grouped = prop_oneof![
        Just((vec![], vec![])),
        (
            proptest::sample::subsequence(vec![0_usize, 1, 2, 4], 0..3),
            proptest::collection::vec((functions, 0..6_usize), 1..4),
        ),
        (
            proptest::sample::subsequence(vec![1_usize, 3, 5], 1..3),
            Just(vec![])
        ),
    ];
    (
        join,
        proptest::collection::vec(derived, 0..3),
        proptest::collection::vec(filter, 0..3),
        grouped,
        proptest::collection::vec((0..6_usize, any::<bool>()), 0..3),
        (0..20_usize, 0..4_usize),
    )
        .prop_map(
            |(join, derived, filters, (group, aggregates), order, (limit, offset))| Asked {
                join,
                derived,
                filters,
                group,
                aggregates,
                order,
                limit,
                offset,
            },
        )
}

impl Asked {
    fn is_grouped(&self) -> bool {
        !self.group.is_empty() || !self.fitting().is_empty()
    }

    /// Aggregates that fit their columns.
    fn fitting(&self) -> Vec<(&'static str, usize)> {
        let fits = |&&(function, column): &&(&str, usize)| {
            column < 4 || matches!(function, "count" | "minimum" | "maximum")
        };
        self.aggregates.iter().filter(fits).copied().collect()
    }

    /// The names of the result's columns.
    fn names(&self) -> Vec<String> {
        if self.is_grouped() {
            let group = self.group.iter().map(|at| format!("c{at}"));
            let aggregates = self.fitting().into_iter().enumerate();
            let aggregates = aggregates.map(|(at, (function, _))| format!("{function} {at}"));
            return group.chain(aggregates).collect();
        }
        let mut names: Vec<_> = (0..6).map(|at| format!("c{at}")).collect();
        if self.join.is_some() {
            names.extend((0..6).map(|at| format!("joined.c{at}")));
        }
        names.extend((0..self.derived.len()).map(|at| format!("derived {at}")));
        names
    }

    fn order(&self) -> Vec<(usize, bool)> {
        let count = self.names().len();
        self.order
            .iter()
            .filter(|(at, _)| *at < count)
            .copied()
            .collect()
    }

    fn json(&self, left: i64, right: i64) -> Json {
        let names: Vec<_> = (0..6).map(|at| format!("c{at}")).collect();
        let derive = self.derived.iter().enumerate();
        let derive = derive.map(|(at, (_, term))| {
            json!({"name": format!("derived {at}"), "expression": term.text(&names)})
        });
        let filter = self.filters.iter().map(|(column, operator, value)| {
            let value = match value {
                Null => json!(0),
                Integer(value) => json!(value),
                Number(value) => json!(value),
                Text(text) => json!(text),
            };
            let value = if *column >= 4 && value == json!(0) {
                json!("")
            } else {
                value
            };
            json!({"column": format!("c{column}"), "operator": operator, "value": value})
        });
        let aggregates = self.fitting().into_iter().enumerate();
        let aggregates = aggregates.map(|(at, (function, column))| {
            json!({"function": function, "column": format!("c{column}"), "name": format!("{function} {at}")})
        });
        let results = self.names();
        let order = self.order();
        let order = order
            .iter()
            .map(|(at, descending)| json!({"column": results[*at], "descending": descending}));
        let mut value = json!({
            "source": left,
            "derive": derive.collect::<Vec<_>>(),
            "filter": filter.collect::<Vec<_>>(),
            "group": self.group.iter().map(|at| format!("c{at}")).collect::<Vec<_>>(),
            "aggregates": aggregates.collect::<Vec<_>>(),
            "order": order.collect::<Vec<_>>(),
            "limit": self.limit,
            "offset": self.offset,
        });
        if let Some((one, other, is_left)) = self.join {
            value["join"] = json!({
                "dataset": right,
                "left": format!("c{one}"),
                "right": format!("c{other}"),
                "kind": if is_left { "left" } else { "inner" },
            });
        }
        value
    }

    fn joined(&self, left: &[Row], right: &[Row]) -> Vec<Row> {
        let Some((one, other, is_left)) = self.join else {
            return left.to_vec();
        };
        let mut joined = Vec::new();
        for row in left {
            let mut found = false;
            for partner in right {
                let is_there = !matches!(row[one], Null);
                if is_there && order(&row[one], &partner[other]).is_eq() {
                    found = true;
                    joined.push(row.iter().chain(partner).cloned().collect());
                }
            }
            if !found && is_left {
                let missing = vec![Null; 6];
                joined.push(row.iter().cloned().chain(missing).collect());
            }
        }
        joined
    }

    fn passes(&self, row: &Row) -> bool {
        self.filters.iter().all(|(column, operator, value)| {
            let value = match value {
                Null if *column >= 4 => Text(String::new()),
                Null => Integer(0),
                value => value.clone(),
            };
            let found = &row[*column];
            let order = order(found, &value);
            match (*operator, found) {
                ("is_null", found) => matches!(found, Null),
                (_, Null) => false,
                ("not_null", _) => true,
                ("=", _) => order == Ordering::Equal,
                ("!=", _) => order != Ordering::Equal,
                ("<", _) => order == Ordering::Less,
                (">=", _) => order != Ordering::Less,
                (_, Text(found)) => matches!(&value, Text(part) if found.contains(part)),
                _ => unreachable!("contains is for texts"),
            }
        })
    }

    fn groups(&self, rows: Vec<Row>) -> Vec<Row> {
        let key = |row: &Row| {
            self.group
                .iter()
                .map(|&at| row[at].clone())
                .collect::<Row>()
        };
        let same = |one: &Row, other: &Row| {
            one.iter()
                .zip(other)
                .all(|(one, other)| order(one, other).is_eq())
        };
        let mut groups: Vec<(Row, Vec<Row>)> = Vec::new();
        if self.group.is_empty() {
            groups.push((Vec::new(), Vec::new()));
        }
        for row in rows {
            let key = key(&row);
            match groups.iter_mut().find(|(known, _)| same(known, &key)) {
                Some((_, rows)) => rows.push(row),
                None => groups.push((key, vec![row])),
            }
        }
        let figures = groups.into_iter().map(|(key, rows)| {
            let figures = self.fitting().into_iter().map(|(function, column)| {
                let values = rows.iter().map(|row| row[column].clone());
                figure(
                    function,
                    values.filter(|value| !matches!(value, Null)).collect(),
                )
            });
            key.into_iter().chain(figures).collect()
        });
        figures.collect()
    }

    fn answer(&self, left: &[Row], right: &[Row]) -> (Vec<Row>, bool) {
        let mut rows = self.joined(left, right);
        for row in &mut rows {
            let derived = self.derived.iter().map(|(_, term)| match term.value(row) {
                Number(value) if !value.is_finite() => Null,
                value => value,
            });
            let derived: Vec<_> = derived.collect();
            row.extend(derived);
        }
        rows.retain(|row| self.passes(row));
        let mut ties: Vec<(usize, bool)> = self.order();
        if self.is_grouped() {
            rows = self.groups(rows);
            ties.extend((0..self.group.len()).map(|at| (at, false)));
        }
        // The sort is stable, so that rows without groups keep their order.
        rows.sort_by(|one, other| {
            let orders = ties.iter().map(|&(at, descending)| {
                let order = order(&one[at], &other[at]);
                if descending { order.reverse() } else { order }
            });
            orders.fold(Ordering::Equal, Ordering::then)
        });
        let rest = rows.len().saturating_sub(self.offset);
        let page = rows.into_iter().skip(self.offset).take(self.limit);
        (page.collect(), rest > self.limit)
    }
}

fn figure(function: &str, values: Vec<Value>) -> Value {
    let numbers: Vec<f64> = values
        .iter()
        .filter_map(|value| match value {
            Integer(value) => Some(*value as f64),
            Number(value) => Some(*value),
            _ => None,
        })
        .collect();
    let count = numbers.len() as f64;
    let finite = |value: f64| {
        if value.is_finite() {
            Number(value)
        } else {
            Null
        }
    };
    let sorted = || {
        let mut sorted = numbers.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    };
    let quantile = |share: f64| {
        let sorted = sorted();
        let place = share * (count - 1.0);
        let mut downwards = sorted.iter().enumerate().rev();
        let below = downwards.find(|(at, _)| *at as f64 <= place + 1e-9);
        let (at, &low) = below.unwrap();
        let high = *sorted.get(at + 1).unwrap_or(&low);
        finite(low + (high - low) * (place - at as f64))
    };
    match function {
        "count" => Integer(i64::try_from(values.len()).unwrap()),
        "minimum" => values.into_iter().min_by(order).unwrap_or(Null),
        "maximum" => values.into_iter().max_by(order).unwrap_or(Null),
        _ if numbers.is_empty() => Null,
        "sum" if matches!(values[0], Integer(_)) => {
            let sum: i128 = values
                .iter()
                .map(|value| match value {
                    Integer(value) => i128::from(*value),
                    _ => 0,
                })
                .sum();
            i64::try_from(sum).map_or(Null, Integer)
        }
        "sum" => finite(sorted().iter().sum()),
        "mean" => finite(sorted().iter().sum::<f64>() / count),
        "p50" => quantile(0.5),
        "p99" => quantile(0.99),
        _ if numbers.len() < 2 => Null,
        _ => {
            let mean = sorted().iter().sum::<f64>() / count;
            let squares = numbers
                .iter()
                .map(|value| (value - mean).powi(2))
                .sum::<f64>();
            finite((squares / (count - 1.0)).sqrt())
        }
    }
}

/// Numbers are equal up to rounding, in proportion to the largest that went into them.
fn is_same(found: &Json, expected: &Value, scale: f64) -> bool {
    match expected {
        Null => found.is_null(),
        Integer(value) => found.as_i64() == Some(*value),
        Text(text) => found.as_str() == Some(text),
        Number(value) => found.as_f64().is_some_and(|found| {
            found == *value || (found - value).abs() <= 1e-9 * scale.max(value.abs())
        }),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn queries_give_what_the_model_gives(left in rows(12), right in rows(6), asked in asked()) {
        use std::sync::{LazyLock, Mutex};
        static PLACE: LazyLock<Mutex<Place>> = LazyLock::new(|| Mutex::new(Place::new(small())));
        let place = PLACE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let dataset = |rows: &[Row]| {
            let cells = rows.iter().map(|row| row.iter().map(cell).collect());
            place.dataset(&columns(), cells).id
        };
        let (one, other) = (dataset(&left), dataset(&right));
        let value = asked.json(one, other);
        let answer = place.answer(query(value.clone())).map_err(|error| {
            TestCaseError::fail(format!("{error:?} {value:#}"))
        })?;
        let (expected, has_more) = asked.answer(&left, &right);
        let all = left.iter().chain(&right).flatten();
        // Figures of groups round; a sum that cancels can be off by the parts of its addends.
        let scale = if asked.aggregates.is_empty() { 0.0 } else {
            all.fold(0.0_f64, |most, value| match value {
                Number(value) => most.max(value.abs()),
                Integer(value) => most.max((*value as f64).abs()),
                _ => most,
            })
        };
        let found = answer["rows"].as_array().unwrap();
        let names = answer["columns"].as_array().unwrap().iter();
        let names: Vec<_> = names.map(|column| column["name"].as_str().unwrap()).collect();
        prop_assert_eq!(&names, &asked.names());
        prop_assert_eq!(found.len(), expected.len(), "{:#} {}", value, answer);
        prop_assert_eq!(&answer["more"], &json!(has_more));
        for (found, expected) in found.iter().zip(&expected) {
            for (found, expected) in found.as_array().unwrap().iter().zip(expected) {
                prop_assert!(
                    is_same(found, expected, scale),
                    "{} instead of {:?} in {:#} {}", found, expected, value, answer
                );
            }
        }
        for id in [one, other] {
            place.wait(place.datasets.remove(id, "ada".to_owned())).unwrap();
        }
    }
}
