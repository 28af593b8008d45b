//! glommio's executor on the calling thread.
//!
//! It owns nothing that outlives a run. glommio may put a thread to sleep although a task is ready, when it is preempted
//! before the first one, and only a timer ends that sleep: so some are always armed. One is not enough: on a loaded machine
//! the thread may be preempted again just after it has ended, and before the task that would arm the next has run.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use glommio::timer::Timer;
use glommio::{LocalExecutorBuilder, Placement};

/// The longest such sleep.
const PULSE: Duration = Duration::from_millis(20);
/// Timers that are armed at a time: so often in a row a thread would have to be preempted to sleep for ever.
const TIMERS: u32 = 16;
/// glommio's own memory.
const IO_MEMORY_BYTES: usize = 64 << 10;

/// Never ends, and keeps timers armed that go off one by one, every `pace`: an executor on which this runs, and of which a
/// task is ready, sleeps for no longer. Cost: a wake-up every `pace`.
pub async fn pulse<T>(pace: Duration) -> T {
    let timer = |paces: u32| Box::pin(Timer::new(pace * paces));
    let mut timers: Vec<Pin<Box<Timer>>> = (1..=TIMERS).map(timer).collect();
    poll_fn(|context| {
        for one in &mut timers {
            // A timer counts only once it was polled.
            while one.as_mut().poll(context).is_ready() {
                *one = timer(TIMERS);
            }
        }
        Poll::Pending
    })
    .await
}

/// Runs a future, and what it spawns, on a glommio executor of the calling thread, until the future is done. This is
/// where [`NodeSession`](crate::node::NodeSession) and whatever else sends over sockets can live. The thread is not
/// pinned. Costs 50 wake-ups a second while all wait.
///
/// # Errors
/// Where glommio cannot start: no `io_uring`, or too little lockable memory (512 KiB an executor).
///
/// # Panics
/// Inside another glommio executor, and where the future does.
pub fn run_local<T>(work: impl Future<Output = T>) -> io::Result<T> {
    let executor = LocalExecutorBuilder::new(Placement::Unbound)
        .io_memory(IO_MEMORY_BYTES)
        .make()
        .map_err(|error| io::Error::other(error.to_string()))?;
    Ok(executor.run(async {
        let pulse = glommio::spawn_local(pulse::<()>(PULSE));
        let done = work.await;
        pulse.cancel().await;
        done
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wakes itself alone: it goes on only if each timer that ends is armed again.
    #[test]
    fn a_pulse_goes_on() {
        let mut polls = 0;
        let mut pulse = Box::pin(pulse::<()>(Duration::from_micros(50)));
        let beats = poll_fn(move |context| {
            polls += 1;
            if polls > 4 * TIMERS {
                return Poll::Ready(true);
            }
            let _ = pulse.as_mut().poll(context);
            Poll::Pending
        });
        let stops = async {
            Timer::new(Duration::from_secs(60)).await;
            false
        };
        let goes_on = run_local(futures_lite::future::or(beats, stops));
        assert!(goes_on.expect("an executor"));
    }

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
