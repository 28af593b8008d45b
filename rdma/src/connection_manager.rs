//! One core's connections to one memory node: kept, and made anew after a fault.
//!
//! ```text
//! no session -> session (control connection, lease) -> queue pairs joined to it
//!      ^            | control connection lost: resume within the lease, with back-off
//!      '--- lease over: all that the session held is lost; a new session holds nothing
//! ```
//!
//! The control connection and the queue pairs are sockets of their own: bulk transfers do not hold up a heartbeat. It owns
//! the session and, through their [`Berth`]s, what the queue pairs are connected to; requests in flight are the endpoint's
//! affair.
//!
//! - I1: a queue pair is offered only connections of the session that its extents were claimed in.
//! - I2: whoever looks after it by [`NodeConnections::tend`] sends a heartbeat at least three times a lease.

use std::net::SocketAddr;
use std::time::Duration;

use farcore_tuning::Clock;
use glommio::timer::Timer;

use crate::address::FabricAddress;
use crate::berth::Berth;
use crate::node::{NodeSession, SessionError, Token};
use crate::tcp::{ConnectError, Refusal, connect_control, resolve};

/// No try is cut shorter for a lease's sake.
const SHORTEST: Duration = Duration::from_millis(50);

/// How connections are made and kept.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// The secret that the node asks for.
    pub token: Option<Token>,
    /// A name for the node's log.
    pub client: String,
    /// How long one try may take, and one message of the control protocol.
    pub limit: Duration,
    /// The pause after the first failure; it doubles with each more.
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
    /// Shortens what would hold up heartbeats for longer than a lease bears: a try, the pause after it and the wait for
    /// the next heartbeat come to less than one.
    fn keep_within(&mut self, lease: Duration) {
        let part = (lease / 4).max(SHORTEST);
        self.limit = self.limit.min(part);
        self.pause_max = self.pause_max.min(part);
        self.pause_min = self.pause_min.min(part);
    }
}

/// Why a node cannot be used now.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManagerError {
    /// The endpoint is of another fabric.
    #[error("{0}: the endpoint does not speak this scheme")]
    Scheme(FabricAddress),
    /// A connection could not be made.
    #[error("{0}")]
    Connect(#[from] ConnectError),
    /// The session could not be opened, or the node said no.
    #[error("{address}: {source}")]
    Session {
        /// The node.
        address: FabricAddress,
        /// What is wrong.
        source: SessionError,
    },
    /// Nobody answered in time on the control connection.
    #[error("{address}: no answer within {} ms", limit.as_millis())]
    TimedOut {
        /// The node.
        address: FabricAddress,
        /// How long was waited.
        limit: Duration,
    },
}

/// What has changed with a node.
#[derive(Debug)]
pub enum Change {
    /// It does not answer.
    Down(ManagerError),
    /// It answers again, in the same session: all is as it was. Also told where a queue pair was connected anew though the
    /// node never was down: whoever waits for it must hear of that.
    Up,
    /// It answers, in a new session: everything that the old one held is lost. Queue pairs are connected at the next
    /// [`NodeConnections::tend`]: until then nothing of the new session can be reached by an old address.
    Renewed,
}

/// What a look after a node has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mended {
    /// Nothing was amiss.
    Nothing,
    /// Queue pairs were connected.
    Connected,
    /// There is a new session; no queue pair of it is connected yet.
    Renewed,
}

