//! The thread that has the link to a source: connects, loads, applies, and begins anew.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::error::LinkError;
use super::handshake::{Begin, greet};
use super::history::{History, Position, StreamId};
use super::inlet::Inlet;
use super::load::Load;
use super::replicas::publisher;
use super::session::{ACKNOWLEDGE, Session};
use super::settings::Settings;
use super::source::Source;
use super::state::{Link, Phase, State};
use super::stop::Stop;
use super::stream::Stream;
use crate::cores::answers::CoreAnswers;
use crate::cores::message::Message;
use crate::cores::shared::Shared;
use crate::options::SourceAddress;
use crate::random::Numbers;

/// Pauses after a link has ended: the first one, and the longest, each more or less by a half.
const PAUSE_FIRST: Duration = Duration::from_millis(20);
const PAUSE_MOST: Duration = Duration::from_secs(20);
/// A link that has lasted so long works.
const WORKS_AFTER: Duration = Duration::from_secs(1);
/// How often a link that applies nothing looks whether it goes on.
const PAUSE_LOOK: Duration = Duration::from_millis(10);

/// Has the server follow a source. False if it does already. Clients that wait for keys wait no
/// more: what comes is not theirs to take.
///
/// # Errors
/// No thread can be started.
pub(crate) fn follow(shared: &Arc<Shared>, address: SourceAddress) -> io::Result<bool> {
    let replication = &shared.replication;
    let stop = Arc::new(Stop::new()?);
    let follows = replication.change(&shared.saving.refusals, |state| {
        let link = state.link.as_ref();
        if link.is_some_and(|link| link.address == address) {
            return Ok(false);
        }
        let before = state.link.take().and_then(|link| {
            link.stop.set();
            link.thread
        });
        let thread = start(
            (Arc::clone(shared), address.clone()),
            Arc::clone(&stop),
            before,
        );
        let (thread, failed) = match thread {
            Ok(thread) => (Some(thread), None),
            Err(error) => (None, Some(error)),
        };
        state.link = Some(Link {
            address,
            phase: Phase::Down,
            down_since: Instant::now(),
            error: failed.as_ref().map(ToString::to_string),
            stop: Arc::clone(&stop),
            thread,
        });
        failed.map_or(Ok(true), Err)
    });
    if matches!(follows, Ok(true)) {
        publisher::relay(shared);
        for core in &shared.cores {
            core.send(Message::EndWaits { start: 0 });
        }
    }
    follows
}

/// Has the server follow none, and returns when nothing more of its source is applied. Not to be
/// called by a core, which has to apply it.
pub(crate) fn unfollow(shared: &Arc<Shared>) {
    let Some(link) = shared.replication.cut() else {
        return;
    };
    let _ = link.thread.map(JoinHandle::join);
    // The stream has another name from here on, and has changes before clients make some.
    shared.replication.rename();
    let mut leads = CoreAnswers::new();
    if let Err(error) = publisher::lead(shared, leads.expect()) {
        tracing::warn!(%error, "no replica can go on here");
    }
    while leads.take_one().is_none() {
        thread::sleep(PAUSE_LOOK);
    }
    shared.replication.promote(&shared.saving.refusals);
    tracing::info!(source = %link.address, "the server follows its source no more");
}

fn start(
    (shared, address): (Arc<Shared>, SourceAddress),
    stop: Arc<Stop>,
    before: Option<JoinHandle<()>>,
) -> io::Result<JoinHandle<()>> {
    let work = move || {
        // The one before says where the stream was left.
        let _ = before.map(JoinHandle::join);
        let mut follower = Follower {
            session: Session { shared, stop },
            address,
            pause: PAUSE_FIRST,
            numbers: Numbers::new(),
        };
        follower.run();
    };
    thread::Builder::new()
        .name("farcore-replica".to_owned())
        .spawn(work)
}

/// Follows a source.
struct Follower {
    session: Session,
    address: SourceAddress,
    /// How long it waits before it connects again, about.
    pause: Duration,
    numbers: Numbers,
}

