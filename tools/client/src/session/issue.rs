//! Requests of the client: in messages, in upload slots, in parts.

use std::collections::VecDeque;

use farcore_protocol::{
    Flags, HEADER_BYTES, Header, Kind, TRANSFER_SLOT_BYTES, TRANSFER_SLOT_BYTES_MAX,
};
use farcore_rdma::Work;

use super::{Backlog, Purpose, Session, SessionError};
use crate::command::{Command, Reply};
use crate::figures::Counters;
use crate::flights::Flight;

/// Parts of one value that are under way at once.
const PARTS: usize = 2;
/// Slots that are requested when a value needs longer ones.
const GROW_SLOTS: u16 = 2;
/// Slots of the first length that are requested when all are in use.
const MORE_SLOTS: u16 = 6;

/// Whether a command could be sent.
enum Issued {
    Sent,
    /// It has to wait, for a credit or a buffer.
    Later(Command),
}

impl Session {
    /// Sends the commands that wait, as far as there are credits and buffers. True if any was sent.
    pub(super) fn issue_all(
        &mut self,
        backlog: &mut Backlog,
        counters: &Counters,
    ) -> Result<bool, SessionError> {
        let mut is_busy = self.go_on_with_parts(counters)?;
        backlog.resume();
        while let Some(command) = backlog.large.pop_front() {
            match self.issue_large(command, counters)? {
                Issued::Sent => is_busy = true,
                Issued::Later(command) => {
                    backlog.large.push_front(command);
                    break;
                }
            }
        }
        while let Some(command) = backlog.small.pop_front() {
            if self.is_large(&command) {
                backlog.large.push_back(command);
                is_busy = true;
                continue;
            }
            match self.issue_small(command, counters)? {
                Issued::Sent => is_busy = true,
                Issued::Later(command) => {
                    backlog.small.push_front(command);
                    break;
                }
            }
        }
        Ok(is_busy)
    }

    /// Whether a request travels in an upload slot.
    fn is_large(&self, command: &Command) -> bool {
        let bytes = HEADER_BYTES + command.key.len() + command.value.len();
        let small_bytes = self.welcome.small_bytes as usize;
        let stores = matches!(command.header.kind, Kind::Put | Kind::CompareAndSwap);
        bytes > self.message_bytes() || stores && command.value.len() >= small_bytes
    }

    fn issue_small(
        &mut self,
        mut command: Command,
        counters: &Counters,
    ) -> Result<Issued, SessionError> {
        if self.credits.available() == 0 || !self.messages.has_send() {
            return Ok(Issued::Later(command));
        }
        let kind = command.header.kind;
        let mut header = command.header;
        let mut landing = None;
        if kind == Kind::Get {
            header.offset = command.found.len() as u64;
            landing = self.landings.take(1);
            if let Some((number, buffer)) = landing {
                header.flags = header.flags.with(Flags::LANDING);
                header.slot = number;
                header.memory_key = self.landings.remote(buffer).0;
                let offset = u32::try_from(buffer.offset).unwrap_or(u32::MAX);
                let bytes = u32::try_from(buffer.bytes).unwrap_or(u32::MAX);
                header.argument = Header::landing(offset, bytes);
            }
        } else {
            header.value_bytes = u32::try_from(command.value.len()).unwrap_or(u32::MAX);
        }
        header.key_bytes = u16::try_from(command.key.len()).unwrap_or(u16::MAX);
        let value = std::mem::take(&mut command.value);
        let key = std::mem::take(&mut command.key);
        // A get may go on, and any may have to be sent again.
        let flight = Flight {
            landing: landing.map(|one| one.0),
            ..Flight::new(kind, Some(command))
        };
        let Some(id) = self.flights.insert(flight) else {
            return Err(SessionError::Violation("too many requests are under way"));
        };
        header.id = id;
        self.send(header, [&key, &value], counters)?;
        if let Some(command) = self.flights.get(id).and_then(|one| one.command.as_mut()) {
            (command.key, command.value) = (key, value);
        }
        counters.messages.add(1);
        Ok(Issued::Sent)
    }

    /// Sends a message, with a credit and a send buffer that are there.
    fn send(
        &mut self,
        header: Header,
        [key, value]: [&[u8]; 2],
        counters: &Counters,
    ) -> Result<(), SessionError> {
        let Some(credits) = self.credits.spend() else {
            return Err(SessionError::Violation("a message without a credit"));
        };
        let header = self.with_returns(header, credits);
        let written = self.messages.write([&header.encode(), key, value]);
        let Some((send, local)) = written else {
            return Err(SessionError::Violation("a message without a buffer"));
        };
        self.post(Purpose::Send(send), Work::Send { local }, counters)
    }

