//! The outcomes of an operation on many keys, in the order of the keys.

#![allow(unsafe_code)] // reads and writes the caller's memory

use std::ffi::c_char;
use std::ptr;

use crate::boundary::{bytes, guard, guard_free, handle, slice, store, take_back, wanted};
use crate::error::{Code, Failure};
use crate::outcome::{Outcome, Returned};
use crate::value::{Pair, Slice};

/// The outcomes of an operation on many keys.
#[derive(Debug)]
pub struct Batch(Vec<Outcome>);

/// How the operation on one of many keys ended. The batch owns the bytes and the text.
#[repr(C)]
#[derive(Debug)]
pub struct Item {
    /// How it ended.
    pub code: Code,
    /// The key's version; 0 if there is none.
    pub version: u64,
    /// The value of a get; null if there is none.
    pub bytes: *const u8,
    /// Bytes of the value.
    pub length: usize,
    /// Why it was not done, ended by a zero; null if `code` is `FARCORE_OK`.
    pub message: *const c_char,
}

impl Batch {
    pub(crate) fn new(outcomes: impl Iterator<Item = Outcome>) -> Self {
        Self(outcomes.collect())
    }
}

impl Item {
    fn of(outcome: &Outcome) -> Self {
        let (bytes, length) = match &outcome.result {
            Returned::Value(bytes) => (bytes.as_ptr(), bytes.len()),
            _ => (ptr::null(), 0),
        };
        let failure = outcome.failure.as_ref();
        Self {
            code: failure.map_or(Code::Ok, |failure| failure.code),
            version: outcome.version.unwrap_or(0),
            bytes,
            length,
            message: failure.map_or(ptr::null(), |failure| failure.text.as_ptr()),
        }
    }
}

/// The keys of a caller.
///
/// # Safety
/// `keys` points to `count` slices, and each to its bytes. They outlive `'a` and do not change.
pub(crate) unsafe fn keys_of<'a>(
    keys: *const Slice,
    count: usize,
) -> Result<Vec<&'a [u8]>, Failure> {
    // SAFETY: the caller's promise.
    let keys = unsafe { slice("keys", keys, count) }?.iter();
    // SAFETY: as above.
    keys.map(|key| unsafe { bytes("key", key.bytes, key.length) })
        .collect()
}

/// A key, and the value to store under it.
type KeyWithValue<'a> = (&'a [u8], &'a [u8]);

/// The keys of a caller with their values.
///
/// # Safety
/// As [`keys_of`].
pub(crate) unsafe fn pairs_of<'a>(
    pairs: *const Pair,
    count: usize,
) -> Result<Vec<KeyWithValue<'a>>, Failure> {
    // SAFETY: the caller's promise.
    let pairs = unsafe { slice("pairs", pairs, count) }?.iter();
    let pair = |pair: &Pair| {
        // SAFETY: as above.
        let key = unsafe { bytes("key", pair.key.bytes, pair.key.length) }?;
        // SAFETY: as above.
        let value = unsafe { bytes("value", pair.value.bytes, pair.value.length) }?;
        Ok((key, value))
    };
    pairs.map(pair).collect()
}

/// How many outcomes a batch has: as many as keys were given. 0 if `batch` is null. Any number of
/// threads may read a batch. Cost: none.
///
/// # Safety
/// `batch` is null, or came from this library and is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_batch_count(batch: *const Batch) -> usize {
    // SAFETY: the caller's promise.
    unsafe { batch.as_ref() }.map_or(0, |batch| batch.0.len())
}

/// Writes one outcome of a batch to `*item`: that of the key at `index`, from 0 on. The batch owns
/// what the item points to, until it is freed. Any number of threads may read a batch. Cost: none.
///
/// Fails with `FARCORE_INVALID_ARGUMENT` if a pointer is null or the index is out of range. That
/// the key's operation failed is no failure of this call: `item->code` says it.
///
/// # Safety
/// `batch` came from this library and is not freed. `item` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_batch_item(
    batch: *const Batch,
    index: usize,
    item: *mut Item,
) -> Code {
    guard(|| {
        // SAFETY: the caller's promise.
        let batch = unsafe { handle("batch", batch) }?;
        let place = wanted("item", item)?;
        let outcome = batch.0.get(index).ok_or_else(|| {
            let count = batch.0.len();
            Failure::invalid(format!(
                "`index` is {index}: the batch has {count} outcomes"
            ))
        })?;
        // SAFETY: not null; the rest is the caller's promise.
        unsafe { store(place, Item::of(outcome)) };
        Ok(Code::Ok)
    })
}

/// Frees a batch with all values in it; null is left alone. Cannot fail.
///
/// # Safety
/// `batch` is null, or came from this library. Neither it nor what its items point to is used
/// afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_batch_free(batch: *mut Batch) {
    // SAFETY: the caller's promise.
    guard_free(|| unsafe { take_back(batch) });
}
