//! Aborts the process if a panic leaves a turn: the reactor would be left between two states.

/// Begins something that must be finished; dropping it unfinished aborts the process.
pub(super) struct Unfinished(bool);

impl Unfinished {
    #[inline]
    pub(super) fn begin() -> Self {
        Self(true)
    }

    #[inline]
    pub(super) fn finish(mut self) {
        self.0 = false;
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // A simulation reports it, and leaves the world as it is.
        #[cfg(feature = "simulation")]
        if farcore_rdma::simulation::is_inside() {
            return;
        }
        if self.0 {
            eprintln!("a panic inside a shard's turn, of a visitor or its own: aborting");
            std::process::abort();
        }
    }
}
