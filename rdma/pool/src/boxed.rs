//! One value in remote memory, owned by a program.

use std::future::Future;

use crate::error::{PoolError, Result};
use crate::op::Op;
use crate::plain::Plain;
use crate::ptr::RemotePtr;
use crate::slice::RemoteSlice;

/// A value in remote memory. Dropping it frees the value.
#[derive(Debug)]
pub struct RemoteBox<T>(RemoteSlice<T>);

impl<T: Plain> RemoteBox<T> {
    pub(crate) fn new(slice: RemoteSlice<T>) -> Self {
        Self(slice)
    }

    /// Reads the value. Cost: one round trip.
    ///
    /// # Errors
    /// As [`RemoteSlice::read`].
    pub fn read(&self) -> Op<'_, impl Future<Output = Result<T>> + Send> {
        self.0.read(0)
    }

    /// Stores a value. Cost: one round trip.
    ///
    /// # Errors
    /// As [`RemoteSlice::read`].
    pub fn write<'a>(
        &'a self,
        value: &'a T,
    ) -> Op<'a, impl Future<Output = Result<()>> + Send + 'a> {
        self.0.write(0, value)
    }

    /// A pointer to the value: see [`RemoteSlice::ptr`].
    #[must_use]
    pub fn ptr(&self) -> RemotePtr<T> {
        self.0.ptr(0)
    }

    /// The node that holds it; `None` if it has no bytes.
    #[must_use]
    pub fn node(&self) -> Option<usize> {
        self.0.nodes().first().copied()
    }

    /// Why its contents are lost: see [`RemoteSlice::loss`].
    #[must_use]
    pub fn loss(&self) -> Option<PoolError> {
        self.0.loss()
    }

    /// The value as a slice of one.
    #[must_use]
    pub fn into_slice(self) -> RemoteSlice<T> {
        self.0
    }

    /// Frees the value. Dropping does the same.
    pub fn free(self) {}
}

/// Atomics: see [`RemoteSlice::compare_and_swap`].
impl RemoteBox<u64> {
    /// Stores `desired` if the word equals `expected`. Returns the old value. Cost: one round trip.
    ///
    /// # Errors
    /// As [`RemoteSlice::compare_and_swap`].
    pub fn compare_and_swap(
        &self,
        expected: u64,
        desired: u64,
    ) -> Op<'_, impl Future<Output = Result<u64>> + Send> {
        self.0.compare_and_swap(0, expected, desired)
    }

    /// Adds to the word, wrapping. Returns the old value. Cost: one round trip.
    ///
    /// # Errors
    /// As [`RemoteSlice::compare_and_swap`].
    pub fn fetch_add(&self, addend: u64) -> Op<'_, impl Future<Output = Result<u64>> + Send> {
        self.0.fetch_add(0, addend)
    }
}
