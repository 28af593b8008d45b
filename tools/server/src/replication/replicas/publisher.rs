//! The thread that serves replicas: it brings the changes of all shards into one stream, keeps its
//! latest bytes, and sends each replica what it lacks.
//!
//! - P1: what a replica has acknowledged is a prefix of the stream, and with the data before it the
//!   state of the server at that moment.
//! - P2: what is kept for replicas has a bound: a replica that is further behind is served no more,
//!   or, if that is set, changes wait for it.
//! - P3: a stream has one identity. If its changes can be followed no more, another one begins, and
//!   all replicas load anew.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

use farcore_tuning::mutated;

use super::super::source::write_command;
use super::ground::Ground;
use super::merge::{Merge, MergeError};
use super::port::{NewReplica, Order, Whom, Wish};
use super::reader::{Answer, ReadError, Reader};
use super::replica::{Phase, Replica, ReplicaError};
use super::returns::Returns;
use super::sync::{Finished, Sync, SyncError};
use super::waiters::{Stage, Waiters};
use super::window::Fills;
use super::writer::{Disturbance, StreamWriter};
use crate::cores::answers::Answers;
use crate::cores::shared::Shared;
use crate::replication::history::StreamId;
use crate::replication::state::Phase as LinkPhase;

/// How often it looks at time limits, and says what it knows.
const LOOK: Duration = Duration::from_millis(100);
/// How often replicas hear that the server is there; as Redis.
const PING: Duration = Duration::from_secs(10);
/// How often those that wait for data do.
const PATIENCE: Duration = Duration::from_secs(1);
/// Changes are gathered for so long: a change that comes alone would cost as much as many.
const GATHER: Duration = Duration::from_micros(500);
/// How long changes are noted without a replica that wants them; as Redis.
const IDLE: Duration = Duration::from_secs(3600);
/// Bytes of changes that one round takes.
const ROUND_BYTES: usize = 4 << 20;

/// Has the thread run, if it does not.
///
/// # Errors
/// No thread can be started, or no file descriptor is left.
pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<()> {
    let port = &shared.replication.replicas;
    let mut thread = port.thread();
    if thread.is_some() || port.is_stopping() {
        return Ok(());
    }
    port.bell()?;
    let shared = Arc::clone(shared);
    let work = move || {
        if let Ok(mut publisher) = Publisher::new(shared) {
            publisher.run();
        }
    };
    *thread = Some(
        thread::Builder::new()
            .name("farcore-source".to_owned())
            .spawn(work)?,
    );
    Ok(())
}

/// Has a replica be served. The thread must run.
pub(crate) fn serve(shared: &Shared, replica: NewReplica) {
    shared.replication.replicas.give(Order::Serve(replica));
}

/// Answers how many replicas have the stream up to now, once these are enough or it is late.
pub(crate) fn wait(
    shared: &Shared,
    (whom, until): (Whom, Option<Instant>),
    answer: Answers<usize>,
) {
    let order = Order::Wait {
        whom,
        until,
        answer,
    };
    shared.replication.replicas.give(order);
}

/// Serves the one no more that brings slots to the server of an ID.
pub(crate) fn end_import(shared: &Shared, id: &str, answer: Answers<()>) {
    let port = &shared.replication.replicas;
    port.give(Order::EndImport(id.to_owned(), answer));
}

/// Has the stream be of the server's own changes, if it is served.
pub(crate) fn lead(shared: &Arc<Shared>, answer: Answers<()>) -> io::Result<()> {
    start(shared)?;
    shared.replication.replicas.give(Order::Lead(answer));
    Ok(())
}

/// Has the stream be that of another server.
pub(crate) fn relay(shared: &Shared) {
    if shared.replication.replicas.runs() {
        shared.replication.replicas.give(Order::Relay);
    }
}

/// Has replicas learn that the stream has another identity.
pub(crate) fn renamed(shared: &Shared) {
    if shared.replication.replicas.runs() {
        shared.replication.replicas.give(Order::Renamed);
    }
}

/// Whose changes the stream has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    /// Its own, which are noted.
    Own,
    /// Its own, which are not noted: no replica wants them.
    Idle,
    /// Those of another server.
    Relay,
}