fn set(figure: &AtomicU64, to: u64) {
    // ORDERING: relaxed, as all of them; they are figures.
    figure.store(to, Ordering::Relaxed);
}

fn add(figure: &AtomicU64, more: u64) {
    figure.fetch_add(more, Ordering::Relaxed);
}

impl Follower {
    fn run(&mut self) {
        while !self.session.stop.is_set() {
            let Err(error) = self.follow_once();
            if self.session.stop.is_set() {
                return;
            }
            let text = error.to_string();
            tracing::warn!(source = %self.address, error = text, "the link to the source has ended");
            self.change(|link| {
                link.error = Some(text);
            });
            // Many replicas of a source do not come at once.
            let most = usize::try_from(self.pause.as_millis()).unwrap_or(usize::MAX);
            let jitter = self.numbers.below(most.max(1));
            let pause = self.pause / 2 + Duration::from_millis(jitter as u64);
            self.pause = (self.pause * 2).min(PAUSE_MOST);
            let until = Instant::now() + pause;
            while !self.session.stop.is_set() && Instant::now() < until {
                self.session.stop.wait(&[], until - Instant::now());
            }
        }
    }

    /// Changes what is known of the link, unless it is another's by now.
    fn change(&self, change: impl FnOnce(&mut Link)) {
        self.change_state(|state| {
            let link = state.link.as_mut();
            let link = link.filter(|link| Arc::ptr_eq(&link.stop, &self.session.stop));
            if let Some(link) = link {
                change(link);
            }
        });
    }

    fn change_state(&self, change: impl FnOnce(&mut State)) {
        let refusals = &self.session.shared.saving.refusals;
        self.session.shared.replication.change(refusals, change);
    }

    fn note_phase(&self, phase: Phase) {
        self.change(|link| {
            if link.phase == Phase::Connected {
                link.down_since = Instant::now();
            }
            if phase == Phase::Connected {
                link.error = None;
            }
            link.phase = phase;
        });
    }

    fn history(&self) -> History {
        self.session.shared.replication.state().history
    }

    fn settings(&self) -> Settings {
        self.session.shared.replication.state().settings.clone()
    }

    /// Follows the source until the link ends.
    fn follow_once(&mut self) -> Result<std::convert::Infallible, LinkError> {
        let ended = self.connected_session();
        self.note_phase(Phase::Down);
        ended
    }

    fn connected_session(&mut self) -> Result<std::convert::Infallible, LinkError> {
        let settings = self.settings();
        self.note_phase(Phase::Connecting);
        let host = (&self.address.host[..], self.address.port);
        let mut source = self.session.connect(host, settings.timeout())?;
        self.note_phase(Phase::Handshake);
        let port = self.session.own_port();
        match greet(&mut source, (&settings, port), &self.history(), &[])? {
            Begin::Full { id, offset } => {
                self.note_phase(Phase::Sync);
                tracing::info!(source = %self.address, "the source sends all of its data");
                let mut inlet = Inlet::open(&self.session.shared, source.address()?)?;
                let position = self.load(&mut source, &mut inlet, (id, offset))?;
                self.apply(&mut source, inlet, position)
            }
            Begin::Partial { id } => {
                add(&self.session.shared.replication.figures.partial_syncs, 1);
                tracing::info!(source = %self.address, "the source goes on where the link was cut");
                if let Some(id) = id.filter(|id| *id != self.history().id) {
                    self.change_state(|state| state.history.rename(id));
                    publisher::renamed(&self.session.shared);
                }
                let position = self.history().position;
                let inlet = Inlet::open(&self.session.shared, source.address()?)?;
                self.apply(&mut source, inlet, position)
            }
        }
    }

