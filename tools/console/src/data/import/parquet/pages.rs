//! The pages of a column chunk, unpacked one at a time within limits.
//!
//! The `parquet` crate decodes the values of pages. It would also find and unpack pages itself, but
//! it believes their headers: a page may claim 2 GiB, or unpack to more than it claims.
//!
//! - I1: a page takes no more memory than its header claims, at most [`PAGE_BYTES_MAX`], and the
//!   pages and dictionaries of all columns together at most [`HELD_BYTES_MAX`].
//! - I2: all pages of a file together have at most the bytes of a dataset, in which each header
//!   counts, that of an empty page too. Every header is a place where the work can stop.
//! - I3: a page's number of values is at most that of the rows of its group. Encodings whose
//!   decoders take memory that their data does not justify are refused.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parquet::basic::Encoding;
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};

use super::footer::{Chunk, Codec};
use super::thrift::{Compact, Fault, Field, Kind, Read};
use crate::data::stop::Stop;

/// Most bytes of a page, unpacked.
const PAGE_BYTES_MAX: u64 = 64 << 20;
/// Most bytes of the pages and dictionaries that are unpacked at a time.
const HELD_BYTES_MAX: u64 = 384 << 20;
/// Bytes of a dictionary's entry in memory, beside its own.
const ENTRY_BYTES: u64 = 32;
/// Most bytes of a page's header, its statistics included.
const HEADER_BYTES_MAX: usize = 1 << 20;
/// Bytes that a header counts at least: finding and reading it takes that much work.
const HEADER_COST: u64 = 64;
/// Bytes in which most headers end.
const HEADER_BYTES: usize = 512;
/// Largest window of Zstandard, as a power of two.
const ZSTD_WINDOW_LOG_MAX: u32 = 26;

/// Counts the bytes of a file's pages.
#[derive(Debug)]
pub(super) struct PageBudget {
    held: AtomicU64,
    unpacked: AtomicU64,
    unpacked_max: u64,
    stop: Stop,
}

impl PageBudget {
    /// A budget of `unpacked_max` bytes of unpacked pages, for work that may have to stop.
    pub(super) fn new(unpacked_max: u64, stop: Stop) -> Arc<Self> {
        Arc::new(Self {
            held: AtomicU64::new(0),
            unpacked: AtomicU64::new(0),
            unpacked_max,
            stop,
        })
    }

    /// Counts bytes that were read or will be unpacked.
    fn count(&self, bytes: u64) -> Result<()> {
        let unpacked = self.unpacked.fetch_add(bytes, Ordering::SeqCst) + bytes;
        if unpacked > self.unpacked_max {
            return Err(wrong(format!(
                "its pages have more than {} bytes once unpacked, the most of a dataset: keep fewer rows or columns",
                self.unpacked_max
            )));
        }
        Ok(())
    }

    /// Counts the bytes of a header, at least [`HEADER_COST`], unless the work shall stop.
    fn header(&self, bytes: u64) -> Result<()> {
        if self.stop.is_set() {
            return Err(wrong("its pages were not read to their end"));
        }
        self.count(bytes.max(HEADER_COST))
    }

    fn take(&self, bytes: u64) -> Result<()> {
        self.count(bytes)?;
        let held = self.held.fetch_add(bytes, Ordering::SeqCst) + bytes;
        if held > HELD_BYTES_MAX {
            self.give_back(bytes);
            return Err(wrong(format!(
                "its pages need more than {} MiB of memory at a time: write it with smaller pages or fewer columns",
                HELD_BYTES_MAX >> 20
            )));
        }
        Ok(())
    }

    fn give_back(&self, bytes: u64) {
        self.held.fetch_sub(bytes, Ordering::SeqCst);
    }
}

/// What is wrong with pages, in our own words: errors of the library have others.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct PageFault(String);

fn wrong(what: impl Into<String>) -> ParquetError {
    ParquetError::External(Box::new(PageFault(what.into())))
}

/// What the header of a page says, as far as it is used.
#[derive(Clone, Copy, Default, Debug)]
struct Header {
    kind: i64,
    unpacked: u64,
    packed: u64,
    values: u64,
    nulls: u64,
    rows: u64,
    encoding: i64,
    definition_encoding: i64,
    definition_bytes: u64,
    repetition_bytes: u64,
    is_packed: bool,
}

