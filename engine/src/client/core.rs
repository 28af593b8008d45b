//! A core client: what a job started by `run_on_core` receives.
//!
//! It never leaves its core. It has two client numbers, allocated at first use: one for submitted
//! requests and one for awaited calls, so that neither receives the other's answers.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use farcore_tuning::HardwareSnapshot;

use super::call::{CasOutcome, FromAnswer, Value};
use super::refused::{Refused, check};
use super::section_state::CoreSection;
use super::shard_requests::ShardRequests;
use super::transaction::check_transaction;
use crate::client::long::Routed;
use crate::error::{Error, Result};
use crate::lifecycle::JobTicket;
use crate::message::hash::{Hasher128, IndexHash};
use crate::message::operation::{Operation, OperationKind, RequestParts, Version};
use crate::message::outcome::{Answer, OwnedAnswer};
use crate::message::section::SectionShards;
use crate::observe::recorder::{Recorder, RequestTap};
use crate::reactor::{LentReactor, NO_CLIENT, yield_now};

/// Polls of requests about shards before the core's other jobs go on.
const POLLS_AT_ONCE: usize = 4;
/// Submitted requests that one client may have in flight.
const IN_FLIGHT_MAX: usize = 1024;

/// A client on a core. It calls its own shard directly and reaches the others over lanes. It stays
/// on its core.
///
/// Dropping it does not wait: submitted requests are carried out, and their answers are discarded.
#[derive(Debug)]
pub struct Core {
    pub(super) reactor: Rc<LentReactor>,
    /// The client number of submitted requests; allocated at the first one.
    pub(super) client: u16,
    in_flight: usize,
    /// Submitted requests that may be in flight: none without a client number.
    pub(super) in_flight_max: usize,
    /// The client number of awaited calls, so that neither kind sees the other's answers.
    pub(super) caller: u16,
    /// The longest value that is kept for calls while another client polls.
    call_kept_max: usize,
    /// The number of the latest call, so that a late answer to a dropped call is not taken for its
    /// answer.
    call: u32,
    calls_in_flight: usize,
    /// The value of the latest call.
    scratch: Vec<u8>,
    /// The latest change, as it is sent.
    encoded: Vec<u8>,
    value_bytes_max: usize,
    pub(super) tap: Option<RequestTap>,
    /// What it holds, if its requests are under a section.
    pub(super) section: Option<CoreSection>,
    /// The core's turns when this client yielded last.
    turns_seen: Cell<u64>,
    ticket: Arc<JobTicket>,
    /// Answers to calls are received before what they may depend on is durable.
    is_ungated: bool,
}

impl Core {
    /// The number by which shards know this client while it holds their sections.
    pub(crate) fn section_client(&self) -> u16 {
        self.caller
    }

    pub(crate) fn new(
        reactor: Rc<LentReactor>,
        value_bytes_max: usize,
        ticket: Arc<JobTicket>,
    ) -> Self {
        Self {
            reactor,
            client: NO_CLIENT,
            in_flight: 0,
            in_flight_max: 0,
            caller: NO_CLIENT,
            call_kept_max: usize::MAX,
            call: 0,
            calls_in_flight: 0,
            scratch: Vec::new(),
            encoded: Vec::new(),
            value_bytes_max,
            tap: None,
            section: None,
            turns_seen: Cell::new(0),
            ticket,
            is_ungated: false,
        }
    }

    /// This client, whose calls do not wait until what they have read is durable: for a caller who
    /// waits for that itself.
    pub(crate) fn ungated(mut self) -> Self {
        self.is_ungated = true;
        self
    }

    /// Another client of this core, for work beside this one's. The engine closes once both are
    /// dropped.
    #[must_use]
    pub fn another(&self) -> Self {
        Self::new(
            Rc::clone(&self.reactor),
            self.value_bytes_max,
            Arc::clone(&self.ticket),
        )
    }

