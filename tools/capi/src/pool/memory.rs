//! Memory of a pool: allocate, deallocate, and what is known of an allocation.

#![allow(unsafe_code)] // reads and writes the caller's memory

use std::sync::{Arc, Weak};

use farcore_pool::{PoolError, RemotePool};

use super::handle::{Opened, Pool, closed};
use super::owners::Owner;
use super::place::{Place, placement};
use super::ptr::Ptr;
use crate::boundary::{guard, handle, is_null, store, wanted};
use crate::error::{Code, Failure};

/// The alignment that 0 means, in bytes: that of any C type, as of `malloc`.
const ALIGN_DEFAULT: usize = 16;

/// Memory that an operation has allocated or imported, and that the caller has not taken yet.
#[derive(Debug)]
pub(crate) struct Memory {
    opened: Weak<Opened>,
    owner: Owner,
}

impl Memory {
    pub(super) fn new(opened: &Arc<Opened>, owner: Owner) -> Self {
        Self {
            opened: Arc::downgrade(opened),
            owner,
        }
    }

    /// Makes it the caller's.
    pub(super) fn keep(self) -> Result<Ptr, Failure> {
        let opened = self.opened.upgrade().ok_or_else(closed)?;
        opened.keep(self.owner)
    }
}

/// The pool that allocates at a place, and the alignment that a caller means.
///
/// # Safety
/// As [`placement`].
pub(super) unsafe fn allocator(
    opened: &Opened,
    align: usize,
    place: *const Place,
) -> Result<(RemotePool, usize), Failure> {
    // SAFETY: the caller's promise.
    let placement = unsafe { placement(place) }?;
    let align = if align == 0 { ALIGN_DEFAULT } else { align };
    Ok((opened.remote.at(placement), align))
}

/// Gives a pointer to the caller, null unless a function succeeds.
///
/// # Safety
/// Unless it is null, `ptr` can be written.
pub(super) unsafe fn give_ptr(ptr: *mut Ptr, make: impl FnOnce() -> Result<Ptr, Failure>) -> Code {
    guard(|| {
        let place = wanted("ptr", ptr)?;
        // SAFETY: not null; the rest is the caller's promise.
        unsafe { store(place, Ptr::null()) };
        let made = make()?;
        // SAFETY: as above.
        unsafe { store(place, made) };
        Ok(Code::Ok)
    })
}

/// Allocates `bytes` bytes, the first of them at a multiple of `align`: a power of two up to 4096,
/// or 0 for 16. Their contents are unspecified. `place` says where; it may be null, which means
/// balanced.
///
/// `*ptr` leads to the first byte. The caller owns the memory, and frees it with
/// `farcore_pool_deallocate`; closing the pool frees it, too. `*ptr` is null unless the function
/// returns `FARCORE_OK`.
///
/// Fails with `FARCORE_INVALID_ARGUMENT` (a pointer is null, the alignment or the placement is
/// none), `FARCORE_TOO_LONG`, `FARCORE_EXHAUSTED`, `FARCORE_NO_NODE`, `FARCORE_NODE_DOWN` or
/// `FARCORE_CLOSED`. Any thread may call it. Cost: no round trip if what the pool has claimed of
/// the nodes has room, else two.
///
/// # Safety
/// `pool` came from this library and is not freed. `place` is null or points to a place. `ptr` can
/// be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_pool_allocate(
    pool: *const Pool,
    bytes: usize,
    align: usize,
    place: *const Place,
    ptr: *mut Ptr,
) -> Code {
    let make = || {
        // SAFETY: the caller's promise.
        let opened = unsafe { handle("pool", pool) }?.opened()?;
        // SAFETY: the caller's promise.
        let (remote, align) = unsafe { allocator(&opened, align, place) }?;
        let owner = remote.alloc_bytes(bytes, align).wait()?;
        opened.keep(owner)
    };
    // SAFETY: the caller's promise.
    unsafe { give_ptr(ptr, make) }
}