/// Kinds of pages.
const DATA: i64 = 0;
const INDEX: i64 = 1;
const DICTIONARY: i64 = 2;
const DATA_V2: i64 = 3;

fn header_field(input: &mut Compact<'_>, field: Field, read: &mut Header) -> Read<bool> {
    match (field.id, field.kind) {
        (1, Kind::Integer) => read.kind = input.integer()?,
        (2, Kind::Integer) => read.unpacked = input.count()?,
        (3, Kind::Integer) => read.packed = input.count()?,
        (5, Kind::Struct) => input.fields(|input, field| {
            match (field.id, field.kind) {
                (1, Kind::Integer) => read.values = input.count()?,
                (2, Kind::Integer) => read.encoding = input.integer()?,
                (3, Kind::Integer) => read.definition_encoding = input.integer()?,
                _ => return Ok(false),
            }
            Ok(true)
        })?,
        (7, Kind::Struct) => input.fields(|input, field| {
            match (field.id, field.kind) {
                (1, Kind::Integer) => read.values = input.count()?,
                (2, Kind::Integer) => read.encoding = input.integer()?,
                _ => return Ok(false),
            }
            Ok(true)
        })?,
        (8, Kind::Struct) => input.fields(|input, field| {
            match (field.id, field.kind) {
                (1, Kind::Integer) => read.values = input.count()?,
                (2, Kind::Integer) => read.nulls = input.count()?,
                (3, Kind::Integer) => read.rows = input.count()?,
                (4, Kind::Integer) => read.encoding = input.integer()?,
                (5, Kind::Integer) => read.definition_bytes = input.count()?,
                (6, Kind::Integer) => read.repetition_bytes = input.count()?,
                (7, Kind::False) => read.is_packed = false,
                _ => return Ok(false),
            }
            Ok(true)
        })?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn header(bytes: &[u8]) -> Read<(Header, usize)> {
    let mut read = Header {
        is_packed: true,
        ..Header::default()
    };
    let mut input = Compact::new(bytes);
    input.fields(|input, field| header_field(input, field, &mut read))?;
    Ok((read, input.at()))
}

fn encoding(number: i64) -> Result<Encoding> {
    let name = match number {
        0 => return Ok(Encoding::PLAIN),
        2 => return Ok(Encoding::PLAIN_DICTIONARY),
        3 => return Ok(Encoding::RLE),
        5 => return Ok(Encoding::DELTA_BINARY_PACKED),
        8 => return Ok(Encoding::RLE_DICTIONARY),
        9 => return Ok(Encoding::BYTE_STREAM_SPLIT),
        6 => "DELTA_LENGTH_BYTE_ARRAY",
        7 => "DELTA_BYTE_ARRAY",
        _ => "an unknown one",
    };
    Err(wrong(format!(
        "the encoding {name} is not read: write it with dictionaries or plain values"
    )))
}

/// Unpacks bytes, which become exactly `length`.
fn unpack(codec: Codec, packed: &[u8], length: usize) -> Result<Vec<u8>> {
    let limit = length as u64 + 1;
    let mut unpacked = Vec::new();
    let failed = |error: &dyn std::fmt::Display| {
        tracing::debug!(%error, ?codec, "a page cannot be unpacked");
        wrong("a page cannot be unpacked: write the file again")
    };
    match codec {
        Codec::None => unpacked.extend_from_slice(packed),
        Codec::Snappy => {
            let claimed = snap::raw::decompress_len(packed).map_err(|error| failed(&error))?;
            if claimed == length {
                let mut decoder = snap::raw::Decoder::new();
                unpacked = decoder
                    .decompress_vec(packed)
                    .map_err(|error| failed(&error))?;
            }
        }
        Codec::Gzip => {
            let decoder = flate2::read::MultiGzDecoder::new(packed);
            let read = decoder.take(limit).read_to_end(&mut unpacked);
            read.map_err(|error| failed(&error))?;
        }
        Codec::Zstd => {
            let mut decoder =
                zstd::stream::read::Decoder::with_buffer(packed).map_err(|error| failed(&error))?;
            decoder
                .window_log_max(ZSTD_WINDOW_LOG_MAX)
                .map_err(|error| failed(&error))?;
            let read = decoder.take(limit).read_to_end(&mut unpacked);
            read.map_err(|error| failed(&error))?;
        }
        Codec::Lz4Raw => {
            unpacked = vec![0; length];
            let count = lz4_flex::block::decompress_into(packed, &mut unpacked)
                .map_err(|error| failed(&error))?;
            unpacked.truncate(count);
        }
    }
    if unpacked.len() != length {
        return Err(wrong(format!(
            "a page does not unpack to the {length} bytes that it claims"
        )));
    }
    Ok(unpacked)
}

/// The pages of a chunk.
pub(super) struct Pages {
    file: Arc<File>,
    codec: Codec,
    at: u64,
    end: u64,
    /// Rows of the group that no page has had yet.
    rows_left: u64,
    is_optional: bool,
    budget: Arc<PageBudget>,
    /// Bytes of the page that the column reader has, and of its dictionary.
    page_bytes: u64,
    dictionary_bytes: u64,
    has_dictionary: bool,
}

impl Pages {
    /// The pages of a chunk of a row group that has `rows`. Values may be missing if it
    /// `is_optional`.
    pub(super) fn new(
        file: Arc<File>,
        chunk: Chunk,
        rows: u64,
        is_optional: bool,
        budget: Arc<PageBudget>,
    ) -> Self {
        Self {
            file,
            codec: chunk.codec,
            at: chunk.start,
            end: chunk.start + chunk.length,
            rows_left: rows,
            is_optional,
            budget,
            page_bytes: 0,
            dictionary_bytes: 0,
            has_dictionary: false,
        }
    }

    fn bytes(&self, length: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(length)?];
        self.file.read_exact_at(&mut bytes, self.at)?;
        Ok(bytes)
    }

    fn header(&mut self) -> Result<Header> {
        let left = self.end - self.at;
        let mut length = HEADER_BYTES;
        loop {
            let is_all = length as u64 >= left || length >= HEADER_BYTES_MAX;
            let bytes = self.bytes(left.min(length as u64))?;
            match header(&bytes) {
                Ok((header, length)) => {
                    self.at += length as u64;
                    self.budget.header(length as u64)?;
                    return Ok(header);
                }
                Err(Fault::Short) if !is_all => length *= 8,
                Err(Fault::Short) => return Err(wrong("the header of a page is cut off")),
                Err(Fault::Wrong(what)) => {
                    return Err(wrong(format!("the header of a page is broken: {what}")));
                }
            }
        }
    }

    /// Refuses a page that is longer than what is left of its column.
    fn check_length(&self, header: &Header) -> Result<()> {
        if header.packed > self.end - self.at || header.unpacked > PAGE_BYTES_MAX {
            return Err(wrong(format!(
                "a page claims {} bytes, {} once unpacked: its column has {} left, and at most {PAGE_BYTES_MAX} are unpacked at a time",
                header.packed,
                header.unpacked,
                self.end - self.at
            )));
        }
        Ok(())
    }

    /// Reads and unpacks the bytes of a page. Levels of pages of the second version come first and
    /// are not packed.
    fn content(&mut self, header: &Header) -> Result<Bytes> {
        self.check_length(header)?;
        let packed = self.bytes(header.packed)?;
        self.at += header.packed;
        let levels = match header.kind {
            DATA_V2 => header
                .definition_bytes
                .saturating_add(header.repetition_bytes),
            _ => 0,
        };
        if levels > header.unpacked.min(header.packed) {
            return Err(wrong("the levels of a page are longer than the page"));
        }
        let levels = usize::try_from(levels)?;
        let length = usize::try_from(header.unpacked)? - levels;
        if !header.is_packed || self.codec == Codec::None {
            if packed.len() - levels != length {
                return Err(wrong("a page that is not packed has two lengths"));
            }
            return Ok(packed.into());
        }
        let mut content = Vec::with_capacity(levels + length);
        content.extend_from_slice(&packed[..levels]);
        if length > 0 {
            content.extend_from_slice(&unpack(self.codec, &packed[levels..], length)?);
        }
        Ok(content.into())
    }

    fn dictionary(&mut self, header: &Header) -> Result<Page> {
        if self.has_dictionary {
            return Err(wrong("a column has two dictionaries"));
        }
        self.has_dictionary = true;
        let entries = header.values.saturating_mul(ENTRY_BYTES);
        let bytes = header.unpacked.saturating_add(entries);
        // An entry has at least a byte: truth values have no dictionary.
        if header.values > header.unpacked {
            return Err(wrong(
                "a dictionary claims more entries than it has bytes for",
            ));
        }
        self.budget.take(bytes)?;
        self.dictionary_bytes = bytes;
        let buf = self.content(header)?;
        let encoding = match header.encoding {
            0 | 2 => Encoding::PLAIN,
            _ => return Err(wrong("the encoding of a dictionary is not known")),
        };
        Ok(Page::DictionaryPage {
            buf,
            num_values: u32::try_from(header.values)?,
            encoding,
            is_sorted: false,
        })
    }

    fn data(&mut self, header: &Header) -> Result<Page> {
        if header.values > self.rows_left {
            return Err(wrong(format!(
                "a page has {} values, and its row group has {} rows left",
                header.values, self.rows_left
            )));
        }
        self.rows_left -= header.values;
        let encoding = encoding(header.encoding)?;
        let is_dictionary = matches!(
            encoding,
            Encoding::PLAIN_DICTIONARY | Encoding::RLE_DICTIONARY
        );
        if is_dictionary && !self.has_dictionary {
            return Err(wrong("a page needs a dictionary that is not there"));
        }
        self.budget.give_back(std::mem::take(&mut self.page_bytes));
        self.budget.take(header.unpacked)?;
        self.page_bytes = header.unpacked;
        let buf = self.content(header)?;
        let num_values = u32::try_from(header.values)?;
        if header.kind == DATA {
            // Required columns have no levels, and some writers name another encoding for them.
            if self.is_optional && header.definition_encoding != 3 {
                return Err(wrong("the encoding of definition levels is not RLE"));
            }
            return Ok(Page::DataPage {
                buf,
                num_values,
                encoding,
                def_level_encoding: Encoding::RLE,
                rep_level_encoding: Encoding::RLE,
                statistics: None,
            });
        }
        Ok(Page::DataPageV2 {
            buf,
            num_values,
            encoding,
            num_nulls: u32::try_from(header.nulls)?,
            num_rows: u32::try_from(header.rows)?,
            def_levels_byte_len: u32::try_from(header.definition_bytes)?,
            rep_levels_byte_len: u32::try_from(header.repetition_bytes)?,
            is_compressed: false,
            statistics: None,
        })
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.budget
            .give_back(self.page_bytes + self.dictionary_bytes);
    }
}

impl Iterator for Pages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Result<Page>> {
        self.get_next_page().transpose()
    }
}

