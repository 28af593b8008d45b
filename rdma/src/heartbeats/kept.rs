//! A core's handle to a session that the thread keeps.
//!
//! Owns the channels to the session's task and shares the session's status with it. Commands do not
//! block the core; their outcomes arrive through channels.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::{fmt, io};

use async_channel::Sender;

use super::locked;
use crate::control::{Reply, Request, SessionError};
use crate::pool::{ExtentRun, OwnerId};
use crate::session::{ManagerError, SessionFacts};

/// A session's status, published by its task.
#[derive(Debug, Default)]
pub(super) struct SessionStatus {
    /// The newest session; none before the first was opened.
    pub(super) session: Option<SessionFacts>,
    /// Whether the node answered the last attempt.
    pub(super) answers: bool,
    /// Whether the node of the newest session has said that it leaves.
    pub(super) is_leaving: bool,
    /// Why the last failed attempt failed, until it is taken.
    pub(super) error: Option<ManagerError>,
}

/// A session's status, as a core reads it.
#[derive(Debug)]
pub(crate) struct SessionUpdate {
    /// The newest session, if the core does not know it yet.
    pub(crate) session: Option<SessionFacts>,
    /// Whether the node answers.
    pub(crate) answers: bool,
}

/// A core's command to the session's task. The outcome goes through a channel, which is closed if
/// the command is dropped.
pub(super) enum Command {
    Allocate(u64, Sender<Result<ExtentRun, SessionError>>),
    Free(ExtentRun, Sender<Result<(), SessionError>>),
    /// Any other request.
    Ask(Request, Sender<Result<Reply, SessionError>>),
    /// A memory connection of this session was refused: check whether the session still exists.
    Check(OwnerId),
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allocate(..) => "Allocate",
            Self::Free(..) => "Free",
            Self::Ask(..) => "Ask",
            Self::Check(_) => "Check",
        })
    }
}

/// A core's handle to a session that the thread keeps. Dropping it ends the session.
#[derive(Debug)]
pub(crate) struct KeptSession {
    status: Arc<Mutex<SessionStatus>>,
    commands: Sender<Command>,
    end: Sender<Sender<Infallible>>,
}

impl KeptSession {
    pub(super) fn new(
        status: Arc<Mutex<SessionStatus>>,
        commands: Sender<Command>,
        end: Sender<Sender<Infallible>>,
    ) -> Self {
        Self {
            status,
            commands,
            end,
        }
    }

    /// The session's status, for a core that knows the session `known`.
    pub(crate) fn update(&self, known: Option<OwnerId>) -> SessionUpdate {
        let status = locked(&self.status);
        let unknown = |session: &&SessionFacts| Some(session.owner()) != known;
        SessionUpdate {
            session: status.session.as_ref().filter(unknown).cloned(),
            answers: status.answers && !self.commands.is_closed(),
        }
    }

    /// Whether the node has said that it leaves.
    pub(crate) fn is_leaving(&self) -> bool {
        locked(&self.status).is_leaving
    }

    /// Takes the reason of the last failure.
    pub(crate) fn take_error(&self) -> Option<ManagerError> {
        locked(&self.status).error.take()
    }

    /// True once the session's task has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.commands.is_closed()
    }

    /// Requests an immediate check of a session whose memory connection was refused.
    pub(crate) fn check(&self, owner: OwnerId) {
        let _ = self.commands.try_send(Command::Check(owner));
    }

    /// As [`KeptSession::ask`], as a future that another task may run.
    pub(crate) fn asking(
        &self,
        request: Request,
    ) -> impl Future<Output = Result<Reply, SessionError>> + use<> {
        let commands = self.commands.clone();
        async move {
            let gone = || {
                io::Error::new(
                    io::ErrorKind::NotConnected,
                    "the control connection is down",
                )
            };
            let (answer, answered) = async_channel::bounded(1);
            commands
                .try_send(Command::Ask(request, answer))
                .map_err(|_| gone())?;
            answered.recv().await.map_err(|_| gone())?
        }
    }

    async fn call<T>(
        &self,
        command: impl FnOnce(Sender<Result<T, SessionError>>) -> Command,
    ) -> Result<T, SessionError> {
        let gone = || {
            let what = "the control connection is down";
            io::Error::new(io::ErrorKind::NotConnected, what)
        };
        let (answer, answered) = async_channel::bounded(1);
        self.commands
            .try_send(command(answer))
            .map_err(|_| gone())?;
        answered.recv().await.map_err(|_| gone())?
    }

    pub(crate) async fn allocate_chunk(&self, bytes: u64) -> Result<ExtentRun, SessionError> {
        self.call(|answer| Command::Allocate(bytes, answer)).await
    }

    pub(crate) async fn free_chunk(&self, run: ExtentRun) -> Result<(), SessionError> {
        self.call(|answer| Command::Free(run, answer)).await
    }

    /// Performs a request that needs nothing of this side.
    pub(crate) async fn ask(&self, request: Request) -> Result<Reply, SessionError> {
        self.call(|answer| Command::Ask(request, answer)).await
    }

    /// Ends the session and waits until it has ended: the node frees its extents at once.
    pub(crate) async fn close(self) {
        let (ended, is_ended) = async_channel::bounded(1);
        if self.end.try_send(ended).is_ok() {
            // Carries nothing: the other end is dropped when the task has ended.
            let _ = is_ended.recv().await;
        }
    }
}
