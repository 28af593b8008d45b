//! What a core does for encrypted connections: it opens what they receive and seals what they send.
//!
//! - I1: an encrypted connection that has not ended its handshake in [`HANDSHAKE_LIMIT`] is closed.
//! - I2: a client whose bytes cannot be opened reads why, and is disconnected.

use std::time::Duration;

use farcore::Core;
use rustix::io::Errno;
use rustix::net::send;

use crate::connection::Connection;
use crate::sending::SEND_FLAGS;
use crate::serving::Serving;
use crate::tls::TlsSession;

/// Time from connecting to the end of the handshake.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

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
    /// Sends sealed output by one call; returns how many bytes.
    pub(crate) fn transmit_sealed(&mut self) -> Result<usize, Errno> {
        let Some(tls) = &mut self.tls else {
            return Ok(0);
        };
        let sealed = tls.seal(self.output.next());
        self.output.sent(sealed.map_err(|_| Errno::PROTO)?);
        if tls.waiting_bytes() == 0 {
            return Err(Errno::AGAIN);
        }
        let sent = send(&self.socket, tls.outgoing(), SEND_FLAGS)?;
        tls.sent(sent);
        Ok(sent)
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
