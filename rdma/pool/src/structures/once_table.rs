//! A table whose values are written once: a key's first value is its value for ever.
//!
//! ```text
//! slots     a word each: 0, or the number of a record plus one, and part of the key's hash
//! records   state | key | value | check: written as a whole before a slot names it
//! ```
//!
//! A key's slots begin at its hash and follow one another; a look-up reads eight of them at once.
//!
//! - I1: a slot changes once, from 0 to a record that is complete. So what a reader finds is whole,
//!   and stays.
//! - I2: all slots of a key before the one that names it are taken by other keys, for ever.
//! - I3: a writer that dies keeps at most one record.

use std::future::Future;
use std::marker::PhantomData;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::block::{Block, decode, encode, index, malformed, words_of};
use crate::error::{PoolError, Result};
use crate::export::Exported;
use crate::op::Op;
use crate::plain::{Plain, mark};
use crate::pool::RemotePool;

const CAPACITY: usize = 1;
const USED: usize = 2;
const SLOTS: usize = 3;
/// Slots that are read at once.
const WINDOW: usize = 8;
/// The most records: their numbers have 40 bits.
const CAPACITY_MAX: usize = (1 << 40) - 1;
const NUMBER: u64 = (1 << 40) - 1;

/// A table that processes share, whose values are written once.
///
/// ```
/// # let pool = farcore_pool::RemotePool::embedded(1 << 20)?;
/// use farcore_pool::structures::RemoteOnceTable;
///
/// let leaders = RemoteOnceTable::create(&pool, 100).wait()?;
/// assert_eq!(leaders.set(&7_u64, &1_u32).wait()?, None);
/// assert_eq!(leaders.set(&7, &2).wait()?, Some(1));
/// assert_eq!(leaders.get(&7).wait()?, Some(1));
/// # Ok::<(), farcore_pool::PoolError>(())
/// ```
#[derive(Debug)]
pub struct RemoteOnceTable<K, V> {
    block: Block,
    capacity: usize,
    /// Records that a faster writer left unused.
    spare: Mutex<Vec<u64>>,
    holds: PhantomData<fn() -> (K, V)>,
}

