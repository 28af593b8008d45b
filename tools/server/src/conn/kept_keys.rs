//! The keys of reads under way whose replies may be too long to be made at once.
//!
//! Such a reply is made later, as its client takes it, for which the key is read again. The keys
//! are kept only while a value may exist that is that long ([`crate::cores::shared::Shared`]), in
//! one buffer, in the order of the replies.
//!
//! ```text
//! | number:4 | key bytes:2 | key | ...
//! ```

/// Bytes before a key.
const HEAD_BYTES: usize = 6;
/// Bytes of replies that are made, from which the buffer is moved together.
const DONE_BYTES_MAX: usize = 4096;

/// Keys of reads under way.
#[derive(Debug, Default)]
pub(crate) struct KeptKeys {
    bytes: Vec<u8>,
    /// Where the first key begins whose reply is not made.
    start: usize,
}

impl KeptKeys {
    /// Keeps the key of a reply, or what else its read needs; `first` is the number of the first
    /// that is not made.
    pub(crate) fn keep(&mut self, number: u32, first: u32, key: &[u8]) {
        self.keep_with(number, first, |bytes| bytes.extend_from_slice(key));
    }

    /// Keeps what is written.
    pub(crate) fn keep_with(&mut self, number: u32, first: u32, write: impl FnOnce(&mut Vec<u8>)) {
        while let Some((kept, key)) = self.at(self.start)
            && kept.wrapping_sub(first) > u32::MAX / 2
        {
            self.start += HEAD_BYTES + key.len();
        }
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.start = 0;
        } else if self.start > DONE_BYTES_MAX && self.start * 2 > self.bytes.len() {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&number.to_le_bytes());
        self.bytes.extend_from_slice(&[0; 2]);
        write(&mut self.bytes);
        match u16::try_from(self.bytes.len() - start - HEAD_BYTES) {
            Ok(bytes) => {
                self.bytes[start + 4..start + HEAD_BYTES].copy_from_slice(&bytes.to_le_bytes());
            }
            // No such key exists, and no such read is begun.
            Err(_) => self.bytes.truncate(start),
        }
    }

    /// The key of a reply, if it was kept.
    pub(crate) fn find(&self, number: u32) -> Option<&[u8]> {
        let mut at = self.start;
        while let Some((kept, key)) = self.at(at) {
            if kept == number {
                return Some(key);
            }
            at += HEAD_BYTES + key.len();
        }
        None
    }

    /// Bytes that they take.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// The number and the key at a place.
    fn at(&self, at: usize) -> Option<(u32, &[u8])> {
        let (number, rest) = self.bytes.get(at..)?.split_first_chunk()?;
        let (bytes, rest) = rest.split_first_chunk()?;
        let key = rest.get(..usize::from(u16::from_le_bytes(*bytes)))?;
        Some((u32::from_le_bytes(*number), key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_until_its_reply_is_made() {
        let mut keys = KeptKeys::default();
        let first = u32::MAX - 2;
        for number in 0..5_u32 {
            keys.keep(first.wrapping_add(number), first, &number.to_le_bytes());
        }
        for number in 0..5_u32 {
            let found = keys.find(first.wrapping_add(number));
            assert_eq!(found, Some(&number.to_le_bytes()[..]));
        }
        assert_eq!(keys.find(first.wrapping_add(5)), None);
        // Three replies are made meanwhile.
        keys.keep(5, first.wrapping_add(3), b"later");
        assert_eq!(keys.find(first), None);
        assert_eq!(keys.find(1), Some(&4_u32.to_le_bytes()[..]));
        assert_eq!(keys.find(5), Some(&b"later"[..]));
    }

    #[test]
    fn the_buffer_does_not_grow_with_replies_that_are_made() {
        let mut keys = KeptKeys::default();
        for number in 0..100_000_u32 {
            keys.keep(number, number.saturating_sub(10), &[7; 100]);
            assert_eq!(keys.find(number), Some(&[7; 100][..]));
        }
        assert!(keys.held_bytes() < 4 * DONE_BYTES_MAX);
    }
}
