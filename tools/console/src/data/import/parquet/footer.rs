//! The metadata at the end of a Parquet file: columns, row groups, and where their pages lie.
//!
//! ```text
//! "PAR1" pages .. metadata (Thrift) | its length, 4 bytes | "PAR1"
//! ```
//!
//! - I1: every place and length is checked against the file before anything is read there.
//! - I2: the memory of what is kept grows with the metadata, of which there are at most
//!   [`FOOTER_BYTES_MAX`] bytes. Elements beyond the limit on columns are counted, not kept, and
//!   there are at most [`CHUNKS_MAX`] chunks: an element or chunk may be a single byte of the file.
//!
//! Source: Apache Parquet, `parquet.thrift`.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::super::unreadable;
use super::thrift::{Compact, Fault, Field, Kind, Read};
use crate::data::limits::{DataLimits, broken, size, unsupported};
use crate::error::{ApiError, ApiResult};

/// Most bytes of the metadata.
const FOOTER_BYTES_MAX: u64 = 8 << 20;
/// Most column chunks of all row groups. The shortest that says all that it must has some 24 bytes,
/// so that metadata of [`FOOTER_BYTES_MAX`] have fewer.
const CHUNKS_MAX: usize = 1 << 19;
/// Most row groups. Files have one a million rows or so.
const ROW_GROUPS_MAX: usize = 20_000;
const MAGIC: &[u8; 4] = b"PAR1";
/// The magic bytes of a file whose metadata is encrypted.
const ENCRYPTED: &[u8; 4] = b"PARE";

/// How values lie in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Physical {
    Boolean,
    Int32,
    Int64,
    Int96,
    Float,
    Double,
    Bytes,
    /// Values of one length, which is given in bytes.
    Fixed(i32),
}

/// What values mean beyond how they lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Meaning {
    Plain,
    Unsigned,
    /// A whole number over 10 to the power of the scale.
    Decimal {
        scale: i32,
    },
    /// Something that is not imported.
    Other(&'static str),
}

/// A column of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Leaf {
    pub(super) name: String,
    pub(super) physical: Physical,
    pub(super) meaning: Meaning,
    pub(super) is_optional: bool,
}

/// How pages are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Codec {
    None,
    Snappy,
    Gzip,
    Zstd,
    Lz4Raw,
}

/// The pages of a column in a row group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Chunk {
    pub(super) codec: Codec,
    /// Where the first page begins.
    pub(super) start: u64,
    /// Bytes of all pages.
    pub(super) length: u64,
}

/// Some rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct RowGroup {
    pub(super) rows: u64,
    /// One a column.
    pub(super) chunks: Vec<Chunk>,
}

/// The metadata.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Footer {
    pub(super) leaves: Vec<Leaf>,
    pub(super) groups: Vec<RowGroup>,
}

/// An element of the schema as it is written.
#[derive(Clone, Default, Debug)]
struct Element {
    name: String,
    physical: Option<i64>,
    length: Option<i64>,
    repetition: i64,
    children: u64,
    converted: Option<i64>,
    scale: i64,
    logical: Option<Meaning>,
}

fn text(bytes: &[u8]) -> Read<String> {
    let text = std::str::from_utf8(bytes);
    Ok(text
        .map_err(|_| Fault::Wrong("a name that is not UTF-8"))?
        .to_owned())
}

/// The meaning of a logical type: a union, of which one field is set.
fn logical(input: &mut Compact<'_>) -> Read<Meaning> {
    let mut meaning = Meaning::Plain;
    input.fields(|input, field| {
        if field.kind != Kind::Struct {
            return Ok(false);
        }
        let mut numbers = [0; 3];
        let mut is_signed = true;
        input.fields(|input, inner| match (inner.kind, inner.id) {
            (Kind::Integer, id @ 1..=2) => {
                numbers[if id == 1 { 1 } else { 2 }] = input.integer()?;
                Ok(true)
            }
            (Kind::False, 2) => {
                is_signed = false;
                Ok(false)
            }
            _ => Ok(false),
        })?;
        meaning = match field.id {
            2 | 3 => Meaning::Other("a nested one"),
            5 => decimal(numbers[1]),
            10 if !is_signed => Meaning::Unsigned,
            13 => Meaning::Other("BSON"),
            14 => Meaning::Other("UUID"),
            15 => Meaning::Other("FLOAT16"),
            _ => Meaning::Plain,
        };
        Ok(true)
    })?;
    Ok(meaning)
}

