//! A native connection: its endpoint, its message buffers, its credits and its requests.
//!
//! A request is named by the receive buffer that it came in. The buffer is posted again when the
//! request is answered, so the client's credits bound its requests.
//!
//! ```text
//! memory: | receive 0 .. | receive n-1 | send 0 .. | send n-1 |       each as long as a message
//! ```

use std::collections::VecDeque;
use std::net::SocketAddr;

use farcore_protocol::handshake::{HANDSHAKE_BYTES, HANDSHAKE_RECEIVES};
use farcore_protocol::{Credits, HEADER_BYTES, Header, message_bytes};
use farcore_rdma::{
    Completion, LocalKey, LocalSlice, PeerEndpoint, PeerMemory, RemoteKey, RemoteSlice, Work,
    WorkId, WorkRequest,
};

use super::handshakes::Seat;
use super::long_put::LongPuts;
use super::slots::{SlotState, Slots};
use crate::figures::native_counters::NativeCounters;
use crate::memory::{Account, Charge};
use crate::options::HANDSHAKE_SENDS;

/// What a completed work request was for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    Receive(u16),
    Send(u16),
    /// A lend slot was written into a landing buffer.
    Landing(u16),
    Handshake,
    HandshakeReceive(u16),
}

impl Purpose {
    pub(super) fn id(self) -> WorkId {
        let (kind, number) = match self {
            Self::Receive(number) => (0, number),
            Self::Send(number) => (1, number),
            Self::Landing(number) => (2, number),
            Self::Handshake => (3, 0),
            Self::HandshakeReceive(number) => (4, number),
        };
        WorkId(kind << 16 | u64::from(number))
    }

    pub(super) fn of(id: WorkId) -> Self {
        let number = (id.0 & 0xFFFF).try_into().unwrap_or(u16::MAX);
        match id.0 >> 16 {
            0 => Self::Receive(number),
            1 => Self::Send(number),
            2 => Self::Landing(number),
            4 => Self::HandshakeReceive(number),
            _ => Self::Handshake,
        }
    }
}

/// Where a connection stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// HELLO is to come.
    Hello,
    /// PROVE is to come; the proof that it must have.
    Prove(Box<[u8; 32]>),
    /// Requests are served.
    Open,
    /// It was refused; it ends when that is sent.
    Refused,
}

/// How far a request has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Stage {
    /// There is none.
    #[default]
    Free,
    /// It waits for a credit, a buffer, a slot or room in the engine.
    Waiting,
    /// The engine has it.
    Running,
}

/// A request, from its receive to its answer.
#[derive(Clone, Debug, Default)]
pub(super) struct Request {
    pub(super) stage: Stage,
    pub(super) header: Option<Header>,
    /// The upload slot that it lies in; otherwise in its receive buffer.
    pub(super) upload: Option<u16>,
    /// The send buffer that is kept for its answer, with a credit.
    pub(super) send: Option<u16>,
    /// Operations of a batch that have begun and are not answered, and those that have not begun.
    pub(super) parts: usize,
    pub(super) missing: usize,
    /// Operations of a batch that have begun.
    pub(super) begun: usize,
    /// Bytes of a batch's answers so far.
    pub(super) filled: usize,
}

/// An answer with its value.
#[derive(Debug)]
pub(super) struct OwnedAnswer {
    pub(super) header: Header,
    pub(super) value: Vec<u8>,
    /// What the value takes.
    pub(super) held: Option<Charge>,
}

/// The message buffers of an open connection.
#[derive(Debug)]
pub(super) struct Buffers {
    memory: PeerMemory,
    key: LocalKey,
    /// Receives, and as many sends.
    count: u16,
    message_bytes: usize,
    pub(super) free_sends: Vec<u16>,
    _held: Charge,
}

