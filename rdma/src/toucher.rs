//! Touches regions in the background, slice by slice, while others use them.
//!
//! Owns a thread, which ends with the last slice or with its owner.

#![allow(unsafe_code)] // queries what the kernel supports

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use crate::region::{Region, TOUCHED_BYTES};

/// How far the touching of some regions is. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct TouchProgress(Arc<Figures>);

#[derive(Debug, Default)]
struct Figures {
    total_bytes: AtomicU64,
    touched_bytes: AtomicU64,
    huge_bytes: AtomicU64,
    is_stopped: AtomicBool,
}

// ORDERING: relaxed, throughout. No other data is read by it.
impl TouchProgress {
    /// Bytes that are to be touched in all.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.0.total_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that were touched.
    #[must_use]
    pub fn touched_bytes(&self) -> u64 {
        self.0.touched_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of the first regions that lie in huge pages, once these were touched.
    #[must_use]
    pub fn huge_bytes(&self) -> u64 {
        self.0.huge_bytes.load(Ordering::Relaxed)
    }
}

/// A thread that touches regions.
#[derive(Debug)]
pub struct Toucher {
    progress: TouchProgress,
    thread: Option<JoinHandle<()>>,
}

/// True if the kernel can touch memory that is in use (Linux 5.14).
#[must_use]
pub fn can_touch_in_use() -> bool {
    // SAFETY: advice on no memory; an unknown one is refused before the length is looked at.
    unsafe { libc::madvise(std::ptr::null_mut(), 0, libc::MADV_POPULATE_WRITE) == 0 }
}

impl Toucher {
    /// Touches the `first` regions, then the `rest`. Call it from a thread that is not pinned.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(
        first: Vec<Arc<Region>>,
        rest: Vec<Arc<Region>>,
        progress: TouchProgress,
    ) -> io::Result<Self> {
        let all = first.iter().chain(&rest);
        let total_bytes: u64 = all.map(|region| region.len() as u64).sum();
        progress.0.total_bytes.store(total_bytes, Ordering::Relaxed);
        let of_thread = progress.clone();
        let thread = thread::Builder::new()
            .name("farcore-touch".to_owned())
            .spawn(move || run(&first, &rest, &of_thread))?;
        Ok(Self {
            progress,
            thread: Some(thread),
        })
    }

    /// Waits until all is touched.
    pub fn wait(mut self) {
        self.join();
    }

    fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Toucher {
    fn drop(&mut self) {
        self.progress.0.is_stopped.store(true, Ordering::Relaxed);
        self.join();
    }
}

/// The thread's priority, as setpriority(2) has it: the lowest.
const NICE: i32 = 19;

/// The thread.
fn run(first: &[Arc<Region>], rest: &[Arc<Region>], progress: &TouchProgress) {
    let began = Instant::now();
    // Those that use the memory already may share its processor. Of no account if it is refused.
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
    if !touch(first, progress) {
        return;
    }
    let huge_bytes = first.iter().map(|region| region.huge_bytes()).sum();
    progress.0.huge_bytes.store(huge_bytes, Ordering::Relaxed);
    if touch(rest, progress) {
        tracing::info!(
            bytes = progress.total_bytes(),
            took = ?began.elapsed(),
            "all memory is touched"
        );
    }
}

/// Touches regions; false if it was stopped or the system has no memory.
fn touch(regions: &[Arc<Region>], progress: &TouchProgress) -> bool {
    for region in regions {
        for place in (0..region.len()).step_by(TOUCHED_BYTES) {
            if progress.0.is_stopped.load(Ordering::Relaxed) {
                return false;
            }
            let length = TOUCHED_BYTES.min(region.len() - place);
            if let Err(error) = region.touch_in_use(place, length) {
                tracing::warn!(%error, "memory is not touched in advance: requests that need more may wait for it");
                return false;
            }
            let touched = &progress.0.touched_bytes;
            touched.fetch_add(length as u64, Ordering::Relaxed);
            thread::yield_now();
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::{Lock, RegionOptions};

    fn region(bytes: usize) -> Arc<Region> {
        let options = RegionOptions {
            bytes,
            huge_pages: false,
            lock: Lock::Try,
            prefault: false,
        };
        Arc::new(Region::map(&options).unwrap())
    }

    #[test]
    fn all_pages_are_touched_and_keep_their_contents() {
        if !can_touch_in_use() {
            return;
        }
        let regions = [region(9 << 20), region(4096)];
        let byte = regions[0].as_ptr().as_ptr().wrapping_add(5 << 20);
        // SAFETY: inside the region, and the thread has not started.
        unsafe { byte.write(7) };
        let progress = TouchProgress::default();
        let [first, rest] = regions.each_ref().map(|region| vec![Arc::clone(region)]);
        Toucher::start(first, rest, progress.clone())
            .unwrap()
            .wait();
        let all = (9 << 20) + 4096;
        assert_eq!(
            (progress.total_bytes(), progress.touched_bytes()),
            (all, all)
        );
        assert_eq!(regions[0].resident_bytes(), 9 << 20);
        // SAFETY: the thread has ended.
        assert_eq!(unsafe { byte.read() }, 7);
    }

    #[test]
    fn a_toucher_ends_with_its_owner() {
        let region = region(1 << 30);
        let progress = TouchProgress::default();
        drop(Toucher::start(vec![Arc::clone(&region)], Vec::new(), progress.clone()).unwrap());
        assert_eq!(Arc::strong_count(&region), 1);
    }
}
