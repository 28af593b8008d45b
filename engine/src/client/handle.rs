//! A handle: one thread's way into the engine.
//!
//! Three forms: a call that blocks or is awaited, many operations at once, and submit and poll for
//! a window of requests in flight. A dropped call is forgotten; its late answer is recognized by
//! its number and discarded.
//!
//! A handle owns one lane to each shard, and returns them for the next handle when it is dropped.

#![allow(unsafe_code)] // abandons the requests of a stopped shard

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::thread;

use farcore_tuning::Sampler;

use super::borrow::{advance, serves_itself};
use super::call::{Call, CasOutcome, Value};
use super::lanes::{DrainingLanes, HandleLanes, Shared};
use super::refused::{Refused, check};
use super::section_state::HandleSections;
use super::transaction::check_transaction;
use crate::error::{Error, Result};
use crate::message::hash::{Hasher128, IndexHash};
use crate::message::operation::{Operation, RequestParts, Version};
use crate::message::outcome::{Answer, OwnedAnswer};
use crate::message::request::{Origin, RequestFlags};
use crate::observe::recorder::{Recorder, RequestTap};
use crate::reactor::is_core;

/// The client number of submitted requests.
const SUBMITTED: u16 = 0;
/// The client number of calls.
pub(super) const CALLED: u16 = 1;
/// Polls of the lanes before a blocking call parks its thread.
pub(super) const SPINS: u32 = 500;
/// Polls without an answer after which a loop offers its core to other threads.
pub(super) const IDLE_LOOKS: u32 = 64;

/// One thread's way into the engine. Send, but not shared; all calls take `&mut self`.
///
/// Dropping it waits until every request is answered. On a core it does not wait, and its lanes
/// become free for another handle when the answers have arrived. A job that blocks on a handle
/// keeps the other jobs of its core waiting; the core's shard is served meanwhile.
#[derive(Debug)]
pub struct Handle {
    pub(super) shared: Arc<Shared>,
    pub(super) lanes: Option<HandleLanes>,
    /// Requests sent and not yet answered, dropped calls included.
    pub(super) outstanding: usize,
    pub(super) sections: HandleSections,
    submitted: usize,
    call: u64,
    /// Answers of the current call, by their place in it.
    pub(super) answers: Vec<(u32, OwnedAnswer)>,
    /// Answers to submitted requests that came during a call.
    kept: VecDeque<(u64, OwnedAnswer)>,
    pub(super) scratch: Vec<u8>,
    /// A buffer for the next value, so that a get allocates nothing.
    pub(super) spare: Vec<u8>,
    /// The latest change, as it is sent.
    encoded: Vec<u8>,
    tap: Option<RequestTap>,
    sampler: Sampler,
    _not_sync: PhantomData<std::cell::Cell<()>>,
}

impl Handle {
    pub(crate) fn new(shared: Arc<Shared>, lanes: HandleLanes) -> Self {
        let sampler = Sampler::new(shared.clock.clone());
        Self {
            shared,
            lanes: Some(lanes),
            outstanding: 0,
            sections: HandleSections::default(),
            submitted: 0,
            call: 0,
            answers: Vec::new(),
            kept: VecDeque::new(),
            scratch: Vec::new(),
            spare: Vec::new(),
            encoded: Vec::new(),
            tap: None,
            sampler,
            _not_sync: PhantomData,
        }
    }

    pub(super) fn send(
        &mut self,
        client: u16,
        token: u64,
        operation: &Operation<'_>,
    ) -> std::result::Result<(), Refused> {
        match RequestParts::plain(operation) {
            Some(parts) => self.send_parts(client, token, &parts)?,
            None => self.send_encoded(client, token, operation)?,
        }
        if let Some(tap) = &self.tap {
            tap.note(operation);
        }
        Ok(())
    }

    /// Sends an operation whose parts are encoded first.
    #[cold]
    fn send_encoded(
        &mut self,
        client: u16,
        token: u64,
        operation: &Operation<'_>,
    ) -> std::result::Result<(), Refused> {
        let shared = &self.shared;
        let shard_of = |key: &[u8]| shared.shard_of(key);
        check_transaction(operation, shared.sizes.value_bytes_max, shard_of)?;
        let mut encoded = std::mem::take(&mut self.encoded);
        let parts = RequestParts::of(operation, &mut encoded);
        let sent = self.send_parts(client, token, &parts);
        self.encoded = encoded;
        sent
    }

