//! Values in remote memory, one behind the other, owned by a program.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use crate::access::{self, Read, Write};
use crate::allocation::Allocation;
use crate::error::{PoolError, Result};
use crate::export::{Access, Exported};
use crate::lane::Lane;
use crate::op::Op;
use crate::plain::Plain;
use crate::ptr::RemotePtr;
use crate::share;
use crate::shared::Shared;
use crate::table::Name;

/// Bytes of values that are encoded on the stack.
const SHORT_BYTES: usize = 256;

/// Values in remote memory. Dropping it frees them.
///
/// Access is not atomic: who reads while another writes may see parts of both, in units of 8
/// aligned bytes. Words of 64 bits have atomics.
pub struct RemoteSlice<T> {
    allocation: Arc<Allocation>,
    count: usize,
    name: OnceLock<Name>,
    holds: PhantomData<fn() -> T>,
}

impl<T> fmt::Debug for RemoteSlice<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteSlice")
            .field("count", &self.count)
            .field("bytes", &self.allocation.bytes())
            .field("spans", &self.allocation.spans())
            .finish_non_exhaustive()
    }
}

impl<T> Drop for RemoteSlice<T> {
    fn drop(&mut self) {
        if let Some(name) = self.name.get() {
            self.allocation.pool.table.remove(*name);
        }
        self.allocation.free();
    }
}

impl<T: Plain> RemoteSlice<T> {
    pub(crate) fn new(allocation: Arc<Allocation>, count: usize) -> Self {
        Self {
            allocation,
            count,
            name: OnceLock::new(),
            holds: PhantomData,
        }
    }

    /// The number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// True if it holds no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The nodes that hold it, in the order of its bytes.
    #[must_use]
    pub fn nodes(&self) -> Vec<usize> {
        let mut nodes: Vec<_> = self
            .allocation
            .spans()
            .iter()
            .map(|span| span.node)
            .collect();
        nodes.dedup();
        nodes
    }

    /// Why its contents are lost, if a node's session was renewed since.
    #[must_use]
    pub fn loss(&self) -> Option<PoolError> {
        self.allocation.loss()
    }

    pub(crate) fn allocation(&self) -> &Allocation {
        &self.allocation
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.allocation.pool
    }

    pub(crate) fn lane(&self) -> &Lane {
        self.shared().lane()
    }

    /// A pointer to the value at an index, which may be copied and does not keep the value. It is
    /// checked at each access, also against the owner's end.
    #[must_use]
    pub fn ptr(&self, index: usize) -> RemotePtr<T> {
        let name = *self
            .name
            .get_or_init(|| self.shared().table.put(&self.allocation));
        RemotePtr::new(self.shared().id, name, 0).index(index)
    }

    /// Frees the memory: no request may name it any more. Dropping does the same.
    pub fn free(self) {}

    /// The checked offset of `count` values from `index` on.
    pub(crate) fn at(&self, index: usize, count: usize) -> Result<u64> {
        let bytes = (T::BYTES as u64).saturating_mul(count as u64);
        let offset = (index as i128).saturating_mul(T::BYTES as i128);
        self.allocation.check(offset, bytes, 1)
    }

    pub(crate) fn at_to_write(&self, index: usize, count: usize) -> Result<u64> {
        let bytes = (T::BYTES as u64).saturating_mul(count as u64);
        let offset = (index as i128).saturating_mul(T::BYTES as i128);
        self.allocation.check_write(offset, bytes, 1)
    }

