//! Files that are broken on purpose: no panic, no abort, no memory beyond limits, nothing left.

use std::io::Write;

use proptest::prelude::*;
use serde_json::json;

use super::parquet_bytes::Thrift::{Bytes, Int, Lying, Struct};
use super::parquet_bytes::{FileBytes, PageBytes, plain, whole};
use super::{Place, small};
use crate::data::cell::{Cell, Column, ColumnType, RowSink};
use crate::data::export::ExportFormat;
use crate::data::import::{self, CsvOptions, Format, Input};
use crate::data::limits::DataLimits;
use crate::data::query::Query;
use crate::data::stop::Stop;
use crate::error::{ApiError, ApiResult};

/// Keeps rows as JSON.
#[derive(Debug, Default)]
struct Kept(Vec<Vec<serde_json::Value>>);

impl RowSink for Kept {
    fn row(&mut self, row: &[Cell<'_>]) -> ApiResult<()> {
        let cells = row.iter().map(|cell| match *cell {
            Cell::Null => json!(null),
            Cell::Integer(value) => json!(value),
            Cell::Number(value) => json!(value),
            Cell::Text(text) => json!(text),
        });
        self.0.push(cells.collect());
        Ok(())
    }
}

fn read_within(format: Format, bytes: &[u8], limits: DataLimits) -> ApiResult<Kept> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    let input = Input {
        file: &file,
        format,
        csv: CsvOptions::default(),
        limits,
        stop: &Stop::default(),
    };
    import::read(&input, |_| Ok(Kept::default()))
}

fn read(format: Format, bytes: &[u8]) -> ApiResult<Kept> {
    read_within(format, bytes, small())
}

fn parquet_error(file: &FileBytes) -> ApiError {
    read(Format::Parquet, &file.bytes()).unwrap_err()
}

/// A Parquet file as the library writes it, with every type and missing values.
fn written() -> Vec<u8> {
    let place = Place::new(small());
    let columns = [
        Column::new("n", ColumnType::Integer),
        Column::new("x", ColumnType::Number),
        Column::new("t", ColumnType::Text),
    ];
    let texts: Vec<_> = (0..500).map(|n| format!("text {}", n % 20)).collect();
    let rows = texts.iter().zip(0_i64..).map(|(text, n)| {
        vec![
            if n % 7 == 0 {
                Cell::Null
            } else {
                Cell::Integer(n)
            },
            Cell::Number(n as f64 / 3.0),
            if n % 5 == 0 {
                Cell::Null
            } else {
                Cell::Text(text)
            },
        ]
    });
    let dataset = place.dataset(&columns, rows);
    place
        .export(Query::of(dataset.id), ExportFormat::Parquet)
        .unwrap()
}

#[test]
fn a_parquet_file_made_by_hand_is_read_with_every_codec() {
    let content = plain(0..100);
    let page = PageBytes::plain(content.clone(), 100);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(&content).unwrap();
    let packed = [
        (0, content.clone()),
        (1, snap::raw::Encoder::new().compress_vec(&content).unwrap()),
        (2, gzip.finish().unwrap()),
        (6, zstd::stream::encode_all(&content[..], 3).unwrap()),
        (7, lz4_flex::block::compress(&content)),
    ];
    for (codec, packed) in packed {
        let file = FileBytes {
            codec,
            ..FileBytes::integers(page.clone().packed(packed).bytes(), 100)
        };
        let rows = read(Format::Parquet, &file.bytes()).unwrap().0;
        let expected: Vec<_> = (0..100).map(|n| vec![json!(n)]).collect();
        assert_eq!(rows, expected, "codec {codec}");
    }
}