pub(in crate::replication) struct Publisher<G> {
    ground: Arc<G>,
    waker: Waker,
    mode: Mode,
    merge: Merge,
    writer: StreamWriter,
    /// Reads keys that no command expresses.
    reader: Option<Reader>,
    replicas: Vec<Replica>,
    returns: Returns,
    sync: Option<Sync>,
    waiters: Waiters,
    /// Bytes of the stream that are not in the backlog yet.
    stream: Vec<u8>,
    pinged: Instant,
    said: Instant,
    looked: Instant,
    /// Since when no replica is there.
    idle_since: Instant,
}

fn add(figure: &AtomicU64) {
    // ORDERING: relaxed; it is a figure.
    figure.fetch_add(1, Ordering::Relaxed);
}

/// Why the stream ends.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error(transparent)]
    Merge(#[from] MergeError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("too much waits for keys that are read as a whole")]
    Overfull,
    #[error("the cores do not answer")]
    NoFeed,
}

impl<G: Ground> Publisher<G> {
    pub(in crate::replication) fn new(ground: Arc<G>) -> io::Result<Self> {
        let port = &ground.replication().replicas;
        let waker = Waker::from(Arc::clone(port.bell()?));
        let shards = port.feed.shards();
        let follows = ground.replication().state().link.is_some();
        let now = ground.now();
        Ok(Self {
            waker,
            mode: if follows { Mode::Relay } else { Mode::Idle },
            merge: Merge::new(shards, 0),
            writer: StreamWriter::new(ground.order()),
            reader: None,
            replicas: Vec::new(),
            returns: Returns::default(),
            sync: None,
            waiters: Waiters::default(),
            stream: Vec::new(),
            pinged: now,
            said: now,
            looked: now,
            idle_since: now,
            ground,
        })
    }

    fn run(&mut self) {
        let ground = Arc::clone(&self.ground);
        let port = &ground.replication().replicas;
        while !port.is_stopping() {
            let started = ground.now();
            let is_busy = self.turn();
            self.rest(is_busy, started);
        }
        port.pause(false);
        port.set_on(false);
        port.feed.stop();
        port.lines().clear();
    }

    /// Does what there is to do. True if there was something.
    pub(in crate::replication) fn turn(&mut self) -> bool {
        while let Some(order) = self.ground.replication().replicas.orders.pop() {
            self.carry_out(order);
        }
        let mut is_busy = match self.follow_changes() {
            Ok(is_busy) => is_busy,
            Err(broken) => {
                self.begin_anew(&broken.to_string());
                true
            }
        };
        is_busy |= self.step_sync();
        is_busy |= self.serve_replicas();
        self.serve_waiters();
        if self.since(self.looked) >= LOOK {
            self.looked = self.ground.now();
            self.look();
        }
        is_busy
    }

    /// From where on the data of an identity are of one place in the stream.
    #[cfg(feature = "simulation")]
    pub(in crate::replication) fn whole_from(&self, id: StreamId) -> Option<u64> {
        self.returns.whole_from(id)
    }

    fn since(&self, then: Instant) -> Duration {
        self.ground.now().saturating_duration_since(then)
    }

    fn id(&self) -> StreamId {
        self.ground.replication().state().history.id
    }

    fn end(&self) -> u64 {
        self.ground.replication().replicas.backlog().end()
    }

    fn carry_out(&mut self, order: Order) {
        match order {
            Order::Serve(new) => self.welcome(new),
            Order::Wait {
                whom,
                until,
                answer,
            } => self.add_waiter(whom, until, answer),
            Order::EndImport(id, answer) => {
                let is_it = |one: &mut Replica| {
                    let import = one.new.said.import.as_ref();
                    import.is_some_and(|import| import.id == id)
                };
                for replica in self.replicas.extract_if(.., is_it).collect::<Vec<_>>() {
                    self.part(replica, &ReplicaError::Done);
                }
                drop(answer);
            }
            Order::Lead(answer) => {
                // Replicas of the source before may come, and those that are here are to learn the
                // identity that the stream has now.
                if self.mode == Mode::Relay {
                    self.part_renamed();
                }
                if self.mode != Mode::Own
                    && let Err(broken) = self.note_changes()
                {
                    tracing::warn!(error = %broken, "no replica can go on: changes are not noted");
                }
                drop(answer);
            }
            Order::Renamed => self.part_renamed(),
            Order::Relay => {
                self.stop_noting();
                self.drop_all(&|| ReplicaError::Relayed);
                self.waiters.give_up();
                self.mode = Mode::Relay;
            }
        }
    }

