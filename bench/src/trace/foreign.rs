//! What a file is that is no trace: archives, tables, other compressions, text. It is recognised by
//! its contents alone and refused by name, with the command that makes a trace of it.
//!
//! I1: nothing is refused for its first bytes that has the shape of records: the four bytes of a
//!     time may be anything.
//! I2: what is recognised does not depend on the name of the file.
//!
//! Sources: the formats' specifications, and `magic(5)` where there is none.

use super::csv;
use super::entry::Flaw;

/// The columns of a trace's line.
const COLUMNS: &str = "timestamp, key, key size, value size, client id, operation, TTL";
const COLUMN_COUNT: usize = 7;
/// Lines that a table is recognised from, and how many of them suffice.
const TABLE_LINES_MAX: usize = 20;
const TABLE_LINES_MIN: usize = 2;
/// Characters of a text that its refusal quotes, and bytes of what is none.
const QUOTED_CHARS: usize = 40;
const QUOTED_BYTES: usize = 8;
/// Where markup names itself.
const PROLOGUE_BYTES: usize = 1024;

/// What to do with a file.
#[derive(Clone, Copy, Debug)]
enum Remedy {
    /// This command writes what is in it.
    Unpack(&'static str),
    /// This command writes the one file of several that is the trace.
    Extract(&'static str),
    /// This command writes its rows.
    Select(&'static str),
    /// There is none but another file.
    Nothing,
}

impl Remedy {
    fn text(self) -> String {
        match self {
            Self::Unpack(tool) => {
                format!("unpack it, as in `{tool} FILE | farcore-bench trace -`")
            }
            Self::Extract(tool) => {
                format!("name the trace in it, as in `{tool} | farcore-bench trace -`")
            }
            Self::Select(tool) => format!(
                "write its requests as lines of {COLUMNS}, as in `{tool} | farcore-bench trace -`"
            ),
            Self::Nothing => {
                format!("a trace is lines of {COLUMNS}, or records of libCacheSim's oracleGeneral")
            }
        }
    }
}

/// A kind of file that begins with fixed bytes.
struct Kind {
    at: usize,
    magic: &'static [u8],
    name: &'static str,
    remedy: Remedy,
}

const fn kind(magic: &'static [u8], name: &'static str, remedy: Remedy) -> Kind {
    Kind {
        at: 0,
        magic,
        name,
        remedy,
    }
}

const DUCKDB: Remedy = Remedy::Select("duckdb -csv -noheader -c \"select .. from 'FILE'\"");
const SQLITE: Remedy = Remedy::Select("sqlite3 -csv FILE 'select .. from ..'");
const PYTHON: Remedy = Remedy::Select("python3 a_script_that_prints_them.py FILE");
const DUCKDB_FILE: Remedy = Remedy::Select("duckdb -csv -noheader FILE 'select .. from ..'");
const UTF_16: Remedy = Remedy::Unpack("iconv -f UTF-16 -t UTF-8");
const UTF_32: Remedy = Remedy::Unpack("iconv -f UTF-32 -t UTF-8");
const UNZIP: Remedy = Remedy::Extract("unzip -p FILE MEMBER");
const TAR: Remedy = Remedy::Extract("tar -xOf FILE MEMBER");
const CONVERT: Remedy =
    Remedy::Select("libCacheSim's tracePrint FILE, its columns put in that order,");

/// Longer beginnings come before shorter ones that they begin with.
const KINDS: [Kind; 44] = [
    kind(b"\xFD7zXZ\0", "compressed with xz", Remedy::Unpack("xzcat")),
    kind(
        b"\x04\x22\x4D\x18",
        "compressed with lz4",
        Remedy::Unpack("lz4 -dc"),
    ),
    kind(
        b"\x02\x21\x4C\x18",
        "compressed with lz4",
        Remedy::Unpack("lz4 -dc"),
    ),
    kind(
        b"\xFF\x06\0\0sNaPpY",
        "compressed with snappy",
        Remedy::Unpack("snzip -dc"),
    ),
    kind(
        b"\x89LZO\0\r\n\x1A\n",
        "compressed with lzop",
        Remedy::Unpack("lzop -dc"),
    ),
    kind(
        b"LZIP\x01",
        "compressed with lzip",
        Remedy::Unpack("lzip -dc"),
    ),
    kind(
        b"\x5D\0\0\x80\0\xFF\xFF",
        "compressed with lzma",
        Remedy::Unpack("xz -dc --format=lzma"),
    ),
    kind(
        b"\x5D\0\0\x80\0",
        "compressed with lzma",
        Remedy::Unpack("xz -dc --format=lzma"),
    ),
    kind(
        b"\x1F\x9D",
        "compressed with compress",
        Remedy::Unpack("zcat"),
    ),
    kind(
        b"\x1F\xA0",
        "compressed with compress",
        Remedy::Unpack("zcat"),
    ),
    kind(b"\x1F\x1E", "compressed with pack", Remedy::Unpack("zcat")),
    kind(b"PK\x03\x04", "a zip archive", UNZIP),
    kind(
        b"PK\x05\x06",
        "a zip archive without a file",
        Remedy::Nothing,
    ),
    kind(b"PK\x07\x08", "a zip archive in parts", UNZIP),
    kind(
        b"7z\xBC\xAF\x27\x1C",
        "a 7z archive",
        Remedy::Extract("7z x -so FILE MEMBER"),
    ),
    kind(
        b"Rar!\x1A\x07",
        "a rar archive",
        Remedy::Extract("unrar p -inul FILE MEMBER"),
    ),
    kind(
        b"!<arch>\n",
        "an ar archive",
        Remedy::Extract("ar p FILE MEMBER"),
    ),
    kind(
        b"MSCF\0\0\0\0",
        "a cabinet archive",
        Remedy::Extract("cabextract -p -F MEMBER FILE"),
    ),
    kind(b"PAR1", "a Parquet table", DUCKDB),
    kind(b"PARE", "an encrypted Parquet table", PYTHON),
    kind(b"SQLite format 3\0", "an SQLite database", SQLITE),
    Kind {
        at: 8,
        magic: b"DUCK",
        name: "a DuckDB database",
        remedy: DUCKDB_FILE,
    },
    kind(b"ARROW1\0\0", "an Arrow table", PYTHON),
    kind(b"FEA1", "a Feather table", PYTHON),
    kind(b"ORC", "an ORC table", PYTHON),
    kind(b"Obj\x01", "an Avro file", PYTHON),
    kind(b"\x89HDF\r\n\x1A\n", "an HDF5 file", PYTHON),
    kind(b"\x93NUMPY", "a NumPy array", PYTHON),
    kind(b"\x80\x03", "a Python pickle", PYTHON),
    kind(b"\x80\x04\x95", "a Python pickle", PYTHON),
    kind(b"\x80\x05\x95", "a Python pickle", PYTHON),
    kind(
        b"\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1",
        "a document of Microsoft Office",
        Remedy::Nothing,
    ),
    kind(b"REDIS0", "a snapshot of Redis", Remedy::Nothing),
    kind(b"\x0A\x0D\x0D\x0A", "a capture of packets", Remedy::Nothing),
    kind(
        b"\xD4\xC3\xB2\xA1\x02\0\x04\0",
        "a capture of packets",
        Remedy::Nothing,
    ),
    kind(
        b"\x4D\x3C\xB2\xA1\x02\0\x04\0",
        "a capture of packets",
        Remedy::Nothing,
    ),
    // libCacheSim's own format: the start of its header, little-endian.
    kind(
        b"\xF0\xDE\xBC\x9A\x78\x56\x34\x12",
        "a trace in libCacheSim's lcs format",
        CONVERT,
    ),
    kind(b"\x7FELF", "a program", Remedy::Nothing),
    kind(b"%PDF-", "a PDF document", Remedy::Nothing),
    kind(b"\x89PNG\r\n\x1A\n", "a picture", Remedy::Nothing),
    kind(b"\xFF\xD8\xFF", "a picture", Remedy::Nothing),
    kind(b"\xFF\xFE\0\0", "text in UTF-32", UTF_32),
    kind(b"\xFF\xFE", "text in UTF-16", UTF_16),
    kind(b"\xFE\xFF", "text in UTF-16", UTF_16),
];

/// Why a file is no trace that begins so, if its first bytes say it. Also of bytes that have the
/// shape of records (I1).
pub(super) fn named(start: &[u8]) -> Option<String> {
    let refusal = |name: &str, remedy: Remedy| {
        let remedy = remedy.text();
        Some(format!("it is {name}: {remedy}"))
    };
    if let [b'B', b'Z', b'h', b'1'..=b'9', rest @ ..] = start
        && (rest.starts_with(&BZIP2_BLOCK) || rest.starts_with(&BZIP2_END))
    {
        return refusal("compressed with bzip2", Remedy::Unpack("bzcat"));
    }
    if let [0x22..=0x27, 0xB5, 0x2F, 0xFD, ..] | [0xFD, 0x2F, 0xB5, 0x1E, ..] = start {
        return refusal(
            "compressed with a zstd older than 0.8",
            Remedy::Unpack("zstd -dc"),
        );
    }
    if is_tar(start) {
        return refusal("a tar archive", TAR);
    }
    if is_arrow_stream(start) {
        return refusal("an Arrow stream", PYTHON);
    }
    let found = KINDS.iter().find(|kind| {
        let magic = start.get(kind.at..).unwrap_or_default();
        magic.starts_with(kind.magic)
    });
    found.and_then(|kind| refusal(kind.name, kind.remedy))
}

/// What follows `BZh` and a digit in bzip2: a block, or the end of a stream without one.
const BZIP2_BLOCK: [u8; 6] = [0x31, 0x41, 0x59, 0x26, 0x53, 0x59];
const BZIP2_END: [u8; 6] = [0x17, 0x72, 0x45, 0x38, 0x50, 0x90];

/// A tar header, of any version: its checksum holds (POSIX.1-1988, 10.1.1). The sum takes its own
/// field for spaces.
fn is_tar(start: &[u8]) -> bool {
    const HEADER_BYTES: usize = 512;
    const SUM: std::ops::Range<usize> = 148..156;
    let Some(header) = start.get(..HEADER_BYTES) else {
        return false;
    };
    let field = header[SUM].trim_ascii();
    let digits = field.split(|&byte| byte == 0 || byte == b' ').next();
    let stated = digits
        .and_then(|digits| std::str::from_utf8(digits).ok())
        .and_then(|digits| u32::from_str_radix(digits, 8).ok());
    let sum = |(at, &byte): (usize, &u8)| u32::from(if SUM.contains(&at) { b' ' } else { byte });
    header[0] != 0 && stated == Some(header.iter().enumerate().map(sum).sum())
}

/// An Arrow stream: a mark, and the length of metadata, padded to eight bytes.
fn is_arrow_stream(start: &[u8]) -> bool {
    const LONGEST: u32 = 1 << 24;
    let [0xFF, 0xFF, 0xFF, 0xFF, rest @ ..] = start else {
        return false;
    };
    let length = rest
        .first_chunk()
        .map_or(0, |length| u32::from_le_bytes(*length));
    (1..LONGEST).contains(&length) && length.is_multiple_of(8)
}

/// Whether bytes are text: UTF-8, or an older code in which most characters are of ASCII.
pub(super) fn is_text(sample: &[u8]) -> bool {
    let is_control = |&byte: &u8| {
        byte < b' ' && !matches!(byte, b'\t' | b'\r' | b'\n' | b'\x0C' | b'\x1B') || byte == 0x7F
    };
    if sample.iter().any(is_control) {
        return false;
    }
    // The sample may end within a character.
    let is_whole = std::str::from_utf8(sample).is_ok_and(|text| !text.is_empty())
        || std::str::from_utf8(sample).is_err_and(|error| error.error_len().is_none());
    let foreign = sample.iter().filter(|byte| !byte.is_ascii()).count();
    is_whole || foreign * 2 < sample.len().max(1)
}

/// Why text is no trace: what it is instead.
pub(super) fn text(sample: &[u8]) -> String {
    let text = sample.trim_ascii_start();
    let remedy = Remedy::Nothing.text();
    let name = match text {
        [b'{', rest @ ..] if begins(rest, b"\"}") => "JSON".into(),
        [b'[', rest @ ..] if begins(rest, b"{[\"-0123456789]") => "JSON".into(),
        [b'<', ..] => markup(text).into(),
        _ => {
            let tables = [
                (b',', "commas"),
                (b'\t', "tabs"),
                (b';', "semicolons"),
                (b'|', "bars"),
            ];
            let table = tables.iter().find_map(|&(separator, name)| {
                let columns = columns(text, separator)?;
                Some(table(text, separator, name, columns))
            });
            match table {
                Some(refusal) => return refusal,
                None => format!("text that begins with `{}`", quoted(text)),
            }
        }
    };
    format!("it is {name}: {remedy}")
}

/// Why bytes are no trace that are nothing known.
pub(super) fn unknown(sample: &[u8]) -> String {
    let start = &sample[..sample.len().min(QUOTED_BYTES)];
    let start: Vec<_> = start.iter().map(|byte| format!("{byte:02x}")).collect();
    let (start, remedy) = (start.join(" "), Remedy::Nothing.text());
    format!(
        "it is of no kind known here (it begins with {start}): {remedy}; --format reads it as one of them all the same"
    )
}

/// Whether the first byte that is no white space is one of these; true if all is white.
fn begins(text: &[u8], with: &[u8]) -> bool {
    text.trim_ascii_start()
        .first()
        .is_none_or(|byte| with.contains(byte))
}

fn markup(text: &[u8]) -> &'static str {
    let start = text[..text.len().min(PROLOGUE_BYTES)].to_ascii_lowercase();
    let has = |word: &[u8]| start.windows(word.len()).any(|window| window == word);
    if has(b"<html") || has(b"<!doctype html") {
        "an HTML page, perhaps in place of a download"
    } else {
        "XML"
    }
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = text.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
    lines.filter(|line| !line.is_empty()).take(TABLE_LINES_MAX)
}

/// The number of columns, if all lines have as many, and more than one.
fn columns(text: &[u8], separator: u8) -> Option<usize> {
    let count = |line: &[u8]| line.split(|&byte| byte == separator).count();
    // The last line may be cut off.
    let last = lines(text).count().saturating_sub(1);
    let last = if last + 1 >= TABLE_LINES_MAX || text.ends_with(b"\n") {
        last + 1
    } else {
        last
    };
    let mut counts = lines(text).take(last.max(TABLE_LINES_MIN)).map(count);
    let first = counts.next().filter(|&columns| columns > 1)?;
    let mut others = 0;
    let even = counts.all(|columns| {
        others += 1;
        columns == first
    });
    (even && others + 1 >= TABLE_LINES_MIN).then_some(first)
}

fn table(text: &[u8], separator: u8, name: &str, columns: usize) -> String {
    let start = quoted(text);
    let flaw = lines(text)
        .nth(1)
        .and_then(|line| csv::parse(line, &mut Vec::new()).err());
    let remedy = match flaw {
        _ if columns == COLUMN_COUNT && separator != b',' => {
            let separator = (separator as char).escape_default();
            format!(
                "a trace has commas between {COLUMNS}: `tr '{separator}' , < FILE | farcore-bench trace -` writes them"
            )
        }
        Some(flaw) if columns >= COLUMN_COUNT && separator == b',' && flaw != Flaw::Fields => {
            let flaw = flaw.name();
            format!("line 2 holds {flaw}, and a trace's columns are {COLUMNS}, without quotes")
        }
        _ => format!("a trace's columns are {COLUMNS}, with commas between, without quotes"),
    };
    format!(
        "it is a table of {columns} columns with {name} between that begins with `{start}`: {remedy}"
    )
}

/// The beginning of the first line, as an error shows it.
fn quoted(text: &[u8]) -> String {
    let line = lines(text).next().unwrap_or_default();
    let line = String::from_utf8_lossy(&line[..line.len().min(4 * QUOTED_CHARS)]);
    let mut chars = line.chars();
    let mut start: String = chars.by_ref().take(QUOTED_CHARS).collect();
    start = start.escape_debug().to_string();
    if chars.next().is_some() {
        start.push_str("..");
    }
    start
}
