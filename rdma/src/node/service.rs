//! The state that a memory node's threads share, and its answers to requests. Owns no socket and no
//! task.
//!
//! - I1: the sessions are locked for a few steps only: never across an await or a search of the
//!   table.
//! - I2: extents are claimed for a session only while the session cannot be over, which a request
//!   in progress ensures. They are reclaimed only when it is over, and retried for as long as a
//!   device fails to free them.
//!
//! This is the only module of the node that reads a clock, but for the time limits of procedures;
//! sessions receive the time.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard};
use std::time::{Duration, Instant};

use farcore_tuning::Clock;
use tracing::{error, info, warn};

use super::bytes::{Keeper, NodeBytes};
use super::isolation::{CLEAR_BYTES, Isolation, SessionPermissions};
use super::memory::NodeMemory;
use super::procedures::{CALLS_MAX, Job, ProcedureCall, SESSION_CALLS_MAX};
use super::refusal_log::RefusalLog;
use super::session::{End, NodeLine};
use super::sessions::{Over, Sessions, Speaker, Ticket};
use super::shares::{Heir, Shares};
use super::start::{LeaveProgress, NodeOptions};
use crate::address::Scheme;
use crate::control::token;
use crate::control::{Call, Grant, NodeStatistics, Opening, Refused, Reply, Request, Welcome};
use crate::control::{Join, MemoryProof, NodeGreeted, SessionKey};
use crate::node::metrics::{Place, ServerMetrics, Why, add, get, set};
use crate::pool::{ExtentRun, OwnerId, TakenBack};
use crate::tcp::{Access, Carrier, Exposed, Refusal, RemoteRange};
use crate::work::RemoteSlice;

/// The state that all threads of a node share.
#[derive(Debug)]
pub(super) struct Service {
    options: NodeOptions,
    memory: NodeMemory,
    metrics: ServerMetrics,
    refusal_log: RefusalLog,
    /// Set if each session is kept to its own extents.
    isolation: Option<Arc<Isolation>>,
    sessions: Mutex<Sessions<NodeLine>>,
    shares: RwLock<Shares>,
    /// Procedures that run.
    calls: AtomicUsize,
    clock: Clock,
    started_ns: u64,
    stopping: AtomicBool,
    /// When the node began to leave; 0 before.
    leaving_ns: AtomicU64,
}

/// The state of the maintenance thread between two rounds.
#[derive(Debug, Default)]
pub(super) struct MaintenanceState {
    /// Sessions that are kept after their lease, each with its number of extents.
    kept: BTreeMap<OwnerId, u32>,
    /// Sessions that are over and whose extents the device could not free yet.
    stuck: Vec<Over>,
}

/// How far a request was performed.
#[derive(Debug)]
pub(super) enum Performed {
    Whole(Box<Reply>),
    /// It waits for other requests: retry it after a pause.
    Waits,
    /// A part of it is done: retry it after others had their turn.
    InPart,
}

/// Marks a request as performed when it is dropped, whatever its outcome.
struct Done<'a> {
    node: &'a Service,
    speaker: Speaker,
}

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.node.sessions().done(self.speaker);
    }
}

pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A call in progress, as its session and its node count it.
struct InProgress {
    node: Arc<Service>,
    speaker: Speaker,
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.node.sessions().done(self.speaker);
        // ORDERING: relaxed; it is a count.
        self.node.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Keeper for Service {
    fn hold(&self, session: OwnerId) -> bool {
        self.sessions().hold(session, self.now_ns())
    }

    fn release(&self, session: OwnerId) {
        self.sessions().release(session);
    }

    fn exposed_to(self: Arc<Self>, session: OwnerId) -> Exposed {
        Self::exposed(&self, session)
    }

    fn owns(&self, session: OwnerId, range: RemoteRange) -> bool {
        let place = |offset| {
            let key = range.key;
            self.memory.map().extent_of(RemoteSlice { key, offset })
        };
        let last = u64::from(range.bytes).saturating_sub(1);
        let last = range.offset.checked_add(last).and_then(place);
        let (Some((first, _)), Some((last, _))) = (place(range.offset), last) else {
            return false;
        };
        let table = self.memory.table();
        (first..=last).all(|extent| table.owner(extent) == Some(session))
    }

    fn is_stopping(&self) -> bool {
        Self::is_stopping(self)
    }
}

impl Service {
    pub(super) fn new(
        options: NodeOptions,
        memory: NodeMemory,
        sessions: Sessions<NodeLine>,
    ) -> Self {
        let clock = Clock::new();
        let isolation = options.isolate.then(|| Isolation::new(memory.map()));
        Self {
            isolation: isolation.map(Arc::new),
            options,
            memory,
            metrics: ServerMetrics::default(),
            refusal_log: RefusalLog::default(),
            sessions: Mutex::new(sessions),
            shares: RwLock::default(),
            calls: AtomicUsize::new(0),
            started_ns: clock.now_ns(),
            clock,
            stopping: AtomicBool::new(false),
            leaving_ns: AtomicU64::new(0),
        }
    }

    pub(super) fn keeper(self: &Arc<Self>) -> Arc<dyn Keeper> {
        Arc::<Self>::clone(self)
    }

    /// Counts a call of a session, until what it returns is dropped.
    fn admit(self: &Arc<Self>, speaker: Speaker) -> Result<InProgress, Refused> {
        if self.is_stopping() {
            return Err(Refused::Stopping);
        }
        let too_many = |calls_max: usize| Refused::TooManyCalls {
            calls_max: calls_max as u64,
        };
        let mut sessions = self.sessions();
        sessions.request(speaker, self.now_ns())?;
        if sessions.requests(speaker.session) > SESSION_CALLS_MAX {
            sessions.done(speaker);
            return Err(too_many(SESSION_CALLS_MAX as usize));
        }
        let next = |running: usize| (running < CALLS_MAX).then_some(running + 1);
        let relaxed = Ordering::Relaxed;
        // ORDERING: relaxed; it is a count.
        if self.calls.fetch_update(relaxed, relaxed, next).is_err() {
            sessions.done(speaker);
            return Err(too_many(CALLS_MAX));
        }
        let node = Arc::clone(self);
        Ok(InProgress { node, speaker })
    }

    /// Accepts a call of a procedure.
    pub(super) fn accept(self: &Arc<Self>, speaker: Speaker, call: Call) -> Result<Job, Refused> {
        let request = self.admit(speaker)?;
        let run = self.options.procedures.get(&call.procedure);
        let run = run.ok_or(Refused::NoProcedure)?;
        let target = call.target.map(|target| {
            let range = RemoteRange {
                key: target.key,
                offset: target.offset,
                bytes: target.bytes,
            };
            let bytes = NodeBytes::new(self.keeper(), speaker.session, Access::Write, range);
            bytes.ok_or(Refused::WrongTarget)
        });
        // Heartbeats wait for the answer, and a client waits for a quarter of a lease.
        let longest = self.options.lease / 8;
        let limit = Duration::from_millis(call.limit_ms.into()).min(longest);
        let end = Instant::now() + limit;
        let running = ProcedureCall::new(self.keeper(), target.transpose()?, end);
        let request = Box::new(request);
        Ok(Job::new(run, running, call.argument, limit, request))
    }

    pub(super) fn options(&self) -> &NodeOptions {
        &self.options
    }

    /// The carrier of one-sided requests of clients that connect over TCP.
    pub(super) fn carrier(&self) -> Option<Carrier> {
        match self.options.scheme {
            Scheme::Tcp => Some(Carrier::Socket),
            Scheme::RdmaTcp => Some(Carrier::QueuePair),
            Scheme::Rdma => None,
        }
    }

    pub(super) fn memory(&self) -> &NodeMemory {
        &self.memory
    }

    pub(super) fn metrics(&self) -> &ServerMetrics {
        &self.metrics
    }

