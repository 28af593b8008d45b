//! The task of one session: opens it, renews its lease, resumes or reopens it, runs commands.
//!
//! Owns the control connection. Publishes the session's status for its [`KeptSession`].
//!
//! ```text
//! open --> heartbeat every quarter of a lease --fails--> resume --lease over--> open anew
//!  ^------ retry with growing pauses <---------- fails ----'
//! ```
//!
//! - I1: a command that is cancelled half-way leaves the session marked as broken.
//! - I2: a session that [`Siblings`] refuses is ended and never published.
//!
//! [`KeptSession`]: super::KeptSession

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_channel::{Receiver, Sender};
use farcore_tuning::Clock;
use futures_lite::future::or;

use super::kept::{Command, SessionStatus};
use super::{Siblings, locked};
use crate::address::FabricAddress;
use crate::control::SessionError;
use crate::executor::{Timer, spawn_detached};
use crate::session::NodeSession;
use crate::session::{ConnectOptions, ManagerError, nanoseconds, socket_address, within};
use crate::tcp::connect_control;

/// How long the executor runs on after its last task, so that the kernel processes closed sockets.
const LAST_TURN: Duration = Duration::from_millis(1);

/// A session to be opened and kept.
#[derive(Debug)]
pub(super) struct NewSession {
    pub(super) address: FabricAddress,
    pub(super) options: ConnectOptions,
    pub(super) siblings: Siblings,
    pub(super) status: Arc<Mutex<SessionStatus>>,
    pub(super) commands: Receiver<Command>,
    pub(super) ends: Receiver<Sender<Infallible>>,
}

/// How a lease was renewed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Renewed {
    /// For this time.
    ByHeartbeat(Duration),
    /// The session was resumed, or is a new one.
    Anew,
}

/// One session and its task's state.
#[derive(Debug)]
struct SessionTask {
    address: FabricAddress,
    options: ConnectOptions,
    siblings: Siblings,
    status: Arc<Mutex<SessionStatus>>,
    commands: Receiver<Command>,
    ends: Receiver<Sender<Infallible>>,
    session: Option<NodeSession>,
    /// Whether the control connection works.
    answers: bool,
    clock: Clock,
    /// When the next heartbeat or retry is due.
    due_ns: u64,
    pause: Duration,
    /// Whether the last attempt found another address's node, which was logged.
    is_twin: bool,
}

/// Runs a task for each new session until stopped, then waits until all tasks have ended.
pub(super) async fn run_all(new_sessions: Receiver<NewSession>, stopped: Receiver<Infallible>) {
    let (alive, gone) = async_channel::bounded::<Infallible>(1);
    while let Ok(new_session) = new_sessions.recv().await {
        let (stopped, alive) = (stopped.clone(), alive.clone());
        spawn_detached(async move {
            SessionTask::new(new_session).run(stopped).await;
            drop(alive);
        });
    }
    drop(alive);
    let _ = gone.recv().await;
    Timer::new(LAST_TURN).await;
}

impl SessionTask {
    fn new(new_session: NewSession) -> Self {
        let NewSession {
            address,
            options,
            siblings,
            status,
            commands,
            ends,
        } = new_session;
        Self {
            pause: options.pause_min,
            address,
            options,
            siblings,
            status,
            commands,
            ends,
            session: None,
            answers: false,
            clock: Clock::new(),
            due_ns: 0,
            is_twin: false,
        }
    }

    async fn run(mut self, stopped: Receiver<Infallible>) {
        let ends = self.ends.clone();
        let ended = async { ends.recv().await.ok() };
        let stop = async {
            let _ = stopped.recv().await;
            None
        };
        let acknowledge = or(or(ended, stop), self.keep()).await;
        self.end().await;
        drop(acknowledge);
    }

    /// Never returns. If it is dropped while a request is in flight, the session is marked as
    /// broken.
    async fn keep<T>(&mut self) -> T {
        loop {
            let now_ns = self.clock.now_ns();
            if now_ns >= self.due_ns {
                self.tend().await;
                continue;
            }
            let left = Duration::from_nanos(self.due_ns - now_ns);
            let command = async {
                match self.commands.recv().await {
                    Ok(command) => Some(command),
                    // The handle is dropped: `run` receives that through `ends`.
                    Err(_) => pending().await,
                }
            };
            let due = async {
                Timer::new(left).await;
                None
            };
            if let Some(command) = or(command, due).await {
                self.perform(command).await;
            }
        }
    }

    /// Sends a heartbeat, or retries to resume or open the session.
    async fn tend(&mut self) {
        let now_ns = self.clock.now_ns();
        match self.renew().await {
            Ok(renewed) => {
                self.due_ns = now_ns + nanoseconds(self.until_next(renewed));
                let is_leaving = self.session.as_ref().is_some_and(NodeSession::is_leaving);
                let mut status = locked(&self.status);
                (status.answers, status.is_leaving) = (true, is_leaving);
            }
            Err(error) => {
                // Spreads the retries of sessions that lost the same node.
                let spread = now_ns % (nanoseconds(self.pause) / 4 + 1);
                self.due_ns = self.clock.now_ns() + nanoseconds(self.pause) + spread;
                self.pause = (self.pause * 2).min(self.options.pause_max);
                let is_twin = matches!(error, ManagerError::Twin { .. });
                if is_twin && !self.is_twin {
                    tracing::error!(%error, "cannot use a memory node");
                }
                self.is_twin = is_twin;
                let mut status = locked(&self.status);
                status.answers = false;
                status.error = Some(error);
            }
        }
    }

