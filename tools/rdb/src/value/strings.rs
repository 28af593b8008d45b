//! The strings that a step reads, two at most, unpacked if they are packed.

use std::ops::Range;

use crate::UNPACKED_BYTES;
use crate::error::Stop;
use crate::lzf;
use crate::text::Text;
use crate::window::{Cursor, Stored, Window};

/// Bytes that a step unpacks.
const UNPACKED_AT_ONCE: usize = 64 << 10;

/// Where the bytes of a string are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Span {
    /// Among all bytes.
    Stored(Range<u64>),
    Integer(i64),
    /// In a slot.
    Unpacked(usize),
}

/// A string that is unpacked, or is being so.
#[derive(Clone, Debug, Default)]
struct Slot {
    /// Where it stands; from 1 on, so that 0 is none.
    key: u64,
    bytes: Vec<u8>,
    /// How far its packed bytes were read.
    read: usize,
    is_whole: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Strings {
    slots: [Slot; 2],
    allowed: usize,
}

impl Default for Strings {
    fn default() -> Self {
        Self {
            slots: Default::default(),
            allowed: UNPACKED_BYTES,
        }
    }
}

impl Strings {
    pub(crate) fn allow(&mut self, bytes: usize) {
        self.allowed = self.allowed.max(bytes);
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.slots.iter().map(|slot| slot.bytes.capacity()).sum()
    }

    /// Reads a string, which has a slot if it is packed.
    pub(crate) fn fetch(
        &mut self,
        slot: usize,
        cursor: &mut Cursor<'_>,
        window: Window<'_>,
    ) -> Result<Span, Stop> {
        let key = cursor.at() + 1;
        let absolute = |place: usize| window.start + place as u64;
        match cursor.string()? {
            Stored::Raw(range) => Ok(Span::Stored(absolute(range.start)..absolute(range.end))),
            Stored::Integer(number) => Ok(Span::Integer(number)),
            Stored::Packed { range, bytes } => {
                let place = slot;
                let slot = &mut self.slots[place];
                if slot.key != key {
                    if bytes > self.allowed {
                        return Err(Stop::Room(bytes));
                    }
                    slot.bytes.clear();
                    if slot.bytes.capacity() < bytes {
                        // Not the old bytes and the new ones.
                        slot.bytes = Vec::with_capacity(bytes);
                    }
                    (slot.key, slot.read, slot.is_whole) = (key, 0, false);
                }
                if !slot.is_whole {
                    let into = (&mut slot.bytes, bytes);
                    let packed = &window.bytes[range];
                    slot.is_whole = lzf::unpack(packed, &mut slot.read, into, UNPACKED_AT_ONCE)?;
                }
                if slot.is_whole {
                    Ok(Span::Unpacked(place))
                } else {
                    Err(Stop::Busy)
                }
            }
        }
    }

    /// The bytes of a string; none of an integer.
    pub(super) fn bytes<'a>(&'a self, span: &Span, window: Window<'a>) -> &'a [u8] {
        match span {
            Span::Stored(range) => {
                let range = window.place(range.start)..window.place(range.end);
                window.bytes.get(range).unwrap_or_default()
            }
            Span::Integer(_) => &[],
            Span::Unpacked(slot) => &self.slots[*slot].bytes,
        }
    }

    pub(crate) fn text<'a>(&'a self, span: &Span, window: Window<'a>) -> Text<'a> {
        match span {
            Span::Integer(number) => Text::of_integer(*number),
            span => Text::Bytes(self.bytes(span, window)),
        }
    }
}
