//! A command as it is run: its arguments, and the ways in which it can be carried out.
//!
//! - I1: what returns [`Flow::Later`] has changed nothing, or `sent_parts` says how far it came.
//! - I2: a command that is only planned gives nothing to the engine and starts no task.

use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

use farcore::{Answer, Change, Core, Error, Operation, Refused, TreeChanges, TreeOp, TreeScores};

use super::{Command, Flow};
use crate::conn::connection::{Connection, Pending};
use crate::conn::joined_reply::{JoinedReply, JoinedReplyKind};
use crate::conn::reply_token::Token;
use crate::databases::Database;
use crate::exec::plan::Plan;
use crate::figures::slow_log;
use crate::figures::slow_log::Measured;
use crate::limits::{BESIDE_BYTES, DEFERRED_MS};
use crate::long::change::LongChange;
use crate::long::task::{LongTask, Retry};
use crate::memory::{Charge, Shortage};
use crate::resp::{Arguments, Protocol, Writer};
use crate::serving::Serving;
use crate::steps;
use crate::tasks::output::TaskOutput;
use crate::types::kind::Kind;
use crate::types::replies::{OfAbsent, ReplyKind, error_text, write_answer};
use crate::waits::readiness::Readiness;

/// Bytes that a copy of an argument takes beside its own.
pub(super) const BESIDE_ARGUMENT: usize = size_of::<Vec<u8>>() + 24;

/// A command of a connection.
pub(crate) struct Call<'a> {
    pub(crate) core: &'a mut Core,
    pub(crate) serving: &'a mut Serving,
    pub(crate) connection: &'a mut Connection,
    /// The connection's number.
    pub(crate) number: usize,
    /// Its keys among them are as they are stored, once it runs.
    pub(crate) arguments: &'a Arguments,
    pub(crate) input: &'a [u8],
    /// The arguments as they were typed, if some of them are not stored so.
    pub(crate) typed: Option<&'a Arguments>,
    /// It may write, so a task of it is done though its client is gone.
    pub(crate) writes: bool,
    /// Takes requests and replies, if the command is only planned.
    pub(crate) plan: Option<&'a mut Plan>,
}

