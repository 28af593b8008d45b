//! What files become: columns, types, rows, and the errors of ordinary mistakes.

use serde_json::{Value, json};

use super::{Place, small};
use crate::data::catalog::Dataset;
use crate::data::import::{CsvOptions, Delimiter, Format, Header};

fn columns(dataset: &Dataset) -> Value {
    json!(dataset.columns)
}

#[test]
fn csv_files_have_types_and_names() {
    let place = Place::new(small());
    let text = "\u{feff}time,hit ratio,name,,name\r\n\
        1,0.5,\"a, \"\"b\"\"\nc\",007,x\r\n\
        -2,nan,,08,\r\n\
        ,3,=1+1,,y\r\n";
    let dataset = place.import(Format::Csv, text).unwrap();
    assert_eq!(
        columns(&dataset),
        json!([
            {"name": "time", "type": "integer"},
            {"name": "hit ratio", "type": "number"},
            {"name": "name", "type": "text"},
            {"name": "column_4", "type": "text"},
            {"name": "name_2", "type": "text"},
        ])
    );
    assert_eq!(
        (dataset.rows, &*dataset.by, &*dataset.format),
        (3, "ada", "csv")
    );
    let rows = json!([
        [1, 0.5, "a, \"b\"\nc", "007", "x"],
        [-2, null, null, "08", null],
        [null, 3.0, "=1+1", null, "y"],
    ]);
    assert_eq!(json!(place.rows(&dataset)), rows);
}

#[test]
fn headers_and_delimiters_are_found_or_given() {
    let place = Place::new(small());
    let names = |dataset: Dataset| {
        let names = dataset.columns.into_iter().map(|column| column.name);
        (names.collect::<Vec<_>>().join(" "), dataset.rows)
    };
    let import = |text: &str, header, delimiter| {
        let options = CsvOptions { header, delimiter };
        names(place.import_csv(Format::Csv, options, text).unwrap())
    };
    let auto = |text| import(text, Header::Auto, Delimiter::Auto);
    assert_eq!(auto("a;b\n1;2\n"), ("a b".to_owned(), 1));
    assert_eq!(auto("a\tb\tc,d\n1\t2\t3\n"), ("a b c,d".to_owned(), 1));
    assert_eq!(auto("1,2\n3,4\n"), ("column_1 column_2".to_owned(), 2));
    assert_eq!(auto("a,b"), ("a b".to_owned(), 0));
    let given = import("a,b\nc,d\n", Header::No, Delimiter::Semicolon);
    assert_eq!(given, ("column_1".to_owned(), 2));
    let given = import("1,2\n3,4\n", Header::Yes, Delimiter::Comma);
    assert_eq!(given, ("1 2".to_owned(), 1));
}

#[test]
fn json_arrays_and_lines_are_the_same() {
    let place = Place::new(small());
    let rows = [
        "{\"a\": 1, \"b\": \"x\"}",
        "{\"b\": null, \"c\": 2.5, \"a\": true}",
        "{\"c\": 3, \"d\": false, \"e\": \"é\", \"b\": 18446744073709551615}",
        "{}",
    ];
    let array = format!("\u{feff} [{}]\n", rows.join(" ,\n"));
    for text in [array, rows.join("\n"), rows.join("\r\n\r\n"), rows.concat()] {
        let dataset = place.import(Format::Json, text.clone()).unwrap();
        let types = dataset
            .columns
            .iter()
            .map(|column| json!([column.name, column.kind]));
        assert_eq!(
            Value::Array(types.collect()),
            json!([
                ["a", "integer"],
                ["b", "text"],
                ["c", "number"],
                ["d", "integer"],
                ["e", "text"]
            ]),
            "{text}"
        );
        let found = json!([
            [1, "x", null, null, null],
            [1, null, 2.5, null, null],
            [null, "1.8446744073709552e19", 3.0, 0, "é"],
            [null, null, null, null, null],
        ]);
        assert_eq!(json!(place.rows(&dataset)), found);
    }
}

#[test]
fn traces_become_messages_and_keep_their_text() {
    let place = Place::new(small());
    let text = "farcore-card-trace 1\n# a comment\n\
        token 0407000022000100 0006000000000000\n\
        0 relaxed 04070000 02000003 03000000\n125 read 04070000\n";
    let dataset = place.import(Format::Trace, text).unwrap();
    let rows = json!([
        [0, "relaxed", "04070000", "02000003", "03000000", null],
        [125, "read", "04070000", null, null, null],
    ]);
    assert_eq!(json!(place.rows(&dataset)), rows);
    let kept = std::fs::read_to_string(place.folder.trace(dataset.id)).unwrap();
    assert_eq!(kept, text);
    place
        .wait(place.datasets.remove(dataset.id, "ada".to_owned()))
        .unwrap();
    assert!(!place.folder.trace(dataset.id).exists() && place.is_empty());
    let error = place.import(Format::Trace, "farcore-card-trace 1\n5 grab 04000000\n");
    let error = error.unwrap_err();
    assert!(error.message().starts_with("line 2: `grab`"), "{error:?}");
}

