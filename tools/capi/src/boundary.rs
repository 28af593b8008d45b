//! What every exported function does with pointers, errors and panics.
//!
//! - I1: a panic becomes [`Code::Panicked`].
//! - I2: a null pointer, and a length that no object of the caller can have, become
//!   [`Code::InvalidArgument`].

#![allow(unsafe_code)] // reads and writes the caller's memory

use std::any::Any;
use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{Code, Failure, raise};
use crate::process::Process;

/// Runs the body of an exported function. Its failure, or its panic, becomes a code.
pub(crate) fn guard(body: impl FnOnce() -> Result<Code, Failure>) -> Code {
    // What a panic may leave half done is behind locks, whose owners tolerate it.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(code)) => code,
        Ok(Err(failure)) => raise(failure),
        Err(panic) => raise(panicked(panic.as_ref())),
    }
}

/// As [`guard`], for functions that return nothing.
pub(crate) fn guard_free(body: impl FnOnce()) {
    guard(|| {
        body();
        Ok(Code::Ok)
    });
}

fn panicked(panic: &(dyn Any + Send)) -> Failure {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("without a text");
    Failure::with(
        Code::Panicked,
        format!("a fault of this library, which is to be reported: {text}"),
    )
}

pub(crate) fn is_null(name: &str) -> Failure {
    Failure::invalid(format!("`{name}` is null: give a pointer"))
}

/// Bytes of the caller.
///
/// # Safety
/// Unless it is null, `bytes` points to `length` bytes, which outlive `'a` and do not change.
pub(crate) unsafe fn bytes<'a>(
    name: &str,
    bytes: *const c_void,
    length: usize,
) -> Result<&'a [u8], Failure> {
    // SAFETY: the caller's promise. A byte is aligned everywhere.
    unsafe { slice(name, bytes.cast(), length) }
}

/// An array of the caller. It may be null if its length is 0.
///
/// # Safety
/// Unless it is null, `items` points to `length` items, which outlive `'a` and do not change.
pub(crate) unsafe fn slice<'a, T>(
    name: &str,
    items: *const T,
    length: usize,
) -> Result<&'a [T], Failure> {
    if length == 0 {
        return Ok(&[]);
    }
    if items.is_null() {
        return Err(is_null(name));
    }
    if !items.is_aligned() {
        return Err(Failure::invalid(format!("`{name}` is not aligned")));
    }
    let max = isize::MAX.unsigned_abs() / size_of::<T>();
    if length > max {
        return Err(Failure::invalid(format!(
            "`{name}` has length {length}: the limit is {max}; was a negative number given?"
        )));
    }
    // SAFETY: not null, aligned, within the address space; the rest is the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(items, length) })
}

/// Bytes of the caller that are to be written.
///
/// # Safety
/// Unless it is null, `bytes` points to `length` bytes, which outlive `'a` and which nothing else
/// uses meanwhile.
pub(crate) unsafe fn bytes_to_write<'a>(
    name: &str,
    bytes: *mut c_void,
    length: usize,
) -> Result<&'a mut [u8], Failure> {
    // SAFETY: the caller's promise; only the pointer and the length are used.
    let checked = unsafe { slice::<u8>(name, bytes.cast_const().cast(), length) }?.len();
    if checked == 0 {
        return Ok(&mut []);
    }
    // SAFETY: checked as those that are read. What the caller has not set is of unknown value, and
    // is only written.
    Ok(unsafe { std::slice::from_raw_parts_mut(bytes.cast(), checked) })
}

/// A text of the caller, without its zero.
///
/// # Safety
/// Unless it is null, `text` is ended by a zero, outlives `'a` and does not change.
pub(crate) unsafe fn text<'a>(name: &str, text: *const c_char) -> Result<&'a CStr, Failure> {
    if text.is_null() {
        return Err(is_null(name));
    }
    // SAFETY: not null; the rest is the caller's promise.
    Ok(unsafe { CStr::from_ptr(text) })
}

/// A text of the caller that must be UTF-8.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn utf8<'a>(name: &str, given: *const c_char) -> Result<&'a str, Failure> {
    // SAFETY: the caller's promise.
    let text = unsafe { text(name, given) }?;
    let text = text.to_str();
    text.map_err(|error| Failure::invalid(format!("`{name}` is not UTF-8: {error}")))
}

/// Something of this crate that the caller holds.
///
/// # Safety
/// Unless it is null, `handle` came from this crate, and it is not freed during `'a`.
pub(crate) unsafe fn handle<'a, T>(name: &str, handle: *const T) -> Result<&'a T, Failure> {
    // SAFETY: the caller's promise.
    unsafe { handle.as_ref() }.ok_or_else(|| is_null(name))
}

