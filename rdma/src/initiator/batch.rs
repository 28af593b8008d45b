//! The requests of one call: a batch of READs, a WRITE, compare-and-swaps or an addition.
//!
//! A batch knows the length and operation of each request, fills its buffer and takes its result.

use crate::work::{LocalSlice, RemoteSlice, Work};

/// One READ of a batch.
#[derive(Debug)]
pub struct ReadInto<'a> {
    /// The source.
    pub remote: RemoteSlice,
    /// The destination; its length is the number of bytes read.
    pub into: &'a mut [u8],
}

/// One WRITE of a batch.
#[derive(Clone, Copy, Debug)]
pub struct WriteFrom<'a> {
    /// The destination.
    pub remote: RemoteSlice,
    /// The bytes.
    pub from: &'a [u8],
}

/// One compare-and-swap of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CompareAndSwap {
    /// The far word, aligned to 8.
    pub remote: RemoteSlice,
    /// The value that it must have.
    pub expected: u64,
    /// The value to store.
    pub desired: u64,
}

/// The requests of one call.
pub(super) trait Batch {
    fn count(&self) -> usize;
    fn bytes(&self, index: usize) -> usize;
    fn work(&self, index: usize, local: LocalSlice) -> Work;
    fn fill(&self, _index: usize, _scratch: &mut [u8]) {}
    fn landed(&mut self, _index: usize, _scratch: &[u8]) {}
}

pub(super) struct Reads<'a, 'b>(pub(super) &'a mut [ReadInto<'b>]);

impl Batch for Reads<'_, '_> {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn bytes(&self, index: usize) -> usize {
        self.0[index].into.len()
    }

    fn work(&self, index: usize, local: LocalSlice) -> Work {
        let remote = self.0[index].remote;
        Work::Read { local, remote }
    }

    fn landed(&mut self, index: usize, scratch: &[u8]) {
        self.0[index].into.copy_from_slice(scratch);
    }
}

pub(super) struct Writes<'a, 'b>(pub(super) &'a [WriteFrom<'b>]);

impl Batch for Writes<'_, '_> {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn bytes(&self, index: usize) -> usize {
        self.0[index].from.len()
    }

    fn work(&self, index: usize, local: LocalSlice) -> Work {
        let remote = self.0[index].remote;
        Work::Write { local, remote }
    }

    fn fill(&self, index: usize, scratch: &mut [u8]) {
        scratch.copy_from_slice(self.0[index].from);
    }
}

pub(super) struct Swaps<'a> {
    pub(super) swaps: &'a [CompareAndSwap],
    pub(super) old: &'a mut [u64],
}

impl Batch for Swaps<'_> {
    fn count(&self) -> usize {
        self.swaps.len().min(self.old.len())
    }

    fn bytes(&self, _index: usize) -> usize {
        8
    }

    fn work(&self, index: usize, local: LocalSlice) -> Work {
        let CompareAndSwap {
            remote,
            expected,
            desired,
        } = self.swaps[index];
        Work::CompareAndSwap {
            local,
            remote,
            expected,
            desired,
        }
    }

    fn landed(&mut self, index: usize, scratch: &[u8]) {
        self.old[index] = word(scratch);
    }
}

pub(super) struct Add<'a> {
    pub(super) remote: RemoteSlice,
    pub(super) addend: u64,
    pub(super) old: &'a mut u64,
}

impl Batch for Add<'_> {
    fn count(&self) -> usize {
        1
    }

    fn bytes(&self, _index: usize) -> usize {
        8
    }

    fn work(&self, _index: usize, local: LocalSlice) -> Work {
        Work::FetchAdd {
            local,
            remote: self.remote,
            addend: self.addend,
        }
    }

    fn landed(&mut self, _index: usize, scratch: &[u8]) {
        *self.old = word(scratch);
    }
}

pub(super) fn word(scratch: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(scratch);
    u64::from_le_bytes(bytes)
}