impl<'a> Call<'a> {
    /// An argument; the command's name is the first.
    #[inline]
    pub(crate) fn argument(&self, place: usize) -> &'a [u8] {
        self.arguments.get(place, self.input)
    }

    /// Arguments, the command's name among them.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.arguments.len()
    }

    /// Copies of all arguments, for a task.
    pub(crate) fn owned_arguments(&self) -> Vec<Vec<u8>> {
        steps::count(self.count());
        steps::count_copied(self.arguments.span_bytes());
        (0..self.count())
            .map(|place| self.argument(place).to_vec())
            .collect()
    }

    /// Replies at once.
    #[inline]
    pub(crate) fn reply(&mut self, write: impl FnOnce(&mut Writer<'_>)) -> Flow {
        match &mut self.plan {
            None => self.connection.reply(write),
            Some(plan) => plan.reply(write),
        }
        Flow::Done
    }

    /// All arguments as they were typed, the command's name among them.
    pub(super) fn all(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        self.typed.unwrap_or(self.arguments).iter(self.input)
    }

    /// The database of the connection.
    #[inline]
    pub(crate) fn database(&self) -> Database {
        let number = self.connection.database;
        self.serving.shared.databases.of(number)
    }

    /// True if the command is one of a client of a server that is a part of a cluster.
    #[inline]
    pub(super) fn is_in_cluster(&self) -> bool {
        self.serving.cluster.is_some() && !self.connection.is_inner()
    }

    /// Replies `OK`.
    pub(crate) fn ok(&mut self) -> Flow {
        self.reply(|writer| writer.simple("OK"))
    }

    /// Gives one request to the engine; its answer is the reply.
    #[inline]
    pub(crate) fn request(&mut self, kind: ReplyKind, operation: Operation<'_>) -> Flow {
        if let Some(plan) = &mut self.plan {
            plan.request(kind, &operation);
            return Flow::Done;
        }
        if self.serving.shared.event_classes.is_any() {
            return self.noted_request(kind, operation);
        }
        self.submit(kind, operation)
    }

    /// Refuses a command for an argument at which Redis looks after it has looked at the key: of
    /// another kind, or absent, it replies that. `kind` is that of a collection, if not of a
    /// string.
    pub(crate) fn refuse_after_look(
        &mut self,
        kind: Option<Kind>,
        absent: OfAbsent,
        text: &'static str,
    ) -> Flow {
        let key = self.key();
        let operation = match kind {
            Some(kind) => kind.operation(key, TreeOp::Len),
            None => Operation::GetRange {
                key,
                offset: 0,
                bytes: 1,
            },
        };
        let reply = ReplyKind::Refused { kind, absent, text };
        self.request(reply, operation)
    }

    /// Submits an operation, without regard to events.
    #[inline]
    pub(super) fn submit(&mut self, kind: ReplyKind, operation: Operation<'_>) -> Flow {
        if self.serving.shared.has_large_values() || kind.may_be_part() || kind.adds_members() {
            return self.submit_careful(kind, operation);
        }
        self.serving.shared.note_value(operation.value().len());
        self.submit_with(&operation, kind, |connection| connection.promise(kind))
    }

    /// Submits an operation once large values may exist.
    #[cold]
    fn submit_careful(&mut self, kind: ReplyKind, operation: Operation<'_>) -> Flow {
        let key = operation.key();
        // The change happens before its reply is made, so there must be room for that.
        if let Some(task) = LongTask::of_change(kind, key) {
            return self.long_task(task);
        }
        self.submit_with(&operation, kind, |connection| {
            if kind.is_of_tree() {
                connection.keep_read(&operation);
            } else if kind.is_long() || kind.adds_members() {
                connection.keep_key(key);
            }
            connection.promise(kind);
        })
    }

    /// Requests a change for a command that must be carried out otherwise if a value is too long
    /// for a record.
    pub(crate) fn request_or_long(
        &mut self,
        kind: ReplyKind,
        change: Change<'_>,
        long: LongChange,
    ) -> Flow {
        let key = self.key();
        let operation = Operation::Change { key, change };
        if let Some(plan) = &mut self.plan {
            plan.request(kind, &operation);
            return Flow::Done;
        }
        // Such a change is too long for a request, or its task tells what the key was before.
        let shared = &self.serving.shared;
        let has_events = shared.event_classes.is_any();
        // The value before, which it replies, may need room.
        let replies_value = kind == ReplyKind::Value && shared.has_large_values();
        shared.note_value(operation.value().len());
        if kind == ReplyKind::Length {
            // What is put behind or over a value makes it longer.
            shared.note_large_value();
        }
        if has_events || replies_value || self.may_exceed_record(long.held_bytes()) {
            return self.long_task(LongTask::Change(long));
        }
        let retry = Box::new(Retry { kind, change: long });
        self.submit_with(&operation, kind, |connection| {
            connection.promise_kept(retry);
        })
    }

    /// True if a command waits for the replies before it, because one of these may be about a long
    /// value of one of its keys (`keys_under_way`).
    #[inline]
    pub(super) fn must_wait(&mut self, command: &Command) -> bool {
        let notes = self.serving.shared.has_large_values();
        (notes || self.connection.keys_under_way.is_some())
            && self.must_wait_for_keys(command, notes)
    }

    #[cold]
    fn must_wait_for_keys(&mut self, command: &Command, notes: bool) -> bool {
        if self.connection.pending.is_empty() {
            self.connection.keys_under_way = None;
        }
        // What has begun goes on.
        if self.connection.sent_parts.is_some() {
            return false;
        }
        if !command.has_keys() {
            // One of several words may have a key; those that count their keys are tasks, which
            // wait for all replies.
            let may_have_keys = !command.subcommands.is_empty();
            return may_have_keys && self.connection.keys_under_way.is_some();
        }
        if self.count() > steps::PIECE {
            return self.must_wait_for_many_keys(command, notes);
        }
        let (arguments, input) = (self.arguments, self.input);
        let places = command.keys_in(self.count(), |place| arguments.get(place, input));
        let keys = places.iter().map(|place| arguments.get(place, input));
        let under_way = &mut self.connection.keys_under_way;
        if let Some(under_way) = under_way
            && keys.clone().any(|key| under_way.hold(key, command.writes))
        {
            return true;
        }
        if notes {
            let under_way = under_way.get_or_insert_default();
            keys.for_each(|key| under_way.note(key, command.writes));
        }
        false
    }

    /// True if a command of many keys must wait. A look at each key would be long, so it waits for
    /// all replies before it, and what comes after it counts as if it had every key.
    fn must_wait_for_many_keys(&mut self, command: &Command, notes: bool) -> bool {
        if !self.connection.pending.is_empty() {
            return true;
        }
        if notes {
            let under_way = self.connection.keys_under_way.get_or_insert_default();
            under_way.note_all(command.writes);
        }
        false
    }

    /// True if a value of `bytes` may not fit a record with an expiry, or a change.
    pub(crate) fn may_exceed_record(&self, bytes: usize) -> bool {
        bytes + BESIDE_BYTES > self.serving.value_bytes_max()
    }

    /// Starts a command of long values.
    pub(crate) fn long_task(&mut self, task: LongTask) -> Flow {
        let bytes = task.held_bytes();
        self.task_holding(bytes, move |mut core, output, protocol| async move {
            task.run(&mut core, &output, protocol).await;
            core
        })
    }

    #[inline]
    pub(super) fn submit_with(
        &mut self,
        operation: &Operation<'_>,
        kind: ReplyKind,
        promise: impl FnOnce(&mut Connection),
    ) -> Flow {
        let token = Token::new(self.number, self.connection.next_number(), 0);
        match self.core.submit(*operation, token.0) {
            Ok(()) => {
                if self.serving.slow.is_due(self.serving.now_ms) {
                    self.measure(token);
                }
                promise(self.connection);
                self.connection.outstanding += 1;
                Flow::Done
            }
            Err(Refused::Full) => self.wait_for_room(),
            Err(Refused::Error(error)) => self.reply_refused(operation, kind, &error),
        }
    }

    /// Has the command go on once the engine has room: in the next turn, at the earliest.
    #[cold]
    fn wait_for_room(&mut self) -> Flow {
        self.note_full();
        Flow::Later
    }

    /// Notes that the engine takes nothing more now. What a section's holder sends counts apart.
    fn note_full(&mut self) {
        self.serving.is_engine_full |= !self.core.is_under_section();
    }

    /// Replies to a request that the engine does not take.
    #[cold]
    fn reply_refused(&mut self, operation: &Operation<'_>, kind: ReplyKind, error: &Error) -> Flow {
        let answer = refused(operation, error);
        if let Answer::Failed(error) = answer {
            let command = self.connection.command_place;
            (self.serving).note_failed_call(command, &error_text(error));
        }
        self.reply(|writer| write_answer(kind, &answer, writer))
    }

    /// Measures how long a request takes.
    #[cold]
    fn measure(&mut self, token: Token) {
        let measured = self.measured();
        self.serving.slow.measure(token, measured);
    }

    /// Gives `count` requests to the engine; their answers make one reply.
    pub(crate) fn requests(
        &mut self,
        kind: JoinedReplyKind,
        count: usize,
        operation: impl Fn(&Self, usize) -> Operation<'a>,
    ) -> Flow {
        if let Some(plan) = self.plan.take() {
            plan.requests(kind, (0..count).map(|part| operation(self, part)));
            return Flow::Done;
        }
        if self.serving.shared.event_classes.is_any() && self.needs_before(count, &operation) {
            return self.careful_requests(count, &operation);
        }
        let connection = &mut *self.connection;
        let mut part = connection.sent_parts.take().unwrap_or_else(|| {
            let parts = Box::new(JoinedReply::new(kind, count));
            let command = connection.command_place;
            (connection.pending).push_back(Pending::Joined(parts, command));
            0
        });
        // The last promise is this command's.
        let number = self.connection.next_number().wrapping_sub(1);
        // The engine takes no more in a turn, unless it refuses them.
        let end = count.min(part + steps::PIECE);
        steps::count(end - part);
        while part < end {
            let Some(place) = self.connection.send_part(part) else {
                return self.go_on_later(part);
            };
            let token = Token::new(self.number, number, place);
            match self.submit_part(operation(self, part), token) {
                Ok(()) => self.connection.outstanding += 1,
                Err(Refused::Full) => {
                    self.note_full();
                    self.connection.unsend_part();
                    return self.go_on_later(part);
                }
                Err(Refused::Error(error)) => {
                    let answer = refused(&operation(self, part), &error);
                    let failed = self.connection.fulfil_part(number, place, &answer);
                    if let Some(failed) = failed {
                        (self.serving).note_failed_call(failed.command, &failed.text);
                    }
                }
            }
            part += 1;
        }
        if part < count {
            return self.go_on_later(part);
        }
        Flow::Done
    }

    /// Gives a request to the engine whose answer is a part of a reply.
    #[inline]
    pub(super) fn submit_part(
        &mut self,
        operation: Operation<'_>,
        token: Token,
    ) -> Result<(), Refused> {
        self.serving.shared.note_value(operation.value().len());
        if self.serving.shared.event_classes.is_any() {
            return self.submit_noted(operation, token);
        }
        self.core.submit(operation, token.0)
    }

    pub(super) fn go_on_later(&mut self, part: usize) -> Flow {
        self.connection.sent_parts = Some(part);
        Flow::Later
    }

    /// Where the command says that it has added elements to keys.
    pub(super) fn readiness(&self) -> Readiness {
        let shared = Arc::clone(&self.serving.shared);
        match &self.connection.transaction {
            Some(transaction) if self.connection.is_executing() => {
                Readiness::later(shared, Rc::clone(&transaction.ready))
            }
            _ => Readiness::at_once(shared),
        }
    }

    /// Starts a task once the replies before it are made. `work` gets a client of the core, the
    /// output and the protocol, and ends with the client.
    pub(crate) fn task<F>(&mut self, work: impl FnOnce(Core, TaskOutput, Protocol) -> F) -> Flow
    where
        F: Future<Output = Core> + 'static,
    {
        self.task_holding(0, work)
    }

    /// True if it would be run again because replies before it are not made, and would copy its
    /// arguments each time.
    pub(crate) fn is_early(&self) -> bool {
        self.plan.is_none() && !self.connection.pending.is_empty()
    }

    /// Has the command be run again later, if its client may have the memory that it needs and has
    /// not waited long for it; else refuses it.
    #[cold]
    pub(super) fn wait_for_memory(&mut self, shortage: &Shortage) -> Flow {
        let now_ms = self.serving.now_ms;
        let since_ms = &mut self.connection.waits_since_ms;
        if *since_ms == 0 {
            *since_ms = now_ms;
        }
        let waits_ms = now_ms.saturating_sub(*since_ms);
        // Under a section, those that have the memory may wait for it.
        let may_wait = waits_ms < DEFERRED_MS && !self.core.is_under_section();
        if may_wait && self.connection.account.wait(shortage, now_ms) {
            return Flow::Later;
        }
        self.connection.waits_since_ms = 0;
        self.connection.account.end_wait();
        let text = shortage.to_string();
        (self.serving).note_failed_call(self.connection.command_place, &text);
        self.reply(|writer| writer.error(&text))
    }

    /// Starts a task that holds `bytes`.
    pub(crate) fn task_holding<F>(
        &mut self,
        bytes: usize,
        work: impl FnOnce(Core, TaskOutput, Protocol) -> F,
    ) -> Flow
    where
        F: Future<Output = Core> + 'static,
    {
        if self.plan.is_none() && !self.connection.pending.is_empty() {
            return Flow::Later;
        }
        let measured = Some(self.measured());
        self.start_holding((bytes, measured), work)
    }

    /// Starts a task that holds memory which is charged already. No reply is pending.
    pub(super) fn task_with<F>(
        &mut self,
        held: Charge,
        work: impl FnOnce(Core, TaskOutput, Protocol) -> F,
    ) -> Flow
    where
        F: Future<Output = Core> + 'static,
    {
        let measured = Some(self.measured());
        self.start_task((held, measured), work)
    }

    /// Begins to measure the command.
    pub(super) fn measured(&self) -> Measured {
        let client = (self.connection.peer, &self.connection.names.name[..]);
        Measured::begin(client, self.serving.now_ms, self.all())
    }

    /// Starts a task, as [`Call::task`] does, for a command that measures itself.
    pub(super) fn unmeasured_task<F>(
        &mut self,
        work: impl FnOnce(Core, TaskOutput, Protocol) -> F,
    ) -> Flow
    where
        F: Future<Output = Core> + 'static,
    {
        self.start_holding((0, None), work)
    }

    fn start_holding<F>(
        &mut self,
        (bytes, measured): (usize, Option<Measured>),
        work: impl FnOnce(Core, TaskOutput, Protocol) -> F,
    ) -> Flow
    where
        F: Future<Output = Core> + 'static,
    {
        if let Some(plan) = &mut self.plan {
            plan.is_possible = false;
            return Flow::Done;
        }
        if !self.connection.pending.is_empty() {
            return Flow::Later;
        }
        // Copies of its arguments are among what it takes.
        let copied = self.arguments.span_bytes() + self.count() * BESIDE_ARGUMENT;
        match self.connection.account.try_charge(bytes + copied) {
            Ok(held) => self.start_task((held, measured), work),
            Err(shortage) => self.wait_for_memory(&shortage),
        }
    }

    /// Starts a task that holds memory from its beginning to its end. No reply is pending.
    fn start_task<F>(
        &mut self,
        (held, measured): (Charge, Option<Measured>),
        work: impl FnOnce(Core, TaskOutput, Protocol) -> F,
    ) -> Flow
    where
        F: Future<Output = Core> + 'static,
    {
        self.connection.waits_since_ms = 0;
        debug_assert!(self.plan.is_none() && self.connection.pending.is_empty());
        let next = self.serving.tasks.client(self.core);
        // That of a transaction's sections goes with its command, and comes back.
        let core = if self.core.is_under_section() {
            std::mem::replace(self.core, next)
        } else {
            next
        };
        let mut output = self.serving.task_output(self.connection).with_held(held);
        if self.writes {
            output = output.for_write();
        }
        let ended = self.serving.slow.ended();
        let work = work(core, output.clone(), self.connection.protocol);
        let future = async move {
            let core = work.await;
            if let Some(measured) = measured {
                slow_log::leave(&ended, measured);
            }
            core
        };
        self.connection.is_blocked = true;
        self.serving
            .tasks
            .start(self.number, output, Box::pin(future));
        Flow::Done
    }
}

