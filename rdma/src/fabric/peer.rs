//! Connections between equal peers, which send each other messages and access memory that the other
//! exposes: the fabric of a server and its clients.
//!
//! Each connection is an endpoint of its own with one queue pair, so it has its own protection
//! domain, regions and keys: a key of one connection reaches nothing of another's.
//!
//! ```text
//! PeerListener (any thread) -> PeerArrival -> PeerEndpoint::accept (the thread that uses it)
//!                                             PeerEndpoint::connect
//! ```
//!
//! - I1: a peer accesses memory only after [`PeerEndpoint::expose`], and no other.
//! - I2: on sockets, nothing that this side posts leaves before [`PeerEndpoint::flush`]; on a
//!   device it leaves at [`PeerEndpoint::ring`].

#![allow(unsafe_code)] // lends descriptors that the endpoint keeps open

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "verbs")]
use super::FabricOptions;
use super::{Endpoint, FabricEndpoint, FabricError, PostError, VerbsOptions};
use crate::address::{FabricAddress, Scheme};
use crate::fabric::{QueuePairState, RegisterError};
use crate::region::Region;
use crate::tcp::{self, ConnectError, ConnectRequest, Exposed, Purpose, TcpAddress, TcpEndpoint};
#[cfg(feature = "verbs")]
use crate::verbs;
use crate::work::{Completion, LocalKey, RemoteKey, WorkRequest};

/// Settings of a connection between equal peers.
#[derive(Clone, Debug)]
pub struct PeerOptions {
    /// Requests in flight at once, and receives.
    pub depth: usize,
    /// How long the peer may leave all requests unanswered before it counts as lost, in
    /// nanoseconds.
    pub limit_ns: u64,
    /// Device and queue pair settings; without effect on sockets.
    pub verbs: VerbsOptions,
}

#[cfg(feature = "verbs")]
impl PeerOptions {
    fn fabric(&self) -> FabricOptions {
        FabricOptions {
            queues: 1,
            depth: self.depth,
            limit_ns: self.limit_ns,
            verbs: self.verbs.clone(),
        }
    }
}

/// Where peers connect. Accepts without waiting, on any thread.
#[derive(Debug)]
pub struct PeerListener {
    listener: Listener,
    address: SocketAddr,
    scheme: Scheme,
}

#[derive(Debug)]
enum Listener {
    Socket(std::net::TcpListener),
    #[cfg(feature = "verbs")]
    Exchange(std::net::TcpListener, Arc<verbs::Context>),
    #[cfg(feature = "verbs")]
    Manager(verbs::CmPeers),
}

/// A connection on its way to the thread that uses it.
#[derive(Debug)]
pub struct PeerArrival {
    arrival: Arrival,
    peer: SocketAddr,
}

#[derive(Debug)]
enum Arrival {
    Socket(tcp::Accepted),
    #[cfg(feature = "verbs")]
    Exchange(tcp::Accepted, Arc<verbs::Context>),
    #[cfg(feature = "verbs")]
    Manager(verbs::CmPeerArrival),
}

impl PeerArrival {
    /// The peer's address.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }
}

impl PeerListener {
    /// Listens at an address whose host is a number. A device is opened here, once for all
    /// connections.
    ///
    /// # Errors
    /// The system's error, or that this build or machine has no verbs.
    pub fn bind(address: &FabricAddress, options: &PeerOptions) -> io::Result<Self> {
        let host = address.host().parse().map_err(|_| {
            let what = format!("{address}: listen at an address in numbers, e.g. 127.0.0.1");
            io::Error::new(io::ErrorKind::InvalidInput, what)
        })?;
        let place = SocketAddr::new(host, address.port());
        let scheme = address.scheme();
        #[cfg(not(feature = "verbs"))]
        let _ = options;
        let (listener, address) = match scheme {
            Scheme::Tcp => {
                let (listener, address) = listen(place)?;
                (Listener::Socket(listener), address)
            }
            #[cfg(feature = "verbs")]
            Scheme::RdmaTcp => {
                let context = verbs::Context::open(&options.verbs).map_err(io::Error::other)?;
                let (listener, address) = listen(place)?;
                (Listener::Exchange(listener, context), address)
            }
            #[cfg(feature = "verbs")]
            Scheme::Rdma => {
                let peers = verbs::CmPeers::bind(place, &options.verbs)?;
                let address = peers.local_address();
                (Listener::Manager(peers), address)
            }
            #[cfg(not(feature = "verbs"))]
            Scheme::Rdma | Scheme::RdmaTcp => {
                return Err(io::Error::other(FabricError::NoVerbs(address.clone())));
            }
        };
        Ok(Self {
            listener,
            address,
            scheme,
        })
    }

