//! One core's connections to one memory node, and their reconnection after a fault.
//!
//! ```text
//! no session -> session (control connection, lease) -> queue pairs joined to it
//!      ^            | control connection lost: resume within the lease, with back-off
//!      '--- lease over: all data of the session is lost; a new session holds nothing
//! ```
//!
//! The thread of [`Heartbeats`] keeps the session and owns the control connection. The core owns
//! the connections of its queue pairs, through their [`ConnectionSlot`]s. Control connection and
//! queue pairs use separate sockets, so that bulk transfers do not delay a heartbeat. Requests in
//! flight belong to the endpoint.
//!
//! - I1: a queue pair is offered only connections of the session in which its extents were claimed:
//!   the newest that [`NodeConnections::tend`] has returned.
//! - I2: heartbeats do not depend on whether or when this core calls anything.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::executor::Timer;
use farcore_tuning::Clock;

use crate::address::FabricAddress;
use crate::control::{Call, Grant, NodeStatistics, Reply, Request, SessionError, Token};
use crate::fabric::{ConnectionSlot, SlotError};
use crate::heartbeats::{Heartbeats, KeptSession, Siblings};
use crate::pool::{ExtentRun, OwnerId};
use crate::session::SessionFacts;
use crate::tcp::{ConnectError, Refusal, resolve};

/// Lower bound on the limits that [`ConnectOptions::keep_within`] derives from a lease.
const SHORTEST: Duration = Duration::from_millis(50);
/// Interval at which a caller of [`NodeConnections::open`] polls.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Settings for making and keeping connections.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// The node's token, if it requires one.
    pub token: Option<Token>,
    /// A name for the node's log.
    pub client: String,
    /// Time limit for one connection attempt, and for one message of the control protocol.
    pub limit: Duration,
    /// The pause after the first failure. It doubles with each further one.
    pub pause_min: Duration,
    /// The longest pause.
    pub pause_max: Duration,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            token: None,
            client: "farcore".to_owned(),
            limit: Duration::from_secs(5),
            pause_min: Duration::from_millis(50),
            pause_max: Duration::from_secs(2),
        }
    }
}

impl ConnectOptions {
    /// Shortens limits so that an attempt, the pause after it and the wait for the next heartbeat
    /// together take less than a lease.
    pub(crate) fn keep_within(&mut self, lease: Duration) {
        let part = (lease / 4).max(SHORTEST);
        self.limit = self.limit.min(part);
        self.pause_max = self.pause_max.min(part);
        self.pause_min = self.pause_min.min(part);
    }
}

/// Why a node cannot be used at the moment.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManagerError {
    /// The endpoint belongs to another fabric.
    #[error("{0}: the endpoint does not support this scheme")]
    Scheme(FabricAddress),
    /// A connection could not be established.
    #[error("{0}")]
    Connect(#[from] ConnectError),
    /// The session could not be opened, or the node refused.
    #[error("{address}: {source}")]
    Session {
        /// The node.
        address: FabricAddress,
        /// The reason.
        source: SessionError,
    },
    /// The node did not answer in time on the control connection.
    #[error("{address}: no answer within {} ms", limit.as_millis())]
    TimedOut {
        /// The node.
        address: FabricAddress,
        /// The time limit.
        limit: Duration,
    },
    /// The address leads to a node that is already in use under another address. Losing it would
    /// count as losing two nodes.
    #[error("{address} is the same memory node as {other}: name each node once")]
    Twin {
        /// The address.
        address: FabricAddress,
        /// The other one.
        other: FabricAddress,
    },
    /// The thread that keeps the session has stopped.
    #[error("{0}: the thread that keeps its session has stopped")]
    Stopped(FabricAddress),
}

impl From<SlotError> for ManagerError {
    fn from(error: SlotError) -> Self {
        match error {
            SlotError::Scheme(address) => Self::Scheme(address),
            SlotError::Connect(error) => Self::Connect(error),
        }
    }
}