    /// Replaces all data by those of the source. While they are incomplete, most commands are
    /// refused; if they do not become complete, all of them go.
    fn load(
        &self,
        source: &mut Source,
        inlet: &mut Inlet,
        (id, offset): (StreamId, u64),
    ) -> Result<Position, LinkError> {
        let figures = &self.session.shared.replication.figures;
        set(&figures.loaded_bytes, 0);
        let end = self.session.data_end(source)?;
        let note = |load: &Load| {
            set(&figures.total_bytes, load.total_bytes().unwrap_or(0));
            set(&figures.loaded_bytes, load.read_bytes());
            set(&figures.heard_ms, farcore_tuning::system_ms());
        };
        self.change_state(State::begin_load);
        // Those that follow this server have the data before.
        publisher::relay(&self.session.shared);
        // It has nothing of the stream until all is loaded: it is not to be chosen for that.
        set(&figures.applied, 0);
        inlet.out.add(&[b"FLUSHALL"]);
        let database = match self
            .session
            .load_file((source, inlet), Load::new(end), note)
        {
            Ok(database) => database,
            Err(error) => {
                self.empty(inlet, &error);
                return Err(error);
            }
        };
        let position = Position { offset, database };
        add(&figures.full_syncs, 1);
        self.change_state(|state| state.end_load(id, position));
        tracing::info!(source = %self.address, "all data of the source are loaded");
        Ok(position)
    }

    /// Removes incomplete data. The connection of the load sends the command, so that it follows
    /// all keys that were sent before; another connection is opened only if that one is closed.
    fn empty(&self, inlet: &mut Inlet, why: &LinkError) {
        tracing::warn!(source = %self.address, error = %why, "the data of the source are incomplete: all are removed");
        inlet.out.add(&[b"FLUSHALL"]);
        let emptied = self.session.drain(inlet).or_else(|error| {
            // Where it has not ended, what was passed on may be carried out yet.
            if inlet.exchange().is_ok() {
                return Err(error);
            }
            let peer = ([0, 0, 0, 0], 0).into();
            let mut inlet = Inlet::open(&self.session.shared, peer)?;
            inlet.out.add(&[b"FLUSHALL"]);
            self.session.drain(&mut inlet)
        });
        let refused = inlet.take_failed().pop().map(|(_, reply)| reply);
        match (emptied, refused) {
            (Ok(()), None) => {}
            (Err(error), _) => tracing::error!(%error, "incomplete data are not removed"),
            (Ok(()), Some(error)) => tracing::error!(error, "incomplete data may be left"),
        }
    }

    /// Applies the stream from a position on, until the link ends.
    fn apply(
        &mut self,
        source: &mut Source,
        mut inlet: Inlet,
        position: Position,
    ) -> Result<std::convert::Infallible, LinkError> {
        let names = self.session.shared.streamed.clone();
        let mut stream = Stream::new(position, names, &mut inlet.out);
        self.begin_relay(position)?;
        self.note_applied(&mut stream);
        self.note_phase(Phase::Connected);
        let Err(mut error) = self.pass_on(source, &mut inlet, &mut stream);
        // The position is behind all that was passed on, unless a command of it fails.
        if !matches!(error, LinkError::NotApplied { .. }) {
            let drained = self.session.drain(&mut inlet);
            let settled = stream.settle(inlet.answered(), inlet.take_failed());
            error = drained.and(settled).err().unwrap_or(error);
        }
        self.note_applied(&mut stream);
        // What was passed on behind it is applied, or not.
        if matches!(error, LinkError::Inlet | LinkError::NotApplied { .. }) {
            self.change_state(|state| state.history.is_resumable = false);
        }
        Err(error)
    }