    /// Begins to note changes.
    fn note_changes(&mut self) -> Result<(), Broken> {
        let ground = Arc::clone(&self.ground);
        let port = &ground.replication().replicas;
        port.set_on(true);
        if !port.feed.start(&self.waker) {
            port.set_on(false);
            self.mode = Mode::Idle;
            return Err(Broken::NoFeed);
        }
        self.merge = Merge::new(port.feed.shards(), port.feed.whole_sections());
        self.writer = StreamWriter::new(ground.order());
        self.reader = None;
        self.mode = Mode::Own;
        self.idle_since = self.ground.now();
        Ok(())
    }

    fn stop_noting(&mut self) {
        if self.mode == Mode::Own {
            let port = &self.ground.replication().replicas;
            port.set_on(false);
            port.feed.stop();
            self.mode = Mode::Idle;
            self.merge = Merge::new(port.feed.shards(), 0);
            // A replica that comes gets all that was changed until now as data.
            self.waiters.wait_for(self.end());
        }
    }

    /// Bytes that the shards have noted.
    fn noted(&self) -> Vec<u64> {
        let feed = &self.ground.replication().replicas.feed;
        (0..feed.shards()).map(|shard| feed.noted(shard)).collect()
    }

    /// Begins another stream, since this one cannot go on.
    fn begin_anew(&mut self, why: &str) {
        tracing::error!(
            error = why,
            "the stream of changes is begun anew: replicas load all data again"
        );
        self.drop_all(&|| ReplicaError::NoData(why.to_owned()));
        self.stop_noting();
        self.rename();
    }

    /// Gives the stream an identity that no replica knows.
    fn rename(&mut self) {
        let ground = Arc::clone(&self.ground);
        let refusals = ground.refusals();
        ground.replication().change(refusals, |state| {
            state.history.id = StreamId::random();
            state.history.before = None;
        });
        self.returns.clear();
        let mut backlog = ground.replication().replicas.backlog();
        let end = backlog.end();
        backlog.begin(end);
    }

    /// Has replicas come again, and learn the identity of the stream.
    fn part_renamed(&mut self) {
        let is_whole = |one: &mut Replica| one.is_whole();
        for replica in self.replicas.extract_if(.., is_whole).collect::<Vec<_>>() {
            self.part(replica, &ReplicaError::Renamed);
        }
    }

    fn drop_all(&mut self, why: &dyn Fn() -> ReplicaError) {
        self.sync = None;
        for replica in std::mem::take(&mut self.replicas) {
            self.part(replica, &why());
        }
        self.returns.clear();
    }

    fn part(&mut self, replica: Replica, why: &ReplicaError) {
        let peer = replica.new.peer;
        match why {
            ReplicaError::Done => tracing::info!(%peer, "all data were sent"),
            ReplicaError::Closed => tracing::info!(%peer, "a replica has gone"),
            ReplicaError::Renamed => tracing::info!(%peer, "a replica is to come again"),
            why => tracing::warn!(%peer, error = %why, "a replica is served no more"),
        }
        if matches!(why, ReplicaError::Renamed) {
            let who = (peer.ip(), replica.new.said.port);
            let now = self.ground.now();
            self.returns.expect(who, replica.acknowledged, now);
        }
        if matches!(why, ReplicaError::Behind { .. } | ReplicaError::Silent(_)) {
            add(&self.ground.replication().replicas.figures.dropped);
        }
    }

    /// Lets a replica go on where it was, or has all data be read for it.
    fn welcome(&mut self, new: NewReplica) {
        let peer = new.peer;
        let (wish, wants_data_only) = (new.wish, new.said.wants_data_only);
        // The connection that it had before has ended, though nothing may show that yet.
        let is_it = |one: &mut Replica| {
            let port = one.new.said.port;
            one.new.peer.ip() == peer.ip() && port == new.said.port && port > 0
        };
        for before in self.replicas.extract_if(.., is_it).collect::<Vec<_>>() {
            self.part(before, &ReplicaError::Closed);
        }
        self.returns.has_come(peer.ip(), new.said.port);
        let mut replica = Replica::new(new, self.ground.now());
        let ground = Arc::clone(&self.ground);
        let figures = &ground.replication().replicas.figures;
        if let Wish::Stream(id, next) = wish {
            let place = self.place_of(id, next).filter(|_| !wants_data_only);
            if let Some((at, fills)) = place {
                // Amid its window the stream keeps the identity that it has for it.
                let id = id.filter(|_| fills.is_some() && !mutated!("renamed-amid-load"));
                let id = id.unwrap_or_else(|| self.id());
                replica.fills = fills;
                replica
                    .unsent
                    .end()
                    .extend(format!("+CONTINUE {id}\r\n").into_bytes());
                (replica.position, replica.acknowledged) = (at, at);
                replica.phase = Phase::Online;
                add(&figures.partial_syncs);
                tracing::info!(%peer, behind = self.end() - at, "a replica goes on");
                self.replicas.push(replica);
                return;
            }
            if id.is_some() {
                add(&figures.partial_refused);
            }
        }
        tracing::info!(%peer, "a replica gets all data");
        self.replicas.push(replica);
    }

