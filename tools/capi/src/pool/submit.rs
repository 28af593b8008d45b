//! The operations of a pool, for callers that poll.
//!
//! Each function sends a request and returns at once. What can be seen without a node, as a pointer
//! that was freed, is the function's code; what the length or the node says is the operation's
//! outcome.

#![allow(unsafe_code)] // reads and writes the caller's memory

use std::ffi::{c_char, c_void};
use std::future::Future;
use std::ptr;
use std::sync::Arc;

use farcore_pool::{BytesRead, BytesWrite, PoolError};

use super::handle::{Opened, Pool};
use super::memory::{Memory, allocator, check_length};
use super::owners::Owner;
use super::parts::{ReadPart, WritePart, read_parts, write_parts};
use super::place::Place;
use super::ptr::Ptr;
use super::share::{Type, exported_from, type_of};
use super::task::Task;
use crate::batch::Batch;
use crate::boundary::{bytes, give, guard, handle, store, utf8, wanted};
use crate::error::{Code, Failure};
use crate::operation::{Operation, result};
use crate::outcome::{Outcome, Returned};

/// Begins an operation of a pool, and gives it to the caller.
///
/// # Safety
/// Unless they are null, `pool` came from this crate and is not freed, and `operation` can be
/// written.
pub(super) unsafe fn submit<F: Future<Output = Result<Returned, PoolError>> + Send + 'static>(
    pool: *const Pool,
    operation: *mut *mut Operation,
    begin: impl FnOnce(Arc<Opened>) -> Result<F, Failure>,
) -> Code {
    guard(|| {
        let place = wanted("operation", operation)?;
        // SAFETY: not null; the rest is the caller's promise.
        unsafe { store(place, ptr::null_mut()) };
        // SAFETY: the caller's promise.
        let opened = unsafe { handle("pool", pool) }?.opened()?;
        let future = begin(opened)?;
        let task = Task::begin(async {
            match future.await {
                Ok(returned) => Outcome::returned(returned),
                Err(error) => Outcome::failed(error.into()),
            }
        });
        // SAFETY: as above.
        unsafe { give(place, Operation::new(task)) };
        Ok(Code::Ok)
    })
}

/// Submits an allocation. `farcore_operation_take_ptr` gives its pointer; unless it is taken,
/// freeing the operation frees the memory.
///
/// `*operation` is the caller's, who polls it with `farcore_poll` or `farcore_wait` and frees it
/// with `farcore_operation_free`. It is null unless the function returns `FARCORE_OK`. An operation
/// that is freed before it has ended may be carried out, in part or not at all.
///
/// Returns `FARCORE_OK`, `FARCORE_INVALID_ARGUMENT` or `FARCORE_CLOSED`. All other errors are the
/// operation's outcome, with the codes of `farcore_pool_allocate`. Any thread may call it. Cost:
/// two allocations; does not wait.
///
/// # Safety
/// `pool` came from this library and is not freed. `place` is null or points to a place.
/// `operation` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_pool_submit_allocate(
    pool: *const Pool,
    bytes: usize,
    align: usize,
    place: *const Place,
    operation: *mut *mut Operation,
) -> Code {
    let begin = |opened: Arc<Opened>| {
        // SAFETY: the caller's promise.
        let (remote, align) = unsafe { allocator(&opened, align, place) }?;
        Ok(async move {
            let owner = remote.alloc_bytes(bytes, align).await?;
            Ok(Returned::Memory(Memory::new(&opened, owner)))
        })
    };
    // SAFETY: the caller's promise.
    unsafe { submit(pool, operation, begin) }
}

/// Submits a read of `length` bytes. They are taken with `farcore_operation_take_value` or copied
/// with `farcore_operation_copy_value`.
///
/// Gives `*operation` as `farcore_pool_submit_allocate`. Returns `FARCORE_OK`,
/// `FARCORE_INVALID_ARGUMENT`, `FARCORE_FREED`, `FARCORE_FOREIGN` or `FARCORE_CLOSED`. All other
/// errors are the operation's outcome, with the codes of `farcore_pool_read`. Any thread may call
/// it. Cost: three allocations; does not wait.
///
/// # Safety
/// `pool` came from this library and is not freed. `operation` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_pool_submit_read(
    pool: *const Pool,
    from: Ptr,
    length: usize,
    operation: *mut *mut Operation,
) -> Code {
    let begin = |opened: Arc<Opened>| {
        let owner = opened.owner(from)?;
        Ok(async move {
            check_length(&owner, from.offset, length)?;
            let mut into = vec![0; length];
            let mut reads = [BytesRead {
                slice: &owner,
                offset: from.offset,
                into: &mut into,
            }];
            opened.remote.read_bytes(&mut reads).await?;
            Ok(Returned::Value(into))
        })
    };
    // SAFETY: the caller's promise.
    unsafe { submit(pool, operation, begin) }
}

