//! One queue pair of an endpoint: its two chains, the completion of their requests, and when they
//! are given up.
//!
//! - I1: a completion of number n completes all requests before n: they were unsignalled successes.
//! - I2: requests that the device did not accept complete here, after all that it accepted.
//! - I3: nothing is allocated after construction.

#![allow(unsafe_code)] // builds raw requests

use std::mem::MaybeUninit;
use std::sync::Arc;

use super::chain::{Chain, Entry, Piece, Rung};
use super::ffi;
use super::handle::{QueuePairToken, Table};
use super::mark::{Mark, Side};
use super::queue_pair::QueuePair;
use crate::verbs::slot::{ConnectionSlot, Line};
use crate::work::{Completion, Status, WorkId};

pub(super) struct Queue {
    pub(super) connection_slot: Arc<ConnectionSlot>,
    /// The queue pair in use, and the line that reports the peer's end.
    connection: Option<(QueuePairToken, Arc<Line>)>,
    sends: Chain<ffi::ibv_send_wr>,
    receives: Chain<ffi::ibv_recv_wr>,
    index: usize,
    /// Set at the first fault. From then on nothing is accepted until it is renewed.
    pub(super) failed: bool,
    /// The device has given up the queue pair: remaining requests complete here.
    gone: bool,
    /// The peer was silent for too long: the oldest request completes with that status, and the
    /// others are flushed.
    lost: bool,
    /// The newest request that the peer answers with data. Requests that change far memory must not
    /// overtake it.
    last_read: Option<u64>,
    /// Since when nothing has completed although requests are with the device.
    silent_since_ns: Option<u64>,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue")
            .field("index", &self.index)
            .field("outstanding", &self.sends.outstanding())
            .field("receives", &self.receives.outstanding())
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

impl Queue {
    pub(super) fn new(index: usize, depth: usize, connection_slot: Arc<ConnectionSlot>) -> Self {
        Self {
            connection_slot,
            connection: None,
            sends: Chain::new(depth),
            receives: Chain::new(depth),
            index,
            failed: false,
            gone: false,
            lost: false,
            last_read: None,
            silent_since_ns: None,
        }
    }

    /// The queue's memory in bytes, for `depth` requests and as many receives.
    pub(super) fn bytes_for(depth: usize) -> usize {
        let entry = size_of::<Entry>() + size_of::<ffi::ibv_sge>();
        depth * (2 * entry + size_of::<ffi::ibv_send_wr>() + size_of::<ffi::ibv_recv_wr>())
    }

    pub(super) fn token(&self) -> Option<QueuePairToken> {
        self.connection.as_ref().map(|one| one.0)
    }

    pub(super) fn inline_bytes(&self) -> u32 {
        self.connection
            .as_ref()
            .map_or(0, |one| one.0.inline_bytes.into())
    }

    pub(super) fn is_up(&self) -> bool {
        self.connection.is_some() && !self.failed && !self.connection_slot.is_broken()
    }

    pub(super) fn room(&self) -> usize {
        self.sends.room()
    }

    pub(super) fn receive_room(&self) -> usize {
        self.receives.room()
    }

    pub(super) fn outstanding(&self) -> usize {
        self.sends.outstanding()
    }

    /// True once everything has completed, receives included.
    pub(super) fn is_empty(&self) -> bool {
        self.sends.outstanding() == 0 && self.receives.outstanding() == 0
    }

    /// Adopts a connection, after all requests of the last one have completed.
    pub(super) fn adopt(&mut self, token: QueuePairToken, line: Arc<Line>) {
        debug_assert!(self.is_empty() && self.connection.is_none());
        self.connection = Some((token, line));
        self.failed = false;
        self.gone = false;
        self.lost = false;
        self.silent_since_ns = None;
    }

