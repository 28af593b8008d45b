//! One thread's endpoint of the `tcp` fabric: queue pairs over sockets, polled.
//!
//! Owns the sockets of its queue pairs. They are handed over through a [`ConnectionSlot`].
//!
//! ```text
//! init -> offer (a connection) -> ready to send -> error (socket closed) -> drained -> renew, offer -> ready to send
//! ```
//!
//! - I1: a socket is closed as soon as its queue pair is in error: the peer performs none of its
//!   requests later.
//! - I2: a peer that owes an answer and does not send it within the time limit counts as lost.
//! - I3: a corked endpoint sends at [`TcpEndpoint::flush`] only, and refusals: what one turn of its
//!   owner makes leaves with one system call.

use std::os::fd::{OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use farcore_tuning::entropy_u32;

use super::connect::Connected;
use super::connection::Connection;
use super::exposed::Exposed;
use super::socket::{Received, Socket};
use crate::fabric::{Endpoint, PostError, QueuePairState, RegisterError};
use crate::log_limit::LogLimit;
use crate::memory;
use crate::region::Region;
use crate::work::{Completion, LocalKey, RemoteKey, Status, WorkRequest};

/// Consecutive polls without a byte after which the thread yields its core: the peer's thread may
/// need it.
const EMPTY_POLLS_MAX: u32 = 4;
/// Requests that are sent at once while others are in flight, which saves system calls here and
/// wakeups at the peer.
const BATCH_MIN: usize = 8;
/// How long fewer requests wait for more, in nanoseconds. Without others in flight none waits.
const BATCH_WAIT_NS: u64 = 15_000;
/// Limit on the system calls per socket and poll.
const RECEIVES: usize = 4;
/// Limit on the bytes of one flush: as much as an empty socket usually accepts.
const FLUSH_BYTES: usize = 4 << 20;

/// Limits lines about memory nodes that violate the protocol.
static NODES: LogLimit = LogLimit::new();
/// Limits lines about clients that violate the protocol: any can connect, and connect again, which
/// hides no line about a node.
static CLIENTS: LogLimit = LogLimit::new();

/// Hands established connections to a queue pair, from any thread.
#[derive(Debug, Default)]
pub struct ConnectionSlot {
    held: Mutex<Held>,
    connecting: AtomicBool,
    /// Set to make the queue pair fail.
    broken: AtomicBool,
}

#[derive(Debug, Default)]
struct Held {
    offered: Option<Connected>,
    /// The socket of the queue pair, if it has one.
    socket: Weak<Socket<OwnedFd>>,
}

// ORDERING: the flags are relaxed. They guard no other memory: what is offered lies behind the
// lock.
impl ConnectionSlot {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Offers a connection; the queue pair takes it when it is renewed.
    pub fn offer(&self, connection: Connected) {
        self.set_connecting(false);
        self.held().offered = Some(connection);
    }

    /// Records whether a connection is being established.
    pub fn set_connecting(&self, connecting: bool) {
        self.connecting.store(connecting, Ordering::Relaxed);
    }

    /// True while the queue pair has no connection and none is offered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let held = self.held();
        held.socket.strong_count() == 0 && held.offered.is_none()
    }

    /// Fails the queue pair, or drops the offered connection, if the peer has closed it. Without
    /// this check the next request would be the first to notice. Cost: a system call.
    pub fn check(&self) {
        let dead = {
            let held = self.held();
            match held.socket.upgrade() {
                Some(socket) => socket.is_dead(),
                None => held.offered.as_ref().is_some_and(Connected::is_dead),
            }
        };
        if dead {
            self.fail();
        }
    }

    /// Makes the queue pair fail at its next poll or post.
    pub fn fail(&self) {
        let mut held = self.held();
        held.offered = None;
        let has_socket = held.socket.strong_count() > 0;
        self.broken.store(has_socket, Ordering::Relaxed);
    }

    fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    fn take_broken(&self) -> bool {
        self.is_broken() && self.broken.swap(false, Ordering::Relaxed)
    }
}

