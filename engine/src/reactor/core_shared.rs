//! What a core shares with other threads: its command port, the jobs to start, and whether it has
//! stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_queue::SegQueue;

use super::CoreReactor;
use super::command::CommandPort;
use super::job::{Job, catch_panic};
use crate::lifecycle::Lifecycle;
use crate::transport::loan::Loan;

/// What a core shares with other threads.
#[derive(Debug)]
pub(crate) struct CoreShared {
    pub(crate) command_port: Arc<CommandPort>,
    /// Jobs to be started. Unbounded, because the thread that adds one may be the core that starts
    /// them.
    pub(crate) jobs: SegQueue<Job>,
    pub(crate) lifecycle: Arc<Lifecycle>,
    /// The shard has stopped and will touch no lane again.
    pub(crate) closed: AtomicBool,
    /// Lends the reactor to callers while the core has no use for it.
    pub(super) loan: Loan<CoreReactor>,
    /// The processor that the core is pinned to.
    pub(crate) processor: usize,
}

impl CoreShared {
    pub(crate) fn new(lifecycle: Arc<Lifecycle>, processor: usize) -> Self {
        Self {
            command_port: Arc::default(),
            jobs: SegQueue::new(),
            lifecycle,
            closed: AtomicBool::new(false),
            loan: Loan::default(),
            processor,
        }
    }

    /// Notes that the shard has stopped. The lanes' ends are dropped after this and wake their
    /// clients.
    pub(super) fn stop(&self) {
        self.closed.store(true, Ordering::Release);
        // Jobs that never ran: end their tasks.
        while let Some(job) = self.jobs.pop() {
            let _ = catch_panic(|| drop(job));
        }
    }
}
