//! One of a queue pair's two queues: requests that have not completed, in order, and those that
//! wait for the doorbell.
//!
//! ```text
//! oldest          rung           next        counted from 0 for ever; slot = number % depth
//!   |  with the    |  chained,     |
//!   |  device      |  not yet rung |
//! ```
//!
//! - I1: the last request of each doorbell is signalled to this module, whether or not its poster
//!   wants a completion, so that everything completes without another request.
//! - I2: nothing is allocated after construction.

#![allow(unsafe_code)] // links raw requests

use std::mem::MaybeUninit;

use super::ffi;
use super::mark::NUMBER_MASK;
use crate::work::WorkId;

/// The part of a request that is kept until it completes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) id: WorkId,
    pub(super) bytes: u32,
    pub(super) signalled: bool,
}

/// A raw request of either kind, linked to its buffer and its successor.
pub(super) trait Link: Sized {
    fn link(&mut self, place: *mut ffi::ibv_sge, next: *mut Self);
}

impl Link for ffi::ibv_send_wr {
    fn link(&mut self, place: *mut ffi::ibv_sge, next: *mut Self) {
        (self.sg_list, self.next) = (place, next);
        if next.is_null() {
            // I1.
            self.send_flags |= ffi::ibv_send_flags::IBV_SEND_SIGNALED.0;
        }
    }
}

impl Link for ffi::ibv_recv_wr {
    fn link(&mut self, place: *mut ffi::ibv_sge, next: *mut Self) {
        (self.sg_list, self.next) = (place, next);
    }
}

/// How much of a chain the device accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rung {
    All,
    /// The requests before one that it refused.
    Some,
    /// Unknown.
    Doubtful,
}

/// One of the two queues: entries in order, and the raw requests, built in place.
pub(super) struct Chain<W> {
    pub(super) entries: Box<[Entry]>,
    pub(super) requests: Box<[MaybeUninit<W>]>,
    pub(super) places: Box<[ffi::ibv_sge]>,
    pub(super) oldest: u64,
    pub(super) rung: u64,
    pub(super) next: u64,
}

// SAFETY: the raw requests are written just before they are posted and lead only to `places` and to
// each other, which move with the chain, since they lie in boxes.
unsafe impl<W> Send for Chain<W> {}

impl<W> Chain<W> {
    pub(super) fn new(depth: usize) -> Self {
        let nothing = Entry {
            id: WorkId(0),
            bytes: 0,
            signalled: false,
        };
        let nowhere = || ffi::ibv_sge {
            addr: 0,
            length: 0,
            lkey: 0,
        };
        Self {
            entries: vec![nothing; depth].into_boxed_slice(),
            requests: (0..depth).map(|_| MaybeUninit::uninit()).collect(),
            places: (0..depth).map(|_| nowhere()).collect(),
            oldest: 0,
            rung: 0,
            next: 0,
        }
    }

    pub(super) fn slot(&self, number: u64) -> usize {
        #[allow(clippy::cast_possible_truncation, reason = "less than the depth")]
        let slot = (number % self.entries.len() as u64) as usize;
        slot
    }

    pub(super) fn outstanding(&self) -> usize {
        usize::try_from(self.next - self.oldest).unwrap_or(usize::MAX)
    }

    pub(super) fn room(&self) -> usize {
        self.entries.len() - self.outstanding()
    }

    pub(super) fn take_oldest(&mut self) -> Entry {
        let entry = self.entries[self.slot(self.oldest)];
        self.oldest += 1;
        entry
    }

    /// Chains a request; there must be room.
    pub(super) fn push(&mut self, entry: Entry, piece: Piece, request: W) {
        let slot = self.slot(self.next);
        self.entries[slot] = entry;
        self.places[slot] = ffi::ibv_sge {
            addr: piece.address,
            length: piece.bytes,
            lkey: piece.lkey,
        };
        self.requests[slot] = MaybeUninit::new(request);
        self.next += 1;
    }

