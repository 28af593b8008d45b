//! An initiator: a client's side of one endpoint as async calls, for code that is not a shard.
//!
//! Owns the endpoint, a registered scratch region and the buffers cut from it. Any number of calls
//! may be under way on one thread; whichever is polled takes in the completions of all, so any
//! executor will do, or none but a loop.
//!
//! - I1: a buffer stays with its entry from the post until the completion, also when the call that
//!   wanted it is dropped.
//! - I2: an entry ends once: taken by its call, or given back at its completion if the call was
//!   dropped.
//! - I3: whatever was posted is rung for before a call waits or fails.
//! - I4: nothing is borrowed over an await.
//!
//! A call that waits polls the endpoint and wakes itself: this is for work that is short against a
//! round trip, or for a core that polls anyway. A call waits, rather than fails, while the queue or
//! the scratch memory is full; one that is neither polled nor dropped keeps its buffers.

#![allow(unsafe_code)] // copies into and out of scratch memory that the fabric is done with

mod batch;
mod error;

use std::cell::RefCell;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use farcore_tuning::Clock;

use self::batch::{Add, Batch, Reads, Swaps, Write};
use crate::fabric::{Endpoint, PostError, QueuePairState};
use crate::landing::{Landing, LandingOptions, LandingPool};
use crate::memory;
use crate::region::{Lock, Region, RegionOptions};
use crate::work::{Completion, LocalKey, LocalSlice, RemoteSlice, Status, WorkId, WorkRequest};

pub use self::batch::{CompareAndSwap, ReadInto};
pub use self::error::{InitiatorError, ScratchError};

const COMPLETIONS_PER_POLL: usize = 32;
/// What is left for short buffers, at least.
const SHORT_BYTES_MIN: u32 = 64 << 10;
const NONE: u32 = u32::MAX;

/// How an initiator's scratch memory is cut.
#[derive(Clone, Copy, Debug)]
pub struct InitiatorOptions {
    /// Scratch memory; at least two of the longest transfers and 64 KiB are taken. 2 MiB.
    pub scratch_bytes: u32,
    /// The longest single transfer. 512 KiB.
    pub longest_bytes: u32,
    /// Whether scratch memory is locked.
    pub lock: Lock,
}

impl Default for InitiatorOptions {
    fn default() -> Self {
        Self {
            scratch_bytes: 2 << 20,
            longest_bytes: 512 << 10,
            lock: Lock::Try,
        }
    }
}

/// An endpoint for async calls of one thread.
#[derive(Debug)]
pub struct Initiator<E> {
    inner: RefCell<Inner<E>>,
    clock: Clock,
    longest_bytes: u32,
}

#[derive(Debug)]
struct Inner<E> {
    endpoint: E,
    key: LocalKey,
    region: Arc<Region>,
    buffers: LandingPool,
    entries: Vec<Entry>,
    /// The first free entry.
    free: u32,
    completions: [Completion; COMPLETIONS_PER_POLL],
}

/// A request, by its work id.
#[derive(Debug)]
struct Entry {
    /// The next of the same call, or the next free one.
    next: u32,
    state: State,
}

#[derive(Debug)]
enum State {
    Free,
    InFlight { buffer: Landing, wanted: bool },
    Done { buffer: Landing, status: Status },
}

impl<E: Endpoint> Initiator<E> {
    /// An initiator; it registers its scratch memory.
    ///
    /// # Errors
    /// [`ScratchError`] if there is no scratch memory.
    pub fn new(mut endpoint: E, options: InitiatorOptions) -> Result<Self, ScratchError> {
        let longest_bytes = options.longest_bytes.max(8);
        let needed = longest_bytes
            .saturating_mul(2)
            .saturating_add(SHORT_BYTES_MIN);
        let bytes = options.scratch_bytes.max(needed);
        let region = Arc::new(Region::map(&RegionOptions {
            bytes: bytes as usize,
            huge_pages: false,
            lock: options.lock,
            prefault: false,
        })?);
        let key = endpoint.register(Arc::clone(&region))?;
        let buffers = LandingPool::new(LandingOptions {
            base: 0,
            bytes: u64::from(bytes),
            large_bytes: u64::from((bytes / 2).max(longest_bytes.next_multiple_of(8 << 10))),
        });
        let inner = Inner {
            endpoint,
            key,
            region,
            buffers,
            entries: Vec::new(),
            free: NONE,
            completions: [Completion::NONE; COMPLETIONS_PER_POLL],
        };
        Ok(Self {
            inner: RefCell::new(inner),
            clock: Clock::new(),
            longest_bytes,
        })
    }