    /// The memory that a memory connection of a session can access.
    pub(super) fn exposed(self: &Arc<Self>, session: OwnerId) -> Exposed {
        let all = self.memory.exposed();
        match &self.isolation {
            None => all.clone(),
            Some(isolation) => all.limited(SessionPermissions::new(
                Arc::clone(self),
                Arc::clone(isolation),
                session,
            )),
        }
    }

    /// Counts a refusal; true if the caller must log it.
    #[must_use]
    pub(super) fn refused(&self, why: impl Into<Why>) -> bool {
        let why = why.into();
        self.metrics.refused(why);
        self.refusal_log.note(why, self.now_ns())
    }

    pub(super) fn stop(&self) {
        // ORDERING: pairs with the Acquire in `is_stopping`.
        self.stopping.store(true, Ordering::Release);
    }

    /// Leaves from now on: no session is opened, no chunk granted, and clients hear of it with the
    /// answer to their next heartbeat. False if it did so before.
    pub(super) fn leave(&self) -> bool {
        let now_ns = self.now_ns().max(1);
        let relaxed = Ordering::Relaxed;
        // ORDERING: relaxed; nothing else is published with it.
        let begun = self
            .leaving_ns
            .compare_exchange(0, now_ns, relaxed, relaxed);
        begun.is_ok()
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.leaving_since_ns().is_some()
    }

    fn leaving_since_ns(&self) -> Option<u64> {
        // ORDERING: relaxed, as in `leave`.
        let since_ns = self.leaving_ns.load(Ordering::Relaxed);
        (since_ns > 0).then_some(since_ns)
    }

    /// How far a node that leaves is; `None` of one that stays.
    pub(super) fn leave_progress(&self) -> Option<LeaveProgress> {
        let since_ns = self.leaving_since_ns()?;
        let (sessions, have_heard) = {
            let sessions = self.sessions();
            (sessions.len() as u64, sessions.have_heard())
        };
        let (map, table) = (self.memory.map(), self.memory.table());
        let owned = u64::from(map.extents()).saturating_sub(u64::from(table.free_count()));
        // Those of sessions that have ended, which the device does not free.
        let extents = owned.saturating_sub(get(&self.metrics.extents_stuck));
        // A client of a release that does not send the request which says so never hears of it.
        let is_late = self.now_ns() - since_ns >= nanoseconds(self.options.lease);
        Some(LeaveProgress {
            sessions,
            extents,
            has_left: extents == 0 && (have_heard || is_late),
        })
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.clock.now_ns().saturating_sub(self.started_ns)
    }

    pub(super) fn sessions(&self) -> MutexGuard<'_, Sessions<NodeLine>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_stopping(&self) -> bool {
        // ORDERING: pairs with the Release in `stop`.
        self.stopping.load(Ordering::Acquire)
    }

    /// Joins a memory connection to its session and takes a place for it. Only a peer that proves
    /// that it knows the session learns whether there is a place.
    pub(super) fn join(
        &self,
        join: &Join,
        proof: &MemoryProof,
    ) -> Result<(Place, Ticket), Refusal> {
        let ticket = self.sessions().join(join, proof, self.now_ns())?;
        let place = self.metrics.memories.take(self.options.connections_max);
        place.map(|place| (place, ticket)).ok_or_else(|| {
            self.sessions().ended(ticket);
            Refusal::Busy
        })
    }

