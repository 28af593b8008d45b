//! Starts workers on pinned threads, for engines without threads of their own.

use std::thread;

use anyhow::{Context, anyhow};
use core_affinity::CoreId;

use crate::block_on::block_on;
use crate::store::{Running, Session};
use crate::worker::Worker;

/// Starts a worker with its session on a thread pinned to a core. A failed pinning is logged.
///
/// # Errors
/// The thread cannot be started.
pub fn start_pinned<S: Session + Send + 'static>(
    core: usize,
    worker: Worker,
    session: S,
) -> anyhow::Result<Running> {
    let body = move || {
        if !core_affinity::set_for_current(CoreId { id: core }) {
            tracing::warn!(core, "the worker's thread could not be pinned to the core");
        }
        block_on(worker.run(session));
    };
    let thread = thread::Builder::new()
        .name(format!("bench-{core}"))
        .spawn(body)
        .context("the thread of a worker could not be started")?;
    Ok(Running::new(move || {
        thread
            .join()
            .map_err(|_| anyhow!("the thread on core {core} panicked"))
    }))
}
