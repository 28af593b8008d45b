//! What is to be sent to a client: bytes of its own, and shared ones between them.
//!
//! ```text
//! own:     | sent | reply | head of a message | end, head of the next | reply |
//!                 written                     place 0                 place 1
//! shared:                                     payload                 payload
//! ```
//!
//! A shared segment is one buffer with many readers (`shared_bytes.rs`). It stands before the
//! byte of its place. Replies are own bytes, and cost no more than those of a vector.
//!
//! - I1: places ascend, and none is before `written` or beyond the bytes of `own`.
//! - I2: nothing of a shared segment is copied until it is sent.

use std::collections::VecDeque;
use std::io::IoSlice;

use crate::conn::shared_bytes::SharedBytes;
use crate::limits::SPARE_BYTES_MAX;

/// Pieces that are sent by one call, at most: the shortest shared ones, and heads of messages
/// between them, are as many bytes as are received at once.
const PIECES_MAX: usize = 256;
/// Sent bytes that may stand before those that wait.
const SENT_BYTES_KEPT: usize = 64 << 10;
/// Sent bytes of a longer output may be one part in `SENT_SHARE`.
const SHORT_BYTES: usize = 512 << 10;
const SENT_SHARE: usize = 4;
/// Bytes of a buffer from which it grows by one part in `GROWTH_SHARE`, not to twice as many.
const LONG_BYTES: usize = 64 << 10;
const GROWTH_SHARE: usize = 4;

/// Bytes that are to be sent.
#[derive(Debug, Default)]
pub(crate) struct Output {
    own: Vec<u8>,
    /// Bytes of `own` that are sent.
    written: usize,
    /// There while shared bytes wait.
    shared: Option<Box<Segments>>,
}

/// Shared segments that wait.
#[derive(Debug, Default)]
struct Segments {
    /// Each with its place in `own`.
    all: VecDeque<(usize, SharedBytes)>,
    /// Bytes of the first that are sent.
    written: usize,
    /// Bytes of all that are not.
    waiting: usize,
}

impl Output {
    /// Bytes that are not sent.
    #[inline]
    pub(crate) fn waiting_bytes(&self) -> usize {
        let shared = self.shared.as_ref().map_or(0, |shared| shared.waiting);
        self.own.len() - self.written + shared
    }

    /// Those of them that other clients read too.
    pub(crate) fn shared_bytes(&self) -> usize {
        self.shared.as_ref().map_or(0, |shared| shared.waiting)
    }

    /// Where replies are written: behind all that waits. Nothing may be removed but what was added
    /// since.
    #[inline]
    pub(crate) fn own(&mut self) -> &mut Vec<u8> {
        &mut self.own
    }

    /// Adds bytes behind all that waits, by their buffer if nothing does; leaves a buffer.
    pub(crate) fn put(&mut self, bytes: &mut Vec<u8>) {
        if self.own.is_empty() && self.shared.is_none() {
            std::mem::swap(&mut self.own, bytes);
        } else {
            let before = self.own.capacity();
            self.own.append(bytes);
            self.limit_growth(before);
        }
    }

    /// Memory of its own bytes.
    #[inline]
    pub(crate) fn own_capacity(&self) -> usize {
        self.own.capacity()
    }

    /// Gives back most of what a long buffer has gained since it had so much memory: it has twice
    /// as much as it needs.
    #[inline]
    pub(crate) fn limit_growth(&mut self, before: usize) {
        if self.own.capacity() != before && self.own.capacity() > LONG_BYTES {
            let length = self.own.len();
            self.own.shrink_to(length + length / GROWTH_SHARE);
        }
    }

    /// Own bytes, sent ones among them.
    #[inline]
    pub(crate) fn own_len(&self) -> usize {
        self.own.len()
    }

    /// Memory of its own bytes, and of the places of shared ones, which are counted elsewhere.
    pub(crate) fn held_bytes(&self) -> usize {
        let shared = self.shared.as_ref().map_or(0, |shared| {
            size_of::<Segments>() + shared.all.capacity() * size_of::<(usize, SharedBytes)>()
        });
        self.own.capacity() + shared
    }

    /// True if it has no buffer.
    #[inline]
    pub(crate) fn has_no_buffer(&self) -> bool {
        self.own.capacity() == 0
    }