    /// Chains a request; there must be room.
    pub(super) fn push(
        &mut self,
        id: WorkId,
        signalled: bool,
        piece: Piece,
        fill: impl FnOnce(&mut ffi::ibv_send_wr),
    ) {
        // SAFETY: numbers, pointers and unions of numbers, for which zero is a valid value.
        let mut request: ffi::ibv_send_wr = unsafe { MaybeUninit::zeroed().assume_init() };
        let chain = &mut self.sends;
        request.wr_id = Mark::new(Side::Send, self.index, chain.next).bits();
        request.num_sge = i32::from(piece.bytes > 0);
        if piece.inline {
            request.send_flags |= ffi::ibv_send_flags::IBV_SEND_INLINE.0;
        }
        if signalled {
            request.send_flags |= ffi::ibv_send_flags::IBV_SEND_SIGNALED.0;
        }
        fill(&mut request);
        let under_way = self.last_read.is_some_and(|number| number >= chain.oldest);
        if under_way && !may_overtake_reads(request.opcode) {
            request.send_flags |= ffi::ibv_send_flags::IBV_SEND_FENCE.0;
        }
        if is_read(request.opcode) {
            self.last_read = Some(chain.next);
        }
        let entry = Entry {
            id,
            bytes: piece.bytes,
            signalled,
        };
        chain.push(entry, piece, request);
    }

    /// Chains a receive; there must be room.
    pub(super) fn push_receive(&mut self, id: WorkId, piece: Piece) {
        let chain = &mut self.receives;
        let request = ffi::ibv_recv_wr {
            wr_id: Mark::new(Side::Receive, self.index, chain.next).bits(),
            next: std::ptr::null_mut(),
            sg_list: std::ptr::null_mut(),
            num_sge: i32::from(piece.bytes > 0),
        };
        let entry = Entry {
            id,
            bytes: piece.bytes,
            signalled: true,
        };
        chain.push(entry, piece, request);
    }

    /// Passes both chains to the device, each with one doorbell. Requests chained on a failed queue
    /// pair complete as flushed.
    pub(super) fn ring(&mut self, pairs: &mut Table<QueuePair>, now_ns: u64) {
        let pair = self.token().and_then(|token| pairs.get(token.handle));
        let Some(queue_pair) = pair.filter(|_| !self.failed) else {
            return;
        };
        let mut outcomes = [Rung::All; 2];
        if self.receives.rung < self.receives.next {
            outcomes[0] = self.receives.ring(|first| {
                // SAFETY: the chain was just linked and ends with null; the endpoint keeps the
                // buffers' regions, and the poster leaves the buffers alone until they complete.
                unsafe { queue_pair.post_receive(first) }
            });
        }
        if self.sends.rung < self.sends.next {
            self.silent_since_ns.get_or_insert(now_ns);
            // SAFETY: as for the receives.
            let post = |first| unsafe { queue_pair.post_send(first) };
            outcomes[1] = self.sends.ring(post);
        }
        if outcomes == [Rung::All; 2] {
            return;
        }
        tracing::warn!(
            queue = self.index,
            "the device refused a request: ending its queue pair"
        );
        if outcomes.contains(&Rung::Doubtful) {
            // It is unknown what was accepted: the queue pair is destroyed before its requests
            // complete.
            self.give_up(pairs);
        } else {
            self.fail(pairs);
        }
    }

    /// Ends the queue pair: the device flushes its requests.
    pub(super) fn fail(&mut self, pairs: &mut Table<QueuePair>) {
        if self.failed {
            return;
        }
        self.failed = true;
        // The time limit starts again for the flushed requests.
        self.silent_since_ns = None;
        let pair = self.token().and_then(|token| pairs.get(token.handle));
        if pair.is_none_or(|pair| pair.fail().is_err()) {
            self.give_up(pairs);
        }
    }

    /// The device reports nothing more of this queue pair: all its requests complete here.
    pub(super) fn give_up(&mut self, pairs: &mut Table<QueuePair>) {
        self.failed = true;
        self.gone = true;
        self.release(pairs);
    }

    /// Drops the queue pair: after this the device accesses no buffer of it. Its line ends too, so
    /// the connection slot is empty.
    pub(super) fn release(&mut self, pairs: &mut Table<QueuePair>) {
        if let Some((token, _)) = self.connection.take() {
            drop(pairs.remove(token.handle));
        }
    }

