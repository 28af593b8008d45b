//! A counter.

use std::future::Future;

use super::block::Block;
use crate::error::Result;
use crate::export::Exported;
use crate::op::Op;
use crate::plain::mark;
use crate::pool::RemotePool;

const MARK: u64 = mark("farcore counter", &[]);
const VALUE: usize = 1;

/// A counter that processes share: each addition is atomic.
///
/// ```
/// # let pool = farcore_pool::RemotePool::embedded(1 << 20)?;
/// use farcore_pool::structures::RemoteCounter;
///
/// let visits = RemoteCounter::create(&pool, 0).wait()?;
/// assert_eq!(visits.add(5).wait()?, 0);
/// assert_eq!(visits.get().wait()?, 5);
/// # Ok::<(), farcore_pool::PoolError>(())
/// ```
#[derive(Debug)]
pub struct RemoteCounter(Block);

impl RemoteCounter {
    /// Creates a counter.
    ///
    /// # Errors
    /// As [`RemotePool::alloc`].
    pub fn create(
        pool: &RemotePool,
        value: u64,
    ) -> Op<'_, impl Future<Output = Result<Self>> + Send> {
        Op::new(pool.lane(), async move {
            Ok(Self(Block::create(pool, &[MARK, value], 2).await?))
        })
    }

    /// Opens a counter of another process.
    ///
    /// # Errors
    /// As [`RemotePool::import`]; [`PoolError::WrongType`](crate::PoolError::WrongType).
    pub fn open<'a>(
        pool: &'a RemotePool,
        exported: &'a Exported<u64>,
    ) -> Op<'a, impl Future<Output = Result<Self>> + Send + 'a> {
        Op::new(pool.lane(), async move {
            Ok(Self(Block::open(pool, exported, MARK, 2).await?))
        })
    }

    /// A pointer by which other processes open it.
    ///
    /// # Errors
    /// As [`RemoteSlice::export`](crate::RemoteSlice::export).
    pub fn export(&self) -> Op<'_, impl Future<Output = Result<Exported<u64>>> + Send> {
        Op::new(self.0.lane(), self.0.export())
    }

    /// Adds, wrapping. Returns the value before. Cost: one round trip.
    ///
    /// # Errors
    /// As [`RemoteSlice::fetch_add`](crate::RemoteSlice::fetch_add).
    pub fn add(&self, addend: u64) -> Op<'_, impl Future<Output = Result<u64>> + Send> {
        Op::new(self.0.lane(), self.0.add(VALUE, addend))
    }

    /// The value. Cost: one round trip.
    ///
    /// # Errors
    /// As [`RemoteSlice::read`](crate::RemoteSlice::read).
    pub fn get(&self) -> Op<'_, impl Future<Output = Result<u64>> + Send> {
        Op::new(self.0.lane(), self.0.read_one(VALUE))
    }
}
