//! Plain data: values that far memory may hold, because every byte pattern is either one or is
//! refused.
//!
//! A value is stored field by field, little-endian, at the offsets that `#[repr(C)]` gives, with
//! zeros as padding. So a C program with the same struct sees the same fields, a struct with
//! padding is fine, and no byte of this process leaks into far memory.
//!
//! ```
//! use farcore_pool::Plain;
//!
//! #[derive(Clone, Copy, PartialEq, Debug, Plain)]
//! #[repr(u8)]
//! enum Side {
//!     Buy = 1,
//!     Sell = 2,
//! }
//!
//! #[derive(Clone, Copy, PartialEq, Debug, Plain)]
//! struct Order {
//!     side: Side,
//!     price: f64,
//!     amount: u32,
//! }
//!
//! let order = Order { side: Side::Sell, price: 2.5, amount: 7 };
//! let mut bytes = [0; Order::BYTES];
//! order.store(&mut bytes);
//! assert_eq!(Order::load(&bytes)?, order);
//! bytes[0] = 9; // no side
//! assert!(Order::load(&bytes).is_err());
//! # Ok::<(), farcore_pool::plain::PlainError>(())
//! ```
//!
//! A type with an address of this process is refused at compile time:
//!
//! ```compile_fail,E0277
//! #[derive(Clone, Copy, farcore_pool::Plain)]
//! struct Name<'a> {
//!     text: &'a str,
//! }
//! ```

/// Bytes in far memory that are no value of a type.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("far memory holds {found}, which is no `{name}`: another type was stored there")]
pub struct PlainError {
    /// The type's name.
    pub name: &'static str,
    /// The number found.
    pub found: u64,
}

/// A value that far memory may hold. Derive it with `#[derive(Plain)]`.
pub trait Plain: Copy + Send + Sync + 'static {
    /// The alignment: a power of two.
    const ALIGN: usize;
    /// The length in bytes: a multiple of the alignment.
    const BYTES: usize;
    /// A mark of the type, equal for equal names and fields, by which an imported pointer is
    /// checked.
    const MARK: u64;
    /// Stores the value in `to`, which is [`Plain::BYTES`] long.
    fn store(&self, to: &mut [u8]);
    /// The value stored in `from`, which is [`Plain::BYTES`] long.
    ///
    /// # Errors
    /// [`PlainError`] if the bytes are no value of this type.
    fn load(from: &[u8]) -> Result<Self, PlainError>;

    /// Stores values one behind the other.
    fn store_all(values: &[Self], to: &mut [u8]) {
        if Self::BYTES > 0 {
            for (value, to) in values.iter().zip(to.chunks_exact_mut(Self::BYTES)) {
                value.store(to);
            }
        }
    }

    /// Loads values that lie one behind the other.
    ///
    /// # Errors
    /// As [`Plain::load`]; the values before it are loaded.
    fn load_all(from: &[u8], values: &mut [Self]) -> Result<(), PlainError> {
        if Self::BYTES > 0 {
            for (value, from) in values.iter_mut().zip(from.chunks_exact(Self::BYTES)) {
                *value = Self::load(from)?;
            }
        }
        Ok(())
    }
}

/// A type's mark, from its name and the marks of its parts (FNV-1a).
#[must_use]
pub const fn mark(name: &str, parts: &[u64]) -> u64 {
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    let (bytes, mut at) = (name.as_bytes(), 0);
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u64).wrapping_mul(PRIME);
        at += 1;
    }
    at = 0;
    while at < parts.len() {
        let part = parts[at].to_le_bytes();
        let mut byte = 0;
        while byte < part.len() {
            hash = (hash ^ part[byte] as u64).wrapping_mul(PRIME);
            byte += 1;
        }
        at += 1;
    }
    hash
}

macro_rules! number {
    ($($number:ident)*) => {$(
        impl Plain for $number {
            const ALIGN: usize = align_of::<$number>();
            const BYTES: usize = size_of::<$number>();
            const MARK: u64 = mark(stringify!($number), &[]);

            fn store(&self, to: &mut [u8]) {
                to.copy_from_slice(&self.to_le_bytes());
            }

            fn load(from: &[u8]) -> Result<Self, PlainError> {
                let mut bytes = [0; size_of::<$number>()];
                bytes.copy_from_slice(from);
                Ok($number::from_le_bytes(bytes))
            }
        }
    )*};
}

number!(i8 u16 i16 u32 i32 u64 i64 u128 i128 f32 f64);

impl Plain for u8 {
    const ALIGN: usize = 1;
    const BYTES: usize = 1;
    const MARK: u64 = mark("u8", &[]);

    fn store(&self, to: &mut [u8]) {
        to[0] = *self;
    }

    fn load(from: &[u8]) -> Result<Self, PlainError> {
        Ok(from[0])
    }

    fn store_all(values: &[Self], to: &mut [u8]) {
        to.copy_from_slice(values);
    }

    fn load_all(from: &[u8], values: &mut [Self]) -> Result<(), PlainError> {
        values.copy_from_slice(from);
        Ok(())
    }
}

impl Plain for bool {
    const ALIGN: usize = 1;
    const BYTES: usize = 1;
    const MARK: u64 = mark("bool", &[]);

