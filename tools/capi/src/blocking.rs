//! The operations, for callers that wait.
//!
//! Each function sends a request, blocks until its outcome is there, and writes the results.

#![allow(unsafe_code)] // reads and writes the caller's memory

use std::ffi::c_void;
use std::ptr;

use farcore_client as native;

use crate::batch::{Batch, keys_of, pairs_of};
use crate::boundary::{bytes, give, guard, handle, store, wanted};
use crate::client::Client;
use crate::conditions::{PutOptions, expiry, expiry_condition};
use crate::error::{Code, Failure};
use crate::operation::copy_out;
use crate::outcome::Outcome;
use crate::requests::{self, Request};
use crate::value::{Metadata, Pair, Slice, Value};

/// Sends a request of a client, and waits for its outcome.
///
/// # Safety
/// Unless it is null, `client` came from this crate and is not freed.
unsafe fn wait_for<T, F: Fn(T) -> Outcome>(
    client: *const Client,
    send: impl FnOnce(&native::Client) -> Request<T, F>,
) -> Result<Outcome, Failure> {
    // SAFETY: the caller's promise.
    let client = unsafe { handle("client", client) }?;
    Ok(client.submit(send)?.outcome())
}

/// Writes the version of an outcome, if it has one, and gives the outcome's code.
///
/// # Safety
/// Unless it is null, `version` can be written.
unsafe fn with_version(outcome: &Outcome, version: *mut u64) -> Result<Code, Failure> {
    if let Some(found) = outcome.version {
        // SAFETY: the caller's promise.
        unsafe { store(version, found) };
    }
    outcome.code()
}

/// Reads a value to `*value`, which the caller owns and frees with `farcore_value_free`. Unless the
/// function returns `FARCORE_OK`, `*value` is all zeros, which may be freed as well.
///
/// Returns `FARCORE_OK`, `FARCORE_NOT_FOUND`, or a common error. Any thread may call it. Cost: a
/// round trip, an allocation, and a copy.
///
/// # Safety
/// `client` came from `farcore_connect` and is not freed. `key` points to `key_length` bytes.
/// `value` can be written; what it held is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_get(
    client: *const Client,
    key: *const c_void,
    key_length: usize,
    value: *mut Value,
) -> Code {
    guard(|| {
        let place = wanted("value", value)?;
        // SAFETY: not null; the rest is the caller's promise.
        unsafe { store(place, Value::none()) };
        // SAFETY: the caller's promise.
        let key = unsafe { bytes("key", key, key_length) }?;
        // SAFETY: the caller's promise.
        let mut outcome = unsafe { wait_for(client, |client| requests::get(client, key)) }?;
        let value = outcome.take_value()?;
        // SAFETY: as above.
        unsafe { store(place, value) };
        Ok(Code::Ok)
    })
}

/// Reads a value into the caller's buffer of `capacity` bytes, and writes its length to `*length`.
///
/// Returns `FARCORE_OK`, `FARCORE_NOT_FOUND`, `FARCORE_BUFFER_TOO_SMALL` if the value is longer
/// than the buffer (then `*length` and `*version` are written, and nothing is copied), or a common
/// error. `buffer` may be null if `capacity` is 0, and `version` may be null. Any thread may call
/// it. Cost: a round trip and a copy, also if the buffer is too small; `farcore_get` reads a value
/// of unknown length at once.
///
/// # Safety
/// `client` came from `farcore_connect` and is not freed. `key` points to `key_length` bytes.
/// `capacity` bytes at `buffer`, `length` and `version` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_get_into(
    client: *const Client,
    key: *const c_void,
    key_length: usize,
    buffer: *mut c_void,
    capacity: usize,
    length: *mut usize,
    version: *mut u64,
) -> Code {
    guard(|| {
        wanted("length", length)?;
        // SAFETY: the caller's promise.
        let key = unsafe { bytes("key", key, key_length) }?;
        // SAFETY: the caller's promise.
        let outcome = unsafe { wait_for(client, |client| requests::get(client, key)) }?;
        // SAFETY: the caller's promise.
        unsafe {
            with_version(&outcome, version)?;
            copy_out(outcome.bytes()?, (buffer, capacity), length)?;
        }
        Ok(Code::Ok)
    })
}

