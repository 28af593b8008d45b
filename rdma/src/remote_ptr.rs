//! A typed pointer into far memory: plain data only, within the bounds of its allocation.
//!
//! Holds a queue pair, a place, and the bounds of its allocation. It owns nothing, so it may be
//! copied, and does not notice when the allocation is freed. Bounds, alignment and length are
//! checked before anything is posted.
//!
//! - I1: the bounds never change, whether by an offset, an index or a cast.
//! - I2: a pointer may lie anywhere, so that arithmetic can pass the end; only accesses are
//!   checked.
//!
//! ```compile_fail,E0277
//! # use farcore_rdma::{RemoteAllocation, RemotePtr};
//! # fn far(allocation: &RemoteAllocation) {
//! let text = RemotePtr::<&str>::new(allocation); // an address of this process is meaningless in
//! far memory
//! # }
//! ```
//!
//! ```compile_fail,E0277
//! # use farcore_rdma::{RemoteAllocation, RemotePtr};
//! # fn far(allocation: &RemoteAllocation) {
//! let flag = RemotePtr::<bool>::new(allocation); // not every byte in far memory is a bool
//! # }
//! ```
//!
//! Plain data is fine:
//!
//! ```
//! # use farcore_rdma::{RemoteAllocation, RemotePtr};
//! # fn far(allocation: &RemoteAllocation) {
//! let numbers = RemotePtr::<[u32; 4]>::new(allocation);
//! # }
//! ```

use std::fmt;
use std::marker::PhantomData;

use bytemuck::Pod;

use crate::fabric::Endpoint;
use crate::initiator::{Initiator, InitiatorError, ReadInto};
use crate::remote_allocator::RemoteAllocation;
use crate::work::{RemoteKey, RemoteSlice};

/// Why an access to far memory failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RemotePtrError {
    /// The access leaves the allocation.
    #[error("{bytes} bytes at {offset} exceed an allocation of {limit} bytes")]
    OutOfBounds {
        /// The access's offset from the allocation's start.
        offset: i128,
        /// The access's length, in bytes.
        bytes: u64,
        /// The allocation's length, in bytes.
        limit: u64,
    },
    /// The place is not aligned for the type.
    #[error("byte {offset} of the region is not aligned to {align}")]
    Unaligned {
        /// The place's offset from the region's start.
        offset: u64,
        /// The type's alignment.
        align: u64,
    },
    /// The numbers of pointers and values differ.
    #[error("{pointers} pointers and {values} values: the numbers must be equal")]
    Lengths {
        /// The number of pointers.
        pointers: usize,
        /// The number of values.
        values: usize,
    },
    /// The pointers of one batch use different queue pairs.
    #[error(
        "pointers of queue pairs {first} and {other} in one batch: read each queue pair's pointers separately"
    )]
    Queues {
        /// The first pointer's queue pair.
        first: usize,
        /// Another pointer's.
        other: usize,
    },
    /// The fabric failed.
    #[error(transparent)]
    Fabric(#[from] InitiatorError),
}

/// Points to a `T` in far memory.
pub struct RemotePtr<T> {
    queue: usize,
    key: RemoteKey,
    /// The allocation's first byte, in its region.
    base: u64,
    /// The allocation's length, in bytes.
    limit: u64,
    /// The offset from the allocation's start; 128 bits hold every sum.
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
            .field("queue", &self.queue)
            .field("key", &self.key)
            .field("base", &self.base)
            .field("limit", &self.limit)
            .field("offset", &self.offset)
            .finish()
    }
}

impl<T> PartialEq for RemotePtr<T> {
    fn eq(&self, other: &Self) -> bool {
        let of = |of: &Self| (of.queue, of.key, of.base, of.limit, of.offset);
        of(self) == of(other)
    }
}

impl<T> Eq for RemotePtr<T> {}

impl<T: Pod> RemotePtr<T> {
    const BYTES: usize = size_of::<T>();

