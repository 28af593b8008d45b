//! glommio's executor on the calling thread. It owns nothing that outlives a run.

use std::io;

use futures_lite::future::or;
use glommio::{LocalExecutorBuilder, Placement};

use crate::wake_timer::WakeTimer;

/// glommio's own memory.
const IO_MEMORY_BYTES: usize = 64 << 10;

/// Runs a future, and what it spawns, on a glommio executor of the calling thread, until the future
/// is done. This is where [`NodeSession`](crate::node::NodeSession) and whatever else sends over
/// sockets can live. The thread is not pinned. Costs what a [`WakeTimer`] does while all wait.
///
/// # Errors
/// Where glommio cannot start: no `io_uring`, or too little lockable memory (512 KiB an executor);
/// no thread for the pulse.
///
/// # Panics
/// Inside another glommio executor, and where the future does.
pub fn run_local<T>(work: impl Future<Output = T>) -> io::Result<T> {
    let wake_timer = WakeTimer::new()?;
    let executor = LocalExecutorBuilder::new(Placement::Unbound)
        .io_memory(IO_MEMORY_BYTES)
        .make()
        .map_err(|error| io::Error::other(error.to_string()))?;
    Ok(executor.run(or(work, wake_timer.beat())))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use glommio::timer::Timer;

    use super::*;

    #[test]
    fn a_future_runs_with_what_it_spawns() {
        let done = run_local(async {
            let other = glommio::spawn_local(async { 20 });
            Timer::new(Duration::from_millis(1)).await;
            other.await + 1
        });
        assert_eq!(done.expect("an executor"), 21);
    }
}