impl ManagerError {
    /// Whether retrying is useless until the configuration of one side changes.
    #[must_use]
    pub fn is_final(&self) -> bool {
        match self {
            Self::Scheme(_) | Self::Twin { .. } | Self::Stopped(_) => true,
            Self::Session { source, .. } => matches!(
                source,
                SessionError::Version { .. }
                    | SessionError::WrongToken
                    | SessionError::NodeNotProved
                    | SessionError::NoTokenAtNode
                    | SessionError::TokenMissing
                    | SessionError::Map(_)
                    | SessionError::Lease { .. }
            ),
            Self::Connect(ConnectError::Refused { refusal, .. }) => {
                matches!(refusal, Refusal::Version(_) | Refusal::Purpose)
            }
            Self::Connect(_) | Self::TimedOut { .. } => false,
        }
    }
}

/// A change in the state of a node.
#[derive(Debug)]
pub enum Change {
    /// The first session is open and holds nothing yet. Not returned after
    /// [`NodeConnections::open`]. Queue pairs are connected at the next [`NodeConnections::tend`].
    Opened,
    /// The node does not answer.
    Down(ManagerError),
    /// The node answers again in the same session; its data is intact. Also returned if a queue
    /// pair was reconnected although the node was never seen down: callers that wait for that queue
    /// pair must learn of it.
    Up,
    /// The node answers in a new session: all data of the old one is lost. Queue pairs are
    /// connected at the next [`NodeConnections::tend`]: until then no old address reaches memory of
    /// the new session.
    Renewed,
}

/// One core's connections to one node.
#[derive(Debug)]
pub struct NodeConnections {
    address: FabricAddress,
    options: ConnectOptions,
    kept: KeptSession,
    /// The newest session that was returned to the caller.
    session: Option<SessionFacts>,
    /// The queue pairs to keep connected. Their indexes are their slots.
    connection_slots: Vec<ConnectionSlot>,
    clock: Clock,
    /// Whether the node was last reported up.
    up: bool,
    /// How often the node refused the session since a connection was last established.
    refusals: u32,
    pause: Duration,
    retry_ns: u64,
}

pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

pub(crate) async fn within<T>(
    address: &FabricAddress,
    limit: Duration,
    work: impl Future<Output = Result<T, SessionError>>,
) -> Result<T, ManagerError> {
    let answer = async {
        work.await.map_err(|source| ManagerError::Session {
            address: address.clone(),
            source,
        })
    };
    futures_lite::future::or(answer, async {
        Timer::new(limit).await;
        Err(ManagerError::TimedOut {
            address: address.clone(),
            limit,
        })
    })
    .await
}

pub(crate) async fn socket_address(address: &FabricAddress) -> Result<SocketAddr, ManagerError> {
    // The control connection is always TCP, whatever transport the requests use.
    Ok(resolve(address.host(), address.port()).await?)
}

impl NodeConnections {
    /// Starts opening a session at a node; retries until this is dropped.
    /// [`NodeConnections::tend`] returns the outcome.
    #[must_use]
    pub fn begin(
        address: FabricAddress,
        options: ConnectOptions,
        heartbeats: &Heartbeats,
        siblings: &Siblings,
    ) -> Self {
        let kept = heartbeats.keep(address.clone(), options.clone(), siblings.clone());
        Self {
            pause: options.pause_min,
            address,
            options,
            kept,
            session: None,
            connection_slots: Vec::new(),
            clock: Clock::new(),
            up: false,
            refusals: 0,
            retry_ns: 0,
        }
    }

    /// Opens a session at a node, or returns why the first attempt failed.
    /// [`NodeConnections::connect`] connects its queue pairs.
    ///
    /// # Errors
    /// [`ManagerError`].
    pub async fn open(
        address: FabricAddress,
        options: ConnectOptions,
        heartbeats: &Heartbeats,
    ) -> Result<Self, ManagerError> {
        let mut opened = Self::begin(address, options, heartbeats, &Siblings::default());
        loop {
            if opened.is_open() {
                return Ok(opened);
            }
            if let Some(error) = opened.take_error() {
                return Err(error);
            }
            Timer::new(POLL_INTERVAL).await;
        }
    }