/// A native connection.
#[derive(Debug)]
pub(super) struct NativeConnection {
    pub(super) endpoint: PeerEndpoint,
    pub(super) peer: SocketAddr,
    pub(super) state: State,
    /// What it has the server hold.
    pub(super) account: Account,
    /// When it took or sent something last, in milliseconds since 1970.
    pub(super) heard_ms: u64,
    /// Its place among the handshakes, until it is open.
    pub(super) seat: Option<Seat>,
    /// Buffers of the handshake: two receives, then sends.
    handshake: (PeerMemory, LocalKey),
    handshake_sends: usize,
    pub(super) buffers: Option<Buffers>,
    pub(super) credits: Credits,
    /// The longest message that the client receives, in bytes.
    pub(super) client_message_bytes: usize,
    pub(super) requests: Vec<Request>,
    /// Requests that wait, in order.
    pub(super) waiting: VecDeque<u16>,
    /// Requests whose answers wait for a lend slot. Without an answer, its value is read again.
    pub(super) waiting_for_slot: Vec<(u16, Option<OwnedAnswer>)>,
    pub(super) uploads: Slots,
    pub(super) lends: Slots,
    pub(super) long_puts: LongPuts,
    /// Requests of the engine and tasks that are under way.
    pub(super) outstanding: usize,
    /// When the handshake must have ended, in milliseconds since 1970.
    pub(super) deadline_ms: u64,
    /// Something was posted, or received, since the last flush.
    pub(super) is_touched: bool,
    /// The core's set waits for room in the socket.
    pub(super) waits_for_room: bool,
    /// It goes on this turn.
    pub(super) is_listed: bool,
    /// The engine had no room for a request.
    pub(super) is_blocked: bool,
    /// A device has signalled.
    pub(super) signals: bool,
    /// Its slots in the figures.
    pub(super) counted_slots: usize,
    /// The client has gone, or is to go.
    pub(super) is_gone: bool,
}

impl NativeConnection {
    /// A connection whose peer has said nothing; the receives of the handshake are posted.
    pub(super) fn new(
        endpoint: PeerEndpoint,
        account: Account,
        credits: u16,
        deadline_ms: u64,
    ) -> Option<Self> {
        let mut endpoint = endpoint;
        let bytes = HANDSHAKE_BYTES * (HANDSHAKE_RECEIVES + HANDSHAKE_SENDS);
        let memory = PeerMemory::map(bytes).ok()?;
        let key = endpoint.register(memory.region()).ok()?;
        let peer = endpoint.peer();
        let mut connection = Self {
            endpoint,
            peer,
            state: State::Hello,
            account,
            heard_ms: 0,
            seat: None,
            handshake: (memory, key),
            handshake_sends: 0,
            buffers: None,
            credits: Credits::new(credits),
            client_message_bytes: HANDSHAKE_BYTES,
            requests: Vec::new(),
            waiting: VecDeque::new(),
            waiting_for_slot: Vec::new(),
            uploads: Slots::default(),
            lends: Slots::default(),
            long_puts: LongPuts::default(),
            outstanding: 0,
            deadline_ms,
            is_touched: true,
            waits_for_room: false,
            is_listed: false,
            is_blocked: false,
            signals: false,
            counted_slots: 0,
            is_gone: false,
        };
        for place in 0..HANDSHAKE_RECEIVES {
            let local = LocalSlice {
                key,
                offset: (place * HANDSHAKE_BYTES) as u64,
                bytes: u32::try_from(HANDSHAKE_BYTES).ok()?,
            };
            let purpose = Purpose::HandshakeReceive(u16::try_from(place).ok()?);
            connection.post(purpose, Work::Receive { local });
        }
        Some(connection)
    }

    /// Posts a request, which leaves at the end of the turn. A connection that cannot post is over.
    pub(super) fn post(&mut self, purpose: Purpose, work: Work) {
        let request = WorkRequest {
            id: purpose.id(),
            work,
            signalled: true,
        };
        self.is_touched = true;
        if let Err(error) = self.endpoint.post(request) {
            tracing::debug!(peer = %self.peer, ?error, "a native connection has failed");
            self.is_gone = true;
        }
    }

    /// True if answers that its client does not take keep memory.
    pub(super) fn keeps_memory(&self) -> bool {
        self.waiting_for_slot
            .iter()
            .any(|(_, answer)| answer.is_some())
            || self.lends.in_use() > 0
    }

    /// Copies a message of the handshake out.
    pub(super) fn read_handshake(&self, receive: u16, bytes: usize) -> Vec<u8> {
        let mut message = vec![0; bytes.min(HANDSHAKE_BYTES)];
        let offset = usize::from(receive) * HANDSHAKE_BYTES;
        self.handshake.0.read(offset as u64, &mut message);
        message
    }

