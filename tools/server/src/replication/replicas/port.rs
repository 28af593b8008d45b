//! How cores reach the thread that serves replicas, and what they know of it.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Wake, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_queue::SegQueue;
use farcore::Feed;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::time::Timespec;

use super::backlog::Backlog;
use crate::cluster::SlotSet;
use crate::cores::answers::Answers;
use crate::replication::history::StreamId;
use crate::replication::wire::Wire;

/// Bytes of the stream that are kept for replicas whose link breaks, by default.
pub(crate) const BACKLOG_BYTES: u64 = 16 << 20;
/// Bytes of the stream that a replica may be behind, by default; as Redis.
pub(crate) const BEHIND_BYTES: u64 = 256 << 20;
/// Seconds since its last word, up to which a replica counts, by default; as Redis.
const LAG_S: u32 = 10;

/// The state of a replica that gets the stream.
pub(crate) const ONLINE: &str = "online";

/// Wakes the thread.
#[derive(Debug)]
pub(crate) struct Bell(OwnedFd);

impl Bell {
    fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self(eventfd(0, flags)?))
    }

    pub(crate) fn ring(&self) {
        let _ = rustix::io::write(&self.0, &1u64.to_le_bytes());
    }

    /// Waits until a socket is ready, the time is over, or it rings.
    pub(super) fn wait(&self, sockets: &[(BorrowedFd<'_>, PollFlags)], limit: Duration) {
        let wanted = sockets.iter().filter(|(_, flags)| !flags.is_empty());
        let mut all: Vec<_> = wanted
            .map(|(socket, flags)| PollFd::from_borrowed_fd(*socket, *flags))
            .collect();
        all.push(PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::IN));
        // A wait that was interrupted is over.
        let _ = poll(&mut all, Timespec::try_from(limit).ok().as_ref());
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.ring();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ring();
    }
}

/// What a replica begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wish {
    /// All data, without a word before.
    Data,
    /// The stream of this identity from this byte on, counted from 1, or all data.
    Stream(Option<StreamId>, i64),
}

/// A server of the cluster that wants the keys of some slots.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Importer {
    pub(crate) id: String,
    pub(crate) slots: Arc<SlotSet>,
}

/// Whom a client waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Whom {
    /// As many replicas.
    Replicas(usize),
    /// The one that brings these slots to a server.
    Importer(Importer),
}

/// What a replica has said of itself before.
#[derive(Clone, Debug, Default)]
pub(crate) struct Said {
    pub(crate) port: u16,
    pub(crate) host: Option<String>,
    /// It takes data that end with a mark.
    pub(crate) takes_marks: bool,
    /// It learns of another identity of the stream when it comes again.
    pub(crate) takes_names: bool,
    /// It wants nothing after the data.
    pub(crate) wants_data_only: bool,
    /// It is a server of the cluster that wants the keys of some slots, to own them.
    pub(crate) import: Option<Importer>,
}

/// A replica that comes.
#[derive(Debug)]
pub(crate) struct NewReplica {
    pub(crate) wire: Wire,
    pub(crate) peer: SocketAddr,
    pub(crate) said: Said,
    pub(crate) wish: Wish,
}

/// What the thread is to do.
#[derive(Debug)]
pub(crate) enum Order {
    Serve(NewReplica),
    /// Answer how many replicas have the stream up to now, once these are enough or it is late.
    Wait {
        whom: Whom,
        until: Option<Instant>,
        answer: Answers<usize>,
    },
    /// Serve the one no more that brings slots to the server of an ID.
    EndImport(String, Answers<()>),
    /// The server follows none any more: the stream is of its own changes.
    Lead(Answers<()>),
    /// The stream that is passed on has another identity.
    Renamed,
    /// The server follows another one: its stream is passed on.
    Relay,
}

/// How far a replica is, as `INFO` and `ROLE` say it.
#[derive(Clone, Debug)]
pub(crate) struct ReplicaLine {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) state: &'static str,
    pub(crate) offset: u64,
    pub(crate) heard: Instant,
    /// Bytes that it is behind.
    pub(crate) behind: u64,
}