    /// The longest single transfer, in bytes.
    #[must_use]
    pub fn longest_bytes(&self) -> u32 {
        self.longest_bytes
    }

    /// The state of a queue pair; `None` if there is none of that index.
    #[must_use]
    pub fn state(&self, queue: usize) -> Option<QueuePairState> {
        let inner = self.inner.borrow();
        (queue < inner.endpoint.queues()).then(|| inner.endpoint.state(queue))
    }

    /// Takes in what has completed and brings a queue pair back, if it is drained; answers its
    /// state then.
    pub fn renew(&self, queue: usize) -> Option<QueuePairState> {
        let inner = &mut *self.inner.borrow_mut();
        inner.take_in(self.clock.now_ns());
        (queue < inner.endpoint.queues()).then(|| {
            inner.endpoint.renew(queue);
            inner.endpoint.state(queue)
        })
    }

    /// The endpoint itself, to connect or inspect it. Posting or polling there would lose
    /// completions, and `act` must not call the initiator.
    pub fn with_endpoint<T>(&self, act: impl FnOnce(&mut E) -> T) -> T {
        act(&mut self.inner.borrow_mut().endpoint)
    }

    /// Reads far memory. Cost: one round trip.
    ///
    /// # Errors
    /// [`InitiatorError`]; `into` then holds anything.
    pub async fn read(
        &self,
        queue: usize,
        remote: RemoteSlice,
        into: &mut [u8],
    ) -> Result<(), InitiatorError> {
        self.perform(queue, Reads(&mut [ReadInto { remote, into }]))
            .await
    }

    /// Reads many places. Cost: one doorbell and round trip, as far as the queue and scratch memory
    /// hold them.
    ///
    /// # Errors
    /// [`InitiatorError`], the first one.
    pub async fn read_many(
        &self,
        queue: usize,
        reads: &mut [ReadInto<'_>],
    ) -> Result<(), InitiatorError> {
        self.perform(queue, Reads(reads)).await
    }

    /// Writes far memory. Cost: one round trip. If the call is dropped the write may happen all the
    /// same.
    ///
    /// # Errors
    /// [`InitiatorError`]; some of it may have been written.
    pub async fn write(
        &self,
        queue: usize,
        remote: RemoteSlice,
        from: &[u8],
    ) -> Result<(), InitiatorError> {
        self.perform(queue, Write { remote, from }).await
    }

    /// Stores `desired` in a far word if it is `expected`; answers what it was. Cost: one round
    /// trip.
    ///
    /// # Errors
    /// [`InitiatorError`]; if the queue pair failed, it may have been done.
    pub async fn compare_and_swap(
        &self,
        queue: usize,
        remote: RemoteSlice,
        expected: u64,
        desired: u64,
    ) -> Result<u64, InitiatorError> {
        let swap = CompareAndSwap {
            remote,
            expected,
            desired,
        };
        let mut old = [0];
        self.compare_and_swap_many(queue, &[swap], &mut old).await?;
        Ok(old[0])
    }

    /// Compare-and-swaps, each by itself, in their order; `old` gets what the words were. Those
    /// that `old` has no room for are not done. Cost: as of [`Initiator::read_many`].
    ///
    /// # Errors
    /// [`InitiatorError`], the first one; others may have been done.
    pub async fn compare_and_swap_many(
        &self,
        queue: usize,
        swaps: &[CompareAndSwap],
        old: &mut [u64],
    ) -> Result<(), InitiatorError> {
        self.perform(queue, Swaps { swaps, old }).await
    }

    /// Adds to a far word, wrapping; answers what it was. Cost: one round trip.
    ///
    /// # Errors
    /// [`InitiatorError`]; if the queue pair failed, it may have been done.
    pub async fn fetch_add(
        &self,
        queue: usize,
        remote: RemoteSlice,
        addend: u64,
    ) -> Result<u64, InitiatorError> {
        let mut old = 0;
        let add = Add {
            remote,
            addend,
            old: &mut old,
        };
        self.perform(queue, add).await?;
        Ok(old)
    }

    async fn perform(&self, queue: usize, mut batch: impl Batch) -> Result<(), InitiatorError> {
        let queues = self.inner.borrow().endpoint.queues();
        if queue >= queues {
            return Err(InitiatorError::NoQueue { queue, queues });
        }
        let limit = self.longest_bytes;
        let too_long = |&bytes: &usize| bytes > limit as usize;
        if let Some(bytes) = (0..batch.count()).map(|i| batch.bytes(i)).find(too_long) {
            return Err(InitiatorError::TooLong { bytes, limit });
        }
        let mut call = Call {
            initiator: self,
            queue,
            first: NONE,
            last: NONE,
            begun: 0,
            landed: 0,
        };
        poll_fn(|context| {
            let done = call.step(&mut batch);
            if done.is_pending() {
                context.waker().wake_by_ref();
            }
            done
        })
        .await
    }
}

/// A call under way: the list of its requests that are not taken yet, oldest first.
struct Call<'a, E: Endpoint> {
    initiator: &'a Initiator<E>,
    queue: usize,
    first: u32,
    last: u32,
    begun: usize,
    landed: usize,
}