    fn store(&self, to: &mut [u8]) {
        to[0] = u8::from(*self);
    }

    fn load(from: &[u8]) -> Result<Self, PlainError> {
        match from[0] {
            0 => Ok(false),
            1 => Ok(true),
            found => Err(PlainError {
                name: "bool",
                found: found.into(),
            }),
        }
    }
}

impl Plain for char {
    const ALIGN: usize = 4;
    const BYTES: usize = 4;
    const MARK: u64 = mark("char", &[]);

    fn store(&self, to: &mut [u8]) {
        u32::from(*self).store(to);
    }

    fn load(from: &[u8]) -> Result<Self, PlainError> {
        let found = u32::load(from)?;
        char::from_u32(found).ok_or(PlainError {
            name: "char",
            found: found.into(),
        })
    }
}

impl Plain for () {
    const ALIGN: usize = 1;
    const BYTES: usize = 0;
    const MARK: u64 = mark("()", &[]);

    fn store(&self, _to: &mut [u8]) {}

    fn load(_from: &[u8]) -> Result<Self, PlainError> {
        Ok(())
    }
}

impl<T: Plain, const N: usize> Plain for [T; N] {
    const ALIGN: usize = T::ALIGN;
    const BYTES: usize = T::BYTES * N;
    const MARK: u64 = mark("array", &[T::MARK, N as u64]);

    fn store(&self, to: &mut [u8]) {
        T::store_all(self, to);
    }

    fn load(from: &[u8]) -> Result<Self, PlainError> {
        const { assert!(N > 0, "an array without elements is no plain data") };
        let mut values = [T::load(&from[..T::BYTES])?; N];
        T::load_all(from, &mut values)?;
        Ok(values)
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use proptest::prelude::*;

    use crate::Plain;

    #[derive(Clone, Copy, PartialEq, Debug, Plain)]
    #[repr(C)]
    struct Padded {
        one: u8,
        eight: u64,
        two: u16,
        flag: bool,
        letters: [char; 2],
        half: Half,
    }

    #[derive(Clone, Copy, PartialEq, Debug, Plain)]
    #[repr(C)]
    struct Half(f32, ());

    #[derive(Clone, Copy, PartialEq, Debug, Plain)]
    struct Pair<A, B> {
        first: A,
        second: B,
    }

    #[derive(Clone, Copy, PartialEq, Debug, Plain)]
    #[repr(i16)]
    enum Level {
        Low = -5,
        High = 700,
    }

    #[test]
    fn a_struct_has_the_layout_of_c() {
        assert_eq!(Padded::BYTES, size_of::<Padded>());
        assert_eq!(Padded::ALIGN, align_of::<Padded>());
        let value = Padded {
            one: 1,
            eight: 2,
            two: 3,
            flag: true,
            letters: ['a', 'ß'],
            half: Half(0.5, ()),
        };
        let mut bytes = [0xff; Padded::BYTES];
        value.store(&mut bytes);
        assert_eq!(bytes[offset_of!(Padded, two)], 3);
        assert_eq!(bytes[offset_of!(Padded, flag)], 1);
        assert_eq!(bytes[offset_of!(Padded, letters)], b'a');
        assert_eq!(bytes[offset_of!(Padded, eight)], 2);
        // The padding behind the first byte.
        assert_eq!(bytes[1..8], [0; 7]);
        assert_eq!(Padded::load(&bytes), Ok(value));
    }

    #[test]
    fn bytes_that_are_no_value_are_refused() {
        let mut bytes = [0; 2];
        Level::Low.store(&mut bytes);
        assert_eq!(Level::load(&bytes), Ok(Level::Low));
        let refused = Level::load(&[1, 0]).unwrap_err();
        assert_eq!((refused.name, refused.found), ("Level", 1));
        assert!(bool::load(&[2]).is_err());
        assert!(char::load(&0xd800_u32.to_le_bytes()).is_err());
        assert!(<[bool; 3]>::load(&[1, 0, 7]).is_err());
    }

    #[test]
    fn marks_tell_types_apart() {
        let marks = [
            u8::MARK,
            i8::MARK,
            u64::MARK,
            bool::MARK,
            <[u8; 8]>::MARK,
            <[u8; 9]>::MARK,
            Padded::MARK,
            Half::MARK,
            Level::MARK,
            Pair::<u8, u64>::MARK,
            Pair::<u64, u8>::MARK,
        ];
        let distinct: std::collections::HashSet<_> = marks.iter().collect();
        assert_eq!(distinct.len(), marks.len());
    }

    proptest! {
        #[test]
        fn what_is_stored_is_loaded(first: u128, second: [i16; 5], third: f64) {
            type Stored = Pair<[i16; 5], Pair<u128, f64>>;
            let value = Stored { first: second, second: Pair { first, second: third } };
            let mut bytes = [0; Stored::BYTES];
            value.store(&mut bytes);
            let loaded = Stored::load(&bytes).unwrap();
            prop_assert_eq!(loaded.first, value.first);
            prop_assert_eq!(loaded.second.first, first);
            prop_assert_eq!(loaded.second.second.to_bits(), third.to_bits());
        }
    }
}
