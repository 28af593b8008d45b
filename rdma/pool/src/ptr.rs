//! A pointer to a value in remote memory: it may be copied, and owns nothing.
//!
//! - I1: the bounds are those of the allocation, whether a pointer was moved, indexed or cast. Only
//!   accesses are checked, so arithmetic may pass the end.
//! - I2: an access to an allocation that was freed is refused, even if its memory was given out
//!   again.

use std::fmt;
use std::future::Future;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::sync::Arc;

use crate::access;
use crate::allocation::Allocation;
use crate::error::{PoolError, Result};
use crate::op::Op;
use crate::plain::Plain;
use crate::pool::RemotePool;
use crate::slice::{read_value, write_value};
use crate::table::Name;

/// Points to a `T` in remote memory. [`RemoteSlice::ptr`](crate::RemoteSlice::ptr) makes one.
///
/// ```
/// # let pool = farcore_pool::RemotePool::embedded(1 << 20)?;
/// let owner = pool.alloc_from(&[1_u32, 2, 3]).wait()?;
/// let second = owner.ptr(1);
/// assert_eq!(second.offset(1).read(&pool).wait()?, 3);
/// assert_eq!(second.cast::<u16>().read(&pool).wait()?, 2);
/// assert!(second.offset(2).read(&pool).wait().is_err());
/// drop(owner);
/// assert_eq!(second.read(&pool).wait(), Err(farcore_pool::PoolError::Freed));
/// # Ok::<(), farcore_pool::PoolError>(())
/// ```
pub struct RemotePtr<T> {
    pool: u64,
    name: Name,
    /// From the allocation's start, in bytes; 128 bits hold every sum.
    offset: i128,
    points_to: PhantomData<fn() -> T>,
}

impl<T> Clone for RemotePtr<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for RemotePtr<T> {}

impl<T> fmt::Debug for RemotePtr<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemotePtr")
            .field("pool", &self.pool)
            .field("allocation", &self.name.slot)
            .field("generation", &self.name.generation)
            .field("offset", &self.offset)
            .finish()
    }
}

impl<T> PartialEq for RemotePtr<T> {
    fn eq(&self, other: &Self) -> bool {
        let of = |one: &Self| (one.pool, one.name, one.offset);
        of(self) == of(other)
    }
}

impl<T> Eq for RemotePtr<T> {}

impl<T> Hash for RemotePtr<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.pool, self.name, self.offset).hash(state);
    }
}

impl<T: Plain> RemotePtr<T> {
    pub(crate) fn new(pool: u64, name: Name, offset: i128) -> Self {
        Self {
            pool,
            name,
            offset,
            points_to: PhantomData,
        }
    }

    /// This place as another type.
    #[must_use]
    pub fn cast<U: Plain>(self) -> RemotePtr<U> {
        RemotePtr::new(self.pool, self.name, self.offset)
    }

    /// The pointer moved by some bytes, forwards or backwards.
    #[must_use]
    pub fn byte_offset(self, bytes: i64) -> Self {
        let offset = self.offset.saturating_add(i128::from(bytes));
        Self { offset, ..self }
    }

    /// The pointer moved by some values, forwards or backwards.
    #[must_use]
    pub fn offset(self, count: i64) -> Self {
        let bytes = i128::from(count).saturating_mul(T::BYTES as i128);
        let offset = self.offset.saturating_add(bytes);
        Self { offset, ..self }
    }

    /// The pointer to the value at an index, as in an array that begins here.
    #[must_use]
    pub fn index(self, index: usize) -> Self {
        let bytes = (index as i128).saturating_mul(T::BYTES as i128);
        let offset = self.offset.saturating_add(bytes);
        Self { offset, ..self }
    }

    fn allocation(self, pool: &RemotePool) -> Result<Arc<Allocation>> {
        let (other, this) = (self.pool, pool.handle().id);
        if other != this {
            return Err(PoolError::Foreign { other, this });
        }
        pool.handle().table.get(self.name)
    }

    /// Reads the value. Cost: one round trip.
    ///
    /// # Errors
    /// As [`RemoteSlice::read`](crate::RemoteSlice::read); [`PoolError::Freed`],
    /// [`PoolError::Foreign`] and [`PoolError::Unaligned`].
    pub fn read(self, pool: &RemotePool) -> Op<'_, impl Future<Output = Result<T>> + Send> {
        Op::new(pool.lane(), async move {
            let allocation = self.allocation(pool)?;
            let offset = allocation.check(self.offset, T::BYTES as u64, T::ALIGN as u64)?;
            read_value(&allocation, pool.lane(), offset).await
        })
    }

    /// Stores a value. Cost: one round trip.
    ///
    /// # Errors
    /// As [`RemotePtr::read`].
    pub fn write<'a>(
        self,
        pool: &'a RemotePool,
        value: &'a T,
    ) -> Op<'a, impl Future<Output = Result<()>> + Send + 'a> {
        Op::new(pool.lane(), async move {
            let allocation = self.allocation(pool)?;
            let offset = allocation.check_write(self.offset, T::BYTES as u64, T::ALIGN as u64)?;
            write_value(&allocation, pool.lane(), offset, value).await
        })
    }
}

/// Atomics: see [`RemoteSlice::compare_and_swap`](crate::RemoteSlice::compare_and_swap).
impl RemotePtr<u64> {
    /// Stores `desired` if the word equals `expected`. Returns the old value. Cost: one round trip.
    ///
    /// # Errors
    /// As [`RemotePtr::read`]; [`PoolError::UnknownOutcome`] if the connection broke.
    pub fn compare_and_swap(
        self,
        pool: &RemotePool,
        expected: u64,
        desired: u64,
    ) -> Op<'_, impl Future<Output = Result<u64>> + Send> {
        Op::new(pool.lane(), async move {
            let allocation = self.allocation(pool)?;
            let offset = allocation.check_write(self.offset, 8, 8)?;
            let at = (&*allocation, offset);
            access::compare_and_swap(pool.handle(), pool.lane(), at, (expected, desired)).await
        })
    }

    /// Adds to the word, wrapping. Returns the old value. Cost: one round trip.
    ///
    /// # Errors
    /// As [`RemotePtr::compare_and_swap`].
    pub fn fetch_add(
        self,
        pool: &RemotePool,
        addend: u64,
    ) -> Op<'_, impl Future<Output = Result<u64>> + Send> {
        Op::new(pool.lane(), async move {
            let allocation = self.allocation(pool)?;
            let offset = allocation.check_write(self.offset, 8, 8)?;
            let at = (&*allocation, offset);
            access::fetch_add(pool.handle(), pool.lane(), at, addend).await
        })
    }
}
