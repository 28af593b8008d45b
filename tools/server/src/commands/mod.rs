//! The commands: their table, and how one is run.
//!
//! A command with one step gives its request to the engine and promises a reply. One of several
//! steps starts a task. A command that cannot run now returns [`Flow::Later`] and is run again from
//! its bytes, so it must not have changed anything.

mod absent;
mod access;
mod arguments;
mod bits;
mod channels;
mod config;
mod connection;
mod documentation;
mod element_draw;
mod element_scan;
mod expiry;
mod hashes;
mod introspection;
mod keys;
mod lcs;
mod list_takes;
mod lists;
mod long_set;
mod monitor;
mod noted;
mod object;
mod random_key;
mod server;
mod set_algebra;
mod sets;
mod slowlog;
mod strings;
mod structured;
mod subcommand;
mod syntax;
mod table;
mod tracking;
mod transactions;
mod transfer;

use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

use farcore::{Answer, Change, Core, Error, Operation, Refused};

use crate::connection::{Connection, Pending};
use crate::long_change::LongChange;
use crate::long_task::{LongTask, Retry};
use crate::memory_limit::OUT_OF_MEMORY;
use crate::parts::{Parts, PartsKind};
use crate::plan::Plan;
use crate::replies::{ReplyKind, error_text, write_answer};
use crate::resp::{Arguments, Protocol, Writer};
use crate::serving::Serving;
use crate::slow::{self, Measured};
use crate::tasks::TaskOutput;
use crate::token::Token;
use crate::waiting::Readiness;

pub(crate) use self::arguments::{parsed, shown_key};
pub(crate) use self::bits::BitCounter;
pub(crate) use self::bits::count as bit_count;
pub(crate) use self::connection::REDIS_VERSION;
pub(crate) use self::list_takes::{SourceErrors, Wanted};
pub(crate) use self::table::{COMMANDS, Command, find};

/// What became of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Flow {
    /// It is replied to, or will be.
    Done,
    /// It must be run again later.
    Later,
}

/// Why a command is refused, as the client reads it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Refusal(pub(crate) String);

impl From<&str> for Refusal {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

/// Bytes that a record, or the request that stores it, may have beside the value: the options of a
/// put, and an expiry.
pub(crate) const BESIDE_BYTES: usize = 32;
/// A syntax error, as Redis says it.
pub(crate) const SYNTAX: &str = "ERR syntax error";
/// A text that is no number, as Redis says it.
pub(crate) const NO_FLOAT: &str = "ERR value is not a valid float";
/// A text that is no integer, as Redis says it.
pub(crate) const NO_INTEGER: &str = "ERR value is not an integer or out of range";

/// A command of a connection.
pub(crate) struct Call<'a> {
    pub(crate) core: &'a mut Core,
    pub(crate) serving: &'a mut Serving,
    pub(crate) connection: &'a mut Connection,
    /// The connection's number.
    pub(crate) number: usize,
    pub(crate) arguments: &'a Arguments,
    pub(crate) input: &'a [u8],
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