/// Figures of replicas; the thread alone changes them.
#[derive(Debug, Default)]
pub(crate) struct ReplicasFigures {
    pub(crate) full_syncs: AtomicU64,
    pub(crate) partial_syncs: AtomicU64,
    /// Links that were to go on and could not.
    pub(crate) partial_refused: AtomicU64,
    /// Replicas that were too slow.
    pub(crate) dropped: AtomicU64,
    /// Keys that were sent as a whole, since no command says how they have changed.
    pub(crate) whole_keys: AtomicU64,
}

/// What `CONFIG` sets.
#[derive(Debug)]
pub(crate) struct ReplicasSettings {
    pub(crate) backlog_bytes: AtomicU64,
    pub(crate) behind_bytes: AtomicU64,
    /// Clients may not write while fewer replicas were heard lately.
    pub(crate) least: AtomicU32,
    pub(crate) lag_s: AtomicU32,
    /// Slow replicas have writers wait, and are not dropped.
    pub(crate) waits: AtomicBool,
}

impl Default for ReplicasSettings {
    fn default() -> Self {
        Self {
            backlog_bytes: AtomicU64::new(BACKLOG_BYTES),
            behind_bytes: AtomicU64::new(BEHIND_BYTES),
            least: AtomicU32::new(0),
            lag_s: AtomicU32::new(LAG_S),
            waits: AtomicBool::new(false),
        }
    }
}

/// What shards have changed: see [`Feed`], which it is where nothing is simulated.
pub(crate) trait Changes: fmt::Debug + Send + Sync {
    fn shards(&self) -> usize;
    fn start(&self, waker: &Waker) -> bool;
    fn stop(&self);
    fn whole_sections(&self) -> u64;
    fn noted(&self, shard: usize) -> u64;
    fn take(&self, shard: usize) -> Option<Vec<u8>>;
    fn give_back(&self, shard: usize, chunk: Vec<u8>);
    fn wait(&self) -> bool;
}

impl Changes for Feed {
    fn shards(&self) -> usize {
        Self::shards(self)
    }

    fn start(&self, waker: &Waker) -> bool {
        Self::start(self, waker)
    }

    fn stop(&self) {
        Self::stop(self);
    }

    fn whole_sections(&self) -> u64 {
        Self::whole_sections(self)
    }

    fn noted(&self, shard: usize) -> u64 {
        Self::noted(self, shard)
    }

    fn take(&self, shard: usize) -> Option<Vec<u8>> {
        Self::take(self, shard)
    }

    fn give_back(&self, shard: usize, chunk: Vec<u8>) {
        Self::give_back(self, shard, chunk);
    }

    fn wait(&self) -> bool {
        Self::wait(self)
    }
}

/// The thread that serves replicas, as others see it.
#[derive(Debug)]
pub(crate) struct ReplicasPort {
    pub(super) orders: SegQueue<Order>,
    bell: OnceLock<Arc<Bell>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    is_stopping: AtomicBool,
    pub(super) feed: Box<dyn Changes>,
    backlog: Mutex<Backlog>,
    lines: Mutex<Vec<ReplicaLine>>,
    /// Changes are passed on.
    is_on: AtomicBool,
    /// The link to the server that this one follows is to apply nothing, and does so.
    wants_pause: AtomicBool,
    is_paused: AtomicBool,
    pub(crate) figures: ReplicasFigures,
    pub(crate) settings: ReplicasSettings,
}

