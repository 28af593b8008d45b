//! The requests of one caller: which key, get or put, and the value of a put. Keys are drawn
//! alike. Nothing is remembered: a value is checked by its key alone.
//!
//! I1: the sequence follows from the seed and the caller's number, and from nothing else.

use crate::plan::Plan;
use crate::record::{Generator, KEY_BYTES, Shape, VALUE_BYTES_MAX, below, mix};

use super::settings::Settings;

/// Set in the nonce of each put, and clear in those of the values that are loaded.
const NONCE_BIT: u64 = 1 << 63;

/// Checks values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Checker {
    generator: Generator,
    bytes: usize,
}

impl Checker {
    /// Whether a value is intact and was written to this key.
    #[inline]
    pub(super) fn is(&self, word: u64, value: Option<&[u8]>) -> bool {
        value.is_some_and(|value| self.generator.is_any(word, self.bytes, value))
    }
}

/// One request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    /// The first half of the key, by which its value is checked.
    pub(super) word: u64,
    /// The key.
    pub(super) key: [u8; KEY_BYTES],
    /// Whether it is a put.
    pub(super) is_put: bool,
}

/// The requests of one caller.
#[derive(Debug)]
pub(super) struct Sequence {
    checker: Checker,
    keys: u64,
    /// A draw below it is a put.
    puts: u64,
    /// The state of xorshift64*.
    state: u64,
    value: Box<[u8; VALUE_BYTES_MAX]>,
}

impl Sequence {
    /// The requests of the caller of this number.
    pub(super) fn new(settings: &Settings, seed: u64, number: u64) -> Self {
        let puts = (1.0 - settings.reads) * u64::MAX as f64;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the share is 0 to 1, and a cast saturates"
        )]
        let puts = puts as u64;
        let checker = Checker {
            generator: Generator::new(seed),
            bytes: settings.value_bytes,
        };
        Self {
            checker,
            keys: settings.keys,
            puts,
            state: mix(seed ^ (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)) | 1,
            value: Box::new([0; VALUE_BYTES_MAX]),
        }
    }

    pub(super) fn checker(&self) -> Checker {
        self.checker
    }

    #[inline]
    fn draw(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Whether the next request is a put.
    #[inline]
    pub(super) fn is_put(&mut self) -> bool {
        let draw = self.draw();
        draw < self.puts
    }

    /// The key of a request.
    #[inline]
    pub(super) fn key(&mut self, is_put: bool) -> Step {
        let draw = self.draw();
        let mut key = [0; KEY_BYTES];
        let word = self.checker.generator.key(below(draw, self.keys), &mut key);
        Step { word, key, is_put }
    }

    /// The next request.
    #[inline]
    pub(super) fn step(&mut self) -> Step {
        let is_put = self.is_put();
        self.key(is_put)
    }

    /// A new value for a key.
    #[inline]
    pub(super) fn value(&mut self, word: u64) -> &[u8] {
        let shape = Shape {
            nonce: self.draw() | NONCE_BIT,
            bytes: self.checker.bytes,
        };
        self.checker.generator.fill(word, shape, &mut self.value)
    }
}

/// Calls `put` with each key and its first value.
pub(super) fn for_each_key<E>(
    plan: &Plan,
    settings: &Settings,
    mut put: impl FnMut(&[u8], &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let generator = Generator::new(plan.seed);
    let (mut key, mut value) = ([0; KEY_BYTES], [0; VALUE_BYTES_MAX]);
    for index in 0..settings.keys {
        let word = generator.key(index, &mut key);
        let shape = Shape {
            nonce: index,
            bytes: settings.value_bytes,
        };
        put(&key, generator.fill(word, shape, &mut value))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::settings::Subject;
    use super::super::settings::tests::settings;
    use super::*;

    #[test]
    fn all_engines_get_the_same_requests() {
        let steps = |subject, number| -> Vec<(u64, bool)> {
            let mut sequence = Sequence::new(&settings(subject), 7, number);
            let step = |_| {
                let step = sequence.step();
                (step.word, step.is_put)
            };
            (0..1000).map(step).collect()
        };
        let first = steps(Subject::Farcore, 0);
        assert_eq!(first, steps(Subject::Dashmap, 0));
        assert_ne!(first, steps(Subject::Dashmap, 1));
        let puts = first.iter().filter(|step| step.1).count();
        assert!((20..100).contains(&puts), "{puts}");
    }

    #[test]
    fn a_value_of_another_key_or_a_damaged_one_is_wrong() {
        let mut sequence = Sequence::new(&settings(Subject::Dashmap), 7, 0);
        let checker = sequence.checker();
        let mut value = sequence.value(1).to_vec();
        assert!(checker.is(1, Some(&value)));
        assert!(!checker.is(2, Some(&value)) && !checker.is(1, None));
        assert!(!checker.is(1, Some(&value[..value.len() - 16])));
        value[100] ^= 1;
        assert!(!checker.is(1, Some(&value)));
    }

    #[test]
    fn shares_of_reads_reach_both_ends() {
        let puts = |reads| {
            let settings = super::super::settings::Settings {
                reads,
                ..settings(Subject::Dashmap)
            };
            let mut sequence = Sequence::new(&settings, 7, 0);
            (0..1000).filter(|_| sequence.is_put()).count()
        };
        assert_eq!((puts(1.0), puts(0.0)), (0, 1000));
    }
}
