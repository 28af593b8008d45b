//! Choices and bytes that a target draws from its input: how bytes drive a sequence of operations.

/// What is left of an input. At its end every draw is the least.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// Draws from these bytes.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// True if nothing is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    fn array<const COUNT: usize>(&mut self) -> [u8; COUNT] {
        let mut array = [0; COUNT];
        let (head, rest) = self.0.split_at(COUNT.min(self.0.len()));
        array[..head.len()].copy_from_slice(head);
        self.0 = rest;
        array
    }

    /// One byte.
    pub fn byte(&mut self) -> u8 {
        u8::from_le_bytes(self.array())
    }

    /// Two bytes.
    pub fn short(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    /// Four bytes.
    pub fn word(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    /// Eight bytes.
    pub fn long(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// The lowest bit of a byte.
    pub fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// A number below `limit`, which is not 0: of one byte if that is enough, else of four.
    pub fn below(&mut self, limit: usize) -> usize {
        match limit {
            ..=256 => usize::from(self.byte()) % limit,
            _ => self.word() as usize % limit,
        }
    }

    /// At most `most` bytes, after a number that says how many.
    pub fn bytes(&mut self, most: usize) -> &'a [u8] {
        let count = self.below(most + 1).min(self.0.len());
        let (head, rest) = self.0.split_at(count);
        self.0 = rest;
        head
    }
}

#[cfg(test)]
mod tests {
    use super::Input;

    #[test]
    fn draws_end_with_the_least() {
        let mut input = Input::new(&[1, 2, 0, 3, 9, 9]);
        assert_eq!(
            (input.byte(), input.short(), input.bytes(5)),
            (1, 2, &[9, 9][..])
        );
        assert!(input.is_empty());
        assert_eq!(
            (input.long(), input.below(3), input.bytes(4)),
            (0, 0, &[][..])
        );
        assert!(!input.flag());
    }
}
