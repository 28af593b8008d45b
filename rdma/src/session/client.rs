//! A session at a memory node: the client's end.
//!
//! Owns the control connection.
//!
//! - I1: requests run one at a time, each with its answer. After an error of the connection none is
//!   accepted until the session is resumed over a new one.
//! - I2: connect requests for memory connections can be made on any thread, and no two are equal.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::control::token::{self, Join, SessionKey, Token};
use crate::control::{Chunk, Grant, NodeStatistics, Opening, Refused, Reply, Request, Welcome};
use crate::control::{ClientHello, SessionError, granted};
use crate::executor::Timer;
use crate::pool::{ExtentRun, NodeMap, OwnerId};
use crate::tcp::{Carrier, ConnectRequest, MessageChannel, Purpose, is_dropped, pauses};

/// Makes connect requests for memory connections of one session. Clones share the counter that
/// makes each unique.
#[derive(Clone, Debug)]
pub struct MemoryPass {
    session: OwnerId,
    key: SessionKey,
    counter: Arc<AtomicU64>,
}

impl MemoryPass {
    /// A request with a fresh proof, valid for one connection. A new connection of a slot replaces
    /// the old one, which the node closes first.
    #[must_use]
    pub fn request(&self, slot: u32) -> ConnectRequest {
        let join = Join {
            session: self.session.get(),
            slot,
            // ORDERING: relaxed; only the number's uniqueness matters.
            counter: self.counter.fetch_add(1, Ordering::Relaxed),
        };
        ConnectRequest::new(Purpose::Memory {
            session: join.session,
            slot,
            counter: join.counter,
            proof: self.key.memory_proof(&join),
            carrier: Carrier::Socket,
        })
    }
}

/// Everything that a thread needs to reach the session's memory.
#[derive(Clone, Debug)]
pub struct SessionFacts {
    pass: MemoryPass,
    incarnation: u32,
    lease: Duration,
    map: NodeMap,
}

impl SessionFacts {
    /// The owner of the session's claims.
    #[must_use]
    pub fn owner(&self) -> OwnerId {
        self.pass.session
    }

    /// The node's incarnation.
    #[must_use]
    pub fn incarnation(&self) -> u32 {
        self.incarnation
    }

    /// The lease: how long the session lives without a request.
    #[must_use]
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// The memory that the node lends, validated.
    #[must_use]
    pub fn map(&self) -> &NodeMap {
        &self.map
    }

    /// A connect request with a fresh proof, valid for one memory connection.
    #[must_use]
    pub fn memory_request(&self, slot: u32) -> ConnectRequest {
        self.pass.request(slot)
    }

    /// A grant by which other sessions share extents that this one owns.
    #[must_use]
    pub fn grant(&self, run: ExtentRun, may_write: bool) -> Grant {
        let MemoryPass { session, key, .. } = &self.pass;
        let chunk = (run.first(), run.count());
        Grant {
            session: *session,
            chunk: run.into(),
            may_write,
            proof: key.grant_proof(session.get(), chunk, may_write),
        }
    }
}

/// An open session.
#[derive(Debug)]
pub struct NodeSession {
    channel: MessageChannel,
    broken: bool,
    name: String,
    needs: Option<Token>,
    welcome: Welcome,
    pass: MemoryPass,
    /// The node's release does not know a renewal that says whether it leaves.
    is_older: bool,
    /// The node has said that it leaves.
    is_leaving: bool,
}

/// Shakes hands. If the node drops the connection meanwhile, as it does when it has no place for
/// it, does so over further ones.
async fn shake(
    channel: &mut MessageChannel,
    name: &str,
    opening: Opening,
    token: Option<&Token>,
    key: &[u8],
) -> Result<(Welcome, SessionKey), SessionError> {
    let mut pauses = pauses();
    loop {
        let dropped = match shake_once(channel, name, opening, token, key).await {
            Err(SessionError::Io(error)) if is_dropped(&error) => error,
            done => return done,
        };
        let Some(pause) = pauses.next() else {
            return Err(dropped.into());
        };
        Timer::new(pause).await;
        match channel.reconnected().await {
            Some(Ok(other)) => *channel = other,
            _ => return Err(dropped.into()),
        }
    }
}

