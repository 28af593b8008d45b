//! The places of an access to many.

#![allow(unsafe_code)] // reads the caller's memory

use std::ffi::c_void;
use std::sync::Arc;

use farcore_pool::{BytesRead, BytesWrite};

use super::handle::Opened;
use super::owners::Owner;
use super::ptr::Ptr;
use crate::boundary::{bytes, bytes_to_write, slice};
use crate::error::Failure;

/// Bytes that are to be read.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ReadPart {
    /// Where they are.
    pub from: Ptr,
    /// The memory that receives them. Ignored by `farcore_pool_submit_read_many`.
    pub into: *mut c_void,
    /// How many.
    pub length: usize,
}

/// Bytes that are to be stored.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct WritePart {
    /// Where they go.
    pub to: Ptr,
    /// The bytes; may be null if `length` is 0.
    pub from: *const c_void,
    /// How many.
    pub length: usize,
}

/// The parts of a caller, each with the allocation that it is in.
pub(super) type Parts<'a, T> = Vec<(Arc<Owner>, &'a T)>;

/// The parts of a caller that are to be read.
///
/// # Safety
/// `parts` points to `count` parts, which outlive `'a` and do not change.
pub(super) unsafe fn read_parts<'a>(
    opened: &Opened,
    parts: *const ReadPart,
    count: usize,
) -> Result<Parts<'a, ReadPart>, Failure> {
    // SAFETY: the caller's promise.
    let parts = unsafe { slice("parts", parts, count) }?.iter();
    let find = |part: &'a ReadPart| Ok((opened.owner(part.from)?, part));
    parts.map(find).collect()
}

/// The parts of a caller that are to be stored.
///
/// # Safety
/// As [`read_parts`].
pub(super) unsafe fn write_parts<'a>(
    opened: &Opened,
    parts: *const WritePart,
    count: usize,
) -> Result<Parts<'a, WritePart>, Failure> {
    // SAFETY: the caller's promise.
    let parts = unsafe { slice("parts", parts, count) }?.iter();
    let find = |part: &'a WritePart| Ok((opened.owner(part.to)?, part));
    parts.map(find).collect()
}

/// Fails if two buffers of the caller overlap.
fn check_apart(parts: &Parts<'_, ReadPart>) -> Result<(), Failure> {
    let filled = parts.iter().filter(|(_, part)| part.length > 0);
    let mut buffers: Vec<_> = filled
        .map(|(_, part)| (part.into.addr(), part.length))
        .collect();
    buffers.sort_unstable();
    let overlap = buffers.windows(2).any(|two| two[1].0 - two[0].0 < two[0].1);
    if overlap {
        return Err(Failure::invalid(
            "two buffers of the parts overlap: give each part its own",
        ));
    }
    Ok(())
}

/// Reads into the caller's buffers.
///
/// # Safety
/// Each part's `length` bytes at `into` outlive `'a`, and nothing else uses them meanwhile.
pub(super) unsafe fn reads<'a>(
    parts: &'a Parts<'_, ReadPart>,
) -> Result<Vec<BytesRead<'a>>, Failure> {
    check_apart(parts)?;
    let read = |(owner, part): &'a (Arc<Owner>, &ReadPart)| {
        Ok(BytesRead {
            slice: owner,
            offset: part.from.offset,
            // SAFETY: the caller's promise; no two overlap.
            into: unsafe { bytes_to_write("into", part.into, part.length) }?,
        })
    };
    parts.iter().map(read).collect()
}

/// Writes of the caller's bytes.
///
/// # Safety
/// Each part's `length` bytes at `from` outlive `'a` and do not change.
pub(super) unsafe fn writes<'a>(
    parts: &'a Parts<'_, WritePart>,
) -> Result<Vec<BytesWrite<'a>>, Failure> {
    let write = |(owner, part): &'a (Arc<Owner>, &WritePart)| {
        Ok(BytesWrite {
            slice: owner,
            offset: part.to.offset,
            // SAFETY: the caller's promise.
            from: unsafe { bytes("from", part.from, part.length) }?,
        })
    };
    parts.iter().map(write).collect()
}
