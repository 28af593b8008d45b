//! What the cores of a server share.

use std::collections::HashSet;
use std::io::Write as _;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use farcore::{Durability, EngineReporter, Feed, MemoryNodes};

use crate::cluster::CurrentMap;
use crate::conn::guesses::FailingAddresses;
use crate::conn::keepalive::Keepalive;
use crate::conn::pause::Pause;
use crate::conn::shared_bytes::Fanout;
use crate::conn::tls::{TlsClientConfig, TlsConfig};
use crate::conn::unauthenticated::Shares;
use crate::cores::answers::{Answers, CoreAnswers};
use crate::cores::message::{Message, Question};
use crate::cores::open_clients::OpenClients;
use crate::cores::port::CorePort;
use crate::databases::Databases;
use crate::durability::Saving;
use crate::events::classes::SelectedClasses;
use crate::events::publication::Publication;
use crate::events::removed_keys::HeldRemovals;
use crate::events::tracking::Tracking;
use crate::figures::counters::{CoreCounters, Figure};
use crate::figures::server_figures::Baseline;
use crate::figures::slow_log::SlowSettings;
use crate::limits::LARGE_BYTES;
use crate::long::places::LongPlaces;
use crate::memory::ClientMemory;
use crate::memory_limit::MemoryLimit;
use crate::options::Options;
use crate::replication::state::Replication;
use crate::settings_file::SettingsFile;
use crate::types::encoding_limits::EncodingLimits;
use crate::users::table::Users;
use crate::waits::key_queues::Waiting;

/// A part of the memory for clients is what the allocator takes beside their buffers: one of so
/// many.
const ALLOCATOR_PARTS: usize = 16;

/// What a client reads when there are too many; as Redis.
const TOO_MANY: &[u8] = b"-ERR max number of clients reached\r\n";

/// What the commands of the server that this one follows may hold.
const SOURCE_BYTES: usize = 256 << 20;

/// Shared bytes of messages take at most this part of the memory for clients.
const FANOUT_SHARE: usize = 4;

/// What happened in the latest second.
#[derive(Debug, Default)]
pub(crate) struct Rates {
    pub(crate) commands: Figure,
    pub(crate) received: Figure,
    pub(crate) sent: Figure,
}