    /// Points to the start of an allocation.
    #[must_use]
    pub fn new(allocation: &RemoteAllocation) -> Self {
        Self::at(allocation.queue(), allocation.slice(), allocation.bytes())
    }

    /// Points to the start of a piece of far memory that the caller obtained otherwise.
    #[must_use]
    pub fn at(queue: usize, slice: RemoteSlice, bytes: u64) -> Self {
        Self {
            queue,
            key: slice.key,
            base: slice.offset,
            limit: bytes,
            offset: 0,
            points_to: PhantomData,
        }
    }

    /// This place as another type, with the same bounds.
    #[must_use]
    pub fn cast<U: Pod>(self) -> RemotePtr<U> {
        RemotePtr {
            queue: self.queue,
            key: self.key,
            base: self.base,
            limit: self.limit,
            offset: self.offset,
            points_to: PhantomData,
        }
    }

    /// The pointer moved by some bytes, forwards or backwards.
    #[must_use]
    pub fn byte_offset(self, bytes: i64) -> Self {
        Self {
            offset: self.offset.saturating_add(i128::from(bytes)),
            ..self
        }
    }

    /// The pointer moved by some values, forwards or backwards.
    #[must_use]
    pub fn offset(self, count: i64) -> Self {
        // A type is far shorter than 2^63 bytes, so the product fits.
        let bytes = i128::from(count) * Self::BYTES as i128;
        Self {
            offset: self.offset.saturating_add(bytes),
            ..self
        }
    }

    /// The pointer to the value at an index, as in an array that begins here.
    #[must_use]
    pub fn index(self, index: usize) -> Self {
        let bytes = (index as i128).saturating_mul(Self::BYTES as i128);
        Self {
            offset: self.offset.saturating_add(bytes),
            ..self
        }
    }

    /// The number of whole values from here to the end of the allocation.
    #[must_use]
    pub fn remaining(self) -> usize {
        let bytes = (i128::from(self.limit) - self.offset).max(0);
        match Self::BYTES {
            0 => usize::MAX,
            size => usize::try_from(bytes / size as i128).unwrap_or(usize::MAX),
        }
    }

    /// The queue pair of its node.
    #[must_use]
    pub fn queue(self) -> usize {
        self.queue
    }

    /// Checks an access to `count` values.
    fn slice(self, count: usize, align: usize) -> Result<RemoteSlice, RemotePtrError> {
        let bytes = (count as u64).saturating_mul(Self::BYTES as u64);
        let out_of_bounds = RemotePtrError::OutOfBounds {
            offset: self.offset,
            bytes,
            limit: self.limit,
        };
        let start = u64::try_from(self.offset).map_err(|_| out_of_bounds)?;
        if start.checked_add(bytes).is_none_or(|end| end > self.limit) {
            return Err(out_of_bounds);
        }
        let offset = self.base.checked_add(start).ok_or(out_of_bounds)?;
        let align = align as u64;
        if !offset.is_multiple_of(align) {
            return Err(RemotePtrError::Unaligned { offset, align });
        }
        Ok(RemoteSlice {
            key: self.key,
            offset,
        })
    }

    fn aligned_slice(self, count: usize) -> Result<RemoteSlice, RemotePtrError> {
        self.slice(count, align_of::<T>())
    }

    /// Reads the value. Cost: one round trip.
    ///
    /// # Errors
    /// [`RemotePtrError`].
    pub async fn read<E: Endpoint>(self, initiator: &Initiator<E>) -> Result<T, RemotePtrError> {
        let mut value = T::zeroed();
        self.read_slice(initiator, std::slice::from_mut(&mut value))
            .await?;
        Ok(value)
    }

    /// Reads `values.len()` values from here. Cost: one round trip. Not atomic: parts may be older.
    ///
    /// # Errors
    /// [`RemotePtrError`]; [`InitiatorError::TooLong`] if it exceeds one transfer.
    pub async fn read_slice<E: Endpoint>(
        self,
        initiator: &Initiator<E>,
        values: &mut [T],
    ) -> Result<(), RemotePtrError> {
        let slice = self.aligned_slice(values.len())?;
        let into = bytemuck::cast_slice_mut(values);
        if into.is_empty() {
            return Ok(());
        }
        Ok(initiator.read(self.queue, slice, into).await?)
    }

