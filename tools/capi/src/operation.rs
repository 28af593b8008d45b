//! An operation under way: poll, wait, results, free.
//!
//! ```text
//! submit -> under way -> ended -> free
//!              |           |
//!           pending     results, some of which are taken once
//! ```
//!
//! - I1: freeing an operation of a client does not stop it, and closing its client does not free
//!   it.

#![allow(unsafe_code)] // writes the caller's memory

use std::ffi::c_void;
use std::fmt;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::batch::Batch;
use crate::boundary::{give, guard, guard_free, handle, is_null, store, take_back_here, wanted};
use crate::error::{Code, Failure};
use crate::outcome::Outcome;
use crate::process::Process;
use crate::requests::Running;
use crate::value::{Metadata, Value};

/// Waits without a limit of its own: the operation's time limit bounds it.
pub const NO_LIMIT: u64 = 0xffff_ffff_ffff_ffff;

/// The longest wait, in milliseconds: two days. No operation lasts longer than a day, and the clock
/// reaches the end of any wait.
const WAIT_MS_MAX: u64 = 2 * 24 * 3_600_000;

enum State {
    UnderWay(Box<dyn Running>),
    Ended(Outcome),
}

/// An operation that was submitted.
pub struct Operation {
    process: Process,
    state: Mutex<State>,
}

impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_ended = matches!(*self.state(), State::Ended(_));
        f.debug_struct("Operation")
            .field("process", &self.process)
            .field("has_ended", &has_ended)
            .finish()
    }
}

impl Operation {
    pub(crate) fn new(running: impl Running + 'static) -> Self {
        Self {
            process: Process::this(),
            state: Mutex::new(State::UnderWay(Box::new(running))),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The outcome, if the operation has ended by a function's judgement.
    fn ended(
        &mut self,
        end: impl FnOnce(&mut dyn Running) -> Option<Outcome>,
    ) -> Option<&mut Outcome> {
        if let Self::UnderWay(running) = self {
            *self = Self::Ended(end(running.as_mut())?);
        }
        match self {
            Self::Ended(outcome) => Some(outcome),
            Self::UnderWay(_) => None,
        }
    }
}

/// Gives the outcome of an operation to a function, if it has ended.
///
/// # Safety
/// Unless it is null, `operation` came from this crate and is not freed.
unsafe fn with_outcome(
    operation: *const Operation,
    end: impl FnOnce(&mut dyn Running) -> Option<Outcome>,
    with: impl FnOnce(&mut Outcome) -> Result<Code, Failure>,
) -> Code {
    guard(|| {
        // SAFETY: the caller's promise.
        let operation = unsafe { handle("operation", operation) }?;
        operation.process.check()?;
        match operation.state().ended(end) {
            Some(outcome) => with(outcome),
            None => Ok(Code::Pending),
        }
    })
}

/// Gives a result of an operation to a function that writes it, if the operation has ended.
///
/// # Safety
/// As [`with_outcome`].
pub(crate) unsafe fn result(
    operation: *const Operation,
    write: impl FnOnce(&mut Outcome) -> Result<(), Failure>,
) -> Code {
    let write = |outcome: &mut Outcome| write(outcome).map(|()| Code::Ok);
    // SAFETY: the caller's promise.
    unsafe { with_outcome(operation, |running| running.poll(), write) }
}

/// Whether an operation has ended, and how. Does not wait.
///
/// Returns `FARCORE_PENDING` while it has not, then always its code: those of the blocking function
/// of its kind. Any thread may call it, one at a time for one operation; a second one waits for the
/// first. Cost: a lock without contention.
///
/// # Safety
/// `operation` is null (`FARCORE_INVALID_ARGUMENT`), or came from this library and is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_poll(operation: *mut Operation) -> Code {
    // SAFETY: the caller's promise.
    unsafe {
        with_outcome(
            operation,
            |running| running.poll(),
            |outcome| outcome.code(),
        )
    }
}

/// Waits until an operation has ended, for `timeout_ms` milliseconds at most, or without a limit of
/// its own if that is `FARCORE_NO_LIMIT`: the client's time limit bounds it then.
///
/// Returns as `farcore_poll`. `FARCORE_PENDING` means that the operation goes on: wait again, or
/// free it. Any thread may call it, one at a time for one operation; a second one waits for the
/// first.
///
/// # Safety
/// As `farcore_poll`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_wait(operation: *mut Operation, timeout_ms: u64) -> Code {
    let limit = Duration::from_millis(timeout_ms.min(WAIT_MS_MAX));
    let limit = (timeout_ms != NO_LIMIT).then_some(limit);
    // SAFETY: the caller's promise.
    unsafe {
        with_outcome(
            operation,
            |running| running.wait(limit),
            |outcome| outcome.code(),
        )
    }
}

