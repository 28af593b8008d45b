//! Values and metadata, in the caller's memory.

#![allow(unsafe_code)] // gives memory to the caller, and takes it back

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ptr;

use farcore_client as client;

use crate::boundary::{copied, guard_free, store};

/// `expiry_ms` of a key that does not expire.
pub const NEVER: u64 = 0xffff_ffff_ffff_ffff;

/// Bytes that a caller gives, such as a key.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    /// The bytes; may be null if `length` is 0.
    pub bytes: *const c_void,
    /// How many.
    pub length: usize,
}

/// A key and the value to store under it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// The key.
    pub key: Slice,
    /// The value.
    pub value: Slice,
}

/// A value that was read. The caller owns it, and frees it with `farcore_value_free`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Value {
    /// The bytes; never null while the value is not freed.
    pub bytes: *mut u8,
    /// How many.
    pub length: usize,
    /// The key's version.
    pub version: u64,
    /// How many bytes are allocated. Used when the value is freed; leave it as it is.
    pub capacity: usize,
}

/// What is known of a key beside its value.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metadata {
    /// The version.
    pub version: u64,
    /// Bytes of the value.
    pub length: u64,
    /// When it expires, in milliseconds since 1970; `FARCORE_NEVER` if it does not.
    pub expiry_ms: u64,
    /// The key holds a collection, as a hash of the Redis protocol is: only that protocol reads it.
    pub is_collection: bool,
}

impl Value {
    /// No value: all zeros.
    pub(crate) fn none() -> Self {
        Self {
            bytes: ptr::null_mut(),
            length: 0,
            version: 0,
            capacity: 0,
        }
    }

    pub(crate) fn new(bytes: Vec<u8>, version: u64) -> Self {
        let mut bytes = ManuallyDrop::new(bytes);
        Self {
            // Of a vector without memory this is no null pointer either.
            bytes: bytes.as_mut_ptr(),
            length: bytes.len(),
            version,
            capacity: bytes.capacity(),
        }
    }
}

impl Value {
    /// A text, with a zero behind it that is not counted.
    pub(crate) fn text(text: String) -> Self {
        let length = text.len();
        let mut bytes = text.into_bytes();
        bytes.push(0);
        Self {
            length,
            ..Self::new(bytes, 0)
        }
    }
}

impl From<client::Metadata> for Metadata {
    fn from(found: client::Metadata) -> Self {
        Self {
            version: found.version,
            length: found.length,
            expiry_ms: found.expiry_ms.unwrap_or(NEVER),
            is_collection: found.collection,
        }
    }
}

/// Frees a value's bytes, and sets all of its fields to 0. A null pointer, and a value of zeros,
/// are left alone; so freeing twice does no harm.
///
/// Any thread may free a value, one at a time. Cannot fail. Cost: one call of the allocator.
///
/// # Safety
/// `value` is null, or points to a value of zeros, or to one that this library has filled and whose
/// `bytes` and `capacity` have not changed. No copy of it is used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_value_free(value: *mut Value) {
    guard_free(|| {
        // SAFETY: null, or the caller's, which no other thread uses now.
        let Some(found) = (unsafe { copied(value) }) else {
            return;
        };
        // SAFETY: as above.
        unsafe { store(value, Value::none()) };
        if found.capacity > 0 {
            // SAFETY: `Value::new` took both from a vector. A length of 0 is right for any.
            drop(unsafe { Vec::from_raw_parts(found.bytes, 0, found.capacity) });
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_freed_once() {
        for bytes in [Vec::new(), Vec::with_capacity(100), b"abc".to_vec()] {
            let length = bytes.len();
            let mut value = Value::new(bytes, 7);
            assert_eq!((value.length, value.version), (length, 7));
            assert!(!value.bytes.is_null());
            for _ in 0..2 {
                // SAFETY: this crate's, and of zeros the second time.
                unsafe { farcore_value_free(&raw mut value) };
                assert!(value.bytes.is_null());
                assert_eq!((value.length, value.version, value.capacity), (0, 0, 0));
            }
        }
        // SAFETY: null is left alone.
        unsafe { farcore_value_free(std::ptr::null_mut()) };
    }
}
