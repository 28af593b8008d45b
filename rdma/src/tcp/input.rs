//! The bytes of the peer that are received and not yet decoded.
//!
//! - I1: `start <= end <= bytes.len()`; what waits lies between the two.
//! - I2: there is always room for the rest of a header.

use super::wire::HEADER_BYTES;

/// Bytes received from the socket at once.
const INPUT_BYTES: usize = 64 << 10;

/// A buffer that is filled at one end and decoded from the other.
#[derive(Debug)]
pub(super) struct Input {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Input {
    /// Memory that it takes, in bytes.
    pub(super) const BYTES: usize = INPUT_BYTES;

    pub(super) fn new() -> Self {
        Self {
            bytes: vec![0; INPUT_BYTES],
            start: 0,
            end: 0,
        }
    }

    /// What waits to be decoded.
    #[inline]
    pub(super) fn waiting(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Ends the wait of the first bytes.
    #[inline]
    pub(super) fn consume(&mut self, bytes: usize) {
        self.start += bytes;
    }

    /// Where the next bytes are received.
    #[inline]
    pub(super) fn spare(&mut self) -> &mut [u8] {
        if self.is_empty() {
            (self.start, self.end) = (0, 0);
        } else if self.bytes.len() - self.end < HEADER_BYTES {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut self.bytes[self.end..]
    }

    /// Records bytes received into the spare part.
    #[inline]
    pub(super) fn filled(&mut self, bytes: usize) {
        self.end += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive(input: &mut Input, bytes: &[u8]) {
        input.spare()[..bytes.len()].copy_from_slice(bytes);
        input.filled(bytes.len());
    }

    #[test]
    fn what_waits_survives_the_end_of_the_buffer() {
        let mut input = Input::new();
        let almost_all = vec![1; INPUT_BYTES - 3];
        receive(&mut input, &almost_all);
        input.consume(almost_all.len() - 2);
        assert_eq!(input.waiting(), [1, 1]);
        assert!(input.spare().len() >= HEADER_BYTES, "what waits has moved");
        receive(&mut input, &[2, 3]);
        assert_eq!(input.waiting(), [1, 1, 2, 3]);
        input.consume(4);
        assert!(input.is_empty());
        assert_eq!(input.spare().len(), INPUT_BYTES, "an empty one starts anew");
    }
}
