//! Starts and stops a memory node, from any thread.
//!
//! Owns the node's threads through [`NodeHandle`].
//!
//! - I1: the address is bound first and the memory registered next; clients are served only after
//!   both.
//! - I2: a start that fails half-way stops what it has started. Dropping the handle stops the node.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tracing::info;

use super::bytes::NodeBytes;
#[cfg(feature = "verbs")]
use super::cm;
use super::lobby;
use super::memory::{MemoryError, MemoryOptions, NodeMemory, Registered};
use super::procedures::Procedures;
use super::serve;
use super::service::{self, Service};
use super::session::NodeLine;
use super::sessions::{Sessions, Terms};
use crate::address::Scheme;
use crate::control::Token;
use crate::control::{KEEP_MAX, LEASE_MAX, LEASE_MIN, NodeStatistics};
use crate::fabric::VerbsOptions;
use crate::pool::OwnerId;
use crate::tcp::{Access, RemoteRange, TcpAddress};
#[cfg(feature = "verbs")]
use crate::verbs::{CmListener, Context, VerbsError};
use crate::work::RemoteSlice;

const THREADS_MAX: usize = 1024;

/// Settings of a memory node.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// The address to listen on; port 0 means any free port.
    pub listen: SocketAddr,
    /// The transport by which clients access its memory.
    pub scheme: Scheme,
    /// Device and queue pair settings, if that is over an RDMA device.
    pub verbs: VerbsOptions,
    /// The memory that it lends.
    pub memory: MemoryOptions,
    /// The token that clients must know. Without one, any client that can connect may use its
    /// memory.
    pub token: Option<Token>,
    /// Keep each session to its own extents, and clear an extent before it becomes free. Over TCP
    /// only.
    pub isolate: bool,
    /// The lease: how long a session lives without a request; from [`LEASE_MIN`] to [`LEASE_MAX`].
    pub lease: Duration,
    /// How long a session and its extents are kept after its lease, at most [`KEEP_MAX`], for a
    /// client that was only stopped and resumes. A session whose client has closed its control
    /// connection, as the kernel does when a process ends, is not kept. 0 keeps none.
    pub keep: Duration,
    /// Interval at which the table is mended after clients died during a claim. It must be long
    /// compared with a claim.
    pub mend_pace: Duration,
    /// Threads that serve connections.
    pub threads: usize,
    /// Limit on the open sessions.
    pub sessions_max: usize,
    /// Limit on the control connections, and again on the memory connections.
    pub connections_max: u64,
    /// Limit on the connections that have not sent a connect request, at least one. When all
    /// places are taken, the address that holds most of them loses its oldest.
    pub silent_max: usize,
    /// Limit on the connections that have sent a connect request and have not authenticated
    /// themselves: one half for those that have not said hello, one for those that have; at least
    /// two. When all places of a half are taken, the address that holds most of them loses its
    /// oldest.
    pub unauthenticated_max: usize,
    /// What the host's program does for clients.
    pub procedures: Procedures,
    /// Time limit for each step of a handshake, and for freeing extents before a farewell.
    pub handshake_limit: Duration,
}

impl NodeOptions {
    /// Defaults: one thread, no token, a lease of 30 seconds, after which a session is kept for 5
    /// minutes: longer than a virtual machine is usually paused or a stopped process is inspected,
    /// and not longer than the memory of a host that lost power should lie idle.
    #[must_use]
    pub fn new(listen: SocketAddr, memory: MemoryOptions) -> Self {
        Self {
            listen,
            scheme: Scheme::Tcp,
            verbs: VerbsOptions::default(),
            memory,
            token: None,
            isolate: false,
            lease: Duration::from_secs(30),
            keep: Duration::from_mins(5),
            mend_pace: Duration::from_secs(10),
            threads: 1,
            sessions_max: 1024,
            connections_max: 4096,
            silent_max: 1024,
            unauthenticated_max: 2048,
            procedures: Procedures::new(),
            handshake_limit: Duration::from_secs(5),
        }
    }
}