    pub(super) fn statistics(&self) -> NodeStatistics {
        let (sessions, kept, revived, lines) = {
            let sessions = self.sessions();
            let kept = sessions.kept().count() as u64;
            let (open, lines) = (sessions.len() as u64, sessions.lines() as u64);
            (open, kept, sessions.revived(), lines)
        };
        let (metrics, map) = (&self.metrics, self.memory.map());
        let served = metrics.served.sum();
        NodeStatistics {
            uptime_ns: self.now_ns(),
            data_bytes: u64::from(map.extents()) * map.extent_bytes,
            extent_bytes: map.extent_bytes,
            extents: u64::from(map.extents()),
            extents_free: u64::from(self.memory.table().free_count()),
            extents_kept: get(&metrics.extents_kept),
            sessions,
            sessions_kept: kept,
            sessions_revived: revived,
            sessions_opened: get(&metrics.sessions_opened),
            sessions_expired: get(&metrics.sessions_expired),
            control_connections: metrics.controls.taken(),
            memory_connections: lines,
            reads: served.reads,
            read_bytes: served.read_bytes,
            writes: served.writes,
            write_bytes: served.write_bytes,
            atomics: served.atomics,
            requests_refused: served.refused,
            chunks_allocated: get(&metrics.chunks_allocated),
            chunks_freed: get(&metrics.chunks_freed),
            extents_reclaimed: get(&metrics.extents_reclaimed),
            extents_stuck: get(&metrics.extents_stuck),
            take_backs_failed: get(&metrics.take_backs_failed),
            refusals: metrics.refusals().map(|(_, count)| count).sum(),
        }
    }

    pub(super) fn open(
        &self,
        greeted: &NodeGreeted,
        proof: &[u8],
    ) -> Result<(Speaker, Vec<u8>), Refused> {
        let now_ns = self.now_ns();
        let token = self.options.token.as_ref();
        let (proved, speaker, resumed) = match greeted.opening {
            Opening::New => {
                let key = token::key_of(token);
                let proved = greeted.proved(proof, key, token.is_some())?;
                if self.is_leaving() {
                    return Err(Refused::Leaving);
                }
                let name = greeted.client.clone();
                let session = proved.session_key(key);
                let speaker = self.sessions().open(name, session, now_ns)?;
                add(&self.metrics.sessions_opened, 1);
                (proved, speaker, None)
            }
            Opening::Resume {
                session,
                incarnation,
            } => {
                let key = self.sessions().key(session, incarnation, now_ns);
                let key = key.inspect_err(|_| {
                    // As in `Sessions::join`.
                    let _ = black_box(greeted.proved(proof, SessionKey::of_none().bytes(), true));
                })?;
                let proved = greeted.proved(proof, key.bytes(), true)?;
                let speaker = self.sessions().resume(session, now_ns)?;
                (proved, speaker, Some(key))
            }
        };
        let welcome = Welcome {
            session: speaker.session,
            incarnation: self.sessions().incarnation(),
            lease_ms: u64::try_from(self.options.lease.as_millis()).unwrap_or(u64::MAX),
            map: self.memory.map().clone(),
        };
        let key = match &resumed {
            Some(key) => key.bytes(),
            None => token::key_of(token),
        };
        Ok((speaker, proved.welcome(key, &welcome)))
    }

    fn allocate(&self, speaker: Speaker, bytes: u64) -> Result<ExtentRun, Refused> {
        let extent_bytes = self.memory.map().extent_bytes;
        let bytes_max = u64::from(ExtentRun::COUNT_MAX) * extent_bytes;
        let count = u32::try_from(bytes.div_ceil(extent_bytes)).unwrap_or(u32::MAX);
        if !(1..=ExtentRun::COUNT_MAX).contains(&count) {
            return Err(Refused::ChunkBytes {
                asked_bytes: bytes,
                bytes_max,
            });
        }
        if self.is_leaving() {
            return Err(Refused::Leaving);
        }
        let (table, map) = (self.memory.table(), self.memory.map());
        let asked_bytes = u64::from(count) * extent_bytes;
        // A chunk is one piece of memory: it must not cross the end of a region.
        let whole = |run| map.contiguous_bytes(run) == asked_bytes;
        let run = table
            .claim_fitting(speaker.session, count, whole)
            .ok_or_else(|| Refused::Exhausted {
                asked_bytes,
                free_bytes: u64::from(table.free_count()) * extent_bytes,
            })?;
        add(&self.metrics.chunks_allocated, 1);
        Ok(run)
    }

