//! Returns the memory of ended connections to the system.
//!
//! The allocator of glibc keeps what was freed below the end of a thread's heap, so a crowd of
//! connections would leave the node as large as it was at its peak.

#![allow(unsafe_code)] // calls the allocator

/// Fewer connections are not worth a pass over the heaps.
const CONNECTIONS_MIN: u64 = 64;

/// The most connections since memory was last returned.
#[derive(Debug, Default)]
pub(super) struct Heap {
    peak: u64,
}

impl Heap {
    /// Notes the number of connections; returns memory once half of a crowd has gone. Cost then:
    /// one pass over the heaps, each locked meanwhile.
    pub(super) fn note(&mut self, connections: u64) {
        if self.has_shrunk(connections) {
            trim();
        }
    }

    fn has_shrunk(&mut self, connections: u64) -> bool {
        let shrunk = self.peak >= CONNECTIONS_MIN && connections <= self.peak / 2;
        self.peak = if shrunk {
            connections
        } else {
            self.peak.max(connections)
        };
        shrunk
    }
}

#[cfg(target_env = "gnu")]
fn trim() {
    // SAFETY: may be called on any thread at any time; frees nothing that is in use.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(not(target_env = "gnu"))]
fn trim() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_returned_once_for_each_half_of_a_crowd() {
        let mut heap = Heap::default();
        let seen = [10, 0, 1000, 800, 500, 400, 250, 100, 40, 0, 0];
        let shrunk = seen.map(|connections| heap.has_shrunk(connections));
        let after: Vec<_> = (seen.into_iter().zip(shrunk))
            .filter_map(|(connections, shrunk)| shrunk.then_some(connections))
            .collect();
        assert_eq!(after, [500, 250, 100, 40]);
    }
}
