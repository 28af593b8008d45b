//! How `EXEC` goes on over turns: the core's loop runs the queued commands from their buffer, as if
//! the client had sent them now, before anything that the client has sent after `EXEC`.
//!
//! - I1: while commands are replayed nothing else of the connection is parsed, and messages of
//!   channels wait, so the replies make one array.

use std::time::Instant;

use farcore::Core;

use crate::commands::{self, Call, Flow};
use crate::conn::connection::Connection;
use crate::exec::transaction::{Parsing, Phase, Queue};
use crate::resp::Progress;
use crate::serving::Serving;
use crate::steps;

/// Queued commands that are run in a turn, at least, or pieces of one that are parsed.
const PIECES_A_TURN: usize = 16;

/// Why a queue goes on later.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stop {
    /// A value goes to a task.
    pub(crate) must_wait: bool,
    /// The turn has counted enough.
    pub(crate) is_over: bool,
}

/// What a piece of a parse of the queue has found.
enum Queued {
    /// A command, and where it ends; or where a long argument begins, of this many bytes and
    /// with this many others after it.
    Command {
        next: usize,
        long: Option<(usize, usize)>,
    },
    /// Not all of it yet.
    Part,
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
            phase @ Phase::Waiting(..) => {
                transaction.phase = phase;
                false
            }
            Phase::Committing(queue, slot) => match slot.take() {
                None => true,
                Some(under) => {
                    let shared = queue.is_alone.then(|| (queue.reach, Instant::now()));
                    self.sections.hold(number, Some(under), shared);
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
            self.end_transaction(number, connection);
            connection.send_deferred();
            connection.is_gone |= connection.is_orphan;
        }
        is_done
    }

    /// Ends the transaction of a connection, if it has one.
    pub(crate) fn end_transaction(&mut self, number: usize, connection: &mut Connection) {
        match self.sections.take_shared(number) {
            Some((reach, entry)) => self.script_queues.give_back(reach, number, entry),
            None => self.sections.end(number),
        }
        let Some(mut transaction) = connection.transaction.take() else {
            return;
        };
        if !transaction.ready.borrow().is_empty() {
            for (awaited, key) in transaction.ready.take() {
                self.shared.wake_waiter(awaited, &key, &[]);
            }
        }
        connection.transaction = transaction.outer.take();
        let is_alone = match &transaction.phase {
            Phase::Replaying(queue, _) => queue.is_alone,
            _ => false,
        };
        if is_alone {
            self.spares.give_transaction(transaction);
        }
    }

    /// Parses some of the command at a place of a queue, unless it is parsed already.
    fn parse_queued(
        &self,
        connection: &Connection,
        (queue, at): (&Queue, usize),
        parsing: &mut Parsing,
    ) -> Option<Queued> {
        if let Some(next) = parsing.next {
            return Some(Queued::Command { next, long: None });
        }
        let limits = if parsing.takes_whole {
            &self.limits_of_whole
        } else {
            &self.limits
        };
        let progress = queue.parse(at, limits, parsing);
        debug_assert!(progress.is_some(), "it was written as it is parsed");
        Some(match progress? {
            Progress::Complete { consumed } => Queued::Command {
                next: at + consumed,
                long: None,
            },
            Progress::Large {
                offset,
                bytes,
                left,
            } if connection.passes_on(&parsing.arguments, &queue.bytes[at..], left) => {
                Queued::Command {
                    next: at + offset,
                    long: Some((bytes, left)),
                }
            }
            Progress::Large { .. } => {
                parsing.end();
                parsing.takes_whole = true;
                Queued::Part
            }
            Progress::Incomplete { .. } => Queued::Part,
        })
    }

