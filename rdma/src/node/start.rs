//! Starting and stopping a memory node, from any thread.
//!
//! - I1: the address is taken first and the memory registered next; clients are served only when
//!   both are there.
//! - I2: a start that fails half-way stops what it began; a handle that is dropped stops the node.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tracing::info;

#[cfg(feature = "verbs")]
use super::cm;
use super::memory::{MemoryError, MemoryOptions, NodeMemory, Registered};
use super::serve;
use super::service::{self, Service};
use super::session::NodeLine;
use super::sessions::{Sessions, Terms};
use crate::address::Scheme;
use crate::control::Token;
use crate::control::{KEEP_MAX, LEASE_MAX, LEASE_MIN, NodeStatistics};
use crate::fabric::VerbsOptions;
use crate::tcp::TcpAddress;
#[cfg(feature = "verbs")]
use crate::verbs::{CmListener, Context, VerbsError};

const THREADS_MAX: usize = 1024;

/// What a memory node is to be like.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// Where it listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// How its memory is reached.
    pub scheme: Scheme,
    /// Device and queue pairs, where that is over an RDMA device.
    pub verbs: VerbsOptions,
    /// What it lends.
    pub memory: MemoryOptions,
    /// What its clients must know; without one anybody who can connect may use its memory.
    pub token: Option<Token>,
    /// How long a session lives without a request: from [`LEASE_MIN`] to [`LEASE_MAX`].
    pub lease: Duration,
    /// How long a session is kept after its lease, its extents with it, at most [`KEEP_MAX`]: a
    /// client that was only stopped finds them when it comes back. Not kept is one whose client has
    /// closed its control connection, as the kernel does when a process ends. 0 keeps none.
    pub keep: Duration,
    /// How often the table is mended where deaths left it wrong: long against a claim.
    pub mend_pace: Duration,
    /// Threads that serve connections.
    pub threads: usize,
    /// Sessions at a time.
    pub sessions_max: usize,
    /// Control connections at a time, and as many memory connections again.
    pub connections_max: u64,
    /// Connections that have not yet proved anything, at a time; each thread has its share of them,
    /// one at least. The oldest makes room for the next.
    pub strangers_max: usize,
    /// How long one of these may take at each step.
    pub handshake_limit: Duration,
}

impl NodeOptions {
    /// Where nothing else is said: one thread, no token, a lease of 30 seconds, after which a
    /// session is kept for 5 minutes: longer than a virtual machine is paused for, or somebody
    /// looks at a process that is stopped, and no longer than memory of a host that has lost its
    /// power should be idle.
    #[must_use]
    pub fn new(listen: SocketAddr, memory: MemoryOptions) -> Self {
        Self {
            listen,
            scheme: Scheme::Tcp,
            verbs: VerbsOptions::default(),
            memory,
            token: None,
            lease: Duration::from_secs(30),
            keep: Duration::from_mins(5),
            mend_pace: Duration::from_secs(10),
            threads: 1,
            sessions_max: 1024,
            connections_max: 4096,
            strangers_max: 64,
            handshake_limit: Duration::from_secs(5),
        }
    }
}

/// Why a memory node does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A setting is out of bounds.
    #[error("{what} is {value}: must be {bounds}")]
    Setting {
        /// Which.
        what: &'static str,
        /// Its value.
        value: String,
        /// Its bounds.
        bounds: String,
    },
    /// It cannot listen.
    #[error("cannot listen on {address}: {source}{}", remedy(source))]
    Listen {
        /// Where.
        address: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
    /// This build has no verbs.
    #[error("this build has no verbs: build it with `--features verbs`")]
    NoVerbs,
    /// The device cannot be used as asked.
    #[cfg(feature = "verbs")]
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    /// There is no memory to lend.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// A thread or its executor cannot be had.
    #[error(
        "cannot start thread {index}: {reason}; each needs io_uring (Linux 5.8) and 512 KiB of locked memory (`ulimit -l`)"
    )]
    Thread {
        /// Which.
        index: usize,
        /// Why.
        reason: String,
    },
    /// The kernel has no random numbers.
    #[error("no random numbers: {0}")]
    Random(io::Error),
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; is another memory node running? Stop it or listen on another port"
        }
        io::ErrorKind::AddrNotAvailable => "; give an address of this machine",
        io::ErrorKind::PermissionDenied => "; ports below 1024 are for root: take a higher one",
        _ => "",
    }
}

/// Starts memory nodes.
#[derive(Debug)]
pub struct MemoryNode;