    #[inline]
    fn send_parts(
        &mut self,
        client: u16,
        token: u64,
        parts: &RequestParts<'_>,
    ) -> std::result::Result<(), Refused> {
        check(parts, self.shared.sizes.value_bytes_max)?;
        if self.shared.lifecycle.is_closing() {
            return Err(Error::Closed.into());
        }
        let (hasher, shards) = self.hasher_and_shards();
        let hash = hasher.hash(parts.key);
        let shard = hasher.shard(parts.key, hash, shards);
        self.send_to(shard, hash.index, (client, token), parts)
    }

    /// What decides which shard a key is of: the hasher, and how many shards there are.
    #[inline]
    pub(super) fn hasher_and_shards(&self) -> (Hasher128, u16) {
        let shards = u16::try_from(self.shared.cores_shared.len()).unwrap_or(u16::MAX);
        (self.shared.hasher, shards)
    }

    /// Sends a request to a shard.
    #[inline]
    pub(super) fn send_to(
        &mut self,
        shard: u16,
        hash: IndexHash,
        (client, token): (u16, u64),
        parts: &RequestParts<'_>,
    ) -> std::result::Result<(), Refused> {
        if self.sections.current != 0 {
            return self.send_under_section(shard, hash, (client, token), parts);
        }
        if parts.kind.is_of_section() {
            return Err(Error::SectionEnded.into());
        }
        let Some(lanes) = &mut self.lanes else {
            return Err(Error::Closed.into());
        };
        let timed = self.sampler.starts();
        let origin = Origin::new(client, RequestFlags::timed(timed));
        let producer = &mut lanes.lanes[usize::from(shard)].requests;
        if !producer.push(hash, token, origin, parts) {
            self.sampler.refused(timed);
            return Err(Refused::Full);
        }
        self.outstanding += 1;
        Ok(())
    }

    /// Records every request from now on, until the recorder finishes or another is set. Cost of a
    /// recorded request: a copy of its key and a clock reading; of others: one branch.
    pub fn record(&mut self, recorder: &Recorder) {
        self.tap = Some(recorder.tap());
    }

    /// Publishes requests and receives answers; `visit` receives those to submitted requests. With
    /// `serves`, requests to shards that have nothing to do are served here.
    fn pump(&mut self, serves: bool, mut visit: impl FnMut(u64, Answer<'_>)) -> usize {
        let sends = self.sections.has_sends;
        if sends && self.sections.owes() {
            self.pay_leaves();
        }
        let mut sends_later = sends && self.sections.owes();
        let Self {
            lanes,
            shared,
            sections,
            answers,
            spare,
            call,
            outstanding,
            submitted,
            sampler,
            ..
        } = self;
        let Some(lanes) = lanes else { return 0 };
        let latency = &lanes.latency;
        let mut count = 0;
        let closing = shared.lifecycle.is_closing();
        let here = (serves && *outstanding > 0).then(rustix::thread::sched_getcpu);
        let mut receive = |origin: Origin, token: u64, answer: Answer<'_>| {
            if origin.mark().is_timed()
                && let Some(took_ns) = sampler.answered()
            {
                latency.record(took_ns);
            }
            // Before the visit, which may panic.
            *outstanding -= 1;
            // Of a section's two clients as well.
            if origin.client() & 1 == SUBMITTED {
                *submitted -= 1;
                count += 1;
                visit(token, answer);
            } else if token >> 32 == *call & u64::from(u32::MAX) {
                let place = u32::try_from(token & u64::from(u32::MAX)).unwrap_or(u32::MAX);
                let owned = if answer.value().is_empty() {
                    OwnedAnswer::of(&answer)
                } else {
                    OwnedAnswer::in_buffer(&answer, std::mem::take(spare))
                };
                answers.push((place, owned));
            }
        };
        for (lane, core_shared) in lanes.lanes.iter_mut().zip(&shared.cores_shared) {
            // Read before the answers: those that a shard sent before it stopped are then there.
            let stopped = closing && core_shared.closed.load(Ordering::Acquire);
            let mut published = lane.requests.publish();
            if sends {
                published += lane.sections.publish();
                sends_later |= lane.sections.has_long();
            }
            if published > 0 {
                if !(serves && serves_itself(core_shared, lanes.number)) {
                    core_shared.command_port.wakeup.ring(lanes.number);
                }
            } else if here == Some(core_shared.processor) {
                advance(core_shared, lanes.number);
            }
            lane.answers.refresh();
            lane.answers.receive(&mut receive);
            if stopped {
                // SAFETY: the shard has set `closed`, so it has stopped.
                unsafe { lane.abandon(&mut receive) };
            }
        }
        // Not before: a visit that panics leaves lanes whose requests are not published.
        if sends {
            sections.has_sends = sends_later;
        }
        count
    }

