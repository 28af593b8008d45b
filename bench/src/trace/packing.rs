//! How a file is compressed: not at all, with zstd or with gzip, and the decoders. Skippable frames
//! are skipped, several frames or members are read one after the other.
//!
//! Memory: the window of a zstd frame, [`WINDOW_LOG_MAX`] at most.
//!
//! Sources: RFC 8878, 3.1 (zstd); RFC 1952, 2.3.1 (gzip).

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;

/// The first bytes of a zstd frame.
pub(super) const ZSTD_MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];
/// Those of a gzip member that is deflated, as all are.
pub(super) const GZIP_MAGIC: [u8; 3] = [0x1F, 0x8B, 8];
/// Of a skippable frame, behind a byte of which the lower four bits may be anything. Its length
/// follows.
const SKIPPABLE_MAGIC: [u8; 3] = [0x2A, 0x4D, 0x18];
const SKIPPABLE_FIRST: std::ops::RangeInclusive<u8> = 0x50..=0x5F;
/// The largest window of a zstd frame that is read: 128 MiB, as in zstd without an option.
const WINDOW_LOG_MAX: u32 = 27;

const BUFFER_BYTES: usize = 256 << 10;

/// How a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    Plain,
    Zstd,
    Gzip,
}

impl Packing {
    /// Of a file that begins so.
    pub(super) fn of(start: &[u8]) -> Self {
        if start.starts_with(&GZIP_MAGIC) {
            return Self::Gzip;
        }
        let frame = behind_skippable(start);
        let is_cut = frame.is_none_or(<[u8]>::is_empty) && !start.is_empty();
        if is_cut || frame.is_some_and(|frame| frame.starts_with(&ZSTD_MAGIC)) {
            Self::Zstd
        } else {
            Self::Plain
        }
    }

    /// The command that unpacks it.
    pub(super) const fn tool(self) -> &'static str {
        match self {
            Self::Plain => "cat",
            Self::Zstd => "zstd -dc",
            Self::Gzip => "zcat",
        }
    }

    /// The content.
    ///
    /// # Errors
    /// A decoder cannot be made.
    pub(super) fn open(self, input: Box<dyn BufRead>) -> io::Result<Box<dyn BufRead>> {
        let inner: Box<dyn Read> = match self {
            Self::Plain => return Ok(input),
            Self::Zstd => {
                let mut decoder = zstd::Decoder::with_buffer(input)?;
                decoder.window_log_max(WINDOW_LOG_MAX)?;
                Box::new(decoder)
            }
            Self::Gzip => Box::new(MultiGzDecoder::new(input)),
        };
        let explained = Explained {
            inner,
            packing: self,
        };
        Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, explained)))
    }
}

/// What follows the skippable frames that a file begins with: all of it if there is none, `None` if
/// they are longer than what is at hand.
pub(super) fn behind_skippable(mut start: &[u8]) -> Option<&[u8]> {
    while let [first, rest @ ..] = start
        && SKIPPABLE_FIRST.contains(first)
        && let Some(rest) = rest.strip_prefix(&SKIPPABLE_MAGIC)
    {
        let (length, rest) = rest.split_first_chunk()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        start = rest.get(length..)?;
    }
    Some(start)
}

/// A decoder whose errors say what to do.
struct Explained {
    inner: Box<dyn Read>,
    packing: Packing,
}

impl Read for Explained {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.inner
            .read(buffer)
            .map_err(|error| explained(error, self.packing))
    }
}

/// The decoders name their errors by text alone.
fn explained(error: io::Error, packing: Packing) -> io::Error {
    let tool = packing.tool();
    let what = match (packing, error.to_string().as_str()) {
        (Packing::Zstd, "Frame requires too much memory for decoding") => format!(
            "a zstd frame has a window of more than {} MiB: unpack it with the option for such, as in `{tool} --long=31 FILE | farcore-bench trace -`",
            (1_u64 << WINDOW_LOG_MAX) >> 20
        ),
        (Packing::Zstd, "Dictionary mismatch") => format!(
            "it is compressed with a dictionary: unpack it with that, as in `{tool} -D DICTIONARY FILE | farcore-bench trace -`"
        ),
        (Packing::Zstd, "Unknown frame descriptor") => format!(
            "a zstd frame is followed by what is none: `{tool} FILE | farcore-bench trace -` replays what is before it"
        ),
        (Packing::Gzip, "invalid gzip header") => format!(
            "a gzip member is followed by what is none: `{tool} FILE | farcore-bench trace -` replays what is before it"
        ),
        _ => return error,
    };
    io::Error::new(io::ErrorKind::InvalidData, what)
}