/// One core's connections to one node.
#[derive(Debug)]
pub struct NodeConnections {
    address: FabricAddress,
    options: ConnectOptions,
    session: NodeSession,
    /// The queue pairs to be kept connected; their places are their slots.
    berths: Vec<Berth>,
    clock: Clock,
    /// The control connection works.
    answers: bool,
    /// Whether the node was last said to be up.
    up: bool,
    heartbeat_ns: u64,
    pause: Duration,
    retry_ns: u64,
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

async fn within<T>(
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

async fn socket_address(address: &FabricAddress) -> Result<SocketAddr, ManagerError> {
    // The control connection is TCP's, whatever carries the requests.
    Ok(resolve(address.host(), address.port()).await?)
}

async fn open(
    address: &FabricAddress,
    options: &ConnectOptions,
) -> Result<NodeSession, ManagerError> {
    let place = socket_address(address).await?;
    let channel = connect_control(place, options.limit).await?;
    let token = options.token.as_ref();
    within(
        address,
        options.limit,
        NodeSession::open(channel, &options.client, token),
    )
    .await
}

impl NodeConnections {
    /// Opens a session on a node. Its queue pairs are connected by [`NodeConnections::connect`].
    ///
    /// # Errors
    /// [`ManagerError`].
    pub async fn open(
        address: FabricAddress,
        mut options: ConnectOptions,
    ) -> Result<Self, ManagerError> {
        let session = open(&address, &options).await?;
        options.keep_within(session.lease());
        Ok(Self {
            pause: options.pause_min,
            address,
            options,
            session,
            berths: Vec::new(),
            clock: Clock::new(),
            answers: true,
            up: true,
            heartbeat_ns: 0,
            retry_ns: 0,
        })
    }

    /// The session.
    #[must_use]
    pub fn session(&mut self) -> &mut NodeSession {
        &mut self.session
    }

    /// Where the node is.
    #[must_use]
    pub fn address(&self) -> &FabricAddress {
        &self.address
    }

    /// Has a queue pair kept connected from now on.
    pub fn keep(&mut self, berth: Berth) {
        self.berths.push(berth);
    }

    /// Connects every queue pair that is not.
    ///
    /// # Errors
    /// [`ManagerError`] of the first that could not be.
    pub async fn connect(&mut self) -> Result<(), ManagerError> {
        self.connect_missing().await.map(drop)
    }

    async fn connect_missing(&mut self) -> Result<Mended, ManagerError> {
        let mut mended = Mended::Nothing;
        for slot in 0..self.berths.len() {
            self.berths[slot].check();
            if !self.berths[slot].is_empty() {
                continue;
            }
            let berth = self.berths[slot].clone();
            self.join(slot, &berth).await?;
            mended = Mended::Connected;
        }
        Ok(mended)
    }

    /// Connects a queue pair that is not kept: one for claiming extents, say. Slots of kept ones are taken.
    ///
    /// # Errors
    /// [`ManagerError`].
    pub async fn join(&mut self, slot: usize, berth: &Berth) -> Result<(), ManagerError> {
        let place = socket_address(&self.address).await?;
        let slot = u32::try_from(slot).unwrap_or(u32::MAX);
        let request = self.session.memory_request(slot);
        berth
            .connect(&self.address, place, &request, self.options.limit)
            .await
    }

    /// Looks after everything once: a heartbeat if it is time, queue pairs that lost their connection, a session to be
    /// resumed. To be called every few ten milliseconds; returns what has changed.
    pub async fn tend(&mut self) -> Option<Change> {
        let now_ns = self.clock.now_ns();
        if now_ns < self.retry_ns {
            return None;
        }
        match self.mend(now_ns).await {
            Ok(mended) => {
                self.pause = self.options.pause_min;
                let was_up = std::mem::replace(&mut self.up, true);
                match (mended, was_up) {
                    (Mended::Renewed, _) => Some(Change::Renewed),
                    (Mended::Nothing, true) => None,
                    _ => Some(Change::Up),
                }
            }
            Err(error) => {
                // Cores that lost the same node come back one after the other.
                let spread = now_ns % (nanoseconds(self.pause) / 4 + 1);
                self.retry_ns = self.clock.now_ns() + nanoseconds(self.pause) + spread;
                self.pause = (self.pause * 2).min(self.options.pause_max);
                std::mem::take(&mut self.up).then_some(Change::Down(error))
            }
        }
    }

    async fn mend(&mut self, now_ns: u64) -> Result<Mended, ManagerError> {
        self.beat().await;
        if !self.answers && self.resume(now_ns).await? {
            return Ok(Mended::Renewed);
        }
        match self.connect_missing().await {
            Err(ManagerError::Connect(ConnectError::Refused {
                refusal: Refusal::Session | Refusal::Proof,
                ..
            })) => {
                self.answers = false;
                if self.resume(now_ns).await? {
                    return Ok(Mended::Renewed);
                }
                self.connect_missing().await
            }
            other => other,
        }
    }

    /// Takes the session up again over a new control connection.
    async fn take_up_again(&mut self) -> Result<(), ManagerError> {
        let place = socket_address(&self.address).await?;
        let channel = connect_control(place, self.options.limit).await?;
        let resume = self.session.resume(channel);
        within(&self.address, self.options.limit, resume).await
    }

    /// Sends a heartbeat if it is time: for whoever has much to do before it can [`NodeConnections::tend`].
    pub async fn beat(&mut self) {
        let now_ns = self.clock.now_ns();
        if self.answers && now_ns >= self.heartbeat_ns {
            let beat = within(&self.address, self.options.limit, self.session.heartbeat()).await;
            self.answers = beat.is_ok();
            self.next_heartbeat(now_ns);
        }
    }

    fn next_heartbeat(&mut self, now_ns: u64) {
        self.heartbeat_ns = now_ns + nanoseconds(self.session.lease() / 4);
    }

    /// Takes the session up again over a new control connection, or opens a new one if it is over; true if it did that.
    async fn resume(&mut self, now_ns: u64) -> Result<bool, ManagerError> {
        let renewed = match self.take_up_again().await {
            Ok(()) => Ok(false),
            Err(ManagerError::Session {
                source: SessionError::Expired,
                ..
            }) => {
                tracing::warn!(node = %self.address, "the session is over, and all that it held is lost");
                for berth in &self.berths {
                    berth.fail();
                }
                self.session = open(&self.address, &self.options).await?;
                Ok(true)
            }
            Err(error) => Err(error),
        }?;
        self.answers = true;
        self.next_heartbeat(now_ns);
        Ok(renewed)
    }

    /// Ends the session: the node takes back at once all that it held.
    pub async fn close(mut self) {
        // A request may have been given up half-way: its answer would be taken for the farewell's.
        if self.answers && self.session.is_broken() {
            let _ = self.take_up_again().await;
        }
        if self.answers {
            // Whoever cannot say goodbye is forgotten when the lease ends.
            let _ = within(&self.address, self.options.limit, self.session.bye()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::Endpoint;
    use crate::node::{MemoryNode, MemoryOptions, NodeOptions};
    use crate::tcp::{Exposed, TcpEndpoint};

    #[test]
    fn a_try_that_hangs_does_not_cost_the_lease() {
        let lease = Duration::from_secs(30);
        let mut options = ConnectOptions {
            limit: Duration::from_secs(600),
            ..ConnectOptions::default()
        };
        options.keep_within(lease);
        // A try, its pause with what is added to it, and a heartbeat that has just been missed.
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
    fn a_queue_pair_that_is_connected_anew_is_told() {
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
        let kept = async {
            let opened = NodeConnections::open(address, ConnectOptions::default()).await;
            let mut connections = opened.expect("a node that listens");
            let mut endpoint = TcpEndpoint::new(2, 4, u64::MAX, Exposed::default());
            connections.keep(Berth::Tcp(endpoint.berth(0)));
            connections.keep(Berth::Tcp(endpoint.berth(1)));
            connections.connect().await.expect("a node that listens");
            for queue in 0..2 {
                endpoint.renew(queue);
            }
            assert!(connections.tend().await.is_none());
            // It breaks and comes back between two looks: the node was never seen down.
            endpoint.berth(1).fail();
            endpoint.renew(1);
            assert!(matches!(connections.tend().await, Some(Change::Up)));
            assert!(connections.tend().await.is_none());
            connections.close().await;
        };
        crate::run_local(kept).expect("an executor");
        node.stop();
    }
}
