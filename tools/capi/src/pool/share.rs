//! Memory that processes share: types, export, import, transfer.

#![allow(unsafe_code)] // reads and writes the caller's memory

use std::ffi::c_char;

use farcore_pool::plain::mark;
use farcore_pool::{Exported, Plain};

use super::handle::Pool;
use super::memory::give_ptr;
use super::ptr::Ptr;
use crate::boundary::{copied, guard, handle, slice, store, utf8, wanted};
use crate::error::{Code, Failure};
use crate::value::Value;

/// The type of the values that shared memory holds. A program that imports must expect the type
/// that was exported.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Type {
    /// A mark of the type, which `farcore_type_of` computes.
    pub mark: u64,
    /// Bytes of one value.
    pub bytes: u64,
}

/// The type that a caller gives; null is bytes.
///
/// # Safety
/// Unless it is null, `holds` points to a type.
pub(super) unsafe fn type_of(holds: *const Type) -> Result<Type, Failure> {
    // SAFETY: the caller's promise.
    let Some(holds) = (unsafe { copied(holds) }) else {
        let (mark, bytes) = (u8::MARK, 1);
        return Ok(Type { mark, bytes });
    };
    if holds.bytes == 0 {
        return Err(Failure::invalid(
            "the type has 0 bytes: give the length of a value",
        ));
    }
    Ok(holds)
}

/// The exported pointer that a text says.
///
/// # Safety
/// As [`type_of`].
pub(super) unsafe fn exported_from(
    text: &str,
    holds: *const Type,
) -> Result<Exported<u8>, Failure> {
    // SAFETY: the caller's promise.
    let Type { mark, bytes } = unsafe { type_of(holds) }?;
    Ok(Exported::from_text_as(text, mark, bytes)?)
}

/// Computes the type of values of `bytes` bytes from its name, in UTF-8, and the marks of its
/// `count` parts.
///
/// For the types of Rust programs, as `farcore-pool` names them: an integer, a float, `bool` and
/// `char` by their names in Rust ("u64", "f32") without parts; an array by "array", with the mark
/// of an element and the length; a struct by its name, with the mark of each field, which is that
/// of the field's name with the mark of its type as its only part. Among programs in C any names
/// do.
///
/// Fails with `FARCORE_INVALID_ARGUMENT` if a pointer is null, the name is not UTF-8, or `bytes` is
/// 0. `parts` may be null if `count` is 0. Any thread may call it. Cost: no allocation.
///
/// # Safety
/// `name` is ended by a zero. `parts` points to `count` marks. `holds` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_type_of(
    name: *const c_char,
    parts: *const u64,
    count: usize,
    bytes: u64,
    holds: *mut Type,
) -> Code {
    guard(|| {
        let place = wanted("holds", holds)?;
        // SAFETY: the caller's promise.
        let name = unsafe { utf8("name", name) }?;
        // SAFETY: the caller's promise.
        let parts = unsafe { slice("parts", parts, count) }?;
        let mark = mark(name, parts);
        // SAFETY: a type of this crate.
        let checked = unsafe { type_of(&Type { mark, bytes }) }?;
        // SAFETY: not null; the rest is the caller's promise.
        unsafe { store(place, checked) };
        Ok(Code::Ok)
    })
}

/// Gives a text to the caller, all zeros unless a function succeeds.
///
/// # Safety
/// Unless it is null, `text` can be written.
unsafe fn give_text(text: *mut Value, make: impl FnOnce() -> Result<String, Failure>) -> Code {
    guard(|| {
        let place = wanted("text", text)?;
        // SAFETY: not null; the rest is the caller's promise.
        unsafe { store(place, Value::none()) };
        let made = make()?;
        // SAFETY: as above.
        unsafe { store(place, Value::text(made)) };
        Ok(Code::Ok)
    })
}

