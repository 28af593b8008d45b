//! The memory of a structure: words of 64 bits, owned or imported.

use std::sync::Arc;

use crate::access::{self, Read};
use crate::allocation::{Allocation, Holding, Span};
use crate::error::{PoolError, Result};
use crate::export::Exported;
use crate::lane::Lane;
use crate::plain::Plain;
use crate::pool::{Handle, RemotePool};
use crate::slice::{self, RemoteSlice};

/// The words of a structure.
#[derive(Debug)]
pub(super) struct Block(RemoteSlice<u64>);

impl From<RemoteSlice<u64>> for Block {
    fn from(slice: RemoteSlice<u64>) -> Self {
        Self(slice)
    }
}

/// The words that a value takes.
pub(super) fn words_of<T: Plain>() -> usize {
    T::BYTES.div_ceil(8)
}

/// A value as words, with zeros behind it.
pub(super) fn encode<T: Plain>(value: &T) -> Vec<u64> {
    let mut bytes = vec![0; words_of::<T>() * 8];
    value.store(&mut bytes[..T::BYTES]);
    words(&bytes)
}

/// The value of words.
pub(super) fn decode<T: Plain>(words: &[u64]) -> Result<T> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let value = bytes.get(..T::BYTES);
    let value = value.ok_or_else(|| malformed("a value is cut short"))?;
    Ok(T::load(value)?)
}

fn words(bytes: &[u8]) -> Vec<u64> {
    let (words, _) = bytes.as_chunks::<8>();
    words.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

/// Why a structure cannot be used.
pub(super) fn malformed(reason: &str) -> PoolError {
    PoolError::Malformed {
        reason: reason.to_owned(),
    }
}

/// A number as an index of memory.
pub(super) fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

impl Block {
    /// Allocates words. The first ones are given, the others are 0.
    pub(super) async fn create(pool: &RemotePool, first: &[u64], count: usize) -> Result<Self> {
        let slice = pool.allocated::<u64>(count.max(first.len())).await?;
        let mut all = first.to_vec();
        all.resize(slice.len(), 0);
        slice.store(0, &all).await?;
        Ok(Self(slice))
    }

    /// Imports a structure whose first word is `mark` and that has at least `least` words.
    pub(super) async fn open(
        pool: &RemotePool,
        exported: &Exported<u64>,
        mark: u64,
        least: usize,
    ) -> Result<Self> {
        let block = Self(pool.imported(exported).await?);
        let found = block.read_one(0).await?;
        if found != mark {
            return Err(PoolError::WrongType {
                expected: format!("a structure with the mark {mark:016x}"),
                found: format!("one with the mark {found:016x}"),
            });
        }
        if block.0.len() < least {
            return Err(malformed("it is shorter than the structure"));
        }
        Ok(block)
    }

    /// A block of memory that the nodes free with this one's.
    pub(super) fn beside(&self, spans: Vec<Span>, bytes: u64) -> Self {
        let holding = Holding::Imported {
            word: None,
            runs: Vec::new(),
            may_write: true,
        };
        self.with(spans, bytes, holding)
    }

    /// A block of memory of the same pool.
    pub(super) fn own(&self, spans: Vec<Span>, bytes: u64) -> Self {
        self.with(spans, bytes, Holding::Owned)
    }

    fn with(&self, spans: Vec<Span>, bytes: u64, holding: Holding) -> Self {
        let pool = Arc::clone(&self.0.allocation().pool);
        let allocation = Allocation::new(pool, spans, bytes, holding);
        Self(RemoteSlice::new(Arc::new(allocation), index(bytes / 8)))
    }

    pub(super) fn pool(&self) -> &Handle {
        &self.0.allocation().pool
    }

    /// Its first bytes.
    pub(super) fn first_span(&self) -> Option<Span> {
        self.0.allocation().spans().first().copied()
    }

    pub(super) async fn export(&self) -> Result<Exported<u64>> {
        self.0.exported(crate::export::Access::Write).await
    }

    pub(super) fn lane(&self) -> &Lane {
        self.0.lane()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Reads words. Not atomic: each word is.
    pub(super) async fn read(&self, first: usize, into: &mut [u64]) -> Result<()> {
        let offset = self.0.at(first, into.len())?;
        let mut bytes = vec![0; into.len() * 8];
        slice::read_bytes(self.0.allocation(), self.lane(), offset, &mut bytes).await?;
        into.copy_from_slice(&words(&bytes));
        Ok(())
    }

    pub(super) async fn read_one(&self, word: usize) -> Result<u64> {
        let mut found = [0];
        self.read(word, &mut found).await?;
        Ok(found[0])
    }

    /// Reads two words, the first one first. Cost: one round trip.
    pub(super) async fn read_in_order(&self, words: [usize; 2]) -> Result<[u64; 2]> {
        let mut bytes = [[0; 8]; 2];
        let [first, second] = &mut bytes;
        let read = |word, into| {
            let offset = self.0.at(word, 1)?;
            Ok::<_, PoolError>(Read {
                allocation: self.0.allocation(),
                offset,
                into,
            })
        };
        let mut reads = [
            read(words[0], &mut first[..])?,
            read(words[1], &mut second[..])?,
        ];
        // A connection performs requests in order, and both words lie on one node.
        access::read_all(self.0.shared(), self.lane(), &mut reads).await?;
        Ok(bytes.map(u64::from_le_bytes))
    }

    pub(super) async fn write(&self, first: usize, from: &[u64]) -> Result<()> {
        self.0.store(first, from).await
    }

    /// Stores `desired` if the word is `expected`. Returns the old word.
    pub(super) async fn swap(&self, word: usize, expected: u64, desired: u64) -> Result<u64> {
        let at = (self.0.allocation(), self.0.at_to_write(word, 1)?);
        let values = (expected, desired);
        access::compare_and_swap(self.0.shared(), self.lane(), at, values).await
    }

    pub(super) async fn add(&self, word: usize, addend: u64) -> Result<u64> {
        let at = (self.0.allocation(), self.0.at_to_write(word, 1)?);
        access::fetch_add(self.0.shared(), self.lane(), at, addend).await
    }

    /// Swaps a word some time later, if it is still `expected` then: for a drop, which cannot wait.
    pub(super) fn swap_later(&self, word: usize, expected: u64, desired: u64) {
        if let Ok(offset) = self.0.at_to_write(word, 1) {
            access::swap_later(self.0.allocation(), offset, (expected, desired));
        }
    }

    /// The pool's ticks, a few dozen a second.
    pub(super) async fn pause(&self) {
        self.0.shared().ticks.next().await;
    }
}