    /// All arguments, the command's name among them.
    fn all(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        self.arguments.iter(self.input)
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

    /// The same, without regard to events.
    #[inline]
    fn submit(&mut self, kind: ReplyKind, operation: Operation<'_>) -> Flow {
        self.submit_with(&operation, kind, |connection| connection.promise(kind))
    }

    /// The same for a command that must be carried out otherwise if a value is too long for a
    /// record.
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
        let has_events = self.serving.shared.event_classes.is_any();
        if has_events || self.may_exceed_record(long.held_bytes()) {
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
    fn must_wait(&mut self, command: &Command) -> bool {
        let notes = self.serving.shared.has_long_values();
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
        let (first, last, step) = command.keys;
        if first == 0 {
            // One of several words may have a key; those that count their keys are tasks, which
            // wait for all replies.
            let may_have_keys = !command.subcommands.is_empty();
            return may_have_keys && self.connection.keys_under_way.is_some();
        }
        let count = i64::try_from(self.count()).unwrap_or(i64::MAX);
        let last = if last < 0 { count + last } else { last };
        let places = (first..=last.min(count - 1)).step_by(usize::try_from(step).unwrap_or(1));
        let places = places.filter_map(|place| usize::try_from(place).ok());
        let (arguments, input) = (self.arguments, self.input);
        let keys = places.map(|place| arguments.get(place, input));
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

    /// True if a value of so many bytes may not fit a record with an expiry, or a change.
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
    fn submit_with(
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
            Err(Refused::Full) => Flow::Later,
            Err(Refused::Error(error)) => self.reply_refused(operation, kind, &error),
        }
    }

    /// Replies to a request that the engine does not take.
    #[cold]
    fn reply_refused(&mut self, operation: &Operation<'_>, kind: ReplyKind, error: &Error) -> Flow {
        let answer = refused(operation, error);
        if let Answer::Failed(error) = answer {
            self.serving.note_failure(&error_text(error));
        }
        self.reply(|writer| write_answer(kind, &answer, writer))
    }

    /// Measures how long a request takes.
    #[cold]
    fn measure(&mut self, token: Token) {
        let measured = Measured::begin(self.connection, self.serving.now_ms, self.all());
        self.serving.slow.measure(token, measured);
    }

    /// Gives `count` requests to the engine; their answers make one reply.
    pub(crate) fn requests(
        &mut self,
        kind: PartsKind,
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
            let parts = Box::new(Parts::new(kind, count));
            connection.pending.push_back(Pending::Parts(parts));
            0
        });
        // The last promise is this command's.
        let number = self.connection.next_number().wrapping_sub(1);
        while part < count {
            let Some(place) = self.connection.send_part(part) else {
                return self.go_on_later(part);
            };
            let token = Token::new(self.number, number, place);
            match self.submit_part(operation(self, part), token) {
                Ok(()) => self.connection.outstanding += 1,
                Err(Refused::Full) => {
                    self.connection.unsend_part();
                    return self.go_on_later(part);
                }
                Err(Refused::Error(error)) => {
                    let answer = refused(&operation(self, part), &error);
                    self.connection.fulfil_part(number, place, &answer);
                }
            }
            part += 1;
        }
        Flow::Done
    }

    /// Gives a request to the engine whose answer is a part of a reply.
    #[inline]
    fn submit_part(&mut self, operation: Operation<'_>, token: Token) -> Result<(), Refused> {
        if self.serving.shared.event_classes.is_any() {
            return self.submit_noted(operation, token);
        }
        self.core.submit(operation, token.0)
    }

    fn go_on_later(&mut self, part: usize) -> Flow {
        self.connection.sent_parts = Some(part);
        Flow::Later
    }