/// Why a memory node did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A setting is out of range.
    #[error("{what} is {value}: must be {bounds}")]
    Setting {
        /// The setting.
        what: &'static str,
        /// The value given.
        value: String,
        /// The valid range.
        bounds: String,
    },
    /// The address cannot be bound.
    #[error("cannot listen on {address}: {source}{}", remedy(source))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// This build has no verbs.
    #[error("this build has no verbs: rebuild with `--features verbs`")]
    NoVerbs,
    /// The device cannot be used with these settings.
    #[cfg(feature = "verbs")]
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    /// The memory cannot be registered.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// A thread or its executor cannot be started.
    #[error(
        "cannot start thread {index}: {reason}; each needs io_uring (Linux 5.8) and 512 KiB of locked memory (`ulimit -l`)"
    )]
    Thread {
        /// The thread's index.
        index: usize,
        /// The reason.
        reason: String,
    },
    /// The kernel provides no random numbers.
    #[error("cannot get random numbers from the kernel: {0}")]
    Random(io::Error),
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            ": stop another memory node on this port or listen on another port"
        }
        io::ErrorKind::AddrNotAvailable => ": give an address of this machine",
        io::ErrorKind::PermissionDenied => ": ports below 1024 need root, use a higher port",
        _ => "",
    }
}

/// Starts memory nodes.
#[derive(Debug)]
pub struct MemoryNode;

impl MemoryNode {
    /// Binds the address, registers the memory and serves. Returns when clients can connect.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(options: NodeOptions) -> Result<NodeHandle, StartError> {
        Self::start_with(options, &|_| {})
    }

    /// Binds the address, registers the memory and serves; `progress` is called for each region, on
    /// several threads. Returns when clients can connect.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start_with(
        options: NodeOptions,
        progress: &(dyn Fn(Registered) + Sync),
    ) -> Result<NodeHandle, StartError> {
        check_settings(&options)?;
        // The address first: binding it is cheap and often fails.
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
        // From here on, a failure stops what has been started.
        let mut handle = NodeHandle {
            node,
            address: bound,
            threads: vec![keeper],
        };
        let (senders, backlogs): (Vec<_>, Vec<_>) = (0..threads).map(|_| serve::backlog()).unzip();
        for (index, backlog) in backlogs.into_iter().enumerate() {
            let thread = serve::executor(index, backlog, &handle.node, &maintenance)?;
            handle.threads.push(thread);
        }
        handle
            .threads
            .push(lobby::start(&handle.node, &maintenance, address, senders)?);
        #[cfg(feature = "verbs")]
        if let Some(listener) = listener {
            let thread = cm::thread(listener, &handle.node, &maintenance)?;
            handle.threads.push(thread);
        }
        info!(address = %bound, threads, "the memory node is serving");
        Ok(handle)
    }
}

/// Checks the settings that do not depend on the memory or a device.
fn check_settings(options: &NodeOptions) -> Result<(), StartError> {
    let setting = |what, value: String, bounds: String| StartError::Setting {
        what,
        value,
        bounds,
    };
    if !(1..=THREADS_MAX).contains(&options.threads) {
        let bounds = format!("1 to {THREADS_MAX}");
        return Err(setting("threads", options.threads.to_string(), bounds));
    }
    if options.isolate && options.scheme != Scheme::Tcp {
        let bounds =
            "off over RDMA, because a device does not check who owns an extent: lend over tcp://";
        return Err(setting(
            "the isolation of sessions",
            "on".to_owned(),
            bounds.to_owned(),
        ));
    }
    if !(LEASE_MIN..=LEASE_MAX).contains(&options.lease) {
        let (least, most) = (LEASE_MIN.as_secs(), LEASE_MAX.as_secs() / 3600);
        let bounds = format!("{least}s to {most}h");
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
            "the interval of mending",
            value,
            "at least 1 ms".to_owned(),
        ));
    }
    Ok(())
}

/// Opens the device and, for RDMA-CM, listens at the port that was bound.
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
                        "no RDMA device has this address: `farcore fabric devices` lists the devices",
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

/// The memory is not the session's own, or the session is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the memory is not the session's own, or the session is over")]
pub struct NotPermitted;

