//! The reactor as its core's tasks share it, and as callers borrow it while the core has no use for
//! it.
//!
//! A core that sleeps, or offers its processor to other threads, lends its reactor. A caller that
//! finds it free serves its own request there and then, instead of waking the core and waiting for
//! an answer. Each access from the core takes it back first.
//!
//! - I1: a borrower does only what [`CoreReactor::serve_lent`] does: it serves one lane from local
//!   memory. It touches no endpoint, timer, job or client of the core.
//! - I2: only a reactor with nothing in progress is lent, so a borrower delays no other request.

#![allow(unsafe_code)] // lends the reactor to other threads

use std::cell::{BorrowMutError, Cell, Ref, RefCell, RefMut};
use std::sync::Arc;

use super::CoreReactor;
use super::core_shared::CoreShared;
use crate::transport::loan::LoanError;

/// A core's reactor.
#[derive(Debug)]
pub(crate) struct LentReactor {
    reactor: RefCell<CoreReactor>,
    /// Other threads may borrow it.
    is_lent: Cell<bool>,
    core_shared: Arc<CoreShared>,
}

impl LentReactor {
    pub(super) fn new(reactor: CoreReactor, core_shared: &Arc<CoreShared>) -> Self {
        Self {
            reactor: RefCell::new(reactor),
            is_lent: Cell::new(false),
            core_shared: Arc::clone(core_shared),
        }
    }

    /// Lends the reactor until the core's next access, if it is quiet.
    pub(super) fn lend(&self) {
        if self.is_lent.get() || !self.reactor.borrow_mut().is_quiet() {
            return;
        }
        self.is_lent.set(true);
        // SAFETY: the reactor lives in this cell, which takes it back before each access and when
        // it is dropped.
        unsafe { self.core_shared.loan.lend(self.reactor.as_ptr()) };
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
        self.core_shared.loan.reclaim();
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
    /// The core must go on: requests are left, or something is due.
    Part,
    /// The core has the reactor.
    Kept,
    /// Another caller borrows the reactor at this moment.
    Borrowed,
}

impl CoreShared {
    /// Serves the published requests of a lane on the calling thread, if the core has lent its
    /// reactor. Cost: one compare-and-swap beside the requests; never waits.
    #[inline]
    pub(crate) fn serve_lent(&self, lane: u8) -> LoanOutcome {
        // SAFETY: by I1 a borrower touches nothing that is bound to the core's thread.
        match unsafe { self.loan.borrow(|reactor| reactor.serve_lent(lane)) } {
            Ok(true) => LoanOutcome::All,
            Ok(false) => LoanOutcome::Part,
            Err(LoanError::Kept) => LoanOutcome::Kept,
            Err(LoanError::Borrowed) => LoanOutcome::Borrowed,
        }
    }
}
