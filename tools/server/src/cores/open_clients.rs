//! How many native clients a server has.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The native clients of a server.
#[derive(Debug, Default)]
pub(crate) struct OpenClients(AtomicUsize);

/// A place among them, which is given back unless the client stays.
#[derive(Debug)]
pub(crate) struct Entered<'a>(&'a OpenClients);

impl OpenClients {
    /// Counts one more, if there are fewer than `limit`.
    pub(crate) fn enter(&self, limit: usize) -> Option<Entered<'_>> {
        // ORDERING: relaxed, also below; it is a count, which orders nothing.
        let (set, get) = (Ordering::Relaxed, Ordering::Relaxed);
        let one_more = |count| (count < limit).then_some(count + 1);
        let entered = self.0.fetch_update(set, get, one_more);
        entered.ok().map(|_| Entered(self))
    }

    /// Counts one less.
    pub(crate) fn leave(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Entered<'_> {
    /// The client stays.
    pub(crate) fn stay(self) {
        // Its connection leaves when it is closed.
        let _ = std::mem::ManuallyDrop::new(self);
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}
