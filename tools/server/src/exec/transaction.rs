//! What a connection keeps from `WATCH` or `MULTI` on: watched versions and queued commands.
//!
//! Queued commands are kept as they would be sent, in one buffer. `EXEC` first tries to carry them
//! out as one transaction of the engine (`exec::plan`). If that is not possible they are replayed
//! under sections of their shards (`turn/replaying.rs`).

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use farcore::{Absence, Core, Version};

use crate::memory::Charge;
use crate::resp::{Arguments, Limits, Progress, Protocol, Writer, parse};
use crate::steps;
use crate::waits::key_queues::ReadyKeys;

/// A queue has this part of its bytes more than it needs, when it grows.
const GROWTH: usize = 8;
/// Bytes of a queued command that are parsed at once.
const PARSED_A_TURN: usize = 64 << 10;
/// Bytes of a command that are queued in a turn.
const ADDED_A_TURN: usize = 1 << 20;
/// Bytes of an argument's head and end, at most.
pub(crate) const BESIDE_BYTES: usize = 24;
/// Bytes of queued commands that a connection may have.
pub(crate) const QUEUE_BYTES_MAX: usize = 64 << 20;

/// What a watched key was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    Version(Version),
    Absent(Absence),
}

/// Watched keys, as they are stored, with what they were.
pub(crate) type Watched = HashMap<Vec<u8>, Seen>;

/// What a connection keeps from `WATCH` or `MULTI` on.
#[derive(Debug, Default)]
pub(crate) struct ClientTransaction {
    /// Shared with the task of a `WATCH`.
    pub(crate) watched: Rc<RefCell<Watched>>,
    pub(crate) phase: Phase,
    /// What the numbers of databases meant when it began, or keys were watched last.
    pub(crate) order: u64,
    /// How often they were swapped then.
    pub(crate) swaps: u64,
    /// A watched key was in a database that was swapped: `EXEC` does nothing.
    pub(crate) is_stale: bool,
    /// What the watched keys take.
    pub(crate) held: Vec<Charge>,
    /// Keys to which commands have added elements: clients that wait for them are woken when all
    /// have run.
    pub(crate) ready: ReadyKeys,
    /// What is parsed of the command that is replayed next.
    pub(crate) parsing: Option<Parsing>,
    /// What the connection has watched before, if this is a script alone.
    pub(crate) outer: Option<Box<ClientTransaction>>,
}

impl ClientTransaction {
    /// True if nothing was begun with it, and nothing else names what it has.
    pub(crate) fn is_new(&self) -> bool {
        let Self {
            watched,
            phase,
            is_stale,
            held,
            ready,
            parsing,
            outer,
            order,
            swaps,
        } = self;
        matches!(phase, Phase::Watching)
            && Rc::strong_count(watched) == 1
            && Rc::strong_count(ready) == 1
            && watched.borrow().is_empty()
            && ready.borrow().is_empty()
            && held.is_empty()
            && (parsing.is_none() && outer.is_none() && !is_stale)
            && (*order, *swaps) == (0, 0)
    }
}

/// What is parsed of a queued command.
#[derive(Debug, Default)]
pub(crate) struct Parsing {
    pub(crate) arguments: Arguments,
    /// Bytes that the parse has looked at; 0 before it begins.
    pub(crate) window: usize,
    /// Where the next command begins, once all is parsed.
    pub(crate) next: Option<usize>,
    /// It has a long argument, which is kept whole.
    pub(crate) takes_whole: bool,
}

impl Parsing {
    /// Keeps what is parsed of a command that goes on later, except if a value of it is passed on.
    pub(crate) fn keep(&mut self, next: usize, is_whole: bool) {
        if is_whole {
            self.next = Some(next);
        } else {
            self.end();
        }
    }

    /// Begins with the next command.
    pub(crate) fn end(&mut self) {
        self.arguments.clear();
        (self.window, self.next, self.takes_whole) = (0, None, false);
    }
}

/// Where a task leaves the client under whose sections commands are replayed. No watched key has
/// changed before they were entered.
pub(crate) type ReplaySlot = Rc<RefCell<Option<Core>>>;

/// How far a transaction is.
#[derive(Debug, Default)]
pub(crate) enum Phase {
    /// There was no `MULTI`.
    #[default]
    Watching,
    /// Commands are queued.
    Queueing(Queue),
    /// They are a script that waits until others with sections of the same shards have run; with
    /// the keys that it names.
    Waiting(Queue, Vec<Vec<u8>>),
    /// A task carries them out, or says that they must be replayed.
    Committing(Queue, ReplaySlot),
    /// Those behind a place of the queue are still to be run.
    Replaying(Queue, usize),
}

