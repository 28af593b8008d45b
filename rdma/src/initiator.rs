//! An initiator: async calls over one endpoint, for code that is not a shard.
//!
//! Owns the endpoint, a registered scratch region and the buffers allocated from it. Any number of
//! calls may be in flight. Each poll of a call processes the completions of all, so any executor
//! works, and so does a plain loop. If the endpoint may move between threads, so may the initiator,
//! and many threads may share it.
//!
//! - I1: a buffer stays with its entry from the post until the completion, even if its call is
//!   dropped.
//! - I2: an entry ends once: its call takes it, or it is freed at its completion if the call was
//!   dropped.
//! - I3: the doorbell is rung for all posted requests before a call waits or fails.
//! - I4: the lock is held for a few steps and polls of the endpoint: never across an await.
//! - I5: a call that names a session posts nothing on a queue pair that was renewed for another.
//!
//! A waiting call polls the endpoint and wakes itself. This suits work that is short compared with
//! a round trip, or a core that polls anyway. With [`InitiatorOptions::is_driven`] it only
//! registers its waker instead, and a thread of the owner calls [`Initiator::drive`]. A call waits,
//! rather than fails, while the queue or the scratch memory is full; a call that is neither polled
//! nor dropped keeps its buffers.

#![allow(unsafe_code)] // copies into and out of scratch memory that no request names

mod batch;
mod error;

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use farcore_tuning::Clock;

use self::batch::{Add, Batch, Reads, Swaps, Writes};
use crate::fabric::{Endpoint, PostError, QueuePairState};
use crate::landing::{Landing, LandingOptions, LandingPool};
use crate::memory;
use crate::region::{Lock, Region, RegionOptions};
use crate::work::{Completion, LocalKey, LocalSlice, RemoteSlice, Status, WorkId, WorkRequest};

pub use self::batch::{CompareAndSwap, ReadInto, WriteFrom};
pub use self::error::{InitiatorError, ScratchError};

const COMPLETIONS_PER_POLL: usize = 32;
/// Requests that a long call posts for a doorbell, once as many have completed: with fewer, a send
/// for each dominates; with more, both sides wait for each other.
const REFILL: usize = 8;
/// Scratch memory reserved for short buffers, at least.
const SHORT_BYTES_MIN: u32 = 64 << 10;
const NONE: u32 = u32::MAX;

/// Settings of an initiator's scratch memory.
#[derive(Clone, Copy, Debug)]
pub struct InitiatorOptions {
    /// Bytes of scratch memory. At least two of the longest transfers plus 64 KiB are allocated.
    /// Default: 2 MiB.
    pub scratch_bytes: u32,
    /// The longest single transfer, in bytes. Default: 512 KiB.
    pub longest_bytes: u32,
    /// Whether scratch memory is locked.
    pub lock: Lock,
    /// Whether [`Initiator::drive`] processes completions, rather than each waiting call.
    pub is_driven: bool,
}

impl Default for InitiatorOptions {
    fn default() -> Self {
        Self {
            scratch_bytes: 2 << 20,
            longest_bytes: 512 << 10,
            lock: Lock::Try,
            is_driven: false,
        }
    }
}

/// What [`Initiator::drive`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Driven {
    /// Requests that completed.
    pub completed: usize,
    /// Requests that have not.
    pub outstanding: usize,
}

/// Requests of one queue pair so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Requests posted.
    pub posted: u64,
    /// Requests that have completed: the first ones, since a queue pair keeps their order.
    pub completed: u64,
}

/// A queue pair, and the session that a call belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueOf {
    /// The queue pair.
    pub queue: usize,
    /// The session for which the queue pair must have been renewed; `None` for any.
    pub session: Option<u64>,
}

impl From<usize> for QueueOf {
    fn from(queue: usize) -> Self {
        Self {
            queue,
            session: None,
        }
    }
}

