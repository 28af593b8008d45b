//! What a server is: the source of its data, or a replica, and how its link is.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farcore_tuning::mutated;

use super::history::{History, Position, StreamId};
use super::imports::Imports;
use super::replicas::port::{Changes, ReplicasPort};
use super::settings::Settings;
use super::stop::Stop;
use crate::durability::Refusals;
use crate::options::{ReplicaOptions, SourceAddress};

/// How far a link is; the words of `ROLE`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// It is down, and begins soon.
    Down,
    Connecting,
    Handshake,
    /// The source sends all of its data.
    Sync,
    Connected,
}

impl Phase {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Down => "connect",
            Self::Connecting => "connecting",
            Self::Handshake => "handshake",
            Self::Sync => "sync",
            Self::Connected => "connected",
        }
    }
}

/// The link to a source.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) address: SourceAddress,
    pub(crate) phase: Phase,
    /// Since when it is down.
    pub(crate) down_since: Instant,
    /// Why it was down last.
    pub(crate) error: Option<String>,
    pub(crate) stop: Arc<Stop>,
    pub(crate) thread: Option<JoinHandle<()>>,
}

/// What a server is.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) settings: Settings,
    pub(crate) history: History,
    /// `None`: it follows none.
    pub(crate) link: Option<Link>,
    /// The data of a source are incomplete.
    pub(crate) is_partial: bool,
}

impl State {
    /// Notes that all data are to be those of a source, which come from now on.
    pub(super) fn begin_load(&mut self) {
        self.is_partial = true;
        // What was here goes: no other server's data are a state of what comes next here.
        self.history = History {
            position: self.history.position,
            ..History::own()
        };
    }

    /// Notes that they are here: the state of a stream at a position.
    pub(super) fn end_load(&mut self, id: StreamId, position: Position) {
        self.is_partial = false;
        self.history = History {
            id,
            position,
            before: None,
            is_resumable: true,
        };
    }
}

/// Figures of links; the thread of the link alone changes them.
#[derive(Debug, Default)]
pub(crate) struct LinkFigures {
    /// Bytes of the stream that were read, and that were applied.
    pub(crate) read: AtomicU64,
    pub(crate) applied: AtomicU64,
    /// When the source was heard last, in milliseconds since 1970.
    pub(crate) heard_ms: AtomicU64,
    /// Bytes of the source's data that were read; and all of them, if that is known, else 0.
    pub(crate) loaded_bytes: AtomicU64,
    pub(crate) total_bytes: AtomicU64,
    /// How often all data were loaded, and a stream went on.
    pub(crate) full_syncs: AtomicU64,
    pub(crate) partial_syncs: AtomicU64,
    /// Commands that failed, and that were passed over.
    pub(crate) failed: AtomicU64,
    pub(crate) passed_over: AtomicU64,
}

/// What a server is, and how its link is.
#[derive(Debug)]
pub(crate) struct Replication {
    state: Mutex<State>,
    pub(crate) figures: LinkFigures,
    /// Those that follow this server.
    pub(crate) replicas: ReplicasPort,
    /// The slots that are brought here.
    pub(crate) imports: Imports,
}

impl Replication {
    pub(crate) fn new(options: &ReplicaOptions, feed: Box<dyn Changes>) -> Self {
        let settings = Settings {
            user: options.user.clone(),
            password: options.password.clone(),
            ..Settings::default()
        };
        Self {
            state: Mutex::new(State {
                settings,
                history: History::own(),
                link: None,
                is_partial: false,
            }),
            figures: LinkFigures::default(),
            replicas: ReplicasPort::new(feed, options.backlog_bytes),
            imports: Imports::default(),
        }
    }

    /// What it is now. Held for a moment only.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what it is, and what is refused because of that.
    pub(crate) fn change<T>(&self, refusals: &Refusals, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state();
        let changed = change(&mut state);
        let link = state.link.as_ref();
        let settings = &state.settings;
        let is_down = link.is_some_and(|link| link.phase != Phase::Connected);
        refusals.set_read_only(link.is_some() && settings.is_read_only);
        refusals.set_stale(is_down && !settings.serves_stale);
        refusals.set_syncing(state.is_partial);
        changed
    }

    /// Has the session of the link end, and another one begin.
    pub(crate) fn interrupt(&self) {
        if let Some(link) = &self.state().link {
            link.stop.cut();
        }
    }

    /// Has the link end, if there is one; returns it.
    pub(crate) fn cut(&self) -> Option<Link> {
        let link = self.state().link.take()?;
        link.stop.set();
        Some(link)
    }

    /// Notes, once its link has ended, that the server follows no source any more: its data go on
    /// under a new identity.
    pub(crate) fn promote(&self, refusals: &Refusals) {
        self.change(refusals, |state| {
            if state.link.is_none() {
                state.history.is_resumable = false;
                state.is_partial = false;
            }
        });
    }

    /// Gives the stream a new identity, once its link has ended: replicas that had the one before
    /// go on.
    pub(crate) fn rename(&self) {
        let mut state = self.state();
        if state.link.is_none() && !mutated!("promoted-without-identity") {
            state.history.rename(StreamId::random());
        }
    }

    /// The offset that is shown: of the stream that replicas get, or of what was applied.
    pub(crate) fn offset(&self) -> u64 {
        // ORDERING: relaxed; it is a figure.
        let applied = self.figures.applied.load(Ordering::Relaxed);
        applied.max(self.replicas.backlog().end())
    }

    /// Has writes be refused if fewer replicas than wanted were heard lately.
    pub(crate) fn look_at_replicas(&self, refusals: &Refusals) {
        let lag = self.replicas.settings.lag_s.load(Ordering::Relaxed);
        let good = self.replicas.good(Duration::from_secs(lag.into()));
        let least = self.replicas.settings.least.load(Ordering::Relaxed);
        let is_lacking = usize::try_from(least).is_ok_and(|least| good < least);
        refusals.set_unfollowed(is_lacking && self.state().link.is_none());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_loads_leaves_the_stream_that_its_data_were_of() {
        let mut history = History::own();
        let (before, position) = (history.id, history.position);
        history.rename(StreamId::random());
        history.is_resumable = true;
        let known = [before, history.id];
        let mut state = State {
            settings: Settings::default(),
            history,
            link: None,
            is_partial: false,
        };
        state.begin_load();
        assert!(state.is_partial && state.history.wish().is_none());
        assert!(!known.contains(&state.history.id) && state.history.before.is_none());
        let loaded = StreamId::random();
        state.end_load(loaded, position);
        assert_eq!(state.history.wish(), Some((loaded, 1)));
        assert!(!state.is_partial);
    }
}
