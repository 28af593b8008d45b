//! The compact protocol of Apache Thrift, as far as Parquet's metadata needs it: reading, in place,
//! without allocation.
//!
//! - I1: a length is compared with the bytes that are left before it is believed. An element of a
//!   list takes at least a byte, so a list is no longer than the bytes.
//! - I2: values nest at most [`DEPTH_MAX`] deep.
//!
//! Source: Apache Thrift, `doc/specs/thrift-compact-protocol.md`.

/// Deepest nesting of values. Parquet's own metadata has 7.
const DEPTH_MAX: usize = 16;

/// Why bytes cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// They end too early.
    Short,
    /// They are wrong; what of them is.
    Wrong(&'static str),
}

/// The outcome of reading.
pub(super) type Read<T> = Result<T, Fault>;

/// The type of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    True,
    False,
    Byte,
    Integer,
    Double,
    Binary,
    List,
    Map,
    Struct,
    Uuid,
}

impl Kind {
    fn of(bits: u8) -> Read<Self> {
        Ok(match bits {
            1 => Self::True,
            2 => Self::False,
            3 => Self::Byte,
            4..=6 => Self::Integer,
            7 => Self::Double,
            8 => Self::Binary,
            9 | 10 => Self::List,
            11 => Self::Map,
            12 => Self::Struct,
            13 => Self::Uuid,
            _ => return Err(Fault::Wrong("an unknown type")),
        })
    }
}

/// The heading of a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Field {
    /// Its number.
    pub(super) id: i64,
    /// Its type.
    pub(super) kind: Kind,
}

/// Reads values from bytes.
#[derive(Clone, Debug)]
pub(super) struct Compact<'a> {
    bytes: &'a [u8],
    at: usize,
    depth: usize,
}

