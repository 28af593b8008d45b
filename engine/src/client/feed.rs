//! A feed: all changes of an engine, as its shards make them, for a reader that passes them on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::message::section::next_section;
use crate::reactor::CoreShared;

/// How long a start waits for all cores.
const START: Duration = Duration::from_secs(10);

/// The changes of an engine, as [`Fed`](crate::Fed) describes them. One reader at a time: who
/// starts it takes it from another.
///
/// Each shard has a row of its own. What it says is in the order in which the shard has made its
/// changes; between shards there is no order, but that sections of several shards say so. While the
/// reader takes nothing, each shard keeps some 5 MiB; then its changes wait.
#[derive(Clone, Debug)]
pub struct Feed {
    cores: Arc<[Arc<CoreShared>]>,
    number: Arc<AtomicU64>,
}

impl Feed {
    pub(crate) fn new(cores: &[Arc<CoreShared>]) -> Self {
        Self {
            cores: cores.into(),
            number: Arc::default(),
        }
    }

    /// How many shards there are.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.cores.len()
    }

    /// Starts it, from now on: each change that is answered after the return is in it. `waker` is
    /// woken as [`Feed::wait`] says. False if the cores do not answer, as those of an engine that
    /// closes. It blocks for a turn of each core; no core may call it.
    #[must_use]
    pub fn start(&self, waker: &Waker) -> bool {
        self.set(1, Some(waker))
    }

    /// Ends it.
    pub fn stop(&self) {
        self.set(0, None);
    }

    fn set(&self, parity: u64, waker: Option<&Waker>) -> bool {
        let next = |number: u64| Some(number + 1 + u64::from((number + 1) % 2 != parity));
        // ORDERING: relaxed; each port makes its own number visible.
        let before = self
            .number
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        let number = before.ok().and_then(next).unwrap_or(parity);
        for core in self.cores.iter() {
            core.command_port.feed.want(number, waker.cloned());
            core.command_port.wakeup.ring(0);
        }
        let until = Instant::now() + START;
        let has_seen = |core: &Arc<CoreShared>| core.command_port.feed.has_seen(number);
        while !self.cores.iter().all(has_seen) {
            let is_closed = |core: &Arc<CoreShared>| core.closed.load(Ordering::Acquire);
            if self.cores.iter().any(is_closed) || Instant::now() > until {
                return false;
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        true
    }

    /// The number of the first section of which all shards have their part, if it is called after
    /// [`Feed::start`]: of those with lesser numbers some may have begun before.
    #[must_use]
    pub fn whole_sections(&self) -> u64 {
        next_section()
    }

    /// Bytes of entries that a shard has noted since [`Feed::start`]: once the reader has taken
    /// that many, it has each change that was answered before this call.
    #[must_use]
    pub fn noted(&self, shard: usize) -> u64 {
        self.cores[shard].command_port.feed.noted()
    }

    /// Takes entries of a shard, whole ones; `None` if there are none. Give the buffer back with
    /// [`Feed::give_back`].
    #[must_use]
    pub fn take(&self, shard: usize) -> Option<Vec<u8>> {
        let port = &self.cores[shard].command_port;
        let (chunk, is_behind) = port.feed.take()?;
        if is_behind {
            port.wakeup.ring(0);
        }
        Some(chunk)
    }

    /// Gives a buffer back that was taken.
    pub fn give_back(&self, shard: usize, chunk: Vec<u8>) {
        self.cores[shard].command_port.feed.give_back(chunk);
    }

    /// Has the waker woken once a shard has more. False if one has by now.
    #[must_use]
    pub fn wait(&self) -> bool {
        let mut is_empty = true;
        for core in self.cores.iter() {
            is_empty &= core.command_port.feed.await_chunk();
        }
        is_empty
    }
}
