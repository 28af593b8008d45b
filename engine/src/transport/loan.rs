//! A loan: what one thread owns and lends to others while it has no use for it.
//!
//! ```text
//! kept --lend--> free --borrow--> borrowed --return--> free
//!   ^             |                  |
//!   '---reclaim---'<----(waits)------'
//! ```
//!
//! Borrowing is one compare-and-swap and never waits: it fails where another thread borrows or the
//! owner has reclaimed. Only the owner waits, for the thread that borrows at that moment.
//!
//! - I1: at most one thread uses the object: the owner while it is kept, a borrower while it is
//!   borrowed.
//! - I2: once the owner has begun to reclaim, no thread borrows anew, so its wait ends with the
//!   present borrower's use.

#![allow(unsafe_code)] // hands out references to an object of another thread

use std::ptr;

use crate::transport::atomics::{AtomicPtr, AtomicU32, Ordering};

/// The owner keeps the object, or waits for it.
const KEPT: u32 = 1;
/// Another thread uses it.
const BORROWED: u32 = 2;
/// Looks of a waiting owner before each of which it spins; then it offers its core.
const SPINS: u32 = 64;
/// Offers after which the borrower counts as suspended. One that this thread had interrupted goes
/// on at the first.
const OFFERS: u32 = 4;

/// The state of one loan. On a cache line of its own: borrowers write it at each request.
///
/// It may be shared whatever the object is: only [`Loan::borrow`] gives access, and its caller
/// promises to touch nothing that is bound to the owner's thread.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Loan<T> {
    state: AtomicU32,
    object: AtomicPtr<T>,
}

impl<T> Default for Loan<T> {
    fn default() -> Self {
        Self {
            state: AtomicU32::new(KEPT),
            object: AtomicPtr::new(ptr::null_mut()),
        }
    }
}

impl<T> Loan<T> {
    /// Lends the object until [`Loan::reclaim`]. Only its owner calls this.
    ///
    /// # Safety
    /// The object stays valid, and the caller uses no reference to it, until it has reclaimed it.
    pub(crate) unsafe fn lend(&self, object: *mut T) {
        self.object.store(object, Ordering::Relaxed);
        // ORDERING: Release pairs with the Acquire in `borrow`: a borrower sees the object as its
        // owner left it.
        self.state.store(0, Ordering::Release);
    }

    /// Its owner keeps it, or waits for it. Only a hint: it may change at once.
    #[inline]
    pub(crate) fn is_kept(&self) -> bool {
        // ORDERING: relaxed; it publishes nothing.
        self.state.load(Ordering::Relaxed) & KEPT != 0
    }

    /// Takes the object back unless a thread borrows it; true if it is kept then. Only its owner
    /// calls this.
    pub(crate) fn try_reclaim(&self) -> bool {
        // ORDERING: Acquire pairs with the Release of the last borrower.
        self.state
            .compare_exchange(0, KEPT, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Takes the object back; waits for a thread that borrows it. Only its owner calls this. True
    /// if it had to offer its processor several times: the borrower was probably suspended.
    pub(crate) fn reclaim(&self) -> bool {
        // ORDERING: Acquire here and below pairs with the Release of a borrower that returns it.
        let mut state = self.state.fetch_or(KEPT, Ordering::Acquire);
        let mut looks = 0;
        while state & BORROWED != 0 {
            looks += 1;
            wait(looks);
            state = self.state.load(Ordering::Acquire);
        }
        looks >= SPINS + OFFERS
    }

    /// Runs `use_it` on the object, unless its owner keeps it or another thread borrows it: then
    /// returns why not.
    ///
    /// # Safety
    /// `use_it` may run on any thread: it must not touch what is bound to the owner's thread.
    #[inline]
    pub(crate) unsafe fn borrow<R>(
        &self,
        use_it: impl FnOnce(&mut T) -> R,
    ) -> Result<R, LoanError> {
        // A load costs less than an exchange that fails. ORDERING: relaxed; it only saves that.
        if self.is_kept() {
            return Err(LoanError::Kept);
        }
        // ORDERING: Acquire pairs with the Release of `lend` and of the borrower before.
        let taken = self
            .state
            .compare_exchange(0, BORROWED, Ordering::Acquire, Ordering::Relaxed);
        match taken {
            Ok(_) => {}
            Err(state) if state & KEPT != 0 => return Err(LoanError::Kept),
            Err(_) => return Err(LoanError::Borrowed),
        }
        let returned = Return(&self.state);
        // SAFETY: by I1 this thread alone uses the object, and its owner keeps it valid until it
        // has reclaimed it, which waits for `returned`.
        let result = use_it(unsafe { &mut *self.object.load(Ordering::Relaxed) });
        drop(returned);
        Ok(result)
    }
}

/// Why an object could not be borrowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LoanError {
    /// Its owner uses it.
    Kept,
    /// Another thread borrows it, which is brief.
    Borrowed,
}

/// Returns the object when dropped.
struct Return<'a>(&'a AtomicU32);