    /// Passes the requests chained since the last call to the device, as one list that ends with
    /// null.
    pub(super) fn ring(&mut self, post: impl FnOnce(*mut W) -> Result<(), *mut W>) -> Rung
    where
        W: Link,
    {
        for number in self.rung..self.next {
            let (slot, after) = (self.slot(number), self.slot(number + 1));
            let next = if number + 1 < self.next {
                self.requests[after].as_mut_ptr()
            } else {
                std::ptr::null_mut()
            };
            let place = &raw mut self.places[slot];
            // SAFETY: every slot of the range was initialised when it was chained.
            unsafe { self.requests[slot].assume_init_mut() }.link(place, next);
        }
        let first = self.slot(self.rung);
        match post(self.requests[first].as_mut_ptr()) {
            Ok(()) => {
                self.rung = self.next;
                Rung::All
            }
            Err(refused) if refused.is_null() => Rung::Doubtful,
            Err(refused) => {
                self.rung = (self.rung..self.next)
                    .find(|&number| self.requests[self.slot(number)].as_ptr() == refused)
                    .unwrap_or(self.rung);
                Rung::Some
            }
        }
    }

    /// The full number with these low bits, if such a request is with the device.
    pub(super) fn widen(&self, number: u64) -> Option<u64> {
        let ahead = number.wrapping_sub(self.oldest) & NUMBER_MASK;
        let full = self.oldest + ahead;
        (full < self.rung).then_some(full)
    }
}

/// The buffer of a raw request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    /// The offset in the region, or the address in memory if it is sent inline.
    pub(super) address: u64,
    pub(super) bytes: u32,
    pub(super) lkey: u32,
    pub(super) inline: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The requests passed to a device, as (id, signalled).
    fn shown(mut request: *mut ffi::ibv_send_wr) -> Vec<(u64, bool)> {
        let mut seen = Vec::new();
        // SAFETY: the chain was just linked and ends with null.
        while let Some(one) = unsafe { request.as_ref() } {
            let signalled = one.send_flags & ffi::ibv_send_flags::IBV_SEND_SIGNALED.0 != 0;
            seen.push((one.wr_id, signalled));
            request = one.next;
        }
        seen
    }

    #[test]
    fn a_chain_wraps_and_its_last_request_is_signalled() {
        let mut chain = Chain::new(4);
        let push = |chain: &mut Chain<ffi::ibv_send_wr>, number: u64| {
            let piece = Piece {
                address: 0,
                bytes: 1,
                lkey: 0,
                inline: false,
            };
            let entry = Entry {
                id: WorkId(number),
                bytes: 1,
                signalled: false,
            };
            // SAFETY: as in `Queue::push`.
            let mut request: ffi::ibv_send_wr = unsafe { MaybeUninit::zeroed().assume_init() };
            request.wr_id = number;
            chain.push(entry, piece, request);
        };
        for number in 0..3 {
            push(&mut chain, number);
        }
        let rung = chain.ring(|first| {
            assert_eq!(shown(first), [(0, false), (1, false), (2, true)]);
            Ok(())
        });
        assert_eq!((rung, chain.rung), (Rung::All, 3));
        for _ in 0..3 {
            chain.take_oldest();
        }
        for number in 3..7 {
            push(&mut chain, number);
        }
        assert_eq!(chain.room(), 0);
        // The device accepts two of four and reports the first that it refused.
        let rung = chain.ring(|first| {
            assert_eq!(
                shown(first),
                [(3, false), (4, false), (5, false), (6, true)]
            );
            // SAFETY: the chain has four requests.
            Err(unsafe { (*(*first).next).next })
        });
        assert_eq!((rung, chain.rung), (Rung::Some, 5));
        assert_eq!(chain.ring(|_| Err(std::ptr::null_mut())), Rung::Doubtful);
    }
}
