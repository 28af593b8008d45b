//! The commands that a source sends after its data.
//!
//! Each is passed on as it came, and its place in the stream is noted, so that the position of what
//! was applied follows the replies. A few concern the link alone and are not passed on.
//!
//! - I1: a command is passed on when all of it has come.
//! - I2: the position is between two commands, and never within a transaction.

use std::collections::{HashSet, VecDeque};

use farcore_tuning::mutated;

use super::error::LinkError;
use super::handshake::shown;
use super::history::Position;
use super::inlet::Outgoing;
use super::input::Input;
use super::slot_filter::{SlotFilter, Wanted};
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
    /// It changes nothing here: it shows that the source is there, or is about keys that are not
    /// wanted.
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
    /// Bytes that were read and are not relayed: those behind this offset.
    raw: Vec<u8>,
    relayed: u64,
    /// The source wants to know the position once it is here.
    asked_at: Option<u64>,
    /// The commands that a source may send.
    names: HashSet<&'static str>,
    pub(super) passed_over: u64,
    /// Those that are wanted, if not all are. Nothing is relayed then.
    filter: Option<SlotFilter>,
}

impl Stream {
    /// The stream from a position on. The commands that follow begin in its database.
    pub(super) fn new(
        position: Position,
        names: HashSet<&'static str>,
        out: &mut Outgoing,
    ) -> Self {
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
            raw: Vec::new(),
            relayed: position.offset,
            asked_at: None,
            names,
            passed_over: 0,
            filter: None,
        }
    }

    /// Passes on only what is about keys of some slots.
    pub(super) fn of_slots(self, filter: SlotFilter) -> Self {
        Self {
            filter: Some(filter),
            ..self
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

    /// True once, if the source wants the position and this is reached.
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
                Kind::Select(number.ok_or_else(|| LinkError::Unknown {
                    command: format!("SELECT {}", shown(&text)),
                    reason: format!(
                        "there are {DATABASES} databases; move its keys to another one"
                    ),
                })?)
            }
            name => match std::str::from_utf8(name).is_ok_and(|name| self.names.contains(name)) {
                true => self.kind_of_change(name, input)?,
                // Nothing of it is passed on, so that the position is right before it.
                false => {
                    return Err(LinkError::Unknown {
                        command: shown(&String::from_utf8_lossy(name)),
                        reason: "have the source do without it".to_owned(),
                    });
                }
            },
        })
    }

    /// What a command is that changes keys.
    fn kind_of_change(&self, name: &[u8], input: &[u8]) -> Result<Kind, LinkError> {
        let Some(filter) = &self.filter else {
            return Ok(Kind::Plain);
        };
        match filter.wants(name, &self.arguments, input) {
            Wanted::Yes => Ok(Kind::Plain),
            Wanted::No => Ok(Kind::Nothing),
            Wanted::Unknown => Err(LinkError::Unknown {
                command: shown(&String::from_utf8_lossy(name)),
                reason: "it is about all keys, and some slots are brought".to_owned(),
            }),
        }
    }

    /// The bytes that were applied and not relayed.
    pub(super) fn take_applied(&mut self, relay: impl FnOnce(&[u8])) {
        let bytes = self.applied.offset - self.relayed;
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let bytes = bytes.min(self.raw.len());
        if bytes > 0 {
            relay(&self.raw[..bytes]);
            self.raw.drain(..bytes);
            self.relayed = self.applied.offset;
        }
    }

    fn take(&mut self, kind: Kind, bytes: &[u8], out: &mut Outgoing) {
        self.read.offset += bytes.len() as u64;
        let kind = match &mut self.filter {
            None => {
                self.raw.extend_from_slice(bytes);
                kind
            }
            Some(filter) => match (kind, filter.begin.is_some()) {
                // It begins with the first command of it that is wanted.
                (Kind::Begin, _) => {
                    filter.begin = Some(bytes.to_vec());
                    self.is_in_transaction = true;
                    Kind::Nothing
                }
                (Kind::End, true) => {
                    filter.begin = None;
                    self.is_in_transaction = false;
                    Kind::Nothing
                }
                (Kind::Plain, true) => {
                    let begin = filter.begin.take().unwrap_or_default();
                    self.pass_on(&begin, "MULTI".to_owned(), None, out);
                    kind
                }
                _ => kind,
            },
        };
        match kind {
            Kind::Begin => self.is_in_transaction = true,
            Kind::End => self.is_in_transaction = false,
            Kind::Select(database) => self.read.database = database,
            Kind::Question => self.asked_at = Some(self.read.offset),
            Kind::PassedOver => self.passed_over += 1,
            Kind::Plain | Kind::Nothing => {}
        }
        let is_between = !self.is_in_transaction || mutated!("position-within-transaction");
        let after = is_between.then_some(self.read);
        if matches!(kind, Kind::Nothing | Kind::Question | Kind::PassedOver) {
            match (self.under_way.back_mut(), after) {
                (_, None) => {}
                (Some(last), after) => last.after = after,
                (None, Some(after)) => self.applied = after,
            }
            return;
        }
        let name = match self.arguments.is_empty() {
            true => String::new(),
            false => String::from_utf8_lossy(self.arguments.get(0, bytes)).into_owned(),
        };
        self.pass_on(bytes, name, after, out);
    }

    fn pass_on(&mut self, bytes: &[u8], name: String, after: Option<Position>, out: &mut Outgoing) {
        out.add_raw(bytes);
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
                    return Err(LinkError::NotApplied { command, reply });
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Numbers;

    const NAMES: &[&str] = &["set", "incr", "lpop"];

    fn stream(out: &mut Outgoing) -> Stream {
        Stream::new(Position::default(), NAMES.iter().copied().collect(), out)
    }

    fn command(words: &str) -> Vec<u8> {
        let words: Vec<_> = words.split(' ').map(str::as_bytes).collect();
        let mut bytes = Vec::new();
        super::super::source::write_command(&words, &mut bytes);
        bytes
    }

    /// Reads bytes that come in pieces; returns what is passed on.
    fn read(bytes: &[u8], step: usize) -> Result<(Stream, Vec<u8>), LinkError> {
        let (mut input, mut out) = (Input::default(), Outgoing::default());
        let mut stream = stream(&mut out);
        out.take();
        for part in bytes.chunks(step) {
            input.add(part);
            while stream.step(&mut input, &mut out)? {}
        }
        Ok((stream, out.take()))
    }

    #[test]
    fn a_stream_is_the_same_however_it_is_split() {
        let sent = [
            "SELECT 3",
            "SET a b",
            "PING",
            "MULTI",
            "INCR a",
            "EXEC",
            "FUNCTION LOAD x",
            "REPLCONF GETACK *",
        ];
        let sent: Vec<_> = sent.iter().map(|words| command(words)).collect();
        let passed: Vec<_> = [0, 1, 3, 4, 5].iter().map(|&at| sent[at].clone()).collect();
        let (all, passed) = (sent.concat(), passed.concat());
        for step in 1..all.len() {
            let (mut stream, out) = read(&all, step).expect("a stream");
            assert_eq!(out, passed, "in steps of {step}");
            assert_eq!((stream.read(), stream.passed_over), (all.len() as u64, 1));
            // The command before the first was numbered 1.
            let places = [0, sent[..1].concat().len(), sent[..3].concat().len()];
            for (answered, place) in [(1, places[0]), (2, places[1]), (3, places[2])] {
                stream.settle(answered, Vec::new()).expect("none failed");
                assert_eq!(stream.applied().offset, place as u64, "{answered}");
            }
            // Within a transaction it stays before it.
            stream.settle(5, Vec::new()).expect("none failed");
            assert_eq!(stream.applied().offset, places[2] as u64);
            assert!(!stream.take_question());
            stream.settle(6, Vec::new()).expect("none failed");
            let end = Position {
                offset: all.len() as u64,
                database: 3,
            };
            assert_eq!(stream.applied(), end);
            assert!(stream.take_question() && !stream.take_question());
        }
    }

    #[test]
    fn only_what_is_about_some_slots_is_passed_on() {
        // Slots: a 15495, b 3300.
        let filter = || SlotFilter {
            slots: std::sync::Arc::new(crate::cluster::SlotSet::parse("3300").expect("a slot")),
            begin: None,
        };
        let read = |bytes: &[u8], step: usize| -> Result<(Stream, Vec<u8>), LinkError> {
            let (mut input, mut out) = (Input::default(), Outgoing::default());
            let mut stream = stream(&mut out).of_slots(filter());
            out.take();
            for part in bytes.chunks(step) {
                input.add(part);
                while stream.step(&mut input, &mut out)? {}
            }
            Ok((stream, out.take()))
        };
        let all = |sent: &[&str]| sent.iter().flat_map(|one| command(one)).collect::<Vec<_>>();
        for (sent, passed) in [
            (&["SET a 1", "SET b 1"][..], &["SET b 1"][..]),
            (&["MULTI", "SET a 1", "EXEC", "PING"], &[]),
            (
                &["MULTI", "SET a 1", "SET b 1", "INCR b", "EXEC", "INCR a"],
                &["MULTI", "SET b 1", "INCR b", "EXEC"],
            ),
        ] {
            let (sent, passed) = (all(sent), all(passed));
            for step in 1..=sent.len() {
                let (mut stream, out) = read(&sent, step).expect("a stream");
                assert_eq!(out, passed, "in steps of {step}");
                assert_eq!(stream.read(), sent.len() as u64);
                stream.settle(5, Vec::new()).expect("none failed");
                assert_eq!(stream.applied().offset, sent.len() as u64);
                stream.take_applied(|_| unreachable!("nothing is relayed"));
            }
        }
        assert!(read(&all(&["SET b 1", "FLUSHALL"]), 7).is_err());
        assert!(read(&all(&["INCR"]), 7).is_err());
    }

    #[test]
    fn a_command_that_fails_is_not_applied_unless_its_key_alone_is_to_blame() {
        let both = [command("INCR a"), command("LPOP a")].concat();
        let (mut stream, _) = read(&both, 1).expect("a stream");
        let fault = stream.settle(2, vec![(2, "WRONGTYPE no".to_owned())]);
        assert_eq!(fault.expect("it goes on")[0].command, "INCR");
        let before = stream.applied();
        let failed = stream.settle(3, vec![(3, "OOM no".to_owned())]);
        assert!(matches!(failed, Err(LinkError::NotApplied { .. })));
        assert_eq!(stream.applied(), before);
        let unknown = read(&command("SHUTDOWN"), 1);
        assert!(matches!(unknown, Err(LinkError::Unknown { .. })));
    }

    #[test]
    fn no_bytes_cause_a_panic() {
        const ODD: &[u8] = b"*$019\r\n-x\0\xff";
        let mut numbers = Numbers::new();
        let valid = ["SELECT 3", "MULTI", "INCR a", "EXEC", "SET a b"]
            .map(command)
            .concat();
        for _ in 0..20_000 {
            let mut bytes = valid.clone();
            for _ in 0..=numbers.below(4) {
                let at = numbers.below(bytes.len());
                bytes[at] = ODD[numbers.below(ODD.len())];
            }
            bytes.truncate(numbers.below(bytes.len()));
            let _ = read(&bytes, 1 + numbers.below(40));
        }
    }
}