    /// Copies a request; its answer comes with `token` through [`Core::poll`]. The next poll, or
    /// the core's own next turn, sends it to the shard of its key. Requests to its shard are
    /// served as a batch, so that their cache misses overlap. Cost: a hash of the key and a copy of
    /// key and value; if the core sleeps, also a wakeup of its service.
    ///
    /// # Errors
    /// [`Refused::Full`] when there is no room before the next poll, or when 4095 other jobs of
    /// this core are clients already; [`Refused::Error`] for a caller's mistake.
    #[inline(always)]
    pub fn submit(
        &mut self,
        operation: Operation<'_>,
        token: u64,
    ) -> std::result::Result<(), Refused> {
        let Some(parts) = RequestParts::plain(&operation) else {
            return self.submit_encoded(&operation, token);
        };
        check(&parts, self.value_bytes_max)?;
        // Passed one by one, so that an inlining caller passes them as they are.
        let RequestParts {
            kind,
            key,
            value,
            expected,
        } = parts;
        if !self.take(token, key, value, kind, expected) {
            return Err(self.refusal());
        }
        self.note(&operation);
        Ok(())
    }

    /// Submits an operation whose parts are encoded first.
    #[inline(never)]
    fn submit_encoded(
        &mut self,
        operation: &Operation<'_>,
        token: u64,
    ) -> std::result::Result<(), Refused> {
        self.check_transaction(operation)?;
        let mut encoded = std::mem::take(&mut self.encoded);
        let parts = RequestParts::of(operation, &mut encoded);
        let sent = match check(&parts, self.value_bytes_max) {
            Err(error) => Err(Refused::Error(error)),
            Ok(()) if self.take(token, parts.key, parts.value, parts.kind, parts.expected) => {
                Ok(())
            }
            Ok(()) => Err(self.refusal()),
        };
        self.encoded = encoded;
        if sent.is_ok() {
            self.note(operation);
        }
        sent
    }

    /// Checks the limits of a transaction; other operations pass.
    fn check_transaction(&self, operation: &Operation<'_>) -> Result<()> {
        if !matches!(operation, Operation::Transaction { .. }) {
            return Ok(());
        }
        let reactor = self.reactor.borrow();
        let shard_of = |key: &[u8]| reactor.shard_of(key);
        check_transaction(operation, self.value_bytes_max, shard_of)
    }

    #[inline(always)]
    fn take(
        &mut self,
        token: u64,
        key: &[u8],
        value: &[u8],
        kind: OperationKind,
        expected: Version,
    ) -> bool {
        let parts = RequestParts {
            kind,
            key,
            value,
            expected,
        };
        if self.in_flight == self.in_flight_max {
            return self.take_rare(token, &parts);
        }
        self.take_plain(token, &parts)
    }

    #[inline(always)]
    fn take_plain(&mut self, token: u64, parts: &RequestParts<'_>) -> bool {
        if !self.reactor.borrow_mut().submit(self.client, token, parts) {
            return false;
        }
        self.in_flight += 1;
        true
    }

    /// Takes a client's first request, or one under a section, which counts apart.
    #[cold]
    #[inline(never)]
    fn take_rare(&mut self, token: u64, parts: &RequestParts<'_>) -> bool {
        if let Some(section) = &mut self.section {
            if section.joins.is_some() {
                // It has no number for submitted requests.
                section.refused = Some(Error::SectionInside);
                return false;
            }
            return self.submit_under_section(token, parts, IN_FLIGHT_MAX);
        }
        self.begin() && self.take_plain(token, parts)
    }

    /// Why a request was not taken.
    #[cold]
    fn refusal(&mut self) -> Refused {
        let section = self.section.as_mut();
        let error = section.and_then(|section| section.refused.take());
        error.map_or(Refused::Full, Refused::Error)
    }

    /// Submits a request of a call; false if the client must poll first.
    #[inline(always)]
    fn submit_call(&mut self, token: u64, parts: &RequestParts<'_>) -> Result<bool> {
        if self.section.is_some() {
            return self.call_under_section(token, parts);
        }
        Ok(self.reactor.borrow_mut().submit(self.caller, token, parts))
    }

    /// Allocates the client number of submitted requests. False if there is one already, so too
    /// much is in flight, or if none is left.
    #[cold]
    pub(super) fn begin(&mut self) -> bool {
        if self.client != NO_CLIENT {
            return false;
        }
        let Some(client) = self.reactor.borrow_mut().replies().add_client() else {
            return false;
        };
        self.client = client;
        self.allow_plain(0);
        true
    }

