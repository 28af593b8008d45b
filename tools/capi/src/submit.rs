//! The operations, for callers that poll.
//!
//! Each function sends a request and returns at once. The arguments are copied, so the caller may
//! free them when it returns. What is wrong with a key's or value's length is the operation's
//! outcome, as what the server says.

#![allow(unsafe_code)] // reads and writes the caller's memory

use std::ffi::c_void;
use std::ptr;

use farcore_client as native;

use crate::batch::{keys_of, pairs_of};
use crate::boundary::{bytes, give, guard, handle, store, wanted};
use crate::client::Client;
use crate::conditions::{PutOptions, expiry, expiry_condition};
use crate::error::{Code, Failure};
use crate::operation::Operation;
use crate::requests::{self, Running};
use crate::value::{Pair, Slice};

/// Sends a request of a client, and gives the operation to the caller.
///
/// # Safety
/// Unless they are null, `client` came from this crate and is not freed, and `operation` can be
/// written.
unsafe fn submit<R: Running + 'static>(
    client: *const Client,
    operation: *mut *mut Operation,
    send: impl FnOnce(&native::Client) -> Result<R, Failure>,
) -> Code {
    guard(|| {
        let place = wanted("operation", operation)?;
        // SAFETY: not null; the rest is the caller's promise.
        unsafe { store(place, ptr::null_mut()) };
        // SAFETY: the caller's promise.
        let client = unsafe { handle("client", client) }?;
        let running = client.submit(send)??;
        // SAFETY: as above.
        unsafe { give(place, Operation::new(running)) };
        Ok(Code::Ok)
    })
}

/// Submits a get. Its value is taken with `farcore_operation_take_value` or copied with
/// `farcore_operation_copy_value`; its version is `farcore_operation_version`.
///
/// `*operation` is the caller's, who polls it with `farcore_poll` or `farcore_wait` and frees it
/// with `farcore_operation_free`. It is null unless the function returns `FARCORE_OK`.
///
/// Returns `FARCORE_OK`, `FARCORE_INVALID_ARGUMENT` or `FARCORE_CLOSED`. All other errors are the
/// operation's outcome, with the codes of `farcore_get`. Any thread may call it. Cost: two
/// allocations and a copy of the key; does not wait.
///
/// # Safety
/// `client` came from `farcore_connect` and is not freed. `key` points to `key_length` bytes.
/// `operation` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_submit_get(
    client: *const Client,
    key: *const c_void,
    key_length: usize,
    operation: *mut *mut Operation,
) -> Code {
    let send = |client: &native::Client| {
        // SAFETY: the caller's promise.
        let key = unsafe { bytes("key", key, key_length) }?;
        Ok(requests::get(client, key))
    };
    // SAFETY: the caller's promise.
    unsafe { submit(client, operation, send) }
}

/// Submits a put of a value that never expires. `farcore_operation_version` gives its version.
///
/// Gives `*operation`, returns and costs as `farcore_submit_get`; its codes are those of
/// `farcore_put`. The value is copied too.
///
/// # Safety
/// As `farcore_submit_get`; `value` points to `value_length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_submit_put(
    client: *const Client,
    key: *const c_void,
    key_length: usize,
    value: *const c_void,
    value_length: usize,
    operation: *mut *mut Operation,
) -> Code {
    let send = |client: &native::Client| {
        // SAFETY: the caller's promise.
        let key = unsafe { bytes("key", key, key_length) }?;
        // SAFETY: the caller's promise.
        let value = unsafe { bytes("value", value, value_length) }?;
        Ok(requests::put(client, key, value))
    };
    // SAFETY: the caller's promise.
    unsafe { submit(client, operation, send) }
}

/// Submits a put with a condition and an expiry. `options` may be null. `farcore_operation_version`
/// gives its version, or the present one.
///
/// Gives `*operation`, returns and costs as `farcore_submit_get`; its codes are those of
/// `farcore_put_with`. The value is copied too.
///
/// # Safety
/// As `farcore_submit_get`; `value` points to `value_length` bytes, `options` is null or points to
/// options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_submit_put_with(
    client: *const Client,
    key: *const c_void,
    key_length: usize,
    value: *const c_void,
    value_length: usize,
    options: *const PutOptions,
    operation: *mut *mut Operation,
) -> Code {
    let send = |client: &native::Client| {
        // SAFETY: the caller's promise.
        let key = unsafe { bytes("key", key, key_length) }?;
        // SAFETY: the caller's promise.
        let value = unsafe { bytes("value", value, value_length) }?;
        // SAFETY: the caller's promise.
        let options = unsafe { PutOptions::of(options) }?;
        Ok(requests::put_with(client, key, value, options))
    };
    // SAFETY: the caller's promise.
    unsafe { submit(client, operation, send) }
}

