//! One client's connection: its bytes in and out, and the replies that it waits for.
//!
//! - I1: replies leave in the order of the requests. A reply that is ready early waits in
//!   `pending`.
//! - I2: a connection without requests under way holds no buffer.

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use farcore::Answer;

use crate::parts::Parts;
use crate::replies::ReplyKind;
use crate::resp::{Arguments, Protocol, Writer};

/// A reply that is not in the output yet.
#[derive(Debug)]
pub(crate) enum Pending {
    /// The engine has not answered.
    Waiting(ReplyKind),
    /// Not all of its parts are answered.
    Parts(Box<Parts>),
    /// It is ready, but one before it is not.
    Ready(Vec<u8>),
}

/// What becomes of replies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum ReplyMode {
    /// They are sent.
    #[default]
    On,
    /// None is.
    Off,
    /// The next one is not.
    Skip,
}

/// What a client has told about itself.
#[derive(Debug, Default)]
pub(crate) struct ClientNames {
    pub(crate) name: Vec<u8>,
    pub(crate) library: Vec<u8>,
    pub(crate) library_version: Vec<u8>,
}

/// One client's connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    pub(crate) peer: SocketAddr,
    pub(crate) id: u64,
    pub(crate) protocol: Protocol,
    pub(crate) is_authenticated: bool,
    pub(crate) names: ClientNames,
    pub(crate) reply_mode: ReplyMode,
    pub(crate) connected: Instant,
    /// Turn of the core in which it was heard last.
    pub(crate) heard_ms: u64,
    /// The last command's name.
    pub(crate) last_command: &'static str,
    /// Bytes that are not parsed yet.
    pub(crate) input: Vec<u8>,
    /// Bytes of `input` that are parsed.
    pub(crate) parsed: usize,
    /// Bytes of `input` that are needed before parsing makes sense.
    pub(crate) needed: usize,
    /// A command of which only a part was received.
    pub(crate) partial: Option<Box<Arguments>>,
    /// Parts of the command under way that were sent already.
    pub(crate) sent_parts: usize,
    pub(crate) output: Vec<u8>,
    /// Bytes of `output` that are sent.
    pub(crate) written: usize,
    pub(crate) pending: VecDeque<Pending>,
    /// The number of the first pending reply.
    pub(crate) first: u32,
    /// Answers of the engine that are under way.
    pub(crate) outstanding: u32,
    /// A command with several steps runs: nothing else is parsed.
    pub(crate) is_blocked: bool,
    /// It sees the commands of all clients.
    pub(crate) is_monitor: bool,
    /// It is closed once its output is sent.
    pub(crate) is_closing: bool,
    /// It is gone; its number is free once nothing is under way.
    pub(crate) is_gone: bool,
    /// What the socket is watched for.
    pub(crate) watches: (bool, bool),
    /// It is in the list of those to be served next turn.
    pub(crate) is_listed: bool,
    /// It is in the list of those with output.
    pub(crate) is_dirty: bool,
    /// Turns for which output was held back, for more to come.
    pub(crate) held_turns: u8,
}

impl Connection {
    pub(crate) fn new(
        stream: TcpStream,
        peer: SocketAddr,
        id: u64,
        is_authenticated: bool,
    ) -> Self {
        Self {
            stream,
            peer,
            id,
            protocol: Protocol::Resp2,
            is_authenticated,
            names: ClientNames::default(),
            reply_mode: ReplyMode::On,
            connected: Instant::now(),
            heard_ms: 0,
            last_command: "",
            input: Vec::new(),
            parsed: 0,
            needed: 0,
            partial: None,
            sent_parts: 0,
            output: Vec::new(),
            written: 0,
            pending: VecDeque::new(),
            first: 0,
            outstanding: 0,
            is_blocked: false,
            is_monitor: false,
            is_closing: false,
            is_gone: false,
            watches: (true, false),
            is_listed: false,
            is_dirty: false,
            held_turns: 0,
        }
    }

