//! One client of the model test: the calls it makes, and the answers it must receive.
//!
//! Calls on one key are checked in order, also if their answers arrive out of order.

use std::collections::{HashMap, VecDeque};

use farcore::{CasOutcome, Error, TransactionOutcome, Version};

use crate::call::{Call, Content, Given, key_of};
use crate::random::Random;

/// Keys of each client.
pub(crate) const KEYS: u16 = 6_000;
/// Hot keys of each client: a third of the calls go to them.
pub(crate) const HOT: u16 = 12;
/// Calls in a batch, at most.
const BATCH: u64 = 64;
/// Keys on which all clients count.
pub(crate) const COUNTERS: usize = 6;

/// A call in flight, or answered while an earlier one is in flight.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) token: u64,
    pub(crate) step: u64,
    pub(crate) call: Call,
    pub(crate) given: Option<Given>,
}

/// One client's side of the test: its calls and its model.
pub(crate) struct Client {
    /// Seed and client number, for messages.
    pub(crate) name: String,
    pub(crate) number: u8,
    pub(crate) faulty: bool,
    pub(crate) random: Random,
    pub(crate) step: u64,
    pub(crate) truth: HashMap<u16, (Version, Content)>,
    /// The latest version seen of each key.
    pub(crate) latest: HashMap<u16, Version>,
    pub(crate) waiting: HashMap<u16, VecDeque<Waiting>>,
    pub(crate) key_of_token: HashMap<u64, u16>,
    pub(crate) tokens: u64,
    /// Successful swaps on the shared counters.
    pub(crate) counted: [u64; COUNTERS],
    pub(crate) failures: u64,
}

impl Client {
    pub(crate) fn new(seed: u64, number: u8, faulty: bool) -> Self {
        Self {
            name: format!("FARCORE_SEED={seed} client {number}"),
            number,
            faulty,
            random: Random(seed ^ u64::from(number) << 56),
            step: 0,
            truth: HashMap::new(),
            latest: HashMap::new(),
            waiting: HashMap::new(),
            key_of_token: HashMap::new(),
            tokens: 0,
            counted: [0; COUNTERS],
            failures: 0,
        }
    }

    pub(crate) fn key(&self, key: u16) -> Vec<u8> {
        key_of(self.number, key)
    }

    pub(crate) fn any_key(&mut self) -> u16 {
        let keys = if self.random.below(3) == 0 { HOT } else { KEYS };
        self.random.below(u64::from(keys)) as u16
    }

    pub(crate) fn any_call(&mut self, key: u16) -> Call {
        match self.random.below(100) {
            0..40 => Call::Get,
            40..75 => Call::Put(Content::random(&mut self.random)),
            75..85 => Call::Delete,
            kind => {
                let expected = match self.random.below(4) {
                    0 => 0,
                    _ => self.latest.get(&key).copied().unwrap_or(0),
                };
                let content = Content::random(&mut self.random);
                if kind < 93 {
                    Call::Swap(expected, content)
                } else {
                    Call::Transact(expected, content)
                }
            }
        }
    }

    /// Calls on one key, most likely a far one, so that later ones wait behind the first.
    pub(crate) fn burst(&mut self) -> Vec<(u16, Call)> {
        let key = self.random.below(u64::from(KEYS)) as u16;
        let count = 2 + self.random.below(8);
        (0..count).map(|_| (key, self.any_call(key))).collect()
    }

    /// Keys of a batch: a run in order, or at random.
    pub(crate) fn any_keys(&mut self) -> Vec<u16> {
        let count = 1 + self.random.below(BATCH) as u16;
        if self.random.below(2) == 0 {
            let first = self.random.below(u64::from(KEYS)) as u16;
            (0..count).map(|place| (first + place) % KEYS).collect()
        } else {
            (0..count).map(|_| self.any_key()).collect()
        }
    }

    /// Notes a call that is about to be made; returns its token.
    pub(crate) fn begin(&mut self, key: u16, call: Call) -> u64 {
        self.tokens += 1;
        let token = self.tokens;
        self.key_of_token.insert(token, key);
        self.waiting.entry(key).or_default().push_back(Waiting {
            token,
            step: self.step,
            call,
            given: None,
        });
        token
    }

    /// Receives an answer; checks it once the answers to earlier calls on its key have arrived.
    pub(crate) fn end(&mut self, token: u64, given: Given) {
        let Some(key) = self.key_of_token.remove(&token) else {
            panic!(
                "{} step {}: token {token} is answered twice, or was never sent: {}",
                self.name,
                self.step,
                given.short()
            );
        };
        let mut queue = self.waiting.remove(&key).unwrap_or_default();
        for waiting in &mut queue {
            if waiting.token == token {
                waiting.given = Some(given);
                break;
            }
        }
        while let Some(given) = queue.front_mut().and_then(|first| first.given.take()) {
            if let Some(Waiting { step, call, .. }) = queue.pop_front() {
                self.check(key, step, call, given);
            }
        }
        if !queue.is_empty() {
            self.waiting.insert(key, queue);
        }
    }

