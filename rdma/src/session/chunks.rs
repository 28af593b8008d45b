//! Chunks allocated over a session's control connection, for the [`Chunks`](crate::Chunks) that
//! divide them.
//!
//! Owns the session. All calls of one thread share it: requests run one after the other, each in
//! its own task, so that dropping a call neither cuts the connection in the middle of an answer nor
//! loses a granted chunk.
//!
//! ```text
//! allocate -> spare? -> else a task: retry failed frees, then the request -> spare -> next call
//! ```
//!
//! - I1: a granted chunk is spare until a call takes it.
//! - I2: a failed free is retried before anything is allocated: later it could hit a chunk that the
//!   node has granted again.
//!
//! Limit: a chunk granted over a connection that broke before the answer stays claimed until the
//! session ends.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use crate::executor::{Semaphore, spawn};

use crate::control::Refused;
use crate::control::SessionError;
use crate::pool::{Chunk, ChunkSource, ExtentRun, NodeMap, OwnerId};
use crate::session::NodeSession;
use crate::tcp::MessageChannel;

/// A session as a source of chunks. Clones share it. Use it inside an executor.
#[derive(Clone, Debug)]
pub struct SessionChunks(Rc<Inner>);

#[derive(Debug)]
struct Inner {
    queue: usize,
    owner: OwnerId,
    map: NodeMap,
    /// Lets one request run at a time.
    turn: Semaphore,
    /// `None` while a request runs.
    session: RefCell<Option<NodeSession>>,
    spare: RefCell<Vec<Chunk>>,
    leaving: RefCell<Vec<ExtentRun>>,
}

/// A request to the node.
enum Request {
    Allocate(u64),
    Free,
    Heartbeat,
    Resume(MessageChannel),
    Bye,
}

fn gone() -> SessionError {
    io::Error::new(io::ErrorKind::NotConnected, "the session was closed").into()
}

impl Inner {
    async fn perform(&self, request: Request) -> Result<(), SessionError> {
        let turn = self.turn.acquire_permit(1).await;
        // The semaphore is never closed.
        let _turn = turn.map_err(|_| gone())?;
        let mut session = self.session.borrow_mut().take().ok_or_else(gone)?;
        let done = match request {
            Request::Bye => return session.bye().await,
            Request::Heartbeat => session.heartbeat().await,
            Request::Resume(channel) => session.resume(channel).await,
            Request::Free => self.settle(&mut session).await,
            Request::Allocate(bytes) => self.allocate(&mut session, bytes).await,
        };
        *self.session.borrow_mut() = Some(session);
        done
    }

    async fn settle(&self, session: &mut NodeSession) -> Result<(), SessionError> {
        loop {
            let Some(run) = self.leaving.borrow().last().copied() else {
                return Ok(());
            };
            match session.free_chunk(run).await {
                // `NotOwned`: an earlier attempt succeeded and its answer was lost.
                Ok(()) | Err(SessionError::Refused(Refused::NotOwned { .. })) => {}
                Err(error) => return Err(error),
            }
            self.leaving.borrow_mut().retain(|other| *other != run);
        }
    }

    async fn allocate(&self, session: &mut NodeSession, bytes: u64) -> Result<(), SessionError> {
        self.settle(session).await?;
        let run = session.allocate_chunk(bytes).await?;
        let wanted = "a chunk within its memory";
        let slice = self.map.slice(run.first(), 0);
        let chunk = Chunk {
            queue: self.queue,
            slice: slice.ok_or(SessionError::Unexpected(wanted))?,
            bytes: self.map.contiguous_bytes(run),
            mark: u64::from(run.first()) << 32 | u64::from(run.count()),
        };
        self.spare.borrow_mut().push(chunk);
        Ok(())
    }

    fn take_spare(&self, bytes: u64) -> Option<Chunk> {
        let mut spare = self.spare.borrow_mut();
        let place = spare.iter().position(|chunk| chunk.bytes >= bytes)?;
        Some(spare.swap_remove(place))
    }
}

impl SessionChunks {
    /// Chunks of a session whose memory is reached through `queue` of the initiator.
    #[must_use]
    pub fn new(session: NodeSession, queue: usize) -> Self {
        Self(Rc::new(Inner {
            queue,
            owner: session.owner(),
            map: session.map().clone(),
            turn: Semaphore::new(1),
            session: RefCell::new(Some(session)),
            spare: RefCell::default(),
            leaving: RefCell::default(),
        }))
    }

    /// The owner of the session's chunks.
    #[must_use]
    pub fn owner(&self) -> OwnerId {
        self.0.owner
    }

    /// Chunks granted to calls that were dropped; the next calls take them.
    #[must_use]
    pub fn spare_count(&self) -> usize {
        self.0.spare.borrow().len()
    }

    /// Renews the lease; call it at a third of the lease. Cost: a round trip.
    ///
    /// # Errors
    /// As [`NodeSession::heartbeat`].
    pub async fn heartbeat(&self) -> Result<(), SessionError> {
        self.request(Request::Heartbeat).await
    }

    /// Resumes over another control connection, after an error of the old one.
    ///
    /// # Errors
    /// As [`NodeSession::resume`].
    pub async fn resume(&self, channel: MessageChannel) -> Result<(), SessionError> {
        self.request(Request::Resume(channel)).await
    }

    /// Ends the session; the node frees all its chunks.
    ///
    /// # Errors
    /// As [`NodeSession::bye`].
    pub async fn close(self) -> Result<(), SessionError> {
        self.request(Request::Bye).await
    }

    fn request(&self, request: Request) -> impl Future<Output = Result<(), SessionError>> + use<> {
        let inner = Rc::clone(&self.0);
        let task = spawn(async move { inner.perform(request).await }).detach();
        async move { task.await.unwrap_or_else(|| Err(gone())) }
    }
}

impl ChunkSource for SessionChunks {
    type Error = SessionError;

    /// A chunk of at least `bytes` within one region. It is aligned to its length as far as the
    /// region begins at a multiple of it in extents.
    async fn allocate(&self, bytes: u64) -> Result<Option<Chunk>, SessionError> {
        loop {
            if let Some(chunk) = self.0.take_spare(bytes) {
                return Ok(Some(chunk));
            }
            match self.request(Request::Allocate(bytes)).await {
                // Taken by the next iteration, unless another call was faster.
                Ok(()) => {}
                Err(SessionError::Exhausted { .. }) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    fn free(&self, chunk: Chunk) -> impl Future<Output = Result<(), SessionError>> {
        // `allocate` packed two halves of 32 bits into the mark.
        let half = |value: u64| u32::try_from(value & u64::from(u32::MAX)).unwrap_or(u32::MAX);
        let run = ExtentRun::new(half(chunk.mark >> 32), half(chunk.mark));
        self.0.leaving.borrow_mut().extend(run);
        // Started at once: a call that is never polled frees the chunk too.
        self.request(Request::Free)
    }
}