fn decimal(scale: i64) -> Meaning {
    match i32::try_from(scale) {
        Ok(scale @ 0..=76) => Meaning::Decimal { scale },
        _ => Meaning::Other("DECIMAL with a scale beyond 76"),
    }
}

fn element(input: &mut Compact<'_>) -> Read<Element> {
    let mut read = Element::default();
    input.fields(|input, field| {
        match (field.id, field.kind) {
            (1, Kind::Integer) => read.physical = Some(input.integer()?),
            (2, Kind::Integer) => read.length = Some(input.integer()?),
            (3, Kind::Integer) => read.repetition = input.integer()?,
            (4, Kind::Binary) => read.name = text(input.binary()?)?,
            (5, Kind::Integer) => read.children = input.count()?,
            (6, Kind::Integer) => read.converted = Some(input.integer()?),
            (7, Kind::Integer) => read.scale = input.integer()?,
            (10, Kind::Struct) => read.logical = Some(logical(input)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(read)
}

impl Element {
    fn meaning(&self) -> Meaning {
        if let Some(logical) = self.logical {
            return logical;
        }
        match self.converted {
            Some(1..=3) => Meaning::Other("a nested one"),
            Some(5) => decimal(self.scale),
            Some(11..=14) => Meaning::Unsigned,
            Some(20) => Meaning::Other("BSON"),
            Some(21) => Meaning::Other("INTERVAL"),
            _ => Meaning::Plain,
        }
    }

    fn leaf(self) -> ApiResult<Leaf> {
        if self.children > 0 || self.repetition == 2 {
            return Err(unsupported_column(&self.name, "a nested type"));
        }
        let length = self.length.and_then(|length| i32::try_from(length).ok());
        let physical = match (self.physical, length) {
            (Some(0), _) => Physical::Boolean,
            (Some(1), _) => Physical::Int32,
            (Some(2), _) => Physical::Int64,
            (Some(3), _) => Physical::Int96,
            (Some(4), _) => Physical::Float,
            (Some(5), _) => Physical::Double,
            (Some(6), _) => Physical::Bytes,
            (Some(7), Some(length @ 1..=16)) => Physical::Fixed(length),
            _ => return Err(unsupported_column(&self.name, "a type that is not known")),
        };
        let meaning = self.meaning();
        if let Meaning::Other(what) = meaning {
            return Err(unsupported_column(&self.name, &format!("the type {what}")));
        }
        if matches!(physical, Physical::Fixed(_)) && !matches!(meaning, Meaning::Decimal { .. }) {
            return Err(unsupported_column(&self.name, "bytes of a fixed length"));
        }
        Ok(Leaf {
            name: self.name,
            physical,
            meaning,
            is_optional: self.repetition == 1,
        })
    }
}

/// A column of a type that is not imported.
fn unsupported_column(name: &str, what: &str) -> ApiError {
    unsupported(format!(
        "the column `{name}` has {what}: write the file with flat columns of numbers, truth values, times or texts"
    ))
}

fn wrong(fault: Fault) -> ApiError {
    let what = match fault {
        Fault::Short => "it ends too early",
        Fault::Wrong(what) => what,
    };
    broken(format!(
        "the metadata at the end of the Parquet file is broken: {what}"
    ))
}

/// A row group as it is written.
#[derive(Default, Debug)]
struct Group {
    rows: u64,
    columns: Vec<ColumnChunk>,
}

/// A chunk as it is written.
#[derive(Clone, Copy, Default, Debug)]
struct ColumnChunk {
    is_elsewhere: bool,
    is_encrypted: bool,
    physical: i64,
    codec: i64,
    length: u64,
    data: u64,
    dictionary: Option<u64>,
}

fn chunk(input: &mut Compact<'_>) -> Read<ColumnChunk> {
    let mut read = ColumnChunk::default();
    input.fields(|input, field| {
        match (field.id, field.kind) {
            (1, Kind::Binary) => read.is_elsewhere = !input.binary()?.is_empty(),
            (3, Kind::Struct) => {
                input.fields(|input, field| chunk_field(input, field, &mut read))?;
            }
            (8 | 9, _) => {
                read.is_encrypted = true;
                return Ok(false);
            }
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(read)
}

fn chunk_field(input: &mut Compact<'_>, field: Field, read: &mut ColumnChunk) -> Read<bool> {
    match (field.id, field.kind) {
        (1, Kind::Integer) => read.physical = input.integer()?,
        (4, Kind::Integer) => read.codec = input.integer()?,
        (7, Kind::Integer) => read.length = input.count()?,
        (9, Kind::Integer) => read.data = input.count()?,
        (11, Kind::Integer) => read.dictionary = Some(input.count()?),
        _ => return Ok(false),
    }
    Ok(true)
}

/// Reads a row group. `columns_max` is the most columns of any group, `chunks_left` what is left of
/// the most chunks of the file.
fn group(input: &mut Compact<'_>, columns_max: usize, chunks_left: usize) -> Read<Group> {
    let mut read = Group::default();
    input.fields(|input, field| {
        match (field.id, field.kind) {
            (1, Kind::List) => {
                let (length, _) = input.list()?;
                // A list may come twice.
                let count = read.columns.len() + length;
                if count > columns_max {
                    return Err(Fault::Wrong("a row group has more columns than are read"));
                }
                if count > chunks_left {
                    return Err(Fault::Wrong("its row groups have more than 524288 columns"));
                }
                for _ in 0..length {
                    read.columns.push(chunk(input)?);
                }
            }
            (3, Kind::Integer) => read.rows = input.count()?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(read)
}

/// The metadata as it is written.
#[derive(Default, Debug)]
struct Written {
    /// The first elements.
    schema: Vec<Element>,
    /// How many there are.
    elements: usize,
    groups: Vec<Group>,
}

/// Reads metadata; keeps at most `elements_max` elements of the schema.
fn written(bytes: &[u8], elements_max: usize) -> Read<Written> {
    let mut read = Written::default();
    let mut chunks_left = CHUNKS_MAX;
    Compact::new(bytes).fields(|input, field| {
        match (field.id, field.kind) {
            (2, Kind::List) => {
                let (length, _) = input.list()?;
                for _ in 0..length {
                    if read.schema.len() < elements_max {
                        read.schema.push(element(input)?);
                    } else {
                        input.skip(Kind::Struct)?;
                    }
                }
                read.elements += length;
            }
            (4, Kind::List) => {
                let (length, _) = input.list()?;
                if read.groups.len() + length > ROW_GROUPS_MAX {
                    return Err(Fault::Wrong("it has more than 20000 row groups"));
                }
                for _ in 0..length {
                    let group = group(input, elements_max, chunks_left)?;
                    chunks_left -= group.columns.len();
                    read.groups.push(group);
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(read)
}

impl Physical {
    /// The number in `parquet.thrift`.
    fn number(self) -> i64 {
        match self {
            Self::Boolean => 0,
            Self::Int32 => 1,
            Self::Int64 => 2,
            Self::Int96 => 3,
            Self::Float => 4,
            Self::Double => 5,
            Self::Bytes => 6,
            Self::Fixed(_) => 7,
        }
    }
}

fn codec(number: i64) -> ApiResult<Codec> {
    let name = match number {
        0 => return Ok(Codec::None),
        1 => return Ok(Codec::Snappy),
        2 => return Ok(Codec::Gzip),
        6 => return Ok(Codec::Zstd),
        7 => return Ok(Codec::Lz4Raw),
        3 => "LZO",
        4 => "Brotli",
        5 => "the old LZ4",
        _ => "a method that is not known",
    };
    Err(unsupported(format!(
        "the file is compressed with {name}: write it with Snappy, gzip, Zstandard, LZ4_RAW or without compression"
    )))
}

/// Checks a chunk against its column and the file; `end` is where the metadata begins.
fn checked(read: ColumnChunk, leaf: &Leaf, end: u64) -> ApiResult<Chunk> {
    if read.is_encrypted {
        return Err(unsupported(
            "the file is encrypted: write it without encryption",
        ));
    }
    if read.is_elsewhere {
        return Err(unsupported("a column is in another file: write one file"));
    }
    let name = &leaf.name;
    if read.physical != leaf.physical.number() {
        return Err(broken(format!(
            "the column `{name}` has one type in the schema and another in a row group"
        )));
    }
    let dictionary = read.dictionary.filter(|&at| at > 0);
    let start = dictionary.map_or(read.data, |at| at.min(read.data));
    let last = start.checked_add(read.length);
    if start < MAGIC.len() as u64 || last.is_none_or(|last| last > end) {
        return Err(broken(format!(
            "the metadata says that the column `{name}` has {} bytes at {start}, and pages end at {end}: the file is cut off or broken",
            read.length
        )));
    }
    Ok(Chunk {
        codec: codec(read.codec)?,
        start,
        length: read.length,
    })
}

/// The columns of a schema that has `elements`, of which the first are given.
fn columns(schema: Vec<Element>, elements: usize, limits: &DataLimits) -> ApiResult<Vec<Leaf>> {
    let count = elements.saturating_sub(1);
    if count > limits.columns {
        return Err(limits.too_many_columns("the file", count));
    }
    let mut elements = schema.into_iter();
    let root = elements.next();
    let leaves: Vec<_> = elements.map(Element::leaf).collect::<ApiResult<_>>()?;
    if root.is_none_or(|root| root.children != leaves.len() as u64) {
        return Err(broken(
            "the schema of the Parquet file has no columns, or contradicts itself",
        ));
    }
    Ok(leaves)
}

impl Footer {
    /// Reads and checks the metadata.
    ///
    /// # Errors
    /// The file is no Parquet file, broken, too large, or has columns that are not imported.
    pub(super) fn read(file: &File, limits: &DataLimits) -> ApiResult<Self> {
        let no_parquet = || {
            broken("this is no Parquet file, or it is cut off: it does not begin and end with PAR1")
        };
        let length = file.metadata().map_err(unreadable)?.len();
        if length < 12 {
            return Err(no_parquet());
        }
        let mut magic = [0; 4];
        let mut tail = [0; 8];
        file.read_exact_at(&mut magic, 0).map_err(unreadable)?;
        file.read_exact_at(&mut tail, length - 8)
            .map_err(unreadable)?;
        if magic == *ENCRYPTED && tail.ends_with(ENCRYPTED) {
            return Err(unsupported(
                "the file is encrypted: write it without encryption",
            ));
        }
        if magic != *MAGIC || !tail.ends_with(MAGIC) {
            return Err(no_parquet());
        }
        let [a, b, c, d, ..] = tail;
        let bytes = u64::from(u32::from_le_bytes([a, b, c, d]));
        if bytes > length - 12 {
            return Err(broken(format!(
                "the Parquet file says that its metadata has {bytes} bytes, and the file has {length}: it is cut off or broken"
            )));
        }
        if bytes > FOOTER_BYTES_MAX {
            let limit = size(FOOTER_BYTES_MAX);
            return Err(broken(format!(
                "the metadata of the Parquet file has {bytes} bytes, and at most {limit} are read: write it with fewer row groups or columns"
            )));
        }
        let end = length - 8 - bytes;
        // At most FOOTER_BYTES_MAX.
        let mut metadata = vec![0; usize::try_from(bytes).unwrap_or(0)];
        file.read_exact_at(&mut metadata, end).map_err(unreadable)?;
        Self::of(&metadata, end, limits)
    }

    /// Checks metadata that begins at `end`, where pages end.
    fn of(metadata: &[u8], end: u64, limits: &DataLimits) -> ApiResult<Self> {
        let written = written(metadata, limits.columns + 1).map_err(wrong)?;
        let leaves = columns(written.schema, written.elements, limits)?;
        let mut rows = 0_u64;
        let mut groups = Vec::with_capacity(written.groups.len());
        for group in written.groups {
            rows = rows.saturating_add(group.rows);
            if rows > limits.rows {
                return Err(limits.too_many_rows());
            }
            if group.columns.len() != leaves.len() {
                return Err(broken(format!(
                    "a row group has {} columns, and the schema {}",
                    group.columns.len(),
                    leaves.len()
                )));
            }
            if group.rows == 0 {
                // Its chunks have no pages, and need not have a place.
                continue;
            }
            let chunks = group.columns.into_iter().zip(&leaves);
            let chunks = chunks.map(|(read, leaf)| checked(read, leaf, end));
            groups.push(RowGroup {
                rows: group.rows,
                chunks: chunks.collect::<ApiResult<_>>()?,
            });
        }
        Ok(Self { leaves, groups })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list of empty structs under a field: a byte each.
    fn list(field: u8, count: usize) -> Vec<u8> {
        let mut bytes = vec![field << 4 | 9, 0xfc];
        let mut left = count;
        while left >= 0x80 {
            bytes.push(u8::try_from(left & 0x7f).unwrap() | 0x80);
            left >>= 7;
        }
        bytes.push(u8::try_from(left).unwrap());
        bytes.resize(bytes.len() + count, 0);
        bytes
    }

    /// A struct of fields.
    fn structure(fields: &[Vec<u8>]) -> Vec<u8> {
        [&fields.concat()[..], &[0]].concat()
    }

    #[test]
    fn elements_beyond_the_limit_are_counted_and_not_kept() {
        // The list comes twice, the second time under the number of the field.
        let again = [&[9, 4, 0xfc, 100][..], &[0; 100]].concat();
        let metadata = structure(&[list(2, 1_000_000), again]);
        let read = written(&metadata, 40).unwrap();
        assert_eq!((read.schema.len(), read.elements), (40, 1_000_100));
        let limits = DataLimits {
            columns: 39,
            ..DataLimits::default()
        };
        let error = Footer::of(&metadata, 100, &limits).unwrap_err();
        assert!(error.message().contains("1000099 columns"), "{error:?}");
    }

    #[test]
    fn chunks_are_few_in_a_group_and_in_all() {
        let group = |count| structure(&[list(1, count)]);
        let groups = |count: u8, one: &[u8]| {
            let mut bytes = vec![0x49, 0xfc, count];
            bytes.extend(one.repeat(count.into()));
            structure(&[bytes])
        };
        assert!(written(&groups(2, &group(40)), 40).is_ok());
        let fault = written(&groups(1, &group(41)), 40).unwrap_err();
        assert_eq!(
            fault,
            Fault::Wrong("a row group has more columns than are read")
        );
        let again = [&[9, 2, 0xfc, 1][..], &[0]].concat();
        let twice = structure(&[list(1, 40), again]);
        assert_eq!(written(&groups(1, &twice), 40).unwrap_err(), fault);
        let many = groups(5, &group(CHUNKS_MAX / 4));
        let fault = written(&many, CHUNKS_MAX).unwrap_err();
        assert_eq!(
            fault,
            Fault::Wrong("its row groups have more than 524288 columns")
        );
    }
}
