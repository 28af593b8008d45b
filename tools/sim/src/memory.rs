//! Counts what is allocated on each thread, by who allocates it: an engine, or the simulation.
//!
//! ```text
//! | .. | owner:8 | 0:56 | what the caller gets ..
//! ```
//!
//! - I1: memory is counted for its first owner until it is freed, on which behalf ever.

#![allow(unsafe_code)] // an allocator

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr;

use farcore_tuning::simulated;

/// The owner of an engine's memory.
pub(crate) const ENGINE: u8 = 1;
/// Bytes before what the caller gets, at least.
const HEAD: usize = 16;

/// What an engine has allocated on the calling thread.
#[derive(Clone, Copy, Debug)]
struct Held {
    bytes: i64,
    most: i64,
}

thread_local! {
    static HELD: Cell<Held> = const { Cell::new(Held { bytes: 0, most: 0 }) };
}

fn count(owner: u8, bytes: i64) {
    if owner == ENGINE {
        // A thread that ends frees what is its own when this is gone.
        let _ = HELD.try_with(|held| {
            let bytes = held.get().bytes + bytes;
            let most = held.get().most.max(bytes);
            held.set(Held { bytes, most });
        });
    }
}

fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Begins to note the most that an engine holds, now that it holds as much as is returned.
pub(crate) fn begin() -> i64 {
    HELD.with(|held| {
        let bytes = held.get().bytes;
        held.set(Held { bytes, most: bytes });
        bytes
    })
}

/// The most bytes that an engine has held since [`begin`].
pub(crate) fn most() -> i64 {
    HELD.get().most
}

/// The bytes that an engine holds.
pub(crate) fn held() -> i64 {
    HELD.get().bytes
}

/// The system's allocator, counting.
#[derive(Debug)]
pub(crate) struct Counted;

/// The layout with a head, and its length.
fn with_head(layout: Layout) -> Option<(Layout, usize)> {
    let head = layout.align().max(HEAD);
    let bytes = layout.size().checked_add(head)?;
    let whole = Layout::from_size_align(bytes, layout.align()).ok()?;
    Some((whole, head))
}

/// Notes the owner of what begins behind a head.
///
/// # Safety
/// There are `head` bytes of writable memory at `start`, if it is not null.
unsafe fn note(start: *mut u8, head: usize, bytes: usize) -> *mut u8 {
    if start.is_null() {
        return start;
    }
    let owner = simulated::owner();
    count(owner, signed(bytes));
    // SAFETY: the head is at least 16 bytes long.
    unsafe {
        let given = start.add(head);
        given.sub(8).write(owner);
        given
    }
}

// SAFETY: what the system's allocator gives is passed on behind a head whose length keeps its
// alignment.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some((whole, head)) = with_head(layout) else {
            return ptr::null_mut();
        };
        // SAFETY: the length is not 0.
        unsafe { note(System.alloc(whole), head, layout.size()) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let Some((whole, head)) = with_head(layout) else {
            return ptr::null_mut();
        };
        // SAFETY: the length is not 0.
        unsafe { note(System.alloc_zeroed(whole), head, layout.size()) }
    }

    unsafe fn dealloc(&self, given: *mut u8, layout: Layout) {
        if let Some((whole, head)) = with_head(layout) {
            // SAFETY: it was given with this layout, so a head lies before it.
            unsafe {
                count(given.sub(8).read(), -signed(layout.size()));
                System.dealloc(given.sub(head), whole);
            }
        }
    }

    unsafe fn realloc(&self, given: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        let Some((whole, head)) = with_head(layout) else {
            return ptr::null_mut();
        };
        let Some(wanted) = bytes.checked_add(head) else {
            return ptr::null_mut();
        };
        // SAFETY: it was given with this layout; the head moves with it.
        unsafe {
            let start = System.realloc(given.sub(head), whole, wanted);
            if start.is_null() {
                return start;
            }
            let moved = start.add(head);
            count(moved.sub(8).read(), signed(bytes) - signed(layout.size()));
            moved
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_engine_allocates_is_counted_until_it_is_freed() {
        let before = begin();
        let mut kept = {
            let _own = simulated::own(ENGINE);
            vec![1_u8; 1_000]
        };
        let others = vec![2_u8; 50_000];
        kept.reserve_exact(2_000);
        assert_eq!(most() - before, 3_000);
        drop(others);
        kept.clear();
        kept.shrink_to_fit();
        assert_eq!(begin(), before);
        let wide = Layout::from_size_align(64, 4_096).unwrap();
        // SAFETY: freed with the same layout, and not used afterwards.
        unsafe {
            let place = std::alloc::alloc_zeroed(wide);
            assert_eq!(place.align_offset(4_096), 0);
            assert_eq!(place.add(63).read(), 0);
            std::alloc::dealloc(place, wide);
        }
    }
}
