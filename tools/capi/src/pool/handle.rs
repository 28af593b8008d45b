//! A pool's handle: connect, embedded, close, free.
//!
//! - I1: closing leaves the handle. What uses it afterwards, also in another thread, fails with
//!   [`Code::Closed`]; only freeing ends its memory.

#![allow(unsafe_code)] // reads the caller's memory

use std::ffi::c_char;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use farcore_pool::{NodeAddress, PoolError, RemotePool};

use super::options::PoolOptions;
use super::owners::{Owner, Owners};
use super::ptr::Ptr;
use crate::boundary::{
    give, guard, guard_free, handle, slice, store, take_back_here, utf8, wanted,
};
use crate::error::{Code, Failure};
use crate::process::Process;

/// The longest pool in this process, in bytes: what a process can address.
const EMBEDDED_BYTES_MAX: u64 = 1 << 47;

/// Numbers the pools of this process; 0 is none.
static NEXT_POOL: AtomicU64 = AtomicU64::new(1);

/// A pool of remote memory, for any number of threads.
#[derive(Debug)]
pub struct Pool {
    process: Process,
    opened: RwLock<Option<Arc<Opened>>>,
}

/// A pool that is not closed, or that operations still use.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) id: u64,
    pub(super) remote: RemotePool,
    pub(super) owners: Owners,
}

impl Opened {
    /// Checks that a pointer is this pool's.
    pub(super) fn check(&self, ptr: Ptr) -> Result<(), Failure> {
        if ptr.pool == 0 {
            return Err(Failure::invalid(
                "the pointer is null: use one that `farcore_pool_allocate` gave",
            ));
        }
        let (other, this) = (ptr.pool, self.id);
        if other != this {
            return Err(PoolError::Foreign { other, this }.into());
        }
        Ok(())
    }

    /// The allocation that a pointer leads to.
    pub(super) fn owner(&self, ptr: Ptr) -> Result<Arc<Owner>, Failure> {
        self.check(ptr)?;
        Ok(self.owners.get(ptr.name())?)
    }

    /// The allocation of a pointer, which must lead to its first byte.
    pub(super) fn check_first(&self, ptr: Ptr) -> Result<(), Failure> {
        self.check(ptr)?;
        if ptr.offset != 0 {
            return Err(Failure::invalid(format!(
                "the pointer leads to byte {} of its allocation: give the one to its first byte",
                ptr.offset
            )));
        }
        Ok(())
    }

    /// Makes memory the caller's.
    pub(super) fn keep(&self, owner: Owner) -> Result<Ptr, Failure> {
        let name = self.owners.put(owner).ok_or_else(|| {
            Failure::new(
                Code::Exhausted,
                c"the pool has 2^32 allocations: free some, or allocate larger ones",
            )
        })?;
        Ok(Ptr::to_first(self.id, name))
    }
}

impl Pool {
    fn new(remote: RemotePool) -> Self {
        let opened = Opened {
            // ORDERING: relaxed; only the number's uniqueness matters.
            id: NEXT_POOL.fetch_add(1, Ordering::Relaxed),
            remote,
            owners: Owners::default(),
        };
        Self {
            process: Process::this(),
            opened: RwLock::new(Some(Arc::new(opened))),
        }
    }

    /// The pool, unless it is closed.
    pub(super) fn opened(&self) -> Result<Arc<Opened>, Failure> {
        self.process.check()?;
        let opened = self.opened.read().unwrap_or_else(PoisonError::into_inner);
        opened.clone().ok_or_else(closed)
    }

    fn close(&self) {
        if !self.process.is_this() {
            return;
        }
        let opened = self
            .opened
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(opened) = opened else {
            return;
        };
        // Operations under way may hold the pool; its memory is freed now, but for what they use.
        opened.owners.clear();
        // Waits for the pool's threads, so the lock is given back before.
        drop(opened);
    }
}

/// Why a closed pool does nothing.
pub(super) fn closed() -> Failure {
    Failure::new(
        Code::Closed,
        c"the pool is closed: connect again with farcore_pool_connect",
    )
}

/// Gives a pool to the caller.
///
/// # Safety
/// Unless it is null, `pool` can be written.
unsafe fn open(
    pool: *mut *mut Pool,
    connect: impl FnOnce() -> Result<RemotePool, Failure>,
) -> Code {
    guard(|| {
        let place = wanted("pool", pool)?;
        // SAFETY: not null; the rest is the caller's promise.
        unsafe { store(place, ptr::null_mut()) };
        let remote = connect()?;
        // SAFETY: as above.
        unsafe { give(place, Pool::new(remote)) };
        Ok(Code::Ok)
    })
}