    /// Where the command says that it has added elements to keys.
    fn readiness(&self) -> Readiness {
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

    /// The same for a task that has so many bytes in hand.
    pub(crate) fn task_holding<F>(
        &mut self,
        bytes: usize,
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
        let core = self.serving.tasks.client(self.core);
        let output = TaskOutput::new(&self.serving.events, &self.serving.records).holding(bytes);
        let measured = Measured::begin(self.connection, self.serving.now_ms, self.all());
        let ended = self.serving.slow.ended();
        let work = work(core, output.clone(), self.connection.protocol);
        let future = async move {
            let core = work.await;
            slow::leave(&ended, measured);
            core
        };
        self.connection.is_blocked = true;
        self.serving
            .tasks
            .start(self.number, output, Box::pin(future));
        Flow::Done
    }
}

/// The answer to a request that the engine does not take. A key that is too long cannot exist, so
/// what only reads or removes it finds none.
fn refused<'a>(operation: &Operation<'_>, error: &'a Error) -> Answer<'a> {
    let stores_nothing = match operation {
        Operation::Get { .. }
        | Operation::GetStructured { .. }
        | Operation::GetRange { .. }
        | Operation::Inspect { .. }
        | Operation::Delete { .. } => true,
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

/// What a read of a key came to. A key that is too long cannot exist.
pub(crate) fn read_of<T>(read: farcore::Result<Option<T>>) -> farcore::Result<Option<T>> {
    match read {
        Err(Error::KeyTooLong { .. }) => Ok(None),
        read => read,
    }
}

/// A command that only replies `OK`.
fn succeed(call: &mut Call<'_>) -> Result<Flow, Refusal> {
    Ok(call.ok())
}

/// Runs the command that the arguments name.
pub(crate) fn run(call: &mut Call<'_>) -> Flow {
    if call.arguments.is_empty() {
        return Flow::Done;
    }
    let flow = match admitted(call, call.count()) {
        Ok(command) => {
            if call.must_wait(command) {
                return Flow::Later;
            }
            // It was counted and shown when it was queued.
            let is_replayed = call.connection.is_executing();
            let flow = if call.connection.is_plain() {
                (command.run)(call)
            } else {
                run_special(call, command)
            };
            if flow == Ok(Flow::Later) {
                return Flow::Later;
            }
            let counters = call.serving.counters();
            if let Some(counters) = counters.calls.get(command.place()) {
                counters.calls.add(u64::from(!is_replayed));
                if flow.is_err() {
                    counters.failed.add(1);
                }
            }
            if call.serving.is_monitored() && command.is_shown() && !is_replayed {
                call.serving
                    .show(call.connection, call.arguments.iter(call.input));
            }
            flow
        }
        Err(refusal) => Err(transactions::refused(call, refusal)),
    };
    call.serving.counters().commands.add(1);
    if let Err(Refusal(text)) = flow {
        call.serving.note_failure(&text);
        call.connection.reply(|writer| writer.error(&text));
    }
    Flow::Done
}

/// True if an argument that is too long for a record, and that `left` others follow, is passed on
/// or skipped as it comes: it is a value. Else the command is kept whole.
pub(crate) fn streams(arguments: &Arguments, input: &[u8], left: usize) -> bool {
    let name = if arguments.is_empty() {
        &[]
    } else {
        arguments.get(0, input)
    };
    match find(name) {
        Some(command) => command.writes && long_set::streams(command.name, arguments.len(), left),
        None => left == 0,
    }
}

/// Runs a command of which an argument, of so many bytes, is too long for a record and comes later,
/// with `left` others after it.
pub(crate) fn run_long(call: &mut Call<'_>, bytes: usize, left: usize) -> Flow {
    call.serving.shared.note_long_value();
    let flow = match admitted(call, call.count() + 1 + left) {
        Ok(command) => long_set::run(call, command.name, bytes, left),
        Err(refusal) => Err(refusal),
    };
    match flow {
        Ok(flow) => flow,
        Err(Refusal(text)) => {
            call.serving.note_failure(&text);
            call.reply(|writer| writer.error(&text))
        }
    }
}

/// Runs a command of a connection that has subscribed to channels or is in a transaction.
#[cold]
fn run_special(call: &mut Call<'_>, command: &Command) -> Result<Flow, Refusal> {
    match channels::admit(call, command) {
        Ok(()) => transactions::run(call, command),
        Err(refusal) => Err(transactions::refused(call, refusal)),
    }
}

/// The command, if it exists, has as many arguments as it takes, and the client may run it.
fn admitted(call: &mut Call<'_>, count: usize) -> Result<&'static Command, Refusal> {
    // None if the name itself is too long.
    let name = if call.arguments.is_empty() {
        &[]
    } else {
        call.argument(0)
    };
    let Some(command) = find(name) else {
        return Err(unknown(call));
    };
    let rejected = |call: &Call<'_>| {
        if let Some(counters) = call.serving.counters().calls.get(command.place()) {
            counters.rejected.add(1);
        }
    };
    if !command.takes(count) {
        rejected(call);
        let name = command.name;
        let text = format!("ERR wrong number of arguments for '{name}' command");
        return Err(Refusal(text));
    }
    if !call.connection.is_authenticated && !command.is_for_strangers {
        rejected(call);
        return Err("NOAUTH Authentication required.".into());
    }
    // A queued command was admitted with its transaction.
    if call.serving.shared.memory_limit.is_exceeded()
        && command.needs_memory
        && !call.connection.is_executing()
    {
        rejected(call);
        return Err(OUT_OF_MEMORY.into());
    }
    call.connection.last_command = command.name;
    Ok(command)
}

/// Bytes of a request that an error repeats; as Redis.
const REPEATED_BYTES_MAX: usize = 128;

/// An argument as an error repeats it: cut, and not beyond a zero.
fn repeated(argument: &[u8], bytes_max: usize) -> String {
    let end = argument.iter().position(|byte| *byte == 0);
    let end = end.unwrap_or(argument.len()).min(bytes_max);
    String::from_utf8_lossy(&argument[..end]).into_owned()
}

/// Why a command is unknown; as Redis.
fn unknown(call: &Call<'_>) -> Refusal {
    let mut arguments = String::new();
    for place in 1..call.count() {
        let left = REPEATED_BYTES_MAX.saturating_sub(arguments.len());
        if left == 0 {
            break;
        }
        arguments.push_str(&format!("'{}' ", repeated(call.argument(place), left)));
    }
    // A name that is too long for a record is not kept.
    let name = if call.count() == 0 {
        &[]
    } else {
        call.argument(0)
    };
    let name = repeated(name, REPEATED_BYTES_MAX);
    Refusal(format!(
        "ERR unknown command '{name}', with args beginning with: {arguments}"
    ))
}
