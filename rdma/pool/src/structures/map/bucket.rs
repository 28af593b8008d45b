//! The words of a bucket and its entries, without any access to memory.

use crate::plain::Plain;
use crate::structures::once_table::hash;

/// Entries of a bucket.
pub(super) const ENTRIES: usize = 12;
/// The words before the entries.
const HEADER: usize = 2;
/// In the first word of a bucket: nothing in it changes any more.
const FROZEN: u64 = 1;
/// In the first word of a bucket: one of its keys lies in a spill bucket.
const SPILLED: u64 = 2;

/// How long keys and values are, in words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Layout {
    pub(super) key: usize,
    pub(super) value: usize,
}

impl Layout {
    pub(super) const fn of<K: Plain, V: Plain>() -> Self {
        Self {
            key: K::BYTES.div_ceil(8),
            value: V::BYTES.div_ceil(8),
        }
    }

    /// The words of an entry.
    pub(super) fn entry(self) -> usize {
        1 + self.key + 2 * (self.value + 1)
    }

    /// The words of a bucket.
    pub(super) fn bucket(self) -> usize {
        HEADER + ENTRIES * self.entry()
    }

    /// Where an entry begins in its bucket.
    pub(super) fn at(self, entry: usize) -> usize {
        HEADER + entry * self.entry()
    }

    /// Where a value's slot begins in its entry.
    pub(super) fn slot(self, slot: usize) -> usize {
        1 + self.key + slot * (self.value + 1)
    }
}

/// An entry's state: a version, the slot that holds the value, and whether there is one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct State(pub(super) u64);

impl State {
    pub(super) fn is_live(self) -> bool {
        self.0 & 1 == 1
    }

    pub(super) fn slot(self) -> usize {
        usize::from(self.0 >> 1 & 1 == 1)
    }

    fn version(self) -> u64 {
        self.0 >> 2
    }

    /// The next version, with a value in the other slot.
    pub(super) fn set(self) -> Self {
        let slot = 1 - self.slot() as u64;
        Self((self.version() + 1) << 2 | slot << 1 | 1)
    }

    /// The next version, without a value.
    pub(super) fn removed(self) -> Self {
        Self((self.version() + 1) << 2 | (self.slot() as u64) << 1)
    }
}

/// The check of a value in a slot.
pub(super) fn check(state: State, key: &[u64], value: &[u64]) -> u64 {
    let words: Vec<u64> = [&[state.0], key, value].concat();
    hash(&words)
}

/// An entry that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    /// Its number, counted over the buckets that were read.
    pub(super) number: usize,
    pub(super) state: State,
    pub(super) value: Vec<u64>,
}

/// The outcome of a search.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Found {
    Entry(Entry),
    Absent,
    /// Parts of two changes were seen.
    Torn,
}

/// Buckets that lie one behind the other, as they were read.
#[derive(Debug)]
pub(super) struct Buckets {
    layout: Layout,
    words: Vec<u64>,
}

impl Buckets {
    pub(super) fn new(layout: Layout, words: Vec<u64>) -> Self {
        Self { layout, words }
    }

    fn count(&self) -> usize {
        self.words.len() / self.layout.bucket()
    }

    /// The first word of the first bucket.
    pub(super) fn ident(&self) -> u64 {
        self.words[0]
    }

    /// Whether the first bucket is frozen.
    pub(super) fn is_frozen(&self) -> bool {
        self.ident() & FROZEN != 0
    }

    /// Whether a key of the first bucket lies in a spill bucket.
    pub(super) fn has_spilled(&self) -> bool {
        self.ident() & SPILLED != 0
    }

    fn entry(&self, number: usize) -> &[u64] {
        let (bucket, entry) = (number / ENTRIES, number % ENTRIES);
        let at = bucket * self.layout.bucket() + self.layout.at(entry);
        &self.words[at..at + self.layout.entry()]
    }

    pub(super) fn state(&self, number: usize) -> State {
        State(self.entry(number)[0])
    }

    /// Key and value of a live entry; `None` if parts of two changes were seen.
    fn parts(&self, number: usize) -> Option<(&[u64], &[u64])> {
        let entry = self.entry(number);
        let state = State(entry[0]);
        let key = &entry[1..1 + self.layout.key];
        let at = self.layout.slot(state.slot());
        let (value, rest) = entry[at..].split_at(self.layout.value);
        (rest[0] == check(state, key, value)).then_some((key, value))
    }