    /// Whether a session may access an extent that it does not own.
    pub(super) fn permits(&self, session: OwnerId, extent: u32, writes: bool) -> bool {
        let shares = self.shares.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(anchor) = shares.anchor(extent) {
            return self.memory.table().owner(anchor) == Some(session)
                || shares.permits(session, anchor, writes);
        }
        shares.permits(session, extent, writes)
    }

    /// Whether any session shares an extent, or it follows another, or is followed.
    pub(super) fn is_shared(&self, extent: u32) -> bool {
        let shares = self.shares.read().unwrap_or_else(PoisonError::into_inner);
        shares.is_shared(extent) || shares.is_anchor(extent) || shares.anchor(extent).is_some()
    }

    fn shares(&self) -> RwLockWriteGuard<'_, Shares> {
        self.shares.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shares the extents of a grant.
    fn share(&self, speaker: Speaker, grant: &Grant) -> Result<(), Refused> {
        let malformed = Refused::NotOwned {
            count: grant.chunk.count,
        };
        let run = grant.chunk.run().ok_or(malformed)?;
        let grantor = grant.session;
        let mut shares = self.shares();
        let key = {
            let mut sessions = self.sessions();
            let incarnation = sessions.incarnation();
            sessions.key(grantor, incarnation, self.now_ns())
        };
        let key = key.map_err(|_| Refused::GrantOver)?;
        let chunk = (run.first(), run.count());
        if !key.is_grant_proof(grantor.get(), chunk, grant.may_write, &grant.proof) {
            return Err(Refused::WrongGrant);
        }
        let table = self.memory.table();
        if run.extents().any(|one| table.owner(one) != Some(grantor)) {
            return Err(Refused::GrantOver);
        }
        shares.add(speaker.session, run, grant.may_write);
        Ok(())
    }

    /// Passes an extent on to a session that shares it; false if none does.
    fn pass_on(&self, shares: &mut Shares, owner: OwnerId, extent: u32) -> bool {
        let Heir::Session(heir) = shares.heir(extent, owner) else {
            return false;
        };
        let table = self.memory.table();
        let passed = table.pass(owner, extent, heir);
        if passed {
            shares.note(extent, true);
            for attached in shares.attached(extent) {
                table.pass(owner, attached, heir);
            }
        }
        passed
    }

    /// Attaches extents of a session to an anchor that it may write.
    fn attach(&self, speaker: Speaker, run: ExtentRun, anchor: u32) -> Result<(), Refused> {
        let session = speaker.session;
        let table = self.memory.table();
        let count = run.count();
        let mut shares = self.shares();
        let owner = table.owner(anchor).filter(|&owner| {
            shares.anchor(anchor).is_none()
                && (owner == session || shares.permits(session, anchor, true))
        });
        let owner = owner.ok_or(Refused::NotOwned { count })?;
        let is_free = |extent: &u32| {
            table.owner(*extent) == Some(session)
                && *extent != anchor
                && !shares.is_shared(*extent)
                && !shares.is_anchor(*extent)
        };
        let foreign = run.extents().filter(|extent| !is_free(extent)).count();
        if foreign > 0 {
            let count = u32::try_from(foreign).unwrap_or(count);
            return Err(Refused::NotOwned { count });
        }
        for extent in run.extents() {
            if table.pass(session, extent, owner) {
                shares.attach(extent, anchor);
            }
        }
        Ok(())
    }

    /// Frees an extent that no other session shares, and first what is attached to it.
    fn free_anchor(
        &self,
        shares: &mut Shares,
        owner: OwnerId,
        run: ExtentRun,
    ) -> Result<Performed, Refused> {
        for attached in shares.attached(run.first()) {
            let one = ExtentRun::new(attached, 1).ok_or(Refused::Malformed)?;
            match self.free_own(owner, one) {
                Ok(Performed::Whole(_)) | Err(_) => shares.detach(attached),
                Ok(later) => return Ok(later),
            }
        }
        self.free_own(owner, run)
    }