    /// Processes a completion of the device, and returns it if its poster wants one. Completions of
    /// a queue pair that was given up may still arrive: they complete nothing.
    pub(super) fn complete(
        &mut self,
        mark: Mark,
        wc: &ffi::ibv_wc,
        status: Status,
        now_ns: u64,
    ) -> Option<Completion> {
        let completion = match mark.side() {
            Side::Send => {
                let number = self.sends.widen(mark.number())?;
                while self.sends.oldest < number {
                    // I1. None of these is signalled, or the device would have reported it.
                    let silent = self.sends.take_oldest();
                    debug_assert!(!silent.signalled);
                }
                let entry = self.sends.take_oldest();
                let fine = status == Status::Success;
                let status = self.reported(status);
                (!fine || entry.signalled).then_some(Completion {
                    id: entry.id,
                    status,
                    bytes: if fine { entry.bytes } else { 0 },
                    immediate: None,
                })
            }
            Side::Receive => {
                let number = self.receives.widen(mark.number())?;
                debug_assert_eq!(number, self.receives.oldest, "receives complete in order");
                let entry = self.receives.take_oldest();
                let fine = status == Status::Success;
                let immediate = (fine
                    && wc.opcode == ffi::ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM)
                    // SAFETY: this opcode says that the word is set.
                    .then(|| u32::from_be(unsafe { wc.imm_data_invalidated_rkey_union.imm_data }));
                Some(Completion {
                    id: entry.id,
                    status,
                    bytes: if fine { wc.byte_len } else { 0 },
                    immediate,
                })
            }
        };
        self.silent_since_ns = (self.sends.oldest < self.sends.rung).then_some(now_ns);
        completion
    }

    /// The next completion that the device will never report, if that is certain.
    pub(super) fn flush_next(&mut self) -> Option<Completion> {
        if !self.failed {
            return None;
        }
        let mut status = Status::Flushed;
        let id = if self.sends.oldest < self.sends.next
            && (self.gone || self.sends.oldest >= self.sends.rung)
        {
            status = self.reported(status);
            self.sends.take_oldest().id
        } else if self.receives.oldest < self.receives.next
            && (self.gone || self.receives.oldest >= self.receives.rung)
        {
            self.receives.take_oldest().id
        } else {
            return None;
        };
        self.sends.rung = self.sends.rung.max(self.sends.oldest);
        self.receives.rung = self.receives.rung.max(self.receives.oldest);
        Some(Completion {
            id,
            status,
            bytes: 0,
            immediate: None,
        })
    }

    /// Ends the queue pair if requested, or if nothing has completed for too long.
    pub(super) fn look_after(&mut self, pairs: &mut Table<QueuePair>, now_ns: u64, limit_ns: u64) {
        if self.connection_slot.take_broken() {
            self.fail(pairs);
        }
        if self.failed && self.silent_since_ns.is_none() && !self.is_empty() {
            self.silent_since_ns = Some(now_ns);
        }
        if let Some(since) = self.silent_since_ns
            && now_ns.saturating_sub(since) > limit_ns
        {
            if self.failed {
                // Not even flushed requests complete.
                self.give_up(pairs);
            } else {
                self.lost = true;
                self.fail(pairs);
                self.silent_since_ns = Some(now_ns);
            }
        }
    }

    /// A request's status, as reported to its poster.
    fn reported(&mut self, status: Status) -> Status {
        if status == Status::Flushed && std::mem::take(&mut self.lost) {
            Status::RetryExceeded
        } else {
            status
        }
    }
}

/// Whether the peer answers the operation with data.
fn is_read(opcode: ffi::ibv_wr_opcode::Type) -> bool {
    use ffi::ibv_wr_opcode as opcodes;
    matches!(
        opcode,
        opcodes::IBV_WR_RDMA_READ
            | opcodes::IBV_WR_ATOMIC_CMP_AND_SWP
            | opcodes::IBV_WR_ATOMIC_FETCH_AND_ADD
    )
}

/// Only a READ may be performed while earlier ones are in flight: a lost answer is read again, and
/// must not show a later change.
fn may_overtake_reads(opcode: ffi::ibv_wr_opcode::Type) -> bool {
    opcode == ffi::ibv_wr_opcode::IBV_WR_RDMA_READ
}

#[cfg(test)]
mod tests {
    use ffi::ibv_wr_opcode as opcodes;

    use super::*;

    #[test]
    fn whatever_changes_memory_waits_for_reads() {
        for (opcode, read, overtakes) in [
            (opcodes::IBV_WR_RDMA_READ, true, true),
            (opcodes::IBV_WR_RDMA_WRITE, false, false),
            (opcodes::IBV_WR_RDMA_WRITE_WITH_IMM, false, false),
            (opcodes::IBV_WR_SEND, false, false),
            (opcodes::IBV_WR_ATOMIC_CMP_AND_SWP, true, false),
            (opcodes::IBV_WR_ATOMIC_FETCH_AND_ADD, true, false),
        ] {
            assert_eq!(
                (is_read(opcode), may_overtake_reads(opcode)),
                (read, overtakes)
            );
        }
    }
}
