//! Bytes that wait to be sent.

use std::io::{self, Write};

/// Bytes of the longest buffer that stays though nothing is in it.
const KEPT_BYTES_MAX: usize = 256 << 10;

/// Bytes that wait to be sent. What is sent is not moved, however long the rest is.
#[derive(Debug, Default)]
pub(super) struct Unsent {
    bytes: Vec<u8>,
    /// Of them, those that are sent.
    sent: usize,
}

impl Unsent {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// True if nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where more are added.
    pub(super) fn end(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Sends what a socket takes now; true if it took something.
    ///
    /// # Errors
    /// The connection has ended.
    pub(super) fn send(&mut self, socket: &mut impl Write) -> io::Result<bool> {
        let before = self.sent;
        let mut has_sent = false;
        while self.sent < self.bytes.len() {
            match socket.write(&self.bytes[self.sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => self.sent += sent,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            has_sent = self.sent > before;
        }
        if self.is_empty() {
            self.bytes.clear();
            self.bytes.shrink_to(KEPT_BYTES_MAX);
            self.sent = 0;
        } else if self.sent > self.bytes.len() / 2 {
            // Each byte is moved once for each time that as many are sent.
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
        Ok(has_sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes a few bytes, and then no more for once.
    struct Narrow(Vec<u8>, bool);

    impl Write for Narrow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if !self.1 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let taken = bytes.len().min(7);
            self.0.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn all_is_sent_in_order_whatever_the_socket_takes() {
        let (mut unsent, mut socket) = (Unsent::default(), Narrow(Vec::new(), false));
        let mut all = Vec::new();
        for round in 0..200u8 {
            unsent.end().extend([round; 5]);
            all.extend([round; 5]);
            unsent.send(&mut socket).unwrap();
            assert_eq!(socket.0.len() + unsent.len(), all.len());
        }
        while !unsent.is_empty() {
            unsent.send(&mut socket).unwrap();
        }
        assert_eq!(socket.0, all);
    }
}