    /// Where in the stream a replica goes on, if it can, and what is replaced for it.
    fn place_of(&self, id: Option<StreamId>, next: i64) -> Option<(u64, Option<Arc<Fills>>)> {
        if self.mode == Mode::Idle {
            // What has changed since is not known.
            return None;
        }
        let at = u64::try_from(next.checked_sub(1)?).ok()?;
        let backlog = self.ground.replication().replicas.backlog();
        if !(backlog.start()..=backlog.end()).contains(&at) {
            return None;
        }
        drop(backlog);
        let state = self.ground.replication().state();
        if state.is_partial {
            return None;
        }
        let history = &state.history;
        let of_before = |(before, until): (StreamId, u64)| {
            id == Some(before) && (at < until || mutated!("stream-before-unbounded"))
        };
        if id == Some(history.id) || history.before.is_some_and(of_before) {
            return Some((at, None));
        }
        self.returns.place_of(id, at)
    }

    /// Takes changes, and writes them to the stream. True if there were any.
    fn follow_changes(&mut self) -> Result<bool, Broken> {
        if self.mode != Mode::Own {
            return Ok(false);
        }
        let ground = Arc::clone(&self.ground);
        let port = &ground.replication().replicas;
        if self.holds_writers() {
            return Ok(false);
        }
        // What was read has no changes that are not noted by now.
        let read = self.take_whole_keys()?;
        let noted = match read.is_empty() {
            true => Vec::new(),
            false => self.noted(),
        };
        let mut bytes = 0;
        for shard in 0..port.feed.shards() {
            while bytes < ROUND_BYTES
                && let Some(chunk) = port.feed.take(shard)
            {
                bytes += chunk.len();
                self.merge.add(shard, chunk);
            }
        }
        if bytes > 0 {
            let start = port.backlog().end();
            let mut replicas = self.replicas.iter();
            self.writer.catches_up = self.sync.is_some() || replicas.any(|one| one.fills.is_some());
            let (writer, stream) = (&mut self.writer, &mut self.stream);
            let mut windows: Vec<_> = self.sync.iter_mut().map(|sync| &mut sync.window).collect();
            self.merge.run(
                self.ground.now(),
                |changes| writer.group(changes, (stream, start), &mut windows),
                |shard, chunk| port.feed.give_back(shard, chunk),
            )?;
            self.append();
        }
        self.writer
            .forget_read(|until| self.merge.has_passed(until));
        let is_busy = bytes > 0 || !read.is_empty();
        self.write_whole_keys(read, &noted);
        self.want_whole_keys()?;
        if self.writer.is_overfull() {
            return Err(Broken::Overfull);
        }
        Ok(is_busy)
    }

    /// True if replicas are behind as far as they may, and changes wait for them.
    fn holds_writers(&self) -> bool {
        let settings = &self.ground.replication().replicas.settings;
        if !settings.waits.load(Ordering::Relaxed) {
            return false;
        }
        let most = settings.behind_bytes.load(Ordering::Relaxed);
        let end = self.end();
        let online = self.replicas.iter();
        let online = online.filter(|one| !matches!(one.phase, Phase::Waiting | Phase::Loading));
        online.map(|one| one.position).any(|at| end - at >= most)
    }

    /// The first byte of the stream that a replica needs.
    fn needed_from(&self) -> Option<u64> {
        let online = self
            .replicas
            .iter()
            .filter_map(|replica| match replica.phase {
                Phase::Waiting | Phase::Loading => None,
                _ => Some(replica.position),
            });
        let sync = self.sync.iter().map(|sync| sync.start);
        online.chain(self.returns.positions()).chain(sync).min()
    }

    /// Moves what was written into the backlog.
    fn append(&mut self) {
        if !self.stream.is_empty() {
            let mut backlog = self.ground.replication().replicas.backlog();
            backlog.append(&self.stream);
            self.stream.clear();
            self.stream.shrink_to(ROUND_BYTES);
        }
    }

