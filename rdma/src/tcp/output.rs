//! The output of a connection: short data is copied, long data referenced in registered memory.
//!
//! Owns the copied bytes and the list of references.
//!
//! - I1: bytes are sent in the order in which they were put.
//! - I2: memory that was put stays registered, by its owner's promise, until it is sent or the
//!   connection is gone. Sending copies it into the kernel, so no reference outlives a call.

#![allow(unsafe_code)] // gathers from raw memory

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;

/// The longest payload that is copied behind its header, which is cheaper than a piece of its own.
pub(super) const COPY_BYTES_MAX: usize = 1 << 10;
/// Capacity that an idle connection keeps for copied bytes.
const SPARE_BYTES: usize = 16 << 10;
/// Capacity that an idle connection keeps for references.
const SPARE_SEGMENTS: usize = 256;
/// Limit on the pieces of one system call.
const PIECES: usize = 64;

#[derive(Clone, Copy, Debug)]
enum Segment {
    /// This many bytes of the buffer.
    Buffered(usize),
    Memory(*const u8, usize),
}

// SAFETY: the caller of `put_memory` keeps the memory alive, which any thread may access.
unsafe impl Send for Segment {}

/// How far output was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sent {
    All,
    /// The socket accepts no more now.
    Blocked,
    /// The budget is used up.
    Budget,
}

#[derive(Debug, Default)]
pub(super) struct Output {
    buffer: Vec<u8>,
    /// Bytes of the buffer that were sent.
    sent: usize,
    segments: VecDeque<Segment>,
    bytes: usize,
    /// Bytes sent since the connection began.
    gone: u64,
}

impl Output {
    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Bytes that wait, wherever they lie.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes put since the connection began.
    pub(super) fn put_bytes(&self) -> u64 {
        self.gone + self.bytes as u64
    }

    /// Bytes sent since the connection began.
    pub(super) fn sent_bytes(&self) -> u64 {
        self.gone
    }

    /// Memory that waiting output takes, in bytes: what a peer that does not read makes this side
    /// hold.
    pub(super) fn held_bytes(&self) -> usize {
        self.buffer.len() + self.segments.len() * size_of::<Segment>()
    }

    /// Frees memory beyond what a connection that keeps up with its peer needs.
    pub(super) fn shrink(&mut self) {
        if self.is_empty() && self.buffer.capacity() > SPARE_BYTES {
            self.buffer = Vec::new();
        }
        if self.segments.is_empty() && self.segments.capacity() > SPARE_SEGMENTS {
            self.segments = VecDeque::new();
        }
    }

    pub(super) fn put(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.buffer.extend_from_slice(bytes);
        self.bytes += bytes.len();
        if let Some(Segment::Buffered(last)) = self.segments.back_mut() {
            *last += bytes.len();
        } else {
            self.segments.push_back(Segment::Buffered(bytes.len()));
        }
    }

    /// # Safety
    /// The range stays readable until it is sent or this is dropped.
    pub(super) unsafe fn put_memory(&mut self, start: *const u8, bytes: usize) {
        if bytes <= COPY_BYTES_MAX {
            // SAFETY: by this function's contract.
            self.put(unsafe { std::slice::from_raw_parts(start, bytes) });
        } else {
            self.bytes += bytes;
            self.segments.push_back(Segment::Memory(start, bytes));
        }
    }

    /// Sends what the socket accepts now; true if it accepted everything.
    ///
    /// # Errors
    /// The socket's error, except "would block".
    pub(super) fn send(&mut self, socket: RawFd) -> io::Result<bool> {
        let sent = self.send_within(socket, &mut usize::MAX.clone())?;
        Ok(sent == Sent::All)
    }