    /// Reads the values of many pointers of one queue pair. Cost: one doorbell and one round trip,
    /// if the queue has room for all.
    ///
    /// # Errors
    /// [`RemotePtrError`]. Nothing was posted, unless it is [`RemotePtrError::Fabric`].
    pub async fn read_many<E: Endpoint>(
        initiator: &Initiator<E>,
        pointers: &[Self],
        values: &mut [T],
    ) -> Result<(), RemotePtrError> {
        let Some(&Self { queue: first, .. }) = pointers.first() else {
            return Self::same_length(pointers, values);
        };
        Self::same_length(pointers, values)?;
        if let Some(other) = pointers
            .iter()
            .map(|pointer| pointer.queue)
            .find(|&queue| queue != first)
        {
            return Err(RemotePtrError::Queues { first, other });
        }
        let mut reads = Vec::with_capacity(pointers.len());
        for (pointer, value) in pointers.iter().zip(values) {
            reads.push(ReadInto {
                remote: pointer.aligned_slice(1)?,
                into: bytemuck::bytes_of_mut(value),
            });
        }
        if Self::BYTES == 0 {
            return Ok(());
        }
        Ok(initiator.read_many(first, &mut reads).await?)
    }

    fn same_length(pointers: &[Self], values: &[T]) -> Result<(), RemotePtrError> {
        let (pointers, values) = (pointers.len(), values.len());
        if pointers == values {
            return Ok(());
        }
        Err(RemotePtrError::Lengths { pointers, values })
    }

    /// Stores a value. Cost: one round trip.
    ///
    /// # Errors
    /// [`RemotePtrError`].
    pub async fn write<E: Endpoint>(
        self,
        initiator: &Initiator<E>,
        value: &T,
    ) -> Result<(), RemotePtrError> {
        self.write_slice(initiator, std::slice::from_ref(value))
            .await
    }

    /// Stores values from here. Cost: one round trip. Not atomic: other clients may see parts of
    /// it.
    ///
    /// # Errors
    /// [`RemotePtrError`], as for [`RemotePtr::read_slice`].
    pub async fn write_slice<E: Endpoint>(
        self,
        initiator: &Initiator<E>,
        values: &[T],
    ) -> Result<(), RemotePtrError> {
        let slice = self.aligned_slice(values.len())?;
        let from = bytemuck::cast_slice(values);
        if from.is_empty() {
            return Ok(());
        }
        Ok(initiator.write(self.queue, slice, from).await?)
    }
}

/// Atomics, on 64-bit words.
impl RemotePtr<u64> {
    /// Stores `desired` if the word equals `expected`. Returns the old value. Cost: one round trip.
    ///
    /// # Errors
    /// [`RemotePtrError`].
    pub async fn compare_and_swap<E: Endpoint>(
        self,
        initiator: &Initiator<E>,
        expected: u64,
        desired: u64,
    ) -> Result<u64, RemotePtrError> {
        // 8 everywhere, whatever the host's alignment of u64 is.
        let slice = self.slice(1, 8)?;
        Ok(initiator
            .compare_and_swap(self.queue, slice, expected, desired)
            .await?)
    }

    /// Adds to the word, wrapping. Returns the old value. Cost: one round trip.
    ///
    /// # Errors
    /// [`RemotePtrError`].
    pub async fn fetch_add<E: Endpoint>(
        self,
        initiator: &Initiator<E>,
        addend: u64,
    ) -> Result<u64, RemotePtrError> {
        let slice = self.slice(1, 8)?;
        Ok(initiator.fetch_add(self.queue, slice, addend).await?)
    }
}

#[cfg(test)]
mod tests;