async fn shake_once(
    channel: &mut MessageChannel,
    name: &str,
    opening: Opening,
    token: Option<&Token>,
    key: &[u8],
) -> Result<(Welcome, SessionKey), SessionError> {
    let (hello, message) = ClientHello::new(name, opening)?;
    channel.send(&message).await?;
    let (proved, message) = hello.challenged(&channel.receive().await?, token, key)?;
    channel.send(&message).await?;
    proved.welcomed(&channel.receive().await?, key)
}

impl NodeSession {
    /// Opens a session; `name` appears in the node's log. Both sides prove that they know the
    /// token. Has no time limit of its own. Cost: two round trips. If the node drops the
    /// connection, it is tried again over others, up to 8 times within 2 seconds.
    ///
    /// # Errors
    /// [`SessionError`].
    pub async fn open(
        mut channel: MessageChannel,
        name: &str,
        token: Option<&Token>,
    ) -> Result<Self, SessionError> {
        let key = token::key_of(token);
        let (welcome, key) = shake(&mut channel, name, Opening::New, token, key).await?;
        let pass = MemoryPass {
            session: welcome.session,
            key,
            counter: Arc::new(AtomicU64::new(1)),
        };
        Ok(Self {
            channel,
            broken: false,
            name: name.to_owned(),
            needs: token.cloned(),
            welcome,
            pass,
            is_older: false,
            is_leaving: false,
        })
    }

    /// Resumes the session over another control connection. Memory connections and connect requests
    /// stay valid.
    ///
    /// # Errors
    /// [`SessionError::Expired`] if the session has ended: open a new one.
    pub async fn resume(&mut self, mut channel: MessageChannel) -> Result<(), SessionError> {
        let opening = Opening::Resume {
            session: self.welcome.session,
            incarnation: self.welcome.incarnation,
        };
        let key = self.pass.key.bytes();
        let token = self.needs.as_ref();
        let (welcome, _) = shake(&mut channel, &self.name, opening, token, key).await?;
        self.welcome = welcome;
        self.channel = channel;
        self.broken = false;
        Ok(())
    }

    /// The owner of the session's claims.
    #[must_use]
    pub fn owner(&self) -> OwnerId {
        self.welcome.session
    }

    /// The node's incarnation.
    #[must_use]
    pub fn incarnation(&self) -> u32 {
        self.welcome.incarnation
    }

    /// The memory that the node lends, validated.
    #[must_use]
    pub fn map(&self) -> &NodeMap {
        &self.welcome.map
    }

    /// The lease: how long the session lives without a request. Send heartbeats at a third of it.
    #[must_use]
    pub fn lease(&self) -> Duration {
        Duration::from_millis(self.welcome.lease_ms)
    }

    /// The session's facts, for other threads.
    #[must_use]
    pub fn facts(&self) -> SessionFacts {
        SessionFacts {
            pass: self.pass(),
            incarnation: self.incarnation(),
            lease: self.lease(),
            map: self.map().clone(),
        }
    }

    /// Whether the connection failed: resume the session.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Makes connect requests for memory connections on any thread.
    #[must_use]
    pub fn pass(&self) -> MemoryPass {
        self.pass.clone()
    }

    /// A connect request with a fresh proof, valid for one memory connection.
    #[must_use]
    pub fn memory_request(&self, slot: u32) -> ConnectRequest {
        self.pass.request(slot)
    }

    async fn call(
        &mut self,
        request: &Request,
        wanted: &'static str,
    ) -> Result<Reply, SessionError> {
        if self.broken {
            let what = "the connection failed: resume the session over a new one";
            return Err(std::io::Error::new(std::io::ErrorKind::NotConnected, what).into());
        }
        // Stays set if the caller drops this future: later answers would not match their requests.
        self.broken = true;
        self.channel.send(&request.encode()).await?;
        let reply = self.channel.receive().await?;
        self.broken = false;
        granted(&reply, wanted)
    }