    /// Takes keys that were read as a whole.
    fn take_whole_keys(&mut self) -> Result<Vec<Answer>, Broken> {
        let mut read = Vec::new();
        if let Some(reader) = self.reader.as_mut().filter(|reader| !reader.is_idle()) {
            reader.send()?;
            while let Some(answer) = reader.next()? {
                read.push(answer);
            }
        }
        Ok(read)
    }

    /// Writes them. `noted`: as [`Publisher::noted`], after they were read.
    fn write_whole_keys(&mut self, read: Vec<Answer>, noted: &[u64]) {
        let until = (!self.merge.has_passed(noted)).then_some(noted);
        let start = self.end();
        let mut windows: Vec<_> = self.sync.iter_mut().map(|sync| &mut sync.window).collect();
        for answer in read {
            if let Answer::Key(key, read) = answer {
                let read = read
                    .as_ref()
                    .map(|(version, expiry_ms, payload)| (*version, *expiry_ms, &payload[..]));
                let stream = (&mut self.stream, start);
                self.writer
                    .write_read(&key, read, until, stream, &mut windows);
            } else if let Answer::Lost(key) = answer {
                self.writer.give_up(&key);
            }
        }
        self.append();
    }

    /// Has keys be read as a whole that no command expresses.
    fn want_whole_keys(&mut self) -> Result<(), Broken> {
        while self.reader.as_ref().is_none_or(Reader::has_room)
            && let Some(key) = self.writer.take_wanted()
        {
            if self.reader.is_none() {
                self.reader = Some(
                    self.ground
                        .reader()
                        .map(Reader::new)
                        .map_err(ReadError::from)?,
                );
            }
            add(&self.ground.replication().replicas.figures.whole_keys);
            let reader = self.reader.iter_mut();
            reader.for_each(|reader| reader.want_key(Arc::clone(&key)));
        }
        Ok(self.reader.iter_mut().try_for_each(Reader::send)?)
    }

    /// Goes on with the full synchronisation, or begins one that is wanted.
    fn step_sync(&mut self) -> bool {
        let stepped = match self.sync {
            Some(_) => self.read_data(),
            None => self.begin_sync(),
        };
        let waiting = |one: &Replica| matches!(one.phase, Phase::Waiting);
        if self.sync.is_none() && !self.replicas.iter().any(waiting) {
            self.ground.replication().replicas.pause(false);
        }
        match stepped {
            Ok(is_busy) => is_busy,
            Err(error) => {
                self.end_sync(&error.to_string());
                true
            }
        }
    }

    fn end_sync(&mut self, why: &str) {
        self.sync = None;
        let loading = |replica: &mut Replica| matches!(replica.phase, Phase::Loading);
        let parted: Vec<_> = self.replicas.extract_if(.., loading).collect();
        for replica in parted {
            self.part(replica, &ReplicaError::NoData(why.to_owned()));
        }
    }

    /// True if the link to the server that this one follows is up.
    fn has_link(&self) -> bool {
        let state = self.ground.replication().state();
        let link = state.link.as_ref();
        link.is_some_and(|link| link.phase == LinkPhase::Connected)
    }

    /// Refuses those that wait for data, which the server has not.
    fn refuse_waiting(&mut self) {
        let now = self.ground.now();
        let backlog = self.ground.replication().replicas.backlog();
        let waits = |one: &mut Replica| matches!(one.phase, Phase::Waiting);
        for mut replica in self.replicas.extract_if(.., waits) {
            // As Redis.
            replica.unsent.end().extend_from_slice(
                b"-NOMASTERLINK Can't SYNC while not connected with my master\r\n",
            );
            let _ = replica.send(&backlog, now);
        }
    }

