//! A trace file of either format, plain or compressed with zstd or gzip, as a stream of
//! requests.
//!
//! Owns the file and its buffers. Bad lines and records are returned as flaws; only errors of the
//! file or the decoder end the stream. Memory: a few buffers and the window of the zstd frame, 128
//! MiB at most.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use serde::{Deserialize, Serialize};

use super::csv::{self, LINE_BYTES_MAX};
use super::entry::{Entry, Flaw};
use super::oracle::{self, RECORD_BYTES};

/// The first bytes of a zstd frame (RFC 8878, 3.1.1).
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];
/// Those of a gzip member that is deflated, as all are (RFC 1952, 2.3.1).
const GZIP_MAGIC: [u8; 3] = [0x1F, 0x8B, 8];
/// Those of xz (its file format, 2.1.1.1), and what follows `BZh` and a digit in bzip2.
const XZ_MAGIC: [u8; 6] = [0xFD, b'7', b'z', b'X', b'Z', 0];
const BZIP2_BLOCK: [u8; 6] = [0x31, 0x41, 0x59, 0x26, 0x53, 0x59];

/// What unpacks a file that begins so, if it is compressed in a way that is not read here.
fn unpacker(start: &[u8]) -> Option<&'static str> {
    match start {
        _ if start.starts_with(&XZ_MAGIC) => Some("xzcat"),
        [b'B', b'Z', b'h', b'1'..=b'9', rest @ ..] if rest.starts_with(&BZIP2_BLOCK) => {
            Some("bzcat")
        }
        _ => None,
    }
}

const BUFFER_BYTES: usize = 256 << 10;
/// Bytes inspected to distinguish text from records.
const SAMPLE_BYTES: usize = 4096;

/// The format of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// Lines of Twitter's cache traces.
    Csv,
    /// Records of libCacheSim's oracleGeneral.
    OracleGeneral,
}

impl Format {
    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::OracleGeneral => "oracle-general",
        }
    }

    /// The format of a file: from its name, else from its first bytes, because records hold control
    /// bytes.
    fn of(file: &Path, sample: &[u8]) -> Self {
        let name = file.file_name().unwrap_or_default();
        let name = name.to_string_lossy().to_ascii_lowercase();
        if name.contains("oraclegeneral") {
            return Self::OracleGeneral;
        }
        let name = name.trim_end_matches(".zst").trim_end_matches(".gz");
        let is_text = |&byte: &u8| byte >= b' ' || matches!(byte, b'\t' | b'\r' | b'\n');
        if name.ends_with(".csv") || sample.iter().all(is_text) {
            Self::Csv
        } else {
            Self::OracleGeneral
        }
    }
}

/// The stream.
pub struct Source {
    input: Box<dyn BufRead>,
    format: Format,
    number: u64,
    line: Vec<u8>,
    decoded: Vec<u8>,
    record: [u8; RECORD_BYTES],
}

impl std::fmt::Debug for Source {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Source")
            .field("format", &self.format)
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

impl Source {
    /// Opens a file. Without a format, it is detected from the name or the contents. Compression is
    /// detected from the contents.
    ///
    /// # Errors
    /// Those of the file or of the decoder.
    pub fn open(file: &Path, format: Option<Format>) -> io::Result<Self> {
        Self::new(File::open(file)?, file, format)
    }

