//! How the system finds out that the host of a silent client is gone.

use std::net::TcpStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::net::sockopt;

/// The longest time that can be set, in seconds; the system's limit.
pub(crate) const SECONDS_MAX: u32 = 32_767;
/// Probes that are not answered before a connection ends, and the part of the time that lies
/// between two of them; as Redis.
const PROBES: u32 = 3;

/// After how many seconds without a byte the system asks; 0 never.
#[derive(Debug)]
pub(crate) struct Keepalive(AtomicU32);

impl Keepalive {
    pub(crate) fn new(after: Option<Duration>) -> Self {
        let seconds = after.map_or(0, |after| after.as_secs().clamp(1, SECONDS_MAX.into()));
        Self(AtomicU32::new(
            u32::try_from(seconds).unwrap_or(SECONDS_MAX),
        ))
    }

    pub(crate) fn seconds(&self) -> u32 {
        // ORDERING: relaxed, also below; no other data is read by it.
        self.0.load(Ordering::Relaxed)
    }

    /// Sets it for connections that come.
    pub(crate) fn set(&self, seconds: u32) {
        self.0.store(seconds, Ordering::Relaxed);
    }

    /// Has the system ask on a connection.
    ///
    /// # Errors
    /// The socket has ended.
    pub(crate) fn apply(&self, stream: &TcpStream) -> std::io::Result<()> {
        let seconds = self.seconds();
        sockopt::set_socket_keepalive(stream, seconds > 0)?;
        if seconds > 0 {
            let interval = Duration::from_secs((seconds / PROBES).max(1).into());
            sockopt::set_tcp_keepidle(stream, Duration::from_secs(seconds.into()))?;
            sockopt::set_tcp_keepintvl(stream, interval)?;
            sockopt::set_tcp_keepcnt(stream, PROBES)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_socket_has_the_times_that_are_set() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let stream = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        let keepalive = Keepalive::new(Some(Duration::from_secs(60)));
        keepalive.apply(&stream).expect("set");
        assert_eq!(sockopt::socket_keepalive(&stream), Ok(true));
        assert_eq!(sockopt::tcp_keepidle(&stream), Ok(Duration::from_secs(60)));
        assert_eq!(sockopt::tcp_keepintvl(&stream), Ok(Duration::from_secs(20)));
        assert_eq!(sockopt::tcp_keepcnt(&stream), Ok(PROBES));
        keepalive.set(0);
        keepalive.apply(&stream).expect("set");
        assert_eq!(sockopt::socket_keepalive(&stream), Ok(false));
        assert_eq!(
            Keepalive::new(Some(Duration::from_secs(u64::MAX))).seconds(),
            SECONDS_MAX
        );
    }
}