/// Stores a value, which never expires, and writes its version to `*version`, which may be null.
///
/// Returns `FARCORE_OK` or a common error. Any thread may call it. Cost: a round trip (one more for
/// each MiB), and a copy.
///
/// # Safety
/// `client` came from `farcore_connect` and is not freed. `key` and `value` point to as many bytes
/// as their lengths say. `version` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_put(
    client: *const Client,
    key: *const c_void,
    key_length: usize,
    value: *const c_void,
    value_length: usize,
    version: *mut u64,
) -> Code {
    guard(|| {
        // SAFETY: the caller's promise.
        let key = unsafe { bytes("key", key, key_length) }?;
        // SAFETY: the caller's promise.
        let value = unsafe { bytes("value", value, value_length) }?;
        // SAFETY: the caller's promise.
        let outcome = unsafe { wait_for(client, |client| requests::put(client, key, value)) }?;
        // SAFETY: the caller's promise.
        unsafe { with_version(&outcome, version) }
    })
}

/// Stores a value if a condition holds, with an expiry. `options` may be null: always, and it never
/// expires.
///
/// Returns `FARCORE_OK`; `FARCORE_EXISTS`, `FARCORE_NOT_FOUND` or `FARCORE_VERSION_MISMATCH` if the
/// condition (absent, present or a version) does not hold; or a common error. In the first four
/// cases `*version` is written, unless it is null: the version that was stored, 0 if its expiry was
/// past already, or the present one, 0 if the key is absent. Threads and cost as `farcore_put`.
///
/// # Safety
/// As `farcore_put`; `options` is null or points to options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_put_with(
    client: *const Client,
    key: *const c_void,
    key_length: usize,
    value: *const c_void,
    value_length: usize,
    options: *const PutOptions,
    version: *mut u64,
) -> Code {
    guard(|| {
        // SAFETY: the caller's promise.
        let key = unsafe { bytes("key", key, key_length) }?;
        // SAFETY: the caller's promise.
        let value = unsafe { bytes("value", value, value_length) }?;
        // SAFETY: the caller's promise.
        let options = unsafe { PutOptions::of(options) }?;
        let send = |client: &native::Client| requests::put_with(client, key, value, options);
        // SAFETY: the caller's promise.
        let outcome = unsafe { wait_for(client, send) }?;
        // SAFETY: the caller's promise.
        unsafe { with_version(&outcome, version) }
    })
}

/// Removes a key.
///
/// Returns `FARCORE_OK`, `FARCORE_NOT_FOUND`, or a common error. Any thread may call it. Cost: a
/// round trip.
///
/// # Safety
/// `client` came from `farcore_connect` and is not freed. `key` points to `key_length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_delete(
    client: *const Client,
    key: *const c_void,
    key_length: usize,
) -> Code {
    guard(|| {
        // SAFETY: the caller's promise.
        let key = unsafe { bytes("key", key, key_length) }?;
        // SAFETY: the caller's promise.
        let outcome = unsafe { wait_for(client, |client| requests::delete(client, key)) }?;
        outcome.code()
    })
}

/// Removes a key if it has the version `expected`.
///
/// Returns `FARCORE_OK`, `FARCORE_NOT_FOUND`, `FARCORE_VERSION_MISMATCH`, or a common error. In the
/// first three cases `*version` is written, unless it is null: the key's present version, 0 if it
/// is absent. Any thread may call it. Cost: a round trip.
///
/// # Safety
/// As `farcore_delete`; `version` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_delete_if(
    client: *const Client,
    key: *const c_void,
    key_length: usize,
    expected: u64,
    version: *mut u64,
) -> Code {
    guard(|| {
        // SAFETY: the caller's promise.
        let key = unsafe { bytes("key", key, key_length) }?;
        let send = |client: &native::Client| requests::delete_if(client, key, expected);
        // SAFETY: the caller's promise.
        let outcome = unsafe { wait_for(client, send) }?;
        // SAFETY: the caller's promise.
        unsafe { with_version(&outcome, version) }
    })
}