    /// Sends what the socket accepts now, until `budget` bytes are used up: a peer that reads as
    /// fast as this side sends would keep its thread for as long as there is output.
    ///
    /// # Errors
    /// As [`Output::send`].
    pub(super) fn send_within(&mut self, socket: RawFd, budget: &mut usize) -> io::Result<Sent> {
        while self.bytes > 0 {
            if *budget == 0 {
                return Ok(Sent::Budget);
            }
            let mut pieces = [libc::iovec {
                iov_base: std::ptr::null_mut(),
                iov_len: 0,
            }; PIECES];
            let (mut count, mut place, mut left) = (0, self.sent, *budget);
            for (piece, segment) in pieces.iter_mut().zip(&self.segments) {
                if left == 0 {
                    break;
                }
                (piece.iov_base, piece.iov_len) = match *segment {
                    Segment::Buffered(bytes) => {
                        let start = self.buffer[place..place + bytes].as_ptr();
                        place += bytes;
                        (start.cast_mut().cast(), bytes)
                    }
                    Segment::Memory(start, bytes) => (start.cast_mut().cast(), bytes),
                };
                piece.iov_len = piece.iov_len.min(left);
                left -= piece.iov_len;
                count += 1;
            }
            // SAFETY: all zero is a valid message header.
            let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
            message.msg_iov = pieces.as_mut_ptr();
            message.msg_iovlen = count;
            // SAFETY: the pieces are parts of the buffer, or memory that stays readable (I2).
            let sent = unsafe {
                libc::sendmsg(
                    socket,
                    &raw const message,
                    libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
                )
            };
            let Ok(sent) = usize::try_from(sent) else {
                let error = io::Error::last_os_error();
                match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(Sent::Blocked),
                    io::ErrorKind::Interrupted => continue,
                    _ => return Err(error),
                }
            };
            *budget -= sent;
            self.advance(sent);
        }
        Ok(Sent::All)
    }

    /// Copies the next bytes into one piece, for a caller that awaits the socket.
    pub(super) fn first(&self, copy: &mut [u8]) -> usize {
        match self.segments.front() {
            None => 0,
            Some(&Segment::Buffered(bytes)) => {
                let bytes = bytes.min(copy.len());
                copy[..bytes].copy_from_slice(&self.buffer[self.sent..self.sent + bytes]);
                bytes
            }
            Some(&Segment::Memory(start, bytes)) => {
                let bytes = bytes.min(copy.len());
                // SAFETY: memory that stays readable (I2); others may write to it meanwhile, as to
                // all far memory.
                unsafe { std::ptr::copy(start, copy.as_mut_ptr(), bytes) };
                bytes
            }
        }
    }

    /// Removes bytes that were sent.
    pub(super) fn advance(&mut self, mut sent: usize) {
        self.bytes -= sent;
        self.gone += sent as u64;
        while sent > 0 {
            match self.segments.front_mut() {
                None => break,
                Some(Segment::Buffered(bytes)) => {
                    let part = sent.min(*bytes);
                    *bytes -= part;
                    self.sent += part;
                    sent -= part;
                    if *bytes == 0 {
                        self.segments.pop_front();
                    }
                }
                Some(Segment::Memory(start, bytes)) => {
                    let part = sent.min(*bytes);
                    *start = start.wrapping_add(part);
                    *bytes -= part;
                    sent -= part;
                    if *bytes == 0 {
                        self.segments.pop_front();
                    }
                }
            }
        }
        if self.bytes == 0 {
            self.buffer.clear();
            self.sent = 0;
        } else if self.sent > 64 << 10 {
            self.buffer.drain(..self.sent);
            self.sent = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn bytes_leave_in_order_however_the_socket_takes_them() {
        let (near, mut far) = UnixStream::pair().unwrap();
        far.set_nonblocking(true).unwrap();
        let long: Vec<u8> = (0..3_000_000u32)
            .map(|i| i.to_le_bytes()[0] ^ i.to_le_bytes()[1])
            .collect();
        let mut output = Output::default();
        let mut expected = Vec::new();
        for round in 0..40usize {
            output.put(&long[round..round + 40]);
            expected.extend_from_slice(&long[round..round + 40]);
            let bytes = if round % 3 == 0 { 900 } else { 70_000 };
            let part = &long[round * 1000..round * 1000 + bytes];
            // SAFETY: the vector lives longer than the output.
            unsafe { output.put_memory(part.as_ptr(), part.len()) };
            expected.extend_from_slice(part);
        }
        let mut got = Vec::new();
        let mut buffer = [0; 10_000];
        loop {
            let mut budget = 33_333;
            let sent = output.send_within(near.as_raw_fd(), &mut budget).unwrap();
            assert!(budget == 0 || sent != Sent::Budget);
            let done = sent == Sent::All;
            let mut first = [0; 100];
            let bytes = output.first(&mut first);
            assert_eq!(bytes == 0, done);
            while let Ok(read) = far.read(&mut buffer) {
                got.extend_from_slice(&buffer[..read]);
            }
            assert!(expected[got.len()..].starts_with(&first[..bytes]));
            if done {
                break;
            }
        }
        assert!(got == expected);
        assert!(output.is_empty() && output.held_bytes() == 0);
        output.shrink();
        assert!(output.buffer.capacity() <= SPARE_BYTES);
    }
}