    fn begin_sync(&mut self) -> Result<bool, SyncError> {
        let waiting = |replica: &&mut Replica| matches!(replica.phase, Phase::Waiting);
        let Some(first) = self.replicas.iter_mut().find(waiting) else {
            return Ok(false);
        };
        let takes_marks = first.new.said.takes_marks;
        let import = first.new.said.import.clone();
        let slots = import.as_ref().map(|import| Arc::clone(&import.slots));
        if self.mode == Mode::Relay {
            if !self.has_link() {
                self.refuse_waiting();
                return Ok(true);
            }
            let port = &self.ground.replication().replicas;
            port.pause(true);
            if !port.is_paused() {
                return Ok(false);
            }
        }
        if self.mode == Mode::Idle {
            // What has changed since changes were noted last is not in the stream.
            self.rename();
            if let Err(broken) = self.note_changes() {
                let why = broken.to_string();
                self.drop_all(&|| ReplicaError::NoData(why.clone()));
                return Ok(true);
            }
        }
        if self.mode == Mode::Relay {
            // What numbers of databases mean now: the link applies nothing.
            self.writer = StreamWriter::new(self.ground.order());
        }
        // All that was noted is in the stream before the data begin.
        let start = self.end();
        self.writer.forget_selected();
        self.writer.disturbance = None;
        let reader = self.ground.reader().map(Reader::new);
        let reader = reader.map_err(ReadError::from)?;
        // The server's own changes begin with a database.
        let database = match self.mode {
            Mode::Relay if !mutated!("database-of-relay-ignored") => {
                self.ground.replication().state().history.position.database
            }
            Mode::Relay | Mode::Own | Mode::Idle => 0,
        };
        let sync = Sync::begin(reader, (start, database), (!takes_marks, slots))?;
        let id = match mutated!("load-without-identity") {
            true => self.id(),
            false => sync.id,
        };
        for replica in self.replicas.iter_mut().filter(waiting_ref) {
            let said = &replica.new.said;
            if said.takes_marks != takes_marks || said.import != import {
                continue;
            }
            // A file has one place for all who read it.
            let is_last = !takes_marks;
            if matches!(replica.new.wish, Wish::Stream(..)) {
                let line = format!("+FULLRESYNC {id} {start}\r\n");
                replica.unsent.end().extend(line.into_bytes());
            }
            if takes_marks {
                replica.unsent.end().extend(sync.mark_line().into_bytes());
            }
            replica.phase = Phase::Loading;
            if is_last {
                break;
            }
        }
        tracing::info!(start, "all data are read for replicas");
        self.sync = Some(sync);
        Ok(true)
    }

    /// # Errors
    /// The full synchronisation must not go on.
    fn check_sync(&mut self) -> Result<(), SyncError> {
        let Some(sync) = &self.sync else {
            return Ok(());
        };
        match self.writer.disturbance.take() {
            None => {}
            Some(Disturbance::Emptied) => {
                return Err(SyncError::Disturbed("all keys were removed meanwhile"));
            }
            Some(Disturbance::Swapped) => {
                return Err(SyncError::Disturbed("databases were swapped meanwhile"));
            }
        }
        let settings = &self.ground.replication().replicas.settings;
        let most = settings.behind_bytes.load(Ordering::Relaxed);
        let behind = self.ground.replication().replicas.backlog().end() - sync.start;
        let held = sync.window.held_bytes() as u64;
        if behind.max(held) > most {
            let bytes = behind.max(held);
            return Err(SyncError::TooLong { bytes, most });
        }
        if self.mode == Mode::Relay && !self.ground.replication().replicas.is_paused() {
            return Err(SyncError::Disturbed("the link to the source has ended"));
        }
        if !self
            .replicas
            .iter()
            .any(|replica| matches!(replica.phase, Phase::Loading))
        {
            return Err(SyncError::Disturbed("all that wanted them have gone"));
        }
        Ok(())
    }

    fn read_data(&mut self) -> Result<bool, SyncError> {
        self.check_sync()?;
        let Some(sync) = &mut self.sync else {
            return Ok(false);
        };
        let writer = &self.writer;
        let is_busy = sync.step(|key| writer.number_of(key))?;
        // What was read has no changes that are not noted by now.
        let noted = self.noted();
        if let Err(broken) = self.follow_changes() {
            self.begin_anew(&broken.to_string());
            return Ok(true);
        }
        let may_miss = self.mode == Mode::Own && !self.merge.has_passed(&noted);
        let may_miss = may_miss && !mutated!("changes-on-their-way-ignored");
        let Some(sync) = &mut self.sync else {
            return Ok(true);
        };
        sync.note_read(may_miss);
        self.pass_on_data();
        // What a held key has changed is not in the stream yet, and its data may have it.
        let writer = &self.writer;
        let is_written = |sync: &mut Sync| {
            let unwritten = sync.unwritten.get_or_insert_with(|| writer.unwritten());
            unwritten.retain(|(key, version)| !writer.has_written(key, *version));
            unwritten.is_empty() || mutated!("held-not-awaited")
        };
        let has_all = |sync: &mut Sync| sync.has_all() && !may_miss && is_written(sync);
        let Some(sync) = self.sync.take_if(has_all) else {
            return Ok(is_busy);
        };
        self.end_data(sync)?;
        Ok(true)
    }