impl Drop for Return<'_> {
    fn drop(&mut self) {
        // ORDERING: Release: the owner and the next borrower see what was done.
        self.0.fetch_and(!BORROWED, Ordering::Release);
    }
}

#[cfg(not(farcore_loom))]
fn wait(looks: u32) {
    if looks < SPINS {
        std::hint::spin_loop();
    } else {
        // The borrower may need this core.
        std::thread::yield_now();
    }
}

#[cfg(farcore_loom)]
fn wait(_: u32) {
    loom::thread::yield_now();
}

#[cfg(all(test, not(farcore_loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_lent_and_free_is_borrowed() {
        let (loan, mut object) = (Loan::default(), 1);
        // SAFETY: a number is bound to no thread.
        let borrow = |loan: &Loan<i32>| unsafe { loan.borrow(std::mem::take) };
        assert_eq!(borrow(&loan), Err(LoanError::Kept));
        // SAFETY: `object` is not used before it is reclaimed.
        unsafe { loan.lend(&raw mut object) };
        // SAFETY: as above.
        let nested = unsafe { loan.borrow(|_| borrow(&loan)) };
        assert_eq!(nested, Ok(Err(LoanError::Borrowed)));
        assert_eq!((borrow(&loan), borrow(&loan)), (Ok(1), Ok(0)));
        assert!(!loan.reclaim());
        assert_eq!(borrow(&loan), Err(LoanError::Kept));
    }

    #[test]
    fn a_borrower_that_panics_returns_it() {
        let (loan, mut object) = (Loan::default(), 1);
        // SAFETY: as above.
        unsafe { loan.lend(&raw mut object) };
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            // SAFETY: as above.
            let _ = unsafe { loan.borrow(|_| panic!("as planned")) };
        }));
        assert!(panicked.is_err());
        assert!(!loan.reclaim());
        assert_eq!(object, 1);
    }
}

#[cfg(all(test, farcore_loom))]
mod model {
    use loom::cell::UnsafeCell;

    use super::*;
    use crate::transport::atomics::Arc;

    /// An object whose uses the model checker watches.
    struct Object(UnsafeCell<u32>);

    impl Object {
        fn use_it(&self) -> u32 {
            self.0.with_mut(|count| {
                // SAFETY: the checker reports a second user.
                unsafe { *count += 1 };
                // SAFETY: as above.
                unsafe { *count }
            })
        }
    }

    struct Shared {
        loan: Loan<Object>,
        object: Object,
    }

    // SAFETY: the loan orders the uses of the object, which is what is checked.
    unsafe impl Sync for Shared {}
    // SAFETY: as above.
    unsafe impl Send for Shared {}

    #[test]
    fn one_thread_at_a_time_uses_it_and_the_owner_gets_it_back() {
        loom::model(|| {
            let shared = Arc::new(Shared {
                loan: Loan::default(),
                object: Object(UnsafeCell::new(0)),
            });
            let place = (&raw const shared.object).cast_mut();
            // SAFETY: the object outlives the threads; the owner uses it after it has reclaimed it.
            unsafe { shared.loan.lend(place) };
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let shared = Arc::clone(&shared);
                    // SAFETY: the object is bound to no thread.
                    loom::thread::spawn(move || unsafe {
                        shared.loan.borrow(|object| object.use_it()).is_ok()
                    })
                })
                .collect();
            if !shared.loan.try_reclaim() {
                let _ = shared.loan.reclaim();
            }
            let seen = shared.object.use_it();
            // SAFETY: as above; what is kept is not borrowed.
            assert!(unsafe { shared.loan.borrow(|_| ()) }.is_err());
            let borrowed = threads.into_iter().filter_map(|thread| thread.join().ok());
            let served = borrowed.filter(|&served| served).count();
            assert_eq!(seen as usize, served + 1);
        });
    }
}