impl<'a> Compact<'a> {
    /// Reads from the start of some bytes.
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            at: 0,
            depth: 0,
        }
    }

    /// The number of bytes read.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    fn byte(&mut self) -> Read<u8> {
        let byte = *self.bytes.get(self.at).ok_or(Fault::Short)?;
        self.at += 1;
        Ok(byte)
    }

    fn advance(&mut self, count: usize) -> Read<&'a [u8]> {
        if count > self.left() {
            return Err(Fault::Short);
        }
        let taken = &self.bytes[self.at..self.at + count];
        self.at += count;
        Ok(taken)
    }

    fn varint(&mut self) -> Read<u64> {
        let mut value = 0_u64;
        for shift in (0..70).step_by(7) {
            let byte = self.byte()?;
            if shift == 63 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Fault::Wrong("an integer of more than 64 bits"))
    }

    /// An integer of any width.
    pub(super) fn integer(&mut self) -> Read<i64> {
        let value = self.varint()?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    /// An integer that is a size or number.
    pub(super) fn count(&mut self) -> Read<u64> {
        u64::try_from(self.integer()?).map_err(|_| Fault::Wrong("a negative number"))
    }

    /// Bytes or a text.
    pub(super) fn binary(&mut self) -> Read<&'a [u8]> {
        let length = usize::try_from(self.varint()?).map_err(|_| Fault::Short)?;
        self.advance(length)
    }

    /// The length of a list, and the type of its elements.
    pub(super) fn list(&mut self) -> Read<(usize, Kind)> {
        let head = self.byte()?;
        let length = match head >> 4 {
            15 => usize::try_from(self.varint()?).map_err(|_| Fault::Short)?,
            short => usize::from(short),
        };
        if length > self.left() {
            return Err(Fault::Short);
        }
        if length == 0 {
            // Some writers leave the type of an empty list out.
            return Ok((0, Kind::Byte));
        }
        Ok((length, Kind::of(head & 15)?))
    }

    /// Reads a struct: gives each field to a function, which reads its value or leaves it, to be
    /// skipped, by returning false.
    pub(super) fn fields(
        &mut self,
        mut read: impl FnMut(&mut Self, Field) -> Read<bool>,
    ) -> Read<()> {
        self.descend()?;
        let mut id = 0;
        loop {
            let head = self.byte()?;
            if head == 0 {
                break;
            }
            let kind = Kind::of(head & 15)?;
            id = match head >> 4 {
                0 => self.integer()?,
                delta => id + i64::from(delta),
            };
            if !(0..=i64::from(i16::MAX)).contains(&id) {
                return Err(Fault::Wrong("the number of a field"));
            }
            if !read(self, Field { id, kind })? {
                self.skip(kind)?;
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn descend(&mut self) -> Read<()> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(Fault::Wrong("values that nest too deep"));
        }
        Ok(())
    }

    /// Skips a value of a field.
    pub(super) fn skip(&mut self, kind: Kind) -> Read<()> {
        match kind {
            Kind::True | Kind::False => {}
            Kind::Byte => {
                self.byte()?;
            }
            Kind::Integer => {
                self.varint()?;
            }
            Kind::Double => {
                self.advance(8)?;
            }
            Kind::Uuid => {
                self.advance(16)?;
            }
            Kind::Binary => {
                self.binary()?;
            }
            Kind::Struct => self.fields(|_, _| Ok(false))?,
            Kind::List => {
                let (length, kind) = self.list()?;
                self.skip_elements(length, &[kind])?;
            }
            Kind::Map => {
                let length = usize::try_from(self.varint()?).map_err(|_| Fault::Short)?;
                if length > 0 {
                    let kinds = self.byte()?;
                    let kinds = [Kind::of(kinds >> 4)?, Kind::of(kinds & 15)?];
                    self.skip_elements(length, &kinds)?;
                }
            }
        }
        Ok(())
    }

    fn skip_elements(&mut self, length: usize, kinds: &[Kind]) -> Read<()> {
        self.descend()?;
        if length > self.left() {
            return Err(Fault::Short);
        }
        for _ in 0..length {
            for &kind in kinds {
                match kind {
                    // In a list, unlike in a struct, a truth value takes a byte.
                    Kind::True | Kind::False => {
                        self.byte()?;
                    }
                    _ => self.skip(kind)?,
                }
            }
        }
        self.depth -= 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_zigzag_varints() {
        for (bytes, value) in [
            (&[0][..], 0),
            (&[1], -1),
            (&[0xac, 0x02], 150),
            (
                &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
                i64::MIN,
            ),
        ] {
            assert_eq!(Compact::new(bytes).integer(), Ok(value));
        }
        let long = [0xff; 11];
        assert!(matches!(
            Compact::new(&long).integer(),
            Err(Fault::Wrong(_))
        ));
        assert_eq!(Compact::new(&[0x80]).integer(), Err(Fault::Short));
    }

    #[test]
    fn lengths_that_lie_and_depth_are_refused() {
        // A list of 2^31 structs in 7 bytes.
        let list = [0xfc, 0xff, 0xff, 0xff, 0xff, 0x07, 0];
        assert_eq!(Compact::new(&list).list(), Err(Fault::Short));
        assert_eq!(Compact::new(&[0]).list(), Ok((0, Kind::Byte)));
        assert_eq!(Compact::new(&[0xff, 0x0f, 0]).binary(), Err(Fault::Short));
        // Lists of one list each.
        let deep = [0x19; 100];
        let fault = Compact::new(&deep).skip(Kind::List).unwrap_err();
        assert_eq!(fault, Fault::Wrong("values that nest too deep"));
        let map = [0xff, 0xff, 0x03, 0x55, 0];
        assert_eq!(Compact::new(&map).skip(Kind::Map), Err(Fault::Short));
    }

    #[test]
    fn any_bytes_are_skipped_or_refused() {
        farcore_fuzz::Target::new("thrift")
            .seed([0x15, 2, 0x19, 0x3C, 0x15, 2, 0, 0x15, 2, 0, 0x15, 2, 0, 0])
            .seed(b"\x18\x03abc\x1b\x01\x55\x02\x04\x17\0\0\0\0\0\0\0\0\0")
            .run(|bytes| {
                let mut compact = Compact::new(bytes);
                let _ = compact.skip(Kind::Struct);
                assert!(compact.at() <= bytes.len());
            });
    }
}
