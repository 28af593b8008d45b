//! The thread that takes connections and hands each to the core with the fewest.
//!
//! When all places of clients are taken, a connection goes to the core with the most that have not
//! authenticated, which evicts one of them for it. It is refused if there are none.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use farcore_rdma::LogLimit;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with};
use rustix::time::Timespec;

use crate::cores::message::{Arrival, ArrivalKind, Message};
use crate::cores::port::CorePort;
use crate::cores::shared::Shared;
use crate::native::NativeListeners;
use crate::server::upkeep::Upkeep;

/// How often the thread looks whether the server stops.
const LOOK: Duration = Duration::from_millis(100);
/// Connections that one look accepts at a listener.
const ACCEPTS: usize = 256;
/// Connections above the limit that may be on their way to cores which evict others for them.
const OVER_MAX: usize = 64;
/// Pause after the system refused to accept: no descriptor is left, for example.
const PAUSE: Duration = Duration::from_millis(10);
/// Pause while that many are on their way.
const ROOM_PAUSE: Duration = Duration::from_millis(1);

/// A crowd that leaves no descriptor causes these lines.
static FAILURES: LogLimit = LogLimit::new();

/// Where connections are accepted.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) socket: TcpListener,
    /// Its connections are encrypted.
    pub(crate) is_encrypted: bool,
}

/// Accepts until the server stops.
pub(crate) fn run(listeners: &[Listener], native: &NativeListeners, shared: &Shared) {
    let mut upkeep = Upkeep::new();
    while !shared.is_stopping() {
        upkeep.look(shared);
        let sockets = listeners.iter();
        let mut sockets: Vec<_> = sockets
            .map(|listener| PollFd::new(&listener.socket, PollFlags::IN))
            .collect();
        // Native clients wait in the system while the data are loaded.
        let serves_native = !shared.saving.refusals.is_loading();
        let of_native = native.descriptors().filter(|_| serves_native);
        sockets.extend(of_native.map(|one| PollFd::from_borrowed_fd(one, PollFlags::IN)));
        let limit = native.pause().unwrap_or(LOOK);
        let limit = Timespec::try_from(limit).ok();
        match poll(&mut sockets, limit.as_ref()) {
            Ok(0) | Err(_) => continue,
            Ok(_) => {}
        }
        if serves_native {
            native.accept(shared);
        }
        listeners
            .iter()
            .for_each(|listener| accept(listener, shared));
    }
}

/// Accepts the connections that wait, up to a limit.
fn accept(listener: &Listener, shared: &Shared) {
    for _ in 0..ACCEPTS {
        let Some(room) = Room::of(shared, listener.is_encrypted) else {
            // Some are on their way to cores that will evict others for them.
            std::thread::sleep(ROOM_PAUSE);
            return;
        };
        match accept_with(
            &listener.socket,
            SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
        ) {
            Ok((stream, peer)) => {
                shared.accepted.fetch_add(1, Ordering::Relaxed);
                if let Err(error) = hand_over(stream, peer, (listener.is_encrypted, room), shared) {
                    tracing::debug!(%peer, %error, "a connection ended at once");
                }
            }
            Err(Errno::AGAIN) => return,
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            Err(error) => {
                if let Some(left_out) = FAILURES.note() {
                    tracing::warn!(%error, left_out, "a connection cannot be accepted");
                }
                std::thread::sleep(PAUSE);
                return;
            }
        }
    }
}

/// Accepts a connection by one system call.
fn accept_with(
    listener: &TcpListener,
    flags: SocketFlags,
) -> Result<(TcpStream, SocketAddr), Errno> {
    let (stream, peer) = acceptfrom_with(listener, flags)?;
    let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
    Ok((stream.into(), peer.ok_or(Errno::CONNABORTED)?))
}

/// What there is for one more connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Room {
    /// A place.
    Place,
    /// The place of one that has not authenticated, at this core.
    Evicted(usize),
    /// None.
    No,
}

impl Room {
    /// `None`: not now, but soon.
    fn of(shared: &Shared, is_encrypted: bool) -> Option<Self> {
        let connected = shared.connected.load(Ordering::Relaxed);
        let limit = shared.options.clients_max;
        if connected < limit {
            return Some(Self::Place);
        }
        let unauthenticated = |core: &CorePort| core.unauthenticated.load(Ordering::Relaxed);
        let cores = shared.cores.iter().map(unauthenticated).enumerate();
        let most = cores.max_by_key(|&(_, count)| count);
        match most {
            Some((core, 1..)) if connected < limit + OVER_MAX => Some(Self::Evicted(core)),
            Some((_, 1..)) if shared.is_unauthenticated(is_encrypted) => None,
            _ => Some(Self::No),
        }
    }
}

fn hand_over(
    stream: TcpStream,
    peer: SocketAddr,
    (is_encrypted, room): (bool, Room),
    shared: &Shared,
) -> io::Result<()> {
    let core = match room {
        Room::Place => shared.cores.iter().min_by_key(|core| core.load()),
        Room::Evicted(core) => shared.cores.get(core),
        Room::No => {
            shared.refuse(stream, is_encrypted);
            return Ok(());
        }
    };
    stream.set_nodelay(true)?;
    shared.keepalive.apply(&stream)?;
    if let Some(core) = core {
        shared.connected.fetch_add(1, Ordering::Relaxed);
        core.connections.fetch_add(1, Ordering::Relaxed);
        let is_unauthenticated = shared.is_unauthenticated(is_encrypted);
        if is_unauthenticated {
            core.unauthenticated.fetch_add(1, Ordering::Relaxed);
        }
        core.send(Message::Connection(Arrival {
            stream,
            peer,
            is_encrypted,
            is_unauthenticated,
            is_above_limit: room != Room::Place,
            kind: ArrivalKind::Client,
        }));
    }
    Ok(())
}

/// Starts the thread.
///
/// # Errors
/// No thread can be started.
pub(crate) fn start(
    listeners: Vec<Listener>,
    native: NativeListeners,
    shared: Arc<Shared>,
) -> io::Result<std::thread::JoinHandle<()>> {
    std::thread::Builder::new()
        .name("farcore-accept".to_owned())
        .spawn(move || run(&listeners, &native, &shared))
}