/// A serving memory node. Dropping this stops it.
#[derive(Debug)]
pub struct NodeHandle {
    node: Arc<Service>,
    address: SocketAddr,
    threads: Vec<JoinHandle<()>>,
}

impl NodeHandle {
    /// The address that it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether all of its memory is locked.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.node.memory().is_locked()
    }

    /// A reader of its figures, for any thread, also after the node has stopped.
    #[must_use]
    pub fn metrics(&self) -> NodeMetrics {
        NodeMetrics(Arc::clone(&self.node))
    }

    /// Random in each start of a node, so that memory of an earlier start is not taken for its own.
    #[must_use]
    pub fn incarnation(&self) -> u32 {
        self.node.sessions().incarnation()
    }

    /// Reads memory of a session of this node, without a request. Not atomic: clients may write it
    /// meanwhile. Cost: a lock of the sessions.
    ///
    /// # Errors
    /// [`NotPermitted`].
    pub fn read(
        &self,
        session: OwnerId,
        from: RemoteSlice,
        into: &mut [u8],
    ) -> Result<(), NotPermitted> {
        let bytes = self.bytes(session, Access::Read, from, into.len())?;
        bytes.read(0, into).map_err(|_| NotPermitted)
    }

    /// Writes memory of a session of this node, without a request. Not atomic: clients may read it
    /// meanwhile. Cost: a lock of the sessions.
    ///
    /// # Errors
    /// As [`NodeHandle::read`].
    pub fn write(
        &self,
        session: OwnerId,
        to: RemoteSlice,
        from: &[u8],
    ) -> Result<(), NotPermitted> {
        let bytes = self.bytes(session, Access::Write, to, from.len())?;
        bytes.write(0, from).map_err(|_| NotPermitted)
    }

    fn bytes(
        &self,
        session: OwnerId,
        access: Access,
        slice: RemoteSlice,
        bytes: usize,
    ) -> Result<NodeBytes, NotPermitted> {
        let range = RemoteRange {
            key: slice.key,
            offset: slice.offset,
            bytes: u32::try_from(bytes).map_err(|_| NotPermitted)?,
        };
        NodeBytes::new(self.node.keeper(), session, access, range).ok_or(NotPermitted)
    }

    /// Has the node leave: it opens no session and grants no chunk, and its clients hear of it with
    /// their next heartbeat, at the latest after a quarter of the lease. They claim nothing from
    /// then on, and move what they can to other nodes. The node serves until it is stopped;
    /// [`NodeMetrics::leave_progress`] says when nothing is left on it. False if it did so before.
    pub fn leave(&self) -> bool {
        self.node.leave()
    }

    /// Stops listening, ends all connections, and waits until they have ended. Procedures are not
    /// waited for.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.node.stop();
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // The panic hook has reported its panic. Wait for the other threads all the same.
            let _ = thread.join();
        }
    }
}

impl Drop for NodeHandle {
    fn drop(&mut self) {
        self.end();
    }
}

/// How far a node is that leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LeaveProgress {
    /// Open sessions, those kept after their lease and those being reclaimed included.
    pub sessions: u64,
    /// Extents that sessions hold.
    pub extents: u64,
    /// No session holds an extent, and each client has heard that the node leaves, is silent, or
    /// has had a lease to hear of it.
    pub has_left: bool,
}

/// Reads a memory node's figures.
#[derive(Clone, Debug)]
pub struct NodeMetrics(Arc<Service>);

impl NodeMetrics {
    /// All figures at this moment. Cost: reads the bitmap of the table.
    #[must_use]
    pub fn statistics(&self) -> NodeStatistics {
        self.0.statistics()
    }

    /// How far a node is that leaves; `None` of one that stays. Cost: a lock of the sessions, and
    /// reads the bitmap of the table.
    #[must_use]
    pub fn leave_progress(&self) -> Option<LeaveProgress> {
        self.0.leave_progress()
    }

    /// Whether the node leaves.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.0.is_leaving()
    }

    /// Memory that answers take which clients have not read, in bytes.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.0.metrics().served.held_bytes()
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