    /// Gives up a session's share. What it inherited and no other shares becomes free.
    fn unshare(&self, speaker: Speaker, run: ExtentRun) -> Result<Performed, Refused> {
        let session = speaker.session;
        let mut shares = self.shares();
        let mut found = false;
        for extent in run.extents() {
            let Some(is_last) = shares.remove(session, extent) else {
                continue;
            };
            found = true;
            let is_heir =
                shares.is_inherited(extent) && self.memory.table().owner(extent) == Some(session);
            if !is_last || !is_heir || self.pass_on(&mut shares, session, extent) {
                continue;
            }
            let one = ExtentRun::new(extent, 1).ok_or(Refused::Malformed)?;
            match self.free_anchor(&mut shares, session, one)? {
                Performed::Whole(_) => shares.note(extent, false),
                later => {
                    // The share goes with the extent: it is retried.
                    shares.add(session, one, true);
                    return Ok(later);
                }
            }
        }
        if !found {
            return Err(Refused::NotOwned { count: run.count() });
        }
        Ok(Performed::Whole(Box::new(Reply::Unshared)))
    }

    /// Passes on what an ended session owned and others share.
    fn pass_on_all(&self, ended: OwnerId) {
        let mut shares = self.shares();
        if shares.is_empty() {
            return;
        }
        shares.end(ended);
        let table = self.memory.table();
        let shared: Vec<u32> = shares.extents().collect();
        for extent in shared {
            if table.owner(extent) == Some(ended) {
                self.pass_on(&mut shares, ended, extent);
            }
        }
        shares.forget(|extent| table.owner(extent) == Some(ended));
    }

    /// Frees a chunk. What others share passes on to them.
    fn free(&self, speaker: Speaker, run: ExtentRun) -> Result<Performed, Refused> {
        let owner = speaker.session;
        let is_plain = {
            let shares = self.shares.read().unwrap_or_else(PoisonError::into_inner);
            let is_plain = |extent| {
                !shares.is_shared(extent)
                    && !shares.is_anchor(extent)
                    && shares.anchor(extent).is_none()
            };
            shares.is_empty() || run.extents().all(is_plain)
        };
        if !is_plain {
            let mut shares = self.shares();
            let mut refused = 0;
            for extent in run.extents() {
                let one = ExtentRun::new(extent, 1).ok_or(Refused::Malformed)?;
                if self.pass_on(&mut shares, owner, extent) {
                    continue;
                }
                match self.free_anchor(&mut shares, owner, one) {
                    Ok(Performed::Whole(_)) => {
                        shares.note(extent, false);
                        shares.detach(extent);
                    }
                    Ok(later) => return Ok(later),
                    // Passed on or freed before a pause.
                    Err(_) => refused += 1,
                }
            }
            if refused == run.count() {
                return Err(Refused::NotOwned { count: refused });
            }
            return Ok(Performed::Whole(Box::new(Reply::Freed)));
        }
        self.free_own(owner, run)
    }

    /// Frees extents that no other session shares.
    fn free_own(&self, owner: OwnerId, run: ExtentRun) -> Result<Performed, Refused> {
        let table = self.memory.table();
        let freed = match &self.isolation {
            None => table.free(owner, run),
            Some(isolation) => {
                // Nothing of another's, or past the end, is touched or waited for.
                let foreign = run.extents().filter(|&one| table.owner(one) != Some(owner));
                let count = u32::try_from(foreign.count()).unwrap_or(u32::MAX);
                if count > 0 {
                    return Err(Refused::NotOwned { count });
                }
                let attempt = isolation.while_unpinned(run, || {
                    let mut budget = CLEAR_BYTES;
                    let is_clear = run
                        .extents()
                        .all(|extent| isolation.clear(&self.memory, extent, &mut budget));
                    is_clear.then(|| table.free(owner, run))
                });
                match attempt {
                    None => return Ok(Performed::Waits),
                    Some(None) => return Ok(Performed::InPart),
                    Some(Some(freed)) => freed,
                }
            }
        };
        freed.map_err(|error| Refused::NotOwned { count: error.count })?;
        add(&self.metrics.chunks_freed, 1);
        Ok(Performed::Whole(Box::new(Reply::Freed)))
    }