/// Names of commands.
#[derive(Debug)]
pub(crate) struct CommandNames {
    /// All, in the order of the table.
    pub(crate) all: Box<[&'static str]>,
    /// Those whose only key is their first argument.
    pub(crate) of_one_key: HashSet<&'static str>,
    /// Those that a source may send.
    pub(crate) streamed: HashSet<&'static str>,
}

/// What the cores of a server share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: Options,
    /// Of encrypted connections.
    pub(crate) tls: Option<TlsConfig>,
    /// Of links to a source, if they are encrypted; and the port that the source hears of then, at
    /// which this server accepts encrypted connections.
    pub(crate) source_tls: Option<(TlsClientConfig, u16)>,
    pub(crate) cores: Vec<CorePort>,
    /// Figures of each core.
    pub(crate) counters: Vec<CoreCounters>,
    pub(crate) reporter: EngineReporter,
    /// Of each command, by its place in the table.
    pub(crate) command_names: Box<[&'static str]>,
    /// Commands whose only key is their first argument.
    pub(crate) of_one_key: HashSet<&'static str>,
    /// Commands that the server which this one follows may send.
    pub(crate) streamed: HashSet<&'static str>,
    /// Identifies this run of the server.
    pub(crate) run_id: String,
    pub(crate) port: u16,
    pub(crate) started: Instant,
    /// Connections that are served or on their way to a core.
    pub(crate) connected: AtomicUsize,
    pub(crate) refused: AtomicU64,
    pub(crate) accepted: AtomicU64,
    /// Native connections that have proved the token.
    pub(crate) native_open: OpenClients,
    /// Connections that were closed because they were silent.
    pub(crate) idle_closed: AtomicU64,
    /// Connections that see the commands of all clients.
    pub(crate) monitors: AtomicUsize,
    /// Clients that wait for keys.
    pub(crate) waiting: Waiting,
    /// Events of keys that are sent.
    pub(crate) event_classes: SelectedClasses,
    /// Keys that shards have removed and whose events are not sent yet. It is locked while more are
    /// taken, until the events that are due are sent to all cores, and not unless such events are
    /// selected.
    pub(crate) removals_in_order: Mutex<HeldRemovals>,
    pub(crate) slow: SlowSettings,
    pub(crate) users: Users,
    /// Of clients that cache keys.
    pub(crate) tracking: Tracking,
    /// The pause of all clients.
    pub(crate) pause: Pause,
    /// Where wrong passwords come from.
    pub(crate) failing: FailingAddresses,
    pub(crate) encoding_limits: EncodingLimits,
    /// What clients may have the server hold.
    pub(crate) client_memory: Arc<ClientMemory>,
    /// What unauthenticated connections may.
    pub(crate) unauthenticated_memory: Arc<ClientMemory>,
    /// What the server may that this one follows.
    pub(crate) source_memory: Arc<ClientMemory>,
    /// What native clients may.
    pub(crate) native_memory: Arc<ClientMemory>,
    /// Of connections that come.
    pub(crate) keepalive: Keepalive,
    /// Places for long values that are written.
    pub(crate) long_places: LongPlaces,
    /// Messages of channels that subscribers share.
    pub(crate) fanout: Fanout,
    /// Bytes of a record's value, at most.
    pub(crate) value_bytes_max: usize,
    /// Which databases numbers mean.
    pub(crate) databases: Databases,
    /// A large value may exist.
    has_large_values: AtomicBool,
    /// Some keys are in far memory, or were a second ago.
    is_far_memory_used: AtomicBool,
    pub(crate) memory_limit: MemoryLimit,
    /// Snapshots, and what is refused because of them.
    pub(crate) saving: Arc<Saving>,
    /// Whether the server follows another one.
    pub(crate) replication: Replication,
    /// The map of its cluster, if it is a part of one.
    pub(crate) cluster: Option<CurrentMap>,
    /// The memory nodes of the engine's far memory.
    pub(crate) memory_nodes: Option<MemoryNodes>,
    /// The file of its settings, if it has one.
    pub(crate) settings_file: Option<SettingsFile>,
    pub(crate) rates: Rates,
    /// Figures when they were reset; those that are shown count from here.
    pub(crate) baseline: Mutex<Baseline>,
    next_client: AtomicU64,
    is_stopping: AtomicBool,
    /// A client has requested the server's end.
    is_asked_to_stop: AtomicBool,
    /// Whether it wants the data to be saved then: 0 if it does not say.
    asked_to_save: AtomicU8,
}

impl Shared {
    pub(crate) fn new(
        (options, tls): (Options, Option<TlsConfig>),
        cores: Vec<CorePort>,
        (reporter, durability, feed, value_bytes_max): (EngineReporter, Durability, Feed, usize),
        (run_id, port): (String, u16),
        names: CommandNames,
        users: Users,
    ) -> Self {
        let shares = Shares::of(&options, cores.len());
        let memory_of = |bytes| Arc::new(ClientMemory::new(bytes, cores.len()));
        let client_bytes = shares.client_bytes * cores.len();
        let client_memory = memory_of(client_bytes - client_bytes / ALLOCATOR_PARTS);
        let unauthenticated_memory = memory_of(shares.bytes * cores.len());
        let native_memory = ClientMemory::new(options.native.slot_bytes, cores.len());
        let native_memory = Arc::new(native_memory);
        // Those of an engine that others have filled may be long.
        let has_keys = reporter.stats().total.keys > 0;
        let long_places = LongPlaces::new(cores.len());
        let keepalive = Keepalive::new(options.tcp_keepalive);
        let replication = Replication::new(&options.replica, Box::new(feed));
        let saving = Saving::new(durability, reporter.clone(), options.data.clone());
        Self {
            fanout: Fanout::new(&client_memory, client_bytes / FANOUT_SHARE),
            options,
            tls,
            counters: cores.iter().map(|_| CoreCounters::default()).collect(),
            cores,
            reporter,
            command_names: names.all,
            of_one_key: names.of_one_key,
            streamed: names.streamed,
            run_id,
            port,
            started: Instant::now(),
            connected: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
            accepted: AtomicU64::new(0),
            native_open: OpenClients::default(),
            idle_closed: AtomicU64::new(0),
            monitors: AtomicUsize::new(0),
            waiting: Waiting::default(),
            event_classes: SelectedClasses::default(),
            removals_in_order: Mutex::default(),
            slow: SlowSettings::default(),
            users,
            tracking: Tracking::default(),
            pause: Pause::default(),
            failing: FailingAddresses::default(),
            encoding_limits: EncodingLimits::default(),
            client_memory,
            unauthenticated_memory,
            source_memory: Arc::new(ClientMemory::new(SOURCE_BYTES, 1)),
            native_memory,
            keepalive,
            long_places,
            value_bytes_max,
            databases: Databases::default(),
            has_large_values: AtomicBool::new(has_keys),
            is_far_memory_used: AtomicBool::new(true),
            memory_limit: MemoryLimit::default(),
            saving: Arc::new(saving),
            replication,
            cluster: None,
            memory_nodes: None,
            settings_file: None,
            source_tls: None,
            rates: Rates::default(),
            baseline: Mutex::default(),
            next_client: AtomicU64::new(1),
            is_stopping: AtomicBool::new(false),
            is_asked_to_stop: AtomicBool::new(false),
            asked_to_save: AtomicU8::new(0),
        }
    }

