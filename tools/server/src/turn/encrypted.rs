//! What a core does for encrypted connections: it opens what they receive and seals what they send.
//!
//! - I1: an encrypted connection that has not ended its handshake in [`HANDSHAKE_LIMIT`] is closed.
//! - I2: a client whose bytes cannot be opened reads why, and is disconnected.
//! - I3: plain output stays in the connection's output until the client has taken what was sealed
//!   before. So at most one piece is in both forms, and limits of output count what is not sent in
//!   either.

use std::time::Duration;

use farcore::Core;
use rustix::io::Errno;
use rustix::net::send;

use crate::conn::connection::Connection;
use crate::conn::sockets::SEND_FLAGS;
use crate::conn::tls::TlsSession;
use crate::serving::Serving;
use crate::steps;

/// Time from connecting to the end of the handshake.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// Pieces that are sealed and sent in a turn for a subscriber or a monitor, at most.
const SUBSCRIBER_CALLS: u64 = 4;

impl Serving {
    /// The session of a new connection, if it is to be encrypted.
    pub(crate) fn session(&self, is_encrypted: bool) -> Result<Option<Box<TlsSession>>, ()> {
        match &self.shared.tls {
            Some(config) if is_encrypted => match TlsSession::new(config) {
                Ok(session) => Ok(Some(Box::new(session))),
                Err(error) => {
                    tracing::warn!(%error, "an encrypted connection cannot be served");
                    Err(())
                }
            },
            _ => Ok(None),
        }
    }

    /// Takes encrypted bytes of requests.
    pub(crate) fn take_sealed(
        &mut self,
        core: &mut Core,
        number: usize,
        connection: &mut Connection,
        bytes: &[u8],
    ) {
        let mut plain = std::mem::take(&mut self.opened);
        let opened = connection
            .tls
            .as_mut()
            .map(|tls| tls.open(bytes, &mut plain));
        if !plain.is_empty() {
            self.take_plain(core, number, connection, &plain);
        }
        plain.clear();
        self.opened = plain;
        if connection.stay.is_some() {
            self.note_proof(connection);
        }
        if let Some(Err(error)) = opened {
            tracing::debug!(peer = %connection.peer, %error, "an encrypted connection has failed");
            connection.is_closing = true;
            self.counters().failed_handshakes.add(1);
        } else if connection.tls.as_ref().is_some_and(|tls| tls.is_ended()) {
            connection.is_gone = true;
        }
        // The handshake may have something to say.
        self.note_dirty(number, connection);
    }
}

impl Connection {
    /// Sends sealed output; returns how many bytes, and by how many calls. At most `sealed_max` are
    /// sealed at once, and no more before the client has taken them: what it does not read waits
    /// as it does for any other.
    pub(crate) fn transmit_sealed(&mut self, sealed_max: usize) -> Result<(usize, u64), Errno> {
        // Other clients do not wait for one that sees what they do, so it gets more in a turn.
        let calls = match self.subscribed.is_some() || self.is_monitor {
            true => SUBSCRIBER_CALLS,
            false => 1,
        };
        let (mut sent, mut made) = (0, 0);
        while made < calls {
            let (bytes, goes_on) = match self.transmit_piece(sealed_max) {
                // It has taken some.
                Err(Errno::AGAIN | Errno::INTR) if sent > 0 => break,
                other => other?,
            };
            sent += bytes;
            made += 1;
            if !goes_on {
                break;
            }
        }
        Ok((sent, made))
    }

    /// Seals as much if nothing sealed waits, and sends by one call; returns how many bytes, and
    /// whether that was all that was sealed while more is to be.
    fn transmit_piece(&mut self, sealed_max: usize) -> Result<(usize, bool), Errno> {
        let Some(tls) = &mut self.tls else {
            return Ok((0, false));
        };
        let output = &mut self.output;
        let sealed = output.pieces(|pieces| tls.seal(pieces, sealed_max));
        let sealed = sealed.map_err(|_| Errno::PROTO)?;
        steps::count_copied(sealed);
        output.sent(sealed);
        if output.waiting_bytes() == 0 {
            // What waits is in the session. A long buffer would be there for nothing.
            output.clear();
            output.shrink();
        }
        if tls.waiting_bytes() == 0 {
            return Err(Errno::AGAIN);
        }
        let sent = send(&self.socket, tls.outgoing(), SEND_FLAGS)?;
        tls.sent(sent);
        Ok((sent, tls.waiting_bytes() == 0 && output.waiting_bytes() > 0))
    }

    /// Tells an encrypted client that its connection ends, if it takes that at once.
    pub(crate) fn end_session(&mut self) {
        if let Some(tls) = &mut self.tls
            && tls.waiting_bytes() == 0
        {
            tls.end();
            let _ = send(&self.socket, tls.outgoing(), SEND_FLAGS);
        }
    }

    /// True if it is encrypted and its handshake takes too long.
    pub(crate) fn is_late_with_handshake(&self) -> bool {
        let is_open = self.tls.as_ref().is_some_and(|tls| !tls.is_established());
        is_open && !self.is_gone && self.connected.elapsed() > HANDSHAKE_LIMIT
    }
}
