//! Connections by which the threads of replication reach the data, as clients do.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;

use crate::cores::message::{Arrival, ArrivalKind, Message};
use crate::cores::shared::Shared;

/// One end of a pair of sockets, whose other end the core with the fewest connections serves.
///
/// # Errors
/// No file descriptor is left.
pub(super) fn connect(
    shared: &Shared,
    kind: ArrivalKind,
    peer: SocketAddr,
) -> io::Result<UnixStream> {
    let (socket, other) = UnixStream::pair()?;
    socket.set_nonblocking(true)?;
    other.set_nonblocking(true)?;
    if let Some(core) = shared.cores.iter().min_by_key(|core| core.load()) {
        // ORDERING: relaxed; counts, as those of the thread that accepts.
        shared.connected.fetch_add(1, Ordering::Relaxed);
        core.connections.fetch_add(1, Ordering::Relaxed);
        core.send(Message::Connection(Arrival {
            stream: TcpStream::from(OwnedFd::from(other)),
            peer,
            is_encrypted: false,
            is_unauthenticated: false,
            is_above_limit: false,
            kind,
        }));
    }
    Ok(socket)
}