    /// A pointer that other processes can import, to share the memory. It lives until the last of
    /// them and this owner have dropped it; if this process dies, until the last of them has. Cost:
    /// a round trip the first time.
    ///
    /// # Errors
    /// [`PoolError::Embedded`] for memory of this process; [`PoolError::Gone`] if it was imported.
    pub fn export(
        &self,
        may_write: bool,
    ) -> Op<'_, impl Future<Output = Result<Exported<T>>> + Send> {
        let access = if may_write {
            Access::Write
        } else {
            Access::Read
        };
        Op::new(self.lane(), self.exported(access))
    }

    /// A pointer by which one other process becomes the owner. Until it has imported the pointer,
    /// the memory lives as long as this process's session. Cost: two round trips.
    ///
    /// # Errors
    /// As [`RemoteSlice::export`].
    pub fn transfer(self) -> Result<Exported<T>> {
        self.lane().block_on(async {
            let exported = self.exported(Access::Take).await?;
            share::send(&self.allocation, self.lane()).await?;
            Ok(exported)
        })
    }

    pub(crate) async fn exported(&self, access: Access) -> Result<Exported<T>> {
        let lane = self.lane();
        let mut parts = share::export(&self.allocation, lane, access).await?;
        (parts.mark, parts.count) = (T::MARK, self.count as u64);
        Ok(Exported::new(parts))
    }

    /// Reads a value. Cost: one round trip.
    ///
    /// # Errors
    /// [`PoolError::OutOfBounds`]; [`PoolError::Renewed`] and [`PoolError::Down`];
    /// [`PoolError::Plain`] if the bytes are no `T`.
    pub fn read(&self, index: usize) -> Op<'_, impl Future<Output = Result<T>> + Send> {
        Op::new(self.lane(), self.load_one(index))
    }

    pub(crate) async fn load_one(&self, index: usize) -> Result<T> {
        let offset = self.at(index, 1)?;
        read_value(&self.allocation, self.lane(), offset).await
    }

    /// Stores a value. Cost: one round trip.
    ///
    /// # Errors
    /// As [`RemoteSlice::read`].
    pub fn write<'a>(
        &'a self,
        index: usize,
        value: &'a T,
    ) -> Op<'a, impl Future<Output = Result<()>> + Send + 'a> {
        Op::new(self.lane(), async move {
            let offset = self.at_to_write(index, 1)?;
            write_value(&self.allocation, self.lane(), offset, value).await
        })
    }

    /// Reads `values.len()` values from `index` on. Cost: one round trip; long ones are split, and
    /// their parts are in flight together.
    ///
    /// # Errors
    /// As [`RemoteSlice::read`].
    pub fn read_range<'a>(
        &'a self,
        index: usize,
        values: &'a mut [T],
    ) -> Op<'a, impl Future<Output = Result<()>> + Send + 'a> {
        Op::new(self.lane(), self.load(index, values))
    }

    pub(crate) async fn load(&self, index: usize, values: &mut [T]) -> Result<()> {
        let offset = self.at(index, values.len())?;
        let mut bytes = vec![0; values.len() * T::BYTES];
        read_bytes(&self.allocation, self.lane(), offset, &mut bytes).await?;
        Ok(T::load_all(&bytes, values)?)
    }

    /// Copies values as bytes: they need not be valid.
    pub(crate) async fn copy_to(&self, other: &Self, index: usize, count: usize) -> Result<()> {
        let offset = self.at(index, count)?;
        let mut bytes = vec![0; count * T::BYTES];
        read_bytes(&self.allocation, self.lane(), offset, &mut bytes).await?;
        write_bytes(&other.allocation, self.lane(), offset, &bytes).await
    }

    /// Reads all values. Cost: as [`RemoteSlice::read_range`].
    ///
    /// # Errors
    /// As [`RemoteSlice::read`].
    pub fn to_vec(&self) -> Op<'_, impl Future<Output = Result<Vec<T>>> + Send> {
        Op::new(self.lane(), async move {
            let offset = self.at(0, self.count)?;
            let mut bytes = vec![0; self.count * T::BYTES];
            let read = Read {
                allocation: &self.allocation,
                offset,
                into: &mut bytes,
            };
            access::read(self.shared(), self.lane(), read).await?;
            let value = |index: usize| Ok(T::load(&bytes[index * T::BYTES..][..T::BYTES])?);
            (0..self.count).map(value).collect()
        })
    }

    /// Stores values from `index` on. Cost: as [`RemoteSlice::read_range`].
    ///
    /// # Errors
    /// As [`RemoteSlice::read`].
    pub fn write_range<'a>(
        &'a self,
        index: usize,
        values: &'a [T],
    ) -> Op<'a, impl Future<Output = Result<()>> + Send + 'a> {
        Op::new(self.lane(), self.store(index, values))
    }

    pub(crate) async fn store(&self, index: usize, values: &[T]) -> Result<()> {
        let offset = self.at_to_write(index, values.len())?;
        let mut bytes = vec![0; values.len() * T::BYTES];
        T::store_all(values, &mut bytes);
        write_bytes(&self.allocation, self.lane(), offset, &bytes).await
    }

    /// Reads the values at many indexes, all in flight together. Cost: one round trip.
    ///
    /// # Errors
    /// As [`RemoteSlice::read`].
    pub fn read_many<'a>(
        &'a self,
        indexes: &'a [usize],
    ) -> Op<'a, impl Future<Output = Result<Vec<T>>> + Send + 'a> {
        Op::new(self.lane(), async move {
            let mut bytes = vec![0; indexes.len() * T::BYTES];
            let mut reads = Vec::with_capacity(indexes.len());
            for (&index, into) in indexes.iter().zip(bytes.chunks_mut(T::BYTES.max(1))) {
                let offset = self.at(index, 1)?;
                reads.push(Read {
                    allocation: &self.allocation,
                    offset,
                    into,
                });
            }
            let unfinished = self.allocation.begin();
            let done = access::read_all(self.shared(), self.lane(), &mut reads).await;
            unfinished.finish(&done);
            done?;
            let value = |place: usize| Ok(T::load(&bytes[place * T::BYTES..][..T::BYTES])?);
            (0..indexes.len()).map(value).collect()
        })
    }

    /// Stores values at many indexes, all in flight together; those on one node in order. Cost: one
    /// round trip.
    ///
    /// # Errors
    /// As [`RemoteSlice::read`]; [`PoolError::Lengths`] if there are not as many values as indexes.
    pub fn write_many<'a>(
        &'a self,
        indexes: &'a [usize],
        values: &'a [T],
    ) -> Op<'a, impl Future<Output = Result<()>> + Send + 'a> {
        Op::new(self.lane(), async move {
            let (places, count) = (indexes.len(), values.len());
            if places != count {
                let values = count;
                return Err(PoolError::Lengths { places, values });
            }
            let mut bytes = vec![0; count * T::BYTES];
            T::store_all(values, &mut bytes);
            let mut writes = Vec::with_capacity(places);
            for (&index, from) in indexes.iter().zip(bytes.chunks(T::BYTES.max(1))) {
                let offset = self.at_to_write(index, 1)?;
                writes.push(Write {
                    allocation: &self.allocation,
                    offset,
                    from,
                });
            }
            let unfinished = self.allocation.begin();
            let done = access::write_all(self.shared(), self.lane(), &writes).await;
            unfinished.finish(&done);
            done
        })
    }
}

