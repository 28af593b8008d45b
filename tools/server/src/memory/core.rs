//! A core's part of the memory of clients.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use super::server::ClientMemory;

/// What the clients of a core hold.
#[derive(Debug)]
pub(crate) struct CoreMemory {
    server: Arc<ClientMemory>,
    /// Bytes on the accounts of the core's clients.
    held: Cell<usize>,
    /// Bytes that the core has reserved: at least `held`.
    reserved: Cell<usize>,
}

impl CoreMemory {
    /// Nothing is held yet.
    pub(crate) fn new(server: Arc<ClientMemory>) -> Rc<Self> {
        Rc::new(Self {
            server,
            held: Cell::new(0),
            reserved: Cell::new(0),
        })
    }

    /// The memory of all cores.
    pub(crate) fn server(&self) -> &ClientMemory {
        &self.server
    }

    /// Bytes on the accounts of the core's clients.
    pub(crate) fn held(&self) -> usize {
        self.held.get()
    }

    /// Adds bytes that are held.
    #[inline]
    pub(super) fn add(&self, bytes: usize) {
        let held = self.held.get() + bytes;
        self.held.set(held);
        if held > self.reserved.get() {
            self.reserve();
        }
    }

    #[cold]
    fn reserve(&self) {
        let missing = self.held.get() - self.reserved.get();
        let bytes = missing.next_multiple_of(self.server.step());
        self.server.take(bytes);
        self.reserved.set(self.reserved.get() + bytes);
    }

    /// Adds bytes if no more than `limit` are taken then.
    pub(super) fn try_add(&self, bytes: usize, limit: usize) -> bool {
        if !self.server.try_take(bytes, limit) {
            return false;
        }
        self.reserved.set(self.reserved.get() + bytes);
        self.held.set(self.held.get() + bytes);
        true
    }

    /// Takes off bytes that are held no more.
    #[inline]
    pub(super) fn subtract(&self, bytes: usize) {
        debug_assert!(bytes <= self.held.get(), "what is held was added");
        let held = self.held.get().saturating_sub(bytes);
        self.held.set(held);
        if self.reserved.get() - held > 2 * self.server.step() {
            self.release();
        }
    }

    #[cold]
    fn release(&self) {
        let kept = (self.held.get() + 1).next_multiple_of(self.server.step());
        let bytes = self.reserved.get() - kept;
        self.server.give(bytes);
        self.reserved.set(kept);
    }
}

impl Drop for CoreMemory {
    fn drop(&mut self) {
        self.server.give(self.reserved.get());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_reserves_at_least_what_it_holds_and_little_more() {
        let server = Arc::new(ClientMemory::new(1 << 20, 2));
        let step = server.step();
        let core = CoreMemory::new(Arc::clone(&server));
        let mut held = 0;
        for bytes in [1, step, 5, 3 * step, 100] {
            core.add(bytes);
            held += bytes;
            assert!(server.taken() >= held && server.taken() <= held + 2 * step);
        }
        let limit = server.large_limit();
        assert!(core.try_add(step, limit) && !core.try_add(1 << 20, limit));
        for bytes in [step, 100, 3 * step, 5, step, 1] {
            core.subtract(bytes);
            assert!(server.taken() >= core.held() && server.taken() <= core.held() + 2 * step);
        }
        assert_eq!(core.held(), 0);
        drop(core);
        assert_eq!(server.taken(), 0);
    }
}
