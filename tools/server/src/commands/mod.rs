//! The commands: their table, and how one is run.
//!
//! A command with one step gives its request to the engine and promises a reply. One of several
//! steps starts a task. A command that cannot run now returns [`Flow::Later`] and is run again from
//! its bytes, so it must not have changed anything.

mod absent;
mod access;
mod arguments;
mod connection;
mod documentation;
mod expiry;
mod introspection;
mod keys;
mod monitor;
mod object;
mod server;
mod slowlog;
mod strings;
mod subcommand;
mod syntax;
mod table;
mod tracking;

use std::future::Future;

use farcore::{Core, Operation, Refused};

use crate::connection::{Connection, Pending};
use crate::parts::{Parts, PartsKind};
use crate::replies::{ReplyKind, error_text};
use crate::resp::{Arguments, Protocol, Writer};
use crate::serving::Serving;
use crate::slow::{self, Measured};
use crate::tasks::TaskOutput;
use crate::token::Token;

pub(crate) use self::arguments::parsed;
pub(crate) use self::connection::REDIS_VERSION;
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

/// A syntax error, as Redis says it.
pub(crate) const SYNTAX: &str = "ERR syntax error";
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
        self.connection.reply(write);
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
        let token = Token::new(self.number, self.connection.next_number(), 0);
        match self.core.submit(operation, token.0) {
            Ok(()) => {
                if self.serving.slow.is_due(self.serving.now_ms) {
                    self.measure(token);
                }
                self.connection.promise(kind);
                self.connection.outstanding += 1;
                Flow::Done
            }
            Err(Refused::Full) => Flow::Later,
            Err(Refused::Error(error)) => self.reply(|writer| writer.error(&error_text(&error))),
        }
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
        let connection = &mut *self.connection;
        if connection.sent_parts == 0 {
            let parts = Box::new(Parts::new(kind, count));
            connection.pending.push_back(Pending::Parts(parts));
        }
        // The last promise is this command's.
        let number = self.connection.next_number().wrapping_sub(1);
        while self.connection.sent_parts < count {
            let part = self.connection.sent_parts;
            // Only values have places in their reply.
            let place = if kind == PartsKind::Values { part } else { 0 };
            let token = Token::new(self.number, number, place);
            match self.core.submit(operation(self, part), token.0) {
                Ok(()) => self.connection.outstanding += 1,
                Err(Refused::Full) => return Flow::Later,
                Err(Refused::Error(error)) => {
                    let answer = farcore::Answer::Failed(&error);
                    self.connection.fulfil_part(number, part, &answer);
                }
            }
            self.connection.sent_parts += 1;
        }
        self.connection.sent_parts = 0;
        Flow::Done
    }

    /// Starts a task once the replies before it are made. `work` gets a client of the core, the
    /// output and the protocol, and ends with the client.
    pub(crate) fn task<F>(&mut self, work: impl FnOnce(Core, TaskOutput, Protocol) -> F) -> Flow
    where
        F: Future<Output = Core> + 'static,
    {
        if !self.connection.pending.is_empty() {
            return Flow::Later;
        }
        let core = self.serving.tasks.client(self.core);
        let output = TaskOutput::default();
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

/// A command that only replies `OK`.
fn succeed(call: &mut Call<'_>) -> Result<Flow, Refusal> {
    Ok(call.ok())
}

/// Runs the command that the arguments name.
pub(crate) fn run(call: &mut Call<'_>) -> Flow {
    if call.arguments.is_empty() {
        return Flow::Done;
    }
    let flow = match admitted(call) {
        Ok(command) => {
            let flow = (command.run)(call);
            if flow == Ok(Flow::Later) {
                return Flow::Later;
            }
            let counters = call.serving.counters();
            if let Some(counters) = counters.calls.get(command.place()) {
                counters.calls.add(1);
                if flow.is_err() {
                    counters.failed.add(1);
                }
            }
            if call.serving.is_monitored() && command.is_shown() {
                call.serving
                    .show(call.connection, call.arguments.iter(call.input));
            }
            flow
        }
        Err(refusal) => Err(refusal),
    };
    call.serving.counters().commands.add(1);
    if let Err(Refusal(text)) = flow {
        call.serving.note_failure(&text);
        call.connection.reply(|writer| writer.error(&text));
    }
    Flow::Done
}

/// The command, if it exists, has as many arguments as it takes, and the client may run it.
fn admitted(call: &mut Call<'_>) -> Result<&'static Command, Refusal> {
    let name = call.argument(0);
    let Some(command) = find(name) else {
        return Err(unknown(call));
    };
    let rejected = |call: &Call<'_>| {
        if let Some(counters) = call.serving.counters().calls.get(command.place()) {
            counters.rejected.add(1);
        }
    };
    if !command.takes(call.count()) {
        rejected(call);
        let name = command.name;
        let text = format!("ERR wrong number of arguments for '{name}' command");
        return Err(Refusal(text));
    }
    if !call.connection.is_authenticated && !command.is_for_strangers {
        rejected(call);
        return Err("NOAUTH Authentication required.".into());
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
    let name = repeated(call.argument(0), REPEATED_BYTES_MAX);
    Refusal(format!(
        "ERR unknown command '{name}', with args beginning with: {arguments}"
    ))
}