    /// A header that also grants credits and returns a slot.
    fn with_returns(&mut self, header: Header, credits: u16) -> Header {
        Header {
            credits,
            done: self.done.pop().map_or(0, |slot| slot + 1),
            ..header
        }
    }

    fn issue_large(
        &mut self,
        mut command: Command,
        counters: &Counters,
    ) -> Result<Issued, SessionError> {
        let whole = HEADER_BYTES + command.key.len() + command.value.len();
        if whole > self.uploads.longest() && self.grow(counters)? {
            return Ok(Issued::Later(command));
        }
        if self.credits.available() == 0 {
            return Ok(Issued::Later(command));
        }
        let is_whole = whole <= self.uploads.longest();
        let wanted = if is_whole {
            whole
        } else {
            self.uploads.longest()
        };
        let Some((upload, buffer)) = self.uploads.take(wanted) else {
            self.add_slots(counters)?;
            return Ok(Issued::Later(command));
        };
        let mut header = command.header;
        header.key_bytes = u16::try_from(command.key.len()).unwrap_or(u16::MAX);
        let bytes = command
            .value
            .len()
            .min(buffer.bytes - HEADER_BYTES - command.key.len());
        if !is_whole {
            header.flags = header.flags.with(Flags::MORE);
            header.offset = command.value.len() as u64;
        }
        let kind = header.kind;
        let key = std::mem::take(&mut command.key);
        let value = std::mem::take(&mut command.value);
        let flight = Flight {
            uploads: VecDeque::from([upload]),
            sent: (!is_whole).then_some(bytes),
            ..Flight::new(kind, Some(command))
        };
        let Some(id) = self.flights.insert(flight) else {
            return Err(SessionError::Violation("too many requests are under way"));
        };
        header.id = id;
        self.upload(upload, header, [&key, &value[..bytes]], counters)?;
        if let Some(command) = self.flights.get(id).and_then(|one| one.command.as_mut()) {
            (command.key, command.value) = (key, value);
        }
        if !is_whole {
            self.in_parts.push(id);
        }
        Ok(Issued::Sent)
    }

    /// Writes a request into an upload slot, with a credit that is there.
    fn upload(
        &mut self,
        upload: u16,
        header: Header,
        [key, value]: [&[u8]; 2],
        counters: &Counters,
    ) -> Result<(), SessionError> {
        let Some(credits) = self.credits.spend() else {
            return Err(SessionError::Violation("a message without a credit"));
        };
        let header = Header {
            value_bytes: u32::try_from(value.len()).unwrap_or(u32::MAX),
            ..self.with_returns(header, credits)
        };
        let buffer = self.uploads.get(upload);
        let Some((buffer, remote)) = buffer.and_then(|one| Some((one, one.slot?))) else {
            return Err(SessionError::Violation("an upload without a slot"));
        };
        self.uploads.write(buffer, 0, &header.encode());
        self.uploads.write(buffer, HEADER_BYTES, key);
        self.uploads.write(buffer, HEADER_BYTES + key.len(), value);
        let local = self
            .uploads
            .local(buffer, HEADER_BYTES + key.len() + value.len());
        counters.uploads.add(1);
        let work = Work::WriteImmediate {
            local,
            remote,
            immediate: upload.into(),
        };
        self.post(Purpose::Upload, work, counters)
    }

    /// Sends further parts of values that are sent in parts.
    fn go_on_with_parts(&mut self, counters: &Counters) -> Result<bool, SessionError> {
        let mut is_busy = false;
        for id in std::mem::take(&mut self.in_parts) {
            let mut is_open = true;
            while is_open && self.credits.available() > 0 {
                let longest = self.uploads.longest();
                let Some(flight) = self.flights.get(id) else {
                    is_open = false;
                    break;
                };
                let Some(sent) = flight.sent else {
                    is_open = false;
                    break;
                };
                if flight.uploads.len() >= PARTS {
                    break;
                }
                let Some((upload, buffer)) = self.uploads.take(longest) else {
                    break;
                };
                is_open = self.send_part(id, sent, (upload, buffer.bytes), counters)?;
                is_busy = true;
            }
            if is_open {
                self.in_parts.push(id);
            }
        }
        Ok(is_busy)
    }

