//! The work that a core does for clients in a turn of its loop, in steps.
//!
//! A step is about what one key costs: a key that a command of many names, an element of a record
//! that is hashed or compared, a pattern that is tried on a name, a client that is looked at, 64
//! bytes that are copied, or 16 that are parsed or walked. Only what grows with its input is
//! counted, so a command of one key counts none of its own.
//!
//! Each core counts for itself, in its thread. What can be long goes on in slices: a command of
//! several steps lets the turn end once it has counted [`SLICE`] or more ([`end_slice`]).
//!
//! - I1: a piece of work between two looks at the count has a bound of its own.

use std::cell::Cell;

use farcore::Core;

/// Steps of a turn from which a command of several steps goes on in the next one.
pub(crate) const SLICE: u64 = 8 << 10;
/// Steps that a turn has at most for one client, whatever it sends, beside what others have: those
/// of a slice, and of the longest piece of work that is not cut.
pub const TURN_STEPS_MAX: u64 = 512 << 10;
/// Keys, arguments or elements of one command that are handled between two looks at the count.
pub(crate) const PIECE: usize = 1 << 10;
/// Bytes that are copied in a step.
const COPIED_BYTES: usize = 64;
/// Bytes that are parsed in a step, or walked in a record.
const WALKED_BYTES: usize = 16;

thread_local! {
    static STEPS: Cell<u64> = const { Cell::new(0) };
    /// The count when the command of several steps went on that does now.
    static WENT_ON: Cell<u64> = const { Cell::new(0) };
}

/// Counts steps.
#[inline]
pub(crate) fn count(steps: usize) {
    STEPS.with(|all| all.set(all.get().saturating_add(steps as u64)));
}

/// Counts bytes that are copied.
#[inline]
pub(crate) fn count_copied(bytes: usize) {
    count(bytes / COPIED_BYTES);
}

/// Counts bytes that are parsed, or walked in a record.
#[inline]
pub(crate) fn count_walked(bytes: usize) {
    count(bytes / WALKED_BYTES);
}

/// True if the turn has counted so much that what can go on later does.
#[inline]
pub(crate) fn is_slice_over() -> bool {
    STEPS.with(Cell::get) >= SLICE
}

/// Ends a turn: returns its steps, and begins at 0.
#[inline]
pub(crate) fn take() -> u64 {
    STEPS.with(|all| all.replace(0))
}

/// The count, to which [`since`] compares.
#[inline]
pub(crate) fn now() -> u64 {
    STEPS.with(Cell::get)
}

/// Steps since an earlier count of this turn.
#[inline]
pub(crate) fn since(before: u64) -> u64 {
    now().saturating_sub(before)
}

/// Notes that a command of several steps goes on.
#[inline]
pub(crate) fn go_on() {
    WENT_ON.with(|before| before.set(now()));
}

/// Lets the turn end if it has counted much, some of it for this command: each goes on by a piece
/// a turn, however much others do.
pub(crate) async fn end_slice(core: &Core) {
    let is_some = since(WENT_ON.with(Cell::get)) >= PIECE as u64;
    if is_slice_over() && is_some {
        core.yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_those_of_a_turn() {
        take();
        count(3);
        count_copied(10 * COPIED_BYTES + 1);
        count_walked(WALKED_BYTES - 1);
        assert!(!is_slice_over());
        assert_eq!((take(), take()), (13, 0));
        count(usize::try_from(SLICE).expect("few"));
        assert!(is_slice_over());
        take();
    }
}