/// An endpoint with async calls.
#[derive(Debug)]
pub struct Initiator<E> {
    inner: Mutex<Inner<E>>,
    clock: Clock,
    longest_bytes: u32,
    is_driven: bool,
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
    /// The session for which each queue pair was renewed.
    sessions: Vec<Option<u64>>,
    counts: Vec<Counts>,
    /// Calls that wait for room.
    starved: Vec<Waker>,
    /// Whether a buffer was freed since a call last starved.
    has_freed: bool,
    /// Calls to be woken once the lock is released.
    woken: Vec<Waker>,
    completions: [Completion; COMPLETIONS_PER_POLL],
}

/// A request in flight, indexed by its work id.
#[derive(Debug)]
struct Entry {
    /// The next entry of the same call, or the next free one.
    next: u32,
    queue: usize,
    state: State,
}

#[derive(Debug)]
enum State {
    Free,
    InFlight {
        buffer: Landing,
        wanted: bool,
        waker: Option<Waker>,
    },
    Done {
        buffer: Landing,
        status: Status,
    },
}

impl<E: Endpoint> Initiator<E> {
    /// Creates an initiator and registers its scratch memory.
    ///
    /// # Errors
    /// [`ScratchError`] if the scratch memory cannot be mapped or registered.
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
            sessions: vec![None; endpoint.queues()],
            counts: vec![Counts::default(); endpoint.queues()],
            starved: Vec::new(),
            has_freed: false,
            woken: Vec::new(),
            endpoint,
            key,
            region,
            buffers,
            entries: Vec::new(),
            free: NONE,
            completions: [Completion::NONE; COMPLETIONS_PER_POLL],
        };
        Ok(Self {
            inner: Mutex::new(inner),
            clock: Clock::new(),
            longest_bytes,
            is_driven: options.is_driven,
        })
    }

    fn inner(&self) -> MutexGuard<'_, Inner<E>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The longest single transfer, in bytes.
    #[must_use]
    pub fn longest_bytes(&self) -> u32 {
        self.longest_bytes
    }

    /// The state of a queue pair; `None` if the index is out of range.
    #[must_use]
    pub fn state(&self, queue: usize) -> Option<QueuePairState> {
        let inner = self.inner();
        (queue < inner.endpoint.queues()).then(|| inner.endpoint.state(queue))
    }

    /// Processes completions and renews a queue pair if it is drained. Returns its state
    /// afterwards.
    pub fn renew(&self, queue: usize) -> Option<QueuePairState> {
        let (state, woken) = {
            let inner = &mut *self.inner();
            inner.take_in(self.clock.now_ns());
            let state = (queue < inner.endpoint.queues()).then(|| {
                inner.endpoint.renew(queue);
                inner.endpoint.state(queue)
            });
            (state, std::mem::take(&mut inner.woken))
        };
        woken.into_iter().for_each(Waker::wake);
        state
    }

    /// As [`Initiator::renew`]; from now on the queue pair belongs to a session. Connections that
    /// are offered from another session must be offered after this.
    pub fn renew_for(&self, queue: usize, session: u64) -> Option<QueuePairState> {
        if let Some(own) = self.inner().sessions.get_mut(queue) {
            *own = Some(session);
        }
        self.renew(queue)
    }

    /// What a queue pair has posted and completed.
    #[must_use]
    pub fn counts(&self, queue: usize) -> Counts {
        self.inner().counts.get(queue).copied().unwrap_or_default()
    }

    /// Processes completions and wakes the calls that they end. `wakers` is empty, and kept by the
    /// caller for its capacity. Cost: a poll of the endpoint.
    pub fn drive(&self, wakers: &mut Vec<Waker>) -> Driven {
        let driven = {
            let inner = &mut *self.inner();
            let completed = inner.take_in(self.clock.now_ns());
            std::mem::swap(&mut inner.woken, wakers);
            Driven {
                completed,
                outstanding: inner.endpoint.outstanding(),
            }
        };
        // A waker may poll its call at once, which takes the lock.
        wakers.drain(..).for_each(Waker::wake);
        driven
    }

    /// Gives access to the endpoint, to connect or inspect it. Posting or polling there loses
    /// completions, and `act` must not call the initiator.
    pub fn with_endpoint<T>(&self, act: impl FnOnce(&mut E) -> T) -> T {
        act(&mut self.inner().endpoint)
    }

    /// Reads far memory. Cost: one round trip.
    ///
    /// # Errors
    /// [`InitiatorError`]; the contents of `into` are then unspecified.
    pub async fn read(
        &self,
        queue: impl Into<QueueOf>,
        remote: RemoteSlice,
        into: &mut [u8],
    ) -> Result<(), InitiatorError> {
        self.perform(queue.into(), Reads(&mut [ReadInto { remote, into }]))
            .await
    }

    /// Reads many places. Cost: one doorbell and one round trip if the queue and the scratch memory
    /// have room for all; else the queue is kept full, with a doorbell for 8.
    ///
    /// # Errors
    /// The first [`InitiatorError`].
    pub async fn read_many(
        &self,
        queue: impl Into<QueueOf>,
        reads: &mut [ReadInto<'_>],
    ) -> Result<(), InitiatorError> {
        self.perform(queue.into(), Reads(reads)).await
    }

    /// Writes far memory. Cost: one round trip. If the call is dropped, the write may still be
    /// performed.
    ///
    /// # Errors
    /// [`InitiatorError`]; part of the data may have been written.
    pub async fn write(
        &self,
        queue: impl Into<QueueOf>,
        remote: RemoteSlice,
        from: &[u8],
    ) -> Result<(), InitiatorError> {
        self.write_many(queue, &[WriteFrom { remote, from }]).await
    }

    /// Writes many places, in order. Cost: as for [`Initiator::read_many`].
    ///
    /// # Errors
    /// The first [`InitiatorError`]; other writes may have been performed.
    pub async fn write_many(
        &self,
        queue: impl Into<QueueOf>,
        writes: &[WriteFrom<'_>],
    ) -> Result<(), InitiatorError> {
        self.perform(queue.into(), Writes(writes)).await
    }

    /// Stores `desired` in a far word if it equals `expected`. Returns the old value. Cost: one
    /// round trip.
    ///
    /// # Errors
    /// [`InitiatorError`]; if the queue pair failed, the operation may have been performed.
    pub async fn compare_and_swap(
        &self,
        queue: impl Into<QueueOf>,
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

    /// Performs compare-and-swaps, each atomic alone, in order. `old` receives the old values;
    /// swaps beyond its length are not performed. Cost: as for [`Initiator::read_many`].
    ///
    /// # Errors
    /// The first [`InitiatorError`]; other swaps may have been performed.
    pub async fn compare_and_swap_many(
        &self,
        queue: impl Into<QueueOf>,
        swaps: &[CompareAndSwap],
        old: &mut [u64],
    ) -> Result<(), InitiatorError> {
        self.perform(queue.into(), Swaps { swaps, old }).await
    }

    /// Adds to a far word, wrapping. Returns the old value. Cost: one round trip.
    ///
    /// # Errors
    /// [`InitiatorError`]; if the queue pair failed, the operation may have been performed.
    pub async fn fetch_add(
        &self,
        queue: impl Into<QueueOf>,
        remote: RemoteSlice,
        addend: u64,
    ) -> Result<u64, InitiatorError> {
        let mut old = 0;
        let add = Add {
            remote,
            addend,
            old: &mut old,
        };
        self.perform(queue.into(), add).await?;
        Ok(old)
    }

    async fn perform(&self, of: QueueOf, mut batch: impl Batch) -> Result<(), InitiatorError> {
        let queue = of.queue;
        let queues = self.inner().endpoint.queues();
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
            of,
            first: NONE,
            last: NONE,
            begun: 0,
            landed: 0,
        };
        poll_fn(|context| {
            let done = call.step(&mut batch, context);
            if done.is_pending() && !self.is_driven {
                context.waker().wake_by_ref();
            }
            done
        })
        .await
    }
}

/// A call in flight: the list of its requests that have not ended, oldest first.
struct Call<'a, E: Endpoint> {
    initiator: &'a Initiator<E>,
    of: QueueOf,
    first: u32,
    last: u32,
    begun: usize,
    landed: usize,
}