/// Queued commands.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// The commands, as they would be sent.
    pub(crate) bytes: Vec<u8>,
    pub(crate) commands: usize,
    /// Where the last one ends that may write.
    pub(crate) writes_end: usize,
    /// A command was refused, so none will be run.
    pub(crate) is_aborted: bool,
    /// A command may make data grow.
    pub(crate) needs_memory: bool,
    /// A pause of commands that write is of it, too.
    pub(crate) is_of_writes: bool,
    /// It is one command, which replies for itself.
    pub(crate) is_alone: bool,
    /// The shards that the commands may touch.
    pub(crate) reach: Reach,
    /// The slots of their keys, if the server is a part of a cluster.
    pub(crate) slots: Slots,
    /// A command may change keys that it does not name.
    pub(crate) is_unbound: bool,
    /// The number of the database that a queued `SELECT` has selected.
    pub(crate) database: Option<u8>,
    /// Of the command that is being added: where it begins, its next argument, and the bytes of
    /// that which are there.
    pub(crate) adding: (usize, usize, usize),
}

/// The slots of keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Slots {
    #[default]
    None,
    One(u16),
    Several,
}

impl Slots {
    /// These and another one.
    pub(crate) fn and(self, slot: u16) -> Self {
        match self {
            Self::None => Self::One(slot),
            Self::One(own) if own == slot => self,
            _ => Self::Several,
        }
    }
}

/// The shards that queued commands may touch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reach {
    /// A bit each.
    shards: [u64; 4],
    /// Some command may touch any.
    is_everywhere: bool,
}

impl Reach {
    pub(crate) fn add(&mut self, shard: usize) {
        self.shards[shard / 64 % 4] |= 1 << (shard % 64);
    }

    /// True if they may touch a shard.
    pub(crate) fn has(&self, shard: usize) -> bool {
        self.is_everywhere || self.shards[shard / 64 % 4] >> (shard % 64) & 1 != 0
    }

    /// True if they may touch each of `count` shards.
    pub(crate) fn is_all(&self, count: usize) -> bool {
        self.shards(count).count() == count
    }

    pub(crate) fn add_all(&mut self) {
        (self.shards, self.is_everywhere) = ([0; 4], true);
    }

    /// True if they touch none.
    pub(crate) fn is_empty(&self) -> bool {
        self.shards == [0; 4] && !self.is_everywhere
    }

    /// The shards, of `count` that there are.
    pub(crate) fn shards(self, count: usize) -> impl Iterator<Item = usize> {
        let has = move |shard: usize| self.shards[shard / 64 % 4] >> (shard % 64) & 1 != 0;
        (0..count).filter(move |&shard| self.is_everywhere || has(shard))
    }
}

/// How far a command was added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Added {
    /// There is more of it.
    Part,
    Whole,
    /// There are too many bytes; nothing of it is there.
    TooLong,
}

impl Queue {
    /// Bytes by which the buffer grows to take `bytes` more: little beyond what it holds.
    pub(crate) fn growth(&self, bytes: usize) -> usize {
        let needed = self.bytes.len() + bytes;
        if needed <= self.bytes.capacity() {
            return 0;
        }
        needed + needed / GROWTH - self.bytes.capacity()
    }

    /// Makes room for a command of `bytes`, and begins to add it.
    pub(crate) fn begin(&mut self, bytes: usize, count: usize) {
        let start = self.bytes.len();
        let growth = self.growth(bytes);
        if growth > 0 {
            let spare = self.bytes.capacity() - start;
            self.bytes.reserve_exact(growth + spare);
        }
        Writer::new(&mut self.bytes, Protocol::Resp2).array(count);
        self.adding = (start, 0, 0);
    }