/// Exports an allocation, given by the pointer to its first byte: writes a text to `*text` by which
/// other processes can share the memory. `holds` says which values it has; it may be null, which
/// means bytes. With `may_write` the others may write it, too.
///
/// The text is ended by a zero. The caller owns it, and frees it with `farcore_value_free`; it is
/// all zeros unless the function returns `FARCORE_OK`. A program that has the text can access the
/// memory, so it is a secret. The memory lives until the last process that has imported it and this
/// one have freed it; if this process dies, until the last of them has.
///
/// Fails with `FARCORE_EMBEDDED` (memory of this process), `FARCORE_GONE` (it was imported),
/// `FARCORE_WRONG_TYPE` (the length is no multiple of the type's), `FARCORE_INVALID_ARGUMENT`, or a
/// common error of pools. Any thread may call it. Cost: a round trip the first time.
///
/// # Safety
/// `pool` came from this library and is not freed. `holds` is null or points to a type. `text` can
/// be written; what it held is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_pool_export(
    pool: *const Pool,
    ptr: Ptr,
    holds: *const Type,
    may_write: bool,
    text: *mut Value,
) -> Code {
    let make = || {
        // SAFETY: the caller's promise.
        let opened = unsafe { handle("pool", pool) }?.opened()?;
        opened.check_first(ptr)?;
        let owner = opened.owner(ptr)?;
        // SAFETY: the caller's promise.
        let Type { mark, bytes } = unsafe { type_of(holds) }?;
        let exported = owner.export(may_write).wait()?;
        Ok(exported.to_text_as(mark, bytes)?)
    };
    // SAFETY: the caller's promise.
    unsafe { give_text(text, make) }
}

/// Gives an allocation away: writes a text to `*text` by which one other process becomes its owner,
/// who frees it. All pointers to it are refused from now on with `FARCORE_FREED`. Until the other
/// process has imported the text, the memory lives as long as this pool.
///
/// Gives `*text` as `farcore_pool_export`, and fails as it does. `FARCORE_IN_USE` says that calls
/// or operations under way use the memory. After an error the memory is still the caller's, unless
/// the node fails in the last step: then it is freed, and pointers to it are refused with
/// `FARCORE_FREED`. Any thread may call it. Cost: four round trips.
///
/// # Safety
/// As `farcore_pool_export`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_pool_transfer(
    pool: *const Pool,
    ptr: Ptr,
    holds: *const Type,
    text: *mut Value,
) -> Code {
    let make = || {
        // SAFETY: the caller's promise.
        let opened = unsafe { handle("pool", pool) }?.opened()?;
        opened.check_first(ptr)?;
        // SAFETY: the caller's promise.
        let Type { mark, bytes } = unsafe { type_of(holds) }?;
        // What can fail fails while the memory is still the caller's.
        let exported = opened.owner(ptr)?.export(true).wait()?;
        exported.to_text_as(mark, bytes)?;
        let owner = opened.owners.take_unused(ptr.name())?;
        Ok(owner.transfer()?.to_text_as(mark, bytes)?)
    };
    // SAFETY: the caller's promise.
    unsafe { give_text(text, make) }
}

/// Imports memory that another process has exported, or given away. `holds` says which values are
/// expected; it may be null, which means bytes.
///
/// `*ptr` leads to its first byte, and is null unless the function returns `FARCORE_OK`. The caller
/// owns a share, or the memory if it was given away, and frees it with `farcore_pool_deallocate`.
///
/// Fails with `FARCORE_MALFORMED` (the text is no exported pointer), `FARCORE_WRONG_TYPE`,
/// `FARCORE_OTHER_NODE` (this pool has no session at a node that holds it), `FARCORE_GONE` (it was
/// freed or taken, or its exporter has ended), `FARCORE_INVALID_ARGUMENT`, or a common error of
/// pools. Any thread may call it. Cost: some round trips.
///
/// # Safety
/// `pool` came from this library and is not freed. `text` is ended by a zero. `holds` is null or
/// points to a type. `ptr` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_pool_import(
    pool: *const Pool,
    text: *const c_char,
    holds: *const Type,
    ptr: *mut Ptr,
) -> Code {
    let make = || {
        // SAFETY: the caller's promise.
        let opened = unsafe { handle("pool", pool) }?.opened()?;
        // SAFETY: the caller's promise.
        let exported = unsafe { exported_from(utf8("text", text)?, holds) }?;
        let owner = opened.remote.import(&exported).wait()?;
        opened.keep(owner)
    };
    // SAFETY: the caller's promise.
    unsafe { give_ptr(ptr, make) }
}
