//! The life of an engine: whether it is closing, and the jobs that still run on any core.
//!
//! Owns one flag and one count, shared by handles, cores and metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Whether the engine is closing, and how many jobs there still are on any core.
///
/// ORDERING: all SeqCst: whoever adds a job either sees that it is too late, or every core sees the
/// job.
#[derive(Debug, Default)]
pub(crate) struct Lifecycle {
    closing: AtomicBool,
    jobs: AtomicUsize,
}

impl Lifecycle {
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
    }

    #[inline]
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    /// Counts a new job; `None` when the engine is closing.
    pub(crate) fn begin_job(self: &Arc<Self>) -> Option<JobTicket> {
        self.jobs.fetch_add(1, Ordering::SeqCst);
        let ticket = JobTicket(Arc::clone(self));
        (!self.is_closing()).then_some(ticket)
    }

    /// True once nothing more can be asked of any shard by a job.
    pub(crate) fn is_over(&self) -> bool {
        self.is_closing() && self.jobs.load(Ordering::SeqCst) == 0
    }
}

/// One job that is waiting or running.
#[derive(Debug)]
pub(crate) struct JobTicket(Arc<Lifecycle>);

impl Drop for JobTicket {
    fn drop(&mut self) {
        self.0.jobs.fetch_sub(1, Ordering::SeqCst);
    }
}