    /// True if a new connection has something to prove, before it counts as a client.
    pub(crate) fn is_unauthenticated(&self, is_encrypted: bool) -> bool {
        let needs_password = self.options.may_need_password() && !self.users.are_open();
        needs_password || self.options.needs_certificate(is_encrypted)
    }

    /// The number of the next client.
    pub(crate) fn next_client(&self) -> u64 {
        // ORDERING: relaxed; numbers only differ.
        self.next_client.fetch_add(1, Ordering::Relaxed)
    }

    /// Notes that a core's connection has ended.
    pub(crate) fn gone(&self, core: usize) {
        // ORDERING: relaxed, also below; they are counts, which order nothing.
        self.connected.fetch_sub(1, Ordering::Relaxed);
        self.cores[core].connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// Notes that a core's connection has authenticated, or ends without.
    pub(crate) fn no_longer_unauthenticated(&self, core: usize) {
        let unauthenticated = &self.cores[core].unauthenticated;
        unauthenticated.fetch_sub(1, Ordering::Relaxed);
    }

    /// Refuses a connection because there are too many.
    pub(crate) fn refuse(&self, mut stream: TcpStream, is_encrypted: bool) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        // Before its handshake a client could not read it. One that has gone does not.
        if !is_encrypted {
            let _ = stream.write_all(TOO_MANY);
        }
    }

    /// Notes that a native connection that had proved the token has ended.
    pub(crate) fn native_closed(&self) {
        self.native_open.leave();
    }