/// Writes the version that an operation returned to `*version`: of a get, put, compare-and-swap or
/// inspect; and the present version if a condition on it did not hold.
///
/// Returns `FARCORE_OK`, `FARCORE_PENDING` if it has not ended, its code if it has no version
/// because it failed, or `FARCORE_INVALID_ARGUMENT` if a pointer is null or its kind returns no
/// version. Threads and cost as `farcore_poll`.
///
/// # Safety
/// As `farcore_poll`; `version` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_operation_version(
    operation: *mut Operation,
    version: *mut u64,
) -> Code {
    let write = |outcome: &mut Outcome| {
        let place = wanted("version", version)?;
        // SAFETY: not null; the rest is the caller's promise.
        unsafe { store(place, outcome.version()?) };
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { result(operation, write) }
}

/// Moves the value of a get to `*value`. The caller owns it, and frees it with
/// `farcore_value_free`.
///
/// Returns `FARCORE_OK`, `FARCORE_PENDING` if the operation has not ended, its code if it failed,
/// `FARCORE_TAKEN` if the value was taken before, or `FARCORE_INVALID_ARGUMENT` if a pointer is
/// null or its kind returns no value. Threads as `farcore_poll`. Cost: nothing is copied.
///
/// # Safety
/// As `farcore_poll`; `value` can be written. What it held is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_operation_take_value(
    operation: *mut Operation,
    value: *mut Value,
) -> Code {
    let write = |outcome: &mut Outcome| {
        let place = wanted("value", value)?;
        // SAFETY: not null; the rest is the caller's promise.
        unsafe { store(place, Value::none()) };
        let value = outcome.take_value()?;
        // SAFETY: not null; the rest is the caller's promise.
        unsafe { store(place, value) };
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { result(operation, write) }
}

/// Copies the value of a get into the caller's buffer of `capacity` bytes, and writes its length to
/// `*length`. The operation keeps the value.
///
/// Returns as `farcore_operation_take_value`, or `FARCORE_BUFFER_TOO_SMALL` if the value is longer
/// than the buffer: then `*length` is written, and nothing is copied. `buffer` may be null if
/// `capacity` is 0. Threads as `farcore_poll`. Cost: a copy.
///
/// # Safety
/// As `farcore_poll`; `length`, and `capacity` bytes at `buffer`, can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_operation_copy_value(
    operation: *mut Operation,
    buffer: *mut c_void,
    capacity: usize,
    length: *mut usize,
) -> Code {
    // SAFETY: the caller's promise.
    let write =
        |outcome: &mut Outcome| unsafe { copy_out(outcome.bytes()?, (buffer, capacity), length) };
    // SAFETY: the caller's promise.
    unsafe { result(operation, write) }
}

/// Copies a value into a caller's buffer, and writes its length, also if it does not fit.
///
/// # Safety
/// Unless they are null, `length`, and as many bytes at the buffer as it has, can be written.
pub(crate) unsafe fn copy_out(
    bytes: &[u8],
    (buffer, capacity): (*mut c_void, usize),
    length: *mut usize,
) -> Result<(), Failure> {
    let length = wanted("length", length)?;
    if buffer.is_null() && capacity > 0 {
        return Err(is_null("buffer"));
    }
    // SAFETY: not null; the rest is the caller's promise.
    unsafe { store(length, bytes.len()) };
    if bytes.len() > capacity {
        let needed = bytes.len();
        return Err(Failure::with(
            Code::BufferTooSmall,
            format!("the value has {needed} bytes, the buffer {capacity}: give {needed}"),
        ));
    }
    if !bytes.is_empty() {
        // SAFETY: the buffer is not null and has that many bytes. The value is this crate's memory,
        // so they do not overlap.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.cast(), bytes.len()) };
    }
    Ok(())
}

/// Writes what an inspect returned to `*metadata`.
///
/// Returns `FARCORE_OK`, `FARCORE_PENDING` if it has not ended, its code if it failed, or
/// `FARCORE_INVALID_ARGUMENT` if a pointer is null or its kind returns no metadata. Threads and
/// cost as `farcore_poll`.
///
/// # Safety
/// As `farcore_poll`; `metadata` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_operation_metadata(
    operation: *mut Operation,
    metadata: *mut Metadata,
) -> Code {
    let write = |outcome: &mut Outcome| {
        let place = wanted("metadata", metadata)?;
        // SAFETY: not null; the rest is the caller's promise.
        unsafe { store(place, outcome.metadata()?) };
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { result(operation, write) }
}

/// Writes the sum that an increment returned to `*sum`.
///
/// Returns `FARCORE_OK`, `FARCORE_PENDING` if it has not ended, its code if it failed, or
/// `FARCORE_INVALID_ARGUMENT` if a pointer is null or its kind returns no sum. Threads and cost as
/// `farcore_poll`.
///
/// # Safety
/// As `farcore_poll`; `sum` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_operation_sum(operation: *mut Operation, sum: *mut i64) -> Code {
    let write = |outcome: &mut Outcome| {
        let place = wanted("sum", sum)?;
        // SAFETY: not null; the rest is the caller's promise.
        unsafe { store(place, outcome.sum()?) };
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { result(operation, write) }
}

/// Moves the outcomes of an operation on many keys to `*batch`. The caller owns them, and frees
/// them with `farcore_batch_free`.
///
/// Returns `FARCORE_OK`, `FARCORE_PENDING` if the operation has not ended, its code if it failed as
/// a whole, `FARCORE_TAKEN` if they were taken before, or `FARCORE_INVALID_ARGUMENT` if a pointer
/// is null or its kind returns no batch. Threads as `farcore_poll`. Cost: an allocation.
///
/// # Safety
/// As `farcore_poll`; `batch` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_operation_take_batch(
    operation: *mut Operation,
    batch: *mut *mut Batch,
) -> Code {
    let write = |outcome: &mut Outcome| {
        let place = wanted("batch", batch)?;
        // SAFETY: not null; the rest is the caller's promise.
        unsafe { store(place, ptr::null_mut()) };
        let batch = outcome.take_batch()?;
        // SAFETY: not null; the rest is the caller's promise.
        unsafe { give(place, batch) };
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { result(operation, write) }
}

/// Frees an operation; null, and what is of a parent process, are left alone. One that has not
/// ended goes on, and its outcome is lost; one of a pool may end half done. Values, batches and
/// pointers that were taken from it stay. Cannot fail.
///
/// # Safety
/// `operation` is null, or came from this library. No other thread uses it, and it is not used
/// afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_operation_free(operation: *mut Operation) {
    // SAFETY: the caller's promise.
    guard_free(|| unsafe { take_back_here(operation, |operation| operation.process) });
}
