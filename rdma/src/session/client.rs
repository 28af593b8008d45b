//! A session at a memory node, as its client holds it.
//!
//! - I1: requests go one at a time, each with its answer; after an error of the connection none is
//!   taken until the session is resumed over a new one.
//! - I2: passes for memory connections can be made on any thread, and no two are the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::control::token::{self, Join, SessionKey, Token};
use crate::control::{Chunk, NodeStatistics, Opening, Reply, Request, Welcome};
use crate::control::{ClientHello, SessionError, granted};
use crate::pool::{ExtentRun, NodeMap, OwnerId};
use crate::tcp::{Carrier, ConnectRequest, MessageChannel, Purpose};

/// Makes connect requests for memory connections of one session. Clones share the count that keeps
/// each unique.
#[derive(Clone, Debug)]
pub struct MemoryPass {
    session: OwnerId,
    key: SessionKey,
    counter: Arc<AtomicU64>,
}

impl MemoryPass {
    /// A request with a fresh proof: good for one connection. A new connection of a slot takes the
    /// place of the old one, which the node tears down first.
    #[must_use]
    pub fn request(&self, slot: u32) -> ConnectRequest {
        let join = Join {
            session: self.session.get(),
            slot,
            // ORDERING: only the number counts.
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

/// What a session's client has to know to reach the node's memory, on any thread.
#[derive(Clone, Debug)]
pub struct SessionFacts {
    pass: MemoryPass,
    incarnation: u32,
    lease: Duration,
    map: NodeMap,
}

impl SessionFacts {
    /// What the session's claims are made in the name of.
    #[must_use]
    pub fn owner(&self) -> OwnerId {
        self.pass.session
    }

    /// The node's life.
    #[must_use]
    pub fn incarnation(&self) -> u32 {
        self.incarnation
    }

    /// How long the session lives without a request.
    #[must_use]
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// What the node lends; it has been validated.
    #[must_use]
    pub fn map(&self) -> &NodeMap {
        &self.map
    }

    /// A connect request with a fresh proof for a memory connection; good for one.
    #[must_use]
    pub fn memory_request(&self, slot: u32) -> ConnectRequest {
        self.pass.request(slot)
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
}

async fn shake(
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
    /// Opens a session; `name` is for the node's log. Both sides prove that they know the token.
    /// The caller limits for how long. Cost: two round trips.
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
        })
    }

    /// Goes on with the session over another control connection. Memory connections and passes stay
    /// good.
    ///
    /// # Errors
    /// [`SessionError::Expired`] if it is over: open a new one.
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

    /// What the session's claims are made in the name of.
    #[must_use]
    pub fn owner(&self) -> OwnerId {
        self.welcome.session
    }

    /// The node's life.
    #[must_use]
    pub fn incarnation(&self) -> u32 {
        self.welcome.incarnation
    }

    /// What the node lends; it has been validated.
    #[must_use]
    pub fn map(&self) -> &NodeMap {
        &self.welcome.map
    }

    /// How long the session lives without a request. A third of it is a good pace for heartbeats.
    #[must_use]
    pub fn lease(&self) -> Duration {
        Duration::from_millis(self.welcome.lease_ms)
    }

    /// All of this, for other threads.
    #[must_use]
    pub fn facts(&self) -> SessionFacts {
        SessionFacts {
            pass: self.pass(),
            incarnation: self.incarnation(),
            lease: self.lease(),
            map: self.map().clone(),
        }
    }

    /// Whether the connection failed: resume.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// What makes connect requests for its memory connections, on any thread.
    #[must_use]
    pub fn pass(&self) -> MemoryPass {
        self.pass.clone()
    }

    /// A connect request with a fresh proof for a memory connection; good for one.
    #[must_use]
    pub fn memory_request(&self, slot: u32) -> ConnectRequest {
        self.pass.request(slot)
    }

    async fn ask(
        &mut self,
        request: &Request,
        wanted: &'static str,
    ) -> Result<Reply, SessionError> {
        if self.broken {
            let what = "the connection failed: resume the session over a new one";
            return Err(std::io::Error::new(std::io::ErrorKind::NotConnected, what).into());
        }
        // Also where the caller gives up half-way: answers would not fit their requests any more.
        self.broken = true;
        self.channel.send(&request.encode()).await?;
        let reply = self.channel.receive().await?;
        self.broken = false;
        granted(&reply, wanted)
    }

    /// Renews the lease. Cost: a round trip, as each of the following.
    ///
    /// # Errors
    /// [`SessionError::Expired`] if the session is over; else the connection is, and the session
    /// can be resumed.
    pub async fn heartbeat(&mut self) -> Result<(), SessionError> {
        let wanted = "a renewed lease";
        match self.ask(&Request::Heartbeat, wanted).await? {
            Reply::Renewed => Ok(()),
            _ => Err(SessionError::Unexpected(wanted)),
        }
    }

    /// Asks the node for adjacent extents, at least `bytes` in all
    /// ([`CHUNK_BYTES_DEFAULT`](crate::node::CHUNK_BYTES_DEFAULT) where nothing speaks for another
    /// length). They lie in one region.
    ///
    /// # Errors
    /// [`SessionError::Exhausted`] where no run is that long.
    pub async fn allocate_chunk(&mut self, bytes: u64) -> Result<ExtentRun, SessionError> {
        let wanted = "a chunk";
        match self.ask(&Request::AllocateChunk { bytes }, wanted).await? {
            Reply::Chunk(chunk) => {
                // What the node says is checked: in its memory, in one region, and no shorter than
                // asked.
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

    /// Gives a chunk back. Nothing may be under way on it.
    ///
    /// # Errors
    /// [`Refused::NotOwned`](crate::node::Refused::NotOwned) for what is not the session's.
    pub async fn free_chunk(&mut self, run: ExtentRun) -> Result<(), SessionError> {
        let wanted = "the end of a chunk";
        let request = Request::FreeChunk(Chunk::from(run));
        match self.ask(&request, wanted).await? {
            Reply::Freed => Ok(()),
            _ => Err(SessionError::Unexpected(wanted)),
        }
    }

    /// The node's figures.
    ///
    /// # Errors
    /// [`SessionError`].
    pub async fn statistics(&mut self) -> Result<NodeStatistics, SessionError> {
        let wanted = "figures";
        match self.ask(&Request::Statistics, wanted).await? {
            Reply::Statistics(statistics) => Ok(statistics),
            _ => Err(SessionError::Unexpected(wanted)),
        }
    }

    /// Ends the session: the node tears its memory connections down and frees what it holds.
    ///
    /// # Errors
    /// [`SessionError`]; the session then ends with its lease.
    pub async fn bye(mut self) -> Result<(), SessionError> {
        let wanted = "a farewell";
        match self.ask(&Request::Bye, wanted).await? {
            Reply::Farewell => Ok(()),
            _ => Err(SessionError::Unexpected(wanted)),
        }
    }
}
