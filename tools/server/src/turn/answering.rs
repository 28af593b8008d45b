//! How a core takes the engine's answers: each becomes a reply in its place, and an event if its
//! request was noted.
//!
//! - I1: an answer is counted off its connection's requests under way also if the connection is
//!   gone, so that its number becomes free.

use std::collections::HashMap;

use farcore::{Answer, Core, Error};

use crate::conn::connection::{Connection, FailedCall, Pending};
use crate::conn::reply_token::Token;
use crate::cores::shared::Shared;
use crate::events::operation_events::{Noted, version_of};
use crate::figures::failures::Failures;
use crate::figures::slow_log::SlowLog;
use crate::limits::LARGE_BYTES;
use crate::serving::Serving;
use crate::steps;
use crate::tasks::event_sink::EventSink;
use crate::types::list::reply::ListReply;
use crate::types::replies::{ReplyKind, write_answer};
use crate::types::stream::reply::StreamReply;
use crate::waits::key_queues::Awaited;

impl Serving {
    /// Takes the engine's answers and makes replies of them, and events if some are noted.
    pub(crate) fn take_answers(&mut self, core: &mut Core) -> usize {
        let count = self.take_answers_of(core);
        if self.sections.is_empty() {
            return count;
        }
        count + self.take_section_answers()
    }

    /// Takes the engine's answers to requests under sections.
    pub(crate) fn take_section_answers(&mut self) -> usize {
        let mut sections = std::mem::take(&mut self.sections);
        let count = sections.take_answers(|core| self.take_answers_of(core));
        self.sections = sections;
        count
    }

    fn take_answers_of(&mut self, core: &mut Core) -> usize {
        if self.noted.is_empty() {
            self.take_answers_with::<false>(core)
        } else {
            self.take_answers_with::<true>(core)
        }
    }

    /// Takes the engine's answers to requests of a connection under its sections, while it is not
    /// in its place. Returns how many.
    pub(crate) fn take_answers_for(
        &mut self,
        core: &mut Core,
        connection: &mut Connection,
    ) -> usize {
        let is_noted = !self.noted.is_empty();
        let (mut taking, _) = self.taking();
        core.poll(|token, answer| {
            let connection = Some(&mut *connection);
            if is_noted {
                taking.take::<true>(token, &answer, |_| connection);
            } else {
                taking.take::<false>(token, &answer, |_| connection);
            }
        })
    }

    fn take_answers_with<const NOTED: bool>(&mut self, core: &mut Core) -> usize {
        let (mut taking, connections) = self.taking();
        core.poll(|token, answer| {
            taking.take::<NOTED>(token, &answer, |number| {
                connections.get_mut(number)?.as_deref_mut()
            });
        })
    }

    /// What takes answers, and the connections.
    #[inline]
    fn taking(&mut self) -> (Taking<'_>, &mut Vec<Option<Box<Connection>>>) {
        let taking = Taking {
            shared: &self.shared,
            place: self.place,
            dirty: &mut self.dirty,
            slow: &mut self.slow,
            failures: &mut self.failures,
            events: &mut self.events,
            noted: &mut self.noted,
        };
        (taking, &mut self.connections)
    }
}

/// What an answer may concern beside its connection.
struct Taking<'a> {
    shared: &'a Shared,
    place: usize,
    dirty: &'a mut Vec<usize>,
    slow: &'a mut SlowLog,
    failures: &'a mut Failures,
    events: &'a mut EventSink,
    noted: &'a mut HashMap<u64, Noted>,
}