    /// Sends a part of a value. True if more are to follow.
    fn send_part(
        &mut self,
        id: u32,
        sent: usize,
        (upload, room): (u16, usize),
        counters: &Counters,
    ) -> Result<bool, SessionError> {
        let Some(flight) = self.flights.get(id) else {
            return Ok(false);
        };
        flight.uploads.push_back(upload);
        let kind = flight.kind;
        let value = match &mut flight.command {
            Some(command) => std::mem::take(&mut command.value),
            // Its caller waits no more, and the server has been told how many bytes come.
            None => std::mem::take(&mut flight.orphan),
        };
        let bytes = (value.len() - sent).min(room - HEADER_BYTES);
        let has_more = sent + bytes < value.len();
        flight.sent = has_more.then_some(sent + bytes);
        let mut header = Header::new(kind, id);
        if has_more {
            header.flags = header.flags.with(Flags::MORE);
        }
        let uploaded = self.upload(upload, header, [&[], &value[sent..sent + bytes]], counters);
        if let Some(flight) = self.flights.get(id) {
            match &mut flight.command {
                Some(command) => command.value = value,
                None => flight.orphan = value,
            }
        }
        uploaded?;
        Ok(has_more)
    }

    /// Requests longer upload slots. True if they may come.
    fn grow(&mut self, counters: &Counters) -> Result<bool, SessionError> {
        let most = (self.welcome.slot_bytes_max as usize).min(TRANSFER_SLOT_BYTES_MAX);
        if self.is_growing {
            return Ok(true);
        }
        if self.may_not_grow || self.uploads.longest() >= most {
            return Ok(false);
        }
        if self.credits.available() == 0 || !self.messages.has_send() {
            return Ok(true);
        }
        self.request_slots((GROW_SLOTS, most), counters)?;
        Ok(true)
    }

    /// Requests more upload slots: all are in use, and requests wait.
    fn add_slots(&mut self, counters: &Counters) -> Result<(), SessionError> {
        let may = !self.is_growing && !self.may_not_grow && !self.has_added;
        if may && self.credits.available() > 0 && self.messages.has_send() {
            self.has_added = true;
            self.request_slots((MORE_SLOTS, TRANSFER_SLOT_BYTES), counters)?;
        }
        Ok(())
    }

    fn request_slots(
        &mut self,
        (slots, bytes): (u16, usize),
        counters: &Counters,
    ) -> Result<(), SessionError> {
        let Some(id) = self.flights.insert(Flight::new(Kind::Grow, None)) else {
            return Ok(());
        };
        self.is_growing = true;
        let header = Header {
            slot: slots,
            argument: bytes as u64,
            ..Header::new(Kind::Grow, id)
        };
        self.send(header, [&[], &[]], counters)
    }

    /// Returns lend slots for which no request takes them along.
    pub(super) fn return_slots(&mut self, counters: &Counters) -> Result<(), SessionError> {
        while !self.done.is_empty() && self.credits.available() > 0 && self.messages.has_send() {
            let mut slots = std::mem::take(&mut self.done);
            let rest = slots.split_off(slots.len().min(DONE_SLOTS));
            let body: Vec<u8> = slots.iter().flat_map(|slot| slot.to_le_bytes()).collect();
            let header = Header {
                value_bytes: u32::try_from(body.len()).unwrap_or(0),
                ..Header::new(Kind::Done, 0)
            };
            self.send(header, [&[], &body], counters)?;
            self.done = rest;
            counters.dones.add(1);
        }
        Ok(())
    }

    /// Returns credits that no other message returns.
    pub(super) fn return_credits(&mut self, counters: &Counters) -> Result<(), SessionError> {
        if !self.messages.has_send() {
            return Ok(());
        }
        let Some(credits) = self.credits.spend_on_noop() else {
            return Ok(());
        };
        let header = Header {
            credits,
            ..Header::new(Kind::Noop, 0)
        };
        let written = self.messages.write([&header.encode(), &[], &[]]);
        let Some((send, local)) = written else {
            return Err(SessionError::Violation("a message without a buffer"));
        };
        counters.noops.add(1);
        self.post(Purpose::Send(send), Work::Send { local }, counters)
    }

    /// Ends a request for longer slots.
    pub(super) fn grown(&mut self, reply: &Reply) -> Result<(), SessionError> {
        self.is_growing = false;
        if reply.header.status != farcore_protocol::Status::Ok {
            self.may_not_grow = true;
            return Ok(());
        }
        let facts = farcore_protocol::handshake::SlotFacts::decode(&reply.value)?;
        if self.uploads.add_uploads(&mut self.endpoint, &facts)? {
            Ok(())
        } else {
            Err(SessionError::Violation(
                "upload slots that do not follow the others",
            ))
        }
    }
}

/// Slots that one DONE returns.
const DONE_SLOTS: usize = 64;
