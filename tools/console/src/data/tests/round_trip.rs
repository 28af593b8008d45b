//! A dataset that is exported and imported again is the same.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Place, small};
use crate::data::cell::{Cell, Column, ColumnType};
use crate::data::export::ExportFormat;
use crate::data::import::{CsvOptions, Delimiter, Format, Header};
use crate::data::query::Query;

/// An owned cell.
#[derive(Clone, Debug)]
enum Owned {
    Null,
    Integer(i64),
    Number(f64),
    Text(String),
}

impl Owned {
    fn cell(&self) -> Cell<'_> {
        match self {
            Self::Null => Cell::Null,
            Self::Integer(value) => Cell::Integer(*value),
            Self::Number(value) => Cell::Number(*value),
            Self::Text(text) => Cell::Text(text),
        }
    }
}

fn owned(kind: ColumnType) -> BoxedStrategy<Owned> {
    let null = Just(Owned::Null);
    match kind {
        ColumnType::Integer => prop_oneof![null, any::<i64>().prop_map(Owned::Integer)].boxed(),
        ColumnType::Number => {
            let numbers = prop_oneof![proptest::num::f64::NORMAL, -9.0..9.0];
            prop_oneof![null, numbers.prop_map(Owned::Number)].boxed()
        }
        ColumnType::Text => {
            let texts = prop_oneof![
                "[a-z\"',;=\\n\\r\\t +@-]{1,8}",
                "\\PC{1,12}",
                "[0-9.e-]{1,6}",
                Just("NaN".to_owned()),
            ];
            prop_oneof![null, texts.prop_map(Owned::Text)].boxed()
        }
    }
}

fn tables() -> impl Strategy<Value = (Vec<Column>, Vec<Vec<Owned>>)> {
    let kinds = prop_oneof![
        Just(ColumnType::Integer),
        Just(ColumnType::Number),
        Just(ColumnType::Text)
    ];
    proptest::collection::vec(kinds, 1..6).prop_flat_map(|kinds| {
        let columns = kinds.iter().enumerate();
        let columns = columns.map(|(at, &kind)| Column::new(format!("c \"{at}\", x"), kind));
        let columns: Vec<_> = columns.collect();
        let row: Vec<_> = kinds.into_iter().map(owned).collect();
        (Just(columns), proptest::collection::vec(row, 0..30))
    })
}

/// The rows as CSV gives them back: formulas have an apostrophe, and texts of numbers are numbers.
fn is_same(format: ExportFormat, before: &Value, after: &Value) -> bool {
    if format != ExportFormat::Csv {
        return before == after;
    }
    match (before, after) {
        (Value::String(before), Value::String(after)) => {
            before == after || after.strip_prefix('\'') == Some(before)
        }
        (Value::Number(before), Value::Number(after)) => before.as_f64() == after.as_f64(),
        (Value::String(before), Value::Number(after)) => {
            before.trim().parse::<f64>().ok() == after.as_f64()
        }
        (Value::String(before), Value::Null) => before.eq_ignore_ascii_case("nan"),
        (before, after) => before == after,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn what_is_exported_is_imported((columns, rows) in tables()) {
        let place = Place::new(small());
        let cells = rows.iter().map(|row| row.iter().map(Owned::cell).collect());
        let dataset = place.dataset(&columns, cells);
        let before = place.rows(&dataset);
        prop_assert_eq!(before.len(), rows.len());
        for (format, read_as) in [
            (ExportFormat::Csv, Format::Csv),
            (ExportFormat::Json, Format::Json),
            (ExportFormat::Parquet, Format::Parquet),
        ] {
            let file = place.export(Query::of(dataset.id), format).unwrap();
            if rows.is_empty() && format == ExportFormat::Json {
                prop_assert_eq!(&file, b"[\n]\n");
                continue;
            }
            let options = CsvOptions { header: Header::Yes, delimiter: Delimiter::Comma };
            let again = place.import_csv(read_as, options, file).unwrap();
            let names = again.columns.iter().map(|column| &column.name);
            prop_assert!(names.eq(columns.iter().map(|column| &column.name)));
            if format == ExportFormat::Parquet {
                prop_assert_eq!(&again.columns, &columns);
            }
            let after = place.rows(&again);
            // A record of one empty field is an empty line, which CSV skips.
            let skipped = |row: &&Value| **row == json!([null]) && format == ExportFormat::Csv;
            let before: Vec<_> = before.iter().filter(|row| !skipped(row)).collect();
            let after: Vec<_> = after.iter().filter(|row| !skipped(row)).collect();
            prop_assert_eq!(before.len(), after.len());
            for (before, after) in before.iter().zip(&after) {
                let both = before.as_array().unwrap().iter().zip(after.as_array().unwrap());
                for (before, after) in both {
                    prop_assert!(is_same(format, before, after), "{:?}: {before} {after}", format);
                }
            }
        }
    }
}

#[test]
fn many_rows_pass_through_groups_and_batches() {
    let place = Place::new(super::DataLimits {
        rows: 300_000,
        ..small()
    });
    let columns = [
        Column::new("n", ColumnType::Integer),
        Column::new("text", ColumnType::Text),
    ];
    let texts: Vec<_> = (0..250_000)
        .map(|n| (n % 3 != 0).then(|| format!("text {}", n % 1_000)))
        .collect();
    let rows = texts.iter().zip(0..).map(|(text, n)| {
        vec![
            Cell::Integer(n),
            text.as_deref().map_or(Cell::Null, Cell::Text),
        ]
    });
    let dataset = place.dataset(&columns, rows);
    let sums = |id: i64| {
        let query = json!({"source": id, "aggregates": [
            {"function": "count", "name": "rows"},
            {"function": "sum", "column": "n", "name": "sum"},
            {"function": "count", "column": "text", "name": "texts"},
            {"function": "maximum", "column": "text", "name": "last"},
        ]});
        place.answer(super::query(query)).unwrap()["rows"].clone()
    };
    let expected = json!([[250_000, 31_249_875_000_i64, 166_666, "text 999"]]);
    assert_eq!(sums(dataset.id), expected);
    for (format, read_as) in [
        (ExportFormat::Csv, Format::Csv),
        (ExportFormat::Json, Format::Json),
        (ExportFormat::Parquet, Format::Parquet),
    ] {
        let file = place.export(Query::of(dataset.id), format).unwrap();
        let again = place.import(read_as, file).unwrap();
        assert_eq!(sums(again.id), expected, "{format:?}");
    }
}

#[test]
fn formulas_are_harmless_in_csv_alone() {
    let place = Place::new(small());
    let columns = [
        Column::new("=cmd", ColumnType::Text),
        Column::new("n", ColumnType::Integer),
    ];
    let row = vec![Cell::Text("@SUM(1,2)"), Cell::Integer(-5)];
    let dataset = place.dataset(&columns, [row]);
    let file = |format| {
        let bytes = place.export(Query::of(dataset.id), format).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    assert_eq!(file(ExportFormat::Csv), "'=cmd,n\n\"'@SUM(1,2)\",-5\n");
    assert_eq!(
        file(ExportFormat::Json),
        "[\n{\"=cmd\":\"@SUM(1,2)\",\"n\":-5}\n]\n"
    );
}
