//! Bytes of a source that are not read yet.

/// Bytes that are read already and stay in front, at most.
const PASSED_BYTES_MAX: usize = 64 << 10;
/// Bytes of the longest buffer that stays though nothing is in it.
const KEPT_BYTES_MAX: usize = 256 << 10;

/// Bytes of a source that are not read yet.
#[derive(Debug, Default)]
pub(super) struct Input {
    bytes: Vec<u8>,
    /// Of them, those that are read.
    passed: usize,
}

impl Input {
    /// What is not read yet.
    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes[self.passed..]
    }

    /// Notes that bytes are read.
    pub(super) fn pass(&mut self, bytes: usize) {
        self.passed = self.bytes.len().min(self.passed + bytes);
        if self.passed == self.bytes.len() {
            self.bytes.clear();
            self.bytes.shrink_to(KEPT_BYTES_MAX);
            self.passed = 0;
        } else if self.passed > PASSED_BYTES_MAX.max(self.bytes.len() / 2) {
            self.bytes.drain(..self.passed);
            self.passed = 0;
        }
    }

    /// Adds bytes.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_leaves_and_the_rest_stays_in_order() {
        let (mut input, mut wanted) = (Input::default(), Vec::new());
        for round in 0..2000u32 {
            let more = round.to_le_bytes().repeat(100);
            input.add(&more);
            wanted.extend_from_slice(&more);
            let read = wanted.len().min(399);
            assert_eq!(input.rest(), wanted);
            input.pass(read);
            wanted.drain(..read);
        }
        assert_eq!(input.rest(), wanted);
        input.pass(usize::MAX >> 1);
        assert!(input.rest().is_empty());
    }
}