/// Fails if a place for a result is null.
pub(crate) fn wanted<T>(name: &str, place: *mut T) -> Result<*mut T, Failure> {
    if place.is_null() {
        return Err(is_null(name));
    }
    Ok(place)
}

/// Writes a result, unless its place is null.
///
/// # Safety
/// Unless it is null, `place` can be written.
pub(crate) unsafe fn store<T>(place: *mut T, result: T) {
    if !place.is_null() {
        // SAFETY: not null; the rest is the caller's promise. What was there is not dropped. A
        // member of a packed struct may lie anywhere.
        unsafe { place.write_unaligned(result) }
    }
}

/// A copy of a struct of the caller; `None` if it is null.
///
/// # Safety
/// Unless it is null, `given` points to a struct.
pub(crate) unsafe fn copied<T: Copy>(given: *const T) -> Option<T> {
    // SAFETY: not null; the rest is the caller's promise. It may lie anywhere, as in `store`.
    (!given.is_null()).then(|| unsafe { given.read_unaligned() })
}

/// Gives something to the caller.
///
/// # Safety
/// As [`store`].
pub(crate) unsafe fn give<T>(place: *mut *mut T, thing: T) {
    // SAFETY: the caller's promise.
    unsafe { store(place, Box::into_raw(Box::new(thing))) }
}

/// Takes back what [`give`] gave, and drops it.
///
/// # Safety
/// Unless it is null, `thing` came from [`give`], and is not used again.
pub(crate) unsafe fn take_back<T>(thing: *mut T) {
    if !thing.is_null() {
        // SAFETY: not null; the rest is the caller's promise.
        drop(unsafe { Box::from_raw(thing) });
    }
}

/// As [`take_back`], unless the thing is of a parent of this process: then it stays as it is.
///
/// # Safety
/// As [`take_back`].
pub(crate) unsafe fn take_back_here<T>(thing: *mut T, made_in: impl FnOnce(&T) -> Process) {
    // SAFETY: the caller's promise.
    if unsafe { thing.as_ref() }.is_none_or(|thing| made_in(thing).is_this()) {
        // SAFETY: as above.
        unsafe { take_back(thing) }
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    fn said() -> String {
        let text = crate::error::farcore_error_message();
        // SAFETY: it is never null, and no call fails meanwhile.
        unsafe { CStr::from_ptr(text) }
            .to_string_lossy()
            .into_owned()
    }

    #[test]
    fn a_panic_becomes_a_code() {
        let code = guard(|| panic!("number {}", 7));
        assert_eq!(code, Code::Panicked);
        assert!(said().ends_with("number 7"), "{}", said());
        assert_eq!(guard(|| panic!("plain")), Code::Panicked);
        assert!(said().ends_with("plain"), "{}", said());
        guard_free(|| std::panic::panic_any(7_u8));
        assert!(said().ends_with("without a text"), "{}", said());
    }

    #[test]
    fn wrong_pointers_and_lengths_are_refused() {
        // SAFETY: null, length 0, or refused before it is read.
        unsafe {
            assert_eq!(bytes("key", ptr::null(), 0), Ok(&[][..]));
            let failure = bytes("key", ptr::null(), 1).expect_err("null");
            assert_eq!(failure, is_null("key"));
            let one = [7_u64; 2];
            let from = one.as_ptr();
            assert_eq!(bytes("key", from.cast(), 1).map(<[u8]>::len), Ok(1));
            assert!(bytes("key", from.cast(), usize::MAX).is_err());
            assert!(slice("keys", from, usize::MAX / 8).is_err());
            assert_eq!(bytes_to_write("into", ptr::null_mut(), 0), Ok(&mut [][..]));
            assert!(bytes_to_write("into", ptr::null_mut(), 1).is_err());
            assert!(bytes_to_write("into", from.cast_mut().cast(), usize::MAX).is_err());
            assert!(slice("keys", from.byte_add(1), 1).is_err());
            assert_eq!(slice("keys", from, 2), Ok(&one[..]));
            assert!(utf8("address", c"\xff".as_ptr()).is_err());
            assert!(text("address", ptr::null()).is_err());
            assert!(handle("client", ptr::null::<u8>()).is_err());
            store(ptr::null_mut(), 1);
            take_back(ptr::null_mut::<u8>());
        }
        assert!(wanted("value", ptr::null_mut::<u8>()).is_err());
    }
}
