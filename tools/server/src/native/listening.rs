//! The native listeners, as the thread that accepts has them.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use farcore_rdma::{LogLimit, PeerListener, Scheme};

use crate::cores::message::Message;
use crate::cores::shared::Shared;

use crate::options::NativeOptions;

/// Connections that are accepted in an interval, at most: a handshake costs a core some 50 us, so a
/// crowd takes a tenth of one. Others wait in the system.
const ACCEPTS: u32 = 20;
const INTERVAL: Duration = Duration::from_millis(10);

/// A crowd that leaves no descriptor causes these lines.
static FAILURES: LogLimit = LogLimit::new();

/// How many connections were accepted in the present interval.
#[derive(Debug, Default)]
struct Pace {
    began: Cell<Option<Instant>>,
    accepted: Cell<u32>,
}

impl Pace {
    /// Notes that one was accepted.
    fn note(&self, now: Instant) {
        let is_over = |began: Instant| now.saturating_duration_since(began) >= INTERVAL;
        if self.began.get().is_none_or(is_over) {
            self.began.set(Some(now));
            self.accepted.set(0);
        }
        self.accepted.set(self.accepted.get() + 1);
    }

    /// Time until the next may be accepted, if it is not now.
    fn pause(&self, now: Instant) -> Option<Duration> {
        let began = self
            .began
            .get()
            .filter(|_| self.accepted.get() >= ACCEPTS)?;
        let left = INTERVAL.checked_sub(now.saturating_duration_since(began))?;
        (!left.is_zero()).then_some(left)
    }
}

/// Where native clients connect.
#[derive(Debug)]
pub(crate) struct NativeListeners {
    listeners: Vec<PeerListener>,
    pace: Pace,
}

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
        Ok(Self {
            listeners,
            pace: Pace::default(),
        })
    }

    /// Where clients connect, as addresses of the fabric.
    pub(crate) fn addresses(&self) -> Vec<String> {
        let name = |listener: &PeerListener| {
            let (scheme, address): (Scheme, _) = listener.local_address();
            format!("{}://{address}", scheme.as_str())
        };
        self.listeners.iter().map(name).collect()
    }

    /// Descriptors that are readable when a connection waits; none while none may be accepted.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let listeners = self.listeners.iter().filter(|_| self.pause().is_none());
        listeners.map(AsFd::as_fd)
    }

    /// Time until the next may be accepted, if it is not now.
    pub(crate) fn pause(&self) -> Option<Duration> {
        self.pace.pause(Instant::now())
    }

    /// Accepts what waits, and hands each to the core with the fewest connections.
    pub(crate) fn accept(&self, shared: &Shared) {
        for listener in &self.listeners {
            while self.pause().is_none() {
                match listener.accept() {
                    Ok(Some(arrival)) => {
                        self.pace.note(Instant::now());
                        if let Some(core) = shared.cores.iter().min_by_key(|core| core.load()) {
                            core.native_connections.fetch_add(1, Ordering::Relaxed);
                            core.send(Message::Peer(arrival));
                        }
                    }
                    Ok(None) => break,
                    Err(error) => {
                        if let Some(left_out) = FAILURES.note() {
                            tracing::warn!(%error, left_out, "a native connection cannot be accepted");
                        }
                        break;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_are_accepted_in_an_interval() {
        let (pace, start) = (Pace::default(), Instant::now());
        for _ in 0..ACCEPTS {
            assert_eq!(pace.pause(start), None);
            pace.note(start);
        }
        assert_eq!(pace.pause(start), Some(INTERVAL));
        assert_eq!(pace.pause(start + INTERVAL / 2), Some(INTERVAL / 2));
        assert_eq!(pace.pause(start + INTERVAL), None);
        pace.note(start + INTERVAL);
        assert_eq!(pace.accepted.get(), 1);
    }
}
