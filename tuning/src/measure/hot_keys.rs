//! The most requested keys: a space-saving sketch of sampled requests, one writer, readable from
//! any thread.
//!
//! The sketch watches 64 keys. A key that is not among them replaces the least counted one and
//! inherits its count as its error. A count is never below the truth, and above it by at most the
//! error (Metwally, Agrawal, El Abbadi: "Efficient computation of frequent and top-k elements in
//! data streams", 2005). Counts are halved from time to time, so that formerly hot keys are
//! replaced.
//!
//! - I1: only the writer changes a place. Each place has its own sequence number, odd while it
//!   changes; a reader that saw a change retries.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use serde::{Deserialize, Serialize};

use crate::measure::counters::Gauge;

/// Keys watched.
const PLACES: usize = 64;
/// Words of a key that are kept.
const KEY_WORDS: usize = 4;
const KEY_BYTES: usize = KEY_WORDS * 8;
/// Mean number of requests between samples. Each interval is between half and three halves of it.
const PERIOD: u32 = 256;
/// Samples after which all counts are halved.
const HALF_LIFE: u64 = 1 << 16;
/// Attempts of a reader at a place that keeps changing.
const READ_ATTEMPTS_MAX: u32 = 64;

#[derive(Debug, Default)]
#[repr(align(64))]
struct Place {
    sequence: AtomicU64,
    count: AtomicU64,
    error: AtomicU64,
    /// The key's length in bytes; 0: the place is empty.
    length: AtomicU64,
    key: [AtomicU64; KEY_WORDS],
}

#[derive(Debug)]
struct Shared {
    places: [Place; PLACES],
    /// Samples, halved together with the counts.
    samples: Gauge,
}

/// The sketch, owned by its writer.
#[derive(Debug)]
pub struct HotKeys {
    hashes: [u64; PLACES],
    counts: [u64; PLACES],
    until_halving: u64,
    until_sample: u32,
    random: u32,
    shared: Arc<Shared>,
}

/// A reader of the sketch. Clones read the same sketch.
#[derive(Clone, Debug)]
pub struct HotKeysReader(Arc<Shared>);

/// A key and its share of all requests.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct HotKey {
    /// The key's first 32 bytes as text. Bytes that are not printable ASCII show as `\xNN`.
    pub key: String,
    /// The key's length in bytes.
    pub key_bytes: u64,
    /// The key's share of recently sampled requests, 0 to 1; never below the truth.
    pub share: f64,
    /// The most that `share` may exceed the truth by.
    pub error: f64,
    /// Recent samples that are surely of this key; 0 in a report of an engine that does not count
    /// them.
    pub samples: u64,
}

impl Default for HotKeys {
    fn default() -> Self {
        Self {
            hashes: [0; PLACES],
            counts: [0; PLACES],
            until_halving: HALF_LIFE,
            until_sample: PERIOD,
            random: 0x9E37_79B9,
            shared: Arc::new(Shared {
                places: std::array::from_fn(|_| Place::default()),
                samples: Gauge::default(),
            }),
        }
    }
}

impl HotKeys {
    /// A reader of this sketch.
    #[must_use]
    pub fn reader(&self) -> HotKeysReader {
        HotKeysReader(Arc::clone(&self.shared))
    }

    /// The position, among the next `requests` requests, of the one to be sampled, if any. Call
    /// once per batch.
    #[inline]
    pub fn sample(&mut self, requests: usize) -> Option<usize> {
        if !crate::COUNTED {
            return None;
        }
        let until = self.until_sample as usize;
        if requests <= until {
            self.until_sample -= u32::try_from(requests).unwrap_or(0);
            return None;
        }
        // Marsaglia's xorshift. A fixed stride would miss parts of a periodic workload.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        let next = PERIOD / 2 + self.random % PERIOD;
        let rest = u32::try_from(requests - until).unwrap_or(u32::MAX);
        self.until_sample = next.saturating_sub(rest);
        Some(until)
    }