/// Atomics, on 64-bit words. They are atomic among all clients of the node.
impl RemoteSlice<u64> {
    /// Stores `desired` if the word equals `expected`. Returns the old value. Cost: one round trip.
    ///
    /// # Errors
    /// As [`RemoteSlice::read`]; [`PoolError::UnknownOutcome`] if the connection broke.
    pub fn compare_and_swap(
        &self,
        index: usize,
        expected: u64,
        desired: u64,
    ) -> Op<'_, impl Future<Output = Result<u64>> + Send> {
        Op::new(self.lane(), async move {
            let offset = self.at_to_write(index, 1)?;
            let at = (&*self.allocation, offset);
            access::compare_and_swap(self.shared(), self.lane(), at, (expected, desired)).await
        })
    }

    /// Adds to a word, wrapping. Returns the old value. Cost: one round trip.
    ///
    /// # Errors
    /// As [`RemoteSlice::compare_and_swap`].
    pub fn fetch_add(
        &self,
        index: usize,
        addend: u64,
    ) -> Op<'_, impl Future<Output = Result<u64>> + Send> {
        Op::new(self.lane(), async move {
            let offset = self.at_to_write(index, 1)?;
            let at = (&*self.allocation, offset);
            access::fetch_add(self.shared(), self.lane(), at, addend).await
        })
    }
}

/// Reads a checked value.
pub(crate) async fn read_value<T: Plain>(
    allocation: &Allocation,
    lane: &Lane,
    offset: u64,
) -> Result<T> {
    if T::BYTES <= SHORT_BYTES {
        let mut bytes = [0; SHORT_BYTES];
        let into = &mut bytes[..T::BYTES];
        read_bytes(allocation, lane, offset, into).await?;
        return Ok(T::load(&bytes[..T::BYTES])?);
    }
    let mut bytes = vec![0; T::BYTES];
    read_bytes(allocation, lane, offset, &mut bytes).await?;
    Ok(T::load(&bytes)?)
}

/// Reads checked bytes.
pub(crate) async fn read_bytes(
    allocation: &Allocation,
    lane: &Lane,
    offset: u64,
    into: &mut [u8],
) -> Result<()> {
    let read = Read {
        allocation,
        offset,
        into,
    };
    access::read(&allocation.pool, lane, read).await
}

/// Stores a checked value.
pub(crate) async fn write_value<T: Plain>(
    allocation: &Allocation,
    lane: &Lane,
    offset: u64,
    value: &T,
) -> Result<()> {
    let mut short = [0; SHORT_BYTES];
    let mut long = Vec::new();
    let from = if T::BYTES <= SHORT_BYTES {
        &mut short[..T::BYTES]
    } else {
        long.resize(T::BYTES, 0);
        &mut long[..]
    };
    value.store(from);
    write_bytes(allocation, lane, offset, from).await
}

/// Stores checked bytes.
pub(crate) async fn write_bytes(
    allocation: &Allocation,
    lane: &Lane,
    offset: u64,
    from: &[u8],
) -> Result<()> {
    let write = Write {
        allocation,
        offset,
        from,
    };
    access::write(&allocation.pool, lane, write).await
}