    fn new(input: impl Read + 'static, name: &Path, format: Option<Format>) -> io::Result<Self> {
        let mut input = BufReader::with_capacity(BUFFER_BYTES, input);
        let start = input.fill_buf()?;
        if let Some(tool) = unpacker(start) {
            let what = format!(
                "it is compressed, and neither with zstd nor gzip: unpack it with {tool}, as in `{tool} FILE | farcore-bench trace -`"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        let mut input: Box<dyn BufRead> = if start.starts_with(&ZSTD_MAGIC) {
            let decoder = zstd::Decoder::with_buffer(input)?;
            Box::new(BufReader::with_capacity(BUFFER_BYTES, decoder))
        } else if start.starts_with(&GZIP_MAGIC) {
            let decoder = MultiGzDecoder::new(input);
            Box::new(BufReader::with_capacity(BUFFER_BYTES, decoder))
        } else {
            Box::new(input)
        };
        let sample = input.fill_buf()?;
        let sample = &sample[..sample.len().min(SAMPLE_BYTES)];
        let format = format.unwrap_or_else(|| Format::of(name, sample));
        Ok(Self {
            input,
            format,
            number: 0,
            line: Vec::with_capacity(LINE_BYTES_MAX),
            decoded: Vec::new(),
            record: [0; RECORD_BYTES],
        })
    }

    /// The format.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// The number of the last line or record, from 1.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The next request, or why a line is skipped; `None` at the end.
    ///
    /// # Errors
    /// Those of the file or of the decoder.
    pub fn read(&mut self) -> io::Result<Option<Result<Entry<'_>, Flaw>>> {
        self.number += 1;
        match self.format {
            Format::Csv => {
                let Some(fits) = next_line(&mut *self.input, &mut self.line)? else {
                    return Ok(None);
                };
                if !fits {
                    return Ok(Some(Err(Flaw::LineTooLong)));
                }
                let parsed = csv::parse(&self.line, &mut self.decoded);
                Ok(Some(match parsed {
                    Err(Flaw::Number) if self.number == 1 => Err(Flaw::Header),
                    parsed => parsed,
                }))
            }
            Format::OracleGeneral => Ok(match next_record(&mut *self.input, &mut self.record)? {
                0 => None,
                RECORD_BYTES => Some(Ok(oracle::parse(&self.record))),
                _ => Some(Err(Flaw::Truncated)),
            }),
        }
    }
}

/// Reads a line without its line end. Returns whether it fits; the rest of a longer line is
/// skipped. `None` at the end.
fn next_line(input: &mut dyn BufRead, line: &mut Vec<u8>) -> io::Result<Option<bool>> {
    line.clear();
    let (mut fits, mut is_empty) = (true, true);
    loop {
        let bytes = input.fill_buf()?;
        if bytes.is_empty() {
            return Ok((!is_empty).then_some(fits));
        }
        is_empty = false;
        let end = bytes.iter().position(|&byte| byte == b'\n');
        let piece = &bytes[..end.unwrap_or(bytes.len())];
        fits &= line.len() + piece.len() <= LINE_BYTES_MAX;
        if fits {
            line.extend_from_slice(piece);
        }
        let used = piece.len() + usize::from(end.is_some());
        input.consume(used);
        if end.is_some() {
            return Ok(Some(fits));
        }
    }
}

/// Reads a record; returns how many of its bytes the file had.
fn next_record(input: &mut dyn BufRead, record: &mut [u8; RECORD_BYTES]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < RECORD_BYTES {
        match input.read(&mut record[filled..]) {
            Ok(0) => break,
            Ok(bytes) => filled += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Write};

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use proptest::prelude::*;

    use super::*;

    type Read = (Vec<Result<(Vec<u8>, u64), Flaw>>, Format);

    fn read_as(bytes: &[u8], name: &str, format: Option<Format>) -> io::Result<Read> {
        let mut source = Source::new(Cursor::new(bytes.to_vec()), name.as_ref(), format)?;
        let mut found = Vec::new();
        while let Some(entry) = source.read()? {
            found.push(entry.map(|entry| (entry.key.to_vec(), entry.value_bytes)));
        }
        Ok((found, source.format()))
    }

    fn read(bytes: &[u8]) -> Read {
        read_as(bytes, "trace", None).unwrap()
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

    #[test]
    fn other_compressions_are_refused_with_the_remedy() {
        for (bytes, tool) in [
            (&b"\xFD7zXZ\0\0\x04"[..], "xzcat"),
            (b"BZh91AY&SY", "bzcat"),
        ] {
            let error = read_as(bytes, "w.csv.x", None).unwrap_err().to_string();
            let remedy = format!("`{tool} FILE | farcore-bench trace -`");
            assert!(error.ends_with(&remedy), "{error}");
        }
        // Records that begin alike.
        assert_eq!(
            read(&record_at(u32::from_le_bytes(*b"BZh9"), 1, 2)).0.len(),
            1
        );
    }

    #[test]
    fn a_name_or_a_flag_overrides_the_contents() {
        let text = b"0,a,1,5,1,get,0\nxxxxxxxx";
        let format = |name, flag| read_as(text, name, flag).unwrap().1;
        assert_eq!(format("w01.oracleGeneral.zst", None), Format::OracleGeneral);
        assert_eq!(format("w01.csv", None), Format::Csv);
        let forced = Some(Format::OracleGeneral);
        assert_eq!(format("w01.csv", forced), Format::OracleGeneral);
        let records = record(1, 2);
        for name in ["w.csv.zst", "w.csv.gz"] {
            assert_eq!(read_as(&records, name, None).unwrap().1, Format::Csv);
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
            assert!(read_as(&bytes, "trace", None).is_err());
        }
        let junk = [&ZSTD_MAGIC[..], &[0xff; 40]].concat();
        assert!(read_as(&junk, "trace", None).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_in_both_formats(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let lines = read_as(&bytes, "x", Some(Format::Csv));
            let records = read_as(&bytes, "x", Some(Format::OracleGeneral));
            let plain = |magic: &[u8]| !bytes.starts_with(magic);
            if plain(&ZSTD_MAGIC) && plain(&GZIP_MAGIC) && unpacker(&bytes).is_none() {
                let ends = bytes.iter().filter(|&&byte| byte == b'\n').count();
                let open = usize::from(!bytes.is_empty() && !bytes.ends_with(b"\n"));
                prop_assert_eq!(lines.unwrap().0.len(), ends + open);
                let records = records.unwrap().0;
                prop_assert_eq!(records.len(), bytes.len().div_ceil(RECORD_BYTES));
                let whole = records.iter().filter(|found| found.is_ok()).count();
                prop_assert_eq!(whole, bytes.len() / RECORD_BYTES);
            }
        }

        #[test]
        fn damaged_frames_never_panic(at in 0_usize..60, byte in any::<u8>()) {
            for form in [compressed, gzipped] {
                let mut bytes = form(&b"0,a,1,5,1,get,0\n".repeat(50));
                let at = at % bytes.len();
                bytes[at] = byte;
                let _ = read_as(&bytes, "trace", None);
            }
        }
    }
}
