//! The databases of a server: all lie in one engine, and a key's database is part of the key under
//! which it is stored.
//!
//! ```text
//! database 0:  | key |                      unless it is empty or begins with a 0
//! all others:  | 0 | database:1 | key |
//! ```
//!
//! - I1: a stored key tells its database and its client's key, and no two keys share one.
//! - I2: `SWAPDB` changes which database a number means; no key is stored anew.
//! - I3: with a data directory, what numbers mean is stored under [`ORDER_KEY`], a key of no
//!   database, unless each means the database of that number.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How many there are.
pub(crate) const DATABASES: u8 = 16;
/// What a client reads of a number that is none of a database; as Redis.
pub(crate) const OUT_OF_RANGE: &str = "ERR DB index is out of range";

/// Bits of a database in a word.
const BITS: u32 = 4;
/// Each number means the database of that number.
const IN_ORDER: u64 = 0xfedc_ba98_7654_3210;
/// The first byte of a stored key that names its database.
const MARK: u8 = 0;
/// Bytes of what names a database.
const NAME_BYTES: usize = 2;
/// The stored key of what numbers mean, of a database that there is not.
pub(crate) const ORDER_KEY: &[u8] = b"\0\xffdatabases";
/// In the bits of used databases: which are used is not known. The first database has no bit.
const UNKNOWN: u64 = 1;

/// A database, as its keys are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Database(u8);

impl Database {
    /// True if a key is stored as its client writes it.
    #[inline]
    pub(crate) fn keeps(self, key: &[u8]) -> bool {
        self.0 == 0 && key.first().is_some_and(|first| *first != MARK)
    }

    /// Appends a client's key as it is stored.
    pub(crate) fn write(self, key: &[u8], into: &mut Vec<u8>) {
        if !self.keeps(key) {
            into.extend([MARK, self.0]);
        }
        into.extend_from_slice(key);
    }

    /// A client's key as it is stored.
    pub(crate) fn stored(self, key: &[u8]) -> Cow<'_, [u8]> {
        if self.keeps(key) {
            return Cow::Borrowed(key);
        }
        let mut stored = Vec::with_capacity(NAME_BYTES + key.len());
        self.write(key, &mut stored);
        Cow::Owned(stored)
    }

    /// The database of a stored key. One that another interface has stored may be of none.
    #[inline]
    pub(crate) fn of(stored: &[u8]) -> Self {
        match stored {
            [MARK, database, ..] => Self(*database),
            _ => Self(0),
        }
    }

    /// Its place among all.
    pub(crate) fn place(self) -> usize {
        self.0.into()
    }
}

/// A client's key from the one under which it is stored.
#[inline]
pub(crate) fn shown_key(stored: &[u8]) -> &[u8] {
    match stored {
        [MARK, _, key @ ..] => key,
        key => key,
    }
}

/// Keys of each database, by its place or its number.
pub(crate) type Counts = [u64; DATABASES as usize];

/// What `used` has more for each command that clears.
const CLEARING: u64 = 1 << 32;
/// Counts are as good as new for this many times what it took to count.
const COUNTED_FOR: u32 = 30;

/// Which databases the numbers of clients mean, and whether there is more than the first.
#[derive(Debug)]
pub(crate) struct Databases {
    /// Four bits for each number, those of 0 first.
    order: AtomicU64,
    /// How often numbers were swapped.
    swaps: AtomicU64,
    /// A bit for each database that may have keys, but the first. Above them, how many commands
    /// clear the first by a removal of all keys.
    used: AtomicU64,
    /// The keys of each, and until when they are not counted again.
    counts: Mutex<Option<(Counts, Instant)>>,
}

impl Default for Databases {
    fn default() -> Self {
        Self {
            order: AtomicU64::new(IN_ORDER),
            swaps: AtomicU64::new(0),
            used: AtomicU64::new(0),
            counts: Mutex::default(),
        }
    }
}

impl Databases {
    /// The database that a number means.
    #[inline]
    pub(crate) fn of(&self, number: u8) -> Database {
        // ORDERING: relaxed; a core that sees a swap late is like one whose commands came before.
        in_order(self.order.load(Ordering::Relaxed), number)
    }

    /// The number that means a database.
    pub(crate) fn number(&self, database: Database) -> u8 {
        number_in(self.order(), database)
    }

    /// What all numbers mean, as one word: it differs after a swap.
    pub(crate) fn order(&self) -> u64 {
        self.order.load(Ordering::Relaxed)
    }

    /// How often numbers were swapped: it tells a swap that another one has undone.
    pub(crate) fn swaps(&self) -> u64 {
        // ORDERING: acquire, after the swap that it counts.
        self.swaps.load(Ordering::Acquire)
    }