    /// Performs a request.
    pub(super) fn perform(&self, speaker: Speaker, message: &[u8]) -> Result<Performed, Refused> {
        let request = Request::decode(message)?;
        self.sessions().request(speaker, self.now_ns())?;
        let _done = Done {
            node: self,
            speaker,
        };
        let reply = match request {
            // Calls are performed elsewhere: they take longer than a turn.
            Request::Hello { .. } | Request::Prove { .. } | Request::Call(_) => {
                return Err(Refused::OutOfTurn);
            }
            Request::Heartbeat => Reply::Renewed,
            Request::Renew => {
                let is_leaving = self.is_leaving();
                if is_leaving {
                    self.sessions().hear(speaker.session);
                }
                Reply::Renewal { is_leaving }
            }
            Request::AllocateChunk { bytes } => Reply::Chunk(self.allocate(speaker, bytes)?.into()),
            Request::FreeChunk(chunk) => {
                let run = chunk
                    .run()
                    .ok_or(Refused::NotOwned { count: chunk.count })?;
                return self.free(speaker, run);
            }
            Request::Share(grant) => {
                self.share(speaker, &grant)?;
                Reply::Shared
            }
            Request::Unshare(chunk) => {
                let not_owned = Refused::NotOwned { count: chunk.count };
                return self.unshare(speaker, chunk.run().ok_or(not_owned)?);
            }
            Request::CountShares(chunk) => {
                let not_owned = Refused::NotOwned { count: chunk.count };
                let run = chunk.run().ok_or(not_owned)?;
                let shares = self.shares.read().unwrap_or_else(PoisonError::into_inner);
                Reply::Shares(shares.count(speaker.session, run))
            }
            Request::Attach { chunk, anchor } => {
                let not_owned = Refused::NotOwned { count: chunk.count };
                self.attach(speaker, chunk.run().ok_or(not_owned)?, anchor)?;
                Reply::Attached
            }
            Request::IsOpen(session) => {
                let is_open = self.sessions().holds(session);
                Reply::IsOpen(is_open)
            }
            Request::Statistics => Reply::Statistics(self.statistics()),
            Request::Bye => {
                self.sessions().bye(speaker)?;
                Reply::Farewell
            }
        };
        Ok(Performed::Whole(Box::new(reply)))
    }

    /// One round of maintenance: ends leases and reclaims the extents of sessions that are over.
    pub(super) fn maintain(&self, state: &mut MaintenanceState) {
        if let Some(count) = self.refusal_log.sum(self.now_ns()) {
            warn!(
                count,
                "refused more within a second; the metrics have the reasons"
            );
        }
        let (over, kept) = {
            let mut sessions = self.sessions();
            let over = sessions.over(self.now_ns());
            let kept = sessions.kept();
            let kept: Vec<_> = kept.map(|(id, name)| (id, name.to_owned())).collect();
            (over, kept)
        };
        state
            .kept
            .retain(|id, _| kept.iter().any(|(other, _)| other == id));
        for (id, name) in kept {
            if let Entry::Vacant(new) = state.kept.entry(id) {
                let extents = self.memory.table().owned_count(id);
                new.insert(extents);
                let (session, keep) = (id.get(), self.options.keep);
                warn!(
                    session,
                    name,
                    extents,
                    ?keep,
                    "a client was silent for longer than its lease: its session and its extents are kept for a while"
                );
            }
        }
        let extents_kept = state.kept.values().copied().map(u64::from).sum();
        set(&self.metrics.extents_kept, extents_kept);
        for one in over {
            let ended = one.session;
            let (session, name) = (ended.get(), &one.name);
            let extents = self.take_back(ended);
            match one.end {
                End::Bye => info!(
                    session,
                    name,
                    extents = extents.freed,
                    "a session has ended"
                ),
                End::Expired => {
                    add(&self.metrics.sessions_expired, 1);
                    warn!(
                        session,
                        name,
                        extents = extents.freed,
                        "a client was silent for longer than its lease: its session has ended, and its extents are free"
                    );
                }
            }
            if extents.left > 0 {
                error!(
                    session,
                    name,
                    extents = extents.left,
                    "these extents stay owned: another session still accesses them, or the device failed; it is tried again"
                );
                add(&self.metrics.extents_stuck, u64::from(extents.left));
                state.stuck.push(one);
            }
            // Only now: the metrics agree with the table as soon as the client has its farewell.
            self.sessions().reclaimed(ended);
        }
    }