    /// Has replicas that have loaded all data go on with the stream. All changes that the data may
    /// have are in the window.
    fn end_data(&mut self, sync: Sync) -> Result<(), SyncError> {
        let (id, start) = (sync.id, sync.start);
        let Finished {
            mut gathered,
            rest,
            window,
        } = sync.finish()?;
        let end = self.end();
        let fills = Arc::new(window.fills((start, end)));
        let figures = &self.ground.replication().replicas.figures;
        let mut may_come_again = false;
        for replica in self.replicas.iter_mut().filter(loading_ref) {
            let said = &replica.new.said;
            may_come_again |= !said.wants_data_only && said.import.is_none();
            replica.unsent.end().extend_from_slice(&rest);
            (replica.position, replica.acknowledged) = (start, start);
            replica.fills = Some(Arc::clone(&fills));
            add(&figures.full_syncs);
            replica.phase = match gathered.take() {
                // There is one replica then.
                Some((file, length)) => {
                    replica
                        .unsent
                        .end()
                        .extend(format!("${length}\r\n").into_bytes());
                    Phase::Gathered(file, length)
                }
                None if replica.new.said.wants_data_only => Phase::Online,
                None => Phase::Loaded,
            };
        }
        if may_come_again {
            self.returns.add_loaded(id, fills);
        }
        tracing::info!(start, end, "all data are read");
        Ok(())
    }

    /// Gives what was read of the data to the replicas that load them, as fast as the slowest one
    /// takes it.
    fn pass_on_data(&mut self) {
        let Some(sync) = self.sync.as_mut().filter(|sync| !sync.is_gathered()) else {
            return;
        };
        let mut loading = self
            .replicas
            .iter()
            .filter(|one| matches!(one.phase, Phase::Loading));
        if sync.out.is_empty()
            || !loading.all(|replica| replica.unsent.len() < sync.out.len().max(1))
        {
            return;
        }
        for replica in self.replicas.iter_mut().filter(loading_ref) {
            replica.unsent.end().extend_from_slice(&sync.out);
        }
        sync.out.clear();
    }

    /// Sends to replicas, and receives from them. True if one took something.
    fn serve_replicas(&mut self) -> bool {
        let ground = Arc::clone(&self.ground);
        let port = &ground.replication().replicas;
        let limit = ground.replication().state().settings.timeout();
        let (mut is_busy, mut place, now) = (false, 0, self.ground.now());
        while place < self.replicas.len() {
            let replica = &mut self.replicas[place];
            let served = replica
                .receive(now)
                .and_then(|()| replica.check(limit, now))
                .and_then(|()| replica.send(&port.backlog(), now));
            match served {
                Ok(took) => {
                    is_busy |= took;
                    place += 1;
                }
                Err(why) => {
                    let replica = self.replicas.swap_remove(place);
                    self.part(replica, &why);
                }
            }
        }
        is_busy
    }

    fn add_waiter(&mut self, whom: Whom, until: Option<Instant>, answer: Answers<usize>) {
        let stage = match self.mode {
            // All that was answered before is noted.
            Mode::Own if !mutated!("noted-not-awaited") => Stage::Taken(self.noted()),
            Mode::Own | Mode::Idle | Mode::Relay => Stage::Acknowledged(self.end()),
        };
        self.waiters.add((whom, until), stage, answer);
    }

    /// How many of those that are waited for have the stream up to a byte.
    fn count_with(&self, whom: &Whom, end: u64) -> usize {
        let online = self.replicas.iter();
        let online = online.filter(|replica| replica.is_whole());
        let is_meant = |replica: &&Replica| match (whom, &replica.new.said.import) {
            (Whom::Replicas(_), None) => true,
            (Whom::Importer(awaited), Some(import)) => awaited == import,
            _ => false,
        };
        let meant = online.filter(is_meant);
        meant.filter(|replica| replica.acknowledged >= end).count()
    }

