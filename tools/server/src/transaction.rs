//! What a connection keeps from `WATCH` or `MULTI` on: watched versions and queued commands.
//!
//! Queued commands are kept as they would be sent, in one buffer. `EXEC` first tries to carry them
//! out as one transaction of the engine (`plan`). If that is not possible they are replayed: the
//! core's loop runs them from the buffer, as if the client had sent them now, before anything that
//! the client has sent after `EXEC`.
//!
//! - I1: while commands are replayed nothing else of the connection is parsed, and messages of
//!   channels wait, so the replies make one array.

use std::cell::RefCell;
use std::rc::Rc;

use farcore::{Core, Version};

use crate::commands::{self, Call, Flow};
use crate::connection::Connection;
use crate::gate::GateHold;
use crate::memory::Charge;
use crate::resp::{Arguments, Limits, Progress, Protocol, Writer, parse};
use crate::serving::Serving;
use crate::waiting::ReadyKeys;

/// A queue has this part of its bytes more than it needs, when it grows.
const GROWTH: usize = 8;
/// Bytes of an argument's head and end, at most.
pub(crate) const BESIDE_BYTES: usize = 24;
/// Bytes of queued commands that a connection may have.
pub(crate) const QUEUE_BYTES_MAX: usize = 64 << 20;

/// Watched keys, as they are stored, with the versions that they had; 0 is absent.
pub(crate) type Watched = Vec<(Vec<u8>, Version)>;

/// What a connection keeps from `WATCH` or `MULTI` on.
#[derive(Debug, Default)]
pub(crate) struct ClientTransaction {
    /// Shared with the task of a `WATCH`.
    pub(crate) watched: Rc<RefCell<Watched>>,
    pub(crate) phase: Phase,
    /// What the watched keys take.
    pub(crate) held: Vec<Charge>,
    /// Keys to which commands have added elements: clients that wait for them are woken when all
    /// have run.
    pub(crate) ready: ReadyKeys,
    /// The gate for writes, closed until no command that writes is left.
    pub(crate) hold: Option<GateHold>,
}

/// Why queued commands are replayed.
#[derive(Debug)]
pub(crate) enum Replay {
    /// They cannot be carried out at once, and no key is watched.
    Plain,
    /// No watched key has changed since the gate was closed.
    Held(GateHold),
}

/// Where a task leaves that commands must be replayed.
pub(crate) type ReplaySlot = Rc<RefCell<Option<Replay>>>;

/// How far a transaction is.
#[derive(Debug, Default)]
pub(crate) enum Phase {
    /// There was no `MULTI`.
    #[default]
    Watching,
    /// Commands are queued.
    Queueing(Queue),
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
}

impl Queue {
    /// Bytes by which the buffer grows for so many more: little beyond what it holds.
    pub(crate) fn growth(&self, bytes: usize) -> usize {
        let needed = self.bytes.len() + bytes;
        if needed <= self.bytes.capacity() {
            return 0;
        }
        needed + needed / GROWTH - self.bytes.capacity()
    }