    /// Counts one sampled request. Costs about 20 ns for a watched key and 60 ns for another.
    pub fn note(&mut self, hash: u64, key: &[u8]) {
        self.shared.samples.raise(1);
        let known = self.hashes.iter().position(|&other| other == hash);
        let known = known.filter(|&place| self.counts[place] > 0);
        if let Some(place) = known {
            self.counts[place] += 1;
            let count = self.counts[place];
            self.shared.places[place]
                .count
                .store(count, Ordering::Relaxed);
        } else {
            let mut least = 0;
            for place in 1..PLACES {
                if self.counts[place] < self.counts[least] {
                    least = place;
                }
            }
            let error = self.counts[least];
            self.hashes[least] = hash;
            self.counts[least] = error + 1;
            self.shared.places[least].replace(key, error);
        }
        self.until_halving -= 1;
        if self.until_halving == 0 {
            self.until_halving = HALF_LIFE;
            self.halve();
        }
    }

    fn halve(&mut self) {
        for (count, place) in self.counts.iter_mut().zip(&self.shared.places) {
            *count /= 2;
            place.change(|place| {
                place.count.store(*count, Ordering::Relaxed);
                let error = place.error.load(Ordering::Relaxed) / 2;
                place.error.store(error, Ordering::Relaxed);
            });
        }
        let samples = &self.shared.samples;
        samples.set(samples.get() / 2);
    }
}

impl Place {
    /// Changes several words atomically for readers.
    fn change(&self, change: impl FnOnce(&Self)) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence + 1, Ordering::Relaxed);
        // ORDERING: a reader that sees one of the following words also sees the odd number.
        fence(Ordering::Release);
        change(self);
        // ORDERING: pairs with the Acquire in `read`.
        self.sequence.store(sequence + 2, Ordering::Release);
    }

    fn replace(&self, key: &[u8], error: u64) {
        let mut kept = [0; KEY_BYTES];
        let length = key.len().min(KEY_BYTES);
        kept[..length].copy_from_slice(&key[..length]);
        self.change(|place| {
            place.count.store(error + 1, Ordering::Relaxed);
            place.error.store(error, Ordering::Relaxed);
            place.length.store(key.len() as u64, Ordering::Relaxed);
            for (word, bytes) in place.key.iter().zip(kept.chunks_exact(8)) {
                let bytes = bytes.try_into().unwrap_or_default();
                word.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
            }
        });
    }

    /// Count, error, length and kept bytes of the key. `None` if the place is empty or changed
    /// during every attempt.
    fn read(&self) -> Option<(u64, u64, u64, [u8; KEY_BYTES])> {
        for _ in 0..READ_ATTEMPTS_MAX {
            let before = self.sequence.load(Ordering::Acquire);
            let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
            let (count, error) = (load(&self.count), load(&self.error));
            let length = load(&self.length);
            let mut key = [0; KEY_BYTES];
            for (bytes, word) in key.chunks_exact_mut(8).zip(&self.key) {
                bytes.copy_from_slice(&load(word).to_le_bytes());
            }
            // ORDERING: pairs with the fence in `change`. If a word read above is new, the number
            // read next is new too.
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && self.sequence.load(Ordering::Relaxed) == before {
                return (length > 0).then_some((count, error, length, key));
            }
            std::hint::spin_loop();
        }
        None
    }
}

fn text(key: &[u8]) -> String {
    let mut text = String::with_capacity(key.len());
    for &byte in key {
        match byte {
            b'\\' => text.push_str("\\\\"),
            b' '..=b'~' => text.push(char::from(byte)),
            _ => text.push_str(&format!("\\x{byte:02x}")),
        }
    }
    text
}

impl HotKeysReader {
    /// The most requested keys, hottest first, at most `limit`.
    #[must_use]
    pub fn top(&self, limit: usize) -> Vec<HotKey> {
        let samples = self.0.samples.get().max(1) as f64;
        let places = self.0.places.iter().filter_map(Place::read);
        let mut top: Vec<_> = places.filter(|place| place.0 > place.1).collect();
        // Sorted by the certain part: a key that just took a place has its predecessor's count.
        top.sort_by_key(|place| std::cmp::Reverse(place.0 - place.1));
        top.truncate(limit);
        let shown = top.into_iter().map(|(count, error, length, key)| {
            let kept = usize::try_from(length).unwrap_or(KEY_BYTES).min(KEY_BYTES);
            HotKey {
                key: text(&key[..kept]),
                key_bytes: length,
                share: (count as f64 / samples).min(1.0),
                error: error as f64 / samples,
                samples: count - error,
            }
        });
        shown.collect()
    }
}