impl ReplicasPort {
    /// One that keeps this many bytes of the stream, or as many as usual.
    pub(crate) fn new(feed: Box<dyn Changes>, backlog_bytes: Option<u64>) -> Self {
        let backlog_bytes = backlog_bytes.unwrap_or(BACKLOG_BYTES);
        Self {
            orders: SegQueue::new(),
            bell: OnceLock::new(),
            thread: Mutex::default(),
            is_stopping: AtomicBool::new(false),
            feed,
            backlog: Mutex::default(),
            lines: Mutex::default(),
            is_on: AtomicBool::new(false),
            wants_pause: AtomicBool::new(false),
            is_paused: AtomicBool::new(false),
            figures: ReplicasFigures::default(),
            settings: ReplicasSettings {
                backlog_bytes: AtomicU64::new(backlog_bytes),
                ..ReplicasSettings::default()
            },
        }
    }

    /// What wakes the thread.
    ///
    /// # Errors
    /// No file descriptor is left.
    pub(super) fn bell(&self) -> io::Result<&Arc<Bell>> {
        if self.bell.get().is_none() {
            let _ = self.bell.set(Arc::new(Bell::new()?));
        }
        self.bell.get().ok_or_else(|| io::ErrorKind::Other.into())
    }

    /// Gives an order. The thread must run.
    pub(in crate::replication) fn give(&self, order: Order) {
        self.orders.push(order);
        self.ring();
    }

    /// Has the thread look.
    pub(crate) fn ring(&self) {
        if let Some(bell) = self.bell.get() {
            bell.ring();
        }
    }

    pub(super) fn thread(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if the thread runs.
    pub(crate) fn runs(&self) -> bool {
        self.thread().is_some()
    }

    /// True if changes are passed on. Cost: one load.
    pub(crate) fn is_on(&self) -> bool {
        // ORDERING: relaxed; it only has more be stored.
        self.is_on.load(Ordering::Relaxed)
    }

    pub(super) fn set_on(&self, is_on: bool) {
        self.is_on.store(is_on, Ordering::Relaxed);
    }

    /// Has the link apply nothing, or go on.
    pub(super) fn pause(&self, wants: bool) {
        // ORDERING: sequentially consistent, as all of both words: what is read of the data after
        // the link has paused comes after what it has applied.
        self.wants_pause.store(wants, Ordering::SeqCst);
    }

    /// True if the link is to apply nothing.
    pub(crate) fn wants_pause(&self) -> bool {
        self.wants_pause.load(Ordering::SeqCst)
    }

    /// Notes that the link applies nothing, or goes on.
    pub(crate) fn note_paused(&self, is_paused: bool) {
        self.is_paused.store(is_paused, Ordering::SeqCst);
        self.ring();
    }

    /// True while the link applies nothing.
    pub(super) fn is_paused(&self) -> bool {
        self.is_paused.load(Ordering::SeqCst)
    }

    /// The stream of another server begins here, or goes on.
    pub(crate) fn begin_relay(&self, offset: u64) {
        let mut backlog = self.backlog();
        if backlog.end() != offset {
            backlog.begin(offset);
        }
    }

    /// Adds bytes of the stream of another server.
    pub(crate) fn relay(&self, bytes: &[u8]) {
        let mut backlog = self.backlog();
        backlog.append(bytes);
        if !self.runs() {
            let kept = self.settings.backlog_bytes.load(Ordering::Relaxed);
            let from = backlog.end().saturating_sub(kept);
            backlog.trim(from);
        }
        drop(backlog);
        self.ring();
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// Ends the thread, if it runs.
    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        self.ring();
        let thread = self.thread().take();
        let _ = thread.map(JoinHandle::join);
        while self.orders.pop().is_some() {}
    }

    /// The latest bytes of the stream. Held for a moment only.
    pub(crate) fn backlog(&self) -> MutexGuard<'_, Backlog> {
        self.backlog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many replicas were heard lately.
    pub(crate) fn good(&self, lag: Duration) -> usize {
        let lines = self.lines();
        let good = |one: &&ReplicaLine| one.state == ONLINE && one.heard.elapsed() <= lag;
        lines.iter().filter(good).count()
    }

    /// How far replicas are.
    pub(crate) fn lines(&self) -> MutexGuard<'_, Vec<ReplicaLine>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
