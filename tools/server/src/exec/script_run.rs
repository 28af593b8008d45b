//! A script that runs for a connection: its interpreter, the command that it has called, and what
//! the connection is for its client meanwhile. What a core does for it stands in
//! `turn/scripting.rs`.
//!
//! - I1: while a script runs, the connection's output takes the replies of its commands. What is
//!   for the client waits here.

use std::sync::Arc;
use std::time::{Duration, Instant};

use farcore_script::{Interpreter, Script, Step};

use crate::conn::output::Output;
use crate::conn::reply_mode::ReplyMode;
use crate::exec::transaction::{Parsing, Queue, Reach};
use crate::resp::Protocol;

/// Commands of a turn between two looks at the age of a script.
const RESUMES_A_LOOK: u32 = 16;

/// What a script does next.
#[derive(Debug)]
pub(crate) enum Next {
    /// It goes on with a step.
    Step(Step),
    /// It waits for the command that it has called.
    Command(Box<Called>),
}

/// A command that a script has called.
#[derive(Debug, Default)]
pub(crate) struct Called {
    pub(crate) queue: Queue,
    pub(crate) at: usize,
    pub(crate) parsing: Parsing,
}

impl Called {
    /// True if all of it is parsed, and it has not run.
    pub(crate) fn is_ready(&self) -> bool {
        self.at == 0 && self.parsing.next == Some(self.queue.bytes.len())
    }

    /// Forgets the command; leaves its buffer.
    pub(crate) fn end(&mut self) -> Vec<u8> {
        let bytes = std::mem::take(&mut self.queue.bytes);
        (self.queue, self.at) = (Queue::default(), 0);
        self.parsing.end();
        bytes
    }
}

/// A script that runs.
#[derive(Debug)]
pub(crate) struct ScriptRun {
    pub(crate) script: Arc<Script>,
    /// None while it goes on.
    pub(crate) interpreter: Option<Interpreter>,
    pub(crate) next: Option<Next>,
    pub(crate) started: Instant,
    /// Times that it went on, and those of them in which it came to its next command.
    pub(crate) turns: u32,
    pub(crate) resumes: u32,
    /// It may not write.
    pub(crate) is_read_only: bool,
    /// It has called a command that writes.
    pub(crate) has_written: bool,
    /// The shards whose keys its commands may have; `None` of all.
    pub(crate) reach: Option<Reach>,
    /// Why it is to end.
    pub(crate) end: Option<String>,
    /// Bytes that a reply of a command may have.
    pub(crate) reply_bytes_max: usize,
    /// The reply of the command had more.
    pub(crate) is_reply_lost: bool,
    /// What the client is sent.
    pub(crate) output: Output,
    pub(crate) mode: ReplyMode,
    pub(crate) protocol: Protocol,
    /// The number of the database that the client has selected.
    pub(crate) database: u8,
    pub(crate) name: &'static str,
}

impl ScriptRun {
    /// Bytes that it takes.
    pub(crate) fn held_bytes(&self) -> usize {
        let interpreter = self.interpreter.as_ref();
        let called = match &self.next {
            Some(Next::Command(called)) => called.queue.bytes.capacity(),
            Some(Next::Step(Step::Reply(reply))) => reply.capacity(),
            _ => 0,
        };
        size_of::<Self>()
            + interpreter.map_or(0, Interpreter::used_bytes)
            + self.output.held_bytes()
            + called
    }

    /// Notes that its interpreter goes on. True if its age must be looked at: a short script ends
    /// before.
    #[inline]
    pub(crate) fn is_age_due(&mut self) -> bool {
        self.resumes += 1;
        self.turns > 1 || self.resumes.is_multiple_of(RESUMES_A_LOOK)
    }

    /// How long it has run.
    pub(crate) fn age(&self) -> Duration {
        self.started.elapsed()
    }
}
