//! Threads on chosen cores, for engines that bring none.

use std::thread;

use anyhow::{Context, anyhow};
use core_affinity::CoreId;

use crate::block_on::block_on;
use crate::store::{Running, Session};
use crate::worker::Worker;

/// Starts a worker on a core with a session of its own.
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
            tracing::warn!(core, "the thread could not be pinned");
        }
        block_on(worker.run(session));
    };
    let thread = thread::Builder::new()
        .name(format!("bench-{core}"))
        .spawn(body)
        .context("a thread could not be started")?;
    Ok(Running::new(move || {
        thread
            .join()
            .map_err(|_| anyhow!("the thread on core {core} panicked"))
    }))
}

/// What a baseline answers to a request that it does not know.
pub(crate) fn unsupported() -> farcore::Error {
    farcore::Error::Config {
        field: "operation",
        value: "compare-and-swap".into(),
        limit: "this engine keeps no versions".into(),
    }
}
