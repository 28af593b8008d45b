//! The life of an engine: whether it is closing, and the jobs that still run on any core.
//!
//! It owns one flag and one count, shared by handles, cores and metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Whether the engine is closing, and the number of jobs on all cores.
///
/// ORDERING: all SeqCst: a thread that adds a job either sees that the engine is closing, or every
/// core sees the job.
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

    /// Counts a new job; `None` if the engine is closing.
    pub(crate) fn begin_job(self: &Arc<Self>) -> Option<JobTicket> {
        self.jobs.fetch_add(1, Ordering::SeqCst);
        let ticket = JobTicket(Arc::clone(self));
        (!self.is_closing()).then_some(ticket)
    }

    /// True once the engine is closing and no job is left.
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