    /// Finds a key.
    pub(super) fn find(&self, key: &[u64]) -> Found {
        let mut is_torn = false;
        for number in 0..self.count() * ENTRIES {
            let state = self.state(number);
            if !state.is_live() {
                continue;
            }
            match self.parts(number) {
                Some((own, value)) if own == key => {
                    return Found::Entry(Entry {
                        number,
                        state,
                        value: value.to_vec(),
                    });
                }
                Some(_) => {}
                // It may be this key's.
                None => is_torn = true,
            }
        }
        if is_torn { Found::Torn } else { Found::Absent }
    }

    /// The free entries of a bucket.
    pub(super) fn free(&self, bucket: usize) -> impl Iterator<Item = usize> + '_ {
        let numbers = bucket * ENTRIES..(bucket + 1) * ENTRIES;
        numbers.filter(|&number| !self.state(number).is_live())
    }

    /// Keys and values of all live entries that are whole.
    pub(super) fn live(&self) -> impl Iterator<Item = (&[u64], &[u64])> {
        (0..self.count() * ENTRIES)
            .filter(|&number| self.state(number).is_live())
            .filter_map(|number| self.parts(number))
    }

    /// Whether an entry is live and not whole.
    pub(super) fn is_damaged(&self) -> bool {
        (0..self.count() * ENTRIES)
            .any(|number| self.state(number).is_live() && self.parts(number).is_none())
    }

    /// Puts a key into the first free entry of a bucket that no process uses; false if it is full.
    pub(super) fn put(&mut self, bucket: usize, key: &[u64], value: &[u64]) -> bool {
        let Some(number) = self.free(bucket).next() else {
            return false;
        };
        let state = self.state(number).set();
        let at = bucket * self.layout.bucket() + self.layout.at(number % ENTRIES);
        let slot = at + self.layout.slot(state.slot());
        self.words[at] = state.0;
        self.words[at + 1..at + 1 + key.len()].copy_from_slice(key);
        self.words[slot..slot + value.len()].copy_from_slice(value);
        self.words[slot + value.len()] = check(state, key, value);
        true
    }

    /// Notes that a key of a bucket that no process uses lies in a spill bucket.
    pub(super) fn note_spill(&mut self, bucket: usize) {
        self.words[bucket * self.layout.bucket()] |= SPILLED;
    }

    pub(super) fn words(&self) -> &[u64] {
        &self.words
    }
}

/// The first word of a bucket, frozen.
pub(super) fn frozen(ident: u64) -> u64 {
    ident | FROZEN
}

/// The first word of a bucket, one of whose keys lies in a spill bucket.
pub(super) fn spilled(ident: u64) -> u64 {
    ident | SPILLED
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::structures::block::words_of;

    const LAYOUT: Layout = Layout { key: 1, value: 2 };

    #[test]
    fn what_is_put_is_found_and_what_is_torn_is_noticed() {
        assert_eq!(Layout::of::<u64, [u32; 4]>(), LAYOUT);
        assert_eq!(words_of::<[u32; 4]>(), LAYOUT.value);
        let mut buckets = Buckets::new(LAYOUT, vec![0; 2 * LAYOUT.bucket()]);
        for key in 0..ENTRIES as u64 {
            assert!(buckets.put(1, &[key], &[key + 1, key + 2]));
        }
        assert!(!buckets.put(1, &[99], &[0, 0]));
        assert_eq!(buckets.live().count(), ENTRIES);
        assert_eq!(
            (buckets.free(0).count(), buckets.free(1).count()),
            (ENTRIES, 0)
        );
        let Found::Entry(entry) = buckets.find(&[7]) else {
            panic!("it was put")
        };
        assert_eq!((entry.number, &entry.value[..]), (ENTRIES + 7, &[8, 9][..]));
        assert_eq!(buckets.find(&[99]), Found::Absent);
        let at = LAYOUT.bucket() + LAYOUT.at(7);
        for word in 0..LAYOUT.entry() {
            let mut words = buckets.words.clone();
            words[at + word] ^= 4;
            let torn = Buckets::new(LAYOUT, words);
            let in_use = word < 2 || word >= LAYOUT.slot(1);
            let found = torn.find(&[7]);
            assert_eq!(found == Found::Torn, in_use, "word {word}: {found:?}");
        }
    }
}
