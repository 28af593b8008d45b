//! A hash table that clients look up with one READ.
//!
//! ```text
//! root      mark | state | two descriptions of a table, of which the state names one
//! table     bucket bucket ... bucket | spill buckets
//! bucket    ident | lock | 12 entries
//! entry     state | key | value, check | value, check
//! ```
//!
//! A key's home is a bucket by its hash. It lies there, in the bucket behind it, or, where both are
//! full, in a spill bucket. A look-up READs home and the next one at once; at 80 % fill, 997 of
//! 1000 keys lie there. A change locks the home, and the bucket that it takes a free entry of.
//!
//! - I1: what belongs to a key changes only under its home's lock. So a key has one entry.
//! - I2: a change is one swap of the entry's state, which names the slot that holds the value: a
//!   new value is written into the other slot before. So a process that dies in a change leaves the
//!   old value.
//! - I3: a value's check covers key, value, and the version in the entry's state: a reader that
//!   sees parts of two changes notices, and reads again.
//! - I4: a lock names its holder's session. Another process takes it over when the node says that
//!   this session is over: then no request of it is performed any more.
//! - I5: a table that grows is frozen bucket by bucket, and nothing in it changes afterwards. Its
//!   memory stays until the whole map is freed, so a reader of the old table sees that it is
//!   frozen.
//!
//! Grown tables follow the root's extent (they are attached to it): they have its owner and its
//! sharers, whichever process had them grow.

mod bucket;
mod grow;
mod locked;
mod table;

use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use self::bucket::{Found, Layout};
use self::locked::Locks;
use self::table::{Root, Table};
use super::block::{decode, encode, malformed};
use crate::error::{PoolError, Result};
use crate::export::Exported;
use crate::lane::Lane;
use crate::op::Op;
use crate::plain::{Plain, mark};
use crate::pool::RemotePool;

/// How often an entry is read again of which parts of two changes were seen.
const TORN_MAX: u32 = 10_000;

/// What becomes of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change<V> {
    /// It stays as it is.
    Keep,
    /// It has this value.
    Set(V),
    /// It is removed.
    Remove,
}

/// Counts of look-ups, of this handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct MapFigures {
    /// Look-ups.
    pub lookups: u64,
    /// READs that they took.
    pub reads: u64,
    /// Entries of the table.
    pub entries: u64,
}

/// A hash table that processes share.
///
/// ```
/// # let pool = farcore_pool::RemotePool::embedded(4 << 20)?;
/// use farcore_pool::structures::RemoteMap;
///
/// let map = RemoteMap::create(&pool, 1000).wait()?;
/// assert_eq!(map.insert(&7_u64, &[1_u32, 2]).wait()?, None);
/// assert_eq!(map.get(&7).wait()?, Some([1, 2]));
/// assert_eq!(map.remove(&7).wait()?, Some([1, 2]));
/// # Ok::<(), farcore_pool::PoolError>(())
/// ```
#[derive(Debug)]
pub struct RemoteMap<K, V> {
    root: Root,
    lookups: AtomicU64,
    reads: AtomicU64,
    holds: PhantomData<fn() -> (K, V)>,
}

impl<K: Plain, V: Plain> RemoteMap<K, V> {
    const MARK: u64 = mark("farcore map", &[K::MARK, V::MARK]);
    const LAYOUT: Layout = Layout::of::<K, V>();

    fn new(root: Root) -> Self {
        Self {
            root,
            lookups: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            holds: PhantomData,
        }
    }