    /// Sends a message of the handshake.
    pub(super) fn send_handshake(&mut self, message: &[u8], counters: &NativeCounters) {
        if self.handshake_sends == HANDSHAKE_SENDS || message.len() > HANDSHAKE_BYTES {
            self.is_gone = true;
            return;
        }
        let offset = (HANDSHAKE_BYTES * (HANDSHAKE_RECEIVES + self.handshake_sends)) as u64;
        self.handshake_sends += 1;
        self.handshake.0.write(offset, message);
        let local = LocalSlice {
            key: self.handshake.1,
            offset,
            bytes: u32::try_from(message.len()).unwrap_or(0),
        };
        counters.sent_messages.add(1);
        self.post(Purpose::Handshake, Work::Send { local });
    }

    /// Allocates the message buffers, and posts all receives. False if there is no memory.
    pub(super) fn open(&mut self, credits: u16, small_bytes: usize) -> bool {
        let message_bytes = message_bytes(small_bytes).next_multiple_of(64);
        let bytes = 2 * usize::from(credits) * message_bytes;
        let Some(held) = self.account.try_charge_first(bytes) else {
            return false;
        };
        let Ok(memory) = PeerMemory::map(bytes) else {
            return false;
        };
        let Ok(key) = self.endpoint.register(memory.region()) else {
            return false;
        };
        self.buffers = Some(Buffers {
            memory,
            key,
            count: credits,
            message_bytes,
            free_sends: (0..credits).rev().collect(),
            _held: held,
        });
        self.requests = (0..credits).map(|_| Request::default()).collect();
        for receive in 0..credits {
            self.post_receive(receive);
        }
        !self.is_gone
    }

    fn post_receive(&mut self, receive: u16) {
        let Some(buffers) = &self.buffers else {
            return;
        };
        let local = buffers.receive(receive);
        self.post(Purpose::Receive(receive), Work::Receive { local });
    }

    /// Posts a consumed receive again.
    pub(super) fn repost(&mut self, receive: u16) {
        self.requests[usize::from(receive)] = Request::default();
        self.post_receive(receive);
        self.credits.posted();
    }

    /// Copies bytes of a received message out: of its buffer, or of its upload slot.
    pub(super) fn read(&self, request: &Request, receive: u16, offset: usize, bytes: &mut [u8]) {
        match (request.upload, &self.buffers) {
            (Some(upload), _) => {
                if let Some(slot) = self.uploads.get(upload) {
                    self.uploads.read(slot, offset, bytes);
                }
            }
            (None, Some(buffers)) => {
                let start = buffers.receive(receive).offset + offset as u64;
                buffers.memory.read(start, bytes);
            }
            (None, None) => {}
        }
    }

    /// The key of a request.
    pub(super) fn read_key(&self, receive: u16) -> Vec<u8> {
        let request = &self.requests[usize::from(receive)];
        let bytes = request.header.map_or(0, |header| header.key_bytes.into());
        let mut key = vec![0; bytes];
        self.read(request, receive, HEADER_BYTES, &mut key);
        key
    }

    /// Keeps a send buffer and a credit for an answer. False if there are none now.
    pub(super) fn keep_answer(&mut self, receive: u16) -> bool {
        let request = &mut self.requests[usize::from(receive)];
        if request.send.is_some() {
            return true;
        }
        let Some(buffers) = &mut self.buffers else {
            return false;
        };
        let Some(send) = buffers.free_sends.pop() else {
            return false;
        };
        if !self.credits.reserve() {
            buffers.free_sends.push(send);
            return false;
        }
        request.send = Some(send);
        true
    }

    /// Bytes of a message that both sides can handle.
    pub(super) fn message_bytes(&self) -> usize {
        let own = self.buffers.as_ref().map_or(0, |one| one.message_bytes);
        own.min(self.client_message_bytes)
    }

    /// Writes into the send buffer that is kept for a request's answer.
    pub(super) fn write_answer(&mut self, receive: u16, offset: usize, bytes: &[u8]) {
        if let Some(send) = self.requests[usize::from(receive)].send
            && let Some(buffers) = &mut self.buffers
        {
            let start = buffers.send(send, 0).offset + offset as u64;
            buffers.memory.write(start, bytes);
        }
    }

    /// Sends an answer from the buffer that is kept for it: the header, and what was written behind
    /// it. The request ends.
    pub(super) fn send_answer(&mut self, receive: u16, header: Header, body_bytes: usize) {
        let header = Header {
            credits: self.end_request(receive),
            ..header
        };
        let Some(send) = self.requests[usize::from(receive)].send.take() else {
            return;
        };
        self.send(send, &header, body_bytes);
    }