#[derive(Debug)]
struct Queue {
    socket: Option<Arc<Socket<OwnedFd>>>,
    connection: Connection,
    connection_slot: Arc<ConnectionSlot>,
    failed: bool,
    /// Since when an answer is owed and none has arrived.
    silent_since_ns: Option<u64>,
    /// Requests that wait to be sent together, and since when.
    unsent: usize,
    unsent_since_ns: u64,
    is_corked: bool,
}

impl Queue {
    fn fail(&mut self, status: Status) {
        self.socket = None;
        self.failed = true;
        self.connection.fail(status);
    }

    /// True while the queue pair accepts requests.
    fn is_up(&self) -> bool {
        self.socket.is_some() && !self.connection_slot.is_broken()
    }

    fn ring(&mut self, now_ns: u64) {
        if self.socket.is_none() {
            return;
        }
        let alone = !self.connection.awaits_answers();
        let rung = self.connection.ring();
        if rung == 0 {
            return;
        }
        self.silent_since_ns.get_or_insert(now_ns);
        if self.unsent == 0 {
            self.unsent_since_ns = now_ns;
        }
        self.unsent += rung;
        if self.is_corked {
            return;
        }
        if alone || self.unsent >= BATCH_MIN {
            self.send(&mut usize::MAX.clone());
        }
    }

    fn send(&mut self, budget: &mut usize) {
        self.unsent = 0;
        let Some(socket) = self.socket.as_ref().map(|socket| socket.raw()) else {
            return;
        };
        if self.connection.output.send_within(socket, budget).is_err() {
            self.fail(Status::RetryExceeded);
        }
    }

    /// True if anything was received.
    fn poll(&mut self, now_ns: u64, limit_ns: u64) -> bool {
        if self.connection_slot.take_broken() && self.socket.is_some() {
            self.fail(Status::RetryExceeded);
        }
        if self.unsent > 0
            && !self.is_corked
            && now_ns.saturating_sub(self.unsent_since_ns) >= BATCH_WAIT_NS
        {
            self.send(&mut usize::MAX.clone());
        }
        let mut answered = false;
        for _ in 0..RECEIVES {
            let Some(socket) = &self.socket else {
                return answered;
            };
            let received = socket.receive(&mut self.connection);
            let understood = self.connection.process();
            // Requests that wait to be sent together keep waiting; answers to an equal peer's
            // requests wait with them, as briefly.
            let waits = self.unsent > 0 || self.is_corked;
            let is_refused = self.connection.is_refused();
            let sent = if (waits && !is_refused) || self.connection.is_over() {
                Ok(false)
            } else {
                self.connection.output.send(socket.raw())
            };
            if let Err(error) = understood {
                let of_client = self.connection.is_exposed();
                let limit = if of_client { &CLIENTS } else { &NODES };
                if let Some(left_out) = limit.note() {
                    let peer = socket.peer();
                    tracing::warn!(peer, %error, left_out, "a peer violated the protocol: closing its connection");
                }
                self.fail(Status::RetryExceeded);
                return true;
            }
            if self.connection.is_refused() {
                // A refusal by this side is still sent, if the socket accepts it in time.
                let since = *self.silent_since_ns.get_or_insert(now_ns);
                let late = now_ns.saturating_sub(since) > limit_ns;
                if self.connection.is_over() || sent.is_err() || late {
                    self.fail(Status::Flushed);
                }
                return true;
            }
            match received {
                _ if sent.is_err() => return self.lose(),
                Err(_) => return self.lose(),
                Ok(Received::Nothing) => break,
                Ok(Received::Some(_)) => answered = true,
            }
        }
        if !self.connection.awaits_answers() {
            self.silent_since_ns = None;
        } else if answered {
            self.silent_since_ns = Some(now_ns);
        } else if let Some(since) = self.silent_since_ns
            && now_ns.saturating_sub(since) > limit_ns
        {
            return self.lose();
        }
        answered
    }

