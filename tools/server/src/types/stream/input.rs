//! What a command hands its program, and what that answers.
//!
//! ```text
//! input:  | protocol:8 | number:64 · ID:128 · length:32 and bytes .. |
//! answer: | events:8 | has more:8 | number:64 | ID:128 | reply in the client's protocol |
//! ```

use super::id::StreamId;
use crate::resp::{Protocol, Writer};

/// Bytes before the reply of an answer.
const HEAD: usize = 26;

/// What a program has done, as bits.
pub(crate) mod deeds {
    /// Entries were added.
    pub(crate) const ADDED: u8 = 1;
    /// Entries were trimmed.
    pub(crate) const TRIMMED: u8 = 2;
    /// The key is new.
    pub(crate) const MADE: u8 = 4;
    /// What the program is for was done.
    pub(crate) const DONE: u8 = 8;
    /// The reply is an error, and nothing was done.
    pub(crate) const FAILED: u8 = 16;
    /// A consumer was made.
    pub(crate) const CONSUMER: u8 = 32;
}

/// Writes an input.
#[derive(Debug)]
pub(crate) struct Input(Vec<u8>);

impl Input {
    pub(crate) fn new(protocol: Protocol) -> Self {
        Self(vec![u8::from(protocol == Protocol::Resp3)])
    }

    pub(crate) fn number(mut self, number: u64) -> Self {
        self.0.extend(number.to_le_bytes());
        self
    }

    pub(crate) fn flag(self, flag: bool) -> Self {
        self.number(u64::from(flag))
    }

    pub(crate) fn id(mut self, id: StreamId) -> Self {
        self.0.extend(id.to_bytes());
        self
    }

    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Self {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.0.extend(length.to_le_bytes());
        self.0.extend_from_slice(bytes);
        self
    }

    /// Has `add` write what the rest of the input is.
    pub(crate) fn rest(mut self, add: impl FnOnce(&mut Vec<u8>)) -> Self {
        add(&mut self.0);
        self
    }

    pub(crate) fn encoded(&self) -> &[u8] {
        &self.0
    }
}

/// Reads an input. The server writes them, so what is missing counts as nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Given<'a> {
    pub(super) protocol: Protocol,
    rest: &'a [u8],
}

impl<'a> Given<'a> {
    pub(super) fn new(input: &'a [u8]) -> Self {
        let (protocol, rest) = input.split_first().unwrap_or((&0, &[]));
        let protocol = match protocol {
            0 => Protocol::Resp2,
            _ => Protocol::Resp3,
        };
        Self { protocol, rest }
    }

    fn take<const N: usize>(&mut self) -> [u8; N] {
        let Some((taken, rest)) = self.rest.split_first_chunk() else {
            debug_assert!(false, "it was written so");
            return [0; N];
        };
        self.rest = rest;
        *taken
    }

    pub(super) fn number(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    pub(super) fn flag(&mut self) -> bool {
        self.number() != 0
    }

    pub(super) fn id(&mut self) -> StreamId {
        StreamId::of_bytes(self.take())
    }

    pub(super) fn bytes(&mut self) -> &'a [u8] {
        let length = u32::from_le_bytes(self.take());
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let (taken, rest) = self.rest.split_at_checked(length).unwrap_or_default();
        self.rest = rest;
        taken
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
}

/// An answer under construction.
#[derive(Debug)]
pub(super) struct Answering<'a> {
    bytes: &'a mut Vec<u8>,
    protocol: Protocol,
}

impl<'a> Answering<'a> {
    pub(super) fn new(bytes: &'a mut Vec<u8>, given: &Given<'_>) -> Self {
        bytes.clear();
        bytes.resize(HEAD, 0);
        Self {
            bytes,
            protocol: given.protocol,
        }
    }

    pub(super) fn did(&mut self, deeds: u8) {
        self.bytes[0] |= deeds;
    }

    pub(super) fn has_more(&mut self) {
        self.bytes[1] = 1;
    }

    pub(super) fn number(&mut self, number: u64) {
        self.bytes[2..10].copy_from_slice(&number.to_le_bytes());
    }

    pub(super) fn id(&mut self, id: StreamId) {
        self.bytes[10..HEAD].copy_from_slice(&id.to_bytes());
    }

