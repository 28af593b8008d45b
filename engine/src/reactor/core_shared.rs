//! What other threads share with one core.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_queue::SegQueue;

use super::command::CommandPort;
use super::job::{Job, catch_panic};
use crate::lifecycle::Lifecycle;

/// What other threads share with one core's runtime.
#[derive(Debug)]
pub(crate) struct CoreShared {
    pub(crate) command_port: Arc<CommandPort>,
    /// Jobs that are to be started. Without a limit: who starts one may be the thread that takes
    /// them.
    pub(crate) jobs: SegQueue<Job>,
    pub(crate) lifecycle: Arc<Lifecycle>,
    /// The shard has stopped, and will touch no lane again.
    pub(crate) closed: AtomicBool,
}

impl CoreShared {
    pub(crate) fn new(lifecycle: Arc<Lifecycle>) -> Self {
        Self {
            command_port: Arc::default(),
            jobs: SegQueue::new(),
            lifecycle,
            closed: AtomicBool::new(false),
        }
    }

    /// Says that the shard has stopped. The lanes' ends, dropped after that, wake who waits.
    pub(super) fn stop(&self) {
        self.closed.store(true, Ordering::Release);
        // Jobs that never ran: their tasks end.
        while let Some(job) = self.jobs.pop() {
            let _ = catch_panic(|| drop(job));
        }
    }
}
