//! What the cores of a server share.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use farcore::EngineReporter;

use crate::counters::{CoreCounters, Figure};
use crate::encoding_limits::EncodingLimits;
use crate::event_classes::SelectedClasses;
use crate::figures::ServerFigures;
use crate::gathered::Gathered;
use crate::memory_limit::MemoryLimit;
use crate::options::Options;
use crate::port::{CorePort, Message};
use crate::record_memory::LongestRecord;
use crate::serving::Serving;
use crate::shared_bytes::Fanout;
use crate::slow::SlowSettings;
use crate::tls::TlsConfig;
use crate::waiting::Waiting;

/// Shared bytes of messages take at most this part of the memory for clients.
const FANOUT_SHARE: usize = 4;

/// What happened in the latest second.
#[derive(Debug, Default)]
pub(crate) struct Rates {
    pub(crate) commands: Figure,
    pub(crate) received: Figure,
    pub(crate) sent: Figure,
}

/// Figures at one moment: the server's, and those of the engine that clients see.
#[derive(Clone, Debug, Default)]
pub(crate) struct Baseline {
    pub(crate) server: ServerFigures,
    pub(crate) gets: u64,
    pub(crate) gets_absent: u64,
    pub(crate) expired: u64,
    pub(crate) evicted: u64,
}

/// What the cores of a server share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: Options,
    /// Of encrypted connections.
    pub(crate) tls: Option<TlsConfig>,
    pub(crate) cores: Vec<CorePort>,
    /// Figures of each core.
    pub(crate) counters: Vec<CoreCounters>,
    pub(crate) reporter: EngineReporter,
    /// Identifies this run of the server.
    pub(crate) run_id: String,
    pub(crate) port: u16,
    pub(crate) started: Instant,
    /// Connections that are served or on their way to a core.
    pub(crate) connected: AtomicUsize,
    pub(crate) refused: AtomicU64,
    pub(crate) accepted: AtomicU64,
    /// Native connections that are served or on their way to a core.
    pub(crate) native_connected: AtomicUsize,
    /// Connections that were closed because they were silent.
    pub(crate) idle_closed: AtomicU64,
    /// Connections that see the commands of all clients.
    pub(crate) monitors: AtomicUsize,
    /// Clients that wait for keys.
    pub(crate) waiting: Waiting,
    /// Events of keys that are sent.
    pub(crate) event_classes: SelectedClasses,
    pub(crate) slow: SlowSettings,
    pub(crate) encoding_limits: EncodingLimits,
    pub(crate) longest_record: LongestRecord,
    /// Messages of channels that subscribers share.
    pub(crate) fanout: Fanout,
    /// Bytes of a record's value, at most.
    pub(crate) value_bytes_max: usize,
    /// A value of several pieces may exist.
    has_long_values: AtomicBool,
    pub(crate) memory_limit: MemoryLimit,
    pub(crate) rates: Rates,
    /// Figures when they were reset; those that are shown count from here.
    pub(crate) baseline: Mutex<Baseline>,
    next_client: AtomicU64,
    is_stopping: AtomicBool,
    /// A client has requested the server's end.
    is_asked_to_stop: AtomicBool,
}

impl Shared {
    pub(crate) fn new(
        (options, tls): (Options, Option<TlsConfig>),
        cores: Vec<CorePort>,
        (reporter, value_bytes_max): (EngineReporter, usize),
        run_id: String,
        port: u16,
    ) -> Self {
        // Those of an engine that others have filled may be long.
        let has_keys = reporter.stats().total.keys > 0;
        Self {
            fanout: Fanout::new(options.client_bytes / FANOUT_SHARE),
            options,
            tls,
            counters: cores.iter().map(|_| CoreCounters::default()).collect(),
            cores,
            reporter,
            run_id,
            port,
            started: Instant::now(),
            connected: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
            accepted: AtomicU64::new(0),
            native_connected: AtomicUsize::new(0),
            idle_closed: AtomicU64::new(0),
            monitors: AtomicUsize::new(0),
            waiting: Waiting::default(),
            event_classes: SelectedClasses::default(),
            slow: SlowSettings::default(),
            encoding_limits: EncodingLimits::default(),
            longest_record: LongestRecord::default(),
            value_bytes_max,
            has_long_values: AtomicBool::new(has_keys),
            memory_limit: MemoryLimit::default(),
            rates: Rates::default(),
            baseline: Mutex::default(),
            next_client: AtomicU64::new(1),
            is_stopping: AtomicBool::new(false),
            is_asked_to_stop: AtomicBool::new(false),
        }
    }

    /// The figures now.
    pub(crate) fn figures(&self) -> Baseline {
        let engine = self.reporter.stats().total;
        Baseline {
            server: ServerFigures::of(self),
            gets: engine.gets,
            gets_absent: engine.gets_absent,
            expired: engine.expired,
            evicted: engine.evicted,
        }
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

    /// Notes that a core's native connection has ended.
    pub(crate) fn native_gone(&self, core: usize) {
        self.native_connected.fetch_sub(1, Ordering::Relaxed);
        let connections = &self.cores[core].native_connections;
        connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// True once a value of several pieces may exist.
    #[inline]
    pub(crate) fn has_long_values(&self) -> bool {
        // ORDERING: relaxed; a core that sees it late is like one whose requests were under way
        // when the first long value was stored (I2 of `keys_under_way`).
        self.has_long_values.load(Ordering::Relaxed)
    }

    /// Notes that a value of several pieces is about to be stored.
    pub(crate) fn note_long_value(&self) {
        if !self.has_long_values() {
            // ORDERING: relaxed; see `has_long_values`.
            self.has_long_values.store(true, Ordering::Relaxed);
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

    /// Has every core do something in its loop, and gathers what it answers.
    pub(crate) fn ask_all<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&mut Serving) -> T + Clone + Send + 'static,
    ) -> Gathered<T> {
        self.ask_some(|_| true, ask)
    }

    /// The same for the cores that are wanted.
    pub(crate) fn ask_some<T: Send + 'static>(
        &self,
        is_wanted: impl Fn(&CorePort) -> bool,
        ask: impl FnOnce(&mut Serving) -> T + Clone + Send + 'static,
    ) -> Gathered<T> {
        let wanted: Vec<_> = self.cores.iter().filter(|core| is_wanted(core)).collect();
        let gathered = Gathered::new(wanted.len());
        for core in wanted {
            let (ask, answers) = (ask.clone(), gathered.answers());
            core.send(Message::Run(Box::new(move |serving| {
                answers.push(ask(serving));
            })));
        }
        gathered
    }

    /// Asks the owner of the server to stop it.
    pub(crate) fn ask_to_stop(&self) {
        // ORDERING: relaxed; the owner looks again and again, and reads nothing by it.
        self.is_asked_to_stop.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_asked_to_stop(&self) -> bool {
        // ORDERING: relaxed; see `ask_to_stop`.
        self.is_asked_to_stop.load(Ordering::Relaxed)
    }
}
