//! Draws inputs from those that are known, by changes that make a decoder go on: it keeps most of
//! a structure and spoils one part.

use crate::coverage;

/// Numbers that limits are near to.
const EDGES: [u64; 15] = [
    0,
    1,
    7,
    8,
    0x7F,
    0x80,
    0xFF,
    0x100,
    0x7FFF,
    0xFFFF,
    0x7FFF_FFFF,
    0xFFFF_FFFF,
    0x7FFF_FFFF_FFFF_FFFF,
    0x8000_0000_0000_0000,
    u64::MAX,
];
/// Changes of one input, at most.
const CHANGES_MAX: usize = 4;

/// Numbers of a seed (xorshift), and the changes that they draw.
#[derive(Debug)]
pub(crate) struct Mutator {
    state: u64,
    words: &'static [&'static str],
}

impl Mutator {
    pub(crate) fn new(seed: u64, words: &'static [&'static str]) -> Self {
        let state = seed.max(1);
        Self { state, words }
    }

    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        let limit = limit as u64;
        // Smaller than `limit`, which is of this type.
        usize::try_from((self.next() >> 11) % limit).unwrap_or(0)
    }

    fn byte(&mut self) -> u8 {
        self.next().to_be_bytes()[0]
    }

    /// An input of at most this many bytes: one of those known with some changes, or new bytes.
    pub(crate) fn draw(&mut self, known: &[Vec<u8>], longest: usize) -> Vec<u8> {
        if known.is_empty() || self.below(16) == 0 {
            let count = self.below(longest + 1);
            let count = self.below(count + 1);
            return (0..count).map(|_| self.byte()).collect();
        }
        let mut input = known[self.below(known.len())].clone();
        for _ in 0..=self.below(CHANGES_MAX) {
            let other = &known[self.below(known.len())];
            self.change(&mut input, other);
        }
        input.truncate(longest);
        input
    }

    fn range(&mut self, bytes: &[u8]) -> std::ops::Range<usize> {
        let start = self.below(bytes.len() + 1);
        let count = self.below((bytes.len() - start).min(32) + 1);
        start..start + count
    }

    fn change(&mut self, input: &mut Vec<u8>, other: &[u8]) {
        if input.is_empty() {
            input.extend_from_slice(other);
            return;
        }
        let at = self.below(input.len());
        match self.below(13) {
            0 => input[at] ^= 1 << self.below(8),
            1 => input[at] = self.byte(),
            2 => {
                let step = u8::try_from(self.below(16) + 1).unwrap_or(1);
                let step = if self.below(2) == 0 {
                    step
                } else {
                    step.wrapping_neg()
                };
                input[at] = input[at].wrapping_add(step);
            }
            3 => self.put_number(input, at),
            4 => drop(input.drain(self.range(input))),
            5 => {
                let copied = input[self.range(input)].to_vec();
                drop(input.splice(at..at, copied));
            }
            6 => {
                let copied = other[self.range(other)].to_vec();
                let end = (at + self.below(copied.len() + 1)).min(input.len());
                drop(input.splice(at..end, copied));
            }
            7 => {
                let new: Vec<_> = (0..=self.below(8)).map(|_| self.byte()).collect();
                drop(input.splice(at..at, new));
            }
            8 => input.truncate(at),
            9 => {
                let end = self.below(other.len() + 1);
                input.truncate(at);
                input.extend_from_slice(&other[other.len() - end..]);
            }
            10 | 11 if !self.words.is_empty() => {
                let word = self.words[self.below(self.words.len())];
                let end = (at + self.below(word.len() + 1)).min(input.len());
                drop(input.splice(at..end, word.bytes()));
            }
            _ => self.put_compared(input),
        }
    }

    /// Overwrites bytes by a number near a limit, of either order of bytes.
    fn put_number(&mut self, input: &mut [u8], at: usize) {
        let near = u64::try_from(self.below(3)).unwrap_or(0);
        let number = EDGES[self.below(EDGES.len())]
            .wrapping_add(near)
            .wrapping_sub(1);
        let number = match self.below(4) {
            0 => input.len() as u64,
            _ => number,
        };
        let width = 1 << self.below(4);
        write_number(&mut input[at..], number, width, self.below(2) == 0);
    }

    /// Overwrites what the decoder compared with what it compared it with.
    fn put_compared(&mut self, input: &mut [u8]) {
        let Some((found, wanted, width)) = coverage::compared(self.next()) else {
            return;
        };
        let is_little = self.below(2) == 0;
        let mut bytes = vec![0; width];
        write_number(&mut bytes, found, width, is_little);
        let places: Vec<_> = (0..input.len().saturating_sub(width - 1))
            .filter(|&at| input[at..at + width] == bytes)
            .collect();
        if !places.is_empty() {
            let at = places[self.below(places.len())];
            write_number(&mut input[at..], wanted, width, is_little);
        }
    }
}

/// Overwrites the first bytes by the lowest of a number.
fn write_number(bytes: &mut [u8], number: u64, width: usize, is_little: bool) {
    let little = number.to_le_bytes();
    let mut number = little[..width].to_vec();
    if !is_little {
        number.reverse();
    }
    for (place, byte) in bytes.iter_mut().zip(number) {
        *place = byte;
    }
}

#[cfg(test)]
mod tests {
    use super::Mutator;

    #[test]
    fn draws_are_the_same_for_a_seed_and_within_the_length() {
        let known = [b"*1\r\n$4\r\nPING\r\n".to_vec(), vec![0; 60], Vec::new()];
        let draws = |seed| {
            let mut mutator = Mutator::new(seed, &["SET"]);
            (0..2000)
                .map(|_| mutator.draw(&known, 50))
                .collect::<Vec<_>>()
        };
        assert_eq!(draws(7), draws(7));
        assert_ne!(draws(7), draws(8));
        assert!(draws(9).iter().all(|input| input.len() <= 50));
        // Most of a known input stays.
        assert!(
            draws(7)
                .iter()
                .any(|input| input.ends_with(b"PING\r\n") && input != &known[0])
        );
    }
}