    /// Creates a map with room for a number of keys; it grows beyond that. It lies on one node,
    /// where the pool's placement says.
    ///
    /// # Errors
    /// As [`RemotePool::alloc`]; [`PoolError::Option`] if the capacity is out of range.
    pub fn create(
        pool: &RemotePool,
        capacity: usize,
    ) -> Op<'_, impl Future<Output = Result<Self>> + Send> {
        Op::new(pool.lane(), async move {
            let root = Root::create(pool, Self::MARK, Self::LAYOUT, capacity).await?;
            Ok(Self::new(root))
        })
    }

    /// Opens a map of another process.
    ///
    /// # Errors
    /// As [`RemotePool::import`]; [`PoolError::WrongType`] if it holds other keys or values.
    pub fn open<'a>(
        pool: &'a RemotePool,
        exported: &'a Exported<u64>,
    ) -> Op<'a, impl Future<Output = Result<Self>> + Send + 'a> {
        Op::new(pool.lane(), async move {
            let root = Root::open(pool, exported, Self::MARK, Self::LAYOUT).await?;
            Ok(Self::new(root))
        })
    }

    /// A pointer by which other processes open it.
    ///
    /// # Errors
    /// As [`RemoteSlice::export`](crate::RemoteSlice::export).
    pub fn export(&self) -> Op<'_, impl Future<Output = Result<Exported<u64>>> + Send> {
        Op::new(self.lane(), self.root.block().export())
    }

    fn lane(&self) -> &Lane {
        self.root.block().lane()
    }

    /// Counts of the look-ups through this handle.
    #[must_use]
    pub fn figures(&self) -> MapFigures {
        // ORDERING: relaxed; they are figures.
        MapFigures {
            lookups: self.lookups.load(Ordering::Relaxed),
            reads: self.reads.load(Ordering::Relaxed),
            entries: self.root.table().entries(),
        }
    }

    /// The value of a key. Cost: one round trip, for all but a few keys.
    ///
    /// # Errors
    /// As [`RemoteSlice::read`](crate::RemoteSlice::read).
    pub fn get<'a>(
        &'a self,
        key: &'a K,
    ) -> Op<'a, impl Future<Output = Result<Option<V>>> + Send + 'a> {
        Op::new(self.lane(), async move {
            let key = encode(key);
            self.lookups.fetch_add(1, Ordering::Relaxed);
            for _ in 0..TORN_MAX {
                let table = self.root.table();
                if let Some(found) = self.look_up(&table, &key).await? {
                    return found.map(|words| decode(&words)).transpose();
                }
            }
            Err(malformed("an entry is damaged"))
        })
    }

    /// Looks a key up in a table; `None` if the table is another by now, or a change was seen half.
    async fn look_up(&self, table: &Arc<Table>, key: &[u64]) -> Result<Option<Option<Vec<u64>>>> {
        let place = table.place(key);
        let near = table.read_near(&place).await?;
        self.reads.fetch_add(1, Ordering::Relaxed);
        let mut found = near.find(key);
        if found == Found::Absent && near.has_spilled() {
            let spill = table.read_spill(&place).await?;
            self.reads.fetch_add(1, Ordering::Relaxed);
            found = spill.find(key);
        }
        if found == Found::Torn {
            return Ok(None);
        }
        if near.is_frozen() {
            // Nothing in it changes any more; but another table may be in its place.
            self.reads.fetch_add(1, Ordering::Relaxed);
            if !self.root.is_current(table).await? {
                return Ok(None);
            }
        }
        Ok(Some(match found {
            Found::Entry(entry) => Some(entry.value),
            _ => None,
        }))
    }

    /// Sets a key's value. Returns the value before. Cost: seven round trips.
    ///
    /// # Errors
    /// As [`RemoteSlice::compare_and_swap`](crate::RemoteSlice::compare_and_swap): after
    /// [`PoolError::UnknownOutcome`] it was set or not. [`PoolError::Exhausted`] if the map is full
    /// and its node has no room for it to grow.
    pub fn insert<'a>(
        &'a self,
        key: &'a K,
        value: &'a V,
    ) -> Op<'a, impl Future<Output = Result<Option<V>>> + Send + 'a> {
        Op::new(self.lane(), self.changed(key, |_| Change::Set(*value)))
    }

    /// Removes a key. Returns its value. Cost: as [`RemoteMap::insert`].
    ///
    /// # Errors
    /// As [`RemoteMap::insert`].
    pub fn remove<'a>(
        &'a self,
        key: &'a K,
    ) -> Op<'a, impl Future<Output = Result<Option<V>>> + Send + 'a> {
        Op::new(self.lane(), self.changed(key, |_| Change::Remove))
    }

    /// Changes a key as a function of its value says, atomically; the function may be called again.
    /// Returns the value before. Cost: as [`RemoteMap::insert`].
    ///
    /// ```
    /// # let pool = farcore_pool::RemotePool::embedded(4 << 20)?;
    /// # use farcore_pool::structures::{Change, RemoteMap};
    /// # let map = RemoteMap::create(&pool, 1000).wait()?;
    /// let add = |old: Option<u64>| Change::Set(old.unwrap_or(0) + 1);
    /// assert_eq!(map.update(&7_u32, add).wait()?, None);
    /// assert_eq!(map.update(&7, add).wait()?, Some(1));
    /// # Ok::<(), farcore_pool::PoolError>(())
    /// ```
    ///
    /// # Errors
    /// As [`RemoteMap::insert`].
    pub fn update<'a>(
        &'a self,
        key: &'a K,
        change: impl FnMut(Option<V>) -> Change<V> + Send + 'a,
    ) -> Op<'a, impl Future<Output = Result<Option<V>>> + Send + 'a> {
        Op::new(self.lane(), self.changed(key, change))
    }

    async fn changed(
        &self,
        key: &K,
        mut change: impl FnMut(Option<V>) -> Change<V> + Send,
    ) -> Result<Option<V>> {
        let key = encode(key);
        let mut decided = |old: Option<&[u64]>| -> Result<(Option<V>, Change<Vec<u64>>)> {
            let old = old.map(decode).transpose()?;
            let change = match change(old) {
                Change::Keep => Change::Keep,
                Change::Set(value) => Change::Set(encode(&value)),
                Change::Remove => Change::Remove,
            };
            Ok((old, change))
        };
        loop {
            let table = self.root.table();
            let mut locks = Locks::new(&self.root, &table);
            let outcome = locks.change(&key, &mut decided).await;
            let unlocked = locks.unlock().await;
            match outcome? {
                locked::Outcome::Done(old) => {
                    unlocked?;
                    return Ok(old);
                }
                // Another process has it grow, or has died while it did.
                locked::Outcome::Moved | locked::Outcome::Full => {
                    grow::grow(&self.root, &table, Self::LAYOUT).await?;
                }
            }
        }
    }

    /// The number of keys. Not atomic: a key that is changed meanwhile counts or not. Cost: reads
    /// the whole table.
    ///
    /// # Errors
    /// As [`RemoteSlice::read`](crate::RemoteSlice::read).
    pub fn count(&self) -> Op<'_, impl Future<Output = Result<u64>> + Send> {
        Op::new(self.lane(), async move {
            loop {
                let table = self.root.table();
                let mut count = 0;
                table
                    .each_entry(|_, _| {
                        count += 1;
                        Ok(())
                    })
                    .await?;
                if self.root.is_current(&table).await? {
                    return Ok(count);
                }
                self.root.refresh(Self::LAYOUT).await?;
            }
        })
    }
}

/// Why a map cannot hold a number of keys.
fn too_many(capacity: usize) -> PoolError {
    PoolError::Option {
        option: "capacity",
        value: capacity.to_string(),
        range: "1 to 2^40, and what 64 runs of extents of one node hold",
    }
}