impl PageReader for Pages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        while self.at < self.end && self.rows_left > 0 {
            let header = self.header()?;
            match header.kind {
                DICTIONARY => return self.dictionary(&header).map(Some),
                DATA | DATA_V2 if header.values > 0 => return self.data(&header).map(Some),
                // Pages without values are not unpacked.
                DATA | DATA_V2 | INDEX => {
                    self.check_length(&header)?;
                    self.at += header.packed;
                }
                _ => return Err(wrong("a page has a kind that is not known")),
            }
        }
        Ok(None)
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        Err(wrong("pages are read in order"))
    }

    fn skip_next_page(&mut self) -> Result<()> {
        Err(wrong("pages are read in order"))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// The pages of a column of zeros, each of which is an empty page, and the header of none.
    fn zeros(count: usize, budget: &Arc<PageBudget>) -> Pages {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![0; count]).unwrap();
        let chunk = Chunk {
            codec: Codec::None,
            start: 0,
            length: count as u64,
        };
        Pages::new(Arc::new(file), chunk, 1, false, Arc::clone(budget))
    }

    #[test]
    fn empty_pages_count() {
        let budget = PageBudget::new(64 * 1_000, Stop::default());
        assert!(zeros(600, &budget).get_next_page().unwrap().is_none());
        // Chunks may overlap: what counts is how often a header is read.
        let error = zeros(600, &budget).get_next_page().unwrap_err();
        assert!(error.to_string().contains("64000 bytes"), "{error}");
    }

    #[test]
    fn pages_are_not_read_when_the_work_shall_stop() {
        let stop = Stop::default();
        let budget = PageBudget::new(u64::MAX, stop.clone());
        let mut pages = zeros(10, &budget);
        assert!(pages.get_next_page().unwrap().is_none());
        stop.set();
        let mut pages = zeros(10, &budget);
        assert!(pages.get_next_page().is_err());
        assert_eq!(pages.at, 1, "pages were read after the stop");
    }
}
