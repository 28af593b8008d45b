//! What is left when work does not end as it should, and the limits on all datasets.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use axum::body::Body;
use futures_lite::{StreamExt, stream};
use serde_json::json;

use super::{Place, query, small};
use crate::data::answer::Answer;
use crate::data::cell::{Cell, Column, ColumnType, RowSink};
use crate::data::export::ExportFormat;
use crate::data::import::{CsvOptions, Format};
use crate::data::limits::DataLimits;
use crate::data::query::{Query, Runner, Source, Time, Window, compile};
use crate::data::service::ImportRequest;
use crate::data::stop::Stop;

/// Names the folder in which the killed process works.
const FOLDER: &str = "FARCORE_TEST_KILLED_FOLDER";

fn request() -> ImportRequest {
    ImportRequest {
        name: "data".to_owned(),
        format: Format::Csv,
        csv: CsvOptions::default(),
    }
}

fn column() -> [Column; 1] {
    [Column::new("n", ColumnType::Integer)]
}

/// Work of the process that is killed. It does nothing when it runs as a test.
#[test]
fn killed_process() {
    let Ok(folder) = std::env::var(FOLDER) else {
        return;
    };
    use std::sync::Arc;
    let folder = Arc::new(crate::store::Folder::open(Path::new(&folder)).unwrap());
    let console =
        crate::store::Database::open(&folder.console_database(), crate::store::CONSOLE).unwrap();
    let data = crate::store::Database::open(&folder.data_database(), crate::store::DATA).unwrap();
    let datasets = crate::data::Datasets::open(console, data, Arc::clone(&folder), small());
    let mut writer = datasets
        .unwrap()
        .table(&column(), &Stop::default())
        .unwrap();
    for n in 0..25_000 {
        writer.row(&[Cell::Integer(n)]).unwrap();
    }
    std::fs::write(folder.trace(1), "half a trace").unwrap();
    std::fs::write(folder.uploads().join("half"), "half a file").unwrap();
    std::process::abort();
}

#[test]
fn a_killed_import_leaves_nothing_after_the_next_start() {
    let place = Place::new(small());
    let kept = place.dataset(&column(), [vec![Cell::Integer(7)]]);
    let folder = place.temporary.path().join("killed");
    let program = std::env::current_exe().unwrap();
    let name = "data::tests::lifecycle::killed_process";
    let status = Command::new(program)
        .args(["--exact", name, "--test-threads=1"])
        .env(FOLDER, &folder)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status()
        .unwrap();
    assert!(!status.success());
    let left = rusqlite::Connection::open(folder.join("data.db")).unwrap();
    let count = "SELECT count(*) FROM d_1";
    let count: i64 = left.query_row(count, [], |row| row.get(0)).unwrap();
    assert_eq!(count, 20_000, "whole batches were written");
    drop(left);
    std::fs::rename(&folder, place.temporary.path().join("other")).unwrap();
    let other = tempfile::tempdir_in(place.temporary.path()).unwrap();
    std::fs::rename(
        place.temporary.path().join("other"),
        other.path().join("console"),
    )
    .unwrap();
    let started = Place::open(other, small());
    assert!(started.is_empty());
    assert!(!started.folder.trace(1).exists());
    // A dataset that is complete stays, and numbers are not used again.
    let place = place.restart();
    assert_eq!(place.rows(&kept), [json!([7])]);
    assert!(place.dataset(&column(), []).id > kept.id);
}

#[test]
fn a_body_that_breaks_off_leaves_nothing() {
    let place = Place::new(small());
    let pieces = [Ok("a\n1\n"), Err(std::io::Error::other("gone"))];
    let body = Body::from_stream(stream::iter(pieces));
    let import = place.datasets.import(request(), "ada".to_owned(), body);
    let error = place.wait(import).unwrap_err();
    assert_eq!(error.code(), "malformed");
    assert!(place.is_empty());
}

#[test]
fn a_client_that_goes_leaves_nothing() {
    let place = Place::new(small());
    let begun = stream::iter([Ok::<_, std::io::Error>("a\n1\n")]);
    let body = Body::from_stream(begun.chain(stream::pending()));
    let import = place.datasets.import(request(), "ada".to_owned(), body);
    place.wait(async {
        let given_up = tokio::time::timeout(Duration::from_millis(50), import);
        given_up.await.unwrap_err()
    });
    assert!(place.is_empty());
}

#[test]
fn work_that_shall_stop_drops_its_table() {
    let place = Place::new(small());
    let stop = Stop::default();
    let mut writer = place.datasets.table(&column(), &stop).unwrap();
    assert_eq!(place.tables(), ["d_1"]);
    drop(stop.guard());
    let row = [Cell::Integer(1)];
    let error = (0..2_000).find_map(|_| writer.row(&row).err()).unwrap();
    assert_eq!(error.code(), "stopped");
    drop(writer);
    assert!(place.is_empty());
}