/// True if an operation on a collection may store something.
fn stores(op: &TreeOp<'_>) -> bool {
    match op {
        TreeOp::Update {
            changes: TreeChanges::Slices(changes),
            ..
        } => changes.iter().any(|change| change.value.is_some()),
        TreeOp::Update { .. }
        | TreeOp::Insert { .. }
        | TreeOp::CompareAndSet { .. }
        | TreeOp::Push { exists: false, .. }
        | TreeOp::InsertAt { .. } => true,
        TreeOp::Score { changes, .. } => stores_scores(*changes),
        _ => false,
    }
}

/// True if some of these changes give a member a score.
pub(super) fn stores_scores(changes: TreeScores<'_>) -> bool {
    match changes {
        TreeScores::Slices(changes) => changes.iter().any(|change| change.score.is_some()),
        TreeScores::Encoded(_) => true,
    }
}

/// The answer to a request that the engine does not take. A key that is too long cannot exist, so
/// what only reads or removes it finds none.
fn refused<'a>(operation: &Operation<'_>, error: &'a Error) -> Answer<'a> {
    let stores_nothing = match operation {
        Operation::Get { .. }
        | Operation::GetRange { .. }
        | Operation::Inspect { .. }
        | Operation::Delete { .. } => true,
        Operation::Tree { op, .. } => !stores(op),
        Operation::Change { change, .. } => {
            matches!(change, Change::Delete { .. } | Change::SetExpiry { .. })
        }
        _ => false,
    };
    match error {
        Error::KeyTooLong { .. } if stores_nothing => Answer::Absent,
        error => Answer::Failed(error),
    }
}