/// Submits a write. The bytes are copied.
///
/// Gives `*operation`, returns and costs as `farcore_pool_submit_read`; its codes are those of
/// `farcore_pool_write`. Writes of one pool that are under way together may be carried out in any
/// order.
///
/// # Safety
/// As `farcore_pool_submit_read`; `from` points to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_pool_submit_write(
    pool: *const Pool,
    to: Ptr,
    from: *const c_void,
    length: usize,
    operation: *mut *mut Operation,
) -> Code {
    let begin = |opened: Arc<Opened>| {
        let owner = opened.owner(to)?;
        // SAFETY: the caller's promise.
        let from = unsafe { bytes("from", from, length) }?.to_vec();
        Ok(async move {
            let write = BytesWrite {
                slice: &owner,
                offset: to.offset,
                from: &from,
            };
            opened.remote.write_bytes(&[write]).await?;
            Ok(Returned::Nothing)
        })
    };
    // SAFETY: the caller's promise.
    unsafe { submit(pool, operation, begin) }
}

/// Submits a read of `count` parts, all in flight together. `farcore_operation_take_batch` gives
/// their bytes, in the order of the parts. The parts are copied, and their `into` is not used.
///
/// Gives `*operation` and returns as `farcore_pool_submit_read`; its codes are those of
/// `farcore_pool_read_many`. Cost: an allocation for each part.
///
/// # Safety
/// As `farcore_pool_submit_read`; `parts` points to `count` parts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_pool_submit_read_many(
    pool: *const Pool,
    parts: *const ReadPart,
    count: usize,
    operation: *mut *mut Operation,
) -> Code {
    let begin = |opened: Arc<Opened>| {
        // SAFETY: the caller's promise.
        let parts = unsafe { read_parts(&opened, parts, count) }?.into_iter();
        let place = |(owner, part): (_, &ReadPart)| (owner, part.from.offset, part.length);
        let places: Vec<(Arc<Owner>, i64, usize)> = parts.map(place).collect();
        Ok(async move {
            let mut buffers = Vec::with_capacity(places.len());
            for (owner, offset, length) in &places {
                check_length(owner, *offset, *length)?;
                buffers.push(vec![0; *length]);
            }
            let mut reads = Vec::with_capacity(places.len());
            for ((owner, offset, _), into) in places.iter().zip(&mut buffers) {
                reads.push(BytesRead {
                    slice: owner,
                    offset: *offset,
                    into,
                });
            }
            opened.remote.read_bytes(&mut reads).await?;
            let outcomes = buffers.into_iter().map(Returned::Value);
            Ok(Returned::Batch(Batch::new(outcomes.map(Outcome::returned))))
        })
    };
    // SAFETY: the caller's promise.
    unsafe { submit(pool, operation, begin) }
}

/// Submits a write of `count` parts, all in flight together; those on one node in order. Parts and
/// bytes are copied.
///
/// Gives `*operation` and returns as `farcore_pool_submit_read`; its codes are those of
/// `farcore_pool_write_many`. Cost: an allocation for each part.
///
/// # Safety
/// As `farcore_pool_submit_read`; `parts` points to `count` parts, and each part's `from` to its
/// `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_pool_submit_write_many(
    pool: *const Pool,
    parts: *const WritePart,
    count: usize,
    operation: *mut *mut Operation,
) -> Code {
    let begin = |opened: Arc<Opened>| {
        let mut places: Vec<(Arc<Owner>, i64, Vec<u8>)> = Vec::new();
        // SAFETY: the caller's promise.
        for (owner, part) in unsafe { write_parts(&opened, parts, count) }? {
            // SAFETY: the caller's promise.
            let from = unsafe { bytes("from", part.from, part.length) }?;
            places.push((owner, part.to.offset, from.to_vec()));
        }
        Ok(async move {
            let writes = places.iter().map(|(owner, offset, from)| BytesWrite {
                slice: owner,
                offset: *offset,
                from,
            });
            let writes: Vec<_> = writes.collect();
            opened.remote.write_bytes(&writes).await?;
            Ok(Returned::Nothing)
        })
    };
    // SAFETY: the caller's promise.
    unsafe { submit(pool, operation, begin) }
}

/// Submits a compare-and-swap of a 64-bit word. `farcore_operation_word` gives its old value.
///
/// Gives `*operation`, returns and costs as `farcore_pool_submit_read`; its codes are those of
/// `farcore_pool_compare_and_swap`.
///
/// # Safety
/// As `farcore_pool_submit_read`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_pool_submit_compare_and_swap(
    pool: *const Pool,
    word: Ptr,
    expected: u64,
    desired: u64,
    operation: *mut *mut Operation,
) -> Code {
    let begin = |opened: Arc<Opened>| {
        let owner = opened.owner(word)?;
        Ok(async move {
            let swap = owner.compare_and_swap_at(word.offset, expected, desired);
            Ok(Returned::Word(swap.await?))
        })
    };
    // SAFETY: the caller's promise.
    unsafe { submit(pool, operation, begin) }
}