    pub(super) fn writer(&mut self) -> Writer<'_> {
        Writer::new(self.bytes, self.protocol)
    }

    /// Bytes of the reply.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - HEAD
    }

    /// Drops what was written of the reply behind this many bytes.
    pub(super) fn truncate(&mut self, len: usize) {
        self.bytes.truncate(HEAD + len);
    }

    /// Ends a page of `count` things. If more follow behind a name, that comes last.
    pub(super) fn end_page(&mut self, count: u64, behind: Option<&[u8]>) {
        self.number(count);
        let Some(name) = behind else {
            return;
        };
        self.has_more();
        self.id(StreamId {
            ms: name.len() as u64,
            number: 0,
        });
        self.bytes.extend_from_slice(name);
    }

    /// Puts the reply of `count` entries or IDs between an ID and other IDs.
    pub(super) fn wrap(&mut self, before: StreamId, count: u64, behind: &[StreamId]) {
        let entries = self.bytes.split_off(HEAD);
        let mut writer = self.writer();
        writer.array(3);
        writer.bulk(before.to_string().as_bytes());
        writer.array(usize::try_from(count).unwrap_or(usize::MAX));
        writer.raw(&entries);
        writer.array(behind.len());
        for id in behind {
            writer.bulk(id.to_string().as_bytes());
        }
    }

    /// Replies an error.
    pub(super) fn fail(&mut self, text: &str) {
        self.truncate(0);
        self.did(deeds::FAILED);
        self.writer().error(text);
    }
}

/// What a program has answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered<'a>(&'a [u8]);

impl<'a> Answered<'a> {
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn did(self, deed: u8) -> bool {
        self.0.first().is_some_and(|deeds| deeds & deed != 0)
    }

    pub(crate) fn has_more(self) -> bool {
        self.0.get(1).is_some_and(|&more| more != 0)
    }

    pub(crate) fn number(self) -> u64 {
        let number = self.0.get(2..).and_then(|rest| rest.first_chunk());
        number.map_or(0, |number| u64::from_le_bytes(*number))
    }

    pub(crate) fn id(self) -> StreamId {
        let id = self.0.get(10..).and_then(|rest| rest.first_chunk());
        id.map_or(StreamId::FIRST, |id| StreamId::of_bytes(*id))
    }

    /// The reply of a page, and the name behind which the next page begins, if there is one.
    pub(crate) fn page(self) -> (&'a [u8], Option<&'a [u8]>) {
        if !self.has_more() {
            return (self.reply(), None);
        }
        let reply = self.reply();
        let name_bytes = usize::try_from(self.id().ms).unwrap_or(usize::MAX);
        let end = reply.len().saturating_sub(name_bytes);
        let (reply, name) = reply.split_at(end);
        (reply, Some(name))
    }

    /// The reply, as it is sent.
    pub(crate) fn reply(self) -> &'a [u8] {
        self.0.get(HEAD..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_command_hands_over_is_read_by_its_program() {
        let id = StreamId { ms: 7, number: 9 };
        let input = Input::new(Protocol::Resp3);
        let input = input.number(5).bytes(b"name").id(id).flag(true);
        let input = input.rest(|rest| rest.extend(b"rest"));
        let mut given = Given::new(input.encoded());
        assert_eq!(given.protocol, Protocol::Resp3);
        assert_eq!(
            (given.number(), given.bytes(), given.id()),
            (5, &b"name"[..], id)
        );
        assert!(given.flag() && !given.is_empty());
        assert_eq!(given.rest(), b"rest");
    }

    #[test]
    fn what_a_program_answers_is_read_by_its_command() {
        let id = StreamId { ms: 7, number: 9 };
        let mut bytes = b"old".to_vec();
        let given = Given::new(&[0]);
        let mut answering = Answering::new(&mut bytes, &given);
        answering.did(deeds::ADDED);
        answering.number(6);
        answering.id(id);
        answering.writer().integer(1);
        let answered = Answered::of(&bytes);
        assert!(answered.did(deeds::ADDED) && !answered.did(deeds::FAILED));
        assert_eq!((answered.number(), answered.id()), (6, id));
        assert_eq!(answered.reply(), b":1\r\n");
        assert!(!answered.has_more());
        Answering {
            bytes: &mut bytes,
            protocol: Protocol::Resp2,
        }
        .fail("ERR no");
        let answered = Answered::of(&bytes);
        assert!(answered.did(deeds::FAILED));
        assert_eq!(answered.reply(), b"-ERR no\r\n");
    }
}
