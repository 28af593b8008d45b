//! The reactor as its core's tasks share it, and as callers borrow it while the core has no use for
//! it.
//!
//! A core that sleeps, or offers its processor to other threads, lends its reactor. A caller that
//! finds it free serves its own request there and then, instead of waking the core and waiting for
//! an answer. Each access from the core takes it back first.
//!
//! - I1: a borrower does only what [`CoreReactor::serve_lent`] does: it serves one lane. It touches
//!   no timer, job or client of the core, and no endpoint that is bound to the core's thread.
//! - I2: a reactor is lent only while nothing is in progress but what waits for an endpoint that
//!   any thread may use. A borrower takes completions in; background work that follows from them is
//!   the core's. It returns the reactor after each batch, so it delays others as a batch of another
//!   lane does.
//! - I3: a borrower that the system suspends holds the core up until it runs again. A core that has
//!   met one does not lend for a while.

#![allow(unsafe_code)] // lends the reactor to other threads

use std::cell::{BorrowMutError, Cell, Ref, RefCell, RefMut};
use std::sync::Arc;
use std::thread;

use super::CoreReactor;
use super::core_shared::CoreShared;
use crate::transport::loan::LoanError;

/// How long a core does not lend after it has waited for a borrower, in nanoseconds.
const REST_NS: u64 = 20_000_000;

/// Times that a core offers its processor before it insists on its reactor.
const OFFERS: u32 = 4;

/// Looks for a reactor that another caller borrows, before the processor is offered again.
const LOOKS: u32 = 64;

/// A core's reactor.
#[derive(Debug)]
pub(crate) struct LentReactor {
    reactor: RefCell<CoreReactor>,
    /// Other threads may borrow it.
    is_lent: Cell<bool>,
    /// It is not lent before this time, in nanoseconds.
    lends_from_ns: Cell<u64>,
    core_shared: Arc<CoreShared>,
}

impl LentReactor {
    pub(super) fn new(reactor: CoreReactor, core_shared: &Arc<CoreShared>) -> Self {
        Self {
            reactor: RefCell::new(reactor),
            is_lent: Cell::new(false),
            lends_from_ns: Cell::new(0),
            core_shared: Arc::clone(core_shared),
        }
    }

    /// Lends the reactor until the core's next access, if others may go on with what is in
    /// progress.
    pub(super) fn lend(&self) {
        if self.is_lent.get() {
            return;
        }
        let mut reactor = self.reactor.borrow_mut();
        if !reactor.may_be_lent() || reactor.read_ns() < self.lends_from_ns.get() {
            return;
        }
        drop(reactor);
        self.is_lent.set(true);
        // SAFETY: the reactor lives in this cell, which takes it back before each access and when
        // it is dropped.
        unsafe { self.core_shared.loan.lend(self.reactor.as_ptr()) };
    }

    /// Lets other threads of this processor run, and lends them the reactor meanwhile. A borrower
    /// that this thread has interrupted may go on and borrow again, a few times.
    pub(super) fn offer(&self) {
        self.lend();
        for _ in 0..OFFERS {
            thread::yield_now();
            if !self.is_lent.get() {
                return;
            }
            // A borrower on another processor returns it meanwhile.
            for _ in 0..LOOKS {
                if self.core_shared.loan.try_reclaim() {
                    self.is_lent.set(false);
                    return;
                }
                std::hint::spin_loop();
            }
        }
        self.reclaim();
    }

    /// Takes the reactor back, if it is lent.
    #[inline]
    pub(super) fn reclaim(&self) {
        if self.is_lent.get() {
            self.reclaim_lent();
        }
    }

    #[cold]
    fn reclaim_lent(&self) {
        self.is_lent.set(false);
        if self.core_shared.loan.reclaim() {
            let reactor = self.reactor.borrow();
            reactor.note_loan_awaited();
            self.lends_from_ns.set(reactor.read_ns() + REST_NS);
        }
    }

    #[inline]
    pub(crate) fn borrow(&self) -> Ref<'_, CoreReactor> {
        self.reclaim();
        self.reactor.borrow()
    }

    #[inline]
    pub(crate) fn borrow_mut(&self) -> RefMut<'_, CoreReactor> {
        self.reclaim();
        self.reactor.borrow_mut()
    }

    pub(super) fn try_borrow_mut(&self) -> Result<RefMut<'_, CoreReactor>, BorrowMutError> {
        self.reclaim();
        self.reactor.try_borrow_mut()
    }
}

impl Drop for LentReactor {
    fn drop(&mut self) {
        self.reclaim();
    }
}

/// How a caller's attempt to serve its own requests ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LoanOutcome {
    /// All of its lane's requests are answered.
    All,
    /// All are served, and something waits for the fabric: the core must not sleep.
    Waiting,
    /// A batch is answered, and more requests wait.
    More,
    /// The core must go on: requests are left, or something is due.
    Part,
    /// The core has the reactor.
    Kept,
    /// Another caller borrows the reactor at this moment.
    Borrowed,
}

impl CoreShared {
    /// The core has its reactor; it may need its processor.
    pub(crate) fn is_kept(&self) -> bool {
        self.loan.is_kept()
    }

    /// Serves a batch of a lane's published requests on the calling thread, if the core has lent
    /// its reactor. Cost: one compare-and-swap and two clock readings beside the requests; never
    /// waits.
    #[inline]
    pub(crate) fn serve_lent(&self, lane: u8) -> LoanOutcome {
        // SAFETY: by I1 a borrower touches nothing that is bound to the core's thread.
        match unsafe { self.loan.borrow(|reactor| reactor.serve_lent(lane)) } {
            Ok(outcome) => outcome,
            Err(LoanError::Kept) => LoanOutcome::Kept,
            Err(LoanError::Borrowed) => LoanOutcome::Borrowed,
        }
    }
}