    /// Notes that a core's native connection has ended.
    pub(crate) fn native_gone(&self, core: usize) {
        let connections = &self.cores[core].native_connections;
        connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// True once a value of more than [`LARGE_BYTES`] may exist.
    #[inline]
    pub(crate) fn has_large_values(&self) -> bool {
        // ORDERING: relaxed; a core that sees it late is like one whose requests were under way
        // when the first large value was stored (I2 of `keys_under_way`).
        self.has_large_values.load(Ordering::Relaxed)
    }

    /// Notes that a value or a record of `bytes` is about to be stored, or was read.
    #[inline]
    pub(crate) fn note_value(&self, bytes: usize) {
        if bytes > LARGE_BYTES {
            self.note_large_value();
        }
    }

    /// Notes that a large value may exist.
    #[inline]
    pub(crate) fn note_large_value(&self) {
        if !self.has_large_values() {
            // ORDERING: relaxed; see `has_large_values`.
            self.has_large_values.store(true, Ordering::Relaxed);
        }
    }

    /// True if keys may be in far memory. One that has gone there within a second may be missed.
    pub(crate) fn is_far_memory_used(&self) -> bool {
        // ORDERING: relaxed; it decides what is read ahead, and nothing else is read by it.
        self.is_far_memory_used.load(Ordering::Relaxed)
    }

    /// Notes whether keys are in far memory.
    pub(crate) fn note_far_memory(&self) {
        let is_used = self.reporter.stats().far_used_bytes > 0;
        // ORDERING: relaxed; see `is_far_memory_used`.
        self.is_far_memory_used.store(is_used, Ordering::Relaxed);
    }

    /// Takes the map of the cluster's file if it is newer.
    pub(crate) fn look_at_map(&self) {
        let Some(cluster) = &self.cluster else {
            return;
        };
        match cluster.look() {
            Ok(None) => {}
            Ok(Some(version)) => {
                tracing::info!(version, "the map of the cluster was read anew");
                self.end_moved_waits();
                if cluster.now().1.own.is_none() {
                    tracing::warn!("this server is not in the map of the cluster");
                }
            }
            Err(error) => {
                tracing::warn!(%error, "the map of the cluster is not taken: the last one holds");
            }
        }
    }

    /// Has clients wait no more for keys that have another owner, or soon have.
    pub(crate) fn end_moved_waits(&self) {
        for core in &self.cores {
            core.send(Message::EndMovedWaits { start: 0 });
        }
    }

    /// True once nothing new is to be served.
    pub(crate) fn is_stopping(&self) -> bool {
        // ORDERING: relaxed; read each turn, and nothing else is read by it. A core that sleeps is
        // woken by `stop`.
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// Has every core end when it has answered what it accepted.
    pub(crate) fn stop(&self) {
        // ORDERING: sequentially consistent, before the swap of the sleep flag in `CorePort::wake`:
        // a core that this wakes sees it.
        self.is_stopping.store(true, Ordering::SeqCst);
        self.wake_all();
    }

    /// Wakes every core that sleeps.
    pub(crate) fn wake_all(&self) {
        for core in &self.cores {
            core.wake();
        }
    }

    /// Has every core answer a question, and gathers the answers.
    pub(crate) fn question_all<T>(
        &self,
        question: impl Fn(Answers<T>) -> Question,
    ) -> CoreAnswers<T> {
        let mut gathered = CoreAnswers::new();
        for core in &self.cores {
            core.send(Message::Question(question(gathered.expect())));
        }
        gathered
    }

    /// Has cores answer a question that is made for each by its place and where it has come to.
    pub(crate) fn question_each<T, P>(
        &self,
        wanted: impl Iterator<Item = (usize, P)>,
        question: impl Fn(P, Answers<T>) -> Question,
    ) -> CoreAnswers<T> {
        let mut gathered = CoreAnswers::new();
        for (place, progress) in wanted {
            let question = question(progress, gathered.expect());
            self.cores[place].send(Message::Question(question));
        }
        gathered
    }

    /// Sends a message of a channel to the cores that have subscribers; each answers how many have
    /// got it.
    pub(crate) fn publish(&self, message: &Arc<Publication>) -> CoreAnswers<usize> {
        let mut gathered = CoreAnswers::new();
        for core in &self.cores {
            if core.subscriptions.load(Ordering::Acquire) > 0 {
                core.send(Message::Publish(Arc::clone(message), gathered.expect()));
            }
        }
        gathered
    }

    /// Asks the owner of the server to stop it, with the data saved or not; `None`: if the rules
    /// say so.
    pub(crate) fn ask_to_stop(&self, saved: Option<bool>) {
        let code = saved.map_or(0, |saved| 1 + u8::from(saved));
        self.asked_to_save.store(code, Ordering::Relaxed);
        // ORDERING: relaxed; the owner looks again and again, and reads nothing by it.
        self.is_asked_to_stop.store(true, Ordering::Relaxed);
    }

    /// Whether a client wants the data to be saved at the end.
    pub(crate) fn asked_to_save(&self) -> Option<bool> {
        match self.asked_to_save.load(Ordering::Relaxed) {
            0 => None,
            code => Some(code == 2),
        }
    }

    pub(crate) fn is_asked_to_stop(&self) -> bool {
        // ORDERING: relaxed; see `ask_to_stop`.
        self.is_asked_to_stop.load(Ordering::Relaxed)
    }
}