    /// Adds a command; false if there are too many bytes.
    pub(crate) fn add<'a>(
        &mut self,
        arguments: impl ExactSizeIterator<Item = &'a [u8]> + Clone,
    ) -> bool {
        let before = self.bytes.len();
        let bytes = arguments.clone().map(|one| one.len() + BESIDE_BYTES).sum();
        let growth = self.growth(bytes);
        if growth > 0 {
            let spare = self.bytes.capacity() - before;
            self.bytes.reserve_exact(growth + spare);
        }
        let mut writer = Writer::new(&mut self.bytes, Protocol::Resp2);
        writer.array(arguments.len());
        for argument in arguments {
            writer.bulk(argument);
        }
        let fits = self.bytes.len() <= QUEUE_BYTES_MAX;
        if fits {
            self.commands += 1;
        } else {
            self.bytes.truncate(before);
        }
        fits
    }

    /// Parses the command at a place; returns where the next one begins.
    pub(crate) fn command(&self, at: usize, arguments: &mut Arguments) -> Option<usize> {
        match self.parse(at, &Limits::default(), arguments)? {
            (next, None) => Some(next),
            (_, Some(_)) => None,
        }
    }

    /// Parses the command at a place within limits; returns where it ends. If an argument is too
    /// long for them, returns where that begins, its bytes, and how many arguments follow it.
    fn parse(
        &self,
        at: usize,
        limits: &Limits,
        arguments: &mut Arguments,
    ) -> Option<(usize, Option<(usize, usize)>)> {
        arguments.clear();
        match parse(&self.bytes[at..], limits, arguments) {
            Ok(Progress::Complete { consumed }) => Some((at + consumed, None)),
            Ok(Progress::Large {
                offset,
                bytes,
                left,
            }) => Some((at + offset, Some((bytes, left)))),
            _ => None,
        }
    }
}

impl Connection {
    /// True between `MULTI` and `EXEC`.
    pub(crate) fn is_queueing(&self) -> bool {
        self.queue().is_some()
    }

    /// The commands that were queued since `MULTI`.
    pub(crate) fn queue(&self) -> Option<&Queue> {
        match &self.transaction.as_ref()?.phase {
            Phase::Queueing(queue) => Some(queue),
            _ => None,
        }
    }

    /// The same, to add one.
    pub(crate) fn queue_mut(&mut self) -> Option<&mut Queue> {
        match &mut self.transaction.as_mut()?.phase {
            Phase::Queueing(queue) => Some(queue),
            _ => None,
        }
    }

    /// Bytes of queued commands.
    pub(crate) fn queued_bytes(&self) -> usize {
        let transaction = self.transaction.as_ref();
        transaction.map_or(0, |transaction| match &transaction.phase {
            Phase::Watching => 0,
            Phase::Queueing(queue) | Phase::Committing(queue, _) | Phase::Replaying(queue, _) => {
                queue.bytes.capacity()
            }
        })
    }

    /// True while queued commands are carried out.
    #[inline]
    pub(crate) fn is_executing(&self) -> bool {
        self.transaction.as_ref().is_some_and(|transaction| {
            matches!(
                transaction.phase,
                Phase::Committing(..) | Phase::Replaying(..)
            )
        })
    }

    /// True if no queued command is left to begin that may write.
    pub(crate) fn has_replayed_writes(&self) -> bool {
        match self
            .transaction
            .as_ref()
            .map(|transaction| &transaction.phase)
        {
            Some(Phase::Replaying(queue, at)) => *at >= queue.writes_end,
            _ => false,
        }
    }

    /// Has queued commands replayed, and begins their reply.
    pub(crate) fn replay(&mut self, queue: Queue) {
        let count = queue.commands;
        self.reply(|writer| writer.array(count));
        let transaction = self.transaction.get_or_insert_default();
        transaction.phase = Phase::Replaying(queue, 0);
    }
}

impl Serving {
    /// Goes on with what a connection's `EXEC` has begun. True if nothing of it is left, so the
    /// connection's input may be parsed.
    #[inline]
    pub(crate) fn execute(
        &mut self,
        core: &mut Core,
        number: usize,
        connection: &mut Connection,
    ) -> bool {
        !connection.is_executing() || self.execute_more(core, number, connection)
    }