/// A hash of words (the finalizer of splitmix64 over each).
pub(super) fn hash(words: &[u64]) -> u64 {
    words.iter().fold(0x9e37_79b9_7f4a_7c15, |hash, word| {
        let mut mixed = (hash ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    })
}

impl<K: Plain, V: Plain> RemoteOnceTable<K, V> {
    const MARK: u64 = mark("farcore once table", &[K::MARK, V::MARK]);

    /// Creates a table for a number of keys.
    ///
    /// # Errors
    /// As [`RemotePool::alloc`]; [`PoolError::Option`] if the capacity is out of range.
    pub fn create(
        pool: &RemotePool,
        capacity: usize,
    ) -> Op<'_, impl Future<Output = Result<Self>> + Send> {
        Op::new(pool.lane(), async move {
            let too_long = || PoolError::Option {
                option: "capacity",
                value: capacity.to_string(),
                range: "1 to 1099511627775, and what memory holds",
            };
            let total = Self::total(capacity).ok_or_else(too_long)?;
            let first = [Self::MARK, capacity as u64, 0];
            let block = Block::create(pool, &first, total).await?;
            Ok(Self {
                block,
                capacity,
                spare: Mutex::default(),
                holds: PhantomData,
            })
        })
    }

    /// Opens a table of another process.
    ///
    /// # Errors
    /// As [`RemotePool::import`]; [`PoolError::WrongType`] if it holds other keys or values.
    pub fn open<'a>(
        pool: &'a RemotePool,
        exported: &'a Exported<u64>,
    ) -> Op<'a, impl Future<Output = Result<Self>> + Send + 'a> {
        Op::new(pool.lane(), async move {
            let block = Block::open(pool, exported, Self::MARK, SLOTS).await?;
            let capacity = index(block.read_one(CAPACITY).await?);
            if Self::total(capacity).is_none_or(|total| total > block.len()) {
                return Err(malformed("it has fewer records than it says"));
            }
            Ok(Self {
                block,
                capacity,
                spare: Mutex::default(),
                holds: PhantomData,
            })
        })
    }

    /// A pointer by which other processes open it.
    ///
    /// # Errors
    /// As [`RemoteSlice::export`](crate::RemoteSlice::export).
    pub fn export(&self) -> Op<'_, impl Future<Output = Result<Exported<u64>>> + Send> {
        Op::new(self.block.lane(), self.block.export())
    }

    fn spare(&self) -> MutexGuard<'_, Vec<u64>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Slots: a third more than records, and a window past the end.
    fn slots(capacity: usize) -> usize {
        capacity + capacity / 3 + WINDOW
    }

    fn stride() -> usize {
        words_of::<K>() + words_of::<V>() + 1
    }

    fn total(capacity: usize) -> Option<usize> {
        if !(1..=CAPACITY_MAX).contains(&capacity) {
            return None;
        }
        let records = capacity.checked_mul(Self::stride())?;
        records.checked_add(SLOTS + Self::slots(capacity))
    }

    fn record(&self, number: usize) -> usize {
        SLOTS + Self::slots(self.capacity) + number * Self::stride()
    }

    /// Sets a key's value if it has none. Returns the value that it has already.
    ///
    /// # Errors
    /// [`PoolError::Exhausted`] if the table is full; as
    /// [`RemoteSlice::compare_and_swap`](crate::RemoteSlice::compare_and_swap): after
    /// [`PoolError::UnknownOutcome`] read the key.
    pub fn set<'a>(
        &'a self,
        key: &'a K,
        value: &'a V,
    ) -> Op<'a, impl Future<Output = Result<Option<V>>> + Send + 'a> {
        Op::new(self.block.lane(), async move {
            let key = encode(key);
            let hash = hash(&key);
            let mut place = match self.find(&key, hash).await? {
                Found::Value(value) => return Ok(Some(value)),
                Found::Free(place) => place,
            };
            let spare = self.spare().pop();
            let number = match spare {
                Some(number) => number,
                None => self.block.add(USED, 1).await?,
            };
            if index(number) >= self.capacity {
                return Err(PoolError::Exhausted {
                    bytes: (Self::stride() * 8) as u64,
                    free_bytes: 0,
                });
            }
            let mut record = [&key[..], &encode(value)[..]].concat();
            record.push(self::hash(&record));
            self.block
                .write(self.record(index(number)), &record)
                .await?;
            let own = (number + 1) | hash & !NUMBER;
            loop {
                let found = self.block.swap(SLOTS + place, 0, own).await?;
                if found == 0 {
                    return Ok(None);
                }
                // Another was faster: for this key, or for one with the same place.
                match self.find(&key, hash).await? {
                    Found::Value(value) => {
                        self.spare().push(number);
                        return Ok(Some(value));
                    }
                    Found::Free(next) => place = next,
                }
            }
        })
    }

    /// The value of a key. Cost: two round trips; one if the key is absent.
    ///
    /// # Errors
    /// As [`RemoteSlice::read`](crate::RemoteSlice::read).
    pub fn get<'a>(
        &'a self,
        key: &'a K,
    ) -> Op<'a, impl Future<Output = Result<Option<V>>> + Send + 'a> {
        Op::new(self.block.lane(), async move {
            let key = encode(key);
            match self.find(&key, hash(&key)).await? {
                Found::Value(value) => Ok(Some(value)),
                Found::Free(_) => Ok(None),
            }
        })
    }

    /// Finds a key's value, or the slot that it would take.
    async fn find(&self, key: &[u64], hash: u64) -> Result<Found<V>> {
        let slots = Self::slots(self.capacity);
        let mut place = index(hash % (slots - WINDOW) as u64);
        let mut window = [0; WINDOW];
        let mut left = slots;
        while left > 0 {
            let count = WINDOW.min(slots - place);
            let window = &mut window[..count];
            self.block.read(SLOTS + place, window).await?;
            for (step, &slot) in window.iter().enumerate() {
                if slot == 0 {
                    return Ok(Found::Free(place + step));
                }
                if (slot ^ hash) & !NUMBER == 0
                    && let Some(value) = self.value_of(slot, key).await?
                {
                    return Ok(Found::Value(value));
                }
            }
            left = left.saturating_sub(count);
            place = (place + count) % slots;
        }
        Err(PoolError::Exhausted {
            bytes: 8,
            free_bytes: 0,
        })
    }

    /// The value of a slot's record, if it is the key's.
    async fn value_of(&self, slot: u64, key: &[u64]) -> Result<Option<V>> {
        let number = index((slot & NUMBER).wrapping_sub(1));
        if number >= self.capacity {
            return Err(malformed("a slot leads past the records"));
        }
        let mut record = vec![0; Self::stride()];
        self.block.read(self.record(number), &mut record).await?;
        let (body, check) = record.split_at(record.len() - 1);
        if check != [self::hash(body)] {
            return Err(malformed("a record is damaged"));
        }
        let (own, value) = body.split_at(key.len());
        if own != key {
            return Ok(None);
        }
        decode(value).map(Some)
    }
}

/// What a look-up found.
enum Found<V> {
    Value(V),
    Free(usize),
}
