//! A shard's wakeup: which lanes have requests, and whether the shard sleeps.
//!
//! - Client threads that are no cores *mark* their lane in a bitmap, so that a shard need not poll
//!   lanes that are mostly idle.
//! - Lanes of other cores are polled while the shard is awake. Their clients only check whether it
//!   sleeps, which costs a load.
//!
//! - I1: a shard sets its sleep flag before it checks for marks and messages. A producer publishes
//!   before it checks the sleep flag.
//! - I2: a lane's mark is cleared before the lane is read, so that later requests mark it again.

use atomic_waker::AtomicWaker;

use crate::transport::atomics::{AtomicBool, AtomicU64, Ordering};
use crate::transport::fence::Fence;

/// A bit for each lane with requests, and whether the shard sleeps.
#[derive(Debug, Default)]
pub(crate) struct Wakeup {
    sleep: Sleep,
    dirty: [AtomicU64; 4],
    pub(crate) waker: AtomicWaker,
}

/// Whether a shard sleeps. On cache lines of its own, because all other cores read it all the time.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Sleep {
    fence: Fence,
    asleep: AtomicBool,
}

impl Wakeup {
    /// Marks a lane that has requests and wakes the shard if it sleeps.
    #[inline]
    pub(crate) fn ring(&self, lane: u8) {
        // ORDERING: SeqCst on both words: either the shard sees the mark before it sleeps, or this
        // sees it asleep.
        self.dirty[usize::from(lane) / 64].fetch_or(1 << (lane % 64), Ordering::SeqCst);
        if self.sleep.asleep.load(Ordering::SeqCst) {
            self.waker.wake();
        }
    }

    /// Wakes the shard if it sleeps, after publishing in a lane that it polls.
    #[inline]
    pub(crate) fn rouse(&self) {
        if self.is_asleep() {
            self.waker.wake();
        }
    }

    /// Wakes the service task, whether or not the shard sleeps.
    pub(crate) fn wake_service(&self) {
        self.waker.wake();
    }

    /// True if the shard sleeps. Called after publishing in a lane that it polls.
    #[inline]
    pub(crate) fn is_asleep(&self) -> bool {
        // ORDERING: this fence pairs with the one in `fall_asleep`: either this thread sees the
        // sleep flag, or the shard sees the message. Acquire: a thread that sees the flag sees the
        // waker.
        self.sleep.fence.light();
        self.sleep.asleep.load(Ordering::Acquire)
    }

    /// Takes and clears the marks of 64 lanes.
    #[inline]
    pub(crate) fn take(&self, word: usize) -> u64 {
        if self.dirty[word].load(Ordering::Relaxed) == 0 {
            return 0;
        }
        self.dirty[word].swap(0, Ordering::SeqCst)
    }

    /// Sets the sleep flag, then has `news` check the lanes that are not marked. False if `news`
    /// finds messages, a lane is marked, or the fence failed: then the shard must not sleep.
    pub(crate) fn fall_asleep(&self, news: impl FnOnce() -> bool) -> bool {
        self.sleep.asleep.store(true, Ordering::SeqCst);
        self.sleep.fence.heavy()
            && self
                .dirty
                .iter()
                .all(|word| word.load(Ordering::SeqCst) == 0)
            && !news()
    }

    /// Clears the sleep flag.
    pub(crate) fn wake_up(&self) {
        self.sleep.asleep.store(false, Ordering::SeqCst);
    }
}

#[cfg(all(test, not(farcore_loom)))]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::{Wake, Waker};

    use super::*;
    use crate::transport::atomics::Arc;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn only_a_sleeper_is_woken() {
        let (wakeup, count) = (Wakeup::default(), Arc::new(Count::default()));
        let woken = |by: &dyn Fn(&Wakeup)| {
            wakeup.waker.register(&Waker::from(Arc::clone(&count)));
            let before = count.0.load(Ordering::Relaxed);
            by(&wakeup);
            count.0.load(Ordering::Relaxed) - before
        };
        assert_eq!(
            (woken(&Wakeup::rouse), woken(&|wakeup| wakeup.ring(3))),
            (0, 0)
        );
        assert!(!wakeup.fall_asleep(|| false), "a lane is marked");
        assert_eq!(wakeup.take(0), 1 << 3);
        assert!(!wakeup.fall_asleep(|| true), "a polled lane has messages");
        assert!(wakeup.fall_asleep(|| false));
        assert_eq!(
            (woken(&Wakeup::rouse), woken(&|wakeup| wakeup.ring(3))),
            (1, 1)
        );
        wakeup.wake_up();
        assert_eq!(
            (woken(&Wakeup::rouse), woken(&Wakeup::wake_service)),
            (0, 1)
        );
    }
}

#[cfg(all(test, farcore_loom))]
mod model {
    use super::*;
    use crate::message::hash::IndexHash;
    use crate::message::operation::{Operation, RequestParts};
    use crate::message::request::Origin;
    use crate::transport::atomics::Arc;
    use crate::transport::queue::{RequestConsumer, queue};

    /// One thread publishes a request and wakes the shard while another looks. Returns the outcome
    /// of both, and the wakeup afterwards.
    fn meet<T: 'static, L>(
        notify: fn(&Wakeup) -> T,
        look: fn(&Wakeup, &mut RequestConsumer) -> L,
    ) -> (T, L, Arc<Wakeup>) {
        let wakeup = Arc::new(Wakeup::default());
        let (mut producer, mut consumer) = queue(64);
        let sender = {
            let wakeup = Arc::clone(&wakeup);
            loom::thread::spawn(move || {
                let mut scratch = Vec::new();
                let parts = RequestParts::of(&Operation::Get { key: b"key" }, &mut scratch);
                let pushed = producer.push(IndexHash(7), 1, Origin::default(), &parts);
                assert!(pushed, "there is room");
                producer.publish();
                notify(&wakeup)
            })
        };
        let looked = look(&wakeup, &mut consumer);
        (sender.join().unwrap(), looked, wakeup)
    }

    #[test]
    fn a_thread_that_takes_a_mark_sees_the_request() {
        loom::model(|| {
            let look = |wakeup: &Wakeup, consumer: &mut RequestConsumer| {
                let taken = wakeup.take(0) != 0;
                let seen = taken && consumer.has_news();
                assert_eq!(taken, seen);
                seen
            };
            let ((), seen, wakeup) = meet(|wakeup| wakeup.ring(3), look);
            assert!(seen || wakeup.take(0) != 0);
        });
    }

    #[test]
    fn the_sleeper_sees_the_request_or_is_woken() {
        loom::model(|| {
            let look = |wakeup: &Wakeup, consumer: &mut RequestConsumer| {
                wakeup.fall_asleep(|| consumer.has_news())
            };
            let (woken, sleeps, _) = meet(Wakeup::is_asleep, look);
            assert!(!sleeps || woken);
        });
    }
}
