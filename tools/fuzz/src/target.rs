//! A target: its name, its seeds, its bounds, and how a test runs it.

use std::env;
use std::time::Duration;

use crate::corpus;
use crate::mutator::Mutator;
use crate::search;
use crate::trial::{Bound, failure, shrink};

/// Inputs that a test draws, unless the target says otherwise.
const ROUNDS: usize = 2000;
const LONGEST_BYTES: usize = 600;
const BASE_BYTES: usize = 64 << 10;
const BYTES_EACH: usize = 64;
/// An input of a search that takes longer is a failure.
const SLOW: Duration = Duration::from_secs(5);

/// Bytes that are fed to a property, which panics if it does not hold.
#[derive(Debug)]
#[must_use = "a target does nothing until it runs"]
pub struct Target {
    name: &'static str,
    seeds: Vec<Vec<u8>>,
    words: &'static [&'static str],
    rounds: usize,
    longest: usize,
    bound: Bound,
}

impl Target {
    /// A target by its name, which is that of its corpus and of its row in `docs/testing.md`.
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            seeds: Vec::new(),
            words: &[],
            rounds: ROUNDS,
            longest: LONGEST_BYTES,
            bound: Bound {
                base_bytes: BASE_BYTES,
                bytes_each: BYTES_EACH,
                time: None,
            },
        }
    }

    /// Adds an input that others are drawn from: what an encoder writes.
    pub fn seed(mut self, input: impl AsRef<[u8]>) -> Self {
        self.seeds.push(input.as_ref().to_vec());
        self
    }

    /// Adds inputs that others are drawn from.
    pub fn seeds(mut self, inputs: impl IntoIterator<Item = Vec<u8>>) -> Self {
        self.seeds.extend(inputs);
        self
    }

    /// Texts that mean something to the decoder, put anywhere.
    pub fn words(mut self, words: &'static [&'static str]) -> Self {
        self.words = words;
        self
    }

    /// Inputs that a test draws: less than the default where one is slow.
    pub fn rounds(mut self, rounds: usize) -> Self {
        self.rounds = rounds;
        self
    }

    /// Bytes of an input that is drawn, at most.
    pub fn longest(mut self, bytes: usize) -> Self {
        self.longest = bytes;
        self
    }

    /// What an input may make the target hold: `base_bytes`, and `bytes_each` for each of its own.
    pub fn memory(mut self, base_bytes: usize, bytes_each: usize) -> Self {
        self.bound.base_bytes = base_bytes;
        self.bound.bytes_each = bytes_each;
        self
    }

    /// Runs the target: as a test, or as the environment says.
    ///
    /// # Panics
    /// If an input fails; the message has a smaller one, and the line that replays it.
    pub fn run(mut self, property: impl Fn(&[u8])) {
        if env::var("FARCORE_FUZZ_TARGET").is_ok_and(|only| only != self.name) {
            return;
        }
        if let Ok(line) = env::var("FARCORE_FUZZ_INPUT") {
            let input = corpus::unescape(&line).expect("an input in the escapes of a byte string");
            return property(&input);
        }
        let file = corpus::file(self.name);
        let mut known = std::mem::take(&mut self.seeds);
        known.push(Vec::new());
        let made = known.len();
        known.extend(corpus::read(&file));
        for input in &known {
            self.expect_success(&property, input);
        }
        let number = |name| env::var(name).ok()?.parse::<u64>().ok();
        let seed = number("FARCORE_SEED").unwrap_or_else(|| hash(self.name));
        let mut mutator = Mutator::new(seed, self.words);
        if let Some(seconds) = env::var("FARCORE_FUZZ_SECONDS")
            .ok()
            .and_then(|text| text.parse().ok())
        {
            self.bound.time = Some(SLOW);
            let found = search::Search {
                name: self.name,
                longest: self.longest,
                time: Duration::from_secs_f64(seconds),
                made,
            };
            return found.run(known, &mut mutator, |input| {
                self.expect_success(&property, input);
            });
        }
        // Miri interprets, hundreds of times as slowly.
        let rounds = if cfg!(miri) { 5 } else { self.rounds };
        for _ in 0..rounds {
            let input = mutator.draw(&known, self.longest);
            self.expect_success(&property, &input);
        }
    }

    fn expect_success(&self, property: &impl Fn(&[u8]), input: &[u8]) {
        let Some(first) = failure(property, &self.bound, input) else {
            return;
        };
        let small = shrink(property, &self.bound, input);
        let why = failure(property, &self.bound, &small).unwrap_or(first);
        panic!(
            "{}: {why}\nan input of {} bytes: {}\nreplay: FARCORE_FUZZ_INPUT='{}' with this test\n",
            self.name,
            small.len(),
            corpus::escape(&small),
            corpus::escape(&small).replace('\'', "'\\''"),
        );
    }
}

/// FNV-1a: a seed of a name.
fn hash(name: &str) -> u64 {
    name.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3)
    })
}

#[cfg(test)]
mod tests {
    use std::panic;

    use super::Target;

    /// A decoder with a fault that no random bytes reach.
    fn faulty(bytes: &[u8]) {
        let Some((b"FARCORE", [length, rest @ ..])) = bytes.split_at_checked(7) else {
            return;
        };
        assert!(
            usize::from(*length) <= rest.len() || *length < 200,
            "beyond its end"
        );
    }

    #[test]
    fn a_fault_behind_a_seed_is_found_and_made_small() {
        let run = || Target::new("none").seed(b"FARCORE\x02ab").run(faulty);
        let found = panic::catch_unwind(run).expect_err("it is found");
        let text = found.downcast_ref::<String>().expect("a text");
        assert!(text.contains("beyond its end"), "{text}");
        assert!(text.contains("an input of 8 bytes: FARCORE\\x"), "{text}");
    }

    #[test]
    fn without_a_seed_it_is_not_found() {
        Target::new("none").run(faulty);
    }
}