    /// Has two numbers mean each other's databases.
    pub(crate) fn swap(&self, one: u8, other: u8) {
        for number in [one, other] {
            self.note_used(self.of(number));
        }
        let swap = |order| Some(swapped(order, one, other));
        if one != other {
            let _ = (self.order).fetch_update(Ordering::Relaxed, Ordering::Relaxed, swap);
            self.swaps.fetch_add(1, Ordering::Release);
        }
    }

    /// What is stored so that numbers mean the same after a restart, once two are swapped.
    pub(crate) fn stored_after(&self, one: u8, other: u8) -> [u8; 8] {
        swapped(self.order(), one, other).to_le_bytes()
    }

    /// True if a number means the database of another one.
    pub(crate) fn are_swapped(&self) -> bool {
        self.order() != IN_ORDER
    }

    /// Takes what was stored as the meaning of numbers, while no client is served. False if it is
    /// none.
    pub(crate) fn restore(&self, stored: &[u8]) -> bool {
        let Some(order) = stored.as_array().map(|bytes| u64::from_le_bytes(*bytes)) else {
            return false;
        };
        let named = (0..DATABASES).map(|number| 1u32 << in_order(order, number).0);
        if named.fold(0, |all, bit| all | bit) != (1 << DATABASES) - 1 {
            return false;
        }
        self.order.store(order, Ordering::Relaxed);
        for number in 0..DATABASES {
            if in_order(order, number).0 != number {
                self.note_used(Database(number));
            }
        }
        true
    }

    /// Notes that keys may be in any database until [`Databases::note_looked`].
    pub(crate) fn note_unknown(&self) {
        self.used.fetch_or(UNKNOWN, Ordering::Relaxed);
    }

    /// Notes that all keys were looked at.
    pub(crate) fn note_looked(&self) {
        self.used.fetch_and(!UNKNOWN, Ordering::Relaxed);
    }

    /// The keys of each database, by place, if they were counted lately.
    pub(crate) fn counts(&self) -> Option<Counts> {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let lately = counts.filter(|(_, until)| Instant::now() < *until);
        lately.map(|(counts, _)| counts)
    }

    /// Notes how many keys each database has, and how long it took to count them.
    pub(crate) fn note_counts(&self, counts: Counts, took: Duration) {
        let until = Instant::now() + took * COUNTED_FOR;
        let mut last = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some((counts, until));
    }

    /// Counts by place as counts by number.
    pub(crate) fn by_number(&self, counts: &Counts) -> Counts {
        std::array::from_fn(|number| {
            let number = u8::try_from(number).unwrap_or_default();
            counts[self.of(number).place()]
        })
    }

    /// Notes that a key is about to be stored in a database. False if it must not be yet, because
    /// all keys are removed.
    #[inline]
    pub(crate) fn note_used(&self, database: Database) -> bool {
        let bit = 1 << database.0 & !1;
        // ORDERING: sequentially consistent, as in `clear`: one of both sees the other. A count of
        // keys meanwhile is as one before.
        let mut used = self.used.load(Ordering::SeqCst);
        if used & bit != bit {
            used = self.used.fetch_or(bit, Ordering::SeqCst);
        }
        bit == 0 || used < CLEARING
    }

    /// Has no key be stored in another database than the first, unless one may have some, until
    /// what it returns is dropped.
    pub(crate) fn clear(&self) -> Clearing<'_> {
        let used = self.used.fetch_add(CLEARING, Ordering::SeqCst);
        if used & (CLEARING - 1) == 0 {
            return Clearing(Some(self));
        }
        self.used.fetch_sub(CLEARING, Ordering::SeqCst);
        Clearing(None)
    }

    /// True if databases other than the first may have keys.
    #[inline]
    pub(crate) fn are_several(&self) -> bool {
        self.used.load(Ordering::Relaxed) & (CLEARING - 1) != 0
    }
}

/// What clears the first database.
#[derive(Debug)]
pub(crate) struct Clearing<'a>(Option<&'a Databases>);

impl Clearing<'_> {
    /// True if no other database has keys.
    pub(crate) fn is_alone(&self) -> bool {
        self.0.is_some()
    }
}

impl Drop for Clearing<'_> {
    fn drop(&mut self) {
        if let Some(databases) = self.0 {
            databases.used.fetch_sub(CLEARING, Ordering::SeqCst);
        }
    }
}