    /// Has submitted requests be under a section: none is taken as a plain one.
    pub(super) fn begin_section(&mut self) {
        self.in_flight_max = 0;
        self.section = Some(CoreSection {
            in_flight: std::mem::take(&mut self.in_flight),
            ..CoreSection::default()
        });
    }

    /// Has submitted requests be plain ones again; this many are in flight.
    pub(super) fn allow_plain(&mut self, in_flight: usize) {
        self.in_flight = in_flight;
        if self.client != NO_CLIENT {
            self.in_flight_max = IN_FLIGHT_MAX;
        }
    }

    /// True if answers to calls are to come: those to calls that were dropped, and to leaves.
    pub(super) fn has_calls_in_flight(&mut self) -> bool {
        self.poll_calls(&mut |_, _| {});
        self.calls_in_flight > 0
    }

    /// Sends requests to leave the sections of shards, whose answers no one waits for.
    pub(super) fn send_leaves(&mut self, shards: SectionShards) {
        let mut reactor = self.reactor.borrow_mut();
        for shard in shards.iter() {
            reactor.leave_section(shard, self.caller);
            self.calls_in_flight += 1;
        }
    }

    /// Allocates the client number of calls; waits while none is left.
    #[cold]
    pub(super) async fn begin_calls(&mut self) {
        while self.caller == NO_CLIENT {
            let client = self.reactor.borrow_mut().replies().add_client();
            match client {
                Some(client) => {
                    self.caller = client;
                    let mut reactor = self.reactor.borrow_mut();
                    reactor.replies().limit_kept(client, self.call_kept_max);
                }
                None => self.yield_now().await,
            }
        }
    }

    #[inline]
    fn note(&self, operation: &Operation<'_>) {
        if let Some(tap) = &self.tap {
            tap.note(operation);
        }
    }

    /// Records every request from now on, until the recorder finishes or another is set. Cost of a
    /// recorded request: a copy of its key and a clock reading; of others: one branch.
    pub fn record(&mut self, recorder: &Recorder) {
        self.tap = Some(recorder.tap());
    }

    /// Runs one turn of this core and visits the answers that have arrived. Returns how many. The
    /// turn serves other cores and the shard's background work too; after the loss of a memory node
    /// it may visit the whole index once. Values of its own shard are visited in place. The visitor
    /// must not call this client. If it panics, the process aborts, because the shard is in the
    /// middle of its work.
    #[inline]
    pub fn poll(&mut self, mut visit: impl FnMut(u64, Answer<'_>)) -> usize {
        let count = self.reactor.borrow_mut().poll_for(self.client, &mut visit);
        match &mut self.section {
            None => self.in_flight -= count,
            Some(section) => section.in_flight -= count,
        }
        count
    }

    /// Has values of more than `bytes` bytes not be copied: those of submitted requests that
    /// arrive while another client of the core polls. Such an answer is
    /// [`Error::LongValue`](crate::Error::LongValue) without a key, and its caller reads the value
    /// again. So this is for clients that submit reads, or changes that reply no value.
    pub fn limit_kept_values(&mut self, bytes: usize) {
        if self.client != NO_CLIENT || self.section.is_none() && self.begin() {
            let mut reactor = self.reactor.borrow_mut();
            reactor.replies().limit_kept(self.client, bytes);
        }
    }

    /// Sets the longest value that is kept for calls while another client polls. Every call sets
    /// it, because a dropped one leaves its own.
    #[inline]
    fn limit_kept_of_calls(&mut self, bytes: usize) {
        if self.call_kept_max != bytes {
            self.call_kept_max = bytes;
            let mut reactor = self.reactor.borrow_mut();
            reactor.replies().limit_kept(self.caller, bytes);
        }
    }

    /// Gives back the memory of buffers beyond `bytes` bytes each. They hold the value of the
    /// latest call, and the latest change.
    pub fn shrink_buffers(&mut self, bytes: usize) {
        for buffer in [&mut self.scratch, &mut self.encoded] {
            buffer.clear();
            buffer.shrink_to(bytes);
        }
    }

    /// Requests whose answers have not been visited.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        let section = self.section.as_ref();
        self.in_flight + section.map_or(0, |section| section.in_flight)
    }

