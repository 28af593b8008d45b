//! What is known of the slots that are brought here from another server of the cluster.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::stop::Stop;
use crate::cluster::SlotSet;

/// How far slots are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ImportPhase {
    /// Keys of these slots are removed that are here from before.
    Clearing,
    Connecting,
    /// The keys are loaded.
    Loading,
    /// Their changes are followed.
    Following,
    /// The other server was asked to give them away; clients wait.
    Taking,
    /// It was asked, and what it has done is not known.
    Unsure,
    /// They are this server's.
    Done,
    /// They are not, and what has come was removed, unless the text says otherwise.
    Failed(String),
}

impl ImportPhase {
    /// The word for it.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Clearing => "clearing",
            Self::Connecting => "connecting",
            Self::Loading => "loading",
            Self::Following => "following",
            Self::Taking => "taking",
            Self::Unsure => "unsure",
            Self::Done => "done",
            Self::Failed(_) => "failed",
        }
    }

    /// True if nothing more is done.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self, Self::Done | Self::Failed(_))
    }
}

/// Slots that are brought here.
#[derive(Debug)]
pub(crate) struct ImportState {
    pub(crate) slots: Arc<SlotSet>,
    /// The ID of the server that has them.
    pub(crate) from: String,
    pub(crate) phase: ImportPhase,
    /// Bytes of the data that were loaded, and of the stream that were read.
    pub(crate) loaded_bytes: u64,
    pub(crate) followed_bytes: u64,
    /// What keeps the other server from being asked, as far as that is so.
    pub(crate) hindrance: Option<String>,
    pub(crate) stop: Arc<Stop>,
    pub(crate) thread: Option<JoinHandle<()>>,
}

/// The slots that are, or were last, brought here.
#[derive(Debug, Default)]
pub(crate) struct Imports {
    state: Mutex<Option<ImportState>>,
    /// Held while keys of slots are removed.
    removing: Mutex<()>,
}

impl Imports {
    /// What is known of them. Held for a moment only.
    pub(crate) fn state(&self) -> MutexGuard<'_, Option<ImportState>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no thread removes keys of slots, and lets none while it is held.
    pub(super) fn removing(&self) -> MutexGuard<'_, ()> {
        self.removing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if slots are brought here.
    pub(crate) fn is_open(&self) -> bool {
        let state = self.state();
        state.as_ref().is_some_and(|state| !state.phase.is_over())
    }

    /// Has them not be brought. False if they are, or if their owner changes right now.
    pub(crate) fn cancel(&self) -> bool {
        let state = self.state();
        let is_open =
            |state: &&ImportState| !state.phase.is_over() && state.phase != ImportPhase::Taking;
        let open = state.as_ref().filter(is_open);
        open.map(|state| state.stop.set()).is_some()
    }

    /// Ends the thread, as the server stops.
    pub(crate) fn stop(&self) {
        let thread = self.state().as_mut().and_then(|state| {
            state.stop.set();
            state.thread.take()
        });
        let _ = thread.map(JoinHandle::join);
    }
}
