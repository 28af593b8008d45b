//! The measured local memory of a run: the resident size of the process minus its size before the
//! engine was opened, minus embedded far memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use farcore_tuning::{Clock, resident_bytes};

const PERIOD: Duration = Duration::from_millis(20);
/// The sampler sleeps at least 50 times as long as it works.
const IDLE_SHARE: u32 = 50;

#[derive(Debug, Default)]
struct State {
    peak_bytes: AtomicU64,
    stop: AtomicBool,
}

/// Samples the process every 20 ms from its own thread, and keeps the peak.
#[derive(Debug)]
pub struct Sampler {
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

impl Sampler {
    /// Starts sampling. `base_bytes` is the resident size before the engine was opened;
    /// `far_resident_bytes` returns the resident far memory of this process.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(
        base_bytes: u64,
        far_resident_bytes: impl Fn() -> u64 + Send + 'static,
    ) -> std::io::Result<Self> {
        let state = Arc::new(State::default());
        let seen = state.clone();
        let thread = thread::Builder::new()
            .name("resident".into())
            .spawn(move || {
                let clock = Clock::new();
                while !seen.stop.load(Ordering::Relaxed) {
                    let start_ns = clock.now_ns();
                    let far_bytes = far_resident_bytes();
                    let local_bytes = resident_bytes().saturating_sub(base_bytes + far_bytes);
                    seen.peak_bytes.fetch_max(local_bytes, Ordering::Relaxed);
                    // If counting far memory is slow, sample less often: the engine needs the
                    // cores.
                    let spent = Duration::from_nanos(clock.now_ns() - start_ns);
                    thread::sleep(PERIOD.max(spent * IDLE_SHARE));
                }
            })?;
        Ok(Self {
            state,
            thread: Some(thread),
        })
    }

    /// Stops sampling; returns the peak.
    #[must_use]
    pub fn stop(mut self) -> u64 {
        self.end();
        self.state.peak_bytes.load(Ordering::Relaxed)
    }

    fn end(&mut self) {
        self.state.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic has been printed already; the peak so far is still valid.
            let _ = thread.join();
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn far_memory_is_not_local_memory() {
        let (send, wait) = std::sync::mpsc::channel();
        let sampler = Sampler::start(0, move || {
            let _ = send.send(());
            u64::MAX / 2
        });
        wait.recv().unwrap();
        wait.recv().unwrap();
        assert_eq!(sampler.unwrap().stop(), 0);
    }
}