/// Stores a value if the key has the version `expected`; 0 expects that it is absent.
///
/// Returns `FARCORE_OK`, `FARCORE_VERSION_MISMATCH`, or a common error. In the first two cases
/// `*version` is written, unless it is null: the version that was stored, or the present one, 0 if
/// the key is absent. Threads and cost as `farcore_put`.
///
/// # Safety
/// As `farcore_put`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_compare_and_swap(
    client: *const Client,
    key: *const c_void,
    key_length: usize,
    value: *const c_void,
    value_length: usize,
    expected: u64,
    version: *mut u64,
) -> Code {
    guard(|| {
        // SAFETY: the caller's promise.
        let key = unsafe { bytes("key", key, key_length) }?;
        // SAFETY: the caller's promise.
        let value = unsafe { bytes("value", value, value_length) }?;
        let send =
            |client: &native::Client| requests::compare_and_swap(client, key, value, expected);
        // SAFETY: the caller's promise.
        let outcome = unsafe { wait_for(client, send) }?;
        // SAFETY: the caller's promise.
        unsafe { with_version(&outcome, version) }
    })
}

/// Adds to a decimal integer of 64 bits, and writes the sum to `*sum`, which may be null. An absent
/// key counts as 0.
///
/// Returns `FARCORE_OK`, `FARCORE_WRONG_KIND` if the value is no such number, or a common error.
/// Any thread may call it. Cost: a round trip.
///
/// # Safety
/// As `farcore_delete`; `sum` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_increment(
    client: *const Client,
    key: *const c_void,
    key_length: usize,
    by: i64,
    sum: *mut i64,
) -> Code {
    guard(|| {
        // SAFETY: the caller's promise.
        let key = unsafe { bytes("key", key, key_length) }?;
        // SAFETY: the caller's promise.
        let outcome = unsafe { wait_for(client, |client| requests::increment(client, key, by)) }?;
        // SAFETY: the caller's promise.
        unsafe { store(sum, outcome.sum()?) };
        Ok(Code::Ok)
    })
}

/// Sets when a key expires: a `farcore_expiry`, with its time in milliseconds, if a
/// `farcore_expiry_condition` on the present expiry holds.
///
/// Returns `FARCORE_OK`; `FARCORE_NOT_FOUND` if the key is absent or the condition does not hold;
/// or a common error. Any thread may call it. Cost: a round trip.
///
/// # Safety
/// As `farcore_delete`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_expire(
    client: *const Client,
    key: *const c_void,
    key_length: usize,
    kind: u32,
    expiry_ms: u64,
    condition: u32,
) -> Code {
    guard(|| {
        // SAFETY: the caller's promise.
        let key = unsafe { bytes("key", key, key_length) }?;
        let (when, condition) = (expiry(kind, expiry_ms)?, expiry_condition(condition)?);
        let send = |client: &native::Client| requests::expire(client, key, when, condition);
        // SAFETY: the caller's promise.
        let outcome = unsafe { wait_for(client, send) }?;
        outcome.code()
    })
}

/// Reads a key's version, length and expiry without its value to `*metadata`.
///
/// Returns `FARCORE_OK`, `FARCORE_NOT_FOUND`, or a common error. Any thread may call it. Cost: a
/// round trip.
///
/// # Safety
/// As `farcore_delete`; `metadata` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_inspect(
    client: *const Client,
    key: *const c_void,
    key_length: usize,
    metadata: *mut Metadata,
) -> Code {
    guard(|| {
        let place = wanted("metadata", metadata)?;
        // SAFETY: the caller's promise.
        let key = unsafe { bytes("key", key, key_length) }?;
        // SAFETY: the caller's promise.
        let outcome = unsafe { wait_for(client, |client| requests::inspect(client, key)) }?;
        // SAFETY: not null; the rest is the caller's promise.
        unsafe { store(place, outcome.metadata()?) };
        Ok(Code::Ok)
    })
}

