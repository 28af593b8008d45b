//! The thread that takes connections and hands each to the core with the fewest.

use std::io::{self, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use crate::native::NativeListeners;
use crate::port::Message;
use crate::shared::Shared;
use crate::upkeep::Upkeep;

/// How often the thread looks whether the server stops.
const LOOK: Duration = Duration::from_millis(100);
/// Pause after the system refused to accept: no descriptor is left, for example.
const PAUSE: Duration = Duration::from_millis(10);

/// What a client reads when there are too many; as Redis.
const TOO_MANY: &[u8] = b"-ERR max number of clients reached\r\n";

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
        let of_native = native.descriptors();
        sockets.extend(of_native.map(|one| PollFd::from_borrowed_fd(one, PollFlags::IN)));
        let limit = Timespec::try_from(LOOK).ok();
        match poll(&mut sockets, limit.as_ref()) {
            Ok(0) | Err(_) => continue,
            Ok(_) => {}
        }
        native.accept(shared);
        listeners
            .iter()
            .for_each(|listener| accept(listener, shared));
    }
}

/// Accepts a connection, if one waits.
fn accept(listener: &Listener, shared: &Shared) {
    match listener.socket.accept() {
        Ok((stream, peer)) => {
            shared.accepted.fetch_add(1, Ordering::Relaxed);
            if let Err(error) = hand_over(stream, peer, listener.is_encrypted, shared) {
                tracing::debug!(%peer, %error, "a connection ended at once");
            }
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        Err(error) => {
            tracing::warn!(%error, "a connection cannot be accepted");
            std::thread::sleep(PAUSE);
        }
    }
}

fn hand_over(
    mut stream: TcpStream,
    peer: std::net::SocketAddr,
    is_encrypted: bool,
    shared: &Shared,
) -> io::Result<()> {
    if shared.connected.load(Ordering::Relaxed) >= shared.options.clients_max {
        shared.refused.fetch_add(1, Ordering::Relaxed);
        // Before its handshake a client could not read it.
        return if is_encrypted {
            Ok(())
        } else {
            stream.write_all(TOO_MANY)
        };
    }
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    rustix::net::sockopt::set_socket_keepalive(stream.as_fd(), true)?;
    if let Some(core) = shared.cores.iter().min_by_key(|core| core.load()) {
        shared.connected.fetch_add(1, Ordering::Relaxed);
        core.connections.fetch_add(1, Ordering::Relaxed);
        core.send(Message::Connection(stream, peer, is_encrypted));
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