    /// Retries to free stuck extents.
    pub(super) fn free_stuck(&self, state: &mut MaintenanceState) {
        let mut left = 0;
        state.stuck.retain(|one| {
            // One failure shows that the device still fails.
            if left == 0 {
                let extents = self.take_back(one.session);
                left += extents.left;
                if extents.left == 0 {
                    let (session, name) = (one.session.get(), &one.name);
                    info!(
                        session,
                        name,
                        extents = extents.freed,
                        "stuck extents are free again"
                    );
                }
                return extents.left > 0;
            }
            left += self.memory.table().owned_count(one.session);
            true
        });
        set(&self.metrics.extents_stuck, u64::from(left));
    }

    /// Frees the extents whose owner word names no session: a client with access to the table wrote
    /// it, against the protocol.
    pub(super) fn free_unknown_owners(&self, state: &MaintenanceState) {
        // The words are read before the sessions: a session's words appear only after it opened.
        // Those of an ended one are freed by this thread before it gets here, or are stuck.
        let owned = self.memory.table().owners();
        let mut unknown: BTreeSet<_> = owned.iter().map(|&(_, owner)| owner).collect();
        for one in &state.stuck {
            unknown.remove(&one.session);
        }
        // A few steps for each session, however many extents there are: clients that write many
        // false words make this longer, but not the time for which the sessions are locked.
        self.sessions().each(|session| {
            unknown.remove(&session);
        });
        let unowned = owned.iter().filter(|(_, owner)| unknown.contains(owner));
        let freed = unowned.filter(|&&(extent, owner)| match &self.isolation {
            Some(isolation) => self.free_unpinned(isolation, owner, &[extent]).freed > 0,
            None => ExtentRun::new(extent, 1)
                .is_some_and(|run| self.memory.table().free(owner, run).is_ok()),
        });
        let extents = freed.count();
        if extents > 0 {
            add(&self.metrics.extents_reclaimed, extents as u64);
            warn!(
                extents,
                "freed extents whose owner is no session: a client broke the protocol"
            );
        }
    }

    /// Clears and frees extents while none of them is accessed; the others are left.
    fn free_unpinned(&self, isolation: &Isolation, owner: OwnerId, extents: &[u32]) -> TakenBack {
        let mut taken = TakenBack::default();
        for run in extents.iter().filter_map(|&one| ExtentRun::new(one, 1)) {
            let freed = isolation.while_unpinned(run, || {
                isolation.clear(&self.memory, run.first(), &mut u64::MAX.clone());
                self.memory.table().free(owner, run).is_ok()
            });
            taken.freed += u32::from(freed == Some(true));
            taken.left += u32::from(freed.is_none());
        }
        taken
    }

    /// Frees a session's extents that no other session shares. One that shared them may still
    /// access some.
    fn take_back(&self, session: OwnerId) -> TakenBack {
        self.pass_on_all(session);
        let table = self.memory.table();
        let taken = match &self.isolation {
            Some(isolation) => self.free_unpinned(isolation, session, &table.owned_by(session)),
            None => table.try_take_back(session),
        };
        add(&self.metrics.extents_reclaimed, u64::from(taken.freed));
        add(&self.metrics.take_backs_failed, u64::from(taken.left > 0));
        taken
    }
}

#[cfg(test)]
mod tests;
