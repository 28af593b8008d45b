//! Bytes that may come in pieces, and what is read of them.

use crate::error::{Problem, Stop};

/// Bytes of a payload or a file, as far as they are there.
#[derive(Clone, Copy, Debug)]
pub struct Window<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// Where the first of them stands.
    pub start: u64,
    /// No others follow.
    pub is_last: bool,
}

impl<'a> Window<'a> {
    /// All bytes at once.
    #[must_use]
    pub fn whole(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            start: 0,
            is_last: true,
        }
    }

    /// The place of a byte, which stands here or behind.
    pub(crate) fn place(&self, at: u64) -> usize {
        let place = usize::try_from(at.saturating_sub(self.start)).unwrap_or(usize::MAX);
        place.min(self.bytes.len())
    }
}

/// Reads bytes of a window from a place on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    window: Window<'a>,
    /// In the window.
    pub(crate) place: usize,
}

/// A length, or what stands for one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Length {
    Bytes(u64),
    Special(u8),
}

/// A string as it stands in bytes; ranges are of the window.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Stored {
    Raw(std::ops::Range<usize>),
    Integer(i64),
    Packed {
        range: std::ops::Range<usize>,
        bytes: usize,
    },
}

const SPECIAL_BYTE: u8 = 0;
const SPECIAL_SHORT: u8 = 1;
const SPECIAL_LONG: u8 = 2;
const SPECIAL_PACKED: u8 = 3;

impl<'a> Cursor<'a> {
    pub(crate) fn new(window: Window<'a>, at: u64) -> Self {
        let place = window.place(at);
        Self { window, place }
    }

    /// Where it stands among all bytes.
    pub(crate) fn at(&self) -> u64 {
        self.window.start + self.place as u64
    }

    /// How many bytes are there; `None` if others may follow.
    pub(crate) fn left(&self) -> Option<u64> {
        let left = self.window.bytes.len() - self.place;
        self.window.is_last.then_some(left as u64)
    }

    pub(crate) fn take(&mut self, bytes: u64) -> Result<std::ops::Range<usize>, Stop> {
        let left = self.window.bytes.len() - self.place;
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        if bytes > left {
            return Err(match self.window.is_last {
                true => Problem::Truncated.into(),
                false => Stop::More,
            });
        }
        let start = self.place;
        self.place += bytes;
        Ok(start..self.place)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Stop> {
        let range = self.take(N as u64)?;
        let mut array = [0; N];
        array.copy_from_slice(&self.window.bytes[range]);
        Ok(array)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Stop> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn any_length(&mut self) -> Result<Length, Stop> {
        let first = self.byte()?;
        Ok(match first >> 6 {
            0 => Length::Bytes(u64::from(first & 63)),
            1 => Length::Bytes((u64::from(first & 63) << 8) | u64::from(self.byte()?)),
            2 => match first {
                0x80 => Length::Bytes(u64::from(u32::from_be_bytes(self.array()?))),
                0x81 => Length::Bytes(u64::from_be_bytes(self.array()?)),
                _ => return Err(Problem::Length.into()),
            },
            _ => Length::Special(first & 63),
        })
    }

    /// A length or a count.
    pub(crate) fn length(&mut self) -> Result<u64, Stop> {
        match self.any_length()? {
            Length::Bytes(bytes) => Ok(bytes),
            Length::Special(_) => Err(Problem::Length.into()),
        }
    }

    /// A count of what takes `each` bytes or more.
    pub(crate) fn count(&mut self, each: u64) -> Result<u64, Stop> {
        let count = self.length()?;
        match self.left() {
            Some(left) if count.saturating_mul(each) > left => Err(Problem::Truncated.into()),
            _ => Ok(count),
        }
    }

    /// A string.
    pub(crate) fn string(&mut self) -> Result<Stored, Stop> {
        Ok(match self.any_length()? {
            Length::Bytes(bytes) => Stored::Raw(self.take(bytes)?),
            Length::Special(SPECIAL_BYTE) => {
                Stored::Integer(i64::from(i8::from_le_bytes(self.array()?)))
            }
            Length::Special(SPECIAL_SHORT) => {
                Stored::Integer(i64::from(i16::from_le_bytes(self.array()?)))
            }
            Length::Special(SPECIAL_LONG) => {
                Stored::Integer(i64::from(i32::from_le_bytes(self.array()?)))
            }
            Length::Special(SPECIAL_PACKED) => {
                let (packed, bytes) = (self.length()?, self.length()?);
                let bytes = usize::try_from(bytes).map_err(|_| Problem::Packed)?;
                let packed_bytes = usize::try_from(packed).map_err(|_| Problem::Packed)?;
                if bytes == 0 || !crate::lzf::may_become(packed_bytes, bytes) {
                    return Err(Problem::Packed.into());
                }
                let range = self.take(packed)?;
                Stored::Packed { range, bytes }
            }
            Length::Special(_) => return Err(Problem::Length.into()),
        })
    }
}