impl Taking<'_> {
    /// Takes an answer; `find` gives the connection of a number.
    #[inline(always)]
    fn take<'c, const NOTED: bool>(
        &mut self,
        token: u64,
        answer: &Answer<'_>,
        find: impl FnOnce(usize) -> Option<&'c mut Connection>,
    ) {
        let Self { shared, .. } = *self;
        if answer.value().len() > LARGE_BYTES {
            shared.note_large_value();
        }
        let connection = find(Token(token).connection());
        // Also of a connection that is gone: the change has happened.
        if NOTED && let Some(noted) = self.noted.remove(&token) {
            let stored = version_of(answer);
            let client = connection.as_ref().map_or(0, |one| one.id);
            let events = &mut *self.events;
            events.note_client(client);
            noted.answered(answer, None, |class, name, key| {
                events.notify_stored(stored, class, name, key);
            });
            events.note_client(0);
        }
        let token = Token(token);
        if self.slow.is_measured(token) {
            self.slow.end(&shared.slow);
        }
        let Some(connection) = connection else {
            debug_assert!(false, "its number is kept while answers are under way");
            return;
        };
        connection.outstanding -= 1;
        if connection.is_gone && !connection.must_finish_transaction() {
            return wake(shared, connection, token, &Awaited::ALL);
        }
        if let Some(failed) = deliver(shared, connection, token, answer) {
            shared.counters[self.place].note_failed(failed.command);
            self.failures.note(&failed.text);
        }
        if !connection.is_dirty {
            connection.is_dirty = true;
            self.dirty.push(token.connection());
        }
    }
}

/// Wakes the client that waits longest for the key of a request, if that was kept. It has begun to
/// wait since the request was made: else a task would have been (`commands/lists.rs`).
#[inline]
fn wake(shared: &Shared, connection: &Connection, token: Token, all: &[Awaited]) {
    // What passed through the key's shard before this answer is seen here.
    if shared.waiting.clients() > 0
        && let Some(key) = connection.kept_key(token.number())
    {
        for &awaited in all {
            shared.wake_waiter(awaited, key, &[]);
        }
    }
}

/// Counts the steps of a reply that is made of a large value or record.
#[inline]
fn count_large(answer: &Answer<'_>) {
    if answer.value().len() > LARGE_BYTES {
        steps::count_walked(answer.value().len());
    }
}

/// Makes a reply of an answer, in its place. Returns an error that is replied.
#[inline]
fn deliver(
    shared: &Shared,
    connection: &mut Connection,
    token: Token,
    answer: &Answer<'_>,
) -> Option<FailedCall> {
    let place = token.number().wrapping_sub(connection.first) as usize;
    let pending = connection.pending.get(place);
    if let Some(Pending::Waiting(kind, _)) = pending
        && kind.is_part(answer)
    {
        let is_read = connection.read_later(token.number());
        debug_assert!(is_read, "such a read was kept");
        return None;
    }
    if let Some(Pending::Joined(..)) = pending {
        count_large(answer);
        return connection.fulfil_part(token.number(), token.part(), answer);
    }
    if connection.awaits_list(token.number()) && connection.goes_on(token.number(), answer) {
        return None;
    }
    match answer {
        // It was not kept while a task polled.
        Answer::Failed(Error::LongValue { key, .. })
            if key.is_empty() && connection.read_later(token.number()) =>
        {
            return None;
        }
        Answer::Failed(error) if connection.begin_long(token.number(), error) => return None,
        // It need not be copied to know how long its reply is.
        Answer::Value { value, .. }
            if value.len() > LARGE_BYTES
                && connection.puts_off_read(token.number(), value.len()) =>
        {
            return None;
        }
        _ => {}
    }
    count_large(answer);
    let mut adds = None;
    let failed = connection.fulfil(token.number(), |kind, writer| {
        adds = match kind {
            ReplyKind::List(ListReply::Pushed) => Some(Awaited::List),
            ReplyKind::Stream(StreamReply::Added) => Some(Awaited::Stream),
            kind => kind.adds_members().then_some(Awaited::SortedSet),
        };
        write_answer(kind, answer, writer);
    });
    if let Some(awaited) = adds {
        wake(shared, connection, token, &[awaited]);
    }
    failed
}