/// A dataset whose join with itself is endless.
fn wide(place: &Place) -> i64 {
    let rows = (0..20_000).map(|_| vec![Cell::Integer(1)]);
    place.dataset(&column(), rows).id
}

fn endless(id: i64) -> Query {
    query(json!({
        "source": id,
        "join": {"dataset": id, "left": "n", "right": "n", "kind": "inner"},
        "aggregates": [{"function": "count", "name": "rows"}],
    }))
}

#[test]
fn a_query_ends_when_its_time_is_over() {
    let place = Place::new(DataLimits {
        query_time: Duration::from_millis(20),
        save_time: Duration::from_millis(20),
        ..small()
    });
    let id = wide(&place);
    let error = place.answer(endless(id)).unwrap_err();
    assert_eq!(error.code(), "query_too_slow");
    let saved = place.datasets.save("x", endless(id), "ada".to_owned());
    assert_eq!(place.wait(saved).unwrap_err().code(), "query_too_slow");
    let exported = place.export(endless(id), ExportFormat::Csv);
    assert_eq!(exported.unwrap_err().code(), "query_too_slow");
    assert_eq!(place.tables(), ["d_1"], "a save that failed left its table");
}

#[test]
fn a_query_ends_when_its_client_goes() {
    let place = Place::new(DataLimits {
        query_time: Duration::from_secs(3_600),
        ..small()
    });
    let id = wide(&place);
    place.wait(async {
        // More than run at a time: the last would wait for ever if the others did not end.
        for _ in 0..4 {
            let asked = place.datasets.answer(endless(id));
            tokio::time::timeout(Duration::from_millis(20), asked)
                .await
                .unwrap_err();
        }
        let short = place.datasets.answer(Query::of(id));
        short.await.unwrap();
    });
    let stop = Stop::default();
    stop.set();
    let source = Source {
        id,
        columns: column().to_vec(),
    };
    let plan = compile(&endless(id), &source, Some(&source), Window::All).unwrap();
    let runner = Runner::new(place.folder.data_database(), place.limits);
    let mut answer = Answer::new(1, 1);
    let run = runner.run(&plan, Time::Show, &stop, &mut answer);
    let error = run.unwrap_err();
    assert_eq!(error.code(), "stopped");
}

#[test]
fn imports_at_a_time_do_not_disturb_each_other() {
    let place = Place::new(small());
    let text = |first: i64| {
        let lines = (first..first + 30_000).map(|n| format!("{n}\n"));
        Body::from(format!("n\n{}", lines.collect::<String>()))
    };
    let import = |first| {
        place
            .datasets
            .import(request(), "ada".to_owned(), text(first))
    };
    let made = place.wait(async {
        let (one, other, third, fourth) =
            tokio::join!(import(0), import(100_000), import(200_000), import(300_000));
        [one, other, third, fourth].map(Result::unwrap)
    });
    for (dataset, first) in made.iter().zip((0..).step_by(100_000)) {
        let figures = query(json!({"source": dataset.id, "aggregates": [
            {"function": "count", "name": "count"},
            {"function": "minimum", "column": "n", "name": "first"},
            {"function": "maximum", "column": "n", "name": "last"},
        ]}));
        let rows = place.answer(figures).unwrap()["rows"].clone();
        assert_eq!(rows, json!([[30_000, first, first + 29_999]]));
    }
    assert_eq!(place.tables().len(), 4);
}

#[test]
fn all_datasets_together_have_limits() {
    let place = Place::new(DataLimits {
        datasets: 2,
        total_bytes: 1_000,
        ..small()
    });
    place.import(Format::Csv, "a\n1\n").unwrap();
    let error = place
        .import(Format::Csv, "a\n1\n".to_owned() + &"1\n".repeat(200))
        .unwrap_err();
    assert_eq!(error.code(), "datasets_too_large");
    assert_eq!(place.tables(), ["d_1"]);
    let second = place.import(Format::Csv, "a\n1\n").unwrap();
    let error = place.import(Format::Csv, "a\n1\n").unwrap_err();
    assert_eq!(error.code(), "too_many_datasets");
    let saved = place
        .datasets
        .save("x", Query::of(second.id), "ada".to_owned());
    assert_eq!(place.wait(saved).unwrap_err().code(), "too_many_datasets");
    place
        .wait(place.datasets.remove(second.id, "ada".to_owned()))
        .unwrap();
    place.import(Format::Csv, "a\n1\n").unwrap();
}

