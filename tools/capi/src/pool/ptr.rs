//! Pointers to remote memory: small, copied by value, checked at each access.
//!
//! - I1: arithmetic never wraps. A pointer that leaves what 64 bits hold stays out of bounds,
//!   whatever is added later.

#![allow(unsafe_code)] // writes the caller's memory, and exports names

use super::owners::Name;
use crate::boundary::{guard, store, wanted};
use crate::error::{Code, Failure};

/// The offset of a pointer that no arithmetic brings back.
const LOST: i64 = i64::MIN;

/// Points to a byte of remote memory. It may be copied, and owns nothing; all zeros is the null
/// pointer. It is valid in this process, for the pool that it came from: `farcore_pool_export`
/// makes a pointer for another process. Each access checks it against the end of the allocation,
/// its free, another pool, and memory that was lost with a node.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ptr {
    /// The pool's number; 0 is none.
    pub pool: u64,
    /// The allocation's slot in its pool.
    pub slot: u32,
    /// Which of the allocations that have had that slot.
    pub generation: u32,
    /// From the allocation's first byte, in bytes.
    pub offset: i64,
}

impl Ptr {
    /// The null pointer: all zeros.
    pub(super) fn null() -> Self {
        Self {
            pool: 0,
            slot: 0,
            generation: 0,
            offset: 0,
        }
    }

    pub(super) fn to_first(pool: u64, name: Name) -> Self {
        let Name { slot, generation } = name;
        Self {
            pool,
            slot,
            generation,
            offset: 0,
        }
    }

    pub(super) fn name(self) -> Name {
        let Self {
            slot, generation, ..
        } = self;
        Name { slot, generation }
    }

    fn moved(self, bytes: i64) -> Self {
        let offset = match self.offset {
            LOST => LOST,
            offset => offset.checked_add(bytes).unwrap_or(LOST),
        };
        Self { offset, ..self }
    }
}

/// A pointer moved by some bytes, forwards or backwards. It may leave its allocation, and come
/// back; only accesses are checked. Cannot fail: a pointer that leaves what 64 bits hold stays out
/// of bounds. Any thread may call it. Cost: none.
#[unsafe(no_mangle)]
pub extern "C" fn farcore_ptr_add(ptr: Ptr, bytes: i64) -> Ptr {
    ptr.moved(bytes)
}

/// Whether a pointer is null. Cannot fail. Any thread may call it. Cost: none.
#[unsafe(no_mangle)]
pub extern "C" fn farcore_ptr_is_null(ptr: Ptr) -> bool {
    ptr.pool == 0
}

/// Whether two pointers lead to one byte. Cannot fail. Any thread may call it. Cost: none.
#[unsafe(no_mangle)]
pub extern "C" fn farcore_ptr_equal(first: Ptr, second: Ptr) -> bool {
    first == second
}

/// Writes how many bytes `first` lies behind `second` to `*bytes`.
///
/// Fails with `FARCORE_INVALID_ARGUMENT` if `bytes` is null, if the pointers lead to different
/// allocations, or if the difference exceeds 64 bits. Any thread may call it. Cost: none.
///
/// # Safety
/// `bytes` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcore_ptr_difference(first: Ptr, second: Ptr, bytes: *mut i64) -> Code {
    guard(|| {
        let place = wanted("bytes", bytes)?;
        let allocation = |ptr: Ptr| Ptr { offset: 0, ..ptr };
        if allocation(first) != allocation(second) {
            return Err(Failure::invalid(
                "the pointers lead to different allocations: there is no difference",
            ));
        }
        let difference = match (first.offset, second.offset) {
            (LOST, _) | (_, LOST) => None,
            (first, second) => first.checked_sub(second),
        };
        let difference =
            difference.ok_or_else(|| Failure::invalid("a pointer has left what 64 bits hold"))?;
        // SAFETY: not null; the rest is the caller's promise.
        unsafe { store(place, difference) };
        Ok(Code::Ok)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_never_wraps() {
        let ptr = Ptr {
            pool: 1,
            ..Ptr::null()
        };
        assert_eq!(ptr.moved(7).moved(-10).offset, -3);
        assert_eq!(ptr.moved(i64::MAX).moved(-i64::MAX).offset, 0);
        let lost = ptr.moved(i64::MAX).moved(1);
        assert_eq!(lost.moved(i64::MAX).moved(5).offset, LOST);
        assert_eq!(ptr.moved(-1).moved(i64::MIN).moved(1).offset, LOST);
    }
}
