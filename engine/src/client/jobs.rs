//! Starts jobs on cores, each with a client of its core.

use std::future::Future;
use std::sync::Arc;

use super::core::Core;
use super::lanes::Shared;
use crate::error::{Error, Result};
use crate::reactor::{Job, Task};

/// Runs a job on the core at a position.
pub(crate) fn spawn_on_core<T, F>(
    shared: &Arc<Shared>,
    position: usize,
    job: impl FnOnce(Core) -> F + Send + 'static,
) -> Result<Task<T>>
where
    T: Send + 'static,
    F: Future<Output = T> + 'static,
{
    let Some(core_shared) = shared.cores_shared.get(position) else {
        return Err(Error::Position {
            position,
            last: shared.cores_shared.len() - 1,
        });
    };
    let ticket = shared.lifecycle.begin_job().ok_or(Error::Closed)?;
    let value_bytes_max = shared.sizes.value_bytes_max;
    let client = move |reactor, ticket| Core::new(reactor, value_bytes_max, ticket);
    let (job, task) = Job::new(ticket, client, job);
    core_shared.jobs.push(job);
    core_shared.command_port.wakeup.wake_service();
    Ok(task)
}