#[test]
fn exports_and_answers_have_limits() {
    let place = Place::new(DataLimits {
        export_bytes: 2_000,
        answer_bytes: 300,
        answer_rows: 1_000,
        ..small()
    });
    let rows = (0..5_000).map(|n| vec![Cell::Integer(n)]);
    let id = place.dataset(&column(), rows).id;
    for format in [ExportFormat::Csv, ExportFormat::Json, ExportFormat::Parquet] {
        let error = place.export(Query::of(id), format).unwrap_err();
        assert_eq!(error.code(), "export_too_large", "{format:?}");
    }
    assert_eq!(
        std::fs::read_dir(place.folder.uploads()).unwrap().count(),
        0
    );
    // Pages that are cut by their size go on where they ended.
    let mut seen = Vec::new();
    loop {
        let page = query(json!({"source": id, "limit": 500, "offset": seen.len()}));
        let answer = place.answer(page).unwrap();
        assert!(answer.to_string().len() < 500);
        seen.extend(
            answer["rows"]
                .as_array()
                .unwrap()
                .iter()
                .map(|row| row[0].as_i64().unwrap()),
        );
        if answer["more"] == json!(false) {
            break;
        }
    }
    assert!(seen.into_iter().eq(0..5_000));
}

#[test]
fn datasets_that_are_gone_are_named() {
    let place = Place::new(small());
    let error = place.answer(Query::of(5)).unwrap_err();
    assert_eq!(error.code(), "not_found");
    assert!(error.message().contains("dataset 5"), "{error:?}");
    let removed = place.datasets.remove(5, "ada".to_owned());
    assert_eq!(place.wait(removed).unwrap_err().code(), "not_found");
}

#[test]
fn figures_become_a_dataset() {
    let place = Place::new(small());
    let columns = ["at_ns", "hit_ratio"].map(str::to_owned).to_vec();
    let rows = vec![vec![0.0, 0.5], vec![1e6, f64::NAN]];
    let saved = place
        .datasets
        .save_figures("run 1", "ada".to_owned(), columns, rows);
    let dataset = place.wait(saved).unwrap();
    assert_eq!(dataset.format, "run");
    let kinds: Vec<_> = dataset.columns.iter().map(|column| column.kind).collect();
    assert_eq!(kinds, [ColumnType::Integer, ColumnType::Number]);
    assert_eq!(
        place.rows(&dataset),
        [json!([0, 0.5]), json!([1_000_000, null])]
    );
}

#[test]
fn one_row_fills_no_memory() {
    let place = Place::new(DataLimits {
        cell_bytes: 100,
        answer_bytes: 300,
        ..small()
    });
    let columns = ["a", "b", "c", "d"].map(|name| Column::new(name, ColumnType::Text));
    let text = "x".repeat(80);
    let id = place.dataset(&columns, [vec![Cell::Text(&text); 4]]).id;
    let error = place.answer(Query::of(id)).unwrap_err();
    assert_eq!(error.code(), "row_too_long");
    assert!(error.message().contains("more than 300 bytes"), "{error:?}");
    let few = query(json!({"source": id, "group": ["a", "b", "c"]}));
    assert_eq!(
        place.answer(few).unwrap()["rows"],
        json!([[text, text, text]])
    );
    // A text that is longer than a cell is refused for every sink, and before a row has many.
    for expression in ["a || b", "CASE WHEN length(a || b) > 0 THEN '' END"] {
        let long = json!({"source": id, "group": ["d"], "aggregates": [
            {"function": "minimum", "column": "long", "name": "long"},
        ], "derive": [{"name": "long", "expression": expression}]});
        let asked = place.answer(query(long.clone())).unwrap_err();
        assert_eq!(asked.code(), "text_too_long", "{expression}");
        for format in [ExportFormat::Csv, ExportFormat::Json, ExportFormat::Parquet] {
            let error = place.export(query(long.clone()), format).unwrap_err();
            assert_eq!(error.code(), "text_too_long", "{expression}");
        }
    }
    // Letters of two bytes whose capitals have six.
    let row = [Cell::Text(
        "\u{390}\u{390}\u{390}\u{390}\u{390}\u{390}\u{390}\u{390}\u{390}\u{390}",
    )];
    let id = place
        .dataset(&columns[..1], (0..1).map(|_| row.to_vec()))
        .id;
    let upper = |times| {
        let expression = format!("upper({})", vec!["a"; times].join(" || "));
        let derive = json!([{"name": "u", "expression": expression}]);
        place.answer(query(json!({"source": id, "derive": derive})))
    };
    assert!(upper(1).is_ok());
    assert_eq!(upper(2).unwrap_err().code(), "text_too_long");
}
