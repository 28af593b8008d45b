//! What a core does with the bytes of its connections: receive, parse, run.
//!
//! Bytes are parsed where they were received. Only the rest of an incomplete command is kept with
//! its connection. A value that is too long for a record is not kept at all: it goes on to the task
//! that stores it, or is skipped.
//!
//! - I1: nothing is received for a connection that may not go on: its output is above its limit, or
//!   a task runs for it, and enough input waits.

use farcore::Core;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use crate::commands::{self, Call, Flow};
use crate::conn::connection::Connection;
use crate::conn::discarding::Discarding;
use crate::conn::unauthenticated;
use crate::limits::{DEFERRED_MS, RECEIVE_BYTES};
use crate::long::input::{Following, LongInput, NextValue};
use crate::memory::{SMALL_BYTES, Shortage};
use crate::resp::{Arguments, Progress, ProtocolError, parse, parse_rest};
use crate::serving::Serving;
use crate::steps;

/// Bytes received at once while more than a half, three quarters or seven eighths of the memory
/// for clients are taken.
const RECEIVE_BYTES_SHORT: usize = 16 << 10;
const RECEIVE_BYTES_CROWDED: usize = 4 << 10;
const RECEIVE_BYTES_LEAST: usize = 1 << 10;
/// Bytes after a bulk string.
const ENDING_BYTES: usize = 2;

/// What became of the start of the input.
enum Parsed {
    /// This many bytes are done with.
    Bytes(usize),
    /// Nothing more can be done now.
    Stop,
}

impl Connection {
    /// True if no command may run now.
    fn is_held(&self) -> bool {
        self.is_blocked
            || self.is_handed_over
            || self.paused.is_some()
            || self.is_executing()
            || self.is_closing
            || self.is_ahead()
            || self.is_restrained()
    }

    /// True if bytes may be received.
    pub(crate) fn may_receive(&self) -> bool {
        match &self.stream {
            // A queued value comes from the queue.
            Some(stream) if !stream.is_done() && !self.is_executing() => {
                !stream.is_full(self.share_bytes)
            }
            _ if self.is_closing || self.is_restrained() => false,
            _ => {
                // An incomplete command needs more, however much waits.
                let is_over = self.is_held() && self.left == 0;
                let needed = if is_over { 0 } else { self.needed };
                self.input.len() - self.parsed < needed.max(RECEIVE_BYTES.min(self.share_bytes))
            }
        }
    }

    /// True if the next command is kept whole: it is queued, or refused.
    fn keeps_whole(&self) -> bool {
        self.is_queueing() || self.is_restricted()
    }

    /// True if a long value of a command is passed on as it comes: not if keys may follow whose
    /// use must be allowed first.
    pub(crate) fn passes_on(&self, arguments: &Arguments, input: &[u8], left: usize) -> bool {
        (left == 0 || self.user.may_all()) && commands::streams(arguments, input, left)
    }

    /// True if a queued command may run; also with too much output if it runs ahead.
    pub(crate) fn may_execute(&self, runs_ahead: bool) -> bool {
        let has_room = runs_ahead || !self.is_ahead();
        self.is_executing() && !self.is_blocked && !self.is_closing && has_room
    }

    /// True if its socket is watched for input: that of a long value is received as soon as its
    /// task has taken what came before, which the socket does not tell.
    pub(crate) fn waits_for_input(&self) -> bool {
        self.may_receive() || self.stream.as_ref().is_some_and(|stream| !stream.is_done())
    }

    /// True if there is input that may be a command, and it may run.
    pub(crate) fn may_go_on(&self) -> bool {
        let waiting = self.input.len() - self.parsed;
        waiting > 0 && waiting >= self.needed && !self.is_held()
    }

    /// Has what follows in the input belong to a long value, of `bytes`, and to what is left
    /// of its command. If no task takes the value it is skipped.
    pub(crate) fn begin_value(&mut self, bytes: usize, left: usize) {
        let passed = self.stream.as_ref().map_or(0, |_| bytes);
        self.skipped_bytes = bytes - passed + ENDING_BYTES;
        self.left = left;
    }

    /// True if bytes of a long value are to come, or of its end.
    fn is_in_value(&self) -> bool {
        self.skipped_bytes > 0 || self.stream.as_ref().is_some_and(|stream| !stream.is_done())
    }

