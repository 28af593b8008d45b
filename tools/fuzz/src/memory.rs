//! Counts what the thread of a target allocates.
//!
//! A test binary that has a target has this allocator: it is the system's, with two numbers a
//! thread.

#![allow(unsafe_code)] // an allocator

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Bytes allocated less bytes freed by this thread; what it frees for others makes it negative.
    static LIVE: Cell<isize> = const { Cell::new(0) };
    /// The most of them since [`start`].
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

#[derive(Debug)]
struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

/// Lengths of allocations are below `isize::MAX`.
fn signed(bytes: usize) -> isize {
    isize::try_from(bytes).unwrap_or(isize::MAX)
}

fn note(bytes: isize) {
    // A thread that ends has no numbers any more.
    let _ = LIVE.try_with(|live| {
        let now = live.get() + bytes;
        live.set(now);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(now)));
    });
}

// SAFETY: all is left to the allocator of the system; the numbers allocate nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(signed(layout.size()));
        // SAFETY: by the contract of this function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(signed(layout.size()));
        // SAFETY: by the contract of this function.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        note(-signed(layout.size()));
        // SAFETY: by the contract of this function.
        unsafe { System.dealloc(pointer, layout) };
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(signed(size) - signed(layout.size()));
        // SAFETY: by the contract of this function.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Runs something; returns the most bytes that it held at once.
pub(crate) fn peak_of<T>(run: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.get();
    PEAK.set(before);
    let result = run();
    let peak = PEAK.get().saturating_sub(before);
    (result, usize::try_from(peak).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::peak_of;

    #[test]
    fn the_most_at_once_is_counted() {
        let ((), bytes) = peak_of(|| {
            drop(vec![1u8; 5000]);
            drop(vec![1u8; 7000]);
        });
        assert!((7000..8000).contains(&bytes), "{bytes}");
        let (_held, bytes) = peak_of(|| (vec![0u8; 5000], vec![1u8; 7000]));
        assert!((12_000..13_000).contains(&bytes), "{bytes}");
    }
}