/// Connects to `count` memory nodes, each named as `[zone=]scheme://host[:port]` with the schemes
/// `tcp`, `rdma` and `rdma+tcp`, and opens a session at each.
///
/// The caller owns `*pool`, closes it with `farcore_pool_close` and frees it with
/// `farcore_pool_free`. `options` may be null, which means the defaults; they are copied. Starts a
/// thread for the sessions, one for their heartbeats, and one for each connection. A lost
/// connection is made again. Any number of threads may use the pool. To a child of `fork` it is
/// closed.
/// Blocks until the nodes answer, for the time that the options say at most.
///
/// Fails with `FARCORE_INVALID_ARGUMENT` (a pointer is null, no node is named, or one twice, an
/// address is none, an option is out of range), `FARCORE_UNREACHABLE` (too few nodes can be used;
/// the text says why), `FARCORE_WRONG_TOKEN` or `FARCORE_CANNOT_START`. Then `*pool` is null.
///
/// # Safety
/// `nodes` points to `count` texts that are ended by zeros. `options` is null or came from
/// `farcore_pool_options_new`. `pool` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_pool_connect(
    nodes: *const *const c_char,
    count: usize,
    options: *const PoolOptions,
    pool: *mut *mut Pool,
) -> Code {
    let connect = || {
        // SAFETY: the caller's promise.
        let texts = unsafe { slice("nodes", nodes, count) }?;
        let mut names = Vec::with_capacity(texts.len());
        for &text in texts {
            // SAFETY: the caller's promise.
            let name = unsafe { utf8("node", text) }?;
            let address = name.parse::<NodeAddress>();
            address.map_err(|error| Failure::invalid(error.to_string()))?;
            names.push(name);
        }
        if names.is_empty() {
            return Err(Failure::invalid("`count` is 0: name at least one node"));
        }
        // SAFETY: the caller's promise.
        let options = unsafe { options.as_ref() };
        let options = options.map_or_else(Default::default, |options| options.0.clone());
        Ok(RemotePool::connect(names, options)?)
    };
    // SAFETY: the caller's promise.
    unsafe { open(pool, connect) }
}

/// Makes a pool of `bytes` in this process, for a first program and for tests: no node is needed.
/// What is allocated in it cannot be exported.
///
/// The caller owns `*pool`, as that of `farcore_pool_connect`.
///
/// Fails with `FARCORE_INVALID_ARGUMENT` if `pool` is null, or with `FARCORE_CANNOT_START` if the
/// process cannot have the memory or a thread. Then `*pool` is null.
///
/// # Safety
/// `pool` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_pool_embedded(bytes: u64, pool: *mut *mut Pool) -> Code {
    let start = |text: String| Failure::with(Code::CannotStart, text);
    let connect = || {
        if bytes > EMBEDDED_BYTES_MAX {
            let limit = EMBEDDED_BYTES_MAX;
            return Err(start(format!(
                "a pool of {bytes} bytes in this process: the limit is {limit}"
            )));
        }
        RemotePool::embedded(bytes).map_err(|error| start(error.to_string()))
    };
    // SAFETY: the caller's promise.
    unsafe { open(pool, connect) }
}

/// Closes a pool: frees what was allocated in it, and ends its sessions.
///
/// The handle stays: calls that use it fail with `FARCORE_CLOSED`, and `farcore_pool_free` frees
/// it. Calls and operations under way end with their own outcomes; the sessions end when the last
/// of them has ended or was freed. Any thread may close a pool, while others use it and more than
/// once. Blocks until the nodes have answered, for some seconds at most.
///
/// Fails with `FARCORE_INVALID_ARGUMENT` if `pool` is null.
///
/// # Safety
/// `pool` is null, or came from `farcore_pool_connect` or `farcore_pool_embedded` and is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_pool_close(pool: *mut Pool) -> Code {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { handle("pool", pool) }?.close();
        Ok(Code::Ok)
    })
}

/// Closes a pool, and frees its handle; null, and what is of a parent process, are left alone.
/// Operations under way are freed on their own. Blocks as `farcore_pool_close`. Cannot fail.
///
/// # Safety
/// `pool` is null, or came from `farcore_pool_connect` or `farcore_pool_embedded`. No other thread
/// uses it, and it is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_pool_free(pool: *mut Pool) {
    // SAFETY: the caller's promise.
    guard_free(|| unsafe { take_back_here(pool, |pool| pool.process) });
}