    pub(crate) fn check(&mut self, key: u16, step: u64, call: Call, given: Given) {
        let state = self.truth.get(&key).copied();
        let latest = self.latest.get(&key).copied().unwrap_or(0);
        let right = match (call, &given) {
            (_, Given::Failed(Error::Unavailable { .. })) => {
                // A failed call has changed nothing.
                self.failures += 1;
                self.faulty
            }
            (Call::Get, Given::Value(version, bytes)) => state.is_some_and(|(known, content)| {
                known == *version && content.bytes == bytes.len() && content.make() == *bytes
            }),
            (Call::Get | Call::Delete, Given::Absent) => state.is_none(),
            (Call::Delete, Given::Deleted) => self.truth.remove(&key).is_some(),
            (Call::Put(content), Given::Stored(version)) => {
                self.truth.insert(key, (*version, content));
                self.latest.insert(key, *version);
                *version > latest
            }
            (
                Call::Swap(expected, content) | Call::Transact(expected, content),
                Given::Stored(version),
            ) => {
                self.truth.insert(key, (*version, content));
                self.latest.insert(key, *version);
                *version > latest && expected == state.map_or(0, |(known, _)| known)
            }
            (Call::Swap(expected, _), Given::Mismatch(current))
            | (Call::Transact(expected, _), Given::Conflict(0, current)) => {
                expected != *current && *current == state.map_or(0, |(known, _)| known)
            }
            _ => false,
        };
        assert!(
            right,
            "{} step {step}: {call:?} of key {key} was answered {}, but its state was {state:?}, and its latest version {latest}",
            self.name,
            given.short()
        );
    }

    /// The operands of one attempt to count: the key, the expected version and the next count.
    pub(crate) fn count_after(
        &self,
        read: Option<(Version, &[u8])>,
        counter: usize,
    ) -> (Version, Vec<u8>, u64) {
        let (version, count) = read.map_or((0, 0), |(version, bytes)| {
            let count = bytes.first_chunk().map(|&count| u64::from_le_bytes(count));
            let Some(count) = count else {
                panic!(
                    "{} step {}: counter {counter} holds {} bytes",
                    self.name,
                    self.step,
                    bytes.len()
                );
            };
            (version, count)
        });
        let next = count + 1;
        let mut value = next.to_le_bytes().to_vec();
        value.resize(8 + (next * 89 % 1_000) as usize, counter as u8);
        (version, value, count)
    }

    /// Notes the outcome of an attempt to count.
    pub(crate) fn counted(
        &mut self,
        counter: usize,
        expected: Version,
        swap: Result<CasOutcome, Error>,
    ) {
        let right = match swap {
            Ok(CasOutcome::Stored(version)) => {
                self.counted[counter] += 1;
                version > expected
            }
            Ok(CasOutcome::Mismatch(current)) => current != expected,
            Err(Error::Unavailable { .. }) => self.faulty,
            Err(_) => false,
        };
        assert!(
            right,
            "{} step {}: counter {counter}, expected {expected}: {swap:?}",
            self.name, self.step
        );
    }

    /// Notes the outcome of an attempt to count on two counters at once.
    pub(crate) fn counted_both(
        &mut self,
        counters: [usize; 2],
        expected: [Version; 2],
        outcome: Result<TransactionOutcome, Error>,
    ) {
        let right = match outcome {
            Ok(TransactionOutcome::Committed { last }) => {
                for counter in counters {
                    self.counted[counter] += 1;
                }
                last - 1 > expected[0] && last > expected[1]
            }
            Ok(TransactionOutcome::Conflict { place, current }) => current != expected[place],
            Err(Error::Unavailable { .. }) => self.faulty,
            Err(_) => false,
        };
        assert!(
            right,
            "{} step {}: counters {counters:?}, expected {expected:?}: {outcome:?}",
            self.name, self.step
        );
    }

    /// The value read from a counter; `None` if the read failed in an allowed way.
    pub(crate) fn readable<T>(&self, counter: usize, read: Result<T, Error>) -> Option<T> {
        match read {
            Ok(read) => Some(read),
            Err(error) => {
                assert!(
                    self.faulty && matches!(error, Error::Unavailable { .. }),
                    "{} step {}: counter {counter}: {error}",
                    self.name,
                    self.step
                );
                None
            }
        }
    }

    pub(crate) fn finish(&self) {
        assert!(
            self.waiting.is_empty() && self.key_of_token.is_empty(),
            "{} step {}: never answered: {:?}",
            self.name,
            self.step,
            self.waiting
        );
    }
}