    /// Output that is not sent yet, in bytes.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.output.len() - self.written
    }

    /// Makes a reply with `write`, in its place.
    #[inline]
    pub(crate) fn reply(&mut self, write: impl FnOnce(&mut Writer<'_>)) {
        if self.pending.is_empty() {
            self.emit(write);
        } else {
            let mut reply = Vec::new();
            write(&mut Writer::new(&mut reply, self.protocol));
            self.pending.push_back(Pending::Ready(reply));
        }
    }

    /// Adds a reply to the output, unless the client wants none.
    #[inline]
    fn emit(&mut self, write: impl FnOnce(&mut Writer<'_>)) {
        let start = self.output.len();
        write(&mut Writer::new(&mut self.output, self.protocol));
        if self.reply_mode != ReplyMode::On {
            self.output.truncate(start);
            // The reply of a task may come in parts.
            if self.reply_mode == ReplyMode::Skip && !self.is_blocked {
                self.reply_mode = ReplyMode::On;
            }
        }
    }

    /// The number of the reply that is promised next.
    #[inline]
    pub(crate) fn next_number(&self) -> u32 {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "requests under way are bounded"
        )]
        let count = self.pending.len() as u32;
        self.first.wrapping_add(count)
    }

    /// Promises a reply.
    #[inline]
    pub(crate) fn promise(&mut self, kind: ReplyKind) {
        self.pending.push_back(Pending::Waiting(kind));
    }

    /// Fulfils the promise of a number with what `write` makes of its kind.
    #[inline]
    pub(crate) fn fulfil(&mut self, number: u32, write: impl FnOnce(ReplyKind, &mut Writer<'_>)) {
        let place = number.wrapping_sub(self.first) as usize;
        let Some(Pending::Waiting(kind)) = self.pending.get(place) else {
            debug_assert!(false, "an answer comes once, for a promise");
            return;
        };
        let kind = *kind;
        if place > 0 {
            let mut reply = Vec::new();
            write(kind, &mut Writer::new(&mut reply, self.protocol));
            self.pending[place] = Pending::Ready(reply);
            return;
        }
        self.emit(|writer| write(kind, writer));
        self.pending.pop_front();
        self.first = self.first.wrapping_add(1);
        self.emit_ready();
    }

    /// Takes the answer to a part of a reply.
    pub(crate) fn fulfil_part(&mut self, number: u32, part: usize, answer: &Answer<'_>) {
        let place = number.wrapping_sub(self.first) as usize;
        let Some(Pending::Parts(parts)) = self.pending.get_mut(place) else {
            return;
        };
        if parts.take(part, self.protocol, answer) {
            let mut reply = Vec::new();
            parts.write(&mut Writer::new(&mut reply, self.protocol));
            self.pending[place] = Pending::Ready(reply);
            self.emit_ready();
        }
    }

    /// Adds the replies to the output that none before them is missing for.
    fn emit_ready(&mut self) {
        while let Some(Pending::Ready(_)) = self.pending.front() {
            if let Some(Pending::Ready(reply)) = self.pending.pop_front() {
                self.emit(|writer| writer.raw(&reply));
            }
            self.first = self.first.wrapping_add(1);
        }
    }

    /// True if nothing is under way for it and it does not wait for messages.
    pub(crate) fn is_idle(&self) -> bool {
        self.pending.is_empty() && !self.is_blocked && !self.is_monitor && !self.is_gone
    }

    /// Where the client connected.
    pub(crate) fn local_address(&self) -> String {
        let address = self.stream.local_addr();
        address.map_or_else(|_| String::new(), |address| address.to_string())
    }

    /// Bytes of its buffers.
    pub(crate) fn held_bytes(&self) -> usize {
        size_of::<Self>()
            + self.input.capacity()
            + self.output.capacity()
            + self.pending.capacity() * size_of::<Pending>()
    }

    /// Gives buffers back that nothing is in.
    pub(crate) fn release_buffers(&mut self) {
        if self.parsed == self.input.len() {
            self.input = Vec::new();
            self.parsed = 0;
        }
        if self.written == self.output.len() {
            self.output = Vec::new();
            self.written = 0;
        }
        if self.pending.is_empty() {
            self.pending = VecDeque::new();
        }
    }
}