    fn pass_on(
        &mut self,
        source: &mut Source,
        inlet: &mut Inlet,
        stream: &mut Stream,
    ) -> Result<std::convert::Infallible, LinkError> {
        let figures = Arc::clone(&self.session.shared);
        let figures = &figures.replication.figures;
        let (mut said, mut has_failed, mut passed_over) = (None::<Instant>, false, 0);
        let began = Instant::now();
        let replicas = &Arc::clone(&self.session.shared);
        let replicas = &replicas.replication.replicas;
        loop {
            if replicas.wants_pause() {
                let paused = self.pause(source, inlet, stream);
                replicas.note_paused(false);
                paused?;
            }
            inlet.exchange()?;
            for fault in stream.settle(inlet.answered(), inlet.take_failed())? {
                add(&figures.failed, 1);
                if !std::mem::replace(&mut has_failed, true) {
                    tracing::error!(
                        source = %self.address,
                        command = fault.command,
                        reply = fault.reply,
                        "a command of the source has failed: the data differ from the source's; this link counts others silently"
                    );
                }
            }
            let mut is_busy = false;
            while !inlet.is_full() {
                if stream.step(&mut source.input, &mut inlet.out)? {
                    is_busy = true;
                } else if source.receive()? > 0 {
                    set(&figures.heard_ms, farcore_tuning::system_ms());
                } else {
                    break;
                }
            }
            if inlet.is_full() {
                source.rest();
            }
            if stream.passed_over > passed_over {
                if passed_over == 0 {
                    tracing::warn!(source = %self.address, "libraries of functions are passed over: what their calls write comes as commands");
                }
                add(&figures.passed_over, stream.passed_over - passed_over);
                passed_over = stream.passed_over;
            }
            self.note_applied(stream);
            let is_due = said.is_none_or(|said| said.elapsed() >= ACKNOWLEDGE);
            if is_due || stream.take_question() {
                said = Some(Instant::now());
                let offset = stream.applied().offset.to_string();
                source.send(&[b"REPLCONF", b"ACK", offset.as_bytes()]);
            }
            source.flush()?;
            self.session.check_stop()?;
            if !is_busy {
                // It works: the next pause is a short one.
                if began.elapsed() >= WORKS_AFTER {
                    self.pause = PAUSE_FIRST;
                }
                let passed = said.map_or(Duration::ZERO, |said| said.elapsed());
                let sockets = [source.interest(!inlet.is_full()), inlet.interest()];
                self.session
                    .wait(&sockets, ACKNOWLEDGE.saturating_sub(passed));
            }
        }
    }

    /// Passes on what was applied to those that follow this server, now or once it leads.
    fn relay(&self, stream: &mut Stream) {
        let replicas = &self.session.shared.replication.replicas;
        stream.take_applied(|bytes| replicas.relay(bytes));
    }

    /// Has the stream of the source take the place of the server's own, once that has ended.
    fn begin_relay(&self, position: Position) -> Result<(), LinkError> {
        let replicas = &self.session.shared.replication.replicas;
        while replicas.is_on() {
            self.session.check_stop()?;
            self.session.wait(&[], PAUSE_LOOK);
        }
        replicas.begin_relay(position.offset);
        Ok(())
    }

    /// Applies nothing while replicas get all data, so that these are of one moment.
    fn pause(
        &self,
        source: &mut Source,
        inlet: &mut Inlet,
        stream: &mut Stream,
    ) -> Result<(), LinkError> {
        let replicas = &self.session.shared.replication.replicas;
        self.session.drain(inlet)?;
        for _ in stream.settle(inlet.answered(), inlet.take_failed())? {
            add(&self.session.shared.replication.figures.failed, 1);
        }
        self.note_applied(stream);
        replicas.note_paused(true);
        let mut said = None::<Instant>;
        while replicas.wants_pause() {
            if said.is_none_or(|said| said.elapsed() >= ACKNOWLEDGE) {
                said = Some(Instant::now());
                let offset = stream.applied().offset.to_string();
                source.send(&[b"REPLCONF", b"ACK", offset.as_bytes()]);
            }
            source.flush()?;
            source.rest();
            self.session.check_stop()?;
            self.session.wait(&[source.interest(false)], PAUSE_LOOK);
        }
        Ok(())
    }

    /// Notes how far the stream was applied.
    fn note_applied(&self, stream: &mut Stream) {
        self.relay(stream);
        let figures = &self.session.shared.replication.figures;
        set(&figures.read, stream.read());
        let applied = stream.applied();
        let before = figures.applied.swap(applied.offset, Ordering::Relaxed);
        if before != applied.offset {
            self.session.shared.replication.state().history.position = applied;
        }
    }
}