    /// True if the shard has nothing in progress, so that its core may sleep. A job that waits for
    /// something else than its requests should poll and yield until then, and only then sleep: the
    /// service spins while something is in progress, and what wakes a job through the system is
    /// looked at every 10 ms meanwhile. Cost: some comparisons.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.reactor.borrow_mut().is_quiet()
    }

    /// Processor events of this core's thread since the engine was opened; `None` for those that
    /// the machine does not count. Cost: a few system calls.
    #[must_use]
    pub fn hardware(&self) -> HardwareSnapshot {
        self.reactor.borrow().hardware()
    }

    /// Lets other jobs of the core run. Runs a turn first if no client has polled since the last
    /// call. Cost: at most an empty poll.
    pub async fn yield_now(&self) {
        let turns = {
            let mut reactor = self.reactor.borrow_mut();
            if reactor.turns() == self.turns_seen.get() {
                reactor.turn_alone();
            }
            reactor.turns()
        };
        self.turns_seen.set(turns);
        yield_now().await;
    }

    /// Submits a request to a shard, of a client without sections; false if it must poll first. As
    /// [`Core::submit`], its answer comes with `token` through [`Core::poll`].
    pub(crate) fn submit_parts(
        &mut self,
        routed: Routed<'_>,
        token: u64,
        parts: &RequestParts<'_>,
    ) -> bool {
        if self.in_flight == self.in_flight_max && !self.begin() {
            return false;
        }
        let client = (self.client, token);
        let mut reactor = self.reactor.borrow_mut();
        if !reactor.submit_to(routed.shard, routed.hash, client, parts) {
            return false;
        }
        self.in_flight += 1;
        true
    }

    /// Runs one operation to its end.
    pub(super) async fn call<'a, T: FromAnswer<'a>>(
        &'a mut self,
        operation: Operation<'_>,
    ) -> Result<T> {
        self.check_transaction(&operation)?;
        let mut encoded = std::mem::take(&mut self.encoded);
        let parts = RequestParts::of(&operation, &mut encoded);
        check(&parts, self.value_bytes_max)?;
        self.limit_kept_of_calls(usize::MAX);
        if self.caller == NO_CLIENT {
            self.begin_calls().await;
        }
        self.call = self.call.wrapping_add(1);
        let token = self.token(0);
        while !self.submit_call(token, &parts)? {
            self.poll_calls(&mut |_, _| {});
            yield_now().await;
        }
        self.encoded = encoded;
        self.calls_in_flight += 1;
        self.note(&operation);
        let mut answer = None;
        loop {
            self.poll_calls(&mut |_, found| answer = Some(OwnedAnswer::of(&found)));
            match answer {
                Some(answer) => return T::from_answer(answer, &mut self.scratch),
                None => yield_now().await,
            }
        }
    }

    /// Reads a value where it lies: `visit` receives it with its version, and what it returns is
    /// returned. `None` if the key is absent. The visitor must keep the rules of [`Core::poll`].
    /// Cost: as a get, without a copy of the value.
    ///
    /// # Errors
    /// As [`Core::get`].
    pub async fn get_with<R>(
        &mut self,
        key: &[u8],
        visit: impl FnOnce(&[u8], Version) -> R,
    ) -> Result<Option<R>> {
        let (mut visit, mut result) = (Some(visit), Ok(None));
        self.many([Operation::Get { key }], |_, answer| match answer {
            Answer::Value { version, value } => {
                result = Ok(visit.take().map(|visit| visit(value, version)));
            }
            Answer::Failed(error) => result = Err(error.clone()),
            _ => {}
        })
        .await?;
        result
    }

    /// The token of an operation of the latest call, by its place in the call.
    fn token(&self, place: u32) -> u64 {
        u64::from(self.call) << 32 | u64::from(place)
    }

    /// Receives the answers to calls and visits those of the latest call with their places. The
    /// others belong to dropped calls and are discarded.
    fn poll_calls(&mut self, visit: &mut impl FnMut(usize, Answer<'_>)) {
        let (call, is_ungated) = (self.call, self.is_ungated);
        let mut reactor = self.reactor.borrow_mut();
        let client = (self.caller, is_ungated);
        self.calls_in_flight -= reactor.poll_gated(client, &mut |token, answer: Answer<'_>| {
            let (of, place) = (token >> 32, token & u64::from(u32::MAX));
            if of == u64::from(call) {
                visit(usize::try_from(place).unwrap_or(usize::MAX), answer);
            }
        });
    }

    /// Runs many operations at once and visits each answer with its place. They may be served in
    /// any order, but operations on one key keep theirs. The visitor must keep the rules of
    /// [`Core::poll`]. Dropping the call is safe: requests that were sent are carried out.
    ///
    /// # Errors
    /// A caller's mistake stops it at that operation; the operations before it are carried out.
    pub async fn many<'b>(
        &mut self,
        operations: impl IntoIterator<Item = Operation<'b>>,
        visit: impl FnMut(usize, Answer<'_>),
    ) -> Result<()> {
        self.many_kept(operations, usize::MAX, visit).await
    }

    /// [`Core::many`] for reads whose values may be large: of those that arrive while another
    /// client of the core polls, none of more than `kept_bytes` is copied. Its answer is
    /// [`Error::LongValue`](crate::Error::LongValue) without a key, and the caller reads it again.
    ///
    /// # Errors
    /// As [`Core::many`].
    pub async fn many_kept<'b>(
        &mut self,
        operations: impl IntoIterator<Item = Operation<'b>>,
        kept_bytes: usize,
        mut visit: impl FnMut(usize, Answer<'_>),
    ) -> Result<()> {
        self.limit_kept_of_calls(kept_bytes);
        if self.caller == NO_CLIENT {
            self.begin_calls().await;
        }
        self.call = self.call.wrapping_add(1);
        let mut operations = operations.into_iter().zip(0u32..);
        let mut next = operations.next();
        let mut encoded = Vec::new();
        let (mut sent, mut seen, mut failed) = (0usize, 0usize, None);
        loop {
            while let Some((operation, place)) = &next
                && sent - seen < IN_FLIGHT_MAX
            {
                let parts = RequestParts::of(operation, &mut encoded);
                let checked = self.check_transaction(operation);
                if let Err(error) = checked.and(check(&parts, self.value_bytes_max)) {
                    failed = Some(error);
                    next = None;
                    break;
                }
                let token = self.token(*place);
                match self.submit_call(token, &parts) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) => {
                        failed = Some(error);
                        next = None;
                        break;
                    }
                }
                self.note(operation);
                self.calls_in_flight += 1;
                sent += 1;
                next = operations.next();
            }
            if next.is_none() && seen == sent {
                return failed.map_or(Ok(()), Err);
            }
            self.poll_calls(&mut |place, answer| {
                seen += 1;
                visit(place, answer);
            });
            if next.is_none() && seen == sent {
                continue;
            }
            yield_now().await;
        }
    }

    /// The longest value of a record, in bytes.
    pub(super) fn value_bytes_max(&self) -> usize {
        self.value_bytes_max
    }

    /// The shard that holds a key; see [`Engine::shard_of`](crate::Engine::shard_of).
    /// Cost: a hash of the key.
    #[must_use]
    pub fn shard_of(&self, key: &[u8]) -> usize {
        let (hasher, shards) = self.hasher_and_shards();
        Routed::new(key, hasher, shards).shard.into()
    }

    /// What decides which shard a key is of: the hasher, and how many shards there are.
    pub(crate) fn hasher_and_shards(&self) -> (Hasher128, u16) {
        self.reactor.borrow().hasher_and_shards()
    }

    /// Has the shard of this core give back local memory that it holds above `keep_bytes`, for a
    /// caller with a limit of its own: pages that lie in far memory too leave, and those of which
    /// more than a tenth is dead are compacted, the emptiest first. `None` compacts all of these
    /// and lets no other leave. Records that are only local stay local. It goes on between
    /// requests; [`Core::is_trimming`] reports when it has ended. Cost: a look at every local page.
    pub fn start_trim(&self, keep_bytes: Option<u64>) {
        self.reactor.borrow_mut().start_trim(keep_bytes);
    }

    /// True until the shard has given back what [`Core::start_trim`] found.
    #[must_use]
    pub fn is_trimming(&self) -> bool {
        self.reactor.borrow().is_trimming()
    }

    /// Runs requests about shards to their end.
    pub(super) async fn run_shard_requests(
        &mut self,
        requests: &mut impl ShardRequests,
    ) -> Result<()> {
        self.limit_kept_of_calls(usize::MAX);
        if self.caller == NO_CLIENT {
            self.begin_calls().await;
        }
        self.call = self.call.wrapping_add(1);
        while !requests.is_done() {
            while self.calls_in_flight < IN_FLIGHT_MAX {
                let sent = requests.next(|shard, hash, place, parts| {
                    let token = self.token(place);
                    let sent = self.submit_call_to(shard, hash, token, parts);
                    (matches!(sent, Ok(true)), sent)
                });
                match sent {
                    Some(Ok(true)) => {}
                    Some(Err(error)) => return Err(error),
                    Some(Ok(false)) | None => break,
                }
                self.calls_in_flight += 1;
            }
            // A section of this core's shard needs a few turns to be given.
            for _ in 0..POLLS_AT_ONCE {
                self.poll_calls(&mut |place, answer| {
                    requests.take(u32::try_from(place).unwrap_or(u32::MAX), answer);
                });
                if requests.is_done() {
                    return Ok(());
                }
            }
            yield_now().await;
        }
        Ok(())
    }

    fn submit_call_to(
        &mut self,
        shard: u16,
        hash: IndexHash,
        token: u64,
        parts: &RequestParts<'_>,
    ) -> Result<bool> {
        let client = (self.caller, token);
        if self.section.is_some() {
            return self.send_under_section(shard, hash, client, parts);
        }
        if parts.kind.is_of_section() {
            return Err(Error::SectionEnded);
        }
        let mut reactor = self.reactor.borrow_mut();
        Ok(reactor.submit_to(shard, hash, client, parts))
    }

    /// Reads many keys; see [`Core::many`].
    ///
    /// # Errors
    /// As [`Core::many`].
    pub async fn get_many(
        &mut self,
        keys: &[&[u8]],
        visit: impl FnMut(usize, Answer<'_>),
    ) -> Result<()> {
        let gets = keys.iter().map(|key| Operation::Get { key });
        self.many(gets, visit).await
    }

    /// Stores many values; see [`Core::many`].
    ///
    /// # Errors
    /// As [`Core::many`].
    pub async fn put_many(
        &mut self,
        pairs: &[(&[u8], &[u8])],
        visit: impl FnMut(usize, Answer<'_>),
    ) -> Result<()> {
        let puts = pairs
            .iter()
            .map(|(key, value)| Operation::Put { key, value });
        self.many(puts, visit).await
    }

    /// Removes many keys; see [`Core::many`].
    ///
    /// # Errors
    /// As [`Core::many`].
    pub async fn delete_many(
        &mut self,
        keys: &[&[u8]],
        visit: impl FnMut(usize, Answer<'_>),
    ) -> Result<()> {
        let deletes = keys.iter().map(|key| Operation::Delete { key });
        self.many(deletes, visit).await
    }

    /// Reads a value and its version. Dropping the call is safe.
    ///
    /// # Errors
    /// Those of [`Error`](crate::Error).
    pub async fn get(&mut self, key: &[u8]) -> Result<Option<Value<'_>>> {
        self.call(Operation::Get { key }).await
    }

    /// Stores a value; returns its version.
    ///
    /// # Errors
    /// Those of [`Error`](crate::Error).
    pub async fn put(&mut self, key: &[u8], value: &[u8]) -> Result<Version> {
        self.call(Operation::Put { key, value }).await
    }

    /// Removes a key; false if it was absent. A key whose record is lost or damaged counts as
    /// present.
    ///
    /// # Errors
    /// Those of [`Error`](crate::Error).
    pub async fn delete(&mut self, key: &[u8]) -> Result<bool> {
        self.call(Operation::Delete { key }).await
    }

    /// Stores a value if the key's version is `expected`; `0` expects the key to be absent.
    ///
    /// # Errors
    /// Those of [`Error`](crate::Error).
    pub async fn compare_and_swap(
        &mut self,
        key: &[u8],
        expected: Version,
        value: &[u8],
    ) -> Result<CasOutcome> {
        let operation = Operation::CompareAndSwap {
            key,
            expected,
            value,
        };
        self.call(operation).await
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.abandon_sections();
        let in_flight = self.in_flight();
        let mut reactor = self.reactor.borrow_mut();
        let replies = reactor.replies();
        replies.remove_client(self.client, in_flight, &self.ticket);
        replies.remove_client(self.caller, self.calls_in_flight, &self.ticket);
    }
}