    fn serve_waiters(&mut self) {
        if self.waiters.is_empty() {
            return;
        }
        let asks = self.waiters.step(&self.merge, &self.writer, self.end());
        if asks && !self.replicas.is_empty() {
            // Their answers say how far they are.
            write_command(&[b"REPLCONF", b"GETACK", b"*"], &mut self.stream);
            self.append();
        }
        let mut waiters = std::mem::take(&mut self.waiters);
        let count = |whom: &Whom, end| self.count_with(whom, end);
        waiters.answer(self.ground.now(), count);
        self.waiters = waiters;
    }

    /// Looks at time limits and bounds, and says how far replicas are.
    fn look(&mut self) {
        let ground = Arc::clone(&self.ground);
        let port = &ground.replication().replicas;
        if self.mode == Mode::Own && !self.replicas.is_empty() && self.since(self.pinged) >= PING {
            self.pinged = self.ground.now();
            write_command(&[b"PING"], &mut self.stream);
            self.append();
        }
        if self.since(self.said) >= PATIENCE {
            self.said = self.ground.now();
            for replica in &mut self.replicas {
                // Before the data an empty line means nothing; amid them it would be a part.
                let waits = matches!(replica.phase, Phase::Waiting)
                    || matches!(replica.phase, Phase::Loading) && !replica.new.said.takes_marks;
                if waits && replica.unsent.is_empty() {
                    replica.unsent.end().push(b'\n');
                }
            }
        }
        self.trim();
        let end = self.end();
        let lines: Vec<_> = self
            .replicas
            .iter()
            // Those that bring slots elsewhere are no copies.
            .filter(|replica| replica.new.said.import.is_none())
            .map(|replica| replica.line(end))
            .collect();
        *port.lines() = lines;
        ground.replication().look_at_replicas(ground.refusals());
        if !self.replicas.is_empty() {
            self.idle_since = self.ground.now();
        } else if self.mode == Mode::Own && self.since(self.idle_since) > IDLE {
            self.stop_noting();
        }
    }

    /// Drops bytes of the stream that are not needed, and replicas that need too many.
    fn trim(&mut self) {
        let ground = Arc::clone(&self.ground);
        let port = &ground.replication().replicas;
        let end = self.end();
        let kept = port.settings.backlog_bytes.load(Ordering::Relaxed);
        let most = port.settings.behind_bytes.load(Ordering::Relaxed).max(kept);
        let waits = port.settings.waits.load(Ordering::Relaxed);
        let behind = |replica: &mut Replica| {
            let needs = !matches!(replica.phase, Phase::Waiting | Phase::Loading);
            needs && end - replica.position > most
        };
        if !waits {
            for replica in self.replicas.extract_if(.., behind).collect::<Vec<_>>() {
                let behind = end - replica.position;
                self.part(replica, &ReplicaError::Behind { behind, most });
            }
        }
        let now = self.ground.now();
        let start = port.backlog().start();
        self.returns.trim(now, (start, end), most);
        let keep_from = end.saturating_sub(kept);
        let needed = self.needed_from().unwrap_or(end);
        port.backlog().trim(keep_from.min(needed));
    }

    /// Waits until there is something to do.
    fn rest(&mut self, is_busy: bool, started: Instant) {
        let ground = Arc::clone(&self.ground);
        let port = &ground.replication().replicas;
        if is_busy {
            // A client that waits is answered at once.
            let worked = self.since(started);
            if self.waiters.is_empty() && self.sync.is_none() && worked < GATHER {
                thread::sleep(GATHER - worked);
            }
            return;
        }
        let end = self.end();
        let mut sockets: Vec<_> = self.replicas.iter().map(|one| one.interest(end)).collect();
        sockets.extend(self.sync.iter().map(Sync::interest));
        let reader = self.reader.as_ref().filter(|reader| !reader.is_idle());
        sockets.extend(reader.map(|reader| reader.interest(true)));
        let may_sleep = self.mode != Mode::Own || self.holds_writers() || port.feed.wait();
        if may_sleep
            && port.orders.is_empty()
            && let Ok(bell) = port.bell()
        {
            let limit = match self.replicas.is_empty() {
                true => LOOK * 5,
                false => LOOK,
            };
            let end = self.waiters.next_end();
            let end = end.map(|until| until.saturating_duration_since(self.ground.now()));
            bell.wait(&sockets, end.map_or(limit, |end| end.min(limit)));
        }
    }
}

fn waiting_ref(replica: &&mut Replica) -> bool {
    matches!(replica.phase, Phase::Waiting)
}

fn loading_ref(replica: &&mut Replica) -> bool {
    matches!(replica.phase, Phase::Loading)
}
