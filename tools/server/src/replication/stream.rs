//! The commands that a source sends after its data.
//!
//! Each is passed on as it came, and its place in the stream is noted, so that the position of what
//! was applied follows the replies. A few concern the link alone and are not passed on.
//!
//! - I1: a command is passed on when all of it has come.
//! - I2: the position is between two commands, and never within a transaction.

use std::collections::VecDeque;

use super::error::LinkError;
use super::handshake::shown;
use super::history::Position;
use super::inlet::Outgoing;
use super::input::Input;
use crate::databases::DATABASES;
use crate::resp::{Arguments, Limits, Progress, parse};

/// Bytes of a string, and of a command, at most: what the server stores of one, and as much beside.
const STRING_BYTES_MAX: usize = 64 << 20;
const COMMAND_BYTES_MAX: usize = 128 << 20;
/// What helps where that is not enough.
const REMEDY: &str = "split it at the source, or leave its key out";
/// Codes of errors that concern the state of a key: the source has not got them, so the data
/// differ already, and what follows may still be applied; as Redis goes on.
const OF_STATE: &[&str] = &["WRONGTYPE", "NOGROUP", "BUSYGROUP", "BUSYKEY"];

/// What a command of the stream is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// It is passed on.
    Plain,
    /// It shows that the source is there.
    Nothing,
    /// The source wants to know the position.
    Question,
    /// It is about what the server does not have, and no data.
    PassedOver,
    Select(u64),
    Begin,
    End,
}

/// A command that was passed on and is not replied to.
#[derive(Debug)]
struct UnderWay {
    /// Its number among those that were passed on, from 1 on.
    number: u64,
    name: String,
    /// Where the stream is applied up to once it is replied to; `None` within a transaction.
    after: Option<Position>,
}

/// How an error of a command is taken.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct KeyFault {
    pub(super) command: String,
    pub(super) reply: String,
}

/// The commands that a source sends after its data.
#[derive(Debug)]
pub(super) struct Stream {
    arguments: Arguments,
    limits: Limits,
    /// What was read.
    read: Position,
    applied: Position,
    is_in_transaction: bool,
    under_way: VecDeque<UnderWay>,
    /// The source wants to know the position once it is here.
    asked_at: Option<u64>,
    pub(super) passed_over: u64,
}

impl Stream {
    /// The stream from a position on. The commands that follow begin in its database.
    pub(super) fn new(position: Position, out: &mut Outgoing) -> Self {
        let database = position.database.to_string();
        out.add(&[b"SELECT", database.as_bytes()]);
        Self {
            arguments: Arguments::default(),
            limits: Limits {
                bulk_bytes_max: STRING_BYTES_MAX,
                large_bytes: usize::MAX,
                ..Limits::default()
            },
            read: position,
            applied: position,
            is_in_transaction: false,
            under_way: VecDeque::new(),
            asked_at: None,
            passed_over: 0,
        }
    }

    /// Up to where the stream was applied.
    pub(super) fn applied(&self) -> Position {
        self.applied
    }

    /// Up to where it was read.
    pub(super) fn read(&self) -> u64 {
        self.read.offset
    }

    /// True once, if the source has asked for the position and this is reached.
    pub(super) fn take_question(&mut self) -> bool {
        let is_due = self.asked_at.is_some_and(|at| self.applied.offset >= at);
        is_due && self.asked_at.take().is_some()
    }