    fn execute_more(
        &mut self,
        core: &mut Core,
        number: usize,
        connection: &mut Connection,
    ) -> bool {
        let is_blocked = connection.is_blocked;
        let Some(transaction) = &mut connection.transaction else {
            return true;
        };
        let is_done = match std::mem::take(&mut transaction.phase) {
            phase @ Phase::Committing(..) if is_blocked => {
                transaction.phase = phase;
                false
            }
            Phase::Committing(queue, slot) => match slot.take() {
                None => true,
                Some(replay) => {
                    if let Replay::Held(hold) = replay {
                        transaction.hold = Some(hold);
                        self.note_holder(number);
                    }
                    connection.replay(queue);
                    self.replay_some(core, number, connection)
                }
            },
            phase @ Phase::Replaying(..) => {
                transaction.phase = phase;
                self.replay_some(core, number, connection)
            }
            Phase::Watching | Phase::Queueing(_) => true,
        };
        if is_done {
            self.end_transaction(connection);
            connection.send_deferred();
        }
        is_done
    }

    /// Ends the transaction of a connection, if it has one.
    pub(crate) fn end_transaction(&self, connection: &mut Connection) {
        let transaction = connection.transaction.take();
        for key in transaction.iter().flat_map(|one| one.ready.take()) {
            self.shared.wake_waiter(&key, &[]);
        }
    }

    /// Runs queued commands as far as they may run now. True once all are replied to.
    fn replay_some(&mut self, core: &mut Core, number: usize, connection: &mut Connection) -> bool {
        let transaction = connection.transaction.as_mut();
        let phase = transaction.map(|transaction| &mut transaction.phase);
        // It is still replaying while a command runs.
        let (queue, mut at) = match phase {
            Some(Phase::Replaying(queue, at)) => (std::mem::take(queue), *at),
            _ => return true,
        };
        let mut arguments = Arguments::new();
        let mut must_wait = false;
        loop {
            at += self.take_following(number, connection, &queue.bytes[at..]);
            must_wait |= connection.stream.is_some() || connection.left > 0;
            if at == queue.bytes.len() || must_wait {
                break;
            }
            // One that holds the gate does not wait for its client while there is memory.
            let runs_ahead =
                connection.holds_gate() && connection.outstanding == 0 && !self.is_crowded();
            if !connection.may_execute(runs_ahead) || connection.is_gone {
                break;
            }
            let mut parsed = queue.parse(at, &self.limits, &mut arguments);
            if let Some((_, Some((_, left)))) = parsed
                && !commands::streams(&arguments, &queue.bytes[at..], left)
            {
                parsed = queue.parse(at, &self.limits_of_whole, &mut arguments);
            }
            let Some((next, long)) = parsed else {
                debug_assert!(false, "it was written as it is parsed");
                break;
            };
            let mut call = Call {
                core: &mut *core,
                serving: &mut *self,
                connection: &mut *connection,
                number,
                arguments: &arguments,
                input: &queue.bytes[at..],
                writes: false,
                plan: None,
            };
            let flow = match long {
                None => commands::run(&mut call),
                Some((bytes, left)) => commands::run_long(&mut call, bytes, left),
            };
            if flow == Flow::Later {
                self.go_on_later(number, connection);
                break;
            }
            at = next;
            if let Some((bytes, left)) = long {
                connection.begin_value(bytes, left);
            }
        }
        // Messages of channels must not come between the replies.
        let is_run = at == queue.bytes.len() && !connection.is_blocked;
        let is_done = is_run && connection.pending.is_empty();
        if must_wait || (is_run && !is_done) {
            self.list(number, connection);
        }
        if let Some(transaction) = &mut connection.transaction {
            transaction.phase = Phase::Replaying(queue, at);
        }
        is_done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queued_commands_are_parsed_as_they_were_sent() {
        let mut queue = Queue::default();
        let sent: [&[&[u8]]; 2] = [&[b"SET", b"", b"a\r\n\0"], &[b"PING"]];
        for command in sent {
            assert!(queue.add(command.iter().copied()));
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
        assert!(queue.add([&value[..]].into_iter()));
        assert!(queue.add([&value[..]].into_iter()));
        let before = queue.bytes.len();
        assert!(!queue.add([&value[..]].into_iter()));
        assert_eq!((queue.bytes.len(), queue.commands), (before, 2));
    }
}