    /// Adds some of a command that has begun.
    pub(crate) fn add_some<'a>(
        &mut self,
        count: usize,
        argument: impl Fn(usize) -> &'a [u8],
    ) -> Added {
        let (start, mut place, mut offset) = self.adding;
        let end = self.bytes.len() + ADDED_A_TURN;
        while place < count {
            let argument = argument(place);
            if offset == 0 {
                Writer::new(&mut self.bytes, Protocol::Resp2).bulk_head(argument.len());
            }
            let room = end.saturating_sub(self.bytes.len()).max(1);
            let piece = room.min(argument.len() - offset);
            self.bytes
                .extend_from_slice(&argument[offset..offset + piece]);
            offset += piece;
            if offset == argument.len() {
                self.bytes.extend_from_slice(b"\r\n");
                (place, offset) = (place + 1, 0);
            }
            if self.bytes.len() >= end && place < count {
                self.adding = (start, place, offset);
                return Added::Part;
            }
        }
        self.adding = (0, 0, 0);
        if self.bytes.len() > QUEUE_BYTES_MAX {
            self.bytes.truncate(start);
            return Added::TooLong;
        }
        self.commands += 1;
        Added::Whole
    }

    /// Parses the command at a place; returns where the next one begins.
    pub(crate) fn command(&self, at: usize, arguments: &mut Arguments) -> Option<usize> {
        arguments.clear();
        match parse(&self.bytes[at..], &Limits::default(), arguments) {
            Ok(Progress::Complete { consumed }) => Some(at + consumed),
            _ => None,
        }
    }

    /// Parses some of the command at a place within limits; it is incomplete if there is more.
    pub(crate) fn parse(
        &self,
        at: usize,
        limits: &Limits,
        parsing: &mut Parsing,
    ) -> Option<Progress> {
        let input = &self.bytes[at..];
        let before = parsing.window;
        let window = input.len().min(before.max(PARSED_A_TURN));
        let progress = parse(&input[..window], limits, &mut parsing.arguments).ok()?;
        // What was skipped of a long argument costs nothing.
        steps::count_walked(match progress {
            Progress::Complete { consumed } => (consumed - before.min(consumed)).min(PARSED_A_TURN),
            _ => PARSED_A_TURN,
        });
        parsing.window = window;
        if let Progress::Incomplete { needed } = progress {
            if window == input.len() {
                return None;
            }
            parsing.window = needed.max(window + PARSED_A_TURN);
        }
        Some(progress)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(queue: &mut Queue, command: &[&[u8]]) -> Added {
        let bytes = command.iter().map(|one| one.len() + BESIDE_BYTES).sum();
        queue.begin(bytes, command.len());
        loop {
            match queue.add_some(command.len(), |place| command[place]) {
                Added::Part => {}
                added => return added,
            }
        }
    }

    #[test]
    fn queued_commands_are_parsed_as_they_were_sent() {
        let mut queue = Queue::default();
        let sent: [&[&[u8]]; 2] = [&[b"SET", b"", b"a\r\n\0"], &[b"PING"]];
        for command in sent {
            assert_eq!(add(&mut queue, command), Added::Whole);
        }
        let (mut at, mut arguments) = (0, Arguments::new());
        for command in sent {
            let next = queue.command(at, &mut arguments).expect("a whole command");
            let parsed: Vec<_> = arguments.iter(&queue.bytes[at..]).collect();
            assert_eq!(parsed, command);
            at = next;
        }
        assert_eq!((at, queue.commands), (queue.bytes.len(), 2));
    }

    #[test]
    fn a_queue_is_bounded() {
        let mut queue = Queue::default();
        let value = vec![b'x'; QUEUE_BYTES_MAX / 2 - 100];
        assert_eq!(add(&mut queue, &[&value]), Added::Whole);
        assert_eq!(add(&mut queue, &[&value]), Added::Whole);
        let before = queue.bytes.len();
        assert_eq!(add(&mut queue, &[&value]), Added::TooLong);
        assert_eq!((queue.bytes.len(), queue.commands), (before, 2));
    }

    #[test]
    fn a_long_command_is_added_and_parsed_in_pieces() {
        let long = vec![b'x'; 3 * ADDED_A_TURN];
        let mut command = vec![&b"mset"[..], b"key", &long];
        command.resize(command.len() + 200_000, b"y");
        let mut queue = Queue::default();
        queue.begin(0, command.len());
        let mut parts = 0;
        while queue.add_some(command.len(), |place| command[place]) == Added::Part {
            parts += 1;
        }
        assert!((4..6).contains(&parts) && queue.commands == 1, "{parts}");
        assert_eq!(add(&mut queue, &[b"ping"]), Added::Whole);
        let limits = Limits::default();
        let (mut parsing, mut parts) = (Parsing::default(), 0);
        let consumed = loop {
            match queue.parse(0, &limits, &mut parsing).expect("a command") {
                Progress::Incomplete { .. } => parts += 1,
                Progress::Complete { consumed } => break consumed,
                Progress::Large { .. } => panic!("nothing is too long"),
            }
        };
        assert!((20..40).contains(&parts), "{parts}");
        let parsed: Vec<_> = parsing.arguments.iter(&queue.bytes).collect();
        assert!(parsed == command);
        parsing.end();
        let last = queue.parse(consumed, &limits, &mut parsing);
        assert!(matches!(last, Some(Progress::Complete { .. })));
        assert_eq!(parsing.arguments.len(), 1);
    }
}