/// Submits an addition to a 64-bit word. `farcore_operation_word` gives its old value.
///
/// Gives `*operation`, returns and costs as `farcore_pool_submit_read`; its codes are those of
/// `farcore_pool_fetch_add`.
///
/// # Safety
/// As `farcore_pool_submit_read`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_pool_submit_fetch_add(
    pool: *const Pool,
    word: Ptr,
    addend: u64,
    operation: *mut *mut Operation,
) -> Code {
    let begin = |opened: Arc<Opened>| {
        let owner = opened.owner(word)?;
        Ok(async move {
            let add = owner.fetch_add_at(word.offset, addend);
            Ok(Returned::Word(add.await?))
        })
    };
    // SAFETY: the caller's promise.
    unsafe { submit(pool, operation, begin) }
}

/// Submits an export. `farcore_operation_take_value` gives the text, which is ended by a zero.
///
/// Gives `*operation`, returns and costs as `farcore_pool_submit_read`; its codes are those of
/// `farcore_pool_export`.
///
/// # Safety
/// As `farcore_pool_submit_read`; `holds` is null or points to a type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_pool_submit_export(
    pool: *const Pool,
    ptr: Ptr,
    holds: *const Type,
    may_write: bool,
    operation: *mut *mut Operation,
) -> Code {
    let begin = |opened: Arc<Opened>| {
        opened.check_first(ptr)?;
        let owner = opened.owner(ptr)?;
        // SAFETY: the caller's promise.
        let Type { mark, bytes } = unsafe { type_of(holds) }?;
        Ok(async move {
            let exported = owner.export(may_write).await?;
            Ok(Returned::Text(exported.to_text_as(mark, bytes)?))
        })
    };
    // SAFETY: the caller's promise.
    unsafe { submit(pool, operation, begin) }
}

/// Submits an import. `farcore_operation_take_ptr` gives its pointer; unless it is taken, freeing
/// the operation gives up the share.
///
/// Gives `*operation` as `farcore_pool_submit_allocate`. Returns `FARCORE_OK`,
/// `FARCORE_INVALID_ARGUMENT`, `FARCORE_MALFORMED`, `FARCORE_WRONG_TYPE` or `FARCORE_CLOSED`. All
/// other errors are the operation's outcome, with the codes of `farcore_pool_import`. Any thread
/// may call it. Cost: some allocations; does not wait.
///
/// # Safety
/// `pool` came from this library and is not freed. `text` is ended by a zero. `holds` is null or
/// points to a type. `operation` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_pool_submit_import(
    pool: *const Pool,
    text: *const c_char,
    holds: *const Type,
    operation: *mut *mut Operation,
) -> Code {
    let begin = |opened: Arc<Opened>| {
        // SAFETY: the caller's promise.
        let exported = unsafe { exported_from(utf8("text", text)?, holds) }?;
        Ok(async move {
            let owner = opened.remote.import(&exported).await?;
            Ok(Returned::Memory(Memory::new(&opened, owner)))
        })
    };
    // SAFETY: the caller's promise.
    unsafe { submit(pool, operation, begin) }
}

/// Writes the old value that an atomic operation of a pool returned to `*word`.
///
/// Returns `FARCORE_OK`, `FARCORE_PENDING` if it has not ended, its code if it failed, or
/// `FARCORE_INVALID_ARGUMENT` if a pointer is null or its kind returns no word. Threads and cost as
/// `farcore_poll`.
///
/// # Safety
/// As `farcore_poll`; `word` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_operation_word(operation: *mut Operation, word: *mut u64) -> Code {
    let write = |outcome: &mut Outcome| {
        let place = wanted("word", word)?;
        // SAFETY: not null; the rest is the caller's promise.
        unsafe { store(place, outcome.word()?) };
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { result(operation, write) }
}

/// Moves the memory that an operation has allocated or imported to the caller, who frees it with
/// `farcore_pool_deallocate`. `*ptr` leads to its first byte.
///
/// Returns `FARCORE_OK`, `FARCORE_PENDING` if the operation has not ended, its code if it failed,
/// `FARCORE_TAKEN` if it was taken before, `FARCORE_CLOSED` if the pool was closed meanwhile, or
/// `FARCORE_INVALID_ARGUMENT` if a pointer is null or its kind returns none. Threads and cost as
/// `farcore_poll`.
///
/// # Safety
/// As `farcore_poll`; `ptr` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_operation_take_ptr(
    operation: *mut Operation,
    ptr: *mut Ptr,
) -> Code {
    let write = |outcome: &mut Outcome| {
        let place = wanted("ptr", ptr)?;
        // SAFETY: not null; the rest is the caller's promise.
        unsafe { store(place, Ptr::null()) };
        let taken = outcome.take_memory()?.keep()?;
        // SAFETY: as above.
        unsafe { store(place, taken) };
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { result(operation, write) }
}