    /// Whether the node has said that it leaves: claim nothing there.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.is_leaving
    }

    /// Renews the lease, and hears whether the node leaves. Cost: a round trip, as for all
    /// following requests; the first at a node of an older release takes two.
    ///
    /// # Errors
    /// [`SessionError::Expired`] if the session has ended. Otherwise the connection failed, and the
    /// session can be resumed.
    pub async fn heartbeat(&mut self) -> Result<(), SessionError> {
        let wanted = "a renewed lease";
        if !self.is_older {
            match self.call(&Request::Renew, wanted).await {
                Ok(Reply::Renewal { is_leaving }) => {
                    self.is_leaving |= is_leaving;
                    return Ok(());
                }
                Ok(_) => return Err(SessionError::Unexpected(wanted)),
                Err(SessionError::Refused(Refused::UnknownKind(_))) => self.is_older = true,
                Err(error) => return Err(error),
            }
        }
        match self.call(&Request::Heartbeat, wanted).await? {
            Reply::Renewed => Ok(()),
            _ => Err(SessionError::Unexpected(wanted)),
        }
    }

    /// Requests adjacent extents within one region, at least `bytes` in all
    /// ([`CHUNK_BYTES_DEFAULT`](crate::node::CHUNK_BYTES_DEFAULT) is a good length).
    ///
    /// # Errors
    /// [`SessionError::Exhausted`] if no free run is long enough.
    pub async fn allocate_chunk(&mut self, bytes: u64) -> Result<ExtentRun, SessionError> {
        let wanted = "a chunk";
        match self.call(&Request::AllocateChunk { bytes }, wanted).await? {
            Reply::Chunk(chunk) => {
                // Checks the node's answer: inside its memory, in one region, and long enough.
                let whole = |run: &ExtentRun| {
                    let long = u64::from(run.count()) * self.map().extent_bytes;
                    long >= bytes && self.map().contiguous_bytes(*run) == long
                };
                let run = chunk.run().filter(whole);
                run.ok_or(SessionError::Unexpected(wanted))
            }
            _ => Err(SessionError::Unexpected(wanted)),
        }
    }

    /// Frees a chunk. No request on it may be in flight.
    ///
    /// # Errors
    /// [`Refused::NotOwned`](crate::node::Refused::NotOwned) if the session does not own it.
    pub async fn free_chunk(&mut self, run: ExtentRun) -> Result<(), SessionError> {
        let wanted = "a freed chunk";
        let request = Request::FreeChunk(Chunk::from(run));
        match self.call(&request, wanted).await? {
            Reply::Freed => Ok(()),
            _ => Err(SessionError::Unexpected(wanted)),
        }
    }

    /// Performs a request that needs nothing of this side.
    ///
    /// # Errors
    /// [`SessionError`].
    pub async fn ask(&mut self, request: &Request) -> Result<Reply, SessionError> {
        self.call(request, "an answer").await
    }

    /// The node's figures.
    ///
    /// # Errors
    /// [`SessionError`].
    pub async fn statistics(&mut self) -> Result<NodeStatistics, SessionError> {
        let wanted = "figures";
        match self.call(&Request::Statistics, wanted).await? {
            Reply::Statistics(statistics) => Ok(statistics),
            _ => Err(SessionError::Unexpected(wanted)),
        }
    }

    /// Ends the session: the node closes its memory connections, frees its extents and answers. It
    /// answers first if that takes longer than its handshake limit, or its device fails.
    ///
    /// # Errors
    /// [`SessionError`]; the session then ends with its lease.
    pub async fn bye(mut self) -> Result<(), SessionError> {
        let wanted = "a farewell";
        match self.call(&Request::Bye, wanted).await? {
            Reply::Farewell => Ok(()),
            _ => Err(SessionError::Unexpected(wanted)),
        }
    }
}