    /// Takes bytes that belong to a value that is passed on or skipped; returns how many.
    fn pass_on(&mut self, bytes: &[u8], now_ms: u64) -> usize {
        let mut taken = 0;
        if let Some(stream) = &self.stream {
            taken = stream.push(bytes);
            stream.note_sent(taken, now_ms);
            // Its task ended before all had come.
            if stream.is_done() && !self.is_blocked {
                self.stream = None;
            }
        }
        let skipped = self.skipped_bytes.min(bytes.len() - taken);
        self.skipped_bytes -= skipped;
        taken + skipped
    }
}

impl Serving {
    pub(crate) fn receive(&mut self, core: &mut Core, number: usize, connection: &mut Connection) {
        if connection.is_handed_over
            || !connection.may_receive()
            || !self.has_memory_for_rest(number, connection)
        {
            self.watch(number, connection);
            return;
        }
        let mut received = std::mem::take(&mut self.received);
        let room = if connection.stay.is_some() {
            unauthenticated::RECEIVE_BYTES
        } else {
            self.receive_bytes()
        };
        match recv(
            &connection.socket,
            &mut received[..room],
            RecvFlags::DONTWAIT,
        ) {
            Ok((_, 0)) => connection.is_gone = true,
            Ok((_, count)) => {
                let counters = &self.shared.counters[self.place];
                counters.receives.add(1);
                counters.received_bytes.add(count as u64);
                steps::count_walked(count);
                connection.heard_ms = self.now_ms;
                if connection.tls.is_some() {
                    self.take_sealed(core, number, connection, &received[..count]);
                } else {
                    self.take_plain(core, number, connection, &received[..count]);
                }
                self.account(connection);
                self.watch(number, connection);
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => connection.is_gone = true,
        }
        self.received = received;
    }

    /// Bytes that are received at once: the less memory is free, the fewer.
    fn receive_bytes(&self) -> usize {
        let memory = self.memory.server();
        let (limit, taken) = (memory.limit(), memory.taken());
        if taken <= limit / 2 {
            RECEIVE_BYTES
        } else if taken <= limit / 4 * 3 {
            RECEIVE_BYTES_SHORT
        } else if taken <= limit / 8 * 7 {
            RECEIVE_BYTES_CROWDED
        } else {
            RECEIVE_BYTES_LEAST
        }
    }

    /// True if there is memory for the rest of the command that has begun to come. Else its client
    /// waits, or the command is refused.
    fn has_memory_for_rest(&mut self, number: usize, connection: &mut Connection) -> bool {
        // A whole command that goes on in slices needs no more.
        let is_partial = connection.left == 0 && connection.whole_bytes == 0;
        let Some(partial) = connection.partial.as_ref().filter(|_| is_partial) else {
            return true;
        };
        let (length, capacity) = (connection.input.len(), connection.input.capacity());
        let wanted = connection.needed.max(length + RECEIVE_BYTES_LEAST);
        if wanted <= capacity {
            return true;
        }
        // Many short arguments come without a length of all, and their places double.
        let wanted = wanted.max(length + length / 8);
        let growth = wanted - capacity + partial.held_bytes();
        if growth > SMALL_BYTES {
            match connection.account.may_have(growth) {
                Ok(()) => {}
                Err(shortage) => return self.lack_memory(number, connection, &shortage),
            }
        }
        connection.waits_since_ms = 0;
        connection.input.reserve_exact(wanted - length);
        self.account(connection);
        true
    }

    /// Has a client wait for memory for the rest of a command, or refuses the command. Returns
    /// whether its bytes may be received.
    #[cold]
    fn lack_memory(
        &mut self,
        number: usize,
        connection: &mut Connection,
        shortage: &Shortage,
    ) -> bool {
        if connection.waits_since_ms == 0 {
            connection.waits_since_ms = self.now_ms;
        }
        let waits_ms = self.now_ms.saturating_sub(connection.waits_since_ms);
        if waits_ms < DEFERRED_MS && connection.account.wait(shortage, self.now_ms) {
            return false;
        }
        connection.waits_since_ms = 0;
        connection.account.end_wait();
        let text = shortage.to_string();
        self.note_failure(&text);
        if let Some(queue) = connection.queue_mut() {
            queue.is_aborted = true;
        }
        connection.reply(|writer| writer.error(&text));
        let (at, bulks) = connection.partial.take().map_or((0, 0), |one| one.rest());
        let mut discarding = Discarding::new(bulks);
        let rest = connection.input.get(connection.parsed + at..);
        if bulks == 0 || discarding.skip(rest.unwrap_or_default()).is_err() {
            // An inline command, which has no length, or bytes that are no command.
            connection.is_closing = true;
        }
        connection.input = Vec::new();
        connection.parsed = 0;
        connection.needed = 0;
        connection.takes_whole = false;
        connection.discarding = Some(Box::new(discarding));
        self.note_dirty(number, connection);
        true
    }

    /// Takes bytes of requests.
    pub(crate) fn take_plain(
        &mut self,
        core: &mut Core,
        number: usize,
        connection: &mut Connection,
        mut bytes: &[u8],
    ) {
        if let Some(discarding) = &mut connection.discarding {
            match discarding.skip(bytes) {
                Ok(skipped) => bytes = &bytes[skipped..],
                Err(error) => return self.refuse(connection, &error),
            }
            if !discarding.is_done() {
                return;
            }
            connection.discarding = None;
        }
        if connection.input.is_empty() {
            let parsed = self.parse_all(core, number, connection, bytes);
            connection.input.extend_from_slice(&bytes[parsed..]);
        } else {
            let free = connection.input.capacity() - connection.input.len();
            if free < bytes.len() {
                // It takes little more than what has come.
                let more = bytes.len().max(connection.input.len() / 8);
                connection.input.reserve_exact(more);
            }
            connection.input.extend_from_slice(bytes);
            self.parse_rest(core, number, connection);
        }
    }

    /// Parses what is left of a connection's input.
    pub(crate) fn parse_rest(
        &mut self,
        core: &mut Core,
        number: usize,
        connection: &mut Connection,
    ) {
        let mut input = std::mem::take(&mut connection.input);
        let start = connection.parsed;
        connection.parsed = 0;
        let parsed = start + self.parse_all(core, number, connection, &input[start..]);
        if parsed == input.len() {
            input = Vec::new();
        } else if parsed > RECEIVE_BYTES || parsed > 0 && self.is_short() {
            input.drain(..parsed);
            if self.is_short() {
                input.shrink_to(RECEIVE_BYTES_SHORT);
            }
        } else {
            connection.parsed = parsed;
        }
        connection.input = input;
    }

    /// Runs the commands in `input`, as far as they are whole and may run now. Returns how many
    /// bytes are done with.
    fn parse_all(
        &mut self,
        core: &mut Core,
        number: usize,
        connection: &mut Connection,
        input: &[u8],
    ) -> usize {
        if !self.execute(core, number, connection) {
            self.note_dirty(number, connection);
            return 0;
        }
        let (mut parsed, before) = (0, steps::now());
        while parsed < input.len() && !connection.is_gone && !connection.is_executing() {
            // Replies that the client does not want, or short ones, hold nothing up.
            if steps::since(before) >= steps::SLICE {
                self.list(number, connection);
                break;
            }
            parsed += self.take_following(number, connection, &input[parsed..]);
            let rest = &input[parsed..];
            let must_wait = connection.is_held() || connection.left > 0;
            if must_wait || rest.is_empty() || rest.len() < connection.needed {
                break;
            }
            let mut arguments = match connection.partial.take() {
                Some(partial) => *partial,
                None => {
                    let mut arguments = std::mem::take(&mut self.arguments);
                    arguments.clear();
                    arguments
                }
            };
            match self.parse_one(core, number, connection, rest, &mut arguments) {
                Parsed::Bytes(bytes) => {
                    self.arguments = arguments;
                    parsed += bytes;
                }
                Parsed::Stop => {
                    // The places of very many arguments count as its client's.
                    let is_looked_at = connection.stored_keys.has_begun()
                        || connection.in_cluster.slots_looked.is_some();
                    if connection.needed > 0 || connection.whole_bytes > 0 || is_looked_at {
                        connection.partial = Some(Box::new(arguments));
                    } else {
                        self.arguments = arguments;
                    }
                    break;
                }
            }
        }
        self.note_dirty(number, connection);
        parsed
    }

    /// Takes bytes of a long value that is under way, and of what follows it in its command;
    /// returns how many.
    pub(crate) fn take_following(
        &mut self,
        number: usize,
        connection: &mut Connection,
        bytes: &[u8],
    ) -> usize {
        let mut taken = 0;
        loop {
            taken += connection.pass_on(&bytes[taken..], self.now_ms);
            let rest = &bytes[taken..];
            if connection.left == 0 || connection.is_in_value() || connection.is_closing {
                return taken;
            }
            if rest.is_empty() || rest.len() < connection.needed {
                return taken;
            }
            let stream = connection.stream.as_ref();
            if stream.is_some_and(|stream| !stream.is_taken()) {
                // The task takes what came before first.
                self.list(number, connection);
                return taken;
            }
            match self.parse_following(connection, rest) {
                Some(bytes) => taken += bytes,
                None => return taken,
            }
        }
    }

    /// Parses what is left of a long value's command, and passes it on if its task goes on. Returns
    /// how many bytes are done with; `None` if more are needed.
    fn parse_following(&mut self, connection: &mut Connection, input: &[u8]) -> Option<usize> {
        connection.needed = 0;
        let mut arguments = connection.partial.take().unwrap_or_default();
        let stream = connection.stream.as_ref();
        // Without a task long values are skipped.
        let announces = stream.is_none_or(LongInput::takes_values);
        let limits = if announces {
            &self.limits
        } else {
            &self.limits_of_whole
        };
        let mut parsed = parse_rest(input, connection.left, limits, &mut arguments);
        // A key is never passed on: it is too long in any case.
        if stream.is_some()
            && matches!(parsed, Ok(Progress::Large { .. }))
            && arguments.len().is_multiple_of(2)
        {
            arguments.clear();
            let limits = &self.limits_of_whole;
            parsed = parse_rest(input, connection.left, limits, &mut arguments);
        }
        let (consumed, next) = match parsed {
            Ok(Progress::Complete { consumed }) => (consumed, None),
            Ok(Progress::Large {
                offset,
                bytes,
                left,
            }) => (offset, Some(NextValue { bytes, left })),
            Ok(Progress::Incomplete { needed }) => {
                connection.needed = needed;
                connection.partial = Some(arguments);
                return None;
            }
            Err(error) => {
                self.refuse(connection, &error);
                return None;
            }
        };
        if let Some(stream) = &connection.stream {
            stream.note_sent(consumed, self.now_ms);
            stream.follow(Following {
                arguments: arguments.iter(input).map(<[u8]>::to_vec).collect(),
                next,
            });
        }
        match next {
            Some(NextValue { bytes, left }) => connection.begin_value(bytes, left),
            None => connection.left = 0,
        }
        Some(consumed)
    }

    /// Replies to bytes that are no request, and ends the connection.
    fn refuse(&mut self, connection: &mut Connection, error: &ProtocolError) {
        self.note_failure("ERR");
        self.counters().protocol_errors.add(1);
        if let Some(stream) = &connection.stream {
            stream.cut();
        }
        connection.reply(|writer| writer.error_fmt(format_args!("ERR {error}")));
        connection.is_closing = true;
    }

    fn parse_one(
        &mut self,
        core: &mut Core,
        number: usize,
        connection: &mut Connection,
        input: &[u8],
        arguments: &mut Arguments,
    ) -> Parsed {
        connection.needed = 0;
        let limits = match connection.is_authenticated {
            true if connection.takes_whole => &self.limits_of_whole,
            true => &self.limits,
            false => &self.unauthenticated_limits,
        };
        let whole = match std::mem::take(&mut connection.whole_bytes) {
            0 => parse(input, limits, arguments),
            consumed => Ok(Progress::Complete { consumed }),
        };
        let (consumed, value) = match whole {
            Ok(Progress::Complete { consumed }) => {
                connection.takes_whole = false;
                (consumed, None)
            }
            Ok(Progress::Large { left, .. })
                if connection.keeps_whole() || !connection.passes_on(arguments, input, left) =>
            {
                connection.takes_whole = true;
                arguments.clear();
                return self.parse_one(core, number, connection, input, arguments);
            }
            Ok(Progress::Large {
                offset,
                bytes,
                left,
            }) => (offset, Some((bytes, left))),
            Ok(Progress::Incomplete { needed }) => {
                connection.needed = needed;
                return Parsed::Stop;
            }
            Err(error) => {
                self.refuse(connection, &error);
                return Parsed::Stop;
            }
        };
        let mut call = Call {
            core,
            serving: self,
            connection,
            number,
            arguments,
            input,
            typed: None,
            writes: false,
            plan: None,
        };
        let flow = match value {
            None => commands::run(&mut call),
            Some((bytes, left)) => commands::run_long(&mut call, bytes, left),
        };
        match flow {
            Flow::Done => {
                if let Some((bytes, left)) = value {
                    connection.begin_value(bytes, left);
                }
                connection.waits_since_ms = 0;
                Parsed::Bytes(consumed)
            }
            Flow::Later => {
                // One of many keys goes on often, and is not parsed anew each time.
                let is_looked_at = connection.stored_keys.has_begun();
                if connection.sent_parts.is_some() || is_looked_at && value.is_none() {
                    connection.whole_bytes = consumed;
                }
                self.list(number, connection);
                Parsed::Stop
            }
        }
    }
}