impl MemoryNode {
    /// Takes the address, registers the memory and serves. Answers when clients can connect.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(options: NodeOptions) -> Result<NodeHandle, StartError> {
        Self::start_with(options, &|_| {})
    }

    /// The same; `progress` is told of each region, from several threads.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start_with(
        options: NodeOptions,
        progress: &(dyn Fn(Registered) + Sync),
    ) -> Result<NodeHandle, StartError> {
        let setting = |what, value: String, bounds: String| StartError::Setting {
            what,
            value,
            bounds,
        };
        if !(1..=THREADS_MAX).contains(&options.threads) {
            let bounds = format!("1 to {THREADS_MAX}");
            return Err(setting("threads", options.threads.to_string(), bounds));
        }
        if !(LEASE_MIN..=LEASE_MAX).contains(&options.lease) {
            let bounds = format!(
                "{}s to {}h",
                LEASE_MIN.as_secs(),
                LEASE_MAX.as_secs() / 3600
            );
            return Err(setting("the lease", format!("{:?}", options.lease), bounds));
        }
        if options.keep > KEEP_MAX {
            let bounds = format!("0s to {} days", KEEP_MAX.as_secs() / 86_400);
            return Err(setting(
                "the time that sessions are kept",
                format!("{:?}", options.keep),
                bounds,
            ));
        }
        if options.mend_pace < Duration::from_millis(1) {
            let value = format!("{} ns", options.mend_pace.as_nanos());
            return Err(setting(
                "the pace of mending",
                value,
                "at least 1 ms".to_owned(),
            ));
        }
        // First the address: it is cheap, and often what is wrong.
        let listen = |source| StartError::Listen {
            address: options.listen,
            source,
        };
        let address = TcpAddress::bind(options.listen).map_err(listen)?;
        let bound = address.local_address().map_err(listen)?;
        let incarnation = Sessions::<NodeLine>::random_incarnation().map_err(StartError::Random)?;
        #[cfg(feature = "verbs")]
        let (listener, device) = listen_by_verbs(&options, bound)?;
        #[cfg(not(feature = "verbs"))]
        if options.scheme != Scheme::Tcp {
            return Err(StartError::NoVerbs);
        }
        #[cfg(feature = "verbs")]
        let memory = match &device {
            Some(context) => {
                NodeMemory::register_on(context, &options.verbs, &options.memory, progress)?
            }
            None => NodeMemory::register(&options.memory, progress)?,
        };
        #[cfg(not(feature = "verbs"))]
        let memory = NodeMemory::register(&options.memory, progress)?;
        let threads = options.threads;
        let sessions = Sessions::new(
            incarnation,
            Terms {
                lease_ns: service::nanoseconds(options.lease),
                keep_ns: service::nanoseconds(options.keep),
            },
            options.sessions_max,
        );
        let node = Arc::new(Service::new(options, memory, sessions));
        let keeper = serve::start_maintenance(&node)?;
        let maintenance = keeper.thread().clone();
        // From here on whatever fails stops what has begun.
        let mut handle = NodeHandle {
            node,
            address: bound,
            threads: vec![keeper],
        };
        let (doors, lobbies): (Vec<_>, Vec<_>) = (0..threads).map(|_| serve::lobby()).unzip();
        let mut accepting = Some((address, doors));
        for (index, lobby) in lobbies.into_iter().enumerate() {
            let thread =
                serve::executor(index, lobby, accepting.take(), &handle.node, &maintenance)?;
            handle.threads.push(thread);
        }
        #[cfg(feature = "verbs")]
        if let Some(listener) = listener {
            let thread = cm::thread(listener, &handle.node, &maintenance)?;
            handle.threads.push(thread);
        }
        info!(address = %bound, threads, "memory node serves");
        Ok(handle)
    }
}

/// Listens by RDMA-CM where that is asked, at the port that was bound, and opens the device.
#[cfg(feature = "verbs")]
fn listen_by_verbs(
    options: &NodeOptions,
    bound: SocketAddr,
) -> Result<(Option<CmListener>, Option<Arc<Context>>), StartError> {
    let mut wanted = options.verbs.clone();
    let listener = match options.scheme {
        Scheme::Tcp => return Ok((None, None)),
        Scheme::RdmaTcp => None,
        Scheme::Rdma => {
            let listener = CmListener::bind(bound).map_err(|source| StartError::Listen {
                address: bound,
                source: match source.raw_os_error() {
                    Some(libc::ENODEV) => io::Error::new(
                        io::ErrorKind::AddrNotAvailable,
                        "no RDMA device has the address: `farcore fabric devices` lists those there are",
                    ),
                    _ => source,
                },
            })?;
            wanted.device = wanted.device.or_else(|| listener.device());
            Some(listener)
        }
    };
    let context = Context::open(&wanted)?;
    if let Some(reached) = listener.as_ref().and_then(CmListener::device)
        && reached != context.name()
    {
        return Err(StartError::Verbs(VerbsError::Route {
            address: bound,
            reached,
            opened: context.name().to_owned(),
        }));
    }
    Ok((listener, Some(context)))
}

/// A memory node that serves. It stops when this is dropped.
#[derive(Debug)]
pub struct NodeHandle {
    node: Arc<Service>,
    address: SocketAddr,
    threads: Vec<JoinHandle<()>>,
}

impl NodeHandle {
    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether all of its memory is locked.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.node.memory().is_locked()
    }

    /// What reads its figures, on any thread, also after it has stopped.
    #[must_use]
    pub fn metrics(&self) -> NodeMetrics {
        NodeMetrics(Arc::clone(&self.node))
    }

    /// Ends listening and all connections, and waits for that.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.node.stop();
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // Its panic has been told by the hook; the others are to be waited for all the same.
            let _ = thread.join();
        }
    }
}

impl Drop for NodeHandle {
    fn drop(&mut self) {
        self.end();
    }
}

/// Reads a memory node's figures.
#[derive(Clone, Debug)]
pub struct NodeMetrics(Arc<Service>);

impl NodeMetrics {
    /// All of them at this moment. Cost: reads the bitmap of the table.
    #[must_use]
    pub fn statistics(&self) -> NodeStatistics {
        self.0.statistics()
    }

    /// Refusals by reason.
    pub fn refusals(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0.metrics().refusals()
    }

    /// False once it is about to stop.
    #[must_use]
    pub fn is_serving(&self) -> bool {
        !self.0.is_stopping()
    }
}