    fn lose(&mut self) -> bool {
        self.fail(Status::RetryExceeded);
        true
    }
}

/// One thread's endpoint of the `tcp` fabric.
#[derive(Debug)]
pub struct TcpEndpoint {
    queues: Vec<Queue>,
    regions: Vec<Arc<Region>>,
    depth: usize,
    limit_ns: u64,
    exposed: Exposed,
    /// The queue pair that the next poll begins with.
    first: usize,
    empty_polls: u32,
    is_corked: bool,
}

impl TcpEndpoint {
    /// An endpoint with `queues` unconnected queue pairs, each `depth` requests deep. A peer that
    /// owes an answer for `limit_ns` is lost. Peers may access `exposed`.
    #[must_use]
    pub fn new(queues: usize, depth: usize, limit_ns: u64, exposed: Exposed) -> Self {
        let queue = |_| Queue {
            socket: None,
            connection: Connection::new(depth, exposed.clone()),
            connection_slot: Arc::default(),
            failed: false,
            silent_since_ns: None,
            unsent: 0,
            unsent_since_ns: 0,
            is_corked: false,
        };
        Self {
            queues: (0..queues).map(queue).collect(),
            regions: Vec::new(),
            depth,
            limit_ns,
            exposed,
            first: 0,
            empty_polls: 0,
            is_corked: false,
        }
    }

    /// Sends nothing from now on but at [`TcpEndpoint::flush`]. The owner polls only when a socket
    /// is ready.
    pub fn cork(&mut self) {
        self.is_corked = true;
        for queue in &mut self.queues {
            queue.is_corked = true;
        }
    }

    /// Sends what waits, as far as the socket accepts it, up to a limit: what a peer's READs of
    /// long memory have made must not keep this thread from others. [`TcpEndpoint::has_output`]
    /// says whether to call it again. Cost: a system call if anything waits.
    pub fn flush(&mut self, queue: usize) {
        self.queues[queue].send(&mut FLUSH_BYTES.clone());
    }

    /// Whether output waits for [`TcpEndpoint::flush`], or for room in the socket.
    #[must_use]
    pub fn has_output(&self, queue: usize) -> bool {
        let queue = &self.queues[queue];
        queue.socket.is_some() && !queue.connection.output.is_empty()
    }

    /// The socket of a queue pair, while it is connected.
    #[must_use]
    pub fn descriptor(&self, queue: usize) -> Option<RawFd> {
        self.queues[queue]
            .socket
            .as_ref()
            .map(|socket| socket.raw())
    }

    /// Registers a region that the peers of this endpoint may access from now on, under a random
    /// key.
    ///
    /// # Errors
    /// [`RegisterError`] if the kernel provides no random numbers.
    pub fn expose(&mut self, region: Arc<Region>) -> Result<(LocalKey, RemoteKey), RegisterError> {
        let (key, exposed) = loop {
            let key = entropy_u32().map_err(|error| RegisterError(error.to_string()))?;
            let key = RemoteKey(key);
            if let Some(exposed) = self.exposed.with(key, Arc::clone(&region)) {
                break (key, exposed);
            }
        };
        for queue in &mut self.queues {
            queue.connection.expose(exposed.clone());
        }
        self.exposed = exposed;
        Ok((self.register(region)?, key))
    }

    /// Memory that an endpoint takes besides its regions, in bytes.
    #[must_use]
    pub fn bytes_for(queues: usize, depth: usize) -> u64 {
        (queues * Connection::bytes_for(depth)) as u64
    }

    /// The slot that hands connections to a queue pair.
    #[must_use]
    pub fn connection_slot(&self, queue: usize) -> Arc<ConnectionSlot> {
        Arc::clone(&self.queues[queue].connection_slot)
    }
}

impl Endpoint for TcpEndpoint {
    fn register(&mut self, region: Arc<Region>) -> Result<LocalKey, RegisterError> {
        self.regions.push(region);
        Ok(LocalKey(
            u32::try_from(self.regions.len() - 1).unwrap_or(u32::MAX),
        ))
    }