    /// The time from a renewal to the next heartbeat. Only the answer to a heartbeat says whether
    /// the node leaves, so one follows soon after the others; less soon each time that none
    /// succeeds.
    fn until_next(&mut self, renewed: Renewed) -> Duration {
        match renewed {
            Renewed::ByHeartbeat(lease) => {
                self.pause = self.options.pause_min;
                lease / 4
            }
            Renewed::Anew => {
                let pause = self.pause.min(self.options.pause_max);
                self.pause = (pause * 2).min(self.options.pause_max);
                pause
            }
        }
    }

    /// Renews the lease: by a heartbeat, else by resuming, else by opening a new session.
    async fn renew(&mut self) -> Result<Renewed, ManagerError> {
        if self.answers
            && let Some(session) = &mut self.session
        {
            match within(&self.address, self.options.limit, session.heartbeat()).await {
                Ok(()) => return Ok(Renewed::ByHeartbeat(session.lease())),
                Err(error) => tracing::debug!(node = %self.address, %error, "a heartbeat failed"),
            }
            self.answers = false;
        }
        if let Some(session) = &mut self.session {
            match resume(&self.address, &self.options, session).await {
                Ok(()) => {
                    self.answers = true;
                    return Ok(Renewed::Anew);
                }
                Err(ManagerError::Session {
                    source: SessionError::Expired,
                    ..
                }) => {}
                Err(error) => return Err(error),
            }
        }
        let session = self.open().await?;
        if self.session.is_some() {
            tracing::warn!(node = %self.address, "the node has ended the session, because it was restarted or did not hear from this engine for longer than its lease: all data in the session's extents is lost");
        }
        self.options.keep_within(session.lease());
        {
            let mut status = locked(&self.status);
            (status.session, status.is_leaving) = (Some(session.facts()), false);
        }
        self.session = Some(session);
        self.answers = true;
        Ok(Renewed::Anew)
    }

    async fn open(&self) -> Result<NodeSession, ManagerError> {
        let limit = self.options.limit;
        let place = socket_address(&self.address).await?;
        let channel = connect_control(place, limit).await?;
        let token = self.options.token.as_ref();
        let opening = NodeSession::open(channel, &self.options.client, token);
        let session = within(&self.address, limit, opening).await?;
        if let Err(other) = self.siblings.admit(&self.address, session.incarnation()) {
            let _ = within(&self.address, limit, session.bye()).await;
            return Err(ManagerError::Twin {
                address: self.address.clone(),
                other,
            });
        }
        Ok(session)
    }

    async fn perform(&mut self, command: Command) {
        let Some(session) = &mut self.session else {
            return;
        };
        let limit = self.options.limit;
        // The caller may have dropped its end of the channel.
        match command {
            Command::Allocate(bytes, answer) => {
                let done = in_time(limit, session.allocate_chunk(bytes)).await;
                let _ = answer.try_send(done);
            }
            Command::Free(run, answer) => {
                let done = in_time(limit, session.free_chunk(run)).await;
                let _ = answer.try_send(done);
            }
            Command::Ask(request, answer) => {
                let done = in_time(limit, session.ask(&request)).await;
                let _ = answer.try_send(done);
            }
            Command::Check(owner) => {
                if owner == session.owner() {
                    self.answers = false;
                    self.due_ns = 0;
                }
            }
        }
        if session.is_broken() && self.answers {
            self.answers = false;
            self.due_ns = 0;
        }
    }

    /// Ends the session: the node frees its extents at once.
    async fn end(mut self) {
        let Some(mut session) = self.session.take().filter(|_| self.answers) else {
            // Without a working connection the lease ends the session.
            return;
        };
        // A request may have been cancelled half-way: its answer would be taken for the farewell.
        if session.is_broken()
            && resume(&self.address, &self.options, &mut session)
                .await
                .is_err()
        {
            return;
        }
        let _ = within(&self.address, self.options.limit, session.bye()).await;
    }
}

async fn in_time<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, SessionError>>,
) -> Result<T, SessionError> {
    or(work, async {
        Timer::new(limit).await;
        Err(io::Error::from(io::ErrorKind::TimedOut).into())
    })
    .await
}

/// Resumes a session over a new control connection.
async fn resume(
    address: &FabricAddress,
    options: &ConnectOptions,
    session: &mut NodeSession,
) -> Result<(), ManagerError> {
    let place = socket_address(address).await?;
    let channel = connect_control(place, options.limit).await?;
    within(address, options.limit, session.resume(channel)).await
}
