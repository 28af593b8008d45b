//! The native listeners, as the thread that accepts has them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;

use farcore_rdma::{PeerListener, Scheme};

use crate::port::Message;
use crate::shared::Shared;

use super::options::NativeOptions;

/// Connections that one look accepts at a listener.
const ACCEPTS: usize = 64;

/// Where native clients connect.
#[derive(Debug)]
pub(crate) struct NativeListeners(Vec<PeerListener>);

impl NativeListeners {
    /// Listens at every address.
    ///
    /// # Errors
    /// The address, and what the system said.
    pub(crate) fn bind(options: &NativeOptions, backlog: u32) -> Result<Self, (String, io::Error)> {
        let mut listeners = Vec::new();
        for address in &options.listen {
            let listener = PeerListener::bind(address, &options.peer());
            let listener = listener.and_then(|one| one.set_backlog(backlog).map(|()| one));
            listeners.push(listener.map_err(|error| (address.to_string(), error))?);
        }
        Ok(Self(listeners))
    }

    /// Where clients connect, as addresses of the fabric.
    pub(crate) fn addresses(&self) -> Vec<String> {
        let name = |listener: &PeerListener| {
            let (scheme, address): (Scheme, _) = listener.local_address();
            format!("{}://{address}", scheme.as_str())
        };
        self.0.iter().map(name).collect()
    }

    /// Descriptors that are readable when a connection waits.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0.iter().map(AsFd::as_fd)
    }

    /// Accepts what waits, and hands each to the core with the fewest connections.
    pub(crate) fn accept(&self, shared: &Shared) {
        for listener in &self.0 {
            for _ in 0..ACCEPTS {
                match listener.accept() {
                    Ok(Some(arrival)) => {
                        if let Some(core) = shared.cores.iter().min_by_key(|core| core.load()) {
                            shared.native_connected.fetch_add(1, Ordering::Relaxed);
                            core.native_connections.fetch_add(1, Ordering::Relaxed);
                            core.send(Message::Peer(arrival));
                        }
                    }
                    Ok(None) => break,
                    Err(error) => {
                        tracing::warn!(%error, "a native connection cannot be accepted");
                        break;
                    }
                }
            }
        }
    }
}
