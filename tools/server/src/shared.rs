//! What the cores of a server share.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use farcore::EngineReporter;

use crate::counters::CoreCounters;
use crate::gathered::Gathered;
use crate::options::Options;
use crate::port::{CorePort, Message};
use crate::serving::Serving;

/// What the cores of a server share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: Options,
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
    next_client: AtomicU64,
    is_stopping: AtomicBool,
    /// A client has requested the server's end.
    is_asked_to_stop: AtomicBool,
}

impl Shared {
    pub(crate) fn new(
        options: Options,
        cores: Vec<CorePort>,
        reporter: EngineReporter,
        run_id: String,
        port: u16,
    ) -> Self {
        Self {
            options,
            counters: cores.iter().map(|_| CoreCounters::default()).collect(),
            cores,
            reporter,
            run_id,
            port,
            started: Instant::now(),
            connected: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
            accepted: AtomicU64::new(0),
            next_client: AtomicU64::new(1),
            is_stopping: AtomicBool::new(false),
            is_asked_to_stop: AtomicBool::new(false),
        }
    }

    /// The number of the next client.
    pub(crate) fn next_client(&self) -> u64 {
        self.next_client.fetch_add(1, Ordering::Relaxed)
    }

    /// Notes that a core's connection has ended.
    pub(crate) fn gone(&self, core: usize) {
        self.connected.fetch_sub(1, Ordering::Relaxed);
        self.cores[core].connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// True once nothing new is to be served.
    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// Has every core end when it has answered what it accepted.
    pub(crate) fn stop(&self) {
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
        self.is_asked_to_stop.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_asked_to_stop(&self) -> bool {
        self.is_asked_to_stop.load(Ordering::Relaxed)
    }
}