/// Submits a delete.
///
/// Gives `*operation`, returns and costs as `farcore_submit_get`; its codes are those of
/// `farcore_delete`.
///
/// # Safety
/// As `farcore_submit_get`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_submit_delete(
    client: *const Client,
    key: *const c_void,
    key_length: usize,
    operation: *mut *mut Operation,
) -> Code {
    let send = |client: &native::Client| {
        // SAFETY: the caller's promise.
        let key = unsafe { bytes("key", key, key_length) }?;
        Ok(requests::delete(client, key))
    };
    // SAFETY: the caller's promise.
    unsafe { submit(client, operation, send) }
}

/// Submits a delete of a key that has a version. `farcore_operation_version` gives the present one.
///
/// Gives `*operation`, returns and costs as `farcore_submit_get`; its codes are those of
/// `farcore_delete_if`.
///
/// # Safety
/// As `farcore_submit_get`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_submit_delete_if(
    client: *const Client,
    key: *const c_void,
    key_length: usize,
    expected: u64,
    operation: *mut *mut Operation,
) -> Code {
    let send = |client: &native::Client| {
        // SAFETY: the caller's promise.
        let key = unsafe { bytes("key", key, key_length) }?;
        Ok(requests::delete_if(client, key, expected))
    };
    // SAFETY: the caller's promise.
    unsafe { submit(client, operation, send) }
}

/// Submits a compare-and-swap. `farcore_operation_version` gives the stored version, or the present
/// one.
///
/// Gives `*operation`, returns and costs as `farcore_submit_get`; its codes are those of
/// `farcore_compare_and_swap`. The value is copied too.
///
/// # Safety
/// As `farcore_submit_get`; `value` points to `value_length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_submit_compare_and_swap(
    client: *const Client,
    key: *const c_void,
    key_length: usize,
    value: *const c_void,
    value_length: usize,
    expected: u64,
    operation: *mut *mut Operation,
) -> Code {
    let send = |client: &native::Client| {
        // SAFETY: the caller's promise.
        let key = unsafe { bytes("key", key, key_length) }?;
        // SAFETY: the caller's promise.
        let value = unsafe { bytes("value", value, value_length) }?;
        Ok(requests::compare_and_swap(client, key, value, expected))
    };
    // SAFETY: the caller's promise.
    unsafe { submit(client, operation, send) }
}

/// Submits an increment. `farcore_operation_sum` gives its sum.
///
/// Gives `*operation`, returns and costs as `farcore_submit_get`; its codes are those of
/// `farcore_increment`.
///
/// # Safety
/// As `farcore_submit_get`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_submit_increment(
    client: *const Client,
    key: *const c_void,
    key_length: usize,
    by: i64,
    operation: *mut *mut Operation,
) -> Code {
    let send = |client: &native::Client| {
        // SAFETY: the caller's promise.
        let key = unsafe { bytes("key", key, key_length) }?;
        Ok(requests::increment(client, key, by))
    };
    // SAFETY: the caller's promise.
    unsafe { submit(client, operation, send) }
}

/// Submits a new expiry.
///
/// Gives `*operation`, returns and costs as `farcore_submit_get`; its codes are those of
/// `farcore_expire`.
///
/// # Safety
/// As `farcore_submit_get`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_submit_expire(
    client: *const Client,
    key: *const c_void,
    key_length: usize,
    kind: u32,
    expiry_ms: u64,
    condition: u32,
    operation: *mut *mut Operation,
) -> Code {
    let send = |client: &native::Client| {
        // SAFETY: the caller's promise.
        let key = unsafe { bytes("key", key, key_length) }?;
        let (when, condition) = (expiry(kind, expiry_ms)?, expiry_condition(condition)?);
        Ok(requests::expire(client, key, when, condition))
    };
    // SAFETY: the caller's promise.
    unsafe { submit(client, operation, send) }
}