    /// Passes on the next command, if all of it has come. True if it has.
    pub(super) fn step(
        &mut self,
        input: &mut Input,
        out: &mut Outgoing,
    ) -> Result<bool, LinkError> {
        let rest = input.rest();
        match rest.first() {
            None => return Ok(false),
            Some(b'*') => {}
            Some(_) => {
                let text = String::from_utf8_lossy(&rest[..rest.len().min(64)]);
                let text = shown(&text);
                return Err(LinkError::Malformed(format!("{text} is no command")));
            }
        }
        let progress = parse(rest, &self.limits, &mut self.arguments);
        let progress = progress.map_err(|error| LinkError::Malformed(error.to_string()))?;
        let consumed = match progress {
            Progress::Complete { consumed } => consumed,
            Progress::Incomplete { needed } => {
                if needed > COMMAND_BYTES_MAX {
                    return Err(LinkError::TooLong {
                        what: "a command",
                        bytes: needed as u64,
                        most: COMMAND_BYTES_MAX as u64,
                        remedy: REMEDY,
                    });
                }
                return Ok(false);
            }
            // None is left to the caller.
            Progress::Large { .. } => return Err(LinkError::Malformed("a string".to_owned())),
        };
        let kind = self.kind(rest)?;
        self.take(kind, &rest[..consumed], out);
        input.pass(consumed);
        Ok(true)
    }

    fn kind(&self, input: &[u8]) -> Result<Kind, LinkError> {
        let argument = |place: usize| match place < self.arguments.len() {
            true => self.arguments.get(place, input).to_ascii_lowercase(),
            false => Vec::new(),
        };
        Ok(match &argument(0)[..] {
            b"ping" | b"" => Kind::Nothing,
            b"replconf" if argument(1) == b"getack" => Kind::Question,
            b"replconf" => Kind::Nothing,
            // Their calls come as the commands that they have run.
            b"function" => Kind::PassedOver,
            b"multi" => Kind::Begin,
            b"exec" => Kind::End,
            b"select" => {
                let text = String::from_utf8_lossy(&argument(1)).into_owned();
                let number = text
                    .parse()
                    .ok()
                    .filter(|number| *number < DATABASES.into());
                Kind::Select(number.ok_or_else(|| LinkError::Failed {
                    command: format!("SELECT {}", shown(&text)),
                    reply: format!("there are {DATABASES} databases; move its keys to another one"),
                })?)
            }
            _ => Kind::Plain,
        })
    }

    fn take(&mut self, kind: Kind, bytes: &[u8], out: &mut Outgoing) {
        self.read.offset += bytes.len() as u64;
        match kind {
            Kind::Begin => self.is_in_transaction = true,
            Kind::End => self.is_in_transaction = false,
            Kind::Select(database) => self.read.database = database,
            Kind::Question => self.asked_at = Some(self.read.offset),
            Kind::PassedOver => self.passed_over += 1,
            Kind::Plain | Kind::Nothing => {}
        }
        let after = (!self.is_in_transaction).then_some(self.read);
        if matches!(kind, Kind::Nothing | Kind::Question | Kind::PassedOver) {
            match (self.under_way.back_mut(), after) {
                (_, None) => {}
                (Some(last), after) => last.after = after,
                (None, Some(after)) => self.applied = after,
            }
            return;
        }
        out.add_raw(bytes);
        let name = match self.arguments.is_empty() {
            true => String::new(),
            false => String::from_utf8_lossy(self.arguments.get(0, bytes)).into_owned(),
        };
        self.under_way.push_back(UnderWay {
            number: out.commands(),
            name,
            after,
        });
    }

    /// Notes how many commands were replied to, and which failed: those whose keys are of another
    /// state than the source's are returned.
    ///
    /// # Errors
    /// One cannot be carried out here.
    pub(super) fn settle(
        &mut self,
        answered: u64,
        failed: Vec<(u64, String)>,
    ) -> Result<Vec<KeyFault>, LinkError> {
        let (mut failed, mut faults) = (failed.into_iter().peekable(), Vec::new());
        while let Some(one) = self.under_way.front().filter(|one| one.number <= answered) {
            while let Some((_, reply)) = failed.next_if(|(number, _)| *number <= one.number) {
                let command = one.name.to_uppercase();
                let code = reply.split(' ').next().unwrap_or_default();
                if !OF_STATE.contains(&code) {
                    return Err(LinkError::Failed { command, reply });
                }
                faults.push(KeyFault { command, reply });
            }
            if let Some(after) = one.after {
                self.applied = after;
            }
            self.under_way.pop_front();
        }
        Ok(faults)
    }
}