#[test]
fn mistakes_are_named_by_place() {
    let place = Place::new(small());
    for (format, text, code, words) in [
        (
            Format::Csv,
            "a,b\n1,2\n\n3\n",
            "ragged_row",
            "line 4 has 1 fields, and the first has 2",
        ),
        (
            Format::Csv,
            "a,b\n1,2,3\n",
            "ragged_row",
            "line 2 has 3 fields",
        ),
        (Format::Csv, "", "broken_file", "empty"),
        (Format::Json, "", "broken_file", "empty"),
        (Format::Json, "[]", "broken_file", "no columns"),
        (
            Format::Json,
            "{\"a\": 1}\n{\"a\": [1]}",
            "broken_file",
            "row 2: invalid type: sequence",
        ),
        (
            Format::Json,
            "[{\"a\": {\"b\": 1}}]",
            "broken_file",
            "nested values are not imported",
        ),
        (Format::Json, "[1]", "broken_file", "row 1"),
        (Format::Json, "{\"a\": 1", "broken_file", "line 1 column 7"),
        (Format::Json, "[{\"a\": 1}", "broken_file", "row 2"),
        (Format::Json, "[{\"a\": 1}] x", "broken_file", "trailing"),
        (Format::Json, "{\"a\": NaN}", "broken_file", "row 1"),
        (
            Format::Json,
            "{\"a\": 1e999}",
            "broken_file",
            "number out of range",
        ),
        (
            Format::Parquet,
            "a,b\n1,2\n3,4\n",
            "broken_file",
            "no Parquet file",
        ),
        (Format::Parquet, "", "broken_file", "no Parquet file"),
    ] {
        let error = place.import(format, text).unwrap_err();
        assert_eq!(error.code(), code, "{text}: {error:?}");
        assert!(error.message().contains(words), "{text}: {error:?}");
        assert!(place.is_empty(), "{text}");
    }
}

/// Parquet files of other writers, all with the same 12 rows: pyarrow 2 pages and Zstandard,
/// fastparquet with gzip, DuckDB with Snappy. `n` is the number of a row.
#[test]
fn parquet_files_of_other_writers_are_read() {
    let place = Place::new(small());
    let text = |n: i64| {
        if n % 5 == 0 {
            json!(null)
        } else {
            json!(format!("é{}", n % 3))
        }
    };
    let number = |n: i64| {
        if n % 3 == 0 {
            json!(null)
        } else {
            json!(n as f64 / 4.0)
        }
    };
    let time = |n: i64| json!((1_577_836_800 + n) * 1_000_000);
    let column = |name: &str, n: i64| match name {
        "n" if n % 4 == 0 => json!(null),
        "n" => json!(n * 1_000_000_000_000),
        "u" => json!(n * 390_451_572),
        "x" => number(n),
        "b" => json!(i64::from(n % 2 == 0)),
        "t" => text(n),
        "day" => json!(18_262 + n),
        "at" => time(n),
        // DuckDB's decimals are those of x.
        "d" => json!((n - 6) as f64 / 100.0),
        other => panic!("{other}"),
    };
    let files: [(&str, &[u8], usize); 3] = [
        (
            "pyarrow",
            include_bytes!("../../../tests/files/pyarrow.parquet"),
            8,
        ),
        (
            "fastparquet",
            include_bytes!("../../../tests/files/fastparquet.parquet"),
            4,
        ),
        (
            "duckdb",
            include_bytes!("../../../tests/files/duckdb.parquet"),
            7,
        ),
    ];
    for (writer, bytes, count) in files {
        let dataset = place.import(Format::Parquet, bytes).unwrap();
        assert_eq!(
            (dataset.rows, dataset.columns.len()),
            (12, count),
            "{writer}"
        );
        for (n, row) in (0..).zip(place.rows(&dataset)) {
            for (found, named) in row.as_array().unwrap().iter().zip(&dataset.columns) {
                let expected = match (writer, named.name.as_str()) {
                    ("duckdb", "d") => number(n),
                    (_, name) => column(name, n),
                };
                assert_eq!(*found, expected, "{writer}, row {n}, {}", named.name);
            }
        }
    }
}