/// Submits an inspect. `farcore_operation_metadata` gives what it found.
///
/// Gives `*operation`, returns and costs as `farcore_submit_get`; its codes are those of
/// `farcore_inspect`.
///
/// # Safety
/// As `farcore_submit_get`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_submit_inspect(
    client: *const Client,
    key: *const c_void,
    key_length: usize,
    operation: *mut *mut Operation,
) -> Code {
    let send = |client: &native::Client| {
        // SAFETY: the caller's promise.
        let key = unsafe { bytes("key", key, key_length) }?;
        Ok(requests::inspect(client, key))
    };
    // SAFETY: the caller's promise.
    unsafe { submit(client, operation, send) }
}

/// Submits the question whether a key exists.
///
/// Gives `*operation`, returns and costs as `farcore_submit_get`; its codes are those of
/// `farcore_exists`.
///
/// # Safety
/// As `farcore_submit_get`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_submit_exists(
    client: *const Client,
    key: *const c_void,
    key_length: usize,
    operation: *mut *mut Operation,
) -> Code {
    let send = |client: &native::Client| {
        // SAFETY: the caller's promise.
        let key = unsafe { bytes("key", key, key_length) }?;
        Ok(requests::exists(client, key))
    };
    // SAFETY: the caller's promise.
    unsafe { submit(client, operation, send) }
}

/// Submits a message that does nothing.
///
/// Gives `*operation`, returns and costs as `farcore_submit_get`; its codes are those of
/// `farcore_ping`.
///
/// # Safety
/// As `farcore_submit_get`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_submit_ping(
    client: *const Client,
    operation: *mut *mut Operation,
) -> Code {
    let send = |client: &native::Client| Ok(requests::ping(client));
    // SAFETY: the caller's promise.
    unsafe { submit(client, operation, send) }
}

/// Submits a get of `count` keys. `farcore_operation_take_batch` gives its outcomes.
///
/// Gives `*operation`, returns and costs as `farcore_submit_get`; its codes are those of
/// `farcore_get_many`.
///
/// # Safety
/// As `farcore_submit_get`; `keys` points to `count` slices, and each to its bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_submit_get_many(
    client: *const Client,
    keys: *const Slice,
    count: usize,
    operation: *mut *mut Operation,
) -> Code {
    let send = |client: &native::Client| {
        // SAFETY: the caller's promise.
        let keys = unsafe { keys_of(keys, count) }?;
        Ok(requests::get_many(client, &keys))
    };
    // SAFETY: the caller's promise.
    unsafe { submit(client, operation, send) }
}

/// Submits a put of `count` values. `farcore_operation_take_batch` gives its outcomes.
///
/// Gives `*operation`, returns and costs as `farcore_submit_get`; its codes are those of
/// `farcore_put_many`.
///
/// # Safety
/// As `farcore_submit_get`; `pairs` points to `count` pairs, and each to its bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_submit_put_many(
    client: *const Client,
    pairs: *const Pair,
    count: usize,
    operation: *mut *mut Operation,
) -> Code {
    let send = |client: &native::Client| {
        // SAFETY: the caller's promise.
        let pairs = unsafe { pairs_of(pairs, count) }?;
        Ok(requests::put_many(client, &pairs))
    };
    // SAFETY: the caller's promise.
    unsafe { submit(client, operation, send) }
}

/// Submits a delete of `count` keys. `farcore_operation_take_batch` gives its outcomes.
///
/// Gives `*operation`, returns and costs as `farcore_submit_get`; its codes are those of
/// `farcore_delete_many`.
///
/// # Safety
/// As `farcore_submit_get`; `keys` points to `count` slices, and each to its bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_submit_delete_many(
    client: *const Client,
    keys: *const Slice,
    count: usize,
    operation: *mut *mut Operation,
) -> Code {
    let send = |client: &native::Client| {
        // SAFETY: the caller's promise.
        let keys = unsafe { keys_of(keys, count) }?;
        Ok(requests::delete_many(client, &keys))
    };
    // SAFETY: the caller's promise.
    unsafe { submit(client, operation, send) }
}
