//! The figures of a pool's memory nodes.

#![allow(unsafe_code)] // writes the caller's memory

use std::ffi::c_char;

use farcore_pool as native;

use super::handle::Pool;
use crate::boundary::{guard, handle, store, wanted};
use crate::error::{Code, Failure};

/// Bytes of the texts of a `farcore_node`, with the zero that ends them. A longer text is cut off.
pub const NODE_TEXT_BYTES: usize = 256;

/// A memory node, as a pool knows it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Node {
    /// Whether it answers.
    pub is_up: bool,
    /// How often its session was renewed, with the loss of all that was allocated.
    pub renewals: u64,
    /// The length of its extents, in which it lends memory, in bytes.
    pub extent_bytes: u64,
    /// Bytes that it lends, to all its clients.
    pub lent_bytes: u64,
    /// Bytes that none of its clients held when last seen.
    pub free_bytes: u64,
    /// Bytes that this pool has claimed.
    pub claimed_bytes: u64,
    /// Bytes of them that are allocated, with what rounding adds.
    pub allocated_bytes: u64,
    /// Its zone and address, ended by a zero; "this process" for an embedded pool.
    pub address: [c_char; NODE_TEXT_BYTES],
    /// Why it does not answer, ended by a zero; empty if it does.
    pub reason: [c_char; NODE_TEXT_BYTES],
}

/// A text in an array, cut off between two characters if it is too long.
fn fixed(text: &str) -> [c_char; NODE_TEXT_BYTES] {
    let mut fixed = [0; NODE_TEXT_BYTES];
    let end = text.floor_char_boundary(NODE_TEXT_BYTES - 1);
    for (place, byte) in fixed.iter_mut().zip(text[..end].bytes()) {
        *place = c_char::from_le_bytes([byte]);
    }
    fixed
}

impl From<&native::NodeFigures> for Node {
    fn from(found: &native::NodeFigures) -> Self {
        Self {
            is_up: found.is_up,
            renewals: found.renewals,
            extent_bytes: found.extent_bytes,
            lent_bytes: found.lent_bytes,
            free_bytes: found.free_bytes,
            claimed_bytes: found.claimed_bytes,
            allocated_bytes: found.allocated_bytes,
            address: fixed(&found.to_string()),
            reason: fixed(found.reason.as_deref().unwrap_or_default()),
        }
    }
}

/// Writes how many memory nodes a pool has to `*count`; their indexes begin at 0, in the order of
/// their addresses.
///
/// Fails with `FARCORE_INVALID_ARGUMENT` if a pointer is null, or with `FARCORE_CLOSED`. Any thread
/// may call it. Cost: no round trip.
///
/// # Safety
/// `pool` came from this library and is not freed. `count` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_pool_node_count(pool: *const Pool, count: *mut u32) -> Code {
    guard(|| {
        let place = wanted("count", count)?;
        // SAFETY: the caller's promise.
        let opened = unsafe { handle("pool", pool) }?.opened()?;
        let count = opened.remote.nodes().len();
        // SAFETY: not null; the rest is the caller's promise.
        unsafe { store(place, u32::try_from(count).unwrap_or(u32::MAX)) };
        Ok(Code::Ok)
    })
}

/// Writes the figures of the node with an index to `*node`.
///
/// Fails with `FARCORE_INVALID_ARGUMENT` if a pointer is null, with `FARCORE_NO_NODE` if the pool
/// has no such node, or with `FARCORE_CLOSED`. Any thread may call it. Cost: no round trip.
///
/// # Safety
/// `pool` came from this library and is not freed. `node` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_pool_node(pool: *const Pool, index: u32, node: *mut Node) -> Code {
    guard(|| {
        let place = wanted("node", node)?;
        // SAFETY: the caller's promise.
        let opened = unsafe { handle("pool", pool) }?.opened()?;
        let nodes = opened.remote.nodes();
        let found = nodes.get(index as usize).ok_or_else(|| {
            let count = nodes.len();
            Failure::with(
                Code::NoNode,
                format!("`index` is {index}: the pool has {count} nodes"),
            )
        })?;
        // SAFETY: not null; the rest is the caller's promise.
        unsafe { store(place, Node::from(found)) };
        Ok(Code::Ok)
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    #[test]
    fn a_long_text_is_cut_off_between_characters() {
        let long = format!("{}é and more", "a".repeat(NODE_TEXT_BYTES - 2));
        let text = fixed(&long);
        // SAFETY: its last byte is a zero.
        let text = unsafe { CStr::from_ptr(text.as_ptr()) };
        assert_eq!(text.to_bytes(), "a".repeat(NODE_TEXT_BYTES - 2).as_bytes());
        assert_eq!(fixed("")[0], 0);
    }
}
