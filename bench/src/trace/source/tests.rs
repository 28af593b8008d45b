use std::io::{Cursor, Write};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::super::packing::{GZIP_MAGIC, ZSTD_MAGIC};
use super::*;

type Read = (Vec<Result<(Vec<u8>, u64), Flaw>>, Format);

fn read_as(bytes: &[u8], format: Option<Format>) -> io::Result<Read> {
    let mut source = Source::new(Cursor::new(bytes.to_vec()), format)?;
    let mut found = Vec::new();
    while let Some(entry) = source.read()? {
        found.push(entry.map(|entry| (entry.key.to_vec(), entry.value_bytes)));
    }
    Ok((found, source.format()))
}

fn read(bytes: &[u8]) -> Read {
    read_as(bytes, None).unwrap()
}

fn record(object: u64, size: u32) -> Vec<u8> {
    record_at(7, object, size)
}

fn record_at(time: u32, object: u64, size: u32) -> Vec<u8> {
    let mut record = time.to_le_bytes().to_vec();
    record.extend(object.to_le_bytes());
    record.extend(size.to_le_bytes());
    record.extend((-1_i64).to_le_bytes());
    record
}

fn compressed(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 3).unwrap()
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn both_formats_are_detected_from_their_contents_also_compressed() {
    let lines = b"0,a,1,5,1,get,0\r\n1,bb,2,6,1,set,9\n";
    let records = [record(1, 5), record(2, 6)].concat();
    let from_lines = vec![Ok((b"a".to_vec(), 5)), Ok((b"bb".to_vec(), 6))];
    let from_records = [1_u64, 2].map(|id| Ok((id.to_le_bytes().to_vec(), id + 4)));
    for form in [<[u8]>::to_vec, compressed, gzipped] {
        assert_eq!(read(&form(lines)), (from_lines.clone(), Format::Csv));
        let expected = (from_records.to_vec(), Format::OracleGeneral);
        assert_eq!(read(&form(&records)), expected);
    }
    // Concatenated frames, as `cat a.zst b.zst` makes them.
    for form in [compressed, gzipped] {
        let twice = [form(lines), form(lines)].concat();
        assert_eq!(read(&twice).0.len(), 4);
    }
}

fn refusal(bytes: &[u8]) -> String {
    read_as(bytes, None).unwrap_err().to_string()
}

/// A skippable frame of zstd and lz4.
fn skippable(number: u8, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).unwrap().to_le_bytes();
    let magic = [0x50 + number, 0x2A, 0x4D, 0x18];
    [&magic, &length, content].concat()
}