    /// Takes an empty buffer, if it has none.
    pub(crate) fn lend(&mut self, buffer: Vec<u8>) {
        debug_assert!(self.has_no_buffer() && buffer.is_empty());
        self.own = buffer;
    }

    /// Gives the buffer back that nothing is in.
    pub(crate) fn take_buffer(&mut self) -> Vec<u8> {
        debug_assert_eq!(self.waiting_bytes(), 0);
        self.clear();
        std::mem::take(&mut self.own)
    }

    /// Gives a long buffer back that nothing is in.
    pub(crate) fn shrink(&mut self) {
        if self.own.is_empty() && self.own.capacity() > SPARE_BYTES_MAX {
            self.own = Vec::new();
        }
    }

    /// Drops all bytes.
    pub(crate) fn clear(&mut self) {
        self.own.clear();
        self.written = 0;
        self.shared = None;
    }

    /// Adds a shared segment behind all that waits.
    pub(crate) fn share(&mut self, bytes: SharedBytes) {
        if bytes.is_empty() {
            return;
        }
        let shared = self.shared.get_or_insert_default();
        shared.waiting += bytes.len();
        shared.all.push_back((self.own.len(), bytes));
    }

    /// Adds all that waits in another, which is empty then.
    pub(crate) fn append(&mut self, other: &mut Self) {
        let (mut from, before) = (other.written, other.waiting_bytes());
        if let Some(shared) = other.shared.take() {
            debug_assert_eq!(shared.written, 0, "only a connection's output is sent");
            for (place, bytes) in shared.all {
                self.own.extend_from_slice(&other.own[from..place]);
                from = place;
                self.share(bytes);
            }
        }
        self.own.extend_from_slice(&other.own[from..]);
        debug_assert!(self.waiting_bytes() >= before);
        *other = Self::default();
    }

    /// The bytes that are sent next, as far as they lie together.
    #[inline]
    pub(crate) fn next(&self) -> &[u8] {
        match &self.shared {
            None => &self.own[self.written..],
            Some(shared) => self.next_before(shared),
        }
    }

    fn next_before<'a>(&'a self, shared: &'a Segments) -> &'a [u8] {
        match shared.all.front() {
            Some((place, bytes)) if *place == self.written => &bytes[shared.written..],
            Some((place, _)) => &self.own[self.written..*place],
            None => &self.own[self.written..],
        }
    }

    /// True if all that waits lies together.
    #[inline]
    pub(crate) fn is_one_piece(&self) -> bool {
        self.shared.is_none()
    }