/// An order in which two numbers have swapped what they mean.
fn swapped(order: u64, one: u8, other: u8) -> u64 {
    let (first, second) = (in_order(order, one), in_order(order, other));
    let difference = u64::from(first.0 ^ second.0);
    let shift = |number: u8| BITS * u32::from(number);
    if one == other {
        return order;
    }
    order ^ difference << shift(one) ^ difference << shift(other)
}

/// The number that means a database in an order.
pub(crate) fn number_in(order: u64, database: Database) -> u8 {
    let mut numbers = 0..DATABASES;
    let number = numbers.find(|&number| in_order(order, number) == database);
    number.unwrap_or_default()
}

/// The database that a number means in an order.
#[inline]
fn in_order(order: u64, number: u8) -> Database {
    let mask = u64::from(DATABASES) - 1;
    let database = order >> (BITS * u32::from(number % DATABASES)) & mask;
    Database(u8::try_from(database).unwrap_or(0))
}

/// The number of a database, if there is one of that number.
pub(crate) fn number(value: i64) -> Option<u8> {
    u8::try_from(value)
        .ok()
        .filter(|number| *number < DATABASES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn keys_of_all_databases_are_stored_apart_and_shown_as_they_are() {
        let mut seen = HashSet::new();
        let keys: [&[u8]; 8] = [
            b"", b"k", b"\0", b"\0k", b"\0\0k", b"\0\x01k", b"\x01k", b"{k}",
        ];
        for number in 0..DATABASES {
            let database = Databases::default().of(number);
            for key in keys {
                let stored = database.stored(key).into_owned();
                assert!(!stored.is_empty());
                assert_eq!(shown_key(&stored), key);
                assert_eq!(Database::of(&stored), database);
                assert!(seen.insert(stored), "{number} {key:?}");
            }
        }
        assert_eq!(&*Database(0).stored(b"k"), b"k");
    }

    #[test]
    fn numbers_are_swapped_and_back() {
        let databases = Databases::default();
        assert!(!databases.are_several());
        databases.swap(0, 0);
        assert!(!databases.are_several());
        databases.swap(3, 9);
        databases.swap(9, 0);
        let means = |number| databases.of(number).place();
        assert_eq!([means(3), means(9), means(0), means(1)], [9, 0, 3, 1]);
        for number in 0..DATABASES {
            assert_eq!(databases.number(databases.of(number)), number);
        }
        databases.swap(0, 9);
        databases.swap(9, 3);
        assert_eq!((databases.order(), databases.swaps()), (IN_ORDER, 4));
        databases.swap(1, 2);
        let counts = std::array::from_fn(|place| 10 * place as u64);
        assert_eq!(databases.by_number(&counts)[..4], [0, 20, 10, 30]);
        assert_eq!(databases.counts(), None);
        databases.note_counts(counts, Duration::from_secs(9));
        assert_eq!(databases.counts(), Some(counts));
        assert!(databases.are_several());
    }

    #[test]
    fn another_database_is_not_used_while_all_keys_are_removed() {
        let databases = Databases::default();
        let (first, second) = (databases.of(0), databases.of(1));
        let (one, other) = (databases.clear(), databases.clear());
        assert!(one.is_alone() && other.is_alone() && !databases.are_several());
        assert!(databases.note_used(first) && !databases.note_used(second));
        assert!(databases.are_several());
        // It is found out meanwhile.
        assert!(!databases.clear().is_alone());
        drop(one);
        assert!(!databases.note_used(second));
        drop(other);
        assert!(databases.note_used(second));
        assert!(!databases.clear().is_alone() && databases.note_used(second));
    }

    #[test]
    fn what_numbers_mean_is_stored_and_restored() {
        let databases = Databases::default();
        databases.swap(0, 5);
        let stored = databases.stored_after(5, 9);
        databases.swap(5, 9);
        let others = Databases::default();
        assert!(others.restore(&stored) && others.are_swapped());
        assert_eq!(others.order(), databases.order());
        assert!(others.are_several());
        for wrong in [&[0; 8][..], &[], &stored[..7]] {
            assert!(!others.restore(wrong));
        }
        assert_eq!(others.order(), databases.order());
        assert_eq!(Database::of(ORDER_KEY).place(), 255);
    }

    #[test]
    fn any_database_may_have_keys_until_all_were_looked_at() {
        let databases = Databases::default();
        databases.note_unknown();
        assert!(databases.are_several());
        databases.note_looked();
        assert!(!databases.are_several());
    }

    #[test]
    fn numbers_of_databases_are_those_below_their_count() {
        assert_eq!(number(0), Some(0));
        assert_eq!(number(15), Some(15));
        for value in [-1, 16, 256, i64::MAX] {
            assert_eq!(number(value), None);
        }
    }
}
