//! A set of small numbers, as bits.

/// A set of the numbers below a limit.
#[derive(Clone, Debug)]
pub(super) struct Bits {
    words: Box<[u64]>,
    limit: u32,
    /// No clear bit lies in a word before this one.
    first_word: u32,
    count: u32,
}

impl Bits {
    pub(super) fn new(limit: u32) -> Self {
        Self {
            words: vec![0; limit.div_ceil(64) as usize].into_boxed_slice(),
            limit,
            first_word: 0,
            count: 0,
        }
    }

    pub(super) fn limit(&self) -> u32 {
        self.limit
    }

    /// How many numbers are in the set.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    pub(super) fn has(&self, number: u32) -> bool {
        number < self.limit && self.words[(number / 64) as usize] >> (number % 64) & 1 == 1
    }

    pub(super) fn insert(&mut self, number: u32) {
        debug_assert!(!self.has(number) && number < self.limit);
        self.words[(number / 64) as usize] |= 1 << (number % 64);
        self.count += 1;
    }

    /// Removes a number; false if it is not in the set.
    pub(super) fn remove(&mut self, number: u32) -> bool {
        if !self.has(number) {
            return false;
        }
        self.words[(number / 64) as usize] &= !(1 << (number % 64));
        self.count -= 1;
        self.first_word = self.first_word.min(number / 64);
        true
    }

    /// Inserts the lowest number that is not in the set.
    pub(super) fn insert_first(&mut self) -> Option<u32> {
        if self.count == self.limit {
            return None;
        }
        let mut word = self.first_word;
        while self.words[word as usize] == u64::MAX {
            word += 1;
        }
        self.first_word = word;
        let number = word * 64 + self.words[word as usize].trailing_ones();
        if number >= self.limit {
            return None;
        }
        self.insert(number);
        Some(number)
    }

    /// The runs of numbers that are not in the set, as first and length.
    pub(super) fn gaps(&self) -> impl Iterator<Item = (u32, u32)> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let first = self.next(at, false)?;
            let end = self.next(first, true).unwrap_or(self.limit);
            at = end;
            Some((first, end - first))
        })
    }

    /// The first number from `at` on that is in the set, or is not.
    fn next(&self, at: u32, inside: bool) -> Option<u32> {
        let mut at = at;
        while at < self.limit {
            let word = self.words[(at / 64) as usize];
            let word = if inside { word } else { !word } >> (at % 64);
            if word != 0 {
                let found = at + word.trailing_zeros();
                return (found < self.limit).then_some(found);
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }
}