    /// Calls `send` with the pieces that are sent next, in order.
    pub(crate) fn pieces<T>(&self, send: impl FnOnce(&[IoSlice<'_>]) -> T) -> T {
        let mut pieces = [IoSlice::new(&[]); PIECES_MAX];
        let mut count = 0;
        let mut add = |piece| {
            if count < PIECES_MAX && !<[u8]>::is_empty(piece) {
                pieces[count] = IoSlice::new(piece);
                count += 1;
            }
        };
        let mut from = self.written;
        if let Some(shared) = &self.shared {
            let mut skipped = shared.written;
            // Each has a piece of own bytes before it at most.
            for (place, bytes) in shared.all.iter().take(PIECES_MAX) {
                add(&self.own[from..*place]);
                add(&bytes[skipped..]);
                (from, skipped) = (*place, 0);
            }
            if shared.all.len() <= PIECES_MAX {
                add(&self.own[from..]);
            }
        } else {
            add(&self.own[from..]);
        }
        send(&pieces[..count])
    }

    /// Notes that `bytes` were sent.
    #[inline]
    pub(crate) fn sent(&mut self, bytes: usize) {
        if self.shared.is_none() {
            self.written += bytes;
            debug_assert!(self.written <= self.own.len());
        } else {
            self.sent_pieces(bytes);
        }
    }

    fn sent_pieces(&mut self, mut bytes: usize) {
        debug_assert!(bytes <= self.waiting_bytes());
        while let Some(shared) = &mut self.shared {
            let Some((place, first)) = shared.all.front() else {
                self.shared = None;
                break;
            };
            let own = bytes.min(*place - self.written);
            self.written += own;
            bytes -= own;
            if self.written < *place {
                return;
            }
            let taken = bytes.min(first.len() - shared.written);
            shared.written += taken;
            shared.waiting -= taken;
            bytes -= taken;
            if shared.written < first.len() {
                return;
            }
            shared.all.pop_front();
            shared.written = 0;
        }
        self.written += bytes;
    }

    /// Moves what waits to the beginning, if much before it is sent: a client that reads slowly may
    /// never have read all. Costs a few times what was sent.
    pub(crate) fn compact(&mut self) {
        let is_little = self.own.len() > SHORT_BYTES && self.written * SENT_SHARE <= self.own.len();
        if self.written <= SENT_BYTES_KEPT || is_little {
            return;
        }
        self.own.drain(..self.written);
        if let Some(shared) = &mut self.shared {
            for (place, _) in &mut shared.all {
                *place -= self.written;
            }
        }
        self.written = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::conn::shared_bytes::Fanout;
    use crate::memory::ClientMemory;

    /// Shared bytes, `bytes_max` at most.
    fn fanout(bytes_max: usize) -> Fanout {
        Fanout::new(&Arc::new(ClientMemory::new(bytes_max, 1)), bytes_max)
    }

    /// All that waits, sent in steps of `step` bytes.
    fn sent(output: &mut Output, step: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while output.waiting_bytes() > 0 {
            let before = output.waiting_bytes();
            let together = output.pieces(|pieces| {
                let mut together = Vec::new();
                pieces
                    .iter()
                    .for_each(|piece| together.extend_from_slice(piece));
                together
            });
            assert!(together.starts_with(output.next()) && !output.next().is_empty());
            let count = step.min(together.len());
            all.extend_from_slice(&together[..count]);
            output.sent(count);
            assert_eq!(output.waiting_bytes(), before - count);
            output.compact();
        }
        assert!(output.next().is_empty());
        all
    }

    #[test]
    fn own_and_shared_bytes_are_sent_in_their_order_however_they_are_cut() {
        let fanout = fanout(1 << 20);
        for step in [1, 2, 3, 7, 1000, 70_000, 1 << 20] {
            let (mut output, mut expected) = (Output::default(), Vec::new());
            for round in 0..100_u8 {
                let own = vec![round; usize::from(round % 5) * 800];
                output.own().extend_from_slice(&own);
                expected.extend_from_slice(&own);
                if round % 3 > 0 {
                    let payload = vec![255 - round; 1 + usize::from(round) * 10];
                    output.share(fanout.share(&payload).expect("room"));
                    expected.extend_from_slice(&payload);
                }
            }
            let mut whole = Output::default();
            whole.own().extend_from_slice(b"before");
            whole.append(&mut output);
            assert_eq!(output.waiting_bytes(), 0);
            whole.own().extend_from_slice(b"after");
            let all = sent(&mut whole, step);
            assert_eq!(all, [b"before", &expected[..], b"after"].concat(), "{step}");
            assert!(whole.is_one_piece(), "no segment is left");
            assert_eq!(fanout.bytes(), 0, "nothing shared is held");
        }
    }

    #[test]
    fn one_shared_segment_has_many_readers_and_is_counted_once() {
        let fanout = fanout(5000);
        let shared = fanout.share(&[7; 4000]).expect("room");
        assert!(fanout.share(&[7; 4000]).is_none(), "over the limit");
        let mut readers: Vec<_> = (0..100).map(|_| Output::default()).collect();
        readers.iter_mut().for_each(|one| one.share(shared.clone()));
        drop(shared);
        assert_eq!(
            fanout.bytes(),
            4000 + crate::conn::shared_bytes::BESIDE_BYTES
        );
        for reader in &mut readers {
            assert!(reader.held_bytes() < 500, "{}", reader.held_bytes());
            assert_eq!(
                (reader.waiting_bytes(), reader.shared_bytes()),
                (4000, 4000)
            );
            reader.sent(3999);
            assert_eq!(reader.next(), [7]);
        }
        assert!(fanout.bytes() > 0);
        readers.iter_mut().for_each(Output::clear);
        assert_eq!(fanout.bytes(), 0);
        assert!(fanout.share(&[7; 4000]).is_some());
    }

    #[test]
    fn what_is_empty_gives_its_buffer_back() {
        let mut output = Output::default();
        output.lend(Vec::with_capacity(100));
        output.own().extend_from_slice(b"reply");
        output.sent(5);
        let buffer = output.take_buffer();
        assert!(buffer.is_empty() && buffer.capacity() >= 100);
        assert!(output.has_no_buffer());
    }
}
