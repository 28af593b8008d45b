//! Passwords of users: kept as SHA-256, compared in constant time.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// Letters of a hash as rules write it.
const HEX_BYTES: usize = 64;

/// The hash of a password.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct PasswordHash([u8; 32]);

impl std::fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PasswordHash(..)")
    }
}

impl PasswordHash {
    pub(crate) fn of(password: &[u8]) -> Self {
        Self(Sha256::digest(password).into())
    }

    /// The hash that 64 letters write; `None` if they are others.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let digit = |letter: u8| match letter {
            b'0'..=b'9' => Some(letter - b'0'),
            b'a'..=b'f' => Some(letter - b'a' + 10),
            _ => None,
        };
        if text.len() != HEX_BYTES {
            return None;
        }
        let mut hash = [0; 32];
        for (byte, pair) in hash.iter_mut().zip(text.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Self(hash))
    }

    /// As rules write it.
    pub(crate) fn hex(&self) -> String {
        self.0.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    /// True if it is among these. The time that it takes tells only how many there are.
    pub(crate) fn is_among(&self, others: &[Self]) -> bool {
        let mut is_any = false;
        for other in others {
            let pairs = self.0.iter().zip(other.0);
            let difference = pairs.fold(0, |all, (own, other)| all | (own ^ other));
            is_any |= std::hint::black_box(difference) == 0;
        }
        is_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_written_and_read_and_compared() {
        let hash = PasswordHash::of(b"passwd4");
        let text = "34344e4d60c2b6d639b7bd22e18f2b0b91bc34bf0ac5f9952744435093cfb4e6";
        assert_eq!(hash.hex(), text);
        assert_eq!(PasswordHash::parse(text.as_bytes()), Some(hash));
        assert_eq!(PasswordHash::parse(&text.as_bytes()[1..]), None);
        assert_eq!(PasswordHash::parse(text.to_uppercase().as_bytes()), None);
        let others = [PasswordHash::of(b""), hash];
        assert!(hash.is_among(&others) && !hash.is_among(&others[..1]) && !hash.is_among(&[]));
        assert!(!format!("{hash:?}").contains("34"));
    }
}