impl<E: Endpoint> Call<'_, E> {
    fn step(&mut self, batch: &mut impl Batch) -> Poll<Result<(), InitiatorError>> {
        let inner = &mut *self.initiator.inner.borrow_mut();
        loop {
            inner.take_in(self.initiator.clock.now_ns());
            while self.first != NONE {
                let index = self.landed;
                let queue = self.queue;
                let Some((next, landed)) = inner.take(self.first, |status, scratch| match status {
                    Status::Success => {
                        batch.landed(index, &scratch[..batch.bytes(index)]);
                        Ok(())
                    }
                    status => Err(InitiatorError::Failed { queue, status }),
                }) else {
                    break;
                };
                self.first = next;
                self.landed += 1;
                landed?;
            }
            if self.landed == batch.count() {
                return Poll::Ready(Ok(()));
            }
            let begun = self.begun;
            let posted = self.post(inner, batch);
            if self.begun > begun {
                let now_ns = self.initiator.clock.now_ns();
                inner.endpoint.ring_doorbell(self.queue, now_ns);
            }
            posted?;
            if self.begun == begun {
                return Poll::Pending;
            }
            // What was just rung for may be done already.
        }
    }

    /// Posts what there is room for.
    fn post(&mut self, inner: &mut Inner<E>, batch: &impl Batch) -> Result<(), InitiatorError> {
        while self.begun < batch.count() {
            let Some(entry) = inner.begin(self.queue, batch, self.begun)? else {
                break;
            };
            match self.first {
                NONE => self.first = entry,
                _ => inner.entries[self.last as usize].next = entry,
            }
            self.last = entry;
            self.begun += 1;
        }
        Ok(())
    }
}

impl<E: Endpoint> Drop for Call<'_, E> {
    fn drop(&mut self) {
        if self.first != NONE {
            self.initiator.inner.borrow_mut().abandon(self.first);
        }
    }
}

