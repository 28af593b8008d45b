//! Remote memory as bytes, for callers whose types this crate does not know, as programs in C.
//!
//! - I1: offsets are checked as indexes are: against the bounds, and those of words against their
//!   alignment too.
//! - I2: bytes are read into the caller's memory and written from it without a copy of this crate.

use std::future::Future;
use std::sync::Arc;

use crate::access::{self, Read, Write};
use crate::allocate::allocate;
use crate::allocation::{Allocation, Holding};
use crate::error::{PoolError, Result};
use crate::op::Op;
use crate::pool::RemotePool;
use crate::slice::RemoteSlice;

/// Bytes to be read.
#[derive(Debug)]
pub struct BytesRead<'a> {
    /// Where they are.
    pub slice: &'a RemoteSlice<u8>,
    /// The first one.
    pub offset: i64,
    /// The memory that receives them, as long as they are.
    pub into: &'a mut [u8],
}

/// Bytes to be stored.
#[derive(Clone, Copy, Debug)]
pub struct BytesWrite<'a> {
    /// Where they go.
    pub slice: &'a RemoteSlice<u8>,
    /// The first one.
    pub offset: i64,
    /// What they become.
    pub from: &'a [u8],
}

impl RemotePool {
    /// Allocates bytes, the first of them at a multiple of `align`; their contents are unspecified.
    /// Cost: as [`RemotePool::alloc`].
    ///
    /// # Errors
    /// As [`RemotePool::alloc`]; [`PoolError::Option`] if the alignment is no power of two.
    pub fn alloc_bytes(
        &self,
        count: usize,
        align: usize,
    ) -> Op<'_, impl Future<Output = Result<RemoteSlice<u8>>> + Send> {
        Op::new(self.lane(), async move {
            if !align.is_power_of_two() {
                return Err(PoolError::Option {
                    option: "align",
                    value: align.to_string(),
                    range: "a power of two",
                });
            }
            let bytes = count as u64;
            if i64::try_from(bytes).is_err() {
                return Err(PoolError::TooLong {
                    count: bytes,
                    bytes: 1,
                });
            }
            let handle = self.handle();
            let spans = allocate(handle, bytes, align as u64, &self.placement).await?;
            let allocation = Allocation::new(Arc::clone(handle), spans, bytes, Holding::Owned);
            Ok(RemoteSlice::new(Arc::new(allocation), count))
        })
    }

    /// Reads bytes of any number of slices, all in flight together. Cost: one round trip; long ones
    /// are split.
    ///
    /// # Errors
    /// As [`RemoteSlice::read`]; [`PoolError::Foreign`] if a slice is another pool's.
    pub fn read_bytes<'a>(
        &'a self,
        reads: &'a mut [BytesRead<'_>],
    ) -> Op<'a, impl Future<Output = Result<()>> + Send> {
        Op::new(self.lane(), async move {
            let mut checked = Vec::with_capacity(reads.len());
            for read in reads.iter_mut() {
                let allocation = self.own(read.slice)?;
                let bytes = read.into.len() as u64;
                let offset = allocation.check(read.offset.into(), bytes, 1)?;
                checked.push(Read {
                    allocation,
                    offset,
                    into: &mut *read.into,
                });
            }
            if let [_] = &checked[..]
                && let Some(only) = checked.pop()
            {
                return access::read(self.handle(), self.lane(), only).await;
            }
            let begin = |read: &Read<'a, '_>| read.allocation.begin();
            let unfinished: Vec<_> = checked.iter().map(begin).collect();
            let done = access::read_all(self.handle(), self.lane(), &mut checked).await;
            unfinished.into_iter().for_each(|one| one.finish(&done));
            done
        })
    }

    /// Stores bytes in any number of slices, all in flight together; those on one node in order.
    /// Cost: as [`RemotePool::read_bytes`].
    ///
    /// # Errors
    /// As [`RemotePool::read_bytes`].
    pub fn write_bytes<'a>(
        &'a self,
        writes: &'a [BytesWrite<'_>],
    ) -> Op<'a, impl Future<Output = Result<()>> + Send> {
        Op::new(self.lane(), async move {
            let mut checked = Vec::with_capacity(writes.len());
            for write in writes {
                let allocation = self.own(write.slice)?;
                let bytes = write.from.len() as u64;
                let offset = allocation.check_write(write.offset.into(), bytes, 1)?;
                checked.push(Write {
                    allocation,
                    offset,
                    from: write.from,
                });
            }
            if let [_] = &checked[..]
                && let Some(only) = checked.pop()
            {
                return access::write(self.handle(), self.lane(), only).await;
            }
            let unfinished: Vec<_> = checked.iter().map(|one| one.allocation.begin()).collect();
            let done = access::write_all(self.handle(), self.lane(), &checked).await;
            unfinished.into_iter().for_each(|one| one.finish(&done));
            done
        })
    }

    /// The allocation of a slice, if it is this pool's.
    fn own<'a>(&self, slice: &'a RemoteSlice<u8>) -> Result<&'a Allocation> {
        let (other, this) = (slice.shared().id, self.handle().id);
        if other != this {
            return Err(PoolError::Foreign { other, this });
        }
        Ok(slice.allocation())
    }
}

/// Atomics on the 64-bit word at an offset, which must be a multiple of 8.
impl RemoteSlice<u8> {
    /// Stores `desired` if the word equals `expected`. Returns the old value. Cost: one round trip.
    ///
    /// # Errors
    /// As [`RemoteSlice::read`]; [`PoolError::Unaligned`]; [`PoolError::UnknownOutcome`] if the
    /// connection broke.
    pub fn compare_and_swap_at(
        &self,
        offset: i64,
        expected: u64,
        desired: u64,
    ) -> Op<'_, impl Future<Output = Result<u64>> + Send> {
        Op::new(self.lane(), async move {
            let offset = self.allocation().check_write(offset.into(), 8, 8)?;
            let at = (self.allocation(), offset);
            access::compare_and_swap(self.shared(), self.lane(), at, (expected, desired)).await
        })
    }

    /// Adds to the word, wrapping. Returns the old value. Cost: one round trip.
    ///
    /// # Errors
    /// As [`RemoteSlice::compare_and_swap_at`].
    pub fn fetch_add_at(
        &self,
        offset: i64,
        addend: u64,
    ) -> Op<'_, impl Future<Output = Result<u64>> + Send> {
        Op::new(self.lane(), async move {
            let offset = self.allocation().check_write(offset.into(), 8, 8)?;
            let at = (self.allocation(), offset);
            access::fetch_add(self.shared(), self.lane(), at, addend).await
        })
    }
}
