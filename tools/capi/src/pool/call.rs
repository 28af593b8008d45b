//! Procedures of programs that host memory nodes: bytes are sent, and bytes are answered.

#![allow(unsafe_code)] // reads and writes the caller's memory

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use super::handle::{Opened, Pool};
use super::ptr::Ptr;
use super::submit::submit;
use crate::boundary::{bytes, guard, handle, store, utf8};
use crate::error::{Code, Failure};
use crate::operation::Operation;
use crate::outcome::Returned;
use crate::value::Value;

/// Gives an answer to the caller, who may want none.
///
/// # Safety
/// Unless it is null, `answer` can be written.
unsafe fn answered(answer: *mut Value, call: impl FnOnce() -> Result<Vec<u8>, Failure>) -> Code {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { store(answer, Value::none()) };
        let made = call()?;
        if answer.is_null() {
            return Ok(Code::Ok);
        }
        // SAFETY: as above.
        unsafe { store(answer, Value::new(made, 0)) };
        Ok(Code::Ok)
    })
}

/// Calls a procedure of the program that hosts the node with an index, with `length` bytes as its
/// argument, and writes the bytes that it answers to `*answer`; each has 32 KiB at most.
///
/// The caller owns `*answer`, and frees it with `farcore_value_free`; it is all zeros unless the
/// function returns `FARCORE_OK`. It may be null: then the answer is dropped. `argument` may be
/// null if `length` is 0.
///
/// Fails with `FARCORE_PROCEDURE` (the host has none of this name, it failed or is late, or the
/// argument or the name is too long), `FARCORE_NO_NODE`, `FARCORE_RENEWED`,
/// `FARCORE_UNKNOWN_OUTCOME` if the connection broke, `FARCORE_INVALID_ARGUMENT` or
/// `FARCORE_CLOSED`. Any thread may call it; the calls of one pool to one node run one after
/// another. Cost: a round trip, and what the procedure takes.
///
/// # Safety
/// `pool` came from this library and is not freed. `procedure` is ended by a zero. `argument`
/// points to `length` bytes. `answer` is null or can be written; what it held is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_pool_call(
    pool: *const Pool,
    node: u32,
    procedure: *const c_char,
    argument: *const c_void,
    length: usize,
    answer: *mut Value,
) -> Code {
    let call = || {
        // SAFETY: the caller's promise.
        let opened = unsafe { handle("pool", pool) }?.opened()?;
        // SAFETY: the caller's promise.
        let name = unsafe { utf8("procedure", procedure) }?;
        // SAFETY: the caller's promise.
        let argument = unsafe { bytes("argument", argument, length) }?;
        let remote = &opened.remote;
        Ok(remote.call_bytes(node as usize, name, argument).wait()?)
    };
    // SAFETY: the caller's promise.
    unsafe { answered(answer, call) }
}

/// Calls a procedure of the program that hosts the node of an allocation, which is given by the
/// pointer to its first byte. The procedure may read and write it. Only its owner may do so, and it
/// must lie in one place.
///
/// Gives `*answer` and fails as `farcore_pool_call`, or with a common error of pools. If a call is
/// late, or its outcome unknown, the memory is not allocated again before this pool is closed.
/// Threads and cost as `farcore_pool_call`.
///
/// # Safety
/// As `farcore_pool_call`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_pool_call_on(
    pool: *const Pool,
    target: Ptr,
    procedure: *const c_char,
    argument: *const c_void,
    length: usize,
    answer: *mut Value,
) -> Code {
    let call = || {
        // SAFETY: the caller's promise.
        let opened = unsafe { handle("pool", pool) }?.opened()?;
        opened.check_first(target)?;
        let owner = opened.owner(target)?;
        // SAFETY: the caller's promise.
        let name = unsafe { utf8("procedure", procedure) }?;
        // SAFETY: the caller's promise.
        let argument = unsafe { bytes("argument", argument, length) }?;
        Ok(owner.call_bytes(name, argument).wait()?)
    };
    // SAFETY: the caller's promise.
    unsafe { answered(answer, call) }
}

/// Submits a call of a procedure. `farcore_operation_take_value` gives its answer. Name and
/// argument are copied.
///
/// Gives `*operation` and returns as `farcore_pool_submit_allocate`; its codes are those of
/// `farcore_pool_call`. Any thread may call it. Cost: some allocations; does not wait.
///
/// # Safety
/// `pool` came from this library and is not freed. `procedure` is ended by a zero. `argument`
/// points to `length` bytes. `operation` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_pool_submit_call(
    pool: *const Pool,
    node: u32,
    procedure: *const c_char,
    argument: *const c_void,
    length: usize,
    operation: *mut *mut Operation,
) -> Code {
    let begin = |opened: Arc<Opened>| {
        // SAFETY: the caller's promise.
        let name = unsafe { utf8("procedure", procedure) }?.to_owned();
        // SAFETY: the caller's promise.
        let argument = unsafe { bytes("argument", argument, length) }?.to_vec();
        Ok(async move {
            let call = opened.remote.call_bytes(node as usize, &name, &argument);
            Ok(Returned::Value(call.await?))
        })
    };
    // SAFETY: the caller's promise.
    unsafe { submit(pool, operation, begin) }
}

/// Submits a call of a procedure on an allocation. `farcore_operation_take_value` gives its answer.
///
/// Gives `*operation` and returns as `farcore_pool_submit_read`; its codes are those of
/// `farcore_pool_call_on`. Name and argument are copied. Any thread may call it. Cost: some
/// allocations; does not wait.
///
/// # Safety
/// As `farcore_pool_submit_call`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_pool_submit_call_on(
    pool: *const Pool,
    target: Ptr,
    procedure: *const c_char,
    argument: *const c_void,
    length: usize,
    operation: *mut *mut Operation,
) -> Code {
    let begin = |opened: Arc<Opened>| {
        opened.check_first(target)?;
        let owner = opened.owner(target)?;
        // SAFETY: the caller's promise.
        let name = unsafe { utf8("procedure", procedure) }?.to_owned();
        // SAFETY: the caller's promise.
        let argument = unsafe { bytes("argument", argument, length) }?.to_vec();
        Ok(async move { Ok(Returned::Value(owner.call_bytes(&name, &argument).await?)) })
    };
    // SAFETY: the caller's promise.
    unsafe { submit(pool, operation, begin) }
}