#[test]
fn parquet_files_that_are_cut_off_are_errors() {
    let file = written();
    assert_eq!(read(Format::Parquet, &file).unwrap().0.len(), 500);
    for length in (0..file.len()).step_by(3) {
        let error = read(Format::Parquet, &file[..length]).unwrap_err();
        assert_eq!(error.code(), "broken_file", "{length}");
        // The metadata is whole, but pages are missing before it.
        let cut = [&file[..4], &file[4 + length.min(file.len() - 12)..]].concat();
        let _ = read(Format::Parquet, &cut);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn changed_parquet_files_never_end_the_process(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        at_end in any::<bool>(),
    ) {
        use std::sync::OnceLock;
        static FILE: OnceLock<Vec<u8>> = OnceLock::new();
        let mut file = FILE.get_or_init(written).clone();
        let length = file.len();
        for (at, byte) in changes {
            // The metadata is a small part, and the one that is worth most changes.
            let place = if at_end { length - 1 - at.index(600) } else { at.index(length) };
            file[place] = byte;
        }
        let _ = read(Format::Parquet, &file);
    }
}

/// The first byte chooses the format; to Parquet it is given with and without what frames metadata.
#[test]
fn any_bytes_are_imported_or_refused() {
    let formats = [Format::Csv, Format::Json, Format::Trace, Format::Parquet];
    let good = good().bytes();
    let metadata = good[good.len().saturating_sub(300)..good.len() - 8].to_vec();
    let seed = |format: u8, bytes: &[u8]| [&[format], bytes].concat();
    farcore_fuzz::Target::new("import")
        .seed(seed(0, b"a,b\n1,\"x\"\"y\"\n-2.5,\n"))
        .seed(seed(1, br#"[{"a": 1, "b": "x"}, {"a": null, "b": 2.5e9}]"#))
        .seed(seed(1, b"{\"a\":1}\n{\"a\":2}\n"))
        .seed(seed(2, b"0,key,3,100,2,get,0\n1,other,5,7,2,set,60\n"))
        .seed(seed(3, &good))
        .seed(seed(4, &metadata))
        .words(&[
            "\"", ",", "\r\n", "{", "}", "[", "null", "\\u", "1e999", "PAR1",
        ])
        .longest(900)
        .rounds(1500)
        // Rows of a JSON file are kept as JSON.
        .memory(8 << 20, 1024)
        .run(|bytes| {
            let Some((&format, bytes)) = bytes.split_first() else {
                return;
            };
            if let Some(&format) = formats.get(usize::from(format % 5)) {
                let _ = read(format, bytes);
                return;
            }
            let length = u32::try_from(bytes.len()).unwrap().to_le_bytes();
            let _ = read(
                Format::Parquet,
                &[b"PAR1", bytes, &length, b"PAR1"].concat(),
            );
        });
}

/// A number that fills 31 bits.
const HUGE: i64 = i32::MAX as i64;

/// A file of ten rows that is good.
fn good() -> FileBytes {
    FileBytes::integers(PageBytes::plain(plain(0..10), 10).bytes(), 10)
}

#[test]
fn lists_that_lie_about_their_length_are_refused() {
    let good = good();
    assert_eq!(read(Format::Parquet, &good.bytes()).unwrap().0.len(), 10);
    let lists = |schema, groups| {
        let metadata = Struct(vec![(1, Int(1)), (2, schema), (3, Int(10)), (4, groups)]);
        whole(&good.pages, &metadata)
    };
    let group = || Lying(1, vec![good.group()]);
    for (file, words) in [
        (lists(Lying(1 << 31, vec![]), group()), "too early"),
        (lists(good.schema(), Lying(1 << 62, vec![])), "too early"),
        (lists(Lying(0, vec![]), group()), "no columns"),
    ] {
        let error = read(Format::Parquet, &file).unwrap_err();
        assert!(error.message().contains(words), "{error:?}");
    }
    let mut file = good.bytes();
    let at = file.len() - 8;
    file[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    let error = read(Format::Parquet, &file).unwrap_err();
    assert!(error.message().contains("4294967295 bytes"), "{error:?}");
}

#[test]
fn metadata_that_lies_is_refused() {
    type Change = fn(&mut FileBytes);
    let changes: [(Change, &str); 13] = [
        (|file| file.children = HUGE, "contradicts"),
        (|file| file.children = 0, "contradicts"),
        (|file| file.repetition = 2, "nested"),
        (|file| file.physical = 42, "not known"),
        (|file| file.codec = 4, "Brotli"),
        (|file| file.shift = HUGE, "cut off"),
        (|file| file.shift = i64::MAX - 4, "cut off"),
        (|file| file.shift = -4, "cut off"),
        (|file| file.shift = -HUGE, "negative"),
        (|file| file.extra_length = HUGE, "cut off"),
        (|file| file.rows = 11, "says"),
        (|file| file.rows = 9, "9 rows left"),
        (|file| file.rows = HUGE, "more than 100000 rows"),
    ];
    for (place, (change, words)) in changes.into_iter().enumerate() {
        let mut file = good();
        change(&mut file);
        let error = parquet_error(&file);
        assert!(error.message().contains(words), "{place}: {error:?}");
    }
    let empty = FileBytes {
        rows: 0,
        shift: -4,
        ..good()
    };
    assert!(read(Format::Parquet, &empty.bytes()).unwrap().0.is_empty());
    let nested = FileBytes {
        more_schema: vec![Struct(vec![
            (4, Bytes(b"deep".to_vec())),
            (5, Int(1)),
            (1, Int(2)),
        ])],
        children: 2,
        ..good()
    };
    let error = parquet_error(&nested);
    assert!(error.message().contains("nested"), "{error:?}");
}

#[test]
fn many_columns_are_refused_before_they_are_read() {
    let good = FileBytes::integers(Vec::new(), 0);
    let column = Struct(vec![(1, Int(2)), (3, Int(0)), (4, Bytes(b"n".to_vec()))]);
    let file = FileBytes {
        children: 1_000_000,
        more_schema: vec![column; 999_999],
        ..good
    };
    let error = parquet_error(&file);
    assert!(
        error.message().contains("most 8 MiB") || error.code() == "too_many_columns",
        "{error:?}"
    );
    let file = FileBytes {
        children: 41,
        more_schema: file.more_schema[..40].to_vec(),
        ..file
    };
    let error = parquet_error(&file);
    assert_eq!(error.code(), "too_many_columns");
    assert!(error.message().contains("at most 40"), "{error:?}");
}

/// A file of ten rows in pages.
fn of_pages(codec: i64, pages: &[&PageBytes]) -> FileBytes {
    let bytes = pages.iter().flat_map(|page| page.bytes()).collect();
    FileBytes {
        codec,
        ..FileBytes::integers(bytes, 10)
    }
}

#[test]
fn empty_pages_are_counted_and_not_unpacked() {
    // A zero is the header of an empty page.
    let error = parquet_error(&FileBytes::integers(vec![0; 300_000], 10));
    assert!(error.message().contains("16777216 bytes"), "{error:?}");
    let good = PageBytes::plain(plain(0..10), 10);
    for kind in [0, 1, 3] {
        let empty = PageBytes {
            kind,
            values: 0,
            unpacked: 1 << 20,
            content: b"this is no gzip".to_vec(),
            ..good.clone()
        };
        let packed = good.clone().packed(gzip(&good.content));
        let file = of_pages(2, &[&empty, &packed]);
        let rows = read(Format::Parquet, &file.bytes()).unwrap().0;
        assert_eq!(rows.len(), 10, "kind {kind}");
        let long = PageBytes {
            unpacked: HUGE,
            ..empty
        };
        let error = parquet_error(&of_pages(2, &[&long, &packed]));
        assert!(error.message().contains("a page claims"), "{error:?}");
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap()
}

/// 32 MiB of zeros in some kilobytes.
fn bomb() -> Vec<u8> {
    gzip(&vec![0; 32 << 20])
}

#[test]
fn pages_that_lie_are_refused() {
    type Change = fn(&mut PageBytes);
    let changes: [(Change, &str); 8] = [
        (|page| page.unpacked = HUGE, "bytes once unpacked"),
        (|page| page.unpacked = 79, "two lengths"),
        (|page| page.values = HUGE, "10 rows left"),
        (|page| page.encoding = 8, "dictionary that is not there"),
        (|page| page.encoding = 7, "DELTA_BYTE_ARRAY"),
        (|page| page.encoding = 6, "DELTA_LENGTH_BYTE_ARRAY"),
        (|page| page.kind = 9, "kind"),
        (
            |page| *page = PageBytes::plain(plain(0..9), 10),
            "column `n`",
        ),
    ];
    let good = PageBytes::plain(plain(0..10), 10);
    for (place, (change, words)) in changes.into_iter().enumerate() {
        let mut page = good.clone();
        change(&mut page);
        let error = parquet_error(&of_pages(0, &[&page]));
        assert!(error.message().contains(words), "{place}: {error:?}");
    }
    let few = PageBytes {
        kind: 2,
        ..good.clone()
    };
    let many = PageBytes {
        values: HUGE,
        ..few.clone()
    };
    for (file, words) in [
        (of_pages(0, &[&many, &good]), "more entries"),
        (of_pages(0, &[&few, &few, &good]), "two dictionaries"),
        (FileBytes::integers(vec![0xff; 40], 10), "header"),
    ] {
        let error = parquet_error(&file);
        assert!(error.message().contains(words), "{error:?}");
    }
}

#[test]
fn pages_that_burst_are_refused() {
    let zeros = vec![0; 32 << 20];
    let page = PageBytes::plain(plain(0..10), 10);
    let zstd = zstd::stream::encode_all(&zeros[..], 19).unwrap();
    let snappy = snap::raw::Encoder::new().compress_vec(&zeros).unwrap();
    for (codec, packed, words) in [
        (2, bomb(), "does not unpack"),
        (6, zstd, "does not unpack"),
        (1, snappy, "does not unpack"),
        (7, vec![0xff; 100], "cannot be unpacked"),
    ] {
        let error = parquet_error(&of_pages(codec, &[&page.clone().packed(packed)]));
        assert!(error.message().contains(words), "codec {codec}: {error:?}");
    }
    // The page keeps its promise, but it is more than a dataset may have.
    let honest = PageBytes {
        unpacked: 32 << 20,
        ..page
    };
    let error = parquet_error(&of_pages(2, &[&honest.packed(bomb())]));
    assert!(error.message().contains("16777216 bytes"), "{error:?}");
}

#[test]
fn texts_that_are_none_are_refused() {
    let text = |bytes: &[u8]| {
        let mut content = u32::try_from(bytes.len()).unwrap().to_le_bytes().to_vec();
        content.extend_from_slice(bytes);
        FileBytes {
            physical: 6,
            ..FileBytes::integers(PageBytes::plain(content, 1).bytes(), 1)
        }
        .bytes()
    };
    let place = Place::new(small());
    for (format, bytes, words) in [
        (Format::Parquet, text(b"\xff\xfe"), "no UTF-8"),
        (Format::Parquet, text(b"a\0b"), "NUL"),
        (Format::Parquet, text(&[b'x'; 2_001]), "at most 2000"),
        (
            Format::Csv,
            b"a\n\xff\n".to_vec(),
            "line 2, column 1: not UTF-8",
        ),
        (Format::Csv, b"\xff\xfea\0\n\0".to_vec(), "UTF-16"),
        (Format::Csv, b"a\nb\0\n".to_vec(), "NUL"),
        (Format::Json, b"{\"a\": \"\xff\"}".to_vec(), "row 1"),
        (Format::Json, b"{\"a\": \"x\\u0000\"}".to_vec(), "NUL"),
        (Format::Json, b"\xfe\xff\0{".to_vec(), "UTF-16"),
    ] {
        let error = place.import(format, bytes).unwrap_err();
        assert!(error.message().contains(words), "{words}: {error:?}");
        assert!(place.is_empty(), "{words}");
    }
}

#[test]
fn json_neither_nests_nor_fills_the_memory() {
    for (text, code) in [
        ("[".repeat(1_000_000), "broken_file"),
        ("{\"a\":".repeat(1_000_000), "broken_file"),
        (
            format!("{{\"a\": {}}}", "[".repeat(1_000_000)),
            "broken_file",
        ),
        (
            format!("{{\"{}\": 1}}", "k".repeat(1 << 20)),
            "text_too_long",
        ),
        (
            format!("{{\"a\": \"{}\"}}", "x".repeat(1 << 20)),
            "text_too_long",
        ),
        (format!("{{\"{}\": 1}}", "k".repeat(200)), "name_too_long"),
        (format!("{{\"a\": {}}}", "9".repeat(1 << 20)), "broken_file"),
        (
            (0..100).map(|n| format!("{{\"c{n}\": 1}}")).collect(),
            "too_many_columns",
        ),
        ("{\"a\": 1}".repeat(100_001), "too_many_rows"),
    ] {
        let error = read(Format::Json, text.as_bytes()).unwrap_err();
        assert_eq!(error.code(), code, "{:.40}: {error:?}", text);
    }
}

#[test]
fn limits_are_named_with_value_and_remedy() {
    let place = Place::new(DataLimits {
        file_bytes: 4_000,
        rows: 10,
        columns: 3,
        cell_bytes: 20,
        dataset_bytes: 200,
        ..small()
    });
    let lines = |count: usize, line: &str| format!("a\n{}", format!("{line}\n").repeat(count));
    for (text, code, words) in [
        (
            lines(1_000, "12345"),
            "file_too_long",
            "longer than 4000 bytes: import a part",
        ),
        (
            lines(11, "1"),
            "too_many_rows",
            "more than 10 rows, the most of a dataset: keep fewer",
        ),
        (
            "a,b,c,d\n".to_owned(),
            "too_many_columns",
            "at most 3: keep fewer",
        ),
        (
            lines(1, &"x".repeat(21)),
            "text_too_long",
            "a text of 21 bytes or more, and a cell has at most 20",
        ),
        (
            lines(10, &"x".repeat(20)),
            "dataset_too_large",
            "more than 200 bytes",
        ),
    ] {
        let error = place.import(Format::Csv, text).unwrap_err();
        assert_eq!(error.code(), code);
        assert!(error.message().contains(words), "{error:?}");
        assert!(place.is_empty());
    }
    place.import(Format::Csv, lines(10, "1")).unwrap();
}