#[cfg(all(test, not(farcore_uncounted)))]
mod tests {
    use super::*;

    fn hash_of(number: u64) -> u64 {
        (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    #[test]
    fn the_hottest_keys_come_first_and_no_share_is_too_small() {
        let mut sketch = HotKeys::default();
        let mut truth = vec![0u64; 2_000];
        let mut state = 1u64;
        for _ in 0..60_000 {
            state = hash_of(state);
            // Half of all requests go to one key, a quarter to the next, and so on; the rest is
            // spread.
            let rank = (state >> 40).trailing_ones() as usize;
            let number = if rank < 6 {
                rank
            } else {
                6 + (state >> 20) as usize % 1_900
            };
            truth[number] += 1;
            sketch.note(hash_of(number as u64), format!("key {number}").as_bytes());
        }
        let top = sketch.reader().top(5);
        for (number, hot) in top.iter().enumerate() {
            assert_eq!(hot.key, format!("key {number}"));
            let share = truth[number] as f64 / 60_000.0;
            assert!(hot.share >= share && hot.share - hot.error <= share);
            assert!((1..=truth[number]).contains(&hot.samples), "{hot:?}");
        }
    }

    #[test]
    fn formerly_hot_keys_are_replaced() {
        let mut sketch = HotKeys::default();
        let reader = sketch.reader();
        for _ in 0..HALF_LIFE {
            sketch.note(1, b"old");
        }
        for _ in 0..4 * HALF_LIFE {
            sketch.note(2, b"new");
        }
        let top = reader.top(2);
        assert_eq!(top[0].key, "new");
        assert!(top[0].share > 0.9 && top[1].share < 0.1, "{top:?}");
    }

    #[test]
    fn the_sampling_rate_does_not_depend_on_the_batch_size() {
        let requests = PERIOD as usize * 10_000;
        for batch in [1, 7, 32, 1000] {
            let mut sketch = HotKeys::default();
            let (mut sampled, mut seen) = (0, 0);
            while seen < requests {
                if let Some(place) = sketch.sample(batch) {
                    assert!(place < batch);
                    sampled += 1;
                }
                seen += batch;
            }
            // At most one per batch.
            let least = (requests / batch).min(8_000);
            assert!((least..12_000).contains(&sampled), "{sampled} for {batch}");
        }
    }

    #[test]
    fn keys_are_escaped() {
        let mut sketch = HotKeys::default();
        sketch.note(1, b"a\"\\\n\xFF");
        sketch.note(2, &[b'x'; 1024]);
        sketch.note(2, &[b'x'; 1024]);
        let top = sketch.reader().top(9);
        assert_eq!(
            (top[0].key.as_str(), top[0].key_bytes),
            ("x".repeat(32).as_str(), 1024)
        );
        assert_eq!(top[1].key, "a\"\\\\\\x0a\\xff");
    }

    #[test]
    fn readers_see_no_mixed_places() {
        let mut sketch = HotKeys::default();
        let reader = sketch.reader();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut seen = 0;
                while !done.load(Ordering::Relaxed) || seen == 0 {
                    for hot in reader.top(PLACES) {
                        seen += 1;
                        let first = hot.key.as_bytes()[0];
                        assert!(hot.key.bytes().all(|byte| byte == first), "{hot:?}");
                        assert_eq!(hot.key_bytes, 1 + u64::from(first - b'a'));
                    }
                }
            });
            let keys: Vec<Vec<u8>> = (0..26)
                .map(|letter| vec![b'a' + letter; 1 + usize::from(letter)])
                .collect();
            for (number, key) in (0..2_000_000).zip(keys.iter().cycle()) {
                sketch.note(hash_of(number % 7_919), key);
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}