/// Whether a key exists.
///
/// Returns `FARCORE_OK` if it does, `FARCORE_NOT_FOUND` if not, or a common error. Any thread may
/// call it. Cost: a round trip.
///
/// # Safety
/// As `farcore_delete`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_exists(
    client: *const Client,
    key: *const c_void,
    key_length: usize,
) -> Code {
    guard(|| {
        // SAFETY: the caller's promise.
        let key = unsafe { bytes("key", key, key_length) }?;
        // SAFETY: the caller's promise.
        let outcome = unsafe { wait_for(client, |client| requests::exists(client, key)) }?;
        outcome.code()
    })
}

/// Sends a message that does nothing, and waits for its answer.
///
/// Returns `FARCORE_OK` or a common error. Any thread may call it. Cost: a round trip.
///
/// # Safety
/// `client` came from `farcore_connect` and is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_ping(client: *const Client) -> Code {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { wait_for(client, requests::ping) }?.code()
    })
}

/// Waits for an operation on many keys, and gives its outcomes to the caller.
///
/// # Safety
/// Unless they are null, `client` came from this crate and is not freed, and `batch` can be
/// written.
unsafe fn many<T, F: Fn(T) -> Outcome>(
    client: *const Client,
    batch: *mut *mut Batch,
    send: impl FnOnce(&native::Client) -> Result<Request<T, F>, Failure>,
) -> Code {
    guard(|| {
        let place = wanted("batch", batch)?;
        // SAFETY: not null; the rest is the caller's promise.
        unsafe { store(place, ptr::null_mut()) };
        // SAFETY: the caller's promise.
        let client = unsafe { handle("client", client) }?;
        let outcomes = client.submit(send)??.outcome().take_batch()?;
        // SAFETY: as above.
        unsafe { give(place, outcomes) };
        Ok(Code::Ok)
    })
}

/// Reads the values of `count` keys. `*batch` has their outcomes in the order of the keys; the
/// caller owns it and frees it with `farcore_batch_free`. It is null unless the function returns
/// `FARCORE_OK`.
///
/// Returns `FARCORE_OK` if each key has an outcome, be it a failure, or a common error. `keys` may
/// be null if `count` is 0. Any thread may call it. Cost: up to 32 keys share a message; a value
/// that fits no shared answer takes a round trip of its own.
///
/// # Safety
/// `client` came from `farcore_connect` and is not freed. `keys` points to `count` slices, and each
/// to its bytes. `batch` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_get_many(
    client: *const Client,
    keys: *const Slice,
    count: usize,
    batch: *mut *mut Batch,
) -> Code {
    // SAFETY: the caller's promise.
    unsafe {
        many(client, batch, |client| {
            Ok(requests::get_many(client, &keys_of(keys, count)?))
        })
    }
}

/// Stores `count` values. They are not stored together: each has its outcome, with its version.
///
/// Returns and gives `*batch` as `farcore_get_many`. `pairs` may be null if `count` is 0. Any
/// thread may call it. Cost: up to 32 short values share a message of 4 KiB; a longer one takes a
/// round trip of its own.
///
/// # Safety
/// `client` came from `farcore_connect` and is not freed. `pairs` points to `count` pairs, and each
/// to its bytes. `batch` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_put_many(
    client: *const Client,
    pairs: *const Pair,
    count: usize,
    batch: *mut *mut Batch,
) -> Code {
    // SAFETY: the caller's promise.
    unsafe {
        many(client, batch, |client| {
            Ok(requests::put_many(client, &pairs_of(pairs, count)?))
        })
    }
}

/// Removes `count` keys. They are not removed together: each has its outcome, `FARCORE_OK` or
/// `FARCORE_NOT_FOUND`.
///
/// Returns and gives `*batch` as `farcore_get_many`; so are threads, safety and what may be null.
/// Cost: up to 32 keys share a message.
///
/// # Safety
/// As `farcore_get_many`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_delete_many(
    client: *const Client,
    keys: *const Slice,
    count: usize,
    batch: *mut *mut Batch,
) -> Code {
    // SAFETY: the caller's promise.
    unsafe {
        many(client, batch, |client| {
            Ok(requests::delete_many(client, &keys_of(keys, count)?))
        })
    }
}