/// Frees an allocation, given by the pointer to its first byte. A null pointer is left alone. Of
/// memory that was imported, it gives up this pool's share.
///
/// All pointers to it are refused from now on with `FARCORE_FREED`, also if its memory is allocated
/// again. Calls and operations that use it go on; the memory is free after the last of them.
///
/// Fails with `FARCORE_INVALID_ARGUMENT` (`pool` is null, or the pointer does not lead to a first
/// byte), `FARCORE_FREED` (it was freed before), `FARCORE_FOREIGN` or `FARCORE_CLOSED`. Memory that
/// was lost with its node is freed as other memory is. Any thread may call it. Cost: no round trip.
///
/// # Safety
/// `pool` came from this library and is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_pool_deallocate(pool: *const Pool, ptr: Ptr) -> Code {
    guard(|| {
        // SAFETY: the caller's promise.
        let opened = unsafe { handle("pool", pool) }?.opened()?;
        if ptr == Ptr::null() {
            return Ok(Code::Ok);
        }
        opened.check_first(ptr)?;
        drop(opened.owners.take(ptr.name())?);
        Ok(Code::Ok)
    })
}

/// Writes the length of a pointer's allocation to `*bytes`.
///
/// Fails with `FARCORE_INVALID_ARGUMENT` (a pointer is null), `FARCORE_FREED`, `FARCORE_FOREIGN` or
/// `FARCORE_CLOSED`. Any thread may call it. Cost: no round trip.
///
/// # Safety
/// `pool` came from this library and is not freed. `bytes` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_pool_length(
    pool: *const Pool,
    ptr: Ptr,
    bytes: *mut usize,
) -> Code {
    guard(|| {
        let place = wanted("bytes", bytes)?;
        // SAFETY: the caller's promise.
        let opened = unsafe { handle("pool", pool) }?.opened()?;
        let owner = opened.owner(ptr)?;
        // SAFETY: not null; the rest is the caller's promise.
        unsafe { store(place, owner.len()) };
        Ok(Code::Ok)
    })
}

/// Whether the contents of a pointer's allocation are lost.
///
/// Returns `FARCORE_OK` if not, as far as this pool knows; `FARCORE_RENEWED` if they are lost with
/// a node; or `FARCORE_INVALID_ARGUMENT`, `FARCORE_FREED`, `FARCORE_FOREIGN` or `FARCORE_CLOSED`.
/// Any thread may call it. Cost: no round trip.
///
/// # Safety
/// `pool` came from this library and is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_pool_loss(pool: *const Pool, ptr: Ptr) -> Code {
    guard(|| {
        // SAFETY: the caller's promise.
        let opened = unsafe { handle("pool", pool) }?.opened()?;
        match opened.owner(ptr)?.loss() {
            Some(loss) => Err(loss.into()),
            None => Ok(Code::Ok),
        }
    })
}

/// Writes the indexes of the nodes that hold a pointer's allocation, in the order of its bytes, to
/// an array of `capacity`, and how many they are to `*count`. Most allocations are on one node. A
/// node may appear again.
///
/// Fails with `FARCORE_BUFFER_TOO_SMALL` if they are more than the array has (then `*count` is
/// written), with `FARCORE_INVALID_ARGUMENT`, `FARCORE_FREED`, `FARCORE_FOREIGN` or
/// `FARCORE_CLOSED`. `nodes` may be null if `capacity` is 0. Any thread may call it. Cost: no round
/// trip.
///
/// # Safety
/// `pool` came from this library and is not freed. `capacity` numbers at `nodes`, and `count`, can
/// be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_pool_nodes_of(
    pool: *const Pool,
    ptr: Ptr,
    nodes: *mut u32,
    capacity: usize,
    count: *mut usize,
) -> Code {
    guard(|| {
        let place = wanted("count", count)?;
        if nodes.is_null() && capacity > 0 {
            return Err(is_null("nodes"));
        }
        // SAFETY: the caller's promise.
        let opened = unsafe { handle("pool", pool) }?.opened()?;
        let found = opened.owner(ptr)?.nodes();
        // SAFETY: not null; the rest is the caller's promise.
        unsafe { store(place, found.len()) };
        if found.len() > capacity {
            let needed = found.len();
            return Err(Failure::with(
                Code::BufferTooSmall,
                format!("{needed} nodes hold it, the array has {capacity}: give {needed}"),
            ));
        }
        for (index, node) in found.into_iter().enumerate() {
            let node = u32::try_from(node).unwrap_or(u32::MAX);
            // SAFETY: the index is below `capacity`, and the array is not null.
            unsafe { store(nodes.add(index), node) };
        }
        Ok(Code::Ok)
    })
}

/// Checks a length against an allocation, before memory of this process is allocated for it.
pub(super) fn check_length(owner: &Owner, offset: i64, length: usize) -> Result<(), PoolError> {
    if length <= owner.len() {
        return Ok(());
    }
    Err(PoolError::OutOfBounds {
        offset: offset.into(),
        bytes: length as u64,
        limit: owner.len() as u64,
    })
}
