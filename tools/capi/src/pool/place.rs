//! Where memory is allocated.

#![allow(unsafe_code)] // reads the caller's memory

use std::ffi::c_char;

use farcore_pool as native;

use crate::boundary::{copied, utf8};
use crate::error::Failure;

/// On which nodes memory is allocated.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// On one node, drawn by free memory and load; a node of the pool's zone if one has room.
    Balanced = 0,
    /// On the node with an index, in the order of the addresses.
    Node = 1,
    /// On a node of a zone.
    Zone = 2,
    /// On any node but the one with an index: for a second copy. A node of another zone is
    /// preferred.
    Beside = 3,
    /// In equal parts on all nodes.
    Spread = 4,
}

/// Where memory is allocated. All zeros: balanced.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// On which nodes: a `farcore_placement`.
    pub placement: u32,
    /// The index of `FARCORE_PLACEMENT_NODE` or `FARCORE_PLACEMENT_BESIDE`; else ignored.
    pub node: u32,
    /// The zone of `FARCORE_PLACEMENT_ZONE`, in UTF-8, ended by a zero; else ignored.
    pub zone: *const c_char,
}

/// The placement that a caller gives; null is balanced.
///
/// # Safety
/// Unless it is null, `place` points to a place, whose zone is as its kind requires.
pub(super) unsafe fn placement(place: *const Place) -> Result<native::Placement, Failure> {
    use native::Placement as Known;
    // SAFETY: the caller's promise.
    let Some(place) = (unsafe { copied(place) }) else {
        return Ok(Known::Balanced);
    };
    let node = place.node as usize;
    Ok(match place.placement {
        kind if kind == Placement::Balanced as u32 => Known::Balanced,
        kind if kind == Placement::Node as u32 => Known::Node(node),
        kind if kind == Placement::Zone as u32 => {
            // SAFETY: the caller's promise.
            let zone = unsafe { utf8("zone", place.zone) }?;
            Known::Zone(zone.to_owned())
        }
        kind if kind == Placement::Beside as u32 => Known::Beside(node),
        kind if kind == Placement::Spread as u32 => Known::Spread,
        kind => {
            return Err(Failure::invalid(format!(
                "`placement` is {kind}: must be a farcore_placement, 0 to 4"
            )));
        }
    })
}