    /// Looks as [`Handle::pump`] does, until all requests to leave sections are sent.
    pub(super) fn pump_leaves(&mut self) {
        let mut looks = 0;
        loop {
            let stopped = self.shared.is_stopped();
            self.pump_keeping();
            if stopped || !self.owes_leaves() {
                return;
            }
            looks += 1;
            self.shared.make_way(looks);
        }
    }

    pub(super) fn pump_keeping(&mut self) {
        let mut kept = std::mem::take(&mut self.kept);
        self.pump(true, |token, answer| {
            kept.push_back((token, OwnedAnswer::of(&answer)));
        });
        self.kept = kept;
    }

    /// Reads a value. Cost: one round trip over a lane; a far key adds one over the fabric.
    ///
    /// # Errors
    /// Those of [`Error`]: the key's length, the fabric, [`Error::Closed`].
    pub fn get<'a, 'k>(&'a mut self, key: &'k [u8]) -> Call<'a, 'k, Option<Value<'a>>> {
        Call::new(self, Operation::Get { key })
    }

    /// Reads a value into a buffer, which it replaces; returns its version, or `None` if the key is
    /// absent. Blocks until the answer has arrived. Cost: as [`Handle::get`]; the value is copied
    /// once, and nothing is allocated where the buffer is long enough.
    ///
    /// # Errors
    /// As [`Handle::get`].
    pub fn get_into(&mut self, key: &[u8], buffer: &mut Vec<u8>) -> Result<Option<Version>> {
        buffer.clear();
        self.spare = std::mem::take(buffer);
        let version = match self.get(key).wait() {
            Ok(found) => Ok(found.map(|value| value.version())),
            Err(error) => Err(error),
        };
        *buffer = match version {
            Ok(Some(_)) => std::mem::take(&mut self.scratch),
            _ => std::mem::take(&mut self.spare),
        };
        if !matches!(version, Ok(Some(_))) {
            buffer.clear();
        }
        version
    }

    /// Stores a value and returns its version.
    ///
    /// # Errors
    /// Those of [`Error`]: lengths, [`Error::FarFull`], the fabric, [`Error::Closed`]. The
    /// stored value is as before.
    pub fn put<'a, 'k>(&'a mut self, key: &'k [u8], value: &'k [u8]) -> Call<'a, 'k, Version> {
        Call::new(self, Operation::Put { key, value })
    }

    /// Removes a key; false if it was absent. A key whose record is lost or damaged counts as
    /// present.
    ///
    /// # Errors
    /// Those of [`Error`].
    pub fn delete<'a, 'k>(&'a mut self, key: &'k [u8]) -> Call<'a, 'k, bool> {
        Call::new(self, Operation::Delete { key })
    }

    /// Stores a value if the key's version is `expected`; `0` expects the key to be absent.
    ///
    /// # Errors
    /// Those of [`Error`].
    pub fn compare_and_swap<'a, 'k>(
        &'a mut self,
        key: &'k [u8],
        expected: Version,
        value: &'k [u8],
    ) -> Call<'a, 'k, CasOutcome> {
        Call::new(
            self,
            Operation::CompareAndSwap {
                key,
                expected,
                value,
            },
        )
    }

    /// Sends a request without waiting; its answer comes with `token` through [`Handle::poll`].
    ///
    /// # Errors
    /// [`Refused::Full`] when there is no room before the next poll; [`Refused::Error`] for a
    /// caller's mistake.
    pub fn submit(
        &mut self,
        operation: Operation<'_>,
        token: u64,
    ) -> std::result::Result<(), Refused> {
        self.send(SUBMITTED, token, &operation)?;
        self.submitted += 1;
        Ok(())
    }

    /// Visits the answers that have arrived; returns how many.
    pub fn poll(&mut self, mut visit: impl FnMut(u64, Answer<'_>)) -> usize {
        let mut count = 0;
        while let Some((token, kept)) = self.kept.pop_front() {
            visit(token, kept.answer());
            count += 1;
        }
        count + self.pump(true, visit)
    }

    /// As [`Handle::poll`], on the thread of a shard that is in the middle of its turn: it serves
    /// no requests.
    pub(super) fn poll_in_turn(&mut self, visit: impl FnMut(u64, Answer<'_>)) -> usize {
        self.pump(false, visit)
    }

    /// Submitted requests whose answers have not been visited.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.submitted + self.kept.len()
    }

    /// Sends a request to a shard; its answer comes with `token` through [`Handle::poll`].
    pub(super) fn submit_to(
        &mut self,
        shard: u16,
        hash: IndexHash,
        token: u64,
        parts: &RequestParts<'_>,
    ) -> std::result::Result<(), Refused> {
        if self.shared.lifecycle.is_closing() {
            return Err(Error::Closed.into());
        }
        self.send_to(shard, hash, (SUBMITTED, token), parts)?;
        self.submitted += 1;
        Ok(())
    }

    /// True once every shard has stopped.
    pub(super) fn is_stopped(&self) -> bool {
        self.shared.is_stopped()
    }

    /// Has answers wake `waker`, once, from [`Handle::arm`] on.
    pub(super) fn watch(&self, waker: &Waker) {
        if let Some(lanes) = &self.lanes {
            lanes.client_waker.waker.register(waker);
        }
    }

    /// Lets go of the waker of [`Handle::watch`].
    pub(super) fn unwatch(&self) {
        if let Some(lanes) = &self.lanes {
            lanes.client_waker.go_on();
            drop(lanes.client_waker.waker.take());
        }
    }

    /// Has the next answers wake the waker. Those that have arrived before may not.
    pub(super) fn arm(&self) {
        if let Some(lanes) = &self.lanes {
            lanes.client_waker.wait();
        }
    }

    /// Answers need not wake the waker; they may, meanwhile.
    pub(super) fn disarm(&self) {
        if let Some(lanes) = &self.lanes {
            lanes.client_waker.go_on();
        }
    }

    pub(super) fn begin_call(&mut self) {
        // Never the highest, which tokens of no call have.
        self.call = (self.call + 1) % u64::from(u32::MAX);
        self.answers.clear();
    }

    pub(super) fn token(&self, place: u32) -> u64 {
        self.call << 32 | u64::from(place)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // The lanes go to the next handle once they are empty. A core does not wait for that: it
        // may be the core that must answer.
        let mut looks = 0;
        self.end_all_sections();
        while (self.outstanding > 0 || self.sections.owes()) && !is_core() {
            let stopped = self.shared.is_stopped();
            self.pump(true, |_, _| {});
            if stopped {
                break;
            }
            looks += 1;
            if looks > SPINS {
                thread::yield_now();
            }
        }
        if let Some(lanes) = self.lanes.take() {
            if self.outstanding == 0 && !self.sections.owes() {
                let _ = self.shared.free_handles.push(lanes);
            } else {
                // What was pushed last is published: others wait for the sections.
                let leaving = DrainingLanes {
                    lanes,
                    outstanding: self.outstanding,
                    sections: std::mem::take(&mut self.sections),
                };
                match leaving.settle(&self.shared) {
                    Ok(lanes) => drop(self.shared.free_handles.push(lanes)),
                    Err(leaving) => self.shared.leaving.push(leaving),
                }
            }
        }
    }
}