impl<E: Endpoint> Inner<E> {
    /// Posts one request of a batch; `None` while there is no room.
    fn begin(
        &mut self,
        queue: usize,
        batch: &impl Batch,
        index: usize,
    ) -> Result<Option<u32>, InitiatorError> {
        let state = self.endpoint.state(queue);
        if matches!(state, QueuePairState::Error | QueuePairState::Drained) {
            return Err(InitiatorError::Down { queue, state });
        }
        if self.endpoint.room(queue) == 0 {
            return Ok(None);
        }
        // Checked against the longest transfer before.
        let bytes = u32::try_from(batch.bytes(index)).unwrap_or(u32::MAX);
        let Some(buffer) = self.buffers.allocate(bytes) else {
            return Ok(None);
        };
        // SAFETY: the buffer is inside the region and was just allocated: nothing else refers to
        // it, and the fabric does not know it yet.
        batch.fill(index, unsafe {
            &mut *scratch(&self.region, &buffer, bytes)
        });
        let local = LocalSlice {
            key: self.key,
            offset: buffer.offset(),
            bytes,
        };
        let entry = self.entry();
        let posted = self.endpoint.post(
            queue,
            WorkRequest {
                id: WorkId(u64::from(entry)),
                work: batch.work(index, local),
                signalled: true,
            },
        );
        let failed = match posted {
            Ok(()) => {
                self.entries[entry as usize] = Entry {
                    next: NONE,
                    state: State::InFlight {
                        buffer,
                        wanted: true,
                    },
                };
                return Ok(Some(entry));
            }
            Err(PostError::Full(_)) => Ok(None),
            Err(PostError::Down(_)) => Err(InitiatorError::Down {
                queue,
                state: self.endpoint.state(queue),
            }),
            Err(PostError::Invalid { reason, .. }) => {
                Err(InitiatorError::Refused { queue, reason })
            }
        };
        self.buffers.free(buffer);
        self.release(entry);
        failed
    }

    /// A free entry, no longer in the list of free ones.
    fn entry(&mut self) -> u32 {
        if self.free == NONE {
            let entry = u32::try_from(self.entries.len()).unwrap_or(NONE);
            self.entries.push(Entry {
                next: NONE,
                state: State::Free,
            });
            return entry;
        }
        let entry = self.free;
        self.free = self.entries[entry as usize].next;
        entry
    }

    fn release(&mut self, entry: u32) {
        self.entries[entry as usize] = Entry {
            next: self.free,
            state: State::Free,
        };
        self.free = entry;
    }

    /// Takes in all completions that there are.
    fn take_in(&mut self, now_ns: u64) {
        loop {
            let count = self.endpoint.poll(now_ns, &mut self.completions);
            for place in 0..count {
                let Completion { id, status, .. } = self.completions[place];
                self.complete(id, status);
            }
            if count < COMPLETIONS_PER_POLL {
                return;
            }
        }
    }

    fn complete(&mut self, id: WorkId, status: Status) {
        let Some(index) = u32::try_from(id.0).ok() else {
            return;
        };
        let Some(entry) = self.entries.get_mut(index as usize) else {
            return;
        };
        match std::mem::replace(&mut entry.state, State::Free) {
            State::InFlight {
                buffer,
                wanted: true,
            } => entry.state = State::Done { buffer, status },
            State::InFlight { buffer, .. } => {
                self.buffers.free(buffer);
                self.release(index);
            }
            other => {
                debug_assert!(false, "a completion of nothing that is in flight");
                entry.state = other;
            }
        }
    }

    /// Ends an entry that is done; `None` if it is not. Answers the next of its call.
    fn take<T>(&mut self, entry: u32, landed: impl FnOnce(Status, &[u8]) -> T) -> Option<(u32, T)> {
        let Entry { next, state } = &mut self.entries[entry as usize];
        let next = *next;
        if !matches!(state, State::Done { .. }) {
            return None;
        }
        let State::Done { buffer, status } = std::mem::replace(state, State::Free) else {
            return None;
        };
        // SAFETY: inside the region, and the entry holds the buffer until below; it has completed,
        // so the fabric is done.
        let answer = landed(status, unsafe {
            &*scratch(&self.region, &buffer, buffer.bytes())
        });
        self.buffers.free(buffer);
        self.release(entry);
        Some((next, answer))
    }

    /// The call of these entries is gone: their buffers go back when the fabric is done with them.
    fn abandon(&mut self, mut entry: u32) {
        while entry != NONE {
            let next = self.entries[entry as usize].next;
            if self.take(entry, |_, _| ()).is_none()
                && let State::InFlight { wanted, .. } = &mut self.entries[entry as usize].state
            {
                *wanted = false;
            }
            entry = next;
        }
    }
}

/// A buffer's bytes, as far as they are used.
fn scratch(region: &Region, buffer: &Landing, bytes: u32) -> *mut [u8] {
    let place = memory::pointer(region, buffer.offset(), bytes);
    let place = place.expect("buffers are cut from the region");
    std::ptr::slice_from_raw_parts_mut(place, bytes as usize)
}

#[cfg(test)]
mod tests;