/// An archive with one file, without a magic, as the first version of tar wrote it.
fn old_tar(content: &[u8]) -> Vec<u8> {
    let mut header = [0; 512];
    header[..9].copy_from_slice(b"trace.csv");
    header[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    [&header, content].concat()
}

#[test]
fn skippable_frames_are_skipped_wherever_they_stand() {
    let lines = b"0,a,1,5,1,get,0\n";
    let frame = compressed(lines);
    let padding = vec![7; 3 * SAMPLE_BYTES];
    for (bytes, count) in [
        ([skippable(0, b"four"), frame.clone()].concat(), 1),
        (
            [skippable(15, b""), skippable(3, b"index"), frame.clone()].concat(),
            1,
        ),
        (
            [frame.clone(), skippable(9, b"index"), frame.clone()].concat(),
            2,
        ),
        // Longer than what a file is recognised from.
        ([skippable(0, &padding), frame.clone()].concat(), 1),
        (skippable(0, b"and nothing else"), 0),
    ] {
        let (found, format) = read(&bytes);
        assert_eq!((found.len(), format), (count, Format::Csv));
        assert!(found.iter().all(Result::is_ok));
    }
    // The mark of a skippable frame before lz4, and before what is neither lz4 nor zstd.
    let lz4 = [skippable(0, b"four"), b"\x04\x22\x4D\x18\x64\x40".to_vec()].concat();
    assert!(refusal(&lz4).contains("compressed with lz4"));
    let junk = [skippable(0, b"four"), vec![0xEE; 500]].concat();
    assert!(refusal(&junk).contains("of no kind known here"));
    // Records whose first time is that mark.
    let mark = u32::from_le_bytes([0x50, 0x2A, 0x4D, 0x18]);
    let records = [record_at(mark, 1 << 31, 6), record_at(mark, 2, 5)].concat();
    assert_eq!(read(&records).0.len(), 2);
}

#[test]
fn other_compressions_are_refused_with_the_remedy() {
    for (bytes, tool) in [
        (&b"\xFD7zXZ\0\0\x04"[..], "xzcat"),
        (b"BZh91AY&SY", "bzcat"),
        (b"BZh9\x17\x72\x45\x38\x50\x90\0\0\0\0", "bzcat"),
        (b"\x04\x22\x4D\x18\x64\x40\xA7", "lz4 -dc"),
        (b"\x02\x21\x4C\x18\x64\x40\xA7", "lz4 -dc"),
        (b"LZIP\x01\x0C", "lzip -dc"),
        (b"\x5D\0\0\x80\0\xFF\xFF\xFF\xFF", "xz -dc --format=lzma"),
        (b"\x1F\x9D\x90", "zcat"),
        (b"\x25\xB5\x2F\xFD\0", "zstd -dc"),
        (b"\xFF\xFE0\0,\0a\0", "iconv -f UTF-16 -t UTF-8"),
        (b"\xFE\xFF\x000\0,\0a", "iconv -f UTF-16 -t UTF-8"),
        (b"\xFF\xFE\0\x000\0\0\0", "iconv -f UTF-32 -t UTF-8"),
    ] {
        let remedy = format!("`{tool} FILE | farcore-bench trace -`");
        for bytes in [bytes.to_vec(), compressed(bytes), gzipped(bytes)] {
            let error = refusal(&bytes);
            assert!(error.ends_with(&remedy), "{error}");
        }
    }
    // Records that begin alike.
    assert_eq!(
        read(&record_at(u32::from_le_bytes(*b"BZh9"), 1, 2)).0.len(),
        1
    );
    let twice = [
        (compressed(&gzipped(b"x")), "zstd -dc"),
        (gzipped(&compressed(b"x")), "zcat"),
    ];
    for (bytes, tool) in twice {
        let remedy = format!("unpack it once, as in `{tool} FILE | farcore-bench trace -`");
        assert!(refusal(&bytes).ends_with(&remedy));
    }
}

#[test]
fn archives_and_tables_are_refused_by_name() {
    let tar = old_tar(&b"0,a,1,5,1,get,0\n".repeat(64));
    for (bytes, name) in [
        (
            &tar[..],
            "a tar archive: name the trace in it, as in `tar -xOf FILE MEMBER |",
        ),
        (
            b"PK\x03\x04\x14\0\0\0\x08\0",
            "a zip archive: name the trace in it",
        ),
        (
            b"7z\xBC\xAF\x27\x1C\0\x04",
            "a 7z archive: name the trace in it",
        ),
        (b"Rar!\x1A\x07\x01\0", "a rar archive"),
        (
            b"PAR1\x15\x04\x15",
            "a Parquet table: write its requests as lines of timestamp",
        ),
        (b"SQLite format 3\0\x10\0\x01\x01", "an SQLite database"),
        (b"ARROW1\0\0\xFF\xFF\xFF\xFF", "an Arrow table"),
        (b"\xFF\xFF\xFF\xFF\x10\x01\0\0\x10", "an Arrow stream"),
        (b"ORC\x0A\x0B", "an ORC table"),
        (b"Obj\x01\x04\x16avro", "an Avro file"),
        (b"\x93NUMPY\x01\0v\0", "a NumPy array"),
        (
            b"\xF0\xDE\xBC\x9A\x78\x56\x34\x12\x01",
            "a trace in libCacheSim's lcs format",
        ),
        (b"REDIS0011\xFA", "a snapshot of Redis"),
        (
            &[0xEE; 400],
            "of no kind known here (it begins with ee ee ee ee ee ee ee ee)",
        ),
        (&[0; 400], "of no kind known here"),
        (b"short\0", "of no kind known here"),
    ] {
        for bytes in [bytes.to_vec(), compressed(bytes), gzipped(bytes)] {
            let error = refusal(&bytes);
            assert!(error.starts_with(&format!("it is {name}")), "{error}");
        }
    }
    let forced = Some(Format::OracleGeneral);
    assert!(read_as(&tar, forced).is_err());
    assert_eq!(read_as(&[0xEE; 48], forced).unwrap().0.len(), 2);
}

#[test]
fn other_text_is_refused_by_name() {
    for (text, name) in [
        (
            "{\"requests\": [1, 2]}\n",
            "JSON: a trace is lines of timestamp, key,",
        ),
        ("\n [\n {\"op\": \"get\"}]", "JSON"),
        (
            "<!DOCTYPE html>\n<html><body>Not found",
            "an HTML page, perhaps",
        ),
        ("<?xml version=\"1.0\"?><a/>", "XML"),
        (
            "a,b\nc,d\n",
            "a table of 2 columns with commas between that begins with `a,b`",
        ),
        ("key\tsize\nx\t1\ny\t", "a table of 2 columns with tabs"),
        (
            "0;a;1;5;1;get;0\n1;a;1;5;1;get;0\n",
            "a table of 7 columns with semicolons between that begins with `0;a;1;5;1;get;0`: a trace has commas between timestamp, key, key size, value size, client id, operation, TTL: `tr ';' , < FILE | farcore-bench trace -` writes them",
        ),
        (
            "a,b,c,d,e,f,g\n0,get,k,1,5,1,0\n",
            "a table of 7 columns with commas between that begins with `a,b,c,d,e,f,g`: line 2 holds a time or a size that is not a number",
        ),
        ("Hello, world\n", "text that begins with `Hello, world`"),
        (
            "not a trace at all, but a sentence of its own\n\nand more",
            "text that begins with `not a trace at all, but a sentence of it..`: a trace is",
        ),
    ] {
        for mark in ["", "\u{FEFF}"] {
            let text = format!("{mark}{text}");
            for bytes in [text.as_bytes().to_vec(), compressed(text.as_bytes())] {
                let error = refusal(&bytes);
                assert!(error.starts_with(&format!("it is {name}")), "{error}");
            }
            let forced = read_as(text.as_bytes(), Some(Format::OracleGeneral)).unwrap_err();
            assert!(
                forced.to_string().starts_with("it is text, not records"),
                "{forced}"
            );
            let lines = read_as(text.as_bytes(), Some(Format::Csv)).unwrap().0;
            assert!(lines.iter().all(Result::is_err));
        }
    }
}

#[test]
fn a_byte_order_mark_is_skipped() {
    let lines = b"\xEF\xBB\xBF0,a,1,5,1,get,0\n1,b,1,6,1,get,0\n";
    for form in [<[u8]>::to_vec, compressed, gzipped] {
        for format in [None, Some(Format::Csv)] {
            let (found, _) = read_as(&form(lines), format).unwrap();
            assert_eq!(found, [Ok((b"a".to_vec(), 5)), Ok((b"b".to_vec(), 6))]);
        }
    }
}

#[test]
fn a_flag_overrides_the_contents() {
    let records = record(1, 2);
    let format = |flag| read_as(&records, flag).unwrap().1;
    assert_eq!(format(None), Format::OracleGeneral);
    assert_eq!(format(Some(Format::Csv)), Format::Csv);
    let rare = [&records[..16], &[0x11; 8]].concat();
    assert!(read_as(&rare, None).is_err());
    assert_eq!(
        read_as(&rare, Some(Format::OracleGeneral)).unwrap().0.len(),
        1
    );
}

#[test]
fn frames_that_need_an_option_name_it() {
    let lines = b"0,a,1,5,1,get,0\n".repeat(1000);
    // The window stands in the byte behind the frame's descriptor, as the exponent above 1 KiB.
    let wide = |log: u8| {
        let mut frame = vec![0x28, 0xB5, 0x2F, 0xFD, 0, (log - 10) << 3];
        let length = u32::try_from(lines.len()).unwrap();
        frame.extend(&(length << 3 | 1).to_le_bytes()[..3]);
        frame.extend(&lines);
        frame
    };
    assert_eq!(read(&wide(27)).0.len(), 1000);
    let said = "more than 128 MiB: unpack it with the option for such, as in `zstd -dc --long=31 FILE | farcore-bench trace -`";
    assert!(refusal(&wide(28)).ends_with(said));
    // Also of a later frame.
    let later = [compressed(&lines), wide(31)].concat();
    assert!(refusal(&later).ends_with(said));
    // The number of a dictionary.
    let of_dictionary = [0x28, 0xB5, 0x2F, 0xFD, 0x21, 9, 1, 0x09, 0, 0, 0];
    let error = refusal(&of_dictionary);
    assert!(error.contains("`zstd -dc -D DICTIONARY FILE |"), "{error}");
    for form in [compressed, gzipped] {
        let error = refusal(&[form(&lines), b"something else".to_vec()].concat());
        assert!(error.contains("is followed by what is none"), "{error}");
    }
}

#[test]
fn odd_files_are_read_to_the_end() {
    assert_eq!(read(b""), (Vec::new(), Format::Csv));
    assert_eq!(read(&compressed(b"")), (Vec::new(), Format::Csv));
    assert_eq!(read(b"\n\n").0, [Err(Flaw::Fields), Err(Flaw::Fields)]);
    let header = b"timestamp,key,key size,value size,client id,operation,TTL\n0,a,1,5,1,get,0";
    assert_eq!(read(header).0, [Err(Flaw::Header), Ok((b"a".to_vec(), 5))]);
    let short = [record(1, 5), record(2, 6)[..23].to_vec()].concat();
    assert_eq!(read(&short).0[1], Err(Flaw::Truncated));
    let long = [&[b'x'; 100_000][..], b"\n0,a,1,5,1,get,0\n"].concat();
    assert_eq!(
        read(&long).0,
        [Err(Flaw::LineTooLong), Ok((b"a".to_vec(), 5))]
    );
}

#[test]
fn a_damaged_frame_is_an_error() {
    let lines = b"0,a,1,5,1,get,0\n".repeat(1000);
    for form in [compressed, gzipped] {
        let mut bytes = form(&lines);
        bytes.truncate(bytes.len() / 2);
        assert!(read_as(&bytes, None).is_err());
    }
    let junk = [&ZSTD_MAGIC[..], &[0xff; 40]].concat();
    assert!(read_as(&junk, None).is_err());
}

#[test]
fn any_bytes_are_read_in_both_formats() {
    let lines = b"0,a,1,5,1,get,0\n1,bb,2,6,1,set,9\n";
    let records = [record(1, 5), record(2, 6)].concat();
    farcore_fuzz::Target::new("trace")
        .seed(lines)
        .seed(&records)
        .seed(compressed(&lines.repeat(9)))
        .seed(gzipped(&records))
        .words(&[",", "\n", "\r\n", "get", "%"])
        .rounds(1000)
        // The readers' buffers, and the window of a compressed file.
        .memory(24 << 20, 64)
        .run(|bytes| {
            let _ = read_as(bytes, None);
            let lines = read_as(bytes, Some(Format::Csv));
            let records = read_as(bytes, Some(Format::OracleGeneral));
            let plain = |magic: &[u8]| !bytes.starts_with(magic);
            if plain(&ZSTD_MAGIC) && plain(&GZIP_MAGIC) && foreign::named(bytes).is_none() {
                let ends = bytes.iter().filter(|&&byte| byte == b'\n').count();
                let open = usize::from(!bytes.is_empty() && !bytes.ends_with(b"\n"));
                assert_eq!(lines.unwrap().0.len(), ends + open);
                if let Ok((records, _)) = records {
                    assert_eq!(records.len(), bytes.len().div_ceil(RECORD_BYTES));
                    let whole = records.iter().filter(|found| found.is_ok()).count();
                    assert_eq!(whole, bytes.len() / RECORD_BYTES);
                } else {
                    assert!(foreign::is_text(bytes));
                }
            }
        });
}