    fn queues(&self) -> usize {
        self.queues.len()
    }

    fn post(&mut self, queue: usize, request: WorkRequest) -> Result<(), PostError> {
        let local = request.work.local();
        let region = self.regions.get(local.key.0 as usize);
        let near = region.and_then(|region| memory::pointer(region, local.offset, local.bytes));
        let queue = &mut self.queues[queue];
        if !queue.is_up() {
            return Err(PostError::Down(request));
        }
        let Some(near) = near else {
            let reason = "the local buffer is outside its region";
            return Err(PostError::Invalid { request, reason });
        };
        queue.connection.post(request, near)
    }

    fn ring_doorbell(&mut self, queue: usize, now_ns: u64) {
        self.queues[queue].ring(now_ns);
    }

    fn room(&self, queue: usize) -> usize {
        self.queues[queue].connection.room()
    }

    fn state(&self, queue: usize) -> QueuePairState {
        let queue = &self.queues[queue];
        let empty = !queue.connection.has_completions();
        match (&queue.socket, queue.failed) {
            (Some(_), _) if !queue.connection_slot.is_broken() => QueuePairState::ReadyToSend,
            (Some(_), _) => QueuePairState::Error,
            (None, true) if empty => QueuePairState::Drained,
            (None, true) => QueuePairState::Error,
            (None, false) if queue.connection_slot.connecting.load(Ordering::Relaxed) => {
                QueuePairState::ReadyToReceive
            }
            (None, false) => QueuePairState::Init,
        }
    }

    fn poll(&mut self, now_ns: u64, completions: &mut [Completion]) -> usize {
        let limit_ns = self.limit_ns;
        // An endpoint that exposes memory must check for its peers' requests.
        let serves = !self.exposed.is_empty();
        let (early, late) = self.queues.split_at_mut(self.first);
        let (mut count, mut came) = (0, false);
        for (step, queue) in late.iter_mut().chain(early).enumerate() {
            if serves || queue.connection.awaits() || queue.connection_slot.is_broken() {
                came |= queue.poll(now_ns, limit_ns);
            }
            while count < completions.len()
                && let Some(completion) = queue.connection.take_completion()
            {
                completions[count] = completion;
                count += 1;
            }
            if count == completions.len() {
                self.first = (self.first + step + 1) % self.queues.len();
                break;
            }
        }
        self.empty_polls = if came || count > 0 {
            0
        } else {
            self.empty_polls + 1
        };
        if self.empty_polls >= EMPTY_POLLS_MAX && !self.is_corked {
            self.empty_polls = 0;
            std::thread::yield_now();
        }
        count
    }

    fn next_due_ns(&self) -> Option<u64> {
        let busy = |queue: &Queue| queue.connection.outstanding() > 0;
        self.queues.iter().any(busy).then_some(0)
    }

    fn outstanding(&self) -> usize {
        (0..self.queues.len())
            .map(|queue| self.outstanding_on(queue))
            .sum()
    }

    fn outstanding_on(&self, queue: usize) -> usize {
        self.queues[queue].connection.outstanding()
    }

    fn renew(&mut self, queue: usize) {
        let depth = self.depth;
        let exposed = &self.exposed;
        let queue = &mut self.queues[queue];
        if queue.connection_slot.take_broken() && queue.socket.is_some() {
            queue.fail(Status::RetryExceeded);
        }
        if queue.socket.is_some() || queue.connection.has_completions() {
            return;
        }
        let mut held = queue.connection_slot.held();
        if let Some(connected) = held.offered.take() {
            queue.connection = Connection::new(depth, exposed.clone());
            let socket = Arc::new(connected.0);
            held.socket = Arc::downgrade(&socket);
            queue.socket = Some(socket);
            queue.failed = false;
            queue.silent_since_ns = None;
            queue.unsent = 0;
        }
    }
}