    /// Sends a message that only grants, if one is due. True if it was sent.
    pub(super) fn send_noop(&mut self, header: Header) -> bool {
        let Some(buffers) = &mut self.buffers else {
            return false;
        };
        let Some(send) = buffers.free_sends.pop() else {
            return false;
        };
        let Some(credits) = self.credits.spend_on_noop() else {
            buffers.free_sends.push(send);
            return false;
        };
        self.send(send, &Header { credits, ..header }, 0);
        true
    }

    fn send(&mut self, send: u16, header: &Header, body_bytes: usize) {
        let Some(buffers) = &mut self.buffers else {
            return;
        };
        let local = buffers.send(send, HEADER_BYTES + body_bytes);
        buffers.memory.write(local.offset, &header.encode());
        self.post(Purpose::Send(send), Work::Send { local });
    }

    /// Writes a lend slot, which has a header and a body, into the client's landing buffer. The
    /// request ends, and its send buffer is free: the slot takes its place.
    pub(super) fn land(&mut self, receive: u16, header: Header, body_bytes: usize, slot: u16) {
        let request = &mut self.requests[usize::from(receive)];
        let (Some(asked), Some(send)) = (request.header, request.send.take()) else {
            return;
        };
        let header = Header {
            credits: self.end_request(receive),
            slot: asked.slot,
            ..header
        };
        if let Some(buffers) = &mut self.buffers {
            buffers.free_sends.push(send);
        }
        let Some(place) = self.lends.get(slot) else {
            return;
        };
        self.lends.write(place, 0, &header.encode());
        self.lends.set(slot, SlotState::Used);
        let (key, _) = self.lends.keys(place);
        let local = LocalSlice {
            key,
            offset: place.offset,
            bytes: u32::try_from(HEADER_BYTES + body_bytes).unwrap_or(0),
        };
        let remote = RemoteSlice {
            key: RemoteKey(asked.memory_key),
            offset: asked.landing_offset(),
        };
        let immediate = u32::from(asked.slot);
        let work = Work::WriteImmediate {
            local,
            remote,
            immediate,
        };
        self.post(Purpose::Landing(slot), work);
    }

    /// Frees what a request has but its send buffer, and spends its credit. Returns what the answer
    /// grants.
    fn end_request(&mut self, receive: u16) -> u16 {
        let request = &mut self.requests[usize::from(receive)];
        let send = request.send.take();
        if let Some(upload) = request.upload.take() {
            self.uploads.set(upload, SlotState::Free);
        }
        self.repost(receive);
        self.requests[usize::from(receive)].send = send;
        self.credits.spend_reserved().unwrap_or(0)
    }

    /// A work request that is not a receive has succeeded.
    pub(super) fn sent(&mut self, purpose: Purpose) {
        match purpose {
            Purpose::Send(send) => {
                if let Some(buffers) = &mut self.buffers {
                    buffers.free_sends.push(send);
                }
            }
            Purpose::Landing(slot) => self.lends.set(slot, SlotState::Free),
            Purpose::Handshake => self.is_gone |= self.state == State::Refused,
            Purpose::Receive(_) | Purpose::HandshakeReceive(_) => {}
        }
    }

    /// Polls completions.
    pub(super) fn poll(&mut self, now_ns: u64, completions: &mut [Completion]) -> usize {
        let count = self.endpoint.poll(now_ns, completions);
        // Also answers to the client's READs, which complete nothing here.
        self.is_touched |= count > 0 || self.endpoint.has_output();
        count
    }
}

impl Buffers {
    fn receive(&self, receive: u16) -> LocalSlice {
        LocalSlice {
            key: self.key,
            offset: (usize::from(receive) * self.message_bytes) as u64,
            bytes: u32::try_from(self.message_bytes).unwrap_or(0),
        }
    }

    fn send(&self, send: u16, bytes: usize) -> LocalSlice {
        let place = usize::from(self.count) + usize::from(send);
        LocalSlice {
            key: self.key,
            offset: (place * self.message_bytes) as u64,
            bytes: u32::try_from(bytes).unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purposes_are_read_as_they_were_written() {
        for purpose in [
            Purpose::Receive(0),
            Purpose::Send(u16::MAX),
            Purpose::Landing(7),
            Purpose::Handshake,
            Purpose::HandshakeReceive(1),
        ] {
            assert_eq!(Purpose::of(purpose.id()), purpose);
        }
    }
}
