//! `AND`, `OR`, `XOR` and `NOT` of the bits of values. A value that is shorter than others goes on
//! with zeros.

/// How the bits of values become those of another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BitOperation {
    And,
    Or,
    Xor,
    Not,
}

impl BitOperation {
    /// The operation of a name, in letters of any size.
    pub(crate) fn of(name: &[u8]) -> Option<Self> {
        let names = [
            ("and", Self::And),
            ("or", Self::Or),
            ("xor", Self::Xor),
            ("not", Self::Not),
        ];
        let found = names
            .iter()
            .find(|(known, _)| name.eq_ignore_ascii_case(known.as_bytes()));
        found.map(|(_, operation)| *operation)
    }

    /// Takes the bytes of the first value, behind which zeros follow.
    pub(crate) fn begin(self, bytes: &mut [u8]) {
        if self == Self::Not {
            for byte in bytes {
                *byte = !*byte;
            }
        }
    }

    /// Takes the same part of the next value, which may be shorter.
    pub(crate) fn take(self, bytes: &mut [u8], part: &[u8]) {
        let (both, rest) = bytes.split_at_mut(part.len().min(bytes.len()));
        let pairs = both.iter_mut().zip(part);
        match self {
            Self::And => {
                pairs.for_each(|(byte, other)| *byte &= other);
                rest.fill(0);
            }
            Self::Or => pairs.for_each(|(byte, other)| *byte |= other),
            Self::Xor => pairs.for_each(|(byte, other)| *byte ^= other),
            Self::Not => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shorter_values_go_on_with_zeros() {
        let of = |operation: BitOperation| {
            let mut bytes = [0b1100, 0xff];
            operation.begin(&mut bytes);
            operation.take(&mut bytes, &[0b1010]);
            bytes
        };
        assert_eq!(of(BitOperation::And), [0b1000, 0]);
        assert_eq!(of(BitOperation::Or), [0b1110, 0xff]);
        assert_eq!(of(BitOperation::Xor), [0b0110, 0xff]);
        assert_eq!(of(BitOperation::Not), [0xf3, 0]);
        assert_eq!(BitOperation::of(b"XoR"), Some(BitOperation::Xor));
        assert_eq!(BitOperation::of(b"nand"), None);
    }
}