    /// Where peers connect: the scheme and the bound address.
    #[must_use]
    pub fn local_address(&self) -> (Scheme, SocketAddr) {
        (self.scheme, self.address)
    }

    /// Sets how many connections the system keeps until they are accepted, at most
    /// `net.core.somaxconn`. One for RDMA-CM has its own.
    ///
    /// # Errors
    /// The system's error.
    pub fn set_backlog(&self, backlog: u32) -> io::Result<()> {
        let backlog = i32::try_from(backlog).unwrap_or(i32::MAX);
        match &self.listener {
            Listener::Socket(listener) => rustix::net::listen(listener, backlog)?,
            #[cfg(feature = "verbs")]
            Listener::Exchange(listener, _) => rustix::net::listen(listener, backlog)?,
            #[cfg(feature = "verbs")]
            Listener::Manager(_) => {}
        }
        Ok(())
    }

    /// The next connection; `None` if there is none now.
    ///
    /// # Errors
    /// The system's error; later connections may still be accepted.
    pub fn accept(&self) -> io::Result<Option<PeerArrival>> {
        match &self.listener {
            Listener::Socket(listener) => Ok(take(listener)?.map(|(accepted, peer)| PeerArrival {
                arrival: Arrival::Socket(accepted),
                peer,
            })),
            #[cfg(feature = "verbs")]
            Listener::Exchange(listener, context) => {
                Ok(take(listener)?.map(|(accepted, peer)| PeerArrival {
                    arrival: Arrival::Exchange(accepted, Arc::clone(context)),
                    peer,
                }))
            }
            #[cfg(feature = "verbs")]
            Listener::Manager(peers) => Ok(peers.accept()?.map(|arrival| PeerArrival {
                peer: arrival.peer(),
                arrival: Arrival::Manager(arrival),
            })),
        }
    }
}

impl AsFd for PeerListener {
    /// Readable when a connection waits.
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.listener {
            Listener::Socket(listener) => listener.as_fd(),
            #[cfg(feature = "verbs")]
            Listener::Exchange(listener, _) => listener.as_fd(),
            #[cfg(feature = "verbs")]
            Listener::Manager(peers) => peers.as_fd(),
        }
    }
}

fn listen(place: SocketAddr) -> io::Result<(std::net::TcpListener, SocketAddr)> {
    let address = TcpAddress::bind(place)?;
    let bound = address.local_address()?;
    let listener = address.into_listener();
    listener.set_nonblocking(true)?;
    Ok((listener, bound))
}