impl<E: Endpoint> Call<'_, E> {
    fn step(
        &mut self,
        batch: &mut impl Batch,
        context: &Context<'_>,
    ) -> Poll<Result<(), InitiatorError>> {
        let (done, starved) = {
            let inner = &mut *self.initiator.inner();
            let done = self.step_within(inner, batch, context);
            (done, inner.take_fed())
        };
        starved.into_iter().for_each(Waker::wake);
        done
    }

    fn step_within(
        &mut self,
        inner: &mut Inner<E>,
        batch: &mut impl Batch,
        context: &Context<'_>,
    ) -> Poll<Result<(), InitiatorError>> {
        let (queue, is_driven) = (self.of.queue, self.initiator.is_driven);
        loop {
            if !is_driven {
                inner.take_in(self.initiator.clock.now_ns());
            }
            while self.first != NONE {
                let index = self.landed;
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
            self.post(inner, batch)?;
            if is_driven {
                let awaited = self.awaited(inner, batch);
                inner.wait(awaited, self.first == NONE, context.waker());
                return Poll::Pending;
            }
            if self.begun == begun {
                return Poll::Pending;
            }
            // Requests just rung for may have completed already.
        }
    }

    /// The request whose completion is awaited: the last one, or, while there is more to post, one
    /// of the first, so that the far side does not run dry.
    fn awaited(&self, inner: &Inner<E>, batch: &impl Batch) -> u32 {
        if self.begun == batch.count() {
            return self.last;
        }
        let mut awaited = self.first;
        for _ in 1..REFILL {
            match inner.entries.get(awaited as usize) {
                Some(entry) if awaited != self.last => awaited = entry.next,
                _ => break,
            }
        }
        awaited
    }

    /// Posts as many requests as there is room for. One doorbell if that is all of them, else one
    /// for a few: the far side serves the first ones while the call posts the rest.
    fn post(&mut self, inner: &mut Inner<E>, batch: &impl Batch) -> Result<(), InitiatorError> {
        let is_all = batch.count() - self.begun <= inner.endpoint.room(self.of.queue);
        let most = if is_all { usize::MAX } else { REFILL };
        loop {
            let begun = self.begun;
            let posted = self.post_some(inner, batch, most);
            let count = self.begun - begun;
            if count > 0 {
                let now_ns = self.initiator.clock.now_ns();
                inner.endpoint.ring_doorbell(self.of.queue, now_ns);
            }
            posted?;
            if count < most {
                return Ok(());
            }
        }
    }

    /// Posts requests: at most `most`, and as many as there is room for.
    fn post_some(
        &mut self,
        inner: &mut Inner<E>,
        batch: &impl Batch,
        most: usize,
    ) -> Result<(), InitiatorError> {
        let end = batch.count().min(self.begun.saturating_add(most));
        while self.begun < end {
            let Some(entry) = inner.begin(self.of, batch, self.begun)? else {
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
            let starved = {
                let inner = &mut *self.initiator.inner();
                inner.abandon(self.first);
                inner.take_fed()
            };
            starved.into_iter().for_each(Waker::wake);
        }
    }
}

impl<E: Endpoint> Inner<E> {
    /// Posts one request of a batch; `None` if there is no room.
    fn begin(
        &mut self,
        of: QueueOf,
        batch: &impl Batch,
        index: usize,
    ) -> Result<Option<u32>, InitiatorError> {
        let QueueOf { queue, session } = of;
        if session.is_some() && session != self.sessions[queue] {
            return Err(InitiatorError::OtherSession { queue });
        }
        let state = self.endpoint.state(queue);
        if matches!(state, QueuePairState::Error | QueuePairState::Drained) {
            return Err(InitiatorError::Down { queue, state });
        }
        if self.endpoint.room(queue) == 0 {
            return Ok(None);
        }
        // Was checked against the longest transfer.
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
                self.counts[queue].posted += 1;
                self.entries[entry as usize] = Entry {
                    next: NONE,
                    queue,
                    state: State::InFlight {
                        buffer,
                        wanted: true,
                        waker: None,
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

    /// Takes a free entry out of the free list.
    fn entry(&mut self) -> u32 {
        if self.free == NONE {
            let entry = u32::try_from(self.entries.len()).unwrap_or(NONE);
            self.entries.push(Entry {
                next: NONE,
                queue: 0,
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
            queue: 0,
            state: State::Free,
        };
        self.free = entry;
    }

    /// Registers the waker of a call: for the completion of one of its requests, or, if it could
    /// post none, for any completion.
    fn wait(&mut self, awaited: u32, is_starved: bool, waker: &Waker) {
        if is_starved {
            self.has_freed = false;
            self.starved.push(waker.clone());
        } else if let Some(Entry {
            state: State::InFlight { waker: own, .. },
            ..
        }) = self.entries.get_mut(awaited as usize)
        {
            match own {
                Some(own) => own.clone_from(waker),
                None => *own = Some(waker.clone()),
            }
        }
    }

    /// The calls that starved for a buffer, if one was freed since.
    fn take_fed(&mut self) -> Vec<Waker> {
        if self.has_freed {
            std::mem::take(&mut self.starved)
        } else {
            Vec::new()
        }
    }

    /// Processes all completions. Returns their number.
    fn take_in(&mut self, now_ns: u64) -> usize {
        let mut all = 0;
        loop {
            let count = self.endpoint.poll(now_ns, &mut self.completions);
            all += count;
            for place in 0..count {
                let Completion { id, status, .. } = self.completions[place];
                self.complete(id, status);
            }
            if count < COMPLETIONS_PER_POLL {
                break;
            }
        }
        if all > 0 {
            self.woken.append(&mut self.starved);
        }
        all
    }

    fn complete(&mut self, id: WorkId, status: Status) {
        let Some(index) = u32::try_from(id.0).ok() else {
            return;
        };
        let Some(entry) = self.entries.get_mut(index as usize) else {
            return;
        };
        if matches!(entry.state, State::InFlight { .. }) {
            self.counts[entry.queue].completed += 1;
        }
        match std::mem::replace(&mut entry.state, State::Free) {
            State::InFlight {
                buffer,
                wanted: true,
                waker,
            } => {
                entry.state = State::Done { buffer, status };
                self.woken.extend(waker);
            }
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

    /// Ends a completed entry and returns the next one of its call; `None` if it has not completed.
    fn take<T>(&mut self, entry: u32, landed: impl FnOnce(Status, &[u8]) -> T) -> Option<(u32, T)> {
        let Entry { next, state, .. } = &mut self.entries[entry as usize];
        let next = *next;
        if !matches!(state, State::Done { .. }) {
            return None;
        }
        let State::Done { buffer, status } = std::mem::replace(state, State::Free) else {
            return None;
        };
        // SAFETY: inside the region, and the entry holds the buffer until below. It has completed,
        // so the fabric no longer accesses it.
        let answer = landed(status, unsafe {
            &*scratch(&self.region, &buffer, buffer.bytes())
        });
        self.buffers.free(buffer);
        self.has_freed = true;
        self.release(entry);
        Some((next, answer))
    }

    /// The call was dropped: its buffers are freed as their requests complete.
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

/// The used part of a buffer.
fn scratch(region: &Region, buffer: &Landing, bytes: u32) -> *mut [u8] {
    let place = memory::pointer(region, buffer.offset(), bytes);
    let place = place.expect("buffers are allocated from the region");
    std::ptr::slice_from_raw_parts_mut(place, bytes as usize)
}

#[cfg(test)]
mod tests;
