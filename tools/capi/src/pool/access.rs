//! Reads, writes and atomics, for callers that wait.

#![allow(unsafe_code)] // reads and writes the caller's memory

use std::ffi::c_void;

use farcore_pool::{BytesRead, BytesWrite};

use super::handle::Pool;
use super::parts::{ReadPart, WritePart, read_parts, reads, write_parts, writes};
use super::ptr::Ptr;
use crate::boundary::{bytes, bytes_to_write, guard, handle, store};
use crate::error::Code;

/// Reads `length` bytes of remote memory into the caller's.
///
/// Returns `FARCORE_OK` or a common error of pools. After an error the bytes at `into` are
/// unspecified. `into` may be null if `length` is 0. Any thread may call it. A read beside a write
/// may see parts of both, in units of 8 aligned bytes. Cost: a round trip; more than the option
/// `transfer_bytes` is split, and in flight together.
///
/// # Safety
/// `pool` came from this library and is not freed. `length` bytes at `into` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_pool_read(
    pool: *const Pool,
    from: Ptr,
    into: *mut c_void,
    length: usize,
) -> Code {
    guard(|| {
        // SAFETY: the caller's promise.
        let opened = unsafe { handle("pool", pool) }?.opened()?;
        let owner = opened.owner(from)?;
        let mut reads = [BytesRead {
            slice: &owner,
            offset: from.offset,
            // SAFETY: the caller's promise.
            into: unsafe { bytes_to_write("into", into, length) }?,
        }];
        opened.remote.read_bytes(&mut reads).wait()?;
        Ok(Code::Ok)
    })
}

/// Stores `length` bytes of the caller in remote memory.
///
/// Returns `FARCORE_OK` or a common error of pools. After an error of the node, none, some or all
/// of the bytes are stored. `from` may be null if `length` is 0. Any thread may call it. Cost: as
/// `farcore_pool_read`.
///
/// # Safety
/// `pool` came from this library and is not freed. `from` points to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_pool_write(
    pool: *const Pool,
    to: Ptr,
    from: *const c_void,
    length: usize,
) -> Code {
    guard(|| {
        // SAFETY: the caller's promise.
        let opened = unsafe { handle("pool", pool) }?.opened()?;
        let owner = opened.owner(to)?;
        let write = BytesWrite {
            slice: &owner,
            offset: to.offset,
            // SAFETY: the caller's promise.
            from: unsafe { bytes("from", from, length) }?,
        };
        opened.remote.write_bytes(&[write]).wait()?;
        Ok(Code::Ok)
    })
}

/// Reads `count` parts of remote memory, all in flight together, each into its own buffer.
///
/// Returns `FARCORE_OK`, `FARCORE_INVALID_ARGUMENT` if two buffers overlap, or a common error of
/// pools: that of one part. If it is one of the node, the bytes of all are unspecified; otherwise
/// nothing was sent. `parts` may be null if `count` is 0. Any thread may call it. Cost: a round
/// trip.
///
/// # Safety
/// `pool` came from this library and is not freed. `parts` points to `count` parts, and each part's
/// `length` bytes at `into` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_pool_read_many(
    pool: *const Pool,
    parts: *const ReadPart,
    count: usize,
) -> Code {
    guard(|| {
        // SAFETY: the caller's promise.
        let opened = unsafe { handle("pool", pool) }?.opened()?;
        // SAFETY: the caller's promise.
        let parts = unsafe { read_parts(&opened, parts, count) }?;
        // SAFETY: the caller's promise.
        let mut reads = unsafe { reads(&parts) }?;
        opened.remote.read_bytes(&mut reads).wait()?;
        Ok(Code::Ok)
    })
}

/// Stores `count` parts in remote memory, all in flight together; those on one node in order.
///
/// Returns `FARCORE_OK` or a common error of pools: that of one part. If it is one of the node,
/// none, some or all of the bytes are stored; otherwise nothing was sent. `parts` may be null if
/// `count` is 0. Any thread may call it. Cost: a round trip.
///
/// # Safety
/// `pool` came from this library and is not freed. `parts` points to `count` parts, and each part's
/// `from` to its `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_pool_write_many(
    pool: *const Pool,
    parts: *const WritePart,
    count: usize,
) -> Code {
    guard(|| {
        // SAFETY: the caller's promise.
        let opened = unsafe { handle("pool", pool) }?.opened()?;
        // SAFETY: the caller's promise.
        let parts = unsafe { write_parts(&opened, parts, count) }?;
        // SAFETY: the caller's promise.
        let writes = unsafe { writes(&parts) }?;
        opened.remote.write_bytes(&writes).wait()?;
        Ok(Code::Ok)
    })
}

/// Stores `desired` in the 64-bit word at `word` if it equals `expected`. Writes the old value to
/// `*old`, which may be null: the swap was made if it equals `expected`. Atomic among all clients
/// of the node. The word has the byte order of x86, lowest byte first.
///
/// Returns `FARCORE_OK`, also if the word did not equal `expected`; `FARCORE_UNALIGNED` if its
/// offset is no multiple of 8; `FARCORE_UNKNOWN_OUTCOME` if the connection broke after the request
/// was sent; or a common error of pools. Any thread may call it. Cost: a round trip.
///
/// # Safety
/// `pool` came from this library and is not freed. `old` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_pool_compare_and_swap(
    pool: *const Pool,
    word: Ptr,
    expected: u64,
    desired: u64,
    old: *mut u64,
) -> Code {
    guard(|| {
        // SAFETY: the caller's promise.
        let opened = unsafe { handle("pool", pool) }?.opened()?;
        let owner = opened.owner(word)?;
        let found = owner
            .compare_and_swap_at(word.offset, expected, desired)
            .wait()?;
        // SAFETY: the caller's promise.
        unsafe { store(old, found) };
        Ok(Code::Ok)
    })
}

/// Adds to the 64-bit word at `word`, wrapping, and writes its old value to `*old`, which may be
/// null. Atomic as `farcore_pool_compare_and_swap`.
///
/// Returns and costs as `farcore_pool_compare_and_swap`.
///
/// # Safety
/// As `farcore_pool_compare_and_swap`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_pool_fetch_add(
    pool: *const Pool,
    word: Ptr,
    addend: u64,
    old: *mut u64,
) -> Code {
    guard(|| {
        // SAFETY: the caller's promise.
        let opened = unsafe { handle("pool", pool) }?.opened()?;
        let owner = opened.owner(word)?;
        let found = owner.fetch_add_at(word.offset, addend).wait()?;
        // SAFETY: the caller's promise.
        unsafe { store(old, found) };
        Ok(Code::Ok)
    })
}
