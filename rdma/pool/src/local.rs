//! Values on a node that this very program hosts: accessed without requests.

use farcore_rdma::OwnerId;
use farcore_rdma::node::{NodeHandle, NotPermitted};

use crate::error::{PoolError, Result};
use crate::plain::Plain;
use crate::slice::RemoteSlice;

/// Bytes of values that are encoded on the stack.
const SHORT_BYTES: usize = 256;

/// A slice on a node that this program hosts. It accesses the node's memory itself, while other
/// programs access it by requests; not atomic, as they.
#[derive(Clone, Copy, Debug)]
pub struct LocalSlice<'a, T> {
    slice: &'a RemoteSlice<T>,
    node: &'a NodeHandle,
    /// The session that owns it; `None` for a slice of no bytes.
    owner: Option<OwnerId>,
}

impl<T: Plain> RemoteSlice<T> {
    /// The slice as the program accesses it that hosts its node. Only its owner may.
    ///
    /// # Errors
    /// [`PoolError::NotLocal`] if it does not lie on that node as a whole; [`PoolError::Renewed`]
    /// or [`PoolError::Down`] if its session is over.
    pub fn local<'a>(&'a self, node: &'a NodeHandle) -> Result<LocalSlice<'a, T>> {
        if let Some(loss) = self.loss() {
            return Err(loss);
        }
        let mut owner = None;
        for place in self.nodes() {
            let home = &self.shared().nodes[place];
            let facts = home.facts();
            let facts = facts.filter(|facts| facts.incarnation() == node.incarnation());
            let other = || PoolError::NotLocal { node: home.name() };
            owner = Some(facts.ok_or_else(other)?.owner());
        }
        Ok(LocalSlice {
            slice: self,
            node,
            owner,
        })
    }
}

impl<T: Plain> LocalSlice<'_, T> {
    /// Passes the bytes of some values, encoded, to `act`, by way of the stack if they are few.
    fn encoded<R>(count: usize, act: impl FnOnce(&mut [u8]) -> R) -> R {
        let bytes = count * T::BYTES;
        if bytes <= SHORT_BYTES {
            return act(&mut [0; SHORT_BYTES][..bytes]);
        }
        act(&mut vec![0; bytes])
    }

    /// The parts of an allocation's bytes, each with its place in them.
    fn each(
        &self,
        start: u64,
        bytes: usize,
        mut act: impl FnMut(farcore_rdma::RemoteSlice, std::ops::Range<usize>) -> Result<()>,
    ) -> Result<()> {
        let allocation = self.slice.allocation();
        if let Some(loss) = allocation.loss() {
            return Err(loss);
        }
        let mut at = 0;
        for part in allocation.parts(start, bytes as u64) {
            act(part.slice, at..at + part.bytes)?;
            at += part.bytes;
        }
        Ok(())
    }

    /// The session that accesses it.
    fn owner(&self) -> Result<OwnerId> {
        self.owner.ok_or(PoolError::Freed)
    }

    fn refused(&self, reason: NotPermitted) -> PoolError {
        let node = self.slice.nodes().first().copied().unwrap_or(0);
        PoolError::Refused {
            node: self.slice.shared().nodes[node].name(),
            reason: reason.to_string(),
        }
    }

    /// Reads the value with an index.
    ///
    /// # Errors
    /// As [`LocalSlice::read_range`].
    pub fn read(&self, index: usize) -> Result<T> {
        let start = self.slice.at(index, 1)?;
        self.load(start, 1, |bytes| Ok(T::load(bytes)?))
    }

    /// Reads values from an index on.
    ///
    /// # Errors
    /// [`PoolError::OutOfBounds`]; [`PoolError::Plain`] if bytes are no value;
    /// [`PoolError::Renewed`] or [`PoolError::Down`] if the session is over.
    pub fn read_range(&self, first: usize, values: &mut [T]) -> Result<()> {
        let start = self.slice.at(first, values.len())?;
        let count = values.len();
        self.load(start, count, |bytes| Ok(T::load_all(bytes, values)?))
    }

    fn load<R>(
        &self,
        start: u64,
        count: usize,
        decode: impl FnOnce(&[u8]) -> Result<R>,
    ) -> Result<R> {
        Self::encoded(count, |bytes| {
            self.each(start, bytes.len(), |from, range| {
                let read = self.node.read(self.owner()?, from, &mut bytes[range]);
                read.map_err(|error| self.refused(error))
            })?;
            decode(bytes)
        })
    }

    /// Writes the value with an index.
    ///
    /// # Errors
    /// As [`LocalSlice::write_range`].
    pub fn write(&self, index: usize, value: &T) -> Result<()> {
        self.write_range(index, std::slice::from_ref(value))
    }

    /// Writes values from an index on.
    ///
    /// # Errors
    /// [`PoolError::OutOfBounds`]; [`PoolError::ReadOnly`]; [`PoolError::Renewed`] or
    /// [`PoolError::Down`] if the session is over.
    pub fn write_range(&self, first: usize, values: &[T]) -> Result<()> {
        let start = self.slice.at_to_write(first, values.len())?;
        Self::encoded(values.len(), |bytes| {
            T::store_all(values, bytes);
            self.each(start, bytes.len(), |to, range| {
                let written = self.node.write(self.owner()?, to, &bytes[range]);
                written.map_err(|error| self.refused(error))
            })
        })
    }
}