    /// Whether the first session is open, for a caller that waits for it.
    /// [`NodeConnections::tend`] then does not return [`Change::Opened`].
    pub fn is_open(&mut self) -> bool {
        if self.session.is_none()
            && let Some(session) = self.kept.update(None).session
        {
            self.session = Some(session);
            self.up = true;
        }
        self.session.is_some()
    }

    /// Whether the node has said that it leaves: claim nothing there, and move what can be moved.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.kept.is_leaving()
    }

    /// Takes the reason why the newest attempt to reach the node failed.
    pub fn take_error(&mut self) -> Option<ManagerError> {
        let stopped = || ManagerError::Stopped(self.address.clone());
        self.kept
            .take_error()
            .or_else(|| self.kept.is_over().then(stopped))
    }

    /// The newest session that was returned; `None` before the first.
    #[must_use]
    pub fn session(&self) -> Option<&SessionFacts> {
        self.session.as_ref()
    }

    fn owner(&self) -> Option<OwnerId> {
        self.session.as_ref().map(SessionFacts::owner)
    }

    /// The node's address.
    #[must_use]
    pub fn address(&self) -> &FabricAddress {
        &self.address
    }

    /// Keeps a queue pair connected from now on.
    pub fn keep(&mut self, connection_slot: ConnectionSlot) {
        self.connection_slots.push(connection_slot);
    }

    /// Connects every queue pair that is not connected.
    ///
    /// # Errors
    /// The [`ManagerError`] of the first that could not be connected.
    pub async fn connect(&mut self) -> Result<(), ManagerError> {
        self.connect_missing().await.map(drop)
    }

    /// Connects every queue pair that is not connected; true if there was one.
    async fn connect_missing(&mut self) -> Result<bool, ManagerError> {
        let mut connected = false;
        for slot in 0..self.connection_slots.len() {
            self.connection_slots[slot].check();
            if !self.connection_slots[slot].is_empty() {
                continue;
            }
            let connection_slot = self.connection_slots[slot].clone();
            self.join(slot, &connection_slot).await?;
            connected = true;
        }
        Ok(connected)
    }

    /// Connects a queue pair that is not kept, for example one for claiming extents. The slots of
    /// kept queue pairs are in use.
    ///
    /// # Errors
    /// [`ManagerError`].
    pub async fn join(
        &mut self,
        slot: usize,
        connection_slot: &ConnectionSlot,
    ) -> Result<(), ManagerError> {
        let Some(session) = &self.session else {
            let what = "no session is open yet";
            let source = io::Error::new(io::ErrorKind::NotConnected, what).into();
            let address = self.address.clone();
            return Err(ManagerError::Session { address, source });
        };
        let slot = u32::try_from(slot).unwrap_or(u32::MAX);
        let request = session.memory_request(slot);
        let place = socket_address(&self.address).await?;
        connection_slot
            .connect(&self.address, place, &request, self.options.limit)
            .await?;
        Ok(())
    }

    /// Processes the session's status and reconnects queue pairs. Call it every few ten
    /// milliseconds. Returns what has changed.
    pub async fn tend(&mut self) -> Option<Change> {
        let news = self.kept.update(self.owner());
        if let Some(session) = news.session {
            for connection_slot in &self.connection_slots {
                connection_slot.fail();
            }
            self.rest();
            self.up = true;
            let before = self.session.replace(session);
            return Some(match before {
                Some(_) => Change::Renewed,
                None => Change::Opened,
            });
        }
        self.session.as_ref()?;
        if !news.answers {
            let was_up = std::mem::take(&mut self.up);
            return was_up.then(|| {
                let error = self.take_error();
                Change::Down(error.unwrap_or_else(|| ManagerError::Stopped(self.address.clone())))
            });
        }
        let now_ns = self.clock.now_ns();
        if now_ns < self.retry_ns {
            return None;
        }
        match self.connect_missing().await {
            Ok(connected) => {
                self.rest();
                let was_up = std::mem::replace(&mut self.up, true);
                (connected || !was_up).then_some(Change::Up)
            }
            Err(error) => self.not_connected(now_ns, error),
        }
    }

    fn rest(&mut self) {
        (self.refusals, self.retry_ns) = (0, 0);
        self.pause = self.options.pause_min;
    }

    fn not_connected(&mut self, now_ns: u64, error: ManagerError) -> Option<Change> {
        // Spreads the retries of cores that lost the same node.
        let spread = now_ns % (nanoseconds(self.pause) / 4 + 1);
        self.retry_ns = self.clock.now_ns() + nanoseconds(self.pause) + spread;
        self.pause = (self.pause * 2).min(self.options.pause_max);
        let refused = matches!(
            error,
            ManagerError::Connect(ConnectError::Refused {
                refusal: Refusal::Session | Refusal::Proof,
                ..
            })
        );
        if refused && let Some(owner) = self.owner() {
            self.kept.check(owner);
            self.refusals += 1;
            // The session may be over or about to be resumed; its status will show that soon.
            if self.refusals == 1 {
                return None;
            }
        }
        std::mem::take(&mut self.up).then_some(Change::Down(error))
    }

    fn named<T>(&self, done: Result<T, SessionError>) -> Result<T, ManagerError> {
        done.map_err(|source| ManagerError::Session {
            address: self.address.clone(),
            source,
        })
    }

    /// As [`NodeSession::allocate_chunk`](crate::node::NodeSession::allocate_chunk).
    ///
    /// # Errors
    /// [`ManagerError::Session`].
    pub async fn allocate_chunk(&self, bytes: u64) -> Result<ExtentRun, ManagerError> {
        self.named(self.kept.allocate_chunk(bytes).await)
    }

    /// As [`NodeSession::free_chunk`](crate::node::NodeSession::free_chunk).
    ///
    /// # Errors
    /// [`ManagerError::Session`].
    pub async fn free_chunk(&self, run: ExtentRun) -> Result<(), ManagerError> {
        self.named(self.kept.free_chunk(run).await)
    }

    async fn ask(&self, request: Request) -> Result<Reply, ManagerError> {
        self.named(self.kept.ask(request).await)
    }

    fn unexpected<T>(&self, wanted: &'static str) -> Result<T, ManagerError> {
        self.named(Err(SessionError::Unexpected(wanted)))
    }

    /// Shares extents of another session: they are not reclaimed with it, but only when the last
    /// session has given up its share.
    ///
    /// # Errors
    /// [`Refused::GrantOver`](crate::control::Refused::GrantOver) if that session has ended or does
    /// not own them, [`Refused::WrongGrant`](crate::control::Refused::WrongGrant) if it did not
    /// grant it.
    pub async fn share(&self, grant: Grant) -> Result<(), ManagerError> {
        match self.ask(Request::Share(grant)).await? {
            Reply::Shared => Ok(()),
            _ => self.unexpected("a share"),
        }
    }

    /// Gives up a share. No request on it may be in flight.
    ///
    /// # Errors
    /// [`Refused::NotOwned`](crate::control::Refused::NotOwned) if there is none.
    pub async fn unshare(&self, run: ExtentRun) -> Result<(), ManagerError> {
        match self.ask(Request::Unshare(run.into())).await? {
            Reply::Unshared => Ok(()),
            _ => self.unexpected("the end of a share"),
        }
    }

    /// How many other sessions share some of the extents.
    ///
    /// # Errors
    /// [`ManagerError::Session`].
    pub async fn count_shares(&self, run: ExtentRun) -> Result<u32, ManagerError> {
        match self.ask(Request::CountShares(run.into())).await? {
            Reply::Shares(count) => Ok(count),
            _ => self.unexpected("a number of shares"),
        }
    }

    /// Gives extents to all that use an anchor: they have its owner and its sharers, and are freed
    /// with it.
    ///
    /// # Errors
    /// [`Refused::NotOwned`](crate::control::Refused::NotOwned) if the session does not own them,
    /// or may not write the anchor.
    pub async fn attach(&self, run: ExtentRun, anchor: u32) -> Result<(), ManagerError> {
        let chunk = run.into();
        match self.ask(Request::Attach { chunk, anchor }).await? {
            Reply::Attached => Ok(()),
            _ => self.unexpected("the end of an attachment"),
        }
    }

    /// Whether a session of the node is open. If not, none of its requests is performed any more.
    ///
    /// # Errors
    /// [`ManagerError::Session`].
    pub async fn is_open_session(&self, session: OwnerId) -> Result<bool, ManagerError> {
        match self.ask(Request::IsOpen(session)).await? {
            Reply::IsOpen(is_open) => Ok(is_open),
            _ => self.unexpected("whether a session is open"),
        }
    }

    /// Calls a procedure of the node's host. The future may be run by another task. Its answer, or
    /// why the procedure failed.
    ///
    /// # Errors
    /// [`SessionError::Refused`]: [`Refused::NoProcedure`](crate::control::Refused::NoProcedure),
    /// [`Refused::WrongTarget`](crate::control::Refused::WrongTarget),
    /// [`Refused::TooManyCalls`](crate::control::Refused::TooManyCalls).
    pub fn call(
        &self,
        call: Call,
    ) -> impl Future<Output = Result<Result<Vec<u8>, String>, SessionError>> + use<> {
        let asked = self.kept.asking(Request::Call(call));
        async move {
            match asked.await? {
                Reply::Called(answer) => Ok(Ok(answer)),
                Reply::Failed(reason) => Ok(Err(reason)),
                _ => Err(SessionError::Unexpected("the answer of a call")),
            }
        }
    }

    /// The node's figures.
    ///
    /// # Errors
    /// [`ManagerError::Session`].
    pub async fn statistics(&self) -> Result<NodeStatistics, ManagerError> {
        match self.ask(Request::Statistics).await? {
            Reply::Statistics(statistics) => Ok(statistics),
            _ => self.unexpected("figures"),
        }
    }

    /// Ends the session: the node frees its extents at once.
    pub async fn close(self) {
        self.kept.close().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::Endpoint;
    use crate::node::{MemoryNode, MemoryOptions, NodeOptions};
    use crate::tcp::{Exposed, TcpEndpoint};

    #[test]
    fn an_attempt_that_hangs_does_not_cost_the_lease() {
        let lease = Duration::from_secs(30);
        let mut options = ConnectOptions {
            limit: Duration::from_secs(600),
            ..ConnectOptions::default()
        };
        options.keep_within(lease);
        // An attempt, its pause with its spread, and a heartbeat that was just missed.
        let longest = options.limit + options.pause_max * 5 / 4 + lease / 4;
        assert!(longest < lease, "{longest:?}");
        let before = ConnectOptions::default();
        let mut same = before.clone();
        same.keep_within(lease);
        assert_eq!(
            (same.limit, same.pause_max),
            (before.limit, before.pause_max)
        );
    }

    #[test]
    fn a_reconnected_queue_pair_is_reported() {
        let memory = MemoryOptions {
            region_bytes: 1 << 20,
            extent_bytes: 64 << 10,
            huge_pages: false,
            lock: crate::Lock::Off,
            ..MemoryOptions::new(1 << 20)
        };
        let options = NodeOptions::new(([127, 0, 0, 1], 0).into(), memory);
        let node = MemoryNode::start(options).expect("a node");
        let address = format!("tcp://{}", node.address());
        let address = address.parse().expect("an address");
        let heartbeats = Heartbeats::start().expect("a thread");
        let kept = async {
            let options = ConnectOptions::default();
            let opened = NodeConnections::open(address, options, &heartbeats).await;
            let mut connections = opened.expect("a node that listens");
            let mut endpoint = TcpEndpoint::new(2, 4, u64::MAX, Exposed::default());
            connections.keep(ConnectionSlot::Tcp(endpoint.connection_slot(0)));
            connections.keep(ConnectionSlot::Tcp(endpoint.connection_slot(1)));
            connections.connect().await.expect("a node that listens");
            for queue in 0..2 {
                endpoint.renew(queue);
            }
            assert!(connections.tend().await.is_none());
            // It breaks and is reconnected between two calls: the node was never seen down.
            endpoint.connection_slot(1).fail();
            endpoint.renew(1);
            assert!(matches!(connections.tend().await, Some(Change::Up)));
            assert!(connections.tend().await.is_none());
            connections.close().await;
        };
        crate::run_local(kept).expect("an executor");
        node.stop();
    }
}