fn take(listener: &std::net::TcpListener) -> io::Result<Option<(tcp::Accepted, SocketAddr)>> {
    match listener.accept() {
        Ok((stream, peer)) => Ok(Some((stream.into(), peer))),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// Why a peer cannot be reached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// The connection cannot be established.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The fabric cannot be used.
    #[error(transparent)]
    Fabric(#[from] FabricError),
}

/// One connection with an equal peer. Belongs to the thread that made it.
#[derive(Debug)]
pub struct PeerEndpoint {
    endpoint: FabricEndpoint,
    peer: SocketAddr,
}

impl PeerEndpoint {
    /// Accepts a connection on the calling executor. Has no time limit of its own.
    ///
    /// # Errors
    /// The connection's error, or that the peer does not want this.
    pub async fn accept(arrival: PeerArrival, options: &PeerOptions) -> io::Result<Self> {
        let peer = arrival.peer;
        let endpoint = match arrival.arrival {
            Arrival::Socket(accepted) => {
                let incoming = accepted.arrive()?.request().await?;
                let mut endpoint = sockets(options);
                let slot = endpoint.connection_slot(0);
                slot.offer(incoming.accept_peer().await?);
                endpoint.renew(0);
                FabricEndpoint::Tcp(endpoint)
            }
            #[cfg(feature = "verbs")]
            Arrival::Exchange(accepted, context) => {
                let mut endpoint = device(&context, options)?;
                let slot = endpoint.connection_slot(0);
                let incoming = accepted.arrive()?.request().await?;
                slot.offer(verbs::accept_peer(slot.adapter(), incoming).await?);
                endpoint.renew(0);
                FabricEndpoint::Verbs(endpoint)
            }
            #[cfg(feature = "verbs")]
            Arrival::Manager(arrival) => {
                let mut endpoint = device(arrival.context(), options)?;
                let slot = endpoint.connection_slot(0);
                slot.offer(arrival.accept(slot.adapter())?);
                endpoint.renew(0);
                FabricEndpoint::Verbs(endpoint)
            }
        };
        Ok(Self { endpoint, peer })
    }

    /// Connects to a listener, on the calling executor.
    ///
    /// # Errors
    /// [`PeerError`].
    pub async fn connect(
        address: &FabricAddress,
        options: &PeerOptions,
        limit: Duration,
    ) -> Result<Self, PeerError> {
        let place = tcp::resolve(address.host(), address.port()).await?;
        let request = ConnectRequest::new(Purpose::Peer);
        let endpoint = match address.scheme() {
            Scheme::Tcp => {
                let mut endpoint = sockets(options);
                let connected = tcp::connect_queue(place, &request, limit).await?;
                endpoint.connection_slot(0).offer(connected);
                endpoint.renew(0);
                FabricEndpoint::Tcp(endpoint)
            }
            #[cfg(feature = "verbs")]
            Scheme::RdmaTcp => {
                let context = verbs::Context::open(&options.verbs).map_err(FabricError::from)?;
                let mut endpoint =
                    device(&context, options).map_err(|source| refused(place, source))?;
                let slot = endpoint.connection_slot(0);
                slot.offer(
                    verbs::connect_by_exchange(slot.adapter(), place, &request, limit).await?,
                );
                endpoint.renew(0);
                FabricEndpoint::Verbs(endpoint)
            }
            #[cfg(feature = "verbs")]
            Scheme::Rdma => {
                let mut wanted = options.verbs.clone();
                if wanted.device.is_none() {
                    wanted.device = Some(verbs::device_for(place, limit).await?);
                }
                let context = verbs::Context::open(&wanted).map_err(FabricError::from)?;
                let mut endpoint =
                    device(&context, options).map_err(|source| refused(place, source))?;
                let slot = endpoint.connection_slot(0);
                slot.offer(verbs::connect_by_cm(slot.adapter(), place, &request, limit).await?);
                endpoint.renew(0);
                FabricEndpoint::Verbs(endpoint)
            }
            #[cfg(not(feature = "verbs"))]
            Scheme::Rdma | Scheme::RdmaTcp => {
                return Err(FabricError::NoVerbs(address.clone()).into());
            }
        };
        Ok(Self {
            endpoint,
            peer: place,
        })
    }

    /// The peer's address.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Whether it is carried by a device rather than a socket.
    #[must_use]
    pub fn is_device(&self) -> bool {
        !matches!(self.endpoint, FabricEndpoint::Tcp(_))
    }

    /// True while requests are accepted.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.endpoint.state(0) == QueuePairState::ReadyToSend
    }

    /// Registers memory for this side's own requests and receives.
    ///
    /// # Errors
    /// [`RegisterError`].
    pub fn register(&mut self, region: Arc<Region>) -> Result<LocalKey, RegisterError> {
        match &mut self.endpoint {
            #[cfg(feature = "verbs")]
            FabricEndpoint::Verbs(endpoint) => endpoint.register_for(region, verbs::Access::Local),
            endpoint => endpoint.register(region),
        }
    }

    /// Registers memory that the peer may access from now on.
    ///
    /// # Errors
    /// [`RegisterError`].
    pub fn expose(&mut self, region: Arc<Region>) -> Result<(LocalKey, RemoteKey), RegisterError> {
        match &mut self.endpoint {
            FabricEndpoint::Tcp(endpoint) => endpoint.expose(region),
            #[cfg(feature = "verbs")]
            FabricEndpoint::Verbs(endpoint) => {
                let key = endpoint.register_for(region, verbs::Access::Remote)?;
                let remote = endpoint.remote_key(key);
                let remote = remote.ok_or_else(|| RegisterError("no such region".into()))?;
                Ok((key, remote))
            }
            #[cfg(feature = "simulation")]
            FabricEndpoint::Simulated(_) => {
                Err(RegisterError("a simulated world has no peers".to_owned()))
            }
            FabricEndpoint::Embedded(_) => {
                Err(RegisterError("embedded memory has no peers".to_owned()))
            }
        }
    }

    /// Queues a request for [`PeerEndpoint::ring`].
    ///
    /// # Errors
    /// [`PostError`] returns the request.
    pub fn post(&mut self, request: WorkRequest) -> Result<(), PostError> {
        self.endpoint.post(0, request)
    }

    /// Passes all posted requests to the fabric.
    pub fn ring(&mut self, now_ns: u64) {
        self.endpoint.ring_doorbell(0, now_ns);
    }

    /// Sends what waits at a socket. Cost: a system call if anything does; none on a device.
    pub fn flush(&mut self) {
        if let FabricEndpoint::Tcp(endpoint) = &mut self.endpoint {
            endpoint.flush(0);
        }
    }

    /// Whether output waits for room in the socket, after a flush.
    #[must_use]
    pub fn has_output(&self) -> bool {
        match &self.endpoint {
            FabricEndpoint::Tcp(endpoint) => endpoint.has_output(0),
            _ => false,
        }
    }

    /// Polls completions. Returns how many were written to `completions`.
    pub fn poll(&mut self, now_ns: u64, completions: &mut [Completion]) -> usize {
        self.endpoint.poll(now_ns, completions)
    }

    /// Requests that have not completed.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.endpoint.outstanding()
    }

    /// What to wait for, both readable: the socket, or a device's completion channel and the line
    /// that reports the peer's end. The descriptors stay the same as long as the endpoint is up.
    #[must_use]
    pub fn descriptors(&self) -> [Option<BorrowedFd<'_>>; 2] {
        let found = match &self.endpoint {
            FabricEndpoint::Tcp(endpoint) => [endpoint.descriptor(0), None],
            #[cfg(feature = "verbs")]
            FabricEndpoint::Verbs(endpoint) => endpoint.descriptors(),
            #[cfg(feature = "simulation")]
            FabricEndpoint::Simulated(_) => [None, None],
            FabricEndpoint::Embedded(_) => [None, None],
        };
        // SAFETY: the endpoint keeps them open for as long as it is borrowed.
        found.map(|one| one.map(|raw| unsafe { BorrowedFd::borrow_raw(raw) }))
    }

    /// Has a device signal the next completion; poll once more before waiting. Without effect on a
    /// socket, which is readable as long as bytes wait.
    pub fn arm(&mut self) {
        #[cfg(feature = "verbs")]
        if let FabricEndpoint::Verbs(endpoint) = &mut self.endpoint {
            endpoint.arm();
        }
    }

    /// Takes a device's signals, and fails the connection if its line says that the peer has gone.
    /// Call it when a descriptor is readable. Cost: two or three system calls on a device.
    pub fn acknowledge(&mut self) {
        #[cfg(feature = "verbs")]
        if let FabricEndpoint::Verbs(endpoint) = &mut self.endpoint {
            endpoint.acknowledge();
            endpoint.connection_slot(0).check();
        }
    }

    /// Ends the connection: all requests complete at the next polls.
    pub fn fail(&mut self) {
        if let Some(slot) = self.endpoint.connection_slot(0) {
            slot.fail();
        }
    }
}

fn sockets(options: &PeerOptions) -> TcpEndpoint {
    let mut endpoint = TcpEndpoint::new(1, options.depth, options.limit_ns, Exposed::default());
    endpoint.cork();
    endpoint
}

#[cfg(feature = "verbs")]
fn device(
    context: &Arc<verbs::Context>,
    options: &PeerOptions,
) -> io::Result<verbs::VerbsEndpoint> {
    verbs::VerbsEndpoint::with_events(context, &options.fabric(), verbs::Access::Remote)
        .map_err(io::Error::other)
}

#[cfg(feature = "verbs")]
fn refused(address: SocketAddr, source: io::Error) -> PeerError {
    ConnectError::Io { address, source }.into()
}