    /// Runs queued commands as far as they may run now, under the sections that the transaction
    /// holds. True once all are replied to.
    fn replay_some(&mut self, core: &mut Core, number: usize, connection: &mut Connection) -> bool {
        let Some(mut under) = self.sections.take(number) else {
            return self.replay_with(core, (number, false), connection);
        };
        let is_done = self.replay_with(&mut under, (number, true), connection);
        // Else a task has it.
        if under.is_under_section() {
            self.sections.give_back(number, under);
        }
        is_done
    }

    fn replay_with(
        &mut self,
        core: &mut Core,
        (number, holds): (usize, bool),
        connection: &mut Connection,
    ) -> bool {
        let transaction = connection.transaction.as_mut();
        let phase = transaction.map(|transaction| &mut transaction.phase);
        // It is still replaying while a command runs.
        let (queue, mut at) = match phase {
            Some(Phase::Replaying(queue, at)) => (std::mem::take(queue), *at),
            _ => return true,
        };
        let parsing = connection
            .transaction
            .as_mut()
            .and_then(|one| one.parsing.take());
        let mut parsing = parsing.unwrap_or_default();
        let places = (&queue, &mut at, &mut parsing);
        let Stop { must_wait, is_over } =
            self.replay_queue(core, (number, holds, false), connection, places);
        // Messages of channels must not come between the replies.
        let is_run =
            at == queue.bytes.len() && !connection.is_blocked && connection.script.is_none();
        let is_done = is_run && connection.pending.is_empty();
        if must_wait || is_over || (is_run && !is_done) {
            self.list(number, connection);
        }
        if let Some(transaction) = &mut connection.transaction {
            transaction.phase = Phase::Replaying(queue, at);
            let has_begun = parsing.window > 0 || parsing.takes_whole;
            transaction.parsing = has_begun.then_some(parsing);
        }
        is_done
    }

    /// Runs commands of a queue from a place on, as far as they may run now: those of a
    /// transaction, or the one that a script has called.
    pub(crate) fn replay_queue(
        &mut self,
        core: &mut Core,
        (number, holds, is_called): (usize, bool, bool),
        connection: &mut Connection,
        (queue, at, parsing): (&Queue, &mut usize, &mut Parsing),
    ) -> Stop {
        let (mut must_wait, mut is_over, mut pieces) = (false, false, 0);
        loop {
            if !is_called
                && connection.script.is_some()
                && !self.script_goes_on(core, (number, holds), connection)
            {
                break;
            }
            *at += self.take_following(number, connection, &queue.bytes[*at..]);
            must_wait |= connection.stream.is_some() || connection.left > 0;
            if *at == queue.bytes.len() || must_wait {
                break;
            }
            // Others would wait for its client. It does not wait itself while there is memory.
            let is_free = is_called || holds && !self.is_short();
            let runs_ahead = is_free && connection.outstanding == 0;
            if !connection.may_execute(runs_ahead) || connection.is_gone {
                break;
            }
            // Replies that the client does not want hold nothing up.
            is_over = pieces >= PIECES_A_TURN && steps::is_slice_over();
            if is_over {
                break;
            }
            pieces += 1;
            let (next, long) = match self.parse_queued(connection, (queue, *at), parsing) {
                Some(Queued::Command { next, long }) => (next, long),
                Some(Queued::Part) => continue,
                None => break,
            };
            let mut call = Call {
                core: &mut *core,
                serving: &mut *self,
                connection: &mut *connection,
                number,
                arguments: &parsing.arguments,
                input: &queue.bytes[*at..],
                typed: None,
                writes: false,
                plan: None,
            };
            let flow = match long {
                None => commands::run(&mut call),
                Some((bytes, left)) => commands::run_long(&mut call, bytes, left),
            };
            if flow == Flow::Later {
                parsing.keep(next, long.is_none());
                self.list(number, connection);
                break;
            }
            steps::count(1);
            parsing.end();
            *at = next;
            if let Some((bytes, left)) = long {
                connection.begin_value(bytes, left);
            } else if holds && connection.is_blocked {
                self.go_on_at_once(core, number, connection);
            }
        }
        Stop { must_wait, is_over }
    }
}
